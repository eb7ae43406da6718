// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The host of the peer vanishes while octets are under way to it: what the queue pair makes of what the stream tells.
#include <atomic>

#include "tests/verbs/two_qps.h"

// Last: cmocka's macros (fail) would cut through other headers.
extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
}

using namespace ewarp;
using namespace ewarp::test;
using namespace std::chrono_literals;

namespace {

// What a stream tells; shared with the test.
struct Told {
  std::atomic<bool> under_way{true};
  std::atomic<unsigned> asked{0}, step{0};  // each look sees that it was asked so often again
  std::atomic<unsigned> looks{0};
};

class Distant final : public llp::Stream {
 public:
  Distant(int fd, std::shared_ptr<Told> told) : inner_(llp::tcp_stream(fd)), told_(std::move(told)) {}

  int fd() const override { return inner_->fd(); }
  bool is_socket() const override { return inner_->is_socket(); }
  long receive(std::span<const iovec> into) override { return inner_->receive(into); }
  long send(std::span<const iovec> from) override { return inner_->send(from); }
  short ready() const override { return inner_->ready(); }
  void half_close() override { inner_->half_close(); }
  void end() override { inner_->end(); }
  void close() override { inner_->close(); }
  std::size_t segment_octets() const override { return inner_->segment_octets(); }
  std::string peer() const override { return "afar"; }
  bool is_distant() const override { return true; }
  std::optional<llp::Unanswered> unanswered() const override {
    ++told_->looks;
    if (!told_->under_way) return std::nullopt;
    return llp::Unanswered{told_->asked += told_->step, 1h};
  }

 private:
  std::unique_ptr<llp::Stream> inner_;
  std::shared_ptr<Told> told_;
};

// a's peer is at the other end of a socket pair, and nobody reads there unless the test does.
struct Scene {
  Scene() {
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
    far = fds[1];
    assert_int_equal(a.qp->attach(std::make_unique<Distant>(fds[0], told), params(true), a.observer), 0);
  }
  ~Scene() { close(far); }
  bool looks(unsigned least) {
    const auto until = std::chrono::steady_clock::now() + 20s;
    while (told->looks < least && std::chrono::steady_clock::now() < until) poll(nullptr, 0, 1);
    return told->looks >= least;
  }

  std::shared_ptr<Told> told = std::make_shared<Told>();
  int far = -1;
  Side a;
};

// More than the socket takes: the Sends wait. The oldest tells why, the others and the receive are flushed.
void pending_work_ends(void**) {
  for (const bool read : {false, true}) {
    print_message("case: %s\n", read ? "Reads" : "Sends");
    Scene s;
    assert_int_equal(s.a.receive({s.a.sge(0, 8)}, 100), 0);
    for (std::uint64_t id = 1; id <= 3; ++id)
      assert_int_equal(
          s.a.send(read ? IBV_WR_RDMA_READ : IBV_WR_SEND, {s.a.sge(0, 1 << 20)}, 0, 0, IBV_SEND_SIGNALED, id), 0);
    // It was asked, but not often enough.
    assert_true(s.looks(2));
    assert_int_equal(s.a.state(), IBV_QPS_RTS);
    assert_int_equal(s.a.observer->disconnected, 0);
    s.told->step = 2;
    for (std::uint64_t id = 1; id <= 3; ++id) {
      const ibv_wc wc = s.a.wait(20'000);
      assert_int_equal(wc.wr_id, id);
      assert_int_equal(wc.status, id == 1 ? IBV_WC_RETRY_EXC_ERR : IBV_WC_WR_FLUSH_ERR);
    }
    const ibv_wc wc = s.a.wait();
    assert_int_equal(wc.wr_id, 100);
    assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
    assert_int_equal(s.a.state(), IBV_QPS_ERR);
    assert_true(s.a.disconnects());
  }
}

// A stream on which nothing is under way is asked no more, until something is sent.
void idle_streams_are_left_alone(void**) {
  Scene s;
  s.told->under_way = false;
  assert_int_equal(s.a.send(IBV_WR_SEND, {s.a.sge(0, 8)}), 0);
  assert_int_equal(s.a.wait().status, IBV_WC_SUCCESS);
  assert_true(s.looks(1));
  poll(nullptr, 0, 2500);  // two looks and a half
  assert_int_equal(s.told->looks, 1);
  assert_int_equal(s.a.send(IBV_WR_SEND, {s.a.sge(0, 8)}), 0);
  assert_int_equal(s.a.wait().status, IBV_WC_SUCCESS);
  assert_true(s.looks(2));
  assert_int_equal(s.a.state(), IBV_QPS_RTS);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(pending_work_ends),
      cmocka_unit_test(idle_streams_are_left_alone),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
