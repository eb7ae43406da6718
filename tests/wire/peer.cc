// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tests/wire/peer.h"

#include <errno.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace ewarp::wire {
namespace {

constexpr int kPatience = 60'000;  // milliseconds
constexpr std::size_t kMarkerDistance = 512;

Bytes big_endian(std::uint64_t value, unsigned octets) {
  Bytes out(octets);
  for (unsigned i = 0; i < octets; ++i) out[i] = static_cast<std::byte>(value >> (8 * (octets - 1 - i)));
  return out;
}

std::uint64_t number_at(const Bytes& in, std::size_t at, unsigned octets) {
  std::uint64_t value = 0;
  for (unsigned i = 0; i < octets; ++i) value = value << 8 | std::to_integer<unsigned>(in.at(at + i));
  return value;
}

void append(Bytes& to, const Bytes& more) {
  to.insert(to.end(), more.begin(), more.end());
}

// RFC 5044 section 4.4: the CRC goes out least significant octet first.
Bytes crc_octets(const Bytes& covered) {
  const std::uint32_t c = crc32c(covered);
  Bytes out;
  for (unsigned i = 0; i < 4; ++i) out.push_back(static_cast<std::byte>(c >> (8 * i)));
  return out;
}

std::size_t pad_of(std::size_t ulpdu) {
  return (4 - (ulpdu + 2) % 4) % 4;
}

}  // namespace

Bytes u8(unsigned value) {
  return big_endian(value, 1);
}
Bytes u16(unsigned value) {
  return big_endian(value, 2);
}
Bytes u32(std::uint32_t value) {
  return big_endian(value, 4);
}
Bytes u64(std::uint64_t value) {
  return big_endian(value, 8);
}

Bytes pattern(std::size_t octets, unsigned seed) {
  Bytes out(octets);
  std::uint32_t x = seed * 2654435761u + 1;
  for (std::byte& b : out) {
    x = x * 1664525u + 1013904223u;
    b = static_cast<std::byte>(x >> 24);
  }
  return out;
}

Bytes slice(const Bytes& in, std::size_t from, std::size_t octets) {
  const auto first = in.begin() + static_cast<std::ptrdiff_t>(from);
  return Bytes(first, first + static_cast<std::ptrdiff_t>(octets));
}

// Bit by bit, from the polynomial (RFC 3720 section 12.1, reflected).
std::uint32_t crc32c(Octets in) {
  static const auto table = [] {
    std::array<std::uint32_t, 256> t{};
    for (std::uint32_t i = 0; i < 256; ++i) {
      std::uint32_t r = i;
      for (int bit = 0; bit < 8; ++bit) r = (r & 1) != 0 ? r >> 1 ^ 0x82f63b78u : r >> 1;
      t[i] = r;
    }
    return t;
  }();
  std::uint32_t c = 0xffffffffu;
  for (const std::byte b : in) c = c >> 8 ^ table[(c ^ std::to_integer<std::uint32_t>(b)) & 0xff];
  return ~c;
}

Bytes tagged(unsigned ddp, unsigned ulp, std::uint32_t stag, std::uint64_t to, const Bytes& payload) {
  return concat({u8(ddp), u8(ulp), u32(stag), u64(to), payload});
}

Bytes untagged(unsigned ddp, unsigned ulp, std::uint32_t word, std::uint32_t qn, std::uint32_t msn, std::uint32_t mo,
               const Bytes& payload) {
  return concat({u8(ddp), u8(ulp), u32(word), u32(qn), u32(msn), u32(mo), payload});
}

Bytes write_segment(std::uint32_t stag, std::uint64_t to, const Bytes& payload, bool last) {
  return tagged(last ? 0xc1 : 0x81, 0x40 | kWrite, stag, to, payload);
}

Bytes read_response(std::uint32_t stag, std::uint64_t to, const Bytes& payload, bool last) {
  return tagged(last ? 0xc1 : 0x81, 0x40 | kReadResponse, stag, to, payload);
}

Bytes send_segment(std::uint32_t msn, const Bytes& payload, std::uint32_t mo, bool last, unsigned opcode,
                   std::uint32_t invalidate) {
  return untagged(last ? 0x41 : 0x01, 0x40 | opcode, invalidate, 0, msn, mo, payload);
}

