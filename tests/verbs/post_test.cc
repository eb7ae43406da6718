// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Posting work: what is refused and where, lists of requests, full queues, inline data, scatter/gather lists.
#include <errno.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>

#include "tests/verbs/srq_hub.h"

using namespace ewarp;
using namespace ewarp::wire;

namespace {

// A list of requests to the same QP, each with one SGE.
struct List {
  explicit List(std::size_t n, test::Side& side) : sges(n), send(n), receive(n) {
    for (std::size_t i = 0; i < n; ++i) {
      sges[i] = side.sge(16 * i, 16);
      send[i].wr_id = i + 1;
      send[i].sg_list = &sges[i];
      send[i].num_sge = 1;
      send[i].opcode = IBV_WR_SEND;
      send[i].send_flags = IBV_SEND_SIGNALED;
      send[i].next = i + 1 < n ? &send[i + 1] : nullptr;
      receive[i].wr_id = i + 100;
      receive[i].sg_list = &sges[i];
      receive[i].num_sge = 1;
      receive[i].next = i + 1 < n ? &receive[i + 1] : nullptr;
    }
  }
  std::vector<ibv_sge> sges;
  std::vector<ibv_send_wr> send;
  std::vector<ibv_recv_wr> receive;
};

struct Bad {
  const char* what;
  void (*spoil)(ibv_send_wr&);
};
constexpr Bad kBad[] = {
    {"opcode", [](ibv_send_wr& w) { w.opcode = IBV_WR_DRIVER1; }},
    {"immediate", [](ibv_send_wr& w) { w.opcode = IBV_WR_SEND_WITH_IMM; }},
    {"TSO", [](ibv_send_wr& w) { w.opcode = IBV_WR_TSO; }},
    {"flag", [](ibv_send_wr& w) { w.send_flags |= IBV_SEND_IP_CSUM; }},
    {"unknown flag", [](ibv_send_wr& w) { w.send_flags |= 1u << 20; }},
    {"SGE count", [](ibv_send_wr& w) { w.num_sge = 9; }},
    {"negative SGE count", [](ibv_send_wr& w) { w.num_sge = -1; }},
    {"inline Read",
     [](ibv_send_wr& w) {
       w.opcode = IBV_WR_RDMA_READ;
       w.send_flags |= IBV_SEND_INLINE;
     }},
    {"inline too long",
     [](ibv_send_wr& w) {
       w.send_flags |= IBV_SEND_INLINE;
       w.sg_list[0].length = 257;
     }},
    {"message too long", [](ibv_send_wr& w) { w.sg_list[0].length = kMaxMessage + 1; }},
};

// Holds: VRB-6
// *bad_wr is the first that was not taken; what came before it runs, what comes behind does not.
void vrb_6_bad_wr(void**) {
  for (const Bad& bad : kBad)
    for (const std::size_t at : {std::size_t{0}, std::size_t{2}, std::size_t{4}}) {
      Scene s(Setup{.initiator = true}, 8192);
      List l(5, s.side);
      bad.spoil(l.send[at]);
      ibv_send_wr* refused = nullptr;
      const int rc = s.side.qp->post_send(&l.send[0], &refused);
      if (rc != EINVAL) fail_msg("%s: %d", bad.what, rc);
      assert_ptr_equal(refused, &l.send[at]);
      Scene::Ended done;
      for (std::size_t i = 0; i < at; ++i) {
        assert_int_equal(s.peer->next_segment().msn, i + 1);
        done.emplace_back(i + 1, IBV_WC_SUCCESS);
      }
      s.expect_completions(bad.what, done);
      s.peer->expect_silence(2);
      assert_int_equal(s.side.state(), IBV_QPS_RTS);
    }
  for (const std::size_t at : {std::size_t{0}, std::size_t{2}}) {
    Scene s(Setup{}, 8192);
    List l(5, s.side);
    l.receive[at].num_sge = 9;
    ibv_recv_wr* refused = nullptr;
    assert_int_equal(s.side.qp->post_recv(&l.receive[0], &refused), EINVAL);
    assert_ptr_equal(refused, &l.receive[at]);
    Scene::Ended done;
    for (std::size_t i = 0; i < at; ++i) {
      s.peer->send(send_segment(static_cast<std::uint32_t>(i + 1), pattern(4)));
      done.emplace_back(i + 100, IBV_WC_SUCCESS);
    }
    s.expect_completions("receives", done);
    s.peer->send(send_segment(static_cast<std::uint32_t>(at + 1), pattern(4)));
    assert_int_equal(s.peer->next_segment().opcode, kTerminate);  // there are no more
  }
}

// Holds: VRB-7, VRB-8
void vrb_7_full_queues(void**) {
  Scene s(Setup{.initiator = false}, 65536);
  // A responder that has heard nothing sends nothing: the queue fills up.
  List l(1000, s.side);
  for (auto& sge : l.sges) sge = s.side.sge(0, 4);
  ibv_send_wr* bad = nullptr;
  assert_int_equal(s.side.qp->post_send(&l.send[0], &bad), ENOMEM);
  const auto depth = static_cast<std::size_t>(bad - &l.send[0]);
  assert_true(depth >= 256);
  assert_int_equal(s.side.send(IBV_WR_SEND, {}), ENOMEM);
  ibv_recv_wr* bad_receive = nullptr;
  assert_int_equal(s.side.qp->post_recv(&l.receive[0], &bad_receive), ENOMEM);
  const auto receives = static_cast<std::size_t>(bad_receive - &l.receive[0]);
  assert_true(receives >= 256);
  assert_int_equal(s.side.receive({}), ENOMEM);
  // One message in, all of ours out: as many places are free again, on both queues.
  s.peer->send(send_segment(1, pattern(4)));
  Scene::Ended done{{100, IBV_WC_SUCCESS}};
  for (std::size_t i = 0; i < depth; ++i) {
    assert_int_equal(s.peer->next_segment().msn, i + 1);
    done.emplace_back(i + 1, IBV_WC_SUCCESS);
    if (i + 1 == 99) break;
  }
  for (std::size_t i = 99; i < depth; ++i) s.peer->next();
  // wr_ids of 100 and more count as receives here, so the sends' own are looked at by number only.
  std::size_t sends = 0, received = 0;
  while (sends + received < depth + 1) {
    const ibv_wc wc = s.side.wait();
    assert_int_equal(wc.status, IBV_WC_SUCCESS);
    if (wc.opcode == IBV_WC_SEND)
      assert_int_equal(wc.wr_id, ++sends);
    else
      ++received;
  }
  assert_int_equal(s.side.receive({}), 0);
  assert_int_equal(s.side.receive({}), ENOMEM);
  for (std::size_t i = 0; i < 3 * depth; ++i) {
    // VRB-8: unsignalled ones give their places back by themselves.
    assert_int_equal(s.side.send(IBV_WR_SEND, {s.side.sge(0, 1)}, 0, 0, 0), 0);
    s.peer->next();
  }
  s.expect_completions("unsignalled", {});
}

// Holds: VRB-26
void vrb_26_inline(void**) {
  for (const Setup& setup : kSetups)
    for (const auto op : {IBV_WR_SEND, IBV_WR_SEND_WITH_INV, IBV_WR_RDMA_WRITE})
      for (const std::size_t octets : {std::size_t{0}, std::size_t{1}, std::size_t{100}, std::size_t{256}}) {
        Scene s(setup, 4096);
        // A responder holds it back: it must have been copied by then.
        Bytes a = pattern(octets / 2, 1), b = pattern(octets - octets / 2, 2);
        const Bytes want = concat({a, b});
        {
          const auto address = [](const Bytes& x) { return reinterpret_cast<std::uint64_t>(x.data()); };
          std::vector<ibv_sge> sges{{address(a), static_cast<std::uint32_t>(a.size()), 0xbad},
                                    {address(b), static_cast<std::uint32_t>(b.size()), 0}};
          assert_int_equal(s.side.send(op, sges, 0x7000, kKey, IBV_SEND_INLINE | IBV_SEND_SIGNALED, 1), 0);
          std::fill(a.begin(), a.end(), std::byte{0xff});
          std::fill(b.begin(), b.end(), std::byte{0xff});
          a = Bytes();
          b = Bytes();
        }
        s.open_responder();
        const Segment g = s.peer->next_segment();
        assert_true(g.payload == want);
        s.expect_completions("inline", {{1, IBV_WC_SUCCESS}});
      }
}

// Holds: DDP-7, RDM-38, VRB-27, VRB-35
// Every count of SGEs, empty ones among them, gathered here and scattered there.
void vrb_27_gather(void**) {
  for (const Setup& setup : kSetups)
    for (const std::uint32_t unit : {0u, 1u, 7u, 100u, 1000u, 9000u})
      for (int count = 0; count <= 8; ++count) {
        Scene s(setup, 256 * 1024);
        s.open_responder();
        const Bytes all = pattern(200000, unit);
        std::memcpy(s.side.at(0), all.data(), all.size());
        std::vector<ibv_sge> sges;
        Bytes want;
        for (int i = 0; i < count; ++i) {
          const bool empty = i % 3 == 1;
          const auto at = static_cast<std::size_t>(20000 * i + i);
          sges.push_back(s.side.sge(at, empty ? 0 : unit));
          if (empty) sges.back() = {0x10, 0, 0xdead};  // RDMA Verbs: no key is looked at
          if (!empty) want = concat({want, slice(all, at, unit)});
        }
        assert_int_equal(s.side.send(IBV_WR_SEND, sges, 0, 0, IBV_SEND_SIGNALED, 1), 0);
        assert_int_equal(s.side.send(IBV_WR_RDMA_WRITE, sges, 0x7000, kKey, IBV_SEND_SIGNALED, 2), 0);
        assert_true(s.peer->next_segment().payload == want);
        assert_true(s.peer->next_segment().payload == want);
        s.expect_completions("gather", {{1, IBV_WC_SUCCESS}, {2, IBV_WC_SUCCESS}});
      }
}

// Holds: VRB-27, VRB-35
void vrb_27_scatter(void**) {
  for (const Setup& setup : kSetups)
    for (const std::uint32_t unit : {1u, 7u, 1000u, 9000u})
      for (int count = 1; count <= 8; ++count)
        for (const bool reading : {false, true}) {
          Scene s(setup, 256 * 1024);
          s.open_responder();
          std::memset(s.side.at(0), 0x5a, 256 * 1024);
          std::vector<ibv_sge> sges;
          Bytes want(256 * 1024, std::byte{0x5a});
          std::uint32_t room = 0;
          for (int i = 0; i < count; ++i) {
            sges.push_back(i % 3 == 1 ? ibv_sge{0x10, 0, 0xdead}
                                      : s.side.sge(static_cast<std::size_t>(20000 * i + i), unit));
            room += sges.back().length;
          }
          // A Send may be shorter than its buffer; a Read is what was asked for.
          const Bytes data = pattern(reading ? room : room - unit / 2, unit);
          std::size_t done = 0;
          for (const ibv_sge& g : sges) {
            const std::size_t n = std::min<std::size_t>(g.length, data.size() - done);
            if (n == 0) continue;
            std::copy_n(data.begin() + static_cast<std::ptrdiff_t>(done), n,
                        want.begin() + static_cast<std::ptrdiff_t>(g.addr - s.side.address(0)));
            done += n;
          }
          if (reading) {
            assert_int_equal(s.side.send(IBV_WR_RDMA_READ, sges, 0x7000, kKey, IBV_SEND_SIGNALED, 1), 0);
            const ReadFields r = dissect_read(s.peer->next_segment());
            assert_int_equal(r.octets, room);
            std::size_t at = 0;
            while (at < data.size()) {
              const std::size_t n = std::min<std::size_t>(data.size() - at, 30001);
              s.peer->send(read_response(r.sink_stag, at, slice(data, at, n), at + n == data.size()));
              at += n;
            }
          } else {
            assert_int_equal(s.side.receive(sges, 1), 0);
            s.peer->send(send_segment(1, data));
          }
          const ibv_wc wc = s.side.wait();
          assert_int_equal(wc.status, IBV_WC_SUCCESS);
          assert_int_equal(wc.byte_len, data.size());
          assert_memory_equal(s.side.at(0), want.data(), want.size());
        }
}

// Holds: VRB-8
// With sq_sig_all every request gives a completion, whatever its flags.
void vrb_8_signal_all(void**) {
  test::Side side(8192);
  ibv_qp_init_attr init{};
  init.qp_type = IBV_QPT_RC;
  init.sq_sig_all = 1;
  init.cap = {16, 16, 1, 1, 0};
  std::shared_ptr<QueuePair> qp;
  assert_int_equal(create_rc_qp(side.pd, init, &side.cq, &side.cq, &qp), 0);
  int fds[2];
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
  Peer peer(fds[1], false);
  assert_int_equal(qp->attach(llp::tcp_stream(fds[0]), test::params(true), nullptr), 0);
  for (std::uint64_t id = 1; id <= 3; ++id) {
    ibv_send_wr wr{}, *bad = nullptr;
    wr.wr_id = id;
    wr.opcode = IBV_WR_SEND;
    assert_int_equal(qp->post_send(&wr, &bad), 0);
    const ibv_wc wc = side.wait();
    assert_int_equal(wc.status, IBV_WC_SUCCESS);
    assert_int_equal(wc.wr_id, id);
    assert_int_equal(wc.qp_num, qp->number());
  }
  qp->destroy();
}

// A Read where none is possible is refused when it is posted.
void reads_without_depth(void**) {
  Scene s(Setup{.initiator = true, .ord = 0}, 4096);
  assert_int_equal(s.side.send(IBV_WR_RDMA_READ, {s.side.sge(0, 8)}, 0x7000, kKey), EINVAL);
  assert_int_equal(s.side.send(IBV_WR_SEND, {s.side.sge(0, 8)}), 0);
  assert_int_equal(s.peer->next_segment().opcode, kSend);
}

// A half message holds the only receive of a shared queue. rnr_wait_ms is 0 here: nobody waits, not in line either, and
// the background thread has its time.
void nobody_waits_for_a_receive(void**) {
  using Clock = std::chrono::steady_clock;
  constexpr auto kSoon = std::chrono::seconds(5);  // half of half_message_ms
  srq::Hub hub(4);
  hub.post_all(0, 1);
  const auto half = hub.add_peer(), other = hub.add_peer();
  half->send(send_segment(1, pattern(40), 0, false));
  half->wait_until_read();
  const Bytes ulpdu = send_segment(1, pattern(40));
  const auto begin = Clock::now();
  other->send(ulpdu);
  other->wait_until_read();
  std::atomic<bool> ran{false};
  engine().post([&ran] { ran = true; });
  while (!ran && Clock::now() - begin < kSoon) poll(nullptr, 0, 1);
  if (!ran) fail_msg("the background thread does not come to its tasks");
  other->expect(answer_to(ulpdu, 1, 2, 2));
  assert_true(Clock::now() - begin < kSoon);
  hub.expect_event(IBV_EVENT_QP_REQ_ERR, srq::Hub::kQpHandle + 1);
}

// Holds: RDM-1, RDM-5
// All opcodes that verbs have for RFC 5040, as they leave.
void rdm_1_opcodes_on_the_wire(void**) {
  const struct {
    ibv_wr_opcode op;
    unsigned flags;
    unsigned wire;
  } kCases[] = {{IBV_WR_SEND, 0, kSend},
                {IBV_WR_SEND, IBV_SEND_SOLICITED, kSendSe},
                {IBV_WR_SEND_WITH_INV, 0, kSendInv},
                {IBV_WR_SEND_WITH_INV, IBV_SEND_SOLICITED, kSendSeInv},
                {IBV_WR_RDMA_WRITE, 0, kWrite},
                {IBV_WR_RDMA_READ, 0, kReadRequest}};
  for (const Setup& setup : kSetups) {
    Scene s(setup, 4096);
    s.open_responder();
    std::uint32_t msn = 0;
    for (const auto& c : kCases) {
      assert_int_equal(s.side.send(c.op, {s.side.sge(0, 8)}, 0x7000, kKey, c.flags), 0);
      const Segment g = s.peer->next_segment();
      assert_int_equal(g.opcode, c.wire);
      if (c.wire == kWrite) assert_int_equal(g.stag, kKey);
      if (c.wire == kWrite || c.wire == kReadRequest) continue;
      assert_int_equal(g.msn, ++msn);
      assert_int_equal(g.word, c.op == IBV_WR_SEND_WITH_INV ? kKey : 0);
    }
  }
}

}  // namespace

int main() {
  stop_at_first_failure();
  set_waits("500", "0");
  const CMUnitTest tests[] = {
      cmocka_unit_test(vrb_6_bad_wr),
      cmocka_unit_test(vrb_7_full_queues),
      cmocka_unit_test(vrb_26_inline),
      cmocka_unit_test(vrb_27_gather),
      cmocka_unit_test(vrb_27_scatter),
      cmocka_unit_test(vrb_8_signal_all),
      cmocka_unit_test(reads_without_depth),
      cmocka_unit_test(nobody_waits_for_a_receive),
      cmocka_unit_test(rdm_1_opcodes_on_the_wire),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
