// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A domain: an RDMA device, and what was opened for it.
#pragma once

#include <rdma/fi_domain.h>

#include <atomic>
#include <memory>

#include "mpi_shim/channel/verbs/device.h"
#include "mpi_shim/ofi/fabric.h"
#include "mpi_shim/ofi/memory_region.h"

namespace ewarp::ofi {

struct Domain : fid_domain {
  Fabric* fabric = nullptr;
  channel::Address address;
  std::shared_ptr<channel::Device> device;
  Regions regions;
  std::atomic<int> users{0};

  static Domain& from(fid_domain* d) { return *static_cast<Domain*>(d); }
};

int open_domain(fid_fabric* fabric, fi_info* info, fid_domain** out, void* context) noexcept;

}  // namespace ewarp::ofi
