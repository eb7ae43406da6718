// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The parts of rdmap_codec_test, one source file each.
#pragma once

#include "tests/vectors/vectors.h"

namespace ewarp::test {

extern const std::vector<CMUnitTest> kHeaderTests;
extern const std::vector<CMUnitTest> kTerminateTests;
extern const std::vector<CMUnitTest> kCaptureTests;

template <class Header>
Bytes emitted(const Header& h) {
  Bytes out(Header::kSize, std::byte{0xa5});  // a reused buffer is never clean
  h.emit(std::span(out).template first<Header::kSize>());
  return out;
}

}  // namespace ewarp::test
