// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tests/rdmap/codec_tests.h"

int main() {
  using namespace ewarp::test;
  std::vector<CMUnitTest> tests = kHeaderTests;
  tests.insert(tests.end(), kTerminateTests.begin(), kTerminateTests.end());
  tests.insert(tests.end(), kCaptureTests.begin(), kCaptureTests.end());
  return _cmocka_run_group_tests("rdmap codecs", tests.data(), tests.size(), nullptr, nullptr);
}
