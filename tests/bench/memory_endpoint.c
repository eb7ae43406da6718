// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// One of many endpoints that all know each other, for tests/bench/memory.py: it does one step for each line on its
// standard input and then says so, so that memory can be measured in between.
//
//   ewarp_memory_endpoint --transport ud|rd|rc|rc-srq --peers N [--device NAME]
//
//   open                      the device, a completion queue, memory       -> opened
//   make                      queue pairs with receives                    -> address GID QPN, one for each peer; made
//   peer GID QPN              where one peer is, in the order of the addresses
//   connect                                                                -> connected
//   talk                      a message to each peer, one from each        -> talked
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "verbs_ends.h"

// What is posted: for each connection of its own, or for all together.
enum { kOwnReceives = 16, kSharedReceives = 256, kSends = 16, kMessage = 64, kSlot = kGrh + kMessage };

struct peer {
  struct address address;
  struct ibv_qp* qp;
  struct ibv_ah* ah;  // UD, RD
};

static struct {
  bool datagrams, reliable, shared;
  const char* device;
  unsigned count, known;
  struct peer* peers;
  struct ibv_context* context;
  struct ibv_pd* pd;
  struct ibv_cq* cq;
  struct ibv_srq* srq;
  struct ibv_mr* mr;
  char memory[2 * kSlot];  // all messages go out of the first slot and into the second
} self;

static void say(const char* word) {
  puts(word);
  fflush(stdout);
}

static void open_all(void) {
  self.context = open_device(self.device);
  self.pd = ibv_alloc_pd(self.context);
  must(self.pd != NULL, "ibv_alloc_pd");
  self.cq = ibv_create_cq(self.context, 4096, NULL, NULL, 0);
  self.mr = ibv_reg_mr(self.pd, self.memory, sizeof self.memory, IBV_ACCESS_LOCAL_WRITE);
  must(self.cq != NULL && self.mr != NULL, "ibv_create_cq");
}

static struct ibv_qp* make_qp(enum ibv_qp_type type, uint32_t receives) {
  struct ibv_qp_init_attr init = {
      .send_cq = self.cq,
      .recv_cq = self.cq,
      .srq = self.srq,
      .qp_type = type,
      .cap = {.max_send_wr = kSends, .max_recv_wr = receives, .max_send_sge = 1, .max_recv_sge = 1}};
  struct ibv_qp* qp = type == IBV_QPT_DRIVER ? create_rd_qp(self.pd, &init) : ibv_create_qp(self.pd, &init);
  must(qp != NULL, "ibv_create_qp");
  return qp;
}

static void post_receives(struct ibv_qp* qp, unsigned n) {
  struct ibv_sge sge = {(uintptr_t)self.memory + kSlot, kSlot, self.mr->lkey};
  struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
  for (unsigned i = 0; i < n; ++i)
    checked(qp != NULL ? ibv_post_recv(qp, &wr, &bad) : ibv_post_srq_recv(self.srq, &wr, &bad), "posting a receive");
}

static void tell_address(struct ibv_qp* qp) {
  const struct address a = address_of(qp, 0);
  printf("address ");
  for (unsigned i = 0; i < sizeof a.gid.raw; ++i) printf("%02x", a.gid.raw[i]);
  printf(" %" PRIu32 "\n", a.qpn);
}

static void make_all(void) {
  if (self.shared) {
    struct ibv_srq_init_attr init = {.attr = {.max_wr = kSharedReceives, .max_sge = 1}};
    self.srq = ibv_create_srq(self.pd, &init);
    must(self.srq != NULL, "ibv_create_srq");
    post_receives(NULL, kSharedReceives);
  }
  struct ibv_qp* one = self.datagrams ? make_qp(self.reliable ? IBV_QPT_DRIVER : IBV_QPT_UD, kSharedReceives) : NULL;
  for (unsigned i = 0; i < self.count; ++i) {
    self.peers[i].qp = one != NULL ? one : make_qp(IBV_QPT_RC, self.shared ? 0 : kOwnReceives);
    tell_address(self.peers[i].qp);
  }
  say("made");
}

static void learn(const char* line) {
  char hex[33];
  struct peer* p = &self.peers[self.known];
  if (self.known == self.count || sscanf(line, "peer %32s %" SCNu32, hex, &p->address.qpn) != 2) die("what? %s", line);
  for (unsigned i = 0; i < sizeof p->address.gid.raw; ++i) {
    unsigned octet;
    if (sscanf(hex + 2 * i, "%2x", &octet) != 1) die("no GID: %s", hex);
    p->address.gid.raw[i] = (uint8_t)octet;
  }
  ++self.known;
}

static void connect_all(void) {
  for (unsigned i = 0; i < self.known; ++i) {
    struct peer* p = &self.peers[i];
    if (self.datagrams) {
      p->ah = handle_for(self.pd, &p->address, 0);
      if (i == 0) ud_to_rts(p->qp);
    } else {
      rc_to_rts(p->qp, &p->address, 0, 0);
    }
    if (!self.shared && (!self.datagrams || i == 0))
      post_receives(p->qp, self.datagrams ? kSharedReceives : kOwnReceives);
  }
}

static void wait_for(unsigned* sent, unsigned* received, unsigned want_sent, unsigned want_received) {
  const double until = now() + 60;
  while (*sent < want_sent || *received < want_received) {
    struct ibv_wc wc;
    if (poll_well(self.cq, 1, &wc) == 1) ++*(wc.opcode & IBV_WC_RECV ? received : sent);
    if (now() > until) die("%u of %u messages came", *received, want_received);
  }
}

static void talk(void) {
  unsigned sent = 0, received = 0;
  struct ibv_sge sge = {(uintptr_t)self.memory, kMessage, self.mr->lkey};
  for (unsigned i = 0; i < self.count; ++i) {
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED},
                       *bad;
    if (self.datagrams) {
      wr.wr.ud.ah = self.peers[i].ah;
      wr.wr.ud.remote_qpn = self.peers[i].address.qpn;
      wr.wr.ud.remote_qkey = kQkey;
    }
    checked(ibv_post_send(self.peers[i].qp, &wr, &bad), "ibv_post_send");
    wait_for(&sent, &received, i + 1, 0);
  }
  wait_for(&sent, &received, self.count, self.count);
}

static void serve(void) {
  char line[128];
  while (fgets(line, sizeof line, stdin) != NULL) {
    line[strcspn(line, "\n")] = 0;
    if (strcmp(line, "open") == 0) {
      open_all();
      say("opened");
    } else if (strcmp(line, "make") == 0) {
      make_all();
    } else if (strcmp(line, "connect") == 0) {
      connect_all();
      say("connected");
    } else if (strcmp(line, "talk") == 0) {
      talk();
      say("talked");
    } else {
      learn(line);
    }
  }
}

int main(int argc, char** argv) {
  const struct option names[] = {{"transport", 1, 0, 't'}, {"peers", 1, 0, 'p'}, {"device", 1, 0, 'd'}, {0, 0, 0, 0}};
  for (int c; (c = getopt_long(argc, argv, "", names, NULL)) != -1;) {
    if (c == 't') {
      self.reliable = strcmp(optarg, "rd") == 0;
      self.datagrams = self.reliable || strcmp(optarg, "ud") == 0;
      self.shared = strcmp(optarg, "rc-srq") == 0;
    } else if (c == 'p') {
      self.count = (unsigned)atoi(optarg);
    } else if (c == 'd') {
      self.device = optarg;
    } else {
      return 2;
    }
  }
  self.peers = calloc(self.count, sizeof *self.peers);
  must(self.peers != NULL, "calloc");
  serve();
  return 0;
}
