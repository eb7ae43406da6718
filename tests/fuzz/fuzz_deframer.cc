// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// FPDU streams: the same result however the stream is cut, nothing past its end, and framing again gives it back.
#include <algorithm>
#include <optional>

#include "mpa/framing.h"
#include "tests/fuzz/fuzz.h"

namespace ewarp::fuzz {
namespace {

using Bytes = std::vector<std::byte>;

struct Heard {
  std::vector<Bytes> ulpdus;
  std::optional<Fault> fault;
  std::size_t consumed = 0;
  bool operator==(const Heard&) const = default;
};

Heard hear(bool crc, bool markers, Octets stream, std::size_t piece) {
  mpa::Deframer deframer(crc, markers);
  Heard heard;
  std::size_t arrived = 0;
  do {
    arrived += std::min(piece, stream.size() - arrived);
    for (;;) {
      const Bytes in = exact(stream.subspan(heard.consumed, arrived - heard.consumed));
      const auto got = deframer.next(in);
      if (!got.ok()) {
        heard.fault = got.error();
        return heard;
      }
      if (!got.value().has_value()) break;
      FUZZ_CHECK(got.value()->consumed <= in.size() && got.value()->ulpdu.size() < got.value()->consumed);
      heard.ulpdus.push_back(exact(got.value()->ulpdu));
      heard.consumed += got.value()->consumed;
    }
  } while (arrived < stream.size());
  return heard;
}

// The octets that a framer makes of what was heard, without CRC: same places, same lengths, same markers.
void check_framing(bool markers, const Heard& heard) {
  mpa::Framer framer(true, markers);
  Bytes stream;
  for (const Bytes& ulpdu : heard.ulpdus) {
    llp::Gather out;
    llp::Extent payload;
    payload.address = const_cast<std::byte*>(ulpdu.data()) + mpa::kMinUlpdu;
    payload.length = ulpdu.size() - mpa::kMinUlpdu;
    framer.frame(out, Octets(ulpdu).first(mpa::kMinUlpdu), std::span(&payload, 1));
    for (const iovec& v : out.vectors()) {
      const auto* at = static_cast<const std::byte*>(v.iov_base);
      stream.insert(stream.end(), at, at + v.iov_len);
    }
  }
  FUZZ_CHECK(stream.size() == heard.consumed);
  const Heard again = hear(true, markers, stream, stream.size() + 1);
  FUZZ_CHECK(again.ulpdus == heard.ulpdus && !again.fault.has_value());
}

void check(bool crc, bool markers, Octets stream, std::size_t piece) {
  const Heard whole = hear(crc, markers, stream, stream.size() + 1);
  FUZZ_CHECK(whole == hear(crc, markers, stream, piece));
  check_framing(markers, whole);
}

}  // namespace
}  // namespace ewarp::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ewarp::fuzz;
  Input input(data, size);
  const std::size_t piece = 1 + (size == 0 ? 0 : data[size - 1] % 97u);
  for (const bool crc : {false, true})
    for (const bool markers : {false, true}) check(crc, markers, input.rest(), piece);
  return 0;
}
