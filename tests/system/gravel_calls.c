/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Every call of gravel.h and every error of it, by two processes.  gravel_calls FOLDER RANK */
#include <sys/wait.h>

#include "tests/system/gravel_ends.h"

enum { SIZE = 100000, TAG = 5 };

static int rank, other;
static char in[SIZE], out[SIZE], foreign[SIZE];

static void before_and_after(void) {
  gravel_request r = 1;
  int n = 0;
  size_t size;
  GRAVEL_GIVES(GRAVEL_ERR_STATE, gravel_finalize());
  GRAVEL_GIVES(GRAVEL_ERR_STATE, gravel_register_buffer(in, SIZE));
  GRAVEL_GIVES(GRAVEL_ERR_STATE, gravel_unregister_buffer(in, SIZE));
  GRAVEL_GIVES(GRAVEL_ERR_STATE, gravel_post_rcv_buffer_rdma(0, in, SIZE, 0, &r));
  GRAVEL_GIVES(GRAVEL_ERR_STATE, gravel_post_send_request_rdma(0, SIZE, 0, &r));
  GRAVEL_GIVES(GRAVEL_ERR_STATE, gravel_post_send_buffer_rdma(0, in, SIZE, 0, &r));
  GRAVEL_GIVES(GRAVEL_ERR_STATE, gravel_wait_rcv_buffer(&n, &n, &size, &r));
  GRAVEL_GIVES(GRAVEL_ERR_STATE, gravel_wait_send_request_rdma(&n, &n, &size));
  GRAVEL_GIVES(GRAVEL_ERR_STATE, gravel_wait_send_buffer_rdma(&n, &n, &size, &r));
  GRAVEL_GIVES(GRAVEL_ERR_STATE, gravel_post_os_put(r, in, 1, 0));
  GRAVEL_GIVES(GRAVEL_ERR_STATE, gravel_post_os_get(r, in, 1, 0));
  GRAVEL_GIVES(GRAVEL_ERR_STATE, gravel_send_fin(r));
  GRAVEL_GIVES(GRAVEL_ERR_STATE, gravel_test(r, &n));
  GRAVEL_GIVES(GRAVEL_ERR_STATE, gravel_wait(r));
  GRAVEL_GIVES(GRAVEL_ERR_STATE, gravel_waitall(1, &r));
}

static void arguments(void) {
  gravel_request r;
  int n = 0;
  size_t size;
  GRAVEL_GIVES(GRAVEL_ERR_STATE, gravel_start(0, 1, gravel_folder_gather, NULL)); /* twice */
  GRAVEL_GIVES(GRAVEL_ERR_ARGUMENT, gravel_register_buffer(NULL, 1));
  GRAVEL_GIVES(GRAVEL_ERR_ARGUMENT, gravel_register_buffer(in, 0));
  GRAVEL_GIVES(GRAVEL_ERR_ARGUMENT, gravel_unregister_buffer(NULL, 1));
  GRAVEL_GIVES(GRAVEL_ERR_ARGUMENT, gravel_post_rcv_buffer_rdma(other, NULL, 1, TAG, &r));
  GRAVEL_GIVES(GRAVEL_ERR_ARGUMENT, gravel_post_rcv_buffer_rdma(other, in, 1, TAG, NULL));
  GRAVEL_GIVES(GRAVEL_ERR_ARGUMENT, gravel_post_send_request_rdma(other, 1, TAG, NULL));
  GRAVEL_GIVES(GRAVEL_ERR_ARGUMENT, gravel_post_send_buffer_rdma(other, NULL, 1, TAG, &r));
  GRAVEL_GIVES(GRAVEL_ERR_ARGUMENT, gravel_wait_rcv_buffer(NULL, &n, &size, &r));
  GRAVEL_GIVES(GRAVEL_ERR_ARGUMENT, gravel_wait_send_request_rdma(&n, NULL, &size));
  GRAVEL_GIVES(GRAVEL_ERR_ARGUMENT, gravel_wait_send_buffer_rdma(&n, &n, NULL, &r));
  GRAVEL_GIVES(GRAVEL_ERR_ARGUMENT, gravel_wait_send_buffer_rdma(&n, &n, &size, NULL));
  GRAVEL_GIVES(GRAVEL_ERR_ARGUMENT, gravel_test(1, NULL));
  GRAVEL_GIVES(GRAVEL_ERR_ARGUMENT, gravel_waitall(-1, &r));
  GRAVEL_GIVES(GRAVEL_ERR_ARGUMENT, gravel_waitall(1, NULL));
  GRAVEL_OK(gravel_waitall(0, NULL));
}

