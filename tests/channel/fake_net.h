// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Machines joined by wires in virtual time. Nothing moves by itself: the test, or a seeded random choice, says what is
// delivered next. The wires keep what RDMA keeps: order per direction, Writes placed before what follows them, Reads
// executed in the order of the requests and answered later, buffers looked at between post and completion. They check
// what an adapter checks: keys, ranges, rights, receives for every message.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "mpi_shim/channel/core/machine.h"

namespace ewarp::channel::test {

using Bytes = std::vector<std::byte>;

// A fault of the machines or of the test: ends the program with the text and the net's seed.
[[noreturn]] void broken(const std::string& what);
void must(bool condition, const std::string& what);

class Net;
struct Packet;

class Node final : public Transport {
 public:
  Node(Net& net, PeerId id) : net_(net), id_(id) {}

  std::uint64_t now() override;
  std::uint64_t polled_at() override { return now(); }
  void connect(PeerId peer) override;
  void fail(PeerId peer, const char* why) override;
  Taken send(PeerId peer, Octets header, Octets payload, bool copy, bool solicited, bool followed,
             Cookie cookie) override;
  Taken write(PeerId peer, Octets source, const Exposed* memory, wire::Remote target,
              std::optional<std::uint32_t> immediate, bool copy, bool solicited, Cookie cookie) override;
  bool read(PeerId peer, MutableOctets target, const Exposed* memory, wire::Remote source, Cookie cookie) override;
  bool ping(PeerId peer, Cookie cookie) override;
  bool has_immediate(PeerId peer) override;
  bool add_receives(PeerId peer, std::uint32_t count) override;
  void take_receive(PeerId peer) override;
  std::size_t longest_transfer() const override;
  Exposed* expose(MutableOctets memory, Reach reach) override;
  void conceal(Exposed* memory) override;

  std::unique_ptr<Machine> machine;

 private:
  friend class Net;
  struct Region : Exposed {
    MutableOctets octets;
    Reach reach = Reach::own;
  };
  Taken post(PeerId peer, Packet packet, bool copy);
  Taken post_send(PeerId peer, Octets header, Octets payload, bool copy, bool solicited, Cookie cookie);
  // Requires: it is covered by a region of this node that key names.
  MutableOctets reach(wire::Remote at, std::size_t length, bool to_write);

  Net& net_;
  PeerId id_;
  std::optional<PeerId> followed_;  // the next call has to be another send() to this peer
  std::map<std::uint32_t, std::unique_ptr<Region>> regions_;
};

// What is on its way from one node to another.
struct Packet {
  enum class What { send, write, read, response, ping };
  What what;
  Bytes header;
  Octets source;  // looked at when it is delivered
  Bytes copy;     // instead of it
  wire::Remote remote;
  MutableOctets target;  // read: where the response goes
  Bytes data;            // response
  std::optional<std::uint32_t> immediate;
  Cookie cookie = 0;
  bool solicited = false;
};

class Net {
 public:
  Net(std::size_t nodes, const Tuning& tuning, unsigned seed = 1);
  ~Net();

  Machine& operator[](std::size_t i) { return *nodes_[i]->machine; }
  std::size_t size() const { return nodes_.size(); }

  // Delivers what is first from one node to the other (a response counts as the other wire); false if there is nothing.
  // Completions follow at once.
  bool deliver(PeerId from, PeerId to);
  bool deliver_response(PeerId from, PeerId to);
  // The first completion of what `from` has posted for `to`; false if there is none.
  bool complete(PeerId from, PeerId to) { return complete_one(from, to); }
  // Everything, in a fair order, until nothing moves any more.
  void run();
  // One of the things that can happen, by chance. False if nothing can.
  bool step();
  // Something comes that the node `from`, which does not know of it, never sent.
  void forge(PeerId from, PeerId to, Octets octets);
  void forge_immediate(PeerId from, PeerId to, std::uint32_t immediate, std::size_t written);
  void kill(PeerId node);
  bool alive(PeerId node) const { return nodes_[node] != nullptr; }
  // Memory of a node that others may put to.
  Exposed* expose(PeerId node, MutableOctets memory) { return nodes_[node]->expose(memory, Transport::Reach::written); }
  void conceal(PeerId node, Exposed* memory) { nodes_[node]->conceal(memory); }

  std::size_t in_flight(PeerId from, PeerId to) const { return wire(from, to).packets.size(); }
  std::size_t octets_in_flight(PeerId from, PeerId to) const;  // of Writes
  // What `to` has posted for Sends of `from`.
  std::size_t receives(PeerId from, PeerId to) const { return wire(from, to).receives; }
  // What a node has posted for all of its peers beyond what is each one's own.
  std::size_t borrowed(PeerId node) const;
  // The message at the head of the wire, if that is a Send.
  std::optional<wire::Message> head(PeerId from, PeerId to) const;

  std::uint64_t now = 1'000'000;
  std::size_t longest = 1 << 30;      // octets of one Write or Read
  std::size_t depth = 64;             // requests of one peer that are not complete
  bool immediate = true;              // adapters know Write with immediate
  bool refuse_memory = false;         // expose() finds none
  bool refuse_receives = false;       // add_receives() posts none
  bool silent = false;                // nobody answers a ping
  std::optional<PeerId> deaf;         // its machine hears of no Send, though its adapter takes them
  std::vector<std::string> failures;  // what fail() was told
  // Told before a Send, or a Write with immediate, reaches its node.
  std::function<void(PeerId from, PeerId to, const Packet&)> on_delivery;
  std::mt19937 random;

 private:
  friend class Node;
  struct Wire {
    std::deque<Packet> packets, responses;
    std::deque<std::pair<Cookie, bool>> completions, unanswered;  // of the sending node
    std::size_t outstanding = 0, messages = 0;
    std::size_t receives = 0, surplus = 0;  // of the receiving node; of those, so many are not given back
    std::uint32_t credits = 0;              // that the sending node told last
    std::uint32_t used = 0;                 // of those of the receiving node, by messages that have arrived
    bool looking = false;                   // at a message, whose receive is yet to be given back
    bool refused = false, up = false, down = false;
    bool ending = false;  // takes nothing any more
  };
  Wire& wire(PeerId from, PeerId to) { return wires_[from * nodes_.size() + to]; }
  const Wire& wire(PeerId from, PeerId to) const { return wires_[from * nodes_.size() + to]; }
  bool post(PeerId from, PeerId to, Packet packet);
  void settle();
  bool complete_one(PeerId from, PeerId to);
  void cut(PeerId a, PeerId b);
  static bool no_credit(Octets message);
  void looked(PeerId from, PeerId to);

  Tuning tuning_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<Wire> wires_;
  std::set<std::pair<PeerId, PeerId>> connecting_, failing_;
  std::uint32_t next_key_ = 100;
};

// Octets that say who sent them.
Bytes pattern(PeerId from, std::uint64_t number, std::size_t size);

}  // namespace ewarp::channel::test
