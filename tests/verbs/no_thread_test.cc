// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The background thread cannot be started (a limit on processes): the verb that needs it says so, leaves nothing
// behind, and does its work when it is called again.
#include <fcntl.h>
#include <signal.h>

#include <cerrno>

#include "provider/engine/reactor.h"
#include "provider/verbs/device/port_monitor.h"
#include "tests/llp/failing_threads.h"
#include "tests/verbs/rd_sides.h"

// After the above: cmocka.h comes with them.
#include "tests/llp/sandbox.h"
#include "tests/verbs/by_address.h"

namespace ewarp::test {
namespace {

constexpr int kFailures = 3;

bool mask_is_empty() {
  sigset_t now;
  pthread_sigmask(SIG_SETMASK, nullptr, &now);
  for (int signal = 1; signal < SIGRTMIN; ++signal)
    if (sigismember(&now, signal) == 1) return false;
  return true;
}

// `verb` fails so often, changes nothing of what is looked at here, and then succeeds. 0, or the claim that failed.
template <class Verb>
int fails_cleanly_then_works(Verb verb) {
  failures_to_come = 1;
  if (verb() != EAGAIN) return 10;  // what is made once and kept is there
  const std::size_t files = open_files();
  failures_seen = 0;
  failures_to_come = kFailures;
  for (int i = 0; i < kFailures; ++i) {
    if (verb() != EAGAIN) return 11;
    if (!mask_is_empty()) return 12;
    if (open_files() != files) return 13;
  }
  if (failures_seen != kFailures) return 14;
  if (verb() != 0) return 15;
  return mask_is_empty() ? 0 : 16;
}

// A process whose engine has not begun. Each test is one.
template <class Body>
void in_new_process(const char* what, Body body) {
  in_child(what, [&] {
    const int failed = body();
    return failed == 0 ? kHolds : failed;
  });
}

// Opening a device does without: there are no port events until the next one opens.
void a_device_opens_without(void**) {
  in_new_process("open", [] {
    Context first(any_device(), channel(16)), second(any_device(), channel(16));
    failures_to_come = 1;
    if (reactor().start() != EAGAIN) return 3;  // what is made once and kept is there
    const std::size_t files = open_files();
    failures_to_come = 1;
    port_monitor().add(first);
    if (port_monitor().fd() >= 0 || open_files() != files || !mask_is_empty()) return 1;
    port_monitor().add(second);
    if (port_monitor().fd() < 0 || !mask_is_empty()) return 2;
    port_monitor().remove(first);
    port_monitor().remove(second);
    return 0;
  });
}

template <class Qp>
int create_on_a_port(ibv_qp_type type, std::shared_ptr<Qp>* qp, Pd& pd, CompletionQueue& cq) {
  const int failed = fails_cleanly_then_works([&] {
    const int users = pd.users;
    ibv_qp_init_attr init{};
    init.qp_type = type;
    init.cap = {16, 16, 1, 1, 0};
    const int error = make(pd, init, &cq, nullptr, qp);
    return error != 0 && (*qp != nullptr || pd.users != users) ? EIO : error;
  });
  return failed;
}

void a_ud_queue_pair_is_made_later(void**) {
  in_new_process("UD", [] {
    Context context(any_device(), channel(16));
    Pd pd(context);
    CompletionQueue cq(context, 64, channel(8), 0);
    std::shared_ptr<UdQueuePair> qp;
    if (const int failed = create_on_a_port(IBV_QPT_UD, &qp, pd, cq); failed != 0) return failed;
    const ibv_gid group = gid_of("::ffff:239.77.3.1");
    if (attach_group(*qp, group) != 0 || detach_group(*qp, group) != 0) return 1;
    qp->destroy();
    DatagramSide a, b;
    AddressHandleObject ah = a.address();
    if (b.receive({b.sge(0, 100)}) != 0 || a.send(ah, b.qp->number(), {a.sge(0, 32)}) != 0) return 2;
    return b.wait().status == IBV_WC_SUCCESS ? 0 : 3;
  });
}

void an_rd_queue_pair_is_made_later(void**) {
  in_new_process("RD", [] {
    Context context(any_device(), channel(16));
    Pd pd(context);
    CompletionQueue cq(context, 64, channel(8), 0);
    std::shared_ptr<RdQueuePair> qp;
    if (const int failed = create_on_a_port(IBV_QPT_DRIVER, &qp, pd, cq); failed != 0) return failed;
    qp->destroy();
    RdSide a, b;
    AddressHandleObject ah = a.address();
    if (b.receive({b.sge(0, 100)}) != 0 || a.request(ah, b.qp->number(), {.sges = {a.sge(0, 32)}}) != 0) return 2;
    return b.wait().status == IBV_WC_SUCCESS ? 0 : 3;
  });
}

// RC needs no thread before it has a peer.
void a_queue_pair_told_its_peer_stays_in_init(void**) {
  in_new_process("RTR", [] {
    failures_to_come = 1;
    Side a, b;
    if (failures_to_come != 1 || by_address::to_init(a) != 0 || by_address::to_init(b) != 0) return 1;
    const int failed = fails_cleanly_then_works([&] {
      const int error = by_address::to_rtr(a, by_address::number(b));
      return a.state() == (error == 0 ? IBV_QPS_RTR : IBV_QPS_INIT) ? error : EIO;
    });
    if (failed != 0) return failed;
    if (by_address::to_rtr(b, by_address::number(a)) != 0) return 2;
    if (by_address::to_rts(a) != 0 || by_address::to_rts(b) != 0) return 3;
    if (b.receive({b.sge(0, 8)}) != 0 || a.send(IBV_WR_SEND, {a.sge(0, 8)}) != 0) return 4;
    return a.wait().status == IBV_WC_SUCCESS && b.wait().status == IBV_WC_SUCCESS ? 0 : 5;
  });
}

// The socket belongs to the queue pair even when it refuses it.
void a_stream_that_is_refused_is_closed(void**) {
  in_new_process("attach", [] {
    Side a, b;
    int fds[2];
    const int failed = fails_cleanly_then_works([&] {
      if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) != 0) return EIO;
      const int error = a.qp->attach(llp::tcp_stream(fds[0]), params(true), a.observer);
      if (error == 0) return 0;
      close(fds[1]);
      return fcntl(fds[0], F_GETFD) >= 0 || a.state() != IBV_QPS_RESET ? EIO : error;
    });
    if (failed != 0) return failed;
    if (b.qp->attach(llp::tcp_stream(fds[1]), params(false), b.observer) != 0) return 1;
    if (b.receive({b.sge(0, 8)}) != 0 || a.send(IBV_WR_SEND, {a.sge(0, 8)}) != 0) return 2;
    return a.wait().status == IBV_WC_SUCCESS && b.wait().status == IBV_WC_SUCCESS ? 0 : 3;
  });
}

}  // namespace
}  // namespace ewarp::test

int main() {
  using namespace ewarp::test;
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_device_opens_without),
      cmocka_unit_test(a_ud_queue_pair_is_made_later),
      cmocka_unit_test(an_rd_queue_pair_is_made_later),
      cmocka_unit_test(a_queue_pair_told_its_peer_stays_in_init),
      cmocka_unit_test(a_stream_that_is_refused_is_closed),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
