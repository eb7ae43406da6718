// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// acp.h: global memory and access to it.
#include "mpi_shim/acp/api.h"

using namespace ewarp::acp;

namespace {

// One more than are kept waits for the first.
acp_handle_t begin(const Wanted& wanted) {
  return with_process(ACP_HANDLE_NULL, [&](Process& p) EWARP_REQUIRES(p.mutex) {
    Accesses& accesses = p.accesses();
    if (!accesses.has_room()) p.wait_until([&] { return accesses.has_room(); });
    const acp_handle_t handle = accesses.begin(wanted);
    const int error = errno;
    p.progress();
    errno = error;
    return handle;
  });
}

acp_handle_t change(Change what, unsigned octets, acp_ga_t to, acp_ga_t at, std::uint64_t value, acp_handle_t order,
                    std::uint64_t expected = 0) {
  return begin(
      {.what = what, .to = to, .from = at, .octets = octets, .value = value, .expected = expected, .order = order});
}

}  // namespace

extern "C" {

EWARP_ACP_EXPORT acp_ga_t acp_query_starter_ga(int rank) {
  const Process* p = process();
  if (p == nullptr) return ACP_GA_NULL;
  if (rank < 0 || rank >= static_cast<int>(p->procs())) return errno = EINVAL, ACP_GA_NULL;
  return GlobalAddress{static_cast<std::uint32_t>(rank), 0, 0}.emit();
}

EWARP_ACP_EXPORT acp_atkey_t acp_register_memory(void* memory, size_t octets, int color) {
  return with_process(ACP_ATKEY_NULL, [&](Process& p) EWARP_REQUIRES(p.mutex) -> acp_atkey_t {
    if (color != 0) return errno = EINVAL, ACP_ATKEY_NULL;
    return p.regions().add(memory, octets);
  });
}

EWARP_ACP_EXPORT int acp_unregister_memory(acp_atkey_t key) {
  return with_process(-1, [&](Process& p) EWARP_REQUIRES(p.mutex) { return p.regions().remove(key) ? 0 : -1; });
}

EWARP_ACP_EXPORT acp_ga_t acp_query_ga(acp_atkey_t key, void* address) {
  return with_process(ACP_GA_NULL,
                      [&](Process& p) EWARP_REQUIRES(p.mutex) -> acp_ga_t { return p.regions().global(key, address); });
}

EWARP_ACP_EXPORT void* acp_query_address(acp_ga_t ga) {
  return with_process(static_cast<void*>(nullptr), [&](Process& p) EWARP_REQUIRES(p.mutex) -> void* {
    void* at = ga == ACP_GA_NULL ? nullptr : p.regions().local(GlobalAddress::parse(ga), 0).at;
    if (at == nullptr) errno = EINVAL;
    return at;
  });
}

EWARP_ACP_EXPORT int acp_query_rank(acp_ga_t ga) {
  if (ga == ACP_GA_NULL) return errno = EINVAL, -1;
  return static_cast<int>(GlobalAddress::parse(ga).rank);
}

EWARP_ACP_EXPORT int acp_query_color(acp_ga_t ga) {
  return ga == ACP_GA_NULL ? (errno = EINVAL, -1) : 0;
}

EWARP_ACP_EXPORT int acp_colors(void) {
  return 1;
}

EWARP_ACP_EXPORT acp_handle_t acp_copy(acp_ga_t to, acp_ga_t from, size_t octets, acp_handle_t order) {
  return begin({.what = Change::copy, .to = to, .from = from, .octets = octets, .order = order});
}

EWARP_ACP_EXPORT acp_handle_t acp_cas4(acp_ga_t to, acp_ga_t at, uint32_t expected, uint32_t value,
                                       acp_handle_t order) {
  return change(Change::cas, 4, to, at, value, order, expected);
}

EWARP_ACP_EXPORT acp_handle_t acp_cas8(acp_ga_t to, acp_ga_t at, uint64_t expected, uint64_t value,
                                       acp_handle_t order) {
  return change(Change::cas, 8, to, at, value, order, expected);
}

#define EWARP_ACP_CHANGE(name, what)                                                                          \
  EWARP_ACP_EXPORT acp_handle_t acp_##name##4(acp_ga_t to, acp_ga_t at, uint32_t value, acp_handle_t order) { \
    return change(what, 4, to, at, value, order);                                                             \
  }                                                                                                           \
  EWARP_ACP_EXPORT acp_handle_t acp_##name##8(acp_ga_t to, acp_ga_t at, uint64_t value, acp_handle_t order) { \
    return change(what, 8, to, at, value, order);                                                             \
  }
EWARP_ACP_CHANGE(swap, Change::swap)
EWARP_ACP_CHANGE(add, Change::add)
EWARP_ACP_CHANGE(xor, Change::exclusive_or)
EWARP_ACP_CHANGE(or, Change::inclusive_or)
EWARP_ACP_CHANGE(and, Change::conjunction)
#undef EWARP_ACP_CHANGE

EWARP_ACP_EXPORT int acp_complete(acp_handle_t handle) {
  return with_process(-1, [&](Process& p) EWARP_REQUIRES(p.mutex) {
    Accesses& accesses = p.accesses();
    if (handle == ACP_HANDLE_NULL) return 0;
    if (handle > 0 && !accesses.begun(handle)) return 0;
    p.wait_until([&] { return accesses.ended(handle); });
    const int error = accesses.take(handle);
    if (error != 0) errno = error;
    return error == 0 ? 0 : -1;
  });
}

EWARP_ACP_EXPORT int acp_inquire(acp_handle_t handle) {
  return with_process(0, [&](Process& p) EWARP_REQUIRES(p.mutex) {
    p.progress();
    const bool none = handle == ACP_HANDLE_NULL || (handle > 0 && !p.accesses().begun(handle));
    return none || p.accesses().ended(handle) ? 0 : 1;
  });
}
}
