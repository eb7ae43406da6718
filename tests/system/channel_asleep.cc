// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Transfers proceed though one end never enters the library: rank 0 starts a request and is gone until rank 1 says, by
// a file, that its own end of the transfer is done; a file that does not come is progress that needs the application.
// channel.py runs both.
//
//   channel_asleep DIRECTORY RANK
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "channel_ends.h"

using namespace ewarp::channel;
using namespace ewarp::channel::test;

namespace {

// Rank 1 exposes memory and is gone; rank 0 puts and gets.
void one_sided(Endpoint& endpoint, const Files& files, PeerId other, int rank) {
  constexpr std::size_t kOffset = 1000;
  const Bytes source(50000, std::byte{0x3c});
  if (rank == 1) {
    Bytes memory(100000);
    auto window = endpoint.expose(memory);
    must(window.has_value(), "memory cannot be exposed");
    files.write("window", std::to_string(window->remote.address) + ":" + std::to_string(window->remote.key));
    files.wait_for("put");
    must(std::equal(source.begin(), source.end(), memory.begin() + kOffset), "other octets were put");
    must(memory[kOffset - 1] == std::byte{0} && memory[kOffset + source.size()] == std::byte{0}, "more was put");
    endpoint.conceal(*window);
    return;
  }
  const std::string text = files.wait_for("window");
  wire::Remote remote{.address = std::stoull(text) + kOffset,
                      .key = static_cast<std::uint32_t>(std::stoul(text.substr(text.find(':') + 1)))};
  Bytes back(source.size());
  // In pieces of all sizes, so that some are copied on their way.
  for (std::size_t at = 0, piece = 1; at < source.size(); at += piece, piece *= 3) {
    piece = std::min(piece, source.size() - at);
    end_well(endpoint, endpoint.put(other, Octets(source).subspan(at, piece), {remote.address + at, remote.key}));
  }
  end_well(endpoint, endpoint.get(other, back, remote));  // behind the put, so it is placed by then
  must(back == source, "other octets were got");
  files.write("put", "yes");
}

void run(const std::string& directory, int rank) {
  const Files files(directory);
  const auto endpoint = open_endpoint();
  files.write("address" + std::to_string(rank), endpoint->address());
  const PeerId other = endpoint->peer(files.wait_for("address" + std::to_string(1 - rank))).value();
  Tag tag = 0;
  for (const std::size_t size : {100, 30000, 1 << 20})
    for (const bool sleeper_sends : {true, false})
      for (const bool sleeper_first : {true, false}) {
        const std::string name = std::to_string(++tag);
        const bool sends = (rank == 0) == sleeper_sends;
        Bytes data(size, std::byte{static_cast<unsigned char>(sends ? tag : 0)});
        if ((rank == 0) != sleeper_first) files.wait_for("started" + name);
        const Request request = sends ? endpoint->isend(other, tag, data) : endpoint->irecv(other, tag, data);
        if ((rank == 0) == sleeper_first) files.write("started" + name, "yes");
        if (rank == 0) files.wait_for("done" + name);
        end_well(*endpoint, request);
        if (rank == 1) files.write("done" + name, "yes");
        must(data == Bytes(size, std::byte{static_cast<unsigned char>(tag)}), "other octets");
      }
  one_sided(*endpoint, files, other, rank);
  // Both leave together: what is closed cannot help the other.
  files.write("left" + std::to_string(rank), "yes");
  files.wait_for("left" + std::to_string(1 - rank));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  try {
    run(argv[1], std::atoi(argv[2]));
  } catch (const std::exception& e) {
    std::printf("rank %s: %s\n", argv[2], e.what());
    return 1;
  }
  std::printf("done\n");
  return 0;
}
