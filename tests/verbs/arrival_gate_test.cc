// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Which device a datagram is for, by interfaces that the test makes up.
#include "provider/verbs/ud/arrival_gate.h"

#include <arpa/inet.h>

#include <deque>
#include <string>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

extern "C" {
#include <cmocka.h>
}

namespace ewarp::test {
namespace {

using verbs::ArrivalGate;
using verbs::KnownInterfaces;
using Clock = KnownInterfaces::Clock;

constexpr unsigned kLo = 1, kEth0 = 2, kEth1 = 3;

std::vector<llp::Interface> host;
unsigned looks = 0;
bool can_look = true;
std::deque<std::pair<Clock::time_point, std::function<void()>>> asked;

std::optional<std::vector<llp::Interface>> look() {
  ++looks;
  return can_look ? std::optional(host) : std::nullopt;
}

bool later(Clock::time_point when, std::function<void()> task) {
  asked.emplace_back(when, std::move(task));
  return true;
}

// What was asked for is done, by the thread that may wait.
void do_what_was_asked() {
  assert_int_equal(asked.size(), 1);
  const auto task = std::move(asked.front().second);
  asked.clear();
  task();
}

// Interfaces that were looked at, and a gate.
struct Scene {
  KnownInterfaces known{look, later};
  ArrivalGate gate{known};
  Scene() { known.look(); }
};

llp::Address own(const char* text, unsigned prefix, unsigned scope = 0) {
  llp::Address a;
  a.prefix_length = prefix;
  auto& v4 = reinterpret_cast<sockaddr_in&>(a.address);
  auto& v6 = reinterpret_cast<sockaddr_in6&>(a.address);
  if (inet_pton(AF_INET, text, &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    return a;
  }
  assert_int_equal(inet_pton(AF_INET6, text, &v6.sin6_addr), 1);
  v6.sin6_family = AF_INET6;
  v6.sin6_scope_id = scope;
  return a;
}

llp::Interface interface(unsigned index, std::vector<llp::Address> addresses) {
  llp::Interface i;
  i.index = index;
  i.up = i.running = true;
  i.loopback = index == kLo;
  i.addresses = std::move(addresses);
  return i;
}

llp::UdpArrival arrival(const std::string& to, unsigned by) {
  llp::UdpArrival a;
  const std::string text = to.find(':') == std::string::npos ? "::ffff:" + to : to;
  assert_int_equal(inet_pton(AF_INET6, text.c_str(), &a.to), 1);
  a.interface = by;
  return a;
}

int set_up(void**) {
  host = {interface(kLo, {own("127.0.0.1", 8), own("10.9.0.1", 32), own("::1", 128)}),
          interface(kEth0, {own("10.1.0.1", 24), own("fd01::1", 64), own("fe80::1", 64, kEth0)}),
          interface(kEth1, {own("10.2.0.1", 24), own("10.2.0.2", 24), own("fe80::1", 64, kEth1)})};
  looks = 0;
  can_look = true;
  asked.clear();
  return 0;
}

void by_address(void**) {
  const struct {
    const char* to;
    unsigned by, device;
    bool admitted;
  } cases[] = {
      {"10.1.0.1", kEth0, kEth0, true},
      {"10.1.0.1", kLo, kEth0, true},    // from this host
      {"10.1.0.1", kEth1, kEth0, true},  // a host's address is reached by all of its interfaces
      {"10.1.0.1", kEth0, kLo, false},
      {"10.1.0.1", kLo, kLo, false},
      {"10.1.0.1", kEth1, kEth1, false},
      {"10.2.0.2", kEth1, kEth1, true},
      {"fd01::1", kEth0, kEth0, true},
      {"fd01::1", kLo, kEth0, true},
      {"fd01::1", kLo, kLo, false},
      {"127.0.0.1", kLo, kLo, true},
      {"127.3.2.1", kLo, kLo, true},
      {"127.0.0.1", kEth0, kLo, false},  // never on a wire
      {"127.0.0.1", kLo, kEth0, false},
      {"::1", kLo, kLo, true},
      {"::1", kEth0, kLo, false},
      {"10.9.0.1", kLo, kLo, true},  // a service address on the loopback
      {"10.9.0.1", kEth0, kLo, true},
      {"10.9.0.1", kEth0, kEth0, false},
      {"fe80::1", kEth0, kEth0, true},
      {"fe80::1", kEth1, kEth1, true},
      {"fe80::1", kEth1, kEth0, false},  // another link
      {"fe80::1", kEth0, kEth1, false},
      {"fe80::1", kLo, kEth0, true},
      {"fe80::2", kEth0, kEth0, true},
      {"192.0.2.7", kEth0, kEth0, true},  // nobody's: a local route
      {"192.0.2.7", kEth1, kEth0, false},
      {"10.1.0.255", kEth0, kEth0, false},  // broadcasts
      {"255.255.255.255", kEth0, kEth0, false},
      {"239.1.2.3", kEth0, kEth0, false},  // groups
      {"ff05::99", kEth0, kEth0, false},
      {"::", 0, kEth0, false},  // the kernel did not say
  };
  Scene s;
  for (int round = 0; round < 2; ++round)
    for (const auto& c : cases)
      if (s.gate.admits(arrival(c.to, c.by), c.device) != c.admitted)
        fail_msg("to %s by %u for %u: not %d", c.to, c.by, c.device, c.admitted);
  assert_int_equal(looks, 1);
}

void nothing_is_known(void**) {
  KnownInterfaces known(look, later);
  ArrivalGate gate(known);
  assert_true(gate.admits(arrival("10.1.0.1", kEth0), kEth0));  // as for a local route
  assert_false(gate.admits(arrival("10.1.0.1", kLo), kEth0));
  assert_int_equal(looks, 0);
  do_what_was_asked();
  assert_true(gate.admits(arrival("10.1.0.1", kLo), kEth0));
}

// The gate itself never looks, for the engine is held; what changed is seen when somebody else has looked.
void others_look(void**) {
  Scene s;
  for (int i = 0; i < 1000; ++i) assert_true(s.gate.admits(arrival("10.1.0.1", kEth0), kEth0));
  assert_true(asked.empty());
  const auto version = s.known.version().load();
  s.known.look();
  assert_int_equal(s.known.version(), version);
  host[1].addresses.erase(host[1].addresses.begin());
  host[2].addresses.push_back(own("10.1.0.1", 24));
  assert_true(s.gate.admits(arrival("10.1.0.1", kEth0), kEth0));
  s.known.look();
  assert_int_equal(s.known.version(), version + 1);
  assert_false(s.gate.admits(arrival("10.1.0.1", kEth0), kEth0));
  assert_true(s.gate.admits(arrival("10.1.0.1", kEth0), kEth1));
  assert_int_equal(looks, 3);
}

// Where the kernel cannot tell, an address that has come to the device is found all the same, whether it was nobody's
// before or another interface's; and strangers cannot make us look all the time.
void asks_for_a_look(void**) {
  const struct {
    const char* to;
    bool moves;
  } cases[] = {{"10.1.0.7", false}, {"10.2.0.2", true}};
  for (const auto& c : cases) {
    set_up(nullptr);
    Scene s;
    const auto begin = Clock::now();
    for (int i = 0; i < 100; ++i) assert_false(s.gate.admits(arrival(c.to, kLo), kEth0));
    assert_int_equal(looks, 1);
    assert_int_equal(asked.size(), 1);
    assert_true(asked.front().first > begin && asked.front().first <= Clock::now() + KnownInterfaces::kLookAgain);
    if (c.moves) host[2].addresses.erase(host[2].addresses.begin() + 1);
    host[1].addresses.push_back(own(c.to, 24));
    do_what_was_asked();
    assert_true(s.gate.admits(arrival(c.to, kLo), kEth0));
    assert_int_equal(looks, 2);
    assert_true(asked.empty());
  }
}

// A look that fails leaves what is known as it is, and is made again.
void a_look_that_fails(void**) {
  Scene s;
  can_look = false;
  host[1].addresses.push_back(own("10.1.0.7", 24));
  s.known.look();
  assert_int_equal(asked.size(), 1);
  assert_true(s.gate.admits(arrival("10.1.0.1", kLo), kEth0));
  assert_false(s.gate.admits(arrival("10.1.0.7", kLo), kEth0));
  do_what_was_asked();
  assert_false(s.gate.admits(arrival("10.1.0.7", kLo), kEth0));
  can_look = true;
  do_what_was_asked();
  assert_true(s.gate.admits(arrival("10.1.0.7", kLo), kEth0));
  assert_true(asked.empty());
}

void not_too_often(void**) {
  Scene s;
  for (int i = 0; i < 1000; ++i) s.known.look_unless_recent();
  assert_in_range(looks, 1, 2);  // the second if the machine was slow
}

}  // namespace
}  // namespace ewarp::test

int main() {
  using namespace ewarp::test;
  const CMUnitTest tests[] = {
      cmocka_unit_test_setup(by_address, set_up),        cmocka_unit_test_setup(nothing_is_known, set_up),
      cmocka_unit_test_setup(others_look, set_up),       cmocka_unit_test_setup(asks_for_a_look, set_up),
      cmocka_unit_test_setup(a_look_that_fails, set_up), cmocka_unit_test_setup(not_too_often, set_up),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
