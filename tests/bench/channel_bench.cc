// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The channel's protocols against plain sender-initiated rendezvous, both in one run of two processes.
//
//   channel_bench DIRECTORY RANK [SCENARIO...] [--rounds N] [--quick] [--mode NAME] [--size OCTETS]
//
// Started twice, with ranks 0 and 1; channel_bench.py does that and draws. Each line that rank 0 or 1 prints is one
// measurement as JSON: scenario, mode, size, the parameter that is varied, and what was found.
//
// The modes take turns within each round, so what else the machine does hits all of them:
//   new    the defaults
//   plain  EAGER and SEND_RNDV by Write alone, and progress only inside the calls: what MPI libraries do
//   thread plain, with the progress thread
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "mpi_shim/channel/channel.h"

using namespace ewarp::channel;

namespace {

using Bytes = std::vector<std::byte>;
using Clock = std::chrono::steady_clock;

constexpr Tag kData = 1, kBarrier = 2, kBack = 3;
constexpr double kUnitUs = 18;  // the basic loop of ICS'09

double us_since(Clock::time_point began) {
  return std::chrono::duration<double, std::micro>(Clock::now() - began).count();
}

void must(bool condition, const std::string& what) {
  if (condition) return;
  std::fprintf(stderr, "channel_bench: %s\n", what.c_str());
  std::exit(1);
}

// Work of a fixed amount, which takes longer where somebody else uses the CPU.
class Work {
 public:
  Work() {
    for (int round = 0; round < 5; ++round) {
      const auto began = Clock::now();
      spin(200000);
      per_us_ = std::max(per_us_, 200000 / us_since(began));
    }
  }
  void operator()(double us) { spin(static_cast<std::uint64_t>(us * per_us_)); }

 private:
  // One piece of code wherever it is called: copies of the loop that lie elsewhere run up to 15 % faster or slower.
  [[gnu::noinline]] void spin(std::uint64_t n) {
    for (std::uint64_t i = 0; i < n; ++i) state_ = state_ * 6364136223846793005u + 1442695040888963407u;
  }
  volatile std::uint64_t state_ = 1;
  double per_us_ = 0;
};

// One endpoint per mode, and its way to the other process.
struct Mode {
  std::string name;
  std::unique_ptr<Endpoint> endpoint;
  PeerId other = 0;

  Request send(Octets data, Tag tag = kData) { return endpoint->isend(other, tag, data); }
  Request receive(MutableOctets data, Tag tag = kData) { return endpoint->irecv(other, tag, data); }
  void wait(Request r) {
    const Status status = endpoint->wait(r);
    must(status.error == Error::none, std::string("a request: ") + text(status.error));
  }
  void barrier() {
    std::byte in{}, out{};
    const Request r = receive({&in, 1}, kBarrier), s = send({&out, 1}, kBarrier);
    wait(s);
    wait(r);
  }
};

// A transfer as one side sees it, in us: all of it, and what parts took.
struct Side {
  double all = 0, call = 0, computation = 0, wait = 0;
};

// What a transfer that is hidden behind computation costs all the same: in the calls, and because the computation runs
// slower beside it.
struct Costs {
  std::vector<double> call, slower, wait;
};

// KiB of memory that is this process's own.
double anonymous_kib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("RssAnon:")) return std::strtod(line.c_str() + std::strlen("RssAnon:"), nullptr);
  must(false, "no RssAnon in /proc/self/status");
  return 0;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

class Bench {
 public:
  Bench(std::string directory, int rank) : directory_(std::move(directory)), rank_(rank) {}
  void open() {
    add("new", [](EndpointOptions&) {});
    const auto plain = [](EndpointOptions& o) {
      o.tuning.announce = false;
      o.tuning.hybrid_buffers = 0;
      o.tuning.hybrid_threshold = o.tuning.eager_threshold;
    };
    add("plain", [&](EndpointOptions& o) {
      plain(o);
      o.progress_thread = false;
    });
    add("thread", plain);
  }

  void pingpong();
  void progress();
  void overlap();
  void delay();
  void exchange();
  void reuse();
  void held();

  int rounds = 5;
  bool quick = false;
  std::string only_mode;      // if not empty
  std::size_t only_size = 0;  // if not 0: of ping-pong, progress and overlap

 private:
  using Iteration = std::function<double(Mode&)>;

  bool wanted(std::size_t size) const { return only_size == 0 || size == only_size; }
  void add(const std::string& name, const std::function<void(EndpointOptions&)>& change);
  void say(const char* scenario, const Mode& mode, std::size_t size, double parameter,
           std::vector<double> values) const;
  // The figures of all modes, which take turns; what the first iterations of each show is not counted.
  std::map<std::string, std::vector<double>> in_turns(int iterations, const Iteration& once);
  double progress_once(Mode& mode, const double (&comp)[6], std::size_t size);
  Side one_side(Mode& mode, bool sends, bool early, double delay_us, std::size_t size, double compute_us);
  double exchange_once(Mode& mode, int model, double compute_us, int steps);

