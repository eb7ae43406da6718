// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The parts of ddp_test, one source file each.
#pragma once

#include "tests/vectors/vectors.h"

namespace ewarp::test {

extern const std::vector<CMUnitTest> kHeaderTests;
extern const std::vector<CMUnitTest> kSegmentTests;
extern const std::vector<CMUnitTest> kUntaggedTests;

}  // namespace ewarp::test
