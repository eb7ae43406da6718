// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Both ends of a channel on a wire without time: what is posted waits until step() lets it happen. What one end posts
// happens in order; what the two ends post is mixed by a random number.
#pragma once

#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "mpi_shim/acp/core/crb.h"
#include "mpi_shim/acp/core/receiver.h"
#include "mpi_shim/acp/core/sender.h"

namespace ewarp::acp::test {

// A block of an end, exactly as long as it must be: what is beyond belongs to the allocator, and sanitizers know.
struct Block {
  explicit Block(std::size_t octets) : memory(std::calloc(1, octets), &std::free) {}
  std::unique_ptr<void, void (*)(void*)> memory;
};

inline ConnectRequest claimed_by(std::uint64_t owner, std::uint32_t rank) {
  ConnectRequest out{};
  out.owner = owner;
  out.rank = rank;
  return out;
}

struct Options {
  std::uint32_t slot = 64, send_slots = 2, receive_slots = 8;
  Mode mode = Mode::immediate;
  std::uint32_t copied = 0;  // puts of so many octets at most are Put::copied
  unsigned refuse = 0;       // every so many posts find no room; 0: none
};

class Scene : public Wire {
 public:
  explicit Scene(const Options& o = {})
      : options(o),
        send_shape{o.slot, o.send_slots, o.mode},
        receive_shape{o.slot, o.receive_slots, o.mode},
        send_block(Sender::block_octets(send_shape)),
        receive_block(Receiver::block_octets(receive_shape)),
        sender(Sender::create(send_block.memory.get(), {.peer = 1, .number = 5, .order = 0}, send_shape)),
        receiver(Receiver::create(receive_block.memory.get(), {.peer = 0, .number = 7, .order = 0}, receive_shape)) {}

  bool claim(Sender& end, std::uint32_t entry) override {
    if (full()) return false;
    ++claims;
    end.posted();
    later(0, [this, &end, entry] {
      std::uint64_t& owner = ring[entry].owner;
      end.words().found = owner;
      if (owner == 0) owner = 1;
      end.completed();
      end.claim_done(now);
    });
    return true;
  }
  bool ask(Sender& end, std::uint32_t entry) override {
    if (full()) return false;
    later(0, [this, &end, entry] {
      const std::uint64_t owner = ring[entry].owner;
      ring[entry] = claimed_by(owner, 0);
      ring[entry].end = end.number();
      ring[entry].slot_size = send_shape.slot_size;
      ring[entry].mode = static_cast<std::uint32_t>(send_shape.mode);
      if (requests.take(entry)) match();
    });
    return true;
  }
  Put put(Sender& end, std::uint32_t from, std::uint32_t to, std::uint32_t octets, std::uint32_t filled) override {
    if (full()) return Put::no_room;
    ++puts;
    const bool copied = octets <= options.copied;
    std::vector<std::byte> copy;
    if (copied) copy.assign(end.slot(from), end.slot(from) + octets);
    if (!copied) end.posted();
    later(0, [this, &end, from, to, octets, filled, copied, copy] {
      std::memcpy(receiver.slot(to), copied ? copy.data() : end.slot(from), octets);
      if (options.mode == Mode::paper)
        receiver.words().tail = filled;
      else
        lies |= !receiver.arrived();
      if (copied) return;
      end.completed();
      end.written();
    });
    return copied ? Put::copied : Put::posted;
  }
  bool answer(Receiver& end) override {
    if (full()) return false;
    const Answer a = end.answer();
    later(1, [this, a] {
      sender.words().answer = a;
      sender.answered();
    });
    return true;
  }
  // In mode paper an atomic, which what was posted behind it may pass.
  bool credit(Receiver& end, std::uint32_t n, std::uint32_t emptied) override {
    if (full()) return false;
    ++credits;
    if (options.mode != Mode::paper) {
      later(1, [this, n] { lies |= !sender.credited(n); });
      return true;
    }
    end.posted();
    later(2, [this, &end, emptied] {
      sender.words().head = emptied;
      end.completed();
    });
    return true;
  }
  bool tell_closed(Receiver&) override {
    if (full()) return false;
    later(1, [this] {
      lies |= !posted[2].empty();  // the sender's memory goes, which they need
      sender.receiver_closed();
    });
    return true;
  }

  // The program at the receiver has created its end.
  void create_receiver() {
    receiver_exists = true;
    match();
  }
  // One thing that was posted happens, or an end looks round.
  template <class Random>
  void step(Random& random) {
    const unsigned what = static_cast<unsigned>(random() % 5);
    if (what < 3 && !posted[what].empty()) {
      auto f = std::move(posted[what].front());
      posted[what].pop_front();
      return f();
    }
    look(what % 2 == 0);
  }
  // Until nothing happens any more.
  void settle() {
    std::minstd_rand random(1);
    now += Sender::kFullPause;
    for (int quiet = 0; quiet < 100; quiet = nothing_posted() ? quiet + 1 : 0) step(random);
  }
  void look(bool first) {
    if (first) {
      if (options.mode == Mode::paper && sender.state() == Sender::State::open) sender.look_at_head();
      sender.advance(*this, now);
    } else if (receiver_exists) {
      if (options.mode == Mode::paper && receiver.state() == Receiver::State::open) receiver.look_at_tail();
      receiver.advance(*this);
    }
  }

  Options options;
  Shape send_shape, receive_shape;
  Block send_block, receive_block;
  Sender& sender;
  Receiver& receiver;
  ConnectRequest ring[ConnectRequests::kEntries] = {};
  ConnectRequests requests{ring};
  std::deque<std::function<void()>> posted[3];  // by the sender, by the receiver, atomics of the receiver
  std::uint64_t now = 0;
  unsigned claims = 0, puts = 0, credits = 0;
  bool receiver_exists = false;
  bool lies = false;  // an end was told what cannot be

 private:
  bool nothing_posted() const { return posted[0].empty() && posted[1].empty() && posted[2].empty(); }
  void later(int side, std::function<void()> f) { posted[side].push_back(std::move(f)); }
  bool full() { return options.refuse != 0 && ++asked_ % options.refuse == 0; }
  void match() {
    if (!receiver_exists || receiver.state() != Receiver::State::waiting) return;
    if (const auto request = requests.match(0)) receiver.asked(*request);
  }
  unsigned asked_ = 0;
};

}  // namespace ewarp::acp::test
