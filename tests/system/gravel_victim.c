/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Two processes, of which one (rank 1) gets into a state and stays there until it is killed. The other waits for it,
 * gets GRAVEL_ERR_PEER, and says after how long.  gravel_victim FOLDER RANK STATE [late]
 *
 * They are connected before, but not with `late`: then the survivor does not wait before there is a file FOLDER/go.
 */
#include <time.h>

#include "tests/system/gravel_ends.h"

enum { SIZE = 4 << 20, TAG = 1 };

static char in[SIZE], out[SIZE];
static size_t size;
static int proc = 1, tag = TAG;
static gravel_request r;

static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void say(const char* what) {
  printf("%s\n", what);
  fflush(stdout);
}

static void nothing(void) {}

/* --- of the survivor: the last call, which is to fail --- */

static int wait_for_buffer(void) {
  return gravel_wait_rcv_buffer(&proc, &tag, &size, &r);
}
static int wait_for_request(void) {
  return gravel_wait_send_request_rdma(&proc, &tag, &size);
}
static int wait_for_data(void) {
  return gravel_wait_send_buffer_rdma(&proc, &tag, &size, &r);
}
static int wait_for_anybody(void) {
  proc = GRAVEL_ANY_SOURCE;
  tag = GRAVEL_ANY_TAG;
  return gravel_wait_send_buffer_rdma(&proc, &tag, &size, &r);
}
static int wait_for_end(void) {
  return gravel_wait(r);
}
static int test_for_end(void) {
  int flag = 0, error = 0;
  while (!flag && error == GRAVEL_SUCCESS) error = gravel_test(r, &flag);
  return error;
}
static int wait_for_all(void) {
  gravel_request all[] = {GRAVEL_REQUEST_NULL, r};
  const int error = gravel_waitall(2, all);
  GRAVEL_TRUE(all[1] == GRAVEL_REQUEST_NULL);
  return error;
}
static int fill_ledger(void) {
  for (;;) {
    const int error = gravel_post_send_request_rdma(1, 1, TAG, &r);
    if (error != GRAVEL_SUCCESS) return error;
    GRAVEL_OK(gravel_wait(r));
  }
}
static int put_for_ever(void) {
  for (;;) {
    const int error = gravel_post_os_put(r, out, SIZE, 0);
    if (error == GRAVEL_SUCCESS) continue;
    GRAVEL_GIVES(GRAVEL_ERR_PEER, gravel_send_fin(r));
    GRAVEL_GIVES(GRAVEL_ERR_PEER, gravel_wait(r));
    return error;
  }
}
/* More than fits on the way, and the FIN. */
static int put_and_close(void) {
  enum { PUTS = 40 };
  for (int i = 0; i < PUTS; ++i) {
    const int error = gravel_post_os_put(r, out, SIZE, 0);
    if (error != GRAVEL_SUCCESS) return error;
  }
  const int error = gravel_send_fin(r);
  return error == GRAVEL_SUCCESS ? gravel_wait(r) : error;
}
static int get_for_ever(void) {
  for (;;) {
    const int error = gravel_post_os_get(r, in, SIZE, 0);
    if (error == GRAVEL_SUCCESS) continue;
    GRAVEL_GIVES(GRAVEL_ERR_PEER, gravel_wait(r));
    return error;
  }
}

/* --- how the two get there --- */

static void post_receive(void) {
  GRAVEL_OK(gravel_post_rcv_buffer_rdma(1, in, SIZE, TAG, &r));
}
static void post_offer(void) {
  GRAVEL_OK(gravel_post_send_buffer_rdma(1, out, SIZE, TAG, &r));
}
static void take_buffer(void) {
  GRAVEL_OK(gravel_wait_rcv_buffer(&proc, &tag, &size, &r));
}
static void take_data(void) {
  GRAVEL_OK(gravel_wait_send_buffer_rdma(&proc, &tag, &size, &r));
}

