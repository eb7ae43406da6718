// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Two ends of a TCP connection agree on shared memory, or both stay with TCP.
#include "llp/local_agreement.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "llp/guarded_copy.h"
#include "tests/llp/failing_threads.h"
#include "tests/llp/tcp_pair.h"

namespace {

using namespace ewarp;
using namespace ewarp::llp;
using Outcome = LocalAgreement::Outcome;

// For comparing only.
std::size_t entries_of(const char* directory) {
  std::size_t n = 0;
  DIR* const dir = opendir(directory);
  while (readdir(dir) != nullptr) ++n;
  closedir(dir);
  return n;
}
std::size_t open_fds() {
  return entries_of("/proc/self/fd");
}
std::size_t threads() {
  return entries_of("/proc/self/task");
}

struct Connection {
  Connection() {
    assert_true(install_copy_guard());
    test::tcp_pair(fds, [](int) {});
  }
  ~Connection() { close_both(); }
  void close_both() {
    for (int& fd : fds)
      if (fd >= 0) close(std::exchange(fd, -1));
  }
  int initiator() const { return fds[0]; }
  int responder() const { return fds[1]; }
  int fds[2] = {-1, -1};
};

// Two files with it, if any.
bool say(int socket, const std::string& word, const int* files) {
  iovec v{const_cast<char*>(word.data()), word.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(2 * sizeof(int))> control{};
  msghdr m{};
  m.msg_iov = &v;
  m.msg_iovlen = 1;
  if (files != nullptr) {
    m.msg_control = control.data();
    m.msg_controllen = control.size();
    cmsghdr* const h = CMSG_FIRSTHDR(&m);
    h->cmsg_level = SOL_SOCKET;
    h->cmsg_type = SCM_RIGHTS;
    h->cmsg_len = CMSG_LEN(2 * sizeof(int));
    std::memcpy(CMSG_DATA(h), files, 2 * sizeof(int));
  }
  return sendmsg(socket, &m, MSG_NOSIGNAL) == static_cast<ssize_t>(word.size());
}

bool readable(const LocalAgreement& a) {
  pollfd p{a.fd(), POLLIN, 0};
  return poll(&p, 1, 0) == 1;
}

// The responder's name, as docs/protocol/local.md has it, of a connection over IPv4.
sockaddr_un name_of(const Connection& c, socklen_t* size) {
  std::string name = "etherwarp-local-";
  for (const int fd : c.fds) {
    sockaddr_in in{};
    socklen_t n = sizeof in;
    getsockname(fd, reinterpret_cast<sockaddr*>(&in), &n);
    char text[64];
    std::snprintf(text, sizeof text, "00000000000000000000ffff%08x%04x", ntohl(in.sin_addr.s_addr), ntohs(in.sin_port));
    name += text;
  }
  sockaddr_un a{};
  a.sun_family = AF_UNIX;
  std::copy(name.begin(), name.end(), a.sun_path + 1);
  *size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return a;
}

void in_three_steps(void**) {
  const std::size_t before = open_fds();
  {
    Connection c;
    auto responder = LocalAgreement::listen(c.responder());
    assert_non_null(responder.get());
    assert_false(readable(*responder));
    assert_int_equal(responder->step(), Outcome::more);
    auto initiator = LocalAgreement::connect(c.initiator());
    assert_non_null(initiator.get());
    assert_int_equal(initiator->step(), Outcome::more);
    assert_true(readable(*responder));
    assert_int_equal(responder->step(), Outcome::more);
    assert_true(readable(*initiator));
    assert_int_equal(initiator->step(), Outcome::local);
    c.close_both();  // the initiator's word comes before the end of TCP
    assert_true(readable(*responder));
    assert_int_equal(responder->step(), Outcome::local);
    auto a = initiator->take("one"), b = responder->take("other");
    initiator.reset();
    responder.reset();
    assert_string_equal(a->peer().c_str(), "one");
    for (Stream* from : {a.get(), b.get()}) {
      Stream* const to = from == a.get() ? b.get() : a.get();
      std::array<char, 6> octets = {"hello"}, got{};
      const iovec out{octets.data(), 6}, in{got.data(), 6};
      assert_int_equal(from->send(std::span(&out, 1)), 6);
      assert_int_equal(to->receive(std::span(&in, 1)), 6);
      assert_string_equal(got.data(), "hello");
    }
  }
  assert_int_equal(open_fds(), before);
}

void nobody_listens(void**) {
  Connection c;
  assert_null(LocalAgreement::connect(c.initiator()).get());
  assert_null(LocalAgreement::connect(-1).get());
  assert_null(LocalAgreement::listen(-1).get());
}

// Somebody else has the name: the responder does not consent.
void the_name_is_taken(void**) {
  Connection c;
  socklen_t size;
  const sockaddr_un name = name_of(c, &size);
  const int squatter = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  assert_int_equal(bind(squatter, reinterpret_cast<const sockaddr*>(&name), size), 0);
  assert_null(LocalAgreement::listen(c.responder()).get());
  close(squatter);
  assert_non_null(LocalAgreement::listen(c.responder()).get());
}

// The initiator's first octets came by TCP.
void the_initiator_speaks_by_tcp(void**) {
  for (const bool connects : {false, true}) {
    Connection c;
    auto responder = LocalAgreement::listen(c.responder());
    auto initiator = connects ? LocalAgreement::connect(c.initiator()) : nullptr;
    if (connects) {
      initiator->give_up();
      assert_int_equal(initiator->step(), Outcome::tcp);
    }
    assert_int_equal(send(c.initiator(), "x", 1, 0), 1);
    assert_int_equal(responder->step(), Outcome::tcp);
    assert_int_equal(responder->step(), Outcome::tcp);
  }
}

void the_initiator_gives_up(void**) {
  for (const bool taken : {false, true}) {
    Connection c;
    auto responder = LocalAgreement::listen(c.responder());
    auto initiator = LocalAgreement::connect(c.initiator());
    if (taken) assert_int_equal(responder->step(), Outcome::more);
    initiator->give_up();
    assert_true(readable(*responder));
    assert_int_equal(responder->step(), Outcome::tcp);
    // TCP is as it was.
    char octet = 0;
    assert_int_equal(send(c.initiator(), "x", 1, 0), 1);
    assert_int_equal(recv(c.responder(), &octet, 1, 0), 1);
  }
}

void the_responder_leaves(void**) {
  Connection c;
  auto responder = LocalAgreement::listen(c.responder());
  auto initiator = LocalAgreement::connect(c.initiator());
  responder.reset();
  assert_true(readable(*initiator));
  const int watched = initiator->fd();
  assert_int_equal(initiator->step(), Outcome::tcp);
  // Who watches it has to be able to say that he does no more.
  assert_int_equal(initiator->fd(), watched);
  assert_true(fcntl(watched, F_GETFD) >= 0);
}

// Words that nobody of ours says, with and without descriptors, of which none stays open.
void a_stranger_says_something(void**) {
  const std::size_t before = open_fds();
  for (const std::string word : {"", "x", "EWARPLM2", "begin", "taken", "EWARPLM1", "a word that is much too long"})
    for (const bool with_file : {false, true}) {
      Connection c;
      auto responder = LocalAgreement::listen(c.responder());
      socklen_t size;
      const sockaddr_un name = name_of(c, &size);
      const int stranger = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
      assert_int_equal(connect(stranger, reinterpret_cast<const sockaddr*>(&name), size), 0);
      const int files[2] = {stranger, stranger};
      assert_true(say(stranger, word, with_file ? files : nullptr));
      assert_int_equal(responder->step(), Outcome::tcp);
      close(stranger);
    }
  assert_int_equal(open_fds(), before);
}

// The same answers where the initiator is the honest one.
void a_stranger_answers(void**) {
  for (const std::string word : {"x", "begin", "taken!", "EWARPLM1"}) {
    Connection c;
    socklen_t size;
    const sockaddr_un name = name_of(c, &size);
    const int stranger = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(stranger, reinterpret_cast<const sockaddr*>(&name), size), 0);
    assert_int_equal(listen(stranger, 1), 0);
    auto initiator = LocalAgreement::connect(c.initiator());
    assert_non_null(initiator.get());
    const int accepted = accept4(stranger, nullptr, nullptr, SOCK_CLOEXEC);
    assert_int_equal(send(accepted, word.data(), word.size(), 0), word.size());
    assert_int_equal(initiator->step(), Outcome::tcp);
    close(accepted);
    close(stranger);
  }
}

// The last close() of this TCP socket takes a minute: its octets are never read.
void make_slow_to_close(int fd) {
  const std::vector<char> octets(1 << 16);
  while (send(fd, octets.data(), octets.size(), MSG_NOSIGNAL | MSG_DONTWAIT) > 0) continue;
  const linger minute{1, 60};
  assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &minute, sizeof minute), 0);
  assert_int_equal(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK), 0);
}

