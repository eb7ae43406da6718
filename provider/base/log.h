// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// One line on stderr per event: "etherwarp: <level>: text". The level comes from options().log. Nothing is allocated:
// who says it may be out of memory, and may be noexcept.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <climits>
#include <string_view>

namespace ewarp::log {

enum class Level { error, warn, info, debug };

bool enabled(Level level);
// EMFILE and ENFILE are said once in a process, with what mends them; nothing is said of other errors.
void explain_shortage(int error);

// Octets; a pipe takes a line of so many as a whole. What is longer is cut.
constexpr std::size_t kLongestLine = PIPE_BUF;

// One write(2).
void write(Level level, std::string_view text) noexcept;

template <class... A>
void line(Level level, fmt::format_string<A...> f, A&&... a) {
  if (!enabled(level)) return;
  std::array<char, kLongestLine> text;
  const std::size_t size = fmt::format_to_n(text.data(), text.size(), f, std::forward<A>(a)...).size;
  write(level, {text.data(), std::min(size, text.size())});
}
template <class... A>
void error(fmt::format_string<A...> f, A&&... a) {
  line<A...>(Level::error, f, std::forward<A>(a)...);
}
template <class... A>
void warn(fmt::format_string<A...> f, A&&... a) {
  line<A...>(Level::warn, f, std::forward<A>(a)...);
}
template <class... A>
void info(fmt::format_string<A...> f, A&&... a) {
  line<A...>(Level::info, f, std::forward<A>(a)...);
}
template <class... A>
void debug(fmt::format_string<A...> f, A&&... a) {
  line<A...>(Level::debug, f, std::forward<A>(a)...);
}

}  // namespace ewarp::log
