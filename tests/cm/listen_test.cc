// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The passive side against scripted initiators: what becomes a CONNECT_REQUEST, what is answered, what is refused.
#include <arpa/inet.h>
#include <endian.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/cm/channel.h"
#include "tests/cm/standins.h"

// cmocka last: its fail() is a macro.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
extern "C" {
#include <cmocka.h>
}

namespace ewarp::test {
namespace {

constexpr unsigned kM = 0x80, kC = 0x40, kR = 0x20, kS = 0x10;
constexpr unsigned kOffer = 0x02, kConsent = 0x01;
constexpr unsigned kWrite = 2, kRead = 4;

std::string plain_request(std::string_view data = {}) {
  return encode({false, 0, 1, std::string(data)});
}
std::string enhanced_request(std::string_view data = {}) {
  return encode({false, kS | kOffer, 2, enhanced_word(true, kWrite | kRead, 6, 3) + std::string(data)});
}

// Events that wait in the channel, by the eventfd's own count.
unsigned queued(const Channel& channel) {
  char path[64], line[128];
  unsigned count = ~0U;
  std::snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", channel.fd());
  FILE* f = std::fopen(path, "re");
  while (std::fgets(line, sizeof(line), f) != nullptr) std::sscanf(line, "eventfd-count: %x", &count);
  std::fclose(f);
  return count;
}

struct Server {
  Channel channel;
  std::uint32_t id;
  std::uint16_t port;
  explicit Server(const char* host = "127.0.0.1", unsigned backlog = 0) {
    id = channel.listener(host, 42, backlog);
    port = channel.port(id);
    assert_int_not_equal(port, 0);
  }
};

// Holds: MPA-50, MPA-57
void requests_become_events(void**) {
  const struct {
    const char* name;
    std::string request;
    const char* data;
    int initiator_depth, responder_resources;
    Frame reply;
    bool waits;  // for the first message
    int ird, ord;
  } cases[] = {
      {"revision 1", plain_request("old"), "old", 128, 128, {true, 0, 1, "yes"}, false, 4, 5},
      {"revision 2, S=0", encode({false, kC, 2, "x"}), "x", 128, 128, {true, kC, 2, "yes"}, false, 4, 5},
      {"enhanced, peer-to-peer",
       enhanced_request("new"),
       "new",
       6,
       3,
       {true, kS | kConsent, 2, enhanced_word(true, kWrite | kRead, 4, 5) + "yes"},
       true,
       4,
       5},
      {"enhanced, client-server, depths not negotiated",
       encode({false, kS, 2, enhanced_word(false, 0, 0x3fff, 0x3fff)}),
       "",
       128,
       128,
       {true, kS, 2, enhanced_word(false, 0, 0x3fff, 0x3fff) + "yes"},
       false,
       4,
       5},
      {"depths adapt",
       encode({false, kS, 2, enhanced_word(false, 0, 2, 9)}),
       "",
       2,
       9,
       {true, kS, 2, enhanced_word(false, 0, 9, 2) + "yes"},
       false,
       9,
       2},
  };
  for (const auto& c : cases) {
    print_message("case: %s\n", c.name);
    Server server;
    RawSocket peer = RawSocket::connected("127.0.0.1", server.port);
    peer.send(c.request);
    const Event request = server.channel.expect(kConnectRequest);
    assert_int_equal(request.uid, 42);
    assert_int_equal(request.status, 0);
    assert_int_not_equal(request.id, server.id);
    assert_string_equal(request.data().c_str(), c.data);
    assert_int_equal(request.conn.initiator_depth, c.initiator_depth);
    assert_int_equal(request.conn.responder_resources, c.responder_resources);

    const auto qp = make_qp();
    assert_int_equal(server.channel.accept(request.id, 43, qp, "yes"), 0);
    const Frame reply = peer.receive_frame();
    assert_true(reply.reply);
    assert_int_equal(reply.flags, c.reply.flags);
    assert_int_equal(reply.revision, c.reply.revision);
    assert_true(reply.data == c.reply.data);
    if (c.waits) {
      settle();
      assert_false(server.channel.readable());
      peer.send("the first message");
    }
    const Event established = server.channel.expect(kEstablished);
    assert_int_equal(established.uid, 43);
    assert_int_equal(established.id, request.id);
    assert_int_equal(established.conn.responder_resources, c.ird);
    assert_int_equal(established.conn.initiator_depth, c.ord);
    assert_false(view_qp(qp).params.initiator);
    assert_int_equal(view_qp(qp).params.crc, (c.reply.flags & kC) != 0);
    peer.close();
    server.channel.expect(kDisconnected);
    // The request is booked on the listener.
    assert_int_equal(server.channel.destroy(request.id), 2);
    assert_int_equal(server.channel.destroy(server.id), 1);
  }
}

// Holds: MPA-51, MPA-53, MPA-54, MPA-55
void bad_requests_are_closed_in_silence(void**) {
  const struct {
    const char* name;
    std::string octets;
    bool fin;
  } cases[] = {
      {"a Reply", encode({true, 0, 1, ""}), false},
      {"revision 3", encode({false, 0, 3, ""}), false},
      {"not MPA", "GET / HTTP/1.1\r\nHost: localhost\r\n", false},
      {"PD_Length 513", encode({false, 0, 1, std::string(513, 'x')}).substr(0, 20), false},
      {"S=1 without the word", encode({false, kS, 2, "ab"}), false},
      {"FIN inside", plain_request("abc").substr(0, 21), true},
      {"nothing", "", true},
  };
  Server server;
  for (const auto& c : cases) {
    print_message("case: %s\n", c.name);
    RawSocket peer = RawSocket::connected("127.0.0.1", server.port);
    peer.send(c.octets);
    if (c.fin) {
      peer.close();
    } else {
      assert_true(peer.at_end());
    }
    settle();
    assert_false(server.channel.readable());
  }
  RawSocket good = RawSocket::connected("127.0.0.1", server.port);
  good.send(plain_request());
  server.channel.expect(kConnectRequest);
}

// Holds: MPA-61
void every_cut_of_the_request_is_the_same(void**) {
  Server server;
  const std::string request = enhanced_request("data");
  for (std::size_t cut = 1; cut < request.size(); ++cut) {
    RawSocket peer = RawSocket::connected("127.0.0.1", server.port);
    peer.send(request.substr(0, cut));
    settle();
    assert_false(server.channel.readable());
    peer.send(request.substr(cut));
    const Event e = server.channel.expect(kConnectRequest);
    assert_string_equal(e.data().c_str(), "data");
    server.channel.destroy(e.id);
    assert_true(peer.at_end());
  }
}

void private_data_of_a_request_is_cut_to_255(void**) {
  Server server;
  RawSocket peer = RawSocket::connected("127.0.0.1", server.port);
  peer.send(plain_request(std::string(512, 'p')));
  assert_true(server.channel.expect(kConnectRequest).data() == std::string(255, 'p'));
}

// Holds: MPA-58
void reject_says_so_and_closes(void**) {
  for (const bool talkative : {false, true}) {
    Server server;
    RawSocket peer = RawSocket::connected("127.0.0.1", server.port);
    peer.send(enhanced_request());
    const Event request = server.channel.expect(kConnectRequest);
    // Unread octets must not turn the Reply into a reset.
    if (talkative) peer.send("impatient");
    assert_int_equal(server.channel.reject(request.id, "because", 7), EINVAL);
    assert_int_equal(server.channel.reject(request.id, "because"), 0);
    const Frame reply = peer.receive_frame();
    assert_int_equal(reply.flags & (kR | kS), kR | kS);
    assert_string_equal(reply.data.substr(4).c_str(), "because");
    assert_true(peer.at_end());
    peer.close();
    assert_int_equal(server.channel.reject(request.id), EINVAL);
    assert_int_equal(server.channel.accept(request.id, 1, make_qp()), EINVAL);
    assert_int_equal(server.channel.destroy(request.id), 0);
  }
}

void accept_finds_the_peer_gone_or_talking(void**) {
  for (const bool gone : {false, true}) {
    Server server;
    RawSocket peer = RawSocket::connected("127.0.0.1", server.port);
    peer.send(enhanced_request());
    const Event request = server.channel.expect(kConnectRequest);
    if (gone) {
      peer.close();
    } else {
      peer.send("too early");
    }
    settle();
    const auto qp = make_qp();
    assert_int_equal(server.channel.accept(request.id, 9, qp), gone ? ECONNRESET : EPROTO);
    assert_false(view_qp(qp).attached);
    settle();
    assert_false(server.channel.readable());
    assert_int_equal(server.channel.destroy(request.id), 0);
  }
}

void accept_needs_a_queue_pair(void**) {
  Server server;
  RawSocket peer = RawSocket::connected("127.0.0.1", server.port);
  peer.send(enhanced_request());
  const Event request = server.channel.expect(kConnectRequest);
  assert_int_equal(server.channel.accept(request.id, 9, 0xffffff), EINVAL);
  assert_true(peer.at_end());

  RawSocket other = RawSocket::connected("127.0.0.1", server.port);
  other.send(enhanced_request());
  const Event second = server.channel.expect(kConnectRequest);
  const auto qp = make_qp();
  refuse_attach(qp, ENOMEM);
  assert_int_equal(server.channel.accept(second.id, 9, qp), ENOMEM);
}

void lost_before_the_first_message(void**) {
  Server server;
  RawSocket peer = RawSocket::connected("127.0.0.1", server.port);
  peer.send(enhanced_request());
  const Event request = server.channel.expect(kConnectRequest);
  assert_int_equal(server.channel.accept(request.id, 9, make_qp()), 0);
  peer.receive_frame();
  peer.close();
  const Event e = server.channel.expect(kConnectError);
  assert_int_equal(e.uid, 9);
  assert_int_equal(e.status, -ECONNRESET);
}

void markers_on_demand(void**) {
  Server server;
  RawSocket peer = RawSocket::connected("127.0.0.1", server.port);
  peer.send(encode({false, kM, 1, ""}));
  const Event request = server.channel.expect(kConnectRequest);
  const auto qp = make_qp();
  assert_int_equal(server.channel.accept(request.id, 9, qp), 0);
  assert_int_equal(peer.receive_frame().flags & kM, 0);
  assert_true(view_qp(qp).params.tx_markers);
  assert_false(view_qp(qp).params.rx_markers);
}

bool have_ipv6() {
  const int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in6 loop = address("::1", 0);
  const bool ok = fd >= 0 && bind(fd, reinterpret_cast<const sockaddr*>(&loop), sizeof(loop)) == 0;
  close(fd);
  return ok;
}

void needs_ipv6() {
  if (have_ipv6()) return;
  print_message("skipped: no IPv6 address on the loopback\n");
  skip();
}

void wildcard_ids_are_bound_by_their_connection(void**) {
  const struct {
    const char *listen, *connect;
  } cases[] = {{"0.0.0.0", "127.0.0.1"}, {"0.0.0.0", "127.0.0.2"}, {"::", "::1"}, {"::", "127.0.0.1"}, {"::1", "::1"}};
  for (const auto& c : cases) {
    if (std::strchr(c.listen, ':') != nullptr && !have_ipv6()) continue;
    print_message("case: %s reached as %s\n", c.listen, c.connect);
    Server server(c.listen);
    const bool specific = std::strcmp(c.listen, "::1") == 0;
    assert_int_equal(server.channel.query_route(server.id).node_guid, specific ? htobe64(loopback_guid()) : 0);
    RawSocket peer = RawSocket::connected(c.connect, server.port);
    peer.send(plain_request());
    const Event request = server.channel.expect(kConnectRequest);
    const auto route = server.channel.query_route(request.id);
    const sockaddr_in6 local = address(c.connect, server.port);
    const std::size_t size = local.sin6_family == AF_INET ? 8 : sizeof(local);
    assert_memory_equal(&route.src_addr, &local, size);
    assert_int_equal(port_of(&route.dst_addr), peer.port());
    assert_int_equal(route.node_guid, htobe64(loopback_guid()));
    assert_int_equal(route.port_num, 1);
    assert_int_equal(route.ib_route[0].pkey, 0xffff);
  }
  needs_ipv6();
}

void afonly_keeps_ipv4_out(void**) {
  needs_ipv6();
  for (const bool late : {false, true}) {
    Channel channel;
    const auto id = channel.create(1);
    const int on = 1;
    if (!late) assert_int_equal(channel.set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &on, sizeof(on)), 0);
    assert_int_equal(channel.bind(id, address("::", 0)), 0);
    if (late) assert_int_equal(channel.set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &on, sizeof(on)), 0);
    assert_int_equal(channel.listen(id), 0);
    const sockaddr_in6 v4 = address("127.0.0.1", channel.port(id));
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, reinterpret_cast<const sockaddr*>(&v4), sizeof(sockaddr_in)), -1);
    close(fd);
    RawSocket::connected("::1", channel.port(id));
    assert_int_equal(channel.set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &on, sizeof(on)), EINVAL);
  }
}

