// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A queue pair under test and the scripted peer at the other end of its stream.
#pragma once

#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/verbs/two_qps.h"
#include "tests/wire/peer.h"

namespace ewarp::wire {

using namespace ewarp::verbs;

struct Setup {
  bool initiator = false;  // the side under test
  bool crc = false;
  bool tcp = false;  // a TCP connection over loopback instead of a socket pair
  bool extensions = false;
  bool tx_markers = false, rx_markers = false;  // as the side under test sees them
  bool peer_to_peer = false;
  std::uint8_t rtr = 0;
  std::uint16_t ird = 16, ord = 16;
  int mss = 0;  // TCP only
};

std::string name_of(const Setup& setup);

// EWARP_TEST_STREAM=local: whether scenes that do not ask for TCP are over a local stream instead of a socket pair.
bool over_rings();

// A failing test leaves by longjmp, and its stack is used again while the engine's thread still works on the objects
// that were there. So the first failure ends the program. First thing in main().
inline void stop_at_first_failure() {
  setenv("CMOCKA_TEST_ABORT", "1", 1);
}
// Short times for the waits that these tests run into. responder_ms: how long a plain responder keeps silent at most; 0
// is what RFC 5044 says.
inline void set_waits(const char* close_ms, const char* rnr_ms, const char* responder_ms = "0") {
  setenv("ETHERWARP_CLOSE_TIMEOUT_MS", close_ms, 1);
  setenv("ETHERWARP_RNR_WAIT_MS", rnr_ms, 1);
  setenv("ETHERWARP_RESPONDER_WAIT_MS", responder_ms, 1);
}

// Every combination of role and CRC.
inline constexpr Setup kSetups[] = {
    {.initiator = true}, {.initiator = true, .crc = true}, {.initiator = false}, {.initiator = false, .crc = true}};

inline Setup consenting(Setup setup) {
  setup.extensions = true;
  return setup;
}

// What requests of the side under test name at the peer.
inline constexpr std::uint64_t kFar = 0x7f00'0000'1000;
inline constexpr std::uint32_t kKey = 0x4242;

void tcp_pair(int (&fds)[2], int mss = 0);

struct Scene {
  explicit Scene(const Setup& setup, std::size_t buffer = 1 << 20);

  // The stream is a responder's and may not speak first: the peer sends an empty Write, which changes nothing.
  void open_responder();

  // Registers the whole buffer once more, with other rights or in another PD.
  MemoryRegion* region(Pd& pd, std::size_t offset, std::size_t octets, unsigned access, std::uint64_t iova);

  // Exactly these completions, in this order for each queue: {wr_id, status}. Receives are the wr_ids of 100 and more.
  using Ended = std::vector<std::pair<std::uint64_t, ibv_wc_status>>;
  void expect_completions(const std::string& what, const Ended& want);
  void expect_event(const std::string& what, ibv_event_type type);
  void expect_no_event(const std::string& what);
  void expect_ended(const std::string& what);  // QP in ERR, the observer told once

  test::Side side;
  Pd other_pd;
  std::vector<std::shared_ptr<MemoryRegion>> regions;
  std::unique_ptr<Peer> peer;
  Setup setup;
};

}  // namespace ewarp::wire
