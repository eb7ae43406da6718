// Random networks and random work, as the specification's executable model runs them: everything is done exactly once
// and in order, errors name their request, and both ends forget each other. EWARP_SEED=n runs one seed, EWARP_SEEDS=n
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
        const int bad =
            net.uniform() < 0.15 ? static_cast<int>(net.below(kind == Kind::read ? 1 : parts)) : -1;
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
            std::count(other.begin(), other.end(), Ending::unreachable) > 0) {
      ++unreachable;  // twelve OPENs lost: the specified verdict, at 30 % loss
      SIM_CHECK(w.net.conditions.loss == 0.3);
      return;
    }
    check_outcome(w.a, w.b, work.of_a);
    check_outcome(w.b, w.a, work.of_b);
    check_forgotten(w);
  });
  const auto& c = total();
  print_message("%u runs, %u unreachable, %llu datagrams; segments %llu, again %llu, timeouts %llu, loss events %llu, "
                "RNR %llu, reports %llu, probes %llu, opened %llu, accepted %llu, ahead %llu, placed early %llu\n",
                runs, unreachable, (unsigned long long)datagrams, (unsigned long long)c.sent,
                (unsigned long long)c.retransmitted, (unsigned long long)c.timeouts, (unsigned long long)c.losses,
                (unsigned long long)c.rnr_received, (unsigned long long)c.reports_received, (unsigned long long)c.probes,
                (unsigned long long)c.opened, (unsigned long long)c.accepted, (unsigned long long)c.out_of_order,
                (unsigned long long)early);
  assert_true(unreachable * 100 <= runs);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(anything_goes)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
