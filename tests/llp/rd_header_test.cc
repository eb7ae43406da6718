// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The codec of types 8 to 14 against vectors/datagram.json: both directions, each cut, each bit.
#include "llp/rd/header.h"

#include "tests/llp/rd_seal.h"
#include "tests/vectors/vectors.h"

using namespace ewarp;
using namespace ewarp::test;
using ewarp::rdtest::emit_again;
using ewarp::rdtest::seal;
using namespace ewarp::llp::rd;

namespace {

// The vectors of this half of the types, by id.
Json vector_of(const std::string& id) {
  for (const Json& v : load("datagram.json", "vectors"))
    if (v.at("id") == id) return v;
  fail_msg("no vector %s", id.c_str());
  return {};
}

Datagram parsed(const Bytes& octets, const char* what) {
  const auto d = parse(octets, false);
  EXPECT(what, d.ok());
  return d.value();
}

bool is_ours(const Bytes& octets) {
  const unsigned type = std::to_integer<unsigned>(octets[0]) & 15;
  return type >= 8 && type <= 14;
}

// Holds: RD-1
void vectors_both_ways(void**) {
  unsigned seen = 0;
  for (const Json& v : load("datagram.json", "vectors")) {
    const auto id = v.at("id").get<std::string>();
    const Bytes octets = hex(v.at("datagram_hex"));
    if (!is_ours(octets) || v.at("receiver_verdict") != "accept") continue;
    ++seen;
    EXPECT(id, octets.size() == number(v.at("octets")));
    expect_octets(emit_again(parsed(octets, id.c_str())), octets, id);
    for (std::size_t n = 0; n < octets.size(); ++n)
      EXPECT(id + " cut", !parse(exact(Octets(octets).first(n)), false).ok());
    for (std::size_t bit = 0; bit < octets.size() * 8; ++bit) {
      Bytes flipped = octets;
      flipped[bit / 8] ^= static_cast<std::byte>(0x80u >> bit % 8);
      EXPECT(id + " flipped", !parse(flipped, false).ok());
    }
    Bytes longer = octets;
    longer.push_back(std::byte{0});
    EXPECT(id + " longer", parse(longer, false).error() == Drop::length);
  }
  assert_int_equal(seen, 15);
}

// Holds: RD-1
void field_by_field(void**) {
  const Bytes open = hex(vector_of("DG-8").at("datagram_hex"));
  const Datagram o = parsed(open, "DG-8");
  assert_true(o.prefix == (Prefix{Type::open, 0, 0, 0x3c351, 0xc350}));
  Open want;
  want.initial_tag = 0xa1a2a3a4;
  want.qkey = 0x11111111;
  want.isn = {0x1000, 0x2000};
  want.window = {256, 256};
  want.msn_limit = 64;
  want.max_seg = 1472;
  want.options = option::kCredits;
  want.ird = want.ord = 4;
  assert_true(std::get<Open>(o.body) == want);

  const Bytes challenge = hex(vector_of("DG-10").at("datagram_hex"));
  const Datagram c = parsed(challenge, "DG-10");
  assert_true(c.prefix.flags == flag::kChallenge && std::get<Open>(c.body).cookie == 0x0102030405060708u);

  const Bytes immediate = hex(vector_of("DG-14").at("datagram_hex"));
  const Datagram i = parsed(immediate, "DG-14");
  assert_true(std::get<Data>(i.body).immediate == 0x01020304u && !std::get<Data>(i.body).error_psn);
  assert_true(std::get<Data>(i.body).standing.psn == 0x1003);

  const Bytes report = hex(vector_of("DG-16").at("datagram_hex"));
  const Datagram r = parsed(report, "DG-16");
  assert_true(r.prefix.type == Type::rsp && std::get<Data>(r.body).error_psn == 0x1004u);

  const Bytes sack = hex(vector_of("DG-17").at("datagram_hex"));
  const Datagram s = parsed(sack, "DG-17");
  const Ack& a = std::get<Ack>(s.body);
  assert_true(a.standing.ack[0] == 0x1005 && a.delay_us == 250 && a.sack[0].bits() == 64 && a.sack[1].bits() == 0);
  for (std::size_t k = 0; k < 64; ++k) {
    const std::uint32_t psn = 0x1006 + static_cast<std::uint32_t>(k);
    const bool want_bit = psn == 0x1006 || psn == 0x1007 || psn == 0x100a || psn == 0x1026;
    assert_true(a.sack[0].test(k) == want_bit);
  }

  const Bytes rnr = hex(vector_of("DG-19").at("datagram_hex"));
  const Datagram n = parsed(rnr, "DG-19");
  assert_true(n.prefix.flags == flag::kRnr && n.prefix.aux == 14);

  const Bytes close = hex(vector_of("DG-20").at("datagram_hex"));
  const Datagram e = parsed(close, "DG-20");
  assert_true((std::get<Close>(e.body) == Close{0xb1b2b3b4, {0x1006, 0x2000}, {0xfffffffe, 0x3002}, 1}));

  const Bytes reset = hex(vector_of("DG-22").at("datagram_hex"));
  const Datagram t = parsed(reset, "DG-22");
  assert_true((std::get<Reset>(t.body) == Reset{0xb1b2b3b4, ResetReason::unknown}));
  assert_true(t.prefix.flags == flag::kReflected);
}

// A header longer than its fields: the rest is skipped, behind the optional words too.
void extension_words_are_skipped(void**) {
  for (const char* id : {"DG-11", "DG-14", "DG-16", "DG-17", "DG-8", "DG-20", "DG-22"}) {
    Bytes octets = hex(vector_of(id).at("datagram_hex"));
    const Datagram before = parsed(octets, id);
    const std::size_t header = std::to_integer<std::size_t>(octets[2]) * 4;
    Bytes longer(octets.begin(), octets.begin() + static_cast<std::ptrdiff_t>(header));
    longer.insert(longer.end(), 8, std::byte{0xee});
    longer[2] = static_cast<std::byte>(header / 4 + 2);
    const Octets rest = Octets(octets).subspan(header, octets.size() - header - 4);
    longer = seal(longer, rest);
    const Datagram d = parsed(longer, id);
    assert_true(d.prefix == before.prefix);
    expect_octets(emit_again(d), octets, id);
  }
}

// Holds: RD-1
void refused(void**) {
  const Bytes good = hex(vector_of("DG-11").at("datagram_hex"));
  const auto with = [&](std::size_t at, unsigned value) {
    Bytes b(good.begin(), good.end() - 4);
    b[at] = static_cast<std::byte>(value);
    return seal(b);
  };
  assert_true(parse(with(0, 0x28), false).error() == Drop::version);
  for (const unsigned type : {0x10u, 0x15u, 0x1fu}) assert_true(parse(with(0, type), false).error() == Drop::type);
  assert_true(parse(with(2, 8), false).error() == Drop::length);  // shorter than the fixed header
  assert_true(parse(with(2, 255), false).error() == Drop::length);
  assert_true(parse(with(37, 22), false).error() == Drop::length);  // SegLen one too large
  // Flags that announce words which HLen has no room for.
  assert_true(parse(with(1, flag::kImmediate), false).error() == Drop::length);
  assert_true(parse(with(1, flag::kError), false).error() == Drop::length);
  // SACK words beyond the header.
  Bytes ack = hex(vector_of("DG-17").at("datagram_hex"));
  ack.erase(ack.end() - 4, ack.end());
  ack[37] = std::byte{255};
  assert_true(parse(seal(ack), false).error() == Drop::length);
  // No CRC: only where that is wanted.
  Bytes bare = with(1, flag::kNoCrc);
  assert_true(parse(bare, false).error() == Drop::crc);
  for (std::size_t i = 1; i <= kCrcField; ++i) bare[bare.size() - i] = std::byte{0};
  assert_true(parse(bare, true).ok());
  const auto foreign = foreign_open(seal(hex("2b000e000003c3510000c35000000000a1a2a3a4")));
  assert_false(foreign_open(hex("2b000e000003c3510000c35000000000a1a2a3a400000000")).has_value());
  assert_true(foreign && foreign->destination == 0x3c351 && foreign->source == 0xc350 &&
              foreign->initial_tag == 0xa1a2a3a4);
  assert_false(foreign_open(good).has_value());
}

void overheads(void**) {
  const Json c = load("datagram.json", "constants");
  assert_int_equal(kOverhead + 14, number(c.at("overhead_rd_tagged")));
  assert_int_equal(kOverhead + 18, number(c.at("overhead_rd_untagged")));
  assert_int_equal(kMaxUdpPayload, number(c.at("max_udp_payload")));
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(vectors_both_ways), cmocka_unit_test(field_by_field),
                              cmocka_unit_test(extension_words_are_skipped), cmocka_unit_test(refused),
                              cmocka_unit_test(overheads)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
