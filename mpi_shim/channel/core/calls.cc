// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Questions of applications to each other, answered by whatever thread handles what comes; and what is told behind
// puts.
#include <algorithm>
#include <cassert>
#include <new>

#include "mpi_shim/channel/core/machine.h"

namespace ewarp::channel {
namespace {

constexpr std::uint32_t kMostAnswers = 4096;  // that wait, beside those to what was under way; some 2 KiB each

}  // namespace

// Copied at once: questions and answers are short, and their buffers are used again. Without memory nothing is queued.
void Machine::queue_small(PeerId peer, wire::Kind kind, std::uint32_t id, Octets payload) {
  reserve_message(payload.size());
  Outgoing& first = pool_.take(Outgoing::What::send, peer);
  first.message.kind = kind;
  first.message.id = id;
  first.message.size = payload.size();
  first.inject = true;
  push_message(first, payload);
  if (!copy_waiting()) lose_message(peer);
}

Request Machine::call(PeerId peer, Octets question, MutableOctets answer, const Report& report) {
  if (question.size() <= tuning_.eager_threshold && !may_inject(peer, question.size())) return {};
  Operation* op = start(Operation::Kind::one_sided, peer, answer, true);
  if (op == nullptr) return {};
  const Request name = Operations::name(*op);
  op->report = report;
  op->enter(Operation::State::confirming);
  counters_.add(Count::calls);
  try {
    ask(*op, question);
  } catch (const std::bad_alloc&) {
    forget(name);
    throw;
  }
  return name;
}

void Machine::ask(Operation& op, Octets question) {
  if (question.size() > tuning_.eager_threshold) {
    finish(op, Error::too_long);
  } else if (self_[op.peer]) {
    answered(op, answer_to(op.peer, question));
  } else if (links_[op.peer]->state() == Link::State::down) {
    finish(op, Error::peer_down);
  } else {
    queue_small(op.peer, wire::Kind::call, Operations::wire_id(op), question);
  }
}

// In a buffer that the next question uses again.
Octets Machine::answer_to(PeerId peer, Octets question) {
  answer_.resize(tuning_.eager_threshold);
  const std::size_t n = answerer_ != nullptr ? answerer_->on_call(peer, question, answer_) : 0;
  assert(n <= answer_.size());
  return Octets(answer_).first(n);
}

void Machine::answered(Operation& op, Octets answer) {
  std::copy_n(answer.begin(), std::min(answer.size(), op.length), op.data);
  op.status.length = answer.size();
  finish(op, Error::none);
}

// So many wait for no honest peer: where our answers do not leave, nor do the credits for its next questions.
bool Machine::may_answer(PeerId peer) const {
  return links_[peer]->answers_waiting < kMostAnswers + tuning_.receive_depth;
}

void Machine::on_call(PeerId peer, const wire::Message& m, Octets question) {
  if (!may_answer(peer)) return violation(peer, "it asks, and takes no answers");
  queue_small(peer, wire::Kind::answer, m.id, answer_to(peer, question));
}

void Machine::on_answer(PeerId peer, const wire::Message& m, Octets answer) {
  Operation* op = operations_.find_wire(m.id);
  if (op == nullptr || op->peer != peer || op->kind != Operation::Kind::one_sided ||
      op->state() != Operation::State::confirming)
    return violation(peer, "an answer to no question");
  answered(*op, answer);
}

void Machine::hear_of_put(PeerId peer, std::size_t size, std::uint64_t data) {
  if (puts_.listener == nullptr) return;
  puts_.listener->on_done({.context = puts_.context,
                           .label = puts_.label,
                           .status = {.source = peer, .length = size, .data = data},
                           .buffer = {},
                           .released = false});
}

}  // namespace ewarp::channel
