// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What begins and ends with an association, and the order of completions.
#include "rdmap/datagram/endpoint.h"

#include <algorithm>
#include <cassert>

#include "llp/siphash.h"
#include "llp/source.h"
#include "rdmap/datagram/stream.h"

namespace ewarp::rdmap {
namespace {

constexpr std::size_t kBlock = 64;
// Activities kept for the next use. Traffic that has more associations active by turns allocates.
constexpr std::size_t kSpare = 64;

using llp::rd::Ended;
using llp::rd::Ending;
using llp::rd::Lane;

// How a request that was begun ends with its association (RESET leaves delivery unknown).
Status status_by(const Ended& how, std::uint64_t name) {
  const bool named = how.message == name && how.lane == Lane::req;
  switch (how.why) {
    case Ending::unreachable:
    case Ending::refused:
      return Status::connection_lost;
    case Ending::receiver_not_ready:
      return named ? Status::no_receive : Status::remote_operation;
    case Ending::source_gone:
      return named ? Status::local_protection : Status::remote_operation;
    case Ending::local:
      return Status::flushed;
    case Ending::idle:
    case Ending::reset:
    case Ending::restarted:
    case Ending::violation:
      break;
  }
  return Status::remote_operation;
}

}  // namespace

DatagramEndpoint::DatagramEndpoint(DatagramConsumer& consumer) : consumer_(consumer) {
  static_assert(sizeof(Stream) <= 40);
}

DatagramEndpoint::~DatagramEndpoint() {
  for (Activity* act : active_) delete act;
}

llp::rd::Admission DatagramEndpoint::admit(const llp::rd::Key& key) {
  return consumer_.admit(key);
}

void DatagramEndpoint::opening(Association& a) {
  Stream& s = new_stream();
  s = Stream{{1, 1, 1, 1}, {1, 1, 1}, 0, {nullptr}};
  a.user = &s;
}

void DatagramEndpoint::established(Association&) {}

DatagramEndpoint::Stream& DatagramEndpoint::new_stream() {
  if (free_ == nullptr) {
    blocks_.push_back(std::make_unique<Stream[]>(kBlock));
    for (std::size_t i = kBlock; i-- > 0;) {
      Stream& s = blocks_.back()[i];
      s.next_free = free_;
      free_ = &s;
    }
  }
  Stream& s = *free_;
  free_ = s.next_free;
  return s;
}

void DatagramEndpoint::ended(Association& a, const Ended& how) {
  auto* s = static_cast<Stream*>(a.user);
  a.user = nullptr;
  if (wrong_of_ == &a) wrong_of_ = nullptr;
  if (s == nullptr) return;
  if (how.why == Ending::violation) ++counters.violations;
  if (Activity* act = s->activity) {
    if (act->refused) forget_refusal(*act, a);
    break_off(a, *act, how);
    act->abandoned = false;
    settle(*s);
  }
  s->next_free = free_;
  free_ = s;
  if (how.why != Ending::unreachable && how.why != Ending::refused) return;
  while (SendRequest* r = consumer_.next_send(a.key())) {
    consumer_.send_started(a.key());
    consumer_.send_done(*r, Status::connection_lost);
  }
}

void DatagramEndpoint::break_off(const Association& a, Activity& act, const Ended& how) {
  act.awaited.clear();
  act.answers.clear();
  act.answers_taken = 0;
  act.sending.end();
  act.checked = nullptr;
  act.write_open = false;
  act.closing.reset();
  if (act.receive) end_receive(a, act, Received{.status = Status::flushed});
  for (std::size_t i = 0; i < act.begun.size(); ++i) act.fail(act.first_begun + i, status_by(how, act.first_begun + i));
  complete(act);
}

void DatagramEndpoint::abandon() {
  for (Activity* act : active_) {
    act->first_begun += act->begun.size();
    act->begun.clear();
    act->awaited.clear();
    act->sending.end();
    act->checked = nullptr;
    act->closing.reset();
    act->receive.reset();
    act->holds = false;
    act->abandoned = true;
  }
  open_ = {};
}

bool DatagramEndpoint::quiet(const Association& a) const {
  const auto* s = static_cast<const Stream*>(a.user);
  return (s == nullptr || s->activity == nullptr || s->activity->idle()) && consumer_.next_send(a.key()) == nullptr;
}

bool DatagramEndpoint::awaits_rest(const Association& a) const {
  const auto* s = static_cast<const Stream*>(a.user);
  return s != nullptr && s->activity != nullptr && s->activity->receive.has_value();
}

// The address of an object is no secret, but no peer is told it.
std::size_t DatagramEndpoint::OpenReceives::slot(const Peer& peer) const {
  return llp::siphash({reinterpret_cast<std::uintptr_t>(this), 0}, llp::source_of(peer.ip)) % kEntries;
}

// What is posted, to each peer, and always one message more: the segment of a message that finds no receive waits here
// and is taken as soon as one is posted, while a peer without a credit would have to ask for it.
std::uint32_t DatagramEndpoint::message_limit(const Association& a) const {
  const auto* s = static_cast<const Stream*>(a.user);
  if (s == nullptr) return 0;
  const Activity* act = s->activity;
  const std::uint32_t next = act != nullptr ? act->queues.expected_msn(ddp::kQueueSend) : s->rx_msn[0];
  const std::uint32_t open = act != nullptr && act->receive ? 1 : 0;
  return next - 1 + open + std::max<std::uint32_t>(1, consumer_.receives());
}

llp::rd::Association* DatagramEndpoint::next_refused() {
  if (refused_.empty() || consumer_.receives() == 0) return nullptr;
  Association* a = refused_.front();
  refused_.pop_front();
  Stream& s = *static_cast<Stream*>(a->user);
  s.activity->refused = false;
  settle(s);
  return a;
}

void DatagramEndpoint::forget_refusal(Activity& act, const Association& a) {
  act.refused = false;
  for (std::size_t n = refused_.size(); n > 0; --n) {
    Association* other = refused_.front();
    refused_.pop_front();
    if (other != &a) refused_.push_back(other);
  }
}

DatagramEndpoint::Activity& DatagramEndpoint::activate(Stream& s) {
  if (s.activity != nullptr) return *s.activity;
  std::unique_ptr<Activity> act;
  if (spare_.empty()) {
    act = std::make_unique<Activity>();
  } else {
    act = std::move(spare_.back());
    spare_.pop_back();
  }
  act->place = active_.size();
  act->first_begun = act->first_answer = next_name_;
  act->queues = ddp::UntaggedQueues(ddp::kMaxQueues);
  act->queues.resume(ddp::kQueueSend, s.rx_msn[0]);
  act->queues.resume(ddp::kQueueRequest, s.rx_msn[1]);
  act->queues.resume(ddp::kQueueAtomicResponse, s.rx_msn[2]);
  active_.push_back(act.get());
  s.activity = act.release();
  return *s.activity;
}

// Keeps nothing but the MSNs of an association in which nothing is in progress.
void DatagramEndpoint::settle(Stream& s) {
  Activity* act = s.activity;
  if (act == nullptr || !act->idle() || act->checked != nullptr || act->refused || act->abandoned) return;
  s.rx_msn = {act->queues.expected_msn(ddp::kQueueSend), act->queues.expected_msn(ddp::kQueueRequest),
              act->queues.expected_msn(ddp::kQueueAtomicResponse)};
  s.activity = nullptr;
  next_name_ = std::max({next_name_, act->first_begun, act->first_answer});
  assert(act->place < active_.size() && active_[act->place] == act);
  active_[act->place] = active_.back();
  active_[act->place]->place = act->place;
  active_.pop_back();
  std::unique_ptr<Activity> owned(act);
  if (spare_.size() < kSpare) spare_.push_back(std::move(owned));
}

// In the order of submission: what is done early waits for what was begun before it.
void DatagramEndpoint::complete(Activity& act) {
  while (!act.begun.empty() && act.begun.front().done()) {
    const Activity::Begun b = act.begun.front();
    act.begun.pop_front();
    ++act.first_begun;
    consumer_.send_done(*b.request, b.status);
  }
}

}  // namespace ewarp::rdmap
