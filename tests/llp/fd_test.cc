// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "llp/fd.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "../vectors/vectors.h"

namespace {

using namespace ewarp::llp;

// Limits belong to the process, so each case has one of its own. The body returns 0, or the number of its failed claim.
int in_child(int (*body)()) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status));
  return WEXITSTATUS(status);
}

int open_null() {
  return open("/dev/null", O_RDONLY);
}
bool is_open(int fd) {
  return fcntl(fd, F_GETFD) >= 0;
}
bool is_cloexec(int fd) {
  return fcntl(fd, F_GETFD) == FD_CLOEXEC;
}

bool set_limit(rlim_t soft, rlim_t hard) {
  const rlimit limit{soft, hard};
  return setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

rlim_t soft_limit() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur;
}

int moves_out_of_the_low_numbers() {
  if (!set_limit(512, 512)) return 1;
  const int low = open_null();
  const int high = high_fd(low);
  if (high < 256) return 2;
  if (is_open(low)) return 3;
  if (!is_cloexec(high)) return 4;
  if (high_fd(high) != high) return 5;
  return 0;
}

int leaves_a_high_one_but_sets_cloexec() {
  if (!set_limit(512, 512)) return 1;
  const int high = fcntl(open_null(), F_DUPFD, 300);
  if (high_fd(high) != high) return 2;
  return is_cloexec(high) ? 0 : 3;
}

int keeps_the_number_under_a_low_hard_limit() {
  if (!set_limit(100, 100)) return 1;
  const int low = open_null();
  if (high_fd(low) != low) return 2;
  return is_cloexec(low) ? 0 : 3;
}

int raises_a_low_soft_limit() {
  if (!set_limit(100, 400)) return 1;
  const int high = high_fd(open_null());
  if (high < 256) return 2;
  return soft_limit() == 400 ? 0 : 3;
}

int raises_the_limit_when_the_numbers_run_out() {
  if (!set_limit(260, 400)) return 1;
  std::vector<int> fds;
  for (int i = 0; i < 20; ++i) {
    const int fd = high_fd(open_null());
    if (fd < 256) return 2;
    fds.push_back(fd);
  }
  return soft_limit() == 400 ? 0 : 3;
}

int keeps_the_number_when_all_are_taken() {
  if (!set_limit(260, 260)) return 1;
  for (int i = 0; i < 4; ++i)
    if (high_fd(open_null()) < 256) return 2;
  const int fd = open_null();
  if (high_fd(fd) != fd) return 3;
  return is_cloexec(fd) ? 0 : 4;
}

int raise_says_whether_it_did() {
  if (!set_limit(100, 200)) return 1;
  if (!raise_fd_limit()) return 2;
  if (soft_limit() != 200) return 3;
  return raise_fd_limit() ? 4 : 0;
}

int an_error_passes_through() {
  errno = ENOENT;
  if (high_fd(-1) != -1) return 1;
  return errno == ENOENT ? 0 : 2;
}

int make_tries_again_with_a_raised_limit() {
  if (!set_limit(100, 400)) return 1;
  while (open_null() >= 0) {
  }
  if (make_high_fd(open_null) < 256) return 2;
  return make_high_fd([] { return open("/nonexistent/file", O_RDONLY); }) == -1 ? 0 : 3;
}

void limits_and_numbers(void**) {
  const struct {
    const char* name;
    int (*body)();
  } cases[] = {
      {"moves out of the low numbers", moves_out_of_the_low_numbers},
      {"leaves a high one but sets cloexec", leaves_a_high_one_but_sets_cloexec},
      {"keeps the number under a low hard limit", keeps_the_number_under_a_low_hard_limit},
      {"raises a low soft limit", raises_a_low_soft_limit},
      {"raises the limit when the numbers run out", raises_the_limit_when_the_numbers_run_out},
      {"keeps the number when all are taken", keeps_the_number_when_all_are_taken},
      {"raise says whether it did", raise_says_whether_it_did},
      {"an error passes through", an_error_passes_through},
      {"make tries again with a raised limit", make_tries_again_with_a_raised_limit},
  };
  for (const auto& c : cases) {
    const int claim = in_child(c.body);
    if (claim != 0) fail_msg("%s: claim %d does not hold", c.name, claim);
  }
}

// A thread that is to be cancelled goes on until it looks for that.
void neither_call_is_a_cancellation_point(void**) {
  int fds[2] = {open_null(), open_null()};
  const int low = fds[0];
  const auto main = [](void* both) -> void* {
    int* const fd = static_cast<int*>(both);
    pthread_cancel(pthread_self());
    fd[0] = high_fd(fd[0]);
    close_fd(fd[1]);
    fd[1] = -1;
    pthread_testcancel();
    return nullptr;
  };
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, nullptr, main, fds), 0);
  void* result = nullptr;
  assert_int_equal(pthread_join(thread, &result), 0);
  assert_ptr_equal(result, PTHREAD_CANCELED);
  assert_true(fds[0] >= 256 && is_open(fds[0]) && !is_open(low));
  assert_int_equal(fds[1], -1);
  close(fds[0]);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(limits_and_numbers),
      cmocka_unit_test(neither_call_is_a_cancellation_point),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
