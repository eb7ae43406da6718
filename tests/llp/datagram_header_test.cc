// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The datagram codec against the vectors, cut at every octet, and with every octet changed.
#include <algorithm>
#include <random>

#include "llp/datagram_header.h"
#include "tests/vectors/vectors.h"

namespace ewarp::test {
namespace {

using namespace ewarp::llp;

struct Case {
  std::string id;
  Bytes octets;
  Json fields;
  bool accepted;  // as far as the codec sees: a wrong Q_Key is a QP's business
};

std::vector<Case> cases() {
  std::vector<Case> out;
  for (const Json& v : load("datagram.json", "vectors")) {
    const auto id = v.at("id").get<std::string>();
    out.push_back({id, hex(v.at("datagram_hex")), v.at("fields"),
                   v.at("receiver_verdict").get<std::string>() == "accept" || id == "DG-N4"});
  }
  assert_true(out.size() >= 29);
  return out;
}

const Case& find(const std::vector<Case>& all, const char* id) {
  for (const Case& c : all)
    if (c.id == id) return c;
  fail_msg("no vector %s", id);
  throw 0;
}

Datagram parsed(const Case& c) {
  const auto d = parse_datagram(c.octets, false);
  EXPECT(c.id, d.ok());
  return d.value();
}

// Holds: UD-1, UD-6
void every_vector_has_its_verdict(void**) {
  const auto all = cases();
  for (const Case& c : all) {
    const Bytes octets = exact(c.octets);
    const auto d = parse_datagram(octets, false);
    EXPECT(c.id, d.ok() == c.accepted);
    if (!d.ok()) continue;
    if (c.fields.contains("type"))
      EXPECT(c.id, static_cast<std::uint64_t>(d.value().prefix.type) == number(c.fields.at("type")));
    if (c.fields.contains("HLen")) EXPECT(c.id, d.value().prefix.words == number(c.fields.at("HLen")));
    if (c.fields.contains("dst_qpn")) EXPECT(c.id, d.value().prefix.destination == number(c.fields.at("dst_qpn")));
    EXPECT(c.id, d.value().header.size() == std::size_t{d.value().prefix.words} * 4);
  }
  const auto why = [&](const char* id) {
    const Bytes octets = exact(find(all, id).octets);
    return parse_datagram(octets, false).error();
  };
  assert_true(why("DG-N1") == DatagramDrop::crc);
  assert_true(why("DG-N2") == DatagramDrop::version);
  assert_true(why("DG-N3") == DatagramDrop::length);
}

// Holds: UD-6
void every_cut_is_dropped(void**) {
  for (const Case& c : cases()) {
    if (!c.accepted) continue;
    for (std::size_t n = 0; n < c.octets.size(); ++n) {
      const Bytes cut = exact(Octets(c.octets).first(n));
      EXPECT(c.id, !parse_datagram(cut, false).ok());
    }
    Bytes longer = c.octets;
    longer.push_back(std::byte{0});
    EXPECT(c.id, !parse_datagram(longer, false).ok());
  }
}

// Holds: UD-6
void every_changed_bit_is_dropped(void**) {
  for (const Case& c : cases()) {
    if (!c.accepted) continue;
    for (std::size_t bit = 0; bit < c.octets.size() * 8; ++bit) {
      Bytes changed = exact(c.octets);
      changed[bit / 8] ^= static_cast<std::byte>(0x80 >> bit % 8);
      // The octets of the CRC do not count where flag N says so, which is not accepted here.
      EXPECT(c.id, !parse_datagram(changed, false).ok());
    }
  }
}

// A header by its codec, then the vector's segment: the vector again.
void expect_emitted(const Case& c, MutableOctets header, std::size_t size) {
  Bytes out(c.octets.size() + 64, std::byte{0xa5});
  std::copy_n(header.begin(), size, out.begin());
  const std::size_t all = finish_datagram(out, size, parsed(c).segment);
  expect_octets(Octets(out).first(all), c.octets, c.id);
}

// Holds: UD-1, UD-7
void ud_send_agrees(void**) {
  const auto all = cases();
  for (const char* id : {"DG-1", "DG-2", "DG-3", "DG-4"}) {
    const Case& c = find(all, id);
    const Datagram d = parsed(c);
    const UdSend h = UdSend::parse(d);
    EXPECT(id, h.qkey == 0x11111111);
    EXPECT(id, h.immediate.has_value() == c.fields.contains("imm"));
    if (h.immediate) EXPECT(id, *h.immediate == number(c.fields.at("imm")));
    Bytes out(64, std::byte{0xa5});
    expect_emitted(c, out, h.emit(out, d.prefix.destination, d.prefix.source));
  }
  // An extension word is skipped, and is no immediate data.
  const UdSend extended = UdSend::parse(parsed(find(all, "DG-25")));
  assert_false(extended.immediate.has_value());
  assert_int_equal(UdSend::parse(parsed(find(all, "DG-N4"))).qkey, 0x22222222);
}

// Holds: UD-1
void ud_error_agrees(void**) {
  const auto all = cases();
  const Case& c = find(all, "DG-5");
  const Datagram d = parsed(c);
  assert_int_equal(UdError::parse(d).msn, 7);
  Bytes out(64, std::byte{0xa5});
  expect_emitted(c, out, UdError{7}.emit(out, d.prefix.destination, d.prefix.source));
}

void sidr_agrees(void**) {
  const auto all = cases();
  const Case& request = find(all, "DG-23");
  const Datagram d = parsed(request);
  assert_true((SidrRequest::parse(d) == SidrRequest{119, 7471}));
  assert_int_equal(d.segment.size(), 2);
  Bytes out(64, std::byte{0xa5});
  expect_emitted(request, out, SidrRequest{119, 7471}.emit(out, d.prefix.source));
  const Case& reply = find(all, "DG-24");
  const Datagram r = parsed(reply);
  assert_true((SidrReply::parse(r) == SidrReply{119, 0, 0x3c351, 0x11111111}));
  expect_emitted(reply, out, SidrReply{119, 0, 0x3c351, 0x11111111}.emit(out, r.prefix.destination, r.prefix.source));
}

void without_crc_by_consent_only(void**) {
  Bytes out(64, std::byte{0xa5});
  const Bytes segment = hex("4143000000000000000000000001000000006869");
  const std::size_t header = UdSend{5, {}}.emit(out, 0x010203, 0x040506, false);
  const std::size_t size = finish_datagram(out, header, segment, false);
  const Octets datagram = Octets(out).first(size);
  assert_int_equal(get_be<std::uint32_t>(datagram, size - 4), 0);
  assert_true(parse_datagram(datagram, true).ok());
  assert_true(parse_datagram(datagram, false).error() == DatagramDrop::crc);
  assert_int_equal(parse_datagram(datagram, true).value().segment.size(), segment.size());
  // Flag N does not excuse a wrong length.
  put_be<std::uint16_t>(out, header, static_cast<std::uint16_t>(segment.size() + 1));
  assert_true(parse_datagram(datagram, true).error() == DatagramDrop::length);
}

void hlen_bounds(void**) {
  const auto all = cases();
  for (unsigned words = 0; words < 256; ++words) {
    Bytes b = exact(find(all, "DG-2").octets);  // with an immediate word: at least five
    b[2] = static_cast<std::byte>(words);
    const auto d = parse_datagram(b, true);
    if (words == 5)
      assert_true(d.ok());
    else
      assert_true(d.error() == DatagramDrop::length);
  }
  // Flag I without room for its word.
  Bytes b = exact(find(all, "DG-1").octets);
  b[1] = std::byte{0x80};
  assert_true(parse_datagram(b, true).error() == DatagramDrop::length);
}

void random_octets_never_pass(void**) {
  std::mt19937 random(4);
  for (int i = 0; i < 20000; ++i) {
    Bytes b(random() % 200);
    for (std::byte& octet : b) octet = static_cast<std::byte>(random());
    if (b.size() > 2 && i % 2 == 0) b[0] = static_cast<std::byte>(0x10 | (random() & 15));
    assert_false(parse_datagram(b, false).ok());
    (void)parse_datagram(b, true).ok();
  }
}

}  // namespace
}  // namespace ewarp::test

int main() {
  using namespace ewarp::test;
  const CMUnitTest tests[] = {
      cmocka_unit_test(every_vector_has_its_verdict),
      cmocka_unit_test(every_cut_is_dropped),
      cmocka_unit_test(every_changed_bit_is_dropped),
      cmocka_unit_test(ud_send_agrees),
      cmocka_unit_test(ud_error_agrees),
      cmocka_unit_test(sidr_agrees),
      cmocka_unit_test(without_crc_by_consent_only),
      cmocka_unit_test(hlen_bounds),
      cmocka_unit_test(random_octets_never_pass),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
