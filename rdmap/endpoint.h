// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// One end of an RDMAP stream (RFC 5040): turns send requests into FPDUs and FPDUs into placements and completions.
// No sockets, no clock: octets come in through receive(), octets go out through transmit().
#pragma once

#include <cassert>
#include <cstdint>
#include <optional>
#include <span>

#include "ddp/untagged.h"
#include "mpa/framing.h"
#include "mpa/startup.h"
#include "rdmap/direct.h"
#include "rdmap/header.h"
#include "rdmap/inbound.h"
#include "rdmap/opening.h"
#include "rdmap/outstanding.h"
#include "rdmap/own_terminate.h"
#include "rdmap/request.h"
#include "rdmap/segment.h"
#include "rdmap/sending.h"
#include "rdmap/unacknowledged.h"

namespace ewarp::rdmap {

// What to count; the owner reads and publishes it.
struct EndpointCounters {
  std::uint64_t tx_messages = 0, rx_messages = 0;
  std::uint64_t tx_sends = 0, rx_sends = 0, tx_writes = 0, rx_write_segments = 0, tx_reads = 0, rx_reads = 0;
  std::uint64_t terminates_sent = 0, terminates_received = 0, crc_errors = 0;

  // What has been counted since they stood at `then`.
  EndpointCounters since(const EndpointCounters& then) const {
    return {.tx_messages = tx_messages - then.tx_messages,
            .rx_messages = rx_messages - then.rx_messages,
            .tx_sends = tx_sends - then.tx_sends,
            .rx_sends = rx_sends - then.rx_sends,
            .tx_writes = tx_writes - then.tx_writes,
            .rx_write_segments = rx_write_segments - then.rx_write_segments,
            .tx_reads = tx_reads - then.tx_reads,
            .rx_reads = rx_reads - then.rx_reads,
            .terminates_sent = terminates_sent - then.terminates_sent,
            .terminates_received = terminates_received - then.terminates_received,
            .crc_errors = crc_errors - then.crc_errors};
  }
};

// Threading: belongs to whoever holds the engine. Cost of a message that fits one segment: one header in the arena, no
// allocation, no system call.
class Endpoint {
 public:
  // mulpdu: largest ULPDU to send, octets.
  Endpoint(Consumer& consumer, const mpa::StreamParams& params, std::size_t mulpdu);

  // --- receive ---

  // Takes whole FPDUs from the front of `staged`; returns how many octets were taken. Call again with what is left and
  // more. After a fault everything is taken and dropped.
  std::size_t receive(Octets staged);

  // Direct placement: after receive() has left the head of a large segment, the rest of its payload may be received
  // straight into its target. While direct() is not empty, the next octets of the stream belong there, in order; the
  // owner enters the extents' regions, receives, and reports with direct_received(). Then receive() goes on with the
  // octets that followed.
  // The end of what a peer writes, or answers to a Read, is not among them: its last octets are stored last.
  ExtentList direct() const { return direct_.extents(); }
  void direct_received(std::size_t octets);
  // Segments behind the one that goes direct, as its sender has told, whose payload may be received in the same call:
  // each is as long, and its head and what stands before that come by way of staging.
  struct Ahead {
    std::size_t count = 0;
    std::size_t payload = 0, between = 0;  // octets of each, and those before its payload
    llp::Extent target{};                  // of all payloads, behind each other
    llp::Extent target_of(std::size_t i) const {
      return {target.address + i * payload, payload, target.region, target.ticket};
    }
  };
  // At most so many. None with a CRC, which has to be right first.
  Ahead find_ahead(std::size_t most);
  // Behind the payload that went direct `octets` more have come: `between` of them at the begin of `staging`, then a
  // payload, in turns; what no target takes stands behind the last of those in staging. What of it receive() is to get.
  struct Standing {
    std::size_t begin = 0, octets = 0;
  };
  Standing receive_ahead(std::span<std::byte> staging, const Ahead& ahead, std::size_t octets);
  // With a CRC what has arrived there is read once more, by direct_received(): nobody else may have stored there
  // meanwhile.
  bool direct_is_read() const { return direct_.crc(); }
  // The target could not be written (deregistered, unmapped).
  void direct_failed();
  // The last segment was large: where a read costs little, one takes little into staging, so that payload can go
  // direct.
  bool bulk() const { return bulk_; }

