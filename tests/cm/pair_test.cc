// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Both ends in one process: data and depths across, many connections at once, migration, fork, lack of descriptors.
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <map>
#include <thread>

#include "provider/cm/cm.h"
#include "tests/cm/channel.h"
#include "tests/cm/standins.h"
#include "tests/llp/nodelay.h"

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

std::string numbered(std::size_t n) {
  std::string out;
  for (std::size_t i = 0; i < n; ++i) out += static_cast<char>(i * 7);
  return out;
}

// Holds: MPA-18, MPA-57, MPA-76
void private_data_and_depths_cross(void**) {
  Channel server, client;
  const auto listener = server.listener("127.0.0.1", 1);
  for (const std::size_t size : {0, 1, 20, 100, 251, 252, 253, 254, 255}) {
    print_message("case: %zu octets\n", size);
    const auto id = client.resolved("127.0.0.1", server.port(listener), 2);
    const auto client_qp = make_qp(), server_qp = make_qp();
    assert_int_equal(client.connect(id, client_qp, numbered(size), 3, 10), 0);
    const Event request = server.expect(kConnectRequest);
    assert_true(request.data() == numbered(size));
    assert_int_equal(request.conn.responder_resources, 10);
    assert_int_equal(request.conn.initiator_depth, 3);
    assert_int_equal(server.accept(request.id, 4, server_qp, numbered(255 - size), 7, 2), 0);
    const Event there = client.expect(kEstablished);
    assert_true(there.data() == numbered(255 - size));
    const Event here = server.expect(kEstablished);
    assert_int_equal(here.uid, 4);
    test::expect_nodelay(2);
    // Our ORD within the other's IRD, both ways; the responder raised its IRD to what was asked.
    assert_int_equal(there.conn.initiator_depth, 10);
    assert_int_equal(there.conn.responder_resources, 3);
    assert_int_equal(here.conn.initiator_depth, 2);
    assert_int_equal(here.conn.responder_resources, 10);
    assert_int_equal(client.disconnect(id), 0);
    // The stand-in closes when its peer does.
    server.expect(kDisconnected);
    client.expect(kDisconnected);
    assert_int_equal(client.destroy(id), 4);
    assert_int_equal(server.destroy(request.id), 2);
  }
  assert_int_equal(server.destroy(listener), 9);
}

// rnr_retry_count 7 is about the Sends that one receives, so each end says it for itself.
void sends_wait_where_the_program_says_so(void**) {
  Channel server, client;
  const auto listener = server.listener("127.0.0.1", 1);
  for (const bool at_server : {false, true})
    for (const bool at_client : {false, true}) {
      server.rnr_retry_count = at_server ? 7 : 6;
      client.rnr_retry_count = at_client ? 7 : 6;
      const auto id = client.resolved("127.0.0.1", server.port(listener), 2);
      const auto client_qp = make_qp(), server_qp = make_qp();
      assert_int_equal(client.connect(id, client_qp), 0);
      const Event request = server.expect(kConnectRequest);
      assert_int_equal(server.accept(request.id, 4, server_qp), 0);
      client.expect(kEstablished);
      server.expect(kEstablished);
      assert_int_equal(view_qp(client_qp).lets_sends_wait, at_client);
      assert_int_equal(view_qp(server_qp).lets_sends_wait, at_server);
      assert_int_equal(client.disconnect(id), 0);
      server.expect(kDisconnected);
      client.expect(kDisconnected);
      client.destroy(id);
      server.destroy(request.id);
    }
}

// Holds: MPA-58
void reject_crosses(void**) {
  Channel server, client;
  const auto listener = server.listener("127.0.0.1", 1);
  for (const std::size_t size : {0, 1, 255}) {
    const auto id = client.resolved("127.0.0.1", server.port(listener), 2);
    assert_int_equal(client.connect(id, make_qp()), 0);
    assert_int_equal(server.reject(server.expect(kConnectRequest).id, numbered(size)), 0);
    const Event e = client.expect(kRejected);
    assert_true(e.data() == numbered(size));
    assert_int_equal(e.status, -ECONNRESET);
  }
}

void migrate_takes_waiting_events_along(void**) {
  Channel server, client, other;
  const auto listener = server.listener("127.0.0.1", 1);
  const auto id = client.create(2);
  assert_int_equal(client.resolve(id, address("127.0.0.1", server.port(listener))), 0);
  client.expect(kAddrResolved);
  assert_int_equal(client.resolve_route(id), 0);
  std::uint32_t reported = 99;
  assert_int_equal(other.migrate(id, 0, &reported), EINVAL);           // not a channel
  assert_int_equal(other.migrate(id, other.fd(), &reported), EINVAL);  // not that channel's id
  assert_int_equal(other.migrate(id, client.fd(), &reported), 0);
  assert_int_equal(reported, 1);
  assert_false(client.readable());
  assert_int_equal(client.connect(id, make_qp()), EINVAL);
  other.expect(kRouteResolved);
  assert_int_equal(other.connect(id, make_qp()), 0);
  const Event request = server.expect(kConnectRequest);
  client.close();  // no longer matters
  assert_int_equal(server.accept(request.id, 3, make_qp()), 0);
  other.expect(kEstablished);
  assert_int_equal(other.destroy(id), 3);
}

