// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A key for hashes of what others choose.
#pragma once

#include "llp/siphash.h"

namespace ewarp::llp {

// From the kernel. Where a sandbox forbids that, what no other host can know: it keeps strangers from choosing what
// falls together, and is no secret from who is on this host.
SipKey random_key();

}  // namespace ewarp::llp
