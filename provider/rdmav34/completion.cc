// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Completion queues.
#include <array>
#include <cstring>

#include "provider/host/fds.h"
#include "provider/rdmav34/objects.h"

namespace ewarp::rdmav34 {

int make_cq(ibv_context* context, int cqe, ibv_comp_channel* channel, int vector, CqObject& cq) {
  if (cqe <= 0 || cqe > verbs::kMaxCqe || vector < 0 || vector >= context->num_comp_vectors) return EINVAL;
  std::shared_ptr<verbs::EventChannel> events;
  if (channel != nullptr) {
    events = host::find_event_channel(channel->fd);
    if (!events) return EINVAL;
  }
  cq.impl = std::make_unique<verbs::CompletionQueue>(state_of(context).context, cqe, std::move(events),
                                                     handle_of(static_cast<ibv_cq*>(&cq)));
  if (!cq.impl->valid()) return ENOMEM;
  cq.context = context;
  cq.cqe = cq.impl->capacity();
  cq.handle = next_handle();
  return 0;
}

namespace {

// libibverbs sets channel, cq_context, the event counts, mutex and cond.
ibv_cq* create_cq(ibv_context* context, int cqe, ibv_comp_channel* channel, int vector) {
  ibv_cq* out = nullptr;
  guarded([&] {
    auto cq = std::unique_ptr<CqObject>(new CqObject());
    if (const int error = make_cq(context, cqe, channel, vector, *cq); error != 0) return error;
    ++state_of(context).objects;
    out = cq.release();
    return 0;
  });
  return out;
}

int poll_cq(ibv_cq* cq, int n, ibv_wc* wc) {
  try {
    return impl(cq).poll(n, wc);
  } catch (const std::exception&) {
    return -1;
  }
}

int req_notify_cq(ibv_cq* cq, int solicited_only) {
  impl(cq).arm(solicited_only != 0);
  return 0;
}

int resize_cq(ibv_cq* cq, int cqe) {
  return guarded([&] {
    const int error = impl(cq).resize(cqe);
    if (error == 0) cq->cqe = impl(cq).capacity();
    return error;
  });
}

int destroy_cq(ibv_cq* cq) {
  return guarded_end([&] {
    if (impl(cq).users != 0) return EBUSY;
    ContextState& state = state_of(cq->context);
    wait_acknowledged(cq->mutex, cq->cond, cq->comp_events_completed, impl(cq).retire_events());
    wait_acknowledged(cq->mutex, cq->cond, cq->async_events_completed, state.context.retire_async(handle_of(cq)));
    pthread_cond_destroy(&cq->cond);
    pthread_mutex_destroy(&cq->mutex);
    delete static_cast<CqObject*>(cq);
    --state.objects;
    return 0;
  });
}

}  // namespace

std::span<const Operation> completion_operations() {
  static const std::array all = {
      operation("create_cq", create_cq), operation("poll_cq", poll_cq),       operation("req_notify_cq", req_notify_cq),
      operation("resize_cq", resize_cq), operation("destroy_cq", destroy_cq),
  };
  return all;
}

}  // namespace ewarp::rdmav34
