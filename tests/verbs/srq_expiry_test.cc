// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A message that nobody posts a request for on a shared receive queue. rnr_wait_ms is short here, for all of this
// process.
#include "tests/vectors/waits.h"
#include "tests/verbs/srq_hub.h"

using namespace ewarp;
using namespace ewarp::wire;

namespace {

using namespace srq;

constexpr std::chrono::milliseconds kReceive{200};  // set in main()

// Holds: VRB-20
// The wait is over: that stream ends, the queue and the others do not.
void an_empty_queue_ends_only_that_stream(void**) {
  test::expect_to_last(kReceive, "an empty queue", [] {
    Hub hub(64);
    auto sides = make_sides(hub, 2);
    const auto begin = test::Clock::now();
    assert_true(send_message(*sides[0], 0, 5));
    hub.expect_event(IBV_EVENT_QP_REQ_ERR, Hub::kQpHandle);
    const auto passed = test::since(begin);
    hub.expect_event(IBV_EVENT_QP_LAST_WQE_REACHED, Hub::kQpHandle);
    assert_true(sides[0]->reaches(IBV_QPS_ERR));
    hub.post_all(0, 2);
    assert_true(send_message(*sides[1], 1, 0));
    assert_int_equal(hub.wait().status, IBV_WC_SUCCESS);
    hub.expect_no_event();
    return passed;
  });
}

}  // namespace

int main() {
  stop_at_first_failure();
  set_waits("500", std::to_string(kReceive.count()).c_str());
  const CMUnitTest tests[] = {
      cmocka_unit_test(an_empty_queue_ends_only_that_stream),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
