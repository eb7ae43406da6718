/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What acp_bench.py measures, between two processes. One line of JSON for each figure, from rank 0.
 *
 *   etherwarp acprun -n 2 ewarp_acp_bench put|copy|pingpong|connect ITERATIONS [OCTETS...] */
#include <acp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "timing.h"

enum { kMost = 8 << 20, kFewest = 10 };

static int rank;
static unsigned char* memory;

static void must(int good, const char* what) {
  if (!good) acp_abort(what);
}

static void report(const char* what, size_t octets, double* times, int n) {
  qsort(times, (size_t)n, sizeof *times, ascending);
  if (rank == 0) printf("{\"what\": \"%s\", \"octets\": %zu, \"us\": %.3f}\n", what, octets, times[n / 2]);
}

/* Long messages are sent less often. */
static int count_of(int iterations, size_t octets) {
  const int n = octets <= 4096 ? iterations : (int)((double)iterations * 4096 / (double)octets);
  return n < kFewest ? kFewest : n;
}

/* --- the basic layer --- */

static acp_ga_t own, other;

static void exchange_addresses(void) {
  const acp_atkey_t key = acp_register_memory(memory, 2 * kMost, 0);
  acp_ga_t* starter = acp_query_address(acp_query_starter_ga(rank));
  must(key != ACP_ATKEY_NULL, "acp_register_memory");
  own = starter[0] = acp_query_ga(key, memory);
  must(acp_sync() == 0, "acp_sync");
  const acp_handle_t h = acp_copy(acp_query_starter_ga(rank) + 8, acp_query_starter_ga(1 - rank), 8, ACP_HANDLE_NULL);
  must(acp_complete(h) == 0, "acp_copy");
  other = starter[1];
  must(acp_sync() == 0, "acp_sync");
}

/* Half the time of a ping-pong by RDMA Writes alone: each waits for the last octet. From the first half of the memory
 * to the second. */
static void put(int iterations, size_t octets) {
  const int n = count_of(iterations, octets);
  double* times = calloc((size_t)n, sizeof *times);
  volatile unsigned char* last = memory + kMost + octets - 1;
  memset(memory, 0, 2 * kMost);
  must(acp_sync() == 0, "acp_sync");
  for (int i = -n / 10; i < n; ++i) {
    const unsigned char mark = (unsigned char)(i & 1 ? 1 : 2);
    const double began = now_us();
    memory[octets - 1] = mark;
    for (int turn = 0; turn < 2; ++turn) {
      if (turn == rank)
        must(acp_copy(other + kMost, own, octets, ACP_HANDLE_NULL) != ACP_HANDLE_NULL, "acp_copy");
      else
        while (*last != mark) acp_inquire(ACP_HANDLE_ALL);
    }
    must(acp_complete(ACP_HANDLE_ALL) == 0, "acp_complete");
    if (i >= 0) times[i] = (now_us() - began) / 2;
  }
  report("put", octets, times, n);
  free(times);
}

/* Figure 6: one access, until it is complete. */
static void copy(int iterations, size_t octets) {
  const int n = count_of(iterations, octets);
  double* times = calloc((size_t)n, sizeof *times);
  for (int inward = 0; inward < 2; ++inward) {
    for (int i = -n / 10; rank == 0 && i < n; ++i) {
      const double began = now_us();
      acp_complete(inward ? acp_copy(own, other, octets, ACP_HANDLE_NULL)
                          : acp_copy(other, own, octets, ACP_HANDLE_NULL));
      if (i >= 0) times[i] = now_us() - began;
    }
    must(acp_sync() == 0, "acp_sync");
    report(inward ? "remote to local" : "local to remote", octets, times, n);
  }
  free(times);
}

/* --- channels --- */

/* Half the time of a ping-pong. */
static void pingpong(acp_ch_t out, acp_ch_t in, int iterations, size_t octets) {
  const int n = count_of(iterations, octets);
  double* times = calloc((size_t)n, sizeof *times);
  for (int i = -n / 10; i < n; ++i) {
    const double began = now_us();
    const acp_request_t receive = acp_nbrecv_ch(in, memory + kMost, octets);
    if (rank == 1) must(acp_wait_ch(receive) == (int)octets, "receive");
    must(acp_send_ch(out, memory, octets) == 0, "send");
    if (rank == 0) must(acp_wait_ch(receive) == (int)octets, "receive");
    if (i >= 0) times[i] = (now_us() - began) / 2;
  }
  report("pingpong", octets, times, n);
  free(times);
}

/* Figures 11 and 12: from the creation until the first message is on its way; the receiver's free. The receiver's time
 * is told to the sender by a channel. */
static void connect(int n) {
  double *connecting = calloc((size_t)n, sizeof *connecting), *freeing = calloc((size_t)n, sizeof *freeing);
  const acp_ch_t back = acp_create_ch(1, 0);
  for (int i = 0; i < n; ++i) {
    must(acp_sync() == 0, "acp_sync");
    double took = now_us();
    const acp_ch_t ch = acp_create_ch(0, 1);
    must(rank == 0 ? acp_send_ch(ch, memory, 8) == 0 : acp_recv_ch(ch, memory, 8) == 8, "the first message");
    connecting[i] = now_us() - took;
    must(acp_sync() == 0, "acp_sync");
    took = now_us();
    must(acp_free_ch(ch) == 0, "acp_free_ch");
    took = now_us() - took;
    must(rank == 1 ? acp_send_ch(back, &took, sizeof took) == 0
                   : acp_recv_ch(back, &freeing[i], sizeof took) == sizeof took,
         "the time");
  }
  must(acp_free_ch(back) == 0, "acp_free_ch");
  report("connect", 0, connecting, n);
  report("free", 0, freeing, n);
  free(connecting);
  free(freeing);
}

int main(int argc, char** argv) {
  must(acp_init(&argc, &argv) == 0, "acp_init");
  rank = acp_rank();
  must(argc >= 3 && acp_procs() == 2, "usage: two processes; put|copy|pingpong|connect ITERATIONS [OCTETS...]");
  const int iterations = atoi(argv[2]);
  memory = calloc(2, kMost);
  must(memory != NULL, "memory");
  exchange_addresses();
  if (strcmp(argv[1], "connect") == 0) connect(iterations);
  const acp_ch_t there = acp_create_ch(0, 1), back = acp_create_ch(1, 0);
  for (int i = 3; i < argc; ++i) {
    const size_t octets = strtoul(argv[i], NULL, 0);
    must(octets > 0 && octets <= kMost, "from 1 octet to 8 MiB");
    if (strcmp(argv[1], "put") == 0) put(iterations, octets);
    if (strcmp(argv[1], "copy") == 0) copy(iterations, octets);
    if (strcmp(argv[1], "pingpong") == 0)
      pingpong(rank == 0 ? there : back, rank == 0 ? back : there, iterations, octets);
  }
  return acp_finalize() == 0 ? 0 : 1;
}
