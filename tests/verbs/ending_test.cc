// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The end of a process, and fork(), at moments when the engine is in use: nobody waits for ever.
#include <signal.h>
#include <sys/wait.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "provider/engine/engine.h"
#include "provider/engine/reactor.h"
#include "tests/wire/scene.h"

using namespace ewarp;
using namespace ewarp::test;

namespace {

// Runs body in a child that uses the engine for the first time there. How the child ended; SIGALRM: it hung.
int in_child(void (*body)()) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    body();
    exit(0);
  }
  int status = -1;
  assert_int_equal(waitpid(child, &status, 0), child);
  return status;
}

struct Pair {
  Pair() { join(a, b, params(true), params(false)); }
  bool talks() {
    return b.receive({b.sge(0, 8)}) == 0 && a.send(IBV_WR_SEND, {a.sge(0, 8)}) == 0 &&
           a.wait().status == IBV_WC_SUCCESS && b.wait().status == IBV_WC_SUCCESS;
  }
  Side a{4096}, b{4096};
};

Pair* pair = nullptr;

// Exit handlers run in the opposite order of their registration: this one behind the engine's own.
void destroys_in_an_exit_handler() {
  std::atexit([] {
    delete pair;
    for (int i = 0; i < 10'000 && engine().busy(); ++i) poll(nullptr, 0, 1);
    if (engine().busy()) _exit(3);
  });
  pair = new Pair;
  if (!pair->talks()) _exit(2);
}

void posts_in_an_exit_handler() {
  std::atexit([] {
    if (pair->a.send(IBV_WR_SEND, {pair->a.sge(0, 8)}) != 0) return;
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_ERR;
    if (pair->b.qp->modify(attr, IBV_QP_STATE) != 0) _exit(3);
  });
  pair = new Pair;
  if (!pair->talks()) _exit(2);
}

// Tasks, timers and streams are seen to until the process has ended.
void waits_in_an_exit_handler() {
  std::atexit([] {
    std::atomic<bool> ran{false};
    reactor().add_timer(Reactor::Clock::now() + std::chrono::milliseconds(1), [&] { ran = true; });
    for (int i = 0; i < 10'000 && !ran; ++i) poll(nullptr, 0, 1);
    if (!ran) _exit(3);
    pair->a.qp->disconnect(true);
    if (!pair->a.disconnects(10'000)) _exit(4);
  });
  pair = new Pair;
  if (!pair->talks()) _exit(2);
}

// What comes behind the end of a stream is not for memory that its owner may have freed, whoever makes the passes.
void hears_more_in_an_exit_handler() {
  static Side* side;
  static wire::Peer* peer;
  std::atexit([] {
    peer->send(wire::write_segment(side->mr->stag(), side->address(0), wire::pattern(64)));
    peer->wait_until_read();
    poll(nullptr, 0, 20);
    ibv_wc wc{};
    for (int i = 0; i < 100; ++i) side->cq.poll(1, &wc);
    for (std::size_t i = 0; i < 64; ++i)
      if (*side->at(i) != std::byte{0}) _exit(3);
    if (side->observer->disconnected != 0) _exit(4);
    peer->close();
    if (!side->disconnects(10'000)) _exit(5);
  });
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) != 0) _exit(2);
  side = new Side(4096);
  peer = new wire::Peer(fds[1], false);
  if (side->qp->attach(llp::tcp_stream(fds[0]), params(false, false, false), side->observer) != 0) _exit(2);
  peer->send(wire::write_segment(side->mr->stag(), side->address(1024), wire::pattern(64)));
  for (int i = 0; i < 10'000 && *side->at(1024 + 63) == std::byte{0}; ++i) poll(nullptr, 0, 1);
  if (*side->at(1024 + 63) == std::byte{0}) _exit(6);
}

// Once the process ends it gives octets without end, and whenever it takes some, somebody has posted more.
class Endless final : public llp::Stream {
 public:
  explicit Endless(int fd) : inner_(llp::tcp_stream(fd)) {}

  int fd() const override { return inner_->fd(); }
  bool is_socket() const override { return false; }
  long receive(std::span<const iovec> into) override {
    if (!half_closed_) return -EAGAIN;
    std::memset(into[0].iov_base, 0, into[0].iov_len);
    return static_cast<long>(into[0].iov_len);
  }
  long send(std::span<const iovec> from) override {
    long taken = 0;
    for (const iovec& v : from) taken += static_cast<long>(v.iov_len);
    post();
    return taken;
  }
  short ready() const override { return POLLOUT; }
  void half_close() override { half_closed_ = true; }
  void end() override { inner_->end(); }
  void close() override { inner_->close(); }
  std::size_t segment_octets() const override { return 0; }
  std::string peer() const override { return "endless"; }
  static void post() { side->send(IBV_WR_SEND, {side->sge(0, 8)}, 0, 0, 0); }

  static inline Side* side = nullptr;

 private:
  std::unique_ptr<llp::Stream> inner_;
  bool half_closed_ = false;
};

void exits_beside_an_endless_stream() {
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) != 0) _exit(2);
  Endless::side = new Side(4096);
  if (Endless::side->qp->attach(std::make_unique<Endless>(fds[0]), params(true), Endless::side->observer) != 0)
    _exit(2);
  Endless::post();
}

// A signal handler that interrupts the holder.
template <class F>
void while_held(F handler) {
  static F action = handler;
  signal(SIGUSR1, [](int) { action(); });
  engine().acquire();  // not run(): the background thread, which takes no signals, would do it if it has the engine
  raise(SIGUSR1);
  engine().leave();
}

void exits_within_a_pass() {
  pair = new Pair;
  if (!pair->talks()) _exit(2);
  while_held([] { exit(0); });
  _exit(3);
}

int fork_and_ask(void (*body)()) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(10);
    body();
    _exit(0);
  }
  int status = -1;
  return waitpid(child, &status, 0) == child ? status : -1;
}

void forks_within_a_pass() {
  pair = new Pair;
  if (!pair->talks()) _exit(2);
  static int status;
  static pid_t child;
  while_held([] {
    child = fork();
    if (child == 0) alarm(10);
  });
  if (child == 0) {
    // The child left the pass that it came into the world in, and has no engine.
    if (!forked_child() || engine().busy()) _exit(3);
    pair->a.send(IBV_WR_SEND, {pair->a.sge(0, 8)});
    ibv_wc wc{};
    pair->a.cq.poll(1, &wc);
    _exit(0);
  }
  if (waitpid(child, &status, 0) != child || status != 0) _exit(4);
  if (!pair->talks()) _exit(5);
}

// Within a pass, while another thread is about to fork and waits for the engine.
void two_threads_fork() {
  engine().acquire();
  if (engine().hold_for_fork()) _exit(2);
  std::thread other([] {
    if (!engine().hold_for_fork() || engine().forked_inside()) _exit(3);
    engine().after_fork_parent();
  });
  while (!engine().pushed()) std::this_thread::yield();
  if (!engine().forked_inside()) _exit(4);
  engine().leave();
  other.join();
}

// Threads of the parent wait for the engine while it forks.
void forks_while_tasks_wait() {
  pair = new Pair;
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&] {
      while (!stop) engine().run([] {});
    });
  for (int i = 0; i < 50; ++i) {
    const int status = fork_and_ask([] {
      if (!forked_child()) _exit(3);
      engine().run([] {});
    });
    if (status != 0) _exit(4);
  }
  stop = true;
  for (auto& t : threads) t.join();
  if (!pair->talks()) _exit(5);
}

void check(void (*body)()) {
  const int status = in_child(body);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 0);
}

void exit_handlers_may_use_the_engine(void**) {
  check(destroys_in_an_exit_handler);
  check(posts_in_an_exit_handler);
}

void exit_handlers_may_wait(void**) {
  check(waits_in_an_exit_handler);
  check(hears_more_in_an_exit_handler);
}

void exit_has_an_end(void**) {
  check(exits_beside_an_endless_stream);
}

void exit_in_a_pass(void**) {
  check(exits_within_a_pass);
}

void fork_in_a_pass(void**) {
  check(forks_within_a_pass);
}

void forks_side_by_side(void**) {
  check(two_threads_fork);
}

void fork_with_tasks_pending(void**) {
  check(forks_while_tasks_wait);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(exit_handlers_may_use_the_engine),
      cmocka_unit_test(exit_handlers_may_wait),
      cmocka_unit_test(exit_has_an_end),
      cmocka_unit_test(exit_in_a_pass),
      cmocka_unit_test(fork_in_a_pass),
      cmocka_unit_test(forks_side_by_side),
      cmocka_unit_test(fork_with_tasks_pending),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
