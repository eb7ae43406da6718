// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "mpi_shim/channel/published_counters.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cassert>
#include <cstdlib>
#include <cstring>

namespace ewarp::channel {
namespace {

std::string run_directory() {
  const char* named = secure_getenv("ETHERWARP_RUNDIR");
  return named != nullptr && *named != '\0' ? named : "/dev/shm/etherwarp-" + std::to_string(geteuid());
}

// Ours alone, or it is not used: who can rename files there could redirect what is written.
bool safe(const std::string& directory) {
  struct stat st;
  return lstat(directory.c_str(), &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == geteuid() && (st.st_mode & 022) == 0;
}

bool wanted() {
  const char* keep = std::getenv("ETHERWARP_STATS_KEEP");
  return keep != nullptr && (std::strcmp(keep, "yes") == 0 || std::strcmp(keep, "1") == 0 ||
                             std::strcmp(keep, "on") == 0 || std::strcmp(keep, "true") == 0);
}

}  // namespace

void PublishedCounters::publish(Counters& counters, const std::string& address, std::uint16_t port) {
  assert(page_ == nullptr);
  const std::string directory = run_directory();
  if (!safe(directory)) return;
  const std::string path = directory + "/" + std::to_string(getpid()) + kCountersInfix + std::to_string(port);
  unlink(path.c_str());  // of a dead process with our number
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return;
  // The room is taken now, so that a full file system is no SIGBUS later.
  const bool room = posix_fallocate(fd, 0, sizeof(Page)) == 0;
  void* at = room ? mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
  close(fd);
  if (at == MAP_FAILED) {
    unlink(path.c_str());
    return;
  }
  path_ = path;
  keep_ = wanted();
  page_ = static_cast<Page*>(at);
  CountersHead& head = page_->head;
  head.pid = static_cast<std::uint32_t>(getpid());
  head.count = Counters::kSize;
  std::strncpy(head.address, address.c_str(), sizeof head.address - 1);
  for (std::size_t i = 0; i < Counters::kSize; ++i)
    std::strncpy(page_->names[i], Counters::name(static_cast<Count>(i)), sizeof page_->names[i] - 1);
  counters.count_in(page_->values);
  std::memcpy(head.magic, CountersHead::kMagic, sizeof head.magic);
}

PublishedCounters::~PublishedCounters() {
  if (page_ == nullptr) return;
  // A forked child leaves its parent's file alone.
  if (!keep_ && page_->head.pid == static_cast<std::uint32_t>(getpid())) unlink(path_.c_str());
  munmap(page_, sizeof(Page));
}

}  // namespace ewarp::channel
