// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What fi_cq_readerr() and fi_eq_readerr() write for programs of any version of libfabric's interface.
#pragma once

#include <rdma/fabric.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace ewarp::ofi {

// As much of an error as the program has room for: err_data_size came with version 1.5. What is behind it came
// with 1.20 and says where a message came from; fi_cq_readerr() of that version calls it unknown beforehand, and so it
// stays. version: that the program asked for.
template <class Entry>
void tell_error(const Entry& error, Entry* out, std::uint32_t version) {
  constexpr std::size_t kFirst = offsetof(Entry, err_data_size), kSecond = kFirst + sizeof error.err_data_size;
  if (FI_VERSION_LT(version, FI_VERSION(1, 5))) {
    std::memcpy(out, &error, kFirst);
    return;
  }
  void* const data = out->err_data;
  const std::size_t room = out->err_data_size;
  std::memcpy(out, &error, kSecond);
  // There is no more to say of it; a buffer of the caller's stays his.
  out->err_data = room > 0 ? data : nullptr;
  out->err_data_size = 0;
}

}  // namespace ewarp::ofi
