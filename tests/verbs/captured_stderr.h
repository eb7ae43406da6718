// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What a program says on stderr meanwhile.
#pragma once

#include <stdlib.h>
#include <unistd.h>

#include <stdexcept>
#include <string>

namespace ewarp::test {

class CapturedStderr {
 public:
  CapturedStderr() : kept_(dup(STDERR_FILENO)) {
    char name[] = "/tmp/captured_stderr.XXXXXX";
    file_ = mkstemp(name);
    if (file_ < 0 || kept_ < 0 || dup2(file_, STDERR_FILENO) < 0) throw std::runtime_error("capture of stderr");
    unlink(name);
  }
  CapturedStderr(const CapturedStderr&) = delete;
  CapturedStderr& operator=(const CapturedStderr&) = delete;
  ~CapturedStderr() {
    dup2(kept_, STDERR_FILENO);
    close(kept_);
    close(file_);
  }
  // How often it has said this.
  int count(const std::string& text) const {
    std::string all(1 << 16, '\0');
    const ssize_t size = pread(file_, all.data(), all.size(), 0);
    all.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
    int n = 0;
    for (std::size_t at = 0; (at = all.find(text, at)) != all.npos; at += text.size()) ++n;
    return n;
  }

 private:
  int kept_, file_;
};

}  // namespace ewarp::test
