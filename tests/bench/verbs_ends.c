#include "verbs_ends.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

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
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
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

void rc_to_rts(struct ibv_qp* qp, const struct address* peer, int gid_index) {
  modify(qp, IBV_QPS_INIT, (struct ibv_qp_attr){.port_num = 1}, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
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
