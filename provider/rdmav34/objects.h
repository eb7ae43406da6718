// The objects that libibverbs hands to programs, with ours behind them.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <exception>
#include <memory>
#include <new>
#include <system_error>

#include "provider/rdmav34/abi.h"
#include "provider/verbs/completion_queue.h"
#include "provider/verbs/context.h"
#include "provider/verbs/log.h"
#include "provider/verbs/memory.h"
#include "provider/verbs/queue_pair_api.h"
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

struct PdObject : ibv_pd {
  PdObject(ibv_context* c, verbs::Context& impl_context) : ibv_pd{}, impl(impl_context) { context = c; }
  verbs::Pd impl;
};

struct MrObject {
  VerbsMr base{};
  verbs::MemoryRegion* region = nullptr;
};

struct CqObject : ibv_cq {
  std::byte reserve[kObjectReserve - sizeof(ibv_cq)];  // the library's verbs_cq is longer than ibv_cq
  std::unique_ptr<verbs::CompletionQueue> impl;
};

struct SrqObject : ibv_srq {
  std::byte reserve[kObjectReserve - sizeof(ibv_srq)];  // verbs_srq
  std::unique_ptr<verbs::SharedReceiveQueue> impl;
};

struct QpObject : ibv_qp {
  std::byte reserve[kObjectReserve - sizeof(ibv_qp)];  // verbs_qp: its comp_mask must read 0
  std::shared_ptr<verbs::QueuePair> impl;
  verbs::QueuePairApi* api = nullptr;
};

inline ContextState& state_of(ibv_context* context) {
  return *static_cast<ContextMemory*>(Library::here().memory_of(context))->state;
}
inline verbs::Pd& impl(ibv_pd* pd) {
  return static_cast<PdObject*>(pd)->impl;
}
inline verbs::CompletionQueue& impl(ibv_cq* cq) {
  return *static_cast<CqObject*>(cq)->impl;
}
inline verbs::QueuePairApi& impl(ibv_qp* qp) {
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

// A fresh object number for the `handle` fields, which only people read.
std::uint32_t next_handle();

// Waits until the program has acknowledged as many events of an object as it was given.
void wait_acknowledged(pthread_mutex_t& mutex, pthread_cond_t& acknowledged, const std::uint32_t& count,
                       std::uint64_t given);

// The operations of each file.
std::span<const Operation> context_operations();
std::span<const Operation> memory_operations();
std::span<const Operation> completion_operations();
std::span<const Operation> queue_pair_operations();
std::span<const Operation> shared_receive_queue_operations();

// device.cc
const DeviceOps& device_ops();
void* alloc_context(ibv_device* device, int command_fd, void* private_data);

template <class F>
Operation operation(std::string_view name, F* function) {
  return {name, reinterpret_cast<Function>(function)};
}

}  // namespace ewarp::rdmav34
