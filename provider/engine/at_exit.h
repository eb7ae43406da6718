// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What has to be done when a scope is left, by an exception too.
#pragma once

namespace ewarp::verbs {

template <class F>
class AtExit {
 public:
  explicit AtExit(F f) : f_(f) {}
  ~AtExit() { f_(); }
  AtExit(const AtExit&) = delete;
  AtExit& operator=(const AtExit&) = delete;

 private:
  F f_;
};

}  // namespace ewarp::verbs
