// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The command fd of an opened device (/dev/infiniband/uverbsN): the few commands that libibverbs itself sends to the
// kernel. All else goes through the provider's functions.
#pragma once

#include "provider/verbs/device/device.h"

namespace ewarp::host {

// fd or -errno.
int open_command(verbs::Device& device);
// RDMA_VERBS_IOCTL on it; any other request is ENOTTY. 0 or -errno.
int command_ioctl(verbs::Device& device, unsigned long request, void* argument);

}  // namespace ewarp::host
