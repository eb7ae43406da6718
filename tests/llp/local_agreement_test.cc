// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Two ends of a TCP connection agree on shared memory, or both stay with TCP.
#include "llp/local_agreement.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "llp/guarded_copy.h"
#include "tests/llp/failing_threads.h"
#include "tests/llp/local_script.h"
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

bool readable(const LocalAgreement& a) {
  pollfd p{a.fd(), POLLIN, 0};
  return poll(&p, 1, 0) == 1;
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
  const test::LocalName name(c.initiator());
  const int squatter = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  assert_int_equal(bind(squatter, name.get(), name.size), 0);
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
      const int stranger = test::come(test::LocalName(c.initiator()));
      assert_true(stranger >= 0);
      const int files[2] = {stranger, stranger};
      assert_true(test::say(stranger, word, with_file ? std::span<const int>(files) : std::span<const int>()));
      assert_int_equal(responder->step(), Outcome::tcp);
      close(stranger);
    }
  assert_int_equal(open_fds(), before);
}

// The same answers where the initiator is the honest one.
void a_stranger_answers(void**) {
  for (const std::string word : {"x", "begin", "taken!", "EWARPLM1"}) {
    Connection c;
    const int stranger = test::wait_for_an_initiator(test::LocalName(c.initiator()));
    assert_true(stranger >= 0);
    auto initiator = LocalAgreement::connect(c.initiator());
    assert_non_null(initiator.get());
    const int accepted = accept4(stranger, nullptr, nullptr, SOCK_CLOEXEC);
    assert_int_equal(send(accepted, word.data(), word.size(), 0), word.size());
    assert_int_equal(initiator->step(), Outcome::tcp);
    close(accepted);
    close(stranger);
  }
}

// --- ends that stall, and others that come ---

