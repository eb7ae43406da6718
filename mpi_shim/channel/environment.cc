// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "mpi_shim/channel/environment.h"

#include <unistd.h>

#include <atomic>

namespace ewarp::channel {
namespace {

constexpr std::string_view kPrefix = "EWARP_CHANNEL_";
constexpr std::size_t kMostCopied = std::size_t{1} << 31;
constexpr std::uint64_t kMillisecond = 1'000'000, kHour = 3'600'000 * kMillisecond;  // nanoseconds

Expected set_address(std::string& out, std::string_view value) {
  if (!Address::parse(std::string(value))) return "an IP address and a port, as in 192.0.2.1:0 or [2001:db8::1]:0";
  out = value;
  return std::nullopt;
}

Expected set_piece(std::size_t& out, std::string_view value) {
  std::size_t octets = 0;
  if (auto wrong = set_number(octets, value, Tuning::kPieceUnit, Tuning::kMostEager)) return wrong;
  if (octets % Tuning::kPieceUnit != 0) return "a multiple of 1024";
  out = octets;
  return std::nullopt;
}

Expected set_registration(Registration& out, std::string_view value) {
  using enum Registration;
  constexpr std::string_view kWords[] = {"measured", "cheap", "costly", "monitored", "kept"};
  constexpr Registration kValues[] = {measured, cheap, costly, monitored, kept};
  return set_choice(out, value, kWords, kValues);
}

constexpr OptionEntry<EndpointOptions> kEntries[] = {
    {{"address", "ip:port", "127.0.0.1:0",
      "Where this end listens: an address of an RDMA device, and a port; 0: any that is free."},
     [](EndpointOptions& o, std::string_view v) { return set_address(o.address, v); }},
    {{"job", "text", "none",
      "A secret that all processes of the job have, and nobody else: others are refused. none: everybody is let in."},
     [](EndpointOptions& o, std::string_view v) {
       o.job = v == "none" ? "" : v;
       return Expected();
     }},
    {{"eager_threshold", "octets", "12288", "Messages of so much at most go EAGER. The same at all ends."},
     [](EndpointOptions& o, std::string_view v) {
       return set_number(o.tuning.eager_threshold, v, 0, Tuning::kMostEager);
     }},
    {{"eager_piece", "octets", "16384",
      "EAGER messages go in pieces of so much at most, each of which fills a receive buffer; a multiple of 1024. The "
      "same at all ends."},
     [](EndpointOptions& o, std::string_view v) { return set_piece(o.tuning.eager_piece, v); }},
    {{"hybrid_threshold", "octets", "40960",
      "Messages above eager_threshold, of so much at most, go by HYBRID, unless the receiver has announced its "
      "buffer."},
     [](EndpointOptions& o, std::string_view v) {
       return set_number(o.tuning.hybrid_threshold, v, 0, Tuning::kMostHybrid);
     }},
    {{"write_window", "octets", "4194304",
      "Of messages by rendezvous so much is with the adapter for a peer at a time, and small messages pass the rest."},
     [](EndpointOptions& o, std::string_view v) {
       return set_number(o.tuning.write_window, v, Tuning::kLeastWindow, std::size_t{1} << 40);
     }},
    {{"narrow_window", "octets", "131072", "The same as write_window, while small messages pass."},
     [](EndpointOptions& o, std::string_view v) {
       return set_number(o.tuning.narrow_window, v, Tuning::kLeastWindow, std::size_t{1} << 40);
     }},
    {{"rendezvous_by_read", "yes, no", "no", "SEND_RNDV: the receiver Reads; no: it answers, and the sender Writes."},
     [](EndpointOptions& o, std::string_view v) { return set_bool(o.tuning.rendezvous_by_read, v); }},
    {{"announce", "yes, no", "yes", "Receives that come before their messages announce their buffers (RECV_RNDV)."},
     [](EndpointOptions& o, std::string_view v) { return set_bool(o.tuning.announce, v); }},
    {{"announce_threshold", "octets", "12288",
      "Receives of more than this, or than eager_threshold where that is less, announce their buffers."},
     [](EndpointOptions& o, std::string_view v) {
       return set_number(o.tuning.announce_threshold, v, 0, Tuning::kMostEager);
     }},
    {{"adapt", "yes, no", "yes", "Announcements stop where too few are used, and begin again where they would be."},
     [](EndpointOptions& o, std::string_view v) { return set_bool(o.tuning.adapt, v); }},
    {{"usage_percent", "percent", "80", "With adapt: fewer than so many used announcements are too few."},
     [](EndpointOptions& o, std::string_view v) { return set_number(o.tuning.usage_percent, v, 0, 100); }},
    {{"receive_depth", "messages", "64",
      "So many messages or pieces a peer may have under way to this end. The same at all ends."},
     [](EndpointOptions& o, std::string_view v) {
       return set_number(o.tuning.receive_depth, v, 1, Tuning::kMostReceiveDepth);
     }},
    {{"receive_memory", "octets", "1048576",
      "Receive buffers that all peers share, beyond the 2 that each of them has."},
     [](EndpointOptions& o, std::string_view v) {
       return set_number(o.tuning.receive_memory, v, 0, std::size_t{1} << 40);
     }},
    {{"hybrid_buffers", "buffers", "64",
      "Buffers for messages by HYBRID that wait to be read, of all peers; 0: no HYBRID."},
     [](EndpointOptions& o, std::string_view v) { return set_number(o.tuning.hybrid_buffers, v, 0, 65'536); }},
    {{"ordered_completions", "yes, no", "no",
      "A receive ends behind those of the same peer that messages by HYBRID were being fetched for before."},
     [](EndpointOptions& o, std::string_view v) { return set_bool(o.tuning.ordered_completions, v); }},
    {{"copy_limit", "octets", "4194304",
      "So much for each peer is copied at most, to complete eager sends while the path is full."},
     [](EndpointOptions& o, std::string_view v) { return set_number(o.tuning.copy_limit, v, 0, kMostCopied); }},
    {{"counter_limit", "tags", "1024", "So many tags are counted for each peer and direction."},
     [](EndpointOptions& o, std::string_view v) { return set_number(o.tuning.counter_limit, v, 1, 1 << 20); }},
    {{"unexpected_limit", "octets", "268435456",
      "Messages that no receive has asked for may take so much memory; beyond it senders wait that nothing waits for. "
      "0: no limit."},
     [](EndpointOptions& o, std::string_view v) {
       return set_number(o.tuning.unexpected_limit, v, 0, std::size_t{1} << 40);
     }},
    {{"ignored_bits", "bits", "0",
      "Bits of tags that receives ignore as a rule, which messages are numbered without; hexadecimal behind 0x. The "
      "same "
      "at all ends."},
     [](EndpointOptions& o, std::string_view v) { return set_bits(o.tuning.ignored_bits, v); }},
    {{"death_ns", "nanoseconds", "30000000000",
      "Silence after which a peer that is waited for is taken for dead; more than the largest message takes on its "
      "way."},
     [](EndpointOptions& o, std::string_view v) { return set_number(o.tuning.death_ns, v, kMillisecond, kHour); }},
    {{"progress_thread", "yes, no", "yes",
      "A thread answers control messages; no: they are answered inside the calls only."},
     [](EndpointOptions& o, std::string_view v) { return set_bool(o.progress_thread, v); }},
    {{"spin_us", "microseconds", "-1",
      "How long a call that waits polls before it sleeps; -1: 1000 where several CPUs may be used, else 0."},
     [](EndpointOptions& o, std::string_view v) { return set_number(o.spin_us, v, -1, 1'000'000); }},
    {{"shares_cpu", "yes, no", "no",
      "There are more processes than CPUs: a poll that finds nothing for 50 us lets others run."},
     [](EndpointOptions& o, std::string_view v) { return set_bool(o.shares_cpu, v); }},
    {{"registration", "measured, cheap, costly, monitored, kept", "measured",
      "Memory that the adapter is to reach; cheap: is registered for each transfer; costly: so, but small buffers are "
      "copied; monitored: stays registered until the kernel tells that it was unmapped; measured: the one of these "
      "that "
      "suits the adapter; kept: stays registered, for applications that say what they unmap."},
     [](EndpointOptions& o, std::string_view v) { return set_registration(o.registration, v); }},
    {{"connect_timeout_ns", "nanoseconds", "10000000000",
      "How long a connection is tried, also while the peer does not listen yet."},
     [](EndpointOptions& o, std::string_view v) { return set_number(o.connect_timeout_ns, v, kMillisecond, kHour); }},
    {{"close_timeout_ns", "nanoseconds", "2000000000",
      "How long an end that closes waits for its peers to fetch what they were promised."},
     [](EndpointOptions& o, std::string_view v) { return set_number(o.close_timeout_ns, v, 0, kHour); }},
    {{"counters_at_close", "yes, no", "no", "Counters on stderr when an end closes."},
     [](EndpointOptions& o, std::string_view v) { return set_bool(o.counters_at_close, v); }},
    {{"end_if_unreachable", "yes, no", "no",
      "If a connection that is asked for does not come to be, a line on stderr says why, and the process ends; no: "
      "requests to that peer fail."},
     [](EndpointOptions& o, std::string_view v) { return set_bool(o.end_if_unreachable, v); }},
};

constexpr OptionTable<EndpointOptions> kTable(kPrefix, kEntries);

// Once in a process, by whoever reads first what cannot be right.
void say_once(std::span<const std::string> problems) {
  static std::atomic<bool> said{false};
  if (problems.empty() || said.exchange(true, std::memory_order_relaxed)) return;
  for (const auto& problem : problems) {
    const std::string line = concat({"etherwarp: warn: ", problem, "\n"});
    [[maybe_unused]] const ssize_t n = write(STDERR_FILENO, line.data(), line.size());
  }
}

}  // namespace

std::span<const OptionDoc> option_docs() {
  static const std::vector<OptionDoc> docs = kTable.docs();
  return docs;
}

std::string option_variable(std::string_view name) {
  return kTable.variable(name);
}

OptionsRead read_options(std::span<const char* const> environment, const EndpointOptions& defaults) {
  OptionsRead out{.options = defaults, .problems = {}};
  each_variable(environment, kPrefix, [&](std::string_view variable, std::string_view value) {
    if (auto wrong = kTable.set_variable(out.options, variable, value); !wrong.empty())
      out.problems.push_back(std::move(wrong));
  });
  return out;
}

OptionsRead read_options(const EndpointOptions& defaults) {
  if (!environment_is_trusted()) return {.options = defaults, .problems = {}};
  return read_options(own_environment(), defaults);
}

EndpointOptions EndpointOptions::from_environment() {
  return from_environment({});
}

EndpointOptions EndpointOptions::from_environment(const EndpointOptions& defaults, std::vector<std::string>* problems) {
  auto read = read_options(defaults);
  if (problems == nullptr)
    say_once(read.problems);
  else
    *problems = std::move(read.problems);
  return std::move(read.options);
}

}  // namespace ewarp::channel
