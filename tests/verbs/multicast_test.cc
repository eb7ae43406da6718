// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Groups: every member gets a copy, nobody else, and the sender not its own.
#include "tests/verbs/datagram_sides.h"

#include <cerrno>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

extern "C" {
#include <cmocka.h>
}

namespace ewarp::test {
namespace {

constexpr const char* kGroup = "::ffff:239.77.1.1";
constexpr const char* kOtherGroup = "::ffff:239.77.1.2";

ibv_wc expect(DatagramSide& r, const DatagramSide& from, std::uint32_t length) {
  const ibv_wc wc = r.wait();
  assert_int_equal(wc.status, IBV_WC_SUCCESS);
  assert_int_equal(wc.opcode, IBV_WC_RECV);
  assert_int_equal(wc.src_qp, from.qp->number());
  assert_int_equal(wc.byte_len, 40 + length);
  return wc;
}

// After a datagram that surely arrives, nothing else has.
void expect_nothing(DatagramSide& r, DatagramSide& from) {
  AddressHandleObject ah = from.address();
  DatagramSide::Sending how;
  how.flags = 0;
  assert_int_equal(r.receive({r.sge(0, 100)}), 0);
  assert_int_equal(from.send(ah, r.qp->number(), {from.sge(0, 33)}, how), 0);
  expect(r, from, 33);
}

void send_to(DatagramSide& s, const char* group, std::uint32_t length, std::uint32_t qkey = kQkey) {
  AddressHandleObject ah = s.address(group);
  DatagramSide::Sending how;
  how.flags = 0;
  how.qkey = qkey;
  assert_int_equal(s.send(ah, llp::kMulticastQpn, {s.sge(0, length)}, how), 0);
}

// Holds: UD-9
void members_get_a_copy(void**) {
  DatagramSide sender, a, b, outsider;
  for (DatagramSide* s : {&a, &b, &sender}) assert_int_equal(attach_group(*s->qp, gid_of(kGroup)), 0);
  assert_int_equal(attach_group(*a.qp, gid_of(kGroup)), 0);  // again: nothing changes
  assert_int_equal(attach_group(*outsider.qp, gid_of(kOtherGroup)), 0);
  for (DatagramSide* s : {&a, &b, &sender, &outsider})
    for (int i = 0; i < 4; ++i) assert_int_equal(s->receive({s->sge(1000, 200)}), 0);
  sender.fill(0, 64);
  send_to(sender, kGroup, 64);
  for (DatagramSide* s : {&a, &b}) {
    expect(*s, sender, 64);
    assert_true(s->filled(1040, 64));
    // To the group, by the header in front.
    assert_int_equal(get_be<std::uint32_t>(Octets(s->at(1000), 40), 36), 0xef4d0101);
  }
  for (DatagramSide* s : {&a, &b, &outsider}) expect_nothing(*s, sender);
  expect_nothing(sender, a);
  const auto before = drops(llp::DatagramDrop::qkey);
  send_to(sender, kGroup, 8, 5);
  // To each member but the sender.
  assert_true(counted(stats::page().datagrams.drops[static_cast<int>(llp::DatagramDrop::qkey)], before, 2));

  assert_true(has_groups(*a.qp));
  assert_int_equal(detach_group(*a.qp, gid_of(kGroup)), 0);
  assert_int_equal(detach_group(*a.qp, gid_of(kGroup)), EINVAL);
  assert_false(has_groups(*a.qp));
  send_to(sender, kGroup, 16);
  expect(b, sender, 16);
  expect_nothing(a, sender);
}

void what_may_not_be_attached(void**) {
  DatagramSide a;
  Side rc(4096);
  assert_int_equal(attach_group(*a.qp, gid_of("::ffff:127.0.0.1")), EINVAL);
  assert_int_equal(attach_group(*rc.qp, gid_of(kGroup)), EINVAL);
  assert_int_equal(detach_group(*a.qp, gid_of(kGroup)), EINVAL);
}

// Holds: UD-9
// The socket goes with the last member and comes with the next.
void groups_come_and_go(void**) {
  DatagramSide sender;
  for (int round = 0; round < 5; ++round) {
    DatagramSide a;
    assert_int_equal(attach_group(*a.qp, gid_of(kGroup)), 0);
    assert_int_equal(a.receive({a.sge(0, 100)}), 0);
    send_to(sender, kGroup, 5);
    expect(a, sender, 5);
    if (round % 2 == 0) assert_int_equal(detach_group(*a.qp, gid_of(kGroup)), 0);
  }
}

// Unicast to port 65535 reaches no member.
void not_by_unicast(void**) {
  DatagramSide sender, a;
  assert_int_equal(attach_group(*a.qp, gid_of(kGroup)), 0);
  const auto before = drops(llp::DatagramDrop::qp);
  AddressHandleObject ah = sender.address();
  DatagramSide::Sending how;
  how.flags = 0;
  assert_int_equal(sender.send(ah, llp::kMulticastQpn, {sender.sge(0, 8)}, how), 0);
  assert_true(counted(stats::page().datagrams.drops[static_cast<int>(llp::DatagramDrop::qp)], before, 1));
}

}  // namespace
}  // namespace ewarp::test

int main() {
  using namespace ewarp::test;
  const CMUnitTest tests[] = {
      cmocka_unit_test(members_get_a_copy),
      cmocka_unit_test(what_may_not_be_attached),
      cmocka_unit_test(groups_come_and_go),
      cmocka_unit_test(not_by_unicast),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
