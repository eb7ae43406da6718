// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The command-line tool: arguments in, one of the commands out.
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <optional>

#include "mpi_shim/acp/options.h"
#include "mpi_shim/channel/environment.h"
#include "provider/cli/commands.h"
#include "provider/cli/table.h"

namespace ewarp::cli {

namespace {

void print_option(const std::string& variable, const OptionDoc& d) {
  fmt::print("{}  ({}; default: {})\n", variable, d.unit, d.initial);
  fmt::print("{}", wrapped(d.meaning, 4, 100));
}

}  // namespace

int list_options() {
  fmt::print(
      "An option is set in three places. An argument of `etherwarp run` (--name value) wins over an environment\n"
      "variable, and that over a line `name = value` of the configuration file (ETHERWARP_CONFIG, else\n"
      "$XDG_CONFIG_HOME/etherwarp.conf, else /etc/etherwarp.conf).\n\n");
  for (const auto& d : option_docs()) print_option(option_variable(d.name), d);
  fmt::print(
      "\nOptions of the message channel (MPI and libfabric over EtherWARP, programs on the channel library):\n"
      "environment variables only.\n\n");
  for (const auto& d : channel::option_docs()) print_option(channel::option_variable(d.name), d);
  fmt::print("\nOptions of ACP programs: environment variables only.\n\n");
  for (const auto& d : acp::option_docs()) print_option(acp::option_variable(d.name), d);
  return 0;
}

namespace {

bool is_switch(const OptionDoc& d) {
  return std::string_view(d.unit) == "yes, no";
}

std::string flag(std::string_view name) {
  std::string out(name);
  std::replace(out.begin(), out.end(), '_', '-');
  return out;
}

// "a, b" -> "a|b", "octets" -> "<octets>".
std::string type_name(std::string unit) {
  if (unit.find(',') == unit.npos) return "<" + unit + ">";
  for (std::size_t at; (at = unit.find(", ")) != unit.npos;) unit.replace(at, 2, "|");
  return unit;
}

// The options of EtherWARP as arguments: --name VALUE, and --name / --no-name for switches.
void add_settings(CLI::App& command, Settings& settings) {
  for (const auto& d : option_docs()) {
    const std::string name = d.name;
    if (is_switch(d)) {
      command
          .add_flag_callback(
              "--" + flag(name), [&settings, name] { settings.emplace_back(name, "yes"); }, d.meaning)
          ->group("Options of EtherWARP (--no-NAME switches off; `etherwarp options` explains)");
      command.add_flag_callback("--no-" + flag(name), [&settings, name] { settings.emplace_back(name, "no"); })
          ->group("");
    } else {
      const std::string names = "--" + flag(name) + (name == "interfaces" ? ",--interface" : "");
      command
          .add_option_function<std::string>(
              names, [&settings, name](const std::string& value) { settings.emplace_back(name, value); }, d.meaning)
          ->type_name(type_name(d.unit))
          ->check([name](const std::string& value) { return check_option(name, value); })
          ->group("Options of EtherWARP (--no-NAME switches off; `etherwarp options` explains)");
    }
  }
}

struct Arguments {
  Settings settings;
  std::vector<std::string> program;
  bool json = false, mpi = false;
  StatArguments stat;
  unsigned procs = 1;
  std::string topic;
};

// CLI11 does not know of the program: split_program() takes it away.
class RunFormatter : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App*, std::string) const override {
    return "Usage: etherwarp run [OPTIONS] [--] PROGRAM [ARGUMENTS...]\n";
  }
};

// Nor of mpirun's words.
class MpirunFormatter : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App*, std::string) const override {
    return "Usage: etherwarp mpirun [OPTIONS OF MPIRUN] PROGRAM [ARGUMENTS...]\n";
  }
};

class AcprunFormatter : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App*, std::string) const override {
    return "Usage: etherwarp acprun [-n PROCESSES] [--] PROGRAM [ARGUMENTS...]\n";
  }
};

CLI::App* find_command(CLI::App& app, const std::string& name) {
  for (auto* c : app.get_subcommands([&](const CLI::App* s) { return s->get_name() == name; })) return c;
  return nullptr;
}

