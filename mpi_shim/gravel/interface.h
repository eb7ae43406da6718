// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Which of this host's addresses Gravel takes.
#pragma once

#include <memory>
#include <string>

#include "mpi_shim/channel/verbs/address.h"
#include "mpi_shim/channel/verbs/device.h"

namespace ewarp::gravel {

struct Interface {
  channel::Address address;  // port 0
  std::shared_ptr<channel::Device> device;
};

// The first address that an RDMA device has: of the interface with the default route, then others, IPv4 first, loopback
// last. wanted: this one and no other, if it is not empty. No device and *error if there is none.
Interface find_interface(const std::string& wanted, std::string* error);

}  // namespace ewarp::gravel
