// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The state machines of an association, each alone.
#include "llp/rd/ack_due.h"
#include "llp/rd/association.h"
#include "llp/rd/barrier.h"
#include "tests/vectors/vectors.h"

namespace ewarp::test {
namespace {

using llp::rd::AckDue;
using llp::rd::Association;
using llp::rd::Barrier;

void what_may_follow_a_state(void**) {
  using enum Association::State;
  struct Edge {
    Association::State from, to;
  };
  constexpr Edge kEdges[] = {{closed, open_sent},       {closed, embryonic},      {embryonic, open_sent},
                             {open_sent, established},  {embryonic, established}, {established, close_sent},
                             {close_sent, established}, {open_sent, closed},      {embryonic, closed},
                             {established, closed},     {close_sent, closed}};
  constexpr Association::State kAll[] = {closed, open_sent, embryonic, established, close_sent};
  for (const auto from : kAll)
    for (const auto to : kAll) {
      bool listed = false;
      for (const Edge& e : kEdges) listed |= e.from == from && e.to == to;
      assert_int_equal(Association::allowed(from, to), listed);
    }
}

void a_bad_segment_that_ends_its_message(void**) {
  Barrier b;
  assert_false(b.blocks() || b.discards(true));
  b.raise(true);
  assert_true(b.blocks() && b.state() == Barrier::State::raised);
  b.report();
  assert_true(b.blocks() && b.state() == Barrier::State::reported);
  b.release();
  assert_false(b.blocks() || b.discards(false));
}

void the_rest_of_a_failed_message_is_thrown_away(void**) {
  Barrier b;
  b.raise(false);
  assert_false(b.discards(false));  // it waits, it is not discarded yet
  b.report();
  b.release();
  assert_false(b.blocks());
  assert_true(b.discards(false) && b.discards(false) && b.discards(true));
  assert_false(b.discards(false));
  b.raise(true);
  assert_true(b.blocks());
}

void data_carries_an_acknowledgement_but_no_refusal(void**) {
  AckDue a;
  a.segment(false, false);
  assert_false(a.at_once() || a.due());
  a.ask();
  a.carried();
  assert_false(a.due());
  a.refuse();
  a.ask();
  a.carried();
  assert_true(a.at_once() && a.due());
  assert_true(a.sent());
  assert_false(a.at_once() || a.due() || a.sent());
}

void an_acknowledgement_waits_once(void**) {
  AckDue a;
  assert_false(a.may_wait());
  a.ask();
  assert_true(a.may_wait());
  a.waits(true);
  assert_false(a.may_wait());
  a.waits(false);
  assert_true(a.may_wait());
}

void a_mark_is_echoed_three_times(void**) {
  AckDue a;
  a.segment(false, true);
  assert_true(a.at_once());
  assert_true(a.echo() && a.echo() && a.echo());
  assert_false(a.echo());
}

void a_path_is_lossy_for_200_acknowledgements(void**) {
  AckDue a;
  a.lost();
  for (int i = 0; i < 200; ++i) {
    assert_true(a.lossy());
    a.sent();
  }
  assert_false(a.lossy());
}

}  // namespace
}  // namespace ewarp::test

int main() {
  using namespace ewarp::test;
  const CMUnitTest tests[] = {cmocka_unit_test(what_may_follow_a_state),
                              cmocka_unit_test(a_bad_segment_that_ends_its_message),
                              cmocka_unit_test(the_rest_of_a_failed_message_is_thrown_away),
                              cmocka_unit_test(data_carries_an_acknowledgement_but_no_refusal),
                              cmocka_unit_test(an_acknowledgement_waits_once),
                              cmocka_unit_test(a_mark_is_echoed_three_times),
                              cmocka_unit_test(a_path_is_lossy_for_200_acknowledgements)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
