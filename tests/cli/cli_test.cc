// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The command-line tool, from outside: what it prints, where, and with which exit status.
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "provider/base/stats.h"
#include "tests/vectors/json.h"

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
using Words = std::vector<std::string>;

std::string tree;  // a build tree of our own: bin/etherwarp and the stand-ins in lib/

struct Outcome {
  int status;
  std::string out, err;
};

std::string slurp(int fd) {
  std::string text;
  char octets[4096];
  lseek(fd, 0, SEEK_SET);
  for (ssize_t n; (n = read(fd, octets, sizeof octets)) > 0;) text.append(octets, static_cast<std::size_t>(n));
  close(fd);
  return text;
}

int scratch_file() {
  char path[] = "/tmp/ewarp-cli-XXXXXX";
  const int fd = mkstemp(path);
  assert_true(fd >= 0);
  unlink(path);
  return fd;
}

// Runs the tool with these words. before: called in the child; false ends it with status 125.
Outcome etherwarp(
    const Words& words, const std::function<bool()>& before = [] { return true; }) {
  const int out = scratch_file(), err = scratch_file();
  const std::string program = tree + "/bin/etherwarp";
  std::vector<char*> arguments{const_cast<char*>(program.c_str())};
  for (const auto& w : words) arguments.push_back(const_cast<char*>(w.c_str()));
  arguments.push_back(nullptr);
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(out, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    if (before()) execv(program.c_str(), arguments.data());
    _exit(125);
  }
  int status = 0;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), slurp(out), slurp(err)};
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != text.npos;
}
bool one_line(const std::string& text) {
  return !text.empty() && text.find('\n') == text.size() - 1;
}

void expect(const Outcome& got, int status, const Words& in_out, const Words& in_err) {
  bool good = got.status == status;
  for (const auto& part : in_out) good = good && contains(got.out, part);
  for (const auto& part : in_err) good = good && contains(got.err, part);
  if (!good) fail_msg("status %d\nstdout: %s\nstderr: %s", got.status, got.out.c_str(), got.err.c_str());
}

void help_and_lists(void**) {
  const struct {
    Words words;
    Words out;
  } kCases[] = {
      {{"--help"}, {"Usage: etherwarp", "doctor", "Examples:", "etherwarp run -- ibv_devinfo"}},
      {{"help"}, {"Usage: etherwarp"}},
      {{"--version"}, {"etherwarp " EWARP_VERSION "\n"}},
      {{"run", "--help"}, {"[--] PROGRAM", "--crc by_path|always|never", "--io-uring", "Examples:"}},
      {{"help", "stat"}, {"--watch", "--json"}},
      {{"options"},
       {"ETHERWARP_CRC  (by_path, always, never; default: by_path)",
        "ETHERWARP_TAKEOVER_US  (microseconds; default: 2500)", "message channel",
        "EWARP_CHANNEL_REGISTRATION  (measured, cheap, costly, monitored, kept; default: measured)"}},
      {{"help", "options"}, {"ETHERWARP_CRC"}},
      {{"devices"}, {"DEVICE", "ewarp_lo", "127.0.0.1/8"}},
      {{"devices", "--json"}, {"\"device\": \"ewarp_lo\"", "\"type\": \"RNIC\""}},
      {{"stat"}, {"no EtherWARP process"}},
      {{"stat", "--json"}, {"[]"}},
      {{"env"}, {"export LD_PRELOAD='" + tree + "/lib/libetherwarp-preload.so'"}},
      {{"env", "--crc", "always", "--no-io-uring"},
       {"export ETHERWARP_CRC='always'", "export ETHERWARP_IO_URING='no'"}},
  };
  for (const auto& c : kCases) {
    print_message("case: %s %s\n", c.words[0].c_str(), c.words.back().c_str());
    const auto got = etherwarp(c.words);
    expect(got, 0, c.out, {});
    assert_string_equal(got.err.c_str(), "");
  }
}

