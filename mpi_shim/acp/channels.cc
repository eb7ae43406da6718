// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "mpi_shim/acp/channels.h"

#include <bit>
#include <cerrno>
#include <cstdlib>
#include <new>
#include <utility>

namespace ewarp::acp {

EndTable::EndTable() : all_(static_cast<Slot*>(std::calloc(Immediate::kEnds, sizeof(Slot)))) {
  if (all_ == nullptr) throw std::bad_alloc();
}

EndTable::~EndTable() {
  std::free(all_);
}

std::uint32_t EndTable::reserve() {
  if (free_ == Immediate::kEnds) return touched_ < Immediate::kEnds ? touched_++ : Immediate::kEnds;
  const std::uint32_t number = free_;
  free_ = all_[number].next_free;
  return number;
}

void EndTable::release(std::uint32_t number) {
  ++all_[number].generation;
  all_[number].end = nullptr;
  all_[number].next_free = free_;
  free_ = number;
}

std::uint64_t EndTable::handle(const End& end) const {
  return std::uint64_t{all_[end.number()].generation} << 32 | (end.number() + 1);
}

End* EndTable::find(std::uint64_t handle) const {
  const std::uint32_t number = static_cast<std::uint32_t>(handle) - 1;
  if (number >= touched_ || all_[number].generation != handle >> 32) return nullptr;
  return all_[number].end;
}

Channels::Channels(Path& path, Area& area, const Options& options, Listener& listener)
    : path_(path),
      area_(area),
      listener_(listener),
      send_shape_{options.slot_size, options.sb_slots, options.mode},
      receive_shape_{options.slot_size, options.rb_slots, options.mode},
      connect_requests_(area.requests) {}

Channels::~Channels() {
  ends_.each([this](End& end) { destroy(end); });
}

std::uint64_t Channels::create(int sender, int receiver) {
  const int own = static_cast<int>(path_.rank), procs = static_cast<int>(path_.peers.procs());
  const bool sends = sender == own;
  const int other = sends ? receiver : sender;
  if (sender == receiver || (!sends && receiver != own) || other < 0 || other >= procs) return errno = EINVAL, 0;
  Peer& peer = path_.peers[static_cast<std::uint32_t>(other)];
  if (peer.gone || peer.bond != Bond::whole) return errno = ECONNRESET, 0;
  const std::uint32_t number = ends_.reserve();
  if (number == Immediate::kEnds) return errno = EAGAIN, 0;
  std::uint32_t& created = sends ? peer.sends_created : peer.receives_created;
  End* end = make(sends, {.peer = static_cast<std::uint32_t>(other), .number = number, .order = created});
  if (end == nullptr) return ends_.release(number), errno = ENOMEM, 0;
  ++created;
  ends_.put(number, end);
  if (sends)
    chain(*end);
  else
    match(static_cast<Receiver&>(*end));
  return ends_.handle(*end);
}

End* Channels::make(bool sends, const Place& place) {
  const Shape& shape = sends ? send_shape_ : receive_shape_;
  void* block = std::calloc(1, sends ? Sender::block_octets(shape) : Receiver::block_octets(shape));
  if (block == nullptr) return nullptr;
  End* end = sends ? static_cast<End*>(&Sender::create(block, place, shape)) : &Receiver::create(block, place, shape);
  Registration r;
  const bool registered = sends ? path_.transport.register_memory(&static_cast<Sender*>(end)->words(),
                                                                  static_cast<Sender*>(end)->open_octets(), &r)
                                : path_.transport.register_memory(&static_cast<Receiver*>(end)->words(),
                                                                  static_cast<Receiver*>(end)->open_octets(), &r);
  if (!registered) return std::free(block), nullptr;
  end->region = r.handle;
  return end;
}

void Channels::destroy(End& end) {
  path_.transport.deregister(end.region);
  ends_.release(end.number());
  std::free(end.sends() ? static_cast<void*>(static_cast<Sender*>(&end)) : static_cast<Receiver*>(&end));
}

Request* Channels::begin(std::uint64_t channel, Kind kind, void* buffer, std::size_t octets) {
  End* end = ends_.find(channel);
  if (end == nullptr || end->freed()) return errno = EBADF, nullptr;
  if (kind != Kind::free && end->sends() != (kind == Kind::send)) return errno = EINVAL, nullptr;
  Request* r = requests_.take(kind, buffer, octets);
  if (r == nullptr) return errno = EAGAIN, nullptr;
  if (kind == Kind::free) end->set_freed();
  end->push(*r);
  chain(*end);
  return r;
}

void Channels::chain(End& end) {
  if (end.chained) return;
  end.chained = true;
  end.next = nullptr;
  (first_ == nullptr ? first_ : last_->next) = &end;
  last_ = &end;
}

void Channels::advance(std::uint64_t now) {
  for (std::uint64_t late = std::exchange(late_, 0); late != 0; late &= late - 1)
    requested(static_cast<std::uint32_t>(std::countr_zero(late)), true);
  End* end = first_;
  first_ = nullptr;
  while (end != nullptr) {
    End* next = end->next;
    end->chained = false;
    const bool again = advance_end(*end, now);
    report_loss(*end);
    const bool over = end->sends() ? static_cast<Sender*>(end)->over() : static_cast<Receiver*>(end)->over();
    if (over && !may_be_named(*end))
      destroy(*end);
    else if (again)
      chain(*end);
    end = next;
  }
}

// Mode `paper`: nothing tells of the indices that the peer has written.
void Channels::look_at_index(End& end) {
  if (send_shape_.mode != Mode::paper) return;
  if (end.sends()) {
    auto& s = static_cast<Sender&>(end);
    if (s.state() == Sender::State::open) s.look_at_head();
  } else {
    auto& r = static_cast<Receiver&>(end);
    if (r.state() == Receiver::State::open) r.look_at_tail();
  }
}

// True: to be looked at again, though nothing will tell. In mode `paper` that is so while something is waited for.
bool Channels::advance_end(End& end, std::uint64_t now) {
  look_at_index(end);
  const bool more =
      end.sends() ? static_cast<Sender&>(end).advance(*this, now) : static_cast<Receiver&>(end).advance(*this);
  const bool open = end.sends() ? static_cast<Sender&>(end).state() == Sender::State::open
                                : static_cast<Receiver&>(end).state() == Receiver::State::open;
  return more || (send_shape_.mode == Mode::paper && open && end.has_requests());
}

void Channels::match(Receiver& end) {
  Peer& peer = path_.peers[end.peer()];
  if (end.order() != peer.receives_matched) return;
  const auto request = connect_requests_.match(end.peer());
  if (!request) return;
  ++peer.receives_matched;
  end.asked(*request);
  chain(end);
}

void Channels::match_all(std::uint32_t rank) {
  ends_.each([&](End& end) {
    if (!end.sends() && end.peer() == rank) match(static_cast<Receiver&>(end));
  });
}

void Channels::completed(const Completion& c, std::uint64_t now) {
  End* end = ends_.at(static_cast<std::uint32_t>(of_subject(c.id)));
  if (end == nullptr) return;
  end->completed();
  if (c.error != 0) {
    lose(*end, c.error == EINVAL ? EIO : c.error);  // EINVAL: the two ends do not fit
    break_bond(end->peer());                        // also of an end that is over: the peer waits for what was posted
  } else if (subject_of(c.id) == Subject::claim) {
    static_cast<Sender&>(*end).claim_done(now);
  } else if (subject_of(c.id) == Subject::put) {
    static_cast<Sender&>(*end).written();
  }
  chain(*end);
}

void Channels::lose(End& end, int error) {
  if (end.sends())
    static_cast<Sender&>(end).lose(error);
  else
    static_cast<Receiver&>(end).lose(error);
  chain(end);
}

// The peer waits for this end, and cannot hear from it: the way to it is lost, or it broke the protocol. Where two ends
// do not fit, both know.
void Channels::report_loss(End& end) {
  int error = 0;
  if (end.sends()) {
    const auto& s = static_cast<const Sender&>(end);
    if (s.state() == Sender::State::lost) error = s.error();
  } else {
    const auto& r = static_cast<const Receiver&>(end);
    if (r.state() == Receiver::State::lost) error = r.error();
  }
  if (error != 0 && error != EINVAL) break_bond(end.peer());
}

void Channels::break_bond(std::uint32_t rank) {
  Peer& peer = path_.peers[rank];
  if (peer.gone || peer.bond != Bond::whole) return;
  peer.bond = Bond::breaking;
  listener_.lost(rank);
}

// What a peer that lives has posted before it heard of a loss may name this end: nobody else gets its number.
bool Channels::may_be_named(const End& end) const {
  const Peer& peer = path_.peers[end.peer()];
  return !peer.gone && peer.bond != Bond::whole;
}

// Without memory it stays in its entry, and is looked at again: who has sent it is told nothing until it is answered.
void Channels::requested(std::uint32_t entry, bool again) {
  if (entry >= ConnectRequests::kEntries) {
    ++strange_;
    return;
  }
  const std::uint32_t rank = area_.requests[entry].rank;
  try {
    if (connect_requests_.take(entry))
      match_all(rank);
    else if (!again)  // then its sender may be gone
      ++strange_;
  } catch (const std::bad_alloc&) {
    late_ |= std::uint64_t{1} << entry;
  }
}

// Throws nothing: others that were polled with it wait.
void Channels::noticed(Immediate i) {
  if (i.notice == Notice::request) return requested(i.end);
  End* end = ends_.at(i.end);
  if (end == nullptr || end->sends() == (i.notice == Notice::slot)) {
    ++strange_;
    return;
  }
  chain(*end);
  if (i.notice == Notice::slot) {
    if (!static_cast<Receiver&>(*end).arrived()) lose(*end, EPROTO);
    return;
  }
  auto& s = static_cast<Sender&>(*end);
  if (i.notice == Notice::credit && !s.credited(i.count)) lose(s, EPROTO);
  if (i.notice == Notice::closed) s.receiver_closed();
  if (i.notice == Notice::answer && s.state() == Sender::State::asking) {
    s.answered();
    ++path_.peers[s.peer()].sends_answered;
  }
}

void Channels::gone(std::uint32_t rank) {
  connect_requests_.forget(rank);
  lose_all(rank);
}

// An entry of the CRB that it has claimed stays its own: it may be about to write there.
void Channels::part(std::uint32_t rank) {
  Bond& bond = path_.peers[rank].bond;
  if (bond == Bond::broken) return;
  bond = Bond::broken;
  connect_requests_.match(rank);
  lose_all(rank);
}

void Channels::lose_all(std::uint32_t rank) {
  ends_.each([&](End& end) {
    if (end.peer() != rank) return;
    look_at_index(end);  // what came before still counts
    lose(end, ECONNRESET);
  });
}

bool Channels::drained() {
  bool out = true;
  ends_.each([&](const End& end) { out = out && (end.under_way() == 0 || path_.peers[end.peer()].gone); });
  return out;
}

}  // namespace ewarp::acp
