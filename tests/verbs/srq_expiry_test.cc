// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A shared receive queue without requests: nobody posts any, or messages of which a part has come hold them.
// rnr_wait_ms and half_message_ms are short here, for all of this process.
#include <map>
#include <thread>

#include "tests/vectors/waits.h"
#include "tests/verbs/srq_hub.h"

using namespace ewarp;
using namespace ewarp::wire;

namespace {

using namespace srq;

constexpr std::chrono::milliseconds kReceive{200}, kHalf{400};  // set in main()
static_assert(kReceive < kHalf);

std::uint64_t ended_for_half_messages() {
  return test::any_device().counters().half_messages;
}

// Its first segment; the peer's program is stopped then, or has no good intentions.
std::unique_ptr<Peer> half_message(Hub& hub, std::uint32_t msn = 1) {
  auto peer = hub.add_peer();
  peer->send(send_segment(msn, pattern(40), 0, false));
  peer->wait_until_read();
  return peer;
}

// The next two events of each of these: what ended it, and that it takes no more receives.
void expect_ended(Hub& hub, std::size_t first, std::size_t n) {
  std::map<std::uint64_t, std::vector<int>> events;
  for (std::size_t i = 0; i < 2 * n; ++i) {
    const auto [type, handle] = test::next_event(*hub.async, test::kPatience);
    events[handle].push_back(type);
  }
  for (std::size_t i = first; i < first + n; ++i)
    assert_true((events[Hub::kQpHandle + i] == std::vector<int>{IBV_EVENT_QP_REQ_ERR, IBV_EVENT_QP_LAST_WQE_REACHED}));
}

// Holds: VRB-20
// The wait is over: that stream ends, the queue and the others do not.
void an_empty_queue_ends_only_that_stream(void**) {
  test::expect_to_last(kReceive, "an empty queue", [] {
    Hub hub(64);
    auto sides = make_sides(hub, 2);
    const auto begin = test::Clock::now();
    assert_true(send_message(*sides[0], 0, 5));
    hub.expect_event(IBV_EVENT_QP_REQ_ERR, Hub::kQpHandle);
    const auto passed = test::since(begin);
    hub.expect_event(IBV_EVENT_QP_LAST_WQE_REACHED, Hub::kQpHandle);
    assert_true(sides[0]->reaches(IBV_QPS_ERR));
    hub.post_all(0, 2);
    assert_true(send_message(*sides[1], 1, 0));
    assert_int_equal(hub.wait().status, IBV_WC_SUCCESS);
    hub.expect_no_event();
    return passed;
  });
}

// Where the program lets Sends wait, one stands in line for as long as its sender is seen.
void in_line_as_long_as_its_sender_is_seen(void**) {
  Hub hub(64);
  test::Side one(std::size_t{64} * kRoom);
  auto two = std::make_unique<test::Side>(std::size_t{64} * kRoom);
  const std::size_t first = hub.add_qp(one, true);
  hub.add_qp(*two, true);
  assert_true(send_message(one, first, 0));
  assert_true(send_message(*two, 1, 0));
  hub.expect_in_line(2);
  std::this_thread::sleep_for(4 * kReceive);
  hub.expect_in_line(2);
  two.reset();
  hub.expect_in_line(1);
  hub.post_all(0, 1);
  const ibv_wc wc = hub.wait();
  assert_int_equal(wc.status, IBV_WC_SUCCESS);
  assert_int_equal(hub.index.at(wc.qp_num), first);
  hub.expect_in_line(0);
}

// Peers that each send a part of a message hold all receives. Another one waits longer than a queue of its own would
// let it, and gets through.
void half_messages_end_when_others_wait(void**) {
  constexpr std::size_t kPeers = 4;
  test::expect_to_last(kHalf, "half messages", [] {
    const std::uint64_t before = ended_for_half_messages();
    Hub hub(64);
    hub.post_all(0, kPeers);
    std::vector<std::unique_ptr<Peer>> peers;
    for (std::size_t i = 0; i < kPeers; ++i) peers.push_back(half_message(hub));
    test::Side honest(std::size_t{64} * kRoom);
    const std::size_t other = hub.add_qp(honest);
    const auto begin = test::Clock::now();
    assert_true(send_message(honest, other, 0));
    for (std::size_t i = 0; i < kPeers; ++i) {
      const ibv_wc wc = hub.wait();
      assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
      assert_true(hub.index.at(wc.qp_num) < kPeers);
    }
    const auto passed = test::since(begin);
    for (auto& peer : peers) {
      peer->expect(terminate(1, 2, 2), "no receive");
      peer->expect_fin();
    }
    expect_ended(hub, 0, kPeers);
    assert_int_equal(ended_for_half_messages() - before, kPeers);
    hub.post_all(kPeers, 3);
    const ibv_wc wc = hub.wait();
    assert_int_equal(wc.status, IBV_WC_SUCCESS);
    assert_int_equal(hub.index.at(wc.qp_num), other);
    assert_true(is_message(hub.memory_octets.data() + wc.wr_id * kRoom, other, 0));
    hub.expect_no_event();
    return passed;
  });
}

// The receives of half messages came back, and the program posts none: nobody waits for ever.
void without_half_messages_the_wait_is_as_short_as_ever(void**) {
  Hub hub(64);
  hub.post_all(0, 1);
  const auto peer = half_message(hub);
  test::Side honest(std::size_t{64} * kRoom);
  const std::size_t other = hub.add_qp(honest);
  assert_true(send_message(honest, other, 0));
  assert_int_equal(hub.wait().status, IBV_WC_WR_FLUSH_ERR);
  expect_ended(hub, 0, 1);
  expect_ended(hub, other, 1);
  assert_true(honest.reaches(IBV_QPS_ERR));
}

// A peer that is stopped in the middle of a message keeps its connection while the others have receives.
void nobody_in_need_nobody_ends(void**) {
  const std::uint64_t before = ended_for_half_messages();
  Hub hub(64);
  hub.post_all(0, 1);
  const auto stopped = half_message(hub);
  hub.post_all(1, 1);
  test::Side honest(std::size_t{64} * kRoom);
  const std::size_t other = hub.add_qp(honest);
  const auto begin = test::Clock::now();
  for (std::size_t k = 0; test::since(begin) < 4 * kHalf; k += 2) {
    assert_true(send_message(honest, other, k) && send_message(honest, other, k + 1));
    for (const bool waits : {true, false}) {
      const ibv_wc wc = hub.wait();
      assert_int_equal(wc.status, IBV_WC_SUCCESS);
      assert_int_equal(hub.index.at(wc.qp_num), other);
      if (waits) hub.expect_in_line(1);  // for a moment
      assert_int_equal(hub.post(wc.wr_id), 0);
      assert_int_equal(honest.wait().status, IBV_WC_SUCCESS);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  stopped->send(send_segment(1, pattern(60), 40));
  const ibv_wc wc = hub.wait();
  assert_int_equal(wc.status, IBV_WC_SUCCESS);
  assert_int_equal(wc.wr_id, 0);
  assert_int_equal(wc.byte_len, 100);
  assert_int_equal(ended_for_half_messages(), before);
  hub.expect_no_event();
}

// A large message that moves on keeps its receive, however long others wait; they do not wait for ever.
void a_message_that_moves_on_keeps_its_receive(void**) {
  constexpr std::size_t kPiece = 16 * 1024, kBuffers = 2048;
  for (int tries = 0; tries < test::kWaits; ++tries) {
    Hub hub(64, kBuffers);
    ibv_sge all{hub.address(0), kBuffers * kRoom, hub.mr->stag()};
    ibv_recv_wr wr{}, *bad = nullptr;
    wr.sg_list = &all;
    wr.num_sge = 1;
    assert_int_equal(hub.srq->post(&wr, &bad), 0);
    const auto mover = hub.add_peer();
    std::uint32_t at = 0;
    const auto move = [&](bool last) {
      mover->send(send_segment(1, pattern(kPiece), at, last));
      at += kPiece;
    };
    move(false);
    mover->wait_until_read();
    test::Side honest(std::size_t{64} * kRoom);
    const std::size_t other = hub.add_qp(honest);
    const auto begin = test::Clock::now();
    assert_true(send_message(honest, other, 0));
    std::pair<int, std::uint64_t> event{-1, 0};
    auto longest = test::Clock::duration(0), moved = test::Clock::now() - begin;
    while (event.first == -1 && at + 2 * kPiece < kBuffers * kRoom) {
      move(false);
      const auto now = test::since(begin);
      longest = std::max(longest, now - moved);
      moved = now;
      event = test::next_event(*hub.async, 20);
    }
    // The machine was busy: two pieces did not come in the time.
    if (longest > kHalf / 4) continue;
    assert_int_equal(event.first, IBV_EVENT_QP_REQ_ERR);
    assert_int_equal(event.second, Hub::kQpHandle + other);
    assert_true(test::since(begin) >= 2 * kHalf);
    move(true);
    const ibv_wc wc = hub.wait();
    assert_int_equal(wc.status, IBV_WC_SUCCESS);
    assert_int_equal(wc.byte_len, at);
    return;
  }
  fail_msg("the machine is too busy");
}

}  // namespace

int main() {
  stop_at_first_failure();
  setenv("ETHERWARP_HALF_MESSAGE_MS", std::to_string(kHalf.count()).c_str(), 1);
  set_waits("500", std::to_string(kReceive.count()).c_str());
  const CMUnitTest tests[] = {
      cmocka_unit_test(an_empty_queue_ends_only_that_stream),
      cmocka_unit_test(in_line_as_long_as_its_sender_is_seen),
      cmocka_unit_test(half_messages_end_when_others_wait),
      cmocka_unit_test(without_half_messages_the_wait_is_as_short_as_ever),
      cmocka_unit_test(nobody_in_need_nobody_ends),
      cmocka_unit_test(a_message_that_moves_on_keeps_its_receive),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
