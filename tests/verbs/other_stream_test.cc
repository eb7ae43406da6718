// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Queue pairs over a stream that is no socket to them, and gives and takes a little at a time: whatever lies behind
// llp::Stream, MPA, DDP and RDMAP are the same.
#include <algorithm>
#include <array>
#include <cstring>

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

namespace {

// At most 1, 2, 3, ... octets a call, then anew.
class Trickle final : public llp::Stream {
 public:
  Trickle(int fd, std::size_t most) : inner_(llp::tcp_stream(fd)), most_(most) {}

  int fd() const override { return inner_->fd(); }
  bool is_socket() const override { return false; }
  long receive(std::span<const iovec> into) override { return inner_->receive(cut(into)); }
  long send(std::span<const iovec> from) override { return inner_->send(cut(from)); }
  short ready() const override { return inner_->ready(); }
  void half_close() override { inner_->half_close(); }
  void end() override { inner_->end(); }
  void close() override { inner_->close(); }
  std::size_t segment_octets() const override { return 0; }
  std::string peer() const override { return "trickle"; }

 private:
  std::span<const iovec> cut(std::span<const iovec> vectors) {
    step_ = step_ % most_ + 1;
    std::size_t left = step_, count = 0;
    for (const iovec& v : vectors) {
      if (left == 0 || count == cut_.size()) break;
      cut_[count] = {v.iov_base, std::min(v.iov_len, left)};
      left -= cut_[count++].iov_len;
    }
    return {cut_.data(), count};
  }

  std::unique_ptr<llp::Stream> inner_;
  const std::size_t most_;
  std::size_t step_ = 0;
  std::array<iovec, 64> cut_{};
};

void join_by_trickle(Side& a, Side& b, bool crc, bool extensions, std::size_t most) {
  int fds[2];
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
  const auto stream = [&](int i) { return std::make_unique<Trickle>(fds[i], most); };
  assert_int_equal(b.qp->attach(stream(1), params(false, crc, extensions), b.observer), 0);
  assert_int_equal(a.qp->attach(stream(0), params(true, crc, extensions), a.observer), 0);
}

// Keeps what each call hands over, and takes all of it.
class Witness final : public llp::Stream {
 public:
  Witness(int fd, std::vector<std::vector<std::byte>>& calls) : inner_(llp::tcp_stream(fd)), calls_(calls) {}

  int fd() const override { return inner_->fd(); }
  bool is_socket() const override { return false; }
  long receive(std::span<const iovec> into) override { return inner_->receive(into); }
  long send(std::span<const iovec> from) override {
    std::vector<std::byte> all;
    for (const iovec& v : from) {
      const auto* at = static_cast<const std::byte*>(v.iov_base);
      all.insert(all.end(), at, at + v.iov_len);
    }
    const long n = inner_->send(from);
    if (n > 0) {
      assert_int_equal(n, all.size());  // the socket has room for all that the test sends
      calls_.push_back(std::move(all));
    }
    return n;
  }
  short ready() const override { return inner_->ready(); }
  void half_close() override { inner_->half_close(); }
  void end() override { inner_->end(); }
  void close() override { inner_->close(); }
  std::size_t segment_octets() const override { return 1448; }
  std::string peer() const override { return "witness"; }

