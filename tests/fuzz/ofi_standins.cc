// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The channel without verbs, sockets and threads, below the libfabric provider: endpoints of one process whose machines
// talk to each other whenever one of them is called. An adapter's checks are made: a key that is not valid ends the
// connection.
#include <algorithm>
#include <cstring>
#include <deque>
#include <map>

#include "mpi_shim/channel/channel.h"
#include "mpi_shim/channel/core/machine.h"
#include "mpi_shim/ofi/interfaces.h"
#include "tests/fuzz/fuzz.h"

namespace ewarp::channel {
namespace {

struct Memory {
  MutableOctets octets;
  bool readable, writable;
};
std::map<std::uint32_t, Memory> g_memory;
std::uint32_t g_last_key = 10;
std::uint16_t g_last_port = 0;

MutableOctets reach(wire::Remote at, std::size_t length, bool to_write) {
  const auto found = g_memory.find(at.key);
  if (found == g_memory.end() || !(to_write ? found->second.writable : found->second.readable)) return {};
  const MutableOctets all = found->second.octets;
  const std::uint64_t offset = at.address - reinterpret_cast<std::uint64_t>(all.data());
  return offset <= all.size() && length <= all.size() - offset ? all.subspan(offset, length) : MutableOctets{};
}

std::uint32_t add_memory(MutableOctets octets, bool readable, bool writable) {
  g_memory[++g_last_key] = {octets, readable, writable};
  return g_last_key;
}

}  // namespace

class Endpoint::Impl final : public Transport {
 public:
  explicit Impl(const EndpointOptions& options) : address_(*Address::parse(options.address)) {
    while (address_.port == 0) address_.port = ++g_last_port;  // it wraps
    machine = std::make_unique<Machine>(options.tuning, *this);
    links_.push_back({.address = address_, .state = State::up});
    machine->add_peer(true);
    all().push_back(this);
  }
  ~Impl() override {
    std::erase(all(), this);
    for (PeerId p = 1; p < links_.size(); ++p) cut(p);
    machine->abandon();
    machine.reset();
  }
  static std::vector<Impl*>& all() {
    static std::vector<Impl*> list;
    return list;
  }
  static bool taken(const Address& a) {
    return a.port != 0 && std::any_of(all().begin(), all().end(), [&](Impl* i) { return i->address_ == a; });
  }

  PeerId peer(const Address& a) {
    for (PeerId p = 0; p < links_.size(); ++p)
      if (links_[p].address == a && links_[p].state != State::down) return p;
    links_.push_back({.address = a});
    return machine->add_peer();
  }
  const Address& address_of(PeerId p) const { return links_[p].address; }
  bool lost(PeerId p) const { return links_[p].state == State::down; }

  // Everything that can happen, until nothing does.
  static void poll() {
    static bool inside = false;
    if (std::exchange(inside, true)) return;
    for (int i = 0; i < 10000; ++i) {
      bool moved = false;
      for (std::size_t n = 0; n < all().size(); ++n) moved = all()[n]->move() || moved;
      if (!moved) break;
    }
    inside = false;
  }

  std::unique_ptr<Machine> machine;

 private:
  enum class State { idle, wanted, up, failing, down };
  struct Packet {
    enum class What { send, write, read, ping } what;
    std::vector<std::byte> octets;  // header and payload; of a Write what is written
    wire::Remote remote;
    MutableOctets target;
    std::optional<std::uint32_t> immediate;
    Cookie cookie;
  };
  struct Link {
    Address address;
    State state = State::idle;
    Impl* other = nullptr;
    PeerId there = 0;  // our number at the other end
    std::deque<Packet> packets = {};
    bool refused = false;
  };
  static constexpr std::size_t kDepth = 8;

