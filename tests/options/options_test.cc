// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Options from the environment and from a file: values, defaults, precedence, and what is said about mistakes.
#include <stdlib.h>
#include <unistd.h>

#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "provider/base/options.h"

// cmocka last: its fail() is a macro, which C++ headers do not survive.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
extern "C" {
#include <cmocka.h>
}

namespace {

using namespace ewarp;

// A file that disappears with the test.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& text) {
    const int fd = mkstemp(path_);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text.data(), text.size()), text.size());
    close(fd);
  }
  ~TemporaryFile() { unlink(path_); }
  std::string variable() const { return std::string("ETHERWARP_CONFIG=") + path_; }
  std::string path() const { return path_; }

 private:
  char path_[32] = "/tmp/ewarp-options-XXXXXX";
};

OptionsRead read(const std::vector<std::string>& environment, bool trusted = true) {
  std::vector<const char*> pointers;
  for (const auto& e : environment) pointers.push_back(e.c_str());
  pointers.push_back(nullptr);
  return read_options(pointers, trusted);
}

// Keeps the machine's own configuration files out.
const std::string kNoFile = "XDG_CONFIG_HOME=/nonexistent";

bool contains(const std::string& text, const char* part) {
  return text.find(part) != text.npos;
}

void every_option_takes_its_values(void**) {
  const struct {
    const char* setting;
    bool (*holds)(const Options&);
  } kCases[] = {
      {"ETHERWARP_INTERFACES=eth0,lo",
       [](const Options& o) {
         return o.interfaces == std::vector<std::string>{"eth0", "lo"};
       }},
      {"ETHERWARP_INTERFACES=lo, lo ,eth0",
       [](const Options& o) {
         return o.interfaces == std::vector<std::string>{"lo", "eth0"};
       }},
      {"ETHERWARP_TWIN=1", [](const Options& o) { return o.twin; }},
      {"ETHERWARP_LOG=Debug", [](const Options& o) { return o.log == "debug"; }},
      {"ETHERWARP_CRC=always", [](const Options& o) { return o.crc == CrcPolicy::always; }},
      {"ETHERWARP_CRC=never", [](const Options& o) { return o.crc == CrcPolicy::never; }},
      {"ETHERWARP_MARKERS=on", [](const Options& o) { return o.markers; }},
      {"ETHERWARP_LOCAL=off", [](const Options& o) { return !o.local; }},
      {"ETHERWARP_EXTENSIONS=0", [](const Options& o) { return !o.extensions; }},
      {"ETHERWARP_MPA_REVISION=1", [](const Options& o) { return o.mpa_revision == 1; }},
      {"ETHERWARP_PEER_TO_PEER=no", [](const Options& o) { return !o.peer_to_peer; }},
      {"ETHERWARP_RTR=send", [](const Options& o) { return o.rtr == "send"; }},
      {"ETHERWARP_IO_URING=false", [](const Options& o) { return !o.io_uring; }},
      {"ETHERWARP_ULPDU_OCTETS=1400", [](const Options& o) { return o.ulpdu_octets == 1400; }},
      {"ETHERWARP_TAKEOVER_US=20", [](const Options& o) { return o.takeover_us == 20; }},
      {"ETHERWARP_WRITE_HOLD_US=0", [](const Options& o) { return o.write_hold_us == 0; }},
      {"ETHERWARP_POST_WAIT_US=0", [](const Options& o) { return o.post_wait_us == 0; }},
      {"ETHERWARP_HAND_OVER_OCTETS=0", [](const Options& o) { return o.hand_over_octets == 0; }},
      {"ETHERWARP_SPIN_US=0", [](const Options& o) { return o.spin_us == 0 && effective_spin_us(o) == 0; }},
      {"ETHERWARP_CONNECT_TIMEOUT_MS=1", [](const Options& o) { return o.connect_timeout_ms == 1; }},
      {"ETHERWARP_CONNECT_TIMEOUT_MS=3600000", [](const Options& o) { return o.connect_timeout_ms == 3'600'000; }},
      {"ETHERWARP_REPLY_TIMEOUT_MS=1", [](const Options& o) { return o.reply_timeout_ms == 1; }},
      {"ETHERWARP_REPLY_TIMEOUT_MS=3600000", [](const Options& o) { return o.reply_timeout_ms == 3'600'000; }},
      {"ETHERWARP_REFUSED_WAIT_MS=0", [](const Options& o) { return o.refused_wait_ms == 0; }},
      {"ETHERWARP_BRING_UP_TIMEOUT_MS=5", [](const Options& o) { return o.bring_up_timeout_ms == 5; }},
      {"ETHERWARP_REQUEST_TIMEOUT_MS=2", [](const Options& o) { return o.request_timeout_ms == 2; }},
      {"ETHERWARP_RTR_TIMEOUT_MS=3", [](const Options& o) { return o.rtr_timeout_ms == 3; }},
      {"ETHERWARP_KEEPALIVE_S=7", [](const Options& o) { return o.keepalive_s == 7; }},
      {"ETHERWARP_UNACKNOWLEDGED_S=9", [](const Options& o) { return o.unacknowledged_s == 9; }},
      {"ETHERWARP_CLOSE_TIMEOUT_MS=4", [](const Options& o) { return o.close_timeout_ms == 4; }},
      {"ETHERWARP_RTR_REPEAT_MS=0", [](const Options& o) { return o.rtr_repeat_ms == 0; }},
      {"ETHERWARP_RESPONDER_WAIT_MS=0", [](const Options& o) { return o.responder_wait_ms == 0; }},
      {"ETHERWARP_RNR_WAIT_MS=0", [](const Options& o) { return o.rnr_wait_ms == 0; }},
      {"ETHERWARP_HALF_MESSAGE_MS=0", [](const Options& o) { return o.half_message_ms == 0; }},
      {"ETHERWARP_HALF_MESSAGE_MS=3600000", [](const Options& o) { return o.half_message_ms == 3'600'000; }},
      {"ETHERWARP_INVALIDATE_REGIONS=yes", [](const Options& o) { return o.invalidate_regions; }},
      {"ETHERWARP_UD_RELIABLE=yes", [](const Options& o) { return o.ud_reliable; }},
      {"ETHERWARP_CONGESTION=bbr", [](const Options& o) { return o.congestion == "bbr"; }},
      {"ETHERWARP_STATS=no", [](const Options& o) { return !o.stats; }},
      {"ETHERWARP_STATS_KEEP=yes", [](const Options& o) { return o.stats_keep; }},
  };
  for (const auto& c : kCases) {
    print_message("case: %s\n", c.setting);
    assert_false(c.holds(Options{}));  // else the case shows nothing
    const auto got = read({kNoFile, c.setting});
    assert_true(got.problems.empty());
    assert_true(c.holds(got.options));
  }
  for (const auto& doc : option_docs()) {
    bool covered = false;
    for (const auto& c : kCases)
      covered = covered || std::string(c.setting).starts_with(option_variable(doc.name) + "=");
    if (!covered) fail_msg("option %s has no case", doc.name);
  }
}

