/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#pragma once

#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <system_error>

namespace ewarp::acp {

// A reason for a user: which call failed, and what errno says of it.
inline std::string failed(std::string_view call) {
  return std::string(call) + ": " + std::strerror(errno);
}

// False: the text is not a decimal number of 32 bits, and nothing else.
inline bool read_number(std::string_view text, std::uint32_t* out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out);
  return error == std::errc{} && end == text.data() + text.size();
}

}  // namespace ewarp::acp
