// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Which of many sockets can be read or written: a level-triggered epoll with which each is registered for good, so that
// asking costs what is ready, whatever their number.
#pragma once

#include <poll.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace ewarp::llp {

// Threading: one thread at a time, any thread; a thread may sleep on fd() meanwhile, in a Watcher. None of the calls is
// a cancellation point.
class ReadySet {
 public:
  ReadySet() = default;
  ~ReadySet() { close(); }
  ReadySet(const ReadySet&) = delete;
  ReadySet& operator=(const ReadySet&) = delete;

  // 0 or errno (EMFILE). Requires: not open.
  int open();
  void close();  // in a forked child too
  bool is_open() const { return fd_ >= 0; }
  // Readable while collect() would return something.
  int fd() const { return fd_; }

  // events: POLLIN, POLLOUT; errors and hang-ups always. 0 or errno (ENOMEM; ENOSPC: fs.epoll.max_user_watches).
  [[nodiscard]] int add(int fd, std::uint32_t events, void* owner);
  [[nodiscard]] int change(int fd, std::uint32_t events, void* owner);
  // Before the fd is closed.
  void remove(int fd);

  static constexpr std::size_t kMost = 32;
  // Owners of sockets that are ready now, each once, in the order in which they became ready; those that stay ready
  // come again behind all others. Does not wait. How many of `out` were filled. Requires: out.size() <= kMost.
  std::size_t collect(std::span<void*> out);

 private:
  int control(int operation, int fd, std::uint32_t events, void* owner);
  int fd_ = -1;
};

}  // namespace ewarp::llp
