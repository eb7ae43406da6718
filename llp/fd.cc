// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "llp/fd.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <csignal>

namespace ewarp::llp {

namespace {

constexpr int kLowest = 256;

}  // namespace

bool raise_fd_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return false;
  limit.rlim_cur = limit.rlim_max;
  return setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

void close_fd(int fd) {
  int before = 0;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
  close(fd);
  pthread_setcancelstate(before, nullptr);
}

int high_fd(int fd) {
  if (fd < 0) return fd;
  if (fd < kLowest) {
    int high = fcntl(fd, F_DUPFD_CLOEXEC, kLowest);
    // EINVAL: the limit is not above kLowest; EMFILE: no number left below it. Either may end with a higher limit.
    if (high < 0 && raise_fd_limit()) high = fcntl(fd, F_DUPFD_CLOEXEC, kLowest);
    if (high >= 0) {
      close_fd(fd);
      return high;
    }
  }
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  return fd;
}

int mark_file(int fd) {
  static std::atomic<unsigned> next{0};
  if (const int present = file_mark(fd); present > 0) return present;
  const int fresh = static_cast<int>(next++ % static_cast<unsigned>(_NSIG - 1)) + 1;
  return fcntl(fd, F_SETSIG, fresh) == 0 ? fresh : 0;
}

int file_mark(int fd) {
  return fcntl(fd, F_GETSIG);
}

}  // namespace ewarp::llp
