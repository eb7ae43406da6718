// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tests/ddp/ddp_tests.h"

int main() {
  using namespace ewarp::test;
  std::vector<CMUnitTest> tests = kHeaderTests;
  tests.insert(tests.end(), kSegmentTests.begin(), kSegmentTests.end());
  tests.insert(tests.end(), kUntaggedTests.begin(), kUntaggedTests.end());
  return _cmocka_run_group_tests("ddp", tests.data(), tests.size(), nullptr, nullptr);
}
