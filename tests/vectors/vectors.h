// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Reads the test vectors of this directory; hex and comparison helpers for tests that hold codecs against them.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "llp/octets.h"
#include "tests/vectors/json.h"

// Last: cmocka's `fail` macro would rename members of everything behind it.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

extern "C" {
#include <cmocka.h>
}
#undef fail
#undef fail_msg
#define fail_msg(...) (print_error(__VA_ARGS__), print_error("\n"), _fail(__FILE__, __LINE__))

namespace ewarp::test {

using Bytes = std::vector<std::byte>;

// Rounds take some ten times as long.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr bool kInstrumented = true;
#else
inline constexpr bool kInstrumented = false;
#endif

Bytes hex(std::string_view text);
Bytes hex(const Json& text);
std::string to_hex(Octets in);

// Integers of the vectors are numbers or "0x..." strings.
std::uint64_t number(const Json& value);
bool flag(const Json& object, const char* key);

Json load(const char* name);
// One member of the file, by value: a range-for over load(...)[key] would outlive what it walks.
Json load(const char* name, const char* key);

void expect_octets(Octets got, Octets want, const std::string& what);
Bytes concat(std::initializer_list<Bytes> parts);

// A copy on the heap of exactly this size, so that the address sanitizer sees one octet too many being read.
inline Bytes exact(Octets in) {
  return {in.begin(), in.end()};
}

void expectation_failed(const char* file, int line, const std::string& what, const char* condition);

}  // namespace ewarp::test

// cmocka's assertions, with the case that failed named.
#define EXPECT(what, condition)                                                                           \
  do {                                                                                                    \
    if (!(condition)) ewarp::test::expectation_failed(__FILE__, __LINE__, std::string(what), #condition); \
  } while (0)
