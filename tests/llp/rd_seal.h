// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Finished datagrams for tests of the reliable service, made with the codec; the codec itself is held against the
// vectors.
#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "llp/crc32c.h"
#include "llp/rd/header.h"

namespace ewarp::rdtest {

using Bytes = std::vector<std::byte>;

// Head and segment with their CRC32C.
inline Bytes seal(Octets head, Octets segment = {}) {
  Bytes out(head.begin(), head.end());
  out.insert(out.end(), segment.begin(), segment.end());
  llp::Crc32c crc;
  crc.update(out);
  std::array<std::byte, 4> field;
  crc.emit(field);
  out.insert(out.end(), field.begin(), field.end());
  return out;
}

// Any of the emit() functions that have no segment behind them.
template <class... Body>
Bytes datagram(const llp::rd::Prefix& prefix, const Body&... body) {
  std::array<std::byte, llp::rd::kMaxHeader> out;
  out.fill(std::byte{0xa5});  // a reused buffer is never clean
  return seal(Octets(out).first(emit(prefix, body..., out)));
}

template <class Segment>
Bytes datagram(const llp::rd::Prefix& prefix, const llp::rd::Data& data, const Segment& segment) {
  std::array<std::byte, llp::rd::kMaxHeader> out;
  out.fill(std::byte{0xa5});
  return seal(Octets(out).first(emit(prefix, data, segment.size(), out)), segment);
}

// What was parsed, as octets again.
inline Bytes emit_again(const llp::rd::Datagram& d) {
  using namespace llp::rd;
  if (const auto* x = std::get_if<Data>(&d.body)) return datagram(d.prefix, *x, x->segment);
  if (const auto* x = std::get_if<Open>(&d.body)) return datagram(d.prefix, *x);
  if (const auto* x = std::get_if<Close>(&d.body)) return datagram(d.prefix, *x);
  if (const auto* x = std::get_if<Reset>(&d.body)) return datagram(d.prefix, *x);
  const Ack& a = std::get<Ack>(d.body);
  std::array<SackWords, kLaneCount> words;
  for (std::size_t l = 0; l < kLaneCount; ++l)
    for (std::size_t k = 0; k < std::min<std::size_t>(kMaxWindow, a.sack[l].bits()); ++k)
      if (a.sack[l].test(k)) words[l].set(k);
  return datagram(d.prefix, a.standing, a.delay_us, words);
}

}  // namespace ewarp::rdtest
