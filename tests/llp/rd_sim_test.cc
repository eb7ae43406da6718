// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Random networks and random work: everything is done exactly once and in order, errors name their request, and both
// ends forget each other. EWARP_SEED=n runs one seed, EWARP_SEEDS=n
// that many of each kind.
#include <algorithm>
#include <cstdlib>
#include <set>

#include "tests/llp/rd_sim.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

extern "C" {
#include <cmocka.h>
}

using namespace ewarp;
using namespace ewarp::rdsim;

namespace {

// Sanitized builds run some tenfold slower.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr unsigned kSeeds = 150;
#else
constexpr unsigned kSeeds = 1500;
#endif

struct Planned {
  Kind kind;
  std::uint32_t id, parts;
  int bad;
};

template <class T>
const T& pick(Network& net, const std::vector<T>& of) {
  return of[net.below(of.size())];
}

Config config_for_simulation() {
  Config c;
  c.idle_close = 300 * kMillisecond;
  c.dead_time = 300 * kSecond;  // at 30 % loss a peer is not dead for being silent a while
  c.window = 64;
  return c;
}

struct World {
  World(std::uint64_t seed, const Config& config, const Conditions& conditions)
      : net(seed, conditions), a(net, 1, config, seed * 2 + 1), b(net, 2, config, seed * 2 + 2) {}
  Network net;
  Host a, b;
};

// Bursts of requests both ways, receives that come late and one by one.
struct Work {
  std::vector<Planned> of_a, of_b;

  void plan(World& w, unsigned bursts, std::uint32_t receives) {
    Network& net = w.net;
    std::uint32_t id = 0;
    Time t = net.now();
    for (unsigned i = 0; i < bursts; ++i) {
      for (std::uint64_t n = 5 + net.below(35); n > 0; --n) {
        const bool from_a = net.below(2) == 0;
        const Kind kind = pick(net, std::vector{Kind::send, Kind::send, Kind::write, Kind::read});
        const std::uint32_t parts = 1 + static_cast<std::uint32_t>(net.below(8));
        const int bad = net.uniform() < 0.15 ? static_cast<int>(net.below(kind == Kind::read ? 1 : parts)) : -1;
        const Planned p{kind, ++id, parts, bad};
        (from_a ? of_a : of_b).push_back(p);
        Host& host = from_a ? w.a : w.b;
        const unsigned peer = from_a ? 2 : 1;
        net.at(t, [&host, peer, p] { host.submit(peer, p.kind, p.id, p.parts, p.bad); });
        t += pick(net, std::vector<Time>{0, 0, 50 * kMicrosecond, 5 * kMillisecond});
      }
      t += pick(net, std::vector<Time>{0, 50 * kMillisecond, 2500 * kMillisecond});
    }
    for (Host* h : {&w.a, &w.b}) {
      Time at = net.now() + pick(net, std::vector<Time>{0, 30 * kMillisecond, 200 * kMillisecond});
      for (std::uint32_t i = 0; i < receives; ++i) {
        net.at(at, [h] { h->post_receives(1); });
        at += pick(net, std::vector<Time>{0, kMillisecond, 7 * kMillisecond});
      }
    }
  }
};

std::vector<std::uint32_t> sorted(std::vector<std::uint32_t> v) {
  std::sort(v.begin(), v.end());
  return v;
}

void check_outcome(const Host& sender, const Host& receiver, const std::vector<Planned>& plan) {
  std::vector<std::uint32_t> good, bad;
  std::vector<std::pair<Kind, std::uint32_t>> order;
  for (const Planned& p : plan) {
    (p.bad < 0 ? good : bad).push_back(p.id);
    if (p.bad < 0 && p.kind != Kind::read) order.emplace_back(p.kind, p.id);
  }
  SIM_CHECK(sorted(sender.done) == good);
  SIM_CHECK(sorted(sender.reported_ids) == bad);
  SIM_CHECK(receiver.log == order);
  SIM_CHECK(sender.lost.empty());
}

void check_forgotten(World& w) {
  for (Host* h : {&w.a, &w.b}) {
    SIM_CHECK(h->table().size() == 0);
    SIM_CHECK(h->table().held() == 0 && h->table().embryonic() == 0);
  }
}

// Every seed named by the environment, or all of them.
void for_seeds(const char* what, unsigned share, const std::function<void(std::uint64_t)>& run) {
  const char* one = std::getenv("EWARP_SEED");
  const char* many = std::getenv("EWARP_SEEDS");
  const std::uint64_t first = one ? std::strtoull(one, nullptr, 0) : 0;
  const std::uint64_t count = one ? 1 : many ? std::strtoull(many, nullptr, 0) : kSeeds / share;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    name_run(std::string(what) + " EWARP_SEED=" + std::to_string(seed));
    run(seed);
  }
}

