// What the consumer of RDMAP asks for and gets back.
#pragma once

#include <array>
#include <cstdint>

#include "ddp/access.h"
#include "llp/gather.h"
#include "llp/octets.h"

namespace ewarp::rdmap {

enum class Operation : std::uint8_t { send, write, read };

// How a request of ours ended; provider/verbs turns it into an ibv_wc_status.
enum class Status : std::uint8_t {
  success,
  local_protection,      // our own memory: bad key, bounds, unmapped
  local_length,          // receive: the message did not fit
  bad_response,          // a Read Response that does not match
  remote_access,         // the peer's Terminate names this request: protection
  remote_invalid,        // the peer's Terminate names this request: it was not acceptable
  remote_operation,      // the peer failed while serving it
  no_receive,            // the peer had no receive buffer
  connection_lost,       // the stream broke without a Terminate
  flushed,
  fatal,
};

// One entry of the send queue. The consumer owns it from the moment it is offered until done() was called.
struct SendRequest {
  Operation operation = Operation::send;
  bool solicited = false;
  bool fence = false;       // not before all earlier Reads are complete
  bool invalidate = false;  // Send with Invalidate
  std::uint32_t invalidate_stag = 0;
  std::uint32_t remote_stag = 0;
  std::uint64_t remote_to = 0;
  std::uint32_t length = 0;  // octets of payload (Read: of the sink)
};

// A message that arrived in a receive buffer.
struct Received {
  Status status = Status::success;
  std::uint32_t length = 0;
  bool solicited = false;
  bool invalidated = false;
  std::uint32_t invalidated_stag = 0;
};

// Pieces of memory, in order.
struct ExtentList {
  static constexpr std::size_t kMax = 34;
  std::array<llp::Extent, kMax> items;
  std::size_t count = 0;

  void clear() { count = 0; }
  void add(const llp::Extent& e) { items[count++] = e; }
  std::span<llp::Extent> all() { return std::span(items.data(), count); }
  std::span<const llp::Extent> all() const { return std::span(items.data(), count); }
};

enum class RemoteRight : std::uint8_t { read, write };

// What RDMAP asks of the layer above. All calls are made by whoever holds the engine.
class Consumer {
 public:
  // The oldest request that was not started yet; null if there is none.
  virtual SendRequest* next_send() = 0;
  virtual void send_started() = 0;
  virtual void send_done(SendRequest& request, Status status) = 0;
  // Octets [offset, offset + n) of the request's memory: source of a Send or Write, sink of a Read.
  virtual Status request_memory(const SendRequest& request, std::uint64_t offset, std::uint64_t n, ExtentList& out) = 0;

  // The next receive buffer becomes the current one. False: none is posted.
  virtual bool take_receive() = 0;
  virtual bool has_receive() const = 0;
  virtual std::uint64_t receive_capacity() const = 0;  // octets of the current one
  virtual Status receive_memory(std::uint64_t offset, std::uint64_t n, ExtentList& out) = 0;
  virtual void receive_done(const Received& received) = 0;

  // A peer's access to [to, to + n). Requires n > 0.
  virtual ddp::Verdict resolve(std::uint32_t stag, std::uint64_t to, std::uint64_t n, RemoteRight right,
                               llp::Extent& out) = 0;
  virtual ddp::Verdict invalidate(std::uint32_t stag) = 0;
  // Copies to or from memory of others; false when it may not, or can not, be touched (any more).
  virtual bool copy_in(const llp::Extent& to, const std::byte* from) = 0;
  virtual bool copy_out(std::byte* to, const llp::Extent& from) = 0;
  // Whether every page can be read now.
  virtual bool readable(const llp::Extent& extent) = 0;
  // For reading in place without a system call (a CRC): true when all of it can be read; its owner cannot release it
  // before let_go(). No allocation between the two (llp::MemoryGate).
  virtual bool hold(const llp::Extent& extent) = 0;
  virtual void let_go(const llp::Extent& extent) = 0;

 protected:
  ~Consumer() = default;
};

}  // namespace ewarp::rdmap
