// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Terminate: the RFC's form both ways, siw's swapped one on receipt.
#include "ddp/header.h"
#include "rdmap/header.h"
#include "tests/rdmap/codec_tests.h"

namespace ewarp::test {
namespace {

using rdmap::ReadRequest;
using rdmap::Terminate;

// TRM-27 returns a Read Request of which 2048 octets were already answered (RFC 5040 section 4.8).
constexpr std::uint32_t kAnswered = 2048;

Bytes returned_read_request(const Json& v, Octets ulpdu) {
  const Octets body = ulpdu.subspan(ddp::UntaggedHeader::kSize);
  if (v["id"] != "TRM-27") return exact(body);
  ReadRequest r = ReadRequest::parse(body).value();
  r.sink_to += kAnswered;
  r.source_to += kAnswered;
  r.length -= kAnswered;
  return emitted(r);
}

// The value that a vector describes, built from its fields and the offending segment alone.
Terminate terminate_from(const Json& v) {
  Terminate t;
  t.fault = Fault{static_cast<Layer>(number(v["layer"])), static_cast<std::uint8_t>(number(v["etype"])),
                  static_cast<std::uint8_t>(number(v["code"]))};
  t.length_valid = flag(v, "M");
  if (flag(v, "M")) t.segment_length = static_cast<std::uint16_t>(number(v["ddp_segment_length"]));
  if (!flag(v, "D")) return t;
  const Bytes ulpdu = hex(v["offending_ulpdu_hex"]);
  const std::size_t size = ddp::is_tagged(ulpdu) ? ddp::TaggedHeader::kSize : ddp::UntaggedHeader::kSize;
  t.ddp_header = exact(Octets(ulpdu).first(size));
  if (flag(v, "R")) t.rdmap_header = returned_read_request(v, ulpdu);
  return t;
}

// Holds: RDM-17, RDM-18, RDM-19
void rdm_17_to_19_decode_agrees_with_the_vectors(void**) {
  unsigned checked = 0;
  for (const Json& v : load("terminate.json", "vectors")) {
    const auto got = Terminate::parse(hex(v["terminate_header_hex"]));
    EXPECT(v["id"], got.ok() && got.value() == terminate_from(v));
    ++checked;
  }
  assert_int_equal(checked, 27);
}

// Holds: RDM-17, RDM-18, RDM-19
void rdm_17_to_19_encode_agrees_with_the_vectors(void**) {
  for (const Json& v : load("terminate.json", "vectors"))
    expect_octets(terminate_from(v).emit(), hex(v["terminate_header_hex"]), v["id"]);
}

// Holds: RDM-17
void rdm_17_the_whole_segment_agrees_with_the_vectors(void**) {
  for (const Json& v : load("terminate.json", "vectors")) {
    const Bytes want = hex(v["terminate_ulpdu_hex"]);
    const ddp::UntaggedHeader h{true, rdmap::control(rdmap::Opcode::terminate), 0, 2, 1, 0};
    expect_octets(concat({emitted(h), terminate_from(v).emit()}), want, v["id"]);
  }
}

// Holds: RDM-23
void rdm_23_swapped_terminates_are_understood_where_a_header_shows_them(void**) {
  for (const Json& v : load("terminate.json", "vectors")) {
    const auto got = Terminate::parse(hex(v["linux_siw_little_endian_terminate_header_hex"]));
    EXPECT(v["id"], got.ok());
    if (flag(v, "M")) {
      Terminate want = terminate_from(v);
      want.swapped = true;
      EXPECT(v["id"], got.value() == want);
    } else {
      EXPECT(v["id"], !got.value().swapped);  // nothing tells the forms apart
    }
  }
}

// Holds: RDM-23
void rdm_23_recorded_siw_terminates(void**) {
  const struct {
    const char* id;
    Fault fault;
    std::size_t ddp_header, rdmap_header;
  } kCases[] = {
      {"SIW-INV-R0", {Layer::ddp, 1, 0x00}, 14, 0},        {"SIW-BADWRITE-R0", {Layer::ddp, 1, 0x00}, 14, 0},
      {"SIW-BADREAD-R0", {Layer::rdmap, 1, 0x00}, 18, 28}, {"SIW-LONGREAD-R0", {Layer::rdmap, 1, 0x01}, 18, 28},
      {"SIW-LONGSEND-R0", {Layer::ddp, 2, 0x02}, 18, 0},   {"SIW-NORECV-R0", {Layer::ddp, 2, 0x02}, 18, 0},
  };
  unsigned seen = 0;
  for (const Json& v : load("siw_golden.json", "fpdus"))
    for (const auto& c : kCases) {
      if (v["id"] != c.id) continue;
      const Bytes fpdu = hex(v["fpdu_hex"]);
      const std::size_t length = get_be<std::uint16_t>(fpdu, 0);
      const auto got = Terminate::parse(Octets(fpdu).subspan(2 + 18, length - 18));
      EXPECT(c.id, got.ok() && got.value().swapped && got.value().fault == c.fault);
      EXPECT(c.id, got.value().ddp_header.size() == c.ddp_header);
      EXPECT(c.id, got.value().rdmap_header.size() == c.rdmap_header);
      ++seen;
    }
  assert_int_equal(seen, 6);
}

// Holds: RDM-17
// What a swapped one says is sent on in the RFC's form.
void rdm_17_a_swapped_terminate_is_never_emitted(void**) {
  for (const Json& v : load("terminate.json", "vectors")) {
    if (!flag(v, "M")) continue;
    const auto got = Terminate::parse(hex(v["linux_siw_little_endian_terminate_header_hex"]));
    expect_octets(got.value().emit(), hex(v["terminate_header_hex"]), v["id"]);
  }
}

void a_terminate_cut_short_is_refused(void**) {
  for (const Json& v : load("terminate.json", "vectors"))
    for (const char* form : {"terminate_header_hex", "linux_siw_little_endian_terminate_header_hex"}) {
      const Bytes whole = hex(v[form]);
      for (std::size_t n = 0; n < whole.size(); ++n) {
        const auto got = Terminate::parse(exact(Octets(whole).first(n)));
        EXPECT(v["id"], !got.ok() && got.error() == fault::kRdmapUnspecified);
      }
    }
}

// Holds: RDM-18
void header_bits_in_every_combination(void**) {
  const Bytes tagged = hex("c140112233440000000012345678"), read = Bytes(28, std::byte{7});
  for (unsigned bits = 0; bits < 8; ++bits)
    for (const bool swapped : {false, true}) {
      const bool m = (bits & 1) != 0, d = (bits & 2) != 0, r = (bits & 4) != 0;
      const unsigned wire = swapped ? bits : (m ? 0x80u : 0) | (d ? 0x40u : 0) | (r ? 0x20u : 0);
      Bytes in{std::byte{static_cast<unsigned char>(swapped ? 0x21 : 0x12)}, std::byte{5}, static_cast<std::byte>(wire),
               std::byte{0}};
      if (m || d) in = concat({in, hex("1234")});
      if (d) in = concat({in, tagged});
      if (r) in = concat({in, read});
      const auto got = Terminate::parse(in);
      assert_true(got.ok());
      const Terminate& t = got.value();
      if (bits != 0) {
        assert_true(t.fault == fault::kDdpTooLong);
        assert_int_equal(t.swapped, swapped);
      }
      assert_int_equal(t.length_valid, m);
      assert_int_equal(t.segment_length, m || d ? 0x1234 : 0);
      assert_int_equal(t.ddp_header.size(), d ? 14 : 0);
      assert_int_equal(t.rdmap_header.size(), r ? 28 : 0);
      if (!swapped) expect_octets(t.emit(), in, "again");
    }
}

void reserved_bits_of_a_terminate_are_ignored(void**) {
  // Any of the RFC's three bits settles the form, so low bits beside them are reserved ones.
  const auto got = Terminate::parse(hex("1105dfff0016c140112233440000000012345678"));
  assert_true(got.ok());
  assert_false(got.value().swapped);
  assert_true(got.value().length_valid);
  expect_octets(got.value().emit(), hex("1105c0000016c140112233440000000012345678"), "cleared");
}

void octets_behind_a_terminate_are_ignored(void**) {
  const auto got = Terminate::parse(concat({hex("20020000"), Bytes(40, std::byte{0xff})}));
  assert_true(got.ok());
  assert_true(got.value().fault == fault::kMpaCrc);
}

void faults_and_terminates_print_themselves(void**) {
  assert_string_equal(rdmap::to_string(fault::kDdpTooLong).c_str(),
                      "1/2/05 DDP: message too long for the available buffer");
  assert_string_equal(rdmap::to_string(fault::kRdmapUnspecified).c_str(), "0/2/ff RDMAP: unspecified operation error");
  assert_string_equal(rdmap::to_string(Fault{static_cast<Layer>(15), 15, 0xab}).c_str(), "15/15/ab unassigned");
  const auto t = Terminate::parse(hex("110003000008c140bb37f7000000000040438000")).value();
  assert_string_equal(rdmap::to_string(t).c_str(),
                      "1/1/00 DDP: invalid STag segment_length=8 "
                      "[tagged ulp=40 stag=bb37f700 to=0000000040438000 last] (swapped)");
  assert_string_equal(rdmap::to_string(ReadRequest{1, 2, 3, 4, 5}).c_str(),
                      "sink=00000001/0000000000000002 length=3 source=00000004/0000000000000005");
}

}  // namespace

const std::vector<CMUnitTest> kTerminateTests = {
    cmocka_unit_test(rdm_17_to_19_decode_agrees_with_the_vectors),
    cmocka_unit_test(rdm_17_to_19_encode_agrees_with_the_vectors),
    cmocka_unit_test(rdm_17_the_whole_segment_agrees_with_the_vectors),
    cmocka_unit_test(rdm_23_swapped_terminates_are_understood_where_a_header_shows_them),
    cmocka_unit_test(rdm_23_recorded_siw_terminates),
    cmocka_unit_test(rdm_17_a_swapped_terminate_is_never_emitted),
    cmocka_unit_test(a_terminate_cut_short_is_refused),
    cmocka_unit_test(header_bits_in_every_combination),
    cmocka_unit_test(reserved_bits_of_a_terminate_are_ignored),
    cmocka_unit_test(octets_behind_a_terminate_are_ignored),
    cmocka_unit_test(faults_and_terminates_print_themselves),
};

}  // namespace ewarp::test