llp::rd::Counters& total() {
  static llp::rd::Counters c;
  return c;
}

void add(const llp::rd::Counters& c) {
  total().sent += c.sent;
  total().retransmitted += c.retransmitted;
  total().timeouts += c.timeouts;
  total().losses += c.losses;
  total().rnr_received += c.rnr_received;
  total().reports_received += c.reports_received;
  total().probes += c.probes;
  total().opened += c.opened;
  total().accepted += c.accepted;
  total().out_of_order += c.out_of_order;
}

// Holds: RD-2, RD-3, RD-4, RD-10, RD-12
// The model's own distribution of networks and of work.
void anything_goes(void**) {
  unsigned unreachable = 0, runs = 0;
  std::uint64_t datagrams = 0, early = 0;
  for_seeds("anything_goes", 1, [&](std::uint64_t seed) {
    World w(seed, config_for_simulation(), {});
    w.net.conditions.loss = pick(w.net, std::vector{0.0, 0.01, 0.1, 0.3});
    w.net.conditions.duplicate = pick(w.net, std::vector{0.0, 0.05, 0.2});
    w.net.conditions.spread_ms = pick(w.net, std::vector{0.2, 2.0, 8.0});
    w.a.over_grant = pick(w.net, std::vector<std::uint32_t>{0, 0, 3});
    w.b.over_grant = pick(w.net, std::vector<std::uint32_t>{0, 0, 3});
    Work work;
    work.plan(w, 1 + static_cast<unsigned>(w.net.below(3)), 200);
    w.net.run();
    ++runs;
    datagrams += w.net.datagrams;
    early += w.a.placed_early + w.b.placed_early;
    add(w.a.table().counters());
    add(w.b.table().counters());
    const auto& ends = w.a.endings;
    const auto& other = w.b.endings;
    if (std::count(ends.begin(), ends.end(), Ending::unreachable) +
            std::count(other.begin(), other.end(), Ending::unreachable) >
        0) {
      ++unreachable;  // twelve OPENs lost: the specified verdict, at 30 % loss
      SIM_CHECK(w.net.conditions.loss == 0.3);
      return;
    }
    check_outcome(w.a, w.b, work.of_a);
    check_outcome(w.b, w.a, work.of_b);
    check_forgotten(w);
  });
  const auto& c = total();
  print_message(
      "%u runs, %u unreachable, %llu datagrams; segments %llu, again %llu, timeouts %llu, loss events %llu, "
      "RNR %llu, reports %llu, probes %llu, opened %llu, accepted %llu, ahead %llu, placed early %llu\n",
      runs, unreachable, (unsigned long long)datagrams, (unsigned long long)c.sent, (unsigned long long)c.retransmitted,
      (unsigned long long)c.timeouts, (unsigned long long)c.losses, (unsigned long long)c.rnr_received,
      (unsigned long long)c.reports_received, (unsigned long long)c.probes, (unsigned long long)c.opened,
      (unsigned long long)c.accepted, (unsigned long long)c.out_of_order, (unsigned long long)early);
  assert_true(unreachable * 100 <= runs);
}

void run_all_of_it(World& w, unsigned bursts, std::uint32_t receives = 200) {
  Work work;
  work.plan(w, bursts, receives);
  w.net.run();
  check_outcome(w.a, w.b, work.of_a);
  check_outcome(w.b, w.a, work.of_b);
  check_forgotten(w);
}

// Holds: RD-3
// One octet in a datagram, one datagram in twenty: the CRC turns it into a loss.
void corruption(void**) {
  for_seeds("corruption", 5, [](std::uint64_t seed) {
    World w(seed, config_for_simulation(), {.loss = 0.02, .corrupt = 0.05, .spread_ms = 2});
    run_all_of_it(w, 2);
    const auto& a = w.a.table().counters();
    const auto& b = w.b.table().counters();
    SIM_CHECK(a.dropped_crc + a.dropped_version + a.dropped_length + a.dropped_runt + b.dropped_crc +
                  b.dropped_version + b.dropped_length + b.dropped_runt >
              0);
  });
}

