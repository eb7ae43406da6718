// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/base/options.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <thread>

#include <fmt/format.h>

#include "llp/made_once.h"
#include "provider/base/log.h"

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
constexpr std::string_view kOtherNames[] = {"config", "provider", "preload", "rundir"};
constexpr std::string_view kTestPrefix = "TEST_";

// --- values ---------------------------------------------------------------------------------------------------------

Expected set_crc(CrcPolicy& out, std::string_view value) {
  constexpr std::string_view kWords[] = {"by_path", "always", "never"};
  constexpr CrcPolicy kPolicies[] = {CrcPolicy::by_path, CrcPolicy::always, CrcPolicy::never};
  return set_choice(out, value, kWords, kPolicies);
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
  constexpr std::string_view kGood = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
  const bool good = value.size() <= 15 && value.find_first_not_of(kGood) == value.npos;
  if (!good) return "auto, system, or the name of a congestion control such as reno";
  out = value;
  return std::nullopt;
}

// --- the table ------------------------------------------------------------------------------------------------------

constexpr std::string_view kLogLevels[] = {"error", "warn", "info", "debug"};
constexpr std::string_view kRtrKinds[] = {"write", "read", "send"};
constexpr unsigned kHour = 3'600'000;  // milliseconds

constexpr OptionEntry<Options> kEntries[] = {
    {{"interfaces", "names", "every one that is up",
      "Network interfaces that become devices, separated by commas. Interface eth0 becomes device ewarp_eth0."},
     [](Options& o, std::string_view v) { return set_interfaces(o.interfaces, v); }},
    {{"twin", "yes, no", "no",
      "Offer each interface a second time, as device ewarpx_eth0, of type CA with an Ethernet link layer, for "
      "programs that know RoCE only."},
     [](Options& o, std::string_view v) { return set_bool(o.twin, v); }},
    {{"log", "error, warn, info, debug", "error",
      "Which messages go to stderr: those of this level and of the levels named before it. debug traces every "
      "change of state."},
     [](Options& o, std::string_view v) { return set_word(o.log, v, kLogLevels); }},
    {{"crc", "by_path, always, never", "by_path",
      "When MPA's CRC32C is asked for; by_path: unless the peer is on this host. A peer that asks for it always "
      "gets it."},
     [](Options& o, std::string_view v) { return set_crc(o.crc, v); }},
    {{"markers", "yes, no", "no", "Demand MPA markers from peers. Markers that a peer demands are always sent."},
     [](Options& o, std::string_view v) { return set_bool(o.markers, v); }},
    {{"local", "auto, off", "auto",
      "Streams between processes of one user on one host leave TCP for shared memory after their start-up, "
      "unless one end has this off."},
     [](Options& o, std::string_view v) -> Expected {
       if (v != "auto" && v != "off") return Expected("auto or off");
       o.local = v == "auto";
       return Expected();
     }},
    {{"extensions", "yes, no", "yes",
      "Offer and accept what goes beyond RFC 5040 to 5044 (large segments, immediate data, atomics), if the peer "
      "consents."},
     [](Options& o, std::string_view v) { return set_bool(o.extensions, v); }},
    {{"mpa_revision", "1, 2", "2",
      "Revision of the start-up frame that rdma_connect() sends: 1 is RFC 5044, 2 is RFC 6581. Both are accepted."},
     [](Options& o, std::string_view v) { return set_number(o.mpa_revision, v, 1u, 2u); }},
    {{"peer_to_peer", "yes, no", "yes",
      "Ask for the peer-to-peer start-up of RFC 6581, after which either side may send first."},
     [](Options& o, std::string_view v) { return set_bool(o.peer_to_peer, v); }},
    {{"rtr", "write, read, send", "write", "First choice for the message that ends a peer-to-peer start-up."},
     [](Options& o, std::string_view v) { return set_word(o.rtr, v, kRtrKinds); }},
    {{"io_uring", "yes, no", "yes",
      "Use io_uring if the kernel allows it; no: use epoll, sendmsg and recvmsg, which are slower."},
     [](Options& o, std::string_view v) { return set_bool(o.io_uring, v); }},
    {{"ulpdu_octets", "octets", "64768",
      "Largest ULPDU that is sent to peers that consented to large ones (option extensions)."},
     [](Options& o, std::string_view v) { return set_number(o.ulpdu_octets, v, 512u, 65'535u); }},
    {{"takeover_us", "microseconds", "2500",
      "After this time at the latest the background thread notices that an application no longer polls. The "
      "shorter the application has polled, the sooner the thread notices."},
     [](Options& o, std::string_view v) { return set_number(o.takeover_us, v, 1u, 1'000'000u); }},
    {{"spin_us", "microseconds", "-1",
      "The background thread spins for this time at most before it sleeps, if the pause before was not longer; -1: "
      "2000 if 4 CPUs are usable, or 2 for each local rank of an MPI job, else 0."},
     [](Options& o, std::string_view v) { return set_number(o.spin_us, v, -1, 1'000'000); }},
    {{"hand_over_octets", "octets", "131072",
      "If one post has Sends and Writes of this size or more, the background thread sends them, so that the poster "
      "can compute. If the poster is known to wait, or if spin_us is 0, it sends them itself; 0: the poster always "
      "begins to send itself."},
     [](Options& o, std::string_view v) { return set_number(o.hand_over_octets, v, 0u, 1u << 31); }},
    {{"write_hold_us", "microseconds", "50",
      "A poll may hold back the completion of a Write for this time at most, and receives meanwhile, if the peer "
      "has been answering Writes and the hold makes the program faster (ping-pongs by Writes). Four times this time, "
      "if it is longer from one completion to the next; a Write of 16 KiB or more longer by three times what it "
      "took; 0: never."},
     [](Options& o, std::string_view v) { return set_number(o.write_hold_us, v, 0u, 1'000'000u); }},
    {{"post_wait_us", "microseconds", "50",
      "Sends, Writes and Reads that a thread posts behind each other, all but the first, may wait for its next "
      "poll, to leave in one system call. They may where the thread has been polling within this time; 0: never."},
     [](Options& o, std::string_view v) { return set_number(o.post_wait_us, v, 0u, 1'000'000u); }},
    {{"connect_timeout_ms", "milliseconds", "10000", "rdma_connect(): time for the TCP connection."},
     [](Options& o, std::string_view v) { return set_number(o.connect_timeout_ms, v, 1u, kHour); }},
    {{"reply_timeout_ms", "milliseconds", "60000",
      "rdma_connect(): time for the MPA Reply after the TCP connection. The peer's program has to call rdma_accept() "
      "or rdma_reject() within it."},
     [](Options& o, std::string_view v) { return set_number(o.reply_timeout_ms, v, 1u, kHour); }},
    {{"refused_wait_ms", "milliseconds", "100",
      "rdma_connect(): time in which it tries again if nobody listens, for servers that listen a moment too late; "
      "0: it does not try again."},
     [](Options& o, std::string_view v) { return set_number(o.refused_wait_ms, v, 0u, kHour); }},
    {{"bring_up_timeout_ms", "milliseconds", "30000",
      "ibv_modify_qp() to RTR without rdma_cm: time until the connection with the peer's QP stands. After it the "
      "QP fails."},
     [](Options& o, std::string_view v) { return set_number(o.bring_up_timeout_ms, v, 1u, kHour); }},
    {{"request_timeout_ms", "milliseconds", "5000",
      "Time for the peer's MPA Request after TCP's accept: at rdma_listen(), and of QPs that are connected without "
      "rdma_cm."},
     [](Options& o, std::string_view v) { return set_number(o.request_timeout_ms, v, 1u, kHour); }},
    {{"rtr_timeout_ms", "milliseconds", "10000", "rdma_accept(): time for the first message after the MPA Reply."},
     [](Options& o, std::string_view v) { return set_number(o.rtr_timeout_ms, v, 1u, kHour); }},
    {{"rtr_repeat_ms", "milliseconds", "250",
      "After rdma_connect() in peer-to-peer mode, if a peer without our extensions sends nothing for this time, an "
      "empty RDMA Write goes out behind a first message that is an RDMA Write or Read, and again after twice, four and "
      "eight times this time; 0: it does not."},
     [](Options& o, std::string_view v) { return set_number(o.rtr_repeat_ms, v, 0u, kHour); }},
    {{"responder_wait_ms", "milliseconds", "250",
      "If the peer did not ask for peer-to-peer mode, a responder waits for the initiator's first message for this "
      "time, then sends its own; 0: it waits until that message comes (RFC 5044)."},
     [](Options& o, std::string_view v) { return set_number(o.responder_wait_ms, v, 0u, kHour); }},
    {{"close_timeout_ms", "milliseconds", "2000",
      "Time for a graceful close, after which the connection ends. If the peer then takes nothing of what was sent for "
      "this time, TCP drops it."},
     [](Options& o, std::string_view v) { return set_number(o.close_timeout_ms, v, 1u, kHour); }},
    {{"keepalive_s", "seconds", "30",
      "An idle connection with another host asks after this time whether the peer's host is there, and ends within "
      "twice the time (at least 6 seconds) if it is not; 0: it never asks."},
     [](Options& o, std::string_view v) { return set_number(o.keepalive_s, v, 0u, 16'383u); }},
    {{"unacknowledged_s", "seconds", "15",
      "A connection with another host ends if that host answers nothing for this time while octets wait for its "
      "acknowledgement, though they were sent again. A QP without rdma_cm waits longer if its timeout and retry_cnt "
      "say so; 0: TCP decides (about 15 minutes)."},
     [](Options& o, std::string_view v) { return set_number(o.unacknowledged_s, v, 0u, 3600u); }},
    {{"rnr_wait_ms", "milliseconds", "1000",
      "If a Send finds no receive posted, it waits for one for this time, then the stream ends in error; if the "
      "program connected with rdma_cm's rnr_retry_count 7, it waits as long as its sender is seen, which is looked at "
      "each time this time is over; 0: the stream ends at once."},
     [](Options& o, std::string_view v) { return set_number(o.rnr_wait_ms, v, 0u, kHour); }},
    {{"half_message_ms", "milliseconds", "10000",
      "If a peer sends a part of a message and no more, its connection ends when other connections have waited for "
      "this "
      "time for receives of the same shared receive queue; 0: it does not."},
     [](Options& o, std::string_view v) { return set_number(o.half_message_ms, v, 0u, kHour); }},
    {{"invalidate_regions", "yes, no", "no",
      "A peer's Send with Invalidate may name an ordinary memory region of the protection domain, as Linux siw allows; "
      "no: a memory window of type 2 only."},
     [](Options& o, std::string_view v) { return set_bool(o.invalidate_regions, v); }},
    {{"ud_reliable", "yes, no", "no",
      "Queue pairs of type UD lose no message and keep the order of the messages to one peer. Both ends must have "
      "it set. No multicast."},
     [](Options& o, std::string_view v) { return set_bool(o.ud_reliable, v); }},
    {{"congestion", "name", "auto",
      "TCP congestion control; auto: reno towards this host, the system's elsewhere; system: the system's; or a "
      "name."},
     [](Options& o, std::string_view v) { return set_congestion(o.congestion, v); }},
    {{"stats", "yes, no", "yes", "Publish counters for `etherwarp stat`."},
     [](Options& o, std::string_view v) { return set_bool(o.stats, v); }},
    {{"stats_keep", "yes, no", "no", "Leave the counters behind at exit, for `etherwarp stat --ended`."},
     [](Options& o, std::string_view v) { return set_bool(o.stats_keep, v); }},
};

constexpr OptionTable<Options> kTable(kPrefix, kEntries, kOtherNames);

// --- reading --------------------------------------------------------------------------------------------------------

using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;
File open_file(const std::string& path) {
  return File(std::fopen(path.c_str(), "re"), std::fclose);
}

// A line of any length, without what ends it. False: there is none.
bool read_line(std::FILE* file, std::string& line) {
  line.clear();
  int c = std::fgetc(file);
  if (c == EOF) return false;
  for (; c != EOF && c != '\n'; c = std::fgetc(file)) line += static_cast<char>(c);
  return true;
}

void read_file(std::FILE* file, OptionsRead& out) {
  std::string line;
  for (unsigned number = 1; read_line(file, line); ++number) {
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
    if (const auto wrong = kTable.set(out.options, name, text.substr(equals + 1)); !wrong.empty()) problem(wrong);
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

const OptionsRead& state() {
  static constinit llp::MadeOnce<OptionsRead> state;
  return state.get([] { return read_options(); },
                   [](const OptionsRead& read) {
                     for (const auto& problem : read.problems) log::write(log::Level::warn, problem);
                   });
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
  static const std::vector<OptionDoc> docs = kTable.docs();
  return docs;
}

OptionsRead read_options(std::span<const char* const> environment, bool trusted) {
  OptionsRead out;
  read_configuration(environment, trusted, out);
  if (!trusted) return out;
  each_variable(environment, kPrefix, [&](std::string_view variable, std::string_view value) {
    if (variable.substr(kPrefix.size()).starts_with(kTestPrefix)) return;
    if (auto wrong = kTable.set_variable(out.options, variable, value); !wrong.empty())
      out.problems.push_back(std::move(wrong));
  });
  return out;
}

OptionsRead read_options() {
  return read_options(own_environment(), environment_is_trusted());
}

std::string check_option(std::string_view name, std::string_view value) {
  Options scratch;
  return kTable.set(scratch, name, value);
}

std::string option_variable(std::string_view name) {
  return kTable.variable(name);
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

bool asks_for_crc(bool near) {
  switch (options().crc) {
    case CrcPolicy::always:
      return true;
    case CrcPolicy::never:
      return false;
    case CrcPolicy::by_path:
      break;
  }
  return !near;
}

unsigned usable_cpus() {
  return cpus_of(0);
}

unsigned effective_spin_us(const Options& options) {
  if (options.spin_us >= 0) return static_cast<unsigned>(options.spin_us);
  const unsigned own = usable_cpus(), processes = local_processes();
  // A launcher binds the processes of a job to their shares of its own CPUs.
  const unsigned all = processes == 0 ? own : std::max(own, cpus_of(getppid()));
  return own >= kOwnCpus && all >= kOwnCpus * (processes == 0 ? kPeers : processes) ? kSpinWithSpareCpus : 0;
}

}  // namespace ewarp
