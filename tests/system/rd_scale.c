// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Many queue pairs of RD that answer, or one that talks to all of them; for rd_scale.py. Every octet of every message
// is looked at.
//
//   ewarp_rd_scale --answer N [--device NAME]   N queue pairs: prints their addresses, answers until its input ends
//   ewarp_rd_scale [--device NAME]              one; for each line of its input:
//     peer GID QPN                              somebody to talk to
//     ready                                     an address handle for each                      -> prepared
//     talk                                      a message to each peer, an answer from each     -> talked
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "verbs_ends.h"

enum { kMessage = 2048, kWindow = 128, kReceives = 256 };

struct peer {
  uint32_t qpn;
  struct ibv_ah* ah;
};

static struct {
  struct ibv_context* context;
  struct ibv_comp_channel* channel;
  struct ibv_pd* pd;
  struct ibv_cq* cq;
  struct ibv_mr* mr;
  char* memory;  // kReceives slots that receive, kReceives that send
  struct ibv_srq* srq;
  struct ibv_qp* qp;
  struct peer* peers;
  uint64_t count, rounds;
} self;

// What every message begins with; the rest follows from it.
struct head {
  uint64_t peer, round, answer;
};

static char* slot(uint64_t n) {
  return self.memory + n * kMessage;
}

static uint32_t length_of(const struct head* h) {
  return (uint32_t)(sizeof *h + (h->peer * 7 + h->round * 13 + h->answer) % (kMessage - sizeof *h));
}

static char octet(const struct head* h, uint32_t at) {
  return (char)(h->peer * 31 + h->peer / 256 + h->round * 17 + h->answer * 101 + at * 3 + at / 256);
}

static uint32_t write_message(char* to, struct head h) {
  const uint32_t length = length_of(&h);
  memcpy(to, &h, sizeof h);
  for (uint32_t i = sizeof h; i < length; ++i) to[i] = octet(&h, i);
  return length;
}

static struct head read_message(const char* from, uint32_t length) {
  struct head h;
  if (length < sizeof h) die("a message of %u octets", length);
  memcpy(&h, from, sizeof h);
  if (length != length_of(&h)) die("%u octets, not %u", length, length_of(&h));
  for (uint32_t i = sizeof h; i < length; ++i)
    if (from[i] != octet(&h, i)) die("peer %" PRIu64 ", round %" PRIu64 ": octet %u is wrong", h.peer, h.round, i);
  return h;
}

static void open_all(const char* device, int completions) {
  self.context = open_device(device);
  self.pd = ibv_alloc_pd(self.context);
  self.channel = ibv_create_comp_channel(self.context);
  self.memory = calloc(2 * kReceives, kMessage);
  must(self.pd != NULL && self.channel != NULL && self.memory != NULL, "opening");
  self.cq = ibv_create_cq(self.context, completions, NULL, self.channel, 0);
  self.mr = ibv_reg_mr(self.pd, self.memory, 2 * kReceives * kMessage, IBV_ACCESS_LOCAL_WRITE);
  struct ibv_srq_init_attr init = {.attr = {.max_wr = kReceives, .max_sge = 1}};
  self.srq = ibv_create_srq(self.pd, &init);
  must(self.cq != NULL && self.mr != NULL && self.srq != NULL, "ibv_create_srq");
}

static void post_receive(uint64_t n) {
  struct ibv_sge sge = {(uintptr_t)slot(n), kMessage, self.mr->lkey};
  struct ibv_recv_wr wr = {.wr_id = n, .sg_list = &sge, .num_sge = 1}, *bad;
  checked(ibv_post_srq_recv(self.srq, &wr, &bad), "ibv_post_srq_recv");
}

static struct ibv_qp* make_qp(uint32_t sends) {
  const struct ibv_qp_init_attr init = {
      .send_cq = self.cq, .recv_cq = self.cq, .srq = self.srq, .cap = {.max_send_wr = sends, .max_send_sge = 1}};
  struct ibv_qp* qp = create_rd_qp(self.pd, &init);
  must(qp != NULL, "create_rd_qp");
  ud_to_rts(qp);
  return qp;
}

static void post_send(struct ibv_qp* qp, uint64_t n, uint32_t length, struct ibv_ah* ah, uint32_t qpn) {
  struct ibv_sge sge = {(uintptr_t)slot(n), length, self.mr->lkey};
  struct ibv_send_wr wr = {.wr_id = n,
                           .sg_list = &sge,
                           .num_sge = 1,
                           .opcode = IBV_WR_SEND,
                           .send_flags = IBV_SEND_SIGNALED,
                           .wr.ud = {.ah = ah, .remote_qpn = qpn, .remote_qkey = kQkey}},
                     *bad;
  checked(ibv_post_send(qp, &wr, &bad), "ibv_post_send");
}

// --- those that answer ---

struct answering {
  struct ibv_qp** qps;
  uint64_t count;
  struct ibv_ah* ah;  // all of us are on one host
  uint64_t free[kReceives];
  unsigned free_count;
};

static struct ibv_qp* qp_of(const struct answering* a, uint32_t number) {
  for (uint64_t i = 0; i < a->count; ++i)
    if (a->qps[i]->qp_num == number) return a->qps[i];
  die("no queue pair %u of ours", number);
}

static void answer(struct answering* a, const struct ibv_wc* wc) {
  if (!(wc->opcode & IBV_WC_RECV)) {
    a->free[a->free_count++] = wc->wr_id;
    return;
  }
  struct head h = read_message(slot(wc->wr_id), wc->byte_len);
  if (h.answer != 0) die("an answer to nothing");
  post_receive(wc->wr_id);
  must(a->free_count > 0, "slots");
  const uint64_t n = a->free[--a->free_count];
  h.answer = 1;
  post_send(qp_of(a, wc->qp_num), n, write_message(slot(n), h), a->ah, wc->src_qp);
}