void bad_input_is_one_line_with_a_remedy(void**) {
  const struct {
    Words words;
    int status;
    Words err;
  } kCases[] = {
      {{"rnu"}, 2, {"unknown command 'rnu'", "etherwarp run"}},
      {{"conquer"}, 2, {"unknown command 'conquer'", "there are:"}},
      {{"run"}, 2, {"no program to run", "etherwarp run --"}},
      {{"run", "--"}, 2, {"no program to run"}},
      {{"run", "--crx", "always", "--", "true"}, 2, {"unknown option --crx", "did you mean --crc?"}},
      {{"run", "--quantum", "--", "true"}, 2, {"unknown option --quantum", "etherwarp run --help"}},
      {{"run", "--crc", "maybe", "true"}, 2, {"'maybe'", "by_path, always, never"}},
      {{"run", "--spin-us", "lots", "true"}, 2, {"'lots'", "whole number"}},
      {{"env", "--crc"}, 2, {"--crc needs a value"}},
      {{"stat", "--watch", "-3"}, 2, {"etherwarp stat --help"}},
      {{"stat", "--count", "2"}, 2, {"--watch"}},
      {{"devices", "eth0"}, 2, {"eth0", "etherwarp devices --help"}},
      {{"help", "statt"}, 2, {"did you mean `etherwarp stat`?"}},
      {{"run", "no-such-program-anywhere"}, 127, {"'no-such-program-anywhere' not found", "PATH"}},
      {{"run", "./no/such/path"}, 127, {"'./no/such/path' not found", "check the path"}},
      {{"run", "/etc/passwd"}, 126, {"not an executable"}},
      {{"run", "/"}, 126, {"not an executable"}},
      {{"run", "--interface", "nosuch0", "true"}, 126, {"interface 'nosuch0' does not exist", "there are: lo"}},
  };
  for (const auto& c : kCases) {
    print_message("case: %s ... %s\n", c.words[0].c_str(), c.words.back().c_str());
    const auto got = etherwarp(c.words);
    expect(got, c.status, {}, c.err);
    if (!one_line(got.err)) fail_msg("not one line: %s", got.err.c_str());
    assert_string_equal(got.out.c_str(), "");
  }
  expect(etherwarp({}), 2, {}, {"Usage: etherwarp"});
}

void run_sets_the_environment_and_keeps_its_hands_off_the_rest(void**) {
  const std::string preload = tree + "/lib/libetherwarp-preload.so";
  const struct {
    const char* name;
    Words words;
    const char* preloaded;  // LD_PRELOAD before
    Words out;
  } kCases[] = {
      {"plain", {"run", "--", "env"}, nullptr, {"LD_PRELOAD=" + preload + "\n"}},
      {"kept", {"run", "env"}, EWARP_STAND_IN_PROVIDER, {"LD_PRELOAD=" + preload + ":" EWARP_STAND_IN_PROVIDER "\n"}},
      {"twice", {"run", tree + "/bin/etherwarp", "run", "env"}, nullptr, {"LD_PRELOAD=" + preload + "\n"}},
      {"options",
       {"run", "--crc=always", "--log", "debug", "--no-io-uring", "--interface", "lo", "--", "env"},
       nullptr,
       {"ETHERWARP_CRC=always\n", "ETHERWARP_LOG=debug\n", "ETHERWARP_IO_URING=no\n", "ETHERWARP_INTERFACES=lo\n"}},
      {"arguments", {"run", "--", "echo", "--crc", "a b", "--", "-x"}, nullptr, {"--crc a b -- -x\n"}},
      {"by the loader",
       {"run", "/lib64/ld-linux-x86-64.so.2", "/usr/bin/env"},
       nullptr,
       {"LD_PRELOAD=" + preload + "\n"}},
      {"no dashes", {"run", "--rtr", "read", "echo", "--rtr", "send"}, nullptr, {"--rtr send\n"}},
  };
  for (const auto& c : kCases) {
    print_message("case: %s\n", c.name);
    expect(etherwarp(c.words, [&] { return c.preloaded == nullptr || setenv("LD_PRELOAD", c.preloaded, 1) == 0; }), 0,
           c.out, {});
  }
  expect(etherwarp({"run", "--", "sh", "-c", "exit 7"}), 7, {}, {});
}

void twins_are_shown_where_they_are_switched_on(void**) {
  // The columns are as wide as the longest name: of one interface that every machine has.
  const auto twin = [] {
    return setenv("ETHERWARP_TWIN", "1", 1) == 0 && setenv("ETHERWARP_INTERFACES", "lo", 1) == 0;
  };
  expect(etherwarp({"devices"}, twin), 0, {"ewarp_lo   RNIC  lo ", "ewarpx_lo  CA    lo "}, {});
  expect(etherwarp({"devices", "--json"}, twin), 0, {"\"device\": \"ewarpx_lo\"", "\"type\": \"CA\""}, {});
  assert_true(contains(etherwarp({"doctor"}, twin).out, "ewarpx_lo"));
  for (const char* command : {"devices", "doctor"}) assert_false(contains(etherwarp({command}).out, "ewarpx_"));
}

