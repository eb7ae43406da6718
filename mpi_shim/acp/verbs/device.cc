// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "mpi_shim/acp/verbs/device.h"

#include <fcntl.h>
#include <infiniband/etherwarpdv.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "mpi_shim/acp/core/text.h"

namespace ewarp::acp {
namespace {

constexpr int kAccess =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

bool has_rd(ibv_context* context) {
  etherwarpdv_device_attr attr{};
  return etherwarpdv_query_device(context, &attr, sizeof attr) == 0 && (attr.device_caps & ETHERWARPDV_DEVICE_RD) != 0;
}

}  // namespace

std::string Device::open(const std::string& name, bool prefer_loopback, int completions) {
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  if (list == nullptr) return failed("ibv_get_device_list");
  std::string why = "no RDMA device" + (name.empty() ? " with reliable datagrams" : " " + name) +
                    "; run the program by `etherwarp acprun` or `etherwarp run`";
  for (const bool loopback : {true, false})
    for (int i = 0; i < count && context_ == nullptr; ++i) {
      const std::string own = ibv_get_device_name(list[i]);
      const bool suits = name.empty() ? loopback == (prefer_loopback && own == kLoopback) : loopback && own == name;
      if (suits) why = open_one(list[i]);
    }
  ibv_free_device_list(list);
  if (context_ == nullptr) return why;
  if (ibv_query_gid(context_, 1, 0, &gid_) != 0) return failed("ibv_query_gid");
  return prepare(completions);
}

std::string Device::adopt(ibv_context* context, int completions) {
  context_ = context;
  return prepare(completions);
}

std::string Device::prepare(int completions) {
  pd_ = ibv_alloc_pd(context_);
  channel_ = ibv_create_comp_channel(context_);
  if (pd_ == nullptr || channel_ == nullptr) return failed("ibv_alloc_pd, ibv_create_comp_channel");
  if (fcntl(channel_->fd, F_SETFL, fcntl(channel_->fd, F_GETFL) | O_NONBLOCK) != 0) return failed("fcntl");
  cq_ = ibv_create_cq(context_, completions, nullptr, channel_, 0);
  return cq_ == nullptr ? failed("ibv_create_cq") : "";
}

std::string Device::open_one(ibv_device* device) {
  ibv_context* context = ibv_open_device(device);
  if (context == nullptr) return failed(ibv_get_device_name(device));
  if (has_rd(context)) {
    context_ = context;
    own_ = true;
    return {};
  }
  const std::string why = std::string(ibv_get_device_name(device)) + " has no reliable datagrams";
  ibv_close_device(context);
  return why;
}

void Device::close() {
  if (cq_ != nullptr) ibv_destroy_cq(std::exchange(cq_, nullptr));
  if (channel_ != nullptr) ibv_destroy_comp_channel(std::exchange(channel_, nullptr));
  if (pd_ != nullptr) ibv_dealloc_pd(std::exchange(pd_, nullptr));
  if (own_) ibv_close_device(context_);
  context_ = nullptr;
  own_ = false;
}

bool Device::make_room(int completions) {
  return completions <= cq_->cqe || ibv_resize_cq(cq_, std::max(completions, 2 * cq_->cqe)) == 0;
}

bool Device::register_memory(void* memory, std::size_t octets, Registration* out) {
  ibv_mr* mr = ibv_reg_mr(pd_, memory, octets, kAccess);
  if (mr != nullptr) *out = registration(mr);
  return mr != nullptr;
}

void Device::deregister(void* handle) {
  ibv_dereg_mr(static_cast<ibv_mr*>(handle));
}

Registration Device::registration(void* handle) {
  const ibv_mr* mr = static_cast<ibv_mr*>(handle);
  return {handle, mr->lkey, mr->rkey};
}

void Device::arm() {
  ibv_req_notify_cq(cq_, 0);
}

void Device::drain() {
  ibv_cq* cq;
  void* context;
  while (ibv_get_cq_event(channel_, &cq, &context) == 0) ibv_ack_cq_events(cq, 1);
}

int error_of(ibv_wc_status status) {
  switch (status) {
    case IBV_WC_SUCCESS:
      return 0;
    case IBV_WC_REM_ACCESS_ERR:
    case IBV_WC_REM_INV_REQ_ERR:
      return EACCES;
    case IBV_WC_LOC_PROT_ERR:
      return EFAULT;
    case IBV_WC_RETRY_EXC_ERR:
    case IBV_WC_RNR_RETRY_EXC_ERR:
    case IBV_WC_REM_OP_ERR:
    case IBV_WC_WR_FLUSH_ERR:
      return ECONNRESET;
    default:
      return EIO;
  }
}

}  // namespace ewarp::acp
