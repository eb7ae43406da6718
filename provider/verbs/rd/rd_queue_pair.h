// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A queue pair of RD: every operation, to any peer, reliable and in order for each peer
// (docs/protocol/reliable-datagrams.md). Or one of UD whose Sends are made so (option ud_reliable).
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "provider/verbs/rd/port.h"
#include "provider/verbs/rd/send_queue.h"
#include "provider/verbs/ud/datagram_queue_pair.h"
#include "provider/verbs/ud/grh.h"
#include "rdmap/datagram/endpoint.h"

namespace ewarp::verbs {

// Receives that a message has begun to fill: one for each association that is in the midst of one. Engine held.
class RdOpenReceives {
 public:
  ReceiveEntry& at(std::uint32_t i) { return entries_[i].entry; }
  std::span<const Sge> pieces(std::uint32_t i) const {
    return {pieces_.data() + std::size_t{i} * kMaxSge, entries_[i].entry.sge_count};
  }
  // take() needs no memory behind it.
  void make_room();
  // Takes the first of a queue.
  std::uint32_t take(WorkQueue<ReceiveEntry>& queue);
  void close(std::uint32_t i);
  // The message was broken off: the receive is the next to be taken again by this queue pair.
  void give_back(std::uint32_t i) { returned_.push_back(i); }
  std::uint32_t returned() const { return static_cast<std::uint32_t>(returned_.size()); }
  std::uint32_t take_returned();
  template <class F>
  void close_all(F f) {
    for (std::uint32_t i = 0; i < entries_.size(); ++i)
      if (entries_[i].open) {
        f(entries_[i].entry);
        close(i);
      }
    returned_.clear();
  }

 private:
  struct Slot {
    ReceiveEntry entry{};
    bool open = false;
  };
  std::vector<Slot> entries_;
  std::vector<Sge> pieces_;
  std::vector<std::uint32_t> free_, returned_;
};

class RdQueuePair final : public DatagramQueuePair, private RdUser, private OverMemory<rdmap::DatagramConsumer> {
 public:
  RdQueuePair(Pd& pd, CompletionQueue* send_cq, CompletionQueue* recv_cq, SharedReceiveQueue* srq, std::uint32_t number,
              ibv_qp_type type);
  ~RdQueuePair() override { destroy(); }
  int create(ibv_qp_init_attr& init);  // 0 or errno

  // Sends alone: other requests have no room for an address (AddressedSend).
  int post_send(ibv_send_wr* wr, ibv_send_wr** bad) override;
  int post_all(ibv_send_wr* wr) override;

  // --- engine held ---
  void serve() override;
  void receive(const DatagramIn& in) override;
  bool transmit() override { return false; }

 private:
  struct Target {
    const ibv_ah* ah;
    std::uint32_t qpn, qkey;
  };
  bool is_ud() const { return type_ == IBV_QPT_UD; }
  RdPort& rd() { return RdPort::of(*port_); }

  // Posting (post.cc).
  int check_send(const ibv_send_wr& wr, const Target& to, std::uint64_t* length) const;
  int put_send(const ibv_send_wr& wr, const Target& to, std::uint32_t slot);

  // rd_queue_pair.cc
  void send_posted();
  void serve_refused();
  void publish();
  void end_associations();
  rdmap::DatagramEndpoint& endpoint() override { return endpoint_; }
  void progress() override;
  void flush_sends() override;
  void drop_sends() override;
  void leave_port() override;
  bool drained() const override { return in_progress_ == 0; }
  void complete_send(RdSend& s, ibv_wc_status status);
  void stand_in_line();
  std::uint32_t available() const;                                           // receives that can be taken
  std::uint32_t front() const { return is_ud() ? std::uint32_t{kGrh} : 0; }  // octets before the payload
  bool put_grh(Receive receive, const rdmap::Peer& from, std::uint32_t length);
  void give_back(Receive receive);

  // rdmap::DatagramConsumer (consumer.cc)
  llp::rd::Admission admit(const rdmap::Peer& peer) override;
  rdmap::SendRequest* next_send(const rdmap::Peer& peer) override;
  void send_started(const rdmap::Peer& peer) override;
  void send_done(rdmap::SendRequest& request, rdmap::Status status) override;
  rdmap::Status request_memory(const rdmap::SendRequest& request, std::uint64_t offset, std::uint64_t n,
                               rdmap::ExtentList& out) override;
  std::uint32_t receives() const override;
  std::optional<Receive> take_receive() override;
  std::uint64_t receive_capacity(Receive receive) override;
  rdmap::Status receive_memory(Receive receive, std::uint64_t offset, std::uint64_t n, rdmap::ExtentList& out) override;
  void receive_done(Receive receive, const rdmap::Peer& from, const rdmap::Received& received) override;
  ddp::Verdict resolve(std::uint32_t stag, std::uint64_t to, std::uint64_t n, rdmap::RemoteRight right,
                       llp::Extent& out) override;
  ddp::Verdict invalidate(std::uint32_t stag) override;

  RdSendQueue sq_;
  RdOpenReceives open_;
  rdmap::DatagramEndpoint endpoint_{*this};
  std::uint32_t in_progress_ = 0;  // requests that were started
  bool halted_ = false;            // requests wait that could have been started but for SQD
  bool in_line_ = false;           // of the SRQ
  rdmap::DatagramCounters published_;
};

// ibv_create_qp() of type UD with ud_reliable, and etherwarpdv_create_qp_ex() (init.qp_type is IBV_QPT_DRIVER): see
// create_rc_qp(). EADDRNOTAVAIL: no UDP port can be had.
int create_rd_qp(Pd& pd, ibv_qp_init_attr& init, CompletionQueue* send_cq, CompletionQueue* recv_cq,
                 std::shared_ptr<RdQueuePair>* out, SharedReceiveQueue* srq = nullptr);

}  // namespace ewarp::verbs
