// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Memory that ends: for what must not touch one octet too many.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>

namespace ewarp::llp::test {

inline const std::size_t kPage = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));

// Two pages of octets that do not repeat by page, then one that is not accessible.
class Pages {
 public:
  Pages()
      : base_(static_cast<std::byte*>(
            mmap(nullptr, 3 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
    for (std::size_t i = 0; i < 2 * kPage; ++i) base_[i] = static_cast<std::byte>(i * 2654435761u >> 13);
    mprotect(edge(), kPage, PROT_NONE);
  }
  ~Pages() { munmap(base_, 3 * kPage); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  std::byte* at(std::size_t i) { return base_ + i; }
  std::byte* edge() { return base_ + 2 * kPage; }

 private:
  std::byte* base_;
};

}  // namespace ewarp::llp::test
