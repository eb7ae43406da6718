// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The beginning of a stream: who may speak first, the RTR in its three forms, and what goes without consent.
// That the wait for the RTR ends: expiry_test.cc.
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <cstring>

#include "tests/wire/scene.h"

using namespace ewarp;
using namespace ewarp::wire;

namespace {

constexpr std::uint8_t kForms[] = {mpa::kRtrWrite, mpa::kRtrRead, mpa::kRtrSend};

Setup peer_to_peer(bool initiator, std::uint8_t rtr, bool crc = true) {
  return Setup{.initiator = initiator, .crc = crc, .peer_to_peer = true, .rtr = rtr};
}

Bytes rtr_of(std::uint8_t form) {
  if (form == mpa::kRtrWrite) return write_segment(1, 1, {});  // cxgb4's
  if (form == mpa::kRtrRead) return read_request(1, 2, 0, 0, 2, 0);
  return send_segment(1, {});
}

bool established(Scene& s, int milliseconds = 5000) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
  while (s.side.observer->established == 0 && std::chrono::steady_clock::now() < until) poll(nullptr, 0, 1);
  return s.side.observer->established == 1;
}

// Holds: MPA-71 (RTR first), MPA-73
// The first FPDU of the initiator is the RTR, work or no work; nobody's queues notice.
void mpa_71_the_initiator_begins_with_the_rtr(void**) {
  for (const std::uint8_t form : kForms)
    for (const bool crc : {false, true}) {
      Scene s(peer_to_peer(true, form, crc), 8192);
      const Segment rtr = s.peer->next_segment();
      assert_true(rtr.last);
      std::uint32_t read_msn = 1, send_msn = 1;
      ReadFields sink{};
      if (form == mpa::kRtrWrite) {
        assert_int_equal(rtr.opcode, kWrite);
        assert_int_equal(rtr.payload.size(), 0);
      } else if (form == mpa::kRtrRead) {
        sink = dissect_read(rtr);
        assert_int_equal(sink.octets, 0);
        assert_int_equal(rtr.msn, read_msn++);
      } else {
        assert_int_equal(rtr.opcode, kSend);
        assert_int_equal(rtr.qn, 0);
        assert_int_equal(rtr.msn, send_msn++);
        assert_int_equal(rtr.payload.size(), 0);
      }
      assert_true(established(s));
      assert_int_equal(s.side.send(IBV_WR_SEND, {s.side.sge(0, 8)}, 0, 0, IBV_SEND_SIGNALED, 1), 0);
      const Segment first = s.peer->next_segment();
      assert_int_equal(first.opcode, kSend);
      assert_int_equal(first.msn, send_msn);
      if (form == mpa::kRtrRead) s.peer->send(read_response(sink.sink_stag, sink.sink_to, {}));
      assert_int_equal(s.side.send(IBV_WR_RDMA_READ, {s.side.sge(0, 8)}, 0, kKey, IBV_SEND_SIGNALED, 2), 0);
      const Segment second = s.peer->next_segment();
      const ReadFields r = dissect_read(second);
      assert_int_equal(second.msn, read_msn);
      s.peer->send(read_response(r.sink_stag, r.sink_to, pattern(8)));
      s.expect_completions("RTR", {{1, IBV_WC_SUCCESS}, {2, IBV_WC_SUCCESS}});
      s.peer->expect_silence();
    }
}

// Holds: MPA-71 (RTR first)
// On real traffic first the RTR still goes first.
void mpa_71_work_posted_at_once_waits_for_the_rtr(void**) {
  for (const std::uint8_t form : kForms) {
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    test::Side side;
    Peer peer(fds[1], true);
    mpa::StreamParams p = test::params(true, true);
    p.peer_to_peer = true;
    p.rtr = form;
    assert_int_equal(side.qp->attach(llp::tcp_stream(fds[0]), p, side.observer), 0);
    assert_int_equal(side.send(IBV_WR_SEND, {side.sge(0, 8)}), 0);
    assert_true(peer.next_segment().payload.size() == (form == mpa::kRtrRead ? 28u : 0u));
    assert_int_equal(peer.next_segment().payload.size(), 8);
  }
}

