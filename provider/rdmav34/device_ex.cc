// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What a device can do beyond ibv_device_attr, and its clock.
#include <algorithm>
#include <array>
#include <cstring>

#include "provider/rdmav34/objects.h"

namespace ewarp::rdmav34 {
namespace {

constexpr std::uint64_t kClockKhz = 1'000'000;  // device_clock() counts nanoseconds

constexpr std::uint32_t kMessages = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_SRQ_RECV;
constexpr std::uint32_t kAnything = kMessages | IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC;

// What is not set here is not offered: TSO, RSS, raw packets, tag matching, moderation of CQs, device
// memory, atomics towards the PCI bus.
int query_device_ex(ibv_context* context, const ibv_query_device_ex_input* input, ibv_device_attr_ex* attr,
                    std::size_t size) {
  return guarded([&] {
    if (input != nullptr && input->comp_mask != 0) return EINVAL;
    if (size < sizeof attr->orig_attr) return EINVAL;
    ibv_device_attr_ex all{};
    state_of(context).context.device().query(all.orig_attr);
    all.completion_timestamp_mask = ~std::uint64_t{0};
    all.hca_core_clock = kClockKhz;
    all.device_cap_flags_ex = all.orig_attr.device_cap_flags;
    all.phys_port_cnt_ex = all.orig_attr.phys_port_cnt;
    if (verbs::on_demand_paging())
      all.odp_caps = {IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT, {kAnything, 0, kMessages}};
    // The library's struct may be shorter than ours, or longer.
    std::memset(static_cast<void*>(attr), 0, size);
    std::memcpy(static_cast<void*>(attr), &all, std::min(size, sizeof all));
    return 0;
  });
}

// Seconds stay 0, as with the devices that programs know: they take the nanoseconds for the number of cycles.
int query_rt_values(ibv_context*, ibv_values_ex* values) {
  const bool raw = (values->comp_mask & IBV_VALUES_MASK_RAW_CLOCK) != 0;
  if (raw) values->raw_clock = timespec{0, static_cast<long>(verbs::device_clock())};
  values->comp_mask = raw ? IBV_VALUES_MASK_RAW_CLOCK : 0;
  return 0;
}

}  // namespace

std::span<const Operation> device_ex_operations() {
  static const std::array all = {
      operation("query_device_ex", query_device_ex),
      operation("query_rt_values", query_rt_values),
  };
  return all;
}

}  // namespace ewarp::rdmav34
