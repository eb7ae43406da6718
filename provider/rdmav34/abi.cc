#include "provider/rdmav34/abi.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <memory>

#include "provider/verbs/log.h"

namespace ewarp::rdmav34 {
namespace {

// verbs_context_ops is one function pointer for each of these, in this order.
// clang-format off
constexpr std::string_view kOps34[] = {
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
};
// clang-format on
static_assert(std::size(kOps34) == 76 && std::is_sorted(std::begin(kOps34), std::end(kOps34)));
static_assert(std::size(kOps34) <= kMaxOps);

struct Version {
  int number;
  std::span<const std::string_view> op_names;
  std::size_t context_offset;  // of ibv_context in verbs_context
};
constexpr Version kSupported[] = {{34, kOps34, 320}};
static_assert(offsetof(verbs_context, context) == 320, "the header is of a libibverbs that we know");
static_assert(sizeof(verbs_context) <= kContextReserve);

// Those there have been, for the sentence that refuses one.
constexpr int kKnown[] = {25, 34, 57, 59, 64, 65};

std::atomic<const Library*> current{nullptr};

template <class F>
bool find(void* handle, const char* name, int version, F** out) {
  void* symbol = dlvsym(handle, name, fmt::format("IBVERBS_PRIVATE_{}", version).c_str());
  std::memcpy(out, &symbol, sizeof symbol);
  return symbol != nullptr;
}

void refuse(void* handle) {
  static std::atomic<bool> said{false};
  if (said.exchange(true)) return;
  std::string found = "an unknown one";
  for (const int version : kKnown) {
    Function symbol;
    if (find(handle, fmt::format("verbs_register_driver_{}", version).c_str(), version, &symbol))
      found = fmt::format("IBVERBS_PRIVATE_{}", version);
  }
  log::error(
      "this libibverbs has another provider interface ({}) than EtherWARP was made for (IBVERBS_PRIVATE_34, rdma-core "
      "36 "
      "to 56): no EtherWARP devices",
      found);
}

}  // namespace

bool Library::resolve(void* handle) {
  for (const Version& v : kSupported) {
    if (!find(handle, fmt::format("verbs_register_driver_{}", v.number).c_str(), v.number, &register_driver_) ||
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
