// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The page of counters: seen by a reader, gone at exit, separate after fork, safe against what lies in its directory.
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <vector>

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
using namespace ewarp::stats;

// Each test runs in a child process of its own: the page lives as long as its process.
// Returns the child's exit status; 0 where all it checked holds.
template <class F>
int in_child(F f) {
  const pid_t pid = fork();
  if (pid == 0) exit(f());  // exit(), not _exit(): the exit handlers are part of what is tested
  int status = 0;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
#define CHECK(x)                                                        \
  do {                                                                  \
    if (!(x)) return fprintf(stderr, "line %d: %s\n", __LINE__, #x), 1; \
  } while (0)

std::string directory() {
  return getenv("ETHERWARP_RUNDIR");
}
std::size_t files() {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(directory()), {}));
}

int fresh_directory(void**) {
  char path[] = "/tmp/ewarp-stats-XXXXXX";
  if (mkdtemp(path) == nullptr) return -1;
  return setenv("ETHERWARP_RUNDIR", path, 1);
}
int remove_directory(void**) {
  fs::remove_all(directory());
  unsetenv("ETHERWARP_STATS_KEEP");
  return 0;
}

void a_reader_sees_what_was_counted(void**) {
  assert_int_equal(in_child([] {
                     Page& p = page();
                     p.device_count = 1;
                     strcpy(p.devices[0].name, "ewarp_lo");
                     add(p.devices[0].traffic.tx_messages, 7);
                     QpPage* q = take_qp_slot();
                     q->number.store(0x10203);
                     const auto seen = snapshots();
                     CHECK(seen.size() == 1 && !seen[0].ended);
                     CHECK(seen[0].page->pid == getpid());
                     CHECK(seen[0].page->devices[0].traffic.tx_messages == 7);
                     CHECK(std::string(seen[0].page->devices[0].name) == "ewarp_lo");
                     CHECK(seen[0].page->qps[0].number == 0x10203);
                     CHECK(seen[0].page->start_ns != 0 && seen[0].page->command[0] != '\0');
                     CHECK(&page() == &p);
                     return 0;
                   }),
                   0);
  assert_int_equal(files(), 0);  // removed at exit
}

void the_page_is_private_to_its_user(void**) {
  assert_int_equal(in_child([] {
                     page();
                     struct stat st;
                     CHECK(stat((directory() + "/" + std::to_string(getpid())).c_str(), &st) == 0);
                     CHECK((st.st_mode & 077) == 0);
                     return 0;
                   }),
                   0);
  // A directory that others may write to is not used: they could put a link in our file's place.
  fs::permissions(directory(), fs::perms::all);
  assert_int_equal(in_child([] {
                     add(page().app_passes);  // private memory, still good
                     CHECK(files() == 0);
                     return 0;
                   }),
                   0);
}

void an_ended_process_is_cleaned_up_or_kept(void**) {
  assert_int_equal(in_child([] {
                     page();
                     _exit(0);
                     return 0;
                   }),
                   0);
  assert_int_equal(files(), 1);
  assert_true(snapshots().empty());
  assert_int_equal(files(), 0);  // the reader removed it

  setenv("ETHERWARP_STATS_KEEP", "yes", 1);
  assert_int_equal(in_child([] {
                     add(page().app_passes, 3);
                     return 0;
                   }),
                   0);
  for (int again = 0; again < 2; ++again) {
    const auto seen = snapshots();
    assert_int_equal(seen.size(), 1);
    assert_true(seen[0].ended);
    assert_int_equal(seen[0].page->app_passes, 3);
  }
}

void a_forked_child_counts_for_itself(void**) {
  assert_int_equal(in_child([] {
                     Page& p = page();
                     p.device_count = 1;
                     strcpy(p.devices[0].name, "ewarp_lo");
                     DevicePage& device = p.devices[0];
                     QpPage* slot = take_qp_slot();
                     slot->number.store(5);
                     add(device.traffic.tx_octets, 100);
                     const pid_t parent = getpid();
                     const int child = in_child([&] {
                       add(device.traffic.tx_octets, 1);  // a stale reference: must not reach the parent's page
                       CHECK(device.traffic.tx_octets == 1);
                       release_qp_slot(slot);
                       CHECK(files() == 1);
                       CHECK(&page() == &p);  // now it has a page of its own
                       CHECK(p.pid == getpid() && p.pid != parent);
                       CHECK(std::string(device.name) == "ewarp_lo" && p.device_count == 1);
                       add(device.traffic.tx_octets, 2);
                       CHECK(snapshots().size() == 2);
                       return 0;
                     });
                     CHECK(child == 0);
                     const auto seen = snapshots();  // the child's file is gone, ours is not
                     CHECK(seen.size() == 1 && seen[0].page->pid == parent);
                     CHECK(device.traffic.tx_octets == 100);
                     CHECK(slot->number == 5);
                     return 0;
                   }),
                   0);
  assert_int_equal(files(), 0);
}

// A file of the user's that has the number of a process as its name.
void no_file_of_others_is_replaced(void**) {
  assert_int_equal(in_child([] {
                     const std::string path = directory() + "/" + std::to_string(getpid());
                     std::ofstream(path) << "a letter";
                     page();
                     CHECK(files() == 1);
                     std::ifstream letter(path);
                     std::string text;
                     CHECK(std::getline(letter, text) && text == "a letter");
                     CHECK(unlink(path.c_str()) == 0);
                     return 0;
                   }),
                   0);
}