static void ranks_and_tags(void) {
  gravel_request r;
  size_t size;
  const int bad[] = {-1, -2, 2, INT_MAX, INT_MIN};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; ++i) {
    int proc = bad[i], tag = TAG;
    GRAVEL_GIVES(GRAVEL_ERR_RANK, gravel_post_rcv_buffer_rdma(bad[i], in, 1, TAG, &r));
    GRAVEL_GIVES(GRAVEL_ERR_RANK, gravel_post_send_request_rdma(bad[i], 1, TAG, &r));
    GRAVEL_GIVES(GRAVEL_ERR_RANK, gravel_post_send_buffer_rdma(bad[i], out, 1, TAG, &r));
    if (proc != GRAVEL_ANY_SOURCE) GRAVEL_GIVES(GRAVEL_ERR_RANK, gravel_wait_rcv_buffer(&proc, &tag, &size, &r));
  }
  int proc = other, tag = -2;
  GRAVEL_GIVES(GRAVEL_ERR_TAG, gravel_post_rcv_buffer_rdma(other, in, 1, GRAVEL_ANY_TAG, &r));
  GRAVEL_GIVES(GRAVEL_ERR_TAG, gravel_post_send_request_rdma(other, 1, -7, &r));
  GRAVEL_GIVES(GRAVEL_ERR_TAG, gravel_post_send_buffer_rdma(other, out, 1, -1, &r));
  GRAVEL_GIVES(GRAVEL_ERR_TAG, gravel_wait_send_buffer_rdma(&proc, &tag, &size, &r));
  proc = rank; /* nothing can come from oneself, unless it has been posted */
  tag = TAG;
  GRAVEL_GIVES(GRAVEL_ERR_STATE, gravel_wait_rcv_buffer(&proc, &tag, &size, &r));
}

static void memory(void) {
  gravel_request r;
  GRAVEL_GIVES(GRAVEL_ERR_UNREGISTERED, gravel_post_rcv_buffer_rdma(other, foreign, 1, TAG, &r));
  GRAVEL_GIVES(GRAVEL_ERR_UNREGISTERED, gravel_post_send_buffer_rdma(other, foreign, 1, TAG, &r));
  GRAVEL_GIVES(GRAVEL_ERR_UNREGISTERED, gravel_post_rcv_buffer_rdma(other, in + 1, SIZE, TAG, &r));
  GRAVEL_GIVES(GRAVEL_ERR_UNREGISTERED, gravel_unregister_buffer(foreign, SIZE));
  GRAVEL_GIVES(GRAVEL_ERR_UNREGISTERED, gravel_unregister_buffer(in, SIZE - 1));
  GRAVEL_OK(gravel_register_buffer(foreign, SIZE));
  GRAVEL_OK(gravel_unregister_buffer(foreign, SIZE));
  GRAVEL_GIVES(GRAVEL_ERR_UNREGISTERED, gravel_unregister_buffer(foreign, SIZE));
  const gravel_request unknown = 0x70007;
  int flag = 0;
  GRAVEL_GIVES(GRAVEL_ERR_REQUEST, gravel_wait(unknown));
  GRAVEL_GIVES(GRAVEL_ERR_REQUEST, gravel_test(unknown, &flag));
  GRAVEL_GIVES(GRAVEL_ERR_REQUEST, gravel_send_fin(unknown));
  GRAVEL_GIVES(GRAVEL_ERR_REQUEST, gravel_post_os_put(unknown, out, 1, 0));
  GRAVEL_GIVES(GRAVEL_ERR_REQUEST, gravel_post_os_get(unknown, out, 1, 0));
  GRAVEL_GIVES(GRAVEL_ERR_REQUEST, gravel_wait(GRAVEL_REQUEST_NULL));
}

static void until_done(gravel_request r) {
  int flag = 0;
  while (!flag) GRAVEL_OK(gravel_test(r, &flag));
  GRAVEL_GIVES(GRAVEL_ERR_REQUEST, gravel_wait(r));
}

