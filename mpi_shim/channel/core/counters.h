// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What the channel did, counted. docs/user/channel.md says what each counter means.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace ewarp::channel {

enum class Count : std::uint8_t {
  // Messages sent, by protocol.
  eager,
  hybrid,
  send_rndv_write,
  send_rndv_read,
  recv_rndv,
  recv_rndv_copied,  // of those of recv_rndv
  self,
  heads,  // of those of send_rndv_write and recv_rndv
  // Messages received.
  received_expected,
  received_unexpected,
  truncated,
  completions_held,
  heads_dropped,
  // Announcements. The first four by the receiver who makes them, the others by the sender who gets them.
  announced,
  announcements_used,
  announcements_unused,
  announcements_withheld,
  got_announcements,
  got_used,
  got_crossed,
  got_mispredicted,
  got_too_small,
  got_retracted,
  got_evicted,
  wildcard_silent,
  counter_evictions,
  // Octets and buffers.
  eager_copies,
  eager_copied_octets,
  hybrid_without_buffer,
  releases_piggybacked,
  notes,
  written_notices,
  writes_divided,
  writes_passed,
  path_full,
  credits_held_back,
  credits_recalled,
  // Requests.
  cancelled,
  retractions,
  puts,
  gets,
  calls,
  // Peers.
  connections,
  peers_lost,
  protocol_errors,
  // The transport and the progress thread.
  registrations,
  registration_hits,
  registrations_kept,
  registrations_invalidated,
  frequent_buffer_sends,
  bounce_copies,
  progress_wakeups,
  progress_takeovers,
  kCount
};

class Counters {
 public:
  static constexpr std::size_t kSize = static_cast<std::size_t>(Count::kCount);

  Counters() = default;
  // A copy is what they are now, wherever they are counted.
  Counters(const Counters& other) { *this = other; }
  Counters& operator=(const Counters& other) {
    std::copy_n(other.values_, kSize, values_);
    return *this;
  }

  void add(Count c, std::uint64_t n = 1) { values_[static_cast<std::size_t>(c)] += n; }
  std::uint64_t operator[](Count c) const { return values_[static_cast<std::size_t>(c)]; }
  static const char* name(Count c);
  // One "name value" per line, without those that are zero.
  std::string text() const;
  // From now on in these kSize values, which others may look at, and which must outlive this.
  void count_in(std::uint64_t* values) {
    std::copy_n(values_, kSize, values);
    values_ = values;
  }

 private:
  std::array<std::uint64_t, kSize> own_{};
  std::uint64_t* values_ = own_.data();
};

}  // namespace ewarp::channel
