// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// An RDMA device, opened by an address that it has, with one protection domain. Endpoints and registered memory that
// share it can be used with each other.
//
// Threading: every function may be called by any thread at any time.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "mpi_shim/channel/core/types.h"
#include "mpi_shim/channel/core/wire.h"
#include "mpi_shim/channel/verbs/address.h"

struct ibv_context;
struct ibv_mr;
struct ibv_pd;
struct rdma_cm_id;
struct rdma_event_channel;

namespace ewarp::channel {

struct Refusal;

class Device {
 public:
  // Null, *error (what was refused and why) and *code (as an errno, if code is not null) if no device has this address.
  // The port does not matter.
  static std::shared_ptr<Device> open(const Address& address, std::string* error, int* code = nullptr);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  ibv_context* context() const { return context_; }
  ibv_pd* pd() const { return pd_; }
  const std::string& name() const { return name_; }
  // The most octets of one Write or Read.
  std::size_t longest_transfer() const { return longest_transfer_; }

  // Memory that peers of this device's endpoints may put to (writable) and get from (readable).
  struct Region {
    wire::Remote remote;  // of its first octet, for the peers
    ibv_mr* memory = nullptr;
  };
  std::optional<Region> expose(MutableOctets memory, bool readable, bool writable);
  void conceal(const Region& region);

 private:
  Device() = default;
  Refusal find(const Address& address);
  Refusal query();

  rdma_event_channel* channel_ = nullptr;
  rdma_cm_id* id_ = nullptr;  // keeps the device open
  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  std::string name_;
  std::size_t longest_transfer_ = 0;
};

}  // namespace ewarp::channel