Bytes read_request(std::uint32_t msn, std::uint32_t sink_stag, std::uint64_t sink_to, std::uint32_t octets,
                   std::uint32_t source_stag, std::uint64_t source_to) {
  return untagged(0x41, 0x40 | kReadRequest, 0, 1, msn, 0,
                  concat({u32(sink_stag), u64(sink_to), u32(octets), u32(source_stag), u64(source_to)}));
}

Bytes atomic_request(std::uint32_t msn, const AtomicFields& f) {
  return untagged(0x41, 0x40 | kAtomicRequest, 0, 1, msn, 0,
                  concat({u32(f.op), u32(f.id), u32(f.stag), u64(f.to), u64(f.data), u64(f.mask), u64(f.compare),
                          u64(f.compare_mask)}));
}

Bytes atomic_response(std::uint32_t msn, std::uint32_t id, std::uint64_t original) {
  return untagged(0x41, 0x40 | kAtomicResponse, 0, 3, msn, 0, concat({u32(id), u64(original)}));
}

Bytes immediate(std::uint32_t msn, const Bytes& payload, unsigned opcode) {
  return untagged(0x41, 0x40 | opcode, 0, 0, msn, 0, payload);
}

Bytes terminate(unsigned layer, unsigned type, unsigned code, unsigned hdrct, const Bytes& headers) {
  return untagged(0x41, 0x40 | kTerminate, 0, 2, 1, 0,
                  concat({u8(layer << 4 | type), u8(code), u8(hdrct), u8(0), headers}));
}

Bytes answer_to(const Bytes& ulpdu, unsigned layer, unsigned type, unsigned code) {
  const std::size_t header = (std::to_integer<unsigned>(ulpdu.at(0)) & 0x80) != 0 ? 14 : 18;
  return terminate(layer, type, code, 0xc0,
                   concat({u16(static_cast<unsigned>(ulpdu.size())), slice(ulpdu, 0, header)}));
}

Segment dissect(const Bytes& ulpdu, bool consenting) {
  Segment s;
  const unsigned ddp = std::to_integer<unsigned>(ulpdu.at(0)), ulp = std::to_integer<unsigned>(ulpdu.at(1));
  s.ahead = consenting ? ddp >> 2 & 0x0f : 0;
  if ((ddp & 0x3f) != (1 | s.ahead << 2) || (ulp & 0xf0) != 0x40) fail_msg("control octets %02x %02x", ddp, ulp);
  s.is_tagged = (ddp & 0x80) != 0;
  s.last = (ddp & 0x40) != 0;
  s.opcode = ulp & 0x0f;
  const auto word = static_cast<std::uint32_t>(number_at(ulpdu, 2, 4));
  std::size_t header = 14;
  if (s.is_tagged) {
    s.stag = word;
    s.to = number_at(ulpdu, 6, 8);
  } else {
    header = 18;
    s.word = word;
    s.qn = static_cast<std::uint32_t>(number_at(ulpdu, 6, 4));
    s.msn = static_cast<std::uint32_t>(number_at(ulpdu, 10, 4));
    s.mo = static_cast<std::uint32_t>(number_at(ulpdu, 14, 4));
  }
  s.payload = slice(ulpdu, header, ulpdu.size() - header);
  return s;
}

ReadFields dissect_read(const Segment& s) {
  if (s.is_tagged || s.opcode != kReadRequest || s.qn != 1 || !s.last || s.mo != 0 || s.payload.size() != 28)
    fail_msg("not a Read Request: opcode %u, queue %u, %zu octets", s.opcode, s.qn, s.payload.size());
  return {
      static_cast<std::uint32_t>(number_at(s.payload, 0, 4)), static_cast<std::uint32_t>(number_at(s.payload, 12, 4)),
      static_cast<std::uint32_t>(number_at(s.payload, 16, 4)), number_at(s.payload, 4, 8), number_at(s.payload, 20, 8)};
}

