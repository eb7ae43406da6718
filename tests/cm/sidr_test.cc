// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// SIDR between two ids of the loopback, and against a peer that sends what it likes; multicast joins.
#include <arpa/inet.h>
#include <dlfcn.h>
#include <ifaddrs.h>
#include <rdma/rdma_user_cm.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>

#include "llp/datagram_header.h"
#include "llp/octets.h"
#include "tests/cm/channel.h"
#include "tests/cm/standins.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

extern "C" {
#include <cmocka.h>
}

namespace {
std::atomic<unsigned> looks{0};  // at the interfaces
}

extern "C" [[gnu::visibility("default")]] int getifaddrs(ifaddrs** out) noexcept {
  static const auto real = reinterpret_cast<decltype(&getifaddrs)>(dlsym(RTLD_NEXT, "getifaddrs"));
  ++looks;
  return real(out);
}

namespace ewarp::test {
namespace {

constexpr std::uint32_t kUdpQkey = 0x01234567;
constexpr std::uint32_t kMulticastJoin = 12;

std::string data_of(const rdma_ucm_ud_param& p) {
  return {reinterpret_cast<const char*>(p.private_data), p.private_data_len};
}

struct UdEvent {
  std::uint64_t uid;
  std::uint32_t id;
  int status;
  rdma_ucm_ud_param ud;
};

UdEvent expect(Channel& channel, std::uint32_t type) {
  rdma_ucm_event_resp response{};
  rdma_ucm_get_event get{reinterpret_cast<std::uintptr_t>(&response)};
  assert_int_equal(channel.run(RDMA_USER_CM_CMD_GET_EVENT, get, sizeof response), 0);
  assert_int_equal(response.event, type);
  return {response.uid, response.id, static_cast<int>(response.status), response.param.ud};
}

std::uint32_t listener(Channel& channel, std::uint64_t uid, unsigned backlog = 0) {
  const auto id = channel.create(uid, RDMA_PS_UDP);
  assert_int_equal(channel.bind(id, address("127.0.0.1", 0)), 0);
  assert_int_equal(channel.listen(id, backlog), 0);
  return id;
}

std::uint32_t resolved(Channel& channel, std::uint16_t port, std::uint64_t uid) {
  const auto id = channel.create(uid, RDMA_PS_UDP);
  assert_int_equal(channel.resolve(id, address("127.0.0.1", port)), 0);
  channel.expect(kAddrResolved);
  assert_int_equal(channel.resolve_route(id), 0);
  channel.expect(kRouteResolved);
  return id;
}

// Sends and receives raw datagrams on the loopback.
class RawUdp {
 public:
  // address: any of 127/8, as if from another host.
  explicit RawUdp(std::uint32_t address = INADDR_LOOPBACK) : fd_(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in a = at(0);
    a.sin_addr.s_addr = htonl(address);
    assert_int_equal(bind(fd_, reinterpret_cast<const sockaddr*>(&a), sizeof a), 0);
    const timeval limit{60, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  }
  ~RawUdp() { close(fd_); }
  std::uint16_t port() const {
    sockaddr_in a{};
    socklen_t size = sizeof a;
    getsockname(fd_, reinterpret_cast<sockaddr*>(&a), &size);
    return ntohs(a.sin_port);
  }
  void send(std::uint16_t port, Octets octets) const {
    const sockaddr_in a = at(port);
    assert_int_equal(sendto(fd_, octets.data(), octets.size(), 0, reinterpret_cast<const sockaddr*>(&a), sizeof a),
                     octets.size());
  }
  // The next datagram; *from: its sender's port.
  std::vector<std::byte> receive(std::uint16_t* from) const {
    std::vector<std::byte> octets(2048);
    sockaddr_in a{};
    socklen_t size = sizeof a;
    const ssize_t n = recvfrom(fd_, octets.data(), octets.size(), 0, reinterpret_cast<sockaddr*>(&a), &size);
    octets.resize(n < 0 ? 0 : static_cast<std::size_t>(n));
    *from = ntohs(a.sin_port);
    return octets;
  }
  // How many datagrams are there now.
  unsigned take_all() const {
    std::array<std::byte, 2048> sink;
    unsigned n = 0;
    while (recv(fd_, sink.data(), sink.size(), MSG_DONTWAIT) >= 0) ++n;
    return n;
  }

 private:
  static sockaddr_in at(std::uint16_t port) {
    sockaddr_in a{};
    a.sin_family = AF_INET;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    a.sin_port = htons(port);
    return a;
  }
  int fd_;
};

std::vector<std::byte> request(std::uint32_t transaction, std::uint16_t service, std::string_view data = {},
                               std::size_t extension = 0) {
  std::vector<std::byte> out(512);
  const std::size_t header = llp::SidrRequest{transaction, service}.emit(out, 0x123456, extension);
  out.resize(llp::finish_datagram(out, header, std::as_bytes(std::span(data))));
  return out;
}

std::vector<std::byte> reply(std::uint32_t transaction, std::uint8_t status = 0) {
  std::vector<std::byte> out(512);
  const std::size_t header = llp::SidrReply{transaction, status, 0x3c351, 77}.emit(out, 0x123456, 0x3c351);
  out.resize(llp::finish_datagram(out, header, Octets{}));
  return out;
}

void private_data_and_qp_cross(void**) {
  Channel server, client;
  const auto service = listener(server, 1);
  const auto id = resolved(client, server.port(service), 2);
  const auto qp = make_qp();
  assert_int_equal(client.connect(id, qp, "who are you"), 0);
  const UdEvent asked = expect(server, kConnectRequest);
  assert_int_equal(asked.uid, 1);
  assert_string_equal(data_of(asked.ud).c_str(), "who are you");
  const auto theirs = make_qp();
  assert_int_equal(server.accept(asked.id, 3, theirs, "a service"), 0);
  const UdEvent answered = expect(client, kEstablished);
  assert_int_equal(answered.uid, 2);
  assert_string_equal(data_of(answered.ud).c_str(), "a service");
  assert_int_equal(answered.ud.qp_num, theirs);
  assert_int_equal(answered.ud.qkey, kUdpQkey);
  assert_int_equal(answered.ud.ah_attr.is_global, 1);
  assert_int_equal(answered.ud.ah_attr.port_num, 1);
  assert_int_equal(answered.ud.ah_attr.grh.sgid_index, 0);
  const std::uint8_t loopback[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1};
  assert_memory_equal(answered.ud.ah_attr.grh.dgid, loopback, 16);
  // There is no connection to end, and none was announced on the passive side.
  assert_int_equal(client.disconnect(id), EINVAL);
  assert_false(server.readable());
  assert_int_equal(client.destroy(id), 3);
  assert_int_equal(server.destroy(asked.id), 0);
  assert_int_equal(server.destroy(service), 1);
}

void rejection_is_told(void**) {
  Channel server, client;
  const auto service = listener(server, 1);
  const auto id = resolved(client, server.port(service), 2);
  assert_int_equal(client.connect(id, make_qp()), 0);
  const UdEvent asked = expect(server, kConnectRequest);
  assert_int_equal(server.reject(asked.id, "not you"), 0);
  const UdEvent answered = expect(client, kUnreachable);
  assert_int_equal(answered.status, 1);
  assert_string_equal(data_of(answered.ud).c_str(), "not you");
  assert_int_equal(server.accept(asked.id, 3, make_qp()), EINVAL);
}

void repeated_and_hostile_requests(void**) {
  Channel server;
  const auto service = listener(server, 1, 2);
  const auto port = server.port(service);
  RawUdp peer;
  // Nothing of this is a request for this service.
  auto bad = request(9, port);
  bad[10] ^= std::byte{1};
  peer.send(port, bad);
  peer.send(port, request(9, static_cast<std::uint16_t>(port + 1)));
  peer.send(port, reply(9));
  peer.send(port, Octets(request(9, port)).first(23));
  peer.send(port, request(9, port, std::string(300, 'x')));
  peer.send(port, {});
  // Asked three times, announced once.
  for (int i = 0; i < 3; ++i) peer.send(port, request(10, port, "hi"));
  const UdEvent asked = expect(server, kConnectRequest);
  assert_string_equal(data_of(asked.ud).c_str(), "hi");
  // A full backlog: the third waits until it asks again.
  for (const std::uint32_t t : {11u, 12u, 13u}) peer.send(port, request(t, port));
  settle();
  const UdEvent second = expect(server, kConnectRequest);
  const UdEvent third = expect(server, kConnectRequest);
  settle();
  assert_false(server.readable());
  peer.send(port, request(13, port));
  const UdEvent fourth = expect(server, kConnectRequest);
  for (const auto& e : {second, third, fourth}) assert_int_equal(server.destroy(e.id), 0);
  // The answer, and again when it is asked again.
  assert_int_equal(server.accept(asked.id, 5, 0x10203, "yes"), 0);
  for (int i = 0; i < 2; ++i) {
    std::uint16_t from;
    const auto octets = peer.receive(&from);
    assert_int_equal(from, port);
    const auto d = llp::parse_datagram(octets, false);
    assert_true(d.ok());
    assert_true(d.value().prefix.type == llp::DatagramType::sidr_reply);
    assert_int_equal(d.value().prefix.destination, 0x123456);
    assert_true((llp::SidrReply::parse(d.value()) == llp::SidrReply{10, 0, 0x10203, kUdpQkey}));
    assert_memory_equal(d.value().segment.data(), "yes", 3);
    peer.send(port, request(10, port, "hi"));
  }
  settle();
  assert_false(server.readable());
}

// What no request comes of costs no look at the interfaces: strangers can send much of it. Others cost one for all that
// arrive at one address together.
void strangers_cost_no_look(void**) {
  constexpr unsigned kMany = 1000, kFew = 20;
  Channel server;
  const auto service = listener(server, 1, 1);
  const auto port = server.port(service);
  RawUdp peer;
  peer.send(port, request(1, port));
  settle();
  assert_true(server.readable());  // and the backlog is full
  const auto cost_of = [&](auto datagram) {
    const unsigned before = looks;
    for (unsigned i = 0; i < kMany; ++i) {
      peer.send(port, datagram(i));
      if (i % 50 == 49) settle();
    }
    return looks - before;
  };
  assert_in_range(cost_of([&](unsigned i) { return request(2 + i, static_cast<std::uint16_t>(port + 1)); }), 0, kFew);
  assert_in_range(cost_of([&](unsigned) { return request(1, port); }), 0, kFew);
  assert_in_range(cost_of([&](unsigned i) { return request(2 + i, port); }), 0, kFew);
  const UdEvent first = expect(server, kConnectRequest);
  peer.send(port, request(5000, port));
  const UdEvent second = expect(server, kConnectRequest);
  assert_int_not_equal(first.id, second.id);
}

void only_the_right_answer_counts(void**) {
  Channel client;
  RawUdp service;
  const auto id = resolved(client, service.port(), 2);
  assert_int_equal(client.connect(id, 0x70707), 0);
  std::uint16_t from;
  const auto asked = service.receive(&from);
  const auto d = llp::parse_datagram(asked, false);
  assert_true(d.ok());
  assert_int_equal(d.value().prefix.source, 0x70707);
  const auto r = llp::SidrRequest::parse(d.value());
  assert_int_equal(r.service_port, service.port());
  assert_int_equal(from, client.port(id));
  service.send(from, reply(r.transaction + 1));
  service.send(from, asked);
  auto bad = reply(r.transaction);
  bad.back() ^= std::byte{1};
  service.send(from, bad);
  // Asked again, half a second later.
  const auto again = service.receive(&from);
  assert_true(again == asked);
  assert_false(client.readable());
  service.send(from, reply(r.transaction));
  service.send(from, reply(r.transaction));
  const UdEvent answered = expect(client, kEstablished);
  assert_int_equal(answered.ud.qp_num, 0x3c351);
  assert_int_equal(answered.ud.qkey, 77);
  settle();
  assert_false(client.readable());
}

// No answer of ours is more than three times as long as what asks for it.
void requests_are_padded(void**) {
  for (const std::size_t length : {0u, 1u, 55u, 69u, 70u, 71u, 180u}) {
    RawUdp service;  // of its own: a request that was repeated meanwhile is none of the next one's
    Channel client;
    const auto id = resolved(client, service.port(), 2);
    assert_int_equal(client.connect(id, 0x70707, std::string(length, 'x')), 0);
    std::uint16_t from;
    const auto asked = service.receive(&from);
    assert_in_range(asked.size(), 96, length < 70 ? 99 : 512);
    const auto d = llp::parse_datagram(asked, false);
    assert_true(d.ok());
    assert_int_equal(d.value().segment.size(), length);
    for (std::size_t i = 20; i < d.value().header.size(); ++i)
      assert_int_equal(std::to_integer<int>(d.value().header[i]), 0);
    assert_true(3 * asked.size() >= 24 + 2 + 255 + 4);
  }
}

// Whose address is forged gets little for it: long answers and repeated ones are seldom.
void answers_are_limited(void**) {
  constexpr unsigned kPerSource = 10, kInAll = 100;  // in a second
  constexpr std::size_t kFill = 18;                  // words: 98 octets
  const std::string longest(255, 'x');
  Channel server;
  const auto service = listener(server, 1);
  const auto port = server.port(service);
  const auto begin = std::chrono::steady_clock::now();
  const auto seconds = [&] {
    return static_cast<unsigned>(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count()) + 2;
  };
  const auto serve = [&](const RawUdp& peer, std::uint32_t transaction, std::size_t extension) {
    peer.send(port, request(transaction, port, {}, extension));
    const UdEvent asked = expect(server, kConnectRequest);
    assert_int_equal(server.accept(asked.id, 5, 0x10203, longest), 0);
    settle();
  };
  // 26 octets ask for 285 of them, and ask again. The service goes on.
  RawUdp old;
  serve(old, 1, 0);
  for (unsigned i = 0; i < 500; ++i) {
    old.send(port, request(1, port));
    if (i % 50 == 0) settle();
  }
  settle();
  const unsigned got = old.take_all();
  assert_in_range(got, 1, kPerSource * seconds());
  // Requests that are as long as they should be have an answer each.
  RawUdp modern(INADDR_LOOPBACK + 1);
  for (std::uint32_t i = 0; i < 40; ++i) serve(modern, 100 + i, kFill);
  assert_int_equal(modern.take_all(), 40);
  // And no other one for asking again.
  for (unsigned i = 0; i < 500; ++i) {
    modern.send(port, request(100, port, {}, kFill));
    if (i % 50 == 0) settle();
  }
  settle();
  assert_in_range(modern.take_all(), 1, kPerSource * seconds());
  // From many addresses.
  unsigned all = 0;
  const auto start = std::chrono::steady_clock::now();
  for (std::uint32_t i = 0; i < 200; ++i) {
    RawUdp stranger(INADDR_LOOPBACK + 2 + i);
    serve(stranger, 1000 + i, 0);
    all += stranger.take_all();
  }
  const auto took =
      static_cast<unsigned>(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  assert_in_range(all, 1, kInAll * (took + 2) - 1);
}

void destroyed_in_between(void**) {
  Channel server, client;
  const auto service = listener(server, 1);
  const auto id = resolved(client, server.port(service), 2);
  assert_int_equal(client.connect(id, make_qp()), 0);
  client.destroy(id);
  const UdEvent asked = expect(server, kConnectRequest);
  // The listener has gone, the answer still leaves.
  assert_int_equal(server.destroy(service), 1);
  assert_int_equal(server.accept(asked.id, 3, make_qp()), 0);
  server.destroy(asked.id);
}

void groups(void**) {
  Channel channel;
  const auto id = channel.create(1, RDMA_PS_UDP);
  rdma_ucm_create_id_resp response{};
  rdma_ucm_join_ip_mcast join{};
  join.response = reinterpret_cast<std::uintptr_t>(&response);
  join.uid = 42;
  join.id = id;
  const auto set = [&](const char* host) {
    const auto a = address(host, 0);
    std::memcpy(&join.addr, &a, sizeof a);
  };
  set("239.1.2.3");
  assert_int_equal(channel.run(RDMA_USER_CM_CMD_JOIN_IP_MCAST, join, sizeof response), EINVAL);  // no address yet
  assert_int_equal(channel.bind(id, address("127.0.0.1", 0)), 0);
  assert_int_equal(channel.resolve(id, address("239.1.2.3", 0)), 0);
  channel.expect(kAddrResolved);
  set("127.0.0.1");
  assert_int_equal(channel.run(RDMA_USER_CM_CMD_JOIN_IP_MCAST, join, sizeof response), EINVAL);
  set("239.1.2.3");
  assert_int_equal(channel.run(RDMA_USER_CM_CMD_JOIN_IP_MCAST, join, sizeof response), 0);
  const UdEvent joined = expect(channel, kMulticastJoin);
  assert_int_equal(joined.uid, 42);
  assert_int_equal(joined.id, response.id);
  assert_int_equal(joined.ud.qp_num, 0xffffff);
  assert_int_equal(joined.ud.qkey, kUdpQkey);
  const std::uint8_t gid[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 1, 2, 3};
  assert_memory_equal(joined.ud.ah_attr.grh.dgid, gid, 16);
  // LEAVE says how many events of this membership were fetched; what was not, is not seen any more.
  rdma_ucm_destroy_id_resp left{};
  const auto leave = [&](std::uint32_t number) {
    rdma_ucm_destroy_id command{};
    command.response = reinterpret_cast<std::uintptr_t>(&left);
    command.id = number;
    return channel.run(RDMA_USER_CM_CMD_LEAVE_MCAST, command, sizeof left);
  };
  assert_int_equal(leave(response.id), 0);
  assert_int_equal(left.events_reported, 1);
  assert_int_equal(leave(response.id), ENOENT);
  assert_int_equal(channel.run(RDMA_USER_CM_CMD_JOIN_IP_MCAST, join, sizeof response), 0);
  assert_int_equal(leave(response.id), 0);
  assert_int_equal(left.events_reported, 0);
  assert_false(channel.readable());
  assert_int_equal(channel.run(RDMA_USER_CM_CMD_JOIN_IP_MCAST, join, sizeof response), 0);
  assert_int_equal(channel.destroy(id), 2);  // takes the membership along
  assert_int_equal(leave(response.id), ENOENT);
  const auto stream = channel.create(5, RDMA_PS_TCP);
  join.id = stream;
  assert_int_equal(channel.run(RDMA_USER_CM_CMD_JOIN_IP_MCAST, join, sizeof response), EINVAL);
}

// Eight requests, half a second apart, then UNREACHABLE.
void nobody_answers(void**) {
  Channel client;
  RawUdp silent;
  const auto id = resolved(client, silent.port(), 2);
  assert_int_equal(client.connect(id, 0x70707), 0);
  const UdEvent e = expect(client, kUnreachable);
  assert_int_equal(e.status, -ETIMEDOUT);
  for (int i = 0; i < 8; ++i) {
    std::uint16_t from;
    assert_false(silent.receive(&from).empty());
  }
}

}  // namespace
}  // namespace ewarp::test

int main() {
  using namespace ewarp::test;
  const CMUnitTest tests[] = {
      cmocka_unit_test(private_data_and_qp_cross),
      cmocka_unit_test(rejection_is_told),
      cmocka_unit_test(repeated_and_hostile_requests),
      cmocka_unit_test(strangers_cost_no_look),
      cmocka_unit_test(only_the_right_answer_counts),
      cmocka_unit_test(requests_are_padded),
      cmocka_unit_test(answers_are_limited),
      cmocka_unit_test(destroyed_in_between),
      cmocka_unit_test(groups),
      cmocka_unit_test(nobody_answers),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