void a_port_has_one_listener(void**) {
  Channel channel;
  const auto first = channel.listener("127.0.0.1", 1);
  const auto port = channel.port(first);
  const auto second = channel.create(2);
  int error = channel.bind(second, address("127.0.0.1", port));
  if (error == 0) error = channel.listen(second);
  assert_int_equal(error, EADDRINUSE);

  // Two bound, neither listening: the first to listen wins.
  const auto third = channel.create(3), fourth = channel.create(4);
  const RawSocket spare = RawSocket::listening("127.0.0.1", -1);
  const auto free_port = spare.port();
  const_cast<RawSocket&>(spare).close();
  assert_int_equal(channel.bind(third, address("127.0.0.1", free_port)), 0);
  error = channel.bind(fourth, address("127.0.0.1", free_port));
  if (error == 0) {
    assert_int_equal(channel.listen(third), 0);
    error = channel.listen(fourth);
  }
  assert_int_equal(error, EADDRINUSE);

  channel.destroy(first);
  const auto fifth = channel.listener("127.0.0.1", 5, 0, port);
  assert_int_equal(channel.port(fifth), port);
}

void listen_without_bind_takes_any_port(void**) {
  Channel channel;
  const auto id = channel.create(1);
  assert_int_equal(channel.listen(id), 0);
  assert_int_not_equal(channel.port(id), 0);
  assert_int_equal(channel.listen(id), EINVAL);
}

