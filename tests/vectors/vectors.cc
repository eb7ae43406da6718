// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tests/vectors/vectors.h"

#include <fstream>
#include <iterator>

namespace ewarp::test {

static unsigned nibble(char c) {
  const auto at = std::string_view("0123456789abcdef").find(c);
  if (at == std::string_view::npos) fail_msg("'%c' is not a hex digit", c);
  return static_cast<unsigned>(at);
}

Bytes hex(std::string_view text) {
  assert_int_equal(text.size() % 2, 0);
  Bytes out;
  for (std::size_t i = 0; i < text.size(); i += 2)
    out.push_back(static_cast<std::byte>(nibble(text[i]) << 4 | nibble(text[i + 1])));
  return out;
}

Bytes hex(const Json& text) {
  return hex(std::string_view(static_cast<const std::string&>(text)));
}

std::string to_hex(Octets in) {
  std::string out;
  for (const std::byte b : in) {
    out += "0123456789abcdef"[std::to_integer<unsigned>(b) >> 4];
    out += "0123456789abcdef"[std::to_integer<unsigned>(b) & 15];
  }
  return out;
}

std::uint64_t number(const Json& value) {
  return value.is_string() ? std::stoull(value, nullptr, 0) : value.get<std::uint64_t>();
}

bool flag(const Json& object, const char* key) {
  return object.contains(key) && number(object.at(key)) != 0;
}

Json load(const char* name) {
  std::ifstream in(std::string(EWARP_TEST_DATA "/") + name);
  if (!in) fail_msg("%s cannot be read", name);
  return Json::parse(std::string{std::istreambuf_iterator<char>(in), {}});
}

Json load(const char* name, const char* key) {
  return load(name).at(key);
}

void expect_octets(Octets got, Octets want, const std::string& what) {
  if (to_hex(got) != to_hex(want))
    fail_msg("%s:\n got %s\nwant %s", what.c_str(), to_hex(got).c_str(), to_hex(want).c_str());
}

Bytes concat(std::initializer_list<Bytes> parts) {
  Bytes out;
  for (const Bytes& part : parts) out.insert(out.end(), part.begin(), part.end());
  return out;
}

void expectation_failed(const char* file, int line, const std::string& what, const char* condition) {
  print_error("%s: expected %s\n", what.c_str(), condition);
  _fail(file, line);
}

}  // namespace ewarp::test
