// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Many queue pairs (RC, by address) between two processes on one completion queue:
//   latency   a ping-pong on the first, the others connected and idle
//   fairness  the client writes on all of them at once: what each moved in a while, and Jain's index of that
//   puts      the client writes on the first, waits for the completion, computes, and so on
// The server prints nothing; the client prints one line of JSON.
//
//   ewarp_verbs_pairs --mode latency|fairness|puts [options] [ADDRESS OF THE SERVER]
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "verbs_ends.h"

enum { kReceives = 8, kBatch = 32, kInline = 64 };

struct options {
  const char *mode, *device, *server;
  int port, gid_index;
  uint32_t pairs, size, window;
  long iterations;
  double seconds, compute_us;
  bool mutual;
};

struct bench {
  struct options o;
  struct ibv_context* context;
  struct ibv_pd* pd;
  struct ibv_cq* cq;
  struct ibv_mr* mr;
  struct ibv_qp** qps;
  char* memory;  // for each queue pair: what it sends, then what it receives
  uint64_t their_memory;
  uint32_t their_key;
  int tcp;
  double connect_s;                 // until all queue pairs had carried a message each way
  int64_t sends_due, receives_due;  // completions; below 0: they have come already
};

// What an end tells the other one of its memory.
struct place {
  uint64_t address;
  uint32_t key;
};

static void meet(struct bench* b) {
  meet_at(b->tcp);
}

static size_t octets(const struct bench* b) {
  return 2 * (size_t)b->o.pairs * b->o.size;
}

static char* out_slot(struct bench* b, uint32_t pair) {
  return b->memory + 2 * (size_t)pair * b->o.size;
}

static void post_receive(struct bench* b, uint32_t pair) {
  struct ibv_sge sge = {(uintptr_t)out_slot(b, pair) + b->o.size, b->o.size, b->mr->lkey};
  struct ibv_recv_wr wr = {.wr_id = pair, .sg_list = &sge, .num_sge = 1}, *bad;
  checked(ibv_post_recv(b->qps[pair], &wr, &bad), "ibv_post_recv");
}

static void post(struct bench* b, uint32_t pair, enum ibv_wr_opcode opcode) {
  struct ibv_sge sge = {(uintptr_t)out_slot(b, pair), b->o.size, b->mr->lkey};
  struct ibv_send_wr wr = {.wr_id = pair,
                           .sg_list = &sge,
                           .num_sge = 1,
                           .opcode = opcode,
                           .send_flags = IBV_SEND_SIGNALED | (b->o.size <= kInline ? IBV_SEND_INLINE : 0u)},
                     *bad;
  wr.wr.rdma.remote_addr = b->their_memory + (uint64_t)(out_slot(b, pair) - b->memory) + b->o.size;
  wr.wr.rdma.rkey = b->their_key;
  checked(ibv_post_send(b->qps[pair], &wr, &bad), "ibv_post_send");
}

// Until so many Sends of ours are complete and so many of the peer's have come; their receives are posted anew.
// What comes before it is waited for is not lost: the peer's next message may be there before our own completion.
static void wait_for(struct bench* b, uint32_t sends, uint32_t receives) {
  struct ibv_wc wc[kBatch];
  b->sends_due += sends;
  b->receives_due += receives;
  while (b->sends_due > 0 || b->receives_due > 0) {
    const int n = poll_well(b->cq, kBatch, wc);
    for (int i = 0; i < n; ++i) {
      if (wc[i].opcode & IBV_WC_RECV) {
        --b->receives_due;
        post_receive(b, (uint32_t)wc[i].wr_id);
      } else {
        --b->sends_due;
      }
    }
  }
}

