// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A child process in which some system calls are refused, as seccomp profiles of containers do.
#pragma once

#include <dirent.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "../vectors/vectors.h"

namespace ewarp::test {

constexpr int kHolds = 42;  // what a child says whose claims all held

// The body returns kHolds, or the number of the claim that failed.
template <class Body>
void in_child(const char* what, Body body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  assert_int_equal(waitpid(child, &status, 0), child);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != kHolds)
    fail_msg("%s: wait status %#x", what, static_cast<unsigned>(status));
}

// From now on the process, all of its threads, gets `error` from these system calls. False where filters cannot be
// installed.
inline bool refuse(std::initializer_list<long> calls, int error) {
  std::vector<sock_filter> program;
  program.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)));
  for (const long call : calls) {
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(call), 0, 1));
    program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(error)));
  }
  program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter) == 0;
}

// The fds of this process that /proc/self/fd shows under a name with this in it; "" names all.
inline std::vector<int> fds_named(const std::string& part) {
  std::vector<int> result;
  DIR* const directory = opendir("/proc/self/fd");
  if (directory == nullptr) return result;
  while (const dirent* entry = readdir(directory)) {
    char target[256] = {};
    if (readlinkat(dirfd(directory), entry->d_name, target, sizeof target - 1) < 0) continue;
    const int fd = std::stoi(entry->d_name);
    if (fd != dirfd(directory) && std::string_view(target).find(part) != std::string_view::npos) result.push_back(fd);
  }
  closedir(directory);
  return result;
}

}  // namespace ewarp::test