// Holds: RD-3, RD-7
// Two seconds without a datagram, at a random moment, with the default verdict time.
void blackout(void**) {
  for_seeds("blackout", 5, [](std::uint64_t seed) {
    Config c = config_for_simulation();
    c.dead_time = Config().dead_time;
    World w(seed, c, {.loss = 0.01, .duplicate = 0.05, .spread_ms = 1});
    w.net.conditions.dark_from = kSecond + w.net.below(400) * kMillisecond;
    w.net.conditions.dark_to = w.net.conditions.dark_from + 2 * kSecond;
    run_all_of_it(w, 2);
  });
}

// Holds: RD-3
// Other windows and segments, no credits, marks instead of losses.
void other_settings(void**) {
  for_seeds("other_settings", 5, [](std::uint64_t seed) {
    Config c = config_for_simulation();
    std::mt19937_64 random(seed);
    const auto one_of = [&](std::initializer_list<unsigned> of) { return *(of.begin() + random() % of.size()); };
    c.window = static_cast<std::uint16_t>(one_of({1, 2, 5, 64, 1024}));
    c.max_seg = static_cast<std::uint16_t>(one_of({176, 500, 1472, 8972}));
    c.ord = static_cast<std::uint16_t>(one_of({1, 4, 16}));
    c.credits = one_of({0, 1}) == 1;
    c.without_crc = one_of({0, 1}) == 1;
    c.burst = one_of({1500, 65536});
    c.rnr_code = static_cast<std::uint8_t>(one_of({1, 14, 20}));
    c.max_held = one_of({0, 2000, 1 << 20});
    World w(seed, c, {.loss = 0.05, .duplicate = 0.05, .congestion_mark = 0.1, .spread_ms = 2});
    run_all_of_it(w, 2);
  });
}

// Every request has one fate; what is done was delivered; nothing is delivered twice or out of order.
void check_fates(const Host& sender, const Host& receiver, const std::vector<Planned>& plan) {
  std::multiset<std::uint32_t> fates(sender.done.begin(), sender.done.end());
  fates.insert(sender.reported_ids.begin(), sender.reported_ids.end());
  for (const Refusal& r : sender.lost) fates.insert(r.id);
  SIM_CHECK(fates.size() == plan.size());
  for (const Planned& p : plan) SIM_CHECK(fates.count(p.id) == 1);
  std::set<std::uint32_t> delivered;
  std::uint32_t last = 0;
  for (const auto& [kind, id] : receiver.log) {
    SIM_CHECK(delivered.insert(id).second && id > last);
    last = id;
  }
  for (const Planned& p : plan) {
    const bool done = std::find(sender.done.begin(), sender.done.end(), p.id) != sender.done.end();
    if (done && p.kind != Kind::read) SIM_CHECK(delivered.count(p.id) == 1);
    if (done || delivered.count(p.id) == 1) SIM_CHECK(p.bad < 0);
  }
}

// Holds: RD-13
// One end forgets everything at a random moment, and goes on as a new process with the same address.
void peer_restart(void**) {
  unsigned restarted = 0, reset = 0;
  for_seeds("peer_restart", 3, [&](std::uint64_t seed) {
    Config c = config_for_simulation();
    c.dead_time = 3 * kSecond;
    World w(seed, c, {});
    w.net.conditions.loss = pick(w.net, std::vector{0.0, 0.05});
    w.net.conditions.spread_ms = pick(w.net, std::vector{0.2, 3.0});
    Work work;
    work.plan(w, 3, 300);
    for (std::uint64_t n = 1 + w.net.below(3); n > 0; --n)
      w.net.at(w.net.now() + w.net.below(1000) * kMillisecond, [&] { w.b.restart(); });
    w.net.run();
    check_fates(w.a, w.b, work.of_a);
    check_fates(w.b, w.a, work.of_b);
    check_forgotten(w);
    for (const Ending e : w.a.endings) {
      restarted += e == Ending::restarted;
      reset += e == Ending::reset;
    }
  });
  print_message("ended by the new process' OPEN %u times, by its RESET %u times\n", restarted, reset);
}

