// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A program that opens its devices and then forbids itself io_uring: streams and listeners go on, over epoll, and a
// process without work stays asleep.
#include <fcntl.h>

#include <cerrno>
#include <cstring>
#include <ctime>

#include "provider/base/stats.h"
#include "tests/verbs/two_qps.h"

// After the above: cmocka.h comes with them.
#include "tests/llp/sandbox.h"
#include "tests/verbs/by_address.h"

namespace ewarp::test {
namespace {

bool a_send_arrives(Side& a, Side& b) {
  return b.receive({b.sge(0, 64)}) == 0 && a.send(IBV_WR_SEND, {a.sge(0, 64)}) == 0 &&
         a.wait().status == IBV_WC_SUCCESS && b.wait().status == IBV_WC_SUCCESS;
}

// The completion comes although nobody polls: the background thread does the work.
bool a_send_arrives_asleep(Side& a, Side& b) {
  b.cq.arm(false);
  if (b.receive({b.sge(0, 64)}) != 0) return false;
  return a.send(IBV_WR_SEND, {a.sge(0, 64)}) == 0 && b.cq_event() && a.wait().status == IBV_WC_SUCCESS &&
         b.wait().status == IBV_WC_SUCCESS;
}

double cpu_seconds() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

std::string poller() {
  return stats::page().poller;
}

int goes_on(int error) {
  Side a, b, c, d;
  join(a, b, params(true), params(false));
  by_address::up(c, by_address::number(d));  // it listens, or tries again and again
  if (!a_send_arrives(a, b) || !a_send_arrives_asleep(a, b)) return 1;
  if (poller() != "io_uring") return kHolds;  // not to be had here
  if (!refuse({SYS_io_uring_enter}, error)) return 2;
  if (!a_send_arrives(a, b) || !a_send_arrives_asleep(a, b)) return 3;
  by_address::up(d, by_address::number(c));
  if (!a_send_arrives(c, d) || !a_send_arrives(d, c)) return 4;
  if (poller() != "epoll") return 5;
  poll(nullptr, 0, 100);
  // It sleeps. Stolen time of a virtual machine may count: then once more.
  for (int tries = 0; tries < 5; ++tries) {
    const double before = cpu_seconds();
    poll(nullptr, 0, 400);
    if (cpu_seconds() - before < 0.2) return kHolds;
  }
  return 6;
}

void io_uring_forbidden_later(void**) {
  for (const int error : {EPERM, ENOSYS}) in_child(strerror(error), [&] { return goes_on(error); });
}

}  // namespace
}  // namespace ewarp::test

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(ewarp::test::io_uring_forbidden_later)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
