// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/verbs/sge.h"

#include <algorithm>
#include <cassert>

namespace ewarp::verbs {

rdmap::Status resolve_sges(const Pd& pd, std::span<const Sge> sges, std::uint64_t offset, std::uint64_t n,
                           unsigned need, rdmap::ExtentList& out) {
  out.clear();
  for (const Sge& s : sges) {
    if (n == 0) break;
    if (offset >= s.length) {
      offset -= s.length;
      continue;
    }
    const std::uint64_t size = std::min<std::uint64_t>(n, s.length - offset);
    llp::Extent e;
    if (memory().resolve(s.lkey, pd, s.address + offset, size, need, &e) != Verdict::ok)
      return rdmap::Status::local_protection;
    assert(out.count < rdmap::ExtentList::kMax);
    out.add(e);
    n -= size;
    offset = 0;
  }
  return rdmap::Status::success;
}

bool copy_to_sges(const Pd& pd, std::span<const Sge> sges, std::uint64_t offset, Octets from) {
  rdmap::ExtentList pieces;
  if (resolve_sges(pd, sges, offset, from.size(), IBV_ACCESS_LOCAL_WRITE, pieces) != rdmap::Status::success)
    return false;
  for (const llp::Extent& piece : pieces.all()) {
    if (!copy_in(piece, from.data())) return false;
    from = from.subspan(piece.length);
  }
  return true;
}

}  // namespace ewarp::verbs
