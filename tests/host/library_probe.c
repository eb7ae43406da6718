// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Looks for RDMA devices as a libibverbs would, and drives what it finds.
 *
 *   library_probe                       no libibverbs in this process: nothing to register with
 *   library_probe refused LIBRARY       a libibverbs that the provider must refuse: nothing of ours is to be seen
 *   library_probe served LIBRARY 34|65  the provider registers and serves it
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/host/stand_in_ibverbs.h"

#define CHECK(condition)                                                      \
  do {                                                                        \
    if (!(condition)) {                                                       \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      exit(1);                                                                \
    }                                                                         \
  } while (0)

/* Where operations are in struct verbs_context_ops: counted in the driver.h of rdma-core 44, 56.1 and 65. */
struct places {
  int interface, alloc_pd, dealloc_pd, free_context, query_device_ex, query_port, query_port_speed;
  int not_offered[3]; /* alloc_dm, create_flow, and the last one, unimport_pd */
};
static const struct places kPlaces[] = {
    {34, 5, 26, 39, 58, 60, -1, {1, 17, 75}},
    {65, 7, 30, 46, 69, 71, 72, {2, 20, 92}},
};

static void look_for_devices(void) {
  for (int i = 0; i < 3; ++i) {
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_RDMA);
    if (fd >= 0) close(fd);
  }
}

static void see_nothing(void) {
  struct stat what;
  CHECK(stat("/sys/class/infiniband/ewarp_lo", &what) != 0);
  CHECK(stat("/dev/infiniband/uverbs1000", &what) != 0);
  CHECK(open("/sys/class/infiniband/ewarp_lo/node_type", O_RDONLY) < 0);
  CHECK(access("/dev/infiniband/uverbs1000", R_OK) != 0);
}

static void drive(const struct stand_in* library, const struct places* at, struct ibv_device* device) {
  int command_fd = open("/dev/infiniband/uverbs1000", O_RDWR | O_CLOEXEC);
  CHECK(command_fd >= 0);
  char* memory = library->driver->alloc_context(device, command_fd, NULL);
  CHECK(memory != NULL);
  struct ibv_context* context = (struct ibv_context*)(memory + library->context_offset);
  CHECK(context->device == device && context->async_fd > 0 && context->num_comp_vectors == 1);

  void* const* operations = library->operations;
  for (size_t i = 0; i < sizeof at->not_offered / sizeof *at->not_offered; ++i)
    CHECK(operations[at->not_offered[i]] == NULL);
  int (*query_device_ex)(struct ibv_context*, const struct ibv_query_device_ex_input*, struct ibv_device_attr_ex*,
                         size_t) = operations[at->query_device_ex];
  struct ibv_device_attr_ex attributes;
  CHECK(query_device_ex(context, NULL, &attributes, sizeof attributes) == 0);
  CHECK(attributes.orig_attr.vendor_id == 0x024557 && attributes.orig_attr.phys_port_cnt == 1);

  /* rdma-core before 49 has four octets less of it. */
  int (*query_port)(struct ibv_context*, uint8_t, struct ibv_port_attr*) = operations[at->query_port];
  union {
    struct ibv_port_attr port;
    unsigned char octets[64];
  } answer;
  memset(&answer, 0xa5, sizeof answer);
  CHECK(query_port(context, 1, &answer.port) == 0 && answer.port.link_layer == IBV_LINK_LAYER_ETHERNET);
  for (size_t i = 52; i < sizeof answer; ++i) CHECK(answer.octets[i] == 0xa5);

  if (at->query_port_speed >= 0) {
    int (*query_port_speed)(struct ibv_context*, uint32_t, uint64_t*) = operations[at->query_port_speed];
    uint64_t speed = 0;
    CHECK(query_port_speed(context, 1, &speed) == 0 && speed == 100); /* 10 Gb/s: a loopback tells none */
    CHECK(query_port_speed(context, 2, &speed) != 0);
  }
  struct ibv_pd* (*alloc_pd)(struct ibv_context*) = operations[at->alloc_pd];
  int (*dealloc_pd)(struct ibv_pd*) = operations[at->dealloc_pd];
  struct ibv_pd* pd = alloc_pd(context);
  CHECK(pd != NULL && pd->context == context);
  CHECK(dealloc_pd(pd) == 0);
  void (*free_context)(struct ibv_context*) = operations[at->free_context];
  free_context(context);
  CHECK(library->contexts_ended == 1);
}

static void serve(void* handle, int interface) {
  const struct places* at = kPlaces;
  while (at->interface != interface) ++at;
  stand_in_function stand_in;
  void* symbol = dlsym(handle, "stand_in");
  CHECK(symbol != NULL);
  memcpy(&stand_in, &symbol, sizeof symbol);
  const struct stand_in* library = stand_in();
  CHECK(library->registrations == 1);
  const struct driver* driver = library->driver;
  CHECK(strcmp(driver->name, "etherwarp") == 0 && driver->match_table != NULL && driver->import_context == NULL);

  struct found_device found = {.sysfs_name = "uverbs1000", .ibdev_name = "ewarp_lo"};
  CHECK(driver->match_device(&found));
  struct found_device other = {.sysfs_name = "uverbs0", .ibdev_name = "ewarp_lo"};
  CHECK(!driver->match_device(&other));
  struct ibv_device* device = driver->alloc_device(&found);
  CHECK(device != NULL);
  drive(library, at, device);
  driver->uninit_device(device);
}

int main(int argc, char** argv) {
  void* handle = argc > 2 ? dlopen(argv[2], RTLD_NOW) : NULL;
  if (argc > 2 && handle == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 2;
  }
  look_for_devices();
  if (argc > 2 && strcmp(argv[1], "refused") == 0) see_nothing();
  if (argc > 3) serve(handle, atoi(argv[3]));
  return 0;
}
