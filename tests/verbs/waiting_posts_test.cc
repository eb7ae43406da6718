// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Posts that wait for their thread's next poll (burst_habit.h) leave, whatever the program does instead of polling.
#include <poll.h>

#include <functional>
#include <thread>

#include "provider/engine/engine.h"
#include "tests/wire/scene.h"

using namespace ewarp;
using namespace ewarp::wire;

namespace {

constexpr std::uint32_t kPosts = 8;
constexpr int kOctets = 36;  // of the FPDU of one: length, header, 12 octets of payload, CRC
constexpr std::uint32_t kMemory = 2 << 20;

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool kSanitized = true;
constexpr auto kLongest = std::chrono::milliseconds(500);
#else
constexpr bool kSanitized = false;
constexpr auto kLongest = std::chrono::milliseconds(test::kPatience);
#endif

class Program {
 public:
  Program() : scene_(Setup{.initiator = true, .tcp = true}, kMemory) {}

  test::Side& side() { return scene_.side; }
  Peer& peer() { return *scene_.peer; }

  // Until all but the first of its posts wait: it posts, and polls at once, as long as that takes. A sanitizer may make
  // passes so slow that this thread never drives: then they are sent one by one, and arrive all the same.
  void post_until_they_wait() {
    const auto until = std::chrono::steady_clock::now() + kLongest;
    for (;;) {
      post_small(kPosts);
      if (peer().unread() == kOctets) return;
      if (std::chrono::steady_clock::now() > until) {
        if (kSanitized) return;
        fail_msg("posts never wait: %d octets", peer().unread());
      }
      poll_for_long();
      take_all();
    }
  }
  void post_small(std::uint32_t n) {
    for (std::uint32_t i = 0; i < n; ++i)
      assert_int_equal(side().send(IBV_WR_SEND, {side().sge(0, 12)}, 0, 0, i, IBV_SEND_INLINE), 0);
  }
  void post_large(std::uint32_t octets) {
    assert_int_equal(side().send(IBV_WR_SEND, {side().sge(0, octets)}, 0, 0, 0), 0);
  }
  void poll() {
    ibv_wc wc;
    while (side().cq.poll(1, &wc) > 0) continue;
  }
  // As a program that waits for an answer: the background thread leaves the stream to it.
  void poll_for_long() {
    for (int i = 0; i < 200; ++i) poll();
  }
  void take_all() { take(kPosts); }
  void take(std::uint32_t messages) {
    for (std::uint32_t i = 0; i < messages; ++i) {
      ++taken_;
      for (bool last = false; !last;) {
        const auto segment = peer().next_segment();
        assert_int_equal(segment.msn, taken_);
        last = segment.last;
      }
    }
  }

 private:
  Scene scene_;
  std::uint32_t taken_ = 0;
};

void a_poll_sends_them(void**) {
  Program p;
  for (int i = 0; i < 20; ++i) {
    p.post_until_they_wait();
    p.poll();
    p.take_all();
  }
}

void they_leave_without_a_poll(void**) {
  Program p;
  for (int i = 0; i < 3; ++i) {
    p.post_until_they_wait();
    p.take_all();
  }
}

void the_end_of_their_thread_loses_none(void**) {
  Program p;
  std::thread([&p] { p.post_until_they_wait(); }).join();
  p.take_all();
}

void other_calls_send_them(void**) {
  const std::function<void(Program&)> calls[] = {
      [](Program& p) { p.side().cq.arm(false); },
      [](Program& p) { p.side().qp->disconnect(true); },
      [](Program& p) { p.side().qp->destroy(); },
  };
  for (const auto& call : calls) {
    Program p;
    p.post_until_they_wait();
    call(p);
    p.take_all();
  }
}

void a_poll_of_another_thread_sends_them(void**) {
  Program p;
  p.post_until_they_wait();
  std::thread([&p] { p.poll(); }).join();
  p.take_all();
}

// More than may wait: all leave, and none is left behind the large one. Where the background thread has the engine at
// this moment, it sends them.
void a_large_post_takes_them_along(void**) {
  Program p;
  p.post_until_they_wait();
  p.post_large(1'100'000);
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(test::kPatience);
  while (p.peer().unread() <= static_cast<int>(kPosts) * kOctets) {
    if (std::chrono::steady_clock::now() > until) fail_msg("%d octets came", p.peer().unread());
    poll(nullptr, 0, 1);
  }
  p.take(kPosts + 1);
}

// Nobody polls any more who was about to, and no time is set at which the background thread returns: it sleeps on the
// sockets.
void they_leave_where_no_return_is_set(void**) {
  Program p;
  p.post_until_they_wait();
  p.poll();
  p.take_all();
  p.side().cq.arm(false);
  poll(nullptr, 0, 50);
  verbs::engine().application_will_pass();
  p.post_small(kPosts);
  p.take_all();
}

}  // namespace

int main() {
  stop_at_first_failure();
  setenv("ETHERWARP_SPIN_US", "0", 1);            // a background thread that spins would send them at once
  setenv("ETHERWARP_POST_WAIT_US", "100000", 1);  // a busy machine does not make polls late
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_poll_sends_them),
      cmocka_unit_test(they_leave_without_a_poll),
      cmocka_unit_test(the_end_of_their_thread_loses_none),
      cmocka_unit_test(other_calls_send_them),
      cmocka_unit_test(a_poll_of_another_thread_sends_them),
      cmocka_unit_test(a_large_post_takes_them_along),
      cmocka_unit_test(they_leave_where_no_return_is_set),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
