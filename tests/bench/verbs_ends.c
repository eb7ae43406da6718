// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "verbs_ends.h"

#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <infiniband/etherwarpdv.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void die(const char* format, ...) {
  va_list a;
  va_start(a, format);
  fprintf(stderr, "%s: ", program_invocation_short_name);
  vfprintf(stderr, format, a);
  va_end(a);
  fputc('\n', stderr);
  exit(1);
}

void must(bool good, const char* what) {
  if (!good) die("%s: %s", what, strerror(errno));
}

void checked(int rc, const char* what) {
  errno = rc;
  must(rc == 0, what);
}

double now(void) {
  return now_us() * 1e-6;
}

const char* read_arguments(int argc, char** argv, const struct argument* known, size_t n) {
  struct option names[32] = {{0, 0, 0, 0}};
  if (n >= sizeof names / sizeof *names) die("too many kinds of arguments");
  for (size_t i = 0; i < n; ++i) names[i] = (struct option){known[i].name, known[i].kind != kFlag, NULL, (int)i + 1};
  for (int c; (c = getopt_long(argc, argv, "", names, NULL)) != -1;) {
    if (c < 1 || (size_t)c > n) exit(2);
    void* to = known[c - 1].to;
    switch (known[c - 1].kind) {
      case kText:
        *(const char**)to = optarg;
        break;
      case kInt:
        *(int*)to = atoi(optarg);
        break;
      case kCount:
        *(uint32_t*)to = (uint32_t)atol(optarg);
        break;
      case kLong:
        *(long*)to = atol(optarg);
        break;
      case kReal:
        *(double*)to = atof(optarg);
        break;
      case kFlag:
        *(bool*)to = true;
        break;
    }
  }
  return optind < argc ? argv[optind] : NULL;
}

int tcp_between(const char* server, int port) {
  const struct sockaddr_in a = {.sin_family = AF_INET,
                                .sin_port = htons((uint16_t)port),
                                .sin_addr.s_addr = server != NULL ? inet_addr(server) : htonl(INADDR_ANY)};
  const int one = 1;
  int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  must(s >= 0, "socket");
  if (server != NULL) {
    must(connect(s, (const struct sockaddr*)&a, sizeof a) == 0, "connect");
  } else {
    setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    must(bind(s, (const struct sockaddr*)&a, sizeof a) == 0 && listen(s, 1) == 0, "listen");
    const int peer = accept(s, NULL, NULL);
    must(peer >= 0, "accept");
    close(s);
    s = peer;
  }
  setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  return s;
}

void exchange(int tcp, const void* mine, void* theirs, size_t n) {
  must(write(tcp, mine, n) == (ssize_t)n, "write to the peer");
  must(recv(tcp, theirs, n, MSG_WAITALL) == (ssize_t)n, "read from the peer");
}

void meet_at(int tcp) {
  char c = 0;
  exchange(tcp, &c, &c, 1);
}

struct ibv_context* open_device(const char* name) {
  struct ibv_device** list = ibv_get_device_list(NULL);
  must(list != NULL, "ibv_get_device_list");
  struct ibv_context* context = NULL;
  for (int i = 0; list[i] != NULL && context == NULL; ++i)
    if (name == NULL || strcmp(ibv_get_device_name(list[i]), name) == 0) context = ibv_open_device(list[i]);
  ibv_free_device_list(list);
  if (context == NULL) die("no device %s", name != NULL ? name : "at all");
  return context;
}

struct address address_of(struct ibv_qp* qp, int gid_index) {
  struct address a = {.qpn = qp->qp_num};
  must(ibv_query_gid(qp->context, 1, gid_index, &a.gid) == 0, "ibv_query_gid");
  return a;
}

static struct ibv_ah_attr path_to(const struct address* peer, int gid_index) {
  return (struct ibv_ah_attr){
      .is_global = 1, .port_num = 1, .grh = {.dgid = peer->gid, .sgid_index = (uint8_t)gid_index, .hop_limit = 64}};
}

static void modify(struct ibv_qp* qp, enum ibv_qp_state state, struct ibv_qp_attr attr, int mask) {
  attr.qp_state = state;
  checked(ibv_modify_qp(qp, &attr, mask | IBV_QP_STATE), "ibv_modify_qp");
}

void rc_to_rts(struct ibv_qp* qp, const struct address* peer, int gid_index, unsigned access) {
  modify(qp, IBV_QPS_INIT, (struct ibv_qp_attr){.port_num = 1, .qp_access_flags = access},
         IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  modify(
      qp, IBV_QPS_RTR,
      (struct ibv_qp_attr){.path_mtu = IBV_MTU_1024,
                           .dest_qp_num = peer->qpn,
                           .max_dest_rd_atomic = 1,
                           .min_rnr_timer = 12,
                           .ah_attr = path_to(peer, gid_index)},
      IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  modify(qp, IBV_QPS_RTS, (struct ibv_qp_attr){.timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1},
         IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

struct ibv_qp* create_rd_qp(struct ibv_pd* pd, const struct ibv_qp_init_attr* init) {
  struct ibv_qp_init_attr_ex more = {.send_cq = init->send_cq,
                                     .recv_cq = init->recv_cq,
                                     .srq = init->srq,
                                     .cap = init->cap,
                                     .qp_type = IBV_QPT_DRIVER,
                                     .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
                                     .pd = pd,
                                     .send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE};
  const struct etherwarpdv_qp_init_attr rd = {.qp_type = ETHERWARPDV_QP_TYPE_RD};
  return etherwarpdv_create_qp_ex(pd->context, &more, &rd, sizeof rd);
}

void ud_to_rts(struct ibv_qp* qp) {
  modify(qp, IBV_QPS_INIT, (struct ibv_qp_attr){.port_num = 1, .qkey = kQkey},
         IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
  modify(qp, IBV_QPS_RTR, (struct ibv_qp_attr){0}, 0);
  modify(qp, IBV_QPS_RTS, (struct ibv_qp_attr){0}, IBV_QP_SQ_PSN);
}

struct ibv_ah* handle_for(struct ibv_pd* pd, const struct address* peer, int gid_index) {
  struct ibv_ah_attr path = path_to(peer, gid_index);
  struct ibv_ah* ah = ibv_create_ah(pd, &path);
  must(ah != NULL, "ibv_create_ah");
  return ah;
}

int poll_well(struct ibv_cq* cq, int most, struct ibv_wc* wc) {
  const int n = ibv_poll_cq(cq, most, wc);
  must(n >= 0, "ibv_poll_cq");
  for (int i = 0; i < n; ++i)
    if (wc[i].status != IBV_WC_SUCCESS) die("a completion says: %s", ibv_wc_status_str(wc[i].status));
  return n;
}
