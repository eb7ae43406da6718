// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A UDP payload as a datagram: what parses emits to the same octets, and what changes is noticed.
#include "ddp/header.h"
#include "llp/datagram_header.h"
#include "tests/fuzz/fuzz.h"

namespace ewarp::fuzz {
namespace {

using namespace ewarp::llp;

// The header again by its codec: the same fields, as far as the type has them.
std::vector<std::byte> emitted(const Datagram& d) {
  std::vector<std::byte> out(64);
  const bool crc = (d.prefix.flags & kFlagNoCrc) == 0;
  switch (d.prefix.type) {
    case DatagramType::ud_send:
      out.resize(UdSend::parse(d).emit(out, d.prefix.destination, d.prefix.source, crc));
      break;
    case DatagramType::ud_error:
      out.resize(UdError::parse(d).emit(out, d.prefix.destination, d.prefix.source));
      break;
    case DatagramType::sidr_request:
      out.resize(SidrRequest::parse(d).emit(out, d.prefix.source));
      break;
    case DatagramType::sidr_reply:
      out.resize(SidrReply::parse(d).emit(out, d.prefix.destination, d.prefix.source));
      break;
    default:
      out.clear();
  }
  return out;
}

template <class Header>
void check_same(const Datagram& d, const Datagram& again) {
  FUZZ_CHECK(Header::parse(d) == Header::parse(again));
}

void check(Octets in, bool without_crc) {
  const auto copy = exact(in);
  const auto parsed = parse_datagram(copy, without_crc);
  if (!parsed.ok()) {
    FUZZ_CHECK(to_string(parsed.error())[0] != '\0');
    return;
  }
  const Datagram& d = parsed.value();
  FUZZ_CHECK(d.header.size() + d.segment.size() + kDatagramCrc <= copy.size());
  FUZZ_CHECK(d.prefix.destination <= 0xffffff && d.prefix.source <= 0xffffff);
  std::vector<std::byte> out = emitted(d);
  if (out.empty()) return;
  const std::size_t header = out.size();
  out.resize(header + kSegmentLength + d.segment.size() + kDatagramCrc);
  const bool crc = (d.prefix.flags & kFlagNoCrc) == 0 || d.prefix.type != DatagramType::ud_send;
  FUZZ_CHECK(finish_datagram(out, header, d.segment, crc) == out.size());
  const auto again = parse_datagram(out, true);
  FUZZ_CHECK(again.ok() && again.value().segment.size() == d.segment.size());
  switch (d.prefix.type) {
    case DatagramType::ud_send:
      check_same<UdSend>(d, again.value());
      break;
    case DatagramType::ud_error:
      check_same<UdError>(d, again.value());
      break;
    case DatagramType::sidr_request:
      check_same<SidrRequest>(d, again.value());
      break;
    default:
      check_same<SidrReply>(d, again.value());
  }
}

}  // namespace
}  // namespace ewarp::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ewarp::fuzz;
  const ewarp::Octets in = Input(data, size).rest();
  check(in, false);
  // As if the sender had asked for no CRC, so that mutation gets past it.
  auto open = exact(in);
  if (open.size() > 1) open[1] |= std::byte{ewarp::llp::kFlagNoCrc};
  check(open, true);
  return 0;
}