  // A Send stands at the front and no receive is posted. TCP holds back what follows, so it is worth waiting a little
  // where RFC 5041 section 7.2 would end the stream (docs/design/rdmap.md). receive() goes on by itself once there is
  // one; after stop_waiting() it reports the error. The next message has a wait of its own.
  bool stalled() const { return stalled_; }
  void stop_waiting() { patient_ = false; }
  // In a graceful close: a Send that waits is dropped, with all that come later, and what stands behind it is read.
  // Requires: !receiving().
  void drop_sends() {
    assert(!receiving());
    drops_sends_ = true;
    patient_ = false;
  }
  bool drops_sends() const { return drops_sends_; }

  // The peer closed its half; nothing more arrives. False: in the middle of an FPDU or a message (RFC 5044 section
  // 7.2).
  bool end_of_stream();

  // --- transmit ---

  // Appends FPDUs until there is nothing (more) to send, no room, or about `budget` octets are waiting in out.
  void transmit(llp::Gather& out, std::size_t budget);
  // The kernel took the next `octets` of what transmit() produced: completes requests.
  void transmitted(std::size_t octets);
  bool wants_transmit() const;

  // --- state ---

  // A responder whose peer did not ask for peer-to-peer must not send before the initiator's first FPDU (RFC 5044
  // section 7.1.2). Where neither application speaks first that is for ever; from here on it sends all the same.
  void speak_first() { opening_.speak_first(); }
  // Whether long messages may begin with short segments (lead.h): where a kernel copies what is sent. Not at first.
  void allow_leads(bool allowed) { leads_ = allowed; }
  // An initiator has heard nothing: an empty Write goes out behind its RTR by Write or Read, if no message is going
  // out. False: it does not.
  bool repeat_rtr() { return sending_.idle() && opening_.repeat_rtr(); }
  // Whether that may ever happen.
  bool rtr_is_repeatable() const { return opening_.repeatable(); }
  // Both directions may be used (RTR sent, or received, as the start-up agreed).
  bool established() const { return opening_.established(); }
  // Our first fault; the stream is dead but for its Terminate.
  const std::optional<Fault>& fault() const { return own_terminate_.fault(); }
  // The peer's Terminate, if one came.
  const std::optional<Terminate>& terminated() const { return terminated_; }
  // A Terminate was produced by transmit(): write it out, then shut down.
  bool terminate_sent() const { return own_terminate_.sent(); }
  // Ends the stream for a reason of our own: a Terminate with this fault follows what is being sent.
  void fail(const Fault& fault);
  // The consumer flushes all its requests: the stream forgets them. Nothing more goes out.
  void abandon();
  // No request, response or message is in progress in either direction.
  bool quiescent() const;
  // Reads or atomics of ours are not answered; their answers come in order with all else that the peer sends.
  bool awaits_answers() const { return outstanding_.has_requests(); }
  // Part of a message has arrived in a receive buffer.
  bool receiving() const { return receive_open_; }
  std::optional<HalfMessage> half_message() const {
    if (!receive_open_) return {};
    return HalfMessage{queues_.expected_msn(ddp::kQueueSend), queues_.offset(ddp::kQueueSend)};
  }

  // Up to here a message is copied beside its header: one vector, and no region to enter, is cheaper than gathering
  // (docs/design/performance.md: one of 1 KiB takes 7 % less then, one of 8 KiB as long).
  static constexpr std::size_t kCopyMessage = 4096;

  EndpointCounters counters;

 private:
  using Kind = Segment::Kind;
  // Of a longer message only a short segment is copied: a stream of segments of 4 KiB has 16 % less bandwidth where all
  // are.
  static constexpr std::size_t kCopyPayload = 512;