// Holds: MPA-59, MPA-73, MPA-74, RDM-10
// The responder waits, then takes the RTR without a trace.
void mpa_73_the_responder_takes_the_rtr_silently(void**) {
  for (const std::uint8_t form : kForms)
    for (const std::uint8_t agreed : {form, std::uint8_t{7}})
      for (const std::uint16_t ird : {std::uint16_t{0}, std::uint16_t{4}}) {
        Setup setup = peer_to_peer(false, agreed);
        setup.ird = ird;
        Scene s(setup, 8192);
        assert_int_equal(s.side.receive({s.side.sge(0, 64)}), 0);
        assert_int_equal(s.side.send(IBV_WR_SEND, {s.side.sge(64, 5)}, 0, 0, IBV_SEND_SIGNALED, 1), 0);
        assert_int_equal(s.side.send(IBV_WR_RDMA_WRITE, {s.side.sge(64, 6)}, 0, kKey, IBV_SEND_SIGNALED, 2), 0);
        s.peer->expect_silence();
        assert_int_equal(s.side.observer->established, 0);
        assert_int_equal(s.side.state(), IBV_QPS_RTS);
        s.peer->send(rtr_of(form));
        assert_true(established(s));
        bool answered = form != mpa::kRtrRead;
        for (unsigned seen = 0; seen < 2 || !answered;) {
          const Segment g = s.peer->next_segment();
          if (g.opcode == kReadResponse) {
            assert_int_equal(g.payload.size(), 0);
            assert_int_equal(g.stag, 2);
            assert_false(answered);
            answered = true;
            continue;
          }
          assert_int_equal(g.payload.size(), 5 + seen++);
        }
        s.expect_completions("responder", {{1, IBV_WC_SUCCESS}, {2, IBV_WC_SUCCESS}});
        // The receive is still there, for the first message of the consumer.
        s.peer->send(send_segment(form == mpa::kRtrSend ? 2 : 1, pattern(10)));
        s.expect_completions("responder", {{100, IBV_WC_SUCCESS}});
        assert_memory_equal(s.side.at(0), pattern(10).data(), 10);
      }
}

// Holds: MPA-59
// MPA-59 without peer-to-peer: any message opens the way.
void mpa_59_a_plain_responder_waits_for_any_fpdu(void**) {
  for (const bool crc : {false, true})
    for (const int kind : {0, 1, 2, 3}) {
      Scene s(Setup{.crc = crc}, 8192);
      assert_true(established(s));
      assert_int_equal(s.side.receive({s.side.sge(0, 64)}), 0);
      assert_int_equal(s.side.send(IBV_WR_SEND, {s.side.sge(64, 5)}, 0, 0, IBV_SEND_SIGNALED, 1), 0);
      s.peer->expect_silence();
      const Bytes opening[] = {send_segment(1, pattern(3)),
                               write_segment(s.side.mr->stag(), s.side.address(0), pattern(3)),
                               read_request(1, 1, 0, 0, 0, 0), send_segment(1, pattern(3), 0, false)};
      s.peer->send(opening[kind]);
      Segment g = s.peer->next_segment();
      if (kind == 2) g = g.opcode == kReadResponse ? s.peer->next_segment() : g;
      assert_int_equal(g.opcode, kSend);
    }
}

// Holds: MPA-59
// Half an FPDU, or one with a wrong CRC, opens nothing.
void mpa_59_a_bad_fpdu_opens_nothing(void**) {
  Scene s(peer_to_peer(false, 7), 8192);
  assert_int_equal(s.side.send(IBV_WR_SEND, {s.side.sge(64, 5)}, 0, 0, IBV_SEND_SIGNALED, 1), 0);
  const Bytes fpdu = s.peer->frame(rtr_of(mpa::kRtrWrite));
  s.peer->raw(slice(fpdu, 0, fpdu.size() - 1));
  s.peer->expect_silence();
  s.peer->raw(u8(0xee));
  s.peer->expect(terminate(2, 0, 2));
  s.peer->expect_fin();
  s.expect_completions("bad", {{1, IBV_WC_WR_FLUSH_ERR}});
  assert_int_equal(s.side.observer->established, 0);
  s.expect_ended("bad");
}

// Holds: MPA-72
// What is no RTR, or none that was agreed on.
void mpa_72_a_first_fpdu_that_is_no_rtr(void**) {
  for (const bool crc : {false, true})
    for (const unsigned agreed_forms :
         {7u, unsigned{mpa::kRtrWrite}, unsigned{mpa::kRtrRead}, unsigned{mpa::kRtrSend}}) {
      const auto agreed = static_cast<std::uint8_t>(agreed_forms);
      for (int kind = 0; kind < 7; ++kind) {
        Scene s(peer_to_peer(false, agreed, crc), 16384);
        assert_int_equal(s.side.receive({s.side.sge(0, 64)}), 0);
        std::memset(s.side.at(0), 0x5a, 16384);
        const std::uint32_t stag = s.side.mr->stag();
        const Bytes first[] = {send_segment(1, pattern(1)),
                               write_segment(stag, s.side.address(8), pattern(1)),
                               read_request(1, 1, 0, 1, stag, s.side.address(8)),
                               write_segment(stag, s.side.address(8), pattern(8000)),
                               send_segment(1, {}),
                               write_segment(0, 0, {}),
                               read_request(1, 1, 0, 0, 0, 0)};
        const std::uint8_t form_of[] = {0, 0, 0, 0, mpa::kRtrSend, mpa::kRtrWrite, mpa::kRtrRead};
        if ((form_of[kind] & agreed) != 0) continue;
        const std::string what = "form " + std::to_string(agreed) + ", message " + std::to_string(kind);
        s.peer->send(first[kind]);
        s.peer->expect(terminate(2, 0, 7), what);
        s.peer->expect_fin();
        s.expect_completions(what, {{100, IBV_WC_WR_FLUSH_ERR}});
        for (std::size_t i = 0; i < 16384; ++i) assert_int_equal(*s.side.at(i), 0x5a);
        assert_int_equal(s.side.observer->established, 0);
        s.expect_ended(what);
      }
    }
}

