// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "mpi_shim/channel/verbs/request_memory.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <new>

#include "mpi_shim/channel/core/wire.h"
#include "mpi_shim/channel/verbs/element.h"

namespace ewarp::channel {
namespace {

// Null where the adapter wants to be told of each piece (no on-demand paging of the whole address space).
ibv_mr* register_everything(const Device& device) {
  constexpr std::uint32_t kNeeded = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_WRITE;
  ibv_device_attr_ex attributes{};
  if (ibv_query_device_ex(device.context(), nullptr, &attributes) != 0) return nullptr;
  const ibv_odp_caps& caps = attributes.odp_caps;
  if ((caps.general_caps & IBV_ODP_SUPPORT_IMPLICIT) == 0 || (caps.per_transport_caps.rc_odp_caps & kNeeded) != kNeeded)
    return nullptr;
  return ibv_reg_mr(device.pd(), nullptr, SIZE_MAX, IBV_ACCESS_ON_DEMAND);
}

void warn_once(const std::string& why) {
  static std::atomic<bool> said{false};
  if (said.exchange(true, std::memory_order_relaxed)) return;
  const std::string line = "etherwarp: warn: registration=monitored: " + why + "; no registration is kept\n";
  [[maybe_unused]] const ssize_t n = write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace

void RequestMemory::open(const Device& device, Registration how, std::size_t eager_threshold) {
  assert(pd_ == nullptr);
  pd_ = device.pd();
  headers_.emplace(pd_, wire::Message::kLongest, 64);
  bounces_.emplace(pd_, wire::Message::kLongest + eager_threshold, 8);
  sinks_.emplace(pd_, std::max(eager_threshold, std::size_t{1}), 8, kSinkAccess);
  MemoryCosts costs = CopyPolicy::measure(pd_);
  if (how != Registration::kept && how != Registration::monitored) everything_ = register_everything(device);
  how = watched(how, costs);
  policy_.emplace(how, costs);
  if (everything_ == nullptr && !policy_->keeps()) everything_ = register_everything(device);
}

// Registrations are kept if that is asked for, or if the adapter pins, as far as there is a monitor.
Registration RequestMemory::watched(Registration how, MemoryCosts& costs) {
  const bool asked = how == Registration::monitored;
  const bool pins = everything_ == nullptr && CopyPolicy::costly(costs);
  if (!asked && !(how == Registration::measured && pins)) return how;
  std::string why;
  monitor_ = MemoryMonitor::of_process(&why);
  if (monitor_ == nullptr) {
    if (asked) warn_once(why);
    return Registration::measured;
  }
  costs.lookup_ns += monitor_->settled_ns();
  return Registration::monitored;
}

void RequestMemory::attach(Counters& counters, std::size_t kept) {
  assert(policy_ && !cache_);
  counters_ = &counters;
  cache_.emplace(pd_, policy_->keeps() ? kept : 0, monitor_, counters);
}

RequestMemory::~RequestMemory() {
  if (everything_ != nullptr) ibv_dereg_mr(everything_);
}

// Null: it is better copied, or cannot be registered.
RegistrationCache::Region* RequestMemory::worth_registration(Octets memory, int access) {
  using enum RegistrationCache::Stay;
  if (!policy_->worth_registration(memory)) return nullptr;
  RegistrationCache::Region* region = nullptr;
  try {
    region = cache_->take(memory, access, policy_->keeps() ? or_nothing : never);
  } catch (const std::bad_alloc&) {
  }
  if (region == nullptr) policy_->in_vain(memory);
  if (region != nullptr && policy_->keeps()) counters_->add(Count::frequent_buffer_sends);
  return region;
}

bool RequestMemory::in_place(Loan& loan, Octets payload) {
  if (everything_ != nullptr) return policy_->slow_to_copy(payload.size());
  loan.region = worth_registration(payload, 0);
  return loan.region != nullptr;
}

std::uint32_t RequestMemory::lkey(const RegistrationCache::Region* region) const {
  assert(region != nullptr || everything_ != nullptr);
  return region != nullptr ? region->mr->lkey : everything_->lkey;
}

std::optional<int> RequestMemory::gather(Loan& loan, std::span<ibv_sge, 2> out, Octets header, Octets payload,
                                         bool copy) {
  assert(header.size() <= headers_->octets());
  const std::size_t all = header.size() + payload.size();
  loan.in_place = !copy && !payload.empty() && in_place(loan, payload);
  const bool copied = !loan.in_place && !payload.empty();
  std::size_t count = 0;
  if (copied || !header.empty()) {
    assert(!copied || all <= bounces_->octets());
    BufferPool::Buffer& buffer = copied ? loan.bounce : loan.header;
    buffer = (copied ? *bounces_ : *headers_).take();
    if (buffer.data == nullptr) return std::nullopt;
    std::copy(header.begin(), header.end(), buffer.data);
    if (copied) {
      std::copy(payload.begin(), payload.end(), buffer.data + header.size());
      if (payload.size() > CopyPolicy::kAlwaysCopied) counters_->add(Count::bounce_copies);
    }
    out[count++] = element(buffer.data, copied ? all : header.size(), buffer.lkey);
  }
  if (loan.in_place) out[count++] = element(payload.data(), payload.size(), lkey(loan.region));
  return static_cast<int>(count);
}

std::optional<ibv_sge> RequestMemory::scatter(Loan& loan, MutableOctets target) {
  loan.region = worth_registration(target, kSinkAccess);
  if (loan.region != nullptr) return element(target.data(), target.size(), lkey(loan.region));
  assert(target.size() <= sinks_->octets());
  loan.sink = sinks_->take();
  if (loan.sink.data == nullptr) return std::nullopt;
  loan.target = target;
  if (target.size() > CopyPolicy::kAlwaysCopied) counters_->add(Count::bounce_copies);
  return element(loan.sink.data, target.size(), loan.sink.lkey);
}

void RequestMemory::filled(const Loan& loan) {
  if (loan.sink.data != nullptr) std::copy_n(loan.sink.data, loan.target.size(), loan.target.data());
}

void RequestMemory::give_back(const Loan& loan) {
  if (loan.header.data != nullptr) headers_->give(loan.header);
  if (loan.bounce.data != nullptr) bounces_->give(loan.bounce);
  if (loan.sink.data != nullptr) sinks_->give(loan.sink);
  if (loan.region != nullptr) cache_->give(*loan.region);
}

// A sink of Reads is written by peers, too, as iWARP sees it.
Exposed* RequestMemory::expose(MutableOctets memory, Transport::Reach reach) {
  if (reach == Transport::Reach::own && everything_ != nullptr) {
    assert(!memory.empty());
    // Memory that is not there is found out here, as by every copy, and not by the adapter, which would end the
    // connection.
    for (const std::size_t at : {std::size_t{0}, memory.size() - 1})
      static_cast<void>(*static_cast<const volatile std::byte*>(memory.data() + at));
    return &own_;
  }
  const int access = reach == Transport::Reach::own    ? 0
                     : reach == Transport::Reach::read ? IBV_ACCESS_REMOTE_READ
                                                       : kSinkAccess | IBV_ACCESS_REMOTE_READ;
  return expose(memory, access, RegistrationCache::Stay::if_it_may);
}

Exposed* RequestMemory::expose_window(MutableOctets memory) {
  return expose(memory, kSinkAccess | IBV_ACCESS_REMOTE_READ, RegistrationCache::Stay::never);
}

Exposed* RequestMemory::expose(MutableOctets memory, int access, RegistrationCache::Stay stay) {
  auto out = std::make_unique<Region>();  // first: without memory, no region is taken
  RegistrationCache::Region* region = cache_->take(memory, access, stay);
  if (region == nullptr) return nullptr;
  out->region = region;
  out->remote = {.address = reinterpret_cast<std::uint64_t>(memory.data()), .key = region->mr->rkey};
  return out.release();
}

void RequestMemory::conceal(Exposed* memory) {
  assert(memory != nullptr);
  if (memory == &own_) return;
  const std::unique_ptr<Region> region(static_cast<Region*>(memory));
  cache_->give(*region->region);
}

ibv_sge RequestMemory::exposed(Octets octets, const Exposed& memory) const {
  return element(octets.data(), octets.size(), lkey(static_cast<const Region&>(memory).region));
}

}  // namespace ewarp::channel
