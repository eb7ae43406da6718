// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// `etherwarp devices`: what a verbs program will find on this machine.
#include <arpa/inet.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include <nlohmann/json.hpp>

#include "provider/base/device_names.h"
#include "provider/cli/commands.h"
#include "provider/cli/table.h"

namespace ewarp::cli {
namespace {

std::string text(const llp::Address& a) {
  char out[INET6_ADDRSTRLEN] = "";
  if (a.address.ss_family == AF_INET) {
    sockaddr_in in;
    std::memcpy(&in, &a.address, sizeof in);
    inet_ntop(AF_INET, &in.sin_addr, out, sizeof out);
  } else {
    sockaddr_in6 in;
    std::memcpy(&in, &a.address, sizeof in);
    inet_ntop(AF_INET6, &in.sin6_addr, out, sizeof out);
  }
  return out;
}

// As ibv_query_gid() gives it: IPv4 addresses mapped into IPv6.
std::string gid(const llp::Address& a) {
  return (a.address.ss_family == AF_INET ? "::ffff:" : "") + text(a);
}

std::string state(const llp::Interface& i) {
  return i.up && i.running ? "active" : i.up ? "no carrier" : "down";
}

std::string speed(const llp::Interface& i) {
  if (i.speed_mbps == 0) return "-";
  return i.speed_mbps >= 1000 ? fmt::format("{:g} Gbit/s", static_cast<double>(i.speed_mbps) / 1000)
                              : fmt::format("{} Mbit/s", i.speed_mbps);
}

// The node type that programs are told.
const char* type_text(bool twin) {
  return twin ? "CA" : "RNIC";
}

nlohmann::json as_json(const llp::Interface& i, bool twin) {
  nlohmann::json j = {{"device", device_name(i.name, twin)},
                      {"type", type_text(twin)},
                      {"interface", i.name},
                      {"state", state(i)},
                      {"mtu", i.mtu},
                      {"speed_mbps", i.speed_mbps}};
  for (const auto& a : i.addresses) {
    j["addresses"].push_back(fmt::format("{}/{}", text(a), a.prefix_length));
    j["gids"].push_back(gid(a));
  }
  return j;
}

// One row for each address; what they have in common is in the first.
void add_rows(Table& table, const llp::Interface& i, bool twin) {
  std::vector<std::string> cells = {device_name(i.name, twin), type_text(twin), i.name, state(i),
                                    fmt::format("{}", i.mtu),  speed(i)};
  const std::size_t common = cells.size();
  for (std::size_t n = 0; n < i.addresses.size(); ++n) {
    cells.resize(common);
    cells.push_back(fmt::format("{}", n));
    cells.push_back(fmt::format("{}/{}", text(i.addresses[n]), i.addresses[n].prefix_length));
    table.add(cells);
    cells.assign(common, "");
  }
}

}  // namespace

std::vector<llp::Interface> usable_interfaces(const Options& options, std::vector<std::string>* problems) {
  const auto all = llp::interfaces();
  const auto complain = [&](std::string text) {
    if (problems != nullptr) problems->push_back(std::move(text));
  };
  std::vector<llp::Interface> out;
  if (options.interfaces.empty()) {
    std::copy_if(all.begin(), all.end(), std::back_inserter(out),
                 [](const auto& i) { return i.up && !i.addresses.empty(); });
    if (out.empty())
      complain(
          "no network interface is up and has an address; for this machine alone `ip link set lo up` (as root) is "
          "enough");
    return out;
  }
  for (const auto& name : options.interfaces) {
    const auto i = std::find_if(all.begin(), all.end(), [&](const auto& c) { return c.name == name; });
    if (i == all.end()) {
      std::vector<std::string> names;
      for (const auto& c : all) names.push_back(c.name);
      complain(
          fmt::format("interface '{}' does not exist or has no address; there are: {}", name, fmt::join(names, ", ")));
    } else if (!i->up) {
      complain(fmt::format("interface '{}' is down; `ip link set {} up` (as root) brings it up", name, name));
    } else {
      out.push_back(*i);
    }
  }
  return out;
}

int devices(bool json) {
  std::vector<std::string> problems;
  const Options options = read_options().options;
  const auto found = usable_interfaces(options, &problems);
  for (const auto& p : problems) fail(1, "{}", p);
  const bool twins = options.twin;
  if (json) {
    nlohmann::json all = nlohmann::json::array();
    for (const bool twin : {false, true})
      for (const auto& i : found)
        if (!twin || twins) all.push_back(as_json(i, twin));
    fmt::print("{}\n", all.dump(2));
  } else if (!found.empty()) {
    Table table({"DEVICE", "TYPE", "INTERFACE", "STATE", ">MTU", ">SPEED", ">GID", "ADDRESS"});
    for (const bool twin : {false, true})
      for (const auto& i : found)
        if (!twin || twins) add_rows(table, i, twin);
    fmt::print("{}", table.str());
  }
  return found.empty() || !problems.empty() ? 1 : 0;
}

}  // namespace ewarp::cli
