// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// `etherwarp doctor`: what is missing on this machine, and how to get it.
#include <dlfcn.h>
#include <link.h>
#include <linux/io_uring.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "llp/local_agreement.h"
#include "mpi_shim/channel/environment.h"
#include "mpi_shim/channel/memory/monitor.h"
#include "provider/base/device_names.h"
#include "provider/base/stats.h"
#include "provider/cli/commands.h"
#include "provider/cli/libraries.h"
#include "provider/rdmav34/releases.h"

namespace ewarp::cli {
namespace {

constexpr unsigned kOldestKernel[] = {6, 1};
constexpr rlim_t kFewDescriptors = 4096;  // one per connection, and some for the application

// One line per finding; a finding that is not ok says how to mend it.
class Report {
 public:
  void ok(const char* subject, const std::string& what) { print("ok", subject, what); }
  void warn(const char* subject, const std::string& what, const std::string& remedy) {
    print("warn", subject, what + "; " + remedy);
  }
  void fail(const char* subject, const std::string& what, const std::string& remedy) {
    print("FAIL", subject, what + "; " + remedy);
    failed_ = true;
  }
  bool failed() const { return failed_; }

 private:
  static void print(const char* verdict, const char* subject, const std::string& text) {
    fmt::print("{:<4}  {:<18}  {}\n", verdict, subject, text);
  }
  bool failed_ = false;
};

// Where the loader found an opened library, links followed: the file's name carries the version.
std::string origin(void* library) {
  const link_map* map = nullptr;
  char real[PATH_MAX];
  if (dlinfo(library, RTLD_DI_LINKMAP, &map) != 0 || realpath(map->l_name, real) == nullptr) return "?";
  return real;
}

void check_libibverbs(Report& r) {
  constexpr char kSubject[] = "libibverbs";
  void* library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return r.fail(kSubject, dlerror(), "`apt-get install libibverbs1`");
  const auto* release = rdmav34::release_of(library);
  const std::string found = fmt::format("{}, {}", origin(library), rdmav34::text_of(release));
  if (release != nullptr && release->served) return r.ok(kSubject, found);
  r.fail(kSubject, found + ", which EtherWARP does not serve",
         "use a release with " + rdmav34::served_text() + ": Debian 12 has 44, Debian 13 56.1");
}

void check_librdmacm(Report& r) {
  void* library = dlopen("librdmacm.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    return r.warn("librdmacm", dlerror(), "programs that connect by rdma_cm need it: `apt-get install librdmacm1`");
  r.ok("librdmacm", origin(library));
}

void check_own_libraries(Report& r) {
  const Libraries l = find_libraries();
  constexpr char kRemedy[] = "build it (./scripts/build) or install it (cmake --install build)";
  const struct {
    const char* subject;
    const std::string& path;
  } kBoth[] = {{"preload library", l.preload}, {"provider", l.provider}};
  for (const auto& b : kBoth) {
    if (b.path.empty())
      r.fail(b.subject, fmt::format("not found in {}", fmt::join(l.searched, ", ")), kRemedy);
    else if (const auto why = why_not_loadable(b.path); !why.empty())
      r.fail(b.subject, fmt::format("{} cannot be loaded: {}", b.path, why), "rebuild it on this machine");
    else
      r.ok(b.subject, b.path);
  }
}

// What MPI programs need beyond that: nobody else does, so nothing here fails.
void check_mpi(Report& r) {
  constexpr char kFabric[] = "libfabric", kMpi[] = "Open MPI";
  const Libraries l = find_libraries();
  void* library = dlopen("libfabric.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    r.warn(kFabric, dlerror(), "MPI programs need it: `apt-get install libfabric1`");
  else if (l.fabric.empty())
    r.warn(kFabric, fmt::format("no {} in {}", kFabricProvider, fmt::join(l.searched, ", ")),
           "MPI programs need it: build EtherWARP where libfabric-dev is installed");
  else if (const auto why = why_not_loadable(l.fabric); !why.empty())
    r.warn(kFabric, fmt::format("{} cannot be loaded: {}", l.fabric, why), "rebuild it on this machine");
  else
    r.ok(kFabric, fmt::format("{}, provider {}", origin(library), l.fabric));
  const OpenMpi mpi = find_open_mpi();
  if (mpi.path.empty())
    r.warn(kMpi, mpi.other.empty() ? "no mpirun in PATH" : mpi.other + " is another's",
           "`etherwarp mpirun` needs it: `apt-get install openmpi-bin`");
  else
    r.ok(kMpi, fmt::format("{}, {}", mpi.path, mpi.version));
}

void check_kernel(Report& r) {
  utsname name{};
  uname(&name);
  unsigned major = 0, minor = 0;
  std::sscanf(name.release, "%u.%u", &major, &minor);
  if (std::pair(major, minor) < std::pair(kOldestKernel[0], kOldestKernel[1]))
    r.warn("kernel",
           fmt::format("{} is older than {}.{}, the oldest we test", name.release, kOldestKernel[0], kOldestKernel[1]),
           "use a newer one if something fails");
  else
    r.ok("kernel", name.release);
}

void check_io_uring(Report& r, const Options& options) {
  constexpr char kSubject[] = "io_uring";
  constexpr char kInstead[] = "EtherWARP uses epoll instead, which is slower";
  if (!options.io_uring) return r.warn(kSubject, "switched off by the option io_uring", kInstead);
  io_uring_params params{};
  const auto fd = static_cast<int>(syscall(SYS_io_uring_setup, 4, &params));
  if (fd >= 0) {
    close(fd);
    return r.ok(kSubject, "usable");
  }
  const int error = errno;
  std::string why = std::strerror(error);
  if (error == ENOSYS) why = "this kernel or container has none";
  if (error == EPERM)
    why =
        "forbidden here; a container needs a seccomp profile that allows io_uring_setup, a host sysctl "
        "kernel.io_uring_disabled=0";
  r.warn(kSubject, why, kInstead);
}

void check_local_streams(Report& r, const Options& options) {
  constexpr char kSubject[] = "local streams";
  constexpr char kInstead[] = "programs of this host speak by TCP, which is slower";
  if (!options.local) return r.warn(kSubject, "switched off by the option local", kInstead);
  const int error = llp::LocalAgreement::try_out();
  if (error == 0) return r.ok(kSubject, "usable between processes of one user");
  r.warn(kSubject, fmt::format("shared memory or AF_UNIX sockets cannot be had ({})", std::strerror(error)), kInstead);
}

// EtherWARP's own devices pin nothing, so nobody needs it there.
void check_memory_monitor(Report& r) {
  constexpr char kSubject[] = "memory monitor";
  std::string why;
  if (const auto* monitor = channel::MemoryMonitor::of_process(&why); monitor != nullptr)
    return r.ok(
        kSubject,
        fmt::format("usable: on adapters that pin, the message channel keeps registrations (a look-up takes {:.1f} µs)",
                    monitor->settled_ns() / 1000));
  r.warn(kSubject, why,
         "on adapters that pin, the message channel registers memory for each transfer; a container needs "
         "a seccomp profile that allows userfaultfd");
}

void check_descriptors(Report& r) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const std::string what = fmt::format("up to {} (soft limit {}, raised when needed)", limit.rlim_max, limit.rlim_cur);
  if (limit.rlim_max < kFewDescriptors)
    r.warn("file descriptors", what,
           fmt::format("each connection takes one; `ulimit -Hn` (limits.conf, container settings) raises it"));
  else
    r.ok("file descriptors", what);
}

void check_interfaces(Report& r, const Options& options) {
  std::vector<std::string> problems;
  const auto found = usable_interfaces(options, &problems);
  for (const auto& p : problems) r.fail("interfaces", p, "the option interfaces and `ip address` show what there is");
  std::vector<std::string> names;
  for (const bool twin : {false, true})
    for (const auto& i : found)
      if (!twin || options.twin) names.push_back(device_name(i.name, twin) + (i.running ? "" : " (no carrier)"));
  if (!found.empty())
    r.ok("interfaces",
         fmt::format("{} become{} {}", found.size(), found.size() == 1 ? "s" : "", fmt::join(names, ", ")));
}

void check_cpus(Report& r, const Options& options) {
  const unsigned cpus = usable_cpus(), spin = effective_spin_us(options);
  const std::string what = fmt::format("{} usable; the background thread spins {} µs before it sleeps", cpus, spin);
  if (cpus < 2)
    r.warn("CPUs", what, "two processes that poll on one CPU wait for each other's time slice: expect milliseconds");
  else
    r.ok("CPUs", what);
}

void check_congestion_control(Report& r, const Options& options) {
  constexpr char kSubject[] = "congestion control";
  if (options.congestion == "system") return r.ok(kSubject, "the system's, by the option congestion");
  const std::string name = options.congestion == "auto" ? "reno" : options.congestion;
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool good =
      fd >= 0 && setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.c_str(), static_cast<socklen_t>(name.size())) == 0;
  const int error = errno;
  if (fd >= 0) close(fd);
  if (good) return r.ok(kSubject, fmt::format("{} may be chosen", name));
  r.warn(kSubject, fmt::format("{} cannot be chosen ({})", name, std::strerror(error)),
         "the system's is used; sysctl net.ipv4.tcp_allowed_congestion_control lists what is allowed");
}

void check_counters(Report& r, const Options& options) {
  constexpr char kSubject[] = "counters";
  if (!options.stats) return r.warn(kSubject, "switched off by the option stats", "`etherwarp stat` shows nothing");
  const std::string directory = stats::run_directory();
  const std::string parent = std::filesystem::path(directory).parent_path().string();
  struct stat st {};
  const bool exists = lstat(directory.c_str(), &st) == 0;
  if (exists ? S_ISDIR(st.st_mode) && st.st_uid == geteuid() && (st.st_mode & 022) == 0 &&
                   access(directory.c_str(), W_OK) == 0
             : access(parent.c_str(), W_OK) == 0)
    return r.ok(kSubject, fmt::format("in {}", directory));
  r.warn(kSubject, fmt::format("{} cannot be written by this user alone", directory),
         "`etherwarp stat` shows nothing; ETHERWARP_RUNDIR names another directory");
}

void check_configuration(Report& r, const OptionsRead& read) {
  auto problems = read.problems;
  for (auto& p : channel::read_options().problems) problems.push_back(std::move(p));
  for (const auto& p : problems) r.warn("configuration", p, "`etherwarp options` lists names and values");
  if (problems.empty()) r.ok("configuration", read.file.empty() ? "no file, environment only" : read.file);
}

}  // namespace

int doctor() {
  const auto read = read_options();
  Report r;
  check_kernel(r);
  check_libibverbs(r);
  check_librdmacm(r);
  check_own_libraries(r);
  check_mpi(r);
  check_interfaces(r, read.options);
  check_io_uring(r, read.options);
  check_local_streams(r, read.options);
  check_descriptors(r);
  check_memory_monitor(r);
  r.ok("locked memory", "no limit applies: EtherWARP pins nothing (RLIMIT_MEMLOCK)");
  check_cpus(r, read.options);
  check_congestion_control(r, read.options);
  check_counters(r, read.options);
  check_configuration(r, read);
  return r.failed() ? 1 : 0;
}

}  // namespace ewarp::cli
