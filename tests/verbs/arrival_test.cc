// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A queue pair receives what was sent to its device: between two hosts, which are network namespaces, and within one.
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "llp/rd/header.h"
#include "provider/engine/engine.h"
#include "provider/verbs/device/port_monitor.h"
#include "tests/llp/rd_seal.h"
#include "tests/verbs/rd_sides.h"

namespace ewarp::test {
namespace {

constexpr const char* kHere = "10.88.0.1";  // of ewarp_v0
constexpr const char* kHere6 = "fd88::1";
constexpr const char* kThere6 = "fd88::2";
constexpr const char* kLink6 = "fe80::88";  // of ewarp_v0 too

bool write_file(const char* path, const std::string& text) {
  std::ofstream out(path);
  out << text;
  out.flush();
  return out.good();
}

// Before there is a second thread.
bool new_namespace() {
  if (unshare(CLONE_NEWNET) == 0) return true;
  const std::string uid = std::to_string(getuid()), gid = std::to_string(getgid());
  return unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0 && write_file("/proc/self/setgroups", "deny") &&
         write_file("/proc/self/uid_map", "0 " + uid + " 1") && write_file("/proc/self/gid_map", "0 " + gid + " 1");
}

bool ip(const std::string& arguments) {
  return std::system(("PATH=$PATH:/usr/sbin:/sbin ip " + arguments).c_str()) == 0;
}

// A socket of either family that sends to any address. Made in the caller's network namespace, stays there.
class AnyPeer {
 public:
  // from: an address of IPv6 that it sends from and hears at; null: any.
  explicit AnyPeer(const char* from = nullptr) : fd_(socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in6 a{};
    a.sin6_family = AF_INET6;
    if (from != nullptr && inet_pton(AF_INET6, from, &a.sin6_addr) != 1) throw std::runtime_error("no address");
    if (fd_ < 0 || bind(fd_, reinterpret_cast<const sockaddr*>(&a), sizeof a) != 0) throw std::runtime_error("socket");
  }
  ~AnyPeer() { close(fd_); }
  AnyPeer(const AnyPeer&) = delete;
  AnyPeer& operator=(const AnyPeer&) = delete;
  // interface: for groups and link-local addresses. False: it cannot be sent.
  bool send(const std::string& to, std::uint32_t qpn, Octets octets, unsigned interface = 0) const {
    sockaddr_in6 a{};
    a.sin6_family = AF_INET6;
    a.sin6_port = htons(static_cast<std::uint16_t>(qpn));
    a.sin6_scope_id = interface;
    const std::string text = to.find(':') == std::string::npos ? "::ffff:" + to : to;
    if (inet_pton(AF_INET6, text.c_str(), &a.sin6_addr) != 1) throw std::runtime_error("no address");
    const ip_mreqn by{{}, {}, static_cast<int>(interface)};
    if (interface != 0) setsockopt(fd_, IPPROTO_IP, IP_MULTICAST_IF, &by, sizeof by);
    return sendto(fd_, octets.data(), octets.size(), 0, reinterpret_cast<const sockaddr*>(&a), sizeof a) >= 0;
  }
  std::uint16_t port() const {
    sockaddr_in6 a{};
    socklen_t size = sizeof a;
    if (getsockname(fd_, reinterpret_cast<sockaddr*>(&a), &size) != 0) throw std::runtime_error("getsockname");
    return ntohs(a.sin6_port);
  }
  bool hears(int milliseconds) const {
    pollfd p{fd_, POLLIN, 0};
    return poll(&p, 1, milliseconds) == 1;
  }
  void forget() const {
    std::array<std::byte, 2048> sink;
    while (recv(fd_, sink.data(), sink.size(), MSG_DONTWAIT) > 0) {
    }
  }

