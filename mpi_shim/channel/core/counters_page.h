// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The file in which an endpoint publishes its counters, PID.channel.PORT beside the pages of EtherWARP's processes
// (docs/design/channel.md): a head, then `count` names, then `count` values. All of it in the byte order of the
// machine. Names are text, so a reader need not know which counters there are. Written by the channel, read by
// `etherwarp stat`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace ewarp::channel {

struct CountersHead {
  static constexpr char kMagic[8] = {'E', 'W', 'C', 'H', 'A', 'N', '1', '\0'};  // written last
  char magic[8];
  std::uint32_t pid, count;
  char address[64];  // where the endpoint listens
};
// Zeroes behind the text, if it has fewer octets.
using CounterName = char[32];
using CounterValue = std::uint64_t;

inline constexpr char kCountersInfix[] = ".channel.";  // in the file's name, between the process and the port

constexpr std::size_t names_offset() {
  return sizeof(CountersHead);
}
constexpr std::size_t values_offset(std::size_t count) {
  return names_offset() + count * sizeof(CounterName);
}
constexpr std::size_t counters_octets(std::size_t count) {
  return values_offset(count) + count * sizeof(CounterValue);
}

// As whoever knows the number of counters maps it.
template <std::size_t kCount>
struct CountersPage {
  CountersHead head;
  CounterName names[kCount];
  CounterValue values[kCount];
};

static_assert(sizeof(CountersHead) == 80 && offsetof(CountersHead, count) == 12);
static_assert(sizeof(CountersPage<3>) == counters_octets(3) && offsetof(CountersPage<3>, values) == values_offset(3));
static_assert(std::is_trivially_copyable_v<CountersHead>);

}  // namespace ewarp::channel
