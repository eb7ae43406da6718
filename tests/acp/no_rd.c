/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Preloaded: devices are ordinary ones, without reliable datagrams. */
#include <errno.h>
#include <stddef.h>

struct ibv_context;
struct etherwarpdv_device_attr;

__attribute__((visibility("default"))) int etherwarpdv_query_device(struct ibv_context* context,
                                                                    struct etherwarpdv_device_attr* attr, size_t size) {
  (void)context, (void)attr, (void)size;
  return EOPNOTSUPP;
}