static void victim_takes_buffer(void) {
  proc = 0;
  take_buffer();
}
static void victim_puts(void) {
  victim_takes_buffer();
  GRAVEL_OK(gravel_post_os_put(r, out, SIZE / 2, 0));
}
static void victim_receives(void) {
  GRAVEL_OK(gravel_post_rcv_buffer_rdma(0, in, SIZE, TAG, &r));
}
static void victim_offers(void) {
  GRAVEL_OK(gravel_post_send_buffer_rdma(0, out, SIZE, TAG, &r));
}
static void victim_fills_ledger(void) {
  for (int i = 0; i < 64; ++i) {
    GRAVEL_OK(gravel_post_send_request_rdma(0, 1, TAG, &r));
    GRAVEL_OK(gravel_wait(r));
  }
}
static void victim_takes_data(void) {
  proc = 0;
  take_data();
}
static void victim_gets(void) {
  victim_takes_data();
  GRAVEL_OK(gravel_post_os_get(r, in, SIZE / 2, 0));
}

static const struct state {
  const char* name;
  void (*victim)(void);
  void (*survivor)(void);
  int (*fails)(void);
} kStates[] = {
    {"idle-buffer", nothing, nothing, wait_for_buffer},
    {"idle-request", nothing, nothing, wait_for_request},
    {"idle-data", nothing, nothing, wait_for_data},
    {"idle-anybody", nothing, nothing, wait_for_anybody},
    {"unread-receive", nothing, post_receive, wait_for_end},
    {"unread-offer", nothing, post_offer, test_for_end},
    {"full-ledger", nothing, nothing, fill_ledger},
    {"took-buffer", victim_takes_buffer, post_receive, wait_for_all},
    {"puts", victim_puts, post_receive, test_for_end},
    {"receives", victim_receives, take_buffer, put_for_ever},
    {"took-offer", victim_takes_data, post_offer, wait_for_all},
    {"gets", victim_gets, post_offer, wait_for_end},
    {"offers", victim_offers, take_data, get_for_ever},
    {"unasked", victim_fills_ledger, nothing, fill_ledger},
    {"closing", victim_receives, take_buffer, put_and_close},
};

static const struct state* state_of(const char* name) {
  for (size_t i = 0; i < sizeof kStates / sizeof *kStates; ++i)
    if (strcmp(kStates[i].name, name) == 0) return &kStates[i];
  exit(2);
}

static void wait_for_go(const char* folder) {
  char name[PATH_MAX];
  snprintf(name, sizeof name, "%s/go", folder);
  while (access(name, F_OK) != 0) usleep(1000);
}

int main(int argc, char** argv) {
  if (argc == 2) /* --list */
    for (size_t i = 0; i < sizeof kStates / sizeof *kStates; ++i) say(kStates[i].name);
  if (argc < 4) return argc != 2;
  struct gravel_folder folder = {argv[1], atoi(argv[2]), 2, 0};
  const struct state* s = state_of(argv[3]);
  GRAVEL_OK(gravel_start(folder.rank, 2, gravel_folder_gather, &folder));
  GRAVEL_OK(gravel_register_buffer(in, SIZE));
  GRAVEL_OK(gravel_register_buffer(out, SIZE));
  const int late = argc > 4;
  if (!late) gravel_meet(1 - folder.rank);
  folder.rank == 1 ? s->victim() : s->survivor();
  say("there");
  while (folder.rank == 1) pause();
  if (late) wait_for_go(argv[1]);
  const double began = seconds();
  GRAVEL_GIVES(GRAVEL_ERR_PEER, s->fails());
  printf("failed after %.2f s: %s\n", seconds() - began, gravel_reason());
  /* From now on at once. */
  GRAVEL_GIVES(GRAVEL_ERR_PEER, gravel_post_send_request_rdma(1, 1, TAG, &r));
  GRAVEL_OK(gravel_unregister_buffer(in, SIZE));
  GRAVEL_OK(gravel_unregister_buffer(out, SIZE));
  GRAVEL_OK(gravel_finalize());
  return 0;
}
