// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Runs one schedule of work on the simulated network and says what came of it: the half of rd_model_test.py that is
// ours. Standard input, a line each:
//   net LOSS DUPLICATE SPREAD_MS SEED          over A B
//   op MS a|b send|write|read ID PARTS BAD     post MS a|b N
// Standard output: one JSON object.
#include <cstdio>
#include <iostream>
#include <memory>
#include <sstream>

#include "tests/llp/rd_sim.h"

using namespace ewarp;
using namespace ewarp::rdsim;

namespace {

Kind kind_of(const std::string& name) {
  return name == "send" ? Kind::send : name == "write" ? Kind::write : Kind::read;
}

Time time_of(double ms) {
  return kSecond + static_cast<Time>(ms * 1e6);
}

template <class List, class Each>
void print(const char* name, const List& list, Each each) {
  std::printf("\"%s\": [", name);
  bool first = true;
  for (const auto& item : list) {
    if (!std::exchange(first, false)) std::printf(", ");
    each(item);
  }
  std::printf("]");
}

void print_host(const char* name, const Host& h) {
  std::printf("\"%s\": {", name);
  const auto number = [](std::uint32_t id) { std::printf("%u", id); };
  print("done", h.done, number);
  std::printf(", ");
  print("failed", h.reported_ids, number);
  std::printf(", ");
  print("lost", h.lost, [](const Refusal& r) { std::printf("%u", r.id); });
  std::printf(", ");
  print("log", h.log, [](const auto& entry) {
    std::printf("[\"%s\", %u]", entry.first == Kind::send ? "send" : "write", entry.second);
  });
  std::printf(", \"datagrams\": %llu, \"epochs\": %u}", static_cast<unsigned long long>(h.datagrams), h.epochs);
}

}  // namespace

int main() {
  Config config;
  config.idle_close = 300 * kMillisecond;
  config.dead_time = 300 * kSecond;
  config.window = 64;
  std::unique_ptr<Network> net;
  std::unique_ptr<Host> a, b;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream in(line);
    std::string what, end, kind;
    in >> what;
    double ms = 0;
    if (what == "net") {
      Conditions c;
      std::uint64_t seed = 0;
      in >> c.loss >> c.duplicate >> c.spread_ms >> seed;
      name_run("schedule " + std::to_string(seed));
      net = std::make_unique<Network>(seed, c);
      a = std::make_unique<Host>(*net, 1, config, 2 * seed + 1);
      b = std::make_unique<Host>(*net, 2, config, 2 * seed + 2);
    } else if (what == "over") {
      in >> a->over_grant >> b->over_grant;
    } else if (what == "op") {
      std::uint32_t id = 0, parts = 0;
      int bad = 0;
      in >> ms >> end >> kind >> id >> parts >> bad;
      Host& host = end == "a" ? *a : *b;
      net->at(time_of(ms), [&host, peer = end == "a" ? 2u : 1u, k = kind_of(kind), id, parts, bad] {
        host.submit(peer, k, id, parts, bad);
      });
    } else if (what == "post") {
      std::uint32_t n = 0;
      in >> ms >> end >> n;
      Host& host = end == "a" ? *a : *b;
      net->at(time_of(ms), [&host, n] { host.post_receives(n); });
    }
    if (!in) return std::fprintf(stderr, "cannot read: %s\n", line.c_str()), 2;
  }
  if (!net) return 2;
  net->run();
  std::printf("{");
  print_host("a", *a);
  std::printf(", ");
  print_host("b", *b);
  std::printf(", \"closed\": %s}\n", a->table().size() + b->table().size() == 0 ? "true" : "false");
}
