// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <cstdlib>
#include <cstring>

#include "tests/ofi/sides.h"

// ewarp_ofi_test [name]: all tests, or those whose names have this in them.
// ewarp_ofi_test --echo FD FD: the other process of a test.
int main(int argc, char** argv) {
  using namespace ewarp::ofi::test;
  if (argc == 4 && std::strcmp(argv[1], "--echo") == 0) return echo(std::atoi(argv[2]), std::atoi(argv[3]));
  std::vector<CMUnitTest> chosen;
  for (const auto& part :
       {info_tests(), address_tests(), memory_tests(), message_tests(), peek_tests(), multi_receive_tests(),
        queue_tests(), set_tests(), rma_tests(), atomic_tests(), thread_tests()})
    for (const CMUnitTest& test : part)
      if (argc < 2 || std::strstr(test.name, argv[1]) != nullptr) chosen.push_back(test);
  return _cmocka_run_group_tests("ofi", chosen.data(), chosen.size(), nullptr, nullptr);
}
