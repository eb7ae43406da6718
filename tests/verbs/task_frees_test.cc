// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A task runs on the thread that holds the engine, for one that waits. Should it free memory, an application's hook in
// free() might want a lock that the waiting thread has: so none is freed while the engine is held.
#include <execinfo.h>

#include <atomic>
#include <cstdlib>
#include <thread>

#include "provider/engine/engine.h"
#include "provider/verbs/ud/multicast.h"
#include "tests/verbs/datagram_sides.h"

// By cmocka, whose fail() and skip() are macros.
#include "tests/verbs/by_address.h"
#include "tests/wire/scene.h"

using namespace ewarp;
using namespace ewarp::test;

namespace {

thread_local bool in_task = false;
std::atomic<unsigned> frees{0};
void* where[24];
std::atomic<int> depth{0};

// The first is told.
void note_free(const void* memory) {
  if (memory == nullptr || !in_task) return;
  in_task = false;
  if (frees.fetch_add(1) == 0) depth = backtrace(where, 24);
  in_task = true;
}

}  // namespace

// The hook of an application.
extern "C" void __libc_free(void* memory);
extern "C" void free(void* memory) {
  note_free(memory);
  __libc_free(memory);
}

namespace {

// Holds the engine most of the time, so that what others want done are its tasks.
class Holder {
 public:
  Holder() : thread_([this] { run(); }) {}
  ~Holder() {
    stop_ = true;
    thread_.join();
  }

 private:
  void run() {
    while (!stop_) {
      engine().acquire();
      // By the clock: a yield may give away a time slice of every thread that wants a CPU.
      for (const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(1);
           std::chrono::steady_clock::now() < until;) {
        in_task = true;
        engine().serve_tasks();
        in_task = false;
        std::this_thread::yield();
      }
      engine().serve_kicks();
      engine().leave();
      std::this_thread::sleep_for(std::chrono::microseconds(100));  // passes, for those who make them
    }
  }

  std::atomic<bool> stop_{false};
  std::thread thread_;
};

void expect_none(const char* what) {
  if (frees == 0) return;
  print_error("%s: %u frees in tasks, the first by\n", what, frees.load());
  backtrace_symbols_fd(where, depth, 2);
  assert_int_equal(frees, 0);
}

void connections_by_address(void**) {
  const Holder holder;
  for (int i = 0; i < 10; ++i) {
    Side a{65536}, b{65536};
    assert_int_equal(by_address::to_init(a), 0);
    assert_int_equal(by_address::to_init(b), 0);
    by_address::up(a, by_address::number(b));
    by_address::up(b, by_address::number(a));
    by_address::traffic(a, b);
  }
  expect_none("by address");
}

void ends_in_every_state(void**) {
  const Holder holder;
  for (int i = 0; i < 10; ++i) {
    Side a{65536}, b{65536};
    by_address::up(a, 0x123456);  // nobody answers
    ibv_qp_attr attr{};
    attr.qp_state = i % 2 == 0 ? IBV_QPS_ERR : IBV_QPS_RESET;
    assert_int_equal(a.qp->modify(attr, IBV_QP_STATE), 0);
  }
  expect_none("ends");
}

void connected_and_cut(void**) {
  const Holder holder;
  for (int i = 0; i < 10; ++i) {
    Side a{65536}, b{65536};
    join(a, b, params(true), params(false));
    assert_int_equal(b.receive({b.sge(0, 64)}, 100), 0);
    assert_int_equal(a.send(IBV_WR_SEND, {a.sge(0, 64)}, 0, 0, IBV_SEND_SIGNALED, 1), 0);
    by_address::expect_wc(a, 1);
    by_address::expect_wc(b, 100);
    if (i % 2 == 0) {
      ibv_qp_attr attr{};
      attr.qp_state = IBV_QPS_ERR;
      assert_int_equal(a.qp->modify(attr, IBV_QP_STATE), 0);
    }
  }
  expect_none("cut");
}

void datagrams(void**) {
  const Holder holder;
  for (int i = 0; i < 10; ++i) {
    PortSide<UdQueuePair> ud(IBV_QPT_UD, nullptr, IBV_QPS_RTS, 64, IBV_ACCESS_LOCAL_WRITE);
    const ibv_gid group = gid_of("::ffff:239.1.2.3");
    assert_int_equal(attach_group(*ud.qp, group), 0);
    assert_int_equal(detach_group(*ud.qp, group), 0);
  }
  expect_none("datagrams");
}

}  // namespace

int main() {
  setenv("ETHERWARP_CLOSE_TIMEOUT_MS", "50", 1);
  const CMUnitTest tests[] = {
      cmocka_unit_test(connections_by_address),
      cmocka_unit_test(ends_in_every_state),
      cmocka_unit_test(connected_and_cut),
      cmocka_unit_test(datagrams),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
