// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Stands in for the kernel at the C library's boundary (docs/design/provider.md).
#pragma once

#include "provider/host/host_ops.h"

// What the preload library calls.
extern "C" __attribute__((visibility("default"))) const etherwarp_host_ops etherwarp_host;

namespace ewarp::host {

// on_discovery is called, on the asking thread, before a program looks for RDMA devices: the provider registers itself
// with libibverbs there. False: this process has a libibverbs that the provider cannot serve, so there is nothing of
// ours to be seen.
void set_discovery(bool (*on_discovery)());

}  // namespace ewarp::host