  bool move() {
    bool moved = false;
    for (PeerId p = 1; p < links_.size(); ++p) {
      if (links_[p].state == State::wanted) moved = bring_up(p) || moved;
      if (links_[p].state == State::failing) moved = cut(p) || moved;
      if (links_[p].state == State::up && !links_[p].packets.empty()) moved = deliver(p) || moved;
    }
    return moved;
  }
  bool bring_up(PeerId p) {
    const auto found =
        std::find_if(all().begin(), all().end(), [&](Impl* i) { return i->address_ == links_[p].address; });
    if (found == all().end()) {
      links_[p].state = State::failing;
      return true;
    }
    Impl& other = **found;
    const PeerId there = other.peer(address_);
    if (other.links_[there].state == State::up) {  // of a connection that is not ours any more
      other.cut(there);
      return true;
    }
    links_[p].state = other.links_[there].state = State::up;
    links_[p].other = &other;
    links_[p].there = there;
    other.links_[there].other = this;
    other.links_[there].there = p;
    machine->on_peer_up(p);
    other.machine->on_peer_up(there);
    return true;
  }
  // Both ends see the connection go.
  bool cut(PeerId p) {
    if (links_[p].state == State::down || links_[p].state == State::idle) return false;
    Impl* other = std::exchange(links_[p].other, nullptr);
    const PeerId there = links_[p].there;
    links_[p].state = State::down;
    while (!links_[p].packets.empty()) {
      const Cookie cookie = links_[p].packets.front().cookie;
      links_[p].packets.pop_front();
      machine->on_complete(cookie, false);
    }
    machine->on_peer_down(p);
    if (other != nullptr) other->cut(there);
    return true;
  }
  bool deliver(PeerId p) {
    const Packet packet = std::move(links_[p].packets.front());
    links_[p].packets.pop_front();
    Impl& other = *links_[p].other;
    const PeerId there = links_[p].there;
    bool good = true;
    switch (packet.what) {
      case Packet::What::send:
        other.machine->on_received(there, packet.octets);
        break;
      case Packet::What::write: {
        const MutableOctets to = reach(packet.remote, packet.octets.size(), true);
        good = to.size() == packet.octets.size();
        if (good) std::copy(packet.octets.begin(), packet.octets.end(), to.begin());
        if (good && packet.immediate) other.machine->on_immediate(there, *packet.immediate, packet.octets.size());
        break;
      }
      case Packet::What::read: {
        const MutableOctets from = reach(packet.remote, packet.target.size(), false);
        good = from.size() == packet.target.size();
        if (good) std::copy(from.begin(), from.end(), packet.target.begin());
        break;
      }
      case Packet::What::ping:
        break;
    }
    machine->on_complete(packet.cookie, good);
    if (!good) {
      if (links_[p].state == State::up) links_[p].state = State::failing;
    } else if (std::exchange(links_[p].refused, false)) {
      machine->on_writable(p);
    }
    return true;
  }
  bool post(PeerId p, Packet packet) {
    FUZZ_CHECK(links_[p].state == State::up || links_[p].state == State::failing);
    if (links_[p].packets.size() >= kDepth) {
      links_[p].refused = true;
      return false;
    }
    links_[p].packets.push_back(std::move(packet));
    return true;
  }

  std::uint64_t now() override { return now_ += 1000; }
  std::uint64_t polled_at() override { return now_; }
  void connect(PeerId p) override {
    if (links_[p].state == State::idle) links_[p].state = State::wanted;
  }
  void fail(PeerId p, const char*) override {
    if (links_[p].state == State::up) links_[p].state = State::failing;
  }
  Taken send(PeerId p, Octets header, Octets payload, bool, bool, bool, Cookie cookie) override {
    Packet packet{Packet::What::send, {header.begin(), header.end()}, {}, {}, {}, cookie};
    packet.octets.insert(packet.octets.end(), payload.begin(), payload.end());
    return post(p, std::move(packet)) ? Taken::copied : Taken::refused;
  }
  Taken write(PeerId p, Octets source, const Exposed*, wire::Remote target, std::optional<std::uint32_t> immediate,
              bool, bool, Cookie cookie) override {
    return post(p, {Packet::What::write, {source.begin(), source.end()}, target, {}, immediate, cookie})
               ? Taken::copied
               : Taken::refused;
  }
  bool read(PeerId p, MutableOctets target, const Exposed*, wire::Remote source, Cookie cookie) override {
    return post(p, {Packet::What::read, {}, source, target, {}, cookie});
  }
  bool ping(PeerId p, Cookie cookie) override { return post(p, {Packet::What::ping, {}, {}, {}, {}, cookie}); }
  bool has_immediate(PeerId) override { return true; }
  bool add_receives(PeerId, std::uint32_t) override { return true; }
  void take_receive(PeerId) override {}
  std::size_t longest_transfer() const override { return 1 << 20; }
  Exposed* expose(MutableOctets memory, Reach how) override {
    auto* e = new Exposed;
    e->remote = {reinterpret_cast<std::uint64_t>(memory.data()),
                 add_memory(memory, how != Reach::own, how == Reach::written)};
    return e;
  }
  void conceal(Exposed* e) override {
    FUZZ_CHECK(g_memory.erase(e->remote.key) == 1);
    delete e;
  }

  Address address_;
  std::deque<Link> links_;
  std::uint64_t now_ = 1'000'000;

