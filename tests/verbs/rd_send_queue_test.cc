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

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(a_request_is_complete_before_its_post_returns)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