 private:
  int fd_;
};

// The other host.
std::unique_ptr<AnyPeer> far_peer, far_global_peer;
unsigned far_interface = 0;
bool two_hosts = false;

// v0 here, v1 there; w0 is a second interface here.
bool join_hosts() {
  if (!ip("link set lo up") || !ip("link add v0 type veth peer name v1") || !ip("link add w0 type veth peer name w1"))
    return false;
  std::atomic<int> tid{0};
  std::atomic<bool> ready{false};
  bool good = false;
  std::thread there([&] {
    const bool apart = unshare(CLONE_NEWNET) == 0;
    tid = apart ? static_cast<int>(syscall(SYS_gettid)) : -1;
    while (!ready) std::this_thread::yield();
    if (!apart) return;
    good = ip("link set lo up") && ip("link set v1 up") && ip("addr add 10.88.0.2/24 dev v1") &&
           ip("addr add fd88::2/64 dev v1 nodad");
    // What is not its own goes over the wire too, as from a neighbour who means harm.
    good = good && ip("route add 10.89.0.0/24 via 10.88.0.1") && ip("route add 224.0.0.0/4 dev v1");
    far_interface = if_nametoindex("v1");
    if (!good) return;
    far_peer = std::make_unique<AnyPeer>();
    far_global_peer = std::make_unique<AnyPeer>(kThere6);
  });
  while (tid == 0) std::this_thread::yield();
  const bool moved = tid > 0 && ip("link set v1 netns " + std::to_string(tid));
  const bool here = moved && ip("link set v0 up") && ip("link set w0 up") && ip("link set w1 up") &&
                    ip("addr add 10.88.0.1/24 dev v0") && ip("addr add fd88::1/64 dev v0 nodad") &&
                    ip("addr add fe80::88/64 dev v0 nodad") && ip("addr add 10.89.0.1/24 dev w0");
  ready = true;
  there.join();
  return here && good;
}

int set_up(void**) {
  two_hosts = new_namespace() && join_hosts();
  return 0;
}

void need_two_hosts() {
  if (two_hosts) return;
  print_message("skipped: no network namespaces or no veth devices here\n");
  skip();
}

Device& device(const char* name) {
  Device* d = find_device(name);
  if (d == nullptr) fail_msg("no device %s", name);
  return *d;
}

struct OneSide : DatagramSide {
  explicit OneSide(const char* name) : DatagramSide(nullptr, IBV_QPS_RTS, 4096, 256, device(name)) {}
};

// To a queue pair, from somebody whose number is `from`.
std::vector<std::byte> message(std::uint32_t to, std::uint32_t from) {
  std::vector<std::byte> segment(18 + 8);
  put_be<std::uint16_t>(segment, 0, 0x4143);
  put_be<std::uint32_t>(segment, 10, 1);
  std::vector<std::byte> out(128);
  const std::size_t header = llp::UdSend{kQkey, {}}.emit(out, to, from);
  out.resize(llp::finish_datagram(out, header, segment));
  return out;
}

const stats::Counter& wrong_address() {
  return stats::page().datagrams.drops[static_cast<std::size_t>(llp::DatagramDrop::address)];
}

void expect_refused(const AnyPeer& peer, const std::string& to, const OneSide& s) {
  const auto before = wrong_address().load();
  assert_true(peer.send(to, s.qp->number(), message(s.qp->number(), 7)));
  if (!counted(wrong_address(), before, 1)) fail_msg("%s reaches %s", to.c_str(), s.context.device().name().c_str());
}

void expect_taken(const AnyPeer& peer, const std::string& to, OneSide& s) {
  static std::uint32_t from = 1000;
  assert_int_equal(s.receive({s.sge(0, 100)}), 0);
  assert_true(peer.send(to, s.qp->number(), message(s.qp->number(), ++from)));
  const ibv_wc wc = s.wait();
  assert_int_equal(wc.status, IBV_WC_SUCCESS);
  assert_int_equal(wc.src_qp, from);
}

// One of many, sooner or later.
bool arrives(const AnyPeer& peer, const std::string& to, OneSide& s) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  ibv_wc wc;
  do {
    assert_int_equal(s.receive({s.sge(0, 100)}), 0);
    assert_true(peer.send(to, s.qp->number(), message(s.qp->number(), 5)));
    for (int i = 0; i < 50; ++i) {
      if (s.cq.poll(1, &wc) == 1) return wc.status == IBV_WC_SUCCESS;
      poll(nullptr, 0, 1);
    }
  } while (std::chrono::steady_clock::now() < until);
  return false;
}

// A queue pair of the loopback device is not on the network, whatever address the other host names.
void loopback_answers_nobody_else(void**) {
  need_two_hosts();
  OneSide lo("ewarp_lo");
  const AnyPeer near_peer;
  expect_taken(near_peer, "127.0.0.1", lo);
  expect_taken(near_peer, "127.9.9.9", lo);
  expect_taken(near_peer, "::1", lo);
  for (const char* to : {kHere, kHere6, "10.89.0.1"}) {
    expect_refused(*far_peer, to, lo);
    expect_refused(near_peer, to, lo);
  }
}

void its_own_addresses(void**) {
  need_two_hosts();
  OneSide v0("ewarp_v0");
  const AnyPeer near_peer;
  for (const char* to : {kHere, kHere6}) {
    expect_taken(*far_peer, to, v0);
    expect_taken(near_peer, to, v0);  // by the loopback
  }
  expect_refused(near_peer, "127.0.0.1", v0);
  expect_refused(near_peer, "::1", v0);
  expect_refused(near_peer, "10.89.0.1", v0);
  expect_refused(*far_peer, "10.89.0.1", v0);
  // By another interface of this host, as hosts do (RFC 1122 section 3.3.4.2, the weak model).
  OneSide w0("ewarp_w0");
  expect_taken(*far_peer, "10.89.0.1", w0);
}

// An address that comes after the queue pair, and goes to another interface.
void addresses_that_change(void**) {
  need_two_hosts();
  OneSide v0("ewarp_v0"), w0("ewarp_w0");
  port_monitor().add(v0.context);
  const AnyPeer near_peer;
  const auto arrives = [](const AnyPeer& peer, OneSide& s) { return test::arrives(peer, "10.88.0.77", s); };
  assert_true(ip("addr add 10.88.0.77/24 dev v0"));
  assert_true(arrives(*far_peer, v0));
  assert_true(arrives(near_peer, v0));
  const auto told = known_interfaces().version().load();
  assert_true(ip("addr del 10.88.0.77/24 dev v0"));
  assert_true(ip("addr add 10.88.0.77/32 dev w0"));
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (known_interfaces().version() == told && std::chrono::steady_clock::now() < until) poll(nullptr, 0, 1);
  assert_true(arrives(near_peer, w0));
  const auto before = wrong_address().load();
  assert_true(near_peer.send("10.88.0.77", v0.qp->number(), message(v0.qp->number(), 5)));
  assert_true(counted(wrong_address(), before, 1));
  assert_true(ip("addr del 10.88.0.77/32 dev w0"));
  port_monitor().remove(v0.context);
}

bool index_becomes(const Device& d, unsigned index) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (d.interface_index() != index && std::chrono::steady_clock::now() < until) poll(nullptr, 0, 1);
  return d.interface_index() == index;
}