void backlog_bounds_what_waits(void**) {
  Server server("127.0.0.1", 2);
  std::vector<RawSocket> peers;
  for (int i = 0; i < 5; ++i) {
    peers.push_back(RawSocket::connected("127.0.0.1", server.port));
    peers.back().send(plain_request(std::to_string(i)));
  }
  settle();
  assert_int_equal(queued(server.channel), 2);
  for (int i = 0; i < 5; ++i) {
    assert_string_equal(server.channel.expect(kConnectRequest).data().c_str(), std::to_string(i).c_str());
    settle();
    assert_true(queued(server.channel) <= 2);
  }
  assert_int_equal(server.channel.destroy(server.id), 5);
}

void requests_that_come_together_keep_the_order_of_accept(void**) {
  Server server;
  std::vector<RawSocket> peers;
  for (int i = 0; i < 8; ++i) peers.push_back(RawSocket::connected("127.0.0.1", server.port));
  settle();
  {
    const PausedReactor paused;
    for (const int i : {1, 2, 4, 5, 6, 7})
      peers[i].send(i == 5 ? "not MPA, and long enough" : plain_request(std::to_string(i)));
  }
  for (const char* i : {"1", "2", "4", "6", "7"})
    assert_string_equal(server.channel.expect(kConnectRequest).data().c_str(), i);
  assert_true(peers[5].at_end());
  // Who said nothing held up nobody, and is heard when he speaks.
  for (const int i : {3, 0}) {
    peers[i].send(plain_request(std::to_string(i)));
    assert_string_equal(server.channel.expect(kConnectRequest).data().c_str(), std::to_string(i).c_str());
  }
}

