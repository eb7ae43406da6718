// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The two ends of a reliable connection. A connection carries the posts of the process that has made it, and the other
// one's word that it has polled notices. So two processes that speak to each other have a connection each, and
// requests to connect that cross do not get in each other's way.
#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <cstdint>
#include <memory>

#include "mpi_shim/acp/verbs/rc_queue.h"

namespace ewarp::acp {

// What a work request is, in the top two bits of its id; the rest is a pointer.
enum class RcRequest : std::uint64_t {
  post,     // of an RcSlot
  receive,  // of an RcEnd
  word,     // of an RcInbound: notices were polled
};
inline std::uint64_t rc_id(RcRequest what, const void* of) {
  return static_cast<std::uint64_t>(what) << 62 | reinterpret_cast<std::uintptr_t>(of);
}
inline RcRequest rc_request(std::uint64_t id) {
  return static_cast<RcRequest>(id >> 62);
}
template <class T>
T& rc_subject(std::uint64_t id) {
  return *reinterpret_cast<T*>(static_cast<std::uintptr_t>(id & ~(std::uint64_t{3} << 62)));
}

// The queue pair of either end, and what the adapter has of it.
class RcEnd {
 public:
  RcEnd(bool outbound, Lane lane) : outbound_(outbound), lane_(lane) {}
  ~RcEnd() { close(); }
  RcEnd(const RcEnd&) = delete;
  RcEnd& operator=(const RcEnd&) = delete;

  bool outbound() const { return outbound_; }
  Lane lane() const { return lane_; }
  rdma_cm_id* id() const { return id_; }
  // Of rdma_cm; this owns it from now on.
  void own(rdma_cm_id* id);
  // Completions that it may have at a time, posts not counted.
  std::uint32_t completions() const;
  // False: the adapter refuses.
  bool create(ibv_pd* pd, ibv_cq* cq);
  // Posts all receives: they have no memory, because what comes is in the completion.
  bool post_receives();
  bool post_receive();
  void received() { --receives_; }
  std::uint32_t receives() const { return receives_; }
  // Everything that the adapter has comes back.
  void flush();
  void close();

 private:
  std::uint32_t most_receives() const;

  const bool outbound_;
  const Lane lane_;
  std::uint8_t receives_ = 0;  // at the adapter
  rdma_cm_id* id_ = nullptr;
};

// Of the process that posts. It connects with the first post, and stays until the peer is gone.
class RcOutbound final : public RcEnd {
 public:
  enum class State : std::uint8_t {
    idle,        // nothing has been posted, or nothing since a connection of accesses broke
    resolving,   // how to get to the peer is being found out
    connecting,  // the request to connect is out
    up,
    draining,  // broken: what the adapter has comes back
    pausing,   // could not connect: will try again
    lost,      // for good: every post fails
  };
  static constexpr bool allowed(State from, State to);

  RcOutbound(Peer& to, Lane lane) : RcEnd(true, lane), peer(to), queue(lane) {}
  State state() const { return state_; }
  void enter(State to);
  // Nothing of it is at the adapter.
  bool drained() const { return queue.requests() == 0 && receives() == 0; }
  // 0, or an errno: the slot did not go. Requires: queue.next() is this slot.
  int send(RcSlot& slot, std::uint32_t spare_lkey);

  Peer& peer;
  RcQueue queue;
  bool wanted = true;         // the peer is not gone, as far as is known
  std::uint64_t again = 0;    // ns: pausing until then
  std::uint64_t give_up = 0;  // ns: no try behind it; 0: the peer has not failed to answer
  RcOutbound* next_pausing = nullptr;

 private:
  State state_ = State::idle;
};

// What Peer::path points to: by lane; null: not used yet.
struct RcLanes {
  std::unique_ptr<RcOutbound> to[kLanes];
};

// Of the process that is written to.
class RcInbound final : public RcEnd {
 public:
  static constexpr std::uint32_t kWords = 4;  // under way at once

  explicit RcInbound(Lane lane) : RcEnd(false, lane) {}
  bool drained() const { return words_ == 0 && receives() == 0; }
  // Each false: the adapter takes nothing more.
  bool polled();     // a notice
  bool word_sent();  // which has ended

  bool ending = false;  // broken: what the adapter has comes back
  RcInbound* before = nullptr;
  RcInbound* behind = nullptr;

 private:
  bool tell();

  std::uint8_t polled_ = 0;  // notices, of which the peer has not been told
  std::uint8_t words_ = 0;   // at the adapter
};

static_assert(sizeof(RcLanes) + kLanes * (sizeof(RcOutbound) + sizeof(RcInbound)) <= 336, "what a peer may cost");

constexpr bool RcOutbound::allowed(State from, State to) {
  using enum State;
  switch (to) {
    case resolving:
      return from == idle || from == draining || from == pausing;
    case connecting:
      return from == resolving;
    case up:
      return from == connecting;
    case draining:
      return from == up;
    case pausing:
      return from == resolving || from == connecting;
    case idle:
      return from == draining;
    case lost:
      return from != lost && from != up;
  }
  return false;
}

}  // namespace ewarp::acp
