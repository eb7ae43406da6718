// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Datagrams over the loopback: addresses, TTL, type of service, many at once, groups.
#include <arpa/inet.h>
#include <net/if.h>
#include <poll.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "llp/udp_inbox.h"
#include "llp/udp_outbox.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

extern "C" {
#include <cmocka.h>
}

namespace ewarp::llp {
namespace {

in6_addr ip(const char* text) {
  in6_addr a{};
  assert_int_equal(inet_pton(AF_INET6, text, &a), 1);
  return a;
}

// A socket on a free port.
UdpSocket some_socket(std::uint16_t* port) {
  UdpSocket s;
  for (*port = 20000; *port < 30000; ++*port)
    if (UdpSocket::open(*port, &s) == 0) return s;
  fail_msg("no free port");
  return s;
}

UdpDestination to(const char* address, std::uint16_t port) {
  UdpDestination d;
  d.to.sin6_family = AF_INET6;
  d.to.sin6_port = htons(port);
  d.to.sin6_addr = d.source = ip(address);
  return d;
}

void add(UdpOutbox& out, const UdpDestination& d, const std::string& text) {
  out.begin(d);
  std::memcpy(out.append(text.size()).data(), text.data(), text.size());
}

struct Got {
  std::string text;
  UdpArrival arrival;
};

// What arrives until `n` datagrams have, or nothing does for five seconds.
std::vector<Got> receive(const UdpSocket& s, std::size_t n, unsigned at_once = UdpInbox::kMost) {
  static UdpInbox inbox;
  std::vector<Got> got;
  pollfd p{s.fd(), POLLIN, 0};
  while (got.size() < n && poll(&p, 1, 5000) == 1) {
    if (inbox.receive(s, at_once) < 0) continue;
    inbox.for_each([&](const UdpArrival& a) {
      got.push_back({std::string(reinterpret_cast<const char*>(a.payload.data()), a.payload.size()), a});
    });
  }
  return got;
}

void addresses_and_header_fields(void**) {
  std::uint16_t port;
  UdpSocket s = some_socket(&port);
  UdpOutbox out;
  int error;
  for (const char* address : {"::ffff:127.0.0.1", "::1"}) {
    if (!s.is_v6() && std::strcmp(address, "::1") == 0) continue;
    UdpDestination d = to(address, port);
    d.tos = 0x48;
    d.ttl = 17;
    out.clear();
    add(out, d, "hello");
    assert_int_equal(out.send(s, &error), 1);
    const auto got = receive(s, 1);
    assert_int_equal(got.size(), 1);
    const UdpArrival& a = got[0].arrival;
    assert_string_equal(got[0].text.c_str(), "hello");
    assert_memory_equal(&a.to, &d.to.sin6_addr, 16);
    assert_memory_equal(&a.from.sin6_addr, &d.source, 16);
    assert_int_equal(ntohs(a.from.sin6_port), port);
    assert_int_equal(a.tos, 0x48);
    assert_int_equal(a.ttl, 17);
    assert_int_equal(a.interface, if_nametoindex("lo"));
  }
  if (!s.is_v6()) {
    print_message("skipped: no IPv6\n");
    skip();
  }
}

// Equal ones go to the kernel as one; boundaries and order are kept either way.
void many_at_once(void**) {
  for (const std::uint16_t limit : {std::uint16_t{0}, std::uint16_t{30000}}) {
    std::uint16_t port;
    UdpSocket s = some_socket(&port);
    UdpDestination d = to("::ffff:127.0.0.1", port);
    d.segment_limit = limit;
    UdpOutbox out;
    std::vector<std::string> sent;
    for (std::size_t i = 0; i < UdpOutbox::kMessages; ++i)
      sent.push_back(std::string(i % 7 == 3 ? 100 : i % 7 == 5 ? 300 : 200, static_cast<char>('0' + i)));
    for (const std::string& text : sent) add(out, d, text);
    int error;
    assert_int_equal(out.send(s, &error), sent.size());
    assert_int_equal(error, 0);
    const auto got = receive(s, sent.size(), limit == 0 ? 3 : UdpInbox::kMost);
    assert_int_equal(got.size(), sent.size());
    for (std::size_t i = 0; i < sent.size(); ++i) assert_string_equal(got[i].text.c_str(), sent[i].c_str());
  }
}

void pieces_and_the_largest(void**) {
  std::uint16_t port;
  UdpSocket s = some_socket(&port);
  const UdpDestination d = to("::ffff:127.0.0.1", port);
  UdpOutbox out;
  std::string large(65507 - 8, 'x');
  out.begin(d);
  std::memcpy(out.append(4).data(), "head", 4);
  out.append(large.data(), large.size());
  std::memcpy(out.append(4).data(), "tail", 4);
  out.begin(d);  // nothing in it
  int error;
  assert_int_equal(out.send(s, &error), 2);
  auto got = receive(s, 2);
  assert_int_equal(got.size(), 2);
  assert_true(got[0].text == "head" + large + "tail");
  assert_int_equal(got[1].text.size(), 0);

  out.clear();
  large.resize(65508);
  add(out, d, "first");
  add(out, d, large);
  assert_int_equal(out.send(s, &error), 1);
  assert_int_equal(error, EMSGSIZE);
  add(out, d, "undone");
  out.undo();
  assert_int_equal(out.size(), 2);
  assert_int_equal(receive(s, 1).size(), 1);
}

void a_port_is_taken_once(void**) {
  std::uint16_t port;
  const UdpSocket s = some_socket(&port);
  UdpSocket other;
  assert_int_equal(UdpSocket::open(port, &other), EADDRINUSE);
  assert_false(static_cast<bool>(other));
}

void groups(void**) {
  constexpr std::uint16_t kPort = 31999;
  std::uint16_t port;
  UdpSocket sender = some_socket(&port);
  const unsigned lo = if_nametoindex("lo");
  UdpSocket a, b;
  assert_int_equal(UdpSocket::open_group(kPort, AF_INET, &a), 0);
  assert_int_equal(UdpSocket::open_group(kPort, AF_INET, &b), 0);
  const char* group = "::ffff:239.9.9.1";
  assert_int_equal(a.join(ip(group), lo), 0);
  assert_int_equal(b.join(ip("::ffff:239.9.9.2"), lo), 0);
  assert_int_equal(a.join(ip("ff05::1"), lo), EINVAL);
  UdpDestination d = to(group, kPort);
  d.source = ip("::ffff:127.0.0.1");
  d.interface = lo;
  UdpOutbox out;
  int error;
  add(out, d, "to all");
  assert_int_equal(out.send(sender, &error), 1);
  const auto got = receive(a, 1);
  assert_int_equal(got.size(), 1);
  assert_memory_equal(&got[0].arrival.to, &d.to.sin6_addr, 16);
  assert_int_equal(got[0].arrival.interface, lo);
  UdpInbox inbox;
  assert_int_equal(inbox.receive(b, 1), -EAGAIN);  // the other process's group
  assert_int_equal(a.leave(ip(group), lo), 0);
  assert_int_equal(a.leave(ip(group), lo), EADDRNOTAVAIL);
  assert_int_equal(out.send(sender, &error), 1);
  assert_int_equal(inbox.receive(a, 4), -EAGAIN);
}

}  // namespace
}  // namespace ewarp::llp

int main() {
  using namespace ewarp::llp;
  const CMUnitTest tests[] = {
      cmocka_unit_test(addresses_and_header_fields),
      cmocka_unit_test(many_at_once),
      cmocka_unit_test(pieces_and_the_largest),
      cmocka_unit_test(a_port_is_taken_once),
      cmocka_unit_test(groups),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
