// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "mpi_shim/channel/verbs/hello.h"

#include <span>

#include "llp/siphash.h"
#include "mpi_shim/channel/core/fields.h"

namespace ewarp::channel {
namespace {

constexpr std::uint16_t kMagic = 0x4557;  // "EW"
constexpr std::size_t kInEveryVersion = 4;
// One field of 32 bits: eager_piece in units above, eager_threshold below.
constexpr unsigned kThresholdBits = 21;
static_assert(Tuning::kMostEager < 1u << kThresholdBits &&
              Tuning::kMostEager / Tuning::kPieceUnit < 1u << (32 - kThresholdBits));

}  // namespace

HelloOctets Hello::emit() const {
  HelloOctets out{};
  wire::Writer w(out);
  w.put(kMagic).put(version).put(static_cast<std::uint8_t>(answer));
  for (const std::uint8_t octet : address.ip) w.put(octet);
  w.put(address.port)
      .put(static_cast<std::uint16_t>(receive_depth))
      .put(static_cast<std::uint32_t>(eager_piece / Tuning::kPieceUnit) << kThresholdBits | eager_threshold);
  w.put(heartbeat.address).put(heartbeat.key).put(ignored_bits).put(proof);
  return out;
}

// rdma_cm pads private data with zeros, so there may be more than was sent.
std::optional<Hello> Hello::parse(const void* data, std::size_t octets) {
  if (data == nullptr || octets < kInEveryVersion) return std::nullopt;
  wire::Reader r(Octets(static_cast<const std::byte*>(data), octets));
  if (r.take<std::uint16_t>() != kMagic) return std::nullopt;
  Hello h;
  h.version = r.take<std::uint8_t>();
  h.answer = static_cast<Answer>(r.take<std::uint8_t>());
  if (h.version != kVersion) return h;
  if (octets < HelloOctets{}.size()) return std::nullopt;
  for (std::uint8_t& octet : h.address.ip) octet = r.take<std::uint8_t>();
  h.address.port = r.take<std::uint16_t>();
  h.receive_depth = r.take<std::uint16_t>();
  const auto eager = r.take<std::uint32_t>();
  h.eager_threshold = eager & ((1u << kThresholdBits) - 1);
  h.eager_piece = static_cast<std::uint32_t>((eager >> kThresholdBits) * Tuning::kPieceUnit);
  h.heartbeat.address = r.take<std::uint64_t>();
  h.heartbeat.key = r.take<std::uint32_t>();
  h.ignored_bits = r.take<std::uint64_t>();
  h.proof = r.take<std::uint64_t>();
  return h;
}

JobSecret::JobSecret(const std::string& text) : none_(text.empty()) {
  const auto octets = std::as_bytes(std::span(text));
  key_ = {llp::siphash({0, 0}, octets), llp::siphash({0, 1}, octets)};
}

std::uint64_t JobSecret::proof(const Address& from, const Address& to) const {
  if (none_) return 0;
  std::array<std::byte, 36> pair;
  wire::Writer w(pair);
  for (const Address* a : {&from, &to}) {
    for (const std::uint8_t octet : a->ip) w.put(octet);
    w.put(a->port);
  }
  return llp::siphash(key_, pair);
}

}  // namespace ewarp::channel
