// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A fabric: a network that addresses of ours belong to.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_eq.h>

#include <atomic>
#include <string>

namespace ewarp::ofi {

struct Fabric : fid_fabric {
  std::string name;
  std::atomic<int> users{0};  // what was opened from it and is not closed
};

int open_fabric(fi_fabric_attr* attributes, fid_fabric** out, void* context);

}  // namespace ewarp::ofi
