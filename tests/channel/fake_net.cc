// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tests/channel/fake_net.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace ewarp::channel::test {

void broken(const std::string& what) {
  std::fprintf(stderr, "BROKEN: %s\n", what.c_str());
  std::abort();
}

void must(bool condition, const std::string& what) {
  if (!condition) broken(what);
}

Bytes pattern(PeerId from, std::uint64_t number, std::size_t size) {
  Bytes out(size);
  for (std::size_t i = 0; i < size; ++i)
    out[i] = static_cast<std::byte>(i < 8 ? number >> (8 * i) : from * 37 + number * 11 + i * 7 + (i >> 8));
  return out;
}

// --- one node ---

std::uint64_t Node::now() {
  return net_.now;
}

void Node::connect(PeerId peer) {
  net_.connecting_.insert({id_, peer});
}

void Node::fail(PeerId peer, const char* why) {
  net_.failures.push_back(why);
  net_.failing_.insert({id_, peer});
}

Transport::Taken Node::post(PeerId peer, Packet packet, bool copy) {
  if (copy) {
    packet.copy.assign(packet.source.begin(), packet.source.end());
    packet.source = packet.copy;
  }
  if (!net_.post(id_, peer, std::move(packet))) return Taken::refused;
  return copy ? Taken::copied : Taken::in_place;
}

Transport::Taken Node::send(PeerId peer, Octets header, Octets payload, bool copy, bool solicited, bool followed,
                            Cookie cookie) {
  must(payload.size() <= net_.tuning_.piece(), "a message that is longer than a receive");
  must(!followed_ || *followed_ == peer, "a send to another peer than was promised");
  net_.looked(peer, id_);
  followed_.reset();
  std::uint32_t credits = 0;
  for (std::size_t i = 4; i < 8; ++i) credits = credits << 8 | std::to_integer<std::uint32_t>(header[i]);
  auto& w = net_.wire(id_, peer);
  must(credits - w.credits < Link::kHalf, "credits that were given are taken back");
  w.credits = credits;
  const auto& back = net_.wire(peer, id_);
  must(credits - back.used + Link::kReserve <= back.receives - back.looking, "credits for which there are no receives");
  const Taken taken = post_send(peer, header, payload, copy, solicited, cookie);
  if (followed && taken != Taken::refused) followed_ = peer;
  return taken;
}

Transport::Taken Node::post_send(PeerId peer, Octets header, Octets payload, bool copy, bool solicited, Cookie cookie) {
  return post(peer,
              {.what = Packet::What::send,
               .header = Bytes(header.begin(), header.end()),
               .source = payload,
               .copy = {},
               .remote = {},
               .target = {},
               .data = {},
               .immediate = {},
               .cookie = cookie,
               .solicited = solicited},
              copy);
}

Transport::Taken Node::write(PeerId peer, Octets source, const Exposed* memory, wire::Remote target,
                             std::optional<std::uint32_t> immediate, bool copy, bool solicited, Cookie cookie) {
  must(source.size() <= net_.tuning_.eager_threshold || memory != nullptr, "a Write from memory that was not exposed");
  must(!immediate || net_.immediate, "an immediate to a peer that takes none");
  must(source.size() <= net_.longest, "a Write that is too long");
  must(!followed_, "a Write where a send was promised");
  if (immediate) net_.looked(peer, id_);
  return post(peer,
              {.what = Packet::What::write,
               .header = {},
               .source = source,
               .copy = {},
               .remote = target,
               .target = {},
               .data = {},
               .immediate = immediate,
               .cookie = cookie,
               .solicited = solicited},
              copy);
}

