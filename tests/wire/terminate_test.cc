// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Every defect of the Terminate vectors, on a live queue pair: the octets of the Terminate, the end of the stream, the
// completions and the event.
#include <algorithm>
#include <cstring>

#include "tests/wire/scene.h"

using namespace ewarp;
using namespace ewarp::wire;

namespace {

constexpr std::size_t kRegion = 4096;
constexpr auto kFull =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_ZERO_BASED;

struct Case {
  const char* id;
  ibv_event_type event;
  int first_receive;  // status of the oldest receive; -1: none is posted
};
constexpr Case kCases[] = {
    {"TRM-2", IBV_EVENT_QP_ACCESS_ERR, IBV_WC_WR_FLUSH_ERR},
    {"TRM-3", IBV_EVENT_QP_ACCESS_ERR, IBV_WC_WR_FLUSH_ERR},
    {"TRM-4", IBV_EVENT_QP_ACCESS_ERR, IBV_WC_WR_FLUSH_ERR},
    {"TRM-5", IBV_EVENT_QP_ACCESS_ERR, IBV_WC_WR_FLUSH_ERR},
    {"TRM-6", IBV_EVENT_QP_ACCESS_ERR, IBV_WC_WR_FLUSH_ERR},
    {"TRM-7", IBV_EVENT_QP_REQ_ERR, IBV_WC_WR_FLUSH_ERR},
    {"TRM-8", IBV_EVENT_QP_REQ_ERR, -1},
    {"TRM-9", IBV_EVENT_QP_REQ_ERR, IBV_WC_WR_FLUSH_ERR},
    {"TRM-10", IBV_EVENT_QP_REQ_ERR, IBV_WC_WR_FLUSH_ERR},
    {"TRM-11", IBV_EVENT_QP_REQ_ERR, IBV_WC_LOC_LEN_ERR},
    {"TRM-12", IBV_EVENT_QP_REQ_ERR, IBV_WC_WR_FLUSH_ERR},
    {"TRM-13", IBV_EVENT_QP_ACCESS_ERR, IBV_WC_WR_FLUSH_ERR},
    {"TRM-14", IBV_EVENT_QP_ACCESS_ERR, IBV_WC_WR_FLUSH_ERR},
    {"TRM-15", IBV_EVENT_QP_ACCESS_ERR, IBV_WC_WR_FLUSH_ERR},
    {"TRM-16", IBV_EVENT_QP_ACCESS_ERR, IBV_WC_WR_FLUSH_ERR},
    {"TRM-17", IBV_EVENT_QP_ACCESS_ERR, IBV_WC_WR_FLUSH_ERR},
    {"TRM-18", IBV_EVENT_QP_ACCESS_ERR, IBV_WC_WR_FLUSH_ERR},
    {"TRM-19", IBV_EVENT_QP_FATAL, IBV_WC_WR_FLUSH_ERR},
    {"TRM-20", IBV_EVENT_QP_REQ_ERR, IBV_WC_WR_FLUSH_ERR},
    {"TRM-23", IBV_EVENT_QP_FATAL, IBV_WC_WR_FLUSH_ERR},
};

test::Json vector_of(const char* id) {
  for (const test::Json& v : test::load("terminate.json", "vectors"))
    if (v.at("id") == id) return v;
  fail_msg("no vector %s", id);
  return {};
}

void put(Bytes& in, std::size_t at, std::uint32_t value) {
  const Bytes octets = u32(value);
  std::copy(octets.begin(), octets.end(), in.begin() + static_cast<std::ptrdiff_t>(at));
}

// The vectors know three regions: 0x100 (good), 0x200 (another PD's) and 0x300 (no remote read). Ours are random.
void substitute(Scene& s, Bytes& octets, std::size_t at) {
  const struct {
    std::uint32_t name;
    bool other_pd;
    unsigned access;
  } kRegions[] = {
      {0x100, false, kFull}, {0x200, true, kFull}, {0x300, false, kFull & ~unsigned{IBV_ACCESS_REMOTE_READ}}};
  if (octets.size() < at + 4) return;
  for (const auto& r : kRegions)
    if (slice(octets, at, 4) == u32(r.name)) {
      if (s.regions.empty()) s.region(r.other_pd ? s.other_pd : s.side.pd, 0, kRegion, r.access, 0);
      put(octets, at, s.regions.front()->stag());
      return;
    }
}

// Where the vector's octets name a region: the DDP header, a Read Request's source, and both again in the Terminate.
void substitute(Scene& s, Bytes& offending, Bytes& answer) {
  const bool is_tagged = (std::to_integer<unsigned>(offending.at(0)) & 0x80) != 0;
  substitute(s, offending, is_tagged ? 2 : 34);
  substitute(s, answer, is_tagged ? 26 : 24 + 18 + 16);
}

void defect_ends_the_stream(const Case& c, Setup setup, bool after_good_traffic) {
  const std::string what = std::string(c.id) + ", " + name_of(setup) + (after_good_traffic ? ", later" : "");
  const test::Json v = vector_of(c.id);
  Scene s(setup);
  std::memset(s.side.at(0), 0x5a, 2 * kRegion);
  Scene::Ended ended;
  if (c.first_receive >= 0) {
    for (const std::uint64_t id : {100, 101}) assert_int_equal(s.side.receive({s.side.sge(kRegion, 32)}, id), 0);
    ended = {{100, static_cast<ibv_wc_status>(c.first_receive)}, {101, IBV_WC_WR_FLUSH_ERR}};
  }
  if (after_good_traffic) s.peer->send(write_segment(0, 0, {}));
  // An outstanding Read, and two that wait for it, signalled or not.
  const std::uint64_t far = 0x1000;
  assert_int_equal(s.side.send(IBV_WR_RDMA_READ, {s.side.sge(8192, 64)}, far, 0x77, IBV_SEND_SIGNALED, 1), 0);
  assert_int_equal(s.side.send(IBV_WR_SEND, {s.side.sge(0, 8)}, 0, 0, IBV_SEND_FENCE, 2), 0);
  assert_int_equal(s.side.send(IBV_WR_RDMA_WRITE, {s.side.sge(0, 8)}, far, 0x77, IBV_SEND_SIGNALED, 3), 0);
  for (const std::uint64_t id : {1, 2, 3}) ended.emplace_back(id, IBV_WC_WR_FLUSH_ERR);
  if (setup.initiator || after_good_traffic) dissect_read(s.peer->next_segment());

  Bytes answer = test::hex(v.at("terminate_ulpdu_hex"));
  if (v.at("offending_ulpdu_hex").is_null()) {
    s.peer->raw(Peer::spoil_crc(s.peer->frame(send_segment(1, pattern(8)))));
  } else {
    Bytes offending = test::hex(v.at("offending_ulpdu_hex"));
    substitute(s, offending, answer);
    s.peer->send(offending);
  }
  // What follows is not looked at any more.
  s.peer->send(send_segment(1, pattern(16)));
  s.peer->send(write_segment(s.side.mr->stag(), s.side.address(0), pattern(64)));

  s.peer->expect(answer, what);
  s.peer->expect_fin();
  s.expect_completions(what, ended);
  s.expect_event(what, c.event);
  s.expect_ended(what);
  s.expect_no_event(what);
  for (std::size_t i = 0; i < 2 * kRegion; ++i)
    if (*s.side.at(i) != std::byte{0x5a} && !(std::string(c.id) == "TRM-18" && i >= kRegion && i < kRegion + 8))
      fail_msg("%s: octet %zu was written", what.c_str(), i);
}

// Holds: MPA-7, DDP-2, DDP-10, DDP-11, DDP-12, DDP-13, DDP-14, DDP-15, DDP-16, DDP-17, DDP-18, DDP-23, DDP-28, RDM-2,
//   RDM-3, RDM-7, RDM-11, RDM-17, RDM-18, RDM-20, RDM-21, VRB-11, VRB-13, VRB-30, VRB-31
void terminate_vectors(void**) {
  for (const Case& c : kCases)
    for (const Setup& setup : kSetups)
      for (const bool later : {false, true}) {
        if (std::string(c.id) == "TRM-23" && !setup.crc) continue;
        defect_ends_the_stream(c, setup, later);
      }
}

// Holds: MPA-1, MPA-2, RDM-17
// The frame as the vector has it, CRC included: no octet of it is ours to choose.
void whole_fpdus_agree_with_the_vectors(void**) {
  for (const char* id : {"TRM-2", "TRM-7", "TRM-9", "TRM-12", "TRM-13", "TRM-18", "TRM-19", "TRM-20"}) {
    const test::Json v = vector_of(id);
    Scene s(Setup{.initiator = false, .crc = true});
    assert_int_equal(s.side.receive({s.side.sge(0, 32)}), 0);
    s.peer->send(test::hex(v.at("offending_ulpdu_hex")));
    const Bytes want = test::hex(v.at("fpdu_hex"));
    const Bytes got = s.peer->frame(s.peer->next());  // next() has checked CRC and PAD
    test::expect_octets(got, want, id);
  }
}

// Holds: MPA-38
// Right CRC, wrong pointer.
void trm_24_marker_mismatch(void**) {
  for (const bool initiator : {true, false})
    for (const unsigned error : {4u, 512u}) {
      Scene s(Setup{.initiator = initiator, .crc = true, .rx_markers = true});
      assert_int_equal(s.side.receive({s.side.sge(0, 4096)}, 100), 0);
      assert_int_equal(s.side.receive({s.side.sge(0, 4096)}, 101), 0);
      s.peer->send(send_segment(1, pattern(700)));
      s.peer->raw(s.peer->frame_with_marker_error(send_segment(2, pattern(700)), error));
      s.peer->expect(test::hex(vector_of("TRM-24").at("terminate_ulpdu_hex")), "TRM-24");
      s.peer->expect_fin();
      s.expect_completions("TRM-24", {{100, IBV_WC_SUCCESS}, {101, IBV_WC_WR_FLUSH_ERR}});
      s.expect_event("TRM-24", IBV_EVENT_QP_FATAL);
      s.expect_ended("TRM-24");
    }
}

// Holds: MPA-68, MPA-72
// TRM-25 and TRM-26: the start-up agreed on nothing, and the stream exists for the Terminate only.
void start_up_faults_are_the_first_and_last_fpdu(void**) {
  const struct {
    const char* id;
    Fault fault;
  } kStartup[] = {{"TRM-25", fault::kMpaInsufficientIrd}, {"TRM-26", fault::kMpaNoRtr}};
  for (const auto& c : kStartup)
    for (const bool crc : {true, false}) {
      int fds[2];
      assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
      test::Side side;
      Peer peer(fds[1], crc);
      mpa::StreamParams p = test::params(true, crc);
      p.peer_to_peer = true;
      p.rtr = mpa::kRtrWrite;
      p.terminate = c.fault;
      assert_int_equal(side.receive({side.sge(0, 32)}, 100), EINVAL);  // RESET
      assert_int_equal(side.qp->attach(llp::tcp_stream(fds[0]), p, side.observer), 0);
      peer.expect(test::hex(vector_of(c.id).at("terminate_ulpdu_hex")), c.id);
      peer.expect_fin();
      EXPECT(c.id, side.reaches(IBV_QPS_ERR));
      EXPECT(c.id, side.disconnects());
    }
}

// Holds: DDP-28, RDM-21
// The kernel answers octets that nobody reads with a reset, and a reset overtakes what is on its way. So the
// socket is drained before it is closed.
void terminate_survives_unread_octets(void**) {
  for (const bool crc : {true, false}) {
    Scene s(Setup{.initiator = true, .crc = crc, .tcp = true});
    s.peer->send(write_segment(0x0bad00, 0, pattern(64)));
    for (int i = 0; i < 40; ++i) s.peer->send(send_segment(static_cast<std::uint32_t>(1 + i), pattern(30000)));
    s.peer->expect(terminate(1, 1, 0, 0xc0, concat({u16(14 + 64), slice(write_segment(0x0bad00, 0, {}), 0, 14)})));
    s.peer->expect_fin();
    s.expect_ended("unread octets");
  }
}

// Holds: RDM-39
// It goes out between two segments of the message that is being sent, whose rest never follows.
void terminate_overtakes_a_long_message(void**) {
  for (const bool crc : {true, false}) {
    Scene s(Setup{.initiator = true, .crc = crc, .tcp = true}, 32u << 20);
    const std::uint32_t whole = 30u << 20;
    assert_int_equal(s.side.send(IBV_WR_RDMA_WRITE, {s.side.sge(0, whole)}, 0, 0x100, IBV_SEND_SIGNALED, 1), 0);
    // The peer reads nothing yet: the socket is full long before the message is.
    s.peer->send(untagged(0x41, 0x4c, 0, 0, 1, 0, {}));
    EXPECT("state", s.side.reaches(IBV_QPS_ERR));
    std::uint64_t got = 0;
    Segment last;
    for (;;) {
      last = s.peer->next_segment();
      if (last.opcode == kTerminate) break;
      assert_int_equal(last.to, got);
      got += last.payload.size();
    }
    assert_true(got < whole);
    assert_int_equal(last.payload.size(), 24);
    s.peer->expect_fin();
    s.expect_completions("cut", {{1, IBV_WC_WR_FLUSH_ERR}});
  }
}

}  // namespace

int main() {
  stop_at_first_failure();
  set_waits("5000", "0");
  const CMUnitTest tests[] = {
      cmocka_unit_test(terminate_vectors),
      cmocka_unit_test(whole_fpdus_agree_with_the_vectors),
      cmocka_unit_test(trm_24_marker_mismatch),
      cmocka_unit_test(start_up_faults_are_the_first_and_last_fpdu),
      cmocka_unit_test(terminate_survives_unread_octets),
      cmocka_unit_test(terminate_overtakes_a_long_message),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
