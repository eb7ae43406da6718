// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Queue pairs and work requests.
#include <array>

#include "provider/base/options.h"
#include "provider/rdmav34/objects.h"
#include "provider/verbs/rc/rc_queue_pair.h"
#include "provider/verbs/rd/rd_queue_pair.h"
#include "provider/verbs/ud/multicast.h"
#include "provider/verbs/ud/ud_queue_pair.h"

namespace ewarp::rdmav34 {
namespace {

void fill(QpObject& qp, ibv_pd* pd, const ibv_qp_init_attr& init) {
  qp.context = pd->context;
  qp.qp_context = init.qp_context;
  qp.pd = pd;
  qp.send_cq = init.send_cq;
  qp.recv_cq = init.recv_cq;
  qp.srq = init.srq;
  qp.handle = next_handle();
  qp.qp_num = qp.api->number();
  qp.state = IBV_QPS_RESET;
  qp.qp_type = init.qp_type;
  pthread_mutex_init(&qp.mutex, nullptr);
  pthread_cond_init(&qp.cond, nullptr);
}

int make_impl(verbs::Pd& pd, ibv_qp_init_attr& init, verbs::SharedReceiveQueue* srq,
              std::shared_ptr<verbs::QueuePair>* out) {
  if (init.qp_type == IBV_QPT_DRIVER || (init.qp_type == IBV_QPT_UD && options().ud_reliable)) {
    std::shared_ptr<verbs::RdQueuePair> qp;
    const int error = verbs::create_rd_qp(pd, init, &impl(init.send_cq), &impl(init.recv_cq), &qp, srq);
    *out = std::move(qp);
    return error;
  }
  if (init.qp_type == IBV_QPT_UD) {
    std::shared_ptr<verbs::UdQueuePair> qp;
    const int error = verbs::create_ud_qp(pd, init, &impl(init.send_cq), &impl(init.recv_cq), &qp, srq);
    *out = std::move(qp);
    return error;
  }
  std::shared_ptr<verbs::QueuePair> qp;
  const int error = verbs::create_rc_qp(pd, init, &impl(init.send_cq), &impl(init.recv_cq), &qp, srq);
  *out = std::move(qp);
  return error;
}

}  // namespace

int make_qp(ibv_pd* pd, ibv_qp_init_attr& init, QpObject& qp) {
  for (const ibv_cq* cq : {init.send_cq, init.recv_cq})
    if (cq == nullptr || cq->context != pd->context) return EINVAL;
  if (init.srq != nullptr && init.srq->context != pd->context) return EINVAL;
  verbs::SharedReceiveQueue* srq = init.srq != nullptr ? &impl(init.srq) : nullptr;
  if (const int error = make_impl(impl(pd), init, srq, &qp.impl)) return error;
  qp.api = qp.impl.get();
  qp.api->set_handle(handle_of(static_cast<ibv_qp*>(&qp)));
  fill(qp, pd, init);
  qp.use = PdUse(pd);
  return 0;
}

namespace {

ibv_qp* create_qp(ibv_pd* pd, ibv_qp_init_attr* init) {
  ibv_qp* out = nullptr;
  guarded([&] {
    if (init->qp_type == IBV_QPT_DRIVER) return EOPNOTSUPP;  // libetherwarpdv makes them
    auto qp = std::unique_ptr<QpObject>(new QpObject());
    if (const int error = make_qp(pd, *init, *qp); error != 0) return error;
    out = qp.release();
    return 0;
  });
  return out;
}

int query_qp(ibv_qp* qp, ibv_qp_attr* attr, int, ibv_qp_init_attr* init) {
  return guarded([&] {
    if (const int error = impl(qp).query(*attr, *init); error != 0) return error;
    init->qp_context = qp->qp_context;
    init->send_cq = qp->send_cq;
    init->recv_cq = qp->recv_cq;
    init->srq = qp->srq;
    init->qp_type = qp->qp_type;
    qp->state = attr->qp_state;  // error handling may have changed it
    return 0;
  });
}

int modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask) {
  return guarded([&] {
    const int error = impl(qp).modify(*attr, mask);
    if (error == 0 && (mask & IBV_QP_STATE) != 0) qp->state = attr->qp_state;
    return error;
  });
}

int destroy_qp(ibv_qp* qp) {
  return guarded_end([&] {
    ContextState& state = state_of(qp->context);
    if (verbs::has_groups(impl(qp))) return EBUSY;
    impl(qp).destroy();
    wait_acknowledged(qp->mutex, qp->cond, qp->events_completed, state.context.retire_async(handle_of(qp)));
    pthread_cond_destroy(&qp->cond);
    pthread_mutex_destroy(&qp->mutex);
    delete static_cast<QpObject*>(qp);
    return 0;
  });
}

int post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad) {
  return guarded([&] { return impl(qp).post_send(wr, bad); });
}

int post_recv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  return guarded([&] { return impl(qp).post_recv(wr, bad); });
}

}  // namespace

std::span<const Operation> queue_pair_operations() {
  static const std::array all = {
      operation("create_qp", create_qp),   operation("query_qp", query_qp),   operation("modify_qp", modify_qp),
      operation("destroy_qp", destroy_qp), operation("post_send", post_send), operation("post_recv", post_recv),
  };
  return all;
}

}  // namespace ewarp::rdmav34
