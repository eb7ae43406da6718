// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What a call of the system or of rdma-core was refused for.
#pragma once

#include <cerrno>
#include <cstring>
#include <new>
#include <string>

namespace ewarp::channel {

// The text that f() makes. Without memory for it: a text that says so, and needs none.
template <class F>
std::string text_of(F&& f) noexcept {
  try {
    return f();
  } catch (const std::bad_alloc&) {
    return "no memory";  // is in the string itself
  }
}

// "what: the text of errno".
inline std::string failed(const char* what) noexcept {
  return text_of([what] { return std::string(what) + ": " + std::strerror(errno); });
}

// Why something could not be opened: a text for people, and an errno for programs. Code 0: it could.
struct [[nodiscard]] Refusal {
  std::string text = {};
  int code = 0;
  explicit operator bool() const { return code != 0; }
};

// By a call that has just set errno. of: what the call was about.
inline Refusal refused(const char* what, const std::string& of = {}) {
  const int code = errno != 0 ? errno : EIO;  // not every adapter's library sets it
  return {.text = std::string(what) + ": " + std::strerror(code) + (of.empty() ? "" : " " + of), .code = code};
}

}  // namespace ewarp::channel
