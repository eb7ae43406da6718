// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Ping over reliable datagrams: two processes send each other messages in turns.
 *
 *   etherwarp run -- rd_ping                 one side
 *   etherwarp run -- rd_ping 192.0.2.1       the other
 *
 * -d device, -p TCP port for the introduction, -s octets of a message, -n rounds */
#include <endian.h>
#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "rd_end.h"

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void post_receive(struct rd_end* end, struct ibv_qp* qp, size_t size) {
  struct ibv_sge sge = {(uintptr_t)end->memory, (uint32_t)size, end->mr->lkey};
  struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
  if (ibv_post_recv(qp, &wr, &bad)) errx(1, "ibv_post_recv");
}

static void post_send(struct rd_end* end, struct ibv_qp* qp, struct ibv_ah* ah, uint32_t qpn, size_t size) {
  struct ibv_qp_ex* q = ibv_qp_to_qp_ex(qp);
  ibv_wr_start(q);
  q->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_send(q);
  ibv_wr_set_ud_addr(q, ah, qpn, RD_QKEY);
  ibv_wr_set_sge(q, end->mr->lkey, (uintptr_t)end->memory + size, (uint32_t)size);
  if (ibv_wr_complete(q)) errx(1, "ibv_wr_complete");
}

/* Waits for the peer's message; completions of our own pass by. */
static void receive(struct rd_end* end) {
  while (rd_wait(end).opcode != IBV_WC_RECV) continue;
}

int main(int argc, char** argv) {
  const char *device = NULL, *port = "18515";
  size_t size = 64;
  int rounds = 1000, option;
  while ((option = getopt(argc, argv, "d:p:s:n:")) != -1) {
    if (option == 'd')
      device = optarg;
    else if (option == 'p')
      port = optarg;
    else if (option == 's')
      size = (size_t)atol(optarg);
    else if (option == 'n')
      rounds = atoi(optarg);
    else
      errx(2, "usage: rd_ping [-d device] [-p port] [-s octets] [-n rounds] [server]");
  }
  const char* server = argv[optind];

  struct rd_end end;
  rd_open(&end, device, 2 * size + 1, 64);
  struct ibv_qp* qp = rd_create_qp(&end, 16, 16);
  post_receive(&end, qp, size);

  int fd = rd_meet(server, port);
  struct rd_name own = rd_name_of(&end, qp, 0, size), peer;
  rd_tell(fd, &own, sizeof own);
  rd_hear(fd, &peer, sizeof peer);
  struct ibv_ah* ah = rd_address_of(&end, &peer);

  const double began = seconds();
  for (int i = 0; i < rounds; ++i) {
    if (server) post_send(&end, qp, ah, be32toh(peer.qpn), size);
    receive(&end);
    if (i + 1 < rounds) post_receive(&end, qp, size);
    if (!server) post_send(&end, qp, ah, be32toh(peer.qpn), size);
  }
  printf("%d rounds of %zu octets, %.2f us each\n", rounds, size, (seconds() - began) / rounds * 1e6);

  /* Not before the other side has what it waits for. */
  rd_tell(fd, &own, 1);
  rd_hear(fd, &own, 1);
  ibv_destroy_ah(ah);
  ibv_destroy_qp(qp);
  rd_close(&end);
  close(fd);
  return 0;
}
