// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "llp/rd/table.h"

#include <algorithm>
#include <cassert>

namespace ewarp::llp::rd {
namespace {

constexpr std::size_t kFirstBuckets = 16;
// How many of the associations nearest to their deadline are looked at for one that can be closed early.
constexpr std::size_t kReclaimScan = 64;

}  // namespace

Table::Table(const Config& config, Upper& upper, Wire& wire, Entropy& entropy)
    : shared_(config, upper, wire),
      entropy_(entropy),
      hash_key_{std::uint64_t{entropy.draw()} << 32 | entropy.draw(),
                std::uint64_t{entropy.draw()} << 32 | entropy.draw()},
      cookies_(
          {std::uint64_t{entropy.draw()} << 32 | entropy.draw(), std::uint64_t{entropy.draw()} << 32 | entropy.draw()}),
      by_tag_(kFirstBuckets, Slab::kNone),
      by_key_(kFirstBuckets, Slab::kNone),
      resets_(hash_key_, config.resets_per_second) {}

// --- what arrives ---

void Table::receive(Time now, const Address& from, Octets datagram, bool ce, bool more) {
  auto parsed = parse(datagram, shared_.config.without_crc);
  if (!parsed.ok()) {
    count(parsed.error());
    const auto foreign = parsed.error() == Drop::version ? foreign_open(datagram) : std::nullopt;
    if (foreign)
      reset_stranger(now, from, {Type::open, 0, 0, foreign->destination, foreign->source}, foreign->initial_tag,
                     ResetReason::version, 0, kVersion);
    return;
  }
  const Datagram& d = parsed.value();
  if (d.prefix.type == Type::open) return on_open(now, from, d.prefix, std::get<Open>(d.body));
  if (d.prefix.type == Type::reset) return on_reset(now, from, d.prefix, std::get<Reset>(d.body));

  std::uint32_t tag = 0;
  if (const auto* o = std::get_if<Open>(&d.body)) tag = o->destination_tag;
  if (const auto* s = std::get_if<Data>(&d.body)) tag = s->standing.tag;
  if (const auto* s = std::get_if<Ack>(&d.body)) tag = s->standing.tag;
  const bool farewell = d.prefix.type == Type::close && (d.prefix.flags & flag::kAcknowledgement);
  if (const auto* c = std::get_if<Close>(&d.body)) tag = c->tag;
  Association* a = by_tag(tag);
  if (a == nullptr || !belongs(*a, from, d.prefix)) {
    ++shared_.counters.dropped_tag;
    if (!farewell) reset_stranger(now, from, d.prefix, tag, ResetReason::unknown, flag::kReflected);
    return;
  }
  a->receive(now, from.port, d, ce);
  if (more && a->state_ == Association::State::established && a->may_answer_later()) {
    if (!a->late_) late_.push_back(a->place_.self);
    a->late_ = true;
    return;
  }
  a->respond(now);
  settle(now, *a);
}

bool Table::finish(Time now, bool again) {
  if (late_.empty()) return false;
  being_finished_.reserve(late_.size());  // it is late_ from here on, and takes no more than these
  being_finished_.swap(late_);
  std::size_t next = 0;
  const auto keep_the_rest = [&] {
    late_.insert(late_.end(), being_finished_.begin() + static_cast<std::ptrdiff_t>(next), being_finished_.end());
    being_finished_.clear();
  };
  try {
    while (next < being_finished_.size()) {
      const std::uint32_t i = being_finished_[next++];
      Association& a = slab_[i];
      a.late_ = false;
      if (!a.respond(now, again)) {
        late_.push_back(i);
        a.late_ = true;
      }
      settle(now, a);
    }
  } catch (...) {
    keep_the_rest();
    throw;
  }
  keep_the_rest();
  return true;
}

void Table::count(Drop why) {
  switch (why) {
    case Drop::runt:
    case Drop::type:
      ++shared_.counters.dropped_runt;
      break;
    case Drop::version:
      ++shared_.counters.dropped_version;
      break;
    case Drop::length:
      ++shared_.counters.dropped_length;
      break;
    case Drop::crc:
      ++shared_.counters.dropped_crc;
      break;
  }
}

void Table::on_open(Time now, const Address& from, const Prefix& prefix, const Open& open) {
  const Key key{from.ip, prefix.destination, prefix.source, open.qkey, from.local};
  switch (shared_.upper.admit(key)) {
    case Admission::welcome:
      break;
    case Admission::unknown:
      ++shared_.counters.dropped_qp;
      return;
    case Admission::no_resources:
      return reset_stranger(now, from, prefix, open.initial_tag, ResetReason::resources, 0);
    case Admission::qp_gone:
      return reset_stranger(now, from, prefix, open.initial_tag, ResetReason::qp_gone, 0);
  }
  if (open.initial_tag == 0 || open.max_seg < kOverhead + 128) {
    ++shared_.counters.dropped_length;
    return;
  }
  const bool proven = cookies_.good(now, key, from.port, open.initial_tag, open.cookie);
  Association* a = find(key);
  if (a == nullptr) return on_new_open(now, from, key, open, proven);

  using State = Association::State;
  const bool same = a->adopted_ && a->peer_tag_ == open.initial_tag;
  if (a->state_ == State::open_sent && !a->adopted_) {
    a->adopt(open);
    a->send_openack();
  } else if (same) {
    a->send_openack();
  } else if (a->state_ == State::close_sent || proven) {
    // The peer has begun anew: in close_sent nothing is lost by believing it.
    a->end({.why = a->state_ == State::close_sent ? Ending::idle : Ending::restarted});
    a->port_ = from.port;
    accept(now, *a, open);
  } else {
    return challenge(now, from, key, open);
  }
  settle(now, *a);
}

void Table::on_new_open(Time now, const Address& from, const Key& key, const Open& open, bool proven) {
  if (!proven && shared_.embryonic >= shared_.config.max_embryonic) return challenge(now, from, key, open);
  if (deadlines_.size() >= shared_.config.max_associations) {
    // Silence: the OPEN comes again, and by then there may be room.
    ++shared_.counters.dropped_full;
    if (!reclaim(now))
      reset_stranger(now, from, {Type::open, 0, 0, key.local_qpn, key.remote_qpn}, open.initial_tag,
                     ResetReason::resources, 0);
    return;
  }
  Association& a = create(key, from.port, nullptr);
  accept(now, a, open);
  settle(now, a);
}

void Table::challenge(Time now, const Address& from, const Key& key, const Open& open) {
  ++shared_.counters.challenges;
  Open answer;
  answer.destination_tag = open.initial_tag;
  answer.qkey = open.qkey;
  answer.cookie = cookies_.make(now, key, from.port, open.initial_tag);
  std::array<std::byte, kMaxHeader> out;
  const Prefix p{Type::openack, flag::kChallenge, 0, key.remote_qpn, key.local_qpn};
  shared_.wire.send(from, Frame{Octets(out).first(emit(p, answer, out)), {}, true, false});
}

void Table::on_reset(Time now, const Address& from, const Prefix& prefix, const Reset& reset) {
  Association* a = by_tag(reset.tag);
  if (a != nullptr && !belongs(*a, from, prefix)) a = nullptr;
  if (a == nullptr && (prefix.flags & flag::kReflected)) {
    std::uint32_t i = by_key_[key_bucket({from.ip, prefix.destination, prefix.source, 0, from.local})];
    for (; i != Slab::kNone && a == nullptr; i = slab_[i].place_.next_by_key)
      if (slab_[i].adopted_ && slab_[i].peer_tag_ == reset.tag && belongs(slab_[i], from, prefix)) a = &slab_[i];
  }
  if (a == nullptr) {
    ++shared_.counters.dropped_tag;
    return;
  }
  a->on_reset(reset.reason);
  settle(now, *a);
}

// Answers to what belongs to no association are few for each source, whatever comes.
void Table::reset_stranger(Time now, const Address& to, const Prefix& about, std::uint32_t tag, ResetReason reason,
                           std::uint8_t flags, std::uint8_t aux) {
  if (!resets_.allow(to.ip, now)) return;
  ++shared_.counters.resets_sent;
  std::array<std::byte, kMaxHeader> out;
  const Prefix p{Type::reset, flags, aux, about.source, about.destination};
  shared_.wire.send(to, Frame{Octets(out).first(emit(p, Reset{tag, reason}, out)), {}, true, false});
}

// --- what the owner does ---

void Table::wake(Time now, const Key& key, std::uint16_t port, void* user) {
  Association* a = find(key);
  if (a == nullptr) {
    a = &create(key, port, user);
    open(now, *a);
  } else {
    if (user != nullptr) a->user = user;
    a->wake(now);
  }
  settle(now, *a);
}

void Table::receives_posted(Time now, Association& a) {
  a.resume(now);
  settle(now, a);
}

void Table::abort(Time now, Association& a, ResetReason reason) {
  a.fail({.why = Ending::local, .reason = reason}, reason);
  settle(now, a);
}

std::vector<Association*> Table::all_of(std::uint32_t local_qpn) {
  std::vector<Association*> out;
  for (std::size_t i = 0; i < deadlines_.size(); ++i)
    if (deadlines_.at(i).key_.local_qpn == local_qpn) out.push_back(&deadlines_.at(i));
  return out;
}

void Table::reset_qp(Time now, std::uint32_t local_qpn, ResetReason reason) {
  for (Association* a : all_of(local_qpn)) abort(now, *a, reason);
}

void Table::leave_qp(Time now, std::uint32_t local_qpn) {
  for (Association* a : all_of(local_qpn)) {
    if (a->state_ == Association::State::close_sent) continue;
    if (a->state_ == Association::State::established && a->quiet())
      say_goodbye(now, *a);
    else
      abort(now, *a, ResetReason::qp_gone);
  }
}

void Table::say_goodbye(Time now, Association& a) {
  a.tries_ = 0;
  a.enter(Association::State::close_sent);
  a.send_close(now, false);
  settle(now, a);
}

void Table::limit_segments(const std::array<std::byte, 16>& ip, std::uint16_t max_udp_payload) {
  for (std::size_t i = 0; i < deadlines_.size(); ++i)
    if (deadlines_.at(i).key_.ip == ip) deadlines_.at(i).limit_segment(max_udp_payload);
}

void Table::expire(Time now) {
  while (!deadlines_.empty() && deadlines_.top().place_.deadline <= now) {
    Association& a = deadlines_.top();
    a.expire(now);
    settle(now, a);
  }
}

// --- the index ---

// After anything that may have changed an association: it is opened again, gone, or due at another time.
void Table::settle(Time now, Association& a) {
  if (a.state_ == Association::State::closed) {
    std::optional<std::uint32_t> first_msn;
    if (!shared_.upper.peek(a, Lane::req, &first_msn)) return remove(a);
    open(now, a);
  }
  a.watch_open_message(now);
  a.trim();
  deadlines_.update(a, a.due());
}

Association::Identity Table::identity() {
  Association::Identity id{};
  do {
    id.tag = entropy_.draw();
  } while (id.tag == 0 || by_tag(id.tag) != nullptr);
  id.isn = {entropy_.draw(), entropy_.draw()};
  return id;
}

void Table::open(Time now, Association& a) {
  unlink_tag(a);
  a.open(now, identity());
  link_tag(a);
}

void Table::accept(Time now, Association& a, const Open& open) {
  unlink_tag(a);
  a.accept(now, open, identity());
  link_tag(a);
}

bool Table::reclaim(Time now) {
  for (std::size_t i = 0; i < std::min(deadlines_.size(), kReclaimScan); ++i) {
    Association& a = deadlines_.at(i);
    if (a.state_ == Association::State::close_sent) return true;
    if (a.state_ != Association::State::established || !a.quiet()) continue;
    say_goodbye(now, a);
    return true;
  }
  return false;
}

bool Table::belongs(const Association& a, const Address& from, const Prefix& p) const {
  return a.key_.ip == from.ip && a.key_.local_qpn == p.destination && a.key_.remote_qpn == p.source;
}

// Not by the Q_Key, which a RESET does not tell.
std::size_t Table::key_bucket(const Key& key) const {
  std::array<std::byte, 28> in;
  std::copy(key.ip.begin(), key.ip.end(), in.begin());
  put_be<std::uint32_t>(in, 16, key.local_qpn);
  put_be<std::uint32_t>(in, 20, key.remote_qpn);
  put_be<std::uint32_t>(in, 24, key.local);
  return siphash(hash_key_, in) & (by_key_.size() - 1);
}

Association* Table::find(const Key& key) const {
  std::uint32_t i = by_key_[key_bucket(key)];
  while (i != Slab::kNone && !(slab_[i].key_ == key)) i = slab_[i].place_.next_by_key;
  return i == Slab::kNone ? nullptr : &slab_[i];
}

Association* Table::by_tag(std::uint32_t tag) const {
  std::uint32_t i = by_tag_[tag_bucket(tag)];
  while (i != Slab::kNone && slab_[i].own_tag_ != tag) i = slab_[i].place_.next_by_tag;
  return i == Slab::kNone ? nullptr : &slab_[i];
}

Association& Table::create(const Key& key, std::uint16_t port, void* user) {
  // What needs memory comes first.
  if (deadlines_.size() >= by_key_.size()) grow();
  deadlines_.make_room();
  const std::uint32_t i = slab_.create(shared_, key, port);
  Association& a = slab_[i];
  assert(find(key) == nullptr);
  a.place_.self = i;
  a.place_.next_by_tag = a.place_.next_by_key = Slab::kNone;
  a.user = user;
  link(a, &Association::Place::next_by_key, key_head(a));
  deadlines_.insert(a);
  return a;
}

void Table::link(Association& a, std::uint32_t Association::Place::*next, std::uint32_t& head) {
  a.place_.*next = std::exchange(head, a.place_.self);
}

void Table::unlink(Association& a, std::uint32_t Association::Place::*next, std::uint32_t& head) {
  std::uint32_t* at = &head;
  while (*at != Slab::kNone && *at != a.place_.self) at = &(slab_[*at].place_.*next);
  if (*at == a.place_.self) *at = std::exchange(a.place_.*next, Slab::kNone);
}

void Table::link_tag(Association& a) {
  link(a, &Association::Place::next_by_tag, by_tag_[tag_bucket(a.own_tag_)]);
}

void Table::unlink_tag(Association& a) {
  unlink(a, &Association::Place::next_by_tag, by_tag_[tag_bucket(a.own_tag_)]);
}

std::uint32_t& Table::key_head(const Association& a) {
  return by_key_[key_bucket(a.key_)];
}

void Table::remove(Association& a) {
  if (a.late_) std::erase(late_, a.place_.self);
  unlink_tag(a);
  unlink(a, &Association::Place::next_by_key, key_head(a));
  deadlines_.remove(a);
  slab_.destroy(a.place_.self);
}

void Table::grow() {
  assert((by_tag_.size() & (by_tag_.size() - 1)) == 0 && by_tag_.size() == by_key_.size());
  by_tag_.assign(by_tag_.size() * 2, Slab::kNone);
  by_key_.assign(by_key_.size() * 2, Slab::kNone);
  for (std::size_t i = 0; i < deadlines_.size(); ++i) {
    Association& a = deadlines_.at(i);
    link_tag(a);
    link(a, &Association::Place::next_by_key, key_head(a));
  }
}

}  // namespace ewarp::llp::rd
