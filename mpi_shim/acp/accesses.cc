// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "mpi_shim/acp/accesses.h"

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

namespace ewarp::acp {

Accesses::Accesses(Path& path, OwnRegions& own, std::uint32_t starter_octets)
    : path_(path),
      own_(own),
      starter_octets_(starter_octets),
      cache_(new RegionCache),
      ring_(new Access[kMost]()),
      landings_(new Landing[kMost]()),
      bounce_(new std::byte[kBounce]) {
  if (!path_.transport.register_memory(landings_.get(), kMost * sizeof(Landing), &landing_region_) ||
      !path_.transport.register_memory(bounce_.get(), kBounce, &bounce_region_))
    throw std::bad_alloc();
}

Accesses::~Accesses() {
  for (const auto& r : {landing_region_, bounce_region_})
    if (r.handle != nullptr) path_.transport.deregister(r.handle);
}

bool Accesses::allowed(State from, State to) {
  using enum State;
  switch (from) {
    case ordered:
      return to != ordered;
    case finding:
    case moving:
    case trying:
      return to == ordered || to == done;
    case reading:
      return to == trying || to == ordered || to == done;
    case done:
      return false;
  }
  return false;
}

void Accesses::enter(Access& a, State to) {
  assert(allowed(a.state, to));
  a.state = to;
}

std::int64_t Accesses::last_of(std::int64_t handle) const {
  const bool all = handle == kAll || handle == kContinue || handle >= next_;
  return all ? next_ - 1 : handle;
}

int Accesses::check(const Wanted& w) const {
  const std::uint64_t least = w.what == Change::copy ? 1 : w.octets;
  for (const std::uint64_t ga : {w.to, w.from}) {
    if (ga == 0) return EINVAL;
    const GlobalAddress place = GlobalAddress::parse(ga);
    if (place.rank >= path_.peers.procs()) return EINVAL;
    if (place.tag == 0 && (place.offset > starter_octets_ || w.octets > starter_octets_ - place.offset)) return EINVAL;
    const bool own = place.rank == path_.rank;
    if (own && own_.local(place, w.octets).at == nullptr) return EACCES;
    if (!own && path_.peers[place.rank].gone) return ECONNRESET;
  }
  if (w.what == Change::copy) return 0;
  const GlobalAddress to = GlobalAddress::parse(w.to), from = GlobalAddress::parse(w.from);
  if (to.rank != path_.rank) return EINVAL;
  // Where a region of another process begins is known later: store of an atomic that is not aligned fails then.
  return from.tag == 0 && from.offset % least != 0 ? EINVAL : 0;
}

std::int64_t Accesses::begin(const Wanted& wanted) {
  if (const int error = check(wanted)) return errno = error, 0;
  const std::int64_t handle = next_++;
  Access& a = at(handle);
  a = {};
  a.wanted = wanted;
  a.wanted.order = wanted.order == 0 ? 0 : std::min(last_of(wanted.order), handle - 1);
  restless_ = true;
  return handle;
}

bool Accesses::has_room() {
  if (next_ - first_ < kMost) return true;
  if (first_ == active_) return false;
  if (const int error = at(first_).error; error != 0) {
    if (forgotten_.error == 0) forgotten_ = {first_, error};
    last_forgotten_ = {first_, error};
  }
  ++first_;
  return true;
}

int Accesses::take(std::int64_t handle) {
  const std::int64_t last = last_of(handle);
  int error = 0;
  if (forgotten_.error != 0 && last >= forgotten_.handle) {
    error = forgotten_.error;
    // Of those between the two the numbers are not kept: what is asked for next hears of the last.
    forgotten_ = last_forgotten_.handle > last ? last_forgotten_ : Failure{};
  }
  for (; first_ <= last; ++first_)
    if (error == 0) error = at(first_).error;
  return error;
}

void Accesses::end(std::int64_t handle, int error) {
  Access& a = at(handle);
  a.error = error;
  enter(a, State::done);
  if (bounce_user_ == handle) bounce_user_ = 0;
  while (active_ < next_ && at(active_).state == State::done) ++active_;
  restless_ = true;
}

void Accesses::post(std::int64_t handle, const GlobalAddress& with, Post p) {
  p.id = id_of(Subject::access, static_cast<std::uint64_t>(handle));
  p.peer = with.rank;
  p.lane = Lane::accesses;
  at(handle).with = with.rank;
  ++at(handle).under_way;
  path_.post(p);
}

void Accesses::advance() {
  if (!restless_) return;
  restless_ = false;
  for (std::int64_t handle = active_; handle < next_; ++handle)
    if (!step(handle)) {
      restless_ = true;
      return;
    }
}

bool Accesses::step(std::int64_t handle) {
  switch (at(handle).state) {
    case State::ordered:
      return start(handle);
    case State::moving:
      return move(handle);
    case State::trying:
      return at(handle).under_way != 0 || try_word(handle);
    case State::finding:
    case State::reading:
    case State::done:
      return true;
  }
  return true;
}

bool Accesses::start(std::int64_t handle) {
  Access& a = at(handle);
  const Wanted& w = a.wanted;
  if (w.order >= active_) return true;
  if (forgotten_.error != 0 && w.order >= forgotten_.handle) return end(handle, ECANCELED), true;
  for (std::int64_t before = first_; before <= w.order; ++before)
    if (at(before).error != 0) return end(handle, ECANCELED), true;
  const bool atomic = w.what != Change::copy;
  const bool inward = GlobalAddress::parse(w.to).rank == path_.rank,
             outward = GlobalAddress::parse(w.from).rank == path_.rank;
  if (!path_.has_room_for_access()) return false;
  if ((atomic || !outward) && !resolve(handle, w.from, w.octets, &a.from)) return true;
  if (!atomic && !inward && !resolve(handle, w.to, w.octets, &a.to)) return true;
  if (atomic) return begin_atomic(handle);
  enter(a, State::moving);
  return move(handle);
}

// False: not yet, or never; the state says so. Requires: room for a post.
bool Accesses::resolve(std::int64_t handle, std::uint64_t ga, std::uint64_t octets, Target* out) {
  if (out->known) return true;
  const GlobalAddress place = GlobalAddress::parse(ga);
  const Peer& peer = path_.peers[place.rank];
  if (place.rank == path_.rank) {
    const auto own = own_.local(place, octets);
    *out = {reinterpret_cast<std::uintptr_t>(own.at), own.rkey, own.at != nullptr, false};
  } else if (place.tag == 0) {
    *out = {peer.contact.address + sizeof(Area) + place.offset, peer.contact.rkey, true, false};
  } else {
    const bool believed = out->read || (!at(handle).again && peer.refusals < kMostRefusals);
    const RegionEntry* entry = believed ? cache_->find(place) : nullptr;
    if (entry == nullptr) return read_entry(handle, place, out);
    if (place.offset <= entry->octets && octets <= entry->octets - place.offset)
      *out = {entry->address + place.offset, entry->rkey, true, out->read};
    else if (!out->read)
      return read_entry(handle, place, out);
  }
  if (!out->known) end(handle, EACCES);
  return out->known;
}

bool Accesses::read_entry(std::int64_t handle, const GlobalAddress& ga, Target* out) {
  const Contact& contact = path_.peers[ga.rank].contact;
  enter(at(handle), State::finding);
  out->read = true;
  at(handle).seen = ga.emit();
  post(handle, ga,
       {.what = Operation::read,
        .remote = contact.address + offsetof(Area, regions) + ga.tag * sizeof(RegionEntry),
        .rkey = contact.rkey,
        .local = &landing(handle).entry,
        .octets = sizeof(RegionEntry),
        .lkey = landing_region_.lkey});
  return false;
}

void Accesses::entry_read(std::int64_t handle) {
  cache_->put(GlobalAddress::parse(at(handle).seen), landing(handle).entry);
  enter(at(handle), State::ordered);
}

bool Accesses::move(std::int64_t handle) {
  const Wanted& w = at(handle).wanted;
  const GlobalAddress to = GlobalAddress::parse(w.to), from = GlobalAddress::parse(w.from);
  const bool inward = to.rank == path_.rank, outward = from.rank == path_.rank;
  if (!inward && !outward) return relay(handle);
  if (!inward || !outward) return move_with(handle, outward);
  const auto target = own_.local(to, w.octets), source = own_.local(from, w.octets);
  const bool there = target.at != nullptr && source.at != nullptr;
  if (there) std::memmove(target.at, source.at, w.octets);
  end(handle, there ? 0 : EACCES);
  return true;
}

// Writes (out) or Reads.
bool Accesses::move_with(std::int64_t handle, bool out) {
  Access& a = at(handle);
  const Wanted& w = a.wanted;
  const auto local = own_.local(GlobalAddress::parse(out ? w.from : w.to), w.octets);
  if (local.at == nullptr) {
    // Its region has been removed: nothing more is posted.
    if (a.under_way == 0) end(handle, EACCES);
    return true;
  }
  const Target& remote = out ? a.to : a.from;
  while (a.error == 0 && a.posted < w.octets && a.under_way < kMostChunks) {
    if (!path_.has_room_for_access()) return false;
    const auto n = static_cast<std::uint32_t>(std::min<std::uint64_t>(w.octets - a.posted, kChunk));
    post(handle, GlobalAddress::parse(out ? w.to : w.from),
         {.what = out ? Operation::write : Operation::read,
          .remote = remote.address + a.posted,
          .rkey = remote.rkey,
          .local = local.at + a.posted,
          .octets = n,
          .lkey = local.lkey});
    a.posted += n;
  }
  if (a.under_way == 0 && a.error == 0) end(handle, 0);  // of no octets
  return true;
}

// From one other process to another, through the bounce buffer, which one access has at a time.
bool Accesses::relay(std::int64_t handle) {
  Access& a = at(handle);
  const Wanted& w = a.wanted;
  if (a.posted == w.octets && a.under_way == 0 && !a.relaying_out) return end(handle, 0), true;
  if ((bounce_user_ != 0 && bounce_user_ != handle) || a.under_way != 0) return true;
  if (!path_.has_room_for_access()) return false;
  bounce_user_ = handle;
  const auto n = static_cast<std::uint32_t>(std::min<std::uint64_t>(w.octets - a.posted, kBounce));
  const Target& remote = a.relaying_out ? a.to : a.from;
  post(handle, GlobalAddress::parse(a.relaying_out ? w.to : w.from),
       {.what = a.relaying_out ? Operation::write : Operation::read,
        .remote = remote.address + a.posted,
        .rkey = remote.rkey,
        .local = bounce_.get(),
        .octets = n,
        .lkey = bounce_region_.lkey});
  if (a.relaying_out) a.posted += n;
  a.relaying_out = !a.relaying_out;
  return true;
}

void Accesses::completed(const Completion& c) {
  const auto handle = static_cast<std::int64_t>(of_subject(c.id));
  if (handle < active_ || handle >= next_) return;  // its peer was gone
  Access& a = at(handle);
  --a.under_way;
  if (a.state == State::done) return;
  if (a.error == 0) a.error = c.error;
  restless_ = true;
  if (a.under_way == 0) posts_done(handle);
}

void Accesses::posts_done(std::int64_t handle) {
  Access& a = at(handle);
  if (a.error == EACCES && try_again(handle)) return;
  if (a.error != 0) return end(handle, a.error);
  if (a.state == State::finding) return entry_read(handle);
  if (a.state == State::reading) return word_read(handle);
  if (a.state == State::trying) return word_tried(handle);
  const Wanted& w = a.wanted;
  const bool relays = a.to.known && a.from.known;
  if (!relays && a.posted == w.octets) end(handle, 0);
}

// True: what was refused used an entry from the cache, which is an old one, perhaps.
bool Accesses::try_again(std::int64_t handle) {
  Access& a = at(handle);
  const Wanted wanted = a.wanted;
  const auto cached = [this](std::uint64_t ga, const Target& t) {
    const GlobalAddress place = GlobalAddress::parse(ga);
    return place.rank != path_.rank && place.tag != 0 && t.known && !t.read;
  };
  if (!cached(wanted.to, a.to) && !cached(wanted.from, a.from)) return false;
  for (const std::uint64_t ga : {wanted.to, wanted.from}) cache_->doubt(GlobalAddress::parse(ga));
  Peer& peer = path_.peers[a.with];
  if (peer.refusals < kMostRefusals) ++peer.refusals;
  a = {};
  a.wanted = wanted;
  a.again = true;
  if (bounce_user_ == handle) bounce_user_ = 0;
  return true;
}

void Accesses::gone(std::uint32_t rank) {
  for (std::int64_t handle = active_; handle < next_; ++handle) {
    Access& a = at(handle);
    const bool with =
        GlobalAddress::parse(a.wanted.to).rank == rank || GlobalAddress::parse(a.wanted.from).rank == rank;
    if (!with || a.state == State::done) continue;
    // What another, who lives, has been asked for may still be placed, so that its memory is in use until then.
    if (a.under_way != 0 && a.with != rank)
      a.error = ECONNRESET;
    else
      end(handle, ECONNRESET);
  }
}

}  // namespace ewarp::acp
