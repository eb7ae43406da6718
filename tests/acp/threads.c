/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Several threads in the library, children by fork(), and programs that end without acp_finalize(). Two processes.
 *
 *   etherwarp acprun -n 2 ewarp_acp_threads both|many|fork|exit */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static int rank;
static acp_ch_t there, back;

static void connect_both(void) {
  there = acp_create_ch(0, 1);
  back = acp_create_ch(1, 0);
  CHECK(there != ACP_CH_NULL && back != ACP_CH_NULL);
}

/* --- two threads wait for one request: one of them ends its handle, the other finds none --- */

struct waiter {
  acp_request_t request;
  int result, error;
};

static void* wait_for(void* argument) {
  struct waiter* w = argument;
  errno = 0;
  w->result = acp_wait_ch(w->request);
  w->error = errno;
  return NULL;
}

static void both(void) {
  static char in[8];
  connect_both();
  for (int i = 0; i < 200; ++i) {
    if (rank == 0) {
      CHECK(acp_recv_ch(back, in, 1) == 1 && acp_send_ch(there, in, 8) == 0);
      for (int n = 0; n < 2; ++n) CHECK(acp_recv_ch(back, in, 1) == 1);
      continue;
    }
    struct waiter w[2] = {{.request = acp_nbrecv_ch(there, in, 8)}};
    w[1].request = w[0].request;
    pthread_t thread[2];
    for (int t = 0; t < 2; ++t) CHECK(pthread_create(&thread[t], NULL, wait_for, &w[t]) == 0);
    CHECK(acp_send_ch(back, in, 1) == 0);
    for (int t = 0; t < 2; ++t) pthread_join(thread[t], NULL);
    const int first = w[0].result == 8 ? 0 : 1;
    CHECK(w[first].result == 8 && w[1 - first].result == -1 && w[1 - first].error == EBADF);
    /* Places of requests are each given out once. */
    static char one[2];
    acp_request_t r[2] = {acp_nbsend_ch(back, &one[0], 1), acp_nbsend_ch(back, &one[1], 1)};
    CHECK(r[0] != r[1] && acp_wait_ch(r[0]) == 0 && acp_wait_ch(r[1]) == 0);
  }
}

/* --- threads with a channel each, and one that makes accesses --- */

enum { kThreads = 4, kMessages = 300 };

static void* talk(void* argument) {
  acp_ch_t* ch = argument; /* out, in */
  for (int i = 0; i < kMessages; ++i) {
    unsigned char out[600], in[600];
    const size_t n = (size_t)(i * 7) % sizeof out;
    fill(out, n, (unsigned)(i + rank));
    acp_request_t r = acp_nbrecv_ch(ch[1], in, sizeof in);
    CHECK(acp_send_ch(ch[0], out, n) == 0);
    CHECK(acp_wait_ch(r) == (int)n && filled(in, n, (unsigned)(i + 1 - rank)));
  }
  return NULL;
}

static void* count(void* unused) {
  const acp_ga_t at = acp_query_starter_ga(0) + 8, result = acp_query_starter_ga(rank) + 16;
  for (int i = 0; i < kMessages; ++i) CHECK(acp_complete(acp_add8(result, at, 1, ACP_HANDLE_NULL)) == 0);
  return unused;
}

static void many(void) {
  acp_ch_t ch[kThreads][2];
  pthread_t thread[kThreads + 1];
  for (int t = 0; t < kThreads; ++t) {
    ch[t][rank] = acp_create_ch(0, 1);
    ch[t][1 - rank] = acp_create_ch(1, 0);
  }
  for (int t = 0; t < kThreads; ++t) CHECK(pthread_create(&thread[t], NULL, talk, ch[t]) == 0);
  CHECK(pthread_create(&thread[kThreads], NULL, count, NULL) == 0);
  for (int t = 0; t <= kThreads; ++t) pthread_join(thread[t], NULL);
  CHECK(acp_sync() == 0);
  if (rank == 0) CHECK(((uint64_t*)acp_query_address(acp_query_starter_ga(0)))[1] == 2 * kMessages);
}

/* --- a child may end as it likes, and has no library; the parent goes on --- */

static void ping(void) {
  int c = 0;
  if (rank == 0) CHECK(acp_send_ch(there, &c, 4) == 0 && acp_recv_ch(back, &c, 4) == 4);
  if (rank == 1) CHECK(acp_recv_ch(there, &c, 4) == 4 && acp_send_ch(back, &c, 4) == 0);
}

static void forks(void) {
  connect_both();
  ping();
  for (int i = 0; i < 20; ++i) {
    acp_request_t r = ACP_REQUEST_NULL;
    static int value;
    if (i % 2 == 1 && rank == 1) r = acp_nbrecv_ch(there, &value, 4);
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
      if (i % 3 != 0) {
        FAILS(acp_rank(), -1, ENOTCONN);
        FAILS(acp_send_ch(back, &value, 4), -1, ENOTCONN);
        FAILS(acp_finalize(), -1, ENOTCONN);
      }
      if (i % 3 == 2) _exit(0);
      exit(0);
    }
    int how;
    CHECK(waitpid(child, &how, 0) == child && how == 0);
    if (i % 2 == 1 && rank == 0) CHECK(acp_send_ch(there, &value, 4) == 0);
    if (r != ACP_REQUEST_NULL) CHECK(acp_wait_ch(r) == 4);
    ping();
  }
}

/* --- main() returns while another thread waits, without acp_finalize() --- */

static void* wait_for_ever(void* unused) {
  char c;
  acp_recv_ch(rank == 0 ? back : there, &c, 1);
  return unused;
}

static void leave_threads(void) {
  connect_both();
  ping();
  pthread_t thread;
  for (int i = 0; i < 3; ++i)
    CHECK(pthread_create(&thread, NULL, wait_for_ever, NULL) == 0 && pthread_detach(thread) == 0);
  usleep(20000); /* no matter whether they have begun */
  printf("rank %d: %s\n", rank, "over");
  exit(0);
}

int main(int argc, char** argv) {
  CHECK(argc == 2 && acp_init(&argc, &argv) == 0);
  rank = acp_rank();
  if (strcmp(argv[1], "both") == 0) both();
  if (strcmp(argv[1], "many") == 0) many();
  if (strcmp(argv[1], "fork") == 0) forks();
  if (strcmp(argv[1], "exit") == 0) leave_threads();
  CHECK(acp_finalize() == 0);
  printf("rank %d: %s\n", rank, "over");
  return 0;
}
