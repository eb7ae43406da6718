// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "llp/batch.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <thread>
#include <utility>

#include "../vectors/vectors.h"
#include "llp/fd.h"
#include "sandbox.h"
#include "tcp_pair.h"

namespace {

using namespace ewarp::llp;
using ewarp::test::Bytes;
using ewarp::test::fds_named;
using ewarp::test::kHolds;
using ewarp::test::tcp_pair;

// The body runs on io_uring, where there is one, and on plain system calls.
template <class Body>
void for_each_kind(Body body) {
  for (const bool use_io_uring : {true, false}) {
    std::string why;
    const auto batch = make_batch(use_io_uring, &why);
    if (!why.empty())
      print_message("skipped: %s\n", why.c_str());
    else
      body(batch->name(), *batch);
  }
}

class Pair {
 public:
  explicit Pair(int type = SOCK_STREAM) { assert_int_equal(socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, fds_), 0); }
  ~Pair() {
    close_far();
    close(fds_[0]);
  }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;

  int fd() const { return fds_[0]; }
  int far() const { return fds_[1]; }
  void close_far() {
    if (fds_[1] >= 0) close(fds_[1]);
    fds_[1] = -1;
  }

 private:
  int fds_[2];
};

// A message of one piece that stays where it is.
struct Message {
  Bytes octets;
  iovec vector{};
  msghdr header{};
  explicit Message(std::size_t size, unsigned char fill = 0) : octets(size, std::byte{fill}) {
    vector = {octets.data(), octets.size()};
    header.msg_iov = &vector;
    header.msg_iovlen = 1;
  }
  Message(const Message&) = delete;
  Message& operator=(const Message&) = delete;
};

Batch::Op send_op(int fd, Message& m) {
  return {fd, true, &m.header, 12345};
}
Batch::Op receive_op(int fd, Message& m) {
  return {fd, false, &m.header, 12345};
}

// With enough companions that have nothing to read for a ring to be used.
std::vector<ssize_t> run_in_company(Batch& batch, std::vector<Batch::Op> ops) {
  const std::size_t wanted = ops.size();
  std::array<Pair, 15> idle;
  Message nothing(1);
  for (const Pair& pair : idle) ops.push_back(receive_op(pair.fd(), nothing));
  batch.run(ops);
  std::vector<ssize_t> results;
  for (const Batch::Op& op : ops) results.push_back(op.result);
  for (std::size_t i = wanted; i < results.size(); ++i) assert_int_equal(results[i], -EAGAIN);
  results.resize(wanted);
  return results;
}

ssize_t run_one(Batch& batch, Batch::Op op) {
  return run_in_company(batch, {op})[0];
}

constexpr std::size_t kCounts[] = {0, 1, 2, 7, 8, 9, 63, 64, 65, 128, 135, 136, 200};  // a ring has 64 entries

void idle_sockets_say_eagain(void**) {
  raise_fd_limit();
  for_each_kind([](const char* name, Batch& batch) {
    for (const std::size_t n : kCounts) {
      std::deque<Pair> pairs(n);
      std::deque<Message> messages;
      std::vector<Batch::Op> ops;
      for (const Pair& pair : pairs) ops.push_back(receive_op(pair.fd(), messages.emplace_back(8)));
      batch.run(ops);
      for (const Batch::Op& op : ops) EXPECT(name, op.result == -EAGAIN);
    }
  });
}

// A request that were armed would take the octets from the next reader.
void nothing_stays_behind(void**) {
  for_each_kind([](const char* name, Batch& batch) {
    std::deque<Pair> pairs(70);
    std::deque<Message> messages;
    std::vector<Batch::Op> ops;
    for (const Pair& pair : pairs) ops.push_back(receive_op(pair.fd(), messages.emplace_back(8)));
    batch.run(ops);
    for (const Pair& pair : pairs) assert_int_equal(write(pair.far(), "abc", 3), 3);
    for (const Pair& pair : pairs) {
      char got[8] = {};
      EXPECT(name, recv(pair.fd(), got, sizeof got, MSG_DONTWAIT) == 3);
    }
    for (const Message& m : messages) EXPECT(name, m.octets == Bytes(8));
  });
}

