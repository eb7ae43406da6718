// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A listener that one source floods with connections: another source still gets through.
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <deque>
#include <thread>

#include "tests/cm/channel.h"
#include "tests/cm/standins.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

extern "C" {
#include <cmocka.h>
}

namespace ewarp::test {
namespace {

constexpr const char* kFlooder = "127.0.0.2";
constexpr const char* kHonest = "127.0.0.1";
constexpr int kMany = 300;  // more than a listener has places

// -1: it cannot be had. A TCP connection from this address, or one that is on its way.
int connect_from(const char* source, std::uint16_t port, int flags = 0) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);
  if (fd < 0) return -1;
  sockaddr_in a{};
  a.sin_family = AF_INET;
  inet_pton(AF_INET, source, &a.sin_addr);
  const auto generic = reinterpret_cast<const sockaddr*>(&a);
  int rc = bind(fd, generic, sizeof a);
  inet_pton(AF_INET, "127.0.0.1", &a.sin_addr);
  a.sin_port = htons(port);
  if (rc == 0) rc = ::connect(fd, generic, sizeof a);
  if (rc == 0 || errno == EINPROGRESS) return fd;
  ::close(fd);
  return -1;
}

RawSocket from(const char* source, std::uint16_t port) {
  const int fd = connect_from(source, port);
  assert_true(fd >= 0);
  return RawSocket(fd);
}

std::string request(std::string_view data) {
  return encode({false, 0, 1, std::string(data)});
}

struct Server {
  Channel channel;
  std::uint32_t id;
  std::uint16_t port;
  explicit Server(unsigned backlog = 0) {
    id = channel.listener("127.0.0.1", 42, backlog);
    port = channel.port(id);
  }
};

void silent_connections(void**) {
  Server server;
  std::vector<RawSocket> flood;
  for (int i = 0; i < kMany; ++i) flood.push_back(from(kFlooder, server.port));
  RawSocket honest = from(kHonest, server.port);
  honest.send(request("honest"));
  assert_string_equal(server.channel.expect(kConnectRequest).data().c_str(), "honest");
}

// Connections that never stop: each honest one is announced.
void a_stream_of_silent_connections(void**) {
  Server server;
  std::atomic<bool> stop{false};
  std::thread flood([&] {
    std::deque<int> open;
    while (!stop) {
      for (int i = 0; i < 4; ++i)
        if (const int fd = connect_from(kFlooder, server.port, SOCK_NONBLOCK); fd >= 0) open.push_back(fd);
      for (; open.size() > 700; open.pop_front()) ::close(open.front());
      poll(nullptr, 0, 2);
    }
    for (const int fd : open) ::close(fd);
  });
  std::vector<RawSocket> honest;
  for (int i = 0; i < 10; ++i) {
    poll(nullptr, 0, 200);
    honest.push_back(from(kHonest, server.port));
    honest.back().send(request(std::to_string(i)));
    const std::string heard = server.channel.expect(kConnectRequest).data();
    if (heard != std::to_string(i)) stop = true;
    assert_string_equal(heard.c_str(), std::to_string(i).c_str());
  }
  stop = true;
  flood.join();
}

// Requests beyond the backlog: those of another source are not behind all of them.
void complete_requests_of(const std::vector<const char*>& flooders) {
  Server server(2);
  std::vector<RawSocket> flood;
  for (int i = 0; i < kMany; ++i) {
    flood.push_back(from(flooders[static_cast<std::size_t>(i) % flooders.size()], server.port));
    flood.back().send(request("flood"));
  }
  RawSocket honest = from(kHonest, server.port);
  honest.send(request("honest"));
  int fetched = 0;
  while (server.channel.expect(kConnectRequest).data() != "honest") {
    assert_true(++fetched < 35);  // fewer than wait in TCP's queue in front of it
    poll(nullptr, 0, 300);
  }
}

void complete_requests(void**) {
  complete_requests_of({kFlooder});
}
void complete_requests_of_two(void**) {
  complete_requests_of({kFlooder, "127.0.0.3"});
}

// Who leaves while his Request waits behind the backlog is not announced.
void requests_of_those_who_left(void**) {
  Server server(1);
  std::vector<RawSocket> gone;
  for (int i = 0; i < 50; ++i) {
    gone.push_back(from(kFlooder, server.port));
    gone.back().send(request("gone"));
  }
  settle();
  gone.clear();
  RawSocket honest = from(kHonest, server.port);
  honest.send(request("here"));
  settle();
  assert_string_equal(server.channel.expect(kConnectRequest).data().c_str(), "gone");  // was announced before
  assert_string_equal(server.channel.expect(kConnectRequest).data().c_str(), "here");
  settle();
  assert_false(server.channel.readable());
}

}  // namespace
}  // namespace ewarp::test

int main() {
  using namespace ewarp::test;
  setenv("ETHERWARP_REQUEST_TIMEOUT_MS", "600000", 1);  // nobody is dropped for having been silent so long
  settle();
  const CMUnitTest tests[] = {
      cmocka_unit_test(silent_connections),         cmocka_unit_test(a_stream_of_silent_connections),
      cmocka_unit_test(complete_requests),          cmocka_unit_test(complete_requests_of_two),
      cmocka_unit_test(requests_of_those_who_left),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
