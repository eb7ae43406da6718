// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Programs under the preload library: the probe, and others that know nothing of it.
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

extern "C" {
#include <cmocka.h>
}

namespace {

// For programs that load the provider; it may have been built with a sanitizer, the preload library never is. (The
// run-time library of the thread sanitizer is the end of many a program that was not built with it.)
#ifdef SANITIZER_RUNTIME
const std::string kPreload = std::string(SANITIZER_RUNTIME) + ":" + PRELOAD_LIBRARY;
#else
const std::string kPreload = PRELOAD_LIBRARY;
#endif
const std::string kPlainPreload = PRELOAD_LIBRARY;

struct Outcome {
  int status = -1;  // exit status, or 128 + signal
  std::string out, err;
};

using Arguments = std::vector<std::string>;

std::vector<char*> pointers(const Arguments& from) {
  std::vector<char*> out;
  for (const auto& a : from) out.push_back(const_cast<char*>(a.c_str()));
  out.push_back(nullptr);
  return out;
}

void drain(int out_fd, int err_fd, Outcome& outcome) {
  pollfd fds[2] = {{out_fd, POLLIN, 0}, {err_fd, POLLIN, 0}};
  std::string* texts[2] = {&outcome.out, &outcome.err};
  for (int open = 2; open > 0;) {
    assert_true(poll(fds, 2, 100000) > 0);
    for (int i = 0; i < 2; ++i) {
      if (fds[i].fd < 0 || fds[i].revents == 0) continue;
      char chunk[4096];
      const ssize_t n = read(fds[i].fd, chunk, sizeof chunk);
      if (n > 0) {
        texts[i]->append(chunk, static_cast<std::size_t>(n));
        continue;
      }
      fds[i].fd = -1;
      --open;
    }
  }
}

// The programs of this directory leak nothing; those of others end without freeing what they have.
bool is_ours(const std::string& program) {
  for (const char* ours : {PROBE, SEND_PROBE, OBJECTS_PROBE, LIBRARY_PROBE})
    if (program == ours) return true;
  return false;
}

Outcome run(const Arguments& program, const Arguments& environment = {}, const std::string& preload = kPreload) {
  int out[2], err[2];
  assert_int_equal(pipe2(out, O_CLOEXEC), 0);
  assert_int_equal(pipe2(err, O_CLOEXEC), 0);
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    dup2(out[1], 1);
    dup2(err[1], 2);
    if (!preload.empty()) setenv("LD_PRELOAD", preload.c_str(), 1);
    setenv("PLAIN_PRELOAD", kPlainPreload.c_str(), 1);
    setenv("ASAN_OPTIONS", is_ours(program[0]) ? "detect_leaks=1" : "detect_leaks=0", 1);
    // A device is opened in a forked child, which starts a thread there. What libibverbs orders by atomics of its own
    // is unseen: only accesses of code that was built with the sanitizer are compared.
    setenv("TSAN_OPTIONS", "die_after_fork=0:ignore_noninstrumented_modules=1", 1);
    for (const char* option : {"ETHERWARP_INTERFACES", "ETHERWARP_TWIN"}) unsetenv(option);
    for (const auto& e : environment) putenv(const_cast<char*>(e.c_str()));
    execvp(program[0].c_str(), pointers(program).data());
    _exit(127);
  }
  close(out[1]);
  close(err[1]);
  Outcome outcome;
  drain(out[0], err[0], outcome);
  close(out[0]);
  close(err[0]);
  int status = 0;
  assert_int_equal(waitpid(child, &status, 0), child);
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return outcome;
}

