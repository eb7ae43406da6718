// One end of an RDMAP stream (RFC 5040): turns send requests into FPDUs and FPDUs into placements and completions.
// No sockets, no clock: octets come in through receive(), octets go out through transmit().
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ddp/untagged.h"
#include "llp/ring.h"
#include "mpa/framing.h"
#include "mpa/startup.h"
#include "rdmap/header.h"
#include "rdmap/request.h"
#include "rdmap/segment.h"

namespace ewarp::rdmap {

// What to count; the owner reads and publishes it.
struct EndpointCounters {
  std::uint64_t tx_messages = 0, rx_messages = 0;
  std::uint64_t tx_sends = 0, rx_sends = 0, tx_writes = 0, rx_write_segments = 0, tx_reads = 0, rx_reads = 0;
  std::uint64_t terminates_sent = 0, terminates_received = 0, crc_errors = 0;
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
  std::span<const llp::Extent> direct() const { return direct_.all().subspan(direct_first_); }
  void direct_received(std::size_t octets);
  // The target could not be written (deregistered, unmapped).
  void direct_failed();
  // True when the stream carries large segments: read little into staging, so that payload can go direct.
  bool bulk() const { return bulk_; }

  // A Send stands at the front and no receive is posted. TCP holds back what follows, so it is worth waiting a little
  // where RFC 5041 section 7.2 would end the stream (docs/rdmap.md). receive() goes on by itself once there is one;
  // after stop_waiting() it reports the error.
  bool stalled() const { return stalled_; }
  void stop_waiting() { patient_ = false; }

  // The peer closed its half; nothing more arrives. False: in the middle of an FPDU or a message (RFC 5044 section
  // 7.4).
  bool end_of_stream();

  // --- transmit ---

  // Appends FPDUs until there is nothing (more) to send, no room, or about `budget` octets are waiting in out.
  void transmit(llp::Gather& out, std::size_t budget);
  // The kernel took the next `octets` of what transmit() produced: completes requests.
  void transmitted(std::size_t octets);
  bool wants_transmit() const;
  void set_mulpdu(std::size_t mulpdu) { mulpdu_ = mulpdu; }

  // --- state ---

  // A responder whose peer did not ask for peer-to-peer must not send before the initiator's first FPDU (RFC 5044
  // section 7.1.2). Where neither application speaks first that is for ever; from here on it sends all the same.
  void speak_first() { speaks_first_ = true; }
  // Both directions may be used (RTR sent, or received, as the start-up agreed).
  bool established() const { return established_; }
  // Our first fault; the stream is dead but for its Terminate.
  const std::optional<Fault>& fault() const { return fault_; }
  // The peer's Terminate, if one came.
  const std::optional<Terminate>& terminated() const { return terminated_; }
  // A Terminate was produced by transmit(): write it out, then shut down.
  bool terminate_sent() const { return terminate_state_ == TerminateState::sent; }
  // Ends the stream for a reason of our own: a Terminate with this fault follows what is being sent.
  void fail(const Fault& fault);
  // The consumer flushes all its requests: the stream forgets them. Only a Terminate may still go out.
  void abandon();
  // No request, response or message is in progress in either direction.
  bool quiescent() const;
  // Part of a message has arrived in a receive buffer.
  bool receiving() const { return receive_open_; }

  EndpointCounters counters;

 private:
  using Kind = Segment::Kind;
  // A Read or Atomic Request of the peer; answered in the order of arrival.
  struct InboundRequest {
    ReadRequest request;
    std::optional<AtomicRequest> atomic;
    std::uint32_t sent = 0;
    std::uint32_t msn = 0;
    llp::Extent source;           // whole range; address null when length is 0
    std::uint64_t probed = 0;     // octets known to be readable
  };
  struct OutstandingRequest {
    SendRequest* request;  // null: the RTR
    std::uint32_t sink_stag;  // atomic: the Request Identifier
    std::uint32_t length;
    std::uint32_t msn = 0;
    std::uint32_t received = 0;
    bool is_atomic() const { return request != nullptr && rdmap::is_atomic(request->operation); }
  };
  struct Unacknowledged {
    std::uint64_t end;  // position in produced octets
    SendRequest* request;
  };
  enum class Current : std::uint8_t { nothing, request, response };
  enum class TerminateState : std::uint8_t { none, wanted, sent };

