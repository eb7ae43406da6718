// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// An assert that does not hold ends the process in the builds that are to have asserts, and in no other.
#include <cassert>
#include <csignal>
#include <cstdlib>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

extern "C" {
#include <cmocka.h>
}

namespace {

void an_assert_ends_the_process_where_asserts_are_on(void**) {
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    std::signal(SIGABRT, SIG_DFL);
    close(STDERR_FILENO);
    assert(getpid() == 0);
    _exit(0);
  }
  int status = 0;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(WIFSIGNALED(status) ? WTERMSIG(status) : 0, EWARP_ASSERTS ? SIGABRT : 0);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(an_assert_ends_the_process_where_asserts_are_on)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