void a_documented_default_is_the_default(void**) {
  for (const auto& doc : option_docs()) {
    print_message("option: %s\n", doc.name);
    if (std::string(doc.name) == "interfaces") continue;  // its default is a sentence
    assert_string_equal(check_option(doc.name, doc.initial).c_str(), "");
    const auto set = read({kNoFile, option_variable(doc.name) + "=" + doc.initial}).options;
    assert_true(set == Options{});
  }
}

void a_mistake_is_one_line_that_names_the_remedy(void**) {
  const struct {
    const char* setting;
    const char* said[3];
  } kCases[] = {
      {"ETHERWARP_CRC=maybe", {"ETHERWARP_CRC", "'maybe'", "by_path, always, never"}},
      {"ETHERWARP_IO_URING=2", {"ETHERWARP_IO_URING", "'2'", "yes or no"}},
      {"ETHERWARP_ULPDU_OCTETS=65536", {"'65536'", "from 512", "to 65535"}},
      {"ETHERWARP_ULPDU_OCTETS=12x", {"'12x'", "whole number", ""}},
      {"ETHERWARP_SPIN_US=-2", {"'-2'", "from -1", ""}},
      {"ETHERWARP_INTERFACES=a_name_that_is_too_long", {"interface names", "", ""}},
      {"ETHERWARP_CONGESTION=re no", {"'re no'", "reno", ""}},
      {"ETHERWARP_CRCS=always", {"unknown variable ETHERWARP_CRCS", "did you mean ETHERWARP_CRC?", ""}},
      {"ETHERWARP_IOURING=no", {"did you mean ETHERWARP_IO_URING?", "", ""}},
      {"ETHERWARP_INTERFACE=lo", {"did you mean ETHERWARP_INTERFACES?", "", ""}},
      {"ETHERWARP_RUN_DIR=/x", {"did you mean ETHERWARP_RUNDIR?", "", ""}},
      {"ETHERWARP_QUANTUM_FOAM=1", {"unknown variable ETHERWARP_QUANTUM_FOAM", "etherwarp options", ""}},
      {"ETHERWARP_crc=always", {"unknown variable ETHERWARP_crc", "did you mean ETHERWARP_CRC?", ""}},
      {"ETHERWARP_CONFIG=/nonexistent/file", {"/nonexistent/file", "No such file", ""}},
  };
  for (const auto& c : kCases) {
    print_message("case: %s\n", c.setting);
    const auto got = read({kNoFile, c.setting});
    assert_int_equal(got.problems.size(), 1);
    for (const char* part : c.said)
      if (!contains(got.problems[0], part)) fail_msg("'%s' lacks '%s'", got.problems[0].c_str(), part);
    assert_false(contains(got.problems[0], "\n"));
    // Ignored means ignored.
    assert_true(got.options.crc == CrcPolicy::by_path && got.options.io_uring && got.options.ulpdu_octets == 64768 &&
                got.options.spin_us == -1 && got.options.interfaces.empty() && got.options.congestion == "auto");
  }
}