// An interface that is deleted and made anew has another index; it is the device's all the same.
void make_anew(OneSide& w0, const char* address) {
  const unsigned former = w0.context.device().interface_index();
  assert_true(ip("link del w0") && ip("link add w0 type veth peer name w1"));
  assert_int_not_equal(if_nametoindex("w0"), former);
  assert_true(ip("link set w0 up") && ip("link set w1 up") && ip(std::string("addr add ") + address + "/24 dev w0"));
}

// Where the kernel does not tell: nobody has asked it to yet.
void an_interface_made_anew_untold(void**) {
  need_two_hosts();
  assert_int_equal(port_monitor().fd(), -1);
  OneSide w0("ewarp_w0");
  const AnyPeer near_peer;
  expect_taken(near_peer, "10.89.0.1", w0);
  make_anew(w0, "10.89.0.3");
  assert_true(arrives(near_peer, "10.89.0.3", w0));
  assert_int_equal(w0.context.device().interface_index(), if_nametoindex("w0"));
  assert_true(ip("addr add 10.89.0.1/24 dev w0"));
  assert_true(arrives(near_peer, "10.89.0.1", w0));
}

void an_interface_made_anew(void**) {
  need_two_hosts();
  OneSide w0("ewarp_w0");
  const Device& d = w0.context.device();
  port_monitor().add(w0.context);
  const AnyPeer near_peer;
  expect_taken(near_peer, "10.89.0.1", w0);
  make_anew(w0, "10.89.0.1");
  assert_true(index_becomes(d, if_nametoindex("w0")));
  assert_true(arrives(near_peer, "10.89.0.1", w0));
  assert_true(arrives(*far_peer, "10.89.0.1", w0));
  assert_false(d.gids().empty());
  OneSide later("ewarp_w0");
  expect_taken(near_peer, "10.89.0.1", later);
  port_monitor().remove(w0.context);
}

