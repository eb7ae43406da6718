// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Hosts of a network in virtual time, each with one queue pair of reliable datagrams: a consumer without verbs on a
// DatagramEndpoint on a Table.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <random>

#include "rdmap/datagram/endpoint.h"
#include "tests/llp/rd_sim.h"
#include "tests/wire/fake_consumer.h"

namespace ewarp::wire {

struct DatagramRequest : FakeRequest {
  unsigned peer = 0;
  int good_for = -1;  // how often its memory may still be asked for; negative: for ever
};

// What the queue pairs of two hosts call the association between them.
inline rdmap::Peer peer_of(unsigned host, unsigned peer) {
  return {rdsim::address_of(peer).ip, rdsim::qpn_of(host), rdsim::qpn_of(peer), 1};
}

// What a queue pair would be: a list of requests for each peer, one of receives.
class DatagramQueues final : public FakeMemory<rdmap::DatagramConsumer> {
 public:
  DatagramRequest& post(unsigned peer, rdmap::Operation op, std::vector<Bytes> pieces) {
    auto r = std::make_unique<DatagramRequest>();
    r->id = requests.size();
    r->operation = op;
    r->peer = peer;
    for (const Bytes& p : pieces) r->length += static_cast<std::uint32_t>(p.size());
    r->pieces = std::move(pieces);
    waiting[peer].push_back(r.get());
    begun_or_waiting[peer].push_back(r.get());
    requests.push_back(std::move(r));
    return *requests.back();
  }
  // As a queue pair in error: all that was not done ends, here.
  void flush() {
    for (auto& [peer, list] : begun_or_waiting)
      while (!list.empty()) end(*list.front(), rdmap::Status::flushed);
    waiting.clear();
    for (auto& [number, r] : taken) posted.push_back(std::move(r));
    taken.clear();
  }

  // Of its host. Requests go to the queue pairs of hosts alone then: an association that a forged datagram has opened
  // finds none.
  unsigned number = 0;
  std::deque<std::unique_ptr<DatagramRequest>> requests;  // all that were ever posted
  std::map<unsigned, std::deque<DatagramRequest*>> waiting, begun_or_waiting;
  std::deque<FakeReceive> posted;
  std::map<Receive, FakeReceive> taken;
  std::size_t most_taken = 0;
  llp::rd::Admission admission = llp::rd::Admission::welcome;
  std::function<void(DatagramRequest&)> on_send_done;
  std::function<void(unsigned from, const FakeReceive&, const rdmap::Received&)> on_receive_done;

 private:
  static unsigned host(const rdmap::Peer& peer) { return peer.remote_qpn >> 16; }
  void end(DatagramRequest& r, rdmap::Status status) {
    auto& list = begun_or_waiting[r.peer];
    if (r.done || list.empty() || list.front() != &r) fail_msg("request %lu is done twice or out of turn", r.id);
    list.pop_front();
    r.done = true;
    r.status = status;
    if (on_send_done) on_send_done(r);
    r.pieces.clear();  // whoever reads it now is caught
  }

