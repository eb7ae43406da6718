// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Peers that fall silent: every wait of a start-up is bounded. The limits are short here (main).
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

#include "tests/cm/channel.h"
#include "tests/cm/standins.h"
#include "tests/vectors/waits.h"

namespace ewarp::test {
namespace {

using std::chrono::milliseconds;

// Set in main().
constexpr milliseconds kConnect{500}, kReply{2000}, kRequest{1000};
constexpr milliseconds kLate{kReply / 2};  // too late for TCP's connection, in time for the Reply
static_assert(kLate >= 2 * kConnect && 2 * kLate >= kReply);

std::string text(milliseconds time) {
  return std::to_string(time.count());
}

// Holds: MPA-60
void a_listener_that_never_answers(void**) {
  RawSocket deaf = RawSocket::listening("127.0.0.1");
  Channel client;
  expect_to_last(kReply, "a listener that never answers", [&] {
    const auto id = client.resolved("127.0.0.1", deaf.port(), 2);
    const auto begin = Clock::now();
    assert_int_equal(client.connect(id, make_qp()), 0);
    const Event e = client.expect(kUnreachable);
    const auto passed = since(begin);
    assert_int_equal(e.status, -ETIMEDOUT);
    RawSocket accepted = deaf.accept();
    accepted.receive_frame();
    assert_true(accepted.at_end());
    return passed;
  });
}

// A listener whose program accepts the connection late, or never.
struct LatePeer {
  RawSocket listener = RawSocket::listening("127.0.0.1");
  Channel client;
  Clock::time_point begin;

  void connect() {
    const auto id = client.resolved("127.0.0.1", listener.port(), 2);
    begin = Clock::now();
    assert_int_equal(client.connect(id, make_qp()), 0);
  }
  // One more connection, with a Request of this revision.
  RawSocket requested(unsigned revision) {
    RawSocket peer = listener.accept();
    assert_int_equal(peer.receive_frame().revision, revision);
    return peer;
  }
  // False: the machine was busy, so that the time of the Reply may be over.
  bool in_time(Clock::time_point from) const { return since(from) < kReply * 9 / 10; }
};

// Holds: MPA-60
void a_reply_may_come_later_than_a_connection(void**) {
  for (int tries = 0; tries < kWaits; ++tries) {
    LatePeer p;
    p.connect();
    RawSocket peer = p.requested(2);
    std::this_thread::sleep_for(kLate);
    assert_false(p.in_time(p.begin) && p.client.readable());
    peer.send(encode({true, 0x10, 2, enhanced_word(true, 2, 9, 2)}));
    const Event e = p.client.next();
    if (e.type == kEstablished) return;
    if (p.in_time(p.begin)) fail_msg("event %u, status %d", e.type, e.status);
  }
  fail_msg("the machine is too busy");
}

// The second try, with revision 1, has both times anew.
void a_reply_to_revision_1_has_its_own_time(void**) {
  for (int tries = 0; tries < kWaits; ++tries) {
    LatePeer p;
    p.connect();
    {
      const RawSocket peer = p.requested(2);
      std::this_thread::sleep_for(kLate);
    }
    const auto again = Clock::now();
    RawSocket peer = p.requested(1);
    std::this_thread::sleep_for(kLate);
    peer.send(encode({true, 0, 1, ""}));
    const Event e = p.client.next();
    if (e.type == kEstablished) {
      assert_true(since(p.begin) > kReply);
      return;
    }
    if (p.in_time(again)) fail_msg("event %u, status %d", e.type, e.status);
  }
  fail_msg("the machine is too busy");
}

// Holds: MPA-60
void a_reply_after_its_time_says_nothing(void**) {
  LatePeer p;
  p.connect();
  RawSocket peer = p.requested(2);
  assert_int_equal(p.client.expect(kUnreachable).status, -ETIMEDOUT);
  assert_true(peer.at_end());
  peer.send(encode({true, 0x10, 2, enhanced_word(true, 2, 9, 2)}));
  settle();
  assert_false(p.client.readable());
}

void a_full_tcp_queue(void**) {
  RawSocket full = RawSocket::listening("127.0.0.1", 0);
  const RawSocket first = RawSocket::connected("127.0.0.1", full.port());
  Channel client;
  expect_to_last(kConnect, "a full queue", [&] {
    const auto id = client.resolved("127.0.0.1", full.port(), 2);
    const auto begin = Clock::now();
    assert_int_equal(client.connect(id, make_qp()), 0);
    assert_int_equal(client.expect(kUnreachable).status, -ETIMEDOUT);
    return since(begin);
  });
}

// Holds: MPA-60
void an_initiator_that_never_speaks(void**) {
  Channel server;
  const auto listener = server.listener("127.0.0.1", 1);
  expect_to_last(kRequest, "an initiator that never speaks", [&] {
    const auto begin = Clock::now();
    RawSocket mute = RawSocket::connected("127.0.0.1", server.port(listener));
    mute.send("MPA ID");
    assert_true(mute.at_end());
    return since(begin);
  });
  assert_false(server.readable());
}

}  // namespace
}  // namespace ewarp::test

int main() {
  using namespace ewarp::test;
  setenv("ETHERWARP_CONNECT_TIMEOUT_MS", text(kConnect).c_str(), 1);
  setenv("ETHERWARP_REPLY_TIMEOUT_MS", text(kReply).c_str(), 1);
  setenv("ETHERWARP_REQUEST_TIMEOUT_MS", text(kRequest).c_str(), 1);
  setenv("ETHERWARP_CLOSE_TIMEOUT_MS", "300", 1);
  settle();
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_listener_that_never_answers),
      cmocka_unit_test(a_reply_may_come_later_than_a_connection),
      cmocka_unit_test(a_reply_to_revision_1_has_its_own_time),
      cmocka_unit_test(a_reply_after_its_time_says_nothing),
      cmocka_unit_test(a_full_tcp_queue),
      cmocka_unit_test(an_initiator_that_never_speaks),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
