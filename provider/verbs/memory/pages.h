// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Whether memory is there, and how to have it brought in.
#pragma once

#include <cstddef>

namespace ewarp::verbs {

// Whether every page of the range is mapped; one in the middle that may not be accessed is found when it is used. The
// copy guard is in its place afterwards. length > 0.
bool mapped(const void* address, std::size_t length, bool writable);
// Whether each page of the range can be read: by an octet of each, some nanoseconds where the kernel takes
// microseconds. Faults must be caught.
bool touch(const std::byte* at, std::size_t length);
// False: these pages cannot be read (written). Brings them in otherwise.
bool populate(const void* address, std::size_t length, bool writable);
// The range will be used soon: the kernel may begin to bring it in.
void expect(const void* address, std::size_t length);

}  // namespace ewarp::verbs
