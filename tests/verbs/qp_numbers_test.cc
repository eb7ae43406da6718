// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Numbers of queue pairs where their ports cannot be had.
#include "provider/verbs/qp_numbers.h"

#include <cerrno>

// After the above: cmocka.h comes with it.
#include "tests/llp/sandbox.h"

namespace ewarp::test {
namespace {

// Neither a port nor memory stays for a number that could not be given, however often one is asked for.
void a_number_without_a_udp_port_leaves_nothing(void**) {
  in_child("no UDP socket", [] {
    const auto open_sockets = [] { return fds_named("socket:").size(); };
    const auto before = open_sockets();
    // Sockets there are, but none that tells by which interface a datagram came.
    if (!refuse({SYS_setsockopt}, ENOMEM)) return 6;
    for (int i = 0; i < 3; ++i)
      if (verbs::qp_numbers().take_datagram() != 0) return 1;
    if (open_sockets() != before) return 2;
    // The port of a stream's number stays, and is asked again for datagrams.
    const std::uint32_t number = verbs::qp_numbers().take();
    if (open_sockets() != before + 1) return 3;
    if (verbs::qp_numbers().take_datagram() != 0 || open_sockets() != before + 1) return 4;
    return verbs::qp_numbers().socket_of(number) >= 0 ? kHolds : 5;
  });
}

void a_port_serves_both(void**) {
  in_child("both", [] {
    const std::uint32_t number = verbs::qp_numbers().take_datagram();
    if (number == 0) return 1;
    return verbs::port_of(verbs::qp_numbers().take()) == verbs::port_of(number) ? kHolds : 2;
  });
}

}  // namespace
}  // namespace ewarp::test

int main() {
  using namespace ewarp::test;
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_number_without_a_udp_port_leaves_nothing),
      cmocka_unit_test(a_port_serves_both),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
