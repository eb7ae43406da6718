// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Moves so many octets over reliable datagrams, one way: RDMA Writes into a ring of the receiver's memory, each
// followed by a Send that says so; the receiver answers with Sends that give the slots back. Both ends print the octets
// and, unless
// --plain, a checksum of all of them in order; the sender prints the time.
//
//   ewarp_rd_transfer --octets N [options]                          the receiver
//   ewarp_rd_transfer --octets N [options] ADDRESS OF THE RECEIVER  the sender
#include <arpa/inet.h>
#include <endian.h>
#include <getopt.h>
#include <infiniband/verbs.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "verbs_ends.h"

enum { kSlots = 16, kWords = 2 * kSlots };

struct word {
  uint64_t count;  // the sender's: blocks written; the receiver's: blocks read
};

static struct {
  const char *device, *server;
  int port;
  int tcp;  // between the two, until both are done
  uint64_t octets, block;
  bool plain;
  struct ibv_context* context;
  struct ibv_pd* pd;
  struct ibv_cq* cq;
  struct ibv_qp* qp;
  struct ibv_mr* mr;
  struct ibv_ah* ah;
  char* memory;  // slots of a block each, then words: those received, one to be sent
  uint32_t peer_qpn, peer_rkey;
  uint64_t peer_memory;
  uint64_t arrived;    // the newest word of the peer's
  unsigned under_way;  // requests of ours
} self = {.device = NULL, .port = 18517, .octets = 64 << 20, .block = 256 << 10};

struct introduction {
  struct address address;
  uint32_t rkey;
  uint64_t memory;
};

static struct word* words(void) {
  return (struct word*)(self.memory + kSlots * self.block);
}

static void post_receive(uint64_t n) {
  struct ibv_sge sge = {(uintptr_t)&words()[n], sizeof(struct word), self.mr->lkey};
  struct ibv_recv_wr wr = {.wr_id = n, .sg_list = &sge, .num_sge = 1}, *bad;
  checked(ibv_post_recv(self.qp, &wr, &bad), "ibv_post_recv");
}

