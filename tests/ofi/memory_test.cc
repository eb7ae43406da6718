// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Calls that find no memory: an error of that call, and everything goes on when there is some again.
#include <dlfcn.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>

#include "tests/ofi/sides.h"

namespace {

thread_local bool no_memory = false;  // of this thread
// Larger blocks cannot be had, by this thread or by any; but for the verbs provider, which waits for memory.
constexpr std::size_t kAny = SIZE_MAX;
thread_local std::size_t largest_block_here = kAny;
std::atomic<std::size_t> largest_block{kAny};

bool is_patient(const void* caller) {
  Dl_info module{};
  return dladdr(caller, &module) != 0 && std::strstr(module.dli_fname, "libetherwarp-rdmav") != nullptr;
}

void* allocate(std::size_t n, const void* caller) {
  const bool refused = no_memory || ((n > largest_block_here || n > largest_block) && !is_patient(caller));
  void* p = refused ? nullptr : std::malloc(n > 0 ? n : 1);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}

}  // namespace

// In place of the C++ library's, also for the provider.
[[gnu::noinline]] void* operator new(std::size_t n) {
  return allocate(n, __builtin_return_address(0));
}
[[gnu::noinline]] void* operator new[](std::size_t n) {
  return allocate(n, __builtin_return_address(0));
}
[[gnu::noinline]] void operator delete(void* p) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete[](void* p) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete[](void* p, std::size_t) noexcept {
  std::free(p);
}

