// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What channels and accesses share: the transport, the peers, and whose each completion is.
#pragma once

#include "mpi_shim/acp/area.h"
#include "mpi_shim/acp/verbs/transport.h"

namespace ewarp::acp {

// In the top octet of a Post's id.
enum class Subject : std::uint8_t {
  claim = 1,  // of a sender's end, whose number is in the low half, like those of
  put,        // a slot of a sender's end whose memory is in use
  other,      // anything else of an end
  access,     // of the access whose handle is in the rest
  access_result,
};

inline std::uint64_t id_of(Subject subject, std::uint64_t of) {
  return static_cast<std::uint64_t>(subject) << 56 | of;
}
inline Subject subject_of(std::uint64_t id) {
  return static_cast<Subject>(id >> 56);
}
inline std::uint64_t of_subject(std::uint64_t id) {
  return id & ((std::uint64_t{1} << 56) - 1);
}

struct Path {
  // Posts that accesses leave to channels: what is under way to a process that does not answer keeps its place for half
  // a minute.
  static constexpr std::uint32_t kForChannels = Transport::kSends / 2;

  Transport& transport;
  PeerTable& peers;
  std::uint32_t rank;

  bool has_room(std::uint32_t posts = 1) const { return transport.room() >= posts; }
  bool has_room_for_access() const { return has_room(kForChannels + 1); }
  void post(const Post& p) { transport.post(peers[p.peer], p); }
};

}  // namespace ewarp::acp
