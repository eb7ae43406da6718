// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/host/host.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <mutex>
#include <new>
#include <string_view>
#include <system_error>

#include "llp/annotations.h"
#include "provider/base/log.h"
#include "provider/cm/cm.h"
#include "provider/host/command.h"
#include "provider/host/fds.h"
#include "provider/host/names.h"
#include "provider/host/netlink.h"
#include "provider/host/sysfs.h"

namespace ewarp::host {
namespace {

constexpr int kNotOurs = ETHERWARP_NOT_OURS;
constexpr std::string_view kDev = "/dev/infiniband";
constexpr std::string_view kCmPath = "/dev/infiniband/rdma_cm";

std::atomic<bool (*)()> discovery{nullptr};
// False: the process has a libibverbs that cannot drive our devices, and is better off with the kernel's alone.
bool look_for_devices() {
  bool (*call)() = discovery.load();
  if (call != nullptr && !call()) return false;
  verbs::devices();
  return true;
}

// The process whose table this is. A vfork()ed child shares our memory, and closes fds that stay open in its parent.
std::atomic<pid_t> owner{0};
pid_t raw_getpid() {
  return static_cast<pid_t>(syscall(SYS_getpid));
}

// What went wrong inside, as -errno. Not for functions that a cancelled thread unwinds through.
template <class F>
auto guarded(F&& body) -> decltype(body()) {
  try {
    const auto result = body();
    if (result < 0) log::explain_shortage(static_cast<int>(-result));
    return result;
  } catch (const std::bad_alloc&) {
    return -ENOMEM;
  } catch (const std::system_error& e) {
    return -(e.code().value() != 0 ? e.code().value() : EIO);
  } catch (const std::exception&) {
    return -EIO;
  }
}

// --- fork -----------------------------------------------------------------------------------------------------------

void before_fork() EWARP_NO_LOCK_ANALYSIS {
  fds().lock();
}
void after_fork_in_parent() EWARP_NO_LOCK_ANALYSIS {
  fds().unlock();
}
void after_fork_in_child() EWARP_NO_LOCK_ANALYSIS {
  owner.store(raw_getpid(), std::memory_order_relaxed);
  fds().clear_in_child();
  fds().unlock();
  cm::in_child();
}

void attach(const etherwarp_preload_ops* preload) {
  static std::once_flag once;
  std::call_once(once, [&] {
    owner.store(raw_getpid(), std::memory_order_relaxed);
    fds().attach(preload);
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
  });
}

// --- paths ----------------------------------------------------------------------------------------------------------

// /dev/infiniband/uverbsN of ours.
verbs::Device* device_file(std::string_view path) {
  if (path.size() <= kDev.size() + 1 || !path.starts_with(kDev) || path[kDev.size()] != '/') return nullptr;
  return find_uverbs(std::string(path.substr(kDev.size() + 1)));
}

void fill_stat(struct stat* out, mode_t mode, dev_t number) {
  *out = {};
  out->st_mode = mode;
  out->st_rdev = number;
  out->st_nlink = S_ISDIR(mode) ? 2 : 1;
  out->st_blksize = 4096;
  out->st_size = S_ISREG(mode) ? 4096 : 0;
  // libibverbs takes a device with another time for another device.
  out->st_atim.tv_sec = out->st_mtim.tv_sec = out->st_ctim.tv_sec = 1;
}

int open_text(const std::string& text, int flags) {
  if ((flags & O_ACCMODE) != O_RDONLY) return -EACCES;
  if ((flags & O_DIRECTORY) != 0) return -ENOTDIR;
  const int fd = memfd_create("etherwarp-sysfs", (flags & O_CLOEXEC) != 0 ? MFD_CLOEXEC : 0);
  if (fd < 0) return -errno;
  if (pwrite(fd, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size())) return fd;
  raw_close(fd);
  return -EIO;
}

int open_cm(int flags) {
  const int fd = cm::ucma_open(flags);
  if (fd < 0) return fd;
  OpenFile file;
  file.kind = ETHERWARP_FD_CM;
  if (const int error = fds().add(fd, std::move(file)); error != 0) {
    cm::ucma_close(fd);
    raw_close(fd);
    return -error;
  }
  return fd;
}

int host_open(const char* path, int flags) {
  return guarded([&] {
    if (!look_for_devices()) return kNotOurs;
    if (path == kCmPath) return open_cm(flags);
    if (verbs::Device* device = device_file(path)) return open_command(*device);
    if (!std::string_view(path).starts_with("/sys/")) return kNotOurs;
    std::string text;
    switch (sysfs::look_up(path, &text)) {
      case sysfs::Kind::file:
        return open_text(text, flags);
      case sysfs::Kind::directory:
        return (flags & O_ACCMODE) == O_RDONLY ? sysfs::open_directory(path, flags) : -EISDIR;
      case sysfs::Kind::absent:
        return -ENOENT;
      case sysfs::Kind::not_ours:
        break;
    }
    return kNotOurs;
  });
}

int host_stat(const char* path, struct stat* out) {
  return guarded([&] {
    if (!look_for_devices()) return kNotOurs;
    const verbs::Device* device = device_file(path);
    if (device != nullptr || path == kCmPath) {
      fill_stat(out, S_IFCHR | 0666, device != nullptr ? uverbs_number(*device) : cm_number());
      return 0;
    }
    if (path == kDev && !verbs::devices().empty()) {
      fill_stat(out, S_IFDIR | 0755, 0);
      return 0;
    }
    std::string text;
    switch (sysfs::look_up(path, &text)) {
      case sysfs::Kind::file:
        fill_stat(out, S_IFREG | 0444, 0);
        return 0;
      case sysfs::Kind::directory:
        fill_stat(out, S_IFDIR | 0555, 0);
        return 0;
      case sysfs::Kind::absent:
        return -ENOENT;
      case sysfs::Kind::not_ours:
        break;
    }
    return kNotOurs;
  });
}

int host_access(const char* path, int mode) {
  struct stat what;
  const int result = host_stat(path, &what);
  if (result != 0) return result;
  const bool refused = S_ISCHR(what.st_mode)   ? (mode & X_OK) != 0
                       : S_ISDIR(what.st_mode) ? (mode & W_OK) != 0
                                               : (mode & (W_OK | X_OK)) != 0;
  return refused ? -EACCES : 0;
}

// --- file descriptors -----------------------------------------------------------------------------------------------

int host_netlink_socket(int type) {
  return guarded([&] { return look_for_devices() ? open_netlink(type) : kNotOurs; });
}

ssize_t host_sendmsg(int fd, const msghdr* message, int flags) {
  return guarded([&]() -> ssize_t {
    const auto file = fds().find(fd, ETHERWARP_FD_NETLINK);
    return file ? file->session->send(message, flags) : kNotOurs;
  });
}

ssize_t host_recvmsg(int fd, msghdr* message, int flags) {
  return guarded([&]() -> ssize_t {
    const auto file = fds().find(fd, ETHERWARP_FD_NETLINK);
    return file ? file->session->receive(message, flags) : kNotOurs;
  });
}

int host_fstat(int fd, struct stat* out) {
  return guarded([&] {
    const auto command = fds().find(fd, ETHERWARP_FD_COMMAND);
    if (!command && !fds().find(fd, ETHERWARP_FD_CM)) return kNotOurs;
    out->st_mode = S_IFCHR | 0666;
    out->st_rdev = command ? uverbs_number(*command->device) : cm_number();
    return 0;
  });
}

int host_ioctl(int fd, unsigned long request, void* argument) {
  return guarded([&] {
    const auto file = fds().find(fd, ETHERWARP_FD_COMMAND);
    return file ? command_ioctl(*file->device, request, argument) : kNotOurs;
  });
}

// Not guarded: GET_EVENT waits, and a thread that is cancelled there unwinds through here.
ssize_t host_write(int fd, const void* data, std::size_t size) {
  if (fds().find(fd, ETHERWARP_FD_CM)) return cm::ucma_write(fd, data, size);
  struct stat another {};
  return raw_fstat(fd, &another) ? kNotOurs : cm::ucma_write_closed(data, size);
}

void host_closing(int fd) {
  if (raw_getpid() != owner.load(std::memory_order_relaxed)) return;
  try {
    if (!cm::ucma_is(fd)) {
      fds().remove(fd);
      return;
    }
    const bool waits = (fcntl(fd, F_GETFL) & O_NONBLOCK) == 0;
    cm::ucma_close(fd);
    fds().remove(fd, waits ? ETHERWARP_FD_CM_CLOSED : ETHERWARP_FD_NONE);
  } catch (...) {  // the fd is closed in any case
  }
}

}  // namespace

std::string uverbs_name(const verbs::Device& device) {
  return "uverbs" + std::to_string(kFirstUverbs + device.index());
}
dev_t uverbs_number(const verbs::Device& device) {
  return makedev(kMajor, device.index());
}
dev_t cm_number() {
  return makedev(kMajor, kCmMinor);
}

verbs::Device* find_uverbs(const std::string& name) {
  for (verbs::Device* device : verbs::devices())
    if (uverbs_name(*device) == name) return device;
  return nullptr;
}

void set_discovery(bool (*on_discovery)()) {
  discovery.store(on_discovery);
}

}  // namespace ewarp::host

// Constant, so that it is whole before any constructor has run: those may come through the hooks already.
constinit const etherwarp_host_ops etherwarp_host = {
    .version = ETHERWARP_HOST_VERSION,
    .attach = ewarp::host::attach,
    .netlink_socket = ewarp::host::host_netlink_socket,
    .sendmsg = ewarp::host::host_sendmsg,
    .recvmsg = ewarp::host::host_recvmsg,
    .open = ewarp::host::host_open,
    .stat = ewarp::host::host_stat,
    .access = ewarp::host::host_access,
    .fstat = ewarp::host::host_fstat,
    .ioctl = ewarp::host::host_ioctl,
    .write = ewarp::host::host_write,
    .closing = ewarp::host::host_closing,
};