// A group of somebody else's is nothing for the port of a queue pair.
void groups_of_others(void**) {
  need_two_hosts();
  OneSide v0("ewarp_v0"), member("ewarp_v0");
  const auto received = stats::page().devices[device("ewarp_v0").index()].traffic.rx_sends.load();
  assert_int_equal(attach_group(*member.qp, gid_of("::ffff:239.88.1.1")), 0);
  assert_int_equal(v0.receive({v0.sge(0, 100)}), 0);
  assert_int_equal(v0.receive({v0.sge(0, 100)}), 0);
  const auto octets = message(v0.qp->number(), 9);
  assert_true(far_peer->send("239.88.1.1", v0.qp->number(), octets, far_interface));
  const AnyPeer near_peer;
  expect_taken(near_peer, kHere, v0);
  expect_taken(*far_peer, kHere, v0);
  assert_int_equal(stats::page().devices[device("ewarp_v0").index()].traffic.rx_sends - received, 2);
  assert_int_equal(detach_group(*member.qp, gid_of("::ffff:239.88.1.1")), 0);
}

std::vector<std::byte> open_of(std::uint32_t to, std::uint32_t tag) {
  llp::rd::Open o;
  o.initial_tag = tag;
  o.qkey = kQkey;
  o.isn = {1, 1};
  o.window = {64, 64};
  o.max_seg = 1472;
  return rdtest::datagram(llp::rd::Prefix{llp::rd::Type::open, 0, 0, to, 0x30c350}, o);
}

// Reliable datagrams pass the same gate: from the network nothing behind the loopback device is opened.
void reliable_ones_too(void**) {
  need_two_hosts();
  RdSide lo;
  const AnyPeer near_peer;
  const auto before = wrong_address().load();
  assert_true(far_peer->send(kHere, lo.qp->number(), open_of(lo.qp->number(), 77)));
  assert_true(counted(wrong_address(), before, 1));
  assert_false(far_peer->hears(0));
  assert_true(near_peer.send("127.0.0.1", lo.qp->number(), open_of(lo.qp->number(), 78)));
  assert_true(near_peer.hears(20000));
  // All of the number counts: here the port is right, and the number says another one.
  near_peer.forget();
  const auto unknown = stats::page().reliable.dropped_qp.load();
  assert_true(near_peer.send("127.0.0.1", lo.qp->number(), open_of(lo.qp->number() ^ 1, 79)));
  assert_true(counted(stats::page().reliable.dropped_qp, unknown, 1));
}

// From an address of the device.
AddressHandleObject handle(OneSide& s, const char* source, const char* to) {
  const ibv_gid from = gid_of(source);
  const auto gids = s.context.device().gids();
  const auto found = std::find_if(gids.begin(), gids.end(),
                                  [&](const ibv_gid& g) { return std::memcmp(g.raw, from.raw, sizeof g.raw) == 0; });
  if (found == gids.end()) fail_msg("the device does not have %s", source);
  ibv_ah_attr attr{};
  attr.is_global = 1;
  attr.port_num = 1;
  attr.grh.dgid = gid_of(to);
  attr.grh.sgid_index = static_cast<std::uint8_t>(found - gids.begin());
  AddressHandleObject ah{};
  assert_int_equal(make_address_handle(*s.home, attr, &ah.impl), 0);
  return ah;
}

