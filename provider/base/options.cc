#include "provider/verbs/options.h"

#include <sched.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <thread>

#include <fmt/format.h>

#include "provider/verbs/log.h"

namespace ewarp {
namespace {

constexpr std::string_view kPrefix = "ETHERWARP_";
constexpr char kSystemFile[] = "/etc/etherwarp.conf";
constexpr int kSpinWithSpareCpus = 2000;  // microseconds
constexpr unsigned kOwnCpus = 2;          // of a process: the application's and ours
constexpr unsigned kPeers = 2;            // processes on this host, where nobody says how many
// Where MPI's launchers say how many processes of the job are on this host: Open MPI, hydra.
constexpr const char* kLocalProcesses[] = {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"};

// Environment names of the same family that are not options: where things are, and what tests are pointed at.
constexpr std::string_view kOtherNames[] = {"CONFIG", "PROVIDER", "PRELOAD", "RUNDIR"};
constexpr std::string_view kTestPrefix = "TEST_";

// --- values ---------------------------------------------------------------------------------------------------------

std::string_view trim(std::string_view s) {
  const auto first = s.find_first_not_of(" \t\r\n");
  if (first == s.npos) return {};
  return s.substr(first, s.find_last_not_of(" \t\r\n") - first + 1);
}

std::string lower(std::string_view s) {
  std::string out(s);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

// Each set_* stores the value, or returns what would be good instead.
using Expected = std::optional<std::string>;

Expected set_bool(bool& out, std::string_view value) {
  const std::string v = lower(value);
  for (const char* yes : {"1", "yes", "true", "on"})
    if (v == yes) return out = true, std::nullopt;
  for (const char* no : {"0", "no", "false", "off"})
    if (v == no) return out = false, std::nullopt;
  return "yes or no";
}

template <class Number>
Expected set_number(Number& out, std::string_view value, Number least, Number most) {
  Number n{};
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), n);
  if (error != std::errc{} || end != value.data() + value.size() || n < least || n > most)
    return fmt::format("a whole number from {} to {}", least, most);
  out = n;
  return std::nullopt;
}

Expected set_word(std::string& out, std::string_view value, std::span<const std::string_view> words) {
  const std::string v = lower(value);
  if (std::find(words.begin(), words.end(), v) == words.end()) return fmt::format("{}", fmt::join(words, ", "));
  out = v;
  return std::nullopt;
}

Expected set_crc(CrcPolicy& out, std::string_view value) {
  constexpr std::string_view kWords[] = {"by_path", "always", "never"};
  std::string word;
  if (auto expected = set_word(word, value, kWords)) return expected;
  out = word == "always" ? CrcPolicy::always : word == "never" ? CrcPolicy::never : CrcPolicy::by_path;
  return std::nullopt;
}

// Interface names are at most 15 octets, without slash (the kernel's rule).
Expected set_interfaces(std::vector<std::string>& out, std::string_view value) {
  std::vector<std::string> names;
  while (!value.empty()) {
    const auto end = std::min(value.find_first_of(", \t"), value.size());
    if (const auto name = value.substr(0, end); !name.empty()) {
      if (name.size() > 15 || name.find('/') != name.npos) return "interface names, separated by commas";
      if (std::find(names.begin(), names.end(), name) == names.end()) names.emplace_back(name);
    }
    value.remove_prefix(std::min(end + 1, value.size()));
  }
  out = std::move(names);
  return std::nullopt;
}

// The kernel's names are up to 15 octets; which of them exist is found out when a socket is given one.
Expected set_congestion(std::string& out, std::string_view value) {
  const bool good = value.size() <= 15 && std::all_of(value.begin(), value.end(), [](unsigned char c) {
                      return std::isalnum(c) != 0 || c == '_' || c == '-';
                    });
  if (!good) return "auto, system, or the name of a congestion control such as reno";
  out = value;
  return std::nullopt;
}

// --- the table ------------------------------------------------------------------------------------------------------

struct Entry {
  OptionDoc doc;
  Expected (*set)(Options&, std::string_view);
};

constexpr std::string_view kLogLevels[] = {"error", "warn", "info", "debug"};
constexpr std::string_view kRtrKinds[] = {"write", "read", "send"};
constexpr unsigned kHour = 3'600'000;  // milliseconds

const Entry kTable[] = {
    {{"interfaces", "names", "every one that is up",
      "Network interfaces to offer as devices, separated by commas; interface eth0 becomes device ewarp_eth0."},
     [](Options& o, std::string_view v) { return set_interfaces(o.interfaces, v); }},
    {{"twin", "yes, no", "no",
      "Offer each interface a second time, as ewarpx_eth0, of type CA with an Ethernet link layer, for programs that "
      "know RoCE only."},
     [](Options& o, std::string_view v) { return set_bool(o.twin, v); }},
    {{"log", "error, warn, info, debug", "error", "What is said on stderr; debug traces every change of state."},
     [](Options& o, std::string_view v) { return set_word(o.log, v, kLogLevels); }},
    {{"crc", "by_path, always, never", "by_path",
      "When MPA's CRC32C is asked for; by_path: unless the peer is on this host. A peer that asks for it always gets "
      "it."},
     [](Options& o, std::string_view v) { return set_crc(o.crc, v); }},
    {{"markers", "yes, no", "no", "Demand MPA markers from peers. Markers that a peer demands are always sent."},
     [](Options& o, std::string_view v) { return set_bool(o.markers, v); }},
    {{"extensions", "yes, no", "yes",
      "Offer and accept what goes beyond the RFCs (large segments, immediate data), with peers that consent."},
     [](Options& o, std::string_view v) { return set_bool(o.extensions, v); }},
    {{"mpa_revision", "1, 2", "2",
      "Start-up frames that connect() sends: 1 is RFC 5044, 2 is RFC 6581. Both are accepted."},
     [](Options& o, std::string_view v) { return set_number(o.mpa_revision, v, 1u, 2u); }},
    {{"peer_to_peer", "yes, no", "yes", "Ask for the peer-to-peer start-up of RFC 6581: either side may send first."},
     [](Options& o, std::string_view v) { return set_bool(o.peer_to_peer, v); }},
    {{"rtr", "write, read, send", "write", "First choice for the message that ends a peer-to-peer start-up."},
     [](Options& o, std::string_view v) { return set_word(o.rtr, v, kRtrKinds); }},
    {{"io_uring", "yes, no", "yes",
      "Use io_uring where the kernel allows it; no: epoll, sendmsg and recvmsg (slower)."},
     [](Options& o, std::string_view v) { return set_bool(o.io_uring, v); }},
    {{"ulpdu_octets", "octets", "64768", "Largest ULPDU sent to peers that consented to large ones (extensions)."},
     [](Options& o, std::string_view v) { return set_number(o.ulpdu_octets, v, 512u, 65'535u); }},
    {{"takeover_us", "microseconds", "500",
      "The background thread takes over when the application has not polled for this long (it may take "
      "twice as long to notice)."},
     [](Options& o, std::string_view v) { return set_number(o.takeover_us, v, 1u, 1'000'000u); }},
    {{"spin_us", "microseconds", "-1",
      "How long the background thread spins at most before it sleeps, after pauses of that length; -1: 2000 with 4 or "
      "more usable CPUs, or 2 for each local rank of an MPI job, else 0."},
     [](Options& o, std::string_view v) { return set_number(o.spin_us, v, -1, 1'000'000); }},
    {{"hand_over_octets", "octets", "131072",
      "Sends and Writes of so much in one post are left to the background thread, so that the poster can compute, "
      "unless it is known to wait; 0: the poster always begins to send itself."},
     [](Options& o, std::string_view v) { return set_number(o.hand_over_octets, v, 0u, 1u << 31); }},
    {{"connect_timeout_ms", "milliseconds", "10000", "connect(): time for the TCP connection and the MPA Reply."},
     [](Options& o, std::string_view v) { return set_number(o.connect_timeout_ms, v, 1u, kHour); }},
    {{"refused_wait_ms", "milliseconds", "100",
      "connect(): goes on trying so long while nobody listens, for servers that listen a moment too late; 0: not at "
      "all."},
     [](Options& o, std::string_view v) { return set_number(o.refused_wait_ms, v, 0u, kHour); }},
    {{"bring_up_timeout_ms", "milliseconds", "30000",
      "ibv_modify_qp() to RTR without rdma_cm: time until the connection with the peer's QP stands; then the QP "
      "fails."},
     [](Options& o, std::string_view v) { return set_number(o.bring_up_timeout_ms, v, 1u, kHour); }},
    {{"request_timeout_ms", "milliseconds", "5000", "listen(): time for the MPA Request after TCP's accept."},
     [](Options& o, std::string_view v) { return set_number(o.request_timeout_ms, v, 1u, kHour); }},
    {{"rtr_timeout_ms", "milliseconds", "10000", "accept(): time for the first message after the MPA Reply."},
     [](Options& o, std::string_view v) { return set_number(o.rtr_timeout_ms, v, 1u, kHour); }},
    {{"responder_wait_ms", "milliseconds", "250",
      "A responder waits so long for the initiator's first message before it sends its own, where the peer did not ask "
      "for peer-to-peer mode; 0: until that message comes (RFC 5044)."},
     [](Options& o, std::string_view v) { return set_number(o.responder_wait_ms, v, 0u, kHour); }},
    {{"close_timeout_ms", "milliseconds", "2000", "Time for a graceful close, after which the connection is reset."},
     [](Options& o, std::string_view v) { return set_number(o.close_timeout_ms, v, 1u, kHour); }},
    {{"rnr_wait_ms", "milliseconds", "1000",
      "How long a Send that finds no receive posted waits for one before the stream ends in error; 0: not at all."},
     [](Options& o, std::string_view v) { return set_number(o.rnr_wait_ms, v, 0u, kHour); }},
    {{"ud_reliable", "yes, no", "no",
      "Queue pairs of UD lose nothing and keep the order of what they send to a peer; both ends must have it set. No "
      "multicast."},
     [](Options& o, std::string_view v) { return set_bool(o.ud_reliable, v); }},
    {{"congestion", "name", "auto",
      "TCP congestion control; auto: reno towards this host, the system's elsewhere; system: the system's; or a name."},
     [](Options& o, std::string_view v) { return set_congestion(o.congestion, v); }},
    {{"stats", "yes, no", "yes", "Publish counters for `etherwarp stat`."},
     [](Options& o, std::string_view v) { return set_bool(o.stats, v); }},
    {{"stats_keep", "yes, no", "no", "Leave the counters behind at exit, for `etherwarp stat --ended`."},
     [](Options& o, std::string_view v) { return set_bool(o.stats_keep, v); }},
};

const Entry* find_entry(std::string_view name) {
  const auto* e =
      std::find_if(std::begin(kTable), std::end(kTable), [&](const Entry& t) { return name == t.doc.name; });
  return e == std::end(kTable) ? nullptr : e;
}

std::vector<std::string_view> names() {
  std::vector<std::string_view> out;
  for (const Entry& e : kTable) out.push_back(e.doc.name);
  return out;
}

// --- reading --------------------------------------------------------------------------------------------------------

// An empty value leaves the option as it is: `NAME= program` is how a shell takes a setting back.
std::string apply(Options& options, const Entry& entry, std::string_view value) {
  if (value.empty()) return {};
  const auto expected = entry.set(options, value);
  return expected ? fmt::format("'{}' is no value for {}; expected: {}", value, entry.doc.name, *expected)
                  : std::string();
}

std::string hint(std::string_view what, std::string_view nearest) {
  return nearest.empty() ? fmt::format("{}; `etherwarp options` lists all", what)
                         : fmt::format("{}; did you mean {}?", what, nearest);
}

using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;
File open_file(const std::string& path) {
  return File(std::fopen(path.c_str(), "re"), std::fclose);
}

void read_file(std::FILE* file, OptionsRead& out) {
  char line[1024];
  for (unsigned number = 1; std::fgets(line, sizeof line, file) != nullptr; ++number) {
    std::string_view text(line);
    text = trim(text.substr(0, text.find('#')));
    if (text.empty()) continue;
    const auto problem = [&](std::string_view what) {
      out.problems.push_back(fmt::format("{}:{}: {}; line ignored", out.file, number, what));
    };
    const auto equals = text.find('=');
    if (equals == text.npos) {
      problem("expected `name = value`");
      continue;
    }
    const std::string name = lower(trim(text.substr(0, equals)));
    if (const Entry* entry = find_entry(name)) {
      if (const auto wrong = apply(out.options, *entry, trim(text.substr(equals + 1))); !wrong.empty()) problem(wrong);
    } else {
      problem(hint(fmt::format("unknown option '{}'", name), nearest_word(name, names())));
    }
  }
}

std::optional<std::string_view> lookup(std::span<const char* const> environment, std::string_view name) {
  for (const char* e : environment) {
    if (e == nullptr) break;
    const std::string_view entry(e);
    if (entry.size() > name.size() && entry.starts_with(name) && entry[name.size()] == '=' &&
        entry.size() > name.size() + 1)
      return entry.substr(name.size() + 1);
  }
  return std::nullopt;
}

// The first of: ETHERWARP_CONFIG, $XDG_CONFIG_HOME (or ~/.config)/etherwarp.conf, /etc/etherwarp.conf.
void read_configuration(std::span<const char* const> environment, bool trusted, OptionsRead& out) {
  const auto try_file = [&](std::string path) {
    const File file = open_file(path);
    if (!file) return false;
    out.file = std::move(path);
    read_file(file.get(), out);
    return true;
  };
  if (trusted) {
    if (const auto named = lookup(environment, "ETHERWARP_CONFIG")) {
      const std::string path(*named);
      if (!try_file(path))
        out.problems.push_back(fmt::format("ETHERWARP_CONFIG={}: {}; the file is ignored", path, std::strerror(errno)));
      return;
    }
    if (const auto xdg = lookup(environment, "XDG_CONFIG_HOME")) {
      if (try_file(fmt::format("{}/etherwarp.conf", *xdg))) return;
    } else if (const auto home = lookup(environment, "HOME")) {
      if (try_file(fmt::format("{}/.config/etherwarp.conf", *home))) return;
    }
  }
  try_file(kSystemFile);
}

void read_variable(std::string_view variable, std::string_view value, OptionsRead& out) {
  const std::string name = lower(variable.substr(kPrefix.size()));
  if (const Entry* entry = find_entry(name); entry != nullptr && option_variable(name) == variable) {
    if (const auto wrong = apply(out.options, *entry, trim(value)); !wrong.empty())
      out.problems.push_back(fmt::format("{}: {}; ignored", variable, wrong));
    return;
  }
  const std::string_view rest = variable.substr(kPrefix.size());
  if (rest.starts_with(kTestPrefix) ||
      std::find(std::begin(kOtherNames), std::end(kOtherNames), rest) != std::end(kOtherNames))
    return;
  auto candidates = names();
  std::vector<std::string> others;  // keeps the lower-case forms alive
  for (const auto other : kOtherNames) others.push_back(lower(other));
  candidates.insert(candidates.end(), others.begin(), others.end());
  const auto near = nearest_word(name, candidates);
  out.problems.push_back(fmt::format(
      "{}; ignored", hint(fmt::format("unknown variable {}", variable), near.empty() ? "" : option_variable(near))));
}

const OptionsRead& state() {
  static const OptionsRead* const read = [] {
    auto* r = new OptionsRead(read_options());  // never freed: threads and exit handlers may ask until the very end
    for (const auto& problem : r->problems) log::write(log::Level::warn, problem);
    return r;
  }();
  return *read;
}

// The quota of cgroup v2, in whole CPUs rounded up; 0: none.
unsigned cgroup_cpus() {
  const File file = open_file("/sys/fs/cgroup/cpu.max");
  unsigned long quota = 0, period = 0;
  if (!file || std::fscanf(file.get(), "%lu %lu", &quota, &period) != 2 || period == 0) return 0;
  return static_cast<unsigned>(std::min((quota + period - 1) / period, 1'000'000ul));
}

}  // namespace

const Options& options() {
  return state().options;
}
std::span<const std::string> option_problems() {
  return state().problems;
}

std::span<const OptionDoc> option_docs() {
  static const std::vector<OptionDoc> docs = [] {
    std::vector<OptionDoc> out;
    for (const Entry& e : kTable) out.push_back(e.doc);
    return out;
  }();
  return docs;
}

OptionsRead read_options(std::span<const char* const> environment, bool trusted) {
  OptionsRead out;
  read_configuration(environment, trusted, out);
  for (const char* e : environment) {
    if (e == nullptr || !trusted) break;
    const std::string_view entry(e);
    const auto equals = entry.find('=');
    if (equals != entry.npos && entry.starts_with(kPrefix))
      read_variable(entry.substr(0, equals), entry.substr(equals + 1), out);
  }
  return out;
}

OptionsRead read_options() {
  std::size_t n = 0;
  while (environ != nullptr && environ[n] != nullptr) ++n;
  return read_options(std::span<const char* const>(environ, n), getauxval(AT_SECURE) == 0);
}

std::string check_option(std::string_view name, std::string_view value) {
  const Entry* entry = find_entry(name);
  if (entry == nullptr) return hint(fmt::format("unknown option '{}'", name), nearest_word(name, names()));
  Options scratch;
  return apply(scratch, *entry, trim(value));
}

std::string option_variable(std::string_view name) {
  std::string out(kPrefix);
  for (const unsigned char c : name) out += static_cast<char>(std::toupper(c));
  return out;
}

std::string nearest_word(std::string_view word, std::span<const std::string_view> candidates) {
  std::string_view best;
  std::size_t best_distance = std::max<std::size_t>(2, word.size() / 3) + 1;
  for (const auto candidate : candidates) {
    // Levenshtein's distance, one row at a time.
    std::vector<std::size_t> row(candidate.size() + 1);
    for (std::size_t j = 0; j < row.size(); ++j) row[j] = j;
    for (std::size_t i = 0; i < word.size(); ++i) {
      std::size_t diagonal = row[0];
      row[0] = i + 1;
      for (std::size_t j = 0; j < candidate.size(); ++j) {
        const std::size_t substituted = diagonal + (word[i] == candidate[j] ? 0 : 1);
        diagonal = row[j + 1];
        row[j + 1] = std::min({substituted, row[j] + 1, row[j + 1] + 1});
      }
    }
    if (row.back() < best_distance && row.back() < candidate.size()) {
      best_distance = row.back();
      best = candidate;
    }
  }
  return std::string(best);
}

namespace {

unsigned cpus_of(pid_t process) {
  cpu_set_t set;
  CPU_ZERO(&set);
  unsigned cpus = sched_getaffinity(process, sizeof set, &set) == 0 ? static_cast<unsigned>(CPU_COUNT(&set))
                                                                    : std::thread::hardware_concurrency();
  if (const unsigned quota = cgroup_cpus(); quota != 0) cpus = std::min(cpus, quota);
  return std::max(cpus, 1u);
}

// 0: nobody says it.
unsigned local_processes() {
  for (const char* name : kLocalProcesses)
    if (unsigned n = 0; const char* value = std::getenv(name))
      if (!set_number(n, value, 1u, 1'000'000u)) return n;
  return 0;
}

}  // namespace

unsigned usable_cpus() { return cpus_of(0); }

unsigned effective_spin_us(const Options& options) {
  if (options.spin_us >= 0) return static_cast<unsigned>(options.spin_us);
  const unsigned own = usable_cpus(), processes = local_processes();
  // A launcher binds the processes of a job to their shares of its own CPUs.
  const unsigned all = processes == 0 ? own : std::max(own, cpus_of(getppid()));
  return own >= kOwnCpus && all >= kOwnCpus * (processes == 0 ? kPeers : processes) ? kSpinWithSpareCpus : 0;
}

}  // namespace ewarp