bool Node::read(PeerId peer, MutableOctets target, const Exposed* memory, wire::Remote source, Cookie cookie) {
  must(!target.empty() && (target.size() <= net_.tuning_.eager_threshold || memory != nullptr),
       "a Read into memory that was not exposed");
  must(target.size() <= net_.longest, "a Read that is too long");
  must(!followed_, "a Read where a send was promised");
  return net_.post(id_, peer,
                   {.what = Packet::What::read,
                    .header = {},
                    .source = {},
                    .copy = {},
                    .remote = source,
                    .target = target,
                    .data = {},
                    .immediate = {},
                    .cookie = cookie});
}

bool Node::ping(PeerId peer, Cookie cookie) {
  return net_.post(id_, peer,
                   {.what = Packet::What::ping,
                    .header = {},
                    .source = {},
                    .copy = {},
                    .remote = {},
                    .target = {},
                    .data = {},
                    .immediate = {},
                    .cookie = cookie});
}

bool Node::has_immediate(PeerId) {
  return net_.immediate;
}

bool Node::add_receives(PeerId peer, std::uint32_t count) {
  auto& w = net_.wire(peer, id_);
  must(w.up && !w.down, "receives added to a connection that does not stand");
  if (net_.refuse_receives) return false;
  w.receives += count;
  must(w.receives - w.surplus <= Link::receives(net_.tuning_.receive_depth), "more receives than the depth says");
  must(net_.borrowed(id_) <= Link::shared_receives(net_.tuning_), "more receives than there is memory for");
  return true;
}

void Node::take_receive(PeerId peer) {
  ++net_.wire(peer, id_).surplus;
}

std::size_t Node::longest_transfer() const {
  return net_.longest;
}

Exposed* Node::expose(MutableOctets memory, Reach reach) {
  if (net_.refuse_memory) return nullptr;
  auto region = std::make_unique<Region>();
  region->octets = memory;
  region->reach = reach;
  region->remote = {.address = reinterpret_cast<std::uint64_t>(memory.data()), .key = net_.next_key_++};
  Exposed* out = region.get();
  regions_[out->remote.key] = std::move(region);
  return out;
}

void Node::conceal(Exposed* memory) {
  must(regions_.erase(memory->remote.key) == 1, "memory concealed that was not exposed");
}

MutableOctets Node::reach(wire::Remote at, std::size_t length, bool to_write) {
  const auto found = regions_.find(at.key);
  must(found != regions_.end(), "a peer uses a key that is not valid any more");
  const Region& region = *found->second;
  const std::uint64_t offset = at.address - reinterpret_cast<std::uint64_t>(region.octets.data());
  must(offset <= region.octets.size() && length <= region.octets.size() - offset, "a peer reaches beyond the region");
  must(region.reach != Reach::own, "a peer reaches what is not for it");
  must(!to_write || region.reach == Reach::written, "a peer writes where it may not");
  return region.octets.subspan(offset, length);
}

// --- the wires ---

Net::Net(std::size_t nodes, const Tuning& tuning, unsigned seed)
    : random(seed), tuning_(tuning), wires_(nodes * nodes) {
  for (PeerId i = 0; i < nodes; ++i) {
    nodes_.push_back(std::make_unique<Node>(*this, i));
    nodes_[i]->machine = std::make_unique<Machine>(tuning, *nodes_[i]);
    for (PeerId peer = 0; peer < nodes; ++peer) nodes_[i]->machine->add_peer(peer == i);
  }
}

Net::~Net() {
  for (auto& node : nodes_)
    if (node) node->machine.reset();
}

std::size_t Net::borrowed(PeerId node) const {
  const std::size_t own = Link::receives(Link::kFirstWindow);
  std::size_t n = 0;
  for (PeerId from = 0; from < nodes_.size(); ++from) {
    const Wire& w = wire(from, node);
    if (!w.up || w.down) continue;
    must(w.receives - w.surplus >= own, "a peer has fewer receives than are its own");
    n += w.receives - w.surplus - own;
  }
  return n;
}

