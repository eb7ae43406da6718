// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "llp/netif.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "../vectors/vectors.h"
#include "sandbox.h"

namespace {

using namespace ewarp::llp;

// "fe80::1%v0" takes its scope from the interface.
sockaddr_storage address(const std::string& text, std::uint16_t port = 0) {
  sockaddr_storage result{};
  auto& v4 = reinterpret_cast<sockaddr_in&>(result);
  auto& v6 = reinterpret_cast<sockaddr_in6&>(result);
  const auto percent = text.find('%');
  if (inet_pton(AF_INET, text.c_str(), &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    v4.sin_port = htons(port);
  } else {
    assert_int_equal(inet_pton(AF_INET6, text.substr(0, percent).c_str(), &v6.sin6_addr), 1);
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(port);
    if (percent != std::string::npos) v6.sin6_scope_id = if_nametoindex(text.c_str() + percent + 1);
  }
  return result;
}

std::string text_of(const sockaddr_storage& a) {
  char text[INET6_ADDRSTRLEN] = {};
  const auto& v4 = reinterpret_cast<const sockaddr_in&>(a);
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(a);
  if (a.ss_family == AF_INET) {
    inet_ntop(AF_INET, &v4.sin_addr, text, sizeof text);
    return text;
  }
  inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof text);
  char name[IF_NAMESIZE] = {};
  if (v6.sin6_scope_id == 0 || if_indextoname(v6.sin6_scope_id, name) == nullptr) return text;
  return std::string(text) + "%" + name;
}

const sockaddr& generic(const sockaddr_storage& a) {
  return reinterpret_cast<const sockaddr&>(a);
}

std::vector<std::string> addresses_of(const Interface& i) {
  std::vector<std::string> result;
  for (const Address& a : i.addresses) result.push_back(text_of(a.address) + "/" + std::to_string(a.prefix_length));
  return result;
}

std::optional<Interface> find(const std::string& name) {
  for (const Interface& i : interfaces())
    if (i.name == name) return i;
  return std::nullopt;
}

// A program that has used its last descriptor finds its interfaces as they were.
void they_stay_without_descriptors(void**) {
  const auto before = interfaces();
  if (before.empty()) {
    print_message("skipped: this machine has no interface with an address\n");
    skip();
  }
  ewarp::test::in_child("without descriptors", [&] {
    const rlimit none{0, 0};
    if (setrlimit(RLIMIT_NOFILE, &none) != 0 || socket(AF_INET, SOCK_DGRAM, 0) >= 0) return 1;
    const auto now = interfaces();
    if (now.size() != before.size()) return 2;
    for (std::size_t i = 0; i < now.size(); ++i)
      if (now[i].name != before[i].name || addresses_of(now[i]) != addresses_of(before[i])) return 3;
    if (interface_of(generic(before[0].addresses[0].address)) != before[0].index) return 4;
    sockaddr_storage source{};
    return source_for(generic(before[0].addresses[0].address), &source) == EMFILE ? ewarp::test::kHolds : 5;
  });
  ewarp::test::in_child("without sockets", [&] {
    if (!ewarp::test::refuse({SYS_socket}, ENOBUFS)) return 1;
    const auto now = interfaces();
    if (now.size() != before.size()) return 2;
    for (std::size_t i = 0; i < now.size(); ++i)
      if (now[i].name != before[i].name || now[i].index != before[i].index) return 3;
    return ewarp::test::kHolds;
  });
}

// What holds on every machine.
void loopback_is_there(void**) {
  const auto lo = find("lo");
  if (!lo) {
    print_message("skipped: this machine has no loopback interface that is up\n");
    skip();
  }
  assert_true(lo->loopback && lo->up && lo->running);
  assert_int_equal(lo->index, if_nametoindex("lo"));
  assert_true(lo->mtu >= 1280);
  assert_int_equal(lo->speed_mbps, 0);
  const auto all = addresses_of(*lo);
  assert_true(std::find(all.begin(), all.end(), "127.0.0.1/8") != all.end());
  const auto again = interface(lo->index);
  assert_true(again.has_value());
  assert_string_equal(again->name.c_str(), "lo");
  assert_false(interface(0).has_value());
  assert_false(interface(0x7fffffff).has_value());
}

// ---- In a network namespace of our own. ----

bool write_file(const char* path, const std::string& text) {
  std::ofstream out(path);
  out << text;
  out.flush();
  return out.good();
}

bool new_namespace() {
  if (unshare(CLONE_NEWNET) == 0) return true;
  const std::string uid = std::to_string(getuid());
  const std::string gid = std::to_string(getgid());
  return unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0 && write_file("/proc/self/setgroups", "deny") &&
         write_file("/proc/self/uid_map", "0 " + uid + " 1") && write_file("/proc/self/gid_map", "0 " + gid + " 1");
}

bool ip(const std::string& arguments) {
  return std::system(("PATH=$PATH:/usr/sbin:/sbin ip " + arguments + " 2>/dev/null").c_str()) == 0;
}

bool g_namespace = false;

int set_up(void**) {
  if (!new_namespace()) return 0;
  const char* const commands[] = {
      "link set lo up",
      "addr add 10.77.0.1/16 dev lo",
      "link add v0 type veth peer name v1",
      "link set v0 addrgenmode none",
      "link set v1 addrgenmode none",
      "link set v0 address 02:00:00:00:00:0a mtu 9000 up",
      "link set v1 up",
      // In another order than they are to be listed.
      "-6 addr add fe80::9/64 dev v0 nodad",
      "-6 addr add fd00:9::1/64 dev v0 nodad",
      "addr add 10.9.0.1/24 dev v0",
      "addr add 10.9.1.1/25 dev v0 label v0:x",
      "-6 addr add fe80::9/64 dev v1 nodad",
      "link add bare type veth peer name other",
      "route add 192.0.2.0/25 via 10.9.1.2",
  };
  for (const char* command : commands) {
    if (ip(command)) continue;
    print_message("ip %s: refused\n", command);
    return 0;
  }
  g_namespace = true;
  return 0;
}

void needs_namespace() {
  if (g_namespace) return;
  print_message("skipped: no network namespace with veth and IPv6 may be made here\n");
  skip();
}

// The kernel takes note of a carrier that comes or goes a moment later.
bool comes_to_run(unsigned index, bool running) {
  for (int i = 0; i < 5000 && interface(index)->running != running; ++i) usleep(1000);
  return interface(index)->running == running;
}

void an_interface_as_ip_made_it(void**) {
  needs_namespace();
  const auto v0 = find("v0");
  assert_true(v0.has_value());
  assert_int_equal(v0->index, if_nametoindex("v0"));
  assert_int_equal(v0->mtu, 9000);
  assert_true(v0->up && !v0->loopback);
  assert_true(comes_to_run(v0->index, true));
  const std::uint8_t mac[] = {2, 0, 0, 0, 0, 0x0a};
  assert_memory_equal(v0->mac, mac, sizeof mac);
  const std::vector<std::string> want = {"10.9.0.1/24", "10.9.1.1/25", "fd00:9::1/64", "fe80::9%v0/64"};
  assert_true(addresses_of(*v0) == want);
  for (const Address& a : v0->addresses) assert_int_equal(reinterpret_cast<const sockaddr_in&>(a.address).sin_port, 0);
  const auto by_index = interface(v0->index);
  assert_true(by_index && addresses_of(*by_index) == want);
}

void only_those_with_an_address_are_listed(void**) {
  needs_namespace();
  std::vector<std::string> names;
  for (const Interface& i : interfaces()) names.push_back(i.name);
  std::sort(names.begin(), names.end());
  assert_true(names == (std::vector<std::string>{"lo", "v0", "v1"}));
  const auto bare = interface(if_nametoindex("bare"));
  assert_true(bare.has_value());
  assert_true(bare->addresses.empty() && !bare->up && !bare->running);
  assert_int_equal(bare->mtu, 1500);
}

void state_follows_the_link(void**) {
  needs_namespace();
  const unsigned index = if_nametoindex("v0");
  assert_true(ip("link set v1 down"));
  assert_true(interface(index)->up);
  assert_true(comes_to_run(index, false));
  assert_true(ip("link set v0 mtu 1500"));
  assert_int_equal(interface(index)->mtu, 1500);
  assert_true(ip("link set v0 mtu 9000"));
  assert_true(ip("link set v1 up"));
  assert_true(comes_to_run(index, true));
  const unsigned bare = if_nametoindex("bare");
  assert_true(ip("link del bare"));
  assert_false(interface(bare).has_value());
}

void owners_of_addresses(void**) {
  needs_namespace();
  const struct {
    const char* address;
    const char* owner;  // null: not ours
  } cases[] = {
      {"127.0.0.1", "lo"},
      {"127.1.2.3", "lo"},
      {"127.255.255.254", "lo"},
      {"10.77.0.1", "lo"},
      {"10.77.200.3", "lo"},  // a network on the loopback interface is local as a whole
      {"10.78.0.1", nullptr},
      {"10.9.0.1", "v0"},
      {"10.9.1.1", "v0"},
      {"10.9.0.2", nullptr},  // a neighbour
      {"10.9.1.127", nullptr},
      {"0.0.0.0", nullptr},
      {"192.0.2.1", nullptr},
      {"::1", "lo"},
      {"::", nullptr},
      {"fd00:9::1", "v0"},
      {"fd00:9::2", nullptr},
      {"fe80::9%v0", "v0"},
      {"fe80::9%v1", "v1"},
      {"fe80::9%lo", nullptr},
      {"fe80::a%v0", nullptr},
      {"::ffff:127.0.0.1", "lo"},
      {"::ffff:127.9.9.9", "lo"},
      {"::ffff:10.9.0.1", "v0"},
      {"::ffff:10.9.0.2", nullptr},
  };
  for (const auto& c : cases) {
    const sockaddr_storage a = address(c.address, 4242);
    const unsigned want = c.owner == nullptr ? 0 : if_nametoindex(c.owner);
    EXPECT(c.address, interface_of(generic(a)) == want);
    EXPECT(c.address, is_local(generic(a)) == (want != 0));
  }
  sockaddr unknown{};
  unknown.sa_family = AF_UNIX;
  assert_int_equal(interface_of(unknown), 0);
  assert_false(is_local(unknown));
}

void sources_towards(void**) {
  needs_namespace();
  const struct {
    const char* to;
    const char* source;  // null: error
    int error;
  } cases[] = {
      {"127.0.0.1", "127.0.0.1", 0},
      {"127.0.0.5", "127.0.0.1", 0},
      {"10.9.0.2", "10.9.0.1", 0},
      {"10.9.0.1", "10.9.0.1", 0},
      {"10.9.1.7", "10.9.1.1", 0},
      {"192.0.2.5", "10.9.1.1", 0},  // through a router
      {"::ffff:10.9.0.2", "::ffff:10.9.0.1", 0},
      {"::1", "::1", 0},
      {"fd00:9::2", "fd00:9::1", 0},
      {"fe80::b%v0", "fe80::9%v0", 0},
      {"fe80::b%v1", "fe80::9%v1", 0},
      {"192.0.2.200", nullptr, ENETUNREACH},
      {"fd00:7::1", nullptr, ENETUNREACH},
      {"fe80::b", nullptr, EINVAL},  // which link?
  };
  for (const auto& c : cases) {
    for (const std::uint16_t port : {std::uint16_t{0}, std::uint16_t{7471}}) {
      const sockaddr_storage to = address(c.to, port);
      sockaddr_storage source{};
      EXPECT(c.to, source_for(generic(to), &source) == c.error);
      if (c.source == nullptr) continue;
      if (text_of(source) != c.source) fail_msg("%s: source %s", c.to, text_of(source).c_str());
      EXPECT(c.to, reinterpret_cast<const sockaddr_in&>(source).sin_port == 0);
      EXPECT(c.to, source.ss_family == to.ss_family);
    }
  }
  sockaddr unknown{};
  unknown.sa_family = AF_UNIX;
  sockaddr_storage source{};
  assert_int_equal(source_for(unknown, &source), EAFNOSUPPORT);
}

void a_prohibited_route_is_said_so(void**) {
  needs_namespace();
  assert_true(ip("route add unreachable 198.51.100.0/24"));
  const sockaddr_storage to = address("198.51.100.1");
  sockaddr_storage source{};
  assert_int_equal(source_for(generic(to), &source), EHOSTUNREACH);
}

}  // namespace

int main() {
  const CMUnitTest anywhere[] = {cmocka_unit_test(loopback_is_there), cmocka_unit_test(they_stay_without_descriptors)};
  const CMUnitTest in_namespace[] = {
      cmocka_unit_test(an_interface_as_ip_made_it), cmocka_unit_test(only_those_with_an_address_are_listed),
      cmocka_unit_test(owners_of_addresses),        cmocka_unit_test(sources_towards),
      cmocka_unit_test(state_follows_the_link),     cmocka_unit_test(a_prohibited_route_is_said_so),
  };
  const int failed = cmocka_run_group_tests(anywhere, nullptr, nullptr);
  return failed + cmocka_run_group_tests(in_namespace, set_up, nullptr);
}
