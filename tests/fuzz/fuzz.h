// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What the fuzz targets share. Each is one LLVMFuzzerTestOneInput; see CMakeLists.txt for the two ways to run it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "llp/octets.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace ewarp::fuzz {

// Ends the run: an invariant of the code under test does not hold for this input.
#define FUZZ_CHECK(condition)                                                        \
  do {                                                                               \
    if (!(condition)) {                                                              \
      std::fprintf(stderr, "%s:%d: violated: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                  \
    }                                                                                \
  } while (0)

// Decisions of the target are taken from the front of the input, so that mutation reaches them too.
class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : rest_(reinterpret_cast<const std::byte*>(data), size) {}
  unsigned octet() {
    if (rest_.empty()) return 0;
    const auto v = std::to_integer<unsigned>(rest_.front());
    rest_ = rest_.subspan(1);
    return v;
  }
  Octets rest() const { return rest_; }

 private:
  Octets rest_;
};

// A copy of exactly this size, so that the address sanitizer sees one octet too many being read.
inline std::vector<std::byte> exact(Octets in) {
  return {in.begin(), in.end()};
}

}  // namespace ewarp::fuzz