bool Net::post(PeerId from, PeerId to, Packet packet) {
  Wire& w = wire(from, to);
  must(w.up && !w.down, "something posted on a connection that does not stand");
  if (w.ending) return false;
  if (w.outstanding >= depth) {
    w.refused = true;
    return false;
  }
  ++w.outstanding;
  if (packet.what == Packet::What::send || packet.immediate) {
    ++w.messages;
    must(w.messages <= w.receives, "a message for which the peer has posted no receive");
  }
  w.packets.push_back(std::move(packet));
  return true;
}

// What follows without any packet: connections that come up or go down.
void Net::settle() {
  while (!connecting_.empty() || !failing_.empty()) {
    if (!failing_.empty()) {
      const auto [a, b] = *failing_.begin();
      failing_.erase(failing_.begin());
      cut(a, b);
      continue;
    }
    const auto [a, b] = *connecting_.begin();
    connecting_.erase(connecting_.begin());
    if (!alive(a) || wire(a, b).down) continue;
    if (!alive(b)) {
      wire(a, b).down = true;
      nodes_[a]->machine->on_peer_down(b);
      continue;
    }
    if (wire(a, b).up) continue;
    for (Wire* w : {&wire(a, b), &wire(b, a)}) {
      w->up = true;
      w->receives = Link::receives(Link::kFirstWindow);
    }
    nodes_[a]->machine->on_peer_up(b);
    nodes_[b]->machine->on_peer_up(a);
  }
}

bool Net::complete_one(PeerId from, PeerId to) {
  Wire& w = wire(from, to);
  if (w.completions.empty()) return false;
  const auto [cookie, ok] = w.completions.front();
  w.completions.pop_front();
  --w.outstanding;
  nodes_[from]->machine->on_complete(cookie, ok);
  if (ok && std::exchange(w.refused, false)) nodes_[from]->machine->on_writable(to);
  return true;
}

// A note that only returns credits.
bool Net::no_credit(Octets message) {
  std::size_t used = 0;
  const auto m = wire::Message::parse(message, &used);
  return m && m->has(wire::flag::kReserve);
}

void Net::forge(PeerId from, PeerId to, Octets octets) {
  if (!no_credit(octets)) ++wire(from, to).used;
  nodes_[to]->machine->on_received(from, octets);
}

void Net::forge_immediate(PeerId from, PeerId to, std::uint32_t immediate, std::size_t written) {
  ++wire(from, to).used;
  nodes_[to]->machine->on_immediate(from, immediate, written);
}

// The receive of a message is posted again, once.
void Net::looked(PeerId from, PeerId to) {
  Wire& w = wire(from, to);
  if (!std::exchange(w.looking, false)) return;
  --w.messages;
  if (w.surplus > 0) --w.surplus, --w.receives;
}

bool Net::deliver(PeerId from, PeerId to) {
  settle();
  Wire& w = wire(from, to);
  if (w.packets.empty()) return false;
  now += 1000;
  Packet p = std::move(w.packets.front());
  w.packets.pop_front();
  Machine& machine = *nodes_[to]->machine;
  const bool message = p.what == Packet::What::send || p.immediate;
  if (message && on_delivery) on_delivery(from, to, p);
  if (message && !no_credit(p.header)) ++w.used;
  w.looking = message;
  switch (p.what) {
    case Packet::What::send:
      p.header.insert(p.header.end(), p.source.begin(), p.source.end());
      if (to != deaf) machine.on_received(from, p.header);
      break;
    case Packet::What::write:
      if (!p.source.empty())
        std::copy(p.source.begin(), p.source.end(), nodes_[to]->reach(p.remote, p.source.size(), true).data());
      if (p.immediate) machine.on_immediate(from, *p.immediate, p.source.size());
      break;
    case Packet::What::read: {
      const MutableOctets data = nodes_[to]->reach(p.remote, p.target.size(), false);
      p.data.assign(data.begin(), data.end());
      p.what = Packet::What::response;
      wire(to, from).responses.push_back(std::move(p));
      settle();
      return true;
    }
    case Packet::What::ping:
      (silent ? w.unanswered : w.completions).emplace_back(p.cookie, !silent);
      break;
    case Packet::What::response:
      broken("a response among the requests");
  }
  looked(from, to);
  if (p.what != Packet::What::ping) w.completions.emplace_back(p.cookie, true);
  settle();
  return true;
}

