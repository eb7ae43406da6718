// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// RDMA Reads and the order of work, seen from the other end of the stream.
#include <algorithm>
#include <cstring>

#include "provider/engine/engine.h"
#include "tests/wire/scene.h"

using namespace ewarp;
using namespace ewarp::wire;

namespace {

constexpr auto kAll = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

int post_read(Scene& s, std::uint64_t id, std::uint32_t octets, std::size_t at = 0,
              unsigned flags = IBV_SEND_SIGNALED) {
  return s.side.send(IBV_WR_RDMA_READ, {s.side.sge(at, octets)}, kFar, kKey, flags, id);
}

Bytes collect_response(Scene& s, std::uint32_t stag, std::uint64_t to) {
  Bytes got;
  for (;;) {
    const Segment g = s.peer->next_segment();
    if (!g.is_tagged || g.opcode != kReadResponse || g.stag != stag || g.to != to + got.size())
      fail_msg("opcode %u, STag %x, TO %lx where a Read Response of %x from %lx on was expected", g.opcode, g.stag,
               g.to, stag, to + got.size());
    got = concat({got, g.payload});
    if (g.last) return got;
  }
}

// --- as the one that is read from ---

// Holds: RDM-9, RDM-12
void rdm_9_responses_carry_the_sink_of_the_request(void**) {
  for (const Setup& setup : kSetups) {
    Scene s(setup);
    const Bytes data = pattern(300000, 8);
    std::memcpy(s.side.at(100), data.data(), data.size());
    const struct {
      std::uint32_t stag;
      std::uint64_t to;
      std::uint32_t octets;
    } kReads[] = {{0, 0, 1},       {0xffffffff, 0xffffffffffff0000, 1000},
                  {7, 1, 300000},  {0x100, 0x1234567890, 0},
                  {0x100, 3, 512}, {9, 9, 65536},
                  {1, 0, 100000}};
    std::uint32_t msn = 0;
    Bytes all;
    for (const auto& r : kReads)
      all = concat(
          {all, s.peer->frame(read_request(++msn, r.stag, r.to, r.octets, s.side.mr->stag(), s.side.address(100)))});
    s.peer->raw(all);
    for (const auto& r : kReads) assert_true(collect_response(s, r.stag, r.to) == slice(data, 0, r.octets));
  }
}

// Holds: RDM-10
void rdm_10_empty_reads_look_at_no_stag(void**) {
  for (const Setup& setup : kSetups) {
    Scene s(setup, 8192);
    std::uint32_t msn = 0;
    for (const std::uint32_t stag : {0u, 1u, 0xdeadbeefu})
      for (const std::uint64_t to : {std::uint64_t{0}, ~std::uint64_t{0}}) {
        s.peer->send(read_request(++msn, stag + 1, to, 0, stag, to));
        const Segment g = s.peer->next_segment();
        assert_true(g.is_tagged && g.last);
        assert_int_equal(g.opcode, kReadResponse);
        assert_int_equal(g.stag, stag + 1);
        assert_int_equal(g.to, to);
        assert_int_equal(g.payload.size(), 0);
      }
  }
}

// Holds: RDM-12, RDM-24
// A Read is served after the Write that came before it.
void rdm_12_a_read_sees_the_write_before_it(void**) {
  for (const Setup& setup : kSetups) {
    Scene s(setup, 65536);
    for (std::uint32_t msn = 1; msn <= 50; ++msn) {
      const Bytes data = pattern(1000 + 37 * msn, msn);
      const auto octets = static_cast<std::uint32_t>(data.size());
      s.peer->raw(concat({s.peer->frame(write_segment(s.side.mr->stag(), s.side.address(0), data)),
                          s.peer->frame(read_request(msn, 1, 0, octets, s.side.mr->stag(), s.side.address(0)))}));
      assert_true(collect_response(s, 1, 0) == data);
    }
  }
}

// Holds: RDM-14
void rdm_14_more_requests_than_the_ird(void**) {
  for (const Setup& base : kSetups)
    for (const std::uint16_t ird : {std::uint16_t{0}, std::uint16_t{1}, std::uint16_t{5}}) {
      Setup setup = base;
      setup.ird = ird;
      Scene s(setup, 8192);
      s.open_responder();
      Bytes burst, last;
      for (std::uint32_t msn = 1; msn <= ird + 1u; ++msn) {
        last = read_request(msn, msn, 0, 64, s.side.mr->stag(), s.side.address(0));
        burst = concat({burst, s.peer->frame(last)});
      }
      s.peer->raw(burst);
      // Some of the first may have been served before the last was seen.
      Bytes got = s.peer->next();
      while (dissect(got).opcode == kReadResponse) got = s.peer->next();
      test::expect_octets(got, answer_to(last, 1, 2, 2), "IRD " + std::to_string(ird));
      s.peer->expect_fin();
      s.expect_event("IRD", IBV_EVENT_QP_REQ_ERR);
    }
}

// Holds: DDP-25, RDM-19
// The region goes away while the response is under way; what was sent is sent.
void rdm_19_a_source_that_goes_away(void**) {
  for (const bool crc : {true, false}) {
    constexpr std::uint32_t kOctets = 24u << 20;
    Scene s(Setup{.initiator = true, .crc = crc, .tcp = true}, kOctets);
    MemoryRegion* mr = s.region(s.side.pd, 0, kOctets, kAll, 0);
    const std::uint32_t stag = mr->stag();
    const Bytes request = read_request(1, 0x55, 0x1000, kOctets, stag, 0);
    s.peer->send(request);
    std::uint64_t got = s.peer->next_segment().payload.size();  // it has begun; the socket cannot take all of it
    assert_int_equal(s.side.send(IBV_WR_SEND, {s.side.sge(0, 64)}, 0, 0, 0, 1), 0);  // which has no part in it
    s.regions.clear();
    bool cut = false;
    Segment g;
    if (crc) {
      // The payload was copied with its CRC: the last segment is whole, and the Terminate tells how far it went.
      for (;;) {
        g = s.peer->next_segment();
        if (g.opcode == kTerminate) break;
        assert_int_equal(g.to, 0x1000 + got);
        got += g.payload.size();
      }
      Bytes want = answer_to(request, 0, 1, 0);
      want[20] = std::byte{0xe0};
      const Bytes rest =
          slice(read_request(1, 0x55, 0x1000 + got, static_cast<std::uint32_t>(kOctets - got), stag, got), 18, 28);
      test::expect_octets(g.payload, slice(concat({want, rest}), 18, 4 + 2 + 18 + 28), "updated header");
      s.peer->expect_fin();
    } else {
      // Gathered in place: the FPDU that was being sent cannot be finished.
      s.peer->discard_until_end(&cut);
    }
    s.expect_completions("source gone", {{1, IBV_WC_WR_FLUSH_ERR}});
    s.expect_event("source gone", IBV_EVENT_QP_ACCESS_ERR);
    s.expect_ended("source gone");
    s.expect_no_event("source gone");
  }
}

// --- as the one that reads ---

// Holds: RDM-9
// Layout of the request.
void rdm_9_requests(void**) {
  for (const Setup& setup : kSetups) {
    Scene s(setup, 1 << 20);
    s.open_responder();
    std::uint32_t msn = 0;
    for (const std::uint32_t octets : {0u, 1u, 4096u, 1000000u}) {
      assert_int_equal(post_read(s, 1, octets), 0);
      const Segment g = s.peer->next_segment();
      const ReadFields r = dissect_read(g);
      assert_int_equal(g.msn, ++msn);
      assert_int_equal(g.word, 0);
      assert_int_equal(r.octets, octets);
      assert_int_equal(r.source_stag, kKey);
      assert_int_equal(r.source_to, kFar);
      const Bytes data = pattern(octets, 3);
      std::size_t at = 0;
      do {
        const std::size_t n = std::min<std::size_t>(octets - at, 60000);
        s.peer->send(read_response(r.sink_stag, r.sink_to + at, slice(data, at, n), at + n == octets));
        at += n;
      } while (at < octets);
      const ibv_wc wc = s.side.wait();
      assert_int_equal(wc.status, IBV_WC_SUCCESS);
      assert_int_equal(wc.opcode, IBV_WC_RDMA_READ);
      assert_int_equal(wc.byte_len, octets);
      if (octets > 0) assert_memory_equal(s.side.at(0), data.data(), octets);
    }
  }
}

// Holds: DDP-24, RDM-15, RDM-16
// A response is held against its request; nothing outside the sink is touched.
void rdm_15_responses_that_do_not_match(void**) {
  struct Wrong {
    const char* what;
    std::uint32_t stag_off;
    std::int64_t to_off;
    std::size_t octets;
    bool last;
    unsigned code;
    std::size_t before;  // octets of the response that came rightly
  };
  constexpr Wrong kWrong[] = {
      {"another STag", 1, 0, 100, true, 0, 0},
      {"TO one less", 0, -1, 100, true, 1, 0},
      {"TO one more", 0, 1, 100, true, 1, 0},
      {"one octet more", 0, 0, 101, true, 1, 0},
      {"one octet less", 0, 0, 99, true, 1, 0},
      {"all, but not the last", 0, 0, 100, false, 1, 0},
      {"nothing", 0, 0, 0, true, 1, 0},
      {"TO of the first again", 0, 0, 60, true, 1, 40},
      {"too much in the second", 0, 40, 61, true, 1, 40},
      {"too little in the second", 0, 40, 59, true, 1, 40},
      {"another STag in the second", 2, 40, 60, true, 0, 40},
      {"much more", 0, 0, 60000, true, 1, 0},
  };
  for (const Setup& setup : kSetups)
    for (const Wrong& w : kWrong) {
      const std::string what = std::string(w.what) + ", " + name_of(setup);
      Scene s(setup, 65536);
      s.open_responder();
      std::memset(s.side.at(0), 0x5a, 65536);
      assert_int_equal(post_read(s, 1, 100, 1000), 0);
      assert_int_equal(post_read(s, 2, 100, 2000), 0);
      const ReadFields r = dissect_read(s.peer->next_segment());
      dissect_read(s.peer->next_segment());
      if (w.before > 0) s.peer->send(read_response(r.sink_stag, r.sink_to, pattern(w.before), false));
      const Bytes bad = read_response(r.sink_stag + w.stag_off, r.sink_to + static_cast<std::uint64_t>(w.to_off),
                                      pattern(w.octets, 2), w.last);
      s.peer->send(bad);
      s.peer->expect(answer_to(bad, 1, 1, w.code), what);
      s.peer->expect_fin();
      s.expect_completions(what, {{1, IBV_WC_BAD_RESP_ERR}, {2, IBV_WC_WR_FLUSH_ERR}});
      for (std::size_t i = 0; i < 65536; ++i)
        if (*s.side.at(i) != std::byte{0x5a} && (i < 1000 || i >= 1100)) fail_msg("%s: octet %zu", what.c_str(), i);
    }
}

// Holds: RDM-12, RDM-15
// The responses come in the order of the requests.
void rdm_12_responses_out_of_order(void**) {
  for (const Setup& setup : kSetups) {
    Scene s(setup, 65536);
    s.open_responder();
    assert_int_equal(post_read(s, 1, 100, 1000), 0);
    assert_int_equal(post_read(s, 2, 100, 2000), 0);
    dissect_read(s.peer->next_segment());
    const ReadFields second = dissect_read(s.peer->next_segment());
    const Bytes bad = read_response(second.sink_stag, second.sink_to, pattern(100));
    s.peer->send(bad);
    s.peer->expect(answer_to(bad, 1, 1, 0));
    s.expect_completions("order", {{1, IBV_WC_BAD_RESP_ERR}, {2, IBV_WC_WR_FLUSH_ERR}});
  }
}

// Holds: RDM-13
void rdm_13_the_ord_is_never_exceeded(void**) {
  for (const Setup& base : kSetups)
    for (const std::uint16_t ord : {std::uint16_t{1}, std::uint16_t{3}}) {
      Setup setup = base;
      setup.ord = ord;
      Scene s(setup, 65536);
      s.open_responder();
      Scene::Ended done;
      for (std::uint64_t id = 1; id <= 10; ++id) {
        assert_int_equal(post_read(s, id, 64, 64 * id), 0);
        done.emplace_back(id, IBV_WC_SUCCESS);
      }
      assert_int_equal(s.side.send(IBV_WR_SEND, {s.side.sge(0, 4)}, 0, 0, IBV_SEND_SIGNALED, 11), 0);
      done.emplace_back(11, IBV_WC_SUCCESS);
      std::vector<ReadFields> waiting;
      for (unsigned i = 0; i < ord; ++i) waiting.push_back(dissect_read(s.peer->next_segment()));
      s.peer->expect_silence();
      for (unsigned answered = 0; answered < 10; ++answered) {
        const ReadFields r = waiting.front();
        waiting.erase(waiting.begin());
        s.peer->send(read_response(r.sink_stag, r.sink_to, pattern(64, answered)));
        if (answered + ord < 10) waiting.push_back(dissect_read(s.peer->next_segment()));
        if (answered + ord == 9) assert_int_equal(s.peer->next_segment().opcode, kSend);
        if (answered % 3 == 0) s.peer->expect_silence(5);
      }
      s.expect_completions("ORD", done);
      for (unsigned i = 0; i < 10; ++i) assert_memory_equal(s.side.at(64 * (i + 1)), pattern(64, i).data(), 64);
    }
}

// Holds: RDM-26
void rdm_26_fence(void**) {
  for (const Setup& setup : kSetups)
    for (const auto op : {IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ}) {
      Scene s(setup, 8192);
      s.open_responder();
      for (const std::uint64_t id : {1, 2}) assert_int_equal(post_read(s, id, 16), 0);
      assert_int_equal(s.side.send(op, {s.side.sge(64, 16)}, kFar, kKey, IBV_SEND_FENCE | IBV_SEND_SIGNALED, 3), 0);
      const ReadFields a = dissect_read(s.peer->next_segment()), b = dissect_read(s.peer->next_segment());
      s.peer->expect_silence();
      s.peer->send(read_response(a.sink_stag, a.sink_to, pattern(16)));
      s.peer->expect_silence();
      s.peer->send(read_response(b.sink_stag, b.sink_to, pattern(16)));
      const Segment g = s.peer->next_segment();
      assert_int_equal(g.opcode, op == IBV_WR_SEND ? kSend : op == IBV_WR_RDMA_WRITE ? kWrite : kReadRequest);
    }
}

// Holds: RDM-25, RDM-27, VRB-10
// A Send passes an unanswered Read on the wire, not in the completion queue.
void rdm_27_no_fence_no_wait(void**) {
  for (const Setup& setup : kSetups) {
    Scene s(setup, 8192);
    s.open_responder();
    assert_int_equal(post_read(s, 1, 16), 0);
    assert_int_equal(s.side.send(IBV_WR_SEND, {s.side.sge(64, 16)}, 0, 0, IBV_SEND_SIGNALED, 2), 0);
    assert_int_equal(s.side.send(IBV_WR_RDMA_WRITE, {s.side.sge(64, 16)}, kFar, kKey, IBV_SEND_SIGNALED, 3), 0);
    const ReadFields r = dissect_read(s.peer->next_segment());
    assert_int_equal(s.peer->next_segment().opcode, kSend);
    const Segment w = s.peer->next_segment();
    assert_int_equal(w.opcode, kWrite);
    assert_int_equal(w.stag, kKey);
    assert_int_equal(w.to, kFar);
    ibv_wc wc;
    assert_int_equal(s.side.cq.poll(1, &wc), 0);
    s.peer->send(read_response(r.sink_stag, r.sink_to, pattern(16)));
    s.expect_completions("order", {{1, IBV_WC_SUCCESS}, {2, IBV_WC_SUCCESS}, {3, IBV_WC_SUCCESS}});
  }
}

// Holds: VRB-13, VRB-22
// Sinks that may not be written.
void sinks_that_are_not_ours(void**) {
  for (const Setup& setup : kSetups)
    for (const int kind : {0, 1, 2}) {
      Scene s(setup, 8192);
      s.open_responder();
      const std::uint32_t lkeys[] = {0x00bad000,
                                     s.region(s.side.pd, 0, 4096, IBV_ACCESS_REMOTE_READ, s.side.address(0))->stag(),
                                     s.region(s.other_pd, 0, 4096, kAll, s.side.address(0))->stag()};
      assert_int_equal(s.side.send(IBV_WR_RDMA_READ, {ibv_sge{s.side.address(0), 16, lkeys[kind]}}, kFar, kKey,
                                   IBV_SEND_SIGNALED, 1),
                       0);
      assert_int_equal(post_read(s, 2, 16), 0);
      s.peer->expect(terminate(0, 0, 0));
      s.peer->expect_fin();
      s.expect_completions("sink", {{1, IBV_WC_LOC_PROT_ERR}, {2, IBV_WC_WR_FLUSH_ERR}});
      s.expect_event("sink", IBV_EVENT_QP_FATAL);
    }
}

// The sink is deregistered between request and response.
void a_sink_that_goes_away(void**) {
  for (const Setup& setup : kSetups)
    for (const std::uint32_t octets : {16u, 30000u}) {
      Scene s(setup, 65536);
      s.open_responder();
      std::memset(s.side.at(0), 0x5a, 65536);
      MemoryRegion* mr = s.region(s.side.pd, 0, 65536, kAll, s.side.address(0));
      assert_int_equal(s.side.send(IBV_WR_RDMA_READ, {ibv_sge{s.side.address(0), octets, mr->stag()}}, kFar, kKey,
                                   IBV_SEND_SIGNALED, 1),
                       0);
      const ReadFields r = dissect_read(s.peer->next_segment());
      s.regions.clear();
      const Bytes response = read_response(r.sink_stag, r.sink_to, pattern(octets));
      s.peer->send(response);
      s.peer->expect(answer_to(response, 1, 0, 0));
      s.expect_completions("sink", {{1, IBV_WC_LOC_PROT_ERR}});
      for (std::size_t i = 0; i < 65536; ++i) assert_int_equal(*s.side.at(i), 0x5a);
    }
}

// Holds: VRB-13, VRB-22
// Gathers that may not be read.
void sources_that_are_not_ours(void**) {
  for (const Setup& setup : kSetups)
    for (const auto op : {IBV_WR_SEND, IBV_WR_RDMA_WRITE})
      for (const std::uint32_t octets : {8u, 4000u})
        for (const int kind : {0, 1, 2}) {
          Scene s(setup, 8192);
          s.open_responder();
          const ibv_sge bad[] = {
              {s.side.address(0), octets, 0x00bad000},
              {s.side.address(0), octets, s.region(s.other_pd, 0, 4096, kAll, s.side.address(0))->stag()},
              {s.side.address(0), octets, s.region(s.side.pd, 0, octets - 1, kAll, s.side.address(0))->stag()}};
          assert_int_equal(s.side.send(op, {s.side.sge(0, 4), bad[kind]}, kFar, kKey, 0, 1), 0);
          assert_int_equal(s.side.send(op, {s.side.sge(0, 4)}, kFar, kKey, 0, 2), 0);
          s.peer->expect(terminate(0, 0, 0));  // no octet of either was sent
          s.peer->expect_fin();
          s.expect_completions("source", {{1, IBV_WC_LOC_PROT_ERR}, {2, IBV_WC_WR_FLUSH_ERR}});
          s.expect_event("source", IBV_EVENT_QP_FATAL);
        }
}

// Of two that wait to be written, the second loses its memory. It is the one to blame.
void a_source_that_goes_away(void**) {
  constexpr std::uint32_t kFirst = 1 << 20, kSecond = 65536;
  for (const bool crc : {true, false}) {
    Scene s(Setup{.initiator = true, .crc = crc}, kFirst + kSecond);
    const MemoryRegion* mr = s.region(s.side.pd, kFirst, kSecond, kAll, s.side.address(kFirst));
    engine().acquire();  // both are produced at once
    assert_int_equal(s.side.send(IBV_WR_SEND, {s.side.sge(0, kFirst)}, 0, 0, 0, 1), 0);
    assert_int_equal(s.side.send(IBV_WR_SEND, {ibv_sge{s.side.address(kFirst), kSecond, mr->stag()}}, 0, 0, 0, 2), 0);
    engine().leave();
    s.peer->next();
    s.regions.clear();
    s.peer->discard();
    s.expect_completions("source", {{1, IBV_WC_WR_FLUSH_ERR}, {2, IBV_WC_LOC_PROT_ERR}});
    s.expect_event("source", IBV_EVENT_QP_FATAL);
    s.expect_ended("source");
  }
}

}  // namespace

int main() {
  stop_at_first_failure();
  set_waits("500", "0");
  const CMUnitTest tests[] = {
      cmocka_unit_test(rdm_9_responses_carry_the_sink_of_the_request),
      cmocka_unit_test(rdm_10_empty_reads_look_at_no_stag),
      cmocka_unit_test(rdm_12_a_read_sees_the_write_before_it),
      cmocka_unit_test(rdm_14_more_requests_than_the_ird),
      cmocka_unit_test(rdm_19_a_source_that_goes_away),
      cmocka_unit_test(rdm_9_requests),
      cmocka_unit_test(rdm_15_responses_that_do_not_match),
      cmocka_unit_test(rdm_12_responses_out_of_order),
      cmocka_unit_test(rdm_13_the_ord_is_never_exceeded),
      cmocka_unit_test(rdm_26_fence),
      cmocka_unit_test(rdm_27_no_fence_no_wait),
      cmocka_unit_test(sinks_that_are_not_ours),
      cmocka_unit_test(a_sink_that_goes_away),
      cmocka_unit_test(sources_that_are_not_ours),
      cmocka_unit_test(a_source_that_goes_away),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
