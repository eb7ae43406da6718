// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The beginning and the end of an association.
#include <algorithm>
#include <cassert>

#include "llp/rd/association.h"

namespace ewarp::llp::rd {

void Association::enter(State next) {
  assert(allowed(state_, next));
  assert(state_ != State::embryonic || shared_.embryonic > 0);
  shared_.embryonic += (next == State::embryonic);
  shared_.embryonic -= (state_ == State::embryonic);
  if (next == State::open_sent) cookie_ = 0;  // last_rx_ stood there
  state_ = next;
}

// A new stream: nothing of an earlier one but what was learnt about the path would do harm, and that may be out of
// date.
void Association::begin(const Identity& identity) {
  assert(state_ == State::closed && flight_ == nullptr);
  barrier_ = {};
  ack_due_ = {};
  adopted_ = crc_demanded_ = false;
  tries_ = probes_ = strikes_ = 0;
  own_tag_ = identity.tag;
  peer_tag_ = 0;
  isn_ = tx_next_ = tx_edge_ = identity.isn;
  rx_next_ = {};
  peer_limit_ = granted_ = 0;
  options_ = 0;
  ord_ = 0;
  max_seg_ = path_seg_ = shared_.config.max_seg;
  round_trip_ = RoundTrip{};
  shared_.upper.opening(*this);
}

void Association::open(Time now, const Identity& identity) {
  begin(identity);
  enter(State::open_sent);
  ++shared_.counters.opened;
  send_open(now);
}

void Association::accept(Time now, const Open& open, const Identity& identity) {
  begin(identity);
  adopt(open);
  enter(State::embryonic);
  ++shared_.counters.accepted;
  last_rx_ = last_tx_ = timer_from_ = now;
  send_openack();
}

void Association::adopt(const Open& open) {
  const Config& c = shared_.config;
  assert(!unacknowledged());  // the PSNs begin anew
  adopted_ = true;
  peer_tag_ = open.initial_tag;
  rx_next_ = open.isn;
  for (std::size_t l = 0; l < kLaneCount; ++l)
    tx_edge_[l] = isn_[l] + std::min<std::uint32_t>(open.window[l], kMaxWindow);
  peer_limit_ = open.msn_limit;
  max_seg_ = std::min(path_seg_, open.max_seg);  // an OPEN that came before may have been forged
  ord_ = static_cast<std::uint8_t>(std::min<unsigned>({c.ord, open.ird, UINT8_MAX}));
  options_ = (wishes() & open.options) >> kOptionShift & 7;
}

std::uint16_t Association::wishes() const {
  const Config& c = shared_.config;
  return static_cast<std::uint16_t>((c.credits ? option::kCredits : 0u) | (c.atomics ? option::kAtomics : 0u) |
                                    (c.without_crc && !crc_demanded_ ? option::kNoCrc : 0u));
}

void Association::establish(Time now) {
  enter(State::established);
  tries_ = 0;
  timer_from_ = last_rx_ = last_tx_ = now;
  congestion_.start(shared_.config, max_seg_);
  shared_.upper.established(*this);
}

namespace {

Open offer(const Config& c, std::uint32_t qkey, std::uint16_t options) {
  Open o;
  o.qkey = qkey;
  o.window = {c.window, c.window};
  o.max_seg = c.max_seg;
  o.options = options;
  o.ird = c.ird;
  o.ord = c.ord;
  return o;
}

}  // namespace

void Association::send_open(Time now) {
  Open o = offer(shared_.config, key_.qkey, wishes());
  o.initial_tag = own_tag_;
  o.isn = isn_;
  o.msn_limit = standing(0).msn_limit;
  o.cookie = cookie_;
  timer_from_ = now;
  std::array<std::byte, kMaxHeader> out;
  put(Octets(out).first(emit(Prefix{Type::open, 0, 0, key_.remote_qpn, key_.local_qpn}, o, out)));
}

void Association::send_openack() {
  Open o = offer(shared_.config, key_.qkey, wishes());
  o.destination_tag = peer_tag_;
  o.initial_tag = own_tag_;
  o.isn = isn_;
  o.msn_limit = standing(0).msn_limit;
  std::array<std::byte, kMaxHeader> out;
  put(Octets(out).first(emit(Prefix{Type::openack, 0, 0, key_.remote_qpn, key_.local_qpn}, o, out)));
}

// Our tag stands in it, so it is the peer's own word: it also corrects what a forged OPEN may have said.
void Association::on_openack(Time now, const Prefix& p, const Open& open) {
  if (state_ != State::open_sent) return;
  if (p.flags & flag::kChallenge) {
    if (open.cookie == 0 || open.cookie == cookie_) return;  // the repetition comes with the timer
    cookie_ = open.cookie;
    send_open(now);
    return;
  }
  if (open.initial_tag == 0 || open.max_seg < kOverhead + 128) return;
  adopt(open);
  establish(now);
  pump(now);
  if (state_ == State::established && !unacknowledged()) send_ack(now);
}

void Association::send_close(Time now, bool acknowledgement) {
  if (!acknowledgement) timer_from_ = now;
  Close c;
  c.tag = peer_tag_;
  c.next = tx_next_;
  c.ack = rx_next_;
  c.reason = 1;
  std::array<std::byte, kMaxHeader> out;
  put(Octets(out).first(emit(prefix(Type::close, acknowledgement ? flag::kAcknowledgement : 0), c, out)));
}

void Association::on_close(Time now, const Prefix& p, const Close& close) {
  const bool equal = close.next == rx_next_ && close.ack == tx_next_;
  if (p.flags & flag::kAcknowledgement) {
    // Also when something late has cancelled our CLOSE meanwhile: the peer has forgotten us all the same.
    if (state_ == State::close_sent || (equal && quiet())) end({});
    return;
  }
  if (state_ == State::established) {
    Standing s;
    s.ack = close.ack;
    s.msn_limit = peer_limit_;
    on_standing(now, p, s, nullptr);
    if (state_ != State::established) return;
  }
  // In close_sent nothing of this association is open, and what waits needs a new one in any case.
  if ((state_ == State::close_sent || quiet()) && close.next == rx_next_ && close.ack == tx_next_) {
    send_close(now, true);
    end({});
    return;
  }
  send_ack(now);  // not now
}

void Association::send_reset(ResetReason reason) {
  ++shared_.counters.resets_sent;
  std::array<std::byte, kMaxHeader> out;
  put(Octets(out).first(emit(prefix(Type::reset, 0), Reset{peer_tag_, reason}, out)));
}

void Association::on_reset(ResetReason reason) {
  ++shared_.counters.resets_received;
  // To who has adopted the peer's OPEN, `unknown` says only that the peer has begun anew since.
  const bool outdated = state_ == State::open_sent && adopted_ && reason == ResetReason::unknown;
  if (state_ == State::close_sent || state_ == State::embryonic || outdated) return end({});
  end({state_ == State::open_sent ? Ending::refused : Ending::reset, reason, 0, Lane::req});
}

// It ends by our decision; the peer is told.
void Association::fail(const Ended& how, ResetReason tell) {
  if (adopted_) send_reset(tell);
  end(how);
}

void Association::end(const Ended& how) {
  if (state_ == State::closed) return;
  if (flight_) {
    for (const ReceiveLane& lane : flight_->rx) {
      assert(shared_.held >= lane.cost());
      shared_.held -= lane.cost();
    }
    flight_.reset();
  }
  enter(State::closed);
  if (how.why == Ending::violation) ++shared_.counters.violations;
  ++(how.why == Ending::unreachable ? shared_.counters.unreachable : shared_.counters.closed);
  shared_.upper.ended(*this, how);
}

}  // namespace ewarp::llp::rd