  std::string directory_;
  int rank_;
  std::vector<Mode> modes_;
  Work work_;
  Bytes out_ = Bytes(4 << 20, std::byte{1}), in_ = Bytes(4 << 20);
};

void Bench::add(const std::string& name, const std::function<void(EndpointOptions&)>& change) {
  if (!only_mode.empty() && name != only_mode) return;
  EndpointOptions options = EndpointOptions::from_environment();
  change(options);
  std::string error;
  Mode mode{.name = name, .endpoint = Endpoint::open(options, &error), .other = 0};
  must(mode.endpoint != nullptr, error);
  const std::string base = directory_ + "/" + name;
  std::ofstream(base + std::to_string(rank_) + ".new") << mode.endpoint->address();
  std::filesystem::rename(base + std::to_string(rank_) + ".new", base + std::to_string(rank_));
  std::string address;
  for (int i = 0; i < 30000 && !(std::ifstream(base + std::to_string(1 - rank_)) >> address); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  must(!address.empty(), "the other process does not come");
  mode.other = mode.endpoint->peer(address).value();
  mode.barrier();
  modes_.push_back(std::move(mode));
}

void Bench::say(const char* scenario, const Mode& mode, std::size_t size, double parameter,
                std::vector<double> values) const {
  std::sort(values.begin(), values.end());
  std::printf(
      "{\"scenario\": \"%s\", \"mode\": \"%s\", \"rank\": %d, \"size\": %zu, \"parameter\": %g, \"median\": %.3f, "
      "\"least\": %.3f, \"most\": %.3f}\n",
      scenario, mode.name.c_str(), rank_, size, parameter, values[values.size() / 2], values.front(), values.back());
  std::fflush(stdout);
}

std::map<std::string, std::vector<double>> Bench::in_turns(int iterations, const Iteration& once) {
  std::map<std::string, std::vector<double>> out;
  for (int round = 0; round < rounds; ++round)
    for (Mode& mode : modes_)
      for (int i = 0; i < iterations + 2; ++i) {
        mode.barrier();
        const double value = once(mode);
        if (i >= 2) out[mode.name].push_back(value);
      }
  return out;
}

void Bench::pingpong() {
  for (std::size_t size = 8; size <= 4 << 20; size *= quick ? 32 : 2) {
    if (!wanted(size)) continue;
    const int iterations = quick ? 5 : size <= 65536 ? 200 : 20;
    const auto found = in_turns(iterations, [&](Mode& mode) {
      const auto began = Clock::now();
      const Request back = mode.receive(MutableOctets(in_).first(size), kBack);
      if (rank_ == 0) mode.wait(mode.send(Octets(out_).first(size), kBack));
      mode.wait(back);
      if (rank_ == 1) mode.wait(mode.send(Octets(out_).first(size), kBack));
      return us_since(began) / 2;
    });
    if (rank_ == 0)
      for (Mode& mode : modes_) say("pingpong", mode, size, 0, found.at(mode.name));
  }
}

// ICS'09 figure 8: rank 0 computes, sends, computes, waits, computes; rank 1 likewise with its receive. The time of
// both.
double Bench::progress_once(Mode& mode, const double (&comp)[6], std::size_t size) {
  const auto began = Clock::now();
  const double* mine = comp + 3 * rank_;
  work_(mine[0] * kUnitUs);
  const Request r = rank_ == 0 ? mode.send(Octets(out_).first(size)) : mode.receive(MutableOctets(in_).first(size));
  work_(mine[1] * kUnitUs);
  mode.wait(r);
  work_(mine[2] * kUnitUs);
  mode.barrier();
  return us_since(began);
}

void Bench::progress() {
  struct Figure {
    const char* name;
    std::vector<std::size_t> sizes;
    std::vector<double> fourth;  // X, where it is varied
    double comp[6];
  };
  const Figure kFigures[] = {
      {"figure9a", {30 << 10}, {10, 20, 30, 40, 50}, {0, 0, 60, 0, 0, 0}},
      {"figure9b", {16 << 10, 20 << 10, 24 << 10, 28 << 10, 32 << 10, 40 << 10}, {5}, {0, 20, 0, 5, 5, 20}},
      {"figure10a", {64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20}, {0}, {20, 20, 20, 0, 0, 0}},
      {"figure10b", {64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20}, {20}, {27, 0, 0, 0, 20, 20}},
  };
  for (const Figure& f : kFigures)
    for (const std::size_t size : f.sizes)
      for (const double x : f.fourth) {
        if (!wanted(size)) continue;
        double comp[6];
        std::copy(std::begin(f.comp), std::end(f.comp), comp);
        comp[3] = x;
        const auto found = in_turns(quick ? 2 : 100, [&](Mode& mode) { return progress_once(mode, comp, size); });
        if (rank_ == 0)
          for (Mode& mode : modes_) say(f.name, mode, size, x, found.at(mode.name));
      }
}

// Thesis figure 4.13: how much of a transfer is hidden behind as much computation, or (_twice) behind twice as much, at
// the side that computes. The other side only waits. early: this side starts first, by so much that its control message
// is there when the other comes.
Side Bench::one_side(Mode& mode, bool sends, bool early, double delay_us, std::size_t size, double compute_us) {
  // Computing, as a process does that comes late; one that sleeps finds its caches and its CPU cold.
  if (!early) work_(delay_us);
  Side out;
  const auto began = Clock::now();
  const Request r = sends ? mode.send(Octets(out_).first(size)) : mode.receive(MutableOctets(in_).first(size));
  out.call = us_since(began);
  work_(compute_us);
  out.computation = us_since(began) - out.call;
  mode.wait(r);
  out.all = us_since(began);
  out.wait = out.all - out.call - out.computation;
  return out;
}

void Bench::overlap() {
  constexpr double kDelayUs = 1000;
  for (const std::size_t size : {16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20})
    for (const bool sender_computes : {true, false})
      for (const bool sender_first : {true, false}) {
        if (!wanted(size)) continue;
        const bool sends = rank_ == 0, computes = sends == sender_computes, early = sends == sender_first;
        const int iterations = quick ? 2 : 20;
        const auto bare =
            in_turns(iterations, [&](Mode& m) { return one_side(m, sends, early, kDelayUs, size, 0).all; });
        std::map<std::string, double> alone;
        for (const auto& [name, values] : bare) alone[name] = median(values);
        for (const double factor : {1., 2.}) {
          std::map<std::string, Costs> costs;
          const auto hidden = in_turns(iterations, [&](Mode& m) {
            // How long the computation takes by itself, here and now.
            const double bare_us = alone[m.name], compute_us = computes ? factor * bare_us : 0;
            const auto began = Clock::now();
            work_(compute_us);
            const double computed_us = us_since(began);
            m.barrier();
            const Side both = one_side(m, sends, early, kDelayUs, size, compute_us);
            Costs& c = costs[m.name];
            c.call.push_back(both.call);
            c.slower.push_back(both.computation - computed_us);
            c.wait.push_back(both.wait);
            return std::clamp(1 - (both.all - computed_us) / bare_us, 0.0, 1.0);
          });
          if (!computes) continue;
          const std::string name = std::string("overlap_") + (sends ? "sender" : "receiver") +
                                   (sender_first ? "_sender_first" : "_receiver_first") + (factor > 1 ? "_twice" : "");
          for (Mode& mode : modes_) {
            say(name.c_str(), mode, size, alone[mode.name], hidden.at(mode.name));
            const Costs& c = costs[mode.name];
            if (factor > 1)
              std::printf(
                  "{\"scenario\": \"costs_%s\", \"mode\": \"%s\", \"rank\": %d, \"size\": %zu, \"parameter\": %.3f, "
                  "\"call\": %.3f, \"slower\": %.3f, \"wait\": %.3f}\n",
                  name.c_str() + std::strlen("overlap_"), mode.name.c_str(), rank_, size, alone[mode.name],
                  median(c.call), median(c.slower), median(c.wait));
          }
        }
      }
}

// Thesis figure 4.14: the time of 1 MiB at the side that waits, by how long the other one computes behind its call.
// With progress that is independent of the calls it stays what it is.
void Bench::delay() {
  constexpr double kDelayUs = 1000;
  constexpr std::size_t kSize = 1 << 20;
  for (const bool sender_computes : {true, false})
    for (const bool sender_first : {true, false})
      for (const double us : {0., 250., 500., 1000., 2000., 4000.}) {
        const bool sends = rank_ == 0, computes = sends == sender_computes, early = sends == sender_first;
        const auto found = in_turns(
            quick ? 2 : 20, [&](Mode& m) { return one_side(m, sends, early, kDelayUs, kSize, computes ? us : 0).all; });
        if (computes) continue;
        const std::string name = std::string("delay_") + (sender_computes ? "sender" : "receiver") +
                                 (sender_first ? "_sender_first" : "_receiver_first");
        for (Mode& mode : modes_) say(name.c_str(), mode, kSize, us, found.at(mode.name));
      }
}

// Thesis figure 4.15. Both ranks exchange 128 KiB; a step produces, packs, exchanges and consumes.
double Bench::exchange_once(Mode& mode, int model, double compute_us, int steps) {
  constexpr std::size_t kSize = 128 << 10;
  const Octets out = Octets(out_).first(kSize);
  const MutableOctets in = MutableOctets(in_).first(kSize);
  const auto began = Clock::now();
  work_(compute_us);
  for (int i = 0; i < steps; ++i) {
    Request r, s;
    if (model == 1) {
      r = mode.receive(in);
      work_(compute_us / 10);  // pack
      s = mode.send(out);
      work_(compute_us);  // produce
    } else {
      work_(compute_us / 10);
      s = mode.send(out);
      if (i > 0) work_(compute_us);  // consume
      r = mode.receive(in);
      work_(compute_us);
    }
    mode.wait(s);
    mode.wait(r);
    if (model == 1) work_(compute_us);  // consume
  }
  return us_since(began) / steps;
}

void Bench::exchange() {
  for (const int model : {1, 2})
    for (const double compute_us : {0., 50., 100., 200., 400., 800.}) {
      const auto found =
          in_turns(quick ? 1 : 5, [&](Mode& m) { return exchange_once(m, model, compute_us, quick ? 3 : 20); });
      if (rank_ == 0)
        for (Mode& mode : modes_)
          say(model == 1 ? "exchange1" : "exchange2", mode, 128 << 10, compute_us, found.at(mode.name));
    }
}

// Thesis section 5.5.1: eager ping-pong out of one buffer, or out of another one each time. Only where registrations
// are kept (EWARP_CHANNEL_REGISTRATION=kept) the first is another path.
void Bench::reuse() {
  Mode& mode = modes_.front();
  for (const std::size_t size : {1 << 10, 2 << 10, 4 << 10, 8 << 10})
    for (const bool same : {true, false}) {
      std::vector<double> found;
      for (int i = 0; i < (quick ? 20 : 3000); ++i) {
        const std::size_t at = same ? 0 : static_cast<std::size_t>(i) * 64 % (out_.size() - size);
        const auto began = Clock::now();
        const Request back = mode.receive(MutableOctets(in_).first(size), kBack);
        if (rank_ == 0) mode.wait(mode.send(Octets(out_).subspan(at, size), kBack));
        mode.wait(back);
        if (rank_ == 1) mode.wait(mode.send(Octets(out_).subspan(at, size), kBack));
        found.push_back(us_since(began) / 2);
      }
      if (rank_ == 0) say(same ? "reuse_same" : "reuse_other", mode, size, 0, found);
    }
}

// What a message costs in memory that was sent and whose receive has not been posted: KiB, at each side.
void Bench::held() {
  constexpr int kMessages = 16;
  for (std::size_t size = 8; size <= 1 << 20; size *= quick ? 32 : 2) {
    if (!wanted(size)) continue;
    const auto found = in_turns(1, [&](Mode& mode) {
      malloc_trim(0);
      const double before = anonymous_kib();
      std::vector<Request> sends;
      for (int i = 0; rank_ == 0 && i < kMessages; ++i) sends.push_back(mode.send(Octets(out_).first(size)));
      mode.barrier();  // behind them all
      const double grown = anonymous_kib() - before;
      for (int i = 0; rank_ == 1 && i < kMessages; ++i) mode.wait(mode.receive(MutableOctets(in_).first(size)));
      for (const Request r : sends) mode.wait(r);
      return grown / kMessages;
    });
    for (Mode& mode : modes_) say("held", mode, size, kMessages, found.at(mode.name));
  }
}

}  // namespace

