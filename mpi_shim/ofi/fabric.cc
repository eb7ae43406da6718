// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "mpi_shim/ofi/fabric.h"

#include <memory>

#include "mpi_shim/ofi/domain.h"
#include "mpi_shim/ofi/event_queue.h"
#include "mpi_shim/ofi/fid.h"
#include "mpi_shim/ofi/wait_set.h"

namespace ewarp::ofi {
namespace {

int close_fabric(fid* f) noexcept {
  Fabric& fabric = object<Fabric, fid_fabric>(f);
  if (fabric.users.load() > 0) return -FI_EBUSY;
  delete &fabric;
  return 0;
}

fi_ops fid_ops = {.size = sizeof(fi_ops),
                  .close = close_fabric,
                  .bind = kUnsupported,
                  .control = kUnsupported,
                  .ops_open = kUnsupported,
                  .tostr = kUnsupported,
                  .ops_set = kUnsupported};

fi_ops_fabric fabric_ops = {.size = sizeof(fi_ops_fabric),
                            .domain = open_domain,
                            .passive_ep = kUnsupported,
                            .eq_open = open_event_queue,
                            .wait_open = open_wait_set,
                            .trywait = try_wait,
                            .domain2 = kUnsupported};

}  // namespace

int open_fabric(fi_fabric_attr* attributes, fid_fabric** out, void* context) {
  return guarded([&] {
    auto fabric = std::make_unique<Fabric>();
    fabric->name = attributes->name != nullptr ? attributes->name : "";
    fabric->fid = {.fclass = FI_CLASS_FABRIC, .context = context, .ops = &fid_ops};
    fabric->ops = &fabric_ops;
    fabric->api_version = attributes->api_version;
    *out = fabric.release();
    return 0;
  });
}

}  // namespace ewarp::ofi