void run_says_what_it_cannot_do_before_the_program_starts(void**) {
  expect(etherwarp({"run", "env"}, [] { return setenv("ETHERWARP_PROVIDER", "/etc/passwd", 1) == 0; }), 126, {},
         {"the provider cannot be loaded", "etherwarp doctor"});
  expect(etherwarp({"run", "env"}, [] { return setenv("ETHERWARP_INTERFACES", "nosuch0", 1) == 0; }), 126, {},
         {"'nosuch0'"});
  const std::string library = tree + "/lib/libetherwarp-preload.so";
  fs::rename(library, library + ".away");
  expect(etherwarp({"run", "env"}), 126, {}, {"libetherwarp-preload.so not found", "./scripts/build"});
  expect(etherwarp({"doctor"}), 1, {"FAIL  preload library"}, {});
  fs::rename(library + ".away", library);
}

// In a network namespace of its own the loopback is down.
void no_interface_is_said(void**) {
  const auto got = etherwarp({"run", "env"}, [] { return unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0; });
  if (got.status == 125) {
    print_message("skipped: this machine does not let a user make a network namespace\n");
    return;
  }
  expect(got, 126, {}, {"no network interface is up", "ip link set lo up"});
  expect(etherwarp({"devices"}, [] { return unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0; }), 1, {},
         {"no network interface is up"});
  expect(etherwarp({"doctor"}, [] { return unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0; }), 1, {"FAIL  interfaces"}, {});
}

void doctor_names_each_subject(void**) {
  const auto got = etherwarp({"doctor"});
  expect(got, 0,
         {"kernel", "libibverbs", "IBVERBS_PRIVATE_34 (rdma-core 36 to 56)", "librdmacm", "ok    preload library",
          "ok    provider", "ewarp_lo", "io_uring", "local streams", "file descriptors", "memory monitor", "CPUs",
          "congestion control", "counters", "configuration"},
         {});
  assert_false(contains(got.out, "FAIL"));
  expect(etherwarp({"doctor"}, [] { return setenv("ETHERWARP_CRCC", "1", 1) == 0; }), 0,
         {"warn  configuration", "did you mean ETHERWARP_CRC?"}, {});
  expect(etherwarp({"doctor"}, [] { return setenv("EWARP_CHANNEL_EAGER_TRESHOLD", "1", 1) == 0; }), 0,
         {"warn  configuration", "did you mean EWARP_CHANNEL_EAGER_THRESHOLD?"}, {});
  expect(etherwarp({"doctor"}, [] { return setenv("EWARP_CHANNEL_USAGE_PERCENT", "101", 1) == 0; }), 0,
         {"warn  configuration", "a whole number from 0 to 100"}, {});
  expect(etherwarp({"doctor"}, [] { return setenv("ETHERWARP_IO_URING", "no", 1) == 0; }), 0,
         {"warn  io_uring", "epoll"}, {});
  for (const auto& [value, line] : {std::pair("auto", "ok    local streams"), std::pair("off", "warn  local streams")})
    expect(etherwarp({"doctor"}, [&] { return setenv("ETHERWARP_LOCAL", value, 1) == 0; }), 0, {line}, {});
}

void devices_as_json(void**) {
  const auto got = etherwarp({"devices", "--json"}, [] { return setenv("ETHERWARP_INTERFACES", "lo", 1) == 0; });
  assert_int_equal(got.status, 0);
  const auto j = ewarp::test::Json::parse(got.out);
  assert_int_equal(j.size(), 1);
  assert_string_equal(j[0]["device"].get<std::string>().c_str(), "ewarp_lo");
  assert_string_equal(j[0]["gids"][0].get<std::string>().c_str(), "::ffff:127.0.0.1");
  assert_string_equal(j[0]["state"].get<std::string>().c_str(), "active");
}

