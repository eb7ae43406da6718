// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Segments ahead: payload that was received before the heads of its segments are looked at
// (docs/protocol/extensions.md section 7).
#include <algorithm>
#include <cassert>

#include "llp/guarded_copy.h"
#include "rdmap/endpoint.h"

namespace ewarp::rdmap {
namespace {

// A Terminate is shorter, with all that MPA puts around it.
constexpr std::size_t kMostTerminate = 512;

}  // namespace

Endpoint::Ahead Endpoint::find_ahead(std::size_t most) {
  const bool told = direct_.state() == DirectPayload::State::payload && !direct_.crc() && params_.extensions;
  if (!told || segment_.last) return {};
  Ahead ahead{.count = std::min(ddp::ahead(segment_.header), most), .payload = segment_.payload};
  ahead.between = mpa::pad_octets(segment_.ulpdu) + mpa::kCrcField + mpa::kLengthField + segment_.header.size();
  if (ahead.count > 0) ahead.target = target_behind(segment_, ahead.count * ahead.payload);
  ahead.count = std::min(ahead.count, ahead.target.length / ahead.payload);
  return ahead;
}

// Where so many octets of the message belong that follow the segment's, up to where that is another place. Empty:
// nowhere.
llp::Extent Endpoint::target_behind(const Segment& seg, std::uint64_t octets) {
  llp::Extent target{};
  ExtentList found;
  if (seg.kind == Kind::write) {
    const std::uint64_t to = seg.tagged.offset + seg.payload;
    const auto verdict = consumer_.resolve(seg.tagged.stag, to, octets, RemoteRight::write, target);
    return verdict == ddp::Verdict::ok ? target : llp::Extent{};
  }
  Status status = Status::local_length;
  if (seg.kind == Kind::read_response) {
    const OutstandingRequest& read = outstanding_.oldest();
    const std::uint64_t at = read.received + seg.payload;
    if (at + octets <= read.length) status = consumer_.request_memory(*read.request, at, octets, found);
  } else {
    assert(seg.kind == Kind::send);
    const std::uint64_t at = std::uint64_t{seg.untagged.mo} + seg.payload;
    if (at + octets <= consumer_.receive_capacity()) status = consumer_.receive_memory(at, octets, found);
  }
  return status == Status::success && found.count > 0 ? found.front() : llp::Extent{};
}

// Whether the whole payload of the segment that goes direct belongs there, and nothing of it has arrived.
bool Endpoint::goes_to(const llp::Extent& target) const {
  if (direct_.state() != DirectPayload::State::payload || direct_.position() != 0) return false;
  const ExtentList at = direct_.extents();
  return at.count == 1 && at.front().address == target.address && at.front().length == target.length;
}

Endpoint::Standing Endpoint::receive_ahead(std::span<std::byte> staging, const Ahead& ahead, std::size_t octets) {
  std::size_t at = 0;
  for (std::size_t i = 0; i < ahead.count && octets > ahead.between; ++i) {
    const llp::Extent target = ahead.target_of(i);
    octets -= ahead.between;
    const std::size_t taken = receive(staging.subspan(at, ahead.between));
    if (fault() || terminated_) return {};
    if (!goes_to(target)) {
      misled(staging.subspan(at + taken), ahead.between - taken, target, octets);
      return {};
    }
    assert(taken == ahead.between);
    const std::size_t here = std::min(octets, target.length);
    direct_received(here);
    octets -= here;
    at += ahead.between;
  }
  return {at, octets};
}

// What was told does not follow: a peer that cannot go on with a message says so, and nothing else. That is short.
// staging: its first `left` octets are the begin of something; what came behind them is where payload was to go.
void Endpoint::misled(std::span<std::byte> staging, std::size_t left, const llp::Extent& target, std::size_t octets) {
  octets = std::min({octets, target.length, staging.size() - left, kMostTerminate});
  if (direct().empty() && consumer_.hold(target)) {
    if (llp::guarded_copy(staging.data() + left, target.address, octets)) left += octets;
    consumer_.let_go(target);
    receive(staging.first(left));
  }
  if (!fault() && !terminated_) fail(fault::kDdpLocalCatastrophic);
}

}  // namespace ewarp::rdmap
