// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What takes part in the engine's passes: a stream, or a socket for datagrams.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace ewarp::verbs {

// A stream's receives, for who shares a system call between many streams: take_buffers() of all of them, prepare()
// enters regions and fills the message header, the call has a result (octets or -errno), leave_regions() of all of
// them, then finish_turn() does the rest of the turn.
class BatchedReceiver {
 public:
  // May allocate; prepare() may not.
  virtual void take_buffers() noexcept = 0;
  virtual msghdr* prepare() noexcept = 0;
  virtual void leave_regions() = 0;
  // How many octets were moved; 0: nothing happened.
  virtual std::size_t finish_turn(ssize_t result) = 0;

 protected:
  ~BatchedReceiver() = default;
};

// Threading: engine held for everything.
class Pollable {
 public:
  virtual ~Pollable() = default;
  virtual int fd() const = 0;
  // Reads and writes what does not block, a bounded amount. How many octets were moved; 0: nothing happened.
  virtual std::size_t turn() = 0;
  // turn() has thrown (no memory).
  virtual void broken() noexcept {}
  // turn() makes no system call where there is nothing to do, so it may be asked as often as anybody polls. For good.
  virtual bool is_near() const { return false; }
  virtual bool wants_to_read() const { return true; }
  // It could not write all it has: the kernel says when it can go on.
  virtual bool wants_to_write() const = 0;
  // POLLIN and POLLOUT: what fd() has to be watched for, of what it wants.
  virtual std::uint32_t watched_for() const {
    return (wants_to_read() ? POLLIN : 0U) | (wants_to_write() ? POLLOUT : 0U);
  }
  // Somebody may sleep on fd() from here on. True: it has something to do already, of which fd() need not tell. rang:
  // fd() was found ready since the last time, and if only to wake a sleeper, that is over.
  virtual bool arm(bool /*rang*/) { return false; }
  // As far as can be seen without a call, fd() has become ready since.
  virtual bool rung() const { return false; }
  // Nothing is ready for it: buffers with nothing in them can serve others.
  virtual void rest() {}
  // After fork(): the socket is the parent's.
  virtual void close_in_child() = 0;
  // Engine::look_later() was called, not by this one alone: whether the peer's host still answers. True: it is to be
  // called again.
  virtual bool look(std::chrono::steady_clock::time_point) { return false; }
  // Not null: its receives from fd() can share a system call with others'.
  virtual BatchedReceiver* batched() { return nullptr; }
  // The process ends: what the application has handed over leaves, as much as can without waiting, and the peer is told
  // that nothing follows. From then on turn() discards what arrives.
  virtual void finish() {}
  // Reads and discards what has arrived since finish(), a bounded amount. True: the peer has finished, too.
  virtual bool drained() { return true; }

  bool in_engine() const { return in_engine_; }

 private:
  friend class ActiveSet;
  friend class Graveyard;
  bool in_engine_ = false;
  bool awake_ = false;          // arm() said so, and it has not had its turn
  bool rang_ = false;           // its fd was found ready since arm() was told
  bool near_ = false;           // is_near() said so
  std::uint64_t moved_at_ = 0;  // in this pass it moved octets last; of those that are asked in each
  std::uint32_t watched_ = 0;   // events that the ready set knows of; 0: it does not know the socket
  Pollable *before_ = nullptr, *after_ = nullptr;
  std::shared_ptr<Pollable> buried_before_;
};

// Those that are to be destroyed later. Putting one in allocates nothing: it may be the end of a connection for want of
// memory. Threading: its owner's.
class Graveyard {
 public:
  bool empty() const { return last_ == nullptr; }
  void add(std::shared_ptr<Pollable> object) {
    object->buried_before_ = std::move(last_);
    last_ = std::move(object);
  }
  Graveyard() = default;
  Graveyard(Graveyard&& other) noexcept = default;
  Graveyard& operator=(Graveyard&& other) = delete;
  // One after the other: each holds the next.
  ~Graveyard() {
    while (last_ != nullptr) last_ = std::exchange(last_->buried_before_, nullptr);
  }

 private:
  std::shared_ptr<Pollable> last_;
};

}  // namespace ewarp::verbs