// Our own page, as a process with a device and a QP would fill it.
void stat_shows_the_counters(void**) {
  using namespace ewarp::stats;
  Page& p = page();
  p.device_count = 2;
  strcpy(p.poller, "io_uring");
  strcpy(p.devices[0].name, "ewarp_lo");
  strcpy(p.devices[0].interface, "lo");
  strcpy(p.devices[1].name, "ewarp_quiet0");
  add(p.devices[0].qps_created, 3);
  add(p.devices[0].qps_destroyed, 2);
  add(p.devices[0].connections);
  add(p.devices[0].traffic.tx_messages, 1234);
  add(p.devices[0].traffic.tx_octets, 5 * 1024 * 1024);
  add(p.devices[0].traffic.crc_errors, 9);
  QpPage* q = take_qp_slot();
  assert_non_null(q);
  q->state = 3;
  q->type = 2;
  strcpy(q->peer, "127.0.0.1:7471");
  q->peer_number = 0x0a1b2c;
  add(q->traffic.rx_messages, 77);
  q->number = 0x012345;
  const std::string pid = std::to_string(getpid());

  expect(etherwarp({"stat"}), 0, {"PID", pid, "io_uring", "ewarp_lo", "1234", "5.0 Mi", " 9\n"}, {});
  assert_false(contains(etherwarp({"stat"}).out, "ewarp_quiet0"));
  for (const Words& words : {Words{"stat"}, Words{"stat", "-v"}})
    expect(etherwarp(words), 0, {"0x012345", "RC", "RTS", "127.0.0.1:7471", "0x0a1b2c", "77"}, {});
  expect(etherwarp({"stat", "-v"}), 0, {"connections 1", "crc_errors 9"}, {});
  expect(etherwarp({"stat", "--pid", pid}), 0, {"ewarp_lo"}, {});
  expect(etherwarp({"stat", "--pid", "1"}), 1, {"no EtherWARP process with pid 1"}, {});
  expect(etherwarp({"stat", "--watch", "0.1", "--count", "2"}), 0, {"TX/S", "0"}, {});

  const auto j = ewarp::test::Json::parse(etherwarp({"stat", "--json"}).out);
  assert_int_equal(j.size(), 1);
  assert_int_equal(j[0]["pid"].get<int>(), getpid());
  assert_false(j[0]["ended"].get<bool>());
  assert_int_equal(j[0]["devices"][0]["tx_messages"].get<int>(), 1234);
  assert_int_equal(j[0]["qps"][0]["rx_messages"].get<int>(), 77);
  assert_string_equal(j[0]["qps"][0]["state"].get<std::string>().c_str(), "RTS");
  assert_int_equal(j[0]["qps"][0]["peer_number"].get<int>(), 0x0a1b2c);
  release_qp_slot(q);
  assert_int_equal(ewarp::test::Json::parse(etherwarp({"stat", "--json"}).out)[0]["qps"].size(), 0);
}

// Runs the tool with these words and gives its lines to `line`, as they come, until that returns true. False: it ended
// first, or said nothing for a minute.
bool etherwarp_until(const Words& words, const std::function<bool(const std::string&)>& line) {
  int out[2];
  assert_int_equal(pipe2(out, O_CLOEXEC), 0);
  const std::string program = tree + "/bin/etherwarp";
  std::vector<char*> arguments{const_cast<char*>(program.c_str())};
  for (const auto& w : words) arguments.push_back(const_cast<char*>(w.c_str()));
  arguments.push_back(nullptr);
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(out[1], STDOUT_FILENO);
    execv(program.c_str(), arguments.data());
    _exit(125);
  }
  close(out[1]);
  bool found = false;
  std::string text;
  for (pollfd p{out[0], POLLIN, 0}; !found && poll(&p, 1, 60'000) == 1;) {
    char octets[4096];
    const ssize_t n = read(out[0], octets, sizeof octets);
    if (n <= 0) break;
    text.append(octets, static_cast<std::size_t>(n));
    for (std::size_t end; !found && (end = text.find('\n')) != text.npos; text.erase(0, end + 1))
      found = line(text.substr(0, end));
  }
  kill(pid, SIGKILL);
  assert_int_equal(waitpid(pid, nullptr, 0), pid);
  close(out[0]);
  return found;
}

// A rate for the queue pair that carried something between two rounds, in its own row.
void stat_watch_shows_rates(void**) {
  using namespace ewarp::stats;
  Page& p = page();
  p.device_count = 1;
  strcpy(p.devices[0].name, "ewarp_lo");
  QpPage* q = take_qp_slot();
  assert_non_null(q);
  q->number = 0x00beef;
  const auto twice = etherwarp({"stat", "--watch", "0.1", "--count", "2"});
  // All of it between two rounds, whichever they are; the others show none.
  int rows = 0;
  const bool shown = etherwarp_until({"stat", "--watch", "0.2", "--count", "300"}, [&](const std::string& line) {
    if (!contains(line, "0x00beef")) return false;
    if (rows++ == 0) add(q->traffic.tx_octets, 64 * 1024 * 1024);
    // "... ERRORS TX/S RX/S": mebioctets in one second, nothing the other way.
    return rows > 1 && line.ends_with(" 0") && contains(line.substr(line.size() / 2), " Mi ");
  });
  release_qp_slot(q);
  assert_int_equal(twice.status, 0);
  assert_true(twice.out.find("0x00beef") != twice.out.rfind("0x00beef"));
  assert_true(shown);
}

