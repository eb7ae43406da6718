// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Address handles and multicast groups.
#include <array>

#include "provider/rdmav34/objects.h"
#include "provider/verbs/ud/address_handle.h"
#include "provider/verbs/ud/multicast.h"

namespace ewarp::rdmav34 {
namespace {

struct AhObject : verbs::AddressHandleObject {
  PdUse use;
};

// libibverbs sets context and pd.
ibv_ah* create_ah(ibv_pd* pd, ibv_ah_attr* attr) {
  ibv_ah* out = nullptr;
  guarded([&] {
    auto ah = std::make_unique<AhObject>();
    if (const int error = verbs::make_address_handle(impl(pd), *attr, &ah->impl); error != 0) return error;
    ah->handle = next_handle();
    ah->use = PdUse(pd);
    out = ah.release();
    return 0;
  });
  return out;
}

int destroy_ah(ibv_ah* ah) {
  delete static_cast<AhObject*>(ah);
  return 0;
}

int attach_mcast(ibv_qp* qp, const ibv_gid* gid, std::uint16_t) {
  return guarded([&] { return verbs::attach_group(impl(qp), *gid); });
}

int detach_mcast(ibv_qp* qp, const ibv_gid* gid, std::uint16_t) {
  return guarded([&] { return verbs::detach_group(impl(qp), *gid); });
}

}  // namespace

std::span<const Operation> address_operations() {
  static const std::array all = {
      operation("create_ah", create_ah),
      operation("destroy_ah", destroy_ah),
      operation("attach_mcast", attach_mcast),
      operation("detach_mcast", detach_mcast),
  };
  return all;
}

}  // namespace ewarp::rdmav34
