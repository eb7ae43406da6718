// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// An opened RDMA device with a protection domain and one completion queue for everything.
#pragma once

#include <infiniband/verbs.h>

#include <string>

#include "mpi_shim/acp/verbs/transport.h"

namespace ewarp::acp {

class Device {
 public:
  Device() = default;
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  // name: of the device; empty: the first that has RD, ewarp_lo before others if `prefer_loopback`. Empty, or why not.
  std::string open(const std::string& name, bool prefer_loopback, int completions);
  ibv_context* context() const { return context_; }
  ibv_pd* pd() const { return pd_; }
  ibv_cq* cq() const { return cq_; }
  const union ibv_gid& gid() const { return gid_; }
  int descriptor() const { return channel_->fd; }
  void arm();
  void drain();

 private:
  std::string open_one(ibv_device* device);

  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  ibv_comp_channel* channel_ = nullptr;
  ibv_cq* cq_ = nullptr;
  union ibv_gid gid_ {};
};

// The errno that a completion's status means (see Completion).
int error_of(ibv_wc_status status);

}  // namespace ewarp::acp
