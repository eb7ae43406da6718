// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The queue pair: work queues, state, and the consumer of one RDMAP stream.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cassert>
#include <memory>
#include <mutex>
#include <span>

#include "llp/annotations.h"
#include "provider/engine/kickable.h"
#include "provider/startup/bring_up.h"
#include "provider/verbs/completion_queue.h"
#include "provider/verbs/memory/memory.h"
#include "provider/verbs/queue_pair_base.h"
#include "provider/verbs/rc/connection.h"
#include "provider/verbs/shared_receive_queue.h"
#include "provider/verbs/work_queue.h"
#include "rdmap/request.h"

namespace ewarp::verbs {

enum class LocalOperation : std::uint8_t { none, bind, invalidate };

// An entry of the send queue.
struct SendEntry : rdmap::SendRequest {
  std::uint64_t wr_id;
  bool signaled;
  bool is_inline;
  bool done;
  rdmap::Status status;
  std::uint16_t sge_count;
  LocalOperation local;  // not none: the peer is told nothing of it. Of a bind a WindowBind is in the entry's room.
};

// Threading: post_send(), post_recv() and post_all() by any thread; they take the queue's lock, give it back, then
// kick. serve(), broken() and stream_progress() with the engine held, as all private functions but those of Posting
// (the queue's lock; execute_local(): the engine). modify(), query(), destroy(), attach() and disconnect() by any
// thread; they take the engine. get_read_limits() reads atomics. Fields without an annotation: atomics, the queues
// (work_queue.h), and what is set before the queue pair is used or by modify() with the engine held.
class RcQueuePair final : public QueuePairBase,
                          public LargePoster,
                          private OverMemory<rdmap::Consumer>,
                          public BringUpUser,
                          private ReceiveHolder,
                          public std::enable_shared_from_this<RcQueuePair> {
 public:
  RcQueuePair(Pd& pd, CompletionQueue* send_cq, CompletionQueue* recv_cq, SharedReceiveQueue* srq,
              std::uint32_t number);
  ~RcQueuePair() override;
  int create(ibv_qp_init_attr& init);  // 0 or errno

  int post_send(ibv_send_wr* wr, ibv_send_wr** bad) override;
  int post_recv(ibv_recv_wr* wr, ibv_recv_wr** bad) override;
  int post_all(ibv_send_wr* wr) override;
  int modify(const ibv_qp_attr& attr, int mask) override;
  int query(ibv_qp_attr& attr, ibv_qp_init_attr& init) override;
  void destroy() override;
  int attach(std::unique_ptr<llp::Stream> stream, const mpa::StreamParams& params,
             std::shared_ptr<StreamObserver> observer) override;
  void get_read_limits(std::uint16_t* ird, std::uint16_t* ord) override;
  void disconnect(bool graceful, const StreamObserver* of = nullptr) override;
  BringUpUser* bring_up_user() override { return this; }

  // --- for the engine, which is held ---

  // New work was posted, or the socket may take more.
  void serve() override;
  void broken() noexcept override;
  // After octets arrived, the stream ended, or something was written. connection_ may be null when it returns.
  void stream_progress() EWARP_REQUIRES(engine());

 private:
  friend class Connection;

  // What a stream has done.
  struct Tally {
    rdmap::EndpointCounters counters;
    std::uint64_t tx_octets = 0, rx_octets = 0;  // framing included
  };

  // rdmap::Consumer (consumer.cc). Engine held.
  rdmap::SendRequest* next_send() override;
  void send_started() override;
  void send_done(rdmap::SendRequest& request, rdmap::Status status) override;
  rdmap::Status request_memory(const rdmap::SendRequest& request, std::uint64_t offset, std::uint64_t n,
                               rdmap::ExtentList& out) override;
  bool take_receive() override;
  bool has_receive() const override;
  std::uint64_t receive_capacity() const override;
  rdmap::Status receive_memory(std::uint64_t offset, std::uint64_t n, rdmap::ExtentList& out) override;
  void receive_done(const rdmap::Received& received) override;
  ddp::Verdict resolve(std::uint32_t stag, std::uint64_t to, std::uint64_t n, rdmap::RemoteRight right,
                       llp::Extent& out) override;
  ddp::Verdict invalidate(std::uint32_t stag) override;

  // BringUpUser (peer.cc). Engine held.
  BringUp* bring_up() const override;
  bool may_be_told_its_peer() const override;
  std::uint32_t send_psn() const override;
  void read_limits(std::uint16_t* ird, std::uint16_t* ord) override { get_read_limits(ird, ord); }
  void take_stream(std::unique_ptr<llp::Stream> stream, const mpa::StreamParams& params) override;
  void bring_up_failed(const std::string& why) override;

  // ReceiveHolder (serve.cc). Engine held.
  std::optional<rdmap::HalfMessage> half_message() const override;
  void end_half_message() override;

  // Posting (post.cc).
  int check_send(const ibv_send_wr& wr, std::uint64_t* length) const;
  int post(bool whole, ibv_send_wr* wr, ibv_send_wr** bad);
  int put_next(const ibv_send_wr& wr, std::uint64_t position);
  int put_send(const ibv_send_wr& wr, std::uint64_t position);
  int put_local(const ibv_send_wr& wr, std::uint64_t position);
  WindowBind& window_bind(const SendEntry& e);
  bool execute_local(SendEntry& e) EWARP_REQUIRES(engine());

  // States (modify.cc). Engine held.
  int modify_now(const ibv_qp_attr& attr, int mask, const PeerAddress* peer, int bad_peer) EWARP_REQUIRES(engine());
  void enter_state(ibv_qp_state state) EWARP_REQUIRES(engine());
  int check_mask(ibv_qp_state from, ibv_qp_state to, const ibv_qp_attr& attr, int mask) const;
  void apply(const ibv_qp_attr& attr, int mask) EWARP_REQUIRES(engine());
  void reset_queues() EWARP_REQUIRES(engine());
  std::chrono::milliseconds silence_limit() const EWARP_REQUIRES(engine());
  std::chrono::milliseconds retry_time() const EWARP_REQUIRES(engine());

  // Who the peer is, without rdma_cm (peer.cc). Engine held.
  int start_bring_up(const PeerAddress& peer) EWARP_REQUIRES(engine());
  void stop_bring_up() EWARP_REQUIRES(engine());
  bool wait_again() EWARP_REQUIRES(engine());
  bool peer_left() EWARP_REQUIRES(engine());
  void send_to_nobody() EWARP_REQUIRES(engine());

  // The stream (stream.cc). Engine held.
  enum class Phase : std::uint8_t {
    none,         // there is no stream
    running,      // it carries messages
    closing,      // ours leave, then FIN; SQD (close.cc)
    terminating,  // a Terminate of ours leaves; ERR
  };
  static constexpr bool allowed(Phase from, Phase to);
  void enter_phase(Phase next) EWARP_REQUIRES(engine());
  int attach_now(std::unique_ptr<llp::Stream>& stream, const mpa::StreamParams& params,
                 std::shared_ptr<StreamObserver> observer) EWARP_REQUIRES(engine());
  void run_stream(std::unique_ptr<llp::Stream> stream, const mpa::StreamParams& params) EWARP_REQUIRES(engine());
  void stream_is_local() EWARP_REQUIRES(engine());
  void notify_established() EWARP_REQUIRES(engine());
  void tell_observer() EWARP_REQUIRES(engine());
  void tell_driver(const Tally& news) EWARP_REQUIRES(engine());
  Tally publish_counters() EWARP_REQUIRES(engine());
  void stream_fault() EWARP_REQUIRES(engine());
  void stream_ended() EWARP_REQUIRES(engine());
  void finish_terminate() EWARP_REQUIRES(engine());
  void fail_stream(rdmap::Status first) EWARP_REQUIRES(engine());
  void drop_stream(bool drain) EWARP_REQUIRES(engine());  // with what was not written yet; the work stays queued
  void end_stream(bool drain) EWARP_REQUIRES(engine());
  void raise_for(const Fault& fault) EWARP_REQUIRES(engine());

  // Its graceful end (close.cc). Engine held.
  void begin_close() EWARP_REQUIRES(engine());
  void close_progress() EWARP_REQUIRES(engine());

  // Serving (serve.cc). Engine held.
  void check_stall() EWARP_REQUIRES(engine());
  bool leave_stall() EWARP_REQUIRES(engine());
  bool waits_on() EWARP_REQUIRES(engine());
  bool sender_is_seen() const EWARP_REQUIRES(engine());
  bool waits_for_half_messages() const EWARP_REQUIRES(engine());
  void flush_posted() EWARP_REQUIRES(engine());
  void await_answer() EWARP_REQUIRES(engine());
  void repeat_rtr() EWARP_REQUIRES(engine());
  void start_timer(unsigned milliseconds) EWARP_REQUIRES(engine());
  void stop_timer() EWARP_REQUIRES(engine());
  void on_timer(unsigned generation) EWARP_REQUIRES(engine());

  // What becomes of the work (consumer.cc). Engine held.
  void flush_sends(rdmap::Status first) EWARP_REQUIRES(engine());
  void flush_receives() EWARP_REQUIRES(engine());
  void retire_sends() EWARP_REQUIRES(engine());
  bool has_memory(const SendEntry& e) EWARP_REQUIRES(engine());
  void blame_for_memory() EWARP_REQUIRES(engine());

  std::atomic<ibv_qp_state> state_{IBV_QPS_RESET};
  std::atomic<bool> destroyed_{false};
  std::atomic<unsigned> access_{0};
  bool access_given_ = false;  // access_ is the application's word
  std::atomic<std::uint16_t> ird_, ord_;
  std::atomic<bool> extensions_{false};  // the peer of the (last) stream consented to RFC 7306 and Send with Immediate
  std::uint8_t port_ = 1;
  std::uint16_t pkey_index_ = 0;

  WorkQueue<SendEntry> sq_;
  WorkQueue<ReceiveEntry> rq_;  // with an SRQ: of one entry, the receive that this QP has taken from it
  std::uint64_t started_ EWARP_GUARDED_BY(engine()) = 0;      // position of the next send to start
  std::uint64_t close_limit_ EWARP_GUARDED_BY(engine()) = 0;  // sends posted before the close began
  std::uint64_t receive_at_ EWARP_GUARDED_BY(engine()) = 0;   // position of the current receive
  std::uint64_t receive_length_ EWARP_GUARDED_BY(engine()) = 0;

  Phase phase_ EWARP_GUARDED_BY(engine()) = Phase::none;
  bool established_told_ EWARP_GUARDED_BY(engine()) = false;
  bool observer_told_ EWARP_GUARDED_BY(engine()) = false;
  bool local_failed_ EWARP_GUARDED_BY(engine()) = false;
  bool tells_drained_ EWARP_GUARDED_BY(engine()) = false;      // SQ_DRAINED is still to be raised
  bool last_receive_told_ EWARP_GUARDED_BY(engine()) = false;  // LAST_WQE_REACHED, since the QP was reset
  bool quiet_ EWARP_GUARDED_BY(engine()) = false;              // the last send that completed did not say so
  std::unique_ptr<WriteHold> hold_;   // the completions of Writes; null: none is (option write_hold_us)
  std::atomic<bool> stalled_{false};  // post_recv() must kick
  Reactor::Clock::time_point stalled_since_ EWARP_GUARDED_BY(engine());
  // Our Reads were not answered when the present wait was looked at last.
  bool answers_missed_ EWARP_GUARDED_BY(engine()) = false;
  std::shared_ptr<Connection> connection_ EWARP_GUARDED_BY(engine());
  std::shared_ptr<StreamObserver> observer_ EWARP_GUARDED_BY(engine());
  std::shared_ptr<BringUp> bring_up_
      EWARP_GUARDED_BY(engine());                      // from RTR until ERR or RESET, if ibv_modify_qp() said the peer
  std::atomic<bool> local_{false};                     // for posters: the stream goes through shared memory
  std::atomic<bool> sends_in_rtr_{false};              // for posters: bring_up_ is there
  bool peer_left_ EWARP_GUARDED_BY(engine()) = false;  // its stream has ended well; sends will fail
  ibv_qp_attr given_ EWARP_GUARDED_BY(engine()){};     // what query() repeats
  bool timeout_given_ EWARP_GUARDED_BY(engine()) = false;  // given_.timeout and retry_cnt are the application's
  // One timer, for what is waited for at the time (on_timer()): the first FPDU, an answer to the RTR, a receive,
  // a graceful close, a Terminate to leave, a peer that may come again; a peer that has left, to be given up.
  std::uint64_t timer_ EWARP_GUARDED_BY(engine()) = 0;
  unsigned timer_generation_ EWARP_GUARDED_BY(engine()) = 0;
  // An RTR that nobody seems to have heard: how often it goes out once more, and after which time.
  static constexpr unsigned kRtrRepeats = 4;
  unsigned rtr_repeats_ EWARP_GUARDED_BY(engine()) = 0;
  unsigned rtr_wait_ms_ EWARP_GUARDED_BY(engine()) = 0;
  Tally published_ EWARP_GUARDED_BY(engine());
};

}  // namespace ewarp::verbs
