// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// RECV_RNDV: a receive that comes first announces its buffer (RECEIVER_READY), and the sender, when it comes, writes
// straight into it. The immediate behind the Write names the receive, so there is no FIN.
#include <algorithm>
#include <cassert>
#include <new>

#include "mpi_shim/channel/core/machine.h"

namespace ewarp::channel {

// --- the receiver ---

// A message that may be eager comes sooner without an announcement; the copy that one would spare matters only where
// the program computes meanwhile. Which message a receive will get is known only if none before it can turn to another:
// a wildcard could.
bool Machine::may_announce(const Operation& op, bool waits, std::uint64_t* number) {
  if (!tuning_.announce || op.length <= (waits ? tuning_.eager_threshold : tuning_.always_eager())) return false;
  if (!op.exact() || posted_.wildcard_takes(op.source, op.key)) {
    counters_.add(Count::wildcard_silent);
    return false;
  }
  Link& link = *links_[op.source];
  if (self_[op.source] || link.announced >= kMostAnnounced) return false;
  if (std::find(link.retracting.begin(), link.retracting.end(), op.key) != link.retracting.end()) return false;
  const auto next = link.arrived.next(op.key);
  if (!next) return false;
  std::uint64_t ahead = 0;
  for (const Posted* p = posted_.first_exact(op.source, op.key); p != &op && ahead < kWindow;
       p = PostedReceives::next_exact(*p))
    ++ahead;
  *number = *next + ahead;
  return ahead < kWindow;
}

void Machine::announce(Operation& op, bool waits) {
  std::uint64_t number = 0;
  if (!may_announce(op, waits, &number)) return;
  Link& link = *links_[op.source];
  const Usage* usage = link.arrived.usage(op.key);
  if (tuning_.adapt && usage != nullptr && !usage->announcing()) {
    op.candidate = true;
    counters_.add(Count::announcements_withheld);
    return;
  }
  try {
    if (!expose(op, Transport::Reach::written)) return;
    pool_.reserve(1);
  } catch (const std::bad_alloc&) {  // its message finds it all the same
    return;
  }
  op.announced = true;
  op.announced_for = number;
  ++link.announced;
  counters_.add(Count::announced);
  queue_receiver_ready(op, number, 0, 0);
}

void Machine::queue_receiver_ready(const Operation& op, std::uint64_t number, std::uint8_t flags, std::uint8_t extras) {
  Outgoing& o = pool_.take(Outgoing::What::send, op.peer);
  o.message.kind = wire::Kind::receiver_ready;
  o.message.flags = flags;
  o.message.extras = extras;
  o.message.tag = op.status.tag;
  o.message.number = number;
  o.message.size = op.length;
  if (op.memory != nullptr) o.message.remote = op.memory->remote;
  o.message.id = Operations::wire_id(op);
  links_[op.peer]->push(o);
}

// What became of the announcement, made or withheld, is known.
void Machine::announcement_settled(Operation& op, bool used) {
  if (!op.announced && !op.candidate) return;
  Link& link = *links_[op.source];
  if (op.announced) {
    assert(link.announced > 0);
    --link.announced;
    counters_.add(used ? Count::announcements_used : Count::announcements_unused);
  }
  op.announced = op.candidate = false;
  if (Usage* usage = link.arrived.usage(op.key)) usage->record(used, tuning_.usage_percent);
}

// A large message would have found it, or met it on its way; a medium one only if it had reached the sender in time.
bool Machine::candidate_would_have_been_used(const Operation& op, const wire::Message& m) const {
  const bool eager = m.kind == wire::Kind::eager;
  if (eager && m.size <= tuning_.always_eager()) return false;
  return (!eager && !m.has(wire::flag::kHybrid)) || transport_.now() - op.posted_at >= round_trip_ns_;
}

// tag: of the message, where it may differ from that of the announcement.
void Machine::on_written(PeerId peer, std::uint32_t id, std::size_t size, std::optional<Tag> tag,
                         std::optional<std::uint64_t> data) {
  Operation* op = operations_.find_wire(id);
  if (op == nullptr || op->peer != peer || op->kind != Operation::Kind::receive)
    return violation(peer, "a Write for a receive that is not there");
  if (op->state() == Operation::State::expected) return end(*op, Error::none);
  if (op->state() != Operation::State::posted || !op->announced || size > op->length ||
      (tag && key_of(*tag) != op->key) || !links_[peer]->arrived.arrived(op->key, op->announced_for))
    return violation(peer, "a Write for a receive that was not announced");
  posted_.remove(*op);
  counters_.add(Count::received_expected);
  announcement_settled(*op, true);
  op->status.tag = tag.value_or(op->tag);
  op->status.length = size;
  op->status.data = data;
  end(*op, Error::none);
}

// --- the sender ---

// Large messages go by Write whether the announcement came before, or crossed SENDER_READY, or answers it: what waits
// is found by the message's number, and everything else is for the future or of the past.
void Machine::on_receiver_ready(PeerId peer, const wire::Message& m) {
  const Announcement a{.number = m.number, .tag = m.tag, .capacity = m.size, .remote = m.remote, .id = m.id};
  const bool answer = m.has(wire::flag::kAnswer);
  if (!answer) counters_.add(Count::got_announcements);
  Operation* op = waiting_.first({peer, key_of(m.tag)});
  while (op != nullptr && op->number != m.number) op = Waiting::next(*op);
  if (op != nullptr) {
    waiting_.remove(*op);
    if (!answer) counters_.add(Count::got_used);
    counters_.add(answer ? Count::send_rndv_write : Count::recv_rndv);
    // Who announced has a receive for it. What is dropped is told by the answer.
    if (answer && !m.has_extra(wire::extra::kTaken)) op->head = 0;
    return write_into(*op, a);
  }
  if (answer) return violation(peer, "an answer to no SENDER_READY");
  switch (links_[peer]->sent.store(key_of(m.tag), a)) {
    case SentNumbers::Verdict::stored:
      return;
    case SentNumbers::Verdict::old:
      return counters_.add(Count::got_crossed);
    case SentNumbers::Verdict::violation:
      return violation(peer, "an announcement out of bounds");
  }
}

// The tag and what is attached went along with SENDER_READY, if there was one. Otherwise an immediate says that the tag
// is the announced one, by a bit that what is attached is the same as last time, and by what it wrote how long the
// message is; or a message carries them. A message that is done at once is not paced: nothing of ours may pass it.
void Machine::write_into(Operation& op, const Announcement& a, const std::optional<HybridBuffers::Buffer>& copy) {
  Link& link = *links_[op.peer];
  const bool unannounced = op.state() != Operation::State::waiting, untold = op.attached && unannounced;
  const std::size_t whole = std::min<std::uint64_t>(op.length, a.capacity), head = std::min(op.head, whole);
  const std::size_t length = whole - head;
  const wire::Remote target{.address = a.remote.address + head, .key = a.remote.key};
  const bool immediate = transport_.has_immediate(op.peer) && length <= transport_.longest_transfer() &&
                         (!untold || op.attached == link.data_told) && (!unannounced || op.tag == a.tag);
  const auto unheard = unannounced ? std::optional(op.key) : std::nullopt;
  Operation* const ended = op.confirm || copy ? nullptr : &op;
  wire::Message written;
  written.kind = wire::Kind::written;
  written.tag = op.tag;
  written.number = op.number;
  written.size = op.length;
  written.id = a.id;
  if (untold) attach(written, op);
  op.enter(Operation::State::underway);
  pool_.reserve(most_requests(length));  // from here on nothing fails for want of memory
  Outgoing* const notice = immediate ? nullptr : &pool_.take(Outgoing::What::send, op.peer);
  Outgoing* const confirm = take_confirm(op);
  Outgoing& o = push_pieces(op.peer, immediate ? Outgoing::What::write_immediate : Outgoing::What::write,
                            {(copy ? copy->data : op.data) + head, length}, copy ? copy->memory : op.memory, target,
                            !copy, unheard);
  o.immediate = a.id | (untold ? wire::kSameData : 0);
  o.tells_length = immediate && unannounced;
  o.message = written;
  o.operation = immediate ? ended : nullptr;
  if (copy) o.buffer = copy->id;
  link.push(o);
  if (notice != nullptr) {
    counters_.add(Count::written_notices);
    notice->message = written;
    notice->unheard = unheard;
    notice->operation = ended;
    link.push(*notice);
  }
  if (confirm != nullptr) return static_cast<void>(link.push(*confirm));
  if (!copy) return;
  counters_.add(Count::recv_rndv_copied);
  finish(op, Error::none);
}

}  // namespace ewarp::channel
