// `etherwarp stat`: the counters of every EtherWARP process on this machine that this user may read.
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <span>
#include <thread>
#include <utility>

#include <nlohmann/json.hpp>

#include "provider/cli/channel_counters.h"
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

// Of the process's datagrams; the drops in the order of llp::DatagramDrop.
constexpr const char* kDrops[] = {"rx_too_short",   "rx_bad_version", "rx_bad_type",   "rx_bad_length",
                                  "rx_bad_crc",     "rx_no_qp",       "rx_wrong_type", "rx_bad_qkey",
                                  "rx_bad_segment", "rx_bad_opcode",  "rx_no_receive", "rx_too_long"};
static_assert(std::size(kDrops) == stats::Datagrams::kCauses, "a cause has no name");
struct NamedDatagram {
  const char* name;
  Counter stats::Datagrams::*counter;
};
constexpr NamedDatagram kDatagrams[] = {
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
constexpr NamedReliable kReliable[] = {
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
    {"round_trip_ns", &stats::Reliable::round_trip_ns},
};
static_assert(sizeof(stats::Reliable) == std::size(kReliable) * sizeof(Counter), "a counter has no name");

// f(name, value) for each.
template <class F>
void each(const stats::Reliable& r, F f) {
  for (const auto& n : kReliable) f(n.name, (r.*n.counter).load());
}
template <class F>
void each(const stats::Datagrams& d, F f) {
  for (std::size_t i = 0; i < std::size(kDrops); ++i) f(kDrops[i], d.drops[i].load());
  for (const auto& n : kDatagrams) f(n.name, (d.*n.counter).load());
}

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
  each(p.datagrams, [&](const char* name, std::uint64_t value) { j["datagrams"][name] = value; });
  each(p.reliable, [&](const char* name, std::uint64_t value) { j["reliable"][name] = value; });
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
    jq["peer_number"] = q.peer_number.load();
    j["qps"].push_back(jq);
  }
  j["channels"] = nlohmann::json::array();
  for (const auto& channel : channel_counters(s.file)) {
    nlohmann::json jc = {{"address", channel.address}};
    for (const auto& [name, value] : channel.values) jc[name] = value;
    j["channels"].push_back(jc);
  }
  return j;
}

struct Octets {
  std::uint64_t tx = 0, rx = 0;
};

// Counters of the round before, and of this one, for rates.
class Rates {
 public:
  // Names a device or a queue pair of a process.
  using Key = std::pair<std::int32_t, std::string>;

  void next_round() {
    before_ = std::exchange(now_, {});
    const auto time = std::chrono::steady_clock::now();
    elapsed_ = std::chrono::duration<double>(time - std::exchange(time_, time)).count();
  }
  // Octets a second; nothing in the round in which it is first seen.
  std::optional<std::pair<double, double>> of(const Key& key, const Traffic& t) {
    const Octets octets = now_[key] = {t.tx_octets, t.rx_octets};
    const auto old = before_.find(key);
    // Less than before: another of the same name.
    if (old == before_.end() || elapsed_ <= 0 || octets.tx < old->second.tx || octets.rx < old->second.rx)
      return std::nullopt;
    return std::pair(static_cast<double>(octets.tx - old->second.tx) / elapsed_,
                     static_cast<double>(octets.rx - old->second.rx) / elapsed_);
  }

 private:
  std::map<Key, Octets> before_, now_;
  std::chrono::steady_clock::time_point time_{};
  double elapsed_ = 0;
};

void add_rates(std::vector<std::string>& row, const std::optional<std::pair<double, double>>& rates) {
  if (rates) row.insert(row.end(), {in_units(rates->first), in_units(rates->second)});
}

std::string summary(const std::vector<stats::Snapshot>& all, Rates* rates) {
  std::vector<std::string> headings = {"PID",     "COMMAND", "UP",         "POLLER",     "DEVICE", ">QPS",
                                       ">TX MSG", ">RX MSG", ">TX OCTETS", ">RX OCTETS", ">ERRORS"};
  if (rates != nullptr) headings.insert(headings.end(), {">TX/S", ">RX/S"});
  Table table(headings);
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
      if (rates != nullptr) add_rates(row, rates->of({p.pid, d.name}, t));
      table.add(row);
    }
  }
  return table.str();
}

// --- queue pairs ---

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
               device_of(p, q.device),
               state_name(q.state),
               q.peer[0] != '\0' ? q.peer : "-",
               peer != 0 ? fmt::format("{:#08x}", peer) : "-",
               fmt::format("{}", t.tx_messages),
               fmt::format("{}", t.rx_messages),
               in_units(static_cast<double>(t.tx_octets)),
               in_units(static_cast<double>(t.rx_octets)),
               fmt::format("{}", t.completions),
               fmt::format("{}", errors(t))};
  row.busy = static_cast<double>(t.tx_octets + t.rx_octets);
  if (rates == nullptr) return row;
  const auto now = rates->of({p.pid, row.cells[1]}, t);
  if (now) row.busy = now->first + now->second;
  add_rates(row.cells, now);
  return row;
}

