// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "mpi_shim/channel/core/machine.h"

#include <algorithm>
#include <cassert>
#include <new>
#include <utility>

#include "mpi_shim/channel/core/room.h"

namespace ewarp::channel {

Machine::Machine(const Tuning& tuning, Transport& transport)
    : tuning_(tuning),
      transport_(transport),
      budget_(Link::shared_receives(tuning)),
      posted_(tuning.ignored_bits),
      unexpected_(tuning.ignored_bits),
      hybrid_buffers_(transport, tuning.hybrid_threshold, tuning.hybrid_buffers) {}

Machine::~Machine() {
  while (Arrival* a = unexpected_.first()) {
    unexpected_.remove(*a);
    delete static_cast<Stored*>(a);
  }
}

PeerId Machine::add_peer(bool self) {
  const auto peer = static_cast<PeerId>(links_.size());
  make_room(links_, self_);
  links_.push_back(std::make_unique<Link>(peer, tuning_, transport_, pool_, budget_, counters_));
  self_.push_back(self);
  return peer;
}

// --- requests ---

Operation* Machine::start(Operation::Kind kind, PeerId peer, MutableOctets buffer, bool large) {
  Operation* op = operations_.start(kind, peer);
  if (op == nullptr) return nullptr;
  op->enter(Operation::State::underway);
  op->status.source = peer;
  op->data = buffer.data();
  op->length = buffer.size();
  op->large = large || buffer.size() > tuning_.always_eager();
  ++pending_;
  if (op->large) ++large_;
  if (peer == kAnySource) return op;
  ++links_[peer]->pending;
  if (kind != Operation::Kind::receive) wait_for(peer);  // a receive may have its message already
  return op;
}

// The call that began it finds no memory, and nothing of it is out: as if it had never been.
void Machine::forget(Request request) {
  Operation* op = operations_.find(request);
  if (op == nullptr) return;
  settle(*op, Error::no_memory);
  operations_.free(*op);
}

void Machine::settle(Operation& op, Error error) {
  if (error == Error::none && op.kind == Operation::Kind::receive && op.status.length > op.length) {
    error = Error::truncated;
    counters_.add(Count::truncated);
  }
  op.status.error = error;
  assert(!op.releasing() || releasing_ > 0);
  if (op.releasing()) --releasing_;
  op.enter(Operation::State::done);
  if (op.memory != nullptr) transport_.conceal(std::exchange(op.memory, nullptr));
  assert(pending_ > 0 && (!op.large || large_ > 0));
  --pending_;
  if (op.large) --large_;
  if (op.peer == kAnySource) return;
  assert(links_[op.peer]->pending > 0);
  --links_[op.peer]->pending;
}

// What is told is put aside first: the listener comes last, when the request is gone.
void Machine::finish(Operation& op, Error error) {
  settle(op, error);
  const Report report = op.report;
  if (report.listener == nullptr) return;
  // A multi-receive itself ends only here when it is cancelled or its peer is gone: its messages are over.
  Completion completion{.context = report.context,
                        .label = report.label,
                        .status = op.status,
                        .buffer = op.buffer(),
                        .released = op.multi};
  Operation* parent = op.parent;
  operations_.free(op);
  if (parent != nullptr) completion.released = leave_parent(*parent);
  report.listener->on_done(completion);
  if (parent != nullptr && !completion.released && parent->children == 0 && parent->fate != Error::none)
    finish(*parent, parent->fate);
}

// A message of a multi-receive has come to its end. True: with it the whole buffer is free.
bool Machine::leave_parent(Operation& parent) {
  assert(parent.multi && parent.children > 0);
  --parent.children;
  if (parent.children > 0 || parent.state() != Operation::State::spent || parent.fate != Error::none) return false;
  settle(parent, Error::none);
  operations_.free(parent);
  return true;
}

// While its messages are coming, the buffer of a multi-receive is not free.
void Machine::end_posted(Operation& op, Error error) {
  posted_.remove(op);
  if (op.children == 0) return finish(op, error);
  op.enter(Operation::State::spent);
  op.fate = error;
}

std::optional<Status> Machine::test(Request request) {
  Operation* op = operations_.find(request);
  if (op == nullptr || !op->done()) return std::nullopt;
  const Status status = op->status;
  operations_.free(*op);
  return status;
}

bool Machine::done(Request request) const {
  const Operation* op = operations_.find(request);
  return op != nullptr && op->done();
}

bool Machine::pending_request(Request request) const {
  const Operation* op = operations_.find(request);
  return op != nullptr && !op->done();
}

void Machine::violation(PeerId peer, const char* what) {
  counters_.add(Count::protocol_errors);
  transport_.fail(peer, what);
}

bool Machine::expose(Operation& op, Transport::Reach reach) {
  if (op.length == 0 || op.memory != nullptr) return true;
  op.memory = transport_.expose(op.buffer(), reach);
  return op.memory != nullptr;
}

void Machine::queue_control(PeerId peer, wire::Kind kind, Tag tag, std::uint64_t number) {
  Outgoing& o = pool_.take(Outgoing::What::send, peer);
  o.message.kind = kind;
  o.message.tag = tag;
  o.message.number = number;
  links_[peer]->push(o);
}

// --- sending ---

// Whether so many octets may be copied where the path is full. If nothing waits, they may, however many.
bool Machine::may_inject(PeerId peer, std::size_t octets) const {
  assert(octets <= tuning_.eager_threshold);
  const std::size_t waiting = links_[peer]->copied;
  return waiting == 0 || waiting + octets <= tuning_.copy_limit;
}

// Everything that can fail comes before the message gets its number: a number that is never sent would leave the
// receiver's announcements one off.
Request Machine::send(PeerId peer, Tag tag, Octets data, const SendOptions& options,
                      const std::optional<HybridBuffers::Buffer>& copy) {
  assert(!options.inject || !options.synchronous);
  if (options.inject && !may_inject(peer, data.size())) return {};
  Request name;
  std::optional<HybridBuffers::Buffer> copied = copy;
  try {
    // A send only reads what it is given.
    Operation* op = start(Operation::Kind::send, peer, {const_cast<std::byte*>(data.data()), data.size()},
                          options.synchronous || options.delivered);
    if (op != nullptr) {
      name = Operations::name(*op);
      begin_send(*op, tag, options, copied);
    } else if (copied) {
      hybrid_buffers_.give(copied->id, peer);
    }
  } catch (const std::bad_alloc&) {
    if (copied) hybrid_buffers_.give(copied->id, peer);
    forget(name);
    throw;
  }
  return name;
}

void Machine::begin_send(Operation& op, Tag tag, const SendOptions& options,
                         std::optional<HybridBuffers::Buffer>& copied) {
  op.tag = tag;
  op.key = key_of(tag);
  op.status.tag = tag;
  op.status.length = op.length;
  op.report = options.report;
  op.attached = options.data;
  op.confirm = options.delivered;
  if (self_[op.peer])
    send_to_self(op, options);
  else if (links_[op.peer]->state() == Link::State::down)
    finish(op, Error::peer_down);  // its buffers are free already
  else
    choose_protocol(op, options, copied);
}

// Of the transport's, for a transfer and what may belong to it.
std::size_t Machine::most_requests(std::size_t octets) const {
  constexpr std::size_t kBehind = 2;  // WRITTEN or TOLD, and what confirms it
  return octets / transport_.longest_transfer() + 1 + kBehind;
}

// A transfer in pieces that the adapter takes. The last one is the caller's, to be completed and pushed: it ends behind
// the others, and lets them go.
Outgoing& Machine::push_pieces(PeerId peer, Outgoing::What what, MutableOctets memory, const Exposed* exposed,
                               wire::Remote remote, bool paced, std::optional<Tag> unheard) {
  const std::size_t most = transport_.longest_transfer();
  for (;; memory = memory.subspan(most), remote.address += most) {
    Outgoing& o = pool_.take(what, peer);
    o.data = memory.data();
    o.length = std::min(memory.size(), most);
    o.memory = exposed;
    o.remote = remote;
    o.paced = paced;
    o.unheard = unheard;
    if (memory.size() <= most) return o;
    links_[peer]->push(o, true);
  }
}

bool Machine::goes_hybrid(std::size_t length, const SendOptions& options) const {
  return length > tuning_.eager_threshold && length <= tuning_.hybrid_threshold && !options.synchronous &&
         !options.delivered;
}

std::optional<HybridBuffers::Buffer> Machine::copy_ahead(PeerId peer, Octets data, const SendOptions& options) {
  if (self_[peer] || links_[peer]->state() == Link::State::down || !goes_hybrid(data.size(), options)) return {};
  return copy(peer, data);
}

// copied: none when it is the message's, or the peer's.
void Machine::choose_protocol(Operation& op, const SendOptions& options, std::optional<HybridBuffers::Buffer>& copied) {
  SentNumbers& sent = links_[op.peer]->sent;
  const bool always_eager = !options.synchronous && (options.inject || op.length <= tuning_.always_eager());
  const Announcement* next = always_eager ? nullptr : sent.peek(op.key);
  const bool announced = next != nullptr && next->capacity >= op.length;
  if (!announced && !options.synchronous && op.length <= tuning_.eager_threshold) {
    reserve_message(op.length);
    const SentNumbers::Turn turn = sent.take(op.key);
    op.number = turn.number;
    if (turn.announcement) counters_.add(Count::got_mispredicted);
    return send_eager(op, options.inject);
  }
  if (!copied && !announced && goes_hybrid(op.length, options)) {
    copied = copy(op.peer, op.buffer());
    if (!copied) counters_.add(Count::hybrid_without_buffer);
  }
  const bool read = !announced && tuning_.rendezvous_by_read;
  if (!copied && !expose(op, read ? Transport::Reach::read : Transport::Reach::own))
    return finish(op, Error::no_memory);

  pool_.reserve(most_requests(op.length));
  const SentNumbers::Turn turn = sent.take(op.key);
  const auto copy_of_it = std::exchange(copied, std::nullopt);
  op.number = turn.number;
  if (turn.announcement) counters_.add(announced ? Count::got_used : Count::got_too_small);
  if (announced) {
    counters_.add(Count::recv_rndv);
    return write_into(op, *turn.announcement, copy_of_it);
  }
  const std::uint8_t declined = turn.announcement ? wire::flag::kDeclined : std::uint8_t{0};
  return copy_of_it ? send_hybrid(op, *copy_of_it, declined) : send_ready(op, declined);
}

void Machine::attach(wire::Message& m, const Operation& op) {
  if (!op.attached) return;
  m.extras |= wire::extra::kData;
  m.data = *op.attached;
}

// Small ones are copied, as nobody would expect such a send to wait for its receive.
void Machine::send_to_self(Operation& op, const SendOptions& options) {
  counters_.add(Count::self);
  wire::Message m;
  m.kind = wire::Kind::eager;
  m.tag = op.tag;
  m.size = op.length;
  m.extras = op.attached ? wire::extra::kData : std::uint8_t{0};
  m.data = op.attached.value_or(0);
  const bool waits = options.synchronous || (op.length > tuning_.hybrid_threshold && !options.inject);
  op.enter(Operation::State::waiting);
  arrived({.source = op.peer, .message = m, .payload = op.buffer(), .own = waits ? &op : nullptr});
  if (!waits) finish(op, Error::none);
}

// --- one-sided ---

Request Machine::one_sided(PeerId peer, MutableOctets memory, wire::Remote remote, Outgoing::What what,
                           const SendOptions& options) {
  if (options.inject && !may_inject(peer, memory.size())) return {};
  Operation* op = start(Operation::Kind::one_sided, peer, memory);
  if (op == nullptr) return {};
  const Request name = Operations::name(*op);
  op->status.length = memory.size();
  op->report = options.report;
  op->attached = options.data;
  op->confirm = options.delivered;
  try {
    begin_one_sided(*op, remote, what, options);
  } catch (const std::bad_alloc&) {
    forget(name);
    throw;
  }
  return name;
}

void Machine::begin_one_sided(Operation& op, wire::Remote remote, Outgoing::What what, const SendOptions& options) {
  const bool reads = what == Outgoing::What::read;
  if (self_[op.peer]) {
    std::byte* other = reinterpret_cast<std::byte*>(remote.address);
    std::copy_n(reads ? other : op.data, op.length, reads ? op.data : other);
    if (options.data) hear_of_put(op.peer, op.length, *options.data);
    finish(op, Error::none);
  } else if (links_[op.peer]->state() == Link::State::down) {
    finish(op, Error::peer_down);
  } else if (reads && op.length == 0) {
    finish(op, Error::none);
  } else if (op.length > tuning_.eager_threshold &&
             !expose(op, reads ? Transport::Reach::written : Transport::Reach::own)) {
    finish(op, Error::no_memory);
  } else {
    push_one_sided(op, remote, what, options.inject);
  }
}

void Machine::push_one_sided(Operation& op, wire::Remote remote, Outgoing::What what, bool inject) {
  pool_.reserve(most_requests(op.length));  // from here on nothing fails for want of memory
  Link& link = *links_[op.peer];
  Outgoing *const told = take_told(op), *const confirm = take_confirm(op);
  Outgoing& o = push_pieces(op.peer, what, op.buffer(), op.memory, remote);
  o.inject = inject;
  o.operation = op.confirm || inject ? nullptr : &op;
  const bool gone = link.push(o);
  if (inject && !gone && !link.copy_payload(o)) lose_message(op.peer);
  if (told != nullptr) link.push(*told);
  if (confirm != nullptr) link.push(*confirm);
  if (inject && confirm == nullptr) finish(op, Error::none);
}

// Null if nothing is attached.
Outgoing* Machine::take_told(const Operation& op) {
  if (!op.attached) return nullptr;
  Outgoing& o = pool_.take(Outgoing::What::send, op.peer);
  o.message.kind = wire::Kind::told;
  o.message.size = op.length;
  attach(o.message, op);
  return &o;
}

// A Read behind the Write: its answer comes when the Write's data is in place. Null if nobody wants to know that.
Outgoing* Machine::take_confirm(Operation& op) {
  if (!op.confirm) return nullptr;
  Outgoing& o = pool_.take(Outgoing::What::confirm, op.peer);
  o.operation = &op;
  return &o;
}

Request Machine::put(PeerId peer, Octets source, wire::Remote target, const SendOptions& options) {
  counters_.add(Count::puts);
  return one_sided(peer, {const_cast<std::byte*>(source.data()), source.size()}, target, Outgoing::What::write,
                   options);
}

Request Machine::get(PeerId peer, MutableOctets target, wire::Remote source, const Report& report) {
  counters_.add(Count::gets);
  return one_sided(peer, target, source, Outgoing::What::read, {.report = report});
}

}  // namespace ewarp::channel