static void serve(struct answering* a) {
  struct pollfd fds[] = {{self.channel->fd, POLLIN, 0}, {STDIN_FILENO, POLLIN, 0}};
  fcntl(self.channel->fd, F_SETFL, fcntl(self.channel->fd, F_GETFL) | O_NONBLOCK);
  do {
    struct ibv_cq* cq;
    void* context;
    if (ibv_get_cq_event(self.channel, &cq, &context) == 0) ibv_ack_cq_events(cq, 1);
    checked(ibv_req_notify_cq(self.cq, 0), "ibv_req_notify_cq");
    for (struct ibv_wc wc; poll_well(self.cq, 1, &wc) == 1;) answer(a, &wc);
    must(poll(fds, 2, -1) > 0 || errno == EINTR, "poll");
  } while (fds[1].revents == 0);
}

static void be_many(const char* device, uint64_t count) {
  struct answering a = {.count = count, .qps = calloc(count, sizeof *a.qps)};
  open_all(device, 4 * kReceives);
  for (uint64_t i = 0; i < kReceives; ++i) {
    post_receive(i);
    a.free[a.free_count++] = kReceives + i;
  }
  for (uint64_t i = 0; i < count; ++i) {
    a.qps[i] = make_qp(4);
    const struct address at = address_of(a.qps[i], 0);
    if (i == 0) a.ah = handle_for(self.pd, &at, 0);
    printf("peer ");
    for (unsigned k = 0; k < sizeof at.gid.raw; ++k) printf("%02x", at.gid.raw[k]);
    printf(" %" PRIu32 "\n", at.qpn);
  }
  puts("made");
  fflush(stdout);
  serve(&a);
  for (uint64_t i = 0; i < count; ++i) ibv_destroy_qp(a.qps[i]);
}

// --- the one that asks ---

static void learn(const char* line, union ibv_gid* gid) {
  char hex[33];
  self.peers = realloc(self.peers, (self.count + 1) * sizeof *self.peers);
  struct peer* p = &self.peers[self.count++];
  p->ah = NULL;
  if (sscanf(line, "peer %32s %" SCNu32, hex, &p->qpn) != 2) die("what? %s", line);
  for (unsigned i = 0; i < sizeof gid->raw; ++i) must(sscanf(hex + 2 * i, "%2hhx", &gid->raw[i]) == 1, "a GID");
}

static void talk(void) {
  uint64_t asked = 0, sent = 0, answered = 0, spare[kWindow];
  unsigned spare_count = 0;
  char* heard = calloc(self.count, 1);
  for (; spare_count < kWindow; ++spare_count) spare[spare_count] = kReceives + spare_count;
  ++self.rounds;
  for (double until = now() + 120; sent < self.count || answered < self.count;) {
    while (asked < self.count && spare_count > 0 && asked - answered < kWindow) {
      const uint64_t n = spare[--spare_count];
      const struct head h = {asked, self.rounds, 0};
      post_send(self.qp, n, write_message(slot(n), h), self.peers[asked].ah, self.peers[asked].qpn);
      ++asked;
    }
    struct ibv_wc wc;
    if (poll_well(self.cq, 1, &wc) == 0) {
      if (now() > until) die("%" PRIu64 " of %" PRIu64 " answers", answered, self.count);
      continue;
    }
    if (!(wc.opcode & IBV_WC_RECV)) {
      spare[spare_count++] = wc.wr_id;
      ++sent;
      continue;
    }
    const struct head h = read_message(slot(wc.wr_id), wc.byte_len);
    if (h.answer != 1 || h.round != self.rounds || h.peer >= self.count) die("not an answer of this round");
    if (heard[h.peer]++ || wc.src_qp != self.peers[h.peer].qpn) die("peer %" PRIu64 " twice, or not it", h.peer);
    ++answered;
    post_receive(wc.wr_id);
  }
  free(heard);
}

static void be_one(const char* device) {
  open_all(device, 4 * kReceives);
  self.qp = make_qp(kWindow);
  for (uint64_t i = 0; i < kReceives; ++i) post_receive(i);
  puts("made");
  fflush(stdout);
  union ibv_gid gid = {0};
  for (char line[128]; fgets(line, sizeof line, stdin) != NULL;) {
    if (strcmp(line, "talk\n") == 0) {
      talk();
      puts("talked");
    } else if (strcmp(line, "ready\n") == 0) {
      for (uint64_t i = 0; i < self.count; ++i)
        self.peers[i].ah = handle_for(self.pd, &(struct address){gid, self.peers[i].qpn}, 0);
      puts("prepared");
    } else {
      learn(line, &gid);
    }
    fflush(stdout);
  }
  ibv_destroy_qp(self.qp);
}

int main(int argc, char** argv) {
  const struct option names[] = {{"answer", 1, 0, 'a'}, {"device", 1, 0, 'd'}, {0, 0, 0, 0}};
  const char* device = NULL;
  uint64_t count = 0;
  for (int c; (c = getopt_long(argc, argv, "", names, NULL)) != -1;) {
    if (c == 'a')
      count = strtoull(optarg, NULL, 0);
    else if (c == 'd')
      device = optarg;
    else
      return 2;
  }
  if (count > 0)
    be_many(device, count);
  else
    be_one(device);
  return 0;
}
