// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// `etherwarp stat` where a user fills the run directory with what shall harm its reader.
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "mpi_shim/channel/core/counters_page.h"
#include "provider/base/stats.h"

// cmocka last: its fail() is a macro, which C++ headers do not survive.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
extern "C" {
#include <cmocka.h>
}

namespace {

namespace fs = std::filesystem;
using namespace ewarp;

constexpr char kEvil[] = "\033[2J\033]0;x\007\r\b\x9b\x7f\n\xff";

constexpr char kBegin[] = "--begin";  // as a program of its own, which makes its page

std::string directory;

// What the tool prints, on both streams.
std::string stat(const std::string& words) {
  const std::string command = std::string(EWARP_CLI) + " stat " + words + " 2>&1";
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  assert_non_null(pipe.get());
  std::string out;
  char octets[4096];
  while (const std::size_t n = fread(octets, 1, sizeof octets, pipe.get())) out.append(octets, n);
  return out;
}

// Pages of processes that live: of this one and its like.
std::unique_ptr<stats::Page> page_of(pid_t pid) {
  auto page = std::make_unique<stats::Page>();
  std::memcpy(static_cast<void*>(page.get()), &stats::page(), sizeof *page);
  page->pid = pid;
  return page;
}
void put(const stats::Page& page, const std::string& name) {
  std::ofstream(directory + "/" + name).write(reinterpret_cast<const char*>(&page), sizeof page);
}

void nothing_steers_the_terminal(void**) {
  auto page = page_of(getpid());
  page->device_count = 1;
  for (char* text : {page->command, page->poller, page->devices[0].name, page->qps[0].peer}) std::strcpy(text, kEvil);
  std::memcpy(page->devices[0].interface, kEvil, std::min(sizeof kEvil, sizeof page->devices[0].interface));
  page->qps[0].number = 0x777;
  page->devices[0].traffic.tx_octets = 1;
  put(*page, "1");
  channel::CountersPage<1> counters{};
  std::memcpy(counters.head.magic, channel::CountersHead::kMagic, sizeof counters.head.magic);
  counters.head.count = 1;
  std::strcpy(counters.head.address, kEvil);
  std::strcpy(counters.names[0], kEvil);
  counters.values[0] = 5;
  std::ofstream(directory + "/1.channel.9").write(reinterpret_cast<const char*>(&counters), sizeof counters);
  for (const char* words : {"", "-v", "--json"}) {
    const std::string out = stat(words);
    assert_non_null(std::strstr(out.c_str(), "?[2J?]0;x??????"));
    for (const char c : out)
      if (c != '\n' && (c < ' ' || c > '~')) fail_msg("stat %s prints octet %02x", words, c & 0xffu);
  }
}

// A page in memory is 2 MiB, so that files without number would be all memory.
void files_beyond_so_many_are_not_read(void**) {
  for (std::size_t i = 0; i < stats::kMostFiles + 8; ++i) std::ofstream(directory + "/" + std::to_string(1000000 + i));
  const std::string out = stat("");
  assert_non_null(std::strstr(out.c_str(), "and 510 more such files"));  // the cap is one, three are named
}

// Counters of a process that has ended are removed, and nothing of the user's.
void files_of_others_stay(void**) {
  channel::CountersPage<1> counters{};
  std::memcpy(counters.head.magic, channel::CountersHead::kMagic, sizeof counters.head.magic);
  std::ofstream(directory + "/9999999.channel.9").write(reinterpret_cast<const char*>(&counters), sizeof counters);
  for (const char* name : {"sales.channel.csv", ".channel.x", "9999999.channel.txt"})
    std::ofstream(directory + "/" + name) << std::string(500, 'x');
  fs::create_directory(directory + "/7.channel.7");
  stat("");
  assert_false(fs::exists(directory + "/9999999.channel.9"));
  for (const char* name : {"sales.channel.csv", ".channel.x", "9999999.channel.txt", "7.channel.7"})
    assert_true(fs::exists(directory + "/" + name));
}

// Numbers that no process has: above the kernel's largest.
constexpr int kNobody = 5'000'000;

// A page of a process with no queue pairs, as a sparse file.
void leave_page(int pid, bool keep = false) {
  auto page = page_of(pid);
  page->keep = keep ? 1 : 0;
  const std::string path = directory + "/" + std::to_string(pid);
  std::ofstream(path).write(reinterpret_cast<const char*>(page.get()), offsetof(stats::Page, qps));
  fs::resize_file(path, sizeof(stats::Page));
}

bool is_there(int pid) {
  return fs::exists(directory + "/" + std::to_string(pid));
}

// Programs that were killed do not hide those that run, however many they are.
void what_killed_programs_left_is_removed(void**) {
  for (int i = 0; i < static_cast<int>(stats::kMostFiles) + 8; ++i) leave_page(kNobody + i);
  leave_page(getpid());
  // Of a name that sorts last, and kept.
  leave_page(9'999'999, true);
  const std::string out = stat("");
  assert_non_null(std::strstr(out.c_str(), std::to_string(getpid()).c_str()));
  for (int i = 0; i < static_cast<int>(stats::kMostFiles) + 8; ++i) assert_false(is_there(kNobody + i));
  assert_true(is_there(9'999'999));
}

// Nor do they stay until somebody asks.
void a_program_that_begins_removes_it(void**) {
  leave_page(kNobody);
  leave_page(kNobody + 1, true);
  std::ofstream(directory + "/" + std::to_string(kNobody + 3));  // one that is being made, somewhere else
  fs::resize_file(directory + "/" + std::to_string(kNobody + 3), sizeof(stats::Page));
  std::ofstream(directory + "/" + std::to_string(kNobody + 2)) << "a user's";
  const pid_t child = fork();
  if (child == 0) {
    execl("/proc/self/exe", "stat_test", kBegin, nullptr);
    _exit(127);
  }
  int status = 0;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  assert_false(is_there(kNobody));
  assert_true(is_there(kNobody + 1));
  assert_true(is_there(kNobody + 2));
  assert_true(is_there(kNobody + 3));
  assert_false(is_there(child));
}

int fresh_directory(void**) {
  char path[] = "/tmp/ewarp-stat-XXXXXX";
  if (mkdtemp(path) == nullptr) return -1;
  directory = path;
  return setenv("ETHERWARP_RUNDIR", path, 1);
}
int remove_directory(void**) {
  fs::remove_all(directory);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], kBegin) == 0) {
    setenv("ETHERWARP_STATS", "yes", 1);
    static_cast<void>(stats::page());
    return fs::exists(stats::run_directory() + "/" + std::to_string(getpid())) ? 0 : 1;
  }
  setenv("ETHERWARP_CONFIG", "", 1);
  setenv("XDG_CONFIG_HOME", "/nonexistent", 1);
  setenv("ETHERWARP_STATS", "no", 1);  // our own page is no file
  const CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(nothing_steers_the_terminal, fresh_directory, remove_directory),
      cmocka_unit_test_setup_teardown(files_of_others_stay, fresh_directory, remove_directory),
      cmocka_unit_test_setup_teardown(files_beyond_so_many_are_not_read, fresh_directory, remove_directory),
      cmocka_unit_test_setup_teardown(what_killed_programs_left_is_removed, fresh_directory, remove_directory),
      cmocka_unit_test_setup_teardown(a_program_that_begins_removes_it, fresh_directory, remove_directory),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
