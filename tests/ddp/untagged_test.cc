// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// MSN and MO on the untagged queues.
#include "ddp/untagged.h"

#include "tests/ddp/ddp_tests.h"

namespace ewarp::test {
namespace {

using ddp::UntaggedHeader;
using ddp::UntaggedQueues;

UntaggedHeader segment(std::uint32_t qn, std::uint32_t msn, std::uint32_t mo, bool last) {
  return {last, 0x43, 0, qn, msn, mo};
}

bool accepted(UntaggedQueues& queues, const UntaggedHeader& h, std::size_t payload) {
  if (queues.check_queue(h).has_value() || queues.check_offset(h, payload).has_value()) return false;
  queues.advance(h, payload);
  return true;
}

// Holds: DDP-9
void ddp_9_every_queue_starts_at_msn_1_and_counts_for_itself(void**) {
  UntaggedQueues queues(4);
  for (std::uint32_t qn = 0; qn < 4; ++qn) {
    for (std::uint32_t msn = 1; msn < 1 + 3 * (qn + 1); ++msn) {
      assert_int_equal(queues.expected_msn(qn), msn);
      assert_true(accepted(queues, segment(qn, msn, 0, true), 8));
    }
  }
  for (std::uint32_t qn = 0; qn < 4; ++qn) assert_int_equal(queues.expected_msn(qn), 1 + 3 * (qn + 1));
}

// Holds: DDP-9
void ddp_9_msn_wraps_to_0(void**) {
  UntaggedQueues q(3, 0xfffffffe);
  for (const std::uint32_t msn : {0xfffffffeu, 0xffffffffu, 0u, 1u})
    assert_true(accepted(q, segment(0, msn, 0, true), 8));
  // FP-SMSN0 is what comes after 0xffffffff.
  for (const Json& v : load("fpdu.json", "vectors")) {
    if (v["id"] != "FP-SMSN0") continue;
    UntaggedQueues wrapping(3, 0xffffffff);
    assert_true(accepted(wrapping, segment(0, 0xffffffff, 0, true), 8));
    assert_true(accepted(wrapping, UntaggedHeader::parse(hex(v["ulpdu_hex"])).value(), 8));
    return;
  }
  fail_msg("no FP-SMSN0");
}

// Holds: DDP-10
void ddp_10_unknown_queue(void**) {
  for (const std::uint32_t queues : {3u, 4u}) {
    UntaggedQueues q(queues);
    for (const std::uint32_t qn : {queues, queues + 1, 7u, 0x80000000u, 0xffffffffu}) {
      assert_true(q.check_queue(segment(qn, 1, 0, true)) == fault::kDdpInvalidQn);
    }
    for (std::uint32_t qn = 0; qn < queues; ++qn) assert_false(q.check_queue(segment(qn, 1, 0, true)).has_value());
  }
  UntaggedQueues asked_for_too_many(1000);
  assert_true(asked_for_too_many.check_queue(segment(4, 1, 0, true)) == fault::kDdpInvalidQn);
}

// Holds: DDP-12
void ddp_12_only_the_next_msn_is_in_range(void**) {
  UntaggedQueues q;
  for (const std::uint32_t msn : {0u, 2u, 9u, 0x80000001u, 0xffffffffu})
    assert_true(q.check_queue(segment(0, msn, 0, true)) == fault::kDdpMsnRange);
  assert_true(accepted(q, segment(0, 1, 0, true), 4));
  assert_true(q.check_queue(segment(0, 1, 0, true)) == fault::kDdpMsnRange);  // delivered once
}

// Holds: DDP-13
void ddp_13_mo_stands_where_the_message_stands(void**) {
  UntaggedQueues q;
  assert_true(q.check_offset(segment(0, 1, 64, true), 8) == fault::kDdpInvalidMo);
  assert_true(accepted(q, segment(0, 1, 0, false), 100));
  assert_true(q.in_message(0));
  assert_int_equal(q.offset(0), 100);
  for (const std::uint32_t mo : {0u, 99u, 101u, 0xffffffffu})
    assert_true(q.check_offset(segment(0, 1, mo, true), 8) == fault::kDdpInvalidMo);
  // Nothing that failed a check has moved anything.
  assert_true(accepted(q, segment(0, 1, 100, true), 20));
  assert_false(q.in_message(0));
  assert_int_equal(q.offset(0), 0);
  assert_int_equal(q.expected_msn(0), 2);
}

// Holds: DDP-13
void ddp_13_a_message_ends_below_2_to_the_32(void**) {
  UntaggedQueues q;
  q.advance(segment(0, 1, 0, false), 0xfffffff0u);
  assert_false(q.check_offset(segment(0, 1, 0xfffffff0u, true), 15).has_value());
  assert_true(q.check_offset(segment(0, 1, 0xfffffff0u, true), 16) == fault::kDdpInvalidMo);
  assert_true(q.check_offset(segment(0, 1, 0xfffffff0u, true), 0x20) == fault::kDdpInvalidMo);  // 0x10 modulo 2^32
}

// Holds: DDP-20
void ddp_20_a_message_without_octets_takes_its_msn(void**) {
  UntaggedQueues q;
  assert_true(accepted(q, segment(0, 1, 0, true), 0));
  assert_int_equal(q.expected_msn(0), 2);
}

// Holds: DDP-22
void ddp_22_length_is_the_last_offset_and_its_payload(void**) {
  UntaggedQueues q;
  for (std::uint32_t mo = 0; mo < 4272; mo += 1424) assert_true(accepted(q, segment(0, 1, mo, false), 1424));
  assert_false(q.check_offset(segment(0, 1, 4272, true), 728).has_value());
  assert_int_equal(q.offset(0) + 728, 5000);
}

void queues_do_not_see_each_others_messages(void**) {
  UntaggedQueues q;
  assert_true(accepted(q, segment(0, 1, 0, false), 10));
  assert_true(accepted(q, segment(1, 1, 0, true), 28));
  assert_true(q.in_message(0));
  assert_false(q.in_message(1));
  assert_true(accepted(q, segment(0, 1, 10, true), 10));
}

// Holds: DDP-10, DDP-12, DDP-13
void ddp_10_12_13_terminate_vectors(void**) {
  const struct {
    const char* id;
    Fault fault;
  } kCases[] = {{"TRM-7", {Layer::ddp, 2, 0x01}}, {"TRM-9", {Layer::ddp, 2, 0x03}}, {"TRM-10", {Layer::ddp, 2, 0x04}}};
  unsigned seen = 0;
  for (const Json& v : load("terminate.json", "vectors"))
    for (const auto& c : kCases) {
      if (v["id"] != c.id) continue;
      const Bytes ulpdu = hex(v["offending_ulpdu_hex"]);
      const auto h = UntaggedHeader::parse(ulpdu).value();
      const UntaggedQueues q;
      auto got = q.check_queue(h);
      if (!got.has_value()) got = q.check_offset(h, ulpdu.size() - UntaggedHeader::kSize);
      EXPECT(c.id, got == c.fault);
      ++seen;
    }
  assert_int_equal(seen, 3);
}

}  // namespace

const std::vector<CMUnitTest> kUntaggedTests = {
    cmocka_unit_test(ddp_9_every_queue_starts_at_msn_1_and_counts_for_itself),
    cmocka_unit_test(ddp_9_msn_wraps_to_0),
    cmocka_unit_test(ddp_10_unknown_queue),
    cmocka_unit_test(ddp_12_only_the_next_msn_is_in_range),
    cmocka_unit_test(ddp_13_mo_stands_where_the_message_stands),
    cmocka_unit_test(ddp_13_a_message_ends_below_2_to_the_32),
    cmocka_unit_test(ddp_20_a_message_without_octets_takes_its_msn),
    cmocka_unit_test(ddp_22_length_is_the_last_offset_and_its_payload),
    cmocka_unit_test(queues_do_not_see_each_others_messages),
    cmocka_unit_test(ddp_10_12_13_terminate_vectors),
};

}  // namespace ewarp::test
