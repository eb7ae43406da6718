// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What opening, receiving and sending share.
#include "llp/rd/association.h"

#include <algorithm>
#include <cassert>
#include <cstring>

namespace ewarp::llp::rd {
namespace {

constexpr std::size_t kSpareFlights = 16;

// What an idle peer costs; the index takes some 20 octets more, the layer above 28 for its MSNs: 256 in all.
static_assert(sizeof(Association) <= 200);

}  // namespace

Association::Association(Shared& shared, const Key& key, std::uint16_t port)
    : shared_(shared), key_(key), port_(port) {}

Association::~Association() {
  if (state_ != State::closed) enter(State::closed);
  if (flight_)
    for (const ReceiveLane& lane : flight_->rx) shared_.held -= lane.cost();
}

void Association::limit_segment(std::uint16_t max_udp_payload) {
  path_seg_ = std::min(path_seg_, max_udp_payload);
  max_seg_ = std::min(max_seg_, max_udp_payload);
}

Flight& Association::flight() {
  if (flight_ == nullptr) {
    if (shared_.spare.empty()) {
      flight_ = std::make_unique<Flight>();
    } else {
      flight_ = std::move(shared_.spare.back());
      shared_.spare.pop_back();
    }
  }
  return *flight_;
}

// After anything that may have begun, continued or ended one.
void Association::watch_open_message(Time now) {
  if (flight_ == nullptr) return;
  OpenMessage& m = flight_->open_message;
  if (!shared_.upper.awaits_rest(*this))
    m = {};
  else if (m.since == kNever || m.next != rx_next_[0])
    m = {.since = now, .next = rx_next_[0]};
}

Time Association::open_message_due() const {
  if (flight_ == nullptr || flight_->open_message.since == kNever) return kNever;
  return flight_->open_message.since + shared_.config.message_time / OpenMessage::kSteps;
}

bool Association::open_message_expired(Time now) {
  if (now < open_message_due()) return false;
  flight_->open_message.since = now;
  return ++flight_->open_message.steps == OpenMessage::kSteps;
}

// Gives the flight back when nothing is in it.
void Association::trim() {
  if (flight_ == nullptr) return;
  Flight& f = *flight_;
  if (f.open_message.since != kNever) return;
  for (std::size_t l = 0; l < kLaneCount; ++l)
    if (!f.tx[l].empty() || !f.rx[l].empty()) return;
  if (f.ack_at != kNever || f.unanswered != 0) return;
  f.order = f.recover = 0;
  f.pace_at = kNever;
  f.frozen_until = 0;
  f.refusals = 0;
  if (shared_.spare.size() < kSpareFlights) shared_.spare.push_back(std::move(flight_));
  flight_.reset();
}

std::uint32_t Association::oldest(Lane lane) const {
  const std::size_t l = index(lane);
  return tx_next_[l] - (flight_ ? flight_->tx[l].size() : 0);
}

std::uint32_t Association::in_flight() const {
  return flight_ ? flight_->tx[0].in_flight() + flight_->tx[1].in_flight() : 0;
}

bool Association::unacknowledged() const {
  return flight_ && (!flight_->tx[0].empty() || !flight_->tx[1].empty());
}

bool Association::quiet() const {
  if (barrier_.blocks() || unacknowledged() || !shared_.upper.quiet(*this)) return false;
  return flight_ == nullptr || (flight_->rx[0].empty() && flight_->rx[1].empty());
}

Prefix Association::prefix(Type type, std::uint8_t flags, std::uint8_t aux) const {
  if (options() & option::kNoCrc) flags |= flag::kNoCrc;
  return {type, flags, aux, key_.remote_qpn, key_.local_qpn};
}

void Association::put(Octets head, std::span<const Extent> payload, bool again, const MessageId& message) {
  assert(head.size() <= kMaxHeader);
  const bool crc = (std::to_integer<unsigned>(head[1]) & flag::kNoCrc) == 0;
  shared_.wire.send(address(), Frame{head, payload, crc, again, message});
}

}  // namespace ewarp::llp::rd
