// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The stream of a queue pair: moves octets between it and the RDMAP endpoint.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "llp/gather.h"
#include "llp/host_watch.h"
#include "llp/local_agreement.h"
#include "llp/page_memory.h"
#include "llp/stream.h"
#include "mpa/startup.h"
#include "provider/engine/pollable.h"
#include "rdmap/endpoint.h"

namespace ewarp::verbs {

class Engine;
class RcQueuePair;

// Threading: engine held for everything.
class Connection final : public Pollable, public BatchedReceiver {
 public:
  // pieces: of how many each buffer of the queue pair is at the most.
  Connection(Engine& engine, RcQueuePair& qp, std::size_t pieces, std::unique_ptr<llp::Stream> stream,
             const mpa::StreamParams& params);
  ~Connection() override;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  int fd() const override { return agreement_ != nullptr ? agreement_->fd() : stream_->fd(); }
  // The ends still agree on what the stream goes through: nothing is sent or received yet.
  bool agreeing() const { return agreement_ != nullptr; }
  // It takes too long, which this timer says.
  void agree_until(std::uint64_t timer) { agreement_timer_ = timer; }
  void stop_agreeing();
  // Its new owner ends it; this object has a closed one from here on.
  std::unique_ptr<llp::Stream> release_stream();
  RcQueuePair& queue_pair() { return qp_; }
  rdmap::Endpoint& endpoint() { return endpoint_; }
  const std::string& peer() const { return peer_; }

  enum class End { none, peer_closed, peer_closed_early, lost, local_memory };
  End end() const { return end_; }

  // One receive in two halves, so that many streams can share a system call: prepare() fills the message header,
  // completed() takes the result (octets or -errno). True: something arrived. Between the two the regions that octets
  // go to are entered, of all the streams that share the call: neither allocates there, nor throws.
  void take_buffers() noexcept override { have_staging(); }
  msghdr* prepare() noexcept override { return prepare(true); }
  bool completed(ssize_t result);
  // The system call is over. completed() does it too, but may come after other streams' octets were handled.
  void leave_regions() override;
  std::size_t asked() const { return asked_; }  // octets that prepare() made room for
  // Both halves, repeated while much is waiting. True: something happened.
  bool receive();
  // Nothing is read while a Send waits for its receive.
  bool readable() const { return !endpoint_.stalled(); }
  llp::PeerEnd peer_end() const { return stream_->peer_end(); }
  // A receive was posted for it, or the wait is over.
  void resume() { parse(); }
  // Writes what there is to write, kTransmitBudget octets at the most. True: something happened. blocked() tells
  // whether the socket is full.
  bool transmit();
  bool blocked() const { return blocked_; }
  // Behind the peer's Terminate nothing is written.
  bool has_output() const {
    return !fin_sent_ && !endpoint_.terminated() && ((out_ != nullptr && !out_->empty()) || endpoint_.wants_transmit());
  }
  // The stream is lost if the peer's host answers nothing for so long while octets are under way to it; 0: when TCP
  // says so. Peers on this host are not watched.
  void limit_silence(std::chrono::milliseconds limit) { silence_limit_ = limit; }
  void shut_down();  // sends FIN
  bool fin_sent() const { return fin_sent_; }
  // Drops what was not written yet (it refers to memory of requests that end now). Nothing more goes out.
  void drop_output();
  // Gives its buffers back while nothing is in them.
  void rest() override;

  // Pollable
  std::size_t turn() override;
  // The rest of a turn whose first receive was prepare() and a system call with this result.
  std::size_t finish_turn(ssize_t result) override;
  void broken() noexcept override;
  bool is_near() const override { return !agreeing() && !stream_->reads_by_call(); }
  bool wants_to_read() const override { return agreeing() || readable(); }
  bool wants_to_write() const override { return !agreeing() && has_output(); }
  std::uint32_t watched_for() const override { return stream_->watched_for(wants_to_read(), wants_to_write()); }
  bool arm(bool rang) override { return !agreeing() && stream_->arm(wants_to_read(), wants_to_write(), rang); }
  bool rung() const override { return !agreeing() && stream_->rung(); }
  void close_in_child() override;
  BatchedReceiver* batched() override { return !agreeing() && !finished_ && stream_->is_socket() ? this : nullptr; }
  bool look(std::chrono::steady_clock::time_point now) override;
  void finish() override;
  bool drained() override;

  std::uint64_t tx_octets = 0, rx_octets = 0;

 private:
  std::size_t agree();
  void settle();
  short possible() const;
  std::size_t progress(bool any, std::uint64_t octets_before, bool writable);
  bool send();
  void lose();
  msghdr* prepare(bool shared) noexcept;
  void have_staging() noexcept;
  std::size_t enter_targets() noexcept;
  std::size_t enter_ahead(std::size_t count) noexcept;
  bool enter_regions();
  void parse();

  Engine& engine_;
  RcQueuePair& qp_;
  std::unique_ptr<llp::Stream> owned_;
  llp::Stream* stream_;  // it, or a closed one when it was released
  std::unique_ptr<llp::LocalAgreement> agreement_;
  std::uint64_t agreement_timer_ = 0;
  rdmap::Endpoint endpoint_;
  std::string peer_;

  llp::PageMemory staging_;
  std::size_t begin_ = 0, end_at_ = 0;
  msghdr message_{};
  std::vector<iovec> vectors_;
  std::size_t direct_wanted_ = 0;   // octets of message_ that go to the direct target
  std::size_t direct_entered_ = 0;  // extents whose regions are held
  bool direct_gone_ = false;        // one that could not be
  static constexpr std::size_t kMostAhead = 7;
  rdmap::Endpoint::Ahead ahead_;  // what follows the direct target in message_; its region is held
  std::size_t asked_ = 0;
  std::uint64_t regions_entered_ = 0;  // bit per region of out_

  std::unique_ptr<llp::Gather> out_;
  bool blocked_ = false;
  bool fin_sent_ = false;
  bool finished_ = false;  // finish() was called: what arrives is read and discarded
  End end_ = End::none;

  const bool distant_;
  bool watched_ = false;  // look() is to see to the octets that are under way
  std::chrono::milliseconds silence_limit_{0};
  llp::HostWatch host_;
};

}  // namespace ewarp::verbs
