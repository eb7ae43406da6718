// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The options of ACP programs: values, ends of ranges, mistakes, and the page against the table.
#include <fstream>
#include <iterator>

#include "mpi_shim/acp/options.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
extern "C" {
#include <cmocka.h>
}

namespace {

using namespace ewarp::acp;

OptionsRead read(const std::string& setting) {
  const std::string variable = "ACP_" + setting;
  const char* environment[] = {variable.c_str(), nullptr};
  return read_options(environment);
}

void every_option_takes_its_values(void**) {
  const struct {
    const char* setting;
    bool (*holds)(const Options&);
  } kCases[] = {
      {"SLOT_SIZE=16", [](const Options& o) { return o.slot_size == 16; }},
      {"SLOT_SIZE=16777216", [](const Options& o) { return o.slot_size == 16777216; }},
      {"SB_SLOTS=1", [](const Options& o) { return o.sb_slots == 1; }},
      {"SB_SLOTS=4096", [](const Options& o) { return o.sb_slots == 4096; }},
      {"RB_SLOTS=1", [](const Options& o) { return o.rb_slots == 1; }},
      {"RB_SLOTS=4096", [](const Options& o) { return o.rb_slots == 4096; }},
      {"MODE=Paper", [](const Options& o) { return o.mode == Mode::paper; }},
      {"PROGRESS_THREAD=on", [](const Options& o) { return o.progress_thread; }},
      {"STARTER_SIZE=8", [](const Options& o) { return o.starter_size == 8; }},
      {"STARTER_SIZE=1073741824", [](const Options& o) { return o.starter_size == 1073741824; }},
      {"TRANSPORT=rd", [](const Options& o) { return o.transport == TransportKind::rd; }},
      {"TRANSPORT=RC", [](const Options& o) { return o.transport == TransportKind::rc; }},
      {"DEVICE=ewarp_eth0", [](const Options& o) { return o.device == "ewarp_eth0"; }},
      {"SPIN_US=0", [](const Options& o) { return o.spin_us == 0; }},
      {"SPIN_US=1000000", [](const Options& o) { return o.spin_us == 1000000; }},
  };
  for (const auto& c : kCases) {
    print_message("case: %s\n", c.setting);
    assert_false(c.holds({}));
    const auto got = read(c.setting);
    assert_true(got.problems.empty());
    assert_true(c.holds(got.options));
  }
  for (const auto& doc : option_docs()) {
    bool covered = false;
    for (const auto& c : kCases)
      covered = covered || ("ACP_" + std::string(c.setting)).starts_with(option_variable(doc.name) + "=");
    if (!covered) fail_msg("option %s has no case", doc.name);
  }
}

void mistakes_are_said_and_ignored(void**) {
  for (const char* setting : {"SLOT_SIZE=8", "SLOT_SIZE=20", "SLOT_SIZE=16777224", "SB_SLOTS=0", "RB_SLOTS=4097",
                              "MODE=fast", "PROGRESS_THREAD=perhaps", "STARTER_SIZE=0", "STARTER_SIZE=12", "SPIN_US=-2",
                              "SPIN_US=1000001", "TRANSPORT=ud", "SLOTS=1"}) {
    print_message("case: %s\n", setting);
    const auto got = read(setting);
    assert_int_equal(got.problems.size(), 1);
    assert_int_equal(got.options.slot_size, 65536);
  }
  for (const char* setting : {"RANK=1", "PROCS=2", "ROOT=x", "SECRET=y", "SLOT_SIZE="})
    assert_true(read(setting).problems.empty());
}

void the_page_has_the_table(void**) {
  std::ifstream file(EWARP_ACP_PAGE);
  std::string page{std::istreambuf_iterator<char>(file), {}}, plain;
  for (std::size_t i = 0; i < page.size(); ++i)
    if (page[i] != '\n' || page.compare(i, 3, "\n  ") != 0)
      plain += page[i];
    else
      plain += ' ', i += 2;
  for (const auto& d : option_docs()) {
    const auto item = std::string("* `") + d.name + "` (" + d.unit + "; default: " + d.initial + "): " + d.meaning;
    if (plain.find(item) == plain.npos) fail_msg("not in the page: %s", item.c_str());
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(every_option_takes_its_values),
      cmocka_unit_test(mistakes_are_said_and_ignored),
      cmocka_unit_test(the_page_has_the_table),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
