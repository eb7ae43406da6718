// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Two endpoints of one transport: a ping-pong, or both ends sending as fast as the other takes
// it. What counts is what arrived. The server prints nothing; the client prints one line of JSON.
//
//   ewarp_verbs_bench --transport ud|rc|rd --mode latency|bandwidth [options] [ADDRESS OF THE SERVER]
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

enum { kBatch = 16, kAckEvery = 32, kInline = 188, kPingPongReceives = 64 };
// Seconds after which datagrams that nobody answered are taken for lost: in a flow that stands still, and in a
// ping-pong, where it is no hurry.
static const double kSilence = 0.02, kPatience = 0.2;

struct options {
  const char *transport, *mode, *device, *server;
  int port, gid_index;
  uint32_t size, window;
  long iterations;
  double seconds;
};

// What the server tells the client at the end.
struct result {
  uint64_t arrived, lost, stalls;
  double seconds;
};

struct bench;
struct transport {
  const char* name;
  struct ibv_qp* (*create)(struct ibv_pd*, struct ibv_qp_init_attr*);
  bool loses;       // messages may be lost
  uint32_t header;  // octets in front of a received message
  void (*connect)(struct bench*, const struct address* peer);
  void (*direct)(struct bench*, struct ibv_send_wr*);  // the destination, in each request
};

struct bench {
  struct options o;
  const struct transport* t;
  struct ibv_context* context;
  struct ibv_pd* pd;
  struct ibv_cq* cq;
  struct ibv_qp* qp;
  struct ibv_mr* mr;
  struct ibv_ah* ah;
  uint32_t peer_qpn;
  char* memory;  // send slots, receive slots, acknowledgements
  size_t slot;   // octets of each
  uint32_t receives, send_depth;
  uint64_t posted, retired;  // sends, of all kinds
  int tcp;
};

// --- the two ends find each other ---

static void meet(struct bench* b) {
  meet_at(b->tcp);
}

// --- transports ---

static void connect_rc(struct bench* b, const struct address* peer) {
  rc_to_rts(b->qp, peer, b->o.gid_index, 0);
}

static void direct_rc(struct bench* b, struct ibv_send_wr* wr) {
  (void)b;
  (void)wr;
}

static void connect_ud(struct bench* b, const struct address* peer) {
  b->ah = handle_for(b->pd, peer, b->o.gid_index);
  b->peer_qpn = peer->qpn;
  ud_to_rts(b->qp);
}

static void direct_ud(struct bench* b, struct ibv_send_wr* wr) {
  wr->wr.ud.ah = b->ah;
  wr->wr.ud.remote_qpn = b->peer_qpn;
  wr->wr.ud.remote_qkey = kQkey;
}

static struct ibv_qp* create_rc(struct ibv_pd* pd, struct ibv_qp_init_attr* init) {
  init->qp_type = IBV_QPT_RC;
  return ibv_create_qp(pd, init);
}

static struct ibv_qp* create_ud(struct ibv_pd* pd, struct ibv_qp_init_attr* init) {
  init->qp_type = IBV_QPT_UD;
  return ibv_create_qp(pd, init);
}

static struct ibv_qp* create_rd(struct ibv_pd* pd, struct ibv_qp_init_attr* init) {
  return create_rd_qp(pd, init);
}

static const struct transport kTransports[] = {
    {"rc", create_rc, false, 0, connect_rc, direct_rc},
    {"ud", create_ud, true, kGrh, connect_ud, direct_ud},
    {"rd", create_rd, false, 0, connect_ud, direct_ud},
};

// --- objects ---

static char* send_slot(struct bench* b, uint64_t number) {
  return b->memory + number % b->o.window * b->slot;
}

static char* receive_slot(struct bench* b, uint64_t number) {
  return b->memory + (b->o.window + number) * b->slot;
}

