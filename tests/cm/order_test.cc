// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// In which order a server hears of what its clients do, over the real engine.
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <future>
#include <string>

#include "channel.h"
#include "provider/engine/reactor.h"
#include "tests/verbs/two_qps.h"

// Last: cmocka's macros (fail) would cut through other headers.
#include "../vectors/vectors.h"

namespace {

using namespace ewarp::test;

constexpr unsigned kEnhanced = 0x10, kWriteForm = 2;
// An empty RDMA Write: DDP tagged and last, RDMAP version 1; no CRC.
const std::string kRtr("\x00\x0e\xc1\x40\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 20);

// While it stands, the background thread stands still.
class Standstill {
 public:
  Standstill() {
    std::promise<void> there;
    ewarp::verbs::reactor().post([&there, over = over_.get_future().share()] {
      there.set_value();
      over.wait();
    });
    there.get_future().wait();
  }
  ~Standstill() { over_.set_value(); }
  Standstill(const Standstill&) = delete;
  Standstill& operator=(const Standstill&) = delete;

 private:
  std::promise<void> over_;
};

// How many connections wait at this port for the listener, which is this process's, to take them.
unsigned waiting_at(std::uint16_t port) {
  for (int fd = 0; fd < 4096; ++fd) {
    int listens = 0;
    socklen_t size = sizeof listens;
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 || listens == 0) continue;
    sockaddr_storage name{};
    size = sizeof name;
    if (getsockname(fd, reinterpret_cast<sockaddr*>(&name), &size) != 0 || port_of(&name) != port) continue;
    tcp_info info{};
    size = sizeof info;
    assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size), 0);
    return info.tcpi_unacked;  // of a listening socket: tcp_info's other meaning
  }
  fail_msg("nobody listens at port %u", unsigned{port});
  return 0;
}

// A client that knows its connection to stand makes the next one. A server that waits for the first to stand would take
// the request for it for an error (libfabric's do).
void a_connection_stands_before_the_next_is_asked_for(void**) {
  const std::string request = encode({false, kEnhanced, 2, enhanced_word(true, kWriteForm, 1, 1)});
  Channel channel;
  const std::uint16_t port = channel.port(channel.listener("127.0.0.1", 1));
  for (std::uint64_t uid = 2; uid < 12; ++uid) {
    Side side(4096);
    RawSocket first = RawSocket::connected("127.0.0.1", port);
    first.send(request);
    const Event asked = channel.expect(kConnectRequest);
    assert_int_equal(channel.accept(asked.id, uid, side.qp->number()), 0);
    assert_int_equal(first.receive_frame().flags & kEnhanced, kEnhanced);
    RawSocket second = RawSocket::connected("127.0.0.1", port);
    while (waiting_at(port) > 0) poll(nullptr, 0, 1);
    {
      const Standstill both_come_meanwhile;
      first.send(kRtr);
      second.send(request);
    }
    assert_int_equal(channel.expect(kEstablished).uid, uid);
    assert_int_equal(channel.reject(channel.expect(kConnectRequest).id), 0);
    second.close();
    first.close();
    channel.expect(kDisconnected);
    channel.destroy(asked.id);
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(a_connection_stands_before_the_next_is_asked_for)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