void define(CLI::App& app, Arguments& a) {
  app.name("etherwarp");
  app.set_version_flag("--version", "etherwarp " EWARP_VERSION, "Print the version");
  app.require_subcommand(1);
  app.footer(
      "Examples:\n"
      "  etherwarp doctor                                is everything there?\n"
      "  etherwarp run -- ibv_devinfo -v                 a verbs program over EtherWARP\n"
      "  etherwarp run --crc always -- rping -s          with an option\n"
      "  etherwarp mpirun -n 4 ./program                 an MPI program over EtherWARP\n"
      "  etherwarp acprun -n 4 ./program                 an ACP program over EtherWARP\n"
      "  eval \"$(etherwarp env)\"                         for a whole shell\n"
      "  etherwarp stat --watch                          counters, live\n"
      "\n`etherwarp COMMAND --help` says more.");

  auto* run = app.add_subcommand("run", "Run a verbs program over EtherWARP");
  run->formatter(std::make_shared<RunFormatter>());
  run->footer(
      "Examples:\n"
      "  etherwarp run -- ib_send_lat -R -F\n"
      "  etherwarp run --interface lo --no-io-uring -- ib_write_bw -R -F 127.0.0.1\n"
      "  etherwarp run --log debug -- rping -c -a 127.0.0.1 -C 10 -v");
  run->add_flag("--mpi", a.mpi, "A rank of an Open MPI job, which another launcher than `etherwarp mpirun` starts");
  add_settings(*run, a.settings);
  auto* mpirun = app.add_subcommand("mpirun", "Run an MPI program over EtherWARP, by Open MPI's mpirun");
  mpirun->formatter(std::make_shared<MpirunFormatter>());
  mpirun->footer(
      "Everything behind the command is mpirun's own (`mpirun --help`). What runs over EtherWARP is decided by\n"
      "environment variables that mpirun hands on to every rank, with ETHERWARP_* (`etherwarp options`).\n"
      "Examples:\n"
      "  etherwarp mpirun -n 4 ./program\n"
      "  etherwarp mpirun --host one:2,other:2 ./program        EtherWARP in the same place on both hosts\n"
      "  ETHERWARP_CRC=always etherwarp mpirun -n 2 ./program");
  auto* acprun = app.add_subcommand("acprun", "Run an ACP program over EtherWARP: so many processes on this host");
  acprun->formatter(std::make_shared<AcprunFormatter>());
  acprun->add_option("-n", a.procs, "Processes")->check(CLI::Range(1, 4096))->type_name("<processes>");
  acprun->footer("Example:\n  etherwarp acprun -n 4 ./program");
  auto* env = app.add_subcommand("env", "Print the environment that `run` would make, as export lines for a shell");
  env->footer("Example:\n  eval \"$(etherwarp env --crc always)\"");
  env->add_flag("--mpi", a.mpi, "For the ranks of an Open MPI job, with a new job secret");
  add_settings(*env, a.settings);

  auto* devices = app.add_subcommand("devices", "List the devices that programs will find, and their addresses");
  devices->add_flag("--json", a.json, "As JSON");
  app.add_subcommand("doctor", "Say what is missing on this machine and how to mend it (exit status 1 if anything is)");

  auto* stat =
      app.add_subcommand("stat", "Show the counters of every EtherWARP process of this user (of all users, for root)");
  stat->add_flag("-v,--verbose", a.stat.verbose, "All counters, and every queue pair, not just the busiest");
  stat->add_flag("--json", a.stat.json, "As JSON: everything");
  stat->add_flag("--ended", a.stat.ended, "Also processes that ended and were run with --stats-keep");
  stat->add_option("--pid", a.stat.pid, "Only this process (exit status 1 if it is not there)")
      ->check(CLI::PositiveNumber);
  auto* watch = stat->add_option("-w,--watch", a.stat.watch_s,
                                 "Again every so many seconds (default 1), with rates in octets a second")
                    ->expected(0, 1)
                    ->default_str("1")
                    ->type_name("<seconds>")
                    ->check(CLI::Range(0.1, 86400.0));
  stat->add_option("--count", a.stat.count, "With --watch: so many times")->needs(watch)->check(CLI::PositiveNumber);
  stat->footer("Octets count the stream, framing included. ERRORS: failed completions, Terminates, CRC errors.");

  app.add_subcommand("options", "List every option with unit, default and meaning");
  auto* help = app.add_subcommand("help", "Explain a command, or `options`");
  help->add_option("topic", a.topic, "A command, or `options`");
}

// Takes the program and its arguments off the command line of `run`, where CLI11 must not look for options of ours.
// The first word that is neither an option nor an option's value begins the program; so does what follows `--`.
void split_program(std::vector<std::string>& words, const CLI::App& run, std::vector<std::string>& program) {
  std::size_t i = 1;
  for (; i < words.size() && words[i] != "--" && words[i].starts_with('-'); ++i) {
    const auto* option = run.get_option_no_throw(words[i]);
    if (option != nullptr && option->get_items_expected_max() > 0 && i + 1 < words.size()) ++i;
  }
  const std::size_t first = i < words.size() && words[i] == "--" ? i + 1 : i;
  program.assign(words.begin() + static_cast<std::ptrdiff_t>(std::min(first, words.size())), words.end());
  words.resize(std::min(i, words.size()));
}

