// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// rdma_destroy_id() and the end of an event channel where there is no memory, over the real engine: both are carried
// out all the same.
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <new>

#include "../vectors/vectors.h"
#include "channel.h"
#include "provider/cm/cm.h"

namespace {

thread_local bool no_memory = false;  // of this thread

}  // namespace

[[gnu::noinline]] void* operator new(std::size_t n) {
  void* p = no_memory ? nullptr : std::malloc(n > 0 ? n : 1);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}
// Sanitizers bring forms of their own, whose memory is not for free().
[[gnu::noinline]] void* operator new(std::size_t n, const std::nothrow_t&) noexcept {
  return no_memory ? nullptr : std::malloc(n > 0 ? n : 1);
}
[[gnu::noinline]] void* operator new[](std::size_t n) {
  return operator new(n);
}
[[gnu::noinline]] void* operator new[](std::size_t n, const std::nothrow_t&) noexcept {
  return operator new(n, std::nothrow);
}
[[gnu::noinline]] void operator delete[](void* p) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete[](void* p, std::size_t) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete(void* p) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept {
  std::free(p);
}

namespace {

using namespace ewarp::test;

// 0 or an errno. Nothing of the test's own is allocated.
int destroy_without_memory(Channel& channel, std::uint32_t id) {
  rdma_ucm_destroy_id_resp response{};
  struct {
    rdma_ucm_cmd_hdr header;
    rdma_ucm_destroy_id body;
  } command{{RDMA_USER_CM_CMD_DESTROY_ID, sizeof(rdma_ucm_destroy_id), sizeof response}, {}};
  command.body.response = reinterpret_cast<std::uint64_t>(&response);
  command.body.id = id;
  no_memory = true;
  const ssize_t n = ewarp::cm::ucma_write(channel.fd(), &command, sizeof command);
  no_memory = false;
  return n < 0 ? static_cast<int>(-n) : 0;
}

std::uint32_t idle(Channel& channel, std::uint16_t) {
  return channel.create(1);
}
std::uint32_t bound(Channel& channel, std::uint16_t) {
  const std::uint32_t id = channel.create(1);
  assert_int_equal(channel.bind(id, address("127.0.0.1", 0)), 0);
  return id;
}
std::uint32_t listening(Channel& channel, std::uint16_t) {
  return channel.listener("127.0.0.1", 1);
}
std::uint32_t resolved(Channel& channel, std::uint16_t port) {
  return channel.resolved("127.0.0.1", port, 1);
}
// With an event that nobody has taken, and one of another id behind it.
std::uint32_t with_events(Channel& channel, std::uint16_t port) {
  const std::uint32_t id = channel.create(1), other = channel.create(2);
  assert_int_equal(channel.resolve(id, address("127.0.0.1", port)), 0);
  assert_int_equal(channel.resolve(other, address("127.0.0.1", port)), 0);
  return id;
}
// A request of a peer that the program has not looked at.
std::uint32_t with_a_request(Channel& channel, std::uint16_t) {
  const std::uint32_t id = channel.listener("127.0.0.1", 1);
  RawSocket peer = RawSocket::connected("127.0.0.1", channel.port(id));
  Frame request;
  request.revision = 1;
  peer.send(encode(request));
  while (!channel.readable()) usleep(1000);
  return id;
}

constexpr std::uint32_t (*kWays[])(Channel&, std::uint16_t) = {idle,     bound,       listening,
                                                               resolved, with_events, with_a_request};

void an_id_is_destroyed_without_memory(void**) {
  Channel peer;
  const std::uint16_t port = peer.port(peer.listener("127.0.0.1", 9));
  for (const auto way : kWays) {
    Channel channel;
    const std::uint32_t id = way(channel, port);
    assert_int_equal(destroy_without_memory(channel, id), 0);
    assert_int_equal(destroy_without_memory(channel, id), ENOENT);
    assert_int_equal(channel.create(3), id);  // its number is free again
    if (way == with_events) assert_int_equal(channel.expect(kAddrResolved).uid, 2);
    assert_false(channel.readable());
  }
}

void a_channel_ends_without_memory(void**) {
  Channel peer;
  const std::uint16_t port = peer.port(peer.listener("127.0.0.1", 9));
  const int files = open_fds();
  for (const auto way : kWays) {
    {
      Channel channel;
      way(channel, port);
      no_memory = true;
      channel.close();
      no_memory = false;
    }
    expect_open_fds(files);
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(an_id_is_destroyed_without_memory),
                              cmocka_unit_test(a_channel_ends_without_memory)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