void each_gets_its_own(void**) {
  raise_fd_limit();
  for_each_kind([](const char* name, Batch& batch) {
    for (const std::size_t n : kCounts) {
      std::deque<Pair> pairs(n);
      std::deque<Message> messages;
      std::vector<Batch::Op> ops;
      for (std::size_t i = 0; i < n; ++i)
        ops.push_back(send_op(pairs[i].far(), messages.emplace_back(i % 50 + 1, static_cast<unsigned char>(i))));
      batch.run(ops);
      for (std::size_t i = 0; i < n; ++i) EXPECT(name, ops[i].result == static_cast<ssize_t>(i % 50 + 1));
      ops.clear();
      messages.clear();
      // Every third has nothing to say this time.
      for (std::size_t i = 0; i < n; ++i) {
        if (i % 3 == 2) {
          char drop[64];
          assert_true(read(pairs[i].fd(), drop, sizeof drop) > 0);
        }
        ops.push_back(receive_op(pairs[i].fd(), messages.emplace_back(64, 0xa5)));
      }
      batch.run(ops);
      for (std::size_t i = 0; i < n; ++i) {
        Bytes want(64, std::byte{0xa5});
        if (i % 3 == 2) {
          EXPECT(name, ops[i].result == -EAGAIN);
        } else {
          EXPECT(name, ops[i].result == static_cast<ssize_t>(i % 50 + 1));
          std::fill_n(want.begin(), i % 50 + 1, static_cast<std::byte>(i));
        }
        EXPECT(name, messages[i].octets == want);
      }
    }
  });
}

void both_directions_at_once(void**) {
  for_each_kind([](const char* name, Batch& batch) {
    Pair pair;
    assert_int_equal(write(pair.far(), "hello", 5), 5);
    Message out(3, 'x');
    Message in(16);
    const auto results = run_in_company(batch, {send_op(pair.fd(), out), receive_op(pair.fd(), in)});
    EXPECT(name, results[0] == 3);
    EXPECT(name, results[1] == 5 && std::memcmp(in.octets.data(), "hello", 5) == 0);
    char got[8] = {};
    EXPECT(name, read(pair.far(), got, sizeof got) == 3 && std::memcmp(got, "xxx", 3) == 0);
  });
}

void sends_on_one_socket_keep_their_order(void**) {
  for_each_kind([](const char* name, Batch& batch) {
    Pair pair;
    std::deque<Message> messages;
    std::vector<Batch::Op> ops;
    for (unsigned char i = 0; i < 100; ++i) ops.push_back(send_op(pair.fd(), messages.emplace_back(1, i)));
    batch.run(ops);
    std::array<unsigned char, 128> got{};
    EXPECT(name, read(pair.far(), got.data(), got.size()) == 100);
    for (unsigned char i = 0; i < 100; ++i) EXPECT(name, got[i] == i);
  });
}

void a_full_socket_takes_a_part_then_none(void**) {
  for_each_kind([](const char* name, Batch& batch) {
    int fds[2];
    tcp_pair(fds, [](int fd) {
      const int small = 16384;
      setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
    });
    const auto [near, far] = fds;
    Message big(64 << 20, 7);
    const ssize_t first = run_one(batch, send_op(near, big));
    EXPECT(name, first > 0 && first < (64 << 20));
    // The kernel moves what it took to the receiver meanwhile, so there may be room again for a few times.
    ssize_t result = first;
    std::size_t total = static_cast<std::size_t>(first);
    while (result > 0 && total < big.octets.size()) {
      result = run_one(batch, send_op(near, big));
      if (result > 0) total += static_cast<std::size_t>(result);
    }
    EXPECT(name, result == -EAGAIN);
    close(near);
    close(far);
  });
}

void closed_peers(void**) {
  for_each_kind([](const char* name, Batch& batch) {
    Pair pair;
    Message in(8);
    Message out(8);
    assert_int_equal(write(pair.far(), "ab", 2), 2);
    pair.close_far();
    EXPECT(name, run_one(batch, receive_op(pair.fd(), in)) == 2);
    EXPECT(name, run_one(batch, receive_op(pair.fd(), in)) == 0);
    EXPECT(name, run_one(batch, send_op(pair.fd(), out)) == -EPIPE);  // and no SIGPIPE
    Batch::Op alone[] = {send_op(pair.fd(), out)};
    batch.run(alone);
    EXPECT(name, alone[0].result == -EPIPE);
  });
}