void names_that_are_no_options_are_known(void**) {
  for (const char* setting : {"ETHERWARP_RUNDIR=/x", "ETHERWARP_PROVIDER=/x", "ETHERWARP_TEST_SIW=1",
                              "ETHERWARP_CRC=", "ETHERWARPCRC=x", "SOMETHING_ELSE=1", "ETHERWARP_CONFIG="}) {
    print_message("case: %s\n", setting);
    assert_true(read({kNoFile, setting}).problems.empty());
  }
}

void the_environment_wins_over_the_file(void**) {
  const TemporaryFile file("# comment\n\n  crc = never   # why not\nlog=info\nRTR = read\ninterfaces = lo\n");
  const auto got = read({file.variable(), "ETHERWARP_CRC=always", "ETHERWARP_LOG="});
  assert_true(got.problems.empty());
  assert_string_equal(got.file.c_str(), file.path().c_str());
  assert_true(got.options.crc == CrcPolicy::always);
  assert_string_equal(got.options.log.c_str(), "info");  // an empty variable takes nothing back from the file
  assert_string_equal(got.options.rtr.c_str(), "read");
  assert_int_equal(got.options.interfaces.size(), 1);
}

void a_mistake_in_the_file_names_its_line(void**) {
  const TemporaryFile file("crc = never\nwhat is this\nspinus = 3\nlog = loud\n");
  const auto got = read({file.variable()});
  assert_int_equal(got.problems.size(), 3);
  assert_true(contains(got.problems[0], (file.path() + ":2: ").c_str()));
  assert_true(contains(got.problems[1], ":3: ") && contains(got.problems[1], "did you mean spin_us?"));
  assert_true(contains(got.problems[2], ":4: ") && contains(got.problems[2], "error, warn, info, debug"));
  assert_true(got.options.crc == CrcPolicy::never);  // the good line counts
}

// A line may be longer than anybody thought; the next one is the next one.
void a_line_of_any_length(void**) {
  const std::string long_one(5000, ' ');
  const TemporaryFile file("log =" + long_one + "debug\n# " + long_one + "crc = always\nnonsense\nrtr = read");
  const auto got = read({file.variable()});
  assert_string_equal(got.options.log.c_str(), "debug");
  assert_true(got.options.crc == CrcPolicy::by_path);
  assert_string_equal(got.options.rtr.c_str(), "read");
  assert_int_equal(got.problems.size(), 1);
  assert_true(contains(got.problems[0], ":3: "));
}

