// `etherwarp stat`: the counters of every EtherWARP process on this machine that this user may read.
#include <poll.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <chrono>
#include <map>
#include <thread>

#include <nlohmann/json.hpp>

#include "provider/cli/commands.h"
#include "provider/cli/table.h"
#include "provider/verbs/stats.h"

namespace ewarp::cli {
namespace {

using stats::Counter;
using stats::Traffic;

struct Named {
  const char* name;
  Counter Traffic::*counter;
};
constexpr Named kTraffic[] = {
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
constexpr NamedDevice kDevice[] = {
    {"qps_created", &stats::DevicePage::qps_created}, {"qps_destroyed", &stats::DevicePage::qps_destroyed},
    {"connections", &stats::DevicePage::connections}, {"connect_failures", &stats::DevicePage::connect_failures},
    {"disconnects", &stats::DevicePage::disconnects},
};

std::uint64_t errors(const Traffic& t) {
  return t.error_completions + t.terminates_sent + t.terminates_received + t.crc_errors;
}

// ibv_qp_state and ibv_qp_type, by their numbers: the tool needs no libibverbs.
std::string state_name(std::uint32_t state) {
  constexpr const char* kNames[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
  return state < std::size(kNames) ? kNames[state] : fmt::format("{}", state);
}
std::string type_name(std::uint32_t type) {
  return type == 2 ? "RC" : type == 4 ? "UD" : type == 0xff ? "RD" : fmt::format("{}", type);
}

std::string device_of(const stats::Page& p, std::uint32_t index) {
  return index < p.device_count ? p.devices[index].name : "?";
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

nlohmann::json as_json(const Traffic& t) {
  nlohmann::json j;
  for (const auto& n : kTraffic) j[n.name] = (t.*n.counter).load();
  return j;
}

nlohmann::json as_json(const stats::Snapshot& s) {
  const stats::Page& p = *s.page;
  nlohmann::json j = {{"pid", p.pid},
                      {"command", p.command},
                      {"uid", s.uid},
                      {"ended", s.ended},
                      {"start_ns", p.start_ns},
                      {"poller", p.poller},
                      {"app_passes", p.app_passes.load()},
                      {"background_passes", p.background_passes.load()},
                      {"background_wakeups", p.background_wakeups.load()},
                      {"devices", nlohmann::json::array()},
                      {"qps", nlohmann::json::array()}};
  for (std::uint32_t i = 0; i < p.device_count; ++i) {
    const auto& d = p.devices[i];
    nlohmann::json jd = as_json(d.traffic);
    jd["name"] = d.name;
    jd["interface"] = d.interface;
    for (const auto& n : kDevice) jd[n.name] = (d.*n.counter).load();
    j["devices"].push_back(jd);
  }
  for (const auto& q : p.qps) {
    if (q.number == 0) continue;
    nlohmann::json jq = as_json(q.traffic);
    jq["number"] = q.number.load();
    jq["state"] = state_name(q.state);
    jq["type"] = type_name(q.type);
    jq["device"] = device_of(p, q.device);
    jq["peer"] = q.peer;
    j["qps"].push_back(jq);
  }
  return j;
}

// Counters of the round before, for rates.
struct Before {
  std::chrono::steady_clock::time_point when;
  std::map<std::pair<std::int32_t, std::string>, std::pair<std::uint64_t, std::uint64_t>> octets;  // tx, rx
};

std::string summary(const std::vector<stats::Snapshot>& all, Before* before) {
  const auto now = std::chrono::steady_clock::now();
  std::vector<std::string> headings = {"PID",     "COMMAND", "UP",         "POLLER",     "DEVICE", ">QPS",
                                       ">TX MSG", ">RX MSG", ">TX OCTETS", ">RX OCTETS", ">ERRORS"};
  if (before != nullptr) headings.insert(headings.end(), {">TX/S", ">RX/S"});
  Table table(headings);
  Before next{now, {}};
  for (const auto& s : all) {
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
                             fmt::format("{}", t.tx_messages), fmt::format("{}", t.rx_messages),
                             in_units(static_cast<double>(t.tx_octets)), in_units(static_cast<double>(t.rx_octets)),
                             fmt::format("{}", errors(t))});
      if (before != nullptr) {
        const auto key = std::pair{p.pid, std::string(d.name)};
        next.octets[key] = {t.tx_octets, t.rx_octets};
        const auto old = before->octets.find(key);
        const double elapsed = std::chrono::duration<double>(now - before->when).count();
        if (old != before->octets.end() && elapsed > 0) {
          row.push_back(in_units(static_cast<double>(t.tx_octets - old->second.first) / elapsed));
          row.push_back(in_units(static_cast<double>(t.rx_octets - old->second.second) / elapsed));
        }
      }
      table.add(row);
    }
  }
  if (before != nullptr) *before = std::move(next);
  return table.str();
}

std::string details(const stats::Snapshot& s) {
  const auto& p = *s.page;
  std::string out = fmt::format("\n{} {}: passes {} by the application, {} in the background; {} wake-ups\n", p.pid,
                                p.command, p.app_passes, p.background_passes, p.background_wakeups);
  for (std::uint32_t i = 0; i < p.device_count; ++i) {
    std::vector<std::string> parts;
    for (const auto& n : kDevice)
      if (const auto v = (p.devices[i].*n.counter).load(); v != 0) parts.push_back(fmt::format("{} {}", n.name, v));
    for (const auto& n : kTraffic)
      if (const auto v = (p.devices[i].traffic.*n.counter).load(); v != 0)
        parts.push_back(fmt::format("{} {}", n.name, v));
    if (!parts.empty()) out += wrapped(fmt::format("{}: {}", p.devices[i].name, fmt::join(parts, ", ")), 2, 120);
  }
  Table table({"  QP", "TYPE", "DEVICE", "STATE", "PEER", ">TX MSG", ">RX MSG", ">TX OCTETS", ">RX OCTETS",
               ">COMPLETIONS", ">ERRORS"});
  for (const auto& q : p.qps) {
    if (q.number == 0) continue;
    const auto& t = q.traffic;
    table.add({fmt::format("  {:#08x}", q.number), type_name(q.type), device_of(p, q.device), state_name(q.state),
               q.peer[0] != '\0' ? q.peer : "-", fmt::format("{}", t.tx_messages), fmt::format("{}", t.rx_messages),
               in_units(static_cast<double>(t.tx_octets)), in_units(static_cast<double>(t.rx_octets)),
               fmt::format("{}", t.completions), fmt::format("{}", errors(t))});
  }
  return out + (table.empty() ? "  no queue pairs\n" : table.str());
}

std::string report(const StatArguments& a, Before* before, bool* found) {
  std::vector<std::string> unreadable;
  auto all = stats::snapshots(&unreadable);
  std::erase_if(all, [&](const auto& s) { return (s.ended && !a.ended) || (a.pid != 0 && s.page->pid != a.pid); });
  for (const auto& u : unreadable) fail(1, "{}; ignored (remove the file if nobody needs it)", u);
  *found = !all.empty();
  if (a.json) {
    nlohmann::json j = nlohmann::json::array();
    for (const auto& s : all) j.push_back(as_json(s));
    return j.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  }
  if (all.empty())
    return fmt::format("no EtherWARP process{} is visible to this user\n",
                       a.pid != 0 ? fmt::format(" with pid {}", a.pid) : "");
  std::string out = summary(all, before);
  if (a.verbose)
    for (const auto& s : all) out += details(s);
  return out;
}

}  // namespace

int stat(const StatArguments& a) {
  bool found = false;
  if (a.watch_s == 0) {
    fmt::print("{}", report(a, nullptr, &found));
    return a.pid != 0 && !found ? 1 : 0;
  }
  const bool screen = isatty(STDOUT_FILENO) == 1 && !a.json;
  Before before{};
  for (unsigned round = 1;; ++round) {
    const std::string text = report(a, a.json ? nullptr : &before, &found);
    fmt::print("{}{}", screen ? "\033[H\033[2J" : "", text);
    if (std::fflush(stdout) != 0) return 1;  // nobody reads any more
    if (a.count != 0 && round == a.count) return 0;
    std::this_thread::sleep_for(std::chrono::duration<double>(a.watch_s));
  }
}

}  // namespace ewarp::cli
