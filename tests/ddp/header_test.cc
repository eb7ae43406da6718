// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// DDP headers, decode and encode each against the vectors.
#include "ddp/header.h"

#include "tests/ddp/ddp_tests.h"

namespace ewarp::test {
namespace {

using ddp::TaggedHeader;
using ddp::UntaggedHeader;

std::uint8_t ulp_octet(const Json& f) {
  return static_cast<std::uint8_t>(number(f["RV"]) << 6 | number(f["opcode"]));
}

TaggedHeader tagged_from(const Json& f) {
  return {flag(f, "L"), ulp_octet(f), static_cast<std::uint32_t>(number(f["STag"])), number(f["TO"])};
}

UntaggedHeader untagged_from(const Json& f) {
  const auto u32 = [&f](const char* key) { return static_cast<std::uint32_t>(number(f[key])); };
  return {flag(f, "L"), ulp_octet(f), u32("RsvdULP"), u32("QN"), u32("MSN"), u32("MO")};
}

template <class Header>
Bytes emitted(const Header& h) {
  Bytes out(Header::kSize, std::byte{0xa5});  // a reused buffer is never clean
  h.emit(std::span(out).template first<Header::kSize>());
  return out;
}

// Holds: DDP-1
void ddp_1_decode_agrees_with_the_vectors(void**) {
  unsigned tagged = 0, untagged = 0;
  for (const Json& v : load("fpdu.json", "vectors")) {
    const Bytes ulpdu = hex(v["ulpdu_hex"]);
    const Json& f = v["fields"];
    EXPECT(v["id"], ddp::is_tagged(ulpdu) == flag(f, "T"));
    if (flag(f, "T")) {
      const auto got = TaggedHeader::parse(ulpdu);
      EXPECT(v["id"], got.ok() && got.value() == tagged_from(f));
      ++tagged;
    } else {
      const auto got = UntaggedHeader::parse(ulpdu);
      EXPECT(v["id"], got.ok() && got.value() == untagged_from(f));
      ++untagged;
    }
  }
  assert_true(tagged >= 10 && untagged >= 15);
}

// Holds: DDP-1, DDP-3
void ddp_1_and_3_encode_agrees_with_the_vectors(void**) {
  for (const Json& v : load("fpdu.json", "vectors")) {
    const Bytes ulpdu = hex(v["ulpdu_hex"]);
    const Json& f = v["fields"];
    const Bytes got = flag(f, "T") ? emitted(tagged_from(f)) : emitted(untagged_from(f));
    expect_octets(got, Octets(ulpdu).first(got.size()), v["id"]);
  }
}

void a_segment_shorter_than_its_header_is_refused(void**) {
  const Bytes tagged = hex("c140112233440000000012345678");
  for (std::size_t n = 0; n < tagged.size(); ++n) {
    const auto got = TaggedHeader::parse(exact(Octets(tagged).first(n)));
    assert_true(!got.ok() && got.error() == fault::kDdpLocalCatastrophic);
  }
  assert_true(TaggedHeader::parse(exact(tagged)).ok());
  const Bytes untagged = hex("414300000000000000000000000100000000");
  for (std::size_t n = 0; n < untagged.size(); ++n) {
    const auto got = UntaggedHeader::parse(exact(Octets(untagged).first(n)));
    assert_true(!got.ok() && got.error() == fault::kDdpLocalCatastrophic);
  }
  assert_true(UntaggedHeader::parse(exact(untagged)).ok());
}

// Holds: DDP-2
void ddp_2_every_other_version_is_refused(void**) {
  for (unsigned version = 0; version < 4; ++version) {
    Bytes tagged = hex("c040112233440000000012345678");
    tagged[0] = static_cast<std::byte>(0xc0 | version);
    const auto t = TaggedHeader::parse(tagged);
    assert_int_equal(t.ok(), version == 1);
    if (!t.ok()) assert_true(t.error() == fault::kDdpTaggedVersion);
    Bytes untagged = hex("404300000000000000000000000100000000");
    untagged[0] = static_cast<std::byte>(0x40 | version);
    const auto u = UntaggedHeader::parse(untagged);
    assert_int_equal(u.ok(), version == 1);
    if (!u.ok()) assert_true(u.error() == fault::kDdpUntaggedVersion);
  }
}

// Holds: DDP-2
void ddp_2_versions_of_the_terminate_vectors(void**) {
  for (const Json& v : load("terminate.json", "vectors")) {
    if (v["id"] == "TRM-6") {
      const auto got = TaggedHeader::parse(hex(v["offending_ulpdu_hex"]));
      assert_true(!got.ok() && got.error() == (Fault{Layer::ddp, 1, 0x04}));
    }
    if (v["id"] == "TRM-12") {
      const auto got = UntaggedHeader::parse(hex(v["offending_ulpdu_hex"]));
      assert_true(!got.ok() && got.error() == (Fault{Layer::ddp, 2, 0x06}));
    }
  }
}

// Holds: DDP-3
void ddp_3_reserved_control_bits_change_nothing(void**) {
  for (unsigned reserved = 0; reserved < 16; ++reserved) {
    Bytes tagged = hex("c140112233440000000012345678");
    tagged[0] |= static_cast<std::byte>(reserved << 2);
    assert_true(TaggedHeader::parse(tagged).value() == (TaggedHeader{true, 0x40, 0x11223344, 0x12345678}));
    Bytes untagged = hex("014300000000000000070000000100000009");
    untagged[0] |= static_cast<std::byte>(reserved << 2);
    assert_true(UntaggedHeader::parse(untagged).value() == (UntaggedHeader{false, 0x43, 0, 7, 1, 9}));
  }
}

void fields_keep_their_extremes(void**) {
  const TaggedHeader t{false, 0xff, 0xfffefdfc, 0xfedcba9876543210};
  expect_octets(emitted(t), hex("81fffffefdfcfedcba9876543210"), "tagged");
  assert_true(TaggedHeader::parse(emitted(t)).value() == t);
  const UntaggedHeader u{true, 0x00, 0x01020304, 0xfffffffe, 0xfffffffd, 0xffffffff};
  expect_octets(emitted(u), hex("410001020304fffffffefffffffdffffffff"), "untagged");
  assert_true(UntaggedHeader::parse(emitted(u)).value() == u);
}

void headers_print_in_one_line(void**) {
  assert_string_equal(to_string(TaggedHeader{true, 0x40, 0x11223344, 0x1000}).c_str(),
                      "tagged ulp=40 stag=11223344 to=0000000000001000 last");
  assert_string_equal(to_string(UntaggedHeader{false, 0x43, 0, 0, 5, 1424}).c_str(),
                      "untagged ulp=43 qn=0 msn=5 mo=1424 word=00000000");
}

}  // namespace

const std::vector<CMUnitTest> kHeaderTests = {
    cmocka_unit_test(ddp_1_decode_agrees_with_the_vectors),
    cmocka_unit_test(ddp_1_and_3_encode_agrees_with_the_vectors),
    cmocka_unit_test(a_segment_shorter_than_its_header_is_refused),
    cmocka_unit_test(ddp_2_every_other_version_is_refused),
    cmocka_unit_test(ddp_2_versions_of_the_terminate_vectors),
    cmocka_unit_test(ddp_3_reserved_control_bits_change_nothing),
    cmocka_unit_test(fields_keep_their_extremes),
    cmocka_unit_test(headers_print_in_one_line),
};

}  // namespace ewarp::test
