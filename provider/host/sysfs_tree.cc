// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/host/sysfs_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <ftw.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string_view>
#include <system_error>

#include "llp/fd.h"
#include "provider/host/fds.h"

namespace ewarp::host::sysfs {
namespace {

namespace fs = std::filesystem;

// In the directory that $ETHERWARP_RUNDIR names lie other files too: only names that begin so are removed.
constexpr std::string_view kPrefix = "etherwarp-sysfs-";
// Another process may remove a tree between our finding it and our keeping it, each time that it starts.
constexpr int kTries = 8;

// --- places ---------------------------------------------------------------------------------------------------------

// A directory that only this user can write; empty if it cannot be had.
std::string private_directory(const std::string& path) {
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return {};
  struct stat now {};
  if (lstat(path.c_str(), &now) != 0 || !S_ISDIR(now.st_mode) || now.st_uid != geteuid() || (now.st_mode & 022) != 0)
    return {};
  return path;
}

std::string parent_directory() {
  if (const char* named = secure_getenv("ETHERWARP_RUNDIR"); named != nullptr && *named != '\0')
    if (auto path = private_directory(named); !path.empty()) return path;
  for (const char* place : {"/dev/shm", "/tmp"})
    if (auto path = private_directory(fmt::format("{}/ewarp-sysfs-{}", place, geteuid())); !path.empty()) return path;
  return {};
}

std::string own_name(const std::string& parent, std::string_view what) {
  static std::atomic<unsigned> count{0};
  return fmt::format("{}/{}{}.{}.{}", parent, kPrefix, what, getpid(), count++);
}

std::uint64_t digest(const Files& files, std::uint64_t hash) {
  for (const auto& [path, text] : files)
    for (const std::string* part : {&path, &text})
      for (const char c : *part + '\0') hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

// --- who keeps a tree -----------------------------------------------------------------------------------------------
// Who uses a tree has a shared lock on its root directory. It ends with the process, however that ends. Who lists a
// directory of it has one on that directory, until it is closed. Where a file system has no such locks nothing is
// removed.

// A path may name another directory by the time that the one behind fd is locked.
bool is_at(int fd, const std::string& path) {
  struct stat locked {
  }, now{};
  return fstat(fd, &locked) == 0 && lstat(path.c_str(), &now) == 0 && locked.st_ino == now.st_ino &&
         locked.st_dev == now.st_dev;
}

class Keep {
 public:
  Keep() = default;
  // Of the directory at this path; none if it is not there, or is being removed.
  explicit Keep(const std::string& path) {
    fd_ = llp::make_high_fd([&] { return ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC); });
    if (fd_ < 0) return;
    const bool removed = flock(fd_, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (removed || !is_at(fd_, path)) end();
  }
  Keep(const Keep&) = delete;
  Keep& operator=(const Keep&) = delete;
  ~Keep() { end(); }
  explicit operator bool() const { return fd_ >= 0; }

  // For the life of the process, in place of the one before.
  void for_good() {
    // The fd, and above it its mark: a program may have closed it behind our back, and the number is its own now.
    static std::atomic<std::int64_t> kept{-1};
    const std::int64_t former = kept.exchange(std::int64_t{llp::mark_file(fd_)} << 32 | fd_);
    fd_ = static_cast<int>(former);
    if (former >= 0 && llp::file_mark(fd_) != former >> 32) fd_ = -1;
    end();
  }

 private:
  void end() {
    raw_close(fd_);
    fd_ = -1;
  }
  int fd_ = -1;
};

// A lock that is given back at once. False: somebody has one that does not go with it, or it cannot be known.
bool could_lock(const char* directory) {
  const int fd = ::open(directory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return false;
  const bool locked = flock(fd, LOCK_EX | LOCK_NB) == 0;
  raw_close(fd);
  return locked;
}

// By nftw(3) and readdir(3): the iterators of std::filesystem end the process where there is no memory.
constexpr int kDescriptors = 8;

// Whether somebody has a directory in it open (open_in_tree()).
bool is_open(const std::string& tree) {
  const auto locked = [](const char* path, const struct stat*, int type, FTW* at) {
    return type == FTW_DNR || (type == FTW_D && at->level > 0 && !could_lock(path)) ? 1 : 0;
  };
  return nftw(tree.c_str(), locked, kDescriptors, FTW_PHYS) != 0;
}

void remove_all(const std::string& tree) {
  const auto remove = [](const char* path, const struct stat*, int, FTW*) {
    std::remove(path);
    return 0;
  };
  nftw(tree.c_str(), remove, kDescriptors, FTW_PHYS | FTW_DEPTH);
}

// Under another name first: nobody shall find half a tree. One that is open keeps that name, and is looked at again
// when the next one is asked for.
void remove_tree(const std::string& parent, const fs::path& tree) {
  const std::string doomed = own_name(parent, "old");
  std::error_code error;
  fs::rename(tree, doomed, error);
  if (!error && !is_open(doomed)) remove_all(doomed);
}

void remove_those_of_nobody(const std::string& parent) {
  struct End {
    void operator()(DIR* listing) const { closedir(listing); }
  };
  const std::unique_ptr<DIR, End> listing(opendir(parent.c_str()));
  if (listing == nullptr) return;
  while (const dirent* entry = readdir(listing.get())) {
    if (!std::string_view(entry->d_name).starts_with(kPrefix)) continue;
    const std::string path = parent + "/" + entry->d_name;
    const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) continue;
    const struct Closer {
      ~Closer() { raw_close(fd); }
      int fd;
    } closer{fd};
    if (flock(fd, LOCK_EX | LOCK_NB) == 0 && is_at(fd, path)) remove_tree(parent, path);
  }
}

// --- making one -----------------------------------------------------------------------------------------------------

bool write_file(const fs::path& path, const std::string& text) {
  FILE* file = fopen(path.c_str(), "we");
  if (file == nullptr) return false;
  const bool written = fwrite(text.data(), 1, text.size(), file) == text.size();
  return fclose(file) == 0 && written;
}

bool fill(const fs::path& root, const Files& files, const Files& links) {
  std::error_code error;
  for (const auto& [path, text] : files) {
    const fs::path at = root / path.substr(1);
    fs::create_directories(at.parent_path(), error);
    if (error || !write_file(at, text)) return false;
  }
  for (const auto& [path, target] : links) {
    const fs::path at = root / path.substr(1);
    fs::create_directories(at.parent_path(), error);
    fs::create_symlink(target, at, error);
  }
  return true;
}

// Whether or not it succeeds, there may be a tree at `root` afterwards: that of another process which was faster.
void make_at(const std::string& root, const std::string& parent, const Files& files, const Files& links) {
  const std::string fresh = own_name(parent, "new");
  if (mkdir(fresh.c_str(), 0700) != 0) return;
  const Keep keep(fresh);
  std::error_code error;
  if (keep && fill(fresh, files, links)) fs::rename(fresh, root, error);
  if (fs::exists(fresh, error)) remove_all(fresh);
}

}  // namespace

std::string tree_with(const Files& files, const Files& links) {
  const std::string parent = parent_directory();
  if (parent.empty()) return {};
  // Named by its content: who finds it need not make it.
  const std::string root =
      fmt::format("{}/{}{:016x}", parent, kPrefix, digest(links, digest(files, 0xcbf29ce484222325)));
  for (int tried = 0; tried < kTries; ++tried) {
    if (Keep keep(root); keep) {
      keep.for_good();
      remove_those_of_nobody(parent);
      return root;
    }
    make_at(root, parent, files, links);
  }
  return {};
}

int open_in_tree(const std::string& root, const std::string& directory, int flags) {
  const std::string path = root + directory;
  const auto fd = static_cast<int>(syscall(SYS_openat, AT_FDCWD, path.c_str(), flags));
  if (fd < 0) {
    const int error = errno;
    return access(root.c_str(), F_OK) == 0 ? -error : -EAGAIN;
  }
  const bool removed = flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  if (!removed && is_at(fd, path)) return fd;
  raw_close(fd);
  return -EAGAIN;
}

}  // namespace ewarp::host::sysfs