void destroying_a_listener_drops_what_nobody_saw(void**) {
  const int fds = open_fds();
  {
    Server server("127.0.0.1", 3);
    std::vector<RawSocket> peers;
    for (int i = 0; i < 5; ++i) {
      peers.push_back(RawSocket::connected("127.0.0.1", server.port));
      peers.back().send(plain_request());
    }
    peers.push_back(RawSocket::connected("127.0.0.1", server.port));  // says nothing
    settle();
    const Event seen = server.channel.expect(kConnectRequest);
    settle();
    assert_int_equal(queued(server.channel), 3);
    assert_int_equal(server.channel.destroy(server.id), 1);
    assert_int_equal(queued(server.channel), 0);
    for (std::size_t i = 1; i < peers.size(); ++i) assert_true(peers[i].at_end());
    // The one that was handed out lives on.
    const auto qp = make_qp();
    assert_int_equal(server.channel.accept(seen.id, 7, qp), 0);
    peers[0].receive_frame();
    server.channel.expect(kEstablished);
    peers.clear();
    server.channel.expect(kDisconnected);
    assert_int_equal(server.channel.destroy(seen.id), 2);
  }
  expect_open_fds(fds);
}

void a_request_migrates_with_its_later_events(void**) {
  Server server;
  RawSocket peer = RawSocket::connected("127.0.0.1", server.port);
  peer.send(plain_request());
  const Event request = server.channel.expect(kConnectRequest);
  Channel own;
  std::uint32_t reported = 99;
  assert_int_equal(own.migrate(request.id, server.channel.fd(), &reported), 0);
  assert_int_equal(reported, 0);
  assert_int_equal(own.accept(request.id, 8, make_qp()), 0);
  own.expect(kEstablished);
  peer.close();
  settle();
  assert_int_equal(queued(own), 1);
  // Back again, with one event waiting.
  assert_int_equal(server.channel.migrate(request.id, own.fd(), &reported), 0);
  assert_int_equal(reported, 1);
  assert_int_equal(queued(own), 0);
  server.channel.expect(kDisconnected);
  assert_int_equal(server.channel.destroy(request.id), 2);
}

