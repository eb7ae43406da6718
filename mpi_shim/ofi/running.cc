// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "mpi_shim/ofi/running.h"

#include <dlfcn.h>

#include <algorithm>

namespace ewarp::ofi {
namespace {

// The newest version of a function of libfabric's, which is loaded already, as we are linked with it.
template <class F>
F* newest(const char* name) {
  return reinterpret_cast<F*>(dlsym(RTLD_DEFAULT, name));
}

}  // namespace

std::uint32_t served_version() {
  return std::min(fi_version(), kNewestVersion);
}

fi_info* allocate_info() {
  static const auto duplicate = newest<fi_info*(const fi_info*)>("fi_dupinfo");
  return duplicate != nullptr ? duplicate(nullptr) : nullptr;
}

void free_info(fi_info* info) {
  static const auto release = newest<void(fi_info*)>("fi_freeinfo");
  if (release != nullptr) release(info);
}

}  // namespace ewarp::ofi
