// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Calls that find no memory: an error of that call, and everything goes on when there is some again.
#include <cstdlib>
#include <new>

#include "tests/ofi/sides.h"

namespace {

// Of this thread.
thread_local bool no_memory = false;

}  // namespace

// In place of the C++ library's, also for the provider.
void* operator new(std::size_t n) {
  void* p = no_memory ? nullptr : std::malloc(n > 0 ? n : 1);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}
void operator delete(void* p) noexcept {
  std::free(p);
}
void operator delete(void* p, std::size_t) noexcept {
  std::free(p);
}

namespace ewarp::ofi::test {
namespace {

constexpr std::uint64_t kTag = 7;
constexpr int kMost = 100'000;  // far more than objects that are kept for the next use

// Posts until there is no memory; how many there are then.
template <class Post>
int post_until_refused(Post post) {
  no_memory = true;
  int posted = 0;
  long result = 0;
  while (posted < kMost && (result = post()) == 0) ++posted;
  no_memory = false;
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

}  // namespace

std::vector<CMUnitTest> memory_tests() {
  return {cmocka_unit_test(receives_without_memory), cmocka_unit_test(sends_without_memory)};
}

}  // namespace ewarp::ofi::test
