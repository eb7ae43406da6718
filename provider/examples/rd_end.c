// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "rd_end.h"

#include <endian.h>
#include <err.h>
#include <errno.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

void rd_open(struct rd_end* end, const char* device, size_t octets, int completions) {
  struct ibv_device** list = ibv_get_device_list(NULL);
  memset(end, 0, sizeof *end);
  for (struct ibv_device** d = list; d && *d && !end->context; ++d) {
    if (device && strcmp(ibv_get_device_name(*d), device) != 0) continue;
    end->context = ibv_open_device(*d);
    if (end->context && !etherwarpdv_is_supported(end->context)) {
      ibv_close_device(end->context);
      end->context = NULL;
    }
  }
  ibv_free_device_list(list);
  if (!end->context) errx(1, "no such device of EtherWARP's (run this under `etherwarp run --`)");
  if (ibv_query_gid(end->context, 1, 0, &end->gid)) err(1, "ibv_query_gid");
  end->pd = ibv_alloc_pd(end->context);
  end->cq = ibv_create_cq(end->context, completions, NULL, NULL, 0);
  end->memory = calloc(1, octets);
  if (!end->pd || !end->cq || !end->memory) err(1, "resources");
  end->mr =
      ibv_reg_mr(end->pd, end->memory, octets,
                 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
  if (!end->mr) err(1, "ibv_reg_mr");
}

struct ibv_qp* rd_create_qp(struct rd_end* end, uint32_t sends, uint32_t receives) {
  struct ibv_qp_init_attr_ex init = {
      .send_cq = end->cq,
      .recv_cq = end->cq,
      .cap = {.max_send_wr = sends, .max_recv_wr = receives, .max_send_sge = 1, .max_recv_sge = 1},
      .qp_type = IBV_QPT_DRIVER,
      .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
      .pd = end->pd,
      .send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ |
                        IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD,
  };
  struct etherwarpdv_qp_init_attr rd = {.qp_type = ETHERWARPDV_QP_TYPE_RD};
  struct ibv_qp* qp = etherwarpdv_create_qp_ex(end->context, &init, &rd, sizeof rd);
  if (!qp) err(1, "etherwarpdv_create_qp_ex");

  struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = RD_QKEY};
  if (ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY)) err(1, "INIT");
  attr.qp_state = IBV_QPS_RTR;
  if (ibv_modify_qp(qp, &attr, IBV_QP_STATE)) err(1, "RTR");
  attr.qp_state = IBV_QPS_RTS;
  if (ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN)) err(1, "RTS");
  return qp;
}

void rd_close(struct rd_end* end) {
  ibv_dereg_mr(end->mr);
  free(end->memory);
  ibv_destroy_cq(end->cq);
  ibv_dealloc_pd(end->pd);
  ibv_close_device(end->context);
}

struct rd_name rd_name_of(const struct rd_end* end, const struct ibv_qp* qp, size_t offset, size_t length) {
  return (struct rd_name){.gid = end->gid,
                          .qpn = htobe32(qp->qp_num),
                          .rkey = htobe32(end->mr->rkey),
                          .address = htobe64((uintptr_t)end->memory + offset),
                          .length = htobe64(length)};
}

struct ibv_ah* rd_address_of(struct rd_end* end, const struct rd_name* peer) {
  struct ibv_ah_attr attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = peer->gid, .sgid_index = 0}};
  struct ibv_ah* ah = ibv_create_ah(end->pd, &attr);
  if (!ah) err(1, "ibv_create_ah");
  return ah;
}

struct ibv_wc rd_wait(struct rd_end* end) {
  struct ibv_wc wc;
  int n;
  while ((n = ibv_poll_cq(end->cq, 1, &wc)) == 0) continue;
  if (n < 0) errx(1, "ibv_poll_cq");
  if (wc.status != IBV_WC_SUCCESS) errx(1, "request %d: %s", (int)wc.wr_id, ibv_wc_status_str(wc.status));
  return wc;
}

int rd_meet(const char* server, const char* port) {
  struct addrinfo hints = {.ai_flags = server ? 0 : AI_PASSIVE, .ai_socktype = SOCK_STREAM}, *found;
  int failed = getaddrinfo(server, port, &hints, &found), one = 1, peer;
  if (failed) errx(1, "%s: %s", server ? server : port, gai_strerror(failed));
  int fd = socket(found->ai_family, SOCK_STREAM, 0);
  if (fd < 0) err(1, "socket");
  if (server) {
    if (connect(fd, found->ai_addr, found->ai_addrlen)) err(1, "%s", server);
    freeaddrinfo(found);
    return fd;
  }
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (bind(fd, found->ai_addr, found->ai_addrlen) || listen(fd, 1)) err(1, "port %s", port);
  peer = accept(fd, NULL, NULL);
  if (peer < 0) err(1, "accept");
  close(fd);
  freeaddrinfo(found);
  return peer;
}

void rd_tell(int fd, const void* octets, size_t n) {
  if (send(fd, octets, n, MSG_NOSIGNAL) != (ssize_t)n) err(1, "the peer left");
}

void rd_hear(int fd, void* octets, size_t n) {
  if (recv(fd, octets, n, MSG_WAITALL) != (ssize_t)n) errx(1, "the peer left");
}
