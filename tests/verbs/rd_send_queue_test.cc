// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The send queue of RD between a poster and the engine, each a thread of its own.
#include "provider/verbs/rd/send_queue.h"

#include <thread>

#include "../vectors/vectors.h"

using namespace ewarp;
using namespace ewarp::verbs;

namespace {

// As small as can be, so that a request may be complete before its poster has returned: the queue asserts that there
// are never more free places than places.
void a_request_is_complete_before_its_post_returns(void**) {
  constexpr int kRequests = 200'000;
  RdSendQueue queue;
  assert_true(queue.create(1, 1, 0));
  const llp::rd::Key peer{};
  std::thread engine([&] {
    for (int done = 0; done < kRequests;) {
      RdSend* s = queue.arrange();
      if (s == nullptr) {
        std::this_thread::yield();
        continue;
      }
      queue.start(peer);
      queue.release(*s);
      ++done;
    }
  });
  for (int posted = 0; posted < kRequests;) {
    ibv_send_wr wr{}, *bad = nullptr;
    const int rc = queue.post(true, &wr, &bad, [&](const ibv_send_wr&, std::uint32_t slot) {
      queue.at(slot).peer = peer;
      return 0;
    });
    if (rc == 0)
      ++posted;
    else
      std::this_thread::yield();
  }
  engine.join();
  assert_true(queue.empty());
  assert_null(queue.arrange());
}

// Deeper than a power of two, with a peer for nearly each slot. Lines come by bucket, and in one by age: where they are
// spread over many buckets, a younger one comes before an older one often.
void a_line_for_each_of_many_peers(void**) {
  constexpr std::uint32_t kDepth = 1025, kPeers = 1000;
  RdSendQueue queue;
  assert_true(queue.create(kDepth, 1, 0));
  const auto peer = [](std::uint32_t n) { return llp::rd::Key{{}, 1, n, 7}; };
  for (std::uint32_t n = 0; n < kDepth; ++n) {
    ibv_send_wr wr{}, *bad = nullptr;
    assert_int_equal(queue.post(true, &wr, &bad,
                                [&](const ibv_send_wr&, std::uint32_t slot) {
                                  queue.at(slot).peer = peer(n % kPeers);
                                  queue.at(slot).wr_id = n;
                                  return 0;
                                }),
                     0);
    assert_non_null(queue.arrange());
  }
  std::uint32_t lines = 0, before = 0, younger_first = 0;
  queue.each_line([&](const RdSend& s) {
    ++lines;
    younger_first += s.peer.remote_qpn < before ? 1u : 0u;
    before = s.peer.remote_qpn;
  });
  assert_int_equal(lines, kPeers);
  assert_in_range(younger_first, kPeers / 4, kPeers);
  for (std::uint32_t n = 0; n < kPeers; ++n) {
    for (std::uint32_t id = n; id < kDepth; id += kPeers) {
      RdSend* s = queue.first(peer(n));
      assert_non_null(s);
      assert_int_equal(s->wr_id, id);
      queue.start(peer(n));
      queue.release(*s);
    }
    assert_null(queue.first(peer(n)));
  }
  assert_true(queue.empty());
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(a_request_is_complete_before_its_post_returns),
                              cmocka_unit_test(a_line_for_each_of_many_peers)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
