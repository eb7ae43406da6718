// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A link between two interfaces that loses frames and changes their order: what arrives at one leaves by the other. For
// kernels without sch_netem.
//
//   ewarp_soak_link ONE OTHER LOST HELD SEED
//
// LOST, HELD: of 1000 frames. A held frame leaves up to 3 ms later, behind those that came after it. SIGTERM: says how
// many frames passed, were lost and were held, and ends.
#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <utility>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
using Frame = std::vector<char>;

volatile sig_atomic_t ended = 0;

[[noreturn]] void give_up(const char* what) {
  std::perror(what);
  std::exit(1);
}

int open_interface(const char* name) {
  const int fd = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK, htons(ETH_P_ALL));
  if (fd < 0) give_up("socket");
  sockaddr_ll address{};
  address.sll_family = AF_PACKET;
  address.sll_protocol = htons(ETH_P_ALL);
  address.sll_ifindex = static_cast<int>(if_nametoindex(name));
  if (address.sll_ifindex == 0 || bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) give_up(name);
  const int octets = 4 << 20, on = 1;
  setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &octets, sizeof octets);
  setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof on);
  return fd;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) return 2;
  const int fds[2] = {open_interface(argv[1]), open_interface(argv[2])};
  const int lost = std::atoi(argv[3]), held = std::atoi(argv[4]);
  std::mt19937_64 random(std::strtoull(argv[5], nullptr, 10));
  signal(SIGTERM, [](int) { ended = 1; });
  unsigned long passed = 0, were_lost = 0, were_held = 0;
  std::multimap<Clock::time_point, std::pair<int, Frame>> waiting;  // where it leaves
  const auto leave = [&](int fd, const char* octets, std::size_t n) {
    // A full queue loses it, as on any link.
    if (send(fd, octets, n, 0) >= 0) ++passed;
  };
  std::puts("ready");
  std::fflush(stdout);
  std::array<char, 1 << 16> buffer;
  while (ended == 0) {
    pollfd ready[2] = {{fds[0], POLLIN, 0}, {fds[1], POLLIN, 0}};
    poll(ready, 2, waiting.empty() ? 100 : 1);
    for (int from = 0; from < 2; ++from) {
      for (int burst = 0; burst < 64; ++burst) {
        const ssize_t n = recv(fds[from], buffer.data(), buffer.size(), 0);
        if (n <= 0) break;
        const int to = fds[1 - from], lot = static_cast<int>(random() % 1000);
        if (lot < lost) {
          ++were_lost;
        } else if (lot < lost + held) {
          ++were_held;
          const auto when = Clock::now() + std::chrono::microseconds(random() % 3000);
          waiting.emplace(when, std::pair(to, Frame(buffer.data(), buffer.data() + n)));
        } else {
          leave(to, buffer.data(), static_cast<std::size_t>(n));
        }
      }
    }
    for (const auto now = Clock::now(); !waiting.empty() && waiting.begin()->first <= now;) {
      const auto& [to, frame] = waiting.begin()->second;
      leave(to, frame.data(), frame.size());
      waiting.erase(waiting.begin());
    }
  }
  std::printf("passed %lu lost %lu held %lu\n", passed, were_lost, were_held);
  return 0;
}