AtomicFields dissect_atomic(const Segment& s) {
  if (s.is_tagged || s.opcode != kAtomicRequest || s.qn != 1 || !s.last || s.mo != 0 || s.payload.size() != 52)
    fail_msg("not an Atomic Request: opcode %u, queue %u, %zu octets", s.opcode, s.qn, s.payload.size());
  const auto word = [&s](std::size_t at) { return static_cast<std::uint32_t>(number_at(s.payload, at, 4)); };
  const auto value = [&s](std::size_t at) { return number_at(s.payload, at, 8); };
  return {word(0), word(4), word(8), value(12), value(20), value(28), value(36), value(44)};
}

Peer::Peer(int fd, bool crc, bool send_markers, bool get_markers)
    : Peer(socket_end(fd), crc, send_markers, get_markers) {}

Peer::Peer(std::unique_ptr<PeerEnd> end, bool crc, bool send_markers, bool get_markers)
    : end_(std::move(end)), crc_(crc), send_markers_(send_markers), get_markers_(get_markers) {}

void Peer::close() {
  end_->close();
}

void Peer::shut_down() {
  end_->shut_down();
}

void Peer::reset() {
  end_->reset();
}

void Peer::raw(const Bytes& octets) {
  std::size_t at = 0;
  while (at < octets.size()) {
    const ssize_t n = end_->give(octets.data() + at, octets.size() - at);
    if (n > 0) {
      at += static_cast<std::size_t>(n);
      continue;
    }
    if (errno == EPIPE || errno == ECONNRESET) return;  // the other side has ended; the script looks for that itself
    if (errno != EAGAIN || !end_->is_writable(kPatience)) fail_msg("cannot send: %s", std::strerror(errno));
  }
}

void Peer::flood(const Bytes& ulpdu) {
  constexpr int kStill = 50;  // milliseconds
  const Bytes fpdu = frame(ulpdu);
  for (std::size_t at = 0; end_->is_writable(kStill);) {
    const ssize_t n = end_->give(fpdu.data() + at, fpdu.size() - at);
    if (n < 0 && (errno == EPIPE || errno == ECONNRESET)) return;  // as in raw()
    if (n < 0 && errno != EAGAIN) fail_msg("cannot send: %s", std::strerror(errno));
    if (n > 0) at = (at + static_cast<std::size_t>(n)) % fpdu.size();
  }
}

void Peer::wait_until_read() {
  for (int i = 0; end_->unsent() != 0; ++i) {
    if (i == kPatience) fail_msg("%d octets are not read", end_->unsent());
    poll(nullptr, 0, 1);
  }
}

Bytes Peer::frame(const Bytes& ulpdu, unsigned pad_value) {
  if (send_markers_) return frame_marked(ulpdu, pad_value, 0);
  Bytes out = u16(static_cast<unsigned>(ulpdu.size()));
  append(out, ulpdu);
  out.insert(out.end(), pad_of(ulpdu.size()), static_cast<std::byte>(pad_value));
  append(out, crc_ ? crc_octets(out) : Bytes(4));
  return out;
}

Bytes Peer::frame_with_marker_error(const Bytes& ulpdu, unsigned error) {
  return frame_marked(ulpdu, 0, error);
}

// RFC 5044 section 4.3, octet by octet: whenever the stream stands at a multiple of 512, a marker comes first.
Bytes Peer::frame_marked(const Bytes& ulpdu, unsigned pad_value, unsigned error) {
  Bytes body = u16(static_cast<unsigned>(ulpdu.size()));
  append(body, ulpdu);
  body.insert(body.end(), pad_of(ulpdu.size()), static_cast<std::byte>(pad_value));
  Bytes out;
  std::size_t start = 0;  // of ULPDU_Length in out
  const auto marker = [&](bool between) {
    if (sent_ % kMarkerDistance != 0) return;
    append(out, concat({u16(0), u16(static_cast<unsigned>(between ? error : out.size() - start + error))}));
    sent_ += 4;
  };
  marker(true);
  start = out.size();
  for (const std::byte b : body) {
    if (out.size() > start) marker(false);
    out.push_back(b);
    ++sent_;
  }
  marker(false);
  append(out, crc_ ? crc_octets(out) : Bytes(4));
  sent_ += 4;
  return out;
}

Bytes Peer::spoil_crc(Bytes fpdu) {
  fpdu.back() ^= std::byte{0x40};
  return fpdu;
}

int Peer::unread() const {
  return end_->unread();
}

