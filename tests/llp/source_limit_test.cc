// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Limits for each source: who counts as one, and who shares an entry.
#include "llp/source_limit.h"

#include <arpa/inet.h>

#include <string>
#include <vector>

#include "llp/random_key.h"
#include "llp/udp_address.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

extern "C" {
#include <cmocka.h>
}

namespace {

using namespace ewarp::llp;

constexpr SipKey kKey = {1, 2}, kOtherKey = {3, 4};
constexpr std::uint64_t kNow = 5'000'000'000;

std::array<std::byte, 16> octets(const std::string& text) {
  in6_addr a;
  assert_int_equal(inet_pton(AF_INET6, text.c_str(), &a), 1);
  return octets_of(a);
}

std::array<std::byte, 16> host(unsigned n) {
  return octets("::ffff:10.1." + std::to_string(n / 256) + "." + std::to_string(n % 256));
}

void who_is_one(void**) {
  const auto same = [](const char* a, const char* b) { return source_of(octets(a)) == source_of(octets(b)); };
  assert_true(same("2001:db8::1", "2001:db8::ffff:0:0:1"));
  assert_false(same("2001:db8::1", "2001:db8:0:1::1"));
  assert_false(same("::ffff:10.0.0.1", "::ffff:10.0.0.2"));
  assert_true(source_of(octets("::ffff:10.0.0.1")) == octets("::ffff:10.0.0.1"));
  assert_true(source_of(octets("::1")) == octets("::"));
}

void a_limit_for_each(void**) {
  SourceLimit limit(kKey, 3, 8);
  for (const char* name : {"2001:db8::1", "2001:db8::2", "2001:db8::3"}) assert_true(limit.allow(octets(name), kNow));
  assert_false(limit.allow(octets("2001:db8::4"), kNow));
  assert_true(limit.allow(octets("2001:db8:0:1::4"), kNow));
  unsigned more = 0;
  for (unsigned n = 0; n < 100; ++n) more += limit.allow(host(n), kNow);
  assert_int_equal(more, 4);
  assert_true(limit.allow(octets("2001:db8::4"), kNow + 1'000'000'000));
}

// Those that silence `victim` by one datagram each, under this key.
std::vector<unsigned> neighbours(const SipKey& key, unsigned victim) {
  std::vector<unsigned> found;
  for (unsigned n = 0; n < 2048; ++n) {
    SourceLimit limit(key, 1);
    limit.allow(host(n), kNow);
    if (n != victim && !limit.allow(host(victim), kNow)) found.push_back(n);
  }
  return found;
}

// Who has found out, or computed, who shares an entry with whom in one process knows nothing of another.
void entries_depend_on_the_key(void**) {
  const auto here = neighbours(kKey, 77), there = neighbours(kOtherKey, 77);
  assert_in_range(here.size(), 1, 30);  // one in 256
  assert_in_range(there.size(), 1, 30);
  assert_true(here != there);
  assert_true(random_key() != random_key());
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(who_is_one),
      cmocka_unit_test(a_limit_for_each),
      cmocka_unit_test(entries_depend_on_the_key),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
