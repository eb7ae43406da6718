// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The end of a stream: Terminates from the peer, FIN, resets, and ends of our own. That a close does not wait for ever:
// expiry_test.cc.
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

#include "provider/engine/engine.h"
#include "tests/wire/scene.h"

using namespace ewarp;
using namespace ewarp::wire;

namespace {

// Three Reads under way (one unsignalled), a Send behind them, two receives.
struct Busy {
  explicit Busy(const Setup& setup, std::size_t buffer = 65536) : s(setup, buffer) {
    s.open_responder();
    for (const std::uint64_t id : {1, 2, 3})
      assert_int_equal(
          s.side.send(IBV_WR_RDMA_READ, {s.side.sge(0, 64)}, kFar, kKey, id == 2 ? 0 : IBV_SEND_SIGNALED, id), 0);
    assert_int_equal(s.side.send(IBV_WR_SEND, {s.side.sge(0, 64)}, 0, 0, IBV_SEND_FENCE, 4), 0);
    for (const std::uint64_t id : {100, 101}) assert_int_equal(s.side.receive({s.side.sge(0, 64)}, id), 0);
    for (auto& r : requests) {
      r.ulpdu = s.peer->next();
      r.fields = dissect_read(dissect(r.ulpdu));
    }
  }
  void expect_flushed(const std::string& what, ibv_wc_status first = IBV_WC_WR_FLUSH_ERR,
                      ibv_wc_status second = IBV_WC_WR_FLUSH_ERR) {
    s.expect_completions(what, {{1, first},
                                {2, second},
                                {3, IBV_WC_WR_FLUSH_ERR},
                                {4, IBV_WC_WR_FLUSH_ERR},
                                {100, IBV_WC_WR_FLUSH_ERR},
                                {101, IBV_WC_WR_FLUSH_ERR}});
  }
  Scene s;
  struct {
    Bytes ulpdu;
    ReadFields fields;
  } requests[3];
};

// --- Terminate from the peer ---

struct Received {
  const char* what;
  unsigned layer, type, code;
  bool names_second;  // carries the header of the second Read Request
  ibv_wc_status second;
  ibv_event_type event;
};
constexpr Received kReceived[] = {
    {"local catastrophic", 0, 0, 0, false, IBV_WC_WR_FLUSH_ERR, IBV_EVENT_QP_FATAL},
    {"invalid STag", 0, 1, 0, true, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR},
    {"bounds", 0, 1, 1, true, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR},
    {"access", 0, 1, 2, true, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR},
    {"access, no header", 0, 1, 2, false, IBV_WC_WR_FLUSH_ERR, IBV_EVENT_QP_ACCESS_ERR},
    {"unexpected opcode", 0, 2, 6, true, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR},
    {"stream catastrophic", 0, 2, 7, true, IBV_WC_REM_OP_ERR, IBV_EVENT_QP_FATAL},
    {"no buffer", 1, 2, 2, false, IBV_WC_WR_FLUSH_ERR, IBV_EVENT_QP_REQ_ERR},
    {"CRC", 2, 0, 2, false, IBV_WC_WR_FLUSH_ERR, IBV_EVENT_QP_FATAL},
};

// Holds: RDM-22, RDM-23, VRB-11, VRB-13, VRB-31
void rdm_22_a_terminate_flushes_and_gets_no_answer(void**) {
  for (const Setup& setup : kSetups)
    for (const Received& c : kReceived)
      for (const bool swapped : {false, true}) {
        if (swapped && !c.names_second) continue;  // without a header nothing shows the form
        const std::string what = std::string(c.what) + (swapped ? ", as siw sends it, " : ", ") + name_of(setup);
        Busy b(setup);
        Bytes headers;
        if (c.names_second)
          headers = concat({u16(46), slice(b.requests[1].ulpdu, 0, 18), slice(b.requests[1].ulpdu, 18, 28)});
        Bytes message = terminate(c.layer, c.type, c.code, c.names_second ? 0xe0 : 0, headers);
        if (swapped) {
          message[18] = static_cast<std::byte>(c.type << 4 | c.layer);
          message[20] = std::byte{0x07};
        }
        b.s.peer->send(message);
        b.s.peer->send(send_segment(1, pattern(8)));
        b.s.peer->send(terminate(0, 0, 0));
        b.s.peer->expect_fin();
        b.expect_flushed(what, IBV_WC_WR_FLUSH_ERR, c.second);
        b.s.expect_event(what, c.event);
        b.s.expect_ended(what);
        b.s.expect_no_event(what);
      }
}

// Holds: VRB-13
// It names a request that the kernel has not taken whole yet.
void vrb_13_a_terminate_names_what_is_being_sent(void**) {
  constexpr std::uint32_t kOctets = 20u << 20;
  const struct {
    ibv_wr_opcode op;
    unsigned layer, type, code;
    int off;  // of the MSN or TO that is named
    ibv_wc_status status;
  } kCases[] = {
      {IBV_WR_RDMA_WRITE, 1, 1, 0, 0, IBV_WC_REM_ACCESS_ERR},
      {IBV_WR_RDMA_WRITE, 1, 1, 1, 500, IBV_WC_REM_ACCESS_ERR},
      {IBV_WR_RDMA_WRITE, 1, 1, 1, -1, IBV_WC_WR_FLUSH_ERR},
      {IBV_WR_RDMA_WRITE, 1, 1, 1, kOctets, IBV_WC_WR_FLUSH_ERR},
      {IBV_WR_SEND, 1, 2, 2, 0, IBV_WC_RNR_RETRY_EXC_ERR},
      {IBV_WR_SEND, 1, 2, 5, 0, IBV_WC_REM_INV_REQ_ERR},
      {IBV_WR_SEND, 1, 2, 5, 1, IBV_WC_WR_FLUSH_ERR},
      {IBV_WR_SEND, 1, 2, 3, 0, IBV_WC_WR_FLUSH_ERR},
      {IBV_WR_SEND_WITH_INV, 0, 1, 9, 0, IBV_WC_REM_ACCESS_ERR},
      {IBV_WR_SEND, 0, 2, 6, 0, IBV_WC_REM_INV_REQ_ERR},
      {IBV_WR_SEND, 0, 2, 7, 0, IBV_WC_REM_OP_ERR},
  };
  // Two reads at least: of what it names the peer has seen a part, so it has been started. With more of them the socket
  // takes more at the very moment when the Terminate comes.
  for (const int reads : {2, 3, 40})
    for (const auto& c : kCases) {
      Scene s(Setup{.initiator = true, .crc = reads % 2 == 0, .tcp = true}, kOctets);
      assert_int_equal(s.side.send(IBV_WR_SEND, {s.side.sge(0, 64)}, 0, 0, IBV_SEND_SIGNALED, 1), 0);
      assert_int_equal(s.side.send(c.op, {s.side.sge(0, kOctets)}, kFar, kKey, 0, 2), 0);
      assert_int_equal(s.side.send(c.op, {s.side.sge(0, 64)}, kFar + kOctets, kKey, 0, 3), 0);
      const std::uint64_t to = kFar + static_cast<std::uint64_t>(static_cast<std::int64_t>(c.off));
      const Bytes header = c.op == IBV_WR_RDMA_WRITE
                               ? write_segment(kKey, to, {}, false)
                               : send_segment(2 + static_cast<std::uint32_t>(c.off), {}, 0, false);
      for (int i = 0; i < reads; ++i) s.peer->next();
      s.peer->send(terminate(c.layer, c.type, c.code, 0xc0, concat({u16(1000), header})));
      s.expect_completions("named", {{1, IBV_WC_SUCCESS}, {2, c.status}, {3, IBV_WC_WR_FLUSH_ERR}});
    }
}

// A reset right behind a Terminate: the Terminate is what counts. posts: what meets the reset is a post.
void a_terminate_outranks_a_reset(void**) {
  constexpr std::uint32_t kOctets = 20u << 20;
  for (const bool crc : {false, true})
    for (const bool posts : {false, true}) {
      Scene s(Setup{.initiator = true, .crc = crc, .tcp = true}, kOctets);
      assert_int_equal(s.side.send(IBV_WR_SEND, {s.side.sge(0, 64)}, 0, 0, IBV_SEND_SIGNALED, 1), 0);
      assert_int_equal(s.side.send(IBV_WR_RDMA_WRITE, {s.side.sge(0, kOctets)}, kFar, kKey, 0, 2), 0);
      assert_int_equal(s.side.send(IBV_WR_RDMA_WRITE, {s.side.sge(0, 64)}, kFar, kKey, 0, 3), 0);
      for (int i = 0; i < 2; ++i) s.peer->next();
      Scene::Ended ended{{1, IBV_WC_SUCCESS}, {2, IBV_WC_REM_ACCESS_ERR}, {3, IBV_WC_WR_FLUSH_ERR}};
      engine().acquire();  // both are there before either is seen
      s.peer->send(terminate(1, 1, 0, 0xc0, concat({u16(1000), write_segment(kKey, kFar, {}, false)})));
      s.peer->reset();
      poll(nullptr, 0, 25);  // the background thread asks for a pass, mostly; nothing hangs on it
      if (posts) {
        assert_int_equal(s.side.send(IBV_WR_SEND, {s.side.sge(0, 64)}, 0, 0, 0, 4), 0);
        ended.emplace_back(4, IBV_WC_WR_FLUSH_ERR);
      }
      engine().leave();
      s.expect_completions("reset", ended);
      s.expect_event("reset", IBV_EVENT_QP_ACCESS_ERR);
      s.expect_ended("reset");
      s.expect_no_event("reset");
    }
}

// A message that came whole before a reset has come, though a post meets the reset before it is read, in most rounds.
void a_send_ahead_of_a_reset(void**) {
  for (int round = 0; round < 16; ++round) {
    Scene s(Setup{.initiator = true, .crc = round % 2 == 0, .tcp = true}, 8192);
    for (const std::uint64_t id : {100, 101}) assert_int_equal(s.side.receive({s.side.sge(0, 64)}, id), 0);
    engine().acquire();
    s.peer->send(send_segment(1, pattern(20)));
    s.peer->reset();
    assert_int_equal(s.side.send(IBV_WR_SEND, {s.side.sge(0, 64)}, 0, 0, 0, 1), 0);
    engine().leave();
    s.expect_completions("reset", {{100, IBV_WC_SUCCESS}, {1, IBV_WC_RETRY_EXC_ERR}, {101, IBV_WC_WR_FLUSH_ERR}});
    s.expect_ended("reset");
    s.expect_no_event("reset");
  }
}

// Nothing is sent any more, though the peer reads: what was waiting for room does not end well.
void nothing_is_sent_behind_a_terminate(void**) {
  constexpr std::uint32_t kOctets = 65536;
  constexpr std::uint64_t kSends = 99;  // more than are under way at once
  for (const bool crc : {false, true}) {
    Scene s(Setup{.initiator = true, .crc = crc}, kOctets);
    for (std::uint64_t id = 1; id <= kSends; ++id)
      assert_int_equal(s.side.send(IBV_WR_SEND, {s.side.sge(0, kOctets)}, 0, 0, IBV_SEND_SIGNALED, id), 0);
    s.peer->next();
    engine().acquire();
    engine().serve_kicks();
    std::uint64_t done = 0;
    for (ibv_wc wc; s.side.cq.poll(1, &wc) == 1;) assert_int_equal(wc.wr_id, ++done);
    while (s.peer->unread() > 70'000) s.peer->next();
    s.peer->send(terminate(0, 0, 0));
    poll(nullptr, 0, 25);  // the background thread asks for a pass, mostly; nothing hangs on it
    engine().leave();
    Scene::Ended ended;
    while (done < kSends) ended.emplace_back(++done, IBV_WC_WR_FLUSH_ERR);
    s.expect_completions("behind a Terminate", ended);
    s.expect_event("behind a Terminate", IBV_EVENT_QP_FATAL);
    s.expect_ended("behind a Terminate");
  }
}

// Holds: RDM-22
// A Terminate that is cut short ends the stream all the same, without one in answer.
void rdm_22_malformed_terminates(void**) {
  for (const Setup& setup : kSetups)
    for (const Bytes& body : {Bytes{}, Bytes(3), concat({u8(0x11), u8(0), u8(0xc0), u8(0)}),
                              concat({u8(0x11), u8(0), u8(0xc0), u8(0), u16(22), Bytes(13, std::byte{0xff})}),
                              concat({u8(0x01), u8(0), u8(0xe0), u8(0), u16(46), Bytes(18), Bytes(27)}), Bytes(5000)}) {
      const std::string what = name_of(setup) + ", Terminate of " + std::to_string(body.size());
      Busy b(setup);
      b.s.peer->send(untagged(0x41, 0x47, 0, 2, 1, 0, body));
      b.s.peer->expect_fin();
      b.expect_flushed(what);
      b.s.expect_ended(what);
    }
}

// Holds: RDM-17, RDM-20, RDM-22
// Both ends find fault at once. One Terminate each way, and none for the other's.
void rdm_20_two_terminates_cross(void**) {
  for (const Setup& setup : kSetups) {
    Busy b(setup);
    b.s.peer->raw(concat({b.s.peer->frame(send_segment(7, pattern(8))), b.s.peer->frame(terminate(1, 2, 1)),
                          b.s.peer->frame(send_segment(9, pattern(8)))}));
    const Segment t = b.s.peer->next_segment();
    assert_int_equal(t.opcode, kTerminate);
    assert_int_equal(t.payload[1], 3);
    b.s.peer->expect_fin();
    b.expect_flushed("crossed");
  }
}

// --- the peer closes ---

void a_fin_between_messages(void**) {
  for (const bool tcp : {false, true})
    for (const Setup& base : kSetups) {
      Setup setup = base;
      setup.tcp = tcp;
      Busy b(setup);
      b.s.peer->shut_down();
      b.s.peer->expect_fin();
      b.expect_flushed("FIN");
      b.s.expect_ended("FIN");
    }
}

// Holds: VRB-3
// An idle stream: receives are flushed, no send is blamed.
void a_fin_on_an_idle_stream(void**) {
  for (const Setup& setup : kSetups) {
    Scene s(setup, 8192);
    assert_int_equal(s.side.receive({s.side.sge(0, 64)}), 0);
    s.peer->shut_down();
    s.peer->expect_fin();
    s.expect_completions("idle", {{100, IBV_WC_WR_FLUSH_ERR}});
    s.expect_ended("idle");
    // VRB-3: what is posted now is flushed.
    assert_int_equal(s.side.receive({s.side.sge(0, 64)}, 101), 0);
    assert_int_equal(s.side.send(IBV_WR_SEND, {s.side.sge(0, 64)}, 0, 0, 0, 1), 0);
    s.expect_completions("idle", {{101, IBV_WC_WR_FLUSH_ERR}, {1, IBV_WC_WR_FLUSH_ERR}});
  }
}

// Holds: MPA-15, VRB-13
// In every place of an FPDU, and between the segments of a message.
void mpa_15_a_fin_inside_a_message(void**) {
  for (const Setup& setup : kSetups)
    for (const std::size_t payload : {std::size_t{10}, std::size_t{6000}}) {
      std::size_t whole = 2;
      for (std::size_t cut = 1; cut < whole; cut += payload < 100 ? 1 : 311) {
        Scene s(setup, 65536);
        s.open_responder();
        for (const std::uint64_t id : {100, 101}) assert_int_equal(s.side.receive({s.side.sge(0, 10000)}, id), 0);
        assert_int_equal(s.side.send(IBV_WR_RDMA_READ, {s.side.sge(20000, 64)}, kFar, kKey, IBV_SEND_SIGNALED, 1), 0);
        assert_int_equal(s.side.send(IBV_WR_RDMA_READ, {s.side.sge(20000, 64)}, kFar, kKey, IBV_SEND_SIGNALED, 2), 0);
        for (int i = 0; i < 2; ++i) dissect_read(s.peer->next_segment());
        const Bytes fpdu = s.peer->frame(send_segment(1, pattern(payload)));
        whole = fpdu.size();
        s.peer->raw(slice(fpdu, 0, cut));
        s.peer->shut_down();
        s.peer->expect_fin();
        const std::string what = name_of(setup) + ", cut at " + std::to_string(cut);
        s.expect_completions(what, {{1, IBV_WC_RETRY_EXC_ERR},
                                    {2, IBV_WC_WR_FLUSH_ERR},
                                    {100, IBV_WC_WR_FLUSH_ERR},
                                    {101, IBV_WC_WR_FLUSH_ERR}});
        s.expect_ended(what);
      }
      Scene s(setup, 65536);
      assert_int_equal(s.side.receive({s.side.sge(0, 10000)}), 0);
      s.peer->send(send_segment(1, pattern(payload), 0, false));
      s.peer->shut_down();
      s.expect_completions("between segments", {{100, IBV_WC_WR_FLUSH_ERR}});
    }
  // Of a Write, and of the answer to a Read.
  for (const Setup& setup : kSetups)
    for (const bool answer : {false, true}) {
      Scene s(setup, 8192);
      s.open_responder();
      for (const std::uint64_t id : {1, 2})
        assert_int_equal(s.side.send(IBV_WR_RDMA_READ, {s.side.sge(0, 64)}, kFar, kKey, IBV_SEND_SIGNALED, id), 0);
      const ReadFields r = dissect_read(s.peer->next_segment());
      s.peer->next();
      s.peer->send(answer ? read_response(r.sink_stag, r.sink_to, pattern(32), false)
                          : write_segment(s.side.mr->stag(), s.side.address(0), pattern(32), false));
      s.peer->shut_down();
      s.peer->expect_fin();
      s.expect_completions("between segments", {{1, IBV_WC_RETRY_EXC_ERR}, {2, IBV_WC_WR_FLUSH_ERR}});
      s.expect_ended("between segments");
    }
}

// Holds: VRB-13
void a_reset(void**) {
  for (const Setup& base : kSetups) {
    Setup setup = base;
    setup.tcp = true;
    Busy b(setup);
    b.s.peer->reset();
    b.expect_flushed("reset", IBV_WC_RETRY_EXC_ERR);
    b.s.expect_ended("reset");
  }
}

// --- we close ---

// Holds: DDP-8, DDP-9
// What was posted arrives, then FIN; the peer's FIN completes it.
void a_graceful_disconnect_loses_nothing(void**) {
  for (const bool tcp : {false, true})
    for (const bool by_modify : {false, true})
      for (const Setup& base : kSetups) {
        Setup setup = base;
        setup.tcp = tcp;
        constexpr std::uint32_t kOctets = 300'000;
        Scene s(setup, kOctets);
        s.open_responder();
        if (!setup.initiator) {  // wait until it may send
          s.peer->send(read_request(1, 1, 0, 0, 0, 0));
          s.peer->next();
        }
        assert_int_equal(s.side.receive({s.side.sge(0, 64)}), 0);
        Scene::Ended ended{{100, IBV_WC_WR_FLUSH_ERR}};
        const Bytes data = pattern(kOctets);
        std::memcpy(s.side.at(0), data.data(), kOctets);
        for (std::uint64_t id = 1; id <= 5; ++id) {
          assert_int_equal(s.side.send(IBV_WR_SEND, {s.side.sge(0, kOctets)}, 0, 0, IBV_SEND_SIGNALED, id), 0);
          ended.emplace_back(id, IBV_WC_SUCCESS);
        }
        if (by_modify) {
          ibv_qp_attr attr{};
          attr.qp_state = IBV_QPS_SQD;
          assert_int_equal(s.side.qp->modify(attr, IBV_QP_STATE), 0);
        } else {
          s.side.qp->disconnect(true);
        }
        for (std::uint32_t msn = 1; msn <= 5; ++msn) {
          std::size_t got = 0;
          for (bool last = false; !last;) {
            const Segment g = s.peer->next_segment();
            assert_int_equal(g.msn, msn);
            assert_int_equal(g.mo, got);
            assert_memory_equal(g.payload.data(), data.data() + got, g.payload.size());
            got += g.payload.size();
            last = g.last;
          }
          assert_int_equal(got, kOctets);
        }
        s.peer->expect_fin();
        s.expect_completions("graceful", ended);
        assert_int_equal(s.side.observer->disconnected, 0);
        s.peer->shut_down();
        s.expect_ended("graceful");
      }
}

// An outstanding Read is waited for, too, and the Sends ahead of its answer are dropped.
void a_graceful_disconnect_waits_for_reads(void**) {
  const std::vector<Bytes> kAhead[] = {
      {},
      {send_segment(1, pattern(20))},
      {send_segment(1, {}, 0, true, kSendInv, 0x1234), send_segment(2, pattern(5000))},
      {send_segment(1, pattern(5000), 0, false), send_segment(1, pattern(10), 5000)},
  };
  for (const Setup& setup : kSetups)
    for (const auto& ahead : kAhead) {
      Scene s(setup, 8192);
      s.open_responder();
      assert_int_equal(s.side.send(IBV_WR_RDMA_READ, {s.side.sge(0, 64)}, kFar, kKey, IBV_SEND_SIGNALED, 1), 0);
      const ReadFields r = dissect_read(s.peer->next_segment());
      s.side.qp->disconnect(true);
      assert_int_equal(s.side.send(IBV_WR_SEND, {s.side.sge(0, 64)}, 0, 0, 0, 2), 0);  // SQD: not started any more
      s.peer->expect_silence();
      for (const Bytes& ulpdu : ahead) {
        const Bytes fpdu = s.peer->frame(ulpdu);
        const std::size_t first = std::min<std::size_t>(fpdu.size(), 100);  // the rest could go direct
        s.peer->raw(slice(fpdu, 0, first));
        s.peer->wait_until_read();
        s.peer->raw(slice(fpdu, first, fpdu.size() - first));
      }
      s.peer->send(read_response(r.sink_stag, r.sink_to, pattern(64)));
      s.peer->expect_fin();
      s.expect_completions("Read", {{1, IBV_WC_SUCCESS}, {2, IBV_WC_WR_FLUSH_ERR}});
      assert_memory_equal(s.side.at(0), pattern(64).data(), 64);
      s.peer->close();
      s.expect_ended("Read");
      s.expect_no_event("Read");
    }
}

// SQ_DRAINED comes when what was posted has left, to who has asked for it.
void a_drained_send_queue_is_told(void**) {
  constexpr std::uint32_t kOctets = 1 << 20;
  for (const bool asked : {true, false}) {
    Scene s(Setup{.initiator = true}, kOctets);
    assert_int_equal(s.side.send(IBV_WR_SEND, {s.side.sge(0, kOctets)}, 0, 0, IBV_SEND_SIGNALED, 1), 0);
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_SQD;
    attr.en_sqd_async_notify = asked;
    assert_int_equal(s.side.qp->modify(attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
    s.expect_no_event("not yet");
    while (!s.peer->next_segment().last) continue;
    s.peer->expect_fin();
    if (asked) s.expect_event("drained", IBV_EVENT_SQ_DRAINED);
    s.expect_completions("drained", {{1, IBV_WC_SUCCESS}});
    s.peer->close();
    s.expect_ended("drained");
    s.expect_no_event("drained");
  }
}

// disconnect(false) and modify to ERR: at once, everything flushed.
void an_abort(void**) {
  for (const bool tcp : {false, true})
    for (const bool by_modify : {false, true})
      for (const Setup& base : kSetups) {
        Setup setup = base;
        setup.tcp = tcp;
        Busy b(setup);
        if (by_modify) {
          ibv_qp_attr attr{};
          attr.qp_state = IBV_QPS_ERR;
          assert_int_equal(b.s.side.qp->modify(attr, IBV_QP_STATE), 0);
        } else {
          b.s.side.qp->disconnect(false);
        }
        assert_int_equal(b.s.side.state(), IBV_QPS_ERR);
        b.expect_flushed("abort");
        b.s.peer->discard();
        b.s.expect_ended("abort");
        b.s.side.qp->disconnect(true);  // harmless
        b.s.expect_no_event("abort");
      }
}

// Holds: VRB-4
// RESET empties the queues without a word, and the QP can be used again.
void vrb_4_reset_and_again(void**) {
  for (const Setup& setup : kSetups) {
    Busy b(setup);
    // One completion that nobody has seen.
    b.s.peer->send(send_segment(1, pattern(8)));
    b.s.peer->send(read_request(1, 1, 0, 0, 0, 0));
    assert_int_equal(b.s.peer->next_segment().opcode, kReadResponse);
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RESET;
    assert_int_equal(b.s.side.qp->modify(attr, IBV_QP_STATE), 0);
    assert_int_equal(b.s.side.state(), IBV_QPS_RESET);
    b.s.peer->discard();
    assert_true(b.s.side.disconnects());
    b.s.expect_completions("reset", {});
    // A new stream on the same QP begins with MSN 1, and finds nothing of the old one.
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    Peer peer(fds[1], setup.crc);
    const auto again = std::make_shared<test::Observer>();
    assert_int_equal(b.s.side.qp->attach(llp::tcp_stream(fds[0]), test::params(true, setup.crc, false), again), 0);
    peer.expect_silence();
    assert_int_equal(b.s.side.send(IBV_WR_SEND, {b.s.side.sge(0, 3)}, 0, 0, IBV_SEND_SIGNALED, 7), 0);
    const Segment g = peer.next_segment();
    assert_int_equal(g.msn, 1);
    assert_int_equal(g.payload.size(), 3);
    assert_int_equal(b.s.side.receive({b.s.side.sge(0, 64)}, 107), 0);
    peer.send(send_segment(1, pattern(2)));
    b.s.expect_completions("again", {{7, IBV_WC_SUCCESS}, {107, IBV_WC_SUCCESS}});
  }
}

// Holds: VRB-5
void vrb_5_destroy_with_work_outstanding(void**) {
  for (const bool tcp : {false, true})
    for (const Setup& base : kSetups) {
      Setup setup = base;
      setup.tcp = tcp;
      Busy b(setup);
      b.s.peer->send(send_segment(1, pattern(8)));
      b.s.peer->send(read_request(1, 1, 0, 0, 0, 0));
      assert_int_equal(b.s.peer->next_segment().opcode, kReadResponse);
      b.s.side.qp->destroy();
      std::memset(b.s.side.at(0), 0x5a, 65536);
      b.s.expect_completions("destroyed", {});
      b.s.peer->send(read_response(b.requests[0].fields.sink_stag, 0, pattern(64)));
      b.s.peer->discard();
      b.s.expect_completions("destroyed", {});
      for (std::size_t i = 0; i < 65536; ++i) assert_int_equal(*b.s.side.at(i), 0x5a);
      assert_true(b.s.side.disconnects());
    }
}

}  // namespace

int main() {
  stop_at_first_failure();
  set_waits("30000", "0");
  const CMUnitTest tests[] = {
      cmocka_unit_test(rdm_22_a_terminate_flushes_and_gets_no_answer),
      cmocka_unit_test(vrb_13_a_terminate_names_what_is_being_sent),
      cmocka_unit_test(a_terminate_outranks_a_reset),
      cmocka_unit_test(a_send_ahead_of_a_reset),
      cmocka_unit_test(nothing_is_sent_behind_a_terminate),
      cmocka_unit_test(rdm_22_malformed_terminates),
      cmocka_unit_test(rdm_20_two_terminates_cross),
      cmocka_unit_test(a_fin_between_messages),
      cmocka_unit_test(a_fin_on_an_idle_stream),
      cmocka_unit_test(mpa_15_a_fin_inside_a_message),
      cmocka_unit_test(a_reset),
      cmocka_unit_test(a_graceful_disconnect_loses_nothing),
      cmocka_unit_test(a_graceful_disconnect_waits_for_reads),
      cmocka_unit_test(a_drained_send_queue_is_told),
      cmocka_unit_test(an_abort),
      cmocka_unit_test(vrb_4_reset_and_again),
      cmocka_unit_test(vrb_5_destroy_with_work_outstanding),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