  // Receive side (endpoint_rx.cc).
  std::optional<Fault> begin_segment(Octets head, std::size_t ulpdu, Segment& seg);
  std::optional<Fault> begin_tagged(Segment& seg);
  std::optional<Fault> begin_untagged(Segment& seg);
  std::optional<Fault> begin_send(Segment& seg);
  std::optional<Fault> begin_read_response(Segment& seg);
  Fault bad_response(const Fault& fault);
  void end_oldest(Status status);
  std::optional<Fault> place_failed(const Segment& seg);
  void note_write(const Segment& seg);
  std::optional<Fault> finish_segment(Segment& seg, Octets payload);
  std::optional<Fault> finish_send(Segment& seg, Octets payload);
  void finish_read_response(Segment& seg);
  std::optional<Fault> on_read_request(Segment& seg, Octets payload);
  std::optional<Fault> on_atomic_request(Segment& seg, Octets payload);
  std::optional<Fault> on_atomic_response(Segment& seg, Octets payload);
  void on_terminate(Octets payload);
  SendRequest* named_by(const Terminate& message);
  bool is_rtr(const Segment& seg, Octets payload) const;
  void handle_ulpdu(Octets ulpdu);
  void note_bulk(const Segment& seg);
  bool must_wait(Octets rest) const;
  void receive_fault(const Fault& fault, const Segment* seg) { receive_fault(fault, seg, nullptr); }
  void receive_fault(const Fault& fault, const Segment* seg, const ReadRequest* read);

  // Payload that goes direct (endpoint_direct.cc).
  bool may_go_direct(Octets head, std::size_t ulpdu);
  bool is_next_send(const Segment& seg);
  bool is_next_response(const Segment& seg) const;
  bool try_direct(Octets rest, std::size_t& taken);
  std::size_t direct_from_staging(Octets rest);
  bool finish_direct(Octets rest, std::size_t& taken);
  // And of segments ahead (endpoint_ahead.cc).
  llp::Extent target_behind(const Segment& seg, std::uint64_t octets);
  bool goes_to(const llp::Extent& target) const;
  void misled(std::span<std::byte> staging, std::size_t left, const llp::Extent& target, std::size_t octets);

  // Transmit side (endpoint_tx.cc). The bools: false when there was no room.
  bool transmit_terminate(llp::Gather& out);
  bool transmit_rtr(llp::Gather& out);
  bool transmit_message(llp::Gather& out);
  bool start_next(llp::Gather& out);
  bool start_request(llp::Gather& out, SendRequest& request);
  bool start_read(llp::Gather& out, SendRequest& request);
  bool start_atomic(llp::Gather& out, SendRequest& request);
  bool continue_request(llp::Gather& out, const ExtentList* checked);
  std::uint64_t lead_of(const llp::Gather& out, const SendRequest& request, const ExtentList& pieces) const;
  bool send_immediate(llp::Gather& out);
  bool continue_response(llp::Gather& out);
  bool answer_atomic(llp::Gather& out);
  void response_failed(const Fault& fault);
  void response_lost(std::uint64_t octets);
  bool fits(const llp::Gather& out, std::size_t header, std::size_t payload, std::size_t pieces) const;
  bool frame(llp::Gather& out, Octets header, std::span<const llp::Extent> payload);
  std::size_t hold(std::span<const llp::Extent> payload);
  void let_go(std::span<const llp::Extent> held);
  bool frame_in_place(llp::Gather& out, Octets header, std::span<const llp::Extent> payload);
  bool frame_copied(llp::Gather& out, Octets header, std::span<const llp::Extent> payload);
  void local_failure(SendRequest& request, Status status);
  void fail_current(Status status);

  Consumer& consumer_;
  mpa::StreamParams params_;
  const std::size_t mulpdu_;
  mpa::Framer framer_;
  mpa::Deframer deframer_;
  ddp::UntaggedQueues queues_;

  Opening opening_;
  OwnTerminate own_terminate_;
  std::optional<Terminate> terminated_;

  // receive
  bool bulk_ = false;
  bool stalled_ = false;
  bool patient_ = true;
  bool drops_sends_ = false;
  bool receive_open_ = false;       // a receive buffer is taken for the message on queue 0
  bool write_open_ = false;         // inside a Write
  std::uint32_t write_octets_ = 0;  // payload of the Write that is, or has just been, received; 0 after anything else
  Segment segment_;                 // the one being handled; reused, it is large
  DirectPayload direct_;

  // transmit
  bool leads_ = false;
  Sending sending_;
  bool turn_ = false;  // responses and requests take turns, message by message
  std::array<std::uint32_t, 4> tx_msn_{1, 1, 1, 1};
  Unacknowledged unacknowledged_;
  OutstandingRequests outstanding_;
  InboundRequests inbound_;
};

}  // namespace ewarp::rdmap
