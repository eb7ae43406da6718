// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What a valid datagram of an association does: acknowledgements first, then its segment.
#include <algorithm>
#include <cassert>

#include "llp/rd/association.h"

namespace ewarp::llp::rd {
namespace {

constexpr unsigned kTagged = 0x80, kLast = 0x40;  // DDP's T and L (RFC 5041 figure 3)
constexpr std::size_t kTaggedHeader = 14, kMinSegment = 14;
constexpr std::uint32_t kAckEvery = 8;
constexpr std::uint32_t kMostInOneAnswer = 32;
constexpr std::uint8_t kForEver = 7;

bool is_tagged(Octets segment) {
  return (std::to_integer<unsigned>(segment[0]) & kTagged) != 0;
}
bool is_last(Octets segment) {
  return (std::to_integer<unsigned>(segment[0]) & kLast) != 0;
}

}  // namespace

void Association::receive(Time now, std::uint16_t port, const Datagram& d, bool ce) {
  const Prefix& p = d.prefix;
  if (p.type == Type::openack) return on_openack(now, p, std::get<Open>(d.body));
  if (state_ == State::open_sent && !adopted_) return;
  const bool closing = p.type == Type::close;
  if (closing && (p.flags & flag::kAcknowledgement)) return on_close(now, p, std::get<Close>(d.body));
  port_ = port;
  if (state_ == State::open_sent || state_ == State::embryonic) establish(now);
  last_rx_ = now;
  if (!unacknowledged()) tries_ = 0;
  if (closing) return on_close(now, p, std::get<Close>(d.body));
  if (state_ == State::close_sent) {  // somebody still has something to say
    enter(State::established);
    timer_from_ = now;
    tries_ = 0;
  }
  if (const Ack* ack = std::get_if<Ack>(&d.body)) {
    on_standing(now, p, ack->standing, ack);
    if (state_ == State::established && (p.flags & flag::kAckNow)) ack_due_.ask();
  } else {
    const Data& data = std::get<Data>(d.body);
    on_standing(now, p, data.standing, nullptr);
    if (state_ != State::established) return;
    if (data.segment.size() < kMinSegment) return fail({.why = Ending::violation}, ResetReason::violation);
    Incoming in;
    in.lane = p.type == Type::req ? Lane::req : Lane::rsp;
    in.psn = data.standing.psn;
    in.segment = data.segment;
    in.octets = static_cast<std::uint32_t>(data.segment.size());
    in.immediate = data.immediate;
    in.error_psn = data.error_psn;
    on_segment(now, in, p.flags, ce);
  }
}

// What goes out first carries the acknowledgement, if it can say all of it. False: the acknowledgement waits.
bool Association::respond(Time now, bool may_wait) {
  if (ack_due_.due() && ack_due_.lossy()) send_ack(now);
  pump(now);
  const bool waits = may_wait && ack_due_.may_wait() && state_ == State::established && may_answer_later();
  if (waits) flight().ack_at = std::min(flight().ack_at, now + shared_.config.ack_delay);
  if (ack_due_.due() && !waits) send_ack(now);
  ack_due_.waits(waits);
  return !waits;
}

// Where datagrams are lost, acknowledgements are, too: a single one for a whole flight would cost a timeout.
bool Association::may_answer_later() const {
  return !ack_due_.lossy() && (flight_ == nullptr || flight_->unanswered < kMostInOneAnswer);
}

// Nothing here ever moves backwards: the datagram may be an old one. ack: null unless it is an RD_ACK.
void Association::on_standing(Time now, const Prefix& p, const Standing& s, const Ack* ack) {
  if (after(s.msn_limit, peer_limit_)) {
    peer_limit_ = s.msn_limit;
    probes_ = 0;
  }
  const std::uint32_t before = in_flight();
  Progress progress;
  const bool blocked = barrier_.blocks();
  for (const Lane lane : {Lane::req, Lane::rsp}) {
    const std::size_t l = index(lane);
    if (after(s.ack[l], tx_next_[l])) return fail({.why = Ending::violation}, ResetReason::violation);
    const std::uint32_t edge = s.ack[l] + std::min<std::uint32_t>(s.window[l], kMaxWindow);
    if (after(edge, tx_edge_[l])) {
      tx_edge_[l] = edge;
      probes_ = 0;
    }
    if (!on_lane_ack(lane, s.ack[l], ack ? ack->sack[l] : SackView(), progress)) return;
  }
  if (progress.any) on_progress(now, progress, before, ack);
  // First of the two: what was refused is no loss, whatever SACK says about the segments behind it.
  if (p.type == Type::ack && (p.flags & flag::kRnr)) on_refusal(now, p.aux, s.ack[0]);
  if (state_ != State::established) return;  // refused for the last time
  std::uint64_t newest_loss = 0;
  if (flight_)
    for (std::size_t l = 0; l < kLaneCount; ++l)
      if (l == 1 || flight_->frozen_until == 0) newest_loss = std::max(newest_loss, flight_->tx[l].detect_losses());
  if (newest_loss != 0) on_losses(newest_loss, before);
  // The echo speaks of what it acknowledges: none of it sent after the last answer, nothing new to answer.
  if ((p.flags & flag::kCongestion) && progress.any) on_losses(progress.newest, before);
  if (blocked && !barrier_.blocks()) pass_barrier(now);
}

// False: the association has ended.
bool Association::on_lane_ack(Lane lane, std::uint32_t ack, SackView sack, Progress& progress) {
  if (flight_ == nullptr) return true;
  const std::size_t l = index(lane);
  SendLane& tx = flight_->tx[l];
  while (after(ack, oldest(lane))) {
    const std::uint32_t psn = oldest(lane);
    const Sent s = tx.pop(progress);
    if (lane == Lane::req) {
      flight_->frozen_until = 0;
      flight_->refusals = 0;
    } else if (barrier_.state() == Barrier::State::reported && psn == flight_->report_psn) {
      barrier_.release();
    }
    if (s.segment.last && !s.failed && s.segment.message != 0)
      shared_.upper.acknowledged(*this, lane, s.segment.message);
  }
  const std::uint32_t una = oldest(lane);
  for (std::size_t k = 0; k < sack.bits() && !tx.empty(); ++k) {
    const std::uint32_t i = ack + 1 + static_cast<std::uint32_t>(k) - una;
    if (sack.test(k) && i < tx.size()) tx.sack(i, progress);
  }
  return true;
}

void Association::on_progress(Time now, const Progress& progress, std::uint32_t in_flight, const Ack* ack) {
  if (progress.sample) {
    const Time delay = ack ? ack->delay_us * kMicrosecond : 0;
    const Time r = now - *progress.sample;
    round_trip_.sample(r > delay ? r - delay : r);
  }
  round_trip_.progress();
  tries_ = 0;
  timer_from_ = now;
  flight().progress_at = now;
  congestion_.acknowledged(progress.octets, in_flight, max_seg_);
}

// One answer for everything that was outstanding when the first of it was noticed.
void Association::on_losses(std::uint64_t newest, std::uint32_t in_flight) {
  if (newest <= flight_->recover) return;
  ++shared_.counters.losses;
  ack_due_.lost();
  flight_->recover = flight_->order;
  congestion_.loss(in_flight, max_seg_);
}

// RNR: the REQ lane pauses, then begins again with what was refused.
void Association::on_refusal(Time now, std::uint8_t code, std::uint32_t ack) {
  if (flight_ == nullptr || flight_->tx[0].empty() || ack != oldest(Lane::req) || flight_->frozen_until != 0) return;
  ++shared_.counters.rnr_received;
  const std::uint8_t retry = shared_.config.rnr_retry;
  if (retry != kForEver && ++flight_->refusals > retry)
    return fail({.why = Ending::receiver_not_ready, .message = flight_->tx[0].at(0).segment.message},
                ResetReason::unspecified);
  flight_->frozen_until = now + rnr_time(code);
  flight_->tx[0].lose(0);
  flight_->progress_at = now;
  tries_ = 0;
}

void Association::on_segment(Time now, Incoming in, std::uint8_t flags, bool ce) {
  const std::size_t l = index(in.lane);
  Flight& f = flight();
  f.newest_at = now;
  ++f.unanswered;
  ++shared_.counters.received;
  ack_due_.segment((flags & flag::kAckNow) != 0, ce);
  const std::uint32_t ahead = in.psn - rx_next_[l];
  if (ahead != 0) ack_due_.lost();
  if (ahead >= shared_.config.window) {
    ++shared_.counters.duplicates;
    ack_due_.hurry();
  } else if (ahead != 0 || blocked(in.lane)) {
    ack_due_.hurry();
    ++shared_.counters.out_of_order;
    // The segment that raised the barrier is judged already.
    if (ahead != 0) hold(in);
  } else {
    const bool hole = !f.rx[l].empty();
    switch (take(in)) {
      case Take::accepted:
        let_go(in.lane, in.psn);
        ++rx_next_[l];
        if (hole) ack_due_.hurry();
        if (!drain(in.lane)) return;
        break;
      case Take::no_receive:
        hold(in);
        break;
      case Take::bad:
        let_go(in.lane, in.psn);
        break;
      case Take::violation:
        return fail({.why = Ending::violation}, ResetReason::violation);
    }
  }
  if (ack_due_.at_once() || f.unanswered >= kAckEvery)
    ack_due_.ask();
  else if (f.ack_at == kNever)
    f.ack_at = now + shared_.config.ack_delay;
}

Take Association::take(const Incoming& in) {
  if (in.lane == Lane::rsp) {
    if (!in.error_psn) return shared_.upper.deliver(*this, in);
    on_report(in);
    return Take::accepted;
  }
  if (barrier_.discards(is_last(in.segment))) return Take::accepted;
  const Take t = shared_.upper.deliver(*this, in);
  if (t == Take::bad) {
    barrier_.raise(is_last(in.segment));
    ack_due_.hurry();
  } else if (t == Take::no_receive) {
    ack_due_.refuse();
  }
  return t;
}

// The peer's word about one of our requests; it comes before the acknowledgement of what it is about, if that is
// refused, and long after if it is a Read that failed while it was served.
void Association::on_report(const Incoming& in) {
  ++shared_.counters.reports_received;
  std::uint64_t message = 0;
  const std::uint32_t i = *in.error_psn - oldest(Lane::req);
  if (flight_ && i < flight_->tx[0].size()) {
    message = flight_->tx[0].at(i).segment.message;
    if (message != 0) flight_->tx[0].fail_message(message);
    flight_->tx[0].settle(i);
    tries_ = 0;
  }
  shared_.upper.reported(*this, message, in);
}

// Delivers what has waited for what just came. False: the association has ended.
bool Association::drain(Lane lane) {
  const std::size_t l = index(lane);
  while (!blocked(lane) && flight_ && !flight_->rx[l].empty()) {
    const Held* h = flight_->rx[l].find(rx_next_[l]);
    if (h == nullptr) return true;
    Incoming in;
    in.lane = lane;
    in.psn = h->psn;
    in.segment = h->segment;
    in.octets = h->octets;
    in.placed = h->placed;
    in.immediate = h->immediate;
    in.error_psn = h->error_psn;
    const Take t = take(in);
    if (t == Take::no_receive) return true;
    if (t == Take::violation) {
      fail({.why = Ending::violation}, ResetReason::violation);
      return false;
    }
    let_go(lane, in.psn);
    if (t == Take::bad) return true;
    ++rx_next_[l];
  }
  return true;
}

// Keeps what came ahead of its turn. What is not kept is not acknowledged and comes again.
void Association::hold(Incoming in) {
  ReceiveLane& lane = flight().rx[index(in.lane)];
  if (lane.holds(in.psn)) {
    ++shared_.counters.duplicates;
    return;
  }
  if (shared_.held + lane.cost_to_insert(in.octets) > shared_.config.max_held) {
    ++shared_.counters.not_held;
    return;
  }
  Held h;
  if (is_tagged(in.segment) && in.psn != rx_next_[index(in.lane)]) h.placed = shared_.upper.place(*this, in);
  if (h.placed) in.segment = in.segment.first(kTaggedHeader);
  h.psn = in.psn;
  h.octets = in.octets;
  h.immediate = in.immediate;
  h.error_psn = in.error_psn;
  h.segment.assign(in.segment.begin(), in.segment.end());
  // Without memory insert() throws, and the cost is what it was.
  const std::size_t before = lane.cost();
  lane.insert(std::move(h));
  shared_.held += lane.cost() - before;
}

// The peer has the report: now it may see the acknowledgement of what the report is about. A failed message keeps its
// MSN; the upper layer has counted it when it found the fault.
void Association::pass_barrier(Time now) {
  ++rx_next_[0];
  if (drain(Lane::req)) send_ack(now);
}

void Association::let_go(Lane lane, std::uint32_t psn) {
  ReceiveLane& rx = flight_->rx[index(lane)];
  assert(shared_.held >= rx.cost());
  shared_.held -= rx.cost();
  rx.erase(psn);
  shared_.held += rx.cost();
}

// Receives were posted.
void Association::resume(Time now) {
  if (state_ != State::established) return;
  if (!drain(Lane::req)) return;
  send_ack(now);
  pump(now);
}

}  // namespace ewarp::llp::rd
