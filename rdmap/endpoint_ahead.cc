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

std::size_t Endpoint::ahead() const {
  const bool told = direct_.state() == DirectPayload::State::payload && !direct_.crc() && params_.extensions;
  return told && !segment_.last ? ddp::ahead(segment_.header) : 0;
}

std::size_t Endpoint::between() const {
  return mpa::pad_octets(segment_.ulpdu) + mpa::kCrcField + mpa::kLengthField + segment_.header.size();
}

bool Endpoint::find_ahead(std::size_t i, llp::Extent& target) {
  assert(i > 0 && i <= ahead());
  const std::uint64_t by = i * segment_.payload;
  ExtentList found;
  if (segment_.kind == Kind::write) {
    const ddp::TaggedHeader& h = segment_.tagged;
    return consumer_.resolve(h.stag, h.offset + by, segment_.payload, RemoteRight::write, target) == ddp::Verdict::ok;
  }
  if (segment_.kind == Kind::read_response) {
    const OutstandingRequest& read = outstanding_.oldest();
    const std::uint64_t at = read.received + by;
    if (at + segment_.payload > read.length ||
        consumer_.request_memory(*read.request, at, segment_.payload, found) != Status::success)
      return false;
  } else {
    assert(segment_.kind == Kind::send);
    const std::uint64_t at = segment_.untagged.mo + by;
    if (at + segment_.payload > consumer_.receive_capacity() ||
        consumer_.receive_memory(static_cast<std::uint32_t>(at), segment_.payload, found) != Status::success)
      return false;
  }
  if (found.count != 1) return false;
  target = found.front();
  return true;
}

// Whether the whole payload of the segment that goes direct belongs there, and nothing of it has arrived.
bool Endpoint::goes_to(const llp::Extent& target) const {
  if (direct_.state() != DirectPayload::State::payload || direct_.position() != 0) return false;
  const ExtentList at = direct_.extents();
  return at.count == 1 && at.front().address == target.address && at.front().length == target.length;
}

Endpoint::Standing Endpoint::receive_ahead(std::span<std::byte> staging, std::size_t between,
                                           std::span<const llp::Extent> targets, std::size_t octets) {
  std::size_t at = 0;
  for (const llp::Extent& target : targets) {
    if (octets <= between) break;
    octets -= between;
    const std::size_t taken = receive(staging.subspan(at, between));
    if (fault() || terminated_) return {};
    if (!goes_to(target)) {
      misled(staging.subspan(at + taken), between - taken, target, octets);
      return {};
    }
    assert(taken == between);
    const std::size_t here = std::min(octets, target.length);
    direct_received(here);
    octets -= here;
    at += between;
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