 public:
  const Address& address() const { return address_; }
};

Message::Message() = default;
Message::~Message() = default;
Message::Message(Message&&) noexcept = default;
Message& Message::operator=(Message&&) noexcept = default;

Endpoint::Endpoint(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Endpoint::~Endpoint() = default;
std::unique_ptr<Endpoint> Endpoint::open(const EndpointOptions& options, std::string* error, int* code) {
  const auto address = Address::parse(options.address);
  if (!address || Impl::taken(*address)) {
    *error = "in use";
    if (code != nullptr) *code = EADDRINUSE;
    return nullptr;
  }
  return std::unique_ptr<Endpoint>(new Endpoint(std::make_unique<Impl>(options)));
}
std::string Endpoint::address() const {
  return impl_->address().text();
}
PeerId Endpoint::peer(const Address& a) {
  return impl_->peer(a);
}
std::optional<PeerId> Endpoint::living_peer(const Address& a) const {
  const PeerId p = impl_->peer(a);
  return impl_->lost(p) ? std::nullopt : std::optional(p);
}
void Endpoint::close() {}
std::string Endpoint::address_of(PeerId p) const {
  return impl_->address_of(p).text();
}
std::string Endpoint::why_lost(PeerId p) const {
  return impl_->lost(p) ? "gone" : "";
}
Request Endpoint::isend(PeerId p, Tag tag, Octets data, const SendOptions& options) {
  const Request r = impl_->machine->send(p, tag, data, options);
  Impl::poll();
  return r;
}
Request Endpoint::irecv(PeerId source, Tag tag, MutableOctets buffer, Tag ignore, const ReceiveOptions& options) {
  const Request r = impl_->machine->receive(source, tag, ignore, buffer, options);
  Impl::poll();
  return r;
}
bool Endpoint::cancel(const Listener& listener, const void* context) {
  const Request r = impl_->machine->find_posted(listener, context);
  if (r) impl_->machine->cancel(r);
  return static_cast<bool>(r);
}
std::optional<Status> Endpoint::iprobe(PeerId source, Tag tag, Tag ignore) {
  return impl_->machine->probe(source, tag, ignore);
}
Message Endpoint::improbe(PeerId source, Tag tag, Tag ignore, Status* status) {
  Message out;
  out.stored_ = impl_->machine->matched_probe(source, tag, ignore, status);
  return out;
}
void Endpoint::discard(Message message) {
  impl_->machine->discard(std::move(message.stored_));
}
Request Endpoint::mrecv(Message&& message, MutableOctets buffer, const Report& report) {
  return impl_->machine->receive_matched(message.stored_, buffer, report);
}
Request Endpoint::put(PeerId p, Octets source, wire::Remote target, const SendOptions& options) {
  return impl_->machine->put(p, source, target, options);
}
Request Endpoint::get(PeerId p, MutableOctets target, wire::Remote source, const Report& report) {
  return impl_->machine->get(p, target, source, report);
}
void Endpoint::tell_puts(const Report& report) {
  impl_->machine->tell_puts(report);
}
Request Endpoint::call(PeerId p, Octets question, MutableOctets answer, const Report& report) {
  return impl_->machine->call(p, question, answer, report);
}
void Endpoint::answer_with(Answerer* answerer) {
  impl_->machine->answer_with(answerer);
}
void Endpoint::progress() {
  Impl::poll();
  impl_->machine->tick();
}
bool Endpoint::rest() {
  return true;
}

std::shared_ptr<Device> Device::open(const Address& address, std::string* error, int*) {
  if (address.ip[15] != 1) {
    *error = "no device";
    return nullptr;
  }
  std::shared_ptr<Device> out(new Device);
  out->name_ = "ewarp_lo";
  return out;
}
Device::~Device() = default;
std::optional<Device::Region> Device::expose(MutableOctets memory, bool readable, bool writable) {
  return Region{{reinterpret_cast<std::uint64_t>(memory.data()), add_memory(memory, readable, writable)}, nullptr};
}
void Device::conceal(const Region& region) {
  FUZZ_CHECK(g_memory.erase(region.remote.key) == 1);
}

}  // namespace ewarp::channel

namespace ewarp::ofi {

std::vector<Interface> find_interfaces() {
  const auto lo = channel::Address::parse("127.0.0.1:0");
  return {{.name = "lo", .network = "127.0.0.0/8", .device = "ewarp_lo", .address = *lo, .loopback = true}};
}
std::optional<channel::Address> source_towards(const channel::Address& destination) {
  return destination.v4() ? channel::Address::parse("127.0.0.1:0") : std::nullopt;
}

}  // namespace ewarp::ofi
