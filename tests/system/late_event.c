// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Preloaded: orders two threads of a program. One acknowledges RDMA_CM_EVENT_DISCONNECTED, the other destroys the event
// channel, then the first asks that channel for the next event (siw_interop.py, pings_race()).
#include <dlfcn.h>
#include <rdma/rdma_cma.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>
#include <unistd.h>

static sem_t destroyed;
static atomic_bool disconnected;

__attribute__((constructor)) static void make_semaphore(void) {
  sem_init(&destroyed, 0, 0);
}

#pragma GCC visibility push(default)

int rdma_ack_cm_event(struct rdma_cm_event* event) {
  int (*const next)(struct rdma_cm_event*) = (int (*)(struct rdma_cm_event*))dlsym(RTLD_NEXT, "rdma_ack_cm_event");
  if (event->event != RDMA_CM_EVENT_DISCONNECTED) return next(event);
  atomic_store(&disconnected, true);
  const int result = next(event);
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += 10;
  sem_timedwait(&destroyed, &until);
  return result;
}

void rdma_destroy_event_channel(struct rdma_event_channel* channel) {
  void (*const next)(struct rdma_event_channel*) =
      (void (*)(struct rdma_event_channel*))dlsym(RTLD_NEXT, "rdma_destroy_event_channel");
  next(channel);
  if (!atomic_load(&disconnected)) return;
  sem_post(&destroyed);
  sleep(10);  // the other thread ends the program
}

#pragma GCC visibility pop
