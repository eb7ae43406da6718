// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// rdma_listen() and rdma_connect() where the background thread cannot be started, over the real engine.
#include <cerrno>

#include "../vectors/vectors.h"
#include "channel.h"
#include "tests/llp/failing_threads.h"
#include "tests/llp/sandbox.h"

namespace {

using namespace ewarp::test;

// A Request comes in: the listener is alive.
void a_listener_begins_when_called_again(void**) {
  in_child("listen", [] {
    Channel channel;
    for (const std::uint16_t space : {RDMA_PS_TCP, RDMA_PS_UDP}) {
      const std::uint32_t id = channel.create(1, space);
      if (channel.bind(id, address("127.0.0.1", 0)) != 0) return 1;
      if (space == RDMA_PS_TCP) {  // once there is a thread, it stays
        failures_to_come = 3;
        if (channel.listen(id) != EAGAIN) return 2;
        const int files = open_fds();
        for (int i = 0; i < 2; ++i)
          if (channel.listen(id) != EAGAIN || open_fds() != files) return 3;
      }
      if (channel.listen(id) != 0) return 4;
      if (space != RDMA_PS_TCP) continue;
      RawSocket peer = RawSocket::connected("127.0.0.1", channel.port(id));
      Frame request;
      request.revision = 1;
      peer.send(encode(request));
      if (channel.next().type != kConnectRequest) return 5;
    }
    return kHolds;
  });
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(a_listener_begins_when_called_again)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