// A program may run in the locale of Turkey, where the small letter of I is no i.
void options_in_another_locale(void**) {
  char folder[] = "/tmp/ewarp-locale-XXXXXX";
  assert_non_null(mkdtemp(folder));
  const std::string make = std::string("localedef -i tr_TR -f UTF-8 ") + folder + "/tr_TR.UTF-8 2>/dev/null";
  setenv("LOCPATH", folder, 1);
  const bool there = std::system(make.c_str()) != -1 && std::setlocale(LC_ALL, "tr_TR.UTF-8") != nullptr;
  if (there) {
    const TemporaryFile file("SPIN_US = 7\n");
    const auto got = read({file.variable(), "ETHERWARP_IO_URING=no", "ETHERWARP_LOG=INFO", "ETHERWARP_INTERFACES=lo"});
    for (const auto& problem : got.problems) print_message("%s\n", problem.c_str());
    assert_true(got.problems.empty());
    assert_false(got.options.io_uring);
    assert_string_equal(got.options.log.c_str(), "info");
    assert_int_equal(got.options.interfaces.size(), 1);
    assert_int_equal(got.options.spin_us, 7);
    assert_string_equal(option_variable("write_hold_us").c_str(), "ETHERWARP_WRITE_HOLD_US");
  }
  std::setlocale(LC_ALL, "C");
  unsetenv("LOCPATH");
  std::filesystem::remove_all(folder);
  if (there) return;
  print_message("skipped: no localedef here, or none of its sources for Turkey\n");
  skip();
}

// A set-user-ID program must not take orders, nor file names, from who called it.
void an_untrusted_environment_is_not_read(void**) {
  const TemporaryFile file("crc = never\n");
  const auto got = read({file.variable(), "ETHERWARP_LOG=debug", "ETHERWARP_NONSENSE=1"}, false);
  assert_true(got.options.crc == CrcPolicy::by_path);
  assert_string_equal(got.options.log.c_str(), "error");
  assert_true(got.problems.empty());
}

void check_option_judges_without_side_effects(void**) {
  assert_string_equal(check_option("crc", "always").c_str(), "");
  assert_true(contains(check_option("crc", "perhaps"), "'perhaps'"));
  assert_true(contains(check_option("crcc", "always"), "did you mean crc?"));
}

// The words of a text, one space apart: it does not matter where a page breaks its lines.
std::string joined(const std::string& text) {
  std::istringstream words(text);
  std::string out, word;
  while (words >> word) out += (out.empty() ? "" : " ") + word;
  return out;
}

// docs/user/options.md has an item for each option, with the unit, the default and the meaning that the program prints.
void the_page_of_documentation_is_complete(void**) {
  std::ifstream file(EWARP_OPTIONS_PAGE);
  assert_true(file.good());
  const std::string page = joined(std::string{std::istreambuf_iterator<char>(file), {}});
  for (const auto& d : option_docs()) {
    const std::string item =
        std::string("* `") + d.name + "` (" + d.unit + "; default: " + d.initial + "): " + joined(d.meaning);
    if (!contains(page, item.c_str())) fail_msg("docs/user/options.md lacks: %s", item.c_str());
  }
}

void cpus_are_counted(void**) {
  assert_true(usable_cpus() >= 1);
  Options o;
  o.spin_us = 7;
  assert_int_equal(effective_spin_us(o), 7);
  o.spin_us = -1;
  unsetenv("MPI_LOCALNRANKS");
  unsetenv("OMPI_COMM_WORLD_LOCAL_SIZE");
  assert_int_equal(effective_spin_us(o), usable_cpus() >= 4 ? 2000 : 0);
  // A job of MPI with so many processes here, one with a share for each, and what is no number.
  setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "1000000", 1);
  assert_int_equal(effective_spin_us(o), 0);
  setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "1", 1);
  assert_int_equal(effective_spin_us(o), usable_cpus() >= 2 ? 2000 : 0);
  setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "many", 1);
  assert_int_equal(effective_spin_us(o), usable_cpus() >= 4 ? 2000 : 0);
  unsetenv("OMPI_COMM_WORLD_LOCAL_SIZE");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(every_option_takes_its_values),
      cmocka_unit_test(a_documented_default_is_the_default),
      cmocka_unit_test(a_mistake_is_one_line_that_names_the_remedy),
      cmocka_unit_test(names_that_are_no_options_are_known),
      cmocka_unit_test(the_environment_wins_over_the_file),
      cmocka_unit_test(a_mistake_in_the_file_names_its_line),
      cmocka_unit_test(a_line_of_any_length),
      cmocka_unit_test(options_in_another_locale),
      cmocka_unit_test(an_untrusted_environment_is_not_read),
      cmocka_unit_test(check_option_judges_without_side_effects),
      cmocka_unit_test(the_page_of_documentation_is_complete),
      cmocka_unit_test(cpus_are_counted),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
