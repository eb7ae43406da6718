// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The stream through shared memory: what it shares with TCP's, its bells, and what a peer can do to it.
#include "llp/local_stream.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "../vectors/vectors.h"
#include "llp/guarded_copy.h"

namespace {

using namespace ewarp;
using namespace ewarp::llp;
using Bytes = std::vector<std::byte>;

// Two ends in one process, and the memory between them as a peer that does what it likes would see it.
struct Pair {
  Pair() {
    assert_true(install_copy_guard());
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    LocalMemory mine, theirs;
    assert_int_equal(LocalMemory::create(&mine, &memory_fd), 0);
    assert_int_equal(LocalMemory::adopt(memory_fd, &theirs), 0);
    assert_int_equal(LocalMemory::adopt(memory_fd, &forged), 0);
    a = local_stream(fds[0], std::move(mine), true, "a");
    b = local_stream(fds[1], std::move(theirs), false, "b");
    a_fd = fds[0];
  }
  ~Pair() { close(memory_fd); }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;
  std::unique_ptr<Stream> a, b;
  LocalMemory forged;
  int a_fd = -1, memory_fd = -1;
};

Bytes pattern(std::size_t n, unsigned seed = 1) {
  Bytes octets(n);
  std::minstd_rand random(seed);
  std::generate(octets.begin(), octets.end(), [&] { return static_cast<std::byte>(random() >> 8); });
  return octets;
}

long send(Stream& s, const Bytes& octets) {
  const iovec v{const_cast<std::byte*>(octets.data()), octets.size()};
  return s.send(std::span(&v, 1));
}

// Everything that is there, at most so much; a negative result as it is.
long receive(Stream& s, Bytes* octets, std::size_t most) {
  octets->resize(most);
  const iovec v{octets->data(), most};
  const long n = s.receive(std::span(&v, 1));
  octets->resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  return n;
}

bool rings(const Stream& s) {
  pollfd p{s.fd(), POLLIN, 0};
  return poll(&p, 1, 0) == 1;
}

void octets_arrive_in_order(void**) {
  Pair p;
  Bytes got;
  assert_int_equal(receive(*p.b, &got, 100), -EAGAIN);
  assert_int_equal(p.b->ready(), POLLOUT);
  std::minstd_rand random(7);
  // Both ways, across the end of the ring many times, by several vectors of every length.
  for (Stream* from : {p.a.get(), p.b.get()}) {
    Stream* const to = from == p.a.get() ? p.b.get() : p.a.get();
    const Bytes all = pattern(8 * kLocalRing);
    std::size_t sent = 0, taken = 0;
    while (taken < all.size()) {
      std::array<iovec, 5> vectors;
      std::size_t at = sent, asked = 0;
      for (iovec& v : vectors) {
        v = {const_cast<std::byte*>(all.data() + at), std::min<std::size_t>(random() % 30'000, all.size() - at)};
        at += v.iov_len;
        asked += v.iov_len;
      }
      if (asked > 0)
        if (const long n = from->send(vectors); n > 0) sent += static_cast<std::size_t>(n);
      Bytes parts[3] = {Bytes(random() % 5), Bytes(random() % 9'000), Bytes(random() % 70'000 + 1)};
      std::array<iovec, 3> into;
      for (std::size_t i = 0; i < 3; ++i) into[i] = {parts[i].data(), parts[i].size()};
      long n = to->receive(into);
      assert_true(n > 0 || (n == -EAGAIN && taken == sent));
      for (const Bytes& part : parts) {
        const std::size_t some = n < 0 ? 0 : std::min<std::size_t>(part.size(), static_cast<std::size_t>(n));
        assert_memory_equal(part.data(), all.data() + taken, some);
        taken += some;
        n -= static_cast<long>(some);
      }
    }
    assert_int_equal(taken, sent);
  }
}

void a_full_ring_takes_no_more(void**) {
  Pair p;
  const Bytes octets = pattern(kLocalRing + 100);
  assert_int_equal(send(*p.a, octets), kLocalRing);
  assert_int_equal(send(*p.a, octets), -EAGAIN);
  assert_int_equal(p.a->ready(), 0);
  Bytes got;
  assert_int_equal(receive(*p.b, &got, 10), 10);
  assert_int_equal(p.a->ready(), 0);  // too little to come back for
  assert_int_equal(send(*p.a, octets), 10);
  assert_int_equal(receive(*p.b, &got, kLocalRing / 4), kLocalRing / 4);
  assert_int_equal(p.a->ready(), POLLOUT);
}

// A bell for who sleeps, and none for who does not.
void bells(void**) {
  Pair p;
  Bytes got;
  assert_int_equal(send(*p.a, pattern(8)), 8);
  assert_false(rings(*p.b));
  assert_true(p.b->arm(true, false, true));  // something is there: no sleep
  assert_int_equal(receive(*p.b, &got, 100), 8);
  assert_false(p.b->arm(true, false, true));
  assert_false(rings(*p.b));
  assert_int_equal(send(*p.a, pattern(8)), 8);
  assert_true(rings(*p.b));
  assert_int_equal(send(*p.a, pattern(8)), 8);  // one bell is enough
  assert_true(rings(*p.b));
  assert_int_equal(receive(*p.b, &got, 100), 16);
  assert_false(p.b->arm(true, false, true));  // takes the bell
  assert_false(rings(*p.b));
  // While another one sleeps, its bell stays, and there will be others.
  assert_int_equal(send(*p.a, pattern(8)), 8);
  assert_int_equal(receive(*p.b, &got, 100), 8);
  for (int i = 0; i < 200; ++i) assert_int_equal(p.b->ready(), POLLOUT);
  assert_false(p.b->arm(true, false, false));
  assert_true(rings(*p.b));
  assert_int_equal(send(*p.a, pattern(8)), 8);
  assert_int_equal(receive(*p.b, &got, 100), 8);
  // Who waits for nothing is not woken.
  assert_false(p.b->arm(false, false, true));
  assert_int_equal(send(*p.a, pattern(8)), 8);
  assert_false(rings(*p.b));
  assert_int_equal(p.b->watched_for(true, true), POLLIN);
  assert_int_equal(p.b->watched_for(false, true), POLLIN);
  assert_int_equal(p.b->watched_for(false, false), 0);
}

void a_bell_for_room(void**) {
  Pair p;
  Bytes got;
  assert_true(p.a->arm(false, true, true));
  assert_int_equal(send(*p.a, pattern(kLocalRing)), kLocalRing);
  assert_false(p.a->arm(false, true, true));
  assert_int_equal(receive(*p.b, &got, 1000), 1000);
  assert_false(rings(*p.a));  // not for so little
  assert_int_equal(receive(*p.b, &got, kLocalRing / 4), kLocalRing / 4);
  assert_true(rings(*p.a));
  assert_int_equal(p.a->ready(), POLLOUT);
  assert_true(p.a->arm(false, true, true));
  assert_false(rings(*p.a));
}

void half_close(void**) {
  Pair p;
  Bytes got;
  assert_false(p.b->arm(true, false, true));
  assert_int_equal(send(*p.a, pattern(50)), 50);
  assert_int_equal(p.b->peer_end(), PeerEnd::open);
  p.a->half_close();
  assert_int_equal(p.b->peer_end(), PeerEnd::ended);
  assert_int_equal(p.a->peer_end(), PeerEnd::open);
  assert_true(rings(*p.b));
  assert_int_equal(p.b->ready(), POLLIN | POLLOUT);
  assert_int_equal(receive(*p.b, &got, 30), 30);
  assert_int_equal(receive(*p.b, &got, 30), 20);
  assert_int_equal(receive(*p.b, &got, 30), 0);
  // The other direction goes on.
  assert_int_equal(send(*p.b, pattern(60)), 60);
  assert_int_equal(receive(*p.a, &got, 100), 60);
  p.b->half_close();
  assert_int_equal(receive(*p.a, &got, 100), 0);
}

// It has closed or died; what it wrote before arrives.
void the_peer_is_gone(void**) {
  for (const bool ends : {false, true}) {
    Pair p;
    Bytes got;
    assert_int_equal(send(*p.a, pattern(50)), 50);
    assert_false(p.b->arm(false, false, true));
    if (ends)
      p.a->end();
    else
      p.a->close();
    assert_int_equal(p.b->peer_end(), PeerEnd::ended);
    assert_int_equal(receive(*p.b, &got, 100), 50);
    long n = 0;
    for (int i = 0; i < 1000 && (n = receive(*p.b, &got, 100)) == -EAGAIN;) ++i;
    assert_int_equal(n, 0);
    // As by TCP, some may be sent before it is found out.
    for (int i = 0; i < 10'000 && (n = send(*p.b, pattern(50))) != -EPIPE; p.b->ready()) ++i;
    assert_int_equal(n, -EPIPE);
    if (!ends) assert_int_equal(receive(*p.a, &got, 10), -EBADF);
  }
}

// It polls a full ring that nobody reads any more.
void the_peer_dies_before_a_full_ring(void**) {
  Pair p;
  assert_int_equal(send(*p.a, pattern(kLocalRing)), kLocalRing);
  assert_int_equal(p.a->peer_end(), PeerEnd::open);
  assert_int_equal(p.b->peer_end(), PeerEnd::open);
  p.b->close();
  assert_int_equal(p.a->peer_end(), PeerEnd::ended);
  assert_int_equal(p.b->peer_end(), PeerEnd::ended);
  for (int i = 0; i < 1000 && p.a->ready() == 0;) ++i;
  assert_int_equal(p.a->ready(), POLLIN | POLLOUT);
  assert_int_equal(send(*p.a, pattern(1)), -EPIPE);
}

void memory_that_is_not_there(void**) {
  Pair p;
  auto* page = static_cast<std::byte*>(mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  Bytes octets = pattern(100), got;
  const std::array<iovec, 2> from = {iovec{octets.data(), 100}, iovec{page, 10}};
  assert_int_equal(p.a->send(from), -EFAULT);
  assert_int_equal(receive(*p.b, &got, 1000), -EAGAIN);  // nothing was taken
  assert_int_equal(send(*p.a, octets), 100);
  Bytes first(40), last(100);
  const std::array<iovec, 3> into = {iovec{first.data(), 40}, iovec{page, 10}, iovec{last.data(), 100}};
  assert_int_equal(p.b->receive(into), 40);
  assert_int_equal(p.b->receive(std::span(into).subspan(1)), -EFAULT);
  assert_int_equal(p.b->receive(std::span(into).subspan(2)), 60);  // what was meant for it is still there
  assert_memory_equal(last.data(), octets.data() + 40, 60);
  munmap(page, 4096);
}

// Words of the rings that no honest peer writes: the stream ends, and nothing beyond the rings is touched.
void a_peer_that_lies(void**) {
  const std::uint64_t lies[] = {kLocalRing + 101, ~std::uint64_t{0}, std::uint64_t{1} << 63, 99};
  for (const std::uint64_t lie : lies) {
    Pair p;
    Bytes got;
    assert_int_equal(send(*p.a, pattern(100)), 100);
    p.b->ready();  // it has seen those
    p.forged.ring(true).written = lie;
    for (int i = 0; i < 3; ++i) assert_int_equal(receive(*p.b, &got, 2 * kLocalRing), -ECONNRESET);
    assert_int_equal(p.b->ready() & POLLIN, POLLIN);
  }
  for (const std::uint64_t lie : {std::uint64_t{kLocalRing + 1}, ~std::uint64_t{0}, std::uint64_t{9}}) {
    Pair p;
    Bytes got;
    assert_int_equal(send(*p.a, pattern(kLocalRing)), kLocalRing);
    assert_int_equal(receive(*p.b, &got, 10), 10);
    p.a->ready();
    p.forged.ring(true).read = lie;
    assert_int_equal(send(*p.a, pattern(kLocalRing)), -ECONNRESET);
    assert_int_equal(p.a->ready() & POLLOUT, POLLOUT);
  }
}

// Nobody can take the memory away, but a peer can empty it, which is a lie like others.
void a_peer_that_empties_the_memory(void**) {
  Pair p;
  Bytes got;
  assert_int_equal(send(*p.a, pattern(kLocalRing)), kLocalRing);
  assert_int_equal(receive(*p.b, &got, 10), 10);
  p.a->ready();  // it has seen those
  assert_int_equal(ftruncate(p.memory_fd, 0), -1);
  assert_int_equal(ftruncate(p.memory_fd, 1 << 30), -1);
  const off_t whole = lseek(p.memory_fd, 0, SEEK_END);
  assert_int_equal(fallocate(p.memory_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, whole), 0);
  assert_int_equal(receive(*p.b, &got, 100), -ECONNRESET);
  assert_int_equal(send(*p.a, pattern(kLocalRing)), -ECONNRESET);
  assert_int_equal(p.a->ready() & POLLOUT, POLLOUT);
  assert_int_equal(p.b->ready() & POLLIN, POLLIN);
}

// Words that change all the time, to what may be and what may not be: whatever is made of them, nothing beyond the
// rings and the caller's memory is touched, and no call lasts.
void a_peer_that_scribbles(void**) {
  Pair p;
  std::atomic<bool> stop{false};
  std::thread scribbler([&] {
    std::minstd_rand random(11);
    while (!stop)
      for (const bool from_a : {false, true}) {
        LocalRing& ring = p.forged.ring(from_a);
        const std::uint64_t base = random() % 3 == 0 ? std::uint64_t{random()} << 32 : 0;
        ring.written = base + random() % (2 * kLocalRing);
        ring.read = base + random() % (2 * kLocalRing);
        ring.ended = random() % 64 == 0;
        ring.wants_data = random() % 2 == 0;
        ring.wants_room = random() % 2 == 0;
      }
  });
  constexpr std::size_t kMost = 5'000;
  constexpr std::byte kGuard{0x5a};
  const Bytes octets = pattern(kLocalRing + 1);
  unsigned wrong = 0, moved = 0;
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(300);
  for (int i = 0; i < 200'000 && std::chrono::steady_clock::now() < until; ++i)
    for (Stream* const s : {p.a.get(), p.b.get()}) {
      Bytes into(kMost + 64, kGuard);
      const iovec v{into.data(), kMost};
      const long n = s->receive(std::span(&v, 1));
      if (n > static_cast<long>(kMost) || (n < 0 && n != -EAGAIN && n != -ECONNRESET)) ++wrong;
      // What did not come is untouched.
      const auto came = into.begin() + (n > 0 ? n : 0);
      if (!std::all_of(came, into.end(), [](std::byte b) { return b == kGuard; })) ++wrong;
      const Bytes some(octets.begin(), octets.begin() + 1 + i % 30'000);
      const long m = send(*s, some);
      if (m > static_cast<long>(some.size()) || m == 0 || (m < 0 && m != -EAGAIN && m != -ECONNRESET)) ++wrong;
      s->ready();
      s->arm(true, true, i % 2 == 0);
      moved += n > 0 || m > 0 ? 1u : 0u;
    }
  stop = true;
  scribbler.join();
  assert_int_equal(wrong, 0);
  assert_true(moved > 0);
}

// Bells for nothing wake nobody for ever.
void a_peer_that_rings(void**) {
  Pair p;
  const int b = p.b->fd();
  assert_false(p.b->arm(true, false, true));
  for (int i = 0; i < 10; ++i) assert_int_equal(::send(p.a_fd, "xxx", 3, 0), 3);
  for (int i = 0; i < 100; ++i) assert_false(p.b->arm(true, false, true));
  pollfd f{b, POLLIN, 0};
  assert_int_equal(poll(&f, 1, 0), 0);
}

void only_whole_memory_is_adopted(void**) {
  LocalMemory theirs;
  int pipes[2];
  assert_int_equal(pipe(pipes), 0);
  assert_int_not_equal(LocalMemory::adopt(pipes[0], &theirs), 0);
  close(pipes[0]);
  close(pipes[1]);
  assert_int_equal(LocalMemory::adopt(-1, &theirs), EBADF);
  LocalMemory mine;
  int fd = -1;
  assert_int_equal(LocalMemory::create(&mine, &fd), 0);
  assert_int_equal(ftruncate(fd, 0), -1);
  assert_int_equal(errno, EPERM);
  constexpr int kAll = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  const off_t whole = lseek(fd, 0, SEEK_END);
  std::vector<char> octets(static_cast<std::size_t>(whole));
  assert_int_equal(pread(fd, octets.data(), octets.size(), 0), whole);
  const struct {
    off_t octets;
    int seals;
    bool has_head;
    int verdict;
  } forged[] = {
      {whole, kAll, true, 0},
      {4096, kAll, true, EPROTO},
      {0, kAll, false, EPROTO},
      {whole, 0, true, EPROTO},
      {whole, F_SEAL_SHRINK, true, EPROTO},
      {whole, F_SEAL_SHRINK | F_SEAL_GROW, true, EPROTO},
      {whole, F_SEAL_SHRINK | F_SEAL_SEAL, true, EPROTO},
      {whole, F_SEAL_GROW | F_SEAL_SEAL, true, EPROTO},
      {whole, kAll, false, EPROTO},
  };
  for (const auto& f : forged) {
    const int file = memfd_create("forged", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(file, f.octets), 0);
    if (f.has_head) assert_int_equal(pwrite(file, octets.data(), static_cast<std::size_t>(f.octets), 0), f.octets);
    assert_int_equal(fcntl(file, F_ADD_SEALS, f.seals), 0);
    LocalMemory adopted;
    assert_int_equal(LocalMemory::adopt(file, &adopted), f.verdict);
    close(file);
  }
  assert_int_equal(LocalMemory::adopt(fd, &theirs), 0);
  close(fd);
}

void so_many_and_no_more(void**) {
  std::vector<LocalMemory> all(kMostLocalMemories);
  int fd = -1;
  for (LocalMemory& m : all) {
    assert_int_equal(LocalMemory::create(&m, &fd), 0);
    close(fd);
  }
  LocalMemory further;
  assert_int_equal(LocalMemory::create(&further, &fd), ENOSPC);
  all.pop_back();
  assert_int_equal(LocalMemory::create(&further, &fd), 0);
  assert_int_equal(LocalMemory::adopt(fd, &all[0]), ENOSPC);
  close(fd);
}

bool is_mapped(const std::string& name) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    if (line.find(name) != std::string::npos) return true;
  return false;
}

// The child has neither the memory nor, once it is closed, the socket; the parent goes on.
void a_forked_child(void**) {
  Pair p;
  assert_true(is_mapped("memfd:etherwarp-local"));
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    if (is_mapped("memfd:etherwarp-local")) _exit(2);
    p.a->close();
    p.b->close();
    p.forged = {};
    Bytes got;
    _exit(receive(*p.b, &got, 10) == -EBADF && send(*p.a, pattern(5)) == -EBADF && p.a->ready() != 0 ? 0 : 1);
  }
  int status = -1;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  Bytes got;
  assert_int_equal(send(*p.a, pattern(5)), 5);
  assert_int_equal(receive(*p.b, &got, 10), 5);
}

// Two threads, each asleep whenever there is nothing to do: no octet and no bell is lost.
void sleepers(void**) {
  Pair p;
  constexpr std::size_t kAll = 64 << 20;
  const auto wait = [](Stream& s, bool reads, bool writes) {
    if (s.arm(reads, writes, true)) return;
    pollfd f{s.fd(), POLLIN, 0};
    if (poll(&f, 1, 60'000) != 1) std::abort();
  };
  std::thread writer([&] {
    const Bytes octets = pattern(50'021);
    std::minstd_rand random(3);
    for (std::size_t sent = 0; sent < kAll;) {
      const std::size_t at = sent % octets.size();
      const iovec v{const_cast<std::byte*>(octets.data()) + at,
                    std::min<std::size_t>({octets.size() - at, kAll - sent, random() % 20'000 + 1})};
      const long n = p.a->send(std::span(&v, 1));
      if (n == -EAGAIN)
        wait(*p.a, false, true);
      else
        sent += static_cast<std::size_t>(n);
    }
    p.a->half_close();
  });
  const Bytes octets = pattern(50'021);
  std::size_t taken = 0;
  bool right = true;
  for (long n = 1; n != 0;) {
    Bytes got;
    n = receive(*p.b, &got, 9'999);
    if (n == -EAGAIN) {
      wait(*p.b, true, false);
      continue;
    }
    assert_true(n >= 0);
    for (std::size_t i = 0; i < got.size(); ++i) right &= got[i] == octets[(taken + i) % octets.size()];
    taken += got.size();
  }
  writer.join();
  assert_int_equal(taken, kAll);
  assert_true(right);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(octets_arrive_in_order),
      cmocka_unit_test(a_full_ring_takes_no_more),
      cmocka_unit_test(bells),
      cmocka_unit_test(a_bell_for_room),
      cmocka_unit_test(half_close),
      cmocka_unit_test(the_peer_is_gone),
      cmocka_unit_test(the_peer_dies_before_a_full_ring),
      cmocka_unit_test(memory_that_is_not_there),
      cmocka_unit_test(a_peer_that_lies),
      cmocka_unit_test(a_peer_that_empties_the_memory),
      cmocka_unit_test(a_peer_that_scribbles),
      cmocka_unit_test(a_peer_that_rings),
      cmocka_unit_test(only_whole_memory_is_adopted),
      cmocka_unit_test(so_many_and_no_more),
      cmocka_unit_test(a_forked_child),
      cmocka_unit_test(sleepers),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
