#include "mpi_shim/channel/wire.h"

#include <concepts>

namespace ewarp::channel::wire {
namespace {

// Fields one after the other, most significant octet first.
class Writer {
 public:
  explicit Writer(MutableOctets out) : out_(out) {}
  template <std::unsigned_integral T>
  Writer& put(T value) {
    for (std::size_t shift = 8 * sizeof(T); shift > 0; shift -= 8)
      out_[at_++] = static_cast<std::byte>(value >> (shift - 8));
    return *this;
  }

 private:
  MutableOctets out_;
  std::size_t at_ = 0;
};

// Requires: what is taken is there.
class Reader {
 public:
  explicit Reader(Octets in) : in_(in) {}
  template <std::unsigned_integral T>
  T take() {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < sizeof(T); ++i) value = value << 8 | std::to_integer<std::uint64_t>(in_[at_++]);
    return static_cast<T>(value);
  }

 private:
  Octets in_;
  std::size_t at_ = 0;
};

constexpr std::uint8_t kKnownFlags = 0x7f;

bool known(const Message& m) {
  return m.kind >= Kind::eager && m.kind <= Kind::note && (m.flags & ~kKnownFlags) == 0 &&
         m.release_count <= Message::kMostReleases;
}

}  // namespace

std::size_t Message::octets() const {
  return kBase + (has(flag::kFloor) ? kFloorField : 0) + (has_body() ? kBody : 0) + 4 * std::size_t{release_count};
}

void Message::emit(MutableOctets out) const {
  Writer w(out);
  w.put(static_cast<std::uint8_t>(kind)).put(flags).put(release_count).put(std::uint8_t{0});
  w.put(credits).put(tag).put(number).put(size);
  if (has(flag::kFloor)) w.put(floor);
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
  r.take<std::uint8_t>();
  m.credits = r.take<std::uint32_t>();
  m.tag = r.take<std::uint64_t>();
  m.number = r.take<std::uint64_t>();
  m.size = r.take<std::uint64_t>();
  if (!known(m) || in.size() < m.octets()) return std::nullopt;
  if (m.has(flag::kFloor)) m.floor = r.take<std::uint64_t>();
  if (m.has_body()) {
    m.remote.address = r.take<std::uint64_t>();
    m.remote.key = r.take<std::uint32_t>();
    m.id = r.take<std::uint32_t>();
  }
  for (std::size_t i = 0; i < m.release_count; ++i) m.releases[i] = r.take<std::uint32_t>();
  *used = m.octets();
  if (in.size() - *used != (m.kind == Kind::eager ? m.size : 0)) return std::nullopt;
  return m;
}

}  // namespace ewarp::channel::wire