static void set_up(void) {
  const size_t size = kSlots * self.block + kWords * sizeof(struct word);
  self.context = open_device(self.device);
  self.pd = ibv_alloc_pd(self.context);
  self.memory = calloc(1, size);
  must(self.pd != NULL && self.memory != NULL, "memory");
  self.mr = ibv_reg_mr(self.pd, self.memory, size, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  self.cq = ibv_create_cq(self.context, 4 * kWords, NULL, NULL, 0);
  must(self.mr != NULL && self.cq != NULL, "ibv_create_cq");
  const struct ibv_qp_init_attr init = {
      .send_cq = self.cq,
      .recv_cq = self.cq,
      .cap = {
          .max_send_wr = kWords, .max_recv_wr = kWords, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 64}};
  self.qp = create_rd_qp(self.pd, &init);
  must(self.qp != NULL, "create_rd_qp");
  ud_to_rts(self.qp);
  for (uint64_t i = 0; i < kWords; ++i) post_receive(i);
  self.tcp = tcp_between(self.server, self.port);
  struct introduction mine = {address_of(self.qp, 0), self.mr->rkey, (uintptr_t)self.memory}, theirs;
  exchange(self.tcp, &mine, &theirs, sizeof mine);
  self.ah = handle_for(self.pd, &theirs.address, 0);
  self.peer_qpn = theirs.address.qpn;
  self.peer_rkey = theirs.rkey;
  self.peer_memory = theirs.memory;
}

static void tear_down(void) {
  ibv_destroy_qp(self.qp);
  ibv_destroy_ah(self.ah);
  ibv_destroy_cq(self.cq);
  ibv_dereg_mr(self.mr);
  ibv_dealloc_pd(self.pd);
  ibv_close_device(self.context);
  free(self.memory);
}

static void poll_completions(void) {
  struct ibv_wc wc[kSlots];
  const int n = poll_well(self.cq, kSlots, wc);
  for (int i = 0; i < n; ++i) {
    if (wc[i].opcode & IBV_WC_RECV) {
      const uint64_t count = words()[wc[i].wr_id].count;
      if (count <= self.arrived) die("word %" PRIu64 " after %" PRIu64, count, self.arrived);
      self.arrived = count;
      post_receive(wc[i].wr_id);
    } else {
      --self.under_way;
    }
  }
}

static void wait_for(uint64_t count, unsigned room) {
  for (double until = now() + 60; self.arrived < count || self.under_way > kWords - room;) {
    const uint64_t before = self.arrived;
    poll_completions();
    if (self.arrived != before) until = now() + 60;
    if (now() > until) die("nothing for a minute: %" PRIu64 " of %" PRIu64 " blocks", self.arrived, count);
  }
}

static void direct(struct ibv_qp_ex* q, uint64_t id) {
  q->wr_id = id;
  q->wr_flags = IBV_SEND_SIGNALED;
}

static void say(struct ibv_qp_ex* q, uint64_t count) {
  struct word w = {count};
  direct(q, count);
  q->wr_flags |= IBV_SEND_INLINE;
  ibv_wr_send(q);
  ibv_wr_set_ud_addr(q, self.ah, self.peer_qpn, kQkey);
  ibv_wr_set_inline_data(q, &w, sizeof w);
  ++self.under_way;
}

// Block n of the data; what it is depends on all of n.
static void fill(char* block, uint64_t n, uint64_t length) {
  uint64_t x = n * 0x9e3779b97f4a7c15u + 1;
  for (uint64_t at = 0; at < length; at += 8) {
    x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    memcpy(block + at, &x, length - at < 8 ? length - at : 8);
  }
}

static uint64_t add(uint64_t sum, const char* block, uint64_t length) {
  for (uint64_t at = 0, w; at < length; at += 8) {
    w = 0;
    memcpy(&w, block + at, length - at < 8 ? length - at : 8);
    sum = (sum ^ w) * 0x9e3779b97f4a7c15u;
    sum ^= sum >> 29;
  }
  return sum;
}

static uint64_t length_of(uint64_t n) {
  const uint64_t left = self.octets - n * self.block;
  return left < self.block ? left : self.block;
}

static uint64_t send_all(uint64_t blocks) {
  uint64_t sum = 0;
  struct ibv_qp_ex* const q = ibv_qp_to_qp_ex(self.qp);
  for (uint64_t n = 0; n < blocks; ++n) {
    wait_for(n < kSlots ? 0 : n - kSlots + 1, 2);
    char* const block = self.memory + n % kSlots * self.block;
    if (!self.plain) {
      fill(block, n, length_of(n));
      sum = add(sum, block, length_of(n));
    }
    ibv_wr_start(q);
    direct(q, n);
    ibv_wr_rdma_write(q, self.peer_rkey, self.peer_memory + n % kSlots * self.block);
    ibv_wr_set_ud_addr(q, self.ah, self.peer_qpn, kQkey);
    ibv_wr_set_sge(q, self.mr->lkey, (uintptr_t)block, (uint32_t)length_of(n));
    ++self.under_way;
    say(q, n + 1);
    checked(ibv_wr_complete(q), "ibv_wr_complete");
  }
  wait_for(blocks, kWords);
  return sum;
}

static uint64_t receive_all(uint64_t blocks) {
  uint64_t sum = 0;
  struct ibv_qp_ex* const q = ibv_qp_to_qp_ex(self.qp);
  for (uint64_t n = 0; n < blocks; ++n) {
    wait_for(n + 1, 1);
    if (!self.plain) sum = add(sum, self.memory + n % kSlots * self.block, length_of(n));
    ibv_wr_start(q);
    say(q, n + 1);
    checked(ibv_wr_complete(q), "ibv_wr_complete");
  }
  wait_for(blocks, kWords);
  return sum;
}

int main(int argc, char** argv) {
  const struct option names[] = {{"device", 1, 0, 'd'}, {"port", 1, 0, 'p'},  {"octets", 1, 0, 'n'},
                                 {"block", 1, 0, 'b'},  {"plain", 0, 0, 'P'}, {0, 0, 0, 0}};
  for (int c; (c = getopt_long(argc, argv, "", names, NULL)) != -1;) {
    if (c == 'd')
      self.device = optarg;
    else if (c == 'p')
      self.port = atoi(optarg);
    else if (c == 'n')
      self.octets = strtoull(optarg, NULL, 0);
    else if (c == 'b')
      self.block = strtoull(optarg, NULL, 0) / 8 * 8;
    else if (c == 'P')
      self.plain = true;
    else
      return 2;
  }
  if (optind < argc) self.server = argv[optind];
  if (self.octets == 0 || self.block == 0) die("of nothing there is nothing to move");
  set_up();
  const uint64_t blocks = (self.octets + self.block - 1) / self.block;
  const double began = now();
  const uint64_t sum = self.server != NULL ? send_all(blocks) : receive_all(blocks);
  const double time = now() - began;
  printf("octets %" PRIu64 " sum %016" PRIx64 " seconds %.3f gbit_per_s %.4f\n", self.octets, sum, time,
         (double)self.octets * 8e-9 / time);
  meet_at(self.tcp);  // who leaves first acknowledges nothing any more
  close(self.tcp);
  tear_down();
  return 0;
}
