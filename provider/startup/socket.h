// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A TCP or UDP socket while streams are brought up: non-blocking, close-on-exec, out of the low fd numbers, known to
// the fork handler, and never closed while the reactor watches it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "llp/local_agreement.h"
#include "llp/octets.h"
#include "llp/stream.h"

namespace ewarp::verbs {

// A set of fd numbers that is read without a lock, in a forked child too.
class FdRegistry {
 public:
  static constexpr int kLimit = 1 << 20;  // the kernel's default for fs.nr_open
  bool add(int fd);                       // false: the number is too large
  // Whether it was there, as far as is known of its number.
  bool remove(int fd);
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

// Threading: one thread at a time.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd);  // takes the fd; fd < 0: none
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)), local_(std::move(other.local_)) {}
  Socket& operator=(Socket&& other) noexcept;
  ~Socket() { close(); }

  int fd() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void close();
  // Closes with RST.
  void abort();
  // The caller takes the fd; the reactor does not watch it any more. -1: there is none, or it is the parent's.
  int release();
  // The same as a stream, with what was begun for a local one.
  std::unique_ptr<llp::Stream> release_stream();

  // Before a Reply that consents to a local stream, and after one. False: the stream stays with TCP.
  bool listen_locally();
  bool connect_locally();
  void stay_with_tcp();

  // Octets, 0 at the stream's end, or -errno.
  long receive(MutableOctets into, int flags = 0) const;
  long send(Octets data) const;

  // A forked child: those that are open are the parent's.
  static void close_all_in_child();

 private:
  int fd_ = -1;
  std::unique_ptr<llp::LocalAgreement> local_;
};

// Past the C library, whose close() is a cancellation point and may lead through the preload library back into the
// connection manager.
void raw_close(int fd);

}  // namespace ewarp::verbs
