// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "mpi_shim/gravel/core/entry.h"

#include <bit>

#include "mpi_shim/gravel/core/words.h"

namespace ewarp::gravel {
namespace {

constexpr std::size_t kWords = Entry::kOctets / 4;
using Words = std::array<std::uint32_t, kWords>;

// The last word of these: a mix (that of MurmurHash3) of all others and the number. Not 0, so memory that was never
// written has no entry.
std::uint32_t publish(const Words& words, std::uint32_t number) {
  std::uint32_t h = number;
  for (std::size_t i = 0; i + 1 < kWords; ++i) {
    h ^= std::rotl(words[i] * 0xcc9e2d51u, 15) * 0x1b873593u;
    h = std::rotl(h, 13) * 5 + 0xe6546b64u;
  }
  h ^= h >> 16;
  h *= 0x85ebca6bu;
  h ^= h >> 13;
  return h == 0 ? 1 : h;
}

}  // namespace

EntryOctets emit(const Entry& e, std::uint32_t number) {
  Words w = {high(e.remote.address),
             low(e.remote.address),
             high(e.size),
             low(e.size),
             e.remote.key,
             static_cast<std::uint32_t>(e.tag),
             e.request,
             0};
  w.back() = publish(w, number);
  EntryOctets out;
  for (std::size_t i = 0; i < kWords; ++i) store_word(out.data() + 4 * i, w[i]);
  return out;
}

std::optional<Entry> read(const std::byte* slot, std::uint32_t number) {
  Words w;
  for (std::size_t i = kWords; i-- > 0;) w[i] = load_word(slot + 4 * i);
  if (w.back() != publish(w, number)) return std::nullopt;
  return Entry{.size = whole(w[2], w[3]),
               .remote = {.address = whole(w[0], w[1]), .key = w[4]},
               .tag = static_cast<int>(w[5]),
               .request = w[6]};
}

}  // namespace ewarp::gravel
