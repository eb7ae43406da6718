// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* A libibverbs.so.1 that has a provider interface and nothing else: it keeps what a provider gives it, for
 * library_probe.c. The build defines NUMBER (of the interface), CONTEXT_OFFSET (of ibv_context in verbs_context) and
 * OPERATIONS (how many there are), as rdma-core's headers have them. */
#include "tests/host/stand_in_ibverbs.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define JOINED(name, number) name##number
#define NUMBERED(name, number) JOINED(name, number)

static void* table[OPERATIONS];
static struct stand_in seen = {.context_offset = CONTEXT_OFFSET, .operations = table};

const struct stand_in* stand_in(void) {
  return &seen;
}

void NUMBERED(verbs_register_driver_, NUMBER)(const struct driver* driver);
void NUMBERED(verbs_register_driver_, NUMBER)(const struct driver* driver) {
  ++seen.registrations;
  seen.driver = driver;
}

void* _verbs_init_and_alloc_context(struct ibv_device* device, int command_fd, size_t size, void* verbs_context_at,
                                    uint32_t driver_id);
void* _verbs_init_and_alloc_context(struct ibv_device* device, int command_fd, size_t size, void* verbs_context_at,
                                    uint32_t driver_id) {
  (void)driver_id;
  if (verbs_context_at != NULL || size < CONTEXT_OFFSET + sizeof(struct ibv_context)) return NULL;
  void* memory = calloc(1, size);
  struct ibv_context* context = (struct ibv_context*)((char*)memory + CONTEXT_OFFSET);
  context->device = device;
  context->cmd_fd = command_fd;
  return memory;
}

void verbs_set_ops(void* verbs_context, void* const* operations);
void verbs_set_ops(void* verbs_context, void* const* operations) {
  (void)verbs_context;
  memcpy(table, operations, sizeof table);
}

void verbs_uninit_context(void* verbs_context);
void verbs_uninit_context(void* verbs_context) {
  struct ibv_context* context = (struct ibv_context*)((char*)verbs_context + CONTEXT_OFFSET);
  close(context->async_fd);
  close(context->cmd_fd);
  ++seen.contexts_ended;
}