// What is sent from an address that has left the interface is lost; the queue pair goes on.
void an_address_that_went(void**) {
  need_two_hosts();
  constexpr std::uint32_t kAnybody = 0x010009;
  const struct {
    const char *add, *remove, *source, *to;
  } kCases[] = {
      {"addr add 10.88.0.78/24 dev v0", "addr del 10.88.0.78/24 dev v0", "::ffff:10.88.0.78", "::ffff:10.88.0.2"},
      {"addr add fd88::78/64 dev v0 nodad", "addr del fd88::78/64 dev v0", "fd88::78", kThere6}};
  for (const auto& c : kCases) {
    OneSide v0("ewarp_v0");
    assert_true(ip(c.add));
    AddressHandleObject ah = handle(v0, c.source, c.to);
    const auto lost = stats::page().datagrams.tx_lost.load();
    assert_int_equal(v0.send(ah, kAnybody, {v0.sge(0, 8)}), 0);
    expect_send(v0);
    assert_int_equal(stats::page().datagrams.tx_lost - lost, 0);
    assert_true(ip(c.remove));
    assert_int_equal(v0.send(ah, kAnybody, {v0.sge(0, 8)}), 0);
    expect_send(v0);
    assert_int_equal(stats::page().datagrams.tx_lost - lost, 1);
    assert_int_equal(v0.state(), IBV_QPS_RTS);
  }
}

// To a global address from a link-local one: requests and answers.
void a_link_local_source(void**) {
  need_two_hosts();
  OneSide v0("ewarp_v0");
  const auto is_heard = [] {
    const bool heard = far_global_peer->hears(20000);
    far_global_peer->forget();
    return heard;
  };
  AddressHandleObject ah = handle(v0, kLink6, kThere6);
  assert_int_equal(v0.send(ah, 0x010000u | far_global_peer->port(), {v0.sge(0, 8)}), 0);
  expect_send(v0);
  assert_true(is_heard());
  // A report that the message is too long.
  assert_int_equal(v0.receive({v0.sge(0, 41)}), 0);
  assert_true(far_global_peer->send(kLink6, v0.qp->number(), message(v0.qp->number(), 7), far_interface));
  assert_true(is_heard());
  // OPENACK.
  PortSide<RdQueuePair> rd(IBV_QPT_DRIVER, nullptr, IBV_QPS_RTS, 4096, IBV_ACCESS_LOCAL_WRITE, 256, device("ewarp_v0"));
  assert_true(far_global_peer->send(kLink6, rd.qp->number(), open_of(rd.qp->number(), 80), far_interface));
  assert_true(is_heard());
}

void all_bits_of_the_number(void**) {
  OneSide lo("ewarp_lo");
  assert_int_equal(lo.receive({lo.sge(0, 100)}), 0);
  const AnyPeer near_peer;
  const std::uint32_t number = lo.qp->number();
  for (unsigned bit = 0; bit < 24; ++bit) {
    // It may be the number of one that was there before, on another device.
    const auto refused = [] { return drops(llp::DatagramDrop::qp) + drops(llp::DatagramDrop::address); };
    const auto before = refused();
    assert_true(near_peer.send("127.0.0.1", number, message(number ^ 1u << bit, 7)));
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (refused() == before && std::chrono::steady_clock::now() < until) poll(nullptr, 0, 1);
    if (refused() != before + 1) fail_msg("bit %u of the number is not looked at", bit);
  }
  expect_taken(near_peer, "127.0.0.1", lo);
}

}  // namespace
}  // namespace ewarp::test

int main() {
  using namespace ewarp::test;
  const CMUnitTest tests[] = {
      cmocka_unit_test(loopback_answers_nobody_else),
      cmocka_unit_test(its_own_addresses),
      cmocka_unit_test(an_interface_made_anew_untold),
      cmocka_unit_test(addresses_that_change),
      cmocka_unit_test(an_interface_made_anew),
      cmocka_unit_test(groups_of_others),
      cmocka_unit_test(reliable_ones_too),
      cmocka_unit_test(an_address_that_went),
      cmocka_unit_test(a_link_local_source),
      cmocka_unit_test(all_bits_of_the_number),
  };
  return cmocka_run_group_tests(tests, set_up, nullptr);
}
