// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The objects that libibverbs hands to programs, with ours behind them.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <system_error>
#include <utility>

#include "llp/mutex.h"
#include "provider/base/log.h"
#include "provider/engine/shortage.h"
#include "provider/rdmav34/abi.h"
#include "provider/rdmav34/send_batch.h"
#include "provider/verbs/completion_queue.h"
#include "provider/verbs/device/context.h"
#include "provider/verbs/memory/memory.h"
#include "provider/verbs/queue_pair.h"
#include "provider/verbs/shared_receive_queue.h"

namespace ewarp::rdmav34 {

struct DeviceObject {
  VerbsDevice base;
  verbs::Device* device;
};

// An opened device.
struct ContextState {
  ContextState(verbs::Device& device, std::shared_ptr<verbs::EventChannel> async) : context(device, std::move(async)) {}
  verbs::Context context;
  // PDs and CQs that were not destroyed. Programs close devices that they still use; what those objects refer to must
  // then outlive the ibv_context.
  std::atomic<int> objects{0};
};

// Allocated by libibverbs as zeroed memory, freed by us.
struct ContextMemory {
  alignas(std::max_align_t) std::byte verbs_context[kContextReserve];
  ContextState* state;
};

// The program's word that one thread at a time uses what is made on it.
struct TdObject : ibv_td {
  std::atomic<int> users{0};  // parent domains
};

// A protection domain, or a parent domain: another name for a protection domain, with a thread domain or without.
struct PdObject : ibv_pd {
  std::optional<verbs::Pd> own;  // empty: a parent domain
  verbs::Pd* impl = nullptr;
  PdObject* parent_of = nullptr;  // and what it was made of
  TdObject* thread = nullptr;
  std::atomic<int> users{0};  // objects that were made on this very one
};

// An object's hold on the domain that it was made on.
class PdUse {
 public:
  PdUse() = default;
  explicit PdUse(ibv_pd* pd) : pd_(static_cast<PdObject*>(pd)) { ++pd_->users; }
  PdUse(PdUse&& other) noexcept : pd_(std::exchange(other.pd_, nullptr)) {}
  PdUse& operator=(PdUse&& other) noexcept {
    std::swap(pd_, other.pd_);
    return *this;
  }
  ~PdUse() {
    if (pd_ != nullptr) --pd_->users;
  }

 private:
  PdObject* pd_ = nullptr;
};

struct MrObject {
  VerbsMr base{};
  verbs::MemoryRegion* region = nullptr;
  PdUse pd;
};

// What ibv_start_poll() and those after it work with (completion_ex.cc).
struct PollBatch {
  explicit PollBatch(bool one_thread) : locks(!one_thread) {}
  llp::Mutex mutex;  // held from start_poll to end_poll
  const bool locks;
  ibv_wc wc{};
  verbs::CompletionStamp stamp{};
};

struct CqObject : ibv_cq {
  std::byte reserve[kObjectReserve - sizeof(ibv_cq)];  // the library's verbs_cq is longer than ibv_cq
  std::unique_ptr<verbs::CompletionQueue> impl;
  std::optional<PollBatch> batch;  // of ibv_create_cq_ex()
  PdUse pd;
};

struct SrqObject : ibv_srq {
  std::byte reserve[kObjectReserve - sizeof(ibv_srq)];  // verbs_srq
  std::unique_ptr<verbs::SharedReceiveQueue> impl;
  PdUse use;
};

struct QpObject : ibv_qp {
  std::byte reserve[kObjectReserve - sizeof(ibv_qp)];  // verbs_qp: its comp_mask tells whether there is an ibv_qp_ex
  std::shared_ptr<verbs::QueuePair> impl;
  verbs::QueuePair* api = nullptr;
  std::optional<SendBatch> batch;  // of a QP with send operations
  PdUse use;
};

inline ContextState& state_of(ibv_context* context) {
  return *static_cast<ContextMemory*>(Library::here().memory_of(context))->state;
}
inline verbs::Pd& impl(ibv_pd* pd) {
  return *static_cast<PdObject*>(pd)->impl;
}
inline verbs::CompletionQueue& impl(ibv_cq* cq) {
  return *static_cast<CqObject*>(cq)->impl;
}
inline verbs::QueuePair& impl(ibv_qp* qp) {
  return *static_cast<QpObject*>(qp)->api;
}
inline verbs::SharedReceiveQueue& impl(ibv_srq* srq) {
  return *static_cast<SrqObject*>(srq)->impl;
}
inline std::uint64_t handle_of(const void* object) {
  return reinterpret_cast<std::uintptr_t>(object);
}

// Sets errno too: callers look at either.
inline int failed(int error) {
  errno = error;
  return error;
}

// No exception passes to C. (A cancelled thread's unwinding is none of these, and goes on.)
template <class F>
int guarded(F&& body) {
  try {
    const int error = body();
    return error == 0 ? 0 : failed(error);
  } catch (const std::bad_alloc&) {
    return failed(ENOMEM);
  } catch (const std::system_error& e) {
    log::explain_shortage(e.code().value());
    return failed(e.code().value() != 0 ? e.code().value() : EIO);
  } catch (const std::exception&) {
    return failed(EIO);
  }
}

// The same for what ends an object: it waits for memory, as half of an end cannot be made good.
template <class F>
int guarded_end(F&& body) {
  const verbs::shortage::Scope patience;
  return guarded(std::forward<F>(body));
}

// A fresh object number for the `handle` fields, which only people read.
std::uint32_t next_handle();

// Waits until the program has acknowledged as many events of an object as it was given. Nothing: there is nobody who
// would.
void wait_acknowledged(pthread_mutex_t& mutex, pthread_cond_t& acknowledged, const std::uint32_t& count,
                       std::optional<std::uint64_t> given);

// Whether the program promised that one thread at a time uses what is made on it.
inline bool one_thread(ibv_pd* pd) {
  return static_cast<PdObject*>(pd)->thread != nullptr;
}

inline bool is_parent_domain(ibv_pd* pd) {
  return static_cast<PdObject*>(pd)->parent_of != nullptr;
}

// Objects without what libibverbs itself fills in: 0 or errno.
int make_cq(ibv_context* context, int cqe, ibv_comp_channel* channel, int vector, CqObject& cq);
int make_qp(ibv_pd* pd, ibv_qp_init_attr& init, QpObject& qp);
// With the interface of ibv_wr_*() where init asks for it.
int make_qp_ex(ibv_context* context, ibv_qp_init_attr_ex& init, ibv_qp** qp);

// What send_ops_flags may name for a queue pair of RD.
inline constexpr std::uint64_t kRdOperations = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
                                               IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
                                               IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
                                               IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_SEND_WITH_INV;

// The operations of each file.
std::span<const Operation> context_operations();
std::span<const Operation> address_operations();
std::span<const Operation> device_ex_operations();
std::span<const Operation> domain_operations();
std::span<const Operation> memory_operations();
std::span<const Operation> completion_operations();
std::span<const Operation> completion_ex_operations();
std::span<const Operation> queue_pair_operations();
std::span<const Operation> queue_pair_ex_operations();
std::span<const Operation> shared_receive_queue_operations();

// device.cc
const DeviceOps& device_ops();
void* alloc_context(ibv_device* device, int command_fd, void* private_data);

template <class F>
Operation operation(std::string_view name, F* function) {
  return {name, reinterpret_cast<Function>(function)};
}

}  // namespace ewarp::rdmav34
