// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "mpi_shim/channel/verbs/hello.h"

#include "mpi_shim/channel/core/fields.h"

namespace ewarp::channel {
namespace {

constexpr std::uint32_t kMagic = 0x45574333;  // "EWC3"

}  // namespace

HelloOctets Hello::emit() const {
  HelloOctets out{};
  wire::Writer w(out);
  w.put(kMagic).put(static_cast<std::uint8_t>(answer)).put(std::uint8_t{0}).put(address.port);
  for (const std::uint8_t octet : address.ip) w.put(octet);
  w.put(eager_threshold).put(receive_depth).put(heartbeat.address).put(heartbeat.key).put(ignored_bits);
  return out;
}

// rdma_cm pads private data with zeros, so there may be more than was sent.
std::optional<Hello> Hello::parse(const void* data, std::size_t octets) {
  if (data == nullptr || octets < HelloOctets{}.size()) return std::nullopt;
  wire::Reader r(Octets(static_cast<const std::byte*>(data), octets));
  if (r.take<std::uint32_t>() != kMagic) return std::nullopt;
  Hello h;
  h.answer = static_cast<Answer>(r.take<std::uint8_t>());
  r.take<std::uint8_t>();
  h.address.port = r.take<std::uint16_t>();
  for (std::uint8_t& octet : h.address.ip) octet = r.take<std::uint8_t>();
  h.eager_threshold = r.take<std::uint32_t>();
  h.receive_depth = r.take<std::uint32_t>();
  h.heartbeat.address = r.take<std::uint64_t>();
  h.heartbeat.key = r.take<std::uint32_t>();
  h.ignored_bits = r.take<std::uint64_t>();
  return h;
}

}  // namespace ewarp::channel
