// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// One line on stderr per event: "etherwarp: <level>: text". The level comes from options().log.
#pragma once

#include <fmt/format.h>

#include <new>
#include <string_view>

namespace ewarp::log {

enum class Level { error, warn, info, debug };

bool enabled(Level level);
// EMFILE and ENFILE are said once in a process, with what mends them; nothing is said of other errors.
void explain_shortage(int error);
void write(Level level, std::string_view text);  // async-safe enough for the background thread: one write(2)

// A line is not worth an exception: who says it may be handling a shortage of memory.
template <class... A>
void line(Level level, fmt::format_string<A...> f, A&&... a) {
  if (!enabled(level)) return;
  try {
    write(level, fmt::format(f, std::forward<A>(a)...));
  } catch (const std::bad_alloc&) {
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
