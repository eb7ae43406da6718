// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A program with SCHED_FIFO threads: they may wait for a normal thread on the same CPU, but must let it run.
#include "tests/verbs/two_qps.h"

// After the above: cmocka.h comes with it.
#include "tests/llp/one_cpu.h"
#include "tests/wire/peer.h"

using namespace ewarp::test;
using namespace std::chrono_literals;

namespace {

// Deregistration waits for a copy that is under way.
void deregistration(void**) {
  Context context(any_device(), channel(16));
  Pd pd(context);
  std::array<std::byte, 64> octets{};
  const auto iova = reinterpret_cast<std::uintptr_t>(octets.data());
  MemoryRegion* region = nullptr;
  assert_int_equal(memory().add(pd, octets.data(), octets.size(), iova, 0, &region), 0);
  ewarp::llp::Extent all;
  assert_true(memory().resolve(region->stag(), pd, iova, octets.size(), 0, &all) == Verdict::ok);
  const auto cost =
      cost_of_waiting([&] { assert_true(memory().enter(region, all.ticket)); }, [&] { memory().leave(region); },
                      [&] { assert_int_equal(memory().remove(region), 0); });
  if (cost.count() < 0) {
    print_message("skipped: needs CAP_SYS_NICE\n");
    memory().remove(region);
    skip();
  }
  assert_true(cost < ewarp::test::kCheapWait);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(deregistration)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
