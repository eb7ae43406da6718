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
#include <string>
#include <utility>
#include <vector>

#include "llp/guarded_copy.h"
#include "tests/llp/tcp_pair.h"

namespace {

using namespace ewarp;
using namespace ewarp::llp;
using Outcome = LocalAgreement::Outcome;

std::size_t open_fds() {
  std::size_t n = 0;
  DIR* const dir = opendir("/proc/self/fd");
  while (readdir(dir) != nullptr) ++n;
  closedir(dir);
  return n;
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
  assert_int_equal(initiator->step(), Outcome::tcp);
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

// Another user's process: neither end agrees with it, nor waits for what it has put into its socket.
void another_user(void**) {
  if (geteuid() != 0) skip();
  for (const bool listens : {true, false}) {
    Connection c, slow;
    make_slow_to_close(slow.fds[0]);
    auto responder = listens ? LocalAgreement::listen(c.responder()) : nullptr;
    socklen_t size;
    const sockaddr_un name = name_of(c, &size);
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    const pid_t child = fork();
    if (child == 0) {
      if (setuid(65534) != 0) _exit(2);
      const int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
      if (listens) {
        if (connect(s, reinterpret_cast<const sockaddr*>(&name), size) != 0) _exit(3);
        if (!say(s, "x", slow.fds)) _exit(8);
        slow.close_both();
        if (write(ready[1], "x", 1) != 1) _exit(9);
        char octet;
        _exit(recv(s, &octet, 1, 0) <= 0 ? 0 : 4);  // it is shown the door
      }
      if (bind(s, reinterpret_cast<const sockaddr*>(&name), size) != 0 || listen(s, 1) != 0) _exit(5);
      if (write(ready[1], "x", 1) != 1) _exit(6);
      const int a = accept(s, nullptr, nullptr);
      char octet;
      _exit(recv(a, &octet, 1, 0) == 0 ? 0 : 7);
    }
    close(std::exchange(slow.fds[0], -1));
    char octet;
    assert_int_equal(read(ready[0], &octet, 1), 1);
    if (listens) {
      pollfd p{responder->fd(), POLLIN, 0};
      assert_int_equal(poll(&p, 1, 20'000), 1);
      const auto began = std::chrono::steady_clock::now();
      assert_int_equal(responder->step(), Outcome::tcp);
      assert_null(LocalAgreement::connect(c.initiator()).get());
      responder.reset();
      assert_true(std::chrono::steady_clock::now() - began < std::chrono::seconds(30));
    } else {
      assert_null(LocalAgreement::connect(c.initiator()).get());
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    close(ready[0]);
    close(ready[1]);
  }
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
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
