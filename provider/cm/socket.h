// A TCP socket of the connection manager: non-blocking, close-on-exec, out of the low fd numbers, known to the fork
// handler, and never closed while the reactor watches it.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <utility>

#include "provider/cm/address.h"

namespace ewarp::cm {

// Which fd numbers are ours; read without a lock by ucma_is() and in a forked child.
class FdRegistry {
 public:
  static constexpr int kLimit = 1 << 20;  // the kernel's default for fs.nr_open
  bool add(int fd);                       // false: the number is too large
  void remove(int fd);
  bool contains(int fd) const;
  // Calls each(fd) for every member.
  template <class F>
  void for_each(F each) const {
    const int end = highest_.load(std::memory_order_acquire);
    for (int fd = 0; fd <= end; ++fd)
      if (contains(fd)) each(fd);
  }

 private:
  std::atomic<int> highest_{-1};
  std::atomic<std::uint64_t> words_[kLimit / 64]{};
};

FdRegistry& socket_registry();

class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd);  // takes the fd; fd < 0: none
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept;
  ~Socket() { close(); }

  int fd() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void close();
  // Closes with RST.
  void abort();
  // The caller takes the fd; the reactor does not watch it any more.
  int release();

 private:
  int fd_ = -1;
};

struct SocketOptions {
  bool datagram = false;
  std::optional<bool> v6_only;  // nothing: the system's default
  std::optional<std::uint8_t> tos;
  bool late_port = false;  // port 0 is chosen at connect(), for one peer only
  bool reuse = true;       // TCP only: on unicast UDP a second socket would take the first one's datagrams
};

// A socket bound to `local`. 0 or a positive errno.
int open_bound(const Address& local, const SocketOptions& options, Socket* out);
// llp::tune_stream() with our options, and the type of service.
void tune_stream(int fd, const Address& peer, bool peer_is_local, std::optional<std::uint8_t> tos);

// Raw system calls: the libc ones are cancellation points, and write() and close() may lead through the preload library
// back into the connection manager.
long raw_write(int fd, const void* data, std::size_t size);
void raw_close(int fd);

}  // namespace ewarp::cm
