// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What goes out and when: the pump, retransmission, acknowledgements, timers.
#include <algorithm>
#include <cassert>
#include <cstring>

#include "llp/rd/association.h"

namespace ewarp::llp::rd {
namespace {

constexpr std::size_t kMaxExtents = 40;
constexpr std::size_t kManyUnderWay = 4;  // segments of a lane: more than what SACK takes for reordering

}  // namespace

void Association::wake(Time now) {
  if (state_ == State::established) pump(now);
}

// Each lane may have one segment under way, whatever the window says: after a timeout a request that the peer answers
// with an error report would fill it, and with two such requests neither report could ever be sent.
// After a timeout it stays at that one until something is acknowledged. What comes is taken to be as long as what went:
// max_seg_ would let small segments into a small window one by one where max_seg_ is large, as on the loopback.
bool Association::room(Lane lane) const {
  if (flight_ == nullptr) return true;
  SendLane& tx = flight_->tx[index(lane)];
  if (tx.in_flight() == 0) return true;
  return tries_ == 0 && in_flight() + tx.at(tx.size() - 1).octets <= congestion_.window();
}

// Whether a new segment of this lane can go now.
bool Association::may_send(Lane lane) {
  const std::size_t l = index(lane);
  if (!after(tx_edge_[l], tx_next_[l])) return false;
  if (lane == Lane::req && flight_ && flight_->frozen_until != 0) return false;
  if (!room(lane)) return false;
  std::optional<std::uint32_t> first_msn;
  if (!shared_.upper.peek(*this, lane, &first_msn)) return false;
  return !first_msn || (options() & option::kCredits) == 0 || !after(*first_msn, peer_limit_);
}

// Something waits that neither a window nor a credit allows.
bool Association::stalled() const {
  std::optional<std::uint32_t> first_msn;
  auto& self = const_cast<Association&>(*this);
  return shared_.upper.peek(self, Lane::req, &first_msn) || shared_.upper.peek(self, Lane::rsp, &first_msn);
}

void Association::pump(Time now) {
  if (state_ != State::established) return;
  const Time rto = round_trip_.timeout(shared_.config);
  if (!unacknowledged() && now - last_tx_ > rto) congestion_.idle(shared_.config, max_seg_);
  std::uint32_t octets = 0;
  const auto burst_left = [&] { return octets < shared_.config.burst; };
  for (const Lane lane : {Lane::rsp, Lane::req}) {
    if (flight_ == nullptr || (lane == Lane::req && flight_->frozen_until != 0)) continue;
    SendLane& tx = flight_->tx[index(lane)];
    while (tx.has_lost() && room(lane) && burst_left()) {
      octets += tx.at(tx.first_lost()).octets;
      if (!transmit(now, lane, tx.first_lost(), flag::kAckNow)) return;
    }
  }
  while (burst_left()) {
    const Lane first = turn_ ? Lane::req : Lane::rsp, second = turn_ ? Lane::rsp : Lane::req;
    const Lane lane = may_send(first) ? first : second;
    if (lane == second && !may_send(second)) return;
    if (!send_next(now, lane)) return;
    turn_ = !turn_;
    SendLane& tx = flight_->tx[index(lane)];
    octets += tx.at(tx.size() - 1).octets;
  }
  // The rest at the pace at which the window would be used up in a round trip.
  const Time pace = round_trip_.smoothed() / std::max<std::uint32_t>(1, congestion_.window() / shared_.config.burst);
  flight().pace_at = now + std::max(pace, 100 * kMicrosecond);
}

// Numbers a new segment. False: the association has ended.
bool Association::send_next(Time now, Lane lane) {
  const std::size_t l = index(lane);
  Flight& f = flight();
  if (!unacknowledged()) timer_from_ = f.progress_at = now;
  const std::uint32_t psn = tx_next_[l];
  assert(state_ == State::established && after(tx_edge_[l], psn));
  Sent s;
  shared_.upper.take(*this, lane, psn, mulpdu(), s.segment);
  assert(s.segment.head_size + std::size_t{s.segment.payload} <= mulpdu());
  s.at = now;
  s.order = ++f.order;
  s.octets = static_cast<std::uint32_t>(kOverhead + s.segment.head_size + s.segment.payload +
                                        (s.segment.error_psn ? 4 : 0) + (s.segment.immediate ? 4 : 0));
  if (lane == Lane::rsp && barrier_.state() == Barrier::State::raised && s.segment.error_psn == rx_next_[0]) {
    barrier_.report();
    f.report_psn = psn;
    ++shared_.counters.reports_sent;
  }
  const std::uint32_t outstanding = f.tx[l].size();
  const std::uint32_t window = std::max<std::uint32_t>(1, tx_edge_[l] - oldest(lane));
  const bool quarter = 4 * outstanding / window != 4 * (outstanding + 1) / window;
  f.tx[l].push(s);
  ++tx_next_[l];
  ++shared_.counters.sent;
  probes_ = 0;
  return transmit(now, lane, outstanding, quarter || !may_send(lane) ? flag::kAckNow : std::uint8_t{0});
}

// Segment i of what is outstanding, for the first time or again. False: the association has ended.
bool Association::transmit(Time now, Lane lane, std::size_t i, std::uint8_t flags) {
  Flight& f = flight();
  SendLane& tx = f.tx[index(lane)];
  if (tx.at(i).lost) {
    tx.resent(i, ++f.order);
    ++shared_.counters.retransmitted;
    flags |= flag::kAgain;
  }
  const Sent& s = tx.at(i);
  const Outgoing& o = s.segment;
  std::array<Extent, kMaxExtents> pieces;
  int count = 0;
  const std::uint32_t payload = s.failed ? 0 : o.payload;
  if (payload > 0) {
    count = shared_.upper.memory(*this, lane, o, pieces);
    if (count < 0) {
      fail({.why = Ending::source_gone, .message = o.message, .lane = lane}, ResetReason::unspecified);
      return false;
    }
  }
  std::array<std::byte, kFixed + 8 + kLengthField + Outgoing::kMaxHead> head;
  static_assert(sizeof head <= kMaxHeader);
  assert(count <= static_cast<int>(kMaxExtents) && o.head_size <= Outgoing::kMaxHead);
  Data d;
  d.standing = standing(oldest(lane) + static_cast<std::uint32_t>(i));
  d.error_psn = o.error_psn;
  d.immediate = o.immediate;
  const Type type = lane == Lane::req ? Type::req : Type::rsp;
  std::size_t at = emit(prefix(type, flags | acknowledging_flags()), d, o.head_size + std::size_t{payload}, head);
  std::memcpy(head.data() + at, o.head.data(), o.head_size);
  at += o.head_size;
  // A cumulative acknowledgement rides along; SACK would not.
  if (f.rx[0].empty() && f.rx[1].empty()) {
    f.unanswered = 0;
    f.ack_at = kNever;
    ack_due_.carried();
  }
  last_tx_ = now;
  put(Octets(head).first(at), std::span(pieces).first(static_cast<std::size_t>(count)), (flags & flag::kAgain) != 0,
      {this, lane, o.message});
  return true;
}

Standing Association::standing(std::uint32_t psn) {
  Standing s;
  s.tag = peer_tag_;
  s.psn = psn;
  s.ack = rx_next_;
  s.window = {shared_.config.window, shared_.config.window};
  const std::uint32_t limit = shared_.upper.message_limit(*this);
  if (after(limit, granted_)) granted_ = limit;
  s.msn_limit = granted_;
  return s;
}

std::uint8_t Association::acknowledging_flags() {
  return ack_due_.echo() ? flag::kCongestion : std::uint8_t{0};
}

void Association::send_ack(Time now, std::uint8_t flags, std::uint8_t aux) {
  if (state_ == State::closed || state_ == State::open_sent) return;
  std::array<SackWords, kLaneCount> sack;
  std::uint16_t delay = 0;
  if (flight_) {
    for (std::size_t l = 0; l < kLaneCount; ++l) sack[l] = flight_->rx[l].words(rx_next_[l]);
    if (flight_->unanswered > 0)
      delay = static_cast<std::uint16_t>(std::min<Time>(0xffff, (now - flight_->newest_at) / kMicrosecond));
    flight_->unanswered = 0;
    flight_->ack_at = kNever;
  }
  if (ack_due_.sent()) {
    flags |= flag::kRnr;
    aux = shared_.config.rnr_code;
    ++shared_.counters.rnr_sent;
  }
  std::array<std::byte, kMaxHeader> out;
  put(Octets(out).first(emit(prefix(Type::ack, flags | acknowledging_flags(), aux), standing(0), delay, sack, out)));
}

Time Association::due() const {
  const Config& c = shared_.config;
  const auto backed_off = [&] { return std::min(c.rto_max, c.rto_init << tries_); };
  switch (state_) {
    case State::closed:
      return kNever;
    case State::embryonic:
      return timer_from_ + (stalled() ? c.rto_init : c.embryonic);
    case State::open_sent:
    case State::close_sent:
      return timer_from_ + backed_off();
    case State::established:
      break;
  }
  if (!unacknowledged()) {
    const Time t = due_when_nothing_is_sent();
    return flight_ ? std::min({t, flight_->ack_at, flight_->pace_at, open_message_due()}) : t;
  }
  const Flight& f = *flight_;
  Time t = std::min({f.ack_at, f.pace_at, open_message_due()});
  if (f.frozen_until != 0) t = std::min(t, f.frozen_until);
  if (f.frozen_until == 0 || !f.tx[1].empty()) t = std::min(t, timer_from_ + round_trip_.timeout(c));
  return t;
}

Time Association::due_when_nothing_is_sent() const {
  const Config& c = shared_.config;
  const Time rto = round_trip_.timeout(c);
  if (stalled()) return timer_from_ + std::min(kSecond, rto << std::min<unsigned>(probes_, 20));
  const Time last = std::max(last_rx_, last_tx_);
  if (quiet()) return last + c.idle_close;
  // A slow measurement or two must not make it a minute: what says that the peer has gone may be lost.
  return std::max(last, timer_from_) + std::min(std::max(8 * rto, kSecond), std::max(c.rto_max, kSecond));
}

void Association::expire(Time now) {
  switch (state_) {
    case State::closed:
      return;
    case State::embryonic:
      if (!stalled()) return end({});
      // The peer should have spoken. If it has forgotten what it began, only asking brings that to light; if its answer
      // was lost, this is an OPEN that crosses its own.
      tries_ = 0;
      enter(State::open_sent);
      return send_open(now);
    case State::open_sent:
      if (++tries_ >= shared_.config.handshake_tries) return end({.why = Ending::unreachable});
      return send_open(now);
    case State::close_sent:
      if (++tries_ >= shared_.config.handshake_tries) return end({});
      return send_close(now, false);
    case State::established:
      break;
  }
  // The receive that it holds may be a shared one.
  if (open_message_expired(now)) return fail({.why = Ending::violation}, ResetReason::violation);
  if (flight_) {
    Flight& f = *flight_;
    if (f.frozen_until != 0 && now >= f.frozen_until) {
      f.frozen_until = 0;
      timer_from_ = now;  // no timeout for what waited
    }
    if (now >= f.pace_at) f.pace_at = kNever;
    if (now >= f.ack_at) send_ack(now);
  }
  if (!unacknowledged())
    on_silence(now);
  else if (now >= timer_from_ + round_trip_.timeout(shared_.config) &&
           (flight_->frozen_until == 0 || !flight_->tx[1].empty()))
    on_timeout(now);
  pump(now);
}

void Association::on_timeout(Time now) {
  Flight& f = *flight_;
  const Config& c = shared_.config;
  ++shared_.counters.timeouts;
  if (tries_ < 255) ++tries_;
  if (tries_ > c.retry_max && now - f.progress_at >= c.dead_time)
    return fail({.why = Ending::unreachable}, ResetReason::unspecified);
  round_trip_.back_off(c);
  timer_from_ = now;
  // Nothing is taken for lost at first where much is under way: a peer that did not run for a while is far more often
  // the cause. The newest one's acknowledgement shows what is lost (RFC 8985 section 7 has the like).
  const auto probes = [this](const SendLane& tx) { return tries_ == 1 && tx.size() > kManyUnderWay; };
  if (!probes(f.tx[0]) && !probes(f.tx[1])) {
    congestion_.timeout(in_flight(), max_seg_);
    f.recover = f.order;
  }
  // The oldest of each lane at once, even if it was SACKed: a lost last acknowledgement is repeated only if asked for.
  for (const Lane lane : {Lane::rsp, Lane::req}) {
    SendLane& tx = f.tx[index(lane)];
    if (tx.empty() || (lane == Lane::req && f.frozen_until != 0)) continue;
    const std::size_t newest = tx.size() - 1;
    const bool probe = probes(tx) && !tx.at(newest).sacked;
    if (probes(tx)) {
      tx.lose(0);
      if (probe) tx.lose(newest);
    } else {
      tx.lose_all();
    }
    if (!transmit(now, lane, 0, flag::kAckNow)) return;
    if (probe && !transmit(now, lane, newest, flag::kAckNow)) return;
  }
}

// Nothing of ours is under way. Waiting for a credit or for an answer: ask. Waiting for nothing: close.
void Association::on_silence(Time now) {
  const Config& c = shared_.config;
  if (now < due_when_nothing_is_sent()) return;
  timer_from_ = now;
  const bool waits = stalled();
  if (!waits && quiet()) {
    tries_ = 0;
    enter(State::close_sent);
    return send_close(now, false);
  }
  if (tries_ < 255) ++tries_;
  if (tries_ > c.retry_max && now - last_rx_ >= c.dead_time)
    return fail({.why = Ending::unreachable}, ResetReason::unspecified);
  if (waits && probes_ < 20) ++probes_;
  ++shared_.counters.probes;
  send_ack(now, flag::kAckNow);
}

}  // namespace ewarp::llp::rd
