// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Two processes send a message back and forth.
//
//   etherwarp run -- channel_pingpong 127.0.0.1:7000                                   waits for the other
//   etherwarp run -- channel_pingpong 127.0.0.1:0 127.0.0.1:7000 [OCTETS [ROUNDS]]     begins
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "mpi_shim/channel/channel.h"

using namespace ewarp::channel;

namespace {

constexpr Tag kTag = 1;

bool good(Endpoint& endpoint, const Status& status) {
  if (status.error == Error::none) return true;
  std::fprintf(stderr, "channel_pingpong: %s", text(status.error));
  if (status.error == Error::peer_down) std::fprintf(stderr, ": %s", endpoint.why_lost(status.source).c_str());
  std::fprintf(stderr, "\n");
  return false;
}

// Whoever comes first decides how long the messages are; an empty one is the end.
int answer(Endpoint& endpoint) {
  std::vector<std::byte> buffer;
  for (;;) {
    std::optional<Status> next;
    while (!(next = endpoint.iprobe(kAnySource, kTag))) {
    }
    buffer.resize(next->length);
    if (!good(endpoint, endpoint.wait(endpoint.irecv(next->source, kTag, buffer)))) return 1;
    if (buffer.empty()) return 0;
    if (!good(endpoint, endpoint.wait(endpoint.isend(next->source, kTag, buffer)))) return 1;
  }
}

int begin(Endpoint& endpoint, PeerId other, std::size_t octets, int rounds) {
  std::vector<std::byte> out(octets, std::byte{0x5a}), in(octets);
  const auto began = std::chrono::steady_clock::now();
  for (int i = 0; i < rounds; ++i) {
    const Request back = endpoint.irecv(other, kTag, in);
    if (!good(endpoint, endpoint.wait(endpoint.isend(other, kTag, out))) || !good(endpoint, endpoint.wait(back)))
      return 1;
    if (in != out) {
      std::fprintf(stderr, "channel_pingpong: other octets came back\n");
      return 1;
    }
  }
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - began;
  std::printf("%zu octets: %.2f us one way\n", octets, took.count() / (2 * rounds));
  return good(endpoint, endpoint.wait(endpoint.isend(other, kTag, {}))) ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || argc > 5) {
    std::fprintf(stderr, "usage: channel_pingpong ADDRESS [PEER [OCTETS [ROUNDS]]]\n");
    return 2;
  }
  EndpointOptions options = EndpointOptions::from_environment();
  options.address = argv[1];
  std::string error;
  const auto endpoint = Endpoint::open(options, &error);
  if (!endpoint) {
    std::fprintf(stderr, "channel_pingpong: %s\n", error.c_str());
    return 1;
  }
  if (argc == 2) return answer(*endpoint);
  const auto other = endpoint->peer(argv[2]);
  if (!other) {
    std::fprintf(stderr, "channel_pingpong: %s is no address\n", argv[2]);
    return 2;
  }
  const std::size_t octets = argc > 3 ? std::strtoul(argv[3], nullptr, 0) : 8;
  return begin(*endpoint, *other, octets == 0 ? 1 : octets, argc > 4 ? std::atoi(argv[4]) : 1000);
}