int main(int argc, char** argv) {
  must(argc >= 3,
       "usage: channel_bench DIRECTORY RANK [SCENARIO...] [--rounds N] [--quick] [--mode NAME] [--size OCTETS]");
  Bench bench(argv[1], std::atoi(argv[2]));
  const std::map<std::string, void (Bench::*)()> scenarios = {
      {"pingpong", &Bench::pingpong}, {"progress", &Bench::progress}, {"overlap", &Bench::overlap},
      {"delay", &Bench::delay},       {"exchange", &Bench::exchange}, {"reuse", &Bench::reuse},
      {"held", &Bench::held}};
  std::vector<std::string> chosen;
  for (int i = 3; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--quick")
      bench.quick = true;
    else if (word == "--rounds" && i + 1 < argc)
      bench.rounds = std::atoi(argv[++i]);
    else if (word == "--mode" && i + 1 < argc)
      bench.only_mode = argv[++i];
    else if (word == "--size" && i + 1 < argc)
      bench.only_size = std::strtoul(argv[++i], nullptr, 10);
    else if (scenarios.contains(word))
      chosen.push_back(word);
    else
      must(false, "no scenario " + word);
  }
  bench.open();
  for (const auto& [name, run] : scenarios)
    if (chosen.empty() || std::find(chosen.begin(), chosen.end(), name) != chosen.end()) (bench.*run)();
  return 0;
}
