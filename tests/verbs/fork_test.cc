// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// fork(): what a child may do with the engine that it inherits.
#include <pthread.h>
#include <sys/wait.h>

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "provider/engine/engine.h"
#include "provider/engine/reactor.h"
#include "provider/verbs/device/device.h"
#include "provider/verbs/device/port_monitor.h"
#include "tests/wire/scene.h"

using namespace ewarp;
using namespace ewarp::test;

namespace {

bool a_send_arrives() {
  Side a(4096), b(4096);
  join(a, b, params(true), params(false));
  return b.receive({b.sge(0, 8)}) == 0 && a.send(IBV_WR_SEND, {a.sge(0, 8)}) == 0 &&
         a.wait().status == IBV_WC_SUCCESS && b.wait().status == IBV_WC_SUCCESS;
}

// Their receives share a system call.
bool ten_sends_arrive_at_once() {
  std::vector<std::unique_ptr<Side>> a, b;
  for (std::size_t i = 0; i < 10; ++i) {
    a.push_back(std::make_unique<Side>(4096));
    b.push_back(std::make_unique<Side>(4096));
    join(*a[i], *b[i], params(true), params(false));
    if (b[i]->receive({b[i]->sge(0, 8)}) != 0) return false;
  }
  bool good = true;
  engine().acquire();  // nobody makes a pass
  for (auto& side : a) good = side->send(IBV_WR_SEND, {side->sge(0, 8)}) == 0 && good;
  engine().leave();
  for (auto* sides : {&a, &b})
    for (auto& side : *sides) good = side->wait().status == IBV_WC_SUCCESS && good;
  return good;
}

bool in_child(bool (*body)()) {
  const pid_t child = fork();
  if (child == 0) _exit(body() ? 0 : 1);
  int status = -1;
  return waitpid(child, &status, 0) == child && status == 0;
}

void start_the_engine() {
  std::atomic<bool> ran{false};
  reactor().post([&] { ran = true; });
  while (!ran) poll(nullptr, 0, 1);
  poll(nullptr, 0, 20);
}

// In a child of a process that has made nothing yet: a thread does, and this one forks meanwhile.
bool a_grandchild_has(bool (*it)(), std::chrono::microseconds later) {
  std::thread other([it] { it(); });
  std::this_thread::sleep_for(later);
  const pid_t child = fork();
  if (child == 0) {
    alarm(10);  // what hangs ends by it
    _exit(it() ? 0 : 1);
  }
  other.join();
  int status = -1;
  return waitpid(child, &status, 0) == child && status == 0;
}

// The sanitizers' allocators keep their locks in a child, so there none is forked while another thread allocates.
void needs_an_allocator_that_forks() {
  if (kInstrumented) skip();
}

void forks_while_it_is_made(bool (*it)()) {
  needs_an_allocator_that_forks();
  for (int i = 0; i < 40; ++i) {
    const pid_t child = fork();
    if (child == 0) _exit(a_grandchild_has(it, std::chrono::microseconds(25 * i)) ? 0 : 1);
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
  }
}

// First, while nobody has looked for devices.
void a_child_forked_while_devices_are_looked_for(void**) {
  forks_while_it_is_made([] { return !devices().empty(); });
}

// Nor used the engine.
void a_child_forked_while_the_engine_is_made(void**) {
  forks_while_it_is_made([] {
    engine().run([] {});
    return !engine().busy();
  });
}

// There, too, nothing of its parent's is used: not where the parent's engine has begun anew, nor where it never ran.
void the_grandchild_of_an_unused_engine(void**) {
  assert_true(in_child([] {
    start_the_engine();
    return in_child([] { return in_child(ten_sends_arrive_at_once); });
  }));
  assert_true(in_child([] {
    engine().run([] {});
    return in_child(ten_sends_arrive_at_once);
  }));
}

// A server that opens its device and then forks its workers.
void the_child_of_an_unused_engine_begins_anew(void**) {
  assert_true(in_child(a_send_arrives));
  Context opened(any_device(), channel(16));
  port_monitor().add(opened);
  start_the_engine();
  assert_true(in_child(a_send_arrives));
  assert_true(a_send_arrives());
  port_monitor().remove(opened);
}

void the_child_of_a_used_engine_leaves_it_alone(void**) {
  Side a(4096), b(4096);
  join(a, b, params(true), params(false));
  assert_true(in_child([] {
    Side c(4096);
    return forked_child() && reactor().start() == EPERM &&
           c.qp->attach(nullptr, params(true), c.observer) == EPERM;  // nobody would end a start-up in time
  }));
  assert_int_equal(b.receive({b.sge(0, 8)}), 0);
  assert_int_equal(a.send(IBV_WR_SEND, {a.sge(0, 8)}), 0);
  assert_int_equal(a.wait().status, IBV_WC_SUCCESS);
  assert_int_equal(b.wait().status, IBV_WC_SUCCESS);
}

void a_child_can_be_cancelled_as_its_parent(void**) {
  static_cast<void>(reactor());
  assert_true(in_child([] {
    int before = -1;
    return pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &before) == 0 && before == PTHREAD_CANCEL_ENABLE;
  }));
}

