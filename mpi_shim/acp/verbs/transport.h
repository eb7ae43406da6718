// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What carries a process's requests to the others: RDMA Writes, Reads and atomics, and notices (immediate data). One
// kind of it is in use in a job: RD (verbs/rd_transport.h) or RC (verbs/rc_transport.h).
//
// What is posted to one peer on one lane takes effect there in the order of posting, with one exception: the octets of
// a plain Write may be placed before their turn (docs/protocol/reliable-datagrams.md). So what publishes octets is a
// notice or a `publish`, never a Write.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mpi_shim/acp/core/peers.h"

namespace ewarp::acp {

enum class TransportKind : std::uint8_t {
  automatic,  // RD, if the device has it
  rd,
  rc,
};

enum class Operation : std::uint8_t {
  write,         // local to remote
  write_notice,  // the same, and `immediate` for the peer; octets may be 0
  publish,       // the remote word, which was `compare`, becomes `value`, behind everything before it
  read,          // remote to local
  add,           // the remote word grows by `value`; local: what it was
  swap_if,       // the remote word becomes `value` if it is `compare`; local: what it was
};

// What a peer may refuse, because its program says which memory is open, goes apart from what it may not: a refusal
// ends a reliable connection, and with it everything that is under way there.
enum class Lane : std::uint8_t {
  channels,
  accesses,  // the Completion of a Write says that its octets are in the peer's memory
};
inline constexpr unsigned kLanes = 2;
inline constexpr int kPolled = 32;  // completions at a time

struct Post {
  Operation what;
  Lane lane = Lane::channels;
  std::uint32_t peer = 0;
  std::uint64_t id = 0;  // of its Completion
  std::uint64_t remote = 0;
  std::uint32_t rkey = 0;
  std::uint32_t immediate = 0;
  const void* local = nullptr;
  std::uint32_t octets = 0;
  std::uint32_t lkey = 0;
  bool copied = false;  // the local octets (Transport::most_copied() at most) are read before post() returns
  std::uint64_t value = 0, compare = 0;
};

struct Completion {
  std::uint64_t id;
  int error;    // 0 or an errno: ECONNRESET (the peer is gone), EACCES (not its memory), EFAULT (not ours), EIO
  bool notice;  // of a peer: only `immediate` counts
  std::uint32_t immediate;
};

// Memory that the adapter may reach.
struct Registration {
  void* handle = nullptr;
  std::uint32_t lkey = 0, rkey = 0;
};

class Transport {
 public:
  static constexpr std::uint32_t kSends = 256;  // posts that wait or are under way, to all peers

  virtual ~Transport() = default;
  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  // Peers may write, read and change this memory. False with errno.
  virtual bool register_memory(void* memory, std::size_t octets, Registration* out) = 0;
  virtual void deregister(void* handle) = 0;
  virtual Registration registration(void* handle) const = 0;

  // Where this process is: gid and qpn.
  virtual void introduce(Contact* out) const = 0;
  // Whether that process uses the same kind.
  virtual bool fits(const Contact& contact) const = 0;
  // So many post() in a row will find room.
  virtual std::uint32_t room() const = 0;
  // Requires: room(). Whatever becomes of it, there is one Completion.
  virtual void post(Peer& to, const Post& post) = 0;
  virtual std::uint32_t most_copied() const = 0;  // octets
  // At most `most`; their number.
  virtual int poll(Completion* out, int most) = 0;

  // The descriptor becomes readable when something can be polled, if nothing could when it was armed.
  virtual int descriptor() const = 0;
  virtual void arm() = 0;
  virtual void drain() = 0;

  // The peer is gone: what is under way to it ends soon.
  virtual void lose(Peer&) {}
  // Before the table of peers goes.
  virtual void forget(Peer&) {}

  // Where peers have to be answered even if the program makes no call: serve() is called when this becomes readable.
  // -1: they need no answer.
  virtual int callers() const { return -1; }
  // After so many ms it has to be called anyway; -1: not before somebody calls.
  virtual int serve() { return -1; }
};

}  // namespace ewarp::acp
