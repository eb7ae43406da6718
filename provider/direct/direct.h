// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Between libetherwarpdv and the provider: a table that the provider exports under the name below. */
#ifndef EWARP_DIRECT_DIRECT_H
#define EWARP_DIRECT_DIRECT_H

#include "provider/direct/infiniband/etherwarpdv.h"

#define EWARP_DIRECT_SYMBOL "etherwarp_direct"
#define EWARP_DIRECT_VERSION 1

struct etherwarp_direct {
  uint32_t version;
  /* Both have been told a complete struct of their own version: zero where the caller's was shorter. */
  int (*query_device)(struct ibv_context* context, struct etherwarpdv_device_attr* attr);
  struct ibv_qp* (*create_qp_ex)(struct ibv_context* context, struct ibv_qp_init_attr_ex* attr_ex,
                                 const struct etherwarpdv_qp_init_attr* attr);
};

#endif
