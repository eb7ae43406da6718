// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The calls of the application.
#include "mpi_shim/gravel/core/machine.h"

#include <cassert>
#include <utility>

namespace ewarp::gravel {

Machine::Machine(Proc self, int procs, const std::byte* boards, Carrier& carrier)
    : self_(self), carrier_(carrier), boards_(boards), peers_(index(procs)) {
  assert(self >= 0 && self < procs);
}

Error Machine::check_post(Proc proc, int tag) const {
  if (proc < 0 || proc >= procs()) return Error::rank;
  if (tag < 0) return Error::tag;
  return peer_state(proc) == PeerState::present ? Error::none : Error::peer;
}

Error Machine::check_take(Proc proc, int tag) const {
  if (proc != kAnySource && (proc < 0 || proc >= procs())) return Error::rank;
  return tag < 0 && tag != kAnyTag ? Error::tag : Error::none;
}

// --- entries ---

Error Machine::enter(Proc to, Ledger ledger, const Entry& entry) {
  LedgerWriter& writer = peer(to).out[static_cast<std::size_t>(ledger)];
  if (writer.full()) look(to);  // how much was taken
  if (peer_state(to) != PeerState::present) return Error::peer;
  if (writer.full()) return Error::full;
  const EntryOctets octets = emit(entry, writer.next());
  if (!carrier_.enter(to, board::offset(ledger, writer.next()), octets)) return Error::full;
  writer.advance();
  return Error::none;
}

// What a request begins with. If that fails, by std::bad_alloc too, there is no request.
template <class Begin>
Error Machine::or_end(RequestId name, Begin&& begin) {
  try {
    const Error e = begin();
    if (e != Error::none) requests_.end(name);
    return e;
  } catch (...) {
    requests_.end(name);
    throw;
  }
}

Error Machine::post(Request::Kind kind, Ledger ledger, Proc proc, const Local& buffer, int tag, RequestId* request) {
  if (const Error e = check_post(proc, tag); e != Error::none) return e;
  const RequestId name = requests_.begin(kind);
  if (name == 0) return Error::memory;
  const bool notice = kind == Request::Kind::notice;
  const Error e = or_end(name, [&] {
    return enter(
        proc, ledger,
        {.size = buffer.size, .remote = notice ? Remote{} : buffer.remote(), .tag = tag, .request = notice ? 0 : name});
  });
  if (e != Error::none) return e;
  Request& r = *requests_.find(name);
  r.proc = proc;
  r.own = buffer;
  if (notice) r.enter(Request::State::done);
  *request = name;
  return Error::none;
}

Error Machine::post_receive_buffer(Proc producer, const Local& buffer, int tag, RequestId* request) {
  return post(Request::Kind::receive, Ledger::receive_info, producer, buffer, tag, request);
}

Error Machine::post_send_request(Proc consumer, std::uint64_t size, int tag, RequestId* request) {
  return post(Request::Kind::notice, Ledger::send_info, consumer, {.data = nullptr, .size = size}, tag, request);
}

Error Machine::post_send_buffer(Proc consumer, const Local& buffer, int tag, RequestId* request) {
  return post(Request::Kind::offer, Ledger::send_info, consumer, buffer, tag, request);
}

// --- what peers have entered ---

bool Machine::take_from(Arrival kind, Proc proc, int tag, Entry* entry) {
  const auto found = peer(proc).arrivals.take(kind, tag);
  if (found) *entry = *found;
  return found.has_value();
}

// In turns, so that nobody is passed over. What others have entered is looked for between the calls.
Error Machine::take_from_anybody(Arrival kind, Proc* from, int tag, Entry* entry) {
  look(self_);
  for (int i = 0; i < procs(); ++i) {
    const Proc proc = (next_take_ + i) % procs();
    if (!take_from(kind, proc, tag, entry)) continue;
    *from = proc;
    next_take_ = (proc + 1) % procs();
    return Error::none;
  }
  return nobody(from);
}

Error Machine::nobody(Proc* from) {
  bool anybody = false;
  Proc gone = self_;
  for (Proc proc = 0; proc < procs(); ++proc) {
    Peer& p = peer(proc);
    if (p.state == PeerState::present) {
      anybody |= proc != self_;
      continue;
    }
    gone = proc;
    if (p.state == PeerState::left || std::exchange(p.reported, true)) continue;
    *from = proc;
    return Error::peer;
  }
  if (anybody) return Error::full;
  *from = gone;
  return Error::peer;
}

Error Machine::take(Arrival kind, Proc* from, int* tag, Entry* entry) {
  if (const Error e = check_take(*from, *tag); e != Error::none) return e;
  if (*from == kAnySource) {
    if (const Error e = take_from_anybody(kind, from, *tag, entry); e != Error::none) return e;
  } else {
    look(*from);
    if (!take_from(kind, *from, *tag, entry)) {
      if (peer_state(*from) != PeerState::present) return Error::peer;
      return *from == self_ ? Error::state : Error::full;
    }
  }
  *tag = entry->tag;
  return Error::none;
}

Error Machine::take_send_request(Proc* from, int* tag, std::uint64_t* size) {
  Entry entry;
  const Error e = take(Arrival::send_request, from, tag, &entry);
  if (e == Error::none) *size = entry.size;
  return e;
}

Error Machine::begin_transfers(Request::Kind kind, Arrival arrival, Proc* from, int* tag, std::uint64_t* size,
                               RequestId* request) {
  const RequestId name = requests_.begin(kind);
  if (name == 0) return Error::memory;
  Entry entry;
  if (const Error e = or_end(name, [&] { return take(arrival, from, tag, &entry); }); e != Error::none) return e;
  Request& r = *requests_.find(name);
  r.proc = *from;
  r.remote = entry.remote;
  r.size = *size = entry.size;
  r.peer_name = entry.request;
  r.owes_fin = true;
  *request = name;
  return Error::none;
}

Error Machine::take_send_buffer(Proc* from, int* tag, std::uint64_t* size, RequestId* request) {
  return begin_transfers(Request::Kind::fetch, Arrival::send_buffer, from, tag, size, request);
}

Error Machine::take_receive_buffer(Proc* from, int* tag, std::uint64_t* size, RequestId* request) {
  return begin_transfers(Request::Kind::put, Arrival::receive_buffer, from, tag, size, request);
}

// --- transfers ---

Error Machine::move(Request::Kind kind, RequestId request, const Local& own, std::uint64_t offset) {
  Request* r = requests_.find(request);
  if (r == nullptr || r->kind != kind) return Error::request;
  if (r->error != Error::none) return r->error;
  if (r->state() != Request::State::open) return Error::state;
  if (offset > r->size || own.size > r->size - offset) return Error::range;
  if (own.size == 0) return Error::none;
  if (r->unended == kMostTransfers) return Error::full;
  const Remote there{r->remote.address + offset, r->remote.key};
  const bool puts = kind == Request::Kind::put;
  // Counted first: a transfer to oneself ends inside the call.
  ++r->unended;
  bool taken = false;
  try {
    taken = puts ? carrier_.put(r->proc, own, there, request) : carrier_.get(r->proc, own, there, request);
  } catch (...) {
    --r->unended;
    throw;
  }
  if (!taken) {
    --r->unended;
    return Error::full;
  }
  r->moved += own.size;
  return Error::none;
}

Error Machine::put(RequestId request, const Local& source, std::uint64_t offset) {
  return move(Request::Kind::put, request, source, offset);
}

Error Machine::get(RequestId request, const Local& target, std::uint64_t offset) {
  return move(Request::Kind::fetch, request, target, offset);
}

void Machine::enter_fin(Request& r) {
  const Error e = enter(r.proc, Ledger::fin, {.size = r.moved, .request = r.peer_name});
  if (e == Error::none) r.owes_fin = false;
}

Error Machine::send_fin(RequestId request) {
  Request* r = requests_.find(request);
  if (r == nullptr || r->kind != Request::Kind::put) return Error::request;
  if (r->error != Error::none) return r->error;
  if (r->state() != Request::State::open) return Error::state;
  enter_fin(*r);
  if (r->error != Error::none) return r->error;
  if (r->owes_fin) return Error::full;
  r->enter(Request::State::closing);
  settle(*r);
  return Error::none;
}

// A FIN of a fetch waits for its transfers, which it must not overtake.
void Machine::settle(Request& r) {
  if (r.state() != Request::State::closing || r.unended > 0) return;
  if (r.owes_fin && r.error == Error::none) enter_fin(r);
  if (r.state() == Request::State::closing && (!r.owes_fin || r.error != Error::none)) r.enter(Request::State::done);
}

Error Machine::test(RequestId request, std::optional<std::uint32_t>* used) {
  Request* r = requests_.find(request);
  if (r == nullptr) return Error::request;
  if (r->awaits_fin()) look(r->proc);
  if (r->state() == Request::State::open && r->transfers()) {
    if (r->kind == Request::Kind::put && r->error == Error::none) return Error::state;
    r->enter(Request::State::closing);
  }
  settle(*r);
  if (r->state() != Request::State::done) return Error::full;
  const Error out = r->error;
  used->reset();
  if (r->kind == Request::Kind::receive || r->kind == Request::Kind::offer) *used = r->own.slot;
  requests_.end(request);
  return out;
}

Proc Machine::proc_of(RequestId request) {
  const Request* r = requests_.find(request);
  return r == nullptr ? kAnySource : r->proc;
}

}  // namespace ewarp::gravel
