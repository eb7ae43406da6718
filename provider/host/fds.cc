// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/host/fds.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cassert>

#include <cerrno>
#include <cstddef>
#include <new>
#include <utility>

#include "llp/fd.h"
#include "llp/mutex.h"
#include "provider/base/log.h"

namespace ewarp::host {

bool raw_fstat(int fd, struct stat* out) {
#if defined(SYS_newfstatat)
  return syscall(SYS_newfstatat, fd, "", out, AT_EMPTY_PATH) == 0;
#else
#error "this architecture's struct stat is not the kernel's"
#endif
}

void raw_close(int fd) {
  if (fd >= 0) syscall(SYS_close, fd);
}

namespace {

// Pipes and sockets have an inode of their own; and a program may have them send signals.
bool shares_its_inode(unsigned char kind) {
  return kind == ETHERWARP_FD_COMMAND || kind == ETHERWARP_FD_CM;
}

// Only EBADF says that it is gone: a kernel without memory says nothing about it.
bool same_file(int fd, const OpenFile& file) {
  struct stat now {};
  if (!raw_fstat(fd, &now)) return errno != EBADF;
  return now.st_dev == file.file_device && now.st_ino == file.file_number &&
         (!shares_its_inode(file.kind) || llp::file_mark(fd) == file.file_mark);
}

}  // namespace

FdTable& fds() {
  // Never destroyed: programs close fds while they exit. In place: the first who asks is the preload library, which
  // calls attach() and cannot be told that there is no memory.
  alignas(FdTable) static std::byte place[sizeof(FdTable)];
  static auto* const table = new (place) FdTable;
  return *table;
}

void FdTable::mark(int fd, unsigned char kind) {
  if (preload_ != nullptr) preload_->mark(fd, kind);
}

int FdTable::add(int fd, OpenFile file) {
  struct stat now {};
  if (!raw_fstat(fd, &now)) return errno;
  file.file_device = now.st_dev;
  file.file_number = now.st_ino;
  const unsigned char kind = file.kind;
  assert(kind != ETHERWARP_FD_NONE);
  if (shares_its_inode(kind)) file.file_mark = llp::mark_file(fd);
  OpenFile former;  // destroyed without the lock
  const llp::Guard guard(mutex_);
  try {
    OpenFile& entry = files_[fd];
    if (preload_ != nullptr && !preload_->mark(fd, kind)) return EMFILE;  // an entry of no kind is never found
    former = std::exchange(entry, std::move(file));
    return 0;
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  }
}

std::optional<OpenFile> FdTable::find(int fd, unsigned char kind) {
  std::optional<OpenFile> stale;
  const llp::Guard guard(mutex_);
  const auto found = files_.find(fd);
  if (found == files_.end() || found->second.kind != kind) return std::nullopt;
  if (same_file(fd, found->second)) return found->second;
  stale = std::move(found->second);
  files_.erase(found);
  mark(fd, ETHERWARP_FD_NONE);
  return std::nullopt;
}

std::optional<OpenFile> FdTable::remove(int fd, unsigned char marked) {
  const llp::Guard guard(mutex_);
  mark(fd, marked);
  auto node = files_.extract(fd);
  if (node.empty()) return std::nullopt;
  return std::move(node.mapped());
}

void FdTable::clear_in_child() {
  for (auto& [fd, file] : files_) {
    // The connection manager refuses what a child does with an inherited channel; all else is an ordinary fd now.
    if (file.kind != ETHERWARP_FD_CM) mark(fd, ETHERWARP_FD_NONE);
    if (file.channel) file.channel->close_in_child();
  }
  std::erase_if(files_, [](const auto& entry) { return entry.second.kind != ETHERWARP_FD_CM; });
}

std::shared_ptr<verbs::EventChannel> open_event_channel(std::size_t record_octets, int* fd, int* error) {
  auto channel = verbs::EventChannel::create(record_octets, error);
  if (!channel) {
    log::explain_shortage(*error);
    return nullptr;
  }
  OpenFile file;
  file.kind = ETHERWARP_FD_EVENTS;
  file.channel = channel;
  *error = fds().add(channel->read_fd(), std::move(file));
  if (*error != 0) return nullptr;
  channel->release_read_fd();
  *fd = channel->read_fd();
  return channel;
}

std::shared_ptr<verbs::EventChannel> find_event_channel(int fd) {
  const auto file = fds().find(fd, ETHERWARP_FD_EVENTS);
  return file ? file->channel : nullptr;
}

}  // namespace ewarp::host
