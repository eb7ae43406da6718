// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Reliable datagrams in virtual time: hosts whose tables are joined by a network that loses, repeats, delays and
// corrupts. A host stands for DDP/RDMAP above: it makes real DDP headers, checks every octet, every order and every
// count, and ends the process where a rule is broken. What happens follows from the seed alone.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <random>
#include <string>
#include <vector>

#include "llp/rd/table.h"

namespace ewarp::rdsim {

using llp::rd::Address;
using llp::rd::Association;
using llp::rd::Config;
using llp::rd::Ending;
using llp::rd::Incoming;
using llp::rd::Key;
using llp::rd::kMicrosecond;
using llp::rd::kMillisecond;
using llp::rd::kNever;
using llp::rd::kSecond;
using llp::rd::Lane;
using llp::rd::Outgoing;
using llp::rd::Take;
using llp::rd::Time;
using Bytes = std::vector<std::byte>;

// Says what is wrong, with the run's name, and aborts.
[[noreturn]] void broken(const std::string& what);
void name_run(std::string name);
#define SIM_CHECK(...)                                                                                  \
  do {                                                                                                  \
    if (!(__VA_ARGS__))                                                                                 \
      ::ewarp::rdsim::broken(std::string(__FILE__ ":") + std::to_string(__LINE__) + ": " #__VA_ARGS__); \
  } while (0)

Address address_of(unsigned host);
// A frame as it goes out: with its CRC.
Bytes octets_of(const llp::rd::Frame& frame);
constexpr std::uint32_t kPort = 0xc350;
constexpr std::uint32_t qpn_of(unsigned host) {
  return host << 16 | kPort;
}

struct Conditions {
  double loss = 0, duplicate = 0, corrupt = 0, congestion_mark = 0;
  double spread_ms = 0.2;                     // delays are 0.1 ms and up to this more: reordering
  Time dark_from = kNever, dark_to = kNever;  // nothing passes
};

// What a network delivers to.
class Node {
 public:
  virtual void receive(const Address& from, const Bytes& datagram, bool ce) = 0;
  virtual Time deadline() const = 0;
  virtual void tick() = 0;

 protected:
  ~Node() = default;
};

class Network {
 public:
  Network(std::uint64_t seed, const Conditions& conditions) : conditions(conditions), random_(seed) {}
  Time now() const { return now_; }
  void at(Time when, std::function<void()> what);
  void send(const Address& from, const Address& to, Bytes datagram);
  void attach(unsigned number, Node* host) { hosts_[number] = host; }
  // Until nothing is under way, or `until`.
  void run(Time until = kNever);
  double uniform() { return std::uniform_real_distribution<double>(0, 1)(random_); }
  std::uint64_t below(std::uint64_t n) { return random_() % n; }
  std::uint64_t datagrams = 0;

  Conditions conditions;
  std::function<bool(const Address& to, const Bytes&)> filter;  // false: lost

 private:
  struct Event {
    Time when;
    std::uint64_t number;
    std::function<void()> what;
    bool operator>(const Event& o) const { return when != o.when ? when > o.when : number > o.number; }
  };
  std::mt19937_64 random_;
  Time now_ = kSecond;
  std::uint64_t events_ = 0;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> queue_;
  std::map<unsigned, Node*> hosts_;
};

enum class Kind { send, write, read };

struct Request {
  Kind kind = Kind::send;
  std::uint32_t id = 0;
  std::uint32_t parts = 1;
  int bad = -1;          // which part is refused by the peer; of a Read its request
  int lost_source = -1;  // which part cannot be read
  // state
  Bytes memory;  // source, or a Read's sink
  std::uint32_t next_part = 0, msn = 0, received = 0;
  bool acknowledged = false, ended = false;
};

struct Refusal {
  std::uint32_t id;
  Ending why;
};

// The part of DDP/RDMAP that an association needs, for one peer.
struct Stream {
  unsigned peer = 0;
  std::deque<Request*> waiting;
  Request* current = nullptr;
  bool cut_short = false;      // current was reported: one empty segment ends it
  std::deque<Request*> reads;  // responses to come, in order
  std::uint32_t tx_msn = 1, rx_msn = 1, request_msn = 1, report_msn = 1;
  struct Response {
    std::uint64_t name;
    Bytes octets;  // report, or what was read
    bool report = false;
    std::uint32_t error_psn = 0, id = 0, sent = 0, part = 0;
  };
  std::deque<Response> responses;
  std::map<std::uint64_t, Bytes> response_memory;
  struct {
    bool open = false;
    std::uint32_t id = 0, offset = 0;
  } receiving;
};

class Host final : public Node, public llp::rd::Upper, public llp::rd::Wire, public llp::rd::Entropy {
 public:
  Host(Network& network, unsigned number, const Config& config, std::uint64_t seed);

  void submit(unsigned peer, Kind kind, std::uint32_t id, std::uint32_t parts, int bad = -1, int lost_source = -1);
  void post_receives(std::uint32_t n);
  // Loses all its state, as a process that is started anew.
  void restart();
  Association* association(unsigned peer);
  Key key(unsigned peer) const;

  llp::rd::Table& table() { return *table_; }
  const Config& config() const { return config_; }
  Network& network() { return network_; }
  void tick() override { table_->expire(network_.now()); }
  Time deadline() const override { return table_->deadline(); }
  void receive(const Address& from, const Bytes& datagram, bool ce) override;

  // What came of it.
  std::vector<std::uint32_t> done, reported_ids;    // our requests
  std::vector<Refusal> lost;                        // ended with their association
  std::vector<std::pair<Kind, std::uint32_t>> log;  // delivered from the peer, in order
  std::vector<Ending> endings;
  unsigned epochs = 0;  // associations that were opened or accepted
  std::uint32_t over_grant = 0;
  std::uint32_t receives = 0;
  bool quits = false;  // its queue pair is gone
  llp::rd::Admission admission = llp::rd::Admission::welcome;
  std::uint64_t placed = 0, placed_early = 0, datagrams = 0;
  bool exactly_once = true;  // off where a peer starts anew
  std::function<void(const Bytes&)> on_send;

  static std::byte content(std::uint32_t id, std::uint32_t offset);
  static Bytes pattern(std::uint32_t id, std::size_t n);
  static std::uint32_t part_octets(std::uint32_t id) { return 24 + id % 61; }

 private:
  // Upper
  llp::rd::Admission admit(const Key& key) override;
  void opening(Association& a) override;
  void established(Association& a) override;
  void ended(Association& a, const llp::rd::Ended& how) override;
  bool peek(Association& a, Lane lane, std::optional<std::uint32_t>* first_msn) override;
  void take(Association& a, Lane lane, std::uint32_t psn, std::size_t mulpdu, Outgoing& out) override;
  int memory(Association& a, Lane lane, const Outgoing& segment, std::span<llp::Extent> out) override;
  void acknowledged(Association& a, Lane lane, std::uint64_t message) override;
  void reported(Association& a, std::uint64_t message, const Incoming& report) override;
  bool quiet(const Association& a) const override;
  Take deliver(Association& a, const Incoming& in) override;
  bool place(Association& a, const Incoming& in) override;
  std::uint32_t message_limit(const Association& a) const override;
  // Wire, Entropy
  void send(const Address& to, const llp::rd::Frame& frame) override;
  std::uint32_t draw() override;

  Stream& stream(const Association& a) const;
  Request& request(std::uint64_t id);
  void finish(Request& r);
  void end_batch();
  void take_request(Association& a, Stream& s, std::uint32_t psn, Outgoing& out);
  void take_response(Association& a, Stream& s, std::uint32_t psn, Outgoing& out);
  Take refuse(Stream& s, const Incoming& in);
  Take deliver_send(Stream& s, const Incoming& in);
  Take deliver_write(const Incoming& in);
  Take deliver_read(Stream& s, const Incoming& in);
  Take deliver_response(Stream& s, const Incoming& in);
  bool put(Stream& s, const Incoming& in);

  Network& network_;
  unsigned number_;
  Config config_;
  std::mt19937_64 random_;
  std::uint64_t drawn_ = 0;
  bool in_batch_ = false;  // finish() is to come
  std::map<unsigned, std::unique_ptr<Stream>> streams_;
  std::map<std::uint32_t, std::unique_ptr<Request>> requests_;
  std::map<std::uint32_t, Bytes> written_;  // by the peer's Writes
  std::map<std::pair<std::uint32_t, std::uint64_t>, int> placements_;
  std::uint64_t next_response_ = std::uint64_t{1} << 32;
  std::unique_ptr<llp::rd::Table> table_;
};

}  // namespace ewarp::rdsim
