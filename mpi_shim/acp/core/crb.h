// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The ring of connection requests (CRB) of a process, as its owner sees it. Entries are claimed and written by others;
// the owner takes each request out as soon as it is told of it, so that 64 entries do for any number of peers, and
// keeps it until the program creates its end. A peer has one request here at a time (PeerTable), so what is kept is
// bounded by the number of processes.
#pragma once

#include <optional>

#include "mpi_shim/acp/core/wire.h"

namespace ewarp::acp {

class ConnectRequests {
 public:
  static constexpr std::uint32_t kEntries = 64;

  // ring: kEntries entries, zeroed, in memory that peers may write to.
  explicit ConnectRequests(ConnectRequest* ring) : ring_(ring) {}
  ~ConnectRequests();
  ConnectRequests(const ConnectRequests&) = delete;
  ConnectRequests& operator=(const ConnectRequests&) = delete;

  // Notice::request came: takes the request out of the entry. False: there is none, which a peer must not say.
  // std::bad_alloc.
  bool take(std::uint32_t entry);
  // The request of this rank, which leaves.
  std::optional<ConnectRequest> match(std::uint32_t rank);
  // The rank is gone: what it claimed and did not write is free again, what it wrote is forgotten.
  void forget(std::uint32_t rank);
  std::uint32_t kept() const { return kept_; }

 private:
  struct Kept {
    ConnectRequest request;
    Kept* next;
  };
  void release(std::uint32_t entry);
  Kept** find(std::uint32_t rank);
  void drop(Kept** at);

  ConnectRequest* ring_;
  Kept* first_ = nullptr;
  std::uint32_t kept_ = 0;
};

}  // namespace ewarp::acp