 private:
  std::unique_ptr<llp::Stream> inner_;
  std::vector<std::vector<std::byte>>& calls_;
};

void fill(Side& s, std::uint32_t octets) {
  for (std::uint32_t i = 0; i < octets; ++i) *s.at(i) = static_cast<std::byte>(i * 7 + i / 251);
}

constexpr std::uint32_t kOctets = 70'000;
constexpr std::size_t kSecond = 200'000;  // where the sinks begin

void transfer(Side& a, Side& b) {
  fill(a, kOctets);
  assert_int_equal(b.receive({b.sge(0, kOctets)}), 0);
  assert_int_equal(a.send(IBV_WR_SEND, {a.sge(0, kOctets)}), 0);
  assert_int_equal(a.wait().status, IBV_WC_SUCCESS);
  const ibv_wc got = b.wait();
  assert_int_equal(got.status, IBV_WC_SUCCESS);
  assert_int_equal(got.byte_len, kOctets);
  assert_memory_equal(b.at(0), a.at(0), kOctets);
  assert_int_equal(a.send(IBV_WR_RDMA_WRITE, {a.sge(0, kOctets)}, b.address(kSecond), b.mr->stag()), 0);
  assert_int_equal(a.wait().status, IBV_WC_SUCCESS);
  // Behind the Write on the same stream.
  assert_int_equal(a.send(IBV_WR_RDMA_READ, {a.sge(kSecond, kOctets)}, b.address(kSecond), b.mr->stag()), 0);
  assert_int_equal(a.wait(20'000).status, IBV_WC_SUCCESS);
  assert_memory_equal(a.at(kSecond), a.at(0), kOctets);
}

void every_operation(void**) {
  for (const bool crc : {false, true})
    for (const bool extensions : {false, true}) {
      Side a, b;
      join_by_trickle(a, b, crc, extensions, 3000);
      transfer(a, b);
      // Both ends: what was sent arrives, then the stream ends.
      a.qp->disconnect(true);
      assert_true(a.disconnects() && b.disconnects());
    }
}

// Octet by octet: every border of a header is met.
void a_few_octets_at_a_time(void**) {
  Side a, b;
  join_by_trickle(a, b, true, true, 5);
  fill(a, 300);
  assert_int_equal(b.receive({b.sge(0, 300)}), 0);
  assert_int_equal(a.send(IBV_WR_SEND, {a.sge(0, 300)}), 0);
  assert_int_equal(b.wait().status, IBV_WC_SUCCESS);
  assert_memory_equal(b.at(0), a.at(0), 300);
}

// How many whole FPDUs these octets are; fails where the last is not whole.
std::size_t whole_fpdus(const std::vector<std::byte>& octets) {
  std::size_t count = 0, at = 0;
  while (at < octets.size()) {
    if (octets.size() - at < 2) fail_msg("%zu octets behind %zu FPDUs", octets.size() - at, count);
    const std::size_t ulpdu =
        std::to_integer<std::size_t>(octets[at]) << 8 | std::to_integer<std::size_t>(octets[at + 1]);
    at += (2 + ulpdu + 3) / 4 * 4 + 4;
    ++count;
  }
  assert_int_equal(at, octets.size());
  return count;
}

// Holds: MPA-18
// Header, payload and CRC are never handed over apart, and what is posted together does not cost a call for each FPDU.
void mpa_18_whole_fpdus_in_each_call(void**) {
  for (const bool crc : {false, true}) {
    Side a, b;
    std::vector<std::vector<std::byte>> calls;
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
    assert_int_equal(b.qp->attach(llp::tcp_stream(fds[1]), params(false, crc, false), b.observer), 0);
    assert_int_equal(a.qp->attach(std::make_unique<Witness>(fds[0], calls), params(true, crc, false), a.observer), 0);
    fill(a, 20'000);
    for (const std::uint32_t octets : {0u, 1u, 64u, 1000u, 1425u, 20'000u}) {
      calls.clear();
      assert_int_equal(b.receive({b.sge(0, 20'000)}), 0);
      assert_int_equal(a.send(IBV_WR_SEND, {a.sge(0, octets)}), 0);
      assert_int_equal(a.wait().status, IBV_WC_SUCCESS);
      assert_int_equal(b.wait().status, IBV_WC_SUCCESS);
      std::size_t fpdus = 0;
      for (const auto& call : calls) fpdus += whole_fpdus(call);
      assert_true(fpdus >= 1 + octets / 1448);
      if (octets <= 1000) assert_int_equal(calls.size(), 1);
      if (octets == 20'000) assert_true(calls.size() < fpdus);  // an aligned run
    }
  }
}

// So many are ready at once that sockets would share a system call; these cannot.
void many_at_once(void**) {
  constexpr std::size_t kPairs = 24;
  std::vector<std::unique_ptr<Side>> ends;
  for (std::size_t i = 0; i < 2 * kPairs; ++i) ends.push_back(std::make_unique<Side>(4096));
  for (std::size_t i = 0; i < kPairs; ++i) join_by_trickle(*ends[2 * i], *ends[2 * i + 1], i % 2 == 0, true, 1000);
  for (std::size_t i = 0; i < kPairs; ++i) {
    std::memset(ends[2 * i]->at(0), static_cast<int>(i + 1), 2000);
    assert_int_equal(ends[2 * i + 1]->receive({ends[2 * i + 1]->sge(0, 2000)}), 0);
    assert_int_equal(ends[2 * i]->send(IBV_WR_SEND, {ends[2 * i]->sge(0, 2000)}), 0);
  }
  for (std::size_t i = 0; i < kPairs; ++i) {
    assert_int_equal(ends[2 * i + 1]->wait().status, IBV_WC_SUCCESS);
    assert_memory_equal(ends[2 * i + 1]->at(0), ends[2 * i]->at(0), 2000);
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(every_operation),
      cmocka_unit_test(a_few_octets_at_a_time),
      cmocka_unit_test(mpa_18_whole_fpdus_in_each_call),
      cmocka_unit_test(many_at_once),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
