// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/cli/stat_json.h"

#include <nlohmann/json.hpp>

#include "provider/cli/channel_counters.h"
#include "provider/cli/counter_names.h"

namespace ewarp::cli {
namespace {

nlohmann::json as_json(const stats::Traffic& t) {
  nlohmann::json j;
  each(t, [&](const char* name, std::uint64_t value) { j[name] = value; });
  return j;
}

nlohmann::json as_json(const stats::Snapshot& s) {
  const stats::Page& p = *s.page;
  nlohmann::json j = {{"pid", p.pid},
                      {"command", p.command},
                      {"uid", s.uid},
                      {"ended", s.ended},
                      {"start_ns", p.start_ns},
                      {"poller", p.poller},
                      {"app_passes", p.app_passes.load()},
                      {"background_passes", p.background_passes.load()},
                      {"background_wakeups", p.background_wakeups.load()},
                      {"devices", nlohmann::json::array()},
                      {"qps", nlohmann::json::array()}};
  each(p.datagrams, [&](const char* name, std::uint64_t value) { j["datagrams"][name] = value; });
  each(p.reliable, [&](const char* name, std::uint64_t value) { j["reliable"][name] = value; });
  for (std::uint32_t i = 0; i < p.device_count; ++i) {
    const auto& d = p.devices[i];
    nlohmann::json jd = as_json(d.traffic);
    jd["name"] = d.name;
    jd["interface"] = d.interface;
    each(d, [&](const char* name, std::uint64_t value) { jd[name] = value; });
    j["devices"].push_back(jd);
  }
  for (const auto& q : p.qps) {
    if (q.number == 0) continue;
    nlohmann::json jq = as_json(q.traffic);
    jq["number"] = q.number.load();
    jq["state"] = state_name(q.state);
    jq["type"] = type_name(q.type);
    jq["device"] = device_name(p, q.device);
    jq["peer"] = q.peer;
    jq["peer_number"] = q.peer_number.load();
    jq["local"] = q.local != 0;
    j["qps"].push_back(jq);
  }
  j["channels"] = nlohmann::json::array();
  for (const auto& channel : channel_counters(s.file)) {
    nlohmann::json jc = {{"address", channel.address}};
    for (const auto& [name, value] : channel.values) jc[name] = value;
    j["channels"].push_back(jc);
  }
  return j;
}

}  // namespace

std::string stat_json(std::span<const stats::Snapshot> processes) {
  nlohmann::json j = nlohmann::json::array();
  for (const auto& s : processes) j.push_back(as_json(s));
  return j.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace ewarp::cli
