// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What a call of the system or of rdma-core was refused for, as text.
#pragma once

#include <cerrno>
#include <cstring>
#include <string>

namespace ewarp::channel {

// "what: the text of errno".
inline std::string failed(const char* what) {
  return std::string(what) + ": " + std::strerror(errno);
}

}  // namespace ewarp::channel
