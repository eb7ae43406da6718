// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Peers that fall silent: every wait of a start-up is bounded. The limits are short here (main).
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <string>

#include "tests/cm/channel.h"
#include "tests/cm/standins.h"
#include "tests/vectors/waits.h"

namespace ewarp::test {
namespace {

using std::chrono::milliseconds;

// Set in main().
constexpr milliseconds kConnect{500}, kRequest{1000};

std::string text(milliseconds time) {
  return std::to_string(time.count());
}

// Holds: MPA-60
void a_listener_that_never_answers(void**) {
  RawSocket deaf = RawSocket::listening("127.0.0.1");
  Channel client;
  expect_to_last(kConnect, "a listener that never answers", [&] {
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
  setenv("ETHERWARP_REQUEST_TIMEOUT_MS", text(kRequest).c_str(), 1);
  setenv("ETHERWARP_CLOSE_TIMEOUT_MS", "300", 1);
  settle();
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_listener_that_never_answers),
      cmocka_unit_test(a_full_tcp_queue),
      cmocka_unit_test(an_initiator_that_never_speaks),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
