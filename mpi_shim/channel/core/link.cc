// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "mpi_shim/channel/core/link.h"

#include <algorithm>
#include <cassert>
#include <new>
#include <utility>

#include "mpi_shim/channel/core/room.h"

namespace ewarp::channel {
namespace {

// To something that the peer has asked for, and may ask for at any time.
bool is_answer(const Outgoing& o) {
  return o.what == Outgoing::What::send &&
         (o.message.kind == wire::Kind::answer || o.message.kind == wire::Kind::retracted);
}

}  // namespace

void OutgoingPool::reserve(std::size_t count) {
  while (free_.size() < count) {
    make_room(all_, free_);
    all_.push_back(std::make_unique<Outgoing>());
    free_.push_back(all_.back().get());
  }
}

Outgoing& OutgoingPool::take(Outgoing::What what, PeerId peer) {
  reserve(1);
  Outgoing& o = *free_.back();
  free_.pop_back();
  assert(o.links.previous == nullptr && o.links.next == nullptr);
  o = Outgoing{};
  o.what = what;
  o.peer = peer;
  return o;
}

void OutgoingPool::give(Outgoing& o) {
  assert(free_.size() < all_.size());
  o.copy.reset();
  free_.push_back(&o);
}

Link::Link(PeerId peer, const Tuning& tuning, Transport& transport, OutgoingPool& pool, ReceiveBudget& budget,
           Counters& counters)
    : sent(tuning.counter_limit, counters),
      arrived(tuning.counter_limit, counters),
      peer_(peer),
      tuning_(tuning),
      transport_(transport),
      pool_(pool),
      budget_(budget),
      counters_(counters),
      most_window_(tuning.receive_depth) {}

void Link::enter(State to) {
  assert(allowed(state_, to));
  state_ = to;
}

void Link::set_up() {
  enter(State::up);
  heard_at = transport_.now();
  counters_.add(Count::connections);
  flush();
}

void Link::set_down() {
  enter(State::down);
  for (auto* list : {&queue_, &reads_, &paced_})
    while (Outgoing* o = list->pop_front()) pool_.give(*o);
  holding_up_ = 0;
  releases_.clear();
  retracting.clear();
  recalled_to_.reset();
  starved_ = false;
  incomplete = {};
  sent.clear();
  arrived.clear();
  answers_waiting = 0;
  copied = 0;
  budget_.give_back(*this, borrowed());
  window_ = kFirstWindow;
  note_stall();
}

void Link::connect() {
  if (state_ != State::unconnected) return;
  enter(State::connecting);
  transport_.connect(peer_);
}

bool Link::push(Outgoing& o, bool followed) {
  if (o.what == Outgoing::What::send && !o.tells_written() && sent.floor() != floor_told_) {
    // Now and not when it is handed over: what is in the queue was numbered with the floor of its time. Not by what
    // later ones may pass, or an older floor would come last.
    floor_told_ = o.message.floor = sent.floor();
    o.message.flags |= wire::flag::kFloor;
  }
  const auto data = o.what == Outgoing::What::send ? o.message.attached() : std::nullopt;
  const bool other_data = data && data != data_told;
  if (data) data_told = data;
  const bool overtakes = o.what == Outgoing::What::read || o.what == Outgoing::What::ping;
  const bool waits = !overtakes && !passes(o, other_data);
  (overtakes ? reads_ : waits ? paced_ : queue_).push_back(o);
  o.order = pushed_++;
  if (is_answer(o)) ++answers_waiting;
  o.holds = waits && !o.paced && (other_data || !o.tells_written());
  if (o.holds) ++holding_up_;
  if (!overtakes && !waits && !paced_.empty() && first_with_room() == nullptr) note_passing(o);
  if (followed) return false;
  flush();
  return o.handed_over;
}

bool Link::copy_payload(Outgoing& o) {
  assert(!o.copy);
  o.copy.reset(new (std::nothrow) std::byte[o.length]);
  if (!o.copy) return false;
  std::copy_n(o.data, o.length, o.copy.get());
  o.data = o.copy.get();
  copied += o.length;
  counters_.add(Count::eager_copies);
  counters_.add(Count::eager_copied_octets, o.length);
  return true;
}

void Link::flush() {
  if (!nothing_waits()) connect();
  if (state_ != State::up) return;
  while (Outgoing* o = reads_.front()) {
    if (!hand_over(*o, false)) break;
    reads_.remove(*o);
  }
  send_in_order();
  starved_ = false;
  try {
    use_up_recalled();
    return_credits();
    if (releases_.size() >= kReleaseBatch || (urgent_ && !releases_.empty())) push_note();
  } catch (const std::bad_alloc&) {
    starved_ = true;
  }
  note_stall();
}

bool Link::hand_over_first(List<Outgoing, &Outgoing::links>& list) {
  Outgoing& o = *list.front();
  if (o.needs_credit() && credits_left() == 0) return false;
  const Outgoing* next = list.after(o);
  if (!hand_over(o, next != nullptr && next->continues() && credits_left() > 1)) return false;
  list.remove(o);
  assert(!o.copy || copied >= o.length);
  copied -= o.copy ? o.length : 0;
  return true;
}

void Link::note_stall() {
  const bool now = state_ == State::up && !nothing_waits();
  if (now == stalled_) return;
  stalled_ = now;
  assert(now || pool_.stalled > 0);
  now ? ++pool_.stalled : --pool_.stalled;
}

// Whether the peer may have to act before its application comes. It need not where only a request of its ends, and one
// that waits for credits looks at everything; but when more than half of them are used it is to return some.
bool Link::solicits(const Outgoing& o) const {
  if (o.needs_credit() && credits_left() <= (left_then_ + 1) / 2) return true;
  if (o.what != Outgoing::What::send) return false;
  switch (o.message.kind) {
    case wire::Kind::eager:
      return o.message.has_extra(wire::extra::kConfirm);
    case wire::Kind::more:
    case wire::Kind::written:
    case wire::Kind::unused:
      return false;
    case wire::Kind::note:
      return o.message.has(wire::flag::kClosing);
    default:
      return true;
  }
}

bool Link::hand_over(Outgoing& o, bool followed) {
  assert(state_ == State::up && o.peer == peer_);
  assert(!o.needs_credit() || credits_left() > 0);
  const auto cookie = reinterpret_cast<Cookie>(&o);
  bool taken = false;
  const auto note = [&](Transport::Taken t) {
    o.copied = t == Transport::Taken::copied;
    taken = t != Transport::Taken::refused;
  };
  switch (o.what) {
    case Outgoing::What::send:
      taken = send(o, false, followed);
      break;
    case Outgoing::What::write:
      note(transport_.write(peer_, o.source(), o.memory, o.remote, {}, o.inject, false, cookie));
      break;
    case Outgoing::What::write_immediate:
      note(transport_.write(peer_, o.source(), o.memory, o.remote, o.immediate, o.inject, solicits(o), cookie));
      break;
    case Outgoing::What::read:
      taken = transport_.read(peer_, {o.data, o.length}, o.memory, o.remote, cookie);
      break;
    case Outgoing::What::ping:
    case Outgoing::What::confirm:
      taken = transport_.ping(peer_, cookie);
      break;
  }
  if (!taken) {
    counters_.add(Count::path_full);
    return false;
  }
  ++under_way_;
  o.handed_over = true;
  if (is_answer(o)) --answers_waiting;
  if (o.needs_credit()) ++used_;
  if (o.paced) {
    paced_octets_ += o.length;
    narrow_left_ -= std::min(narrow_left_, o.length);
  }
  return true;
}

bool Link::send(Outgoing& o, bool reserve, bool followed) {
  wire::Message m = o.message;
  if (reserve) m.flags |= wire::flag::kReserve;
  m.credits = grant();
  const std::size_t n = std::min(releases_.size(), wire::Message::kMostReleases);
  std::copy_n(releases_.begin(), n, m.releases.begin());
  m.release_count = static_cast<std::uint8_t>(n);
  std::array<std::byte, wire::Message::kLongest> header;
  m.emit(header);
  const Transport::Taken taken = transport_.send(peer_, std::span(header).first(m.octets()), o.source(), o.inject,
                                                 solicits(o), followed, reinterpret_cast<Cookie>(&o));
  if (taken == Transport::Taken::refused) return false;
  o.copied = taken == Transport::Taken::copied;
  told_ = m.credits;
  releases_.erase(releases_.begin(), releases_.begin() + static_cast<std::ptrdiff_t>(n));
  urgent_ = urgent_ && !releases_.empty();
  if (m.kind == wire::Kind::note) {
    note_queued_ = note_queued_ && reserve;
    counters_.add(Count::notes);
  } else {
    counters_.add(Count::releases_piggybacked, n);
  }
  return true;
}

// When more than half of the credits are not known to the peer and nothing that could tell goes out.
void Link::return_credits() {
  if (note_ && consumed_ - *note_ - 1 < kHalf) note_.reset();
  if (note_ || untold() < window_ / 2 + 1) return;
  pool_.reserve(1);
  widen();
  Outgoing& note = pool_.take(Outgoing::What::send, peer_);
  note.message.kind = wire::Kind::note;
  const std::uint32_t before = told_;
  if (!send(note, true, false)) return pool_.give(note);
  note_ = before;
  ++under_way_;
}

void Link::completed(Outgoing& o) {
  assert(under_way_ > 0 && o.peer == peer_);
  --under_way_;
  assert(!o.paced || paced_octets_ >= o.length);
  paced_octets_ -= o.paced ? o.length : 0;
  pool_.give(o);
}

bool Link::on_received(const wire::Message& m) {
  heard_at = transport_.polled_at();
  if (m.credits - granted_ < kHalf) {
    granted_ = m.credits;
    left_then_ = credits_left();
  }
  return m.has(wire::flag::kReserve) || use_receive(m.kind == wire::Kind::unused);
}

void Link::widen() {
  assert(window_ >= 1 && window_ <= tuning_.receive_depth);
  if (window_ >= most_window_) return;
  const std::uint32_t wanted = std::min(window_, most_window_ - window_), more = budget_.borrow(*this, wanted);
  short_ = more < wanted;
  if (more == 0) return;
  window_ += more;
  if (transport_.add_receives(peer_, more)) return;
  budget_.give_back(*this, more);
  window_ -= more;
}

// By the message that is looked at: its receive is not posted again, nor its credit renewed. The grant stays as it is,
// so nothing is taken back that the peer was told.
void Link::narrow() {
  assert(borrowed() > 0);
  transport_.take_receive(peer_);
  budget_.give_back(*this, 1);
  --window_;
  if (!narrowing()) most_window_ = tuning_.receive_depth;
}

// unused: the peer gives the credit back. Otherwise the window shrinks slowly: a sixteenth in as many messages as it
// has.
bool Link::use_receive(bool unused) {
  constexpr std::uint32_t kLook = 16;
  if (consumed_ == told_) return false;
  ++consumed_;
  if (unused) {
    if (borrowed() > 0) narrow();
    return true;
  }
  used_at_ = budget_.tick();
  asked_back_ = false;
  if (narrowing()) {
    narrow();
    return true;
  }
  if (holding_) return true;  // how much of the window is used cannot be seen
  most_untold_ = std::max(most_untold_, untold());
  if (consumed_ % kLook != 0) return true;
  if (borrowed() > 0 && most_untold_ < window_ / 4) narrow();
  most_untold_ = 0;
  return true;
}

void Link::lend(bool idle) {
  if (state_ != State::up || borrowed() == 0) return;
  if (idle) pool_.reserve(1);
  most_window_ = idle ? kFirstWindow : window_ - window_ / 2;
  if (!idle) return;
  asked_back_ = true;
  counters_.add(Count::credits_recalled);
  Outgoing& o = pool_.take(Outgoing::What::send, peer_);
  o.message.kind = wire::Kind::recall;
  o.message.number = most_window_;
  push(o);
}

// What waits uses them itself.
void Link::on_recall(std::uint32_t keep) {
  if (state_ != State::up || !queue_.empty()) return;
  recalled_to_ = std::max(keep, 1u);
  flush();
}

// As the path takes them: how many there are is the peer's word alone.
void Link::use_up_recalled() {
  if (!recalled_to_) return;
  while (queue_.empty() && holding_up_ == 0 && credits_left() > *recalled_to_) {
    Outgoing& o = pool_.take(Outgoing::What::send, peer_);
    o.message.kind = wire::Kind::unused;
    push(o, true);
    send_in_order();
  }
  if (credits_left() <= *recalled_to_) recalled_to_.reset();
}

bool Link::hold_credits() {
  return !std::exchange(holding_, true);
}

void Link::give_credits() {
  if (std::exchange(holding_, false)) flush();
}

void Link::release(std::uint32_t id, bool at_once) {
  if (state_ == State::down) return;
  releases_.push_back(id);
  urgent_ = urgent_ || at_once || peer_closing_;
  flush();
}

void Link::push_note() {
  if (note_queued_) return;
  Outgoing& note = pool_.take(Outgoing::What::send, peer_);
  note_queued_ = true;
  note.message.kind = wire::Kind::note;
  push(note);
}

}  // namespace ewarp::channel