// A gather list that cannot be read any more costs its own request and what was under way, nothing else.
void lost_sources(void**) {
  for_seeds("lost_sources", 10, [](std::uint64_t seed) {
    World w(seed, config_for_simulation(), {.loss = 0.05, .spread_ms = 1});
    Work work;
    work.plan(w, 2, 400);
    const std::uint32_t id = 1000;
    w.net.at(w.net.now() + w.net.below(50) * kMillisecond, [&] { w.a.submit(2, Kind::write, id, 5, -1, 3); });
    w.net.run();
    SIM_CHECK(std::count(w.a.endings.begin(), w.a.endings.end(), Ending::source_gone) == 1);
    SIM_CHECK(std::any_of(w.a.lost.begin(), w.a.lost.end(), [](const Refusal& r) { return r.id == id; }));
    SIM_CHECK(std::none_of(w.b.log.begin(), w.b.log.end(), [](const auto& l) { return l.second == id; }));
    work.of_a.push_back({Kind::write, id, 5, -1});
    check_fates(w.a, w.b, [&] {
      auto plan = work.of_a;
      return plan;
    }());
  });
}

// A queue pair that talks to itself: its own OPEN is answered by the rule for simultaneous ones.
void to_itself(void**) {
  for_seeds("to_itself", 10, [](std::uint64_t seed) {
    Network net(seed, {.loss = 0.05, .duplicate = 0.05, .spread_ms = 1});
    Host a(net, 1, config_for_simulation(), seed);
    std::vector<Planned> plan;
    for (std::uint32_t id = 1; id <= 40; ++id) {
      const Planned p{static_cast<Kind>(net.below(3)), id, 1 + static_cast<std::uint32_t>(net.below(5)),
                      net.below(8) == 0 ? 0 : -1};
      plan.push_back(p);
      net.at(net.now() + id * kMillisecond, [&a, p] { a.submit(1, p.kind, p.id, p.parts, p.bad); });
    }
    net.at(net.now() + 20 * kMillisecond, [&] { a.post_receives(100); });
    net.run();
    check_outcome(a, a, plan);
    SIM_CHECK(a.table().size() == 0);
  });
}

// Holds: RD-15
// One receive queue, many associations.
void many_peers(void**) {
  for_seeds("many_peers", 50, [](std::uint64_t seed) {
    constexpr unsigned kPeers = 40;
    Network net(seed, {.loss = 0.03, .duplicate = 0.02, .spread_ms = 1});
    const Config c = config_for_simulation();
    Host hub(net, 1, c, seed);
    std::vector<std::unique_ptr<Host>> peers;
    std::uint32_t id = 0;
    std::vector<std::vector<Planned>> from(kPeers);
    std::vector<std::uint32_t> to_peers;
    for (unsigned p = 0; p < kPeers; ++p) {
      peers.push_back(std::make_unique<Host>(net, p + 2, c, seed * 1000 + p));
      peers.back()->over_grant = 2;
      peers.back()->post_receives(20);
      for (int i = 0; i < 6; ++i) {
        const Planned out{static_cast<Kind>(net.below(3)), ++id, 1 + static_cast<std::uint32_t>(net.below(4)), -1};
        from[p].push_back(out);
        Host& host = *peers.back();
        net.at(net.now() + net.below(200) * kMillisecond,
               [&host, out] { host.submit(1, out.kind, out.id, out.parts); });
        to_peers.push_back(++id);
        net.at(net.now() + net.below(200) * kMillisecond, [&hub, p, n = id] { hub.submit(p + 2, Kind::send, n, 3); });
      }
    }
    hub.over_grant = 2;
    for (int i = 0; i < 30; ++i) net.at(net.now() + i * 10 * kMillisecond, [&] { hub.post_receives(10); });
    net.run();
    SIM_CHECK(sorted(hub.done) == to_peers && hub.lost.empty() && hub.table().size() == 0);
    std::size_t delivered = 0;
    for (unsigned p = 0; p < kPeers; ++p) {
      SIM_CHECK(peers[p]->done.size() == from[p].size() && peers[p]->log.size() == 6);
      for (const Planned& q : from[p]) delivered += q.kind != Kind::read;
    }
    SIM_CHECK(hub.log.size() == delivered);
  });
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(anything_goes), cmocka_unit_test(corruption),
                              cmocka_unit_test(blackout),      cmocka_unit_test(other_settings),
                              cmocka_unit_test(peer_restart),  cmocka_unit_test(lost_sources),
                              cmocka_unit_test(to_itself),     cmocka_unit_test(many_peers)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
