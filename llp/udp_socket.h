// UDP sockets for datagrams with their addresses, TTL and type of service, many of them in one system call.
//
// Addresses are sockaddr_in6 throughout; IPv4 ones are IPv4-mapped, whatever family the socket itself has.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "llp/gather.h"
#include "llp/octets.h"

namespace ewarp::llp {

inline bool is_v4(const in6_addr& a) {
  return IN6_IS_ADDR_V4MAPPED(&a);
}

// A socket by its number, of AF_INET6 or AF_INET.
struct UdpHandle {
  int fd;
  bool v6;
};

// What a UDP socket needs so that UdpInbox learns all of a datagram; a large receive buffer.
void prepare_udp_socket(UdpHandle socket);

// Whether datagrams longer than the path's MTU are cut into IP fragments; if not, they are refused (EMSGSIZE).
void set_fragmenting(UdpHandle socket, bool fragments);
// Octets that may wait to be read, as the kernel counts them.
std::size_t receive_buffer(UdpHandle socket);
// What the kernel knows of the path's MTU, octets; 0: nothing.
unsigned path_mtu(const sockaddr_in6& to);

// A non-blocking socket. Threading: one thread at a time.
class UdpSocket {
 public:
  UdpSocket() = default;
  UdpSocket(UdpSocket&& other) noexcept;
  UdpSocket& operator=(UdpSocket&& other) noexcept;
  ~UdpSocket() { close(); }

  // Bound to this port on all addresses, of both families where there is IPv6, exclusively. 0 or a positive errno.
  static int open(std::uint16_t port, UdpSocket* out);
  // Bound to nothing; fd() is -1 if there is none to be had.
  static UdpSocket unbound(sa_family_t family);
  // One that several processes share, for the groups it joins; of one family. 0 or a positive errno.
  static int open_group(std::uint16_t port, sa_family_t family, UdpSocket* out);

  // 0 or a positive errno. Requires: a socket of open_group().
  int join(const in6_addr& group, unsigned interface);
  int leave(const in6_addr& group, unsigned interface);

  int fd() const { return fd_; }
  bool is_v6() const { return v6_; }
  operator UdpHandle() const { return {fd_, v6_}; }
  explicit operator bool() const { return fd_ >= 0; }
  void close();
  int release();  // the caller closes it

 private:
  int fd_ = -1;
  bool v6_ = false;
};

// One datagram that arrived.
struct UdpArrival {
  Octets payload;  // valid until the next receive()
  sockaddr_in6 from{};
  in6_addr to{};
  unsigned interface = 0;
  std::uint8_t tos = 0, ttl = 0;
};

// What one socket had to say. Threading: one thread at a time; one for all sockets. Takes 64 KiB of memory for each
// message of a call, touched as far as datagrams fill it.
class UdpInbox {
 public:
  static constexpr unsigned kMost = 64;  // messages of one call

  UdpInbox();
  // Up to `most` messages, each of which may hold several datagrams (UDP_GRO). Returns their number, or -errno.
  int receive(UdpHandle socket, unsigned most);
  // Calls f(arrival) for each datagram of the last receive().
  template <class F>
  void for_each(F&& f) const {
    for (unsigned i = 0; i < count_; ++i) {
      Part part = part_of(i);
      for (std::size_t at = 0; at < part.octets.size() || at == 0; at += part.each) {
        part.arrival.payload = part.octets.subspan(at, std::min(part.each, part.octets.size() - at));
        f(part.arrival);
      }
    }
  }

 private:
  static constexpr std::size_t kRoom = 64 * 1024;
  static constexpr std::size_t kControl = 192;
  struct Part {
    UdpArrival arrival;
    Octets octets;
    std::size_t each;
  };
  struct Slot {
    sockaddr_in6 name;
    iovec vector;
    alignas(cmsghdr) std::byte control[kControl];
  };
  void prepare(unsigned i);
  Part part_of(unsigned i) const;

  std::unique_ptr<std::byte[]> memory_;
  std::vector<Slot> slots_;
  std::vector<mmsghdr> messages_;
  unsigned count_ = 0;
};

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
