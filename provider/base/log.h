// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// One line on stderr per event: "etherwarp: <level>: text". The level comes from options().log. Nothing is thrown:
// who says it may be out of memory.
#pragma once

#include <fmt/format.h>

#include <climits>
#include <new>
#include <string_view>

namespace ewarp::log {

enum class Level { error, warn, info, debug };

bool enabled(Level level);
// EMFILE and ENFILE are said once in a process, with what mends them; nothing is said of other errors.
void explain_shortage(int error);

// Octets; a pipe takes a line of so many as a whole. What is longer is cut.
constexpr std::size_t kLongestLine = PIPE_BUF;

// One write(2). Allocates nothing.
void write(Level level, std::string_view text) noexcept;

// Without memory for its figures a line has none.
template <class... A>
void line(Level level, fmt::format_string<A...> f, A&&... a) noexcept {
  if (!enabled(level)) return;
  try {
    write(level, fmt::format(f, std::forward<A>(a)...));
  } catch (const std::bad_alloc&) {
    const fmt::string_view text(f);
    write(level, {text.data(), text.size()});
  }
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
