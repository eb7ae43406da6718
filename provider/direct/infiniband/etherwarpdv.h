// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * EtherWARP's own verbs: what the standard calls cannot ask for. Link with -letherwarpdv beside -libverbs
 * (pkg-config etherwarpdv).
 *
 * Queue pairs of RD (reliable datagrams): one queue pair exchanges messages with any number of others, without
 * connections. What it sends to a peer arrives there once and in the order of posting, Sends, RDMA Writes, Reads and
 * atomics alike; towards different peers nothing is ordered, and completions of the send queue come in the order in
 * which peers answer. A request that fails completes with its status; all others go on, and the queue pair stays in
 * RTS. A peer is named in each request, by an address handle, its QP number and its Q_Key, and must be a queue pair of
 * RD too.
 *
 *   RESET -> INIT (IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY) -> RTR (IBV_QP_STATE)
 *         -> RTS (IBV_QP_STATE | IBV_QP_SQ_PSN)
 *
 *   ibv_wr_start(qpx);
 *   qpx->wr_id = 1;
 *   qpx->wr_flags = IBV_SEND_SIGNALED;
 *   ibv_wr_rdma_write(qpx, rkey, remote_address);
 *   ibv_wr_set_ud_addr(qpx, ah, remote_qpn, remote_qkey);
 *   ibv_wr_set_sge(qpx, lkey, address, length);
 *   ibv_wr_complete(qpx);
 *
 * Receives hold the payload alone (no 40 octets of GRH); wc.src_qp is the sender's number. ibv_post_send() takes Sends,
 * with the address in wr.ud.
 */
#ifndef INFINIBAND_ETHERWARPDV_H
#define INFINIBAND_ETHERWARPDV_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Whether this is a device of EtherWARP's: the other functions are for those alone. */
bool etherwarpdv_is_supported(struct ibv_context* context);

enum etherwarpdv_device_caps {
  ETHERWARPDV_DEVICE_RD = 1 << 0,          /* queue pairs of RD */
  ETHERWARPDV_DEVICE_UD_RELIABLE = 1 << 1, /* queue pairs of UD are made reliable (option ud_reliable) */
};

struct etherwarpdv_device_attr {
  uint64_t comp_mask;        /* out: fields beyond those below that were filled in; none yet */
  uint32_t device_caps;      /* enum etherwarpdv_device_caps */
  uint32_t rd_max_message;   /* octets of a message */
  uint64_t rd_send_ops;      /* enum ibv_qp_create_send_ops_flags */
  uint32_t rd_max_inline;    /* octets */
  uint32_t rd_max_rd_atomic; /* Reads and atomics under way to one peer; more wait their turn */
};

/*
 * inlen: sizeof(*attr). What the caller's struct has no room for is left out; what this library does not know is zero.
 * 0, or an errno: EOPNOTSUPP (not a device of EtherWARP's), EINVAL (inlen too short for anything).
 */
int etherwarpdv_query_device(struct ibv_context* context, struct etherwarpdv_device_attr* attr, uint32_t inlen);

enum etherwarpdv_qp_type {
  ETHERWARPDV_QP_TYPE_RD = 1,
};

struct etherwarpdv_qp_init_attr {
  uint64_t comp_mask; /* 0: nothing beyond the fields below */
  uint32_t qp_type;   /* enum etherwarpdv_qp_type */
  uint32_t reserved;  /* 0 */
};

/*
 * As ibv_create_qp_ex(); attr_ex->qp_type is IBV_QPT_DRIVER. With IBV_QP_INIT_ATTR_SEND_OPS_FLAGS
 * ibv_qp_to_qp_ex() gives the handle of ibv_wr_start(); without, only ibv_post_send() is there.
 * inlen: sizeof(*attr). NULL with errno: EOPNOTSUPP (not a device of EtherWARP's, unknown type or flags, a longer
 * struct with something in it), EINVAL, ENOMEM, EADDRNOTAVAIL (no UDP port can be had).
 */
struct ibv_qp* etherwarpdv_create_qp_ex(struct ibv_context* context, struct ibv_qp_init_attr_ex* attr_ex,
                                        const struct etherwarpdv_qp_init_attr* attr, uint32_t inlen);

#ifdef __cplusplus
}
#endif

#endif
