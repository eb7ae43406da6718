// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* One queue pair, many peers: RDMA Writes, atomics and Reads to each of them, without a connection to any.
 *
 *   etherwarp run -- rd_many -q 1000         the peers: so many queue pairs, each with memory of its own
 *   etherwarp run -- rd_many 192.0.2.1       writes to all of them, adds to what it wrote, reads it back, compares
 *
 * -d device, -p TCP port for the introduction, -s octets of each peer's memory */
#include <endian.h>
#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "rd_end.h"

enum { kUnderWay = 128 }; /* requests at once */

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* The peers do nothing: their memory is written and read while they wait for the other side to hang up. */
static void be_peers(const char* device, const char* port, uint32_t count, size_t size) {
  struct rd_end end;
  rd_open(&end, device, count * size, 16);
  struct ibv_qp** qps = calloc(count, sizeof *qps);
  for (uint32_t i = 0; i < count; ++i) qps[i] = rd_create_qp(&end, 1, 1);

  int fd = rd_meet(NULL, port);
  const uint32_t n = htobe32(count);
  rd_tell(fd, &n, sizeof n);
  for (uint32_t i = 0; i < count; ++i) {
    struct rd_name name = rd_name_of(&end, qps[i], i * size, size);
    rd_tell(fd, &name, sizeof name);
  }
  char done;
  rd_hear(fd, &done, 1);
  for (uint32_t i = 0; i < count; ++i) ibv_destroy_qp(qps[i]);
  free(qps);
  rd_close(&end);
  close(fd);
}

struct peers {
  struct rd_name* name;
  struct ibv_ah** ah;
  uint32_t count;
  size_t size;
};

/* A request to peer i: 'w' writes its block, 'a' adds 1 to its first word, 'r' reads the block. */
static void post(struct rd_end* end, struct ibv_qp_ex* q, const struct peers* peers, uint32_t i, char what) {
  const struct rd_name* p = &peers->name[i];
  const uintptr_t block = (uintptr_t)end->memory + i * peers->size;
  ibv_wr_start(q);
  q->wr_id = i;
  q->wr_flags = IBV_SEND_SIGNALED;
  if (what == 'w') ibv_wr_rdma_write(q, be32toh(p->rkey), be64toh(p->address));
  if (what == 'a') ibv_wr_atomic_fetch_add(q, be32toh(p->rkey), be64toh(p->address), 1);
  if (what == 'r') ibv_wr_rdma_read(q, be32toh(p->rkey), be64toh(p->address));
  ibv_wr_set_ud_addr(q, peers->ah[i], be32toh(p->qpn), RD_QKEY);
  ibv_wr_set_sge(q, end->mr->lkey, block, (uint32_t)(what == 'a' ? 8 : peers->size));
  if (ibv_wr_complete(q)) errx(1, "ibv_wr_complete");
}

/* The same request to every peer, some at a time; peers answer in any order. */
static void to_all(struct rd_end* end, struct ibv_qp* qp, const struct peers* peers, char what) {
  const double began = seconds();
  uint32_t posted = 0, done = 0;
  while (done < peers->count) {
    while (posted < peers->count && posted - done < kUnderWay) post(end, ibv_qp_to_qp_ex(qp), peers, posted++, what);
    rd_wait(end);
    ++done;
  }
  const double time = seconds() - began;
  printf("%c: %u peers in %.3f s, %.0f a second\n", what, peers->count, time, peers->count / time);
}

static void fill(struct rd_end* end, const struct peers* peers) {
  for (uint32_t i = 0; i < peers->count; ++i) {
    uint64_t* block = (uint64_t*)(end->memory + i * peers->size);
    for (size_t w = 0; w < peers->size / 8; ++w) block[w] = (uint64_t)i << 32 | w;
  }
}

static void compare(struct rd_end* end, const struct peers* peers) {
  for (uint32_t i = 0; i < peers->count; ++i) {
    const uint64_t* block = (const uint64_t*)(end->memory + i * peers->size);
    for (size_t w = 0; w < peers->size / 8; ++w)
      if (block[w] != ((uint64_t)i << 32 | w) + (w == 0)) errx(1, "peer %u, word %zu: %llx", i, w, (long long)block[w]);
  }
  printf("all blocks are as they should be\n");
}

static void use_peers(const char* device, const char* port, const char* server) {
  int fd = rd_meet(server, port);
  struct peers peers = {0};
  rd_hear(fd, &peers.count, sizeof peers.count);
  peers.count = be32toh(peers.count);
  peers.name = calloc(peers.count, sizeof *peers.name);
  peers.ah = calloc(peers.count, sizeof *peers.ah);
  for (uint32_t i = 0; i < peers.count; ++i) rd_hear(fd, &peers.name[i], sizeof peers.name[i]);
  peers.size = be64toh(peers.name[0].length);

  struct rd_end end;
  rd_open(&end, device, peers.count * peers.size, 2 * kUnderWay);
  struct ibv_qp* qp = rd_create_qp(&end, kUnderWay, 1);
  for (uint32_t i = 0; i < peers.count; ++i) peers.ah[i] = rd_address_of(&end, &peers.name[i]);

  fill(&end, &peers);
  to_all(&end, qp, &peers, 'w');
  to_all(&end, qp, &peers, 'a'); /* the first word comes back as it was */
  memset(end.memory, 0, peers.count * peers.size);
  to_all(&end, qp, &peers, 'r');
  compare(&end, &peers);

  rd_tell(fd, "", 1);
  for (uint32_t i = 0; i < peers.count; ++i) ibv_destroy_ah(peers.ah[i]);
  ibv_destroy_qp(qp);
  rd_close(&end);
  free(peers.name);
  free(peers.ah);
  close(fd);
}

int main(int argc, char** argv) {
  const char *device = NULL, *port = "18516";
  uint32_t count = 100;
  size_t size = 4096;
  int option;
  while ((option = getopt(argc, argv, "d:p:q:s:")) != -1) {
    if (option == 'd')
      device = optarg;
    else if (option == 'p')
      port = optarg;
    else if (option == 'q')
      count = (uint32_t)atol(optarg);
    else if (option == 's')
      size = (size_t)atol(optarg) / 8 * 8;
    else
      errx(2, "usage: rd_many [-d device] [-p port] [-q peers] [-s octets] [server]");
  }
  if (count == 0 || size < 8) errx(2, "at least one peer, with 8 octets");
  if (optind < argc)
    use_peers(device, port, argv[optind]);
  else
    be_peers(device, port, count, size);
  return 0;
}
