// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Objects that are used again: all of them, and those that are free. What is given back needs no memory, because the
// list of the free ones has room for all.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace ewarp::channel {

// Before `more` elements are added to `all`: room for them, and for as many names in `free` as `all` can have. Throws
// std::bad_alloc, and has changed nothing then.
template <class Object, class Name>
void make_room(std::vector<Object>& all, std::vector<Name>& free, std::size_t more = 1) {
  if (all.capacity() - all.size() < more) all.reserve(std::max(all.size() + more, 2 * all.size()));
  free.reserve(all.capacity());
}

}  // namespace ewarp::channel
