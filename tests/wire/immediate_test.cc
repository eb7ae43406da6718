// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Immediate Data behind a Write (RFC 7306 section 6), and Send with Immediate, seen from the other end of the stream.
#include <endian.h>

#include <algorithm>
#include <cstring>

#include "tests/wire/scene.h"

using namespace ewarp;
using namespace ewarp::wire;

namespace {

constexpr std::uint32_t kData = 0xdeadbeef;  // its octets go out in this order

Bytes send_immediate(std::uint32_t msn, const Bytes& payload, bool solicited, std::uint32_t mo = 0, bool last = true) {
  return untagged(last ? 0x41 : 0x01, 0x40 | (solicited ? 0x10 : 0) | kSendImmediate, kData, 0, msn, mo, payload);
}

int post(Scene& s, ibv_wr_opcode op, std::uint32_t octets, bool solicited = false) {
  const unsigned flags = IBV_SEND_SIGNALED | (solicited ? unsigned{IBV_SEND_SOLICITED} : 0u);
  return s.side.send(op, {s.side.sge(0, octets)}, kFar, kKey, flags, 1, kData);
}

// The next completion is a receive's, with our immediate and this length.
void expect_immediate(Scene& s, ibv_wc_opcode opcode, std::uint64_t id, std::size_t octets) {
  const ibv_wc wc = s.side.wait();
  assert_int_equal(wc.status, IBV_WC_SUCCESS);
  assert_int_equal(wc.opcode, opcode);
  assert_int_equal(wc.wr_id, id);
  assert_int_equal(wc.byte_len, octets);
  assert_int_equal(wc.wc_flags, IBV_WC_WITH_IMM);
  assert_int_equal(be32toh(wc.imm_data), kData);
}

const Bytes& eight() {
  static const Bytes octets = concat({u32(kData), u32(0)});
  return octets;
}

// --- as the sender ---

// Holds: RDM-30
// To the octet; the two are neighbours even while responses are due, and the Write is sent when it is empty.
void rdm_30_a_write_and_its_immediate(void**) {
  for (const Setup& setup : kSetups)
    for (const bool solicited : {false, true}) {
      Scene s(consenting(setup));
      s.open_responder();
      const Bytes data = pattern(200000);
      std::memcpy(s.side.at(0), data.data(), data.size());
      std::uint32_t msn = 0;
      for (const std::uint32_t octets : {0u, 1u, 500u, 64750u, 64751u, 200000u}) {
        s.peer->send(read_request(++msn, 9, 0, 4, s.side.mr->stag(), s.side.address(0)));
        assert_int_equal(post(s, IBV_WR_RDMA_WRITE_WITH_IMM, octets, solicited), 0);
        Bytes got;
        bool read = false, immediately = false, whole = false;
        while (!read || !immediately) {
          const Bytes ulpdu = s.peer->next();
          const Segment g = dissect(ulpdu, true);
          if (whole && !immediately) {
            test::expect_octets(ulpdu, immediate(msn, eight(), solicited ? kImmediateSe : kImmediate), "Immediate");
            immediately = true;
          } else if (g.opcode == kReadResponse) {
            assert_true(got.empty() || immediately);
            read = true;
          } else {
            assert_int_equal(g.opcode, kWrite);
            assert_true(g.stag == kKey && g.to == kFar + got.size());
            got = concat({got, g.payload});
            whole = g.last;
          }
        }
        assert_true(got == slice(data, 0, octets));
        const ibv_wc wc = s.side.wait();
        assert_int_equal(wc.status, IBV_WC_SUCCESS);
        assert_int_equal(wc.opcode, IBV_WC_RDMA_WRITE);
      }
    }
}

// Holds: RDM-30
void sends_with_immediate(void**) {
  for (const Setup& setup : kSetups)
    for (const bool solicited : {false, true}) {
      Scene s(consenting(setup), 8192);
      s.open_responder();
      std::uint32_t msn = 0;
      for (const std::uint32_t octets : {0u, 5u, 4000u}) {
        const Bytes data = pattern(octets, octets);
        if (octets > 0) std::memcpy(s.side.at(0), data.data(), octets);
        assert_int_equal(post(s, IBV_WR_SEND_WITH_IMM, octets, solicited), 0);
        s.peer->expect(send_immediate(++msn, data, solicited));
        assert_int_equal(s.side.wait().opcode, IBV_WC_SEND);
      }
    }
}

// Holds: VRB-13
// By the MSN that the Immediate has.
void vrb_13_a_terminate_about_an_immediate_that_is_complete(void**) {
  for (const Setup& setup : kSetups) {
    Scene s(consenting(setup), 8192);
    s.open_responder();
    assert_int_equal(post(s, IBV_WR_RDMA_WRITE_WITH_IMM, 8), 0);
    s.peer->next();
    const Bytes imm = s.peer->next();
    s.peer->send(answer_to(imm, 1, 2, 2));
    s.expect_completions("complete", {{1, IBV_WC_SUCCESS}});
    s.expect_event("complete", IBV_EVENT_QP_REQ_ERR);
  }
}

// --- as the receiver ---

// Holds: RDM-28, VRB-28, VRB-35
// A receive for each, its buffer untouched; the length of the Write directly before.
void rdm_28_immediates_arrive(void**) {
  for (const Setup& setup : kSetups) {
    Scene s(consenting(setup));
    std::memset(s.side.at(0), 0x5a, 64);
    const std::uint32_t stag = s.side.mr->stag();
    std::uint32_t msn = 0;
    for (const std::size_t octets : {0u, 1u, 8u, 5000u, 200000u}) {
      assert_int_equal(s.side.receive({s.side.sge(0, 64)}, 100 + msn), 0);
      const Bytes data = pattern(octets);
      s.peer->send(write_segment(stag, s.side.address(1000), pattern(77)));  // another Write: not counted
      for (std::size_t at = 0; at == 0 || at < octets; at += 60000) {
        const std::size_t n = std::min<std::size_t>(octets - at, 60000);
        s.peer->send(write_segment(stag, s.side.address(2000 + at), slice(data, at, n), at + n == octets));
      }
      s.peer->send(immediate(++msn, eight()));
      expect_immediate(s, IBV_WC_RECV_RDMA_WITH_IMM, 100 + msn - 1, octets);
      if (octets > 0) assert_memory_equal(s.side.at(2000), data.data(), octets);
    }
    // Not directly before.
    for (const std::uint64_t id : {200, 201, 202}) assert_int_equal(s.side.receive({s.side.sge(8000, 0)}, id), 0);
    s.peer->send(write_segment(stag, s.side.address(2000), pattern(77)));
    s.peer->send(send_segment(++msn, {}));
    s.peer->send(immediate(++msn, eight()));
    s.peer->send(immediate(++msn, eight()));
    assert_int_equal(s.side.wait().opcode, IBV_WC_RECV);
    expect_immediate(s, IBV_WC_RECV_RDMA_WITH_IMM, 201, 0);
    expect_immediate(s, IBV_WC_RECV_RDMA_WITH_IMM, 202, 0);
    for (std::size_t i = 0; i < 64; ++i) assert_int_equal(*s.side.at(i), 0x5a);
  }
}

// Holds: RDM-30
void sends_with_immediate_arrive(void**) {
  for (const Setup& setup : kSetups) {
    Scene s(consenting(setup), 65536);
    for (const std::uint64_t id : {100, 101}) assert_int_equal(s.side.receive({s.side.sge(0, 60000)}, id), 0);
    const Bytes data = pattern(50000);
    s.peer->send(send_immediate(1, {}, false));
    expect_immediate(s, IBV_WC_RECV, 100, 0);
    s.peer->send(send_immediate(2, slice(data, 0, 20000), true, 0, false));
    s.peer->send(send_immediate(2, slice(data, 20000, 30000), true, 20000));
    expect_immediate(s, IBV_WC_RECV, 101, 50000);
    assert_memory_equal(s.side.at(0), data.data(), data.size());
  }
}

// Holds: RDM-28
void solicited_events(void**) {
  for (const Setup& setup : kSetups) {
    Scene s(consenting(setup), 8192);
    std::uint32_t msn = 0;
    for (const bool solicited : {false, true, false, true}) {
      s.side.cq.arm(true);
      for (const std::uint64_t id : {100, 101}) assert_int_equal(s.side.receive({s.side.sge(0, 64)}, id), 0);
      s.peer->send(immediate(++msn, eight(), solicited ? kImmediateSe : kImmediate));
      expect_immediate(s, IBV_WC_RECV_RDMA_WITH_IMM, 100, 0);
      assert_true(s.side.cq_event(solicited ? test::kPatience : 10) == solicited);
      s.side.cq.arm(true);
      s.peer->send(send_immediate(++msn, pattern(9), solicited));
      expect_immediate(s, IBV_WC_RECV, 101, 9);
      assert_true(s.side.cq_event(solicited ? test::kPatience : 10) == solicited);
    }
  }
}

// Holds: RDM-28
// An Immediate that finds no receive waits for one as a Send does. That it does not for ever: expiry_test.cc.
void immediates_wait_for_a_receive(void**) {
  for (const Setup& setup : kSetups) {
    Scene s(consenting(setup), 8192);
    s.peer->send(write_segment(s.side.mr->stag(), s.side.address(0), pattern(77)));
    s.peer->send(immediate(1, eight()));
    s.peer->expect_silence(50);
    assert_int_equal(s.side.receive({}, 100), 0);
    expect_immediate(s, IBV_WC_RECV_RDMA_WITH_IMM, 100, 77);
  }
}

// Holds: RDM-29
// What is not one whole message of 8 octets.
void rdm_29_immediates_that_are_wrong(void**) {
  for (const Setup& setup : kSetups) {
    Bytes not_last = immediate(1, eight()), other_queue = not_last;
    not_last[0] = std::byte{0x01};
    other_queue[9] = std::byte{1};
    const struct {
      const char* what;
      Bytes ulpdu;
      unsigned type, code;
    } kCases[] = {
        {"TRM-22", immediate(1, pattern(7)), 2, 0xff},
        {"nothing", immediate(1, {}), 2, 0xff},
        {"9 octets", immediate(1, pattern(9)), 2, 0xff},
        {"more than a segment", immediate(1, pattern(5000)), 2, 0xff},
        {"not the last", not_last, 2, 0xff},
        {"queue of requests", other_queue, 2, 6},
    };
    for (const auto& c : kCases) {
      Scene s(consenting(setup), 8192);
      s.open_responder();
      std::memset(s.side.at(0), 0x5a, 8192);
      assert_int_equal(s.side.receive({s.side.sge(0, 8192)}, 100), 0);
      s.peer->send(c.ulpdu);
      s.peer->expect(answer_to(c.ulpdu, 0, c.type, c.code), c.what);
      s.peer->expect_fin();
      s.expect_completions(c.what, {{100, IBV_WC_WR_FLUSH_ERR}});
      s.expect_event(c.what, IBV_EVENT_QP_REQ_ERR);
      for (std::size_t i = 0; i < 8192; ++i) assert_int_equal(*s.side.at(i), 0x5a);
    }
    // In the middle of a Send.
    Scene s(consenting(setup), 8192);
    s.open_responder();
    assert_int_equal(s.side.receive({s.side.sge(0, 8192)}, 100), 0);
    s.peer->send(send_segment(1, {}, 0, false));
    s.peer->send(immediate(1, eight()));
    s.peer->expect(answer_to(immediate(1, eight()), 0, 2, 0xff));
    s.expect_completions("inside", {{100, IBV_WC_WR_FLUSH_ERR}});
  }
}

// Holds: RDM-36
// Without consent, neither sent nor taken.
void rdm_36_without_consent(void**) {
  for (const Setup& setup : kSetups)
    for (const Bytes& bad : {immediate(1, eight()), immediate(1, eight(), kImmediateSe), send_immediate(1, {}, false),
                             atomic_request(1, {}), untagged(0x41, 0x40 | kAtomicRequest, 0, 1, 1, 0, Bytes(52))}) {
      Scene s(setup, 8192);
      s.open_responder();
      assert_int_equal(post(s, IBV_WR_SEND_WITH_IMM, 8), EINVAL);
      assert_int_equal(post(s, IBV_WR_RDMA_WRITE_WITH_IMM, 8), EINVAL);
      assert_int_equal(s.side.receive({s.side.sge(0, 64)}, 100), 0);
      s.peer->send(bad);
      s.peer->expect(answer_to(bad, 0, 2, 6));
      s.peer->expect_fin();
      s.expect_completions("no consent", {{100, IBV_WC_WR_FLUSH_ERR}});
    }
}

}  // namespace

int main() {
  stop_at_first_failure();
  set_waits("30000", "30000");
  const CMUnitTest tests[] = {
      cmocka_unit_test(rdm_30_a_write_and_its_immediate),
      cmocka_unit_test(sends_with_immediate),
      cmocka_unit_test(vrb_13_a_terminate_about_an_immediate_that_is_complete),
      cmocka_unit_test(rdm_28_immediates_arrive),
      cmocka_unit_test(sends_with_immediate_arrive),
      cmocka_unit_test(solicited_events),
      cmocka_unit_test(immediates_wait_for_a_receive),
      cmocka_unit_test(rdm_29_immediates_that_are_wrong),
      cmocka_unit_test(rdm_36_without_consent),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
