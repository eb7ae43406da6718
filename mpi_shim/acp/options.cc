// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "mpi_shim/acp/options.h"

#include <cstdio>

namespace ewarp::acp {
namespace {

constexpr std::string_view kPrefix = "ACP_";
// What the launcher sets (job/protocol.h).
constexpr std::string_view kOthers[] = {"rank", "procs", "root", "secret"};

Expected set_multiple(std::uint32_t& out, std::string_view value, std::uint32_t least, std::uint32_t most) {
  std::uint32_t n = 0;
  if (!set_number(n, value, least, most) && n % 8 == 0) return out = n, std::nullopt;
  return concat({"a multiple of 8 from ", std::to_string(least), " to ", std::to_string(most)});
}

Expected set_mode(Mode& out, std::string_view value) {
  constexpr std::string_view kWords[] = {"paper", "immediate"};
  constexpr Mode kValues[] = {Mode::paper, Mode::immediate};
  return set_choice(out, value, kWords, kValues);
}

Expected set_transport(TransportKind& out, std::string_view value) {
  constexpr std::string_view kWords[] = {"auto", "rd", "rc"};
  constexpr TransportKind kValues[] = {TransportKind::automatic, TransportKind::rd, TransportKind::rc};
  return set_choice(out, value, kWords, kValues);
}

constexpr OptionEntry<Options> kEntries[] = {
    {{"slot_size", "octets", "65536",
      "Of a slot of a channel, 8 octets for the header included; a multiple of 8. The same in all processes."},
     [](Options& o, std::string_view v) { return set_multiple(o.slot_size, v, 16, 1u << 24); }},
    {{"sb_slots", "slots", "2", "Slots of a channel's send buffer."},
     [](Options& o, std::string_view v) { return set_number(o.sb_slots, v, 1u, 4096u); }},
    {{"rb_slots", "slots", "8", "Slots of a channel's receive buffer."},
     [](Options& o, std::string_view v) { return set_number(o.rb_slots, v, 1u, 4096u); }},
    {{"mode", "paper, immediate", "immediate",
      "How a slot is announced; paper: by two further operations, which write the indices of the receive buffer; "
      "immediate: by immediate data. The same in all processes."},
     [](Options& o, std::string_view v) { return set_mode(o.mode, v); }},
    {{"progress_thread", "yes, no", "no", "A thread makes progress while the program computes; no: calls alone do."},
     [](Options& o, std::string_view v) { return set_bool(o.progress_thread, v); }},
    {{"starter_size", "octets", "4096",
      "Of each process's starter memory; a multiple of 8. The same in all processes."},
     [](Options& o, std::string_view v) { return set_multiple(o.starter_size, v, 8, 1u << 30); }},
    {{"transport", "auto, rd, rc", "auto",
      "The transport; rd: EtherWARP's reliable datagrams; rc: reliable connections, which other RDMA devices "
      "have, too; auto: rd, or rc if there is no device with rd. The same in all processes."},
     [](Options& o, std::string_view v) { return set_transport(o.transport, v); }},
    {{"device", "name", "chosen", "The RDMA device; chosen: ewarp_lo within one host, else the first that serves."},
     [](Options& o, std::string_view v) {
       o.device = v == "chosen" ? "" : v;
       return Expected();
     }},
    {{"spin_us", "microseconds", "-1",
      "How long a call that waits polls before it sleeps; -1: 1000 where several CPUs may be used, else 0."},
     [](Options& o, std::string_view v) { return set_number(o.spin_us, v, -1, 1'000'000); }},
};

constexpr OptionTable<Options> kTable(kPrefix, kEntries, kOthers);

}  // namespace

std::span<const OptionDoc> option_docs() {
  static const std::vector<OptionDoc> docs = kTable.docs();
  return docs;
}

std::string option_variable(std::string_view name) {
  return kTable.variable(name);
}

OptionsRead read_options(std::span<const char* const> environment) {
  OptionsRead out;
  each_variable(environment, kPrefix, [&](std::string_view variable, std::string_view value) {
    if (auto wrong = kTable.set_variable(out.options, variable, value); !wrong.empty())
      out.problems.push_back(std::move(wrong));
  });
  return out;
}

Options options_from_environment() {
  if (!environment_is_trusted()) return {};
  const auto read = read_options(own_environment());
  for (const auto& problem : read.problems) std::fprintf(stderr, "etherwarp: warn: %s\n", problem.c_str());
  return read.options;
}

}  // namespace ewarp::acp