bool Net::deliver_response(PeerId from, PeerId to) {
  settle();
  Wire& w = wire(from, to);
  if (w.responses.empty()) return false;
  now += 1000;
  const Packet p = std::move(w.responses.front());
  w.responses.pop_front();
  std::copy(p.data.begin(), p.data.end(), p.target.begin());
  wire(to, from).completions.emplace_back(p.cookie, true);
  settle();
  return true;
}

void Net::run() {
  for (bool moved = true; moved;) {
    moved = false;
    settle();
    for (PeerId a = 0; a < size(); ++a)
      for (PeerId b = 0; b < size(); ++b)
        moved = deliver(a, b) || deliver_response(a, b) || complete_one(a, b) || moved;
    settle();
  }
}

bool Net::step() {
  settle();
  std::vector<std::pair<int, std::size_t>> possible;
  for (std::size_t i = 0; i < wires_.size(); ++i) {
    if (!wires_[i].packets.empty()) possible.emplace_back(0, i);
    if (!wires_[i].responses.empty()) possible.emplace_back(1, i);
    if (!wires_[i].completions.empty()) possible.emplace_back(2, i);
  }
  if (possible.empty()) return false;
  const auto [what, at] = possible[random() % possible.size()];
  const auto from = static_cast<PeerId>(at / size()), to = static_cast<PeerId>(at % size());
  return what == 0 ? deliver(from, to) : what == 1 ? deliver_response(from, to) : complete_one(from, to);
}

// Both ends see the connection go. What was not complete is flushed first.
void Net::cut(PeerId a, PeerId b) {
  for (const auto& [from, to] : {std::pair(a, b), std::pair(b, a)}) {
    Wire& w = wire(from, to);
    if (w.down || w.ending) continue;
    w.ending = true;
    if (alive(from)) {
      for (const auto& [cookie, ok] : w.completions) nodes_[from]->machine->on_complete(cookie, ok);
      for (const auto& [cookie, ok] : w.unanswered) nodes_[from]->machine->on_complete(cookie, ok);
      for (const Packet& p : w.packets) nodes_[from]->machine->on_complete(p.cookie, false);
      for (const Packet& p : wire(to, from).responses) nodes_[from]->machine->on_complete(p.cookie, false);
    }
    w.completions.clear();
    w.unanswered.clear();
    w.packets.clear();
    wire(to, from).responses.clear();
    w.down = true;
    if (alive(from)) nodes_[from]->machine->on_peer_down(to);
  }
}

void Net::kill(PeerId node) {
  settle();
  const auto dead = std::move(nodes_[node]);
  for (PeerId other = 0; other < size(); ++other)
    if (other != node && wire(other, node).up) cut(other, node);
  for (PeerId other = 0; other < size(); ++other) {
    wire(node, other) = {};
    wire(node, other).down = true;
  }
  dead->machine.reset();
}

std::size_t Net::octets_in_flight(PeerId from, PeerId to) const {
  std::size_t n = 0;
  for (const Packet& p : wire(from, to).packets)
    if (p.what == Packet::What::write) n += p.source.size();
  return n;
}

std::optional<wire::Message> Net::head(PeerId from, PeerId to) const {
  const auto& packets = wire(from, to).packets;
  if (packets.empty() || packets.front().what != Packet::What::send) return std::nullopt;
  Bytes octets = packets.front().header;
  octets.insert(octets.end(), packets.front().source.begin(), packets.front().source.end());
  std::size_t used = 0;
  return wire::Message::parse(octets, &used);
}

}  // namespace ewarp::channel::test
