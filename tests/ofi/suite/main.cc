// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// ewarp_ofi_suite PROVIDER [name]: what any provider of reliable datagrams has to hold; all tests, or those whose names
// have this in them. tests/system/ofi.py runs it over this provider, and over libfabric's own tcp;ofi_rxm to show that
// the suite asks for nothing but what libfabric promises.
#include <cstdio>
#include <cstring>

#include "tests/ofi/suite/scene.h"

int main(int argc, char** argv) {
  using namespace ewarp::ofi::suite;
  if (argc < 2) return std::fprintf(stderr, "usage: %s PROVIDER [name]\n", argv[0]), 2;
  provider = argv[1];
  std::vector<CMUnitTest> chosen;
  for (const auto& part :
       {info_tests(), domain_tests(), address_tests(), event_tests(), completion_tests(), counter_tests(),
        memory_tests(), set_tests(), message_tests(), matching_tests(), traffic_tests(), rma_tests(), atomic_tests()})
    for (const CMUnitTest& test : part)
      if (argc < 3 || std::strstr(test.name, argv[2]) != nullptr) chosen.push_back(test);
  return _cmocka_run_group_tests("suite", chosen.data(), chosen.size(), nullptr, nullptr);
}
