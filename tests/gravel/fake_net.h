// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Machines and wires between them, in virtual time: a wire delivers in order, and when a test says so. Gets overtake.
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <deque>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "mpi_shim/gravel/core/buffers.h"
#include "mpi_shim/gravel/core/machine.h"

extern "C" {
#include <cmocka.h>
}
#undef fail

namespace ewarp::gravel::test {

using Bytes = std::vector<std::byte>;

[[noreturn]] inline void broken(const char* what) {
  fprintf(stderr, "%s\n", what);
  abort();
}

// What is on a wire.
struct Packet {
  enum class What { entry, put, get, put_done, get_done } what;
  std::byte* to = nullptr;  // entry, put: where; get: at the asker's
  const std::byte* from = nullptr;
  std::size_t size = 0;
  Bytes octets = {};  // entry: the octets; get_done: what was read
  RequestId request = 0;
};

class Net;

class Node final : public Carrier {
 public:
  Node(Net& net, Proc self, int procs)
      : boards(static_cast<std::size_t>(procs) * board::kOctets / 4),
        machine_(self, procs, board(0), *this),
        net_(net),
        self_(self) {}

  std::byte* board(Proc proc) {
    return reinterpret_cast<std::byte*>(boards.data()) + static_cast<std::size_t>(proc) * board::kOctets;
  }
  Machine& operator*() { return machine_; }
  Machine* operator->() { return &machine_; }

  bool enter(Proc to, std::size_t offset, Octets octets) override;
  bool put(Proc to, const Local& source, Remote target, RequestId request) override;
  bool get(Proc from, const Local& target, Remote source, RequestId request) override;

  std::vector<std::uint32_t> boards;
  bool alive = true;
  std::size_t room = 1000;  // packets on a wire
  bool no_memory = false;   // for what is asked of the wires

 private:
  bool send(Proc to, Packet packet);

  Machine machine_;
  Net& net_;
  Proc self_;
};

class Net {
 public:
  explicit Net(int procs) : procs_(procs), wires_(static_cast<std::size_t>(procs * procs)) {
    for (Proc i = 0; i < procs; ++i) nodes_.push_back(std::make_unique<Node>(*this, i, procs));
  }
  Node& operator[](Proc proc) { return *nodes_[static_cast<std::size_t>(proc)]; }
  int size() const { return procs_; }

  using Wire = std::deque<Packet>;
  Wire& wire(Proc from, Proc to) { return wires_[static_cast<std::size_t>(from * procs_ + to)]; }
  // The first packet on this wire. False: there is none.
  bool step(Proc from, Proc to) {
    if (wire(from, to).empty()) return false;
    Packet p = std::move(wire(from, to).front());
    wire(from, to).pop_front();
    deliver(from, to, p);
    return true;
  }
  // Everything, and what follows from it.
  void run() {
    for (bool any = true; any;) {
      any = false;
      for (Proc from = 0; from < procs_; ++from)
        for (Proc to = 0; to < procs_; ++to) any |= step(from, to);
    }
  }
  // It stops, with what was on its way from it; the others learn of it when their transfers have come back.
  void kill(Proc victim) {
    (*this)[victim].alive = false;
    for (Proc other = 0; other < procs_; ++other) {
      if (other == victim) continue;
      fail_transfers(other, wire(other, victim));
      fail_transfers(other, wire(victim, other));
      (*this)[other]->on_gone(victim, false);
    }
  }
  std::function<void(Proc from, Proc to, const Packet&)> on_delivery;

 private:
  using What = Packet::What;

  void deliver(Proc from, Proc to, Packet& p) {
    switch (p.what) {
      case What::entry:
        memcpy(p.to, p.octets.data(), p.octets.size());
        break;
      case What::put:
        memcpy(p.to, p.from, p.size);
        wire(to, from).push_back({.what = What::put_done, .octets = {}, .request = p.request});
        break;
      case What::get:
        wire(to, from).push_back(
            {.what = What::get_done, .to = p.to, .octets = Bytes(p.from, p.from + p.size), .request = p.request});
        break;
      case What::get_done:
        memcpy(p.to, p.octets.data(), p.octets.size());
        [[fallthrough]];
      case What::put_done:
        (*this)[to]->on_moved(p.request, Error::none);
        break;
    }
    if (on_delivery) on_delivery(from, to, p);
  }
  void fail_transfers(Proc mine, Wire& wire) {
    const bool outward = &wire >= wires_.data() + mine * procs_ && &wire < wires_.data() + (mine + 1) * procs_;
    for (const Packet& p : std::exchange(wire, {})) {
      const bool mine_to_end =
          outward ? p.what == What::put || p.what == What::get : p.what == What::put_done || p.what == What::get_done;
      if (mine_to_end) (*this)[mine]->on_moved(p.request, Error::peer);
    }
  }

  const int procs_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<Wire> wires_;
};

inline bool Node::send(Proc to, Packet packet) {
  if (no_memory) throw std::bad_alloc();
  Net::Wire& wire = net_.wire(self_, to);
  if (wire.size() >= room) return false;
  if (packet.what == Packet::What::get && room > 1 && !wire.empty())
    wire.insert(wire.begin(), std::move(packet));
  else
    wire.push_back(std::move(packet));
  return true;
}

inline bool Node::enter(Proc to, std::size_t offset, Octets octets) {
  if (offset + octets.size() > board::kOctets) broken("an entry beyond the board");
  return send(to, {.what = Packet::What::entry,
                   .to = net_[to].board(self_) + offset,
                   .octets = Bytes(octets.begin(), octets.end())});
}

inline bool Node::put(Proc to, const Local& source, Remote target, RequestId request) {
  return send(to, {.what = Packet::What::put,
                   .to = reinterpret_cast<std::byte*>(target.address),
                   .from = source.data,
                   .size = source.size,
                   .octets = {},
                   .request = request});
}

inline bool Node::get(Proc from, const Local& target, Remote source, RequestId request) {
  return send(from, {.what = Packet::What::get,
                     .to = target.data,
                     .from = reinterpret_cast<std::byte*>(source.address),
                     .size = target.size,
                     .octets = {},
                     .request = request});
}

inline Local local(Bytes& memory, std::size_t offset = 0, std::size_t size = ~std::size_t{0}) {
  return {.data = memory.data() + offset, .size = std::min(size, memory.size() - offset), .key = 7, .slot = 3};
}

inline Bytes pattern(unsigned seed, std::size_t size) {
  Bytes out(size);
  for (std::size_t i = 0; i < size; ++i) out[i] = static_cast<std::byte>(seed * 31 + i * 7 + (i >> 8));
  return out;
}

inline void is(Error got, Error wanted) {
  assert_int_equal(static_cast<int>(got), static_cast<int>(wanted));
}
// Its end.
inline void ends(Machine& machine, RequestId request, Error wanted = Error::none) {
  std::optional<std::uint32_t> used;
  is(machine.test(request, &used), wanted);
}
inline void not_done(Machine& machine, RequestId request) {
  ends(machine, request, Error::full);
}

}  // namespace ewarp::gravel::test
