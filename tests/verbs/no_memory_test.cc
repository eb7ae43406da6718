// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What fails for want of memory hurts one stream, and leaves no region in use.
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <future>

#include "provider/engine/engine.h"
#include "tests/llp/no_memory.h"
#include "tests/wire/scene.h"

using namespace ewarp;
using namespace ewarp::wire;

namespace {

constexpr std::size_t kStreams = 12;  // more than a batch of receives needs
constexpr std::size_t kOctets = 60000;

bool ends_in_time(const std::function<void()>& f) {
  auto done = std::async(std::launch::async, f);
  if (done.wait_for(std::chrono::seconds(10)) == std::future_status::ready) return true;
  std::fputs("it does not end\n", stderr);
  std::_Exit(1);  // the thread cannot be ended
}

// The second halves of many Writes become readable at once, so that their receives share a system call; for some of the
// streams there is no memory. These end, the others go on, and every region can be deregistered.
void no_staging_in_a_shared_receive(void**) {
  std::vector<std::unique_ptr<Scene>> scenes;
  const Bytes payload = pattern(kOctets);
  for (std::size_t i = 0; i < kStreams; ++i) {
    scenes.push_back(std::make_unique<Scene>(Setup{.initiator = true}, 65536));
    Scene& s = *scenes.back();
    const Bytes fpdu = s.peer->frame(write_segment(s.side.mr->stag(), s.side.address(0), payload));
    s.peer->raw(slice(fpdu, 0, 20000));
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    while (*s.side.at(19000) != payload[19000] && std::chrono::steady_clock::now() < until) poll(nullptr, 0, 1);
    assert_true(*s.side.at(19000) == payload[19000]);
  }
  engine().run([&] {  // nobody receives meanwhile
    ewarp::test::scarce_left = 3;
    ewarp::test::scarce = verbs::Engine::kStaging;
    for (auto& s : scenes) {
      const Bytes fpdu = s->peer->frame(write_segment(s->side.mr->stag(), s->side.address(0), payload));
      s->peer->raw(slice(fpdu, 20000, fpdu.size() - 20000));
    }
  });
  std::size_t whole = 0, ended = 0;
  for (auto& s : scenes) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    while (*s->side.at(kOctets - 1) != payload.back() && s->side.state() == IBV_QPS_RTS &&
           std::chrono::steady_clock::now() < until)
      poll(nullptr, 0, 1);
    (s->side.state() == IBV_QPS_RTS ? whole : ended) += 1;
  }
  ewarp::test::scarce = 0;
  assert_int_equal(whole + ended, kStreams);
  assert_true(whole > 0 && ended > 0);
  for (auto& s : scenes) {
    MemoryRegion* mr = std::exchange(s->side.mr, nullptr);
    assert_true(ends_in_time([mr] { memory().remove(mr); }));
  }
}

}  // namespace

int main() {
  stop_at_first_failure();
  const CMUnitTest tests[] = {cmocka_unit_test(no_staging_in_a_shared_receive)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
