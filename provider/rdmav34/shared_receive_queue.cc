// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Shared receive queues.
#include <array>

#include "provider/rdmav34/objects.h"

namespace ewarp::rdmav34 {
namespace {

// libibverbs turns ibv_create_srq_ex() of the basic type into this; the others (XRC, tag matching) have no entry. It
// sets context, srq_context, pd, the event count, mutex and cond.
ibv_srq* create_srq(ibv_pd* pd, ibv_srq_init_attr* init) {
  ibv_srq* out = nullptr;
  guarded([&] {
    auto srq = std::unique_ptr<SrqObject>(new SrqObject());
    srq->impl = std::make_unique<verbs::SharedReceiveQueue>(impl(pd), handle_of(static_cast<ibv_srq*>(srq.get())));
    if (const int error = srq->impl->create(init->attr); error != 0) return error;
    srq->handle = next_handle();
    srq->use = PdUse(pd);
    out = srq.release();
    return 0;
  });
  return out;
}

int modify_srq(ibv_srq* srq, ibv_srq_attr* attr, int mask) {
  return guarded([&] { return impl(srq).modify(*attr, mask); });
}

int query_srq(ibv_srq* srq, ibv_srq_attr* attr) {
  impl(srq).query(*attr);
  return 0;
}

int destroy_srq(ibv_srq* srq) {
  return guarded_end([&] {
    if (impl(srq).users != 0) return EBUSY;
    ContextState& state = state_of(srq->context);
    wait_acknowledged(srq->mutex, srq->cond, srq->events_completed, state.context.retire_async(handle_of(srq)));
    pthread_cond_destroy(&srq->cond);
    pthread_mutex_destroy(&srq->mutex);
    delete static_cast<SrqObject*>(srq);
    return 0;
  });
}

int post_srq_recv(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  return guarded([&] { return impl(srq).post(wr, bad); });
}

}  // namespace

std::span<const Operation> shared_receive_queue_operations() {
  static const std::array all = {
      operation("create_srq", create_srq),       operation("modify_srq", modify_srq),
      operation("query_srq", query_srq),         operation("destroy_srq", destroy_srq),
      operation("post_srq_recv", post_srq_recv),
  };
  return all;
}

}  // namespace ewarp::rdmav34