Bytes Peer::take(std::size_t octets) {
  Bytes out(octets);
  for (std::size_t at = 0; at < octets;) {
    if (!end_->is_readable(kPatience)) fail_msg("%zu octets expected, %zu came", octets, at);
    const ssize_t n = end_->take(out.data() + at, octets - at);
    if (n == 0) fail_msg("stream ended where %zu octets were expected, after %zu", octets, at);
    if (n < 0) fail_msg("recv: %s", std::strerror(errno));
    at += static_cast<std::size_t>(n);
  }
  return out;
}

// A marker in front of an FPDU points nowhere; one inside counts back to ULPDU_Length, earlier markers included.
void Peer::take_marker(Bytes& covered) {
  const Bytes marker = take(4);
  got_ += 4;
  const std::size_t want = covered.empty() ? 0 : covered.size() - (lead_marker_ ? 4 : 0);
  if (covered.empty()) lead_marker_ = true;
  if (number_at(marker, 0, 2) != 0 || number_at(marker, 2, 2) != want)
    fail_msg("marker is %s, want FPDUPTR %zu", to_hex(marker).c_str(), want);
  append(covered, marker);
}

// Takes octets of an FPDU and the markers between them; covered gets both.
Bytes Peer::take_covered(std::size_t octets, Bytes& covered) {
  if (!get_markers_) {
    Bytes out = take(octets);
    got_ += octets;
    append(covered, out);
    return out;
  }
  Bytes out;
  while (out.size() < octets) {
    if (got_ % kMarkerDistance == 0) take_marker(covered);
    const std::size_t run = std::min<std::size_t>(octets - out.size(), kMarkerDistance - got_ % kMarkerDistance);
    const Bytes piece = take(run);
    got_ += run;
    append(covered, piece);
    append(out, piece);
  }
  return out;
}

Bytes Peer::next() {
  Bytes covered;
  lead_marker_ = false;
  const auto octets = static_cast<std::size_t>(number_at(take_covered(2, covered), 0, 2));
  const Bytes ulpdu = take_covered(octets, covered);
  for (const std::byte b : take_covered(pad_of(octets), covered))
    if (b != std::byte{0}) fail_msg("PAD is not zero");
  if (get_markers_ && got_ % kMarkerDistance == 0) take_marker(covered);
  const Bytes field = take(4);
  got_ += 4;
  const Bytes want = crc_ ? crc_octets(covered) : Bytes(4);
  if (field != want) fail_msg("CRC field is %s, not %s", to_hex(field).c_str(), to_hex(want).c_str());
  largest = std::max(largest, octets);
  return ulpdu;
}

void Peer::expect(const Bytes& ulpdu, const std::string& what) {
  test::expect_octets(next(), ulpdu, what);
}

void Peer::expect_silence(int milliseconds) {
  if (!end_->is_readable(milliseconds)) return;
  Bytes some(64);
  const ssize_t n = end_->take(some.data(), some.size());
  some.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  fail_msg("silence expected, got %s%s", n == 0 ? "the end of the stream" : "", to_hex(some).c_str());
}

void Peer::expect_fin() {
  if (!end_->is_readable(kPatience)) fail_msg("the stream does not end");
  Bytes some(64);
  const ssize_t n = end_->take(some.data(), some.size());
  if (n < 0) fail_msg("the stream ends with: %s", std::strerror(errno));
  some.resize(static_cast<std::size_t>(n));
  if (n > 0) fail_msg("octets where the end of the stream was expected: %s", to_hex(some).c_str());
}

void Peer::expect_forgotten() {
  for (int i = 0; !end_->is_forgotten(); ++i) {
    if (i == kPatience) fail_msg("the other side's kernel keeps the connection");
    poll(nullptr, 0, 1);
  }
}

std::size_t Peer::discard_until_end(bool* reset) {
  std::size_t octets = 0;
  Bytes some(65536);
  for (;;) {
    if (!end_->is_readable(kPatience)) fail_msg("the stream does not end");
    const ssize_t n = end_->take(some.data(), some.size());
    if (n <= 0) {
      *reset = n < 0;
      return octets;
    }
    octets += static_cast<std::size_t>(n);
  }
}

void Peer::discard() {
  bool reset;
  discard_until_end(&reset);
}

}  // namespace ewarp::wire
