// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Sends of one size at a fixed rate between two processes that sleep in between: each waits on its completion
// channel, and the sender for the next tick of a millisecond, as iperf3 does. For what a GiB costs the CPUs;
// perftest's own limit of the rate computes between its bursts. The server prints nothing; the client prints one line
// of JSON.
//
//   ewarp_verbs_paced [--size OCTETS] [--messages N] [--gbit RATE] [options] [ADDRESS OF THE SERVER]
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "verbs_ends.h"

// The receiver grants anew what it has posted anew, kGrant at a time: a Send without a receive would end the stream.
enum { kReceives = 256, kGrant = 64, kSends = 64, kSignalEvery = 16, kGrantsUnderWay = 2 * kReceives / kGrant };
static const double kTick = 1e-3;  // seconds; iperf3's --pacing-timer

struct options {
  const char *device, *server;
  int port, gid_index;
  uint32_t size;
  long messages;
  double gbit;
};

struct bench {
  struct options o;
  struct ibv_context* context;
  struct ibv_pd* pd;
  struct ibv_comp_channel* channel;
  struct ibv_cq* cq;
  struct ibv_qp* qp;
  struct ibv_mr* mr;
  char* memory;
  int tcp;
  bool armed;
  long posted, retired;  // Sends of the client
  long granted;          // how many it may post; the server: how many it has granted
  long arrived;          // Sends at the server
};

static void post_receive(struct bench* b) {
  struct ibv_sge sge = {(uintptr_t)b->memory, b->o.size, b->mr->lkey};
  struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
  checked(ibv_post_recv(b->qp, &wr, &bad), "ibv_post_recv");
}

static void post_send(struct bench* b, uint32_t octets, uint64_t number, bool signalled) {
  struct ibv_sge sge = {(uintptr_t)b->memory, octets, b->mr->lkey};
  struct ibv_send_wr wr = {.wr_id = number,
                           .sg_list = &sge,
                           .num_sge = octets > 0 ? 1 : 0,
                           .opcode = IBV_WR_SEND,
                           .send_flags = signalled ? IBV_SEND_SIGNALED : 0u},
                     *bad;
  checked(ibv_post_send(b->qp, &wr, &bad), "ibv_post_send");
}

static void set_up(struct bench* b) {
  b->context = open_device(b->o.device);
  b->memory = calloc(1, b->o.size);
  b->pd = ibv_alloc_pd(b->context);
  b->channel = ibv_create_comp_channel(b->context);
  must(b->memory != NULL && b->pd != NULL && b->channel != NULL, "ibv_create_comp_channel");
  b->mr = ibv_reg_mr(b->pd, b->memory, b->o.size, IBV_ACCESS_LOCAL_WRITE);
  b->cq = ibv_create_cq(b->context, kReceives + kSends, NULL, b->channel, 0);
  must(b->mr != NULL && b->cq != NULL, "ibv_create_cq");
  struct ibv_qp_init_attr init = {
      .send_cq = b->cq,
      .recv_cq = b->cq,
      .qp_type = IBV_QPT_RC,
      .cap = {.max_send_wr = kSends, .max_recv_wr = kReceives, .max_send_sge = 1, .max_recv_sge = 1}};
  b->qp = ibv_create_qp(b->pd, &init);
  must(b->qp != NULL, "a queue pair");
  b->tcp = tcp_between(b->o.server, b->o.port);
  struct address mine = address_of(b->qp, b->o.gid_index), theirs;
  exchange(b->tcp, &mine, &theirs, sizeof mine);
  rc_to_rts(b->qp, &theirs, b->o.gid_index, 0);
  for (int i = 0; i < (b->o.server == NULL ? kReceives : kGrantsUnderWay); ++i) post_receive(b);
  b->granted = kReceives;
  meet_at(b->tcp);
}

static void tear_down(struct bench* b) {
  ibv_destroy_qp(b->qp);
  ibv_destroy_cq(b->cq);
  ibv_destroy_comp_channel(b->channel);
  ibv_dereg_mr(b->mr);
  ibv_dealloc_pd(b->pd);
  ibv_close_device(b->context);
  free(b->memory);
  close(b->tcp);
}

// At the server a message, at the client a grant or word of Sends that are complete.
static void take(struct bench* b, const struct ibv_wc* wc) {
  if (!(wc->opcode & IBV_WC_RECV)) {
    b->retired = (long)wc->wr_id;
    return;
  }
  post_receive(b);
  if (b->o.server != NULL) {
    b->granted += kGrant;
  } else if (++b->arrived % kGrant == 0) {
    b->granted += kGrant;
    post_send(b, 0, 0, true);  // an empty Send is a grant
  }
}

// Takes what is complete; sleeps until something is.
static void wait_for_some(struct bench* b) {
  for (;;) {
    struct ibv_wc wc[kSignalEvery];
    const int n = poll_well(b->cq, kSignalEvery, wc);
    for (int i = 0; i < n; ++i) take(b, &wc[i]);
    if (n > 0) return;
    if (!b->armed) {
      checked(ibv_req_notify_cq(b->cq, 0), "ibv_req_notify_cq");
      b->armed = true;  // and look once more: what came before would not be told
      continue;
    }
    struct ibv_cq* which;
    void* context;
    must(ibv_get_cq_event(b->channel, &which, &context) == 0, "ibv_get_cq_event");
    ibv_ack_cq_events(which, 1);
    b->armed = false;
  }
}

static void sleep_until(double when) {
  const double left = when - now();
  if (left <= 0) return;
  const struct timespec t = {(time_t)left, (long)((left - (double)(time_t)left) * 1e9)};
  nanosleep(&t, NULL);
}

static void send_all(struct bench* b) {
  const double each = (double)b->o.size * 8e-9 / b->o.gbit, begin = now();
  for (double tick = begin; b->posted < b->o.messages; tick += kTick) {
    sleep_until(tick);
    for (const double elapsed = now() - begin; b->posted < b->o.messages && (double)b->posted * each <= elapsed;) {
      while (b->posted - b->retired >= kSends || b->posted >= b->granted) wait_for_some(b);
      ++b->posted;
      post_send(b, b->o.size, (uint64_t)b->posted, b->posted % kSignalEvery == 0);
    }
  }
  // All have arrived when the last grant has.
  while (b->granted < b->o.messages + kReceives) wait_for_some(b);
  const double seconds = now() - begin;
  printf("{\"seconds\": %.4f, \"gbit_per_s\": %.4f}\n", seconds,
         (double)b->o.size * (double)b->o.messages * 8e-9 / seconds);
}

static struct options parse(int argc, char** argv) {
  struct options o = {.port = 18515, .size = 128 << 10, .messages = 8192, .gbit = 4};
  const struct argument known[] = {{"device", kText, &o.device},      {"port", kInt, &o.port},
                                   {"gid-index", kInt, &o.gid_index}, {"size", kCount, &o.size},
                                   {"messages", kLong, &o.messages},  {"gbit", kReal, &o.gbit}};
  o.server = read_arguments(argc, argv, known, sizeof known / sizeof *known);
  if (o.size == 0 || o.messages < kGrant || o.messages % kGrant != 0 || o.gbit <= 0)
    die("--messages: a multiple of %d; --size, --gbit: more than 0", kGrant);
  return o;
}

int main(int argc, char** argv) {
  struct bench b = {.o = parse(argc, argv)};
  set_up(&b);
  if (b.o.server != NULL)
    send_all(&b);
  else
    while (b.arrived < b.o.messages) wait_for_some(&b);
  meet_at(b.tcp);
  tear_down(&b);
  return 0;
}