static void post_receives(struct bench* b, const uint64_t* slots, int n) {
  struct ibv_sge sge[kBatch];
  struct ibv_recv_wr wr[kBatch], *bad;
  for (int i = 0; i < n; ++i) {
    sge[i] = (struct ibv_sge){(uintptr_t)receive_slot(b, slots[i]), (uint32_t)b->slot, b->mr->lkey};
    wr[i] = (struct ibv_recv_wr){
        .wr_id = slots[i], .next = i + 1 < n ? &wr[i + 1] : NULL, .sg_list = &sge[i], .num_sge = 1};
  }
  if (n > 0) checked(ibv_post_recv(b->qp, wr, &bad), "ibv_post_recv");
}

static void set_up(struct bench* b) {
  const bool bandwidth = strcmp(b->o.mode, "bandwidth") == 0;
  if (!bandwidth) b->o.window = 1;
  b->context = open_device(b->o.device);
  b->receives = bandwidth ? 2 * b->o.window : kPingPongReceives;
  b->send_depth = 2 * b->o.window + 2 * kBatch;
  b->slot = kGrh + (b->o.size > 16 ? b->o.size : 16);
  const size_t octets = (b->o.window + b->receives) * b->slot;
  b->memory = calloc(1, octets);
  b->pd = ibv_alloc_pd(b->context);
  must(b->memory != NULL && b->pd != NULL, "ibv_alloc_pd");
  b->mr = ibv_reg_mr(b->pd, b->memory, octets, IBV_ACCESS_LOCAL_WRITE);
  b->cq = ibv_create_cq(b->context, (int)(b->receives + b->send_depth), NULL, NULL, 0);
  must(b->mr != NULL && b->cq != NULL, "ibv_create_cq");
  struct ibv_qp_init_attr init = {.send_cq = b->cq,
                                  .recv_cq = b->cq,
                                  .cap = {.max_send_wr = b->send_depth,
                                          .max_recv_wr = b->receives,
                                          .max_send_sge = 1,
                                          .max_recv_sge = 1,
                                          .max_inline_data = kInline}};
  b->qp = b->t->create(b->pd, &init);
  must(b->qp != NULL, "a queue pair");

  b->tcp = tcp_between(b->o.server, b->o.port);
  struct address mine = address_of(b->qp, b->o.gid_index), theirs;
  exchange(b->tcp, &mine, &theirs, sizeof mine);
  b->t->connect(b, &theirs);
  for (uint64_t slot = 0; slot < b->receives; ++slot) post_receives(b, &slot, 1);
  meet(b);
}

static void tear_down(struct bench* b) {
  ibv_destroy_qp(b->qp);
  if (b->ah != NULL) ibv_destroy_ah(b->ah);
  ibv_destroy_cq(b->cq);
  ibv_dereg_mr(b->mr);
  ibv_dealloc_pd(b->pd);
  ibv_close_device(b->context);
  free(b->memory);
  close(b->tcp);
}

// Every kBatch-th send is signalled; it retires those before it.
static void post_sends(struct bench* b, struct ibv_send_wr* wr, int n) {
  struct ibv_send_wr* bad;
  for (int i = 0; i < n; ++i) {
    const uint32_t length = wr[i].sg_list->length;
    wr[i].opcode = IBV_WR_SEND;
    wr[i].wr_id = ++b->posted;
    wr[i].send_flags = (b->posted % kBatch == 0 ? IBV_SEND_SIGNALED : 0u) | (length <= kInline ? IBV_SEND_INLINE : 0u);
    wr[i].num_sge = 1;
    wr[i].next = i + 1 < n ? &wr[i + 1] : NULL;
    b->t->direct(b, &wr[i]);
  }
  if (n > 0) checked(ibv_post_send(b->qp, wr, &bad), "ibv_post_send");
}

static int poll_completions(struct bench* b, struct ibv_wc* wc, int most) {
  const int n = poll_well(b->cq, most, wc);
  for (int i = 0; i < n; ++i)
    if (!(wc[i].opcode & IBV_WC_RECV)) b->retired = wc[i].wr_id;
  return n;
}

// --- ping-pong ---

// Each ping has a number, so that an answer that comes late is not taken for another's.
static void send_one(struct bench* b, uint64_t number) {
  memcpy(send_slot(b, 0), &number, sizeof number);
  struct ibv_sge sge = {(uintptr_t)send_slot(b, 0), b->o.size, b->mr->lkey};
  struct ibv_send_wr wr = {.sg_list = &sge};
  post_sends(b, &wr, 1);
}

