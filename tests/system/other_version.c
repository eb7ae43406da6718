// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Preloaded: a rank as one of another version of the channel. The hellos that it sends have the next version, and those
// that it gets the one before: to each end the other one is of another version (mpi_launch.py, versions()).
#include <dlfcn.h>
#include <rdma/rdma_cma.h>
#include <stdint.h>
#include <string.h>

enum { kVersionAt = 2, kMost = 256 };  // hello.h

static int is_hello(const void* data, unsigned octets) {
  return data != NULL && octets > kVersionAt && memcmp(data, "EW", 2) == 0;
}

static void* next(const char* name) {
  return dlsym(RTLD_NEXT, name);
}

// The data as the next version's, in `copy`.
static const void* later(const void* data, unsigned octets, uint8_t (*copy)[kMost]) {
  if (!is_hello(data, octets) || octets > kMost) return data;
  memcpy(*copy, data, octets);
  ++(*copy)[kVersionAt];
  return *copy;
}

#pragma GCC visibility push(default)

int rdma_connect(struct rdma_cm_id* id, struct rdma_conn_param* p) {
  int (*const call)(struct rdma_cm_id*, struct rdma_conn_param*) = next("rdma_connect");
  uint8_t copy[kMost];
  struct rdma_conn_param changed = *p;
  changed.private_data = later(p->private_data, p->private_data_len, &copy);
  return call(id, &changed);
}

int rdma_accept(struct rdma_cm_id* id, struct rdma_conn_param* p) {
  int (*const call)(struct rdma_cm_id*, struct rdma_conn_param*) = next("rdma_accept");
  uint8_t copy[kMost];
  struct rdma_conn_param changed = *p;
  changed.private_data = later(p->private_data, p->private_data_len, &copy);
  return call(id, &changed);
}

int rdma_reject(struct rdma_cm_id* id, const void* data, uint8_t octets) {
  int (*const call)(struct rdma_cm_id*, const void*, uint8_t) = next("rdma_reject");
  uint8_t copy[kMost];
  return call(id, later(data, octets, &copy), octets);
}

int rdma_get_cm_event(struct rdma_event_channel* channel, struct rdma_cm_event** event) {
  int (*const call)(struct rdma_event_channel*, struct rdma_cm_event**) = next("rdma_get_cm_event");
  const int result = call(channel, event);
  if (result != 0) return result;
  const struct rdma_conn_param* p = &(*event)->param.conn;
  if (is_hello(p->private_data, p->private_data_len)) --((uint8_t*)p->private_data)[kVersionAt];
  return result;
}

#pragma GCC visibility pop
