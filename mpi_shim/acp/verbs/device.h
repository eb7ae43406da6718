// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// An opened RDMA device with a protection domain and one completion queue for everything.
#pragma once

#include <infiniband/verbs.h>

#include <string>

#include "mpi_shim/acp/verbs/transport.h"

namespace ewarp::acp {

class Device {
 public:
  static constexpr const char* kLoopback = "ewarp_lo";

  Device() = default;
  ~Device() { close(); }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  // name: of the device; empty: the first that has RD, ewarp_lo before others if `prefer_loopback`. Empty, or why not.
  std::string open(const std::string& name, bool prefer_loopback, int completions);
  // One that librdmacm has opened, and will close. Empty, or why not.
  std::string adopt(ibv_context* context, int completions);
  // Before the destructor, where a device that was adopted ends sooner than this.
  void close();
  // So many completions at a time. False: the device does not take it.
  bool make_room(int completions);
  ibv_context* context() const { return context_; }
  ibv_pd* pd() const { return pd_; }
  ibv_cq* cq() const { return cq_; }
  const union ibv_gid& gid() const { return gid_; }

  // As Transport's.
  bool register_memory(void* memory, std::size_t octets, Registration* out);
  static void deregister(void* handle);
  static Registration registration(void* handle);
  int descriptor() const { return channel_->fd; }
  void arm();
  void drain();

 private:
  std::string open_one(ibv_device* device);
  std::string prepare(int completions);

  ibv_context* context_ = nullptr;
  bool own_ = false;  // this closes it
  ibv_pd* pd_ = nullptr;
  ibv_comp_channel* channel_ = nullptr;
  ibv_cq* cq_ = nullptr;
  union ibv_gid gid_ {};
};

// The errno that a completion's status means (see Completion).
int error_of(ibv_wc_status status);

}  // namespace ewarp::acp