// Holds: MPA-68, RDM-22
// The initiator may have to begin with a Terminate (TRM-25, TRM-26). It is no RTR, and gets no answer.
void rdm_22_a_terminate_instead_of_the_rtr(void**) {
  for (const bool crc : {false, true})
    for (const unsigned code : {5u, 6u, 7u}) {
      Scene s(peer_to_peer(false, 7, crc), 8192);
      assert_int_equal(s.side.receive({s.side.sge(0, 64)}), 0);
      s.peer->send(terminate(2, 0, code));
      s.peer->expect_fin();
      s.expect_completions("Terminate first", {{100, IBV_WC_WR_FLUSH_ERR}});
      s.expect_ended("Terminate first");
    }
}

// Holds: MPA-12, MPA-30, MPA-32, MPA-33, MPA-34, MPA-71 (extensions), DDP-4, DDP-5, DDP-8
// Without consent every ULPDU fits the EMSS, whatever the operation.
void mpa_12_no_ulpdu_above_the_mulpdu(void**) {
  for (const bool markers : {false, true})
    for (const int mss : {536, 1448, 8948})
      for (const bool initiator : {true, false}) {
        Setup setup{.initiator = initiator, .crc = true, .tcp = true, .tx_markers = markers};
        setup.mss = mss;
        Scene s(setup);
        s.open_responder();
        const std::uint32_t n = 100000;
        const Bytes data = pattern(n);
        std::memcpy(s.side.at(0), data.data(), n);
        s.peer->send(read_request(1, 5, 0, n, s.side.mr->stag(), s.side.address(0)));
        assert_int_equal(s.side.send(IBV_WR_SEND, {s.side.sge(0, n)}), 0);
        assert_int_equal(s.side.send(IBV_WR_RDMA_WRITE, {s.side.sge(0, n)}, 0, kKey), 0);
        Bytes sent, written, read;
        unsigned ended = 0;
        while (ended < 3) {
          const Segment g = s.peer->next_segment();
          Bytes& to = g.opcode == kSend ? sent : g.opcode == kWrite ? written : read;
          // DDP-4, DDP-5, DDP-8
          const std::uint64_t at = g.is_tagged ? g.to : g.mo;
          assert_int_equal(at, to.size());
          to = concat({to, g.payload});
          assert_int_equal(g.last, to.size() == n);
          ended += g.last;
        }
        assert_true(sent == data && written == data && read == data);
        const std::size_t emss = static_cast<std::size_t>(mss);
        const std::size_t limit = emss - 6 - emss % 4 - (markers ? 4 * ((emss + 511) / 512) : 0);
        if (s.peer->largest > limit) fail_msg("ULPDU of %zu octets with an MSS of %d", s.peer->largest, mss);
        if (s.peer->largest < limit - 64) fail_msg("ULPDUs of %zu octets only, MSS %d", s.peer->largest, mss);
      }
}

// Holds: MPA-70 (extensions)
// With consent they may be large, but a FPDU's length field has its limit.
void mpa_70_large_ulpdus_with_consent(void**) {
  Scene s(Setup{.initiator = true, .crc = true, .tcp = true, .extensions = true});
  assert_int_equal(s.side.send(IBV_WR_SEND, {s.side.sge(0, 200000)}), 0);
  std::size_t got = 0;
  while (got < 200000) got += s.peer->next_segment().payload.size();
  assert_true(s.peer->largest > 16384 && s.peer->largest <= 64768);
}

// Holds: MPA-71 (extensions), RDM-36
// Nothing beyond RFC 5040 is sent, or even taken from the application, without consent.
void mpa_71_no_opcode_beyond_rfc_5040(void**) {
  for (const Setup& setup : kSetups) {
    Scene s(setup, 8192);
    s.open_responder();
    for (const auto op :
         {IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD})
      assert_int_equal(s.side.send(op, {s.side.sge(0, 8)}, 0, kKey), EINVAL);
    s.peer->expect_silence();
    assert_int_equal(s.side.state(), IBV_QPS_RTS);
  }
}

}  // namespace

int main() {
  stop_at_first_failure();
  set_waits("30000", "0");
  setenv("ETHERWARP_RTR_TIMEOUT_MS", "30000", 1);
  const CMUnitTest tests[] = {
      cmocka_unit_test(mpa_71_the_initiator_begins_with_the_rtr),
      cmocka_unit_test(mpa_71_work_posted_at_once_waits_for_the_rtr),
      cmocka_unit_test(mpa_73_the_responder_takes_the_rtr_silently),
      cmocka_unit_test(mpa_59_a_plain_responder_waits_for_any_fpdu),
      cmocka_unit_test(mpa_59_a_bad_fpdu_opens_nothing),
      cmocka_unit_test(mpa_72_a_first_fpdu_that_is_no_rtr),
      cmocka_unit_test(rdm_22_a_terminate_instead_of_the_rtr),
      cmocka_unit_test(mpa_12_no_ulpdu_above_the_mulpdu),
      cmocka_unit_test(mpa_70_large_ulpdus_with_consent),
      cmocka_unit_test(mpa_71_no_opcode_beyond_rfc_5040),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