int try_to_destroy(Channel& channel, std::uint32_t id) {
  rdma_ucm_destroy_id_resp response{};
  rdma_ucm_destroy_id c{};
  c.response = reinterpret_cast<std::uint64_t>(&response);
  c.id = id;
  return channel.run(RDMA_USER_CM_CMD_DESTROY_ID, c, sizeof(response));
}

void a_request_has_no_name_before_its_event(void**) {
  Server server;
  RawSocket peer = RawSocket::connected("127.0.0.1", server.port);
  peer.send(plain_request());
  settle();
  assert_int_equal(queued(server.channel), 1);
  int hidden = 0;
  for (std::uint32_t guess = 1; guess < 100; ++guess) {
    if (guess == server.id) continue;
    const int error = try_to_destroy(server.channel, guess);
    assert_true(error == ENOENT || error == EINVAL);
    hidden += error == EINVAL;
  }
  assert_int_equal(hidden, 1);
  const Event request = server.channel.expect(kConnectRequest);
  assert_int_equal(server.channel.accept(request.id, 8, make_qp()), 0);
  server.channel.expect(kEstablished);
  assert_int_equal(server.channel.destroy(request.id), 1);
}

// Its requests go with it, and nothing of them stays with the first channel.
void a_listener_migrates_with_what_waits(void**) {
  const int fds = open_fds();
  {
    Channel second;
    std::uint32_t listener;
    std::vector<RawSocket> peers;
    {
      Server first;
      listener = first.id;
      for (int i = 0; i < 3; ++i) {
        peers.push_back(RawSocket::connected("127.0.0.1", first.port));
        peers.back().send(plain_request(std::to_string(i)));
      }
      settle();
      std::uint32_t reported = 99;
      assert_int_equal(second.migrate(listener, first.channel.fd(), &reported), 0);
      assert_int_equal(reported, 0);
      assert_int_equal(queued(first.channel), 0);
    }
    assert_int_equal(queued(second), 3);
    const Event request = second.expect(kConnectRequest);
    assert_string_equal(request.data().c_str(), "0");
    assert_int_equal(second.accept(request.id, 8, make_qp()), 0);
    peers[0].receive_frame();
    // New ids take free numbers, none that a request still has.
    const auto id = second.create(9);
    assert_int_equal(second.destroy(listener), 1);
    for (std::size_t i = 1; i < peers.size(); ++i) assert_true(peers[i].at_end());
    second.expect(kEstablished);
    assert_int_equal(second.destroy(request.id), 1);
    assert_int_equal(second.destroy(id), 0);
  }
  expect_open_fds(fds);
}