// A process of another user's, which calls body(ready) and ends with what that returns. Returns when the body has
// written an octet to `ready`.
template <class Body>
pid_t another_users_process(Body body) {
  int ready[2];
  assert_int_equal(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) _exit(setuid(65534) == 0 ? body(ready[1]) : 2);
  close(ready[1]);
  char octet;
  assert_int_equal(read(ready[0], &octet, 1), 1);
  close(ready[0]);
  return child;
}

// With the first thread a sanitizer starts one of its own.
std::size_t threads_before() {
  std::thread([] {}).join();
  return threads();
}

// Those that waited for a close() have ended.
void expect_threads(std::size_t n) {
  for (int i = 0; i < 20'000 && threads() > n; ++i) poll(nullptr, 0, 1);
  assert_int_equal(threads(), n);
}

void expect_good_end(pid_t child) {
  int status = -1;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
}

// He connects, with something in his socket that takes a minute to close as long as `slow` is there. False: there is
// nothing to connect to. No call waits for him.
bool a_stranger_comes(Connection& slow) {
  Connection c;
  auto responder = LocalAgreement::listen(c.responder());
  if (responder == nullptr) return false;
  make_slow_to_close(slow.fds[0]);
  socklen_t size;
  const sockaddr_un name = name_of(c, &size);
  const pid_t child = another_users_process([&](int ready) {
    const int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (connect(s, reinterpret_cast<const sockaddr*>(&name), size) != 0) return 3;
    if (!say(s, "x", slow.fds)) return 8;
    slow.close_both();
    if (write(ready, "x", 1) != 1) return 9;
    char octet;
    return recv(s, &octet, 1, 0) <= 0 ? 0 : 4;  // it is shown the door
  });
  close(std::exchange(slow.fds[0], -1));
  pollfd p{responder->fd(), POLLIN, 0};
  assert_int_equal(poll(&p, 1, 20'000), 1);
  const auto began = std::chrono::steady_clock::now();
  assert_int_equal(responder->step(), Outcome::tcp);
  assert_null(LocalAgreement::connect(c.initiator()).get());
  responder.reset();
  assert_true(std::chrono::steady_clock::now() - began < std::chrono::seconds(30));
  expect_good_end(child);
  return true;
}

// Another user's process: neither end agrees with it, nor waits for what it has put into its socket.
void another_user(void**) {
  if (geteuid() != 0) skip();
  const std::size_t before = threads_before();
  Connection slow, c;
  assert_true(a_stranger_comes(slow));
  slow.close_both();
  expect_threads(before);
  socklen_t size;
  const sockaddr_un name = name_of(c, &size);
  const pid_t child = another_users_process([&](int ready) {
    const int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (bind(s, reinterpret_cast<const sockaddr*>(&name), size) != 0 || listen(s, 1) != 0) return 5;
    if (write(ready, "x", 1) != 1) return 6;
    const int a = accept(s, nullptr, nullptr);
    char octet;
    return recv(a, &octet, 1, 0) == 0 ? 0 : 7;
  });
  assert_null(LocalAgreement::connect(c.initiator()).get());
  expect_good_end(child);
  expect_threads(before);
}

// Sixteen of his connections at once, then nobody listens or connects.
std::size_t strangers_that_come(std::vector<std::unique_ptr<Connection>>& slow) {
  std::size_t came = 0;
  for (int i = 0; i < 40; ++i) {
    slow.push_back(std::make_unique<Connection>());
    came += a_stranger_comes(*slow.back()) ? 1 : 0;
  }
  return came;
}

// Last: where there are no threads, his connections stay open for good.
void another_user_comes_again_and_again(void**) {
  if (geteuid() != 0) skip();
  constexpr std::size_t kMost = 16;
  const std::size_t before = threads_before();
  std::vector<std::unique_ptr<Connection>> slow;
  assert_int_equal(strangers_that_come(slow), kMost);
  assert_in_range(threads(), before, before + kMost);
  slow.clear();
  expect_threads(before);

  const std::size_t files = open_fds();
  const test::NoThreads none;
  assert_int_equal(strangers_that_come(slow), kMost);
  slow.clear();
  assert_int_equal(open_fds(), files + kMost);
  Connection c;
  assert_null(LocalAgreement::listen(c.responder()).get());
  assert_null(LocalAgreement::connect(c.initiator()).get());
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(in_three_steps),
      cmocka_unit_test(nobody_listens),
      cmocka_unit_test(the_name_is_taken),
      cmocka_unit_test(the_initiator_speaks_by_tcp),
      cmocka_unit_test(the_initiator_gives_up),
      cmocka_unit_test(the_responder_leaves),
      cmocka_unit_test(a_stranger_says_something),
      cmocka_unit_test(a_stranger_answers),
      cmocka_unit_test(another_user),
      cmocka_unit_test(another_user_comes_again_and_again),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