  // Receive side (endpoint_rx.cc).
  std::optional<Fault> begin_segment(Octets head, std::size_t ulpdu, Segment& seg);
  std::optional<Fault> begin_tagged(Segment& seg);
  std::optional<Fault> begin_untagged(Segment& seg);
  std::optional<Fault> begin_send(Segment& seg);
  std::optional<Fault> begin_read_response(Segment& seg);
  Fault bad_response(const Fault& fault);
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
  bool try_direct(Octets rest, std::size_t& taken);
  bool must_wait(Octets rest) const;
  void receive_fault(const Fault& fault, const Segment* seg);
  void set_terminate(const Fault& fault, const Segment* seg, const ReadRequest* read);

  // Transmit side (endpoint_tx.cc). The bools: false when there was no room.
  bool may_send() const { return params_.initiator || first_seen_ || speaks_first_; }
  bool startable(const SendRequest& request) const;
  bool transmit_terminate(llp::Gather& out);
  bool transmit_rtr(llp::Gather& out);
  bool start_next(llp::Gather& out);
  bool start_request(llp::Gather& out, SendRequest& request);
  bool start_read(llp::Gather& out, SendRequest& request);
  bool start_atomic(llp::Gather& out, SendRequest& request);
  bool continue_request(llp::Gather& out);
  bool finish_with_immediate(llp::Gather& out);
  bool continue_response(llp::Gather& out);
  bool answer_atomic(llp::Gather& out);
  void response_failed(const Fault& fault);
  bool fits(const llp::Gather& out, std::size_t header, std::size_t payload, std::size_t pieces) const;
  void frame(llp::Gather& out, Octets header, std::span<const llp::Extent> payload);
  bool frame_in_place(llp::Gather& out, std::size_t header);
  void local_failure(SendRequest& request, Status status);
  std::uint32_t push_outstanding(SendRequest* request, std::uint32_t length);

  Consumer& consumer_;
  mpa::StreamParams params_;
  std::size_t mulpdu_;
  mpa::Framer framer_;
  mpa::Deframer deframer_;
  ddp::UntaggedQueues queues_;

  bool established_ = false;
  bool first_seen_ = false;    // responder: a valid FPDU has arrived, so we may send
  bool speaks_first_ = false;  // responder: it has waited long enough
  bool rtr_due_ = false;       // initiator
  std::optional<Fault> fault_;
  std::optional<Terminate> terminated_;
  TerminateState terminate_state_ = TerminateState::none;
  Terminate terminate_;

  // receive
  bool bulk_ = false;
  bool stalled_ = false;
  bool patient_ = true;
  bool receive_open_ = false;  // a receive buffer is taken for the message on queue 0
  bool write_open_ = false;    // inside a Write
  std::uint32_t write_octets_ = 0;  // payload of the Write that is, or has just been, received; 0 after anything else
  Segment segment_;            // the one being handled; reused, it is large
  ExtentList direct_;          // what is left of the target of a direct payload
  std::size_t direct_first_ = 0;
  std::size_t direct_left_ = 0;
  std::size_t skip_ = 0;       // pad and CRC field that follow a direct payload
  bool direct_active_ = false;
  std::array<std::byte, ddp::UntaggedHeader::kSize> direct_header_{};

  // transmit
  Current current_ = Current::nothing;
  SendRequest* request_ = nullptr;
  std::uint64_t offset_ = 0;   // octets of request_ produced so far
  bool immediate_due_ = false;  // the payload of request_, a Write, is produced
  ExtentList pieces_;
  std::vector<std::byte> copy_;  // header and copied payload of one segment
  bool turn_ = false;  // responses and requests take turns, message by message
  std::array<std::uint32_t, 4> tx_msn_{1, 1, 1, 1};
  std::uint64_t produced_ = 0, taken_ = 0;
  llp::Ring<Unacknowledged> unacknowledged_;
  llp::Ring<OutstandingRequest> reads_;  // atomics too: one order for both
  llp::Ring<InboundRequest> inbound_;
  std::uint32_t next_sink_ = 1;
};

}  // namespace ewarp::rdmap
