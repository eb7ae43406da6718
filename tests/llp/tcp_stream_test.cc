// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// TCP as a stream: what is seen of the peer's end while nothing is read, and what becomes of what it does not take.
#include "llp/tcp_stream.h"

#include <poll.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <memory>

#include "tests/llp/tcp_pair.h"

namespace {

using namespace ewarp;

constexpr int kPatience = 60'000;  // milliseconds

struct Pair {
  Pair() {
    int fds[2];
    test::tcp_pair(fds, [](int) {});
    ours = llp::tcp_stream(fds[0]);
    theirs = fds[1];
  }
  ~Pair() {
    if (theirs >= 0) close(theirs);
  }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;

  // Until the window is closed: nothing has gone for a while.
  static void flood(int from) {
    static const std::array<std::byte, 65536> octets{};
    pollfd p{from, POLLOUT, 0};
    while (poll(&p, 1, 100) == 1)
      if (send(from, octets.data(), octets.size(), MSG_DONTWAIT | MSG_NOSIGNAL) < 0) assert_int_equal(errno, EAGAIN);
  }
  // What is on its way takes its time, also on one host.
  void expect_end(llp::PeerEnd want) const {
    for (int i = 0; ours->peer_end() != want; ++i) {
      assert_true(i < kPatience);
      poll(nullptr, 0, 1);
    }
  }

  std::unique_ptr<llp::Stream> ours;
  int theirs = -1;
};

void the_end_of_a_peer_is_seen(void**) {
  for (const bool octets : {false, true})
    for (const bool reset : {false, true}) {
      Pair p;
      assert_int_equal(p.ours->peer_end(), llp::PeerEnd::open);
      if (octets) {
        assert_int_equal(send(p.theirs, "12345678", 8, MSG_NOSIGNAL), 8);
        pollfd come{p.ours->fd(), POLLIN, 0};
        assert_int_equal(poll(&come, 1, kPatience), 1);
        assert_int_equal(p.ours->peer_end(), llp::PeerEnd::open);
      }
      const linger at_once{1, 0};
      if (reset) assert_int_equal(setsockopt(p.theirs, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once), 0);
      close(p.theirs);
      p.theirs = -1;
      p.expect_end(llp::PeerEnd::ended);
    }
}

void a_half_that_has_ended_is_an_end(void**) {
  const Pair p;
  assert_int_equal(shutdown(p.theirs, SHUT_WR), 0);
  p.expect_end(llp::PeerEnd::ended);
}

// What closes the window hides an end.
void an_end_behind_a_closed_window_is_hidden(void**) {
  const Pair p;
  Pair::flood(p.theirs);
  assert_int_equal(p.ours->peer_end(), llp::PeerEnd::hidden);
  assert_int_equal(shutdown(p.theirs, SHUT_WR), 0);
  assert_int_equal(p.ours->peer_end(), llp::PeerEnd::hidden);
  std::array<std::byte, 65536> sink;
  const iovec into{sink.data(), sink.size()};
  pollfd come{p.ours->fd(), POLLIN, 0};
  long n;
  while ((n = p.ours->receive(std::span(&into, 1))) != 0)
    if (n < 0) assert_true(n == -EAGAIN && poll(&come, 1, kPatience) == 1);
  assert_int_equal(p.ours->peer_end(), llp::PeerEnd::ended);
}

void no_stream_has_no_peer(void**) {
  assert_int_equal(llp::no_stream().peer_end(), llp::PeerEnd::ended);
}

void take_all(int fd, long* end) {
  std::array<char, 65536> octets;
  while ((*end = recv(fd, octets.data(), octets.size(), 0)) > 0) continue;
  if (*end < 0) *end = -errno;
}

constexpr std::chrono::milliseconds kSoon{100};

void what_a_peer_does_not_take_is_dropped(void**) {
  const Pair p;
  Pair::flood(p.ours->fd());
  p.ours->give_up_after(kSoon);
  p.ours->half_close();
  p.ours->close();
  for (int i = 0; test::has_other_end(p.theirs); ++i) {
    assert_true(i < kPatience);
    poll(nullptr, 0, 1);
  }
  long end = 0;
  take_all(p.theirs, &end);
  assert_int_equal(end, -ECONNRESET);
}

// However late, of a peer that takes some now and then.
void what_a_peer_takes_arrives(void**) {
  const Pair p;
  Pair::flood(p.ours->fd());
  p.ours->give_up_after(60 * kSoon);
  p.ours->half_close();
  p.ours->close();
  poll(nullptr, 0, 2 * static_cast<int>(kSoon.count()));
  assert_true(test::has_other_end(p.theirs));
  long end = 0;
  take_all(p.theirs, &end);
  assert_int_equal(end, 0);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(the_end_of_a_peer_is_seen),
      cmocka_unit_test(a_half_that_has_ended_is_an_end),
      cmocka_unit_test(an_end_behind_a_closed_window_is_hidden),
      cmocka_unit_test(no_stream_has_no_peer),
      cmocka_unit_test(what_a_peer_does_not_take_is_dropped),
      cmocka_unit_test(what_a_peer_takes_arrives),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
