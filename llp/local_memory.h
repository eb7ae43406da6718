// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What two processes of one host share for a local stream (docs/protocol/local.md): one ring of octets for each
// direction, in memory of a fixed size that neither can take away from the other.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace ewarp::llp {

inline constexpr std::size_t kLocalRing = 256 * 1024;  // octets of one direction; docs/design/llp.md

// Of one process at a time. Used to the full they take 520 MiB, which the kernel counts as shared memory; whoever comes
// later stays with TCP.
inline constexpr int kMostLocalMemories = 1024;

// One direction. Whoever writes a word is named; the other end only looks at it, but for the two wishes, which the
// other end takes back when it grants them. A line for each, so that neither end's stores disturb what the other reads
// often.
struct LocalRing {
  alignas(64) std::atomic<std::uint64_t> written;     // octets ever written; the writer
  std::atomic<std::uint32_t> ended;                   // nothing follows; the writer
  alignas(64) std::atomic<std::uint64_t> read;        // octets ever read; the reader
  alignas(64) std::atomic<std::uint32_t> wants_data;  // wants a bell for the next octets; the reader
  alignas(64) std::atomic<std::uint32_t> wants_room;  // wants a bell for room; the writer
};

// Threading: as its user. Its pages are not the child's after fork().
class LocalMemory {
 public:
  LocalMemory() = default;
  ~LocalMemory() { unmap(); }
  LocalMemory(LocalMemory&& other) noexcept { *this = std::move(other); }
  LocalMemory& operator=(LocalMemory&& other) noexcept;

  // New, empty rings, and in *fd a descriptor of them for the peer (close-on-exec), which the caller closes. 0 or
  // errno (EMFILE, ENOMEM; ENOSPC: kMostLocalMemories; ENOSYS, EPERM where a sandbox forbids it).
  static int create(LocalMemory* memory, int* fd);
  // Those of a peer. 0 or errno; EPROTO: not of the size and version that this code has, or not sealed against
  // shrinking. fd stays the caller's.
  static int adopt(int fd, LocalMemory* memory);

  explicit operator bool() const { return at_ != nullptr; }
  // Of the direction from who created the memory (true), or to him.
  LocalRing& ring(bool from_creator) const;
  std::byte* octets(bool from_creator) const;

 private:
  int map(int fd);
  void unmap();
  std::byte* at_ = nullptr;
  int process_ = 0;  // whose mapping it is
};

}  // namespace ewarp::llp
