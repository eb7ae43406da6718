// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// One reliable connection: its queue pair, the receives that are posted there, and how far it has come.
//
// Threading: none; the endpoint's lock is held in every call.
#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <cassert>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "mpi_shim/channel/core/list.h"
#include "mpi_shim/channel/core/types.h"
#include "mpi_shim/channel/core/wire.h"
#include "mpi_shim/channel/verbs/buffer_pool.h"
#include "mpi_shim/channel/verbs/completion_queue.h"

namespace ewarp::channel {

// Work request ids of receives name the connection and the buffer; all others name a Record. What an earlier connection
// left in the completion queue is known by its serial number.
namespace receive_id {

inline constexpr std::uint64_t kBit = std::uint64_t{1} << 63;
inline constexpr std::uint32_t kMostIndex = 0xffff;

inline std::uint64_t make(std::uint32_t serial, std::uint32_t index) {
  assert(index <= kMostIndex);
  return kBit | std::uint64_t{serial} << 16 | index;
}
inline bool is(std::uint64_t id) {
  return (id & kBit) != 0;
}
inline std::uint32_t serial(std::uint64_t id) {
  return static_cast<std::uint32_t>(id >> 16);
}
inline std::uint32_t index(std::uint64_t id) {
  return static_cast<std::uint32_t>(id & kMostIndex);
}

}  // namespace receive_id

struct DestroyId {
  void operator()(rdma_cm_id* id) const { rdma_destroy_id(id); }
};
using OwnedId = std::unique_ptr<rdma_cm_id, DestroyId>;

class Connection {
 public:
  enum class State : std::uint8_t {
    resolving,   // we begin: how to get there is being found out
    connecting,  // we begin: the request is out
    accepting,   // the peer began: it was accepted, and has not been heard of since
    up,
    draining,  // ended: what the adapter has comes back
  };
  static constexpr bool allowed(State from, State to) {
    switch (to) {
      case State::connecting:
        return from == State::resolving;
      case State::up:
        return from == State::connecting || from == State::accepting;
      case State::draining:
        return from != State::draining;
      case State::resolving:
      case State::accepting:
        return false;  // a connection begins so
    }
    return false;
  }

  // At most so many requests are at the adapter.
  static constexpr std::uint32_t kSendDepth = 31;

  // serial: not 0. first: resolving or accepting.
  Connection(std::uint32_t serial, PeerId peer, OwnedId id, State first);
  // Nothing of it is in use afterwards.
  ~Connection() { close(); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Makes the queue pair and posts the receives of the first window and one for the greeting, with buffers of the
  // pool. What was refused and why; empty if nothing was. The pool and the queue stay for longer than this.
  std::string prepare(ibv_pd* pd, CompletionQueue& completions, BufferPool& receives, const Tuning& tuning);
  // The queue pair is gone, so nobody uses the memory of requests that did not come back.
  void close();

  std::uint32_t serial() const { return serial_; }
  PeerId peer() const { return peer_; }
  rdma_cm_id* id() const { return id_; }
  State state() const { return state_; }
  // The only writer of the state.
  void enter(State to);
  // We begin, and the peer has not answered.
  bool attempting() const { return state_ == State::resolving || state_ == State::connecting; }
  // It is up, or was.
  bool stood() const { return state_ == State::up || state_ == State::draining; }

  // --- requests ---
  // more: requests that are about to be posted.
  bool has_room(std::size_t more = 0) const { return sends_ + more < kSendDepth; }
  std::uint32_t inline_octets() const { return inline_octets_; }
  std::uint32_t sends() const { return sends_; }  // at the adapter
  // False: it was not taken. Requires: prepare().
  bool post_send(ibv_send_wr& wr);
  // A list of so many. False: the adapter did not take all of them, and those that it did not are never heard of.
  bool post_sends(ibv_send_wr& first, std::uint32_t count);
  void send_completed() {
    assert(sends_ > 0);
    --sends_;
  }

  // --- receives ---
  // As Transport's.
  bool add_receives(std::uint32_t count);
  void take_receive() { ++surplus_; }
  // One completed, well or not.
  void receive_completed() {
    assert(receives_ > 0);
    --receives_;
  }
  // Its octets, which are there until looked().
  Octets look(std::uint32_t index, std::size_t octets);
  // Posts it again, with another buffer while that one is looked at. False: there is none, or the adapter does not
  // take it.
  bool renew();
  // Posts it again, unless that was done. False: the adapter does not take it.
  bool looked();

  // Everything that the adapter has comes back, most of it flushed.
  void flush();
  bool drained() const { return sends_ == 0 && receives_ == 0; }

  bool refused = false;          // a request was, and somebody wants to know when there is room
  bool writable = false;         // in the list of those who are told so
  bool immediate = false;        // the adapters take Writes with immediate
  wire::Remote heartbeat;        // at the peer
  std::uint64_t give_up_at = 0;  // draining: then without what has not come back
  Links<Connection> writables;   // writable
  Links<Connection> drains;      // draining

 private:
  bool post_receive(std::uint32_t index);
  bool add_index();
  bool add_receive();
  bool retire_surplus();

  const std::uint32_t serial_;
  const PeerId peer_;
  State state_;
  rdma_cm_id* id_;
  std::uint32_t inline_octets_ = 0;
  std::uint32_t sends_ = 0, receives_ = 0;  // at the adapter

  CompletionQueue* completions_ = nullptr;  // where `reserved_` are reserved
  std::size_t reserved_ = 0;
  BufferPool* pool_ = nullptr;
  std::vector<BufferPool::Buffer> buffers_;  // of the receives by their index; without data: it is not posted
  std::uint32_t most_receives_ = 0;
  std::vector<std::uint32_t> spare_;  // indices of buffers_ that are not posted
  std::uint32_t surplus_ = 0;         // so many more will be spare when they were used
  // Of the message that is looked at: the receive, if it is yet to be posted again, and the buffer.
  std::optional<std::uint32_t> used_;
  BufferPool::Buffer looked_at_;
};

}  // namespace ewarp::channel
