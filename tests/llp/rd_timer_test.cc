// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Timers, the congestion window, cookies and lanes: each alone.
#include "llp/rd/timer.h"

#include <cmath>

#include "llp/rd/congestion.h"
#include "llp/rd/cookie.h"
#include "llp/rd/lane.h"
#include "tests/vectors/vectors.h"

using namespace ewarp;
using namespace ewarp::test;
using namespace ewarp::llp::rd;

namespace {

bool is_about(Time t, double ms) {
  return std::abs(static_cast<double>(t) / 1e6 - ms) < 1e-4;
}

// Holds: RD-6
void worked_example(void**) {
  const Config config;
  RoundTrip r;
  int number_of_step = 0;
  for (const Json& step : load("datagram.json", "rto_example")) {
    const auto event = step.at("event").get<std::string>();
    if (event == "sample") r.sample(static_cast<Time>(std::llround(step.at("rtt_ms").get<double>() * 1e6)));
    if (event == "timeout") r.back_off(config);
    const std::string what = "step " + std::to_string(number_of_step++) + ", " + event;
    const auto agrees = [&](Time t, const char* key) { return is_about(t, step.at(key).get<double>()); };
    EXPECT(what, agrees(r.timeout(config), "rto_ms"));
    if (step.contains("srtt_ms")) EXPECT(what, agrees(r.smoothed(), "srtt_ms"));
    if (step.contains("rttvar_ms")) EXPECT(what, agrees(r.variation(), "rttvar_ms"));
  }
  r.progress();
  assert_true(is_about(r.timeout(config), 6.625391));
  for (int i = 0; i < 100; ++i) r.back_off(config);
  assert_int_equal(r.timeout(config), config.rto_max);
  RoundTrip fresh;
  assert_int_equal(fresh.timeout(internet_profile()), kSecond);
  fresh.sample(10 * kMillisecond);
  assert_int_equal(fresh.timeout(internet_profile()), kSecond);
}

// Holds: RD-8
void rnr_table(void**) {
  const Json table = load("datagram.json", "rnr_timer_ms");
  assert_int_equal(table.size(), 32);
  for (std::uint8_t code = 0; code < 32; ++code)
    EXPECT(std::to_string(code), is_about(rnr_time(code), table[code].get<double>()));
}

// Holds: RD-15
void congestion_window(void**) {
  const Config config;
  constexpr std::uint32_t kSegment = 1472;
  Congestion c;
  c.start(config, kSegment);
  assert_int_equal(c.window(), 10 * kSegment);
  Congestion jumbo;
  jumbo.start(config, 8972);
  assert_int_equal(jumbo.window(), 65536);  // ten would be more than 64 KiB
  Congestion far;
  far.start(internet_profile(), 8972);
  assert_int_equal(far.window(), 2 * 8972);

  c.acknowledged(kSegment, 10 * kSegment, kSegment);
  assert_int_equal(c.window(), 11 * kSegment);
  c.acknowledged(64 * kSegment, 11 * kSegment, kSegment);  // one acknowledgement counts for two segments at most
  assert_int_equal(c.window(), 13 * kSegment);
  c.acknowledged(kSegment, kSegment, kSegment);  // the window is not in use
  assert_int_equal(c.window(), 13 * kSegment);
  c.loss(12 * kSegment, kSegment);
  assert_int_equal(c.window(), 6 * kSegment);
  for (int i = 0; i < 5; ++i) c.acknowledged(kSegment, 6 * kSegment, kSegment);
  assert_int_equal(c.window(), 6 * kSegment);
  c.acknowledged(kSegment, 6 * kSegment, kSegment);  // a window's worth: one segment more
  assert_int_equal(c.window(), 7 * kSegment);
  c.timeout(7 * kSegment, kSegment);
  assert_int_equal(c.window(), kSegment);
  c.acknowledged(kSegment, kSegment, kSegment);  // slow start up to half of what was in flight
  assert_int_equal(c.window(), 2 * kSegment);
  c.loss(0, kSegment);
  assert_int_equal(c.window(), 2 * kSegment);  // never less
  Congestion idle;
  idle.start(config, kSegment);
  for (int i = 0; i < 10; ++i) idle.acknowledged(2 * kSegment, 1u << 20, kSegment);
  idle.idle(config, kSegment);
  assert_int_equal(idle.window(), 10 * kSegment);
}

// The reference implementation's first vectors: key 00..0f, input 00..n-1.
void siphash_vectors(void**) {
  static constexpr std::uint64_t kWant[] = {0x726fdb47dd0e0e31, 0x74f839c593dc67fd, 0x0d6c8009d9a94f5a,
                                            0x85676696d7fb7e2d, 0xcf2794e0277187b7, 0x18765564cd99a68d,
                                            0xcbc9466e58fee3ce, 0xab0200f58b01d137, 0x93f5f5799a932462};
  Bytes in;
  for (std::size_t n = 0; n < std::size(kWant); ++n) {
    assert_int_equal(siphash({0x0706050403020100, 0x0f0e0d0c0b0a0908}, in), kWant[n]);
    in.push_back(static_cast<std::byte>(n));
  }
}

void cookies(void**) {
  const CookieJar jar({1, 2});
  const Key who{{}, 1, 2, 3};
  Key other = who;
  other.ip[15] = std::byte{1};
  const Time now = 123 * kSecond;
  const std::uint64_t cookie = jar.make(now, who, 7, 99);
  assert_true(cookie != 0 && jar.good(now + 9 * kSecond, who, 7, 99, cookie));
  assert_false(jar.good(now + 21 * kSecond, who, 7, 99, cookie));
  assert_false(jar.good(now, other, 7, 99, cookie));
  assert_false(jar.good(now, who, 8, 99, cookie));
  assert_false(jar.good(now, who, 7, 98, cookie));
  assert_false(jar.good(now, who, 7, 99, 0));
  assert_false(CookieJar({1, 3}).good(now, who, 7, 99, cookie));
}

SendLane lane_of(std::uint32_t n) {
  SendLane lane;
  for (std::uint32_t i = 0; i < n; ++i) {
    Sent s;
    s.order = i + 1;
    s.octets = 100;
    lane.push(s);
  }
  return lane;
}

// Holds: RD-5
// docs/protocol/reliable-datagrams.md section 6.2: three further on, and sent later.
void losses_by_sack(void**) {
  SendLane lane = lane_of(6);
  Progress p;
  lane.sack(2, p);
  assert_int_equal(lane.detect_losses(), 0);  // two further on: may be reordering
  lane.sack(3, p);
  assert_int_equal(lane.detect_losses(), 1);  // segment 0
  assert_true(lane.at(0).lost && !lane.at(1).lost);
  assert_int_equal(lane.in_flight(), 300);
  assert_int_equal(lane.first_lost(), 0);
  lane.resent(0, 7);
  assert_int_equal(lane.in_flight(), 400);
  lane.sack(5, p);
  assert_int_equal(lane.detect_losses(), 2);  // segment 1; 0 was sent again after 5 was
  assert_false(lane.at(0).lost);
  assert_int_equal(p.newest, 6);
}

// Holds: RD-19
void timeout_loses_the_oldest_even_if_sacked(void**) {
  SendLane lane = lane_of(3);
  Progress p;
  lane.sack(0, p);
  lane.sack(2, p);
  assert_int_equal(lane.in_flight(), 100);
  lane.lose_all();
  assert_true(lane.at(0).lost && lane.at(1).lost && !lane.at(2).lost);
  assert_int_equal(lane.in_flight(), 0);
  lane.resent(0, 4);
  lane.resent(1, 5);
  Progress q;
  while (!lane.empty()) lane.pop(q);
  assert_int_equal(lane.in_flight(), 0);
  assert_false(lane.has_lost());
  assert_false(q.sample.has_value());  // Karn: the newest was sent twice
}

void samples_come_from_the_newest(void**) {
  SendLane lane;
  for (std::uint64_t i = 1; i <= 3; ++i) {
    Sent s;
    s.order = i;
    s.at = 10 * i;
    lane.push(s);
  }
  Progress p;
  lane.sack(2, p);
  assert_true(p.sample == Time{30});
  lane.pop(p);
  assert_true(p.sample == Time{30} && p.newest == 3);
}

// Holds: RD-4, RD-5
void sack_words(void**) {
  ReceiveLane lane;
  for (const std::uint32_t psn : {0x00000001u, 0xffffffffu}) {
    Held h;
    h.psn = psn;
    h.segment.resize(20);
    lane.insert(std::move(h));
  }
  const SackWords w = lane.words(0xfffffffe);  // DG-18
  assert_int_equal(w.count, 1);
  assert_int_equal(w.word[0], 0xa0000000);
  assert_true(lane.holds(1) && !lane.holds(0) && lane.find(0xffffffff) != nullptr);
  assert_int_equal(lane.cost(), 2 * (sizeof(Held) + 20));
  lane.erase(1);
  lane.erase(0xffffffff);
  assert_true(lane.empty() && lane.cost() == 0);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(worked_example),
                              cmocka_unit_test(rnr_table),
                              cmocka_unit_test(congestion_window),
                              cmocka_unit_test(siphash_vectors),
                              cmocka_unit_test(cookies),
                              cmocka_unit_test(losses_by_sack),
                              cmocka_unit_test(timeout_loses_the_oldest_even_if_sacked),
                              cmocka_unit_test(samples_come_from_the_newest),
                              cmocka_unit_test(sack_words)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
