// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Messages over reliable datagrams, one way, between two ends that a test stops (vanished.py). A request that fails is
// told, and the next one is tried; no message may come twice or behind a later one.
//
//   ewarp_rd_stopped --device D --port P           receives
//   ewarp_rd_stopped --device D --port P ADDRESS   sends to the one there, eight at a time, one a millisecond
//
// SIGUSR1: the sender pauses. SIGUSR2: it goes on.
// Both end well after SIGTERM: the sender when its last request is done, the receiver at once.
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "verbs_ends.h"

enum { kMessage = 256 << 10, kUnderWay = 8, kReceives = 16, kPause = 1000 /* microseconds */ };

static volatile sig_atomic_t ended, paused;

static void on_signal(int number) {
  if (number == SIGTERM)
    ended = 1;
  else
    paused = number == SIGUSR1;
}

static struct {
  struct ibv_cq* cq;
  struct ibv_qp* qp;
  struct ibv_mr* mr;
  struct ibv_ah* ah;
  char* memory;  // of the receives, or of the requests
  uint32_t peer_qpn;
} self;

static void set_up(const char* device, const char* server, int port) {
  struct ibv_context* const context = open_device(device);
  struct ibv_pd* const pd = ibv_alloc_pd(context);
  must(pd != NULL, "ibv_alloc_pd");
  self.memory = calloc(kReceives, kMessage);
  must(self.memory != NULL, "memory");
  self.mr = ibv_reg_mr(pd, self.memory, (size_t)kReceives * kMessage, IBV_ACCESS_LOCAL_WRITE);
  self.cq = ibv_create_cq(context, 2 * kReceives, NULL, NULL, 0);
  must(self.mr != NULL && self.cq != NULL, "ibv_create_cq");
  const struct ibv_qp_init_attr init = {
      .send_cq = self.cq,
      .recv_cq = self.cq,
      .cap = {.max_send_wr = kUnderWay, .max_recv_wr = kReceives, .max_send_sge = 1, .max_recv_sge = 1}};
  self.qp = create_rd_qp(pd, &init);
  must(self.qp != NULL, "create_rd_qp");
  ud_to_rts(self.qp);
  const int tcp = tcp_between(server, port);
  struct address mine = address_of(self.qp, 0), theirs;
  exchange(tcp, &mine, &theirs, sizeof mine);
  close(tcp);
  self.ah = handle_for(pd, &theirs, 0);
  self.peer_qpn = theirs.qpn;
}

static char* place(uint64_t n) {
  return self.memory + n % kReceives * kMessage;
}

static void post_receive(uint64_t n) {
  struct ibv_sge sge = {(uintptr_t)place(n), kMessage, self.mr->lkey};
  struct ibv_recv_wr wr = {.wr_id = n, .sg_list = &sge, .num_sge = 1}, *bad;
  checked(ibv_post_recv(self.qp, &wr, &bad), "ibv_post_recv");
}

static void post_send(uint64_t number) {
  memcpy(place(number), &number, sizeof number);
  memcpy(place(number) + kMessage - sizeof number, &number, sizeof number);
  struct ibv_qp_ex* const q = ibv_qp_to_qp_ex(self.qp);
  ibv_wr_start(q);
  q->wr_id = number;
  q->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_send(q);
  ibv_wr_set_ud_addr(q, self.ah, self.peer_qpn, kQkey);
  ibv_wr_set_sge(q, self.mr->lkey, (uintptr_t)place(number), kMessage);
  checked(ibv_wr_complete(q), "ibv_wr_complete");
}

static void receive(void) {
  uint64_t last = 0, came = 0;
  for (uint64_t i = 0; i < kReceives; ++i) post_receive(i);
  puts("receives");
  while (!ended) {
    struct ibv_wc wc;
    if (poll_well(self.cq, 1, &wc) == 0) {
      usleep(kPause);
      continue;
    }
    uint64_t first, second;
    memcpy(&first, place(wc.wr_id), sizeof first);
    memcpy(&second, place(wc.wr_id) + kMessage - sizeof second, sizeof second);
    if (wc.byte_len != kMessage || first != second || first <= last)
      die("message %" PRIu64 "/%" PRIu64 " of %u octets behind %" PRIu64, first, second, wc.byte_len, last);
    last = first;
    ++came;
    post_receive(wc.wr_id);
  }
  printf("received %" PRIu64 "\n", came);
}

static void send_all(void) {
  uint64_t next = 1, failed = 0;
  unsigned under_way = 0;
  bool fails = false, idle = false;
  while (!ended || under_way > 0) {
    for (; under_way < kUnderWay && !paused && !ended; ++under_way) post_send(next++);
    if (under_way == 0 && !idle) puts("idle");
    idle = under_way == 0;
    struct ibv_wc wc;
    const int n = ibv_poll_cq(self.cq, 1, &wc);
    must(n >= 0, "ibv_poll_cq");
    if (n == 0) {
      usleep(kPause);
      continue;
    }
    usleep(kPause);
    --under_way;
    failed += wc.status != IBV_WC_SUCCESS;
    if (fails != (wc.status != IBV_WC_SUCCESS)) puts(fails ? "again" : ibv_wc_status_str(wc.status));
    fails = wc.status != IBV_WC_SUCCESS;
  }
  printf("sent %" PRIu64 " failed %" PRIu64 "\n", next - 1 - failed, failed);
}

int main(int argc, char** argv) {
  const char* device = NULL;
  int port = 18518;
  const struct argument known[] = {{"device", kText, &device}, {"port", kInt, &port}};
  const char* const server = read_arguments(argc, argv, known, sizeof known / sizeof *known);
  setvbuf(stdout, NULL, _IOLBF, 0);
  const struct sigaction act = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
  for (size_t i = 0; i < 3; ++i) sigaction((const int[]){SIGTERM, SIGUSR1, SIGUSR2}[i], &act, NULL);
  set_up(device, server, port);
  if (server != NULL)
    send_all();
  else
    receive();
  ibv_destroy_qp(self.qp);
  return 0;
}
