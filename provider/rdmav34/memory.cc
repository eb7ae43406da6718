// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Memory regions.
#include <array>
#include <span>

#include "provider/rdmav34/objects.h"

namespace ewarp::rdmav34 {
namespace {

constexpr std::uint32_t kNullMr = 1;  // ibv_mr_type in rdma-core's driver.h

MrObject& object(VerbsMr* mr) {
  return *reinterpret_cast<MrObject*>(mr);
}

void publish(MrObject& mr, int access) {
  mr.base.mr.lkey = mr.base.mr.rkey = mr.region->stag();
  mr.base.access = access;
}

// ibv_reg_mr(), ibv_reg_mr_iova(), ibv_reg_mr_iova2(): libibverbs sets pd, addr and length.
ibv_mr* reg_mr(ibv_pd* pd, void* address, std::size_t length, std::uint64_t iova, int access) {
  ibv_mr* out = nullptr;
  guarded([&] {
    auto mr = std::make_unique<MrObject>();
    const std::uint64_t base = (access & IBV_ACCESS_ZERO_BASED) != 0 ? 0 : iova;
    const int error = verbs::memory().add(impl(pd), address, length, base, static_cast<unsigned>(access), &mr->region);
    if (error != 0) return error;
    mr->base.mr.context = pd->context;
    mr->base.mr.handle = next_handle();
    mr->pd = PdUse(pd);
    publish(*mr, access);
    out = &mr.release()->base.mr;
    return 0;
  });
  return out;
}

int rereg_mr(VerbsMr* mr, int flags, ibv_pd* pd, void* address, std::size_t length, int access) {
  return guarded([&] {
    MrObject& m = object(mr);
    verbs::Pd* new_pd = (flags & IBV_REREG_MR_CHANGE_PD) != 0 && pd != nullptr ? &impl(pd) : nullptr;
    const int error = verbs::memory().change(m.region, flags, new_pd, address, length, static_cast<unsigned>(access));
    if (error != 0) return error;
    publish(m, (flags & IBV_REREG_MR_CHANGE_ACCESS) != 0 ? access : m.base.access);
    if (new_pd != nullptr) {
      m.base.mr.context = pd->context;
      m.pd = PdUse(pd);
    }
    return 0;
  });
}

// libibverbs fills in nothing here.
ibv_mr* alloc_null_mr(ibv_pd* pd) {
  ibv_mr* out = nullptr;
  guarded([&] {
    auto mr = std::make_unique<MrObject>();
    if (const int error = verbs::memory().add_null(impl(pd), &mr->region); error != 0) return error;
    mr->base.type = kNullMr;
    ibv_mr& m = mr->base.mr;
    m.context = pd->context;
    m.pd = pd;
    m.length = SIZE_MAX;
    m.handle = next_handle();
    m.lkey = mr->region->stag();
    mr->pd = PdUse(pd);
    out = &mr.release()->base.mr;
    return 0;
  });
  return out;
}

int dereg_mr(VerbsMr* mr) {
  return guarded_end([&] {
    MrObject& m = object(mr);
    if (const int error = verbs::memory().remove(m.region); error != 0) return error;
    delete &m;
    return 0;
  });
}

// Elements of no octets ask for nothing.
int advise_mr(ibv_pd* pd, ibv_advise_mr_advice advice, std::uint32_t flags, ibv_sge* list, std::uint32_t count) {
  return guarded([&] {
    if (advice > IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT) return EOPNOTSUPP;
    if ((flags & ~static_cast<std::uint32_t>(IBV_ADVISE_MR_FLAG_FLUSH)) != 0 || count == 0) return EINVAL;
    // What is mapped is within reach of a processor: without faults there is nothing to bring nearer.
    const bool writable = advice == IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE;
    const bool now = flags != 0 && advice != IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT;
    for (const ibv_sge& sge : std::span(list, count)) {
      if (sge.length == 0) continue;
      if (const int error = verbs::memory().prefetch(impl(pd), sge.lkey, sge.addr, sge.length, writable, now))
        return error;
    }
    return 0;
  });
}

struct MwObject : ibv_mw {
  verbs::MemoryRegion* window = nullptr;
  PdUse use;
};

ibv_mw* alloc_mw(ibv_pd* pd, ibv_mw_type type) {
  ibv_mw* out = nullptr;
  guarded([&] {
    if (type != IBV_MW_TYPE_1 && type != IBV_MW_TYPE_2) return EINVAL;
    auto mw = std::make_unique<MwObject>();
    if (const int error = verbs::memory().add_window(impl(pd), type, &mw->window, &mw->rkey); error != 0) return error;
    mw->context = pd->context;
    mw->pd = pd;
    mw->handle = next_handle();
    mw->type = type;
    mw->use = PdUse(pd);
    out = mw.release();
    return 0;
  });
  return out;
}

int dealloc_mw(ibv_mw* mw) {
  return guarded_end([&] {
    verbs::memory().remove_window(static_cast<MwObject*>(mw)->window);
    delete static_cast<MwObject*>(mw);
    return 0;
  });
}

// Type 1: the window has a new key as soon as the request is posted.
int bind_mw(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind) {
  return guarded([&] {
    ibv_send_wr wr{}, *bad = nullptr;
    wr.wr_id = bind->wr_id;
    wr.opcode = IBV_WR_BIND_MW;
    wr.send_flags = bind->send_flags;
    wr.bind_mw.mw = mw;
    wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
    wr.bind_mw.bind_info = bind->bind_info;
    const int error = impl(qp).post_send(&wr, &bad);
    if (error == 0) mw->rkey = wr.bind_mw.rkey;
    return error;
  });
}

}  // namespace

std::span<const Operation> memory_operations() {
  static const std::array all = {
      operation("reg_mr", reg_mr),     operation("alloc_null_mr", alloc_null_mr), operation("rereg_mr", rereg_mr),
      operation("dereg_mr", dereg_mr), operation("alloc_mw", alloc_mw),           operation("dealloc_mw", dealloc_mw),
      operation("bind_mw", bind_mw),   operation("advise_mr", advise_mr),
  };
  return all;
}

}  // namespace ewarp::rdmav34
