// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Tagged messages one way over a provider of libfabric (endpoint RDM), as fi_rdm_tagged_bw of fabtests, which Debian
// does not have: a window of sends, and receives that are there before them. The server prints nothing; the client
// prints one line of JSON, of messages that have arrived. With --atomics: fetch-and-adds of 8 octets to the server,
// which only makes progress, one at a time.
//
//   ewarp_ofi_stream --address ADDRESS OF THE SERVER [--provider NAME] [options] [ADDRESS OF THE SERVER]
#include <errno.h>
#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "verbs_ends.h"

enum { kWindow = 64, kReceives = 2 * kWindow, kBatch = 16, kName = 64, kTag = 1 };

struct options {
  const char *provider, *address, *server;
  int port;
  uint32_t size;
  long iterations;
  bool atomics;
};

struct bench {
  struct options o;
  struct fi_info* info;
  struct fid_fabric* fabric;
  struct fid_domain* domain;
  struct fid_av* av;
  struct fid_cq* cq;
  struct fid_ep* ep;
  fi_addr_t peer;
  char *out, *in;
  int tcp;
  long sent, arrived;  // complete
};

static void good(long rc, const char* what) {
  if (rc < 0) die("%s: %s", what, fi_strerror((int)-rc));
}

static void find_provider(struct bench* b) {
  struct fi_info* hints = fi_allocinfo();
  must(hints != NULL, "fi_allocinfo");
  hints->caps = FI_TAGGED | (b->o.atomics ? FI_ATOMIC : 0);
  hints->domain_attr->mr_mode = b->o.atomics ? FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY : 0;
  hints->ep_attr->type = FI_EP_RDM;
  hints->fabric_attr->prov_name = strdup(b->o.provider);
  const uint64_t flags = b->o.server == NULL ? FI_SOURCE : 0;
  good(fi_getinfo(FI_VERSION(1, 14), b->o.address, NULL, flags, hints, &b->info), "fi_getinfo");
  fi_freeinfo(hints);
}

