// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The background thread and a thread that holds the engine.
#include <poll.h>

#include <chrono>

#include "provider/engine/engine.h"
#include "tests/wire/scene.h"

using namespace ewarp;
using namespace ewarp::wire;

namespace {

// An application that posts without end holds the engine most of the time. It makes the pass that the background thread
// wants, which thus need not look again and again.
void a_holder_makes_the_pass(void**) {
  Scene s(Setup{.initiator = true}, 4096);
  const Bytes payload = pattern(1000);
  engine().acquire();
  s.peer->raw(s.peer->frame(write_segment(s.side.mr->stag(), s.side.address(0), payload)));
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!engine().pushed() && std::chrono::steady_clock::now() < until) poll(nullptr, 0, 1);
  const bool asked = engine().pushed();
  engine().leave();
  assert_true(asked);
  assert_memory_equal(s.side.at(0), payload.data(), payload.size());
}

}  // namespace

int main() {
  stop_at_first_failure();
  const CMUnitTest tests[] = {cmocka_unit_test(a_holder_makes_the_pass)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
