// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// RDMAP headers, decode and encode each against the vectors; the opcode table; atomics.
#include "rdmap/header.h"

#include "ddp/header.h"
#include "tests/rdmap/codec_tests.h"

namespace ewarp::test {
namespace {

using rdmap::AtomicRequest;
using rdmap::AtomicResponse;
using rdmap::ImmediateData;
using rdmap::Opcode;
using rdmap::ReadRequest;

std::uint32_t u32(const Json& f, const char* key) {
  return static_cast<std::uint32_t>(number(f[key]));
}

ReadRequest read_request_from(const Json& f) {
  return {u32(f, "SinkSTag"), number(f["SinkTO"]), u32(f, "RDMARDSZ"), u32(f, "SrcSTag"), number(f["SrcTO"])};
}

AtomicRequest atomic_request_from(const Json& f) {
  AtomicRequest a;
  a.op = static_cast<std::uint8_t>(number(f["AOpCode"]));
  a.request_id = u32(f, "ReqID");
  a.stag = u32(f, "RemoteSTag");
  a.to = number(f["RemoteTO"]);
  a.data = number(f["Data"]);
  a.data_mask = number(f["Mask"]);
  a.compare = number(f["CompareData"]);
  a.compare_mask = number(f["CompareMask"]);
  return a;
}

AtomicResponse atomic_response_from(const Json& f) {
  return {u32(f, "OrigReqID"), number(f["OrigValue"])};
}

// Its first four octets; verbs knows no more.
ImmediateData immediate_from(const Json& f) {
  return {get_be<std::uint32_t>(hex(f["immediate_hex"]), 0)};
}

// The octets behind the DDP header.
Bytes body_of(const Json& v) {
  const Bytes ulpdu = hex(v["ulpdu_hex"]);
  const std::size_t header = ddp::is_tagged(ulpdu) ? ddp::TaggedHeader::kSize : ddp::UntaggedHeader::kSize;
  return exact(Octets(ulpdu).subspan(header));
}

template <class Header>
void expect_codec(const Json& v, const Header& value) {
  const Bytes body = body_of(v);
  const auto got = Header::parse(body);
  EXPECT(v["id"], got.ok() && got.value() == value);
  expect_octets(emitted(value), body, v["id"]);
}

// Holds: RDM-1, RDM-9, RDM-31
void rdm_1_9_and_31_headers_agree_with_the_vectors(void**) {
  unsigned checked = 0;
  for (const Json& v : load("fpdu.json", "vectors")) {
    const Json& f = v["fields"];
    switch (static_cast<Opcode>(number(f["opcode"]))) {
      case Opcode::read_request:
        expect_codec(v, read_request_from(f));
        break;
      case Opcode::atomic_request:
        expect_codec(v, atomic_request_from(f));
        break;
      case Opcode::atomic_response:
        expect_codec(v, atomic_response_from(f));
        break;
      default:
        continue;
    }
    ++checked;
  }
  assert_int_equal(checked, 5);
}

// Holds: RDM-28, RDM-30
// FP-IMSE has all 8 octets in use, which we never send.
void rdm_30_immediate_data_agrees_with_the_vectors(void**) {
  unsigned checked = 0;
  for (const Json& v : load("fpdu.json", "vectors")) {
    const Json& f = v["fields"];
    if (!f.contains("immediate_hex")) continue;
    const auto got = ImmediateData::parse(body_of(v));
    EXPECT(v["id"], got.ok() && got.value() == immediate_from(f));
    if (v["id"] == "FP-IM") expect_octets(emitted(immediate_from(f)), body_of(v), v["id"]);
    ++checked;
  }
  assert_int_equal(checked, 2);
}

// Holds: RDM-1
void rdm_1_control_octets_agree_with_the_vectors(void**) {
  for (const Json& v : load("fpdu.json", "vectors")) {
    const Bytes ulpdu = hex(v["ulpdu_hex"]);
    const auto octet = get_be<std::uint8_t>(ulpdu, 1);
    const Json& f = v["fields"];
    EXPECT(v["id"], rdmap::opcode_of(octet) == number(f["opcode"]));
    EXPECT(v["id"], rdmap::version_of(octet) == rdmap::kRdmapVersion);
    EXPECT(v["id"], rdmap::control(static_cast<Opcode>(number(f["opcode"]))) == octet);
  }
}

// Holds: RDM-2
void rdm_2_version_and_reserved_bits(void**) {
  for (unsigned octet = 0; octet < 256; ++octet) {
    assert_int_equal(rdmap::version_of(static_cast<std::uint8_t>(octet)), octet >> 6);
    assert_int_equal(rdmap::opcode_of(static_cast<std::uint8_t>(octet)), octet & 15);  // 0x30 is not looked at
  }
}

// Holds: RDM-3, RDM-4
void rdm_3_and_4_the_table_agrees_with_the_vectors(void**) {
  for (const Json& v : load("fpdu.json", "vectors")) {
    const Json& f = v["fields"];
    const auto* t = rdmap::traits(static_cast<std::uint8_t>(number(f["opcode"])));
    EXPECT(v["id"], t != nullptr && t->tagged == flag(f, "T"));
    if (!t->tagged) EXPECT(v["id"], t->qn == number(f["QN"]));
    EXPECT(v["id"], t->header <= body_of(v).size());
    if (t->single_segment) EXPECT(v["id"], flag(f, "L") && number(f["MO"]) == 0 && t->header == body_of(v).size());
  }
}

// Holds: RDM-3, RDM-4
// Transcribed from RFC 5040 figure 4 and RFC 7306 figures 3 and 4.
void rdm_3_and_4_the_table_row_by_row(void**) {
  const struct {
    unsigned opcode;
    bool tagged;
    unsigned qn, header;
    bool single, extension;
  } kRows[] = {
      {0x0, true, 0, 0, false, false},  {0x1, false, 1, 28, true, false}, {0x2, true, 0, 0, false, false},
      {0x3, false, 0, 0, false, false}, {0x4, false, 0, 0, false, false}, {0x5, false, 0, 0, false, false},
      {0x6, false, 0, 0, false, false}, {0x7, false, 2, 4, true, false},  {0x8, false, 0, 8, true, true},
      {0x9, false, 0, 8, true, true},   {0xa, false, 1, 52, true, true},  {0xb, false, 3, 12, true, true},
      {0xf, false, 0, 0, false, true},
  };
  for (const auto& r : kRows) {
    const auto* t = rdmap::traits(static_cast<std::uint8_t>(r.opcode));
    EXPECT(std::to_string(r.opcode), t != nullptr && t->name != nullptr);
    EXPECT(t->name, t->tagged == r.tagged && (r.tagged || t->qn == r.qn));
    EXPECT(t->name, t->header == r.header && t->single_segment == r.single && t->extension == r.extension);
  }
  for (const unsigned unassigned : {0xcu, 0xdu, 0xeu, 16u, 100u, 255u})
    assert_null(rdmap::traits(static_cast<std::uint8_t>(unassigned)));
}

template <class Header>
void expect_size_is_exact(Octets good) {
  assert_true(Header::parse(good).ok());
  for (std::size_t n = 0; n < good.size(); ++n) {
    const auto got = Header::parse(exact(good.first(n)));
    assert_true(!got.ok() && got.error() == fault::kRdmapUnspecified);
  }
  Bytes longer = exact(good);
  longer.push_back(std::byte{0});
  assert_false(Header::parse(longer).ok());
}

// Holds: RDM-29
void headers_of_another_size_are_refused(void**) {
  expect_size_is_exact<ReadRequest>(Bytes(28));
  expect_size_is_exact<ImmediateData>(Bytes(8));
  expect_size_is_exact<AtomicRequest>(Bytes(52));
  expect_size_is_exact<AtomicResponse>(Bytes(12));
}

// Holds: RDM-31
void rdm_31_reserved_bits_of_an_atomic_are_ignored_and_sent_as_zero(void**) {
  Bytes in(52);
  for (unsigned i = 0; i < 4; ++i) in[i] = std::byte{0xff};
  const auto got = AtomicRequest::parse(in);
  assert_true(got.ok());
  assert_int_equal(got.value().op, 15);
  AtomicRequest a;
  a.op = 0xf2;
  const Bytes out = emitted(a);
  assert_int_equal(get_be<std::uint32_t>(out, 0), 2);
}

// Holds: RDM-32
void rdm_32_atomics_agree_with_the_vectors(void**) {
  unsigned checked = 0;
  for (const Json& v : load("atomics.json", "vectors")) {
    const std::uint64_t orig = number(v["orig"]);
    const std::uint64_t got = v["op"] == "FetchAdd"
                                  ? rdmap::fetch_add(orig, number(v["add"]), number(v["mask"]))
                                  : rdmap::compare_swap(orig, number(v["swap"]), number(v["swap_mask"]),
                                                        number(v["compare"]), number(v["compare_mask"]));
    EXPECT(v["id"], got == number(v["result"]));
    ++checked;
  }
  assert_int_equal(checked, 11);
}

// Bit by bit, with the carry dropped at each bit that ends a field.
std::uint64_t fetch_add_by_bits(std::uint64_t memory, std::uint64_t addend, std::uint64_t mask) {
  std::uint64_t sum = 0, carry = 0;
  for (unsigned bit = 0; bit < 64; ++bit) {
    const std::uint64_t s = (memory >> bit & 1) + (addend >> bit & 1) + carry;
    sum |= (s & 1) << bit;
    carry = (mask >> bit & 1) != 0 ? 0 : s >> 1;
  }
  return sum;
}

// Holds: RDM-32
void rdm_32_masked_add_equals_the_bitwise_definition(void**) {
  std::uint64_t x = 0x9e3779b97f4a7c15;
  const auto next = [&x] {
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return x;
  };
  for (unsigned i = 0; i < 20000; ++i) {
    const std::uint64_t memory = next(), addend = next(), dense = next(), sparse = next() & next() & next();
    for (const std::uint64_t mask : {dense, sparse, std::uint64_t{0}, ~std::uint64_t{0}})
      assert_true(rdmap::fetch_add(memory, addend, mask) == fetch_add_by_bits(memory, addend, mask));
  }
}

}  // namespace

const std::vector<CMUnitTest> kHeaderTests = {
    cmocka_unit_test(rdm_1_9_and_31_headers_agree_with_the_vectors),
    cmocka_unit_test(rdm_30_immediate_data_agrees_with_the_vectors),
    cmocka_unit_test(rdm_1_control_octets_agree_with_the_vectors),
    cmocka_unit_test(rdm_2_version_and_reserved_bits),
    cmocka_unit_test(rdm_3_and_4_the_table_agrees_with_the_vectors),
    cmocka_unit_test(rdm_3_and_4_the_table_row_by_row),
    cmocka_unit_test(headers_of_another_size_are_refused),
    cmocka_unit_test(rdm_31_reserved_bits_of_an_atomic_are_ignored_and_sent_as_zero),
    cmocka_unit_test(rdm_32_atomics_agree_with_the_vectors),
    cmocka_unit_test(rdm_32_masked_add_equals_the_bitwise_definition),
};

}  // namespace ewarp::test
