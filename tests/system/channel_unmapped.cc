// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Rank 1 unmaps the buffers of large receives while rank 0 writes to them and rank 1's progress thread handles small
// messages: the connection ends, the receives fail, the process goes on. A message that came as a whole before its
// buffer went is received well: that is for the scheduler to say, but in the first round the buffer goes first.
// channel.py runs both.
//
//   channel_unmapped DIRECTORY RANK
#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <thread>

#include "channel_ends.h"

using namespace ewarp::channel;
using namespace ewarp::channel::test;
using namespace std::chrono_literals;

namespace {

constexpr int kRounds = 30, kSmall = 200;
constexpr std::size_t kLarge = 8 << 20;
constexpr Tag kSmallTag = 1, kLargeTag = 2, kReadyTag = 3;

// The small ones are wake-ups for the other end's progress thread, which finds what there is of the large one.
void send(Endpoint& endpoint, PeerId other) {
  Bytes large(kLarge, std::byte{7}), small(8), ready(8);
  must(end_of(endpoint, endpoint.irecv(other, kReadyTag, ready)).error == Error::none, "the other end is not ready");
  std::vector<Request> requests;
  for (int i = 0; i < kSmall; ++i) {
    requests.push_back(endpoint.isend(other, kSmallTag, small));
    if (i == kSmall / 2) requests.push_back(endpoint.isend(other, kLargeTag, large));
  }
  for (const Request r : requests) end_of(endpoint, r);  // well, or with the connection
}

// True: the large one met no memory. first: the buffer goes before the other end begins, so that is certain.
bool receive(Endpoint& endpoint, PeerId other, bool first) {
  void* at = mmap(nullptr, kLarge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  must(at != MAP_FAILED, "no memory");
  const Request large = endpoint.irecv(other, kLargeTag, {static_cast<std::byte*>(at), kLarge});
  std::vector<Bytes> small(kSmall, Bytes(8));
  std::vector<Request> requests;
  for (Bytes& b : small) requests.push_back(endpoint.irecv(other, kSmallTag, b));
  // Nothing else comes to lie there.
  if (first)
    must(mmap(at, kLarge, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at, "cannot take it away");
  const Bytes ready(8);
  must(end_of(endpoint, endpoint.isend(other, kReadyTag, ready)).error == Error::none, "cannot say that it is ready");
  end_of(endpoint, requests[kSmall / 4]);
  if (!first) munmap(at, kLarge);
  endpoint.rest();  // from now on the progress thread does what there is to do
  std::this_thread::sleep_for(20ms);
  const Error error = end_of(endpoint, large).error;
  must(error == Error::peer_down || error == Error::none, "another error than that of the connection");
  for (int i = kSmall / 4 + 1; i < kSmall; ++i) end_of(endpoint, requests[static_cast<std::size_t>(i)]);
  if (first) munmap(at, kLarge);
  return error == Error::peer_down;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const int rank = std::atoi(argv[2]);
  const Files files(argv[1]);
  try {
    for (int round = 0; round < kRounds; ++round) {
      const auto endpoint = open_endpoint();
      const std::string number = std::to_string(round) + ".";
      files.write(number + std::to_string(rank), endpoint->address());
      const PeerId other = endpoint->peer(files.wait_for(number + std::to_string(1 - rank))).value();
      if (rank == 0)
        send(*endpoint, other);
      else if (!receive(*endpoint, other, round == 0))
        must(round > 0, "what came for a buffer that had gone was received");
      endpoint->close();
    }
  } catch (const std::exception& e) {
    std::printf("rank %d: %s\n", rank, e.what());
    return 1;
  }
  std::printf("done\n");
  return 0;
}