// False: nothing came for kPatience.
static bool wait_for_one(struct bench* b, uint64_t* number) {
  struct ibv_wc wc;
  for (double until = 0;;) {
    if (poll_completions(b, &wc, 1) == 1 && (wc.opcode & IBV_WC_RECV)) {
      memcpy(number, receive_slot(b, wc.wr_id) + b->t->header, sizeof *number);
      post_receives(b, &wc.wr_id, 1);
      return true;
    }
    const double t = now();
    if (until == 0) until = t + kPatience;
    if (t > until) return false;
  }
}

static void ping(struct bench* b) {
  const long warm_up = b->o.iterations / 20;
  double* half = calloc((size_t)b->o.iterations, sizeof *half);
  uint64_t number = 0, lost = 0;
  must(half != NULL, "calloc");
  for (long i = -warm_up; i < b->o.iterations; ++i) {
    const double begin = now();
    send_one(b, ++number);
    uint64_t answer = 0;
    // Where nothing is lost the first may have to wait for the connection.
    for (int waits = b->t->loses ? 1 : 50; waits > 0 && answer != number;)
      if (!wait_for_one(b, &answer)) --waits;
    if (i >= 0) half[i] = (now() - begin) * 0.5e6;
    if (answer != number && (!b->t->loses || ++lost > 100)) die("the peer is silent");
  }
  qsort(half, (size_t)b->o.iterations, sizeof *half, ascending);
  printf("{\"half_round_trip_us\": {\"median\": %.3f, \"p99\": %.3f, \"p999\": %.3f}, \"lost\": %llu}\n",
         half[b->o.iterations / 2], half[b->o.iterations * 99 / 100], half[b->o.iterations * 999 / 1000],
         (unsigned long long)lost);
  free(half);
}

// Until the client is done: it writes to the TCP connection.
static void pong(struct bench* b) {
  uint64_t number;
  for (char c; recv(b->tcp, &c, 1, MSG_DONTWAIT | MSG_PEEK) < 0;)
    while (wait_for_one(b, &number)) send_one(b, number);
}

static void latency(struct bench* b) {
  if (b->o.server != NULL)
    ping(b);
  else
    pong(b);
  meet(b);
}

// --- both ends at once ---

// The first octets of a message. An acknowledgement is such a head alone.
struct head {
  uint64_t kind;    // 0: data, 1: acknowledgement
  uint64_t number;  // of the message; or how many the peer may count as seen
};

struct flow {
  uint64_t sent, seen;           // mine; the peer's word about them
  uint64_t next, arrived, told;  // the peer's: number expected, how many came, what I said about them
  double progress;               // when `seen` last moved
  uint64_t stalls;               // how often that took too long
  uint64_t receives[kBatch];
  int receive_count;
};

static void tell(struct bench* b, struct flow* f) {
  struct head ack = {1, f->next};
  struct ibv_sge sge = {(uintptr_t)&ack, sizeof ack, 0};  // inline
  struct ibv_send_wr wr = {.sg_list = &sge};
  post_sends(b, &wr, 1);
  f->told = f->next;
}

static void take(struct bench* b, struct flow* f, const struct ibv_wc* wc) {
  struct head h;
  memcpy(&h, receive_slot(b, wc->wr_id) + b->t->header, sizeof h);
  if (h.kind == 1) {
    if (h.number > f->seen) f->seen = h.number;
    f->progress = now();
  } else {
    ++f->arrived;
    if (h.number >= f->next) f->next = h.number + 1;
  }
  f->receives[f->receive_count++] = wc->wr_id;
  if (f->receive_count < kBatch) return;
  post_receives(b, f->receives, kBatch);
  f->receive_count = 0;
}

