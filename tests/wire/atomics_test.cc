// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// RFC 7306 atomics, seen from the other end of the stream.
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "tests/wire/scene.h"

using namespace ewarp;
using namespace ewarp::wire;

namespace {

constexpr unsigned kAtomic = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_REMOTE_READ;
constexpr std::uint32_t kFetchAdd = 0, kCompareSwap = 2;
constexpr std::uint64_t kOnes = ~std::uint64_t{0};

std::uint64_t word_at(Scene& s, std::size_t offset) {
  std::uint64_t value;
  std::memcpy(&value, s.side.at(offset), sizeof value);
  return value;
}

void set_word(Scene& s, std::size_t offset, std::uint64_t value) {
  std::memcpy(s.side.at(offset), &value, sizeof value);
}

int post_atomic(Scene& s, ibv_wr_opcode op, std::uint64_t id, ibv_sge sge, std::uint64_t compare_add,
                std::uint64_t swap = 0, unsigned flags = IBV_SEND_SIGNALED) {
  return s.side.atomic(op, sge, kFar, kKey, compare_add, swap, flags, id);
}

int post_add(Scene& s, std::uint64_t id, std::size_t at = 0, unsigned flags = IBV_SEND_SIGNALED) {
  return post_atomic(s, IBV_WR_ATOMIC_FETCH_AND_ADD, id, s.side.sge(at, 8), 1, 0, flags);
}

// --- as the one whose memory it is ---

// Holds: RDM-31, RDM-32
// By the table of the vectors (AT-1 to AT-11), masks and all.
void rdm_32_requests_are_executed(void**) {
  const struct {
    const char* id;
    std::uint64_t original;
    AtomicFields request;  // op, data, masks, compare
    std::uint64_t result;
  } kCases[] = {
      {"AT-1", 0x29, {kFetchAdd, 0, 0, 0, 1, 0, 0, kOnes}, 0x2a},
      {"AT-2", kOnes, {kFetchAdd, 0, 0, 0, 1, 0, 0, kOnes}, 0},
      {"AT-3", 0xffffffff, {kFetchAdd, 0, 0, 0, 1, 0x80000000'80000000, 0, kOnes}, 0},
      {"AT-4",
       0x7fff7fff'7fff7fff,
       {kFetchAdd, 0, 0, 0, 0x00010001'00010001, 0x80008000'80008000, 0, 0},
       0x80008000'80008000},
      {"AT-6", 0x1234, {kFetchAdd, 0, 0, 0, 0, 0, 0, 0}, 0x1234},
      {"AT-7", 0xaaaaaaaa'aaaaaaaa, {kFetchAdd, 0, 0, 0, kOnes, kOnes, 0, kOnes}, 0x55555555'55555555},
      {"AT-8", 5, {kCompareSwap, 0, 0, 0, 9, kOnes, 5, kOnes}, 9},
      {"AT-9", 5, {kCompareSwap, 0, 0, 0, 9, kOnes, 6, kOnes}, 5},
      {"AT-10",
       0x11223344'55667788,
       {kCompareSwap, 0, 0, 0, kOnes, 0xffffffff, 0x11223344'00000000, 0xffffffff'00000000},
       0x11223344'ffffffff},
      {"AT-11", 0x5555, {kCompareSwap, 0, 0, 0, 0, 0xff, 0x1234, 0}, 0x5500},
  };
  for (const Setup& setup : kSetups) {
    Scene s(consenting(setup), 8192);
    const MemoryRegion* mr = s.region(s.side.pd, 0, 8192, kAtomic, 0x10000);
    std::uint32_t msn = 0;
    for (const auto& c : kCases) {
      set_word(s, 64, c.original);
      AtomicFields a = c.request;
      a.id = 0x1000 + ++msn;
      a.stag = mr->stag();
      a.to = 0x10000 + 64;
      s.peer->send(atomic_request(msn, a));
      s.peer->expect(atomic_response(msn, a.id, c.original), c.id);
      EXPECT(c.id, word_at(s, 64) == c.result);
    }
  }
}

// Holds: RDM-33, RDM-37
// No RDMAP header in any of these, and the memory stays as it was.
void rdm_33_requests_that_are_refused(void**) {
  for (const Setup& setup : kSetups) {
    const auto refused = [&](const char* what, auto&& make, unsigned layer, unsigned type, unsigned code,
                             ibv_event_type event) {
      const std::string name = what + (", " + name_of(setup));
      Scene s(consenting(setup), 8192);
      s.open_responder();
      std::memset(s.side.at(0), 0x5a, 8192);
      assert_int_equal(s.side.receive({s.side.sge(0, 8)}, 100), 0);
      const Bytes bad = make(s);
      s.peer->send(bad);
      s.peer->expect(answer_to(bad, layer, type, code), name);
      s.peer->expect_fin();
      s.expect_completions(name, {{100, IBV_WC_WR_FLUSH_ERR}});
      s.expect_event(name, event);
      for (std::size_t i = 0; i < 8192; ++i) assert_int_equal(*s.side.at(i), 0x5a);
    };
    const auto add = [](Scene& s, std::uint32_t stag, std::uint64_t to) {
      (void)s;
      return atomic_request(1, {kFetchAdd, 7, stag, to, 1});
    };
    const auto good = [](Scene& s) { return s.region(s.side.pd, 0, 4096, kAtomic, s.side.address(0)); };
    for (const std::uint64_t off : {1u, 2u, 4u, 7u})
      refused(
          "misaligned", [&](Scene& s) { return add(s, good(s)->stag(), s.side.address(64 + off)); }, 0, 2, 7,
          IBV_EVENT_QP_FATAL);
    refused(
        "unknown STag", [&](Scene& s) { return add(s, 0x00bad000, s.side.address(0)); }, 0, 1, 0,
        IBV_EVENT_QP_ACCESS_ERR);
    refused(
        "one octet out of bounds", [&](Scene& s) { return add(s, good(s)->stag(), s.side.address(4096 - 7)); }, 0, 1, 1,
        IBV_EVENT_QP_ACCESS_ERR);
    refused(
        "no right", [&](Scene& s) { return add(s, s.side.mr->stag(), s.side.address(0)); }, 0, 1, 2,
        IBV_EVENT_QP_ACCESS_ERR);
    refused(
        "another PD",
        [&](Scene& s) {
          return add(s, s.region(s.other_pd, 0, 4096, kAtomic, s.side.address(0))->stag(), s.side.address(0));
        },
        0, 1, 3, IBV_EVENT_QP_ACCESS_ERR);
    refused(
        "wrap", [&](Scene& s) { return add(s, good(s)->stag(), kOnes - 3); }, 0, 1, 4, IBV_EVENT_QP_ACCESS_ERR);
    for (const std::uint32_t op : {1u, 3u, 15u})
      refused(
          "unassigned operation",
          [&](Scene& s) {
            return atomic_request(1, {op, 7, good(s)->stag(), s.side.address(0), 1});
          },
          0, 2, 6, IBV_EVENT_QP_REQ_ERR);
    refused(
        "too short",
        [&](Scene& s) {
          Bytes b = add(s, good(s)->stag(), s.side.address(0));
          b.pop_back();
          return b;
        },
        0, 2, 0xff, IBV_EVENT_QP_REQ_ERR);
    refused(
        "not the last segment",
        [&](Scene& s) {
          Bytes b = add(s, good(s)->stag(), s.side.address(0));
          b[0] = std::byte{0x01};
          return b;
        },
        0, 2, 0xff, IBV_EVENT_QP_REQ_ERR);
    refused(
        "on the queue of Sends",
        [&](Scene& s) {
          Bytes b = add(s, good(s)->stag(), s.side.address(0));
          b[9] = std::byte{0};
          return b;
        },
        0, 2, 6, IBV_EVENT_QP_REQ_ERR);
    refused(
        "a response to nothing", [&](Scene&) { return atomic_response(1, 1, 1); }, 0, 2, 6, IBV_EVENT_QP_REQ_ERR);
  }
}

// Holds: VRB-13
// Mapped when it was registered, not any more: a protection error, not the end of the process.
void a_target_that_was_unmapped(void**) {
  for (const Setup& setup : kSetups) {
    Scene s(consenting(setup), 8192);
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    void* at = mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MemoryRegion* mr = nullptr;
    assert_int_equal(memory().add(s.side.pd, at, page, 0, kAtomic, &mr), 0);
    munmap(at, page);
    const Bytes request = atomic_request(1, {kFetchAdd, 1, mr->stag(), 0, 1});
    s.peer->send(request);
    s.peer->expect(answer_to(request, 0, 1, 1));
    s.peer->expect_fin();
    memory().remove(mr);
  }
}

// Holds: RDM-34
// One IRD for both kinds, and one order.
void rdm_34_the_ird_counts_both(void**) {
  for (const Setup& base : kSetups) {
    Setup setup = consenting(base);
    setup.ird = 4;
    Scene s(setup, 8192);
    s.open_responder();
    MemoryRegion* mr = s.region(s.side.pd, 0, 8192, kAtomic, 0);
    const auto request = [&](std::uint32_t msn) {
      return msn % 2 == 0 ? read_request(msn, msn, 0, 8, mr->stag(), 64)
                          : atomic_request(msn, {kFetchAdd, msn, mr->stag(), 64, 1});
    };
    set_word(s, 64, 0);
    Bytes burst;
    for (std::uint32_t msn = 1; msn <= 4; ++msn) burst = concat({burst, s.peer->frame(request(msn))});
    s.peer->raw(burst);
    // Each is executed after the one before it was answered.
    const auto seen = [](std::uint64_t value) {
      Bytes b(8);
      std::memcpy(b.data(), &value, 8);
      return b;
    };
    s.peer->expect(atomic_response(1, 1, 0));
    s.peer->expect(read_response(2, 0, seen(1)));
    s.peer->expect(atomic_response(2, 3, 1));
    s.peer->expect(read_response(4, 0, seen(2)));
    burst.clear();
    for (std::uint32_t msn = 5; msn <= 9; ++msn) burst = concat({burst, s.peer->frame(request(msn))});
    s.peer->raw(burst);
    Bytes got = s.peer->next();
    while (dissect(got).opcode != kTerminate) got = s.peer->next();
    test::expect_octets(got, answer_to(request(9), 1, 2, 2), "IRD");
  }
}

// --- as the one that asks ---

// Holds: RDM-31, VRB-35
// The result is a number of this machine.
void rdm_31_requests(void**) {
  for (const Setup& setup : kSetups) {
    Scene s(consenting(setup), 8192);
    s.open_responder();
    std::uint32_t msn = 0;
    for (const bool add : {true, false, true}) {
      const auto op = add ? IBV_WR_ATOMIC_FETCH_AND_ADD : IBV_WR_ATOMIC_CMP_AND_SWP;
      assert_int_equal(post_atomic(s, op, 1, s.side.sge(3, 8), 0x0102030405060708, 0x1112131415161718), 0);
      const Segment g = s.peer->next_segment();
      const AtomicFields a = dissect_atomic(g);
      assert_int_equal(g.msn, ++msn);
      assert_int_equal(g.word, 0);
      assert_int_equal(a.op, add ? kFetchAdd : kCompareSwap);
      assert_int_equal(a.stag, kKey);
      assert_true(a.to == kFar && a.compare_mask == kOnes);
      assert_true(a.data == (add ? 0x0102030405060708 : 0x1112131415161718));
      assert_true(a.mask == (add ? 0 : kOnes) && a.compare == (add ? 0 : 0x0102030405060708));
      s.peer->send(atomic_response(msn, a.id, 0xa1a2a3a4a5a6a7a8));
      const ibv_wc wc = s.side.wait();
      assert_int_equal(wc.status, IBV_WC_SUCCESS);
      assert_int_equal(wc.opcode, add ? IBV_WC_FETCH_ADD : IBV_WC_COMP_SWAP);
      assert_int_equal(wc.byte_len, 8);
      assert_true(word_at(s, 3) == 0xa1a2a3a4a5a6a7a8);
    }
  }
}

// Holds: RDM-31
void rdm_31_responses_that_do_not_match(void**) {
  for (const Setup& setup : kSetups)
    for (const int kind : {0, 1, 2, 3}) {
      const std::string what = "response of kind " + std::to_string(kind);
      Scene s(consenting(setup), 8192);
      s.open_responder();
      std::memset(s.side.at(0), 0x5a, 64);
      Bytes bad;
      if (kind == 3) {  // an atomic's to a Read
        assert_int_equal(s.side.send(IBV_WR_RDMA_READ, {s.side.sge(0, 8)}, kFar, kKey, IBV_SEND_SIGNALED, 1), 0);
        bad = atomic_response(1, dissect_read(s.peer->next_segment()).sink_stag, 1);
      } else {
        assert_int_equal(post_add(s, 1), 0);
        const std::uint32_t id = dissect_atomic(s.peer->next_segment()).id;
        bad = kind == 0 ? atomic_response(1, id + 1, 1) : kind == 1 ? read_response(id, 0, pattern(8)) : Bytes();
        if (kind == 2) {
          bad = atomic_response(1, id, 1);
          bad.push_back(std::byte{0});
        }
      }
      assert_int_equal(post_add(s, 2, 8), 0);
      s.peer->next();
      s.peer->send(bad);
      s.peer->expect(answer_to(bad, 0, 2, kind == 2 ? 0xff : 7), what);
      s.peer->expect_fin();
      s.expect_completions(what,
                           {{1, kind == 2 ? IBV_WC_WR_FLUSH_ERR : IBV_WC_BAD_RESP_ERR}, {2, IBV_WC_WR_FLUSH_ERR}});
      for (std::size_t i = 0; i < 64; ++i) assert_int_equal(*s.side.at(i), 0x5a);
    }
}

// Holds: RDM-26, RDM-34
void rdm_34_the_ord_counts_both_and_a_fence_waits(void**) {
  for (const Setup& base : kSetups) {
    Setup setup = consenting(base);
    setup.ord = 2;
    Scene s(setup, 8192);
    s.open_responder();
    assert_int_equal(post_add(s, 1), 0);
    assert_int_equal(s.side.send(IBV_WR_RDMA_READ, {s.side.sge(64, 8)}, kFar, kKey, IBV_SEND_SIGNALED, 2), 0);
    assert_int_equal(post_add(s, 3, 8), 0);
    assert_int_equal(s.side.send(IBV_WR_SEND, {s.side.sge(64, 8)}, 0, 0, IBV_SEND_FENCE | IBV_SEND_SIGNALED, 4), 0);
    const AtomicFields a = dissect_atomic(s.peer->next_segment());
    const ReadFields r = dissect_read(s.peer->next_segment());
    s.peer->expect_silence();
    s.peer->send(atomic_response(1, a.id, 1));
    const AtomicFields b = dissect_atomic(s.peer->next_segment());
    s.peer->send(read_response(r.sink_stag, 0, pattern(8)));
    s.peer->expect_silence();
    s.peer->send(atomic_response(2, b.id, 2));
    assert_int_equal(s.peer->next_segment().opcode, kSend);
    s.expect_completions("ORD", {{1, IBV_WC_SUCCESS}, {2, IBV_WC_SUCCESS}, {3, IBV_WC_SUCCESS}, {4, IBV_WC_SUCCESS}});
  }
}

// Holds: VRB-13
// The peer's Terminate names the second of three by its MSN.
void vrb_13_a_terminate_names_an_atomic(void**) {
  const struct {
    unsigned type, code;
    ibv_wc_status status;
  } kCases[] = {{1, 0, IBV_WC_REM_ACCESS_ERR},
                {1, 2, IBV_WC_REM_ACCESS_ERR},
                {2, 7, IBV_WC_REM_OP_ERR},
                {2, 6, IBV_WC_REM_INV_REQ_ERR}};
  for (const Setup& setup : kSetups)
    for (const auto& c : kCases) {
      Scene s(consenting(setup), 8192);
      s.open_responder();
      Bytes requests[3];
      for (const std::uint64_t id : {1, 2, 3}) {
        assert_int_equal(post_add(s, id, 8 * id), 0);
        requests[id - 1] = s.peer->next();
      }
      s.peer->send(atomic_response(1, dissect_atomic(dissect(requests[0])).id, 5));
      s.peer->send(answer_to(requests[1], 0, c.type, c.code));
      s.expect_completions("Terminate", {{1, IBV_WC_SUCCESS}, {2, c.status}, {3, IBV_WC_WR_FLUSH_ERR}});
    }
}

// Holds: VRB-13
void vrb_13_sinks_that_are_not_ours(void**) {
  for (const Setup& setup : kSetups)
    for (const int kind : {0, 1}) {
      Scene s(consenting(setup), 8192);
      s.open_responder();
      const std::uint32_t keys[] = {0x00bad000,
                                    s.region(s.side.pd, 0, 64, IBV_ACCESS_REMOTE_READ, s.side.address(0))->stag()};
      assert_int_equal(post_atomic(s, IBV_WR_ATOMIC_FETCH_AND_ADD, 1, {s.side.address(0), 8, keys[kind]}, 1), 0);
      s.peer->expect(terminate(0, 0, 0));
      s.expect_completions("sink", {{1, IBV_WC_LOC_PROT_ERR}});
    }
}

// Holds: VRB-13
void a_sink_that_goes_away(void**) {
  for (const Setup& setup : kSetups) {
    Scene s(consenting(setup), 8192);
    s.open_responder();
    MemoryRegion* mr = s.region(s.side.pd, 0, 64, kAtomic, s.side.address(0));
    assert_int_equal(post_atomic(s, IBV_WR_ATOMIC_FETCH_AND_ADD, 1, {s.side.address(0), 8, mr->stag()}, 1), 0);
    const AtomicFields a = dissect_atomic(s.peer->next_segment());
    s.regions.clear();
    const Bytes response = atomic_response(1, a.id, 1);
    s.peer->send(response);
    s.peer->expect(answer_to(response, 1, 0, 0));
    s.expect_completions("sink", {{1, IBV_WC_LOC_PROT_ERR}});
  }
}

void what_cannot_be_posted(void**) {
  Scene s(Setup{.initiator = true, .extensions = true}, 8192);
  for (const auto op : {IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_CMP_AND_SWP}) {
    assert_int_equal(post_atomic(s, op, 1, s.side.sge(0, 4), 1), EINVAL);
    assert_int_equal(post_atomic(s, op, 1, s.side.sge(0, 16), 1), EINVAL);
    assert_int_equal(post_atomic(s, op, 1, s.side.sge(0, 8), 1, 0, IBV_SEND_INLINE), EINVAL);
    assert_int_equal(s.side.send(op, {}, kFar, kKey), EINVAL);
  }
  s.peer->expect_silence();
  Scene without(Setup{.initiator = true, .extensions = true, .ord = 0}, 8192);
  assert_int_equal(post_add(without, 1), EINVAL);
}

}  // namespace

int main() {
  stop_at_first_failure();
  set_waits("500", "0");
  const CMUnitTest tests[] = {
      cmocka_unit_test(rdm_32_requests_are_executed),
      cmocka_unit_test(rdm_33_requests_that_are_refused),
      cmocka_unit_test(a_target_that_was_unmapped),
      cmocka_unit_test(rdm_34_the_ird_counts_both),
      cmocka_unit_test(rdm_31_requests),
      cmocka_unit_test(rdm_31_responses_that_do_not_match),
      cmocka_unit_test(rdm_34_the_ord_counts_both_and_a_fence_waits),
      cmocka_unit_test(vrb_13_a_terminate_names_an_atomic),
      cmocka_unit_test(vrb_13_sinks_that_are_not_ours),
      cmocka_unit_test(a_sink_that_goes_away),
      cmocka_unit_test(what_cannot_be_posted),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
