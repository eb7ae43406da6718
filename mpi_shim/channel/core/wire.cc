// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "mpi_shim/channel/core/wire.h"

#include "mpi_shim/channel/core/fields.h"

namespace ewarp::channel::wire {
namespace {

constexpr std::uint8_t kKnownFlags = 0x7f;

std::uint8_t known_extras(Kind kind) {
  if (kind == Kind::eager) return extra::kData | extra::kConfirm;
  if (kind == Kind::receiver_ready) return extra::kTaken;
  return kind == Kind::sender_ready || kind == Kind::written || kind == Kind::told ? extra::kData : 0;
}

bool known(const Message& m) {
  return m.kind >= Kind::eager && m.kind <= Kind::unused && (m.flags & ~kKnownFlags) == 0 &&
         (m.extras & ~known_extras(m.kind)) == 0 && (m.kind != Kind::told || m.has_extra(extra::kData)) &&
         (!m.has_extra(extra::kTaken) || m.has(flag::kAnswer)) && (m.kind == Kind::note || !m.has(flag::kReserve)) &&
         m.release_count <= Message::kMostReleases;
}

}  // namespace

std::size_t Message::octets() const {
  return kBase + (has(flag::kFloor) ? kFloorField : 0) + (has_extra(extra::kData) ? kDataField : 0) +
         (has_body() ? kBody : 0) + 4 * std::size_t{release_count};
}

void Message::emit(MutableOctets out) const {
  Writer w(out);
  w.put(static_cast<std::uint8_t>(kind)).put(flags).put(release_count).put(extras);
  w.put(credits).put(tag).put(number).put(size);
  if (has(flag::kFloor)) w.put(floor);
  if (has_extra(extra::kData)) w.put(data);
  if (has_body()) w.put(remote.address).put(remote.key).put(id);
  for (std::size_t i = 0; i < release_count; ++i) w.put(releases[i]);
}

std::optional<Message> Message::parse(Octets in, std::size_t* used) {
  if (in.size() < kBase) return std::nullopt;
  Reader r(in);
  Message m;
  m.kind = static_cast<Kind>(r.take<std::uint8_t>());
  m.flags = r.take<std::uint8_t>();
  m.release_count = r.take<std::uint8_t>();
  m.extras = r.take<std::uint8_t>();
  m.credits = r.take<std::uint32_t>();
  m.tag = r.take<std::uint64_t>();
  m.number = r.take<std::uint64_t>();
  m.size = r.take<std::uint64_t>();
  if (!known(m) || in.size() < m.octets()) return std::nullopt;
  if (m.has(flag::kFloor)) m.floor = r.take<std::uint64_t>();
  if (m.has_extra(extra::kData)) m.data = r.take<std::uint64_t>();
  if (m.has_body()) {
    m.remote.address = r.take<std::uint64_t>();
    m.remote.key = r.take<std::uint32_t>();
    m.id = r.take<std::uint32_t>();
  }
  for (std::size_t i = 0; i < m.release_count; ++i) m.releases[i] = r.take<std::uint32_t>();
  *used = m.octets();
  if (in.size() - *used > (m.has_payload() ? m.size : 0)) return std::nullopt;
  return m;
}

}  // namespace ewarp::channel::wire
