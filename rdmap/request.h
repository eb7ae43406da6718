// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What the consumer of RDMAP asks for and gets back.
#pragma once

#include <array>
#include <cassert>
#include <cstdint>

#include "ddp/access.h"
#include "llp/gather.h"
#include "llp/octets.h"
#include "rdmap/header.h"

namespace ewarp::rdmap {

enum class Operation : std::uint8_t { send, write, read, fetch_add, compare_swap };

constexpr bool is_atomic(Operation op) {
  return op == Operation::fetch_add || op == Operation::compare_swap;
}
// Complete when a response has arrived: these count against ORD, and a fence waits for them.
constexpr bool has_response(Operation op) {
  return op == Operation::read || is_atomic(op);
}

// How a request of ours ended; provider/verbs turns it into an ibv_wc_status.
enum class Status : std::uint8_t {
  success,
  local_protection,  // our own memory: bad key, bounds, unmapped
  local_length,      // receive: the message did not fit
  bad_response,      // a Read Response that does not match
  remote_access,     // the peer's Terminate names this request: protection
  remote_invalid,    // the peer's Terminate names this request: it was not acceptable
  remote_operation,  // the peer failed while serving it
  no_receive,        // the peer had no receive buffer
  connection_lost,   // the stream broke without a Terminate; datagrams: the peer cannot be reached
  flushed,
  fatal,
};

// One entry of the send queue. The consumer owns it from the moment it is offered until send_done() was called.
struct SendRequest {
  Operation operation = Operation::send;
  bool solicited = false;
  bool fence = false;       // not before all earlier Reads and atomics are complete
  bool invalidate = false;  // Send with Invalidate
  bool immediate = false;   // Send or Write with Immediate; never with invalidate
  std::uint32_t invalidate_stag = 0;
  std::uint32_t remote_stag = 0;
  std::uint64_t remote_to = 0;
  std::uint32_t length = 0;          // octets of payload (Read and atomics: of the sink)
  std::uint32_t immediate_data = 0;  // as a number: its most significant octet goes first
  std::uint64_t operand = 0;         // atomics: what to add, or to store
  std::uint64_t compare = 0;         // compare_swap
};

// A message that took a receive buffer: a Send, or the Immediate Data behind a Write.
struct Received {
  Status status = Status::success;
  std::uint32_t length = 0;  // octets of the Send; of the Write that the Immediate Data followed at once
  bool solicited = false;
  bool immediate = false;
  bool by_write = false;  // Immediate Data: the buffer is untouched
  std::uint32_t immediate_data = 0;
  bool invalidated = false;
  std::uint32_t invalidated_stag = 0;
};

// A message that holds a receive buffer and has come in part.
struct HalfMessage {
  std::uint32_t msn = 0;
  std::uint64_t octets = 0;  // of the segments that have come whole
};

// Pieces of memory, in order.
struct ExtentList {
  static constexpr std::size_t kMax = 34;
  union {
    std::array<llp::Extent, kMax> items;
  };
  std::size_t count = 0;

  // The items are not initialised: they are a kilobyte.
  ExtentList() {}
  void clear() { count = 0; }
  // Requires: fewer than kMax of them.
  void add(const llp::Extent& e) {
    assert(count < kMax);
    items[count++] = e;
  }
  bool empty() const { return count == 0; }
  const llp::Extent* begin() const { return items.data(); }
  const llp::Extent* end() const { return items.data() + count; }
  const llp::Extent& front() const { return items[0]; }
  std::span<llp::Extent> all() { return std::span(items.data(), count); }
  std::span<const llp::Extent> all() const { return std::span(items.data(), count); }
};

enum class RemoteRight : std::uint8_t { read, write, atomic };

// Memory that peers name by STag, and access to whatever an Extent says. All calls are made by whoever
// holds the engine.
class MemoryAccess {
 public:
  // A peer's access to [to, to + n). Requires n > 0.
  virtual ddp::Verdict resolve(std::uint32_t stag, std::uint64_t to, std::uint64_t n, RemoteRight right,
                               llp::Extent& out) = 0;
  virtual ddp::Verdict invalidate(std::uint32_t stag) = 0;
  // Copies to memory of others; false when it may not, or can not, be touched (any more).
  virtual bool copy_in(const llp::Extent& to, const std::byte* from) = 0;
  // Executes the request on the 8 octets of `target`, which are aligned; *original is what was there. False as above.
  virtual bool atomic(const llp::Extent& target, const AtomicRequest& request, std::uint64_t* original) = 0;
  // Whether every page can be read now.
  virtual bool readable(const llp::Extent& extent) = 0;
  // For reading without a system call (a CRC, by llp::Crc32c::read(); a guarded copy): its owner cannot release it
  // before let_go(), but its pages may be gone. False: it was released. No allocation between the two
  // (llp::MemoryGate).
  virtual bool hold(const llp::Extent& extent) = 0;
  virtual void let_go(const llp::Extent& extent) = 0;

 protected:
  ~MemoryAccess() = default;
};

// What RDMAP on a stream asks of the layer above.
class Consumer : public MemoryAccess {
 public:
  // The oldest request that was not started yet; null if there is none.
  virtual SendRequest* next_send() = 0;
  virtual void send_started() = 0;
  virtual void send_done(SendRequest& request, Status status) = 0;
  // Octets [offset, offset + n) of the request's memory: source of a Send or Write, sink of a Read or
  // of what an atomic returns.
  virtual Status request_memory(const SendRequest& request, std::uint64_t offset, std::uint64_t n, ExtentList& out) = 0;

  // The next receive buffer becomes the current one. False: none is posted.
  virtual bool take_receive() = 0;
  virtual bool has_receive() const = 0;
  virtual std::uint64_t receive_capacity() const = 0;  // octets of the current one
  virtual Status receive_memory(std::uint64_t offset, std::uint64_t n, ExtentList& out) = 0;
  virtual void receive_done(const Received& received) = 0;

 protected:
  ~Consumer() = default;
};

}  // namespace ewarp::rdmap
