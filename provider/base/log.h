// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// One line on stderr per event: "etherwarp: <level>: text". The level comes from options().log.
#pragma once

#include <fmt/format.h>

#include <string_view>

namespace ewarp::log {

enum class Level { error, warn, info, debug };

bool enabled(Level level);
// EMFILE and ENFILE are said once in a process, with what mends them; nothing is said of other errors.
void explain_shortage(int error);
void write(Level level, std::string_view text);  // async-safe enough for the background thread: one write(2)

template <class... A>
void error(fmt::format_string<A...> f, A&&... a) {
  if (enabled(Level::error)) write(Level::error, fmt::format(f, std::forward<A>(a)...));
}
template <class... A>
void warn(fmt::format_string<A...> f, A&&... a) {
  if (enabled(Level::warn)) write(Level::warn, fmt::format(f, std::forward<A>(a)...));
}
template <class... A>
void info(fmt::format_string<A...> f, A&&... a) {
  if (enabled(Level::info)) write(Level::info, fmt::format(f, std::forward<A>(a)...));
}
template <class... A>
void debug(fmt::format_string<A...> f, A&&... a) {
  if (enabled(Level::debug)) write(Level::debug, fmt::format(f, std::forward<A>(a)...));
}

}  // namespace ewarp::log