static void consumer(void) {
  gravel_request r;
  int proc = other, tag = TAG;
  size_t size;
  memset(in, 1, SIZE);
  GRAVEL_OK(gravel_post_rcv_buffer_rdma(other, in, SIZE - 10, TAG, &r));
  GRAVEL_GIVES(GRAVEL_ERR_BUSY, gravel_unregister_buffer(in, SIZE));
  GRAVEL_GIVES(GRAVEL_ERR_REQUEST, gravel_post_os_put(r, out, 1, 0));
  GRAVEL_GIVES(GRAVEL_ERR_REQUEST, gravel_post_os_get(r, out, 1, 0));
  GRAVEL_GIVES(GRAVEL_ERR_REQUEST, gravel_send_fin(r));
  until_done(r);
  for (size_t i = 0; i < SIZE; ++i) GRAVEL_TRUE(in[i] == (i < SIZE - 10 ? (char)i : 1));
  /* By Read. */
  memset(in, 1, SIZE);
  GRAVEL_OK(gravel_wait_send_buffer_rdma(&proc, &tag, &size, &r));
  GRAVEL_TRUE(size == SIZE - 20);
  GRAVEL_GIVES(GRAVEL_ERR_RANGE, gravel_post_os_get(r, in, SIZE, 0));
  GRAVEL_GIVES(GRAVEL_ERR_RANGE, gravel_post_os_get(r, in, 1, size));
  GRAVEL_GIVES(GRAVEL_ERR_RANGE, gravel_post_os_get(r, in, 1, SIZE_MAX));
  GRAVEL_GIVES(GRAVEL_ERR_UNREGISTERED, gravel_post_os_get(r, foreign, 1, 0));
  GRAVEL_GIVES(GRAVEL_ERR_REQUEST, gravel_post_os_put(r, in, 1, 0));
  GRAVEL_OK(gravel_post_os_get(r, in + 10, size - 10, 10));
  GRAVEL_OK(gravel_post_os_get(r, in, 10, 0));
  GRAVEL_OK(gravel_wait(r));
  for (size_t i = 0; i < SIZE; ++i) GRAVEL_TRUE(in[i] == (i < size ? (char)(i + 7) : 1));
}

static void producer(void) {
  gravel_request r;
  int proc = GRAVEL_ANY_SOURCE, tag = GRAVEL_ANY_TAG, flag;
  size_t size;
  for (size_t i = 0; i < SIZE; ++i) out[i] = (char)i;
  GRAVEL_OK(gravel_wait_rcv_buffer(&proc, &tag, &size, &r));
  GRAVEL_TRUE(proc == other && tag == TAG && size == SIZE - 10);
  GRAVEL_GIVES(GRAVEL_ERR_RANGE, gravel_post_os_put(r, out, SIZE, 0));
  GRAVEL_GIVES(GRAVEL_ERR_RANGE, gravel_post_os_put(r, out, 1, size));
  GRAVEL_GIVES(GRAVEL_ERR_RANGE, gravel_post_os_put(r, out, 2, SIZE_MAX));
  GRAVEL_GIVES(GRAVEL_ERR_UNREGISTERED, gravel_post_os_put(r, foreign, 1, 0));
  GRAVEL_GIVES(GRAVEL_ERR_REQUEST, gravel_post_os_get(r, out, 1, 0));
  GRAVEL_GIVES(GRAVEL_ERR_STATE, gravel_wait(r));
  GRAVEL_GIVES(GRAVEL_ERR_STATE, gravel_test(r, &flag));
  GRAVEL_OK(gravel_post_os_put(r, out, 1000, 0));
  GRAVEL_OK(gravel_post_os_put(r, out + 1000, size - 1000, 1000));
  GRAVEL_OK(gravel_send_fin(r));
  GRAVEL_GIVES(GRAVEL_ERR_STATE, gravel_post_os_put(r, out, 1, 0));
  GRAVEL_GIVES(GRAVEL_ERR_STATE, gravel_send_fin(r));
  until_done(r);
  for (size_t i = 0; i < SIZE; ++i) out[i] = (char)(i + 7);
  GRAVEL_OK(gravel_post_send_buffer_rdma(other, out, SIZE - 20, TAG, &r));
  GRAVEL_GIVES(GRAVEL_ERR_BUSY, gravel_unregister_buffer(out, SIZE));
  GRAVEL_OK(gravel_wait(r));
}