void many_at_once(void**) {
  constexpr unsigned kConnections = 200;
  settle();
  const int fds = open_fds();
  {
    Channel server, client;
    const auto listener = server.listener("127.0.0.1", 1, 16);
    const auto port = server.port(listener);
    std::map<std::uint32_t, std::uint32_t> qps;
    std::vector<std::uint32_t> ids;
    for (unsigned i = 0; i < kConnections; ++i) ids.push_back(client.resolved("127.0.0.1", port, 1000 + i));
    std::thread accepting([&] {
      unsigned established = 0, ended = 0;
      std::uint64_t uid = 1;
      while (established < kConnections || ended < kConnections) {
        const Event e = server.next();
        if (e.type == kConnectRequest) {
          assert_int_equal(server.accept(e.id, ++uid, make_qp(), e.data()), 0);
        } else if (e.type == kEstablished) {
          ++established;
        } else {
          assert_int_equal(e.type, kDisconnected);
          ++ended;
        }
      }
    });
    for (unsigned i = 0; i < kConnections; ++i)
      assert_int_equal(client.connect(ids[i], make_qp(), std::to_string(i)), 0);
    for (unsigned i = 0; i < kConnections; ++i) {
      const Event e = client.expect(kEstablished);
      assert_string_equal(e.data().c_str(), std::to_string(e.uid - 1000).c_str());
    }
    for (const auto id : ids) assert_int_equal(client.disconnect(id), 0);
    for (unsigned i = 0; i < kConnections; ++i) client.expect(kDisconnected);
    accepting.join();
    for (const auto id : ids) assert_int_equal(client.destroy(id), 4);
  }
  expect_open_fds(fds);
}

// Ids come and go on many threads while connections start: nothing is left over, nothing crashes.
void destroyed_at_any_moment(void**) {
  settle();
  const int fds = open_fds();
  {
    Channel server;
    const auto listener = server.listener("127.0.0.1", 1);
    const auto port = server.port(listener);
    std::vector<std::thread> threads;
    std::atomic<bool> listening{true};  // afterwards each connect() tries for as long as refused_wait_ms says
    for (unsigned t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        Channel client;
        for (unsigned i = 0; i < 50; ++i) {
          const auto id = client.resolved("127.0.0.1", port, 2);
          assert_int_equal(client.connect(id, make_qp()), 0);
          if ((i + t) % 2 == 0) std::this_thread::yield();
          if ((i + t) % 5 == 0 && listening) client.next();
          client.destroy(id);
        }
      });
    }
    std::thread accepting([&] {
      for (unsigned i = 0; i < 40; ++i) {
        const Event e = server.next();
        if (e.type != kConnectRequest) continue;
        server.accept(e.id, 5, make_qp());
        if (i % 3 == 0) server.destroy(e.id);
      }
      listening = false;
      server.destroy(listener);
    });
    accepting.join();
    for (auto& thread : threads) thread.join();
  }
  expect_open_fds(fds);
}

void lack_of_descriptors_passes(void**) {
  Channel server;
  const auto listener = server.listener("127.0.0.1", 1);
  const auto port = server.port(listener);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  rlimit old;
  getrlimit(RLIMIT_NOFILE, &old);
  // The hard limit can be lowered by anybody and raised by root alone, so this test is the last one.
  const rlimit tight{512, 512};
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
  std::vector<int> fill;
  for (int filler; (filler = dup(fd)) >= 0;) fill.push_back(filler);
  const sockaddr_in6 to = address("127.0.0.1", port);
  assert_int_equal(connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof(sockaddr_in)), 0);
  const std::string request = encode({false, 0, 1, "patient"});
  assert_int_equal(send(fd, request.data(), request.size(), 0), request.size());
  settle();
  assert_false(server.readable());
  for (const int filler : fill) close(filler);
  assert_string_equal(server.expect(kConnectRequest).data().c_str(), "patient");
  close(fd);
}

