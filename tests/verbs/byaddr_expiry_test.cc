// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// RC queue pairs that are told a peer who does not come (docs/user/byaddr.md). The times are short here, for all of
// this process, so each case lets its time pass.
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "provider/engine/engine.h"
#include "provider/startup/pair_names.h"
#include "tests/vectors/waits.h"
#include "tests/verbs/raw_start_up.h"
#include "tests/wire/scene.h"

using namespace ewarp;
using namespace ewarp::wire;

namespace {

using namespace test::by_address;
using std::chrono::milliseconds;
using test::Clock;
using test::Side;

// Set in main().
constexpr milliseconds kBringUp{1000}, kRequest{400};

using Ended = std::vector<std::pair<std::uint64_t, int>>;

// A receive and two sends, which come back when nobody has answered for bring_up_timeout_ms since `begin`, and no
// sooner. False: it was much later, or the time was over before they were posted, as this program got no CPU: that says
// nothing if it is so by chance.
bool comes_back(Side& s, Clock::time_point begin) {
  assert_int_equal(s.receive({s.sge(0, 8)}), 0);
  for (const std::uint64_t id : {1, 2})
    assert_int_equal(s.send(IBV_WR_SEND, {s.sge(0, 8)}, 0, 0, IBV_SEND_SIGNALED, id), 0);
  const bool in_time = Clock::now() - begin < kBringUp;
  assert_int_equal(s.event(), IBV_EVENT_QP_FATAL);
  const auto passed = test::since(begin);
  assert_true(passed >= kBringUp);
  assert_true(s.reaches(IBV_QPS_ERR));
  Ended got;
  for (int i = 0; i < 3; ++i) {
    const ibv_wc wc = s.wait();
    got.emplace_back(wc.wr_id, wc.status);
  }
  std::sort(got.begin(), got.end());
  const Ended want = {{1, IBV_WC_RETRY_EXC_ERR}, {2, IBV_WC_WR_FLUSH_ERR}, {100, IBV_WC_WR_FLUSH_ERR}};
  if (in_time) assert_true(got == want);
  return in_time && passed <= test::kMuchLonger * kBringUp;
}

template <class Round>
void until_in_time(Round&& round) {
  for (int rounds = 1; !round(); ++rounds) assert_true(rounds < test::kWaits);
}

void nobody_there(void**) {
  Side warm(64);
  assert_int_equal(engine().start(), 0);  // what it opens stays
  const std::size_t before = test::open_files();
  for (const bool initiator : {true, false})
    until_in_time([&] {
      Side s(64);
      const auto begin = Clock::now();
      // A number of the other order whose port nobody has.
      up(s, initiator ? 0xff0000 | 1024 : 1025);
      return comes_back(s, begin);
    });
  // Two sides' event channels and what closes late.
  for (int i = 0; i < test::kPatience / 10 && test::open_files() > before + 5; ++i) poll(nullptr, 0, 10);
  assert_true(test::open_files() <= before + 5);
}

// The other QP exists, but never asks for this one, or asks for another.
void the_other_wants_somebody_else(void**) {
  for (const bool swapped : {false, true})
    until_in_time([&] {
      Side a(64), b(64), c(64);
      Side& asking = swapped ? b : a;
      Side& wanted = swapped ? a : b;
      up(wanted, number(c));
      const auto begin = Clock::now();
      up(asking, number(wanted));
      const bool in_time = comes_back(asking, begin);
      assert_int_equal(wanted.event(), IBV_EVENT_QP_FATAL);
      return in_time;
    });
}

// The initiator left after our Reply, and nobody else came.
void nobody_after_a_start_up_that_broke_off(void**) {
  for (const bool nonsense : {false, true})
    test::expect_to_last(kBringUp, nonsense ? "nonsense" : "an end", [nonsense] {
      Side s(64);
      const std::uint32_t peer = 1025;  // smaller, so s waits for it
      const auto begin = Clock::now();
      up(s, peer);
      const int fd = connect_raw(number(s));
      request(fd, verbs::PairNames{number(s), peer, 0}.emit());
      answer(fd);
      if (nonsense) assert_int_equal(send(fd, "\0\0\0\0\0\0\0\0\0\0\0\0", 12, MSG_NOSIGNAL), 12);
      close(fd);
      assert_int_equal(s.event(), IBV_EVENT_QP_FATAL);
      const auto passed = test::since(begin);
      assert_true(s.reaches(IBV_QPS_ERR));
      return passed;
    });
}

// A connection without a Request.
void no_request(void**) {
  Side s(64);
  up(s, 1025);
  test::expect_to_last(kRequest, "a connection without a Request", [&s] {
    const auto begin = Clock::now();
    const int fd = connect_raw(number(s));
    assert_int_equal(answer(fd), 'C');
    const auto passed = test::since(begin);
    close(fd);
    return passed;
  });
}

}  // namespace

int main() {
  stop_at_first_failure();
  set_waits("500", "300");
  setenv("ETHERWARP_BRING_UP_TIMEOUT_MS", std::to_string(kBringUp.count()).c_str(), 1);
  setenv("ETHERWARP_REQUEST_TIMEOUT_MS", std::to_string(kRequest.count()).c_str(), 1);
  const CMUnitTest tests[] = {
      cmocka_unit_test(nobody_there),
      cmocka_unit_test(the_other_wants_somebody_else),
      cmocka_unit_test(nobody_after_a_start_up_that_broke_off),
      cmocka_unit_test(no_request),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
