// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Peers that fall silent: every wait of a start-up is bounded. The limits are short here (main); no test depends on how
// long they really take.
#include <cerrno>
#include <cstdlib>

#include "tests/cm/channel.h"
#include "tests/cm/standins.h"

// cmocka last: its fail() is a macro.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
extern "C" {
#include <cmocka.h>
}

namespace ewarp::test {
namespace {

// Holds: MPA-60
void a_listener_that_never_answers(void**) {
  RawSocket deaf = RawSocket::listening("127.0.0.1");
  Channel client;
  const auto id = client.resolved("127.0.0.1", deaf.port(), 2);
  assert_int_equal(client.connect(id, make_qp()), 0);
  const Event e = client.expect(kUnreachable);
  assert_int_equal(e.status, -ETIMEDOUT);
  RawSocket accepted = deaf.accept();
  accepted.receive_frame();
  assert_true(accepted.at_end());
}

void a_full_tcp_queue(void**) {
  RawSocket full = RawSocket::listening("127.0.0.1", 0);
  const RawSocket first = RawSocket::connected("127.0.0.1", full.port());
  Channel client;
  const auto id = client.resolved("127.0.0.1", full.port(), 2);
  assert_int_equal(client.connect(id, make_qp()), 0);
  assert_int_equal(client.expect(kUnreachable).status, -ETIMEDOUT);
}

// Holds: MPA-60
void an_initiator_that_never_speaks(void**) {
  Channel server;
  const auto listener = server.listener("127.0.0.1", 1);
  RawSocket mute = RawSocket::connected("127.0.0.1", server.port(listener));
  mute.send("MPA ID");
  assert_true(mute.at_end());
  assert_false(server.readable());
}

}  // namespace
}  // namespace ewarp::test

int main() {
  using namespace ewarp::test;
  setenv("ETHERWARP_CONNECT_TIMEOUT_MS", "500", 1);
  setenv("ETHERWARP_REQUEST_TIMEOUT_MS", "1000", 1);
  setenv("ETHERWARP_CLOSE_TIMEOUT_MS", "300", 1);
  settle();
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_listener_that_never_answers),
      cmocka_unit_test(a_full_tcp_queue),
      cmocka_unit_test(an_initiator_that_never_speaks),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
