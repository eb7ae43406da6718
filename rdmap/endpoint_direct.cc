// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Payload that is received straight into its target: which may be, and how it is finished.
#include <algorithm>

#include "rdmap/endpoint.h"

namespace ewarp::rdmap {
namespace {

// A payload of at least this many octets that is not yet in staging is received straight into its target.
constexpr std::size_t kDirectThreshold = 2048;

}  // namespace

// With a CRC to come nothing is believed that would go anywhere but to the buffer which the next message belongs in. A
// Write names its own target: it has to wait for its CRC. So has what would be an error.
bool Endpoint::may_go_direct(Octets head, std::size_t ulpdu) {
  if (!deframer_.crc()) return true;
  if (parse_segment(head, ulpdu, params_.extensions, segment_)) return false;
  return segment_.is_tagged() ? is_next_response(segment_) : is_next_send(segment_);
}

bool Endpoint::is_next_response(const Segment& seg) const {
  if (seg.opcode != Opcode::read_response || outstanding_.empty()) return false;
  const OutstandingRequest& read = outstanding_.oldest();
  if (read.is_atomic()) return false;
  return !check_read_response(seg, read.sink_stag, read.received, read.length);
}

bool Endpoint::is_next_send(const Segment& seg) {
  if (!is_send(seg.opcode) && seg.opcode != Opcode::send_immediate) return false;
  if (check_queue(queues_, seg) || queues_.check_offset(seg.untagged, seg.payload)) return false;
  if (!receive_open_ && !consumer_.take_receive()) return false;
  receive_open_ = true;
  return std::uint64_t{seg.untagged.mo} + seg.payload <= consumer_.receive_capacity();
}

bool Endpoint::try_direct(Octets rest, std::size_t& taken) {
  if (deframer_.markers() || rest.size() < mpa::kLengthField + ddp::TaggedHeader::kSize) return false;
  const std::size_t ulpdu = get_be<std::uint16_t>(rest, 0);
  const Octets head = rest.subspan(mpa::kLengthField);
  const std::size_t size = ddp::is_tagged(head) ? ddp::TaggedHeader::kSize : ddp::UntaggedHeader::kSize;
  if (head.size() < size || ulpdu < head.size() || ulpdu - head.size() < kDirectThreshold) return false;
  if (drops_sends_ && !ddp::is_tagged(head)) return false;
  // The first FPDU of a responder may have to be an RTR, which is judged whole.
  if (opening_.awaits_first()) return false;
  if (!may_go_direct(head, ulpdu)) return false;

  if (auto f = begin_segment(direct_.keep_header(head.first(size)), ulpdu, segment_)) {
    receive_fault(*f, &segment_);
    return true;
  }
  if (segment_.kind == Kind::small) {  // a control message of this length cannot be right; let it arrive and be judged
    return false;
  }
  // Two pieces of one buffer may overlap: what is read there for the CRC would not be what arrived.
  if (deframer_.crc() && segment_.target.count != 1) return false;
  note_bulk(segment_);
  const Octets present = head.subspan(size, std::min(head.size() - size, segment_.payload));
  if (!place(consumer_, segment_.target, present)) {
    receive_fault(*place_failed(segment_), &segment_);
    return true;
  }
  const Octets staged = rest.first(mpa::kLengthField + size + present.size());
  taken += staged.size();
  direct_.begin(segment_, present.size(), staged);
  return true;
}

// Octets of a direct payload that came to staging all the same. How many were taken.
std::size_t Endpoint::direct_from_staging(Octets rest) {
  const Octets payload = rest.first(std::min(rest.size(), direct_.left()));
  if (place(consumer_, slice(segment_.target, direct_.position(), payload.size()), payload)) {
    direct_.placed(payload);
  } else {
    direct_failed();
  }
  return payload.size();
}

// The trailer has to have arrived before the message counts; without a CRC it says nothing. False: it has not.
bool Endpoint::finish_direct(Octets rest, std::size_t& taken) {
  const std::size_t trailer = direct_.trailer(), kept = direct_.kept();
  if (direct_.left() > 0 || rest.size() < trailer) return false;
  taken += trailer;
  if (!direct_.finish(rest.first(trailer))) {
    ++counters.crc_errors;
    receive_fault(fault::kMpaCrc, nullptr);
    return true;
  }
  const bool placed = place(consumer_, slice(segment_.target, segment_.payload - kept, kept), rest.first(kept));
  const auto f = placed ? finish_segment(segment_, {}) : place_failed(segment_);
  if (f) receive_fault(*f, &segment_);
  return true;
}

void Endpoint::direct_received(std::size_t octets) {
  assert(octets <= direct_.left());
  if (!direct_.crc()) {
    (void)direct_.arrived(octets);
    return;
  }
  llp::Extent piece = direct().front();
  piece.length = octets;
  bool whole = consumer_.hold(piece);
  if (whole) {
    whole = direct_.arrived(octets);
    consumer_.let_go(piece);
  }
  if (!whole) direct_failed();
}

void Endpoint::direct_failed() {
  assert(direct_.state() == DirectPayload::State::payload);
  direct_.stop();
  receive_fault(*place_failed(segment_), &segment_);
}

}  // namespace ewarp::rdmap
