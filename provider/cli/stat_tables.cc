// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/cli/stat_tables.h"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <vector>

#include "provider/cli/channel_counters.h"
#include "provider/cli/counter_names.h"
#include "provider/cli/table.h"

namespace ewarp::cli {
namespace {

std::uint64_t errors(const stats::Traffic& t) {
  return t.error_completions + t.terminates_sent + t.terminates_received + t.crc_errors;
}

double seconds_up(const stats::Page& p) {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return std::max(0.0, static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9 -
                           static_cast<double>(p.start_ns) * 1e-9);
}

std::string duration(double s) {
  const auto n = static_cast<unsigned long long>(s);
  if (n < 60) return fmt::format("{}s", n);
  if (n < 3600) return fmt::format("{}m{:02}s", n / 60, n % 60);
  return fmt::format("{}h{:02}m", n / 3600, n / 60 % 60);
}

void add_rates(std::vector<std::string>& row, const std::optional<std::pair<double, double>>& rates) {
  if (rates) row.insert(row.end(), {in_units(rates->first), in_units(rates->second)});
}

struct QpRow {
  std::vector<std::string> cells;
  double busy = 0;  // octets a second, or in all
};

QpRow row_of(const stats::Page& p, const stats::QpPage& q, Rates* rates) {
  const auto& t = q.traffic;
  const std::uint32_t peer = q.peer_number;
  QpRow row;
  row.cells = {fmt::format("{}", p.pid),
               fmt::format("{:#08x}", q.number.load()),
               type_name(q.type),
               device_name(p, q.device),
               state_name(q.state),
               q.peer[0] != '\0' ? q.peer : "-",
               peer != 0 ? fmt::format("{:#08x}", peer) : "-",
               q.peer[0] == '\0' ? "-"
               : q.local != 0    ? "local"
                                 : "tcp",
               fmt::format("{}", t.tx_messages.load()),
               fmt::format("{}", t.rx_messages.load()),
               in_units(static_cast<double>(t.tx_octets)),
               in_units(static_cast<double>(t.rx_octets)),
               fmt::format("{}", t.completions.load()),
               fmt::format("{}", errors(t))};
  row.busy = static_cast<double>(t.tx_octets + t.rx_octets);
  if (rates == nullptr) return row;
  const auto now = rates->of({p.pid, row.cells[1]}, t);
  if (now) row.busy = now->first + now->second;
  add_rates(row.cells, now);
  return row;
}

// "name value" for each counter of the group that is not zero.
template <class Group>
void add_nonzero(std::vector<std::string>& parts, const Group& group) {
  each(group, [&](const char* name, std::uint64_t value) {
    if (value != 0) parts.push_back(fmt::format("{} {}", name, value));
  });
}

std::string paragraph(const std::string& what, const std::vector<std::string>& parts) {
  return parts.empty() ? "" : wrapped(fmt::format("{}: {}", what, fmt::join(parts, ", ")), 2, 120);
}

template <class Group>
std::string paragraph_of(const char* what, const Group& group) {
  std::vector<std::string> parts;
  add_nonzero(parts, group);
  return paragraph(what, parts);
}

}  // namespace

std::string summary(std::span<const stats::Snapshot> processes, Rates* rates) {
  std::vector<std::string> headings = {"PID",     "COMMAND", "UP",         "POLLER",     "DEVICE", ">QPS",
                                       ">TX MSG", ">RX MSG", ">TX OCTETS", ">RX OCTETS", ">ERRORS"};
  if (rates != nullptr) headings.insert(headings.end(), {">TX/S", ">RX/S"});
  Table table(headings);
  for (const auto& s : processes) {
    const auto& p = *s.page;
    bool first = true;
    for (std::uint32_t i = 0; i < std::max(p.device_count, 1u); ++i) {
      const auto& d = p.devices[i];
      const bool quiet = d.qps_created == 0 && d.connections == 0 && d.traffic.tx_octets + d.traffic.rx_octets == 0;
      if (quiet && !(first && i + 1 >= p.device_count)) continue;  // devices that the process did not use
      const auto& t = d.traffic;
      std::vector<std::string> row =
          first ? std::vector<std::string>{fmt::format("{}", p.pid), p.command,
                                           s.ended ? "ended" : duration(seconds_up(p)), p.poller}
                : std::vector<std::string>(4);
      first = false;
      row.insert(row.end(), {quiet ? "-" : d.name, fmt::format("{}", d.qps_created - d.qps_destroyed),
                             fmt::format("{}", t.tx_messages.load()), fmt::format("{}", t.rx_messages.load()),
                             in_units(static_cast<double>(t.tx_octets)), in_units(static_cast<double>(t.rx_octets)),
                             fmt::format("{}", errors(t))});
      if (rates != nullptr) add_rates(row, rates->of({p.pid, d.name}, t));
      table.add(row);
    }
  }
  return table.str();
}

std::string queue_pairs(std::span<const stats::Snapshot> processes, Rates* rates, std::size_t most) {
  std::vector<QpRow> rows;
  for (const auto& s : processes)
    for (const auto& q : s.page->qps)
      if (q.number != 0) rows.push_back(row_of(*s.page, q, rates));
  if (rows.empty()) return "";
  const std::size_t left_out = rows.size() - std::min(rows.size(), most);
  if (left_out > 0) {
    std::stable_sort(rows.begin(), rows.end(), [](const QpRow& a, const QpRow& b) { return a.busy > b.busy; });
    rows.resize(most);
  }
  std::vector<std::string> headings = {"PID",        "QP",         "TYPE",         "DEVICE",  "STATE",
                                       "PEER",       "PEER QP",    "VIA",          ">TX MSG", ">RX MSG",
                                       ">TX OCTETS", ">RX OCTETS", ">COMPLETIONS", ">ERRORS"};
  if (rates != nullptr) headings.insert(headings.end(), {">TX/S", ">RX/S"});
  Table table(headings);
  for (auto& row : rows) table.add(std::move(row.cells));
  std::string out = "\n";
  out += table.str();
  if (left_out > 0) out += fmt::format("and {} less busy queue pairs (-v shows all)\n", left_out);
  return out;
}

std::string details(const stats::Snapshot& s, Rates* rates) {
  const auto& p = *s.page;
  std::string out =
      fmt::format("\n{} {}: passes {} by the application, {} in the background; {} wake-ups\n", p.pid, p.command,
                  p.app_passes.load(), p.background_passes.load(), p.background_wakeups.load());
  for (std::uint32_t i = 0; i < p.device_count; ++i) {
    std::vector<std::string> parts;
    add_nonzero(parts, p.devices[i]);
    add_nonzero(parts, p.devices[i].traffic);
    out += paragraph(p.devices[i].name, parts);
  }
  out += paragraph_of("datagrams", p.datagrams);
  out += paragraph_of("reliable datagrams", p.reliable);
  for (const auto& channel : channel_counters(s.file)) {
    std::vector<std::string> parts;
    for (const auto& [name, value] : channel.values)
      if (value != 0) parts.push_back(fmt::format("{} {}", name, value));
    out += wrapped(fmt::format("channel {}: {}", channel.address, fmt::join(parts, ", ")), 2, 120);
  }
  const std::string pairs = queue_pairs({&s, 1}, rates, stats::kMaxQps);
  return out + (pairs.empty() ? "  no queue pairs\n" : pairs);
}

}  // namespace ewarp::cli
