// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Between verbs and RDMAP: what a work request asks for, how it ended.
#pragma once

#include <infiniband/verbs.h>

#include "provider/verbs/memory/memory.h"
#include "rdmap/request.h"

namespace ewarp::verbs {

// The operation and what belongs to it; lengths, flags and memory are the caller's.
void put_operation(const ibv_send_wr& wr, rdmap::SendRequest& request);
ibv_wc_status wc_status(rdmap::Status status);
ibv_wc_opcode wc_opcode(rdmap::Operation operation);

// The ibv_access_flags that a peer's access needs.
unsigned access_for(rdmap::RemoteRight right);
// What a peer's Send with Invalidate may name (option invalidate_regions).
Invalidates peers_invalidate();

}  // namespace ewarp::verbs
