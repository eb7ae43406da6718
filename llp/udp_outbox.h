// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Datagrams that are sent, many in one system call.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "llp/octets.h"
#include "llp/udp_socket.h"

namespace ewarp::llp {

// Where a datagram goes, and how.
struct UdpDestination {
  sockaddr_in6 to{};
  in6_addr source{};       // of the family of `to` (IPv4-mapped if that is); ::, the kernel chooses
  unsigned interface = 0;  // sends there; 0: by the routes
  std::uint8_t tos = 0;
  std::uint8_t ttl = 0;             // 0: the system's
  std::uint16_t segment_limit = 0;  // datagrams up to this size may be given to the kernel as one (UDP_SEGMENT)
};

// Datagrams to be sent in as few system calls as possible. Memory of others is referred to, not copied.
// Threading: one thread at a time. No allocation after construction.
class UdpOutbox {
 public:
  static constexpr std::size_t kMessages = 64, kVectors = 1024, kArena = 128 * 1024;
  static constexpr std::size_t kControl = 128;

  UdpOutbox();
  bool empty() const { return count_ == 0; }
  std::size_t size() const { return count_; }
  // Room for one more datagram of so many pieces, and so many octets kept here.
  bool has_room(std::size_t vectors, std::size_t arena) const;

  // Begins a datagram. The destination is referred to until send().
  void begin(const UdpDestination& to);
  // n octets for the caller to fill. Requires: has_room().
  MutableOctets append(std::size_t n);
  void append(const void* memory, std::size_t n);
  // Takes the datagram that was begun back.
  void undo();
  std::size_t octets() const { return messages_[count_ - 1].octets; }  // of the last one

  // Sends from the first on. Returns how many the kernel took; if not all, *error is why the next one was not (EAGAIN:
  // no room).
  std::size_t send(UdpHandle socket, int* error);
  void clear();

 private:
  struct Message {
    const UdpDestination* to;
    std::size_t first, end;  // in vectors_
    std::size_t octets;
  };
  struct Slot {
    union {
      sockaddr_in6 v6;
      sockaddr_in v4;
    } name;
    alignas(cmsghdr) std::byte control[kControl];
    std::size_t messages;  // how many datagrams it carries
  };
  std::size_t run_length(std::size_t from) const;
  unsigned fill(UdpHandle socket, std::size_t from, bool segments);
  void put(UdpHandle socket, unsigned slot, std::size_t from, std::size_t messages);

  std::vector<iovec> vectors_;
  std::unique_ptr<std::byte[]> arena_;
  std::array<Message, kMessages> messages_{};
  std::array<Slot, kMessages> slots_{};
  std::array<mmsghdr, kMessages> headers_{};
  std::size_t count_ = 0, vector_count_ = 0, arena_used_ = 0;
  bool segments_refused_ = false;  // this kernel or device does not split
};

}  // namespace ewarp::llp
