// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "mpi_shim/channel/verbs/device.h"

#include <infiniband/verbs.h>
#include <poll.h>
#include <rdma/rdma_cma.h>

#include <cerrno>

#include "mpi_shim/channel/verbs/failed.h"

namespace ewarp::channel {
namespace {

constexpr int kResolveMs = 2000;

// The answer to one question on a channel that nobody else reads. 0 or errno.
int wait_for(rdma_event_channel* channel, rdma_cm_event_type wanted) {
  pollfd fd{.fd = channel->fd, .events = POLLIN, .revents = 0};
  if (poll(&fd, 1, kResolveMs) != 1) return ETIMEDOUT;
  rdma_cm_event* event = nullptr;
  if (rdma_get_cm_event(channel, &event) != 0) return errno;
  const bool good = event->event == wanted;
  rdma_ack_cm_event(event);
  return good ? 0 : ENODEV;
}

}  // namespace

std::shared_ptr<Device> Device::open(const Address& address, std::string* error, int* code) {
  std::shared_ptr<Device> device(new Device);
  Refusal why = device->find(address);
  if (!why) why = device->query();
  if (!why) return device;
  *error = why.text;
  if (code != nullptr) *code = why.code;
  return nullptr;
}

// Who binds a loopback address may be told no device; who resolves it is told one.
Refusal Device::find(const Address& address) {
  channel_ = rdma_create_event_channel();
  if (channel_ == nullptr) return refused("rdma_create_event_channel");
  if (rdma_create_id(channel_, &id_, nullptr, RDMA_PS_TCP) != 0) return refused("rdma_create_id");
  Address any_port = address;
  any_port.port = 0;
  sockaddr_storage at = any_port.socket_address();
  if (rdma_bind_addr(id_, reinterpret_cast<sockaddr*>(&at)) != 0) return refused("rdma_bind_addr", address.text());
  if (id_->verbs == nullptr && (rdma_resolve_addr(id_, nullptr, reinterpret_cast<sockaddr*>(&at), kResolveMs) != 0 ||
                                wait_for(channel_, RDMA_CM_EVENT_ADDR_RESOLVED) != 0 || id_->verbs == nullptr))
    return {.text = "no RDMA device has the address " + address.text(), .code = ENODEV};
  context_ = id_->verbs;
  return {};
}

Refusal Device::query() {
  name_ = ibv_get_device_name(context_->device);
  ibv_port_attr port{};
  const std::uint8_t number = id_->port_num != 0 ? id_->port_num : 1;
  if (ibv_query_port(context_, number, &port) != 0) return refused("ibv_query_port");
  constexpr std::uint32_t kUsual = 1u << 30;  // of adapters that do not say
  longest_transfer_ = port.max_msg_sz != 0 ? port.max_msg_sz : kUsual;
  pd_ = ibv_alloc_pd(context_);
  return pd_ == nullptr ? refused("ibv_alloc_pd") : Refusal();
}

Device::~Device() {
  if (pd_ != nullptr) ibv_dealloc_pd(pd_);
  if (id_ != nullptr) rdma_destroy_id(id_);
  if (channel_ != nullptr) rdma_destroy_event_channel(channel_);
}

// iWARP wants the right to write remotely where a Read puts its data, and adapters the local one with it.
std::optional<Device::Region> Device::expose(MutableOctets memory, bool readable, bool writable) {
  const int access =
      (readable ? IBV_ACCESS_REMOTE_READ : 0) | (writable ? IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_LOCAL_WRITE : 0);
  ibv_mr* mr = ibv_reg_mr(pd_, memory.data(), memory.size(), access);
  if (mr == nullptr) return std::nullopt;
  return Region{.remote = {.address = reinterpret_cast<std::uint64_t>(memory.data()), .key = mr->rkey}, .memory = mr};
}

void Device::conceal(const Region& region) {
  ibv_dereg_mr(region.memory);
}

}  // namespace ewarp::channel
