// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/host/sysfs.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <endian.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <vector>

#include "provider/base/log.h"
#include "provider/host/fds.h"
#include "provider/host/names.h"
#include "provider/host/sysfs_tree.h"

namespace ewarp::host::sysfs {
namespace {

constexpr std::string_view kDevices = "/sys/class/infiniband";
constexpr std::string_view kUverbs = "/sys/class/infiniband_verbs";
constexpr std::string_view kCm = "/sys/class/misc/rdma_cm";

// --- contents -------------------------------------------------------------------------------------------------------

std::string guid_text(std::uint64_t guid) {
  return fmt::format("{:04x}:{:04x}:{:04x}:{:04x}\n", guid >> 48 & 0xffff, guid >> 32 & 0xffff, guid >> 16 & 0xffff,
                     guid & 0xffff);
}

std::string gid_text(const ibv_gid& gid) {
  std::string out;
  for (std::size_t i = 0; i < sizeof gid.raw; i += 2)
    out += fmt::format("{}{:02x}{:02x}", i == 0 ? "" : ":", gid.raw[i], gid.raw[i + 1]);
  return out + "\n";
}

const char* state_text(ibv_port_state state) {
  return state == IBV_PORT_ACTIVE ? "4: ACTIVE\n" : "1: DOWN\n";
}

const char* phys_state_text(std::uint8_t state) {
  return state == 5 ? "5: LinkUp\n" : state == 2 ? "2: Polling\n" : "3: Disabled\n";
}

std::string rate_text(const ibv_port_attr& port) {
  struct Lane {
    std::uint8_t speed;
    double gbps;
    const char* name;
  };
  constexpr Lane kLanes[] = {{1, 2.5, " SDR"}, {2, 5, " DDR"},   {4, 10, " QDR"},
                             {32, 25, " EDR"}, {64, 50, " HDR"}, {128, 100, " NDR"}};
  const int width = port.active_width == 2 ? 4 : port.active_width == 16 ? 2 : 1;
  for (const Lane& lane : kLanes)
    if (lane.speed == port.active_speed)
      return fmt::format("{:g} Gb/sec ({}X{})\n", lane.gbps * width, width, lane.name);
  return "10 Gb/sec (1X QDR)\n";
}

std::string number_text(dev_t number) {
  return fmt::format("{}:{}\n", major(number), minor(number));
}

void add_port(const verbs::Device& device, const std::string& at, Files& out) {
  ibv_port_attr port{};
  device.query_port(1, &port, sizeof port);
  out[at + "state"] = state_text(port.state);
  out[at + "phys_state"] = phys_state_text(port.phys_state);
  out[at + "rate"] = rate_text(port);
  out[at + "link_layer"] = "Ethernet\n";
  out[at + "lid"] = out[at + "sm_lid"] = "0x0\n";
  out[at + "lid_mask_count"] = out[at + "sm_sl"] = "0\n";
  out[at + "cap_mask"] = fmt::format("0x{:08x}\n", port.port_cap_flags);
  out[at + "pkeys/0"] = fmt::format("0x{:04x}\n", verbs::kDefaultPkey);
  std::size_t i = 0;
  for (const ibv_gid& gid : device.gids()) {
    out[fmt::format("{}gids/{}", at, i)] = gid_text(gid);
    out[fmt::format("{}gid_attrs/types/{}", at, i)] = "RoCE v2\n";
    out[fmt::format("{}gid_attrs/ndevs/{}", at, i)] = device.interface_name() + "\n";
    ++i;
  }
}

// All files of one device: its own directory, and that of its uverbs.
Files files_of(const verbs::Device& device) {
  Files out;
  ibv_device_attr attributes;
  device.query(attributes);
  const std::string at = fmt::format("{}/{}/", kDevices, device.name());
  out[at + "node_type"] = device.twin() ? "1: CA\n" : "4: RNIC\n";
  out[at + "node_guid"] = out[at + "sys_image_guid"] = guid_text(device.guid());
  out[at + "node_desc"] = fmt::format("EtherWARP on {}\n", device.interface_name());
  out[at + "fw_ver"] = fmt::format("{}\n", attributes.fw_ver);
  out[at + "hca_type"] = "EtherWARP\n";
  add_port(device, at + "ports/1/", out);
  // Who looks for the interface of a device looks here, and needs its name only.
  out[fmt::format("{}device/net/{}/ifindex", at, device.interface_name())] =
      fmt::format("{}\n", device.interface_index());

  const std::string uverbs = fmt::format("{}/{}/", kUverbs, uverbs_name(device));
  const std::string below_device = fmt::format("{}device/infiniband_verbs/{}/", at, uverbs_name(device));
  for (const std::string& place : {uverbs, below_device}) {
    out[place + "ibdev"] = device.name() + "\n";
    out[place + "dev"] = number_text(uverbs_number(device));
    out[place + "abi_version"] = fmt::format("{}\n", kUverbsAbi);
  }
  return out;
}

Files common_files() {
  return {{fmt::format("{}/abi_version", kUverbs), fmt::format("{}\n", kVerbsCoreAbi)},
          {fmt::format("{}/abi_version", kCm), fmt::format("{}\n", kCmAbi)},
          {fmt::format("{}/dev", kCm), number_text(cm_number())}};
}

// --- paths ----------------------------------------------------------------------------------------------------------

// Without double or trailing slashes.
std::string normal(std::string_view path) {
  std::string out;
  for (const char c : path)
    if (c != '/' || out.empty() || out.back() != '/') out += c;
  while (out.size() > 1 && out.back() == '/') out.pop_back();
  return out;
}

bool is_below(std::string_view path, std::string_view directory) {
  return path.starts_with(directory) && path.size() > directory.size() && path[directory.size()] == '/';
}

// The device whose directory the path is, or is in.
verbs::Device* device_at(std::string_view path) {
  for (const std::string_view directory : {kDevices, kUverbs}) {
    if (!is_below(path, directory)) continue;
    const auto rest = path.substr(directory.size() + 1);
    const std::string name(rest.substr(0, rest.find('/')));
    return directory == kDevices ? verbs::find_device(name) : find_uverbs(name);
  }
  return nullptr;
}

Kind look_up_in(const Files& files, const std::string& path, std::string* text) {
  const auto found = files.lower_bound(path);
  if (found != files.end() && found->first == path) {
    *text = found->second;
    return Kind::file;
  }
  // Files of a directory need not follow its name at once ("a/b" comes after "a-b").
  const auto below = files.lower_bound(path + "/");
  return below != files.end() && is_below(below->first, path) ? Kind::directory : Kind::absent;
}

// What the kernel has in this directory, past the hooks.
std::vector<std::string> kernel_entries(std::string_view directory) {
  std::vector<std::string> out;
  const auto fd = static_cast<int>(
      syscall(SYS_openat, AT_FDCWD, std::string(directory).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd < 0) return out;
  DIR* list = fdopendir(fd);
  if (list == nullptr) {
    raw_close(fd);
    return out;
  }
  while (const dirent* entry = readdir(list))
    if (entry->d_name[0] != '.') out.emplace_back(entry->d_name);
  closedir(list);
  return out;
}

// The root of a tree with the present content, empty if none can be made.
std::string make_tree() {
  const Files files = snapshot();
  Files links;
  for (const std::string_view directory : {kDevices, kUverbs})
    for (const auto& entry : kernel_entries(directory))
      if (const auto path = fmt::format("{}/{}", directory, entry); !files.contains(path)) links[path] = path;
  return tree_with(files, links);
}

}  // namespace

Files snapshot() {
  Files out = common_files();
  for (const verbs::Device* device : verbs::devices()) out.merge(files_of(*device));
  return out;
}

Kind look_up(std::string_view asked, std::string* text) {
  const std::string path = normal(asked);
  if (const verbs::Device* device = device_at(path)) return look_up_in(files_of(*device), path, text);
  const Kind kind = look_up_in(common_files(), path, text);
  if (kind != Kind::absent) return kind;
  if ((path == kDevices || path == kUverbs) && !verbs::devices().empty()) return Kind::directory;
  return Kind::not_ours;  // the kernel's, if anybody's
}

int open_directory(std::string_view path, int flags) {
  constexpr int kTries = 8;  // another thread may ask for a tree meanwhile, after the content has changed
  int fd = -EAGAIN;
  for (int tried = 0; fd == -EAGAIN && tried < kTries; ++tried) {
    const std::string root = make_tree();
    if (root.empty()) {
      static std::atomic<bool> said{false};
      if (!said.exchange(true))
        log::warn("cannot list {}: no place for it in /dev/shm or /tmp (ETHERWARP_RUNDIR names another)", path);
      return -EACCES;
    }
    fd = open_in_tree(root, normal(path), flags);
  }
  return fd;
}

}  // namespace ewarp::host::sysfs
