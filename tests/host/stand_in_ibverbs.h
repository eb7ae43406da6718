// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* What the stand-in for libibverbs saw, and as much of rdma-core's driver.h as it takes to call a provider. */
#ifndef TESTS_HOST_STAND_IN_IBVERBS_H
#define TESTS_HOST_STAND_IN_IBVERBS_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* struct verbs_sysfs_dev; only its names are looked at. */
struct found_device {
  char front[36];
  char sysfs_name[64];
  char cdev[12];
  char ibdev_name[64];
  char rest[992 - 36 - 64 - 12 - 64];
};

/* struct verbs_device_ops */
struct driver {
  const char* name;
  uint32_t match_min_abi_version, match_max_abi_version;
  const void* match_table;
  const void* static_providers;
  bool (*match_device)(struct found_device* found);
  void* (*alloc_context)(struct ibv_device* device, int command_fd, void* private_data);
  void* (*import_context)(struct ibv_device* device, int command_fd);
  struct ibv_device* (*alloc_device)(struct found_device* found);
  void (*uninit_device)(struct ibv_device* device);
};

struct stand_in {
  int registrations, contexts_ended;
  const struct driver* driver;
  size_t context_offset;
  void* const* operations; /* of the last context, as the provider gave them */
};

typedef const struct stand_in* (*stand_in_function)(void);

#endif