void slots_are_given_out_once(void**) {
  assert_int_equal(in_child([] {
                     std::vector<std::vector<QpPage*>> taken(4);
                     std::vector<std::thread> threads;
                     for (auto& mine : taken)
                       threads.emplace_back([&mine] {
                         for (std::size_t i = 0; i < kMaxQps / 4; ++i) {
                           mine.push_back(take_qp_slot());
                           if (i % 3 == 0) release_qp_slot(mine.back()), mine.back() = take_qp_slot();
                         }
                       });
                     for (auto& t : threads) t.join();
                     std::set<QpPage*> all;
                     for (const auto& mine : taken)
                       for (auto* slot : mine) {
                         CHECK(slot != nullptr);
                         all.insert(slot);
                       }
                     CHECK(all.size() == kMaxQps);
                     CHECK(take_qp_slot() == nullptr);
                     release_qp_slot(nullptr);
                     QpPage* one = *all.begin();
                     add(one->traffic.rx_octets, 9);
                     strcpy(one->peer, "peer");
                     release_qp_slot(one);
                     CHECK(take_qp_slot() == one);  // the only free one, and as new
                     CHECK(one->traffic.rx_octets == 0 && one->peer[0] == '\0' && one->number == 0);
                     return 0;
                   }),
                   0);
}

void nothing_in_the_directory_is_believed(void**) {
  const struct {
    const char* name;
    std::size_t octets;
    std::uint32_t magic, version;
    bool reported;
  } kCases[] = {
      {"1", 0, 0, 0, true},
      {"2", 100, kMagic, kVersion, true},
      {"3", sizeof(Page), kMagic + 1, kVersion, true},
      {"4", sizeof(Page), kMagic, kVersion + 1, true},
      {"not-a-pid", sizeof(Page), kMagic, kVersion, false},
  };
  std::size_t reported = 0;
  for (const auto& c : kCases) {
    std::vector<char> octets(c.octets, '\xff');
    if (c.octets >= 8) {
      memcpy(octets.data(), &c.magic, 4);
      memcpy(octets.data() + 4, &c.version, 4);
    }
    std::ofstream(directory() + "/" + c.name).write(octets.data(), static_cast<std::streamsize>(octets.size()));
    reported += c.reported ? 1 : 0;
  }
  assert_int_equal(symlink("/etc/passwd", (directory() + "/5").c_str()), 0);
  assert_int_equal(mkfifo((directory() + "/6").c_str(), 0600), 0);
  std::vector<std::string> unreadable;
  assert_true(snapshots(&unreadable).empty());
  assert_int_equal(unreadable.size(), reported + 1);  // and the FIFO; the link is not followed
}

void strings_of_a_page_end(void**) {
  assert_int_equal(in_child([] {
                     Page& p = page();
                     p.device_count = 1000;
                     memset(p.command, 'x', sizeof p.command);
                     memset(p.devices[3].name, 'y', sizeof p.devices[3].name);
                     memset(p.qps[0].peer, 'z', sizeof p.qps[0].peer);
                     const auto seen = snapshots();
                     CHECK(seen.size() == 1 && seen[0].page->device_count == kMaxDevices);
                     CHECK(strlen(seen[0].page->command) == sizeof p.command - 1);
                     CHECK(strlen(seen[0].page->devices[3].name) == sizeof p.devices[3].name - 1);
                     CHECK(strlen(seen[0].page->qps[0].peer) == sizeof p.qps[0].peer - 1);
                     return 0;
                   }),
                   0);
}

void a_directory_that_cannot_be_made_costs_only_the_view(void**) {
  const std::string good = directory();
  setenv("ETHERWARP_RUNDIR", "/nonexistent/deeper", 1);
  assert_int_equal(in_child([] {
                     add(page().app_passes);
                     CHECK(page().app_passes == 1);
                     CHECK(take_qp_slot() != nullptr);
                     CHECK(snapshots().empty());
                     return 0;
                   }),
                   0);
  setenv("ETHERWARP_RUNDIR", good.c_str(), 1);
}

}  // namespace

int main() {
  setenv("ETHERWARP_CONFIG", "", 1);
  setenv("XDG_CONFIG_HOME", "/nonexistent", 1);
#define EWARP_CASE(f) cmocka_unit_test_setup_teardown(f, fresh_directory, remove_directory)
  const CMUnitTest tests[] = {
      EWARP_CASE(a_reader_sees_what_was_counted),
      EWARP_CASE(the_page_is_private_to_its_user),
      EWARP_CASE(an_ended_process_is_cleaned_up_or_kept),
      EWARP_CASE(a_forked_child_counts_for_itself),
      EWARP_CASE(no_file_of_others_is_replaced),
      EWARP_CASE(slots_are_given_out_once),
      EWARP_CASE(nothing_in_the_directory_is_believed),
      EWARP_CASE(strings_of_a_page_end),
      EWARP_CASE(a_directory_that_cannot_be_made_costs_only_the_view),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
