// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Which device a datagram is for, by interfaces that the test makes up.
#include "provider/verbs/ud/arrival_gate.h"

#include <arpa/inet.h>

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

constexpr unsigned kLo = 1, kEth0 = 2, kEth1 = 3;

std::vector<llp::Interface> host;
unsigned looks = 0;
std::atomic<std::uint32_t> changes{0};

std::vector<llp::Interface> look() {
  ++looks;
  return host;
}

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
  ArrivalGate gate(look, changes);
  for (int round = 0; round < 2; ++round)
    for (const auto& c : cases)
      if (gate.admits(arrival(c.to, c.by), c.device) != c.admitted)
        fail_msg("to %s by %u for %u: not %d", c.to, c.by, c.device, c.admitted);
  assert_in_range(looks, 1, 2);  // the second for an address that is nobody's, if the machine was slow
}

// What is known is not asked for again; what changes is seen when the kernel has told of it.
void looks_when_told(void**) {
  ArrivalGate gate(look, changes);
  for (int i = 0; i < 1000; ++i) assert_true(gate.admits(arrival("10.1.0.1", kEth0), kEth0));
  assert_int_equal(looks, 1);
  host[1].addresses.erase(host[1].addresses.begin());
  host[2].addresses.push_back(own("10.1.0.1", 24));
  assert_true(gate.admits(arrival("10.1.0.1", kEth0), kEth0));
  ++changes;
  assert_false(gate.admits(arrival("10.1.0.1", kEth0), kEth0));
  assert_true(gate.admits(arrival("10.1.0.1", kEth0), kEth1));
  assert_int_equal(looks, 2);
}

// Where the kernel cannot tell, an address that is new to the host is found all the same, and strangers cannot make us
// look all the time.
void looks_for_what_is_nobodys(void**) {
  ArrivalGate gate(look, changes);
  const auto begin = ArrivalGate::Clock::now();
  assert_false(gate.admits(arrival("10.1.0.7", kLo), kEth0));
  host[1].addresses.push_back(own("10.1.0.7", 24));
  unsigned tries = 0;
  while (!gate.admits(arrival("10.1.0.7", kLo), kEth0)) {
    ++tries;
    assert_true(ArrivalGate::Clock::now() - begin < std::chrono::seconds(60));
  }
  assert_true(tries > 0);
  for (int i = 0; i < 100000; ++i) gate.admits(arrival("10.1.0.8", kLo), kEth0);
  const auto most = 2 + (ArrivalGate::Clock::now() - begin) / ArrivalGate::kLookAgain;
  assert_true(looks <= static_cast<unsigned long>(most));
}

}  // namespace
}  // namespace ewarp::test

int main() {
  using namespace ewarp::test;
  const CMUnitTest tests[] = {
      cmocka_unit_test_setup(by_address, set_up),
      cmocka_unit_test_setup(looks_when_told, set_up),
      cmocka_unit_test_setup(looks_for_what_is_nobodys, set_up),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
