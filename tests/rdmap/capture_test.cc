// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A capture of whole connections goes through the receive side layer by layer: start-up, FPDUs, headers.
#include <array>
#include <fstream>
#include <iterator>
#include <map>

#include "ddp/header.h"
#include "mpa/framing.h"
#include "mpa/startup.h"
#include "rdmap/header.h"
#include "tests/rdmap/codec_tests.h"

namespace ewarp::test {
namespace {

// The file has IPv4 over Ethernet, without options or VLANs, in order and without loss.
constexpr std::size_t kFileHeader = 24, kRecordHeader = 16, kEthernet = 14, kIpHeader = 20;

struct Connection {
  std::array<Bytes, 2> sent;  // by the initiator, by the responder
};

std::uint32_t little_endian(Octets in, std::size_t at) {
  std::uint32_t v = 0;
  for (std::size_t i = 4; i-- > 0;) v = v << 8 | std::to_integer<std::uint32_t>(in[at + i]);
  return v;
}

Bytes read_file(const char* name) {
  std::ifstream in(std::string(EWARP_TEST_DATA "/") + name, std::ios::binary);
  if (!in) fail_msg("%s cannot be read", name);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  const auto* data = reinterpret_cast<const std::byte*>(text.data());
  return {data, data + text.size()};
}

// By the initiator's port.
std::map<unsigned, Connection> connections() {
  constexpr unsigned kListener = 7471;
  const Bytes file = read_file("iwarp_tcp.pcap");
  std::map<unsigned, Connection> out;
  for (std::size_t at = kFileHeader; at + kRecordHeader <= file.size();) {
    const std::size_t n = little_endian(file, at + 8);
    const Octets packet = Octets(file).subspan(at + kRecordHeader, n);
    at += kRecordHeader + n;
    const Octets ip = packet.subspan(kEthernet, get_be<std::uint16_t>(packet, kEthernet + 2));
    const Octets tcp = ip.subspan(kIpHeader);
    const Octets data = tcp.subspan(static_cast<std::size_t>(get_be<std::uint8_t>(tcp, 12) >> 4) * 4);
    const unsigned from = get_be<std::uint16_t>(tcp, 0), to = get_be<std::uint16_t>(tcp, 2);
    Bytes& stream = from == kListener ? out[to].sent[1] : out[from].sent[0];
    stream.insert(stream.end(), data.begin(), data.end());
  }
  return out;
}

mpa::StartupFrame take_startup(Octets& stream, bool reply) {
  mpa::FrameReader reader;
  while (const std::size_t n = reader.want()) {
    assert_true(n <= stream.size());
    assert_true(reader.feed(stream.first(n), reply));
    stream = stream.subspan(n);
  }
  return mpa::StartupFrame::parse(reader.frame()).value();
}

// T, QN and body size as the opcode demands; returns the opcode.
unsigned check_headers(Octets ulpdu) {
  const auto octet = get_be<std::uint8_t>(ulpdu, 1);
  assert_int_equal(rdmap::version_of(octet), 1);
  const auto* t = rdmap::traits(rdmap::opcode_of(octet));
  assert_non_null(t);
  assert_int_equal(ddp::is_tagged(ulpdu), t->tagged);
  if (t->tagged) {
    const auto h = ddp::TaggedHeader::parse(ulpdu).value();
    expect_octets(emitted(h), ulpdu.first(h.kSize), to_string(h));
  } else {
    const auto h = ddp::UntaggedHeader::parse(ulpdu).value();
    expect_octets(emitted(h), ulpdu.first(h.kSize), to_string(h));
    assert_int_equal(h.qn, t->qn);
    assert_true(ulpdu.size() - h.kSize >= t->header);
    if (rdmap::opcode_of(octet) == 7) {
      const auto body = rdmap::Terminate::parse(ulpdu.subspan(h.kSize));
      assert_true(body.ok());
      expect_octets(body.value().emit(), ulpdu.subspan(h.kSize), to_string(body.value()));
    }
  }
  return rdmap::opcode_of(octet);
}

// Everything of one direction: decoded, and framed again to the same octets.
void check_stream(Octets stream, bool crc, bool markers, std::array<unsigned, 16>& seen) {
  mpa::Deframer deframer(crc, markers);
  mpa::Framer framer(crc, markers);
  while (!stream.empty()) {
    const auto got = deframer.next(stream);
    assert_true(got.ok() && got.value().has_value());
    const Octets ulpdu = got.value()->ulpdu;
    ++seen[check_headers(ulpdu)];
    llp::Gather out;
    framer.frame(out, ulpdu, {});
    Bytes again;
    for (const iovec& v : out.vectors()) {
      const auto* at = static_cast<const std::byte*>(v.iov_base);
      again.insert(again.end(), at, at + v.iov_len);
    }
    expect_octets(again, stream.first(got.value()->consumed), "framed again");
    stream = stream.subspan(got.value()->consumed);
  }
}

// Holds: RDM-1
void rdm_1_a_capture_of_whole_connections_decodes(void**) {
  std::array<unsigned, 16> seen{};
  std::size_t marked = 0;
  const auto all = connections();
  assert_int_equal(all.size(), 29);
  for (const auto& [port, c] : all) {
    Octets from_initiator = c.sent[0], from_responder = c.sent[1];
    const auto request = take_startup(from_initiator, false);
    const auto reply = take_startup(from_responder, true);
    const bool crc = request.crc || reply.crc;
    check_stream(from_initiator, crc, reply.markers, seen);
    check_stream(from_responder, crc, request.markers, seen);
    marked += reply.markers ? 1 : 0;
  }
  assert_int_equal(marked, 1);
  const std::array<unsigned, 16> kWant = {9, 2, 2, 41, 1, 1, 1, 28, 1, 1, 2, 1};
  for (std::size_t op = 0; op < seen.size(); ++op) EXPECT("opcode " + std::to_string(op), seen[op] == kWant[op]);
}

}  // namespace

const std::vector<CMUnitTest> kCaptureTests = {
    cmocka_unit_test(rdm_1_a_capture_of_whole_connections_decodes),
};

}  // namespace ewarp::test
