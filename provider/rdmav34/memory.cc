// Memory regions.
#include <array>

#include "provider/rdmav34/objects.h"

namespace ewarp::rdmav34 {
namespace {

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
    if (new_pd != nullptr) m.base.mr.context = pd->context;
    return 0;
  });
}

int dereg_mr(VerbsMr* mr) {
  return guarded([&] {
    MrObject& m = object(mr);
    verbs::memory().remove(m.region);
    delete &m;
    return 0;
  });
}

}  // namespace

std::span<const Operation> memory_operations() {
  static const std::array all = {
      operation("reg_mr", reg_mr),
      operation("rereg_mr", rereg_mr),
      operation("dereg_mr", dereg_mr),
  };
  return all;
}

}  // namespace ewarp::rdmav34