static void set_up(struct bench* b) {
  const uint32_t n = b->o.pairs;
  b->context = open_device(b->o.device);
  b->memory = calloc(1, octets(b));
  b->qps = calloc(n, sizeof(struct ibv_qp*));
  b->pd = ibv_alloc_pd(b->context);
  must(b->memory != NULL && b->qps != NULL && b->pd != NULL, "ibv_alloc_pd");
  b->mr = ibv_reg_mr(b->pd, b->memory, octets(b), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  b->cq = ibv_create_cq(b->context, (int)(n * (kReceives + b->o.window)), NULL, NULL, 0);
  must(b->mr != NULL && b->cq != NULL, "ibv_create_cq");
  struct address *mine = calloc(n, sizeof *mine), *theirs = calloc(n, sizeof *theirs);
  must(mine != NULL && theirs != NULL, "calloc");
  for (uint32_t i = 0; i < n; ++i) {
    struct ibv_qp_init_attr init = {.send_cq = b->cq,
                                    .recv_cq = b->cq,
                                    .qp_type = IBV_QPT_RC,
                                    .cap = {.max_send_wr = b->o.window,
                                            .max_recv_wr = kReceives,
                                            .max_send_sge = 1,
                                            .max_recv_sge = 1,
                                            .max_inline_data = kInline}};
    b->qps[i] = ibv_create_qp(b->pd, &init);
    must(b->qps[i] != NULL, "ibv_create_qp");
    mine[i] = address_of(b->qps[i], b->o.gid_index);
  }
  b->tcp = tcp_between(b->o.server, b->o.port);
  exchange(b->tcp, mine, theirs, n * sizeof *mine);
  struct place here = {(uintptr_t)b->memory, b->mr->rkey}, there;
  exchange(b->tcp, &here, &there, sizeof here);
  b->their_memory = there.address;
  b->their_key = there.key;
  const double begin = now();
  for (uint32_t i = 0; i < n; ++i) {
    rc_to_rts(b->qps[i], &theirs[i], b->o.gid_index, IBV_ACCESS_REMOTE_WRITE);
    for (int r = 0; r < kReceives; ++r) post_receive(b, i);
  }
  free(mine);
  free(theirs);
  meet(b);
  // A message each way on every queue pair: all are connected, and were in use.
  for (uint32_t i = 0; i < n; ++i) post(b, i, IBV_WR_SEND);
  wait_for(b, n, n);
  meet(b);
  b->connect_s = now() - begin;
}

static void tear_down(struct bench* b) {
  for (uint32_t i = 0; i < b->o.pairs; ++i) ibv_destroy_qp(b->qps[i]);
  ibv_destroy_cq(b->cq);
  ibv_dereg_mr(b->mr);
  ibv_dealloc_pd(b->pd);
  ibv_close_device(b->context);
  free(b->qps);
  free(b->memory);
  close(b->tcp);
}

static void print_times(const struct bench* b, const char* name, double* us, long n) {
  qsort(us, (size_t)n, sizeof *us, ascending);
  double sum = 0;
  for (long i = 0; i < n; ++i) sum += us[i];
  printf("{\"%s\": {\"median\": %.3f, \"mean\": %.3f, \"p99\": %.3f}, \"connect_s\": %.3f}\n", name, us[n / 2],
         sum / (double)n, us[n * 99 / 100], b->connect_s);
}

static void latency(struct bench* b) {
  const long n = b->o.iterations, warm_up = n / 20;
  double* half = calloc((size_t)n, sizeof *half);
  must(half != NULL, "calloc");
  for (long i = -warm_up; i < n; ++i) {
    const double begin = now();
    if (b->o.server != NULL) post(b, 0, IBV_WR_SEND);
    wait_for(b, b->o.server != NULL ? 1 : 0, 1);
    if (b->o.server == NULL) {
      post(b, 0, IBV_WR_SEND);
      wait_for(b, 1, 0);
    }
    if (i >= 0) half[i] = (now() - begin) * 0.5e6;
  }
  if (b->o.server != NULL) print_times(b, "half_round_trip_us", half, n);
  free(half);
}

// Until `end`; counts, for each queue pair, the Writes that were completed.
static void write_on_all(struct bench* b, double end, uint64_t* done) {
  struct ibv_wc wc[kBatch];
  while (now() < end) {
    const int n = poll_well(b->cq, kBatch, wc);
    for (int i = 0; i < n; ++i) {
      ++done[wc[i].wr_id];
      post(b, (uint32_t)wc[i].wr_id, IBV_WR_RDMA_WRITE);
    }
  }
}

static void fairness(struct bench* b) {
  if (b->o.server == NULL) return;
  const uint32_t n = b->o.pairs;
  uint64_t* done = calloc(n, sizeof *done);
  must(done != NULL, "calloc");
  for (uint32_t w = 0; w < b->o.window; ++w)
    for (uint32_t i = 0; i < n; ++i) post(b, i, IBV_WR_RDMA_WRITE);
  write_on_all(b, now() + b->o.seconds / 4, done);  // until the kernel's buffers are full
  memset(done, 0, n * sizeof *done);
  const double begin = now();
  write_on_all(b, begin + b->o.seconds, done);
  const double took = now() - begin;
  double sum = 0, squares = 0, least = (double)done[0], most = least;
  for (uint32_t i = 0; i < n; ++i) {
    const double d = (double)done[i];
    sum += d;
    squares += d * d;
    least = d < least ? d : least;
    most = d > most ? d : most;
  }
  printf("{\"jain\": %.4f, \"least\": %.0f, \"most\": %.0f, \"gbit_per_s\": %.3f}\n",
         squares > 0 ? sum * sum / (n * squares) : 0, least, most, sum * b->o.size * 8e-9 / took);
  free(done);
}

// The time of a Write and its completion, without what is computed behind it.
static void puts_and_waits(struct bench* b) {
  if (b->o.server == NULL && !b->o.mutual) return;
  const long n = b->o.iterations;
  double* us = calloc((size_t)n, sizeof *us);
  must(us != NULL, "calloc");
  for (long i = 0; i < n; ++i) {
    const double begin = now();
    post(b, 0, IBV_WR_RDMA_WRITE);
    wait_for(b, 1, 0);
    const double end = now();
    us[i] = (end - begin) * 1e6;
    while (now() < end + b->o.compute_us * 1e-6) {
    }
  }
  if (b->o.server != NULL) print_times(b, "put_us", us, n);
  free(us);
}

static struct options parse(int argc, char** argv) {
  struct options o = {.mode = "latency",
                      .port = 18515,
                      .pairs = 1,
                      .size = 64,
                      .window = 16,
                      .iterations = 10000,
                      .seconds = 1,
                      .compute_us = 10};
  const struct argument known[] = {
      {"mode", kText, &o.mode},          {"device", kText, &o.device},         {"port", kInt, &o.port},
      {"gid-index", kInt, &o.gid_index}, {"pairs", kCount, &o.pairs},          {"size", kCount, &o.size},
      {"window", kCount, &o.window},     {"iterations", kLong, &o.iterations}, {"seconds", kReal, &o.seconds},
      {"compute", kReal, &o.compute_us}, {"mutual", kFlag, &o.mutual}};
  o.server = read_arguments(argc, argv, known, sizeof known / sizeof *known);
  if (o.pairs < 1 || o.size < 1 || o.window < 1 || o.iterations < 20 || o.seconds <= 0) die("a number is too small");
  return o;
}

int main(int argc, char** argv) {
  struct bench b = {.o = parse(argc, argv)};
  set_up(&b);
  if (strcmp(b.o.mode, "latency") == 0)
    latency(&b);
  else if (strcmp(b.o.mode, "fairness") == 0)
    fairness(&b);
  else if (strcmp(b.o.mode, "puts") == 0)
    puts_and_waits(&b);
  else
    die("no mode %s", b.o.mode);
  meet(&b);
  tear_down(&b);
  return 0;
}
