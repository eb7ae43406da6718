// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The port of the queue pairs that are told their peer by address, under a flood of connections that say nothing: pairs
// of another source are connected all the same.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <unistd.h>

#include <cstdlib>
#include <vector>

#include "provider/verbs/qp_numbers.h"
#include "tests/verbs/by_address.h"
#include "tests/wire/scene.h"

using namespace ewarp;
using namespace ewarp::wire;

namespace {

using namespace test::by_address;
using test::Side;

constexpr int kMany = 600;  // more than the port has places

int silent(std::uint32_t qp) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  inet_pton(AF_INET, "127.0.0.2", &at.sin_addr);
  assert_int_equal(bind(fd, reinterpret_cast<sockaddr*>(&at), sizeof at), 0);
  at.sin_port = htons(port_of(qp));
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  assert_int_equal(connect(fd, reinterpret_cast<sockaddr*>(&at), sizeof at), 0);
  return fd;
}

void pairs_are_connected(void**) {
  Side a, b;
  up(a, number(b));
  up(b, number(a));
  traffic(a, b);  // from now on the port is listened on
  std::vector<int> flood;
  for (int i = 0; i < kMany; ++i) flood.push_back(silent(number(a)));
  Side c, d;
  up(c, number(d));
  up(d, number(c));
  assert_int_equal(d.receive({d.sge(0, 4096)}, 100), 0);
  assert_int_equal(c.send(IBV_WR_SEND, {c.sge(0, 4096)}, 0, 0, IBV_SEND_SIGNALED, 1), 0);
  assert_int_equal(c.wait(30000).status, IBV_WC_SUCCESS);
  assert_int_equal(d.wait(30000).status, IBV_WC_SUCCESS);
  traffic(c, d);
  for (const int fd : flood) ::close(fd);
}

}  // namespace

int main() {
  setenv("ETHERWARP_BRING_UP_TIMEOUT_MS", "60000", 1);
  setenv("ETHERWARP_REQUEST_TIMEOUT_MS", "600000", 1);  // nobody is dropped for having been silent so long
  const CMUnitTest tests[] = {cmocka_unit_test(pairs_are_connected)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
