// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/verbs/requests.h"

#include <endian.h>

#include "provider/base/options.h"

namespace ewarp::verbs {

void put_operation(const ibv_send_wr& wr, rdmap::SendRequest& r) {
  r.invalidate = wr.opcode == IBV_WR_SEND_WITH_INV;
  r.invalidate_stag = r.invalidate ? wr.invalidate_rkey : 0;
  r.immediate = wr.opcode == IBV_WR_SEND_WITH_IMM || wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
  r.immediate_data = r.immediate ? be32toh(wr.imm_data) : 0;
  switch (wr.opcode) {
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
    case IBV_WR_RDMA_READ:
      r.operation = wr.opcode == IBV_WR_RDMA_READ ? rdmap::Operation::read : rdmap::Operation::write;
      r.remote_stag = wr.wr.rdma.rkey;
      r.remote_to = wr.wr.rdma.remote_addr;
      break;
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
    case IBV_WR_ATOMIC_CMP_AND_SWP: {
      const bool add = wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
      r.operation = add ? rdmap::Operation::fetch_add : rdmap::Operation::compare_swap;
      r.remote_stag = wr.wr.atomic.rkey;
      r.remote_to = wr.wr.atomic.remote_addr;
      r.operand = add ? wr.wr.atomic.compare_add : wr.wr.atomic.swap;
      r.compare = wr.wr.atomic.compare_add;
      break;
    }
    default:
      r.operation = rdmap::Operation::send;
  }
}

unsigned access_for(rdmap::RemoteRight right) {
  switch (right) {
    case rdmap::RemoteRight::read:
      return IBV_ACCESS_REMOTE_READ;
    case rdmap::RemoteRight::write:
      return IBV_ACCESS_REMOTE_WRITE;
    case rdmap::RemoteRight::atomic:
      return IBV_ACCESS_REMOTE_ATOMIC;
  }
  return ~0u;
}

ibv_wc_status wc_status(rdmap::Status s) {
  switch (s) {
    case rdmap::Status::success:
      return IBV_WC_SUCCESS;
    case rdmap::Status::local_protection:
      return IBV_WC_LOC_PROT_ERR;
    case rdmap::Status::local_length:
      return IBV_WC_LOC_LEN_ERR;
    case rdmap::Status::bad_response:
      return IBV_WC_BAD_RESP_ERR;
    case rdmap::Status::remote_access:
      return IBV_WC_REM_ACCESS_ERR;
    case rdmap::Status::remote_invalid:
      return IBV_WC_REM_INV_REQ_ERR;
    case rdmap::Status::remote_operation:
      return IBV_WC_REM_OP_ERR;
    case rdmap::Status::no_receive:
      return IBV_WC_RNR_RETRY_EXC_ERR;
    case rdmap::Status::connection_lost:
      return IBV_WC_RETRY_EXC_ERR;
    case rdmap::Status::flushed:
      return IBV_WC_WR_FLUSH_ERR;
    case rdmap::Status::fatal:
      return IBV_WC_FATAL_ERR;
  }
  return IBV_WC_GENERAL_ERR;
}

ibv_wc_opcode wc_opcode(rdmap::Operation operation) {
  switch (operation) {
    case rdmap::Operation::send:
      return IBV_WC_SEND;
    case rdmap::Operation::write:
      return IBV_WC_RDMA_WRITE;
    case rdmap::Operation::read:
      return IBV_WC_RDMA_READ;
    case rdmap::Operation::fetch_add:
      return IBV_WC_FETCH_ADD;
    case rdmap::Operation::compare_swap:
      return IBV_WC_COMP_SWAP;
  }
  return IBV_WC_SEND;
}

Invalidates peers_invalidate() {
  return options().invalidate_regions ? Invalidates::regions_too : Invalidates::windows;
}

}  // namespace ewarp::verbs