// What CLI11 says, as one line with a suggestion where a word is nearly right.
int explain(const CLI::ParseError& error, const CLI::App& app, const CLI::App* command,
            const std::vector<std::string>& words) {
  const std::string help = command == nullptr ? "etherwarp --help" : "etherwarp " + command->get_name() + " --help";
  const CLI::App& scope = command == nullptr ? app : *command;
  for (const auto& word : words) {
    const std::string name = word.substr(0, word.find('='));
    if (!name.starts_with('-') || name.size() < 2 || scope.get_option_no_throw(name) != nullptr) continue;
    std::vector<std::string> known;
    for (const auto* o : scope.get_options())
      for (const auto& l : o->get_lnames()) known.push_back("--" + l);
    const std::vector<std::string_view> views(known.begin(), known.end());
    const auto near = nearest_word(name, views);
    return fail(kUsage, "unknown option {}; {}", name,
                near.empty() ? fmt::format("see `{}`", help) : fmt::format("did you mean {}?", near));
  }
  std::string what = error.what();
  what = what.substr(0, what.find('\n'));
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr)
    what = what.substr(0, what.find(':')) + " needs a value";
  return fail(kUsage, "{}; see `{}`", what, help);
}

int unknown_command(const CLI::App& app, const std::string& word) {
  std::vector<std::string> known;
  for (const auto* c : app.get_subcommands([](const CLI::App*) { return true; })) known.push_back(c->get_name());
  const std::vector<std::string_view> views(known.begin(), known.end());
  const auto near = nearest_word(word, views);
  return fail(kUsage, "unknown command '{}'; {}", word,
              near.empty() ? fmt::format("there are: {}", fmt::join(known, ", "))
                           : fmt::format("did you mean `etherwarp {}`?", near));
}

int help(CLI::App& app, const std::string& topic) {
  if (topic == "options") return list_options();
  if (topic.empty()) return fmt::print("{}", app.help()), 0;
  const CLI::App* command = find_command(app, topic);
  if (command == nullptr) return unknown_command(app, topic);
  return fmt::print("{}", command->help()), 0;
}

int dispatch(CLI::App& app, const Arguments& a) {
  const std::string command = app.get_subcommands().front()->get_name();
  if (command == "run") return run(a.settings, a.mpi, a.program);
  if (command == "mpirun") return mpirun(a.program);
  if (command == "acprun") return acprun(a.procs, a.program);
  if (command == "env") return env(a.settings, a.mpi);
  if (command == "devices") return devices(a.json);
  if (command == "doctor") return doctor();
  if (command == "stat") return stat(a.stat);
  if (command == "options") return list_options();
  return help(app, a.topic);
}

int main_with(std::vector<std::string> words) {
  CLI::App app("EtherWARP: RDMA without RDMA hardware. Runs verbs programs over plain Ethernet.");
  Arguments a;
  define(app, a);
  CLI::App* command = nullptr;
  if (!words.empty() && !words[0].starts_with('-')) {
    command = find_command(app, words[0]);
    if (command == nullptr) return unknown_command(app, words[0]);
  }
  if (words.empty()) return fmt::print(stderr, "{}", app.help()), kUsage;
  const bool has_program = command != nullptr && (command->get_name() == "run" || command->get_name() == "acprun");
  if (has_program) split_program(words, *command, a.program);
  if (command != nullptr && command->get_name() == "mpirun" && words.size() > 1 && words[1] != "--help" &&
      words[1] != "-h") {
    a.program.assign(words.begin() + 1, words.end());
    words.resize(1);
  }
  const std::vector<std::string> given(words.begin() + (command == nullptr ? 0 : 1), words.end());
  try {
    std::reverse(words.begin(), words.end());  // CLI11 takes them from the back
    app.parse(words);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    return explain(error, app, command, given);
  }
  if (command != nullptr && command->get_name() == "run" && a.program.empty())
    return fail(kUsage, "no program to run; for example `etherwarp run -- ibv_devices`");
  if (command != nullptr && command->get_name() == "acprun" && a.program.empty())
    return fail(kUsage, "no program to run; for example `etherwarp acprun -n 4 ./program`");
  if (command != nullptr && command->get_name() == "mpirun" && a.program.empty())
    return fail(kUsage, "no program to run; for example `etherwarp mpirun -n 2 ./program`");
  return dispatch(app, a);
}

}  // namespace
}  // namespace ewarp::cli

int main(int argc, char** argv) {
  try {
    return ewarp::cli::main_with(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const std::exception& e) {
    return ewarp::cli::fail(1, "{}", e.what());
  }
}
