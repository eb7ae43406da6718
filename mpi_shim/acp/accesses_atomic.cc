// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Atomics. Adapters add and compare-and-swap 8 octets. All else is made of the latter: what is there is read, and
// replaced if it is still there. So 4 octets are changed as half of an aligned word.
#include <cassert>
#include <cerrno>
#include <cstring>

#include "mpi_shim/acp/accesses.h"

namespace ewarp::acp {
namespace {

// What `old` becomes.
std::uint64_t changed(const Wanted& w, std::uint64_t old) {
  switch (w.what) {
    case Change::cas:
      return old == w.expected ? w.value : old;
    case Change::swap:
      return w.value;
    case Change::add:
      return old + w.value;
    case Change::exclusive_or:
      return old ^ w.value;
    case Change::inclusive_or:
      return old | w.value;
    case Change::conjunction:
      return old & w.value;
    case Change::copy:
      break;
  }
  assert(false);
  return old;
}

// The part of a word that an access names: bits behind which it begins, and its mask before shifting.
struct Part {
  unsigned shift;
  std::uint64_t mask;

  Part(std::uint64_t address, std::uint64_t octets)
      : shift(static_cast<unsigned>(address % 8) * 8), mask(octets == 8 ? ~std::uint64_t{0} : 0xffff'ffffu) {}
  std::uint64_t of(std::uint64_t word) const { return word >> shift & mask; }
  std::uint64_t in(std::uint64_t word, std::uint64_t part) const {
    return (word & ~(mask << shift)) | (part & mask) << shift;
  }
};

bool adapters_have(const Wanted& w) {
  return w.octets == 8 && (w.what == Change::cas || w.what == Change::add);
}

}  // namespace

bool Accesses::begin_atomic(std::int64_t handle) {
  Access& a = at(handle);
  if (a.from.address % a.wanted.octets != 0) return end(handle, EINVAL), true;
  if (!adapters_have(a.wanted)) return word_is_in_use(handle) || read_word(handle);
  enter(a, State::trying);
  return try_word(handle);
}

// An earlier one of this process is changing the same word: if both tried, one of them would try in vain. This one
// stays as it is, and is looked at again when the other has ended.
bool Accesses::word_is_in_use(std::int64_t handle) {
  const Access& a = at(handle);
  for (std::int64_t before = active_; before < handle; ++before) {
    const Access& b = at(before);
    const bool changes = b.wanted.what != Change::copy && (b.state == State::reading || b.state == State::trying);
    if (changes && !adapters_have(b.wanted) && b.with == GlobalAddress::parse(a.wanted.from).rank &&
        b.from.address / 8 == a.from.address / 8)
      return true;
  }
  return false;
}

bool Accesses::read_word(std::int64_t handle) {
  Access& a = at(handle);
  enter(a, State::reading);
  post(handle, GlobalAddress::parse(a.wanted.from),
       {.what = Operation::read,
        .remote = a.from.address / 8 * 8,
        .rkey = a.from.rkey,
        .local = &landing(handle).word,
        .octets = 8,
        .lkey = landing_region_.lkey});
  return true;
}

void Accesses::word_read(std::int64_t handle) {
  at(handle).seen = landing(handle).word;
  enter(at(handle), State::trying);
}

bool Accesses::try_word(std::int64_t handle) {
  Access& a = at(handle);
  if (!path_.has_room_for_access()) return false;
  const Wanted& w = a.wanted;
  const Part part(a.from.address, w.octets);
  const bool as_it_is = adapters_have(w);
  if (as_it_is && w.what == Change::cas) a.seen = w.expected;
  const std::uint64_t to_be = as_it_is ? w.value : part.in(a.seen, changed(w, part.of(a.seen)));
  post(handle, GlobalAddress::parse(w.from),
       {.what = w.what == Change::add && as_it_is ? Operation::add : Operation::swap_if,
        .remote = a.from.address / 8 * 8,
        .rkey = a.from.rkey,
        .local = &landing(handle).word,
        .octets = 8,
        .lkey = landing_region_.lkey,
        .value = to_be,
        .compare = a.seen});
  return true;
}

// A word that others have changed meanwhile is tried again, as it is now.
void Accesses::word_tried(std::int64_t handle) {
  Access& a = at(handle);
  const std::uint64_t found = landing(handle).word;
  if (!adapters_have(a.wanted) && found != a.seen) {
    a.seen = found;
    return;
  }
  store_result(handle, Part(a.from.address, a.wanted.octets).of(found));
}

void Accesses::store_result(std::int64_t handle, std::uint64_t found) {
  const Wanted& w = at(handle).wanted;
  const auto to = own_.local(GlobalAddress::parse(w.to), w.octets);
  if (to.at != nullptr) std::memcpy(to.at, &found, w.octets);
  end(handle, to.at != nullptr ? 0 : EACCES);
}

}  // namespace ewarp::acp
