// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/verbs/write_hold.h"
#include "provider/engine/engine.h"

#include <errno.h>

#include <algorithm>
#include <functional>
#include <thread>

#include "../vectors/vectors.h"
#include "tests/wire/scene.h"

using namespace ewarp;
using namespace ewarp::verbs;

namespace {

using std::chrono::microseconds;

constexpr auto kBound = microseconds(50);
constexpr auto kLongest = 4 * kBound;  // of a small Write, if the usual time is longer

// A program that writes, takes the completion, and does something until it writes again; and its peer.
struct Program {
  WriteHold hold{kBound};
  WriteHold::Time now = WriteHold::Time(std::chrono::hours(1));
  long took = -1;                 // a large Write, from its post to its completion; negative: it is small
  WriteHold::Duration longest{};  // that a completion was held
  int in_time = 0;                // completions that were held until the peer's message had come

  // A Write's completion; the peer's message comes `answer` behind it (negative: none), if the completion is held: a
  // thread that has to be woken receives it `late` later otherwise. Then the program goes on for `busy`: behind the
  // message where it waits for that, else behind the completion. True: it was held.
  bool round(long answer, long busy, bool waits = true, long late = 20) {
    const auto messages = hold.messages();
    hold.posted(took < 0 ? WriteHold::Time() : now);
    if (hold.is_large()) now += microseconds(took);
    hold.done(now);
    const bool held = hold.begin(hold.messages(), now);
    const auto written = now, heard = written + microseconds(answer + (held ? 0 : late));
    if (held) {
      for (bool over = false; !over; now += microseconds(1)) {
        if (answer >= 0 && now >= heard) hold.heard();
        over = hold.over(now);
        in_time += hold.messages() != messages ? 1 : 0;
        longest = std::max(longest, now - written);
      }
      assert_true(longest <= kLongest + 3 * microseconds(std::max(took, 0L)));
    }
    if (waits && answer >= 0) now = std::max(now, heard);
    now += microseconds(busy);
    if (answer >= 0 && hold.messages() == messages) hold.heard();
    return held;
  }
  int held_of(int rounds, long answer, long busy, bool waits = true) {
    int held = 0;
    for (int i = 0; i < rounds; ++i) held += round(answer, busy, waits) ? 1 : 0;
    return held;
  }
};

void a_ping_pong_is_held(void**) {
  for (const long answer : {0, 4, 30}) {
    Program p;
    assert_true(p.held_of(1000, answer, 1) >= 990);
  }
}

void one_that_nobody_answers_is_not(void**) {
  Program p;
  assert_int_equal(p.held_of(1000, -1, 3), 0);
}

// Who computes behind a completion, while messages come all the time, loses little, and less and less.
void one_that_computes_is_not(void**) {
  for (const long busy : {5, 10, 100, 1000}) {
    Program p;
    const auto began = p.now;
    const int held = p.held_of(100'000, std::min(busy / 2, 40L), busy, false);
    assert_true(held < 100);
    const auto usual = 100'000 * microseconds(busy);
    assert_true(p.now - began - usual < usual / 100);
  }
}

// Two ends of a ping-pong, on a machine that takes longer than the bound to wake a thread: whoever is held first waits
// for a thread of the other's, whose answer is in time all the same.
void a_thread_that_wakes_late(void**) {
  for (const long wake : {60, 100, 150}) {
    Program p;
    for (int i = 0; i < 1000; ++i) p.round(p.in_time == 0 ? wake : 4, 1, true, wake);
    assert_true(p.in_time >= 990);
  }
}

// The peer's answers take longer than anything is held for: each trial costs it twice.
void answers_that_come_too_late(void**) {
  Program p;
  assert_true(p.held_of(100'000, 210, 1) < 40);
}

// What nobody answers costs the usual time from one to the next, or the bound if that is longer.
void a_small_write_in_vain(void**) {
  for (const long busy : {10L, 100L, 1000L}) {
    Program p;
    const int held = p.held_of(10'000, 100'000, busy, false);
    assert_true(held > 0 && held < 100);
    assert_true(p.longest <= std::clamp<WriteHold::Duration>(microseconds(busy), kBound, kLongest));
  }
}

// A large Write's answer comes behind its copies: theirs, theirs of the answer, and ours.
void a_ping_pong_of_large_writes_is_held(void**) {
  for (const long took : {20, 100, 5000}) {
    Program p;
    p.took = took;
    int held = 0;
    for (int i = 0; i < 1000; ++i) held += p.round(3 * took + 10, 1, true, took / 2 + 20) ? 1 : 0;
    assert_true(held >= 990);
  }
}

// Held for nothing it costs no more than the usual time from one to the next, nor, but for the bound, than its copies.
void a_large_write_in_vain(void**) {
  for (const long answer : {100L, 1000L, 100'000L}) {
    Program p;
    p.took = 100;
    const int held = p.held_of(10'000, answer, 150, false);
    assert_true(held > 0 && held < 100);
    assert_true(p.longest <= microseconds(250));
  }
}

// Nor is what a large Write took granted to a small one behind it.
void a_small_write_behind_large_ones(void**) {
  Program p;
  p.took = 1000;
  for (int i = 0; i < 100; ++i) p.round(3000, 1, true, 500);
  p.took = -1;
  p.longest = {};
  assert_true(p.round(3000, 1));
  assert_true(p.longest <= kLongest);
}

void forgotten_at_once(void**) {
  Program p;
  p.held_of(1000, 4, 1);
  assert_true(p.round(-1, 3));  // costs the bound, or the usual time
  assert_int_equal(p.held_of(1000, -1, 3), 0);
}

// A peer that lost its CPU for a moment is no reason to begin from nothing.
void one_slip_is_forgiven(void**) {
  Program p;
  p.held_of(1000, 4, 1);
  p.round(2000, 1);
  assert_true(p.held_of(10, 4, 1) >= 8);
}

void tried_again_when_the_program_changes(void**) {
  Program p;
  p.held_of(1000, 4, 10, false);
  assert_true(p.held_of(3000, 4, 1) > 1000);
}

// --- in a completion queue; the bound is so long that a test that waits for it fails ---

constexpr auto kLong = std::chrono::seconds(100);

struct Queue {
  void push(ibv_wc_opcode opcode, WriteHold* with) {
    ibv_wc wc{};
    wc.wr_id = next++;
    wc.opcode = opcode;
    wc.qp_num = 1;
    engine().run([&] { assert_true(cq.push(wc, false, with)); });
  }
  void write() { push(IBV_WC_RDMA_WRITE, &hold); }
  // The number of the completion that is given, -1: none.
  int poll() {
    ibv_wc wc;
    return cq.poll(1, &wc) == 1 ? static_cast<int>(wc.wr_id) : -1;
  }
  int poll_one() {
    ibv_wc wc;
    return cq.poll_one(&wc, nullptr, true) == 0 ? static_cast<int>(wc.wr_id) : -1;
  }
  // From now on the next Write that is alone is held.
  void learn() {
    for (int i = 0; i < 5; ++i) {
      hold.heard();
      write();
      hold.heard();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));  // the usual time: much
      taken = poll();
    }
  }
  std::shared_ptr<EventChannel> async = test::channel(16), channel = test::channel(8);
  Context context{test::any_device(), async};
  CompletionQueue cq{context, 16, channel, 1};
  WriteHold hold{kLong};
  std::uint64_t next = 0;
  int taken = 0;
};

// Another thread does what ends the hold.
void until(Queue& q, const std::function<void()>& what, int (Queue::*poll)(), int gives) {
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    what();
  });
  assert_int_equal((q.*poll)(), gives);
  other.join();
}

void a_poll_that_waits_for_the_message(void**) {
  for (const auto poll : {&Queue::poll, &Queue::poll_one}) {
    Queue q;
    q.learn();
    q.write();
    const auto messages = q.hold.messages();
    until(
        q, [&] { q.hold.heard(); }, poll, q.taken + 1);
    assert_int_equal(q.hold.messages(), messages + 1);  // it did wait
  }
}

void nothing_else_is_held(void**) {
  // Nor is a Write behind which something else has come: it is given at once, and both in their order.
  Queue q;
  q.learn();
  q.push(IBV_WC_SEND, nullptr);
  assert_int_equal(q.poll(), q.taken + 1);
  q.learn();
  q.write();
  until(
      q, [&] { q.push(IBV_WC_RECV, nullptr); }, &Queue::poll, q.taken + 1);
  assert_int_equal(q.poll(), q.taken + 2);
  assert_int_equal(q.poll(), -1);
}

// A queue that is armed, or was a moment ago: the program drains it before it sleeps.
void not_with_events(void**) {
  Queue q;
  q.learn();
  q.cq.arm(false);
  q.write();
  assert_int_equal(q.poll(), q.taken + 1);  // its event has disarmed the queue
  for (int i = 0; i < 20; ++i) q.learn();
  Queue other;
  other.learn();
  other.write();
  until(
      other, [&] { other.cq.arm(false); }, &Queue::poll, other.taken + 1);
}

// The queue pair goes while a thread polls.
void none_is_left_of_a_queue_pair(void**) {
  Queue q;
  q.learn();
  q.write();
  until(
      q, [&] { q.cq.purge(1); }, &Queue::poll, -1);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_ping_pong_is_held),
      cmocka_unit_test(one_that_nobody_answers_is_not),
      cmocka_unit_test(one_that_computes_is_not),
      cmocka_unit_test(a_thread_that_wakes_late),
      cmocka_unit_test(answers_that_come_too_late),
      cmocka_unit_test(a_small_write_in_vain),
      cmocka_unit_test(a_ping_pong_of_large_writes_is_held),
      cmocka_unit_test(a_large_write_in_vain),
      cmocka_unit_test(a_small_write_behind_large_ones),
      cmocka_unit_test(forgotten_at_once),
      cmocka_unit_test(one_slip_is_forgiven),
      cmocka_unit_test(tried_again_when_the_program_changes),
      cmocka_unit_test(a_poll_that_waits_for_the_message),
      cmocka_unit_test(nothing_else_is_held),
      cmocka_unit_test(not_with_events),
      cmocka_unit_test(none_is_left_of_a_queue_pair),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