/* Who posts more than a ledger holds waits for its reader; order is kept. */
static void many(void) {
  enum { COUNT = 1000 };
  for (int i = 0; i < COUNT; ++i) {
    gravel_request r;
    if (rank == 0) {
      GRAVEL_OK(gravel_post_send_request_rdma(other, (size_t)i, TAG + i % 2, &r));
      GRAVEL_OK(gravel_wait(r));
    }
  }
  for (int i = 0; i < COUNT && rank == 1; ++i) {
    int proc = GRAVEL_ANY_SOURCE, tag = TAG + i / (COUNT / 2);
    size_t size;
    GRAVEL_OK(gravel_wait_send_request_rdma(&proc, &tag, &size));
    GRAVEL_TRUE(size == (size_t)(i % (COUNT / 2) * 2 + i / (COUNT / 2)));
  }
}

/* To oneself. */
static void oneself(void) {
  gravel_request r[2];
  int proc = rank, tag = TAG;
  size_t size;
  memset(in, 0, SIZE);
  GRAVEL_OK(gravel_post_rcv_buffer_rdma(rank, in, SIZE, TAG, &r[0]));
  GRAVEL_OK(gravel_wait_rcv_buffer(&proc, &tag, &size, &r[1]));
  GRAVEL_OK(gravel_post_os_put(r[1], out, SIZE, 0));
  GRAVEL_OK(gravel_send_fin(r[1]));
  GRAVEL_OK(gravel_waitall(2, r));
  GRAVEL_TRUE(memcmp(in, out, SIZE) == 0);
}

/* A child that ends leaves its parent's connections alone. */
static void child(void) {
  int status;
  const pid_t pid = fork();
  if (pid == 0) exit(0);
  GRAVEL_TRUE(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
}

static void start(struct gravel_folder* folder) {
  GRAVEL_GIVES(GRAVEL_ERR_ARGUMENT, gravel_start(0, 0, gravel_folder_gather, NULL));
  GRAVEL_GIVES(GRAVEL_ERR_ARGUMENT, gravel_start(2, 2, gravel_folder_gather, NULL));
  GRAVEL_GIVES(GRAVEL_ERR_ARGUMENT, gravel_start(0, 2, NULL, NULL));
  GRAVEL_OK(gravel_start(rank, 2, gravel_folder_gather, folder));
  GRAVEL_OK(gravel_register_buffer(in, SIZE));
  GRAVEL_OK(gravel_register_buffer(out, SIZE));
}

/* One leaves, the other waits for it: left, and no timeout. */
static void leave(void) {
  gravel_request r;
  int proc = other, tag = TAG;
  size_t size;
  GRAVEL_OK(gravel_post_rcv_buffer_rdma(other, in, SIZE, TAG, &r));
  gravel_meet(other); /* nobody leaves before both have posted */
  if (rank == 0) {
    GRAVEL_GIVES(GRAVEL_ERR_PEER, gravel_wait(r));
    GRAVEL_GIVES(GRAVEL_ERR_PEER, gravel_wait_rcv_buffer(&proc, &tag, &size, &r));
    GRAVEL_TRUE(strcmp(gravel_reason(), "process 1 has left") == 0);
    GRAVEL_GIVES(GRAVEL_ERR_PEER, gravel_post_rcv_buffer_rdma(other, in, SIZE, TAG, &r));
    proc = GRAVEL_ANY_SOURCE;
    GRAVEL_GIVES(GRAVEL_ERR_PEER, gravel_wait_send_buffer_rdma(&proc, &tag, &size, &r));
    GRAVEL_OK(gravel_finalize());
  } else {
    GRAVEL_GIVES(GRAVEL_ERR_BUSY, gravel_finalize()); /* the receive */
  }
  before_and_after();
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  struct gravel_folder folder = {argv[1], atoi(argv[2]), 2, 0};
  rank = folder.rank;
  other = 1 - rank;
  before_and_after();
  /* Twice: a job that has ended leaves nothing behind. */
  for (int i = 0; i < 2; ++i) {
    start(&folder);
    arguments();
    ranks_and_tags();
    memory();
    gravel_meet(other);
    rank == 0 ? consumer() : producer();
    rank == 1 ? consumer() : producer();
    many();
    oneself();
    child();
    leave();
  }
  printf("done\n");
  return 0;
}