namespace ewarp::ofi::test {
namespace {

constexpr std::uint64_t kTag = 7;
constexpr int kMost = 100'000;  // far more than objects that are kept for the next use

// Posts until there is no memory; how many there are then.
template <class Post>
int post_until_refused(Post post) {
  largest_block_here = 0;
  int posted = 0;
  long result = 0;
  while (posted < kMost && (result = post()) == 0) ++posted;
  largest_block_here = kAny;
  assert_int_equal(result, -FI_ENOMEM);
  return posted;
}

void receives_without_memory(void**) {
  Pair p;
  char octet = 1, sink = 0;
  const int posted = post_until_refused([&] { return fi_trecv(p.b.ep, &sink, 1, nullptr, p.to_a, kTag, 0, nullptr); });
  MUST(fi_trecv(p.b.ep, &sink, 1, nullptr, p.to_a, kTag, 0, nullptr));
  for (int i = 0; i <= posted; ++i) {
    MUST(fi_tsend(p.a.ep, &octet, 1, nullptr, p.to_b, kTag, nullptr));
    p.a.sent();
    p.b.received();
  }
  assert_true(p.b.quiet(p.b.receive_queue));
}

void sends_without_memory(void**) {
  Pair p;
  char octet = 1, sink = 0;
  // They wait for the connection, which begins with the first of them.
  MUST(fi_tsend(p.a.ep, &octet, 1, nullptr, p.to_b, kTag, nullptr));
  MUST(fi_trecv(p.b.ep, &sink, 1, nullptr, p.to_a, kTag, 0, nullptr));
  p.a.sent();
  p.b.received();
  // Synchronous ones, so that each takes an object until it is received.
  const iovec v{&octet, 1};
  const fi_msg_tagged m{&v, nullptr, 1, p.to_b, kTag, 0, nullptr, 0};
  const int posted = post_until_refused([&] { return fi_tsendmsg(p.a.ep, &m, FI_MATCH_COMPLETE | FI_COMPLETION); });
  // Where the receiver reads, a send needs a region; without memory for it, it ends with an error of its own.
  int failed = 0;
  for (fi_cq_tagged_entry entry; fi_cq_read(p.a.send_queue, &entry, 1) == -FI_EAVAIL; ++failed)
    assert_int_equal(p.a.failure(p.a.send_queue).err, FI_ENOMEM);
  MUST(fi_tsendmsg(p.a.ep, &m, FI_MATCH_COMPLETE | FI_COMPLETION));
  for (int i = 0; i <= posted - failed; ++i) {
    MUST(fi_trecv(p.b.ep, &sink, 1, nullptr, p.to_a, kTag, 0, nullptr));
    p.b.received();
    p.a.sent();
  }
}

// One message from a to b, so that they are connected.
void connect(Pair& p) {
  char octet = 1, sink = 0;
  MUST(fi_tsend(p.a.ep, &octet, 1, nullptr, p.to_b, kTag, nullptr));
  MUST(fi_trecv(p.b.ep, &sink, 1, nullptr, p.to_a, kTag, 0, nullptr));
  p.a.sent();
  p.b.received();
}

// Nothing is under way that would tell when there is memory again.
void a_send_that_found_no_memory_goes_when_there_is_some(void**) {
  Pair p;
  connect(p);
  Bytes octets = pattern(1, 5000), sink(5000);  // more than goes inline
  MUST(fi_trecv(p.b.ep, sink.data(), sink.size(), nullptr, p.to_a, kTag, 0, nullptr));
  largest_block = 1024;
  const ssize_t posted = fi_tsend(p.a.ep, octets.data(), octets.size(), nullptr, p.to_b, kTag, nullptr);
  fi_cq_tagged_entry entry{};
  const ssize_t read = fi_cq_read(p.a.send_queue, &entry, 1);
  largest_block = kAny;
  assert_int_equal(posted, 0);
  assert_int_equal(read, -FI_EAGAIN);
  p.a.sent();
  p.b.received();
  assert_true(sink == octets);
}

// Its peer does not miss that.
void close_without_memory(bool nobody_has_any) {
  Pair p;
  connect(p);
  char sink = 0;
  MUST(fi_trecv(p.b.ep, &sink, 1, nullptr, p.to_a, kTag, 0, nullptr));
  largest_block = 0;
  no_memory = nobody_has_any;
  const int closed = fi_close(&p.a.ep->fid);
  no_memory = false;
  largest_block = kAny;
  p.a.ep = nullptr;
  assert_int_equal(closed, 0);
  assert_int_equal(p.b.failure(p.b.receive_queue).err, FI_ECONNRESET);
}

void an_endpoint_closes_without_memory(void**) {
  close_without_memory(false);
}

// The verbs provider waits for memory, in vain.
void an_endpoint_closes_where_nobody_has_memory(void**) {
  close_without_memory(true);
}

// Whoever notices it: the thread of the provider, or that of the program.
void a_peer_ends_while_there_is_no_memory(void**) {
  Pair p;
  connect(p);
  char sink = 0;
  MUST(fi_trecv(p.b.ep, &sink, 1, nullptr, p.to_a, kTag, 0, nullptr));
  largest_block = 0;
  MUST(fi_close(&p.a.ep->fid));
  p.a.ep = nullptr;
  const int failed = p.b.failure(p.b.receive_queue).err;
  largest_block = kAny;
  assert_int_equal(failed, FI_ECONNRESET);
}

// What it has by then is read first. Larger blocks are for the queue alone.
void a_queue_that_cannot_grow_is_overrun(void**) {
  Pair p;
  const fi_addr_t self = p.b.insert(p.b);
  std::uint64_t word = 1, in = 0;
  largest_block_here = 8192;
  int sent = 0;
  for (; sent < 1000; ++sent) {
    MUST(fi_trecv(p.b.ep, &in, sizeof in, nullptr, self, kTag, 0, nullptr));
    MUST(fi_tinject(p.b.ep, &word, sizeof word, self, kTag));
  }
  largest_block_here = kAny;
  fi_cq_tagged_entry entry{};
  int read = 0;
  while (fi_cq_read(p.b.receive_queue, &entry, 1) == 1) ++read;
  assert_in_range(read, 1, sent - 1);
  for (int i = 0; i < 2; ++i) {  // it stays so
    assert_int_equal(fi_cq_read(p.b.receive_queue, &entry, 1), -FI_EAVAIL);
    assert_int_equal(p.b.failure(p.b.receive_queue).err, FI_EOVERRUN);
  }
}

}  // namespace

std::vector<CMUnitTest> memory_tests() {
  return {cmocka_unit_test(receives_without_memory),
          cmocka_unit_test(sends_without_memory),
          cmocka_unit_test(a_send_that_found_no_memory_goes_when_there_is_some),
          cmocka_unit_test(an_endpoint_closes_without_memory),
          cmocka_unit_test(an_endpoint_closes_where_nobody_has_memory),
          cmocka_unit_test(a_peer_ends_while_there_is_no_memory),
          cmocka_unit_test(a_queue_that_cannot_grow_is_overrun)};
}

}  // namespace ewarp::ofi::test
