// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What queue pairs of UD and of RD have in common: a number of a UDP port, the states of UD, receives, completions, the
// end.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cerrno>
#include <memory>
#include <new>

#include "provider/engine/kickable.h"
#include "provider/engine/reactor.h"
#include "provider/verbs/completion_queue.h"
#include "provider/verbs/memory/memory.h"
#include "provider/verbs/qp_numbers.h"
#include "provider/verbs/queue_pair_base.h"
#include "provider/verbs/shared_receive_queue.h"
#include "provider/verbs/ud/port.h"
#include "provider/verbs/work_queue.h"

namespace ewarp::verbs {

class DatagramQueuePair : public QueuePairBase, public Kickable, public DatagramSink {
 public:
  static constexpr std::uint32_t kOwnQkey = 0x80000000;  // in remote_qkey: the QP's own is meant
  static constexpr std::uint32_t kMaxQpn = 0xffffff;

  int post_recv(ibv_recv_wr* wr, ibv_recv_wr** bad) override;
  int modify(const ibv_qp_attr& attr, int mask) override;
  int query(ibv_qp_attr& attr, ibv_qp_init_attr& init) override;
  void destroy() override;

  // Streams belong to RC.
  int attach(std::unique_ptr<llp::Stream> stream, const mpa::StreamParams& params,
             std::shared_ptr<StreamObserver> observer) override;
  void get_read_limits(std::uint16_t* ird, std::uint16_t* ord) override { *ird = *ord = 0; }
  void disconnect(bool, const StreamObserver* = nullptr) override {}

 protected:
  using QueuePairBase::QueuePairBase;
  // Makes the receive queue. False: no memory, and then destroy() does nothing.
  bool make_receive_queue(const ibv_qp_cap& cap);
  // From now on it receives; init's caps become what was granted. send: depth, pieces and inline octets of the queue.
  void begin(ibv_qp_init_attr& init, std::uint32_t depth, std::uint32_t sges, std::uint32_t inline_octets);
  void give_up() { destroyed_ = true; }  // instead of begin()

  // --- engine held ---
  // Requests that were posted complete as flushed; nothing of them is touched afterwards.
  virtual void flush_sends() = 0;
  // To RESET: they vanish.
  virtual void drop_sends() = 0;
  // In SQD: nothing of what was started is under way.
  virtual bool drained() const { return true; }
  // The QP is destroyed: before its port forgets it.
  virtual void leave_port() = 0;

  bool can_post_send() const;
  bool receives_now() const;  // the state lets messages in
  void note_first_message();  // COMM_EST
  void check_drained();
  int modify_now(const ibv_qp_attr& attr, int mask);
  void enter_state(ibv_qp_state state);
  void flush_receives();
  void flush_receive(const ReceiveEntry& e);
  void fail();
  void check_overflow();
  template <class Count>
  void count_traffic(Count count) {
    count(context().device().counters().traffic);
    if (slot_ != nullptr) count(slot_->traffic);
  }

  std::shared_ptr<DatagramPort> port_;
  std::atomic<ibv_qp_state> state_{IBV_QPS_RESET};
  std::atomic<std::uint32_t> qkey_{0};
  WorkQueue<ReceiveEntry> rq_;                // with an SRQ: of one entry
  std::atomic<bool> awaits_receives_{false};  // post_recv() must kick

 private:
  void reset_queues();

  bool destroyed_ = false;
  std::uint32_t sq_psn_ = 0;
  bool first_told_ = false;     // COMM_EST, since RTR
  bool tells_drained_ = false;  // SQ_DRAINED is owed
};

// ibv_create_qp() of a type that lives on a UDP port. EADDRNOTAVAIL: none can be had. EAGAIN: nor a thread that serves
// it.
template <class Qp>
int make_datagram_pair(Pd& pd, ibv_qp_init_attr& init, CompletionQueue* send_cq, CompletionQueue* recv_cq,
                       SharedReceiveQueue* srq, std::shared_ptr<Qp>* out) {
  if (const int error = DatagramQueuePair::check_caps(init.cap, send_cq, recv_cq, srq)) return error;
  if (const int error = reactor().start()) return error;
  const std::uint32_t number = qp_numbers().take_datagram();
  if (number == 0) return EADDRNOTAVAIL;
  int error = ENOMEM;
  try {
    auto qp = std::make_shared<Qp>(pd, send_cq, recv_cq, srq, number, init.qp_type);
    error = qp->create(init);
    if (error == 0) *out = std::move(qp);
  } catch (const std::bad_alloc&) {
  }
  if (error != 0) qp_numbers().give(number);
  return error;
}

}  // namespace ewarp::verbs