static void open_endpoint(struct bench* b) {
  struct fi_av_attr av = {.type = FI_AV_TABLE};
  struct fi_cq_attr cq = {.format = FI_CQ_FORMAT_CONTEXT, .size = kReceives + kWindow, .wait_obj = FI_WAIT_NONE};
  good(fi_fabric(b->info->fabric_attr, &b->fabric, NULL), "fi_fabric");
  good(fi_domain(b->fabric, b->info, &b->domain, NULL), "fi_domain");
  good(fi_av_open(b->domain, &av, &b->av, NULL), "fi_av_open");
  good(fi_cq_open(b->domain, &cq, &b->cq, NULL), "fi_cq_open");
  good(fi_endpoint(b->domain, b->info, &b->ep, NULL), "fi_endpoint");
  good(fi_ep_bind(b->ep, &b->av->fid, 0), "fi_ep_bind");
  good(fi_ep_bind(b->ep, &b->cq->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
  good(fi_enable(b->ep), "fi_enable");
}

static void meet_peer(struct bench* b) {
  struct {
    size_t length;
    char name[kName];
  } mine = {.length = kName}, theirs;
  good(fi_getname(&b->ep->fid, mine.name, &mine.length), "fi_getname");
  b->tcp = tcp_between(b->o.server, b->o.port);
  exchange(b->tcp, &mine, &theirs, sizeof mine);
  must(fi_av_insert(b->av, theirs.name, 1, &b->peer, 0, NULL) == 1, "fi_av_insert");
}

// Counts what is complete; the context says which.
static void progress(struct bench* b) {
  struct fi_cq_entry entries[kBatch];
  const ssize_t n = fi_cq_read(b->cq, entries, kBatch);
  if (n == -FI_EAGAIN) return;
  good(n, "fi_cq_read");
  for (ssize_t i = 0; i < n; ++i) ++*(long*)entries[i].op_context;
}

static void post_send(struct bench* b, size_t octets) {
  ssize_t rc;
  while ((rc = fi_tsend(b->ep, b->out, octets, NULL, b->peer, kTag, &b->sent)) == -FI_EAGAIN) progress(b);
  good(rc, "fi_tsend");
}

static void post_receive(struct bench* b) {
  ssize_t rc;
  while ((rc = fi_trecv(b->ep, b->in, b->o.size, NULL, b->peer, kTag, 0, &b->arrived)) == -FI_EAGAIN) progress(b);
  good(rc, "fi_trecv");
}

// So many messages, and an empty one back from who has them all.
static void send_many(struct bench* b, long n) {
  const long answered = b->arrived + 1, first = b->sent;
  post_receive(b);
  for (long i = 0; i < n; ++i) {
    while (i - (b->sent - first) >= kWindow) progress(b);
    post_send(b, b->o.size);
  }
  while (b->sent - first < n || b->arrived < answered) progress(b);
}

static void receive_many(struct bench* b, long n, long* posted) {
  for (const long all = b->arrived + n; b->arrived < all; progress(b))
    while (*posted - b->arrived < kReceives) {
      post_receive(b);
      ++*posted;
    }
  const long before = b->sent;
  post_send(b, 0);
  while (b->sent == before) progress(b);
}

static void stream(struct bench* b) {
  const long warm_up = b->o.iterations / 20 + 1;
  if (b->o.server == NULL) {
    long posted = 0;
    receive_many(b, warm_up, &posted);
    receive_many(b, b->o.iterations, &posted);
    return;
  }
  send_many(b, warm_up);
  const double begin = now();
  send_many(b, b->o.iterations);
  const double seconds = now() - begin;
  printf("{\"seconds\": %.6f, \"gbit_per_s\": %.4f}\n", seconds,
         (double)b->o.size * (double)b->o.iterations * 8e-9 / seconds);
}

// Where the counter of the server is.
struct counter {
  uint64_t address, key;
};

static void fetch_and_add(struct bench* b, const struct counter* at) {
  const uint64_t one = 1;
  uint64_t before;
  const long done = b->sent + 1;
  ssize_t rc;
  while ((rc = fi_fetch_atomic(b->ep, &one, 1, NULL, &before, NULL, b->peer, at->address, at->key, FI_UINT64, FI_SUM,
                               &b->sent)) == -FI_EAGAIN)
    progress(b);
  good(rc, "fi_fetch_atomic");
  while (b->sent < done) progress(b);
}

// The client says by an empty message that it is done.
static void atomics(struct bench* b) {
  struct fid_mr* region;
  uint64_t* const value = (uint64_t*)b->in;
  good(fi_mr_reg(b->domain, b->in, b->o.size, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 0, 0, &region, NULL), "fi_mr_reg");
  const bool virtual = (b->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0;
  struct counter mine = {virtual ? (uintptr_t)value : 0, fi_mr_key(region)}, theirs;
  const long warm_up = b->o.iterations / 20 + 1;
  *value = 0;
  exchange(b->tcp, &mine, &theirs, sizeof mine);
  if (b->o.server == NULL) {
    post_receive(b);
    while (b->arrived == 0) progress(b);
    must(*(volatile uint64_t*)value == (uint64_t)(warm_up + b->o.iterations), "every addition is there");
  } else {
    for (long i = 0; i < warm_up; ++i) fetch_and_add(b, &theirs);
    const double begin = now();
    for (long i = 0; i < b->o.iterations; ++i) fetch_and_add(b, &theirs);
    const double seconds = now() - begin;
    const long before = b->sent;
    post_send(b, 0);
    while (b->sent == before) progress(b);
    printf("{\"seconds\": %.6f, \"per_second\": %.0f}\n", seconds, (double)b->o.iterations / seconds);
  }
  fi_close(&region->fid);
}

static struct options parse(int argc, char** argv) {
  struct options o = {.provider = "tcp;ofi_rxm", .port = 18515, .size = 65536, .iterations = 1000};
  const struct argument known[] = {
      {"provider", kText, &o.provider}, {"address", kText, &o.address},       {"port", kInt, &o.port},
      {"size", kCount, &o.size},        {"iterations", kLong, &o.iterations}, {"atomics", kFlag, &o.atomics}};
  o.server = read_arguments(argc, argv, known, sizeof known / sizeof *known);
  if (o.address == NULL || o.size < 8 || o.iterations < 1)
    die("--address is required; --size: at least 8, --iterations: at least 1");
  return o;
}

int main(int argc, char** argv) {
  struct bench b = {.o = parse(argc, argv)};
  b.out = calloc(1, b.o.size);
  b.in = calloc(1, b.o.size);
  must(b.out != NULL && b.in != NULL, "calloc");
  find_provider(&b);
  open_endpoint(&b);
  meet_peer(&b);
  b.o.atomics ? atomics(&b) : stream(&b);
  meet_at(b.tcp);
  fi_close(&b.ep->fid);
  fi_close(&b.cq->fid);
  fi_close(&b.av->fid);
  fi_close(&b.domain->fid);
  fi_close(&b.fabric->fid);
  fi_freeinfo(b.info);
  free(b.out);
  free(b.in);
  close(b.tcp);
  return 0;
}
