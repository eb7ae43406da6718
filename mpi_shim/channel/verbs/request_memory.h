// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Registered memory of requests: buffers of the channel's for headers and copies, and the user's own memory where it is
// registered. A request has a loan of it from when it is posted until it is complete.
//
// Threading: none; the endpoint's lock is held in every call.
#pragma once

#include <infiniband/verbs.h>

#include <cassert>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "mpi_shim/channel/core/counters.h"
#include "mpi_shim/channel/core/transport.h"
#include "mpi_shim/channel/verbs/buffer_pool.h"
#include "mpi_shim/channel/verbs/copy_policy.h"
#include "mpi_shim/channel/verbs/device.h"
#include "mpi_shim/channel/verbs/registration_cache.h"

namespace ewarp::channel {

class RequestMemory {
 public:
  RequestMemory() = default;
  ~RequestMemory();
  RequestMemory(const RequestMemory&) = delete;
  RequestMemory& operator=(const RequestMemory&) = delete;

  // Measures, too. What a send copies has eager_threshold octets at most. The device stays for longer than this.
  // Registration::monitored without a monitor is as measured.
  void open(const Device& device, Registration how, std::size_t eager_threshold);
  // Requires: open(), and nothing else before. kept: registrations without a user that stay, where they are kept.
  void attach(Counters& counters, std::size_t kept);

  struct Loan {
    BufferPool::Buffer header, bounce, sink;
    MutableOctets target;  // of a Read into sink
    RegistrationCache::Region* region = nullptr;
    bool in_place = false;  // the user's memory is used until the request is complete
  };
  // Header and payload as the one or two elements of a Send or Write. copy: the payload's memory is not used itself.
  // Nothing if there is no memory; what is in the loan is to be given back all the same.
  std::optional<int> gather(Loan& loan, std::span<ibv_sge, 2> out, Octets header, Octets payload, bool copy);
  // Where a Read into small memory puts its data; filled() when that is there. Nothing if there is no memory, and no
  // loan.
  std::optional<ibv_sge> scatter(Loan& loan, MutableOctets target);
  void filled(const Loan& loan);
  void give_back(const Loan& loan);

  // As Transport's.
  Exposed* expose(MutableOctets memory, Transport::Reach reach);
  // For peers until it is concealed, and no longer.
  Exposed* expose_window(MutableOctets memory);
  void conceal(Exposed* memory);
  // Octets of exposed memory as an element.
  ibv_sge exposed(Octets octets, const Exposed& memory) const;

  RegistrationCache& registrations() { return *cache_; }

 private:
  struct Region : Exposed {
    RegistrationCache::Region* region = nullptr;  // none: everything_
  };
  Registration watched(Registration how, MemoryCosts& costs);
  RegistrationCache::Region* worth_registration(Octets memory, int access);
  bool in_place(Loan& loan, Octets payload);
  Exposed* expose(MutableOctets memory, int access, RegistrationCache::Stay stay);
  std::uint32_t lkey(const RegistrationCache::Region* region) const;

  ibv_pd* pd_ = nullptr;
  Counters* counters_ = nullptr;
  MemoryMonitor* monitor_ = nullptr;  // none where nothing is kept, or the application tells
  std::optional<CopyPolicy> policy_;
  std::optional<BufferPool> headers_, bounces_, sinks_;
  std::optional<RegistrationCache> cache_;
  ibv_mr* everything_ = nullptr;  // all memory, for this end alone; where the adapter pins nothing
  Region own_;                    // what expose() gives for that
};

}  // namespace ewarp::channel