// Thousands of queue pairs: all in JSON and with -v, else the busiest and how many there are beside them.
void stat_of_many_queue_pairs(void**) {
  using namespace ewarp::stats;
  constexpr unsigned kMany = 4096;
  std::vector<QpPage*> slots;
  for (unsigned i = 1; i <= kMany; ++i) {
    slots.push_back(take_qp_slot());
    assert_non_null(slots.back());
    slots.back()->number = i;
  }
  add(slots[2999]->traffic.rx_octets, 4096);  // number 3000
  const std::string brief = etherwarp({"stat"}).out;
  assert_true(contains(brief, "0x000bb8"));
  assert_true(contains(brief, "and 4076 less busy queue pairs"));
  assert_true(std::count(brief.begin(), brief.end(), '\n') < 30);
  assert_true(contains(etherwarp({"stat", "-v"}).out, "0x001000"));
  assert_int_equal(ewarp::test::Json::parse(etherwarp({"stat", "--json"}).out)[0]["qps"].size(), kMany);
  for (QpPage* q : slots) release_qp_slot(q);
}

void stat_shows_the_ended_on_request(void**) {
  using namespace ewarp::stats;
  const pid_t pid = fork();
  if (pid == 0) {
    page().keep = 1;
    add(page().app_passes, 3);
    _exit(0);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  const Words words = {"stat", "--json", "--pid", std::to_string(pid)};
  expect(etherwarp(words), 1, {"[]"}, {});
  auto ended = words;
  ended.push_back("--ended");
  const auto j = ewarp::test::Json::parse(etherwarp(ended).out);
  assert_int_equal(j.size(), 1);
  assert_true(j[0]["ended"].get<bool>());
  assert_int_equal(j[0]["app_passes"].get<int>(), 3);
  std::ofstream(std::string(getenv("ETHERWARP_RUNDIR")) + "/99999999") << "rubbish";
  expect(etherwarp({"stat", "--pid", "1"}), 1, {}, {"99999999", "not a page of counters"});
}

int set_up(void**) {
  char path[] = "/tmp/ewarp-cli-XXXXXX";
  if (mkdtemp(path) == nullptr) return -1;
  tree = path;
  for (const char* d : {"/bin", "/lib", "/run"}) fs::create_directory(tree + d);
  chmod((tree + "/run").c_str(), 0700);
  fs::copy_file(EWARP_CLI, tree + "/bin/etherwarp");
  fs::copy_file(EWARP_STAND_IN_PRELOAD, tree + "/lib/libetherwarp-preload.so");
  fs::copy_file(EWARP_STAND_IN_PROVIDER, tree + "/lib/libetherwarp-rdmav34.so");
  // Nothing of this machine's own settings may show through.
  for (const char* name :
       {"LD_PRELOAD", "ETHERWARP_PROVIDER", "ETHERWARP_INTERFACES", "ETHERWARP_CRC", "ETHERWARP_IO_URING"})
    unsetenv(name);
  setenv("XDG_CONFIG_HOME", path, 1);
  // A tool built with ASan would otherwise refuse to start behind the preloaded stand-in.
  setenv("ASAN_OPTIONS", "verify_asan_link_order=0", 1);
  return setenv("ETHERWARP_RUNDIR", (tree + "/run").c_str(), 1);
}

int tear_down(void**) {
  fs::remove_all(tree);
  return 0;
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(help_and_lists),
      cmocka_unit_test(bad_input_is_one_line_with_a_remedy),
      cmocka_unit_test(run_sets_the_environment_and_keeps_its_hands_off_the_rest),
      cmocka_unit_test(twins_are_shown_where_they_are_switched_on),
      cmocka_unit_test(run_says_what_it_cannot_do_before_the_program_starts),
      cmocka_unit_test(no_interface_is_said),
      cmocka_unit_test(doctor_names_each_subject),
      cmocka_unit_test(devices_as_json),
      cmocka_unit_test(stat_shows_the_counters),
      cmocka_unit_test(stat_watch_shows_rates),
      cmocka_unit_test(stat_of_many_queue_pairs),
      cmocka_unit_test(stat_shows_the_ended_on_request),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