void a_forked_child_holds_nothing(void**) {
  Channel server;
  const auto listener = server.listener("127.0.0.1", 1);
  RawSocket peer = RawSocket::connected("127.0.0.1", server.port(listener));
  peer.send(encode({false, 0, 1, ""}));
  const Event request = server.expect(kConnectRequest);
  int ready[2], go[2];
  assert_int_equal(pipe(ready) | pipe(go), 0);
  const pid_t child = fork();
  if (child == 0) {
    cm::in_child();
    const rdma_ucm_cmd_hdr header{RDMA_USER_CM_CMD_LISTEN, 0, 0};
    // Still known as a channel: the command must not reach the parent's eventfd.
    const bool good = cm::ucma_is(server.fd()) && cm::ucma_write(server.fd(), &header, sizeof(header)) == -EPERM;
    char c = good ? 'y' : 'n';
    if (write(ready[1], &c, 1) != 1 || read(go[0], &c, 1) != 1) _exit(1);
    _exit(0);
  }
  char c = 0;
  assert_int_equal(read(ready[0], &c, 1), 1);
  assert_int_equal(c, 'y');
  assert_false(server.readable());
  server.destroy(request.id);
  assert_true(peer.at_end());  // although the child lives
  assert_int_equal(write(go[1], &c, 1), 1);
  int status = 0;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  for (const int fd : {ready[0], ready[1], go[0], go[1]}) close(fd);
}

// The child has nobody who would give back what other threads held.
void a_child_forked_amid_commands_can_give_them(void**) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  skip();  // the sanitizer's allocator keeps its locks in a child
#endif
  Channel inherited;
  std::atomic<bool> stop{false};
  std::vector<std::thread> others;
  for (int i = 0; i < 3; ++i)
    others.emplace_back([&stop] {
      Channel channel;
      while (!stop) channel.destroy(channel.create(1));
    });
  int failed = 0;
  for (int i = 0; i < 100 && failed == 0; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);  // what hangs ends by it
      cm::in_child();
      const rdma_ucm_cmd_hdr header{RDMA_USER_CM_CMD_LISTEN, 0, 0};
      const bool refused = cm::ucma_write(inherited.fd(), &header, sizeof header) == -EPERM;
      cm::ucma_close(inherited.fd());
      _exit(refused ? 0 : 1);
    }
    int status = -1;
    if (waitpid(child, &status, 0) != child || status != 0) ++failed;
  }
  stop = true;
  for (auto& other : others) other.join();
  assert_int_equal(failed, 0);
}

// Of one queue pair: that of the first has ended, and the first id does not know it yet.
void an_id_leaves_the_next_ones_stream_alone(void**) {
  settle();
  const int fds = open_fds();
  for (const bool graceful : {false, true}) {
    Channel server, client;
    const auto port = server.port(server.listener("127.0.0.1", 1));
    const auto qp = make_qp();
    assert_int_equal(client.connect(client.resolved("127.0.0.1", port, 2), make_qp()), 0);
    const auto first = server.expect(kConnectRequest).id;
    assert_int_equal(server.accept(first, 3, qp), 0);
    server.expect(kEstablished);
    client.expect(kEstablished);
    assert_int_equal(client.connect(client.resolved("127.0.0.1", port, 4), make_qp()), 0);
    const auto second = server.expect(kConnectRequest).id;
    {
      const PausedReactor paused;
      reset_qp(qp);
      assert_int_equal(server.accept(second, 5, qp), 0);
      if (graceful)
        assert_int_equal(server.disconnect(first), 0);
      else
        server.destroy(first);
    }
    if (graceful) assert_int_equal(server.expect(kDisconnected).id, first);
    assert_int_equal(server.expect(kEstablished).id, second);
    settle();
    assert_int_equal(view_qp(qp).abort_calls + view_qp(qp).graceful_calls, 0);
    // And to its own the second one's calls do get.
    assert_int_equal(server.disconnect(second), 0);
    assert_int_equal(view_qp(qp).graceful_calls, 1);
  }
  expect_open_fds(fds);
}

}  // namespace
}  // namespace ewarp::test

int main() {
  using namespace ewarp::test;
  setenv("ETHERWARP_CONNECT_TIMEOUT_MS", "60000", 1);
  setenv("ETHERWARP_REFUSED_WAIT_MS", "2000", 1);
  setenv("ETHERWARP_REQUEST_TIMEOUT_MS", "60000", 1);
  setenv("ETHERWARP_CLOSE_TIMEOUT_MS", "300", 1);
  settle();
  const CMUnitTest tests[] = {
      cmocka_unit_test(private_data_and_depths_cross),
      cmocka_unit_test(sends_wait_where_the_program_says_so),
      cmocka_unit_test(reject_crosses),
      cmocka_unit_test(migrate_takes_waiting_events_along),
      cmocka_unit_test(many_at_once),
      cmocka_unit_test(destroyed_at_any_moment),
      cmocka_unit_test(a_forked_child_holds_nothing),
      cmocka_unit_test(a_child_forked_amid_commands_can_give_them),
      cmocka_unit_test(an_id_leaves_the_next_ones_stream_alone),
      cmocka_unit_test(lack_of_descriptors_passes),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
