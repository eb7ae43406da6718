// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Memory that begins at a page, for what the kernel copies there: what it has begins at one, too, where a socket was
// idle, and a copy to a little behind that is slow (rdmap/lead.h).
#pragma once

#include <cstddef>
#include <memory>
#include <new>

namespace ewarp::llp {

inline constexpr std::align_val_t kPageAlignment{4096};

struct PageMemoryDelete {
  void operator()(std::byte* octets) const { ::operator delete[](octets, kPageAlignment); }
};

using PageMemory = std::unique_ptr<std::byte[], PageMemoryDelete>;

// Throws std::bad_alloc. The octets have no value yet.
inline PageMemory page_memory(std::size_t octets) {
  return PageMemory(new (kPageAlignment) std::byte[octets]);
}

}  // namespace ewarp::llp
