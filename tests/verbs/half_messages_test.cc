// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Which half messages stand still, look by look: no clock is asked. Queue pairs and peers: srq_expiry_test.cc.
#include "provider/verbs/half_messages.h"

#include "tests/vectors/vectors.h"

using namespace ewarp;
using verbs::Standstill;

namespace {

using Half = std::optional<rdmap::HalfMessage>;

// At which look it is found to stand still, if the message is `half` at look n; 0: at none of so many.
template <class Message>
unsigned found_at(Standstill& still, Message half, unsigned looks = 100) {
  for (unsigned n = 1; n <= looks; ++n)
    if (still.look(half(n))) return n;
  return 0;
}
template <class Message>
unsigned found_at(Message half) {
  Standstill still;
  return found_at(still, half);
}

constexpr unsigned kFound = Standstill::kLooks + 1;  // the first look sees it, and has nothing to compare with

void what_stands_still(void**) {
  assert_int_equal(found_at([](unsigned) { return Half({7, 40}); }), kFound);
  // Octet by octet, or as much as it can without moving on.
  assert_int_equal(found_at([](unsigned n) { return Half({7, n}); }), kFound);
  assert_int_equal(found_at([](unsigned n) {
                     return Half({7, n * ((Standstill::kLeast - 1) / (kFound - 1))});
                   }),
                   kFound);
}

void what_moves_on(void**) {
  assert_int_equal(found_at([](unsigned) { return Half(); }), 0);
  assert_int_equal(found_at([](unsigned n) { return Half({7, n * Standstill::kLeast}); }), 0);
  assert_int_equal(found_at([](unsigned n) { return Half({7, n / Standstill::kLooks * Standstill::kLeast}); }), 0);
  // Message after message, each as far as the one before.
  assert_int_equal(found_at([](unsigned n) { return Half({n / Standstill::kLooks, 40}); }), 0);
  assert_int_equal(found_at([](unsigned n) { return n % Standstill::kLooks == 0 ? Half() : Half({7, 40}); }), 0);
}

void what_moved_on_once_has_all_the_time_again(void**) {
  assert_int_equal(found_at([](unsigned n) { return Half({7, n < 4 ? 40 : Standstill::kLeast + 40}); }), 3 + kFound);
  Standstill still;
  const auto stands = [](unsigned) { return Half({7, 40}); };
  assert_int_equal(found_at(still, stands, kFound - 1), 0);
  still.forget();
  assert_int_equal(found_at(still, stands), kFound);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(what_stands_still),
      cmocka_unit_test(what_moves_on),
      cmocka_unit_test(what_moved_on_once_has_all_the_time_again),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
