// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * libetherwarpdv: finds the provider behind a context. libibverbs loads it under a name that is its own affair, so the
 * way goes by one of the context's functions: whose module it is in, that module's table.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <string.h>

#include "provider/direct/direct.h"

#define EXPORT __attribute__((visibility("default")))

static const struct etherwarp_direct* provider_of(struct ibv_context* context) {
  Dl_info where;
  const struct etherwarp_direct* table = NULL;
  void* module;
  int (*poll)(struct ibv_cq*, int, struct ibv_wc*) = context->ops.poll_cq;
  void* address;
  memcpy(&address, &poll, sizeof address);
  if (address == NULL || dladdr(address, &where) == 0) return NULL;
  module = dlopen(where.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  if (module == NULL) return NULL;
  table = dlsym(module, EWARP_DIRECT_SYMBOL);
  dlclose(module);
  return table != NULL && table->version == EWARP_DIRECT_VERSION ? table : NULL;
}

EXPORT bool etherwarpdv_is_supported(struct ibv_context* context) {
  return provider_of(context) != NULL;
}

EXPORT int etherwarpdv_query_device(struct ibv_context* context, struct etherwarpdv_device_attr* attr, uint32_t inlen) {
  const struct etherwarp_direct* table = provider_of(context);
  struct etherwarpdv_device_attr all;
  int error;
  if (table == NULL) return EOPNOTSUPP;
  if (inlen < sizeof attr->comp_mask + sizeof attr->device_caps) return EINVAL;
  memset(&all, 0, sizeof all);
  error = table->query_device(context, &all);
  if (error != 0) return error;
  memset(attr, 0, inlen);
  memcpy(attr, &all, inlen < sizeof all ? inlen : sizeof all);
  return 0;
}

EXPORT struct ibv_qp* etherwarpdv_create_qp_ex(struct ibv_context* context, struct ibv_qp_init_attr_ex* attr_ex,
                                               const struct etherwarpdv_qp_init_attr* attr, uint32_t inlen) {
  const struct etherwarp_direct* table = provider_of(context);
  struct etherwarpdv_qp_init_attr all;
  uint32_t i;
  if (table == NULL) {
    errno = EOPNOTSUPP;
    return NULL;
  }
  if (attr == NULL || inlen < offsetof(struct etherwarpdv_qp_init_attr, reserved)) {
    errno = EINVAL;
    return NULL;
  }
  for (i = sizeof all; i < inlen; ++i)
    if (((const char*)attr)[i] != 0) {
      errno = EOPNOTSUPP;
      return NULL;
    }
  memset(&all, 0, sizeof all);
  memcpy(&all, attr, inlen < sizeof all ? inlen : sizeof all);
  return table->create_qp_ex(context, attr_ex, &all);
}
