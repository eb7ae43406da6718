// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The file descriptors that programs hold of us, by number.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <unordered_map>

#include "llp/mutex.h"
#include "provider/host/host_ops.h"
#include "provider/verbs/device/device.h"
#include "provider/verbs/device/event_channel.h"

namespace ewarp::host {

class NetlinkSession;

struct OpenFile {
  unsigned char kind = ETHERWARP_FD_NONE;
  verbs::Device* device = nullptr;               // ETHERWARP_FD_COMMAND
  std::shared_ptr<verbs::EventChannel> channel;  // ETHERWARP_FD_EVENTS
  std::shared_ptr<NetlinkSession> session;       // ETHERWARP_FD_NETLINK
  dev_t file_device = 0;                         // which file fd was when it was added
  ino_t file_number = 0;
  int file_mark = 0;  // of files that share an inode with others
};

// Programs close fds behind our back (close_range, dup2), and the number comes back as something else: an entry is
// believed only while fd is still the same file. Threading: any thread. Nothing in here waits, or is a cancellation
// point.
class FdTable {
 public:
  // 0, or EMFILE where the number is beyond the preload library's table. The fd stays open in any case.
  int add(int fd, OpenFile file);
  std::optional<OpenFile> find(int fd, unsigned char kind);
  // marked: what the preload library is to see in fd from now on.
  std::optional<OpenFile> remove(int fd, unsigned char marked = ETHERWARP_FD_NONE);

  void attach(const etherwarp_preload_ops* preload) { preload_ = preload; }
  // Around fork().
  void lock() EWARP_ACQUIRE(mutex_) { mutex_.lock(); }
  void unlock() EWARP_RELEASE(mutex_) { mutex_.unlock(); }
  // In the child: forgets everything; nobody else has the mutex (lock() was called before the fork).
  void clear_in_child() EWARP_NO_LOCK_ANALYSIS;

 private:
  void mark(int fd, unsigned char kind);
  llp::Mutex mutex_;
  std::unordered_map<int, OpenFile> files_ EWARP_GUARDED_BY(mutex_);
  const etherwarp_preload_ops* preload_ = nullptr;
};
FdTable& fds();

// fstat() past the hooks: false if fd is not open.
bool raw_fstat(int fd, struct stat* out);
void raw_close(int fd);

// A channel whose read end the application will own; *fd is that end. Null with *error set on failure.
std::shared_ptr<verbs::EventChannel> open_event_channel(std::size_t record_octets, int* fd, int* error);
// The channel of an ibv_comp_channel's fd; null if it is none of ours.
std::shared_ptr<verbs::EventChannel> find_event_channel(int fd);

}  // namespace ewarp::host