void a_bad_fd_harms_nobody_else(void**) {
  for_each_kind([](const char* name, Batch& batch) {
    Pair pair;
    assert_int_equal(write(pair.far(), "abc", 3), 3);
    const int closed = fcntl(pair.fd(), F_DUPFD_CLOEXEC, 500);
    close(closed);
    int pipe_fds[2];
    assert_int_equal(pipe(pipe_fds), 0);
    Message a(8);
    Message b(8);
    Message c(8);
    const auto results =
        run_in_company(batch, {receive_op(closed, a), receive_op(pipe_fds[0], b), receive_op(pair.fd(), c)});
    EXPECT(name, results == (std::vector<ssize_t>{-EBADF, -ENOTSOCK, 3}));
    close(pipe_fds[0]);
    close(pipe_fds[1]);
  });
}

void an_unreadable_buffer_is_efault(void**) {
  for_each_kind([](const char* name, Batch& batch) {
    Pair pair;
    Message out(8);
    out.vector.iov_base = reinterpret_cast<void*>(std::uintptr_t{16});
    EXPECT(name, run_one(batch, send_op(pair.fd(), out)) == -EFAULT);
  });
}

// What the kernel writes into the msghdr comes back: the sender's address, the flags.
void datagrams_bring_their_address_and_flags(void**) {
  for_each_kind([](const char* name, Batch& batch) {
    const int receiver = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const int sender = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    sockaddr_in from = to;
    socklen_t size = sizeof to;
    assert_int_equal(bind(receiver, reinterpret_cast<sockaddr*>(&to), size), 0);
    assert_int_equal(bind(sender, reinterpret_cast<sockaddr*>(&from), size), 0);
    assert_int_equal(getsockname(receiver, reinterpret_cast<sockaddr*>(&to), &size), 0);
    assert_int_equal(getsockname(sender, reinterpret_cast<sockaddr*>(&from), &size), 0);
    Message out(20, 9);
    out.header.msg_name = &to;
    out.header.msg_namelen = sizeof to;
    EXPECT(name, run_one(batch, send_op(sender, out)) == 20);
    Message in(8);
    sockaddr_storage seen{};
    in.header.msg_name = &seen;
    in.header.msg_namelen = sizeof seen;
    EXPECT(name, run_one(batch, receive_op(receiver, in)) == 8);
    EXPECT(name, (in.header.msg_flags & MSG_TRUNC) != 0);
    EXPECT(name, in.header.msg_namelen == sizeof from);
    EXPECT(name, reinterpret_cast<sockaddr_in&>(seen).sin_port == from.sin_port);
    close(receiver);
    close(sender);
  });
}

void scattered_and_gathered(void**) {
  for_each_kind([](const char* name, Batch& batch) {
    Pair pair;
    std::array<char, 3> a{'a', 'b', 'c'};
    std::array<char, 2> b{'d', 'e'};
    iovec out_vectors[] = {{a.data(), a.size()}, {b.data(), 0}, {b.data(), b.size()}};
    Message out(0);
    out.header.msg_iov = out_vectors;
    out.header.msg_iovlen = 3;
    EXPECT(name, run_one(batch, send_op(pair.fd(), out)) == 5);
    std::array<char, 1> c{};
    std::array<char, 9> d{};
    iovec in_vectors[] = {{c.data(), c.size()}, {d.data(), d.size()}};
    Message in(0);
    in.header.msg_iov = in_vectors;
    in.header.msg_iovlen = 2;
    EXPECT(name, run_one(batch, receive_op(pair.far(), in)) == 5);
    EXPECT(name, c[0] == 'a' && std::memcmp(d.data(), "bcde", 4) == 0);
    EXPECT(name, in_vectors[0].iov_len == 1 && in_vectors[1].iov_len == 9);
  });
}

// The threads take turns; each is gone when the next one comes.
void any_thread_one_at_a_time(void**) {
  for_each_kind([](const char* name, Batch& batch) {
    Pair one;
    Pair two;
    for (unsigned char round = 0; round < 10; ++round) {
      bool good = false;
      std::thread([&] {
        Message out(4, round);
        Message in(4);
        const auto results = run_in_company(batch, {send_op(one.far(), out), receive_op(two.fd(), in)});
        good = results == std::vector<ssize_t>{4, -EAGAIN};
      }).join();
      EXPECT(name, good);
      Message in(8);
      EXPECT(name, run_one(batch, receive_op(one.fd(), in)) == 4 && in.octets[0] == std::byte{round});
    }
  });
}