  llp::rd::Admission admit(const rdmap::Peer&) override { return admission; }
  rdmap::SendRequest* next_send(const rdmap::Peer& peer) override {
    if (number != 0 && peer != peer_of(number, host(peer))) return nullptr;
    const auto& list = waiting[host(peer)];
    return list.empty() ? nullptr : list.front();
  }
  void send_started(const rdmap::Peer& peer) override { waiting[host(peer)].pop_front(); }
  void send_done(rdmap::SendRequest& request, rdmap::Status status) override {
    end(static_cast<DatagramRequest&>(request), status);
  }
  rdmap::Status request_memory(const rdmap::SendRequest& request, std::uint64_t offset, std::uint64_t n,
                               rdmap::ExtentList& out) override {
    auto& r = const_cast<DatagramRequest&>(static_cast<const DatagramRequest&>(request));
    if (r.done || offset + n > r.length) fail_msg("memory of request %lu: %lu+%lu of %u", r.id, offset, n, r.length);
    if (r.good_for == 0) return rdmap::Status::local_protection;
    if (r.good_for > 0) --r.good_for;
    return cut(r.pieces, offset, n, out);
  }
  std::uint32_t receives() const override { return static_cast<std::uint32_t>(posted.size()); }
  std::optional<Receive> take_receive() override {
    if (posted.empty()) return {};
    taken[++last_taken_] = std::move(posted.front());
    posted.pop_front();
    most_taken = std::max(most_taken, taken.size());
    return last_taken_;
  }
  std::uint64_t receive_capacity(Receive receive) override {
    std::uint64_t n = 0;
    for (const Bytes& p : taken.at(receive).pieces) n += p.size();
    return n;
  }
  rdmap::Status receive_memory(Receive receive, std::uint64_t offset, std::uint64_t n,
                               rdmap::ExtentList& out) override {
    return cut(taken.at(receive).pieces, offset, n, out);
  }
  void receive_done(Receive receive, const rdmap::Peer& from, const rdmap::Received& received) override {
    const auto at = taken.find(receive);
    if (at == taken.end()) fail_msg("receive %u is done twice", receive);
    const FakeReceive buffer = std::move(at->second);
    taken.erase(at);
    if (on_receive_done) on_receive_done(host(from), buffer, received);
  }
  Receive last_taken_ = 0;
};

// One end, as a provider would drive it.
class DatagramHost final : public rdsim::Node, public llp::rd::Wire, public llp::rd::Entropy {
 public:
  DatagramHost(rdsim::Network& net, unsigned number, const llp::rd::Config& config, std::uint64_t seed)
      : number(number), net_(net), config_(config), random_(seed) {
    queues.number = number;
    begin();
    net.attach(number, this);
  }
  llp::rd::Key key(unsigned peer) const { return peer_of(number, peer); }
  void wake(unsigned peer) { table->wake(net_.now(), key(peer), rdsim::kPort); }
  void post_receive(std::size_t size) {
    queues.posted.push_back({0, {Bytes(size / 2), Bytes(size - size / 2)}});
    while (llp::rd::Association* a = endpoint->next_refused()) table->receives_posted(net_.now(), *a);
  }
  // Its queue pair goes to ERR and comes back.
  void reset() {
    endpoint->abandon();
    table->reset_qp(net_.now(), rdsim::qpn_of(number));
    queues.flush();
  }
  // Its process dies and comes back: nobody is told.
  void restart() {
    table.reset();
    endpoint.reset();
    queues.flush();
    begin();
  }
  void receive(const llp::rd::Address& from, const rdsim::Bytes& datagram, bool ce) override {
    table->receive(net_.now(), from, rdsim::Bytes(datagram.begin(), datagram.end()), ce);
  }
  llp::rd::Time deadline() const override { return table->deadline(); }
  void tick() override { table->expire(net_.now()); }

  const unsigned number;
  DatagramQueues queues;
  std::unique_ptr<rdmap::DatagramEndpoint> endpoint;
  std::unique_ptr<llp::rd::Table> table;
  std::uint64_t octets_sent = 0;

 private:
  void begin() {
    endpoint = std::make_unique<rdmap::DatagramEndpoint>(queues);
    table = std::make_unique<llp::rd::Table>(config_, *endpoint, *this, *this);
  }
  void send(const llp::rd::Address& to, const llp::rd::Frame& frame) override {
    rdsim::Bytes out = rdsim::octets_of(frame);
    octets_sent += out.size();
    if (out.size() > config_.max_seg) fail_msg("a datagram of %zu octets", out.size());
    net_.send(rdsim::address_of(number), to, std::move(out));
  }
  std::uint32_t draw() override { return static_cast<std::uint32_t>(random_()); }
  rdsim::Network& net_;
  llp::rd::Config config_;
  std::mt19937_64 random_;
};

inline Bytes pattern(std::uint64_t seed, std::size_t n) {
  std::mt19937 random(static_cast<unsigned>(seed));
  Bytes out(n);
  for (std::byte& b : out) b = static_cast<std::byte>(random());
  return out;
}

inline Bytes joined(const std::vector<Bytes>& pieces) {
  Bytes out;
  for (const Bytes& p : pieces) out.insert(out.end(), p.begin(), p.end());
  return out;
}

// In three pieces, the last of them empty.
inline std::vector<Bytes> pieces_of(const Bytes& whole) {
  const auto third = whole.begin() + static_cast<std::ptrdiff_t>(whole.size() / 3);
  return {Bytes(whole.begin(), third), Bytes(third, whole.end()), {}};
}

}  // namespace ewarp::wire
