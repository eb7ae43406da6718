// Reads the test vectors of this directory; hex and comparison helpers for tests that hold codecs against them.
#pragma once

#include <algorithm>
#include <concepts>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "llp/octets.h"

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
using Json = nlohmann::json;

// Rounds take some ten times as long.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr bool kInstrumented = true;
#else
inline constexpr bool kInstrumented = false;
#endif

inline unsigned nibble(char c) {
  const auto at = std::string_view("0123456789abcdef").find(c);
  if (at == std::string_view::npos) fail_msg("'%c' is not a hex digit", c);
  return static_cast<unsigned>(at);
}

inline Bytes hex(std::string_view text) {
  assert_int_equal(text.size() % 2, 0);
  Bytes out;
  for (std::size_t i = 0; i < text.size(); i += 2)
    out.push_back(static_cast<std::byte>(nibble(text[i]) << 4 | nibble(text[i + 1])));
  return out;
}

template <std::same_as<Json> J>
Bytes hex(const J& text) {
  return hex(std::string_view(text.template get_ref<const std::string&>()));
}

inline std::string to_hex(Octets in) {
  std::string out;
  for (const std::byte b : in) {
    out += "0123456789abcdef"[std::to_integer<unsigned>(b) >> 4];
    out += "0123456789abcdef"[std::to_integer<unsigned>(b) & 15];
  }
  return out;
}

// Integers of the vectors are numbers or "0x..." strings.
inline std::uint64_t number(const Json& value) {
  return value.is_string() ? std::stoull(value.get<std::string>(), nullptr, 0) : value.get<std::uint64_t>();
}

inline bool flag(const Json& object, const char* key) {
  return object.contains(key) && number(object.at(key)) != 0;
}

inline Json load(const char* name) {
  std::ifstream in(std::string(EWARP_TEST_DATA "/") + name);
  if (!in) fail_msg("%s cannot be read", name);
  return Json::parse(in);
}

inline void expect_octets(Octets got, Octets want, const std::string& what) {
  if (to_hex(got) != to_hex(want))
    fail_msg("%s:\n got %s\nwant %s", what.c_str(), to_hex(got).c_str(), to_hex(want).c_str());
}

// One member of the file, by value: a range-for over load(...)[key] would outlive what it walks.
inline Json load(const char* name, const char* key) {
  return load(name).at(key);
}

inline Bytes concat(std::initializer_list<Bytes> parts) {
  Bytes out;
  for (const Bytes& part : parts) out.insert(out.end(), part.begin(), part.end());
  return out;
}

// A copy on the heap of exactly this size, so that the address sanitizer sees one octet too many being read.
inline Bytes exact(Octets in) {
  return {in.begin(), in.end()};
}

}  // namespace ewarp::test

// cmocka's assertions, with the case that failed named.
#define EXPECT(what, condition)                                                           \
  do {                                                                                    \
    if (!(condition)) fail_msg("%s: expected %s", std::string(what).c_str(), #condition); \
  } while (0)
