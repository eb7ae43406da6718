// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Extended completion queues (ibv_create_cq_ex(3)): completions one at a time, field by field, with time stamps.
#include <array>
#include <type_traits>
#include <utility>

#include "provider/rdmav34/objects.h"

namespace ewarp::rdmav34 {
namespace {

static_assert(sizeof(ibv_cq_ex) <= kObjectReserve);

constexpr std::uint64_t kFields = std::uint64_t{IBV_WC_STANDARD_FLAGS} | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
                                  IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;

CqObject& object(ibv_cq_ex* cq) {
  return *static_cast<CqObject*>(ibv_cq_ex_to_cq(cq));
}

// --- the batch ------------------------------------------------------------------------------------------------------

// One from the queue at a time: what has not been asked for is still in it, for ibv_poll_cq() and for the end of its
// QP. An empty queue is no error to leave in errno.
int advance(ibv_cq_ex* cq, bool pass) {
  CqObject& o = object(cq);
  try {
    if (const int error = o.impl->poll_one(&o.batch->wc, &o.batch->stamp, pass); error != 0) return error;
  } catch (const std::exception&) {
    return EIO;
  }
  cq->wr_id = o.batch->wc.wr_id;
  cq->status = o.batch->wc.status;
  return 0;
}

void leave(PollBatch& batch) EWARP_NO_LOCK_ANALYSIS {
  if (batch.locks) batch.mutex.unlock();
}

int start_poll(ibv_cq_ex* cq, ibv_poll_cq_attr* attr) EWARP_NO_LOCK_ANALYSIS {
  if (attr->comp_mask != 0) return EINVAL;
  PollBatch& batch = *object(cq).batch;
  if (batch.locks) batch.mutex.lock();
  const int error = advance(cq, true);
  if (error != 0) leave(batch);
  return error;
}

int next_poll(ibv_cq_ex* cq) {
  return advance(cq, false);
}

void end_poll(ibv_cq_ex* cq) {
  leave(*object(cq).batch);
}

// --- the fields of the current completion ---------------------------------------------------------------------------

template <auto kField, class Value = std::remove_cvref_t<decltype(std::declval<ibv_wc>().*kField)>>
Value read(ibv_cq_ex* cq) {
  return object(cq).batch->wc.*kField;
}
std::uint64_t read_completion_ts(ibv_cq_ex* cq) {
  return object(cq).batch->stamp.raw;
}
std::uint64_t read_completion_wallclock_ns(ibv_cq_ex* cq) {
  return object(cq).batch->stamp.wall;
}

// --- creation -------------------------------------------------------------------------------------------------------

// Overruns are always found: a queue that writes on (IGNORE_OVERRUN) is not offered.
int check(const ibv_cq_init_attr_ex& init) {
  if ((init.comp_mask & ~(IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD)) != 0) return EINVAL;
  const std::uint32_t flags = (init.comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) != 0 ? init.flags : 0;
  if ((init.wc_flags & ~kFields) != 0 || (flags & ~IBV_CREATE_CQ_ATTR_SINGLE_THREADED) != 0) return EOPNOTSUPP;
  if (init.cqe > verbs::kMaxCqe || init.comp_vector > INT32_MAX) return EINVAL;
  const bool with_pd = (init.comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) != 0;
  return with_pd && (init.parent_domain == nullptr || !is_parent_domain(init.parent_domain)) ? EINVAL : 0;
}

void set_functions(ibv_cq_ex& cq) {
  cq.start_poll = start_poll;
  cq.next_poll = next_poll;
  cq.end_poll = end_poll;
  cq.read_opcode = read<&ibv_wc::opcode>;
  cq.read_vendor_err = read<&ibv_wc::vendor_err>;
  cq.read_byte_len = read<&ibv_wc::byte_len>;
  cq.read_imm_data = read<&ibv_wc::imm_data>;  // or the invalidated rkey, which has the same place
  cq.read_qp_num = read<&ibv_wc::qp_num>;
  cq.read_src_qp = read<&ibv_wc::src_qp>;
  cq.read_wc_flags = read<&ibv_wc::wc_flags>;
  cq.read_slid = read<&ibv_wc::slid, std::uint32_t>;
  cq.read_sl = read<&ibv_wc::sl>;
  cq.read_dlid_path_bits = read<&ibv_wc::dlid_path_bits>;
  cq.read_completion_ts = read_completion_ts;
  cq.read_completion_wallclock_ns = read_completion_wallclock_ns;
}

int make_cq_ex(ibv_context* context, const ibv_cq_init_attr_ex& init, CqObject& cq) {
  if (const int error = check(init); error != 0) return error;
  const int vector = static_cast<int>(init.comp_vector);
  if (const int error = make_cq(context, static_cast<int>(init.cqe), init.channel, vector, cq); error != 0)
    return error;
  const bool raw = (init.wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP) != 0;
  const bool wall = (init.wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK) != 0;
  if (const int error = cq.impl->keep_stamps(raw, wall); error != 0) return error;
  bool single = (init.comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) != 0 && init.flags != 0;
  if ((init.comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) != 0) {
    cq.pd = PdUse(init.parent_domain);
    single = single || one_thread(init.parent_domain);
  }
  cq.batch.emplace(single);
  set_functions(*reinterpret_cast<ibv_cq_ex*>(static_cast<ibv_cq*>(&cq)));
  return 0;
}

// As with create_cq(), libibverbs sets the rest.
ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* init) {
  ibv_cq_ex* out = nullptr;
  guarded([&] {
    auto cq = std::make_unique<CqObject>();
    if (const int error = make_cq_ex(context, *init, *cq); error != 0) return error;
    ++state_of(context).objects;
    out = reinterpret_cast<ibv_cq_ex*>(static_cast<ibv_cq*>(cq.release()));
    return 0;
  });
  return out;
}

}  // namespace

std::span<const Operation> completion_ex_operations() {
  static const std::array all = {operation("create_cq_ex", create_cq_ex)};
  return all;
}

}  // namespace ewarp::rdmav34
