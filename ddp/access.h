// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The verdict of a check of memory access, and its names on the wire (RFC 5041 section 7.2).
#pragma once

#include <cstdint>

#include "llp/fault.h"

namespace ewarp::ddp {

// In the order in which the checks are made (docs/design/ddp.md, Order of checks).
enum class Verdict : std::uint8_t { ok, invalid_stag, not_associated, access, wrap, bounds };

// For tagged segments. DDP has no code for a missing right: the region "does not allow placement" is an invalid STag.
// Requires: v != ok.
constexpr Fault tagged_fault(Verdict v) {
  switch (v) {
    case Verdict::not_associated:
      return fault::kDdpNotAssociated;
    case Verdict::wrap:
      return fault::kDdpWrap;
    case Verdict::bounds:
      return fault::kDdpBounds;
    case Verdict::ok:
    case Verdict::invalid_stag:
    case Verdict::access:
      break;
  }
  return fault::kDdpInvalidStag;
}

}  // namespace ewarp::ddp
