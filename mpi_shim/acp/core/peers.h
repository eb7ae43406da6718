// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What a process knows of each process of its job: the one table whose length is their number.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <new>

namespace ewarp::acp {

// How a process is reached; what it tells the coordinator.
struct Contact {
  static constexpr std::uint32_t kListens = 1u << 31;  // above all numbers of queue pairs

  std::uint8_t gid[16];   // RC: its IPv6 address, or its IPv4 address mapped
  std::uint32_t qpn;      // RC: kListens, and the TCP port of rdma_cm
  std::uint32_t rkey;     // of its area (area.h)
  std::uint64_t address;  // of its area
};
static_assert(sizeof(Contact) == 32);

// Between this process and another one that lives, for all channels of the two: what one of them has lost the other one
// cannot be told over the same way.
enum class Bond : std::uint8_t {
  whole,
  breaking,  // an end here was lost, and the coordinator is told
  broken,    // both have heard of it: no channel between the two goes on
};

struct Peer {
  Contact contact;
  void* path;  // the transport's; null: not used yet
  // Channels between the two, by direction. They are connected one by one, in the order in which both have created
  // them, so that the n-th of one is the n-th of the other.
  std::uint32_t sends_created, sends_answered;
  std::uint32_t receives_created, receives_matched;
  bool gone;
  std::uint8_t refusals;  // of accesses that used an entry of its table from the cache
  Bond bond;
};
static_assert(sizeof(Peer) == 64);  // of the 176 octets that a process may cost

class PeerTable {
 public:
  // std::bad_alloc.
  explicit PeerTable(std::uint32_t procs) : all_(static_cast<Peer*>(std::calloc(procs, sizeof(Peer)))), procs_(procs) {
    if (all_ == nullptr) throw std::bad_alloc();
  }
  ~PeerTable() { std::free(all_); }
  PeerTable(const PeerTable&) = delete;
  PeerTable& operator=(const PeerTable&) = delete;

  Peer& operator[](std::uint32_t rank) { return all_[rank]; }
  std::uint32_t procs() const { return procs_; }

 private:
  Peer* all_;
  std::uint32_t procs_;
};

}  // namespace ewarp::acp
