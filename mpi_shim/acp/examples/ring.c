/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Figure 2 of T. Nanri and T. Soga, "Evaluation of On-Demand Message-Passing Module over RDMA Network": one-dimensional
 * shift with channels. Each process sends to its right neighbour and receives from its left one, 10000 times; what it
 * computes is compared with what it has to be.
 *
 *   etherwarp acprun -n 4 acp_ring [ROUNDS] */
#include <acp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static int myrank, procs;

static void create_proc_ring(int* left, int* right) {
  *left = (myrank + procs - 1) % procs;
  *right = (myrank + 1) % procs;
}

/* The first word goes round the ring; the others grow by it. */
static void calc(uint64_t* buf, uint64_t lval, int n) {
  int i;
  for (i = 1; i < n; i++) buf[i] += lval;
  buf[0] = lval;
}

/* What calc() makes of the words that come from all ranks, one after the other. */
static int is_right(const uint64_t* buf, int rounds) {
  uint64_t sum = 0;
  int i;
  for (i = 1; i <= rounds; i++) sum += (uint64_t)(((myrank - i) % procs + procs) % procs);
  for (i = 1; i < 100; i++)
    if (buf[i] != sum) return 0;
  return 1;
}

int main(int argc, char** argv) {
  acp_ch_t ch[2];
  acp_request_t req[2];
  int left, right, i, rounds;
  uint64_t buf[100] = {0}, lval = 0;

  if (acp_init(&argc, &argv) != 0) return 1;
  rounds = argc > 1 ? atoi(argv[1]) : 10000;
  myrank = acp_rank();
  procs = acp_procs();
  if (procs < 2) acp_abort("a ring has two processes at least");
  buf[0] = (uint64_t)myrank;
  create_proc_ring(&left, &right);

  ch[0] = acp_create_ch(left, myrank);
  ch[1] = acp_create_ch(myrank, right);

  for (i = 0; i < rounds; i++) {
    req[0] = acp_nbrecv_ch(ch[0], &lval, 8);
    req[1] = acp_nbsend_ch(ch[1], &(buf[0]), 8);
    if (acp_wait_ch(req[0]) != 8) acp_abort("receive");
    if (acp_wait_ch(req[1]) != 0) acp_abort("send");
    calc(buf, lval, 100);
  }

  req[0] = acp_nbfree_ch(ch[0]);
  req[1] = acp_nbfree_ch(ch[1]);
  acp_wait_ch(req[0]);
  acp_wait_ch(req[1]);

  if (!is_right(buf, rounds)) acp_abort("a wrong sum");
  if (myrank == 0) printf("%d processes, %d rounds: right\n", procs, rounds);
  return acp_finalize() == 0 ? 0 : 1;
}
