// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The opened device.
#include <rdma/ib_user_verbs.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "provider/engine/shortage.h"
#include "provider/host/fds.h"
#include "provider/host/names.h"
#include "provider/rdmav34/objects.h"
#include "provider/verbs/device/port_monitor.h"

namespace ewarp::rdmav34 {
namespace {

// ibv_port_attr as it was before rdma-core 49; the library may have no more room than this.
constexpr std::size_t kPortAttrOctets = 52;

int query_port(ibv_context* context, std::uint8_t port, ibv_port_attr* attr) {
  return guarded([&] { return state_of(context).context.device().query_port(port, attr, kPortAttrOctets); });
}

// In units of 100 Mb/s. Asked since rdma-core 62.
int query_port_speed(ibv_context* context, std::uint32_t port, std::uint64_t* speed) {
  return guarded([&] {
    if (port > UINT8_MAX) return EINVAL;
    return state_of(context).context.device().query_speed(static_cast<std::uint8_t>(port), speed);
  });
}

void free_context(ibv_context* context) {
  const Library& library = Library::here();
  void* memory = library.memory_of(context);
  ContextState* state = &state_of(context);
  verbs::port_monitor().remove(state->context);
  library.uninit_context(memory);
  free(memory);
  if (state->objects == 0) delete state;
}

int add_state(ibv_context* context, ContextMemory& memory) {
  return guarded([&] {
    int fd = -1, error = 0;
    auto async = host::open_event_channel(sizeof(ib_uverbs_async_event_desc), &fd, &error);
    if (!async) return error;
    auto& device = *reinterpret_cast<DeviceObject*>(context->device)->device;
    context->async_fd = fd;  // closed by uninit_context()
    context->num_comp_vectors = 1;
    auto state = std::make_unique<ContextState>(device, std::move(async));
    verbs::port_monitor().add(state->context);
    memory.state = state.release();
    return 0;
  });
}

}  // namespace

std::uint32_t next_handle() {
  static std::atomic<std::uint32_t> last{0};
  return ++last;
}

void wait_acknowledged(pthread_mutex_t& mutex, pthread_cond_t& acknowledged, const std::uint32_t& count,
                       std::optional<std::uint64_t> given) {
  if (!given) return;
  pthread_mutex_lock(&mutex);
  while (count != static_cast<std::uint32_t>(*given)) pthread_cond_wait(&acknowledged, &mutex);
  pthread_mutex_unlock(&mutex);
}

void* alloc_context(ibv_device* device, int command_fd, void*) {
  const Library& library = Library::here();
  void* memory = library.init_and_alloc_context(device, command_fd, sizeof(ContextMemory), host::kDriverId);
  if (memory == nullptr) return nullptr;
  if (const int error = add_state(library.context_in(memory), *static_cast<ContextMemory*>(memory)); error != 0) {
    library.uninit_context(memory);
    free(memory);
    errno = error;
    return nullptr;
  }
  const verbs::shortage::Scope patience;  // libibverbs knows no way back from here
  std::vector<Operation> all;
  for (const auto part : {context_operations(), address_operations(), device_ex_operations(), domain_operations(),
                          memory_operations(), completion_operations(), completion_ex_operations(),
                          queue_pair_operations(), queue_pair_ex_operations(), shared_receive_queue_operations()})
    all.insert(all.end(), part.begin(), part.end());
  library.set_ops(memory, all);
  return memory;
}

std::span<const Operation> context_operations() {
  static const std::array all = {
      operation("query_port", query_port),
      operation("query_port_speed", query_port_speed),
      operation("free_context", free_context),
  };
  return all;
}

}  // namespace ewarp::rdmav34