// Once it has one; `more`: nothing has come for 20 s.
Outcome outcome_of(LocalAgreement& a) {
  for (;;) {
    if (const Outcome o = a.step(); o != Outcome::more) return o;
    pollfd p{a.fd(), POLLIN, 0};
    if (poll(&p, 1, 20'000) != 1) return Outcome::more;
  }
}

// Nobody comes, or somebody who then says nothing.
void an_initiator_that_says_nothing(void**) {
  const std::size_t before = open_fds();
  for (const bool comes : {false, true}) {
    Connection c;
    const test::LocalName name(c.initiator());
    auto responder = LocalAgreement::listen(c.responder());
    assert_non_null(responder.get());
    const int script = comes ? test::come(name) : -1;
    assert_int_equal(responder->step(), Outcome::more);
    assert_false(readable(*responder));
    assert_true(responder->give_up());
    assert_int_equal(responder->step(), Outcome::tcp);
    assert_int_equal(test::come(name), -1);
    if (!comes) continue;
    assert_true(test::is_shown_the_door(script));
    close(script);
  }
  assert_int_equal(open_fds(), before);
}

// Nobody lets it in, or somebody who then says nothing.
void a_responder_that_says_nothing(void**) {
  const std::size_t before = open_fds();
  for (const bool lets_it_in : {false, true}) {
    Connection c;
    const int door = test::wait_for_an_initiator(test::LocalName(c.initiator()));
    assert_true(door >= 0);
    auto initiator = LocalAgreement::connect(c.initiator());
    assert_non_null(initiator.get());
    const int script = lets_it_in ? accept4(door, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK) : -1;
    assert_int_equal(initiator->step(), Outcome::more);
    assert_false(readable(*initiator));
    assert_true(initiator->give_up());
    assert_int_equal(initiator->step(), Outcome::tcp);
    if (lets_it_in) {
      assert_string_equal(test::hear(script).c_str(), "EWARPLM1");
      assert_true(test::is_shown_the_door(script));
      assert_false(test::say(script, "taken"));  // too late
      close(script);
    }
    close(door);
  }
  assert_int_equal(open_fds(), before);
}

// The first to come is the initiator. Others, however many, find the door closed and wake nobody up.
void others_who_come(void**) {
  const std::size_t before = open_fds();
  for (const bool begins : {false, true}) {
    Connection c;
    const test::LocalName name(c.initiator());
    auto responder = LocalAgreement::listen(c.responder());
    auto initiator = LocalAgreement::connect(c.initiator());
    assert_true(responder != nullptr && initiator != nullptr);
    std::vector<int> others;
    for (int s = -1; others.size() < 100 && (s = test::come(name)) >= 0;) others.push_back(s);
    assert_in_range(others.size(), 1, 16);
    assert_int_equal(responder->step(), Outcome::more);
    for (const int s : others) {
      assert_true(test::is_shown_the_door(s));
      close(s);
    }
    assert_int_equal(test::come(name), -1);
    assert_false(readable(*responder));
    assert_int_equal(responder->step(), Outcome::more);
    assert_false(responder->give_up());
    if (begins)
      assert_int_equal(initiator->step(), Outcome::local);
    else
      assert_true(initiator->give_up());
    assert_true(readable(*responder));
    assert_int_equal(responder->step(), begins ? Outcome::local : Outcome::tcp);
  }
  assert_int_equal(open_fds(), before);
}

// Who knows the name of somebody else's connection takes the initiator's place: both ends stay with TCP.
void somebody_else_comes_first(void**) {
  const std::size_t before = open_fds();
  for (const bool initiator_waits : {false, true}) {
    Connection c;
    auto responder = LocalAgreement::listen(c.responder());
    assert_non_null(responder.get());
    const int other = test::come(test::LocalName(c.initiator()));
    assert_true(other >= 0);
    auto initiator = initiator_waits ? LocalAgreement::connect(c.initiator()) : nullptr;
    assert_int_equal(initiator != nullptr, initiator_waits);
    assert_int_equal(responder->step(), Outcome::more);
    if (initiator_waits)
      assert_int_equal(outcome_of(*initiator), Outcome::tcp);
    else
      assert_null(LocalAgreement::connect(c.initiator()).get());
    assert_false(readable(*responder));
    char octet = 0;
    assert_int_equal(send(c.initiator(), "x", 1, 0), 1);
    assert_int_equal(outcome_of(*responder), Outcome::tcp);
    assert_int_equal(recv(c.responder(), &octet, 1, 0), 1);
    assert_true(test::is_shown_the_door(other));
    close(other);
  }
  assert_int_equal(open_fds(), before);
}

// What is said behind the memory, all at once or when it has been taken. Until then the responder has to wait.
void behind_the_memory(void**) {
  const std::size_t before = open_fds();
  const struct {
    const char* word;
    bool with_file;
    Outcome outcome;
  } cases[] = {
      {"begin", false, Outcome::local},  {"begin", true, Outcome::tcp},    {"begi", false, Outcome::tcp},
      {"begin!", false, Outcome::tcp},   {"", false, Outcome::tcp},        {"taken", false, Outcome::tcp},
      {"EWARPLM1", false, Outcome::tcp}, {"EWARPLM1", true, Outcome::tcp},
  };
  for (const auto& k : cases)
    for (const bool at_once : {false, true}) {
      Connection c;
      auto responder = LocalAgreement::listen(c.responder());
      assert_non_null(responder.get());
      const int script = test::come(test::LocalName(c.initiator()));
      LocalMemory memory;
      int file = -1;
      assert_int_equal(LocalMemory::create(&memory, &file), 0);
      const std::span<const int> with_it(&file, 1), without;
      assert_true(test::say(script, "EWARPLM1", with_it));
      if (!at_once) {
        assert_int_equal(responder->step(), Outcome::more);
        assert_string_equal(test::hear(script).c_str(), "taken");
        assert_false(responder->give_up());
        assert_false(readable(*responder));
        assert_int_equal(responder->step(), Outcome::more);
      }
      assert_true(test::say(script, k.word, k.with_file ? with_it : without));
      assert_true(readable(*responder));
      assert_int_equal(responder->step(), k.outcome);
      close(file);
      close(script);
    }
  assert_int_equal(open_fds(), before);
}

// The right word with a file that is no memory; the memory behind the word.
void the_wrong_file(void**) {
  const std::size_t before = open_fds();
  int pipes[2], file = -1;
  LocalMemory memory;
  assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
  assert_int_equal(LocalMemory::create(&memory, &file), 0);
  const int unsealed = memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  assert_int_equal(ftruncate(unsealed, lseek(file, 0, SEEK_END)), 0);
  for (const int wrong : {pipes[0], pipes[1], unsealed, -1}) {
    Connection c;
    auto responder = LocalAgreement::listen(c.responder());
    assert_non_null(responder.get());
    const int script = test::come(test::LocalName(c.initiator()));
    assert_true(test::say(script, "EWARPLM1", std::span<const int>(&wrong, wrong >= 0 ? 1u : 0u)));
    assert_int_equal(responder->step(), Outcome::tcp);
    assert_false(test::say(script, "EWARPLM1", std::span<const int>(&file, 1)));
    assert_true(test::is_shown_the_door(script));
    close(script);
  }
  for (const int fd : {pipes[0], pipes[1], unsealed, file}) close(fd);
  assert_int_equal(open_fds(), before);
}

// --- processes that are stopped ---

// Ends with what body() returns.
template <class Body>
pid_t process_of(Body body) {
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child != 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // a test that fails leaves nobody behind who is stopped
  _exit(body());
}

void expect_stopped(pid_t child) {
  int status = 0;
  assert_int_equal(waitpid(child, &status, WUNTRACED), child);
  assert_true(WIFSTOPPED(status));
}

void expect_good_end(pid_t child) {
  int status = -1;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
}

// It goes on and ends well, or dies.
void let_go(pid_t child, bool dies) {
  assert_int_equal(kill(child, dies ? SIGKILL : SIGCONT), 0);
  if (!dies) return expect_good_end(child);
  int status = 0;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFSIGNALED(status));
}

bool say_by(Stream& stream, char octet) {
  const iovec v{&octet, 1};
  return stream.send(std::span(&v, 1)) == 1;
}

// The first octet that comes this way; 0: the end of the stream, '?': neither within 20 s.
char heard_by(Stream& stream) {
  char octet = 0;
  const iovec v{&octet, 1};
  for (;;) {
    const long n = stream.receive(std::span(&v, 1));
    if (n != -EAGAIN) return n == 1 ? octet : '\0';
    pollfd p{stream.fd(), POLLIN, 0};
    if (!stream.arm(true, false, true) && poll(&p, 1, 20'000) != 1) return '?';
  }
}
char heard_by(int tcp) {
  char octet = 0;
  pollfd p{tcp, POLLIN, 0};
  if (poll(&p, 1, 20'000) != 1) return '?';
  return recv(tcp, &octet, 1, MSG_DONTWAIT) == 1 ? octet : '\0';
}

enum class Stop { before_hello, behind_hello, behind_begin };

// The initiator, which stops itself there. It says by the way that was agreed on which way that is.
int initiate(const Connection& c, Stop where) {
  if (where == Stop::before_hello) raise(SIGSTOP);
  const auto initiator = LocalAgreement::connect(c.initiator());
  if (where == Stop::behind_hello) raise(SIGSTOP);
  const bool local = initiator != nullptr && outcome_of(*initiator) == Outcome::local;
  if (where == Stop::behind_begin) raise(SIGSTOP);
  if (!local) return send(c.initiator(), "t", 1, MSG_NOSIGNAL) == 1 ? 0 : 1;
  return say_by(*initiator->take(""), 'l') ? 0 : 1;
}

// A responder that has taken the memory waits, asleep, as it would for TCP; before, it goes on by TCP. When the
// initiator comes back, it goes the same way; it may die instead.
void an_initiator_that_is_stopped(void**) {
  const std::size_t before = open_fds();
  const struct {
    Stop where;
    bool taken;
  } cases[] = {
      {Stop::before_hello, false}, {Stop::behind_hello, false}, {Stop::behind_hello, true}, {Stop::behind_begin, true}};
  for (const auto& k : cases)
    for (const bool dies : {false, true}) {
      Connection c;
      auto responder = LocalAgreement::listen(c.responder());
      assert_non_null(responder.get());
      const pid_t child = process_of([&] { return initiate(c, k.where); });
      const bool has_begun = k.where == Stop::behind_begin;
      if (has_begun) assert_int_equal(outcome_of(*responder), Outcome::local);
      expect_stopped(child);
      const bool waits = k.taken && !has_begun;
      if (waits) assert_int_equal(responder->step(), Outcome::more);
      assert_int_equal(responder->give_up(), !waits);
      if (waits) {
        assert_false(readable(*responder));
        assert_int_equal(kill(child, dies ? SIGKILL : SIGCONT), 0);
        assert_int_equal(outcome_of(*responder), dies ? Outcome::tcp : Outcome::local);
      }
      const bool local = responder->step() == Outcome::local;
      assert_int_equal(local, has_begun || (waits && !dies));
      const auto stream = local ? responder->take("") : nullptr;
      responder.reset();
      let_go(child, dies);
      // Of one that has died TCP says nothing here: this process has its end, too.
      if (local)
        assert_int_equal(heard_by(*stream), dies ? '\0' : 'l');
      else if (!dies)
        assert_int_equal(heard_by(c.responder()), 't');
    }
  assert_int_equal(open_fds(), before);
}

// The responder, which stops itself when it listens, and maybe once more when it has taken the memory.
int respond(const Connection& c, bool takes) {
  auto responder = LocalAgreement::listen(c.responder());
  raise(SIGSTOP);
  if (responder == nullptr) return 2;
  if (takes) {
    pollfd p{responder->fd(), POLLIN, 0};
    if (poll(&p, 1, 20'000) != 1 || responder->step() != Outcome::more) return 3;
    raise(SIGSTOP);
  }
  const Outcome outcome = outcome_of(*responder);
  if (outcome == Outcome::local) return heard_by(*responder->take("")) == 'l' ? 0 : 4;
  return outcome == Outcome::tcp && heard_by(c.responder()) == 't' ? 0 : 5;
}

void a_responder_that_is_stopped(void**) {
  const std::size_t before = open_fds();
  for (const bool takes : {false, true})
    for (const bool dies : {false, true}) {
      Connection c;
      const pid_t child = process_of([&] { return respond(c, takes); });
      expect_stopped(child);
      auto initiator = LocalAgreement::connect(c.initiator());
      assert_non_null(initiator.get());
      if (takes) {
        assert_int_equal(kill(child, SIGCONT), 0);
        expect_stopped(child);
      } else {
        assert_int_equal(initiator->step(), Outcome::more);
        assert_false(readable(*initiator));
      }
      if (dies)
        let_go(child, true);
      else if (!takes)
        assert_true(initiator->give_up());
      const bool local = takes && !dies;
      assert_int_equal(outcome_of(*initiator), local ? Outcome::local : Outcome::tcp);
      const auto stream = local ? initiator->take("") : nullptr;
      initiator.reset();
      if (dies) continue;
      assert_true(local ? say_by(*stream, 'l') : send(c.initiator(), "t", 1, MSG_NOSIGNAL) == 1);
      let_go(child, false);
    }
  assert_int_equal(open_fds(), before);
}

// --- other users ---

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

// While it is there this process cannot open any more.
class NoDescriptors {
 public:
  NoDescriptors() {
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before_), 0);
    rlimit none = before_;
    none.rlim_cur = 3;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
  }
  ~NoDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

 private:
  rlimit before_{};
};

// He connects, with something in his socket that takes a minute to close as long as `slow` is there. False: there is
// nothing to connect to. No call waits for him, `short_of_descriptors` or not.
bool a_stranger_comes(Connection& slow, bool short_of_descriptors = false) {
  Connection c;
  auto responder = LocalAgreement::listen(c.responder());
  if (responder == nullptr) return false;
  make_slow_to_close(slow.fds[0]);
  const test::LocalName name(c.initiator());
  const pid_t child = another_users_process([&](int ready) {
    responder->close_in_child();  // or he would keep open what he waits for the end of
    const int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (connect(s, name.get(), name.size) != 0) return 3;
    if (!test::say(s, "x", slow.fds)) return 8;
    slow.close_both();
    if (write(ready, "x", 1) != 1) return 9;
    char octet;
    return recv(s, &octet, 1, 0) <= 0 ? 0 : 4;  // it is shown the door
  });
  close(std::exchange(slow.fds[0], -1));
  pollfd p{responder->fd(), POLLIN, 0};
  assert_int_equal(poll(&p, 1, 20'000), 1);
  const auto began = std::chrono::steady_clock::now();
  if (short_of_descriptors) {
    const NoDescriptors none;
    responder.reset();
  } else {
    assert_int_equal(responder->step(), Outcome::tcp);
  }
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
  const test::LocalName name(c.initiator());
  const pid_t child = another_users_process([&](int ready) {
    const int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (bind(s, name.get(), name.size) != 0 || listen(s, 1) != 0) return 5;
    if (write(ready, "x", 1) != 1) return 6;
    const int a = accept(s, nullptr, nullptr);
    char octet;
    return recv(a, &octet, 1, 0) == 0 ? 0 : 7;
  });
  assert_null(LocalAgreement::connect(c.initiator()).get());
  expect_good_end(child);
  expect_threads(before);
}

// Nor where there is no descriptor to show him the door by.
void another_user_and_no_descriptors(void**) {
  if (geteuid() != 0) skip();
  const std::size_t before = threads_before();
  Connection slow;
  assert_true(a_stranger_comes(slow, true));
  slow.close_both();
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
      cmocka_unit_test(an_initiator_that_says_nothing),
      cmocka_unit_test(a_responder_that_says_nothing),
      cmocka_unit_test(others_who_come),
      cmocka_unit_test(somebody_else_comes_first),
      cmocka_unit_test(behind_the_memory),
      cmocka_unit_test(the_wrong_file),
      cmocka_unit_test(an_initiator_that_is_stopped),
      cmocka_unit_test(a_responder_that_is_stopped),
      cmocka_unit_test(another_user),
      cmocka_unit_test(another_user_and_no_descriptors),
      cmocka_unit_test(another_user_comes_again_and_again),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
