#include "mpi_shim/channel/published_counters.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

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
  const std::string directory = run_directory();
  if (!safe(directory)) return;
  const std::string path = directory + "/" + std::to_string(getpid()) + ".channel." + std::to_string(port);
  unlink(path.c_str());  // of a dead process with our number
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return;
  // The room is taken now, so that a full file system is no SIGBUS later.
  const bool room = posix_fallocate(fd, 0, sizeof(PublishedPage)) == 0;
  void* at = room ? mmap(nullptr, sizeof(PublishedPage), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
  close(fd);
  if (at == MAP_FAILED) {
    unlink(path.c_str());
    return;
  }
  path_ = path;
  keep_ = wanted();
  page_ = static_cast<PublishedPage*>(at);
  page_->pid = static_cast<std::uint32_t>(getpid());
  page_->count = Counters::kSize;
  std::strncpy(page_->address, address.c_str(), sizeof page_->address - 1);
  for (std::size_t i = 0; i < Counters::kSize; ++i)
    std::strncpy(page_->names[i], Counters::name(static_cast<Count>(i)), sizeof page_->names[i] - 1);
  counters.count_in(page_->values);
  std::memcpy(page_->magic, PublishedPage::kMagic, sizeof page_->magic);
}

PublishedCounters::~PublishedCounters() {
  if (page_ == nullptr) return;
  // A forked child leaves its parent's file alone.
  if (!keep_ && page_->pid == static_cast<std::uint32_t>(getpid())) unlink(path_.c_str());
  munmap(page_, sizeof(PublishedPage));
}

}  // namespace ewarp::channel
