// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// All send to one that does not receive: its memory stays within what its options say, and when it receives at last,
// every message is there, in order, with its octets. channel.py runs the ranks; rank 0 receives.
//
//   channel_storm DIRECTORY RANK RANKS MESSAGES MOST
//
// MOST: KiB by which the resident memory of rank 0 may grow meanwhile.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <string>
#include <thread>

#include "channel_ends.h"

using namespace ewarp::channel;
using namespace ewarp::channel::test;
using namespace std::chrono_literals;

namespace {

constexpr Tag kStorm = 1, kReady = 2;
constexpr std::size_t kLongest = 100'000, kShift = 4096;

std::size_t size_of(std::size_t rank, std::size_t number) {
  constexpr std::size_t kMost[] = {8, 200, 3000, 20'000, kLongest};
  return 1 + (number * 7919 + rank * 104'729) % kMost[(number + rank) % std::size(kMost)];
}

// Where in its octets a message begins.
std::size_t shift_of(std::size_t number) {
  return number * 31 % kShift;
}

Bytes octets_of(std::size_t rank) {
  Bytes out(kLongest + kShift);
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<std::byte>(i * 13 + (i >> 8) * 7 + rank * 41);
  return out;
}

std::size_t resident_kib() {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("VmRSS:")) return std::stoul(line.substr(6));
  throw std::runtime_error("no VmRSS");
}

void send_all(Endpoint& endpoint, PeerId to, std::size_t rank, std::size_t messages) {
  const Bytes octets = octets_of(rank);
  std::vector<Request> requests;
  for (std::size_t i = 0; i < messages; ++i)
    requests.push_back(endpoint.isend(to, kStorm, Octets(octets).subspan(shift_of(i), size_of(rank, i))));
  for (const Request r : requests) end_well(endpoint, r, "a send");
}

// Gone for a while, then there without asking for anything: whatever may come has come.
std::size_t most_resident(Endpoint& endpoint) {
  std::size_t most = 0;
  std::this_thread::sleep_for(2s);
  for (const auto until = std::chrono::steady_clock::now() + 3s; std::chrono::steady_clock::now() < until;) {
    for (int i = 0; i < 1000; ++i) endpoint.progress();
    most = std::max(most, resident_kib());
  }
  return most;
}

void receive_all(Endpoint& endpoint, const std::vector<PeerId>& peers, std::size_t messages) {
  std::vector<Bytes> want(1);
  for (std::size_t rank = 1; rank < peers.size(); ++rank) want.push_back(octets_of(rank));
  Bytes in(kLongest);
  for (std::size_t i = 0; i < messages; ++i)
    for (std::size_t rank = 1; rank < peers.size(); ++rank) {
      const Status status = end_of(endpoint, endpoint.irecv(peers[rank], kStorm, in), "a receive");
      must(status.error == Error::none,
           "message " + std::to_string(i) + ": " + text(status.error) + ", " + endpoint.why_lost(peers[rank]));
      must(status.length == size_of(rank, i), "another message");
      must(std::memcmp(in.data(), want[rank].data() + shift_of(i), status.length) == 0, "other octets");
    }
}

void run(const std::string& directory, std::size_t rank, std::size_t ranks, std::size_t messages, std::size_t most) {
  const Files files(directory);
  const auto endpoint = open_endpoint();
  files.write("address" + std::to_string(rank), endpoint->address());
  std::vector<PeerId> peers;
  for (std::size_t i = 0; i < ranks; ++i)
    peers.push_back(endpoint->peer(files.wait_for("address" + std::to_string(i))).value());
  std::byte word{};
  for (std::size_t i = 1; i < ranks; ++i) {
    if (rank == 0) end_well(*endpoint, endpoint->irecv(peers[i], kReady, {&word, 1}), "a greeting");
    if (rank == i) end_well(*endpoint, endpoint->isend(peers[0], kReady, {&word, 1}), "a greeting");
  }
  if (rank == 0) {
    const std::size_t before = resident_kib();
    files.write("go", "yes");
    const std::size_t during = most_resident(*endpoint);
    std::printf("resident %zu KiB before, %zu KiB at most\n", before, during);
    must(during <= before + most, "it has grown by " + std::to_string(during - before) + " KiB");
    receive_all(*endpoint, peers, messages);
  } else {
    files.wait_for("go");
    send_all(*endpoint, peers[0], rank, messages);
  }
  files.write("left" + std::to_string(rank), "yes");
  for (std::size_t i = 0; i < ranks; ++i) files.wait_for("left" + std::to_string(i));
  std::printf("%s", endpoint->counters().text().c_str());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) return 2;
  try {
    run(argv[1], std::strtoul(argv[2], nullptr, 10), std::strtoul(argv[3], nullptr, 10),
        std::strtoul(argv[4], nullptr, 10), std::strtoul(argv[5], nullptr, 10));
  } catch (const std::exception& e) {
    std::printf("rank %s: %s\n", argv[2], e.what());
    return 1;
  }
  return 0;
}
