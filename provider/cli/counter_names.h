// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What EtherWARP's processes count, by the names under which `etherwarp stat` shows it, and the numbers that have
// names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>

#include "provider/base/stats.h"

namespace ewarp::cli {

namespace names {

using stats::Counter;
using stats::Traffic;

struct Named {
  const char* name;
  Counter Traffic::*counter;
};
inline constexpr Named kTraffic[] = {
    {"tx_octets", &Traffic::tx_octets},
    {"rx_octets", &Traffic::rx_octets},
    {"tx_messages", &Traffic::tx_messages},
    {"rx_messages", &Traffic::rx_messages},
    {"tx_sends", &Traffic::tx_sends},
    {"rx_sends", &Traffic::rx_sends},
    {"tx_writes", &Traffic::tx_writes},
    {"rx_write_segments", &Traffic::rx_write_segments},
    {"tx_reads", &Traffic::tx_reads},
    {"rx_reads", &Traffic::rx_reads},
    {"completions", &Traffic::completions},
    {"flushed_completions", &Traffic::flushed_completions},
    {"error_completions", &Traffic::error_completions},
    {"terminates_sent", &Traffic::terminates_sent},
    {"terminates_received", &Traffic::terminates_received},
    {"crc_errors", &Traffic::crc_errors},
};
static_assert(sizeof(Traffic) == std::size(kTraffic) * sizeof(Counter), "a counter has no name");

struct NamedDevice {
  const char* name;
  Counter stats::DevicePage::*counter;
};
inline constexpr NamedDevice kDevice[] = {
    {"qps_created", &stats::DevicePage::qps_created},     {"qps_destroyed", &stats::DevicePage::qps_destroyed},
    {"connections", &stats::DevicePage::connections},     {"connect_failures", &stats::DevicePage::connect_failures},
    {"disconnects", &stats::DevicePage::disconnects},     {"local_streams", &stats::DevicePage::local_streams},
    {"half_messages", &stats::DevicePage::half_messages},
};

// Of the process's datagrams; the drops in the order of llp::DatagramDrop.
inline constexpr const char* kDrops[] = {
    "rx_wrong_address", "rx_too_short", "rx_bad_version", "rx_bad_type",   "rx_bad_length", "rx_bad_crc", "rx_no_qp",
    "rx_wrong_type",    "rx_bad_qkey",  "rx_bad_segment", "rx_bad_opcode", "rx_no_receive", "rx_too_long"};
static_assert(std::size(kDrops) == stats::Datagrams::kCauses, "a cause has no name");
struct NamedDatagram {
  const char* name;
  Counter stats::Datagrams::*counter;
};
inline constexpr NamedDatagram kDatagrams[] = {
    {"tx_lost", &stats::Datagrams::tx_lost},
    {"error_reports_sent", &stats::Datagrams::errors_sent},
    {"error_reports_received", &stats::Datagrams::errors_received},
    {"error_reports_suppressed", &stats::Datagrams::errors_suppressed},
};
static_assert(sizeof(stats::Datagrams) == (std::size(kDrops) + std::size(kDatagrams)) * sizeof(Counter),
              "a counter has no name");

struct NamedReliable {
  const char* name;
  Counter stats::Reliable::*counter;
};
inline constexpr NamedReliable kReliable[] = {
    {"associations", &stats::Reliable::associations},
    {"opened", &stats::Reliable::opened},
    {"accepted", &stats::Reliable::accepted},
    {"closed", &stats::Reliable::closed},
    {"unreachable", &stats::Reliable::unreachable},
    {"tx_segments", &stats::Reliable::tx_segments},
    {"retransmitted", &stats::Reliable::retransmitted},
    {"timeouts", &stats::Reliable::timeouts},
    {"losses", &stats::Reliable::losses},
    {"probes", &stats::Reliable::probes},
    {"rx_segments", &stats::Reliable::rx_segments},
    {"rx_duplicates", &stats::Reliable::duplicates},
    {"rx_out_of_order", &stats::Reliable::out_of_order},
    {"rx_not_held", &stats::Reliable::not_held},
    {"rnr_sent", &stats::Reliable::rnr_sent},
    {"rnr_received", &stats::Reliable::rnr_received},
    {"reports_sent", &stats::Reliable::reports_sent},
    {"reports_received", &stats::Reliable::reports_received},
    {"resets_sent", &stats::Reliable::resets_sent},
    {"resets_received", &stats::Reliable::resets_received},
    {"challenges", &stats::Reliable::challenges},
    {"rx_runt", &stats::Reliable::dropped_runt},
    {"rx_bad_version", &stats::Reliable::dropped_version},
    {"rx_bad_length", &stats::Reliable::dropped_length},
    {"rx_bad_crc", &stats::Reliable::dropped_crc},
    {"rx_no_qp", &stats::Reliable::dropped_qp},
    {"rx_bad_tag", &stats::Reliable::dropped_tag},
    {"rx_full", &stats::Reliable::dropped_full},
    {"violations", &stats::Reliable::violations},
    {"rx_wrong_stags", &stats::Reliable::wrong_stags},
    {"round_trip_ns", &stats::Reliable::round_trip_ns},
};
static_assert(sizeof(stats::Reliable) == std::size(kReliable) * sizeof(Counter), "a counter has no name");

}  // namespace names

// f(name, value) for each counter, in the order in which they are shown.
template <class F>
void each(const stats::Traffic& t, F f) {
  for (const auto& n : names::kTraffic) f(n.name, (t.*n.counter).load());
}
// Without its traffic.
template <class F>
void each(const stats::DevicePage& d, F f) {
  for (const auto& n : names::kDevice) f(n.name, (d.*n.counter).load());
}
template <class F>
void each(const stats::Datagrams& d, F f) {
  for (std::size_t i = 0; i < std::size(names::kDrops); ++i) f(names::kDrops[i], d.drops[i].load());
  for (const auto& n : names::kDatagrams) f(n.name, (d.*n.counter).load());
}
template <class F>
void each(const stats::Reliable& r, F f) {
  for (const auto& n : names::kReliable) f(n.name, (r.*n.counter).load());
}

// ibv_qp_state and ibv_qp_type by their numbers, which come from another process: one without a name is shown as it is.
std::string state_name(std::uint32_t state);
std::string type_name(std::uint32_t type);
// "?": the process has no such device.
std::string device_name(const stats::Page& page, std::uint32_t index);

}  // namespace ewarp::cli