// What a program may do with an opened device in any thread.
bool verbs_work(Context& context, CompletionQueue& inherited) {
  std::array<std::byte, 8192> octets{};
  Pd pd(context);
  CompletionQueue cq(context, 16, channel(8), 0);
  for (int i = 0; i < 4; ++i) {
    MemoryRegion *mr = nullptr, *window = nullptr;
    std::uint32_t rkey = 0;
    if (memory().add(pd, octets.data(), octets.size(), 0, IBV_ACCESS_LOCAL_WRITE, &mr) != 0) return false;
    std::array<std::byte, 64> copy{};
    llp::Extent piece;
    if (memory().resolve(mr->stag(), pd, 0, copy.size(), 0, &piece) != Verdict::ok || !copy_out(copy.data(), piece))
      return false;
    if (memory().add_window(pd, IBV_MW_TYPE_2, &window, &rkey) != 0) return false;
    memory().remove_window(window);
    if (memory().remove(mr) != 0) return false;
  }
  ibv_qp_init_attr init{};
  init.qp_type = IBV_QPT_RC;
  init.cap = {1, 1, 1, 1, 0};
  std::shared_ptr<QueuePair> qp;
  if (create_rc_qp(pd, init, &cq, &cq, &qp) != 0 || find_qp(qp->number()) != qp) return false;
  context.raise(IBV_EVENT_QP_FATAL, 7);
  static_cast<void>(context.retire_async(7));
  qp->destroy();
  ibv_wc wc{};
  return inherited.poll(1, &wc) == 0;
}

// A child that finds a lock held waits for a thread that it does not have.
void a_child_inherits_no_lock(void**) {
  needs_an_allocator_that_forks();
  constexpr int kChildren = 200;
  const auto async = channel(16);
  Context opened(any_device(), async);
  CompletionQueue cq(opened, 16, channel(8), 0);
  assert_true(verbs_work(opened, cq));
  std::atomic<bool> stop{false}, good{true};
  std::vector<std::thread> others;
  for (int i = 0; i < 3; ++i)
    others.emplace_back([&] {
      while (!stop)
        if (!verbs_work(opened, cq)) good = false;
    });
  int failed = 0;
  for (int i = 0; i < kChildren && failed == 0; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);
      async->close_in_child();  // as the table of the program's descriptors does
      _exit(verbs_work(opened, cq) ? 0 : 1);
    }
    int status = -1;
    if (waitpid(child, &status, 0) != child || status != 0) {
      print_error("child %d: wait status %#x\n", i, static_cast<unsigned>(status));
      ++failed;
    }
  }
  stop = true;
  for (std::thread& other : others) other.join();
  assert_true(good);
  assert_int_equal(failed, 0);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_child_forked_while_devices_are_looked_for),
      cmocka_unit_test(a_child_forked_while_the_engine_is_made),
      cmocka_unit_test(the_grandchild_of_an_unused_engine),
      cmocka_unit_test(the_child_of_an_unused_engine_begins_anew),
      cmocka_unit_test(the_child_of_a_used_engine_leaves_it_alone),
      cmocka_unit_test(a_child_can_be_cancelled_as_its_parent),
      cmocka_unit_test(a_child_inherits_no_lock),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
