// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/rdmav34/abi.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <memory>

#include "provider/base/log.h"
#include "provider/rdmav34/releases.h"

namespace ewarp::rdmav34 {
namespace {

// verbs_context_ops is one function pointer for each of these, in alphabetical order.
using Name = std::string_view;
// clang-format off
constexpr std::array kOps34 = std::to_array<Name>({
    "advise_mr", "alloc_dm", "alloc_mw", "alloc_null_mr", "alloc_parent_domain", "alloc_pd", "alloc_td",
    "async_event", "attach_counters_point_flow", "attach_mcast", "bind_mw", "close_xrcd", "cq_event", "create_ah",
    "create_counters", "create_cq", "create_cq_ex", "create_flow", "create_flow_action_esp", "create_qp",
    "create_qp_ex", "create_rwq_ind_table", "create_srq", "create_srq_ex", "create_wq", "dealloc_mw", "dealloc_pd",
    "dealloc_td", "dereg_mr", "destroy_ah", "destroy_counters", "destroy_cq", "destroy_flow", "destroy_flow_action",
    "destroy_qp", "destroy_rwq_ind_table", "destroy_srq", "destroy_wq", "detach_mcast", "free_context", "free_dm",
    "get_srq_num", "import_dm", "import_mr", "import_pd", "modify_cq", "modify_flow_action_esp", "modify_qp",
    "modify_qp_rate_limit", "modify_srq", "modify_wq", "open_qp", "open_xrcd", "poll_cq", "post_recv", "post_send",
    "post_srq_ops", "post_srq_recv", "query_device_ex", "query_ece", "query_port", "query_qp",
    "query_qp_data_in_order", "query_rt_values", "query_srq", "read_counters", "reg_dm_mr", "reg_dmabuf_mr", "reg_mr",
    "req_notify_cq", "rereg_mr", "resize_cq", "set_ece", "unimport_dm", "unimport_mr", "unimport_pd",
});
// What 57 to 65 added; nothing was taken away.
constexpr std::array kAdded65 = std::to_array<Name>({
    "alloc_buf", "alloc_dmah", "create_comp_cntr", "dealloc_dmah", "destroy_comp_cntr", "dm_export_dmabuf_fd",
    "free_buf", "inc_comp_cntr", "inc_err_comp_cntr", "qp_attach_comp_cntr", "query_comp_cntr_caps",
    "query_port_speed", "read_comp_cntr", "read_err_comp_cntr", "reg_mr_ex", "set_comp_cntr", "set_err_comp_cntr",
});
// clang-format on

template <std::size_t A, std::size_t B>
constexpr std::array<Name, A + B> merged(const std::array<Name, A>& a, const std::array<Name, B>& b) {
  std::array<Name, A + B> out;
  std::merge(a.begin(), a.end(), b.begin(), b.end(), out.begin());
  return out;
}
constexpr std::array kOps65 = merged(kOps34, kAdded65);
static_assert(kOps34.size() == 76 && std::is_sorted(kOps34.begin(), kOps34.end()));
static_assert(kOps65.size() == 93 && std::is_sorted(kOps65.begin(), kOps65.end()));
static_assert(kOps65.size() <= kMaxOps);

struct Version {
  int number;
  std::span<const std::string_view> op_names;
  std::size_t context_offset;  // of ibv_context in verbs_context
};
constexpr Version kSupported[] = {{34, kOps34, 320}, {65, kOps65, 368}};
// verbs_context grows at its front: what we are built with may be any of them.
static_assert(std::any_of(std::begin(kSupported), std::end(kSupported),
                          [](const Version& v) { return v.context_offset == offsetof(verbs_context, context); }),
              "the header is of a libibverbs that we know");
static_assert(sizeof(verbs_context) <= kContextReserve);
static_assert(std::all_of(std::begin(kReleases), std::end(kReleases), [](const Release& r) {
  return r.served == std::any_of(std::begin(kSupported), std::end(kSupported),
                                 [&](const Version& v) { return v.number == r.number; });
}));

std::atomic<const Library*> current{nullptr};
std::atomic<bool> refusing{false};  // there is a libibverbs, and it is none that we can serve

template <class F>
bool find(void* handle, const char* name, int version, F** out) {
  void* symbol = private_symbol(handle, name, version);
  std::memcpy(out, &symbol, sizeof symbol);
  return symbol != nullptr;
}

void refuse(void* handle) {
  if (refusing.exchange(true, std::memory_order_acq_rel)) return;
  log::error("the provider interface of this libibverbs is {}, EtherWARP serves {}: no EtherWARP devices here",
             text_of(release_of(handle)), served_text());
}

}  // namespace

bool Library::resolve(void* handle) {
  for (const Version& v : kSupported) {
    if (!find(handle, register_name(v.number).c_str(), v.number, &register_driver_) ||
        !find(handle, "_verbs_init_and_alloc_context", v.number, &init_and_alloc_context_) ||
        !find(handle, "verbs_set_ops", v.number, &set_ops_) ||
        !find(handle, "verbs_uninit_context", v.number, &uninit_context_))
      continue;
    op_names_ = v.op_names;
    context_offset_ = v.context_offset;
    return true;
  }
  return false;
}

// No lock: dlopen() and dlvsym() take the loader's, and a thread may come here while it holds that one.
const Library* Library::get() {
  if (const Library* known = current.load(std::memory_order_acquire)) return known;
  // Not dlsym(RTLD_DEFAULT): programs that load libibverbs by dlopen() keep its symbols to themselves.
  void* handle = dlopen("libibverbs.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (handle == nullptr) return nullptr;
  auto library = std::make_unique<Library>();
  if (!library->resolve(handle)) {
    refuse(handle);
    dlclose(handle);
    return nullptr;
  }
  const Library* expected = nullptr;
  if (current.compare_exchange_strong(expected, library.get(), std::memory_order_acq_rel)) return library.release();
  dlclose(handle);
  return expected;
}

bool Library::refused() {
  return refusing.load(std::memory_order_acquire);
}

const Library& Library::here() {
  return *current.load(std::memory_order_acquire);
}

void Library::set_ops(void* verbs_context, std::span<const Operation> operations) const {
  std::array<Function, kMaxOps> table{};  // null: libibverbs keeps its own, which says EOPNOTSUPP
  for (const Operation& operation : operations) {
    const auto found = std::find(op_names_.begin(), op_names_.end(), operation.name);
    if (found != op_names_.end()) table[static_cast<std::size_t>(found - op_names_.begin())] = operation.function;
  }
  set_ops_(verbs_context, table.data());
}

}  // namespace ewarp::rdmav34