static void send_what_fits(struct bench* b, struct flow* f) {
  struct ibv_sge sge[kBatch];
  struct ibv_send_wr wr[kBatch];
  int n = 0;
  while (n < kBatch && f->sent - f->seen < b->o.window &&
         b->posted + (unsigned)n - b->retired + kBatch < b->send_depth) {
    char* slot = send_slot(b, f->sent);
    const struct head h = {0, f->sent++};
    memcpy(slot, &h, sizeof h);
    sge[n] = (struct ibv_sge){(uintptr_t)slot, b->o.size, b->mr->lkey};
    wr[n] = (struct ibv_send_wr){.sg_list = &sge[n]};
    ++n;
  }
  post_sends(b, wr, n);
}

static void exchange_until(struct bench* b, struct flow* f, double end) {
  struct ibv_wc wc[2 * kBatch];
  for (double t = now(); t < end; t = now()) {
    const int n = poll_completions(b, wc, 2 * kBatch);
    for (int i = 0; i < n; ++i)
      if (wc[i].opcode & IBV_WC_RECV) take(b, f, &wc[i]);
    if (f->next - f->told >= kAckEvery) tell(b, f);
    // Lost, all that were under way, or the acknowledgements of them.
    if (b->t->loses && f->sent != f->seen && t - f->progress > kSilence) {
      f->seen = f->sent;
      f->progress = t;
      ++f->stalls;
    }
    send_what_fits(b, f);
  }
}

static void bandwidth(struct bench* b) {
  struct flow f = {.progress = now()};
  exchange_until(b, &f, now() + b->o.seconds / 4);
  const uint64_t before = f.arrived, gone = f.next - f.arrived;  // of those some may come late
  const double begin = now();
  exchange_until(b, &f, begin + b->o.seconds);
  // On a busy machine the peer may not have had its turn.
  while (f.arrived == before && now() - begin < 5) exchange_until(b, &f, now() + b->o.seconds);
  const uint64_t missing = f.next - f.arrived;
  const struct result mine = {f.arrived - before, missing > gone ? missing - gone : 0, f.stalls, now() - begin};
  struct result theirs;
  exchange(b->tcp, &mine, &theirs, sizeof mine);
  if (b->o.server == NULL) return;
  const double octets = (double)mine.arrived / mine.seconds + (double)theirs.arrived / theirs.seconds;
  printf("{\"gbit_per_s\": %.4f, \"arrived\": %llu, \"lost\": %llu, \"stalls\": %llu}\n", octets * b->o.size * 8e-9,
         (unsigned long long)(mine.arrived + theirs.arrived), (unsigned long long)(mine.lost + theirs.lost),
         (unsigned long long)(mine.stalls + theirs.stalls));
}

// --- arguments ---

static struct options parse(int argc, char** argv) {
  struct options o = {.transport = "ud",
                      .mode = "latency",
                      .port = 18515,
                      .size = 64,
                      .window = 256,
                      .iterations = 10000,
                      .seconds = 0.5};
  const struct argument known[] = {{"transport", kText, &o.transport}, {"mode", kText, &o.mode},
                                   {"device", kText, &o.device},       {"port", kInt, &o.port},
                                   {"gid-index", kInt, &o.gid_index},  {"size", kCount, &o.size},
                                   {"window", kCount, &o.window},      {"iterations", kLong, &o.iterations},
                                   {"seconds", kReal, &o.seconds}};
  o.server = read_arguments(argc, argv, known, sizeof known / sizeof *known);
  if (o.window < kBatch || o.iterations < 20 || o.seconds <= 0) die("a number is too small");
  const size_t least = strcmp(o.mode, "bandwidth") == 0 ? sizeof(struct head) : sizeof(uint64_t);
  if (o.size < least) die("--size: at least %zu", least);
  return o;
}

int main(int argc, char** argv) {
  struct bench b = {.o = parse(argc, argv)};
  for (size_t i = 0; i < sizeof kTransports / sizeof *kTransports; ++i)
    if (strcmp(kTransports[i].name, b.o.transport) == 0) b.t = &kTransports[i];
  if (b.t == NULL) die("no transport %s", b.o.transport);
  set_up(&b);
  if (strcmp(b.o.mode, "bandwidth") == 0)
    bandwidth(&b);
  else
    latency(&b);
  tear_down(&b);
  return 0;
}
