// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The port of the queue pairs that are told their peer by address, under a flood of connections. They say nothing:
// pairs of another source are connected all the same. They ask for what is refused, and stay: few of them are kept.
#include <dirent.h>
#include <unistd.h>

#include <cstdlib>
#include <vector>

#include "provider/startup/bring_up.h"
#include "provider/startup/linger.h"
#include "provider/verbs/qp_numbers.h"
#include "tests/verbs/raw_start_up.h"
#include "tests/wire/scene.h"

using namespace ewarp;
using namespace ewarp::wire;

namespace {

using namespace test::by_address;
using test::Side;

constexpr int kMany = 600;  // more than the port has places

constexpr const char* kStranger = "127.0.0.2";

void pairs_are_connected(void**) {
  Side a, b;
  up(a, number(b));
  up(b, number(a));
  traffic(a, b);  // from now on the port is listened on
  std::vector<int> flood;
  for (int i = 0; i < kMany; ++i) flood.push_back(connect_raw(number(a), kStranger));
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

int open_descriptors() {
  DIR* dir = opendir("/proc/self/fd");
  assert_non_null(dir);
  int count = -1;  // its own
  while (const dirent* entry = readdir(dir))
    if (entry->d_name[0] != '.') ++count;
  closedir(dir);
  return count;
}

void few_of_those_refused_are_kept(void**) {
  Side a, b;
  up(a, number(b));
  up(b, number(a));
  traffic(a, b);
  const int before = open_descriptors();
  std::vector<int> flood;
  for (int i = 0; i < kMany; ++i) {
    flood.push_back(connect_raw(number(a), kStranger));
    request(flood.back(), verbs::PairNames{number(a), ~number(a), 0}.emit());
    assert_int_equal(answer(flood.back()), 'R');
  }
  const int kept = open_descriptors() - before - kMany;
  assert_in_range(kept, 1, static_cast<int>(verbs::kMostRefused) + 8);
  for (const int fd : flood) ::close(fd);
  // Their ends are seen, and give the places back.
  for (int i = 0; i < 200 && open_descriptors() > before + 8; ++i) poll(nullptr, 0, 10);
  assert_in_range(open_descriptors(), before, before + 8);
  const int fd = connect_raw(number(a), kStranger);
  request(fd, verbs::PairNames{number(a), ~number(a), 0}.emit());
  assert_int_equal(answer(fd), 'R');
  ::close(fd);
}

}  // namespace

int main() {
  setenv("ETHERWARP_BRING_UP_TIMEOUT_MS", "60000", 1);
  setenv("ETHERWARP_REQUEST_TIMEOUT_MS", "600000", 1);  // nobody is dropped for having been silent so long
  setenv("ETHERWARP_CLOSE_TIMEOUT_MS", "600000", 1);    // nor for having stayed so long
  const CMUnitTest tests[] = {
      cmocka_unit_test(pairs_are_connected),
      cmocka_unit_test(few_of_those_refused_are_kept),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