bool installed(const char* program) {
  return run({"sh", "-c", std::string("command -v ") + program}, {}, "").status == 0;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::size_t lines_with(const std::string& text, const std::string& part) {
  std::size_t n = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++n;
  return n;
}

void skipped_for(const std::string& reason) {
  print_message("skipped: %s\n", reason.c_str());
  skip();
}

void needs_installed(const std::string& program) {
  if (!installed(program.c_str())) skipped_for(program + " is not installed");
}

void expect_success(const Outcome& o) {
  if (o.status == 77) skipped_for(o.err.empty() ? "this machine lacks what it needs" : o.err);
  if (o.status != 0) print_message("status %d\n%s%s\n", o.status, o.out.c_str(), o.err.c_str());
  assert_int_equal(o.status, 0);
}

// --- the probe ------------------------------------------------------------------------------------------------------

// For those that leave behind what they have, as some programs do.
const char* const kLeaves = "ASAN_OPTIONS=detect_leaks=0";

// A thread that is cancelled inside a call which ThreadSanitizer was told to pass over is reported as one that never
// ended that.
const char* const kCancels = "TSAN_OPTIONS=die_after_fork=0";

#define PROBE_TEST(function, what, ...)                \
  void function(void**) {                              \
    expect_success(run({PROBE, what}, {__VA_ARGS__})); \
  }

PROBE_TEST(libibverbs_lists_our_devices, "devices")
PROBE_TEST(every_device_can_be_used, "open")
PROBE_TEST(threads_open_devices_at_once, "threads")
PROBE_TEST(a_device_closed_too_early, "close-early", kLeaves)
PROBE_TEST(netlink_for_careful_readers, "netlink")
PROBE_TEST(sysfs_paths_are_there, "sysfs")
PROBE_TEST(other_calls_pass, "plain")
PROBE_TEST(fork_exec_and_a_device_in_the_child, "fork")
PROBE_TEST(vfork_does_not_touch_the_parent, "vfork")
PROBE_TEST(a_closed_channel_is_waited_on, "closed-channel", kCancels)
PROBE_TEST(numbers_that_came_back_as_something_else, "stale", kLeaves)
PROBE_TEST(numbers_that_came_back_as_the_same_kind_of_file, "stale-twins", kLeaves)
PROBE_TEST(libibverbs_comes_after_the_first_question, "dlopen")

void run_parts(const char* probe, std::initializer_list<const char*> parts) {
  for (const char* part : parts) {
    print_message("%s\n", part);
    expect_success(run({probe, part}));
  }
}

void queue_pairs_with_send_operations(void**) {
  run_parts(SEND_PROBE, {"builders", "windows", "errors", "batches", "creation", "rights"});
}

void extended_objects(void**) {
  run_parts(OBJECTS_PROBE, {"polling", "cq-creation", "domains", "null", "attributes", "refusals"});
}

void a_child_has_registered_memory(void**) {
  run_parts(OBJECTS_PROBE, {"children"});
}

// Holds: UD-3
void arrivals_can_be_answered(void**) {
  run_parts(OBJECTS_PROBE, {"answers"});
}

void without_netlink_there_is_sysfs(void**) {
  for (const char* error : {"1", "97"}) {  // EPERM, EAFNOSUPPORT
    print_message("errno %s\n", error);
    for (const char* what : {"devices", "open", "threads"})
      expect_success(run({PROBE, std::string("no-netlink=") + error, what}));
  }
}

void a_twin_on_demand(void**) {
  expect_success(run({PROBE, "no-twin"}));
  expect_success(run({PROBE, "no-twin"}, {"ETHERWARP_TWIN=0"}));
  expect_success(run({PROBE, "twin"}, {"ETHERWARP_TWIN=1"}));
  expect_success(run({PROBE, "no-netlink=1", "twin"}, {"ETHERWARP_TWIN=1"}));
}

// --- programs that know nothing of RDMA -----------------------------------------------------------------------------

void shells_are_the_same(void**) {
  const char* const scripts[] = {
      "for i in 1 2 3; do echo $i; done | sort -r | head -2; x=$(echo inner); echo $x; exit 3",
      // To ls it is there.
      "(exec 7</etc/passwd; read -r line <&7; echo ${line%%:*}); ls -d /etc /dev/infiniband 2>/dev/null; exit 4",
      "kill -9 $$",
  };
  for (const char* script : scripts) {
    print_message("script: %s\n", script);
    const Outcome with = run({"bash", "-c", script}, {}, kPlainPreload), without = run({"bash", "-c", script}, {}, "");
    assert_int_equal(with.status, without.status);
    assert_string_equal(with.err.c_str(), without.err.c_str());
    if (!contains(script, "infiniband")) assert_string_equal(with.out.c_str(), without.out.c_str());
  }
}

void the_provider_is_not_loaded_without_need(void**) {
  const Outcome o = run({"bash", "-c", "ls / >/dev/null; cat /proc/self/maps"}, {}, kPlainPreload);
  expect_success(o);
  assert_true(contains(o.out, "libetherwarp-preload"));
  assert_false(contains(o.out, "libetherwarp-rdmav34"));
}

void python_is_the_same(void**) {
  needs_installed("python3");
  const char* script =
      "import os, subprocess, socket, tempfile, threading\n"
      "print(subprocess.run(['echo', 'child'], capture_output=True, close_fds=True).stdout)\n"
      "a, b = socket.socketpair(); a.send(b'x'); print(b.recv(1))\n"
      "with tempfile.TemporaryFile() as f: f.write(b'abc'); f.flush(); print(os.fstat(f.fileno()).st_size)\n"
      "print(os.path.exists('/etc/passwd'), os.path.exists('/nowhere'))\n"
      "t = [threading.Thread(target=lambda: os.listdir('/')) for _ in range(8)]\n"
      "[x.start() for x in t]; [x.join() for x in t]\n";
  const Outcome with = run({"python3", "-c", script}, {}, kPlainPreload),
                without = run({"python3", "-c", script}, {}, "");
  assert_int_equal(with.status, 0);
  assert_string_equal(with.out.c_str(), without.out.c_str());
  assert_string_equal(with.err.c_str(), without.err.c_str());
}

// --- rdma-core's own tools ------------------------------------------------------------------------------------------

void ibv_devices_lists_the_loopback(void**) {
  needs_installed("ibv_devices");
  const Outcome o = run({"ibv_devices"});
  expect_success(o);
  assert_true(contains(o.out, "ewarp_lo"));
  assert_string_equal(o.err.c_str(), "");
}

void ibv_devinfo_tells_all(void**) {
  needs_installed("ibv_devinfo");
  const Outcome o = run({"ibv_devinfo", "-v", "-d", "ewarp_lo"});
  expect_success(o);
  for (const char* line :
       {"hca_id:\tewarp_lo", "transport:\t\t\tiWARP (1)", "PORT_ACTIVE (4)", "max_mtu:\t\t4096 (5)",
        "link_layer:\t\tEthernet", "atomic_cap:\t\t\tATOMIC_GLOB (2)", "phys_port_cnt:\t\t\t1", "max_srq:\t\t\t65536",
        "pkey_tbl_len:\t\t1", "GID[  0]:\t\t::ffff:127.0.0.1, RoCE v2", "10.0 Gbps (4)"}) {
    print_message("line: %s\n", line);
    assert_true(contains(o.out, line));
  }
}

void the_tools_work_without_netlink(void**) {
  needs_installed("ibv_devinfo");
  const Outcome o = run({PROBE, "no-netlink=1", "ibv_devinfo", "-d", "ewarp_lo"});
  expect_success(o);
  assert_true(contains(o.out, "PORT_ACTIVE (4)"));
}

// A container with nothing in it: no /sys, no /dev/infiniband, nothing writable but /tmp, no privilege.
void an_empty_container(void**) {
  const std::string set_up =
      "ip link set lo up 2>/dev/null; mount -t tmpfs -o ro none /sys && mount -t tmpfs none /dev/shm && ";
  if (!installed("unshare") || run({"unshare", "-Urmn", "sh", "-c", set_up + "true"}, {}, "").status != 0)
    skipped_for("this machine does not permit user namespaces");
  const std::string program = "LD_PRELOAD=" + kPreload + " ASAN_OPTIONS=detect_leaks=0 exec ";
  for (const std::string what : {"devices", "open"})
    expect_success(run({"unshare", "-Urmn", "sh", "-c", set_up + program + PROBE + " " + what}, {}, ""));
  expect_success(run({"unshare", "-Urmn", "sh", "-c", set_up + program + PROBE + " no-netlink=1 open"}, {}, ""));
}

// --- releases of rdma-core ------------------------------------------------------------------------------------------

std::string stand_in(int interface) {
  return fmt::format("{}/interface_{}/libibverbs.so.1", STAND_INS, interface);
}

void every_interface_that_is_served(void**) {
  for (const int interface : {34, 65}) {
    print_message("case: IBVERBS_PRIVATE_%d\n", interface);
    const Outcome o = run({LIBRARY_PROBE, "served", stand_in(interface), std::to_string(interface)});
    expect_success(o);
    assert_string_equal(o.err.c_str(), "");
  }
}

// libibverbs adds its number to the name in a driver file: whatever it is, that is the module which the preload library
// loads by its first name, and not a second one.
void the_module_has_a_name_for_every_interface(void**) {
  const std::string first = std::filesystem::canonical(PROVIDER_DIRECTORY "/libetherwarp-rdmav34.so");
  assert_string_equal(std::filesystem::canonical(PROVIDER_DIRECTORY "/libetherwarp-rdmav65.so").c_str(), first.c_str());
}

void doctor_tells_which_libibverbs_it_found(void**) {
  const struct {
    int interface;
    const char* verdict;
    const char* text;
  } kCases[] = {
      {34, "ok    libibverbs", "interface_34/libibverbs.so.1, IBVERBS_PRIVATE_34 (rdma-core 36 to 56)"},
      {65, "ok    libibverbs", "interface_65/libibverbs.so.1, IBVERBS_PRIVATE_65 (rdma-core 65)"},
      {59, "FAIL  libibverbs", "IBVERBS_PRIVATE_59 (rdma-core 59 to 63), which EtherWARP does not serve"},
  };
  for (const auto& c : kCases) {
    print_message("case: IBVERBS_PRIVATE_%d\n", c.interface);
    const Outcome o =
        run({EWARP_CLI, "doctor"}, {fmt::format("LD_LIBRARY_PATH={}/interface_{}", STAND_INS, c.interface)}, "");
    if (!contains(o.out, c.verdict) || !contains(o.out, c.text)) fail_msg("%s", o.out.c_str());
  }
}

// --- what goes wrong is said in one line ----------------------------------------------------------------------------

void expect_one_line(const Outcome& o, const std::string& part) {
  print_message("stderr: %s", o.err.c_str());
  assert_int_equal(lines_with(o.err, "etherwarp: "), 1);
  assert_true(contains(o.err, part));
}

void a_provider_that_is_not_there(void**) {
  expect_one_line(run({PROBE, "devices"}, {"ETHERWARP_PROVIDER=/nowhere/module.so"}), "/nowhere/module.so");
}

void a_provider_that_is_something_else(void**) {
  expect_one_line(run({PROBE, "devices"}, {"ETHERWARP_PROVIDER=libm.so.6"}), "it is not the EtherWARP provider");
}

void a_libibverbs_with_another_interface(void**) {
  const Outcome o = run({LIBRARY_PROBE, "refused", stand_in(59)});
  expect_success(o);
  expect_one_line(o, "is IBVERBS_PRIVATE_59 (rdma-core 59 to 63), EtherWARP serves IBVERBS_PRIVATE_34");
}

void no_libibverbs_at_all(void**) {
  const Outcome o = run({LIBRARY_PROBE});
  assert_int_equal(o.status, 0);
  assert_string_equal(o.err.c_str(), "");
}

void no_usable_interface(void**) {
  if (!installed("unshare") || run({"unshare", "-Urn", "true"}, {}, "").status != 0)
    skipped_for("this machine does not permit user namespaces");
  const std::string program = "LD_PRELOAD=" + kPreload + " ASAN_OPTIONS=detect_leaks=0 exec " PROBE " devices";
  expect_one_line(run({"unshare", "-Urn", "sh", "-c", program}, {}, ""), "no usable network interface");
}

void an_interface_that_does_not_exist(void**) {
  const Outcome o = run({PROBE, "devices"}, {"ETHERWARP_INTERFACES=lo,nothere", "ETHERWARP_LOG=warn"});
  expect_success(o);
  assert_string_equal(o.out.c_str(), "ewarp_lo\n");
  expect_one_line(o, "nothere");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(libibverbs_lists_our_devices),
      cmocka_unit_test(every_device_can_be_used),
      cmocka_unit_test(threads_open_devices_at_once),
      cmocka_unit_test(a_device_closed_too_early),
      cmocka_unit_test(netlink_for_careful_readers),
      cmocka_unit_test(sysfs_paths_are_there),
      cmocka_unit_test(other_calls_pass),
      cmocka_unit_test(fork_exec_and_a_device_in_the_child),
      cmocka_unit_test(vfork_does_not_touch_the_parent),
      cmocka_unit_test(a_closed_channel_is_waited_on),
      cmocka_unit_test(numbers_that_came_back_as_something_else),
      cmocka_unit_test(numbers_that_came_back_as_the_same_kind_of_file),
      cmocka_unit_test(libibverbs_comes_after_the_first_question),
      cmocka_unit_test(queue_pairs_with_send_operations),
      cmocka_unit_test(extended_objects),
      cmocka_unit_test(a_child_has_registered_memory),
      cmocka_unit_test(arrivals_can_be_answered),
      cmocka_unit_test(without_netlink_there_is_sysfs),
      cmocka_unit_test(shells_are_the_same),
      cmocka_unit_test(the_provider_is_not_loaded_without_need),
      cmocka_unit_test(python_is_the_same),
      cmocka_unit_test(ibv_devices_lists_the_loopback),
      cmocka_unit_test(ibv_devinfo_tells_all),
      cmocka_unit_test(the_tools_work_without_netlink),
      cmocka_unit_test(an_empty_container),
      cmocka_unit_test(a_twin_on_demand),
      cmocka_unit_test(every_interface_that_is_served),
      cmocka_unit_test(the_module_has_a_name_for_every_interface),
      cmocka_unit_test(doctor_tells_which_libibverbs_it_found),
      cmocka_unit_test(a_provider_that_is_not_there),
      cmocka_unit_test(a_provider_that_is_something_else),
      cmocka_unit_test(a_libibverbs_with_another_interface),
      cmocka_unit_test(no_libibverbs_at_all),
      cmocka_unit_test(no_usable_interface),
      cmocka_unit_test(an_interface_that_does_not_exist),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
