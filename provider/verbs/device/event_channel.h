// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A pipe of fixed-size event records, read by libibverbs from its read end.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "llp/mutex.h"
#include "llp/octets.h"

namespace ewarp::verbs {

// Records are 8 octets (ib_uverbs_comp_event_desc) or 16 (ib_uverbs_async_event_desc); both begin with the 64-bit
// handle that names the object. Threading: all calls from any thread, also with the engine held: post() never blocks.
class EventChannel : public std::enable_shared_from_this<EventChannel> {
 public:
  static constexpr std::size_t kMaxRecord = 16;

  // Null on failure, with *error a positive errno (EMFILE, ENFILE, ENOMEM).
  static std::shared_ptr<EventChannel> create(std::size_t record_octets, int* error);
  ~EventChannel();
  EventChannel(const EventChannel&) = delete;
  EventChannel& operator=(const EventChannel&) = delete;

  // Blocking, until its user sets O_NONBLOCK.
  int read_fd() const { return read_fd_; }
  // The read end now belongs to the application (it will close it); we must not.
  void release_read_fd() { owns_read_fd_ = false; }

  // Writes the record, or keeps it until the reader has made room. Nothing is lost, the order is kept.
  // Requires: record.size() is the channel's record size.
  void post(Octets record);
  // Takes back the records of this handle that nobody has read yet; returns how many. A reader may find the channel
  // empty for a moment.
  std::size_t purge(std::uint64_t handle);
  // Retries what did not fit (the reactor calls it by itself when there is room). True if something is still waiting.
  bool flush();
  // In a forked child, where no other thread runs: closes our ends. From then on nobody is told anything here.
  void close_in_child();
  bool closed() const { return write_fd_ < 0; }

 private:
  using Record = std::array<std::byte, kMaxRecord>;

  EventChannel(int read_fd, int own_read_fd, int write_fd, std::size_t record)
      : read_fd_(read_fd), own_read_fd_(own_read_fd), write_fd_(write_fd), record_(record) {}
  bool write_one(const Record& record);
  bool flush_locked() EWARP_REQUIRES(mutex_);
  std::vector<std::byte> take_unread();
  bool take_unread_into(std::vector<std::byte>& out);
  void rewrite(Octets kept);
  void watch_for_room() EWARP_EXCLUDES(mutex_);

  int read_fd_;
  // Ours for as long as we live, whatever the application does with its own: keeps writes from raising SIGPIPE, and
  // purge() away from an fd number that was closed and given to somebody else.
  int own_read_fd_;
  int write_fd_;
  std::size_t record_;
  bool owns_read_fd_ = true;
  llp::Mutex mutex_;
  bool watching_ EWARP_GUARDED_BY(mutex_) = false;
  std::deque<Record> backlog_ EWARP_GUARDED_BY(mutex_);
};

}  // namespace ewarp::verbs