// The queue pairs of these processes; if they are more than `most`, the busiest.
std::string queue_pairs(std::span<const stats::Snapshot> some, Rates* rates, std::size_t most) {
  std::vector<QpRow> rows;
  for (const auto& s : some)
    for (const auto& q : s.page->qps)
      if (q.number != 0) rows.push_back(row_of(*s.page, q, rates));
  if (rows.empty()) return "";
  const std::size_t left_out = rows.size() - std::min(rows.size(), most);
  if (left_out > 0) {
    std::stable_sort(rows.begin(), rows.end(), [](const QpRow& a, const QpRow& b) { return a.busy > b.busy; });
    rows.resize(most);
  }
  std::vector<std::string> headings = {"PID",        "QP",           "TYPE",    "DEVICE",  "STATE",
                                       "PEER",       "PEER QP",      ">TX MSG", ">RX MSG", ">TX OCTETS",
                                       ">RX OCTETS", ">COMPLETIONS", ">ERRORS"};
  if (rates != nullptr) headings.insert(headings.end(), {">TX/S", ">RX/S"});
  Table table(headings);
  for (auto& row : rows) table.add(std::move(row.cells));
  std::string out = "\n";
  out += table.str();
  if (left_out > 0) out += fmt::format("and {} less busy queue pairs (-v shows all)\n", left_out);
  return out;
}

// As many as the terminal has room for below so many lines.
std::size_t rows_that_fit(std::size_t lines_above) {
  constexpr std::size_t kLeast = 5, kElsewhere = 20;
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0) return kElsewhere;
  const std::size_t used = lines_above + 4;  // an empty line, the headings, what was left out, the cursor
  return size.ws_row > used + kLeast ? size.ws_row - used : kLeast;
}

std::string details(const stats::Snapshot& s, Rates* rates) {
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
  std::vector<std::string> dropped;
  each(p.datagrams, [&](const char* name, std::uint64_t value) {
    if (value != 0) dropped.push_back(fmt::format("{} {}", name, value));
  });
  if (!dropped.empty()) out += wrapped(fmt::format("datagrams: {}", fmt::join(dropped, ", ")), 2, 120);
  std::vector<std::string> reliable;
  each(p.reliable, [&](const char* name, std::uint64_t value) {
    if (value != 0) reliable.push_back(fmt::format("{} {}", name, value));
  });
  if (!reliable.empty()) out += wrapped(fmt::format("reliable datagrams: {}", fmt::join(reliable, ", ")), 2, 120);
  for (const auto& channel : channel_counters(s.file)) {
    std::vector<std::string> parts;
    for (const auto& [name, value] : channel.values)
      if (value != 0) parts.push_back(fmt::format("{} {}", name, value));
    out += wrapped(fmt::format("channel {}: {}", channel.address, fmt::join(parts, ", ")), 2, 120);
  }
  const std::string pairs = queue_pairs({&s, 1}, rates, stats::kMaxQps);
  return out + (pairs.empty() ? "  no queue pairs\n" : pairs);
}

std::string report(const StatArguments& a, Rates* rates, bool* found) {
  std::vector<std::string> unreadable;
  auto all = stats::snapshots(&unreadable);
  remove_stale_channel_counters(stats::run_directory());
  std::erase_if(all, [&](const auto& s) { return (s.ended && !a.ended) || (a.pid != 0 && s.page->pid != a.pid); });
  constexpr std::size_t kNamed = 3;  // of the files that are ignored
  for (std::size_t i = 0; i < std::min(unreadable.size(), kNamed); ++i)
    fail(1, "{}; ignored (remove the file if nobody needs it)", unreadable[i]);
  if (unreadable.size() > kNamed) fail(1, "and {} more such files", unreadable.size() - kNamed);
  *found = !all.empty();
  if (a.json) {
    nlohmann::json j = nlohmann::json::array();
    for (const auto& s : all) j.push_back(as_json(s));
    return j.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  }
  if (all.empty())
    return fmt::format("no EtherWARP process{} is visible to this user\n",
                       a.pid != 0 ? fmt::format(" with pid {}", a.pid) : "");
  if (rates != nullptr) rates->next_round();
  std::string out = summary(all, rates);
  if (!a.verbose) {
    const auto lines = static_cast<std::size_t>(std::count(out.begin(), out.end(), '\n'));
    return out + queue_pairs(all, rates, rows_that_fit(lines));
  }
  for (const auto& s : all) out += details(s, rates);
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
  Rates rates;
  for (unsigned round = 1;; ++round) {
    const std::string text = report(a, a.json ? nullptr : &rates, &found);
    fmt::print("{}{}", screen ? "\033[H\033[2J" : "", text);
    if (std::fflush(stdout) != 0) return 1;  // nobody reads any more
    if (a.count != 0 && round == a.count) return 0;
    std::this_thread::sleep_for(std::chrono::duration<double>(a.watch_s));
  }
}

}  // namespace ewarp::cli