void a_child_closes_without_harm(void**) {
  for_each_kind([](const char* name, Batch& batch) {
    Pair pair;
    const std::size_t rings = fds_named("[io_uring]").size();
    ewarp::test::in_child(name, [&] {
      batch.close_in_child();
      batch.close_in_child();
      const std::size_t left = fds_named("[io_uring]").size();
      return left + (rings > 0 && batch.name() == std::string_view("io_uring") ? 1 : 0) == rings ? kHolds : 1;
    });
    Message out(4);
    EXPECT(name, run_one(batch, send_op(pair.fd(), out)) == 4);
  });
}

void its_fd_is_high_and_given_back(void**) {
  const std::size_t before = fds_named("").size();
  auto batch = make_batch(true);
  for (const int fd : fds_named("[io_uring]")) assert_true(fd >= 256 && fcntl(fd, F_GETFD) == FD_CLOEXEC);
  batch.reset();
  assert_int_equal(fds_named("").size(), before);
}

bool works(Batch& batch) {
  Pair pair;
  Message out(4);
  Message in(4);
  return run_one(batch, send_op(pair.fd(), out)) == 4 && run_one(batch, receive_op(pair.far(), in)) == 4;
}

void refused_io_uring_leads_to_system_calls(void**) {
  const struct {
    const char* name;
    long call;
    int error;
    const char* says;
  } cases[] = {
      {"a kernel without it", SYS_io_uring_setup, ENOSYS, "no io_uring"},
      {"a sandbox", SYS_io_uring_setup, EPERM, "forbidden"},
      {"a sandbox that refuses its use", SYS_io_uring_enter, EPERM, "forbidden"},
  };
  for (const auto& c : cases) {
    ewarp::test::in_child(c.name, [&] {
      if (!ewarp::test::refuse({c.call}, c.error)) return 1;
      std::string why;
      const auto batch = make_batch(true, &why);
      if (batch->name() != std::string_view("system calls")) return 2;
      if (why.find(c.says) == std::string::npos) return 3;
      return works(*batch) ? kHolds : 4;
    });
  }
}

// The ring stops taking requests while it is in use: every op still gets its result, now and later.
void a_ring_that_fails_is_left_for_system_calls(void**) {
  std::string why;
  const auto batch = make_batch(true, &why);
  if (!why.empty()) {
    print_message("skipped: no ring here: %s\n", why.c_str());
    skip();
  }
  for (const int error : {EAGAIN, EPERM, ENOSYS})
    ewarp::test::in_child(strerror(error), [&] {
      // The mappings of a ring are not there in a child: it needs one of its own.
      const auto own = make_batch(true);
      if (!works(*own)) return 1;
      if (!ewarp::test::refuse({SYS_io_uring_enter}, error)) return 2;
      for (int i = 0; i < 3; ++i)
        if (!works(*own)) return 3;
      return own->name() == std::string_view("system calls") ? kHolds : 4;
    });
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(idle_sockets_say_eagain),
      cmocka_unit_test(nothing_stays_behind),
      cmocka_unit_test(each_gets_its_own),
      cmocka_unit_test(both_directions_at_once),
      cmocka_unit_test(sends_on_one_socket_keep_their_order),
      cmocka_unit_test(a_full_socket_takes_a_part_then_none),
      cmocka_unit_test(closed_peers),
      cmocka_unit_test(a_bad_fd_harms_nobody_else),
      cmocka_unit_test(an_unreadable_buffer_is_efault),
      cmocka_unit_test(datagrams_bring_their_address_and_flags),
      cmocka_unit_test(scattered_and_gathered),
      cmocka_unit_test(any_thread_one_at_a_time),
      cmocka_unit_test(a_child_closes_without_harm),
      cmocka_unit_test(its_fd_is_high_and_given_back),
      cmocka_unit_test(refused_io_uring_leads_to_system_calls),
      cmocka_unit_test(a_ring_that_fails_is_left_for_system_calls),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
