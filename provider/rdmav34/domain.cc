// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Protection domains, thread domains, and parent domains, which join the two (ibv_alloc_parent_domain(3)).
#include <array>

#include "provider/rdmav34/objects.h"

namespace ewarp::rdmav34 {
namespace {

std::unique_ptr<PdObject> make_pd(ibv_context* context) {
  auto pd = std::make_unique<PdObject>();
  pd->context = context;
  pd->handle = next_handle();
  return pd;
}

ibv_pd* alloc_pd(ibv_context* context) {
  ibv_pd* out = nullptr;
  guarded([&] {
    ContextState& state = state_of(context);
    auto pd = make_pd(context);
    pd->impl = &pd->own.emplace(state.context);
    ++state.objects;
    out = pd.release();
    return 0;
  });
  return out;
}

ibv_td* alloc_td(ibv_context* context, ibv_td_init_attr* init) {
  ibv_td* out = nullptr;
  guarded([&] {
    if (init->comp_mask != 0) return EINVAL;
    auto td = std::make_unique<TdObject>();
    td->context = context;
    out = td.release();
    return 0;
  });
  return out;
}

int dealloc_td(ibv_td* td) {
  auto* object = static_cast<TdObject*>(td);
  if (object->users != 0) return failed(EBUSY);
  delete object;
  return 0;
}

// Allocators of the program's are not used: our queues are not in memory of its choice.
ibv_pd* alloc_parent_domain(ibv_context* context, ibv_parent_domain_init_attr* init) {
  constexpr std::uint32_t kKnown = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
  ibv_pd* out = nullptr;
  guarded([&] {
    auto* of = static_cast<PdObject*>(init->pd);
    auto* thread = static_cast<TdObject*>(init->td);
    if ((init->comp_mask & ~kKnown) != 0 || of == nullptr || of->context != context || !of->own) return EINVAL;
    if (thread != nullptr && thread->context != context) return EINVAL;
    if ((init->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS) != 0) return EOPNOTSUPP;
    auto pd = make_pd(context);
    pd->impl = of->impl;
    pd->parent_of = of;
    pd->thread = thread;
    ++of->users;
    if (thread != nullptr) ++thread->users;
    out = pd.release();
    return 0;
  });
  return out;
}

// What was made on a parent domain counts as a user of both.
int dealloc_pd(ibv_pd* pd) {
  auto* object = static_cast<PdObject*>(pd);
  if (object->users != 0 || (object->own && object->own->users != 0)) return failed(EBUSY);
  if (object->own) --state_of(pd->context).objects;
  if (object->parent_of != nullptr) --object->parent_of->users;
  if (object->thread != nullptr) --object->thread->users;
  delete object;
  return 0;
}

}  // namespace

std::span<const Operation> domain_operations() {
  static const std::array all = {
      operation("alloc_pd", alloc_pd),
      operation("dealloc_pd", dealloc_pd),
      operation("alloc_td", alloc_td),
      operation("dealloc_td", dealloc_td),
      operation("alloc_parent_domain", alloc_parent_domain),
  };
  return all;
}

}  // namespace ewarp::rdmav34
