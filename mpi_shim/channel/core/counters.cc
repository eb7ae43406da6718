// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "mpi_shim/channel/core/counters.h"

#include "mpi_shim/channel/core/types.h"

namespace ewarp::channel {

const char* Counters::name(Count c) {
  switch (c) {
    case Count::eager:
      return "eager";
    case Count::hybrid:
      return "hybrid";
    case Count::send_rndv_write:
      return "send_rndv_write";
    case Count::send_rndv_read:
      return "send_rndv_read";
    case Count::recv_rndv:
      return "recv_rndv";
    case Count::recv_rndv_copied:
      return "recv_rndv_copied";
    case Count::self:
      return "self";
    case Count::heads:
      return "heads";
    case Count::received_expected:
      return "received_expected";
    case Count::received_unexpected:
      return "received_unexpected";
    case Count::truncated:
      return "truncated";
    case Count::completions_held:
      return "completions_held";
    case Count::heads_dropped:
      return "heads_dropped";
    case Count::announced:
      return "announced";
    case Count::announcements_used:
      return "announcements_used";
    case Count::announcements_unused:
      return "announcements_unused";
    case Count::announcements_withheld:
      return "announcements_withheld";
    case Count::got_announcements:
      return "got_announcements";
    case Count::got_used:
      return "got_used";
    case Count::got_crossed:
      return "got_crossed";
    case Count::got_mispredicted:
      return "got_mispredicted";
    case Count::got_too_small:
      return "got_too_small";
    case Count::got_retracted:
      return "got_retracted";
    case Count::got_evicted:
      return "got_evicted";
    case Count::wildcard_silent:
      return "wildcard_silent";
    case Count::counter_evictions:
      return "counter_evictions";
    case Count::eager_copies:
      return "eager_copies";
    case Count::eager_copied_octets:
      return "eager_copied_octets";
    case Count::hybrid_without_buffer:
      return "hybrid_without_buffer";
    case Count::releases_piggybacked:
      return "releases_piggybacked";
    case Count::notes:
      return "notes";
    case Count::written_notices:
      return "written_notices";
    case Count::writes_divided:
      return "writes_divided";
    case Count::writes_passed:
      return "writes_passed";
    case Count::credits_held_back:
      return "credits_held_back";
    case Count::credits_recalled:
      return "credits_recalled";
    case Count::path_full:
      return "path_full";
    case Count::cancelled:
      return "cancelled";
    case Count::retractions:
      return "retractions";
    case Count::puts:
      return "puts";
    case Count::calls:
      return "calls";
    case Count::gets:
      return "gets";
    case Count::connections:
      return "connections";
    case Count::peers_lost:
      return "peers_lost";
    case Count::protocol_errors:
      return "protocol_errors";
    case Count::registrations:
      return "registrations";
    case Count::registration_hits:
      return "registration_hits";
    case Count::registrations_kept:
      return "registrations_kept";
    case Count::registrations_invalidated:
      return "registrations_invalidated";
    case Count::frequent_buffer_sends:
      return "frequent_buffer_sends";
    case Count::bounce_copies:
      return "bounce_copies";
    case Count::progress_wakeups:
      return "progress_wakeups";
    case Count::progress_takeovers:
      return "progress_takeovers";
    case Count::kCount:
      break;
  }
  return "?";
}

std::string Counters::text() const {
  std::string out;
  for (std::size_t i = 0; i < kSize; ++i)
    if (values_[i] != 0) out += std::string(name(static_cast<Count>(i))) + ' ' + std::to_string(values_[i]) + '\n';
  return out;
}

const char* text(Error error) {
  switch (error) {
    case Error::none:
      return "none";
    case Error::truncated:
      return "truncated";
    case Error::cancelled:
      return "cancelled";
    case Error::peer_down:
      return "peer down";
    case Error::too_long:
      return "too long";
    case Error::no_memory:
      return "no memory";
  }
  return "?";
}

}  // namespace ewarp::channel
