// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The channel's options from the environment: values, defaults, what is said about mistakes; the table against the
// structs and the page.
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "mpi_shim/channel/environment.h"

// cmocka last: its fail() is a macro, which C++ headers do not survive.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
extern "C" {
#include <cmocka.h>
}

namespace {

using namespace ewarp::channel;

OptionsRead read_variables(const std::vector<std::string>& environment, const EndpointOptions& defaults = {}) {
  std::vector<const char*> pointers;
  for (const auto& e : environment) pointers.push_back(e.c_str());
  pointers.push_back(nullptr);
  return read_options(pointers, defaults);
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != text.npos;
}

void every_option_takes_its_values(void**) {
  const struct {
    const char* setting;
    bool (*holds)(const EndpointOptions&);
  } kCases[] = {
      {"ADDRESS=192.0.2.1:7000", [](const EndpointOptions& o) { return o.address == "192.0.2.1:7000"; }},
      {"ADDRESS=[2001:db8::1]:0", [](const EndpointOptions& o) { return o.address == "[2001:db8::1]:0"; }},
      {"EAGER_THRESHOLD=0", [](const EndpointOptions& o) { return o.tuning.eager_threshold == 0; }},
      {"EAGER_THRESHOLD=1048576", [](const EndpointOptions& o) { return o.tuning.eager_threshold == 1048576; }},
      {"HYBRID_THRESHOLD=16777216", [](const EndpointOptions& o) { return o.tuning.hybrid_threshold == 16777216; }},
      {"WRITE_WINDOW=16384", [](const EndpointOptions& o) { return o.tuning.write_window == 16384; }},
      {"NARROW_WINDOW=16384", [](const EndpointOptions& o) { return o.tuning.narrow_window == 16384; }},
      {"RENDEZVOUS_BY_READ=on", [](const EndpointOptions& o) { return o.tuning.rendezvous_by_read; }},
      {"ANNOUNCE=off", [](const EndpointOptions& o) { return !o.tuning.announce; }},
      {"ANNOUNCE_THRESHOLD=32768", [](const EndpointOptions& o) { return o.tuning.announce_threshold == 32768; }},
      {"ADAPT=False", [](const EndpointOptions& o) { return !o.tuning.adapt; }},
      {"USAGE_PERCENT=100", [](const EndpointOptions& o) { return o.tuning.usage_percent == 100; }},
      {"USAGE_PERCENT=0", [](const EndpointOptions& o) { return o.tuning.usage_percent == 0; }},
      {"RECEIVE_DEPTH=1", [](const EndpointOptions& o) { return o.tuning.receive_depth == 1; }},
      {"RECEIVE_DEPTH=16384", [](const EndpointOptions& o) { return o.tuning.receive_depth == 16384; }},
      {"HYBRID_BUFFERS=0", [](const EndpointOptions& o) { return o.tuning.hybrid_buffers == 0; }},
      {"ORDERED_COMPLETIONS=yes", [](const EndpointOptions& o) { return o.tuning.ordered_completions; }},
      {"EAGER_PIECE=1024", [](const EndpointOptions& o) { return o.tuning.eager_piece == 1024; }},
      {"EAGER_PIECE=1048576", [](const EndpointOptions& o) { return o.tuning.eager_piece == 1 << 20; }},
      {"RECEIVE_MEMORY=0", [](const EndpointOptions& o) { return o.tuning.receive_memory == 0; }},
      {"RECEIVE_MEMORY=1099511627776", [](const EndpointOptions& o) { return o.tuning.receive_memory == 1ull << 40; }},
      {"COPY_LIMIT=2147483648", [](const EndpointOptions& o) { return o.tuning.copy_limit == 2147483648; }},
      {"COUNTER_LIMIT=2", [](const EndpointOptions& o) { return o.tuning.counter_limit == 2; }},
      {"UNEXPECTED_LIMIT=4096", [](const EndpointOptions& o) { return o.tuning.unexpected_limit == 4096; }},
      {"JOB=f00d", [](const EndpointOptions& o) { return o.job == "f00d"; }},
      {"IGNORED_BITS=0x100000000", [](const EndpointOptions& o) { return o.tuning.ignored_bits == 1ull << 32; }},
      {"IGNORED_BITS=0XFfffffffffffffff", [](const EndpointOptions& o) { return o.tuning.ignored_bits == ~0ull; }},
      {"IGNORED_BITS=16", [](const EndpointOptions& o) { return o.tuning.ignored_bits == 16; }},
      {"DEATH_NS=2000000000", [](const EndpointOptions& o) { return o.tuning.death_ns == 2'000'000'000; }},
      {"PROGRESS_THREAD=0", [](const EndpointOptions& o) { return !o.progress_thread; }},
      {"SPIN_US=0", [](const EndpointOptions& o) { return o.spin_us == 0; }},
      {"SHARES_CPU=1", [](const EndpointOptions& o) { return o.shares_cpu; }},
      {"REGISTRATION=cheap", [](const EndpointOptions& o) { return o.registration == Registration::cheap; }},
      {"REGISTRATION=costly", [](const EndpointOptions& o) { return o.registration == Registration::costly; }},
      {"REGISTRATION=monitored", [](const EndpointOptions& o) { return o.registration == Registration::monitored; }},
      {"REGISTRATION= Kept ", [](const EndpointOptions& o) { return o.registration == Registration::kept; }},
      {"CONNECT_TIMEOUT_NS=1000000", [](const EndpointOptions& o) { return o.connect_timeout_ns == 1'000'000; }},
      {"CLOSE_TIMEOUT_NS=0", [](const EndpointOptions& o) { return o.close_timeout_ns == 0; }},
      {"COUNTERS_AT_CLOSE=yes", [](const EndpointOptions& o) { return o.counters_at_close; }},
      {"END_IF_UNREACHABLE=yes", [](const EndpointOptions& o) { return o.end_if_unreachable; }},
  };
  for (const auto& c : kCases) {
    print_message("case: %s\n", c.setting);
    assert_false(c.holds({}));  // else the case shows nothing
    const auto got = read_variables({std::string("EWARP_CHANNEL_") + c.setting});
    assert_true(got.problems.empty());
    assert_true(c.holds(got.options));
  }
  for (const auto& doc : option_docs()) {
    bool covered = false;
    for (const auto& c : kCases)
      covered = covered || ("EWARP_CHANNEL_" + std::string(c.setting)).starts_with(option_variable(doc.name) + "=");
    if (!covered) fail_msg("option %s has no case", doc.name);
  }
}

// A field more does not compile here until it has a name, and fails until it has an option.
void every_field_has_an_option(void**) {
  [[maybe_unused]] const auto& [address, device, tuning, job, progress_thread, spin_us, shares_cpu, registration,
                                connect, close, counters, say] = EndpointOptions{};
  constexpr std::size_t kOwn = 12 - 2;  // but for the device, which is no option, and the tuning
  [[maybe_unused]] const auto& [eager, piece, hybrid, window, narrow, by_read, announce, announce_threshold, adapt,
                                usage, depth, receive_memory, buffers, ordered, copy_limit, counter_limit, unexpected,
                                ignored, death] = Tuning{};
  constexpr std::size_t kTuning = 19;
  assert_int_equal(option_docs().size(), kOwn + kTuning);
}

void a_documented_default_is_the_default(void**) {
  // Each differs from its default.
  EndpointOptions other;
  other.address = "192.0.2.1:1";
  other.tuning = {.eager_threshold = 1,
                  .eager_piece = 1024,
                  .hybrid_threshold = 1,
                  .write_window = 65536,
                  .narrow_window = 65536,
                  .rendezvous_by_read = true,
                  .announce = false,
                  .announce_threshold = 1,
                  .adapt = false,
                  .usage_percent = 1,
                  .receive_depth = 1,
                  .receive_memory = 1,
                  .hybrid_buffers = 1,
                  .ordered_completions = true,
                  .copy_limit = 1,
                  .counter_limit = 1,
                  .unexpected_limit = 1,
                  .ignored_bits = 1,
                  .death_ns = 1};
  other.job = "x";
  other.progress_thread = false;
  other.spin_us = 1;
  other.shares_cpu = true;
  other.registration = Registration::kept;
  other.connect_timeout_ns = other.close_timeout_ns = 1;
  other.counters_at_close = other.end_if_unreachable = true;
  std::vector<std::string> environment;
  for (const auto& doc : option_docs()) environment.push_back(option_variable(doc.name) + "=" + doc.initial);
  const auto got = read_variables(environment, other);
  assert_true(got.problems.empty());
  assert_true(got.options == EndpointOptions{});
}

void a_mistake_is_one_line_that_names_the_remedy(void**) {
  const struct {
    const char* setting;
    const char* said[2];
  } kCases[] = {
      {"EAGER_TRESHOLD=8192", {"unknown variable EWARP_CHANNEL_EAGER_TRESHOLD", "mean EWARP_CHANNEL_EAGER_THRESHOLD?"}},
      {"eager_threshold=8192", {"unknown variable", "did you mean EWARP_CHANNEL_EAGER_THRESHOLD?"}},
      {"QUANTUM_FOAM=1", {"unknown variable EWARP_CHANNEL_QUANTUM_FOAM", "etherwarp options"}},
      {"ADDRESS=nowhere", {"'nowhere'", "an IP address and a port"}},
      {"ADDRESS=192.0.2.1", {"'192.0.2.1'", "an IP address and a port"}},
      {"EAGER_THRESHOLD=12k", {"'12k' is no value for eager_threshold", "a whole number from 0 to 1048576"}},
      {"EAGER_THRESHOLD=1048577", {"'1048577'", "to 1048576"}},
      {"EAGER_THRESHOLD=0x1000", {"'0x1000'", "whole number"}},
      {"EAGER_THRESHOLD=-1", {"'-1'", "from 0"}},
      {"HYBRID_THRESHOLD=16777217", {"'16777217'", "to 16777216"}},
      {"ANNOUNCE_THRESHOLD=99999999999999999999", {"'99999999999999999999'", "to 1048576"}},
      {"ADAPT=2", {"'2'", "yes or no"}},
      {"ANNOUNCE=maybe", {"'maybe'", "yes or no"}},
      {"USAGE_PERCENT=101", {"'101'", "from 0 to 100"}},
      {"RECEIVE_DEPTH=0", {"'0'", "from 1 to 16384"}},
      {"HYBRID_BUFFERS=65537", {"'65537'", "to 65536"}},
      {"COUNTER_LIMIT=0", {"'0'", "from 1"}},
      {"IGNORED_BITS=0x", {"'0x'", "hexadecimal"}},
      {"IGNORED_BITS=0x10000000000000000", {"'0x10000000000000000'", "64 bits"}},
      {"IGNORED_BITS=0x-1", {"'0x-1'", "hexadecimal"}},
      {"IGNORED_BITS=ff", {"'ff'", "hexadecimal"}},
      {"DEATH_NS=0", {"'0'", "from 1000000"}},
      {"SPIN_US=-2", {"'-2'", "from -1"}},
      {"REGISTRATION=dear", {"'dear'", "measured, cheap, costly, monitored, kept"}},
      {"CONNECT_TIMEOUT_NS=0", {"'0'", "from 1000000"}},
  };
  for (const auto& c : kCases) {
    print_message("case: %s\n", c.setting);
    const auto got = read_variables({std::string("EWARP_CHANNEL_") + c.setting});
    assert_int_equal(got.problems.size(), 1);
    for (const char* part : c.said)
      if (!contains(got.problems[0], part)) fail_msg("'%s' lacks '%s'", got.problems[0].c_str(), part);
    assert_true(got.problems[0].ends_with("; ignored") && !contains(got.problems[0], "\n"));
    assert_true(got.options == EndpointOptions{});
  }
}

void the_default_is_the_callers(void**) {
  EndpointOptions defaults;
  defaults.registration = Registration::cheap;
  defaults.shares_cpu = true;
  const auto got = read_variables({"EWARP_CHANNEL_REGISTRATION=dear", "EWARP_CHANNEL_SHARES_CPU=",
                                   "EWARP_CHANNEL_SPIN_US= ", "ETHERWARP_CRC=maybe", "EWARP_CHANNELS=1", "NOTHING"},
                                  defaults);
  assert_int_equal(got.problems.size(), 1);
  assert_true(got.options == defaults);
}

// What a child process that reads its environment twice says on stderr. asks: it takes the problems as data.
std::string said_by_a_child(bool asks) {
  int ends[2];
  assert_int_equal(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    close(ends[1]);
    setenv("EWARP_CHANNEL_USAGE_PERCENT", "101", 1);
    setenv("EWARP_CHANNEL_COPY_LIMITS", "1", 1);
    bool good = true;
    for (int i = 0; i < 2; ++i) {
      std::vector<std::string> problems;
      const auto options = EndpointOptions::from_environment({}, asks ? &problems : nullptr);
      good = good && options == EndpointOptions{} && problems.size() == (asks ? 2 : 0);
    }
    _exit(good ? 0 : 1);
  }
  close(ends[1]);
  std::string said;
  char octets[1024];
  for (ssize_t n; (n = read(ends[0], octets, sizeof octets)) > 0;) said.append(octets, static_cast<std::size_t>(n));
  close(ends[0]);
  int status = 0;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  return said;
}

void it_is_said_once(void**) {
  assert_string_equal(said_by_a_child(true).c_str(), "");
  assert_string_equal(said_by_a_child(false).c_str(),
                      "etherwarp: warn: EWARP_CHANNEL_USAGE_PERCENT: '101' is no value for usage_percent; expected: a "
                      "whole number from 0 to 100; ignored\n"
                      "etherwarp: warn: unknown variable EWARP_CHANNEL_COPY_LIMITS; did you mean "
                      "EWARP_CHANNEL_COPY_LIMIT?; ignored\n");
}

// One space between words, however the lines are cut.
std::string joined(const std::string& text) {
  std::istringstream words(text);
  std::string out, word;
  while (words >> word) out += (out.empty() ? "" : " ") + word;
  return out;
}

// docs/user/channel.md lists the options that the tool prints, no more and no fewer, in its words.
void the_page_of_documentation_is_complete(void**) {
  std::ifstream file(EWARP_CHANNEL_PAGE);
  assert_true(file.good());
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  std::string wanted;
  for (const auto& d : option_docs())
    wanted += std::string("* `") + d.name + "` (" + d.unit + "; default: " + d.initial + "): " + d.meaning + "\n";
  const std::size_t first = page.find("\n\n* `" + std::string(option_docs().front().name) + "` (");
  if (first == page.npos) fail_msg("docs/user/channel.md has no list of options");
  const std::size_t begin = first + 2, end = page.find("\n\n", begin);
  assert_string_equal(joined(page.substr(begin, end - begin)).c_str(), joined(wanted).c_str());
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(every_option_takes_its_values),
      cmocka_unit_test(every_field_has_an_option),
      cmocka_unit_test(a_documented_default_is_the_default),
      cmocka_unit_test(a_mistake_is_one_line_that_names_the_remedy),
      cmocka_unit_test(the_default_is_the_callers),
      cmocka_unit_test(it_is_said_once),
      cmocka_unit_test(the_page_of_documentation_is_complete),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