void a_listener_that_comes_late(void**) {
  const RawSocket bound = RawSocket::bound("127.0.0.1");
  const std::uint16_t port = bound.port();
  Channel server, client;
  const auto id = client.resolved("127.0.0.1", port, 5);
  assert_int_equal(client.connect(id, make_qp()), 0);
  settle();
  assert_false(client.readable());
  const auto listener = server.listener("127.0.0.1", 1, 0, port);
  const Event request = server.expect(kConnectRequest);
  assert_int_equal(server.reject(request.id, "late"), 0);
  assert_string_equal(client.expect(kRejected).data().c_str(), "late");
  server.destroy(listener);
}

}  // namespace
}  // namespace ewarp::test

int main() {
  using namespace ewarp::test;
  setenv("ETHERWARP_CLOSE_TIMEOUT_MS", "300", 1);
  setenv("ETHERWARP_CONNECT_TIMEOUT_MS", "60000", 1);
  setenv("ETHERWARP_REFUSED_WAIT_MS", "60000", 1);
  settle();
  const CMUnitTest tests[] = {
      cmocka_unit_test(requests_become_events),
      cmocka_unit_test(bad_requests_are_closed_in_silence),
      cmocka_unit_test(every_cut_of_the_request_is_the_same),
      cmocka_unit_test(private_data_of_a_request_is_cut_to_255),
      cmocka_unit_test(reject_says_so_and_closes),
      cmocka_unit_test(accept_finds_the_peer_gone_or_talking),
      cmocka_unit_test(accept_needs_a_queue_pair),
      cmocka_unit_test(lost_before_the_first_message),
      cmocka_unit_test(markers_on_demand),
      cmocka_unit_test(wildcard_ids_are_bound_by_their_connection),
      cmocka_unit_test(afonly_keeps_ipv4_out),
      cmocka_unit_test(a_port_has_one_listener),
      cmocka_unit_test(listen_without_bind_takes_any_port),
      cmocka_unit_test(backlog_bounds_what_waits),
      cmocka_unit_test(requests_that_come_together_keep_the_order_of_accept),
      cmocka_unit_test(destroying_a_listener_drops_what_nobody_saw),
      cmocka_unit_test(a_request_migrates_with_its_later_events),
      cmocka_unit_test(a_request_has_no_name_before_its_event),
      cmocka_unit_test(a_listener_migrates_with_what_waits),
      cmocka_unit_test(a_listener_that_comes_late),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
