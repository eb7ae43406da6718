// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What the rest of the provider (the rdma-core boundary, the connection manager) sees of a queue pair.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>

#include "llp/stream.h"
#include "mpa/startup.h"
#include "provider/verbs/completion_queue.h"
#include "provider/verbs/device/context.h"

namespace ewarp::verbs {

class BringUpUser;
class QueuePair;
class SharedReceiveQueue;

// What the connection manager wants to know of the stream it attached. Called on the background thread, with no lock
// held, each at most once and in this order; on_disconnected() also without on_established().
class StreamObserver {
 public:
  virtual ~StreamObserver() = default;
  // Both directions may carry messages. Initiator, and responder without peer-to-peer: right after attach();
  // responder with peer-to-peer: when the RTR arrived (RFC 6581 section 9.2).
  virtual void on_established() = 0;
  // The stream has ended, for whatever reason; the QP left RTS and its work is flushed.
  virtual void on_disconnected() = 0;
  // A Send of the peer's that finds no receive waits for one as long as its sender is seen, not for rnr_wait_ms alone
  // (rdma_conn_param's rnr_retry_count 7). Never changes.
  virtual bool lets_sends_wait() const { return false; }
};

// ibv_create_qp() of type RC. init.cap is updated to what was granted. handle: names the QP in asynchronous events (the
// ibv_qp pointer; may be set later with set_handle()). srq: where its receives come from; init.srq is not looked at. 0
// or a positive errno: EINVAL (caps above the device's, no CQ), EOPNOTSUPP (type not supported), ENOMEM.
int create_rc_qp(Pd& pd, ibv_qp_init_attr& init, CompletionQueue* send_cq, CompletionQueue* recv_cq,
                 std::shared_ptr<QueuePair>* out, SharedReceiveQueue* srq = nullptr);

// The QP of type RC of this number on this process's device, or null.
std::shared_ptr<QueuePair> find_qp(std::uint32_t number);
// Around fork(), in the thread that calls it: the child does not inherit a lock on the above.
void queue_pairs_before_fork();
void queue_pairs_after_fork();
void queue_pairs_forget_in_child();  // instead, where the first of them was not called

// A request of ibv_wr_*() on a queue pair of RD: an ibv_send_wr has room for an address or for what RDMA needs, not for
// both.
struct AddressedSend : ibv_send_wr {
  ibv_ah* ah = nullptr;
  std::uint32_t remote_qpn = 0, remote_qkey = 0;
};

// All of these are thread-safe.
class QueuePair {
 public:
  virtual ~QueuePair() = default;
  virtual std::uint32_t number() const = 0;
  virtual Context& context() const = 0;
  virtual void set_handle(std::uint64_t handle) = 0;
  virtual ibv_qp_type type() const = 0;

  // ibv_post_send() / ibv_post_recv(): 0 or a positive errno; *bad is the first request not taken.
  virtual int post_send(ibv_send_wr* wr, ibv_send_wr** bad) = 0;
  virtual int post_recv(ibv_recv_wr* wr, ibv_recv_wr** bad) = 0;
  // As post_send(), but all of them or none. For a queue pair of RD each is an AddressedSend.
  virtual int post_all(ibv_send_wr* wr) = 0;
  // ibv_modify_qp(): the tables of ibv_modify_qp(3), strictly by mask. On an RNIC, INIT→RTR→RTS are made by
  // attach(), or by the application where it names the peer (bring_up.h); SQD begins a graceful close; ERR aborts.
  virtual int modify(const ibv_qp_attr& attr, int mask) = 0;
  // ibv_query_qp().
  virtual int query(ibv_qp_attr& attr, ibv_qp_init_attr& init) = 0;
  // ibv_destroy_qp(): nothing of this QP is touched and no completion of it is seen after return.
  virtual void destroy() = 0;

  // The connection manager hands over a stream in full operation (all start-up frames exchanged, no octet beyond them
  // read). The QP goes to RTS (from RESET, INIT or RTR). params.terminate: the QP sends
  // that Terminate and goes to ERR. 0 or errno: EINVAL (wrong state, a stream is there, or modify() named its peer),
  // EAGAIN, EMFILE, ENOMEM (no background thread).
  virtual int attach(std::unique_ptr<llp::Stream> stream, const mpa::StreamParams& params,
                     std::shared_ptr<StreamObserver> observer) = 0;
  // What accept()/connect() may promise: the limits that modify()/create gave.
  virtual void get_read_limits(std::uint16_t* ird, std::uint16_t* ord) = 0;
  // Ends the stream: graceful lets handed-over sends go out, sends FIN and waits (bounded) for the peer's; else RST.
  // Flushes what is left. Harmless when there is no stream. of: only the stream that was attached with this observer;
  // null: whichever there is.
  virtual void disconnect(bool graceful, const StreamObserver* of = nullptr) = 0;
  // Null: its stream is never brought up by address.
  virtual BringUpUser* bring_up_user() { return nullptr; }
};

}  // namespace ewarp::verbs
