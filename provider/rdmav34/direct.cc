// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What libetherwarpdv asks of the provider (provider/direct/direct.h).
#include "provider/direct/direct.h"

#include <array>

#include "provider/base/options.h"
#include "provider/rdmav34/objects.h"
#include "provider/verbs/rd/rd_queue_pair.h"

namespace ewarp::rdmav34 {
namespace {

int query_device(ibv_context*, etherwarpdv_device_attr* attr) {
  attr->device_caps = ETHERWARPDV_DEVICE_RD;
  if (options().ud_reliable) attr->device_caps |= ETHERWARPDV_DEVICE_UD_RELIABLE;
  attr->rd_max_message = verbs::kMaxMessage;
  attr->rd_send_ops = kRdOperations;
  attr->rd_max_inline = verbs::kMaxInline;
  attr->rd_max_rd_atomic = verbs::RdPort::kMaxRdAtomic;
  return 0;
}

ibv_qp* create_qp_ex_direct(ibv_context* context, ibv_qp_init_attr_ex* init, const etherwarpdv_qp_init_attr* attr) {
  ibv_qp* out = nullptr;
  guarded([&] {
    if (attr->comp_mask != 0 || attr->qp_type != ETHERWARPDV_QP_TYPE_RD || attr->reserved != 0) return EOPNOTSUPP;
    if (init->qp_type != IBV_QPT_DRIVER) return EINVAL;
    return make_qp_ex(context, *init, &out);
  });
  return out;
}

}  // namespace
}  // namespace ewarp::rdmav34

extern "C" __attribute__((visibility("default"))) const etherwarp_direct etherwarp_direct = {
    EWARP_DIRECT_VERSION, ewarp::rdmav34::query_device, ewarp::rdmav34::create_qp_ex_direct};
