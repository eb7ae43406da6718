// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Two machines, or some more, and buffers that are looked after: what a scripted test needs.
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <list>

#include "tests/channel/fake_net.h"

extern "C" {
#include <cmocka.h>
}
#undef fail

namespace ewarp::channel::test {

// Small enough that every protocol is met with little data.
inline Tuning small_tuning() {
  Tuning t;
  t.eager_threshold = 64;
  t.hybrid_threshold = 256;
  t.hybrid_buffers = 16;
  return t;
}
inline constexpr std::size_t kSmall = 40, kMedium = 200, kLarge = 1000;

inline constexpr PeerId kS = 0, kR = 1;  // who sends and who receives, in most scenes

// Remembers what it was told.
struct Heard final : Listener {
  void on_done(const Completion& c) override { heard.push_back(c); }
  std::vector<Completion> heard;
};

// The message as it is sent, with a payload of so many octets; for Net::forge().
inline Bytes octets_of(const wire::Message& m, std::size_t payload = 0) {
  Bytes octets(wire::Message::kLongest);
  m.emit(octets);
  octets.resize(m.octets() + payload, std::byte{0x33});
  return octets;
}

// Sends carry pattern(from, number) with numbers in the order of the calls.
class Scene {
 public:
  explicit Scene(const Tuning& tuning = small_tuning(), std::size_t nodes = 2) : net(nodes, tuning) {}

  struct Transfer {
    PeerId owner;
    Bytes data;
    Request request;
    std::uint64_t number = 0;
  };
  Transfer& send(PeerId from, PeerId to, Tag tag, std::size_t size, bool synchronous = false) {
    Transfer& t = transfers_.emplace_back(Transfer{from, pattern(from, ++sent_, size), {}, sent_});
    t.request = net[from].send(to, tag, t.data, synchronous);
    return t;
  }
  Transfer& receive(PeerId at, PeerId source, Tag tag, std::size_t capacity, Tag ignore = 0) {
    Transfer& t = transfers_.emplace_back(Transfer{at, Bytes(capacity), {}});
    t.request = net[at].receive(source, tag, ignore, t.data);
    return t;
  }
  // Both connected, nothing under way.
  void connect(PeerId from = kS, PeerId to = kR) {
    Transfer& sent = send(from, to, 999, 1);
    Transfer& received = receive(to, from, 999, 1);
    net.run();
    ends(sent);
    got(received, sent);
  }
  // ... and with a window in each direction that a test of something else does not exhaust.
  void connect_widely(PeerId from = kS, PeerId to = kR) {
    connect(from, to);
    for (const auto& [a, b] : {std::pair(from, to), std::pair(to, from)}) {
      std::vector<std::pair<Transfer*, Transfer*>> pairs;
      for (int i = 0; i < 64; ++i) {
        Transfer& sent = send(a, b, 999, 1);
        pairs.emplace_back(&sent, &receive(b, a, 999, 1));
      }
      net.run();
      for (auto& [sent, received] : pairs) ends(*sent), got(*received, *sent);
    }
  }
  bool done(const Transfer& t) { return net[t.owner].done(t.request); }
  // Tests for it, and looks whether it ended well.
  void ends(Transfer& t, Error error = Error::none) {
    const auto status = net[t.owner].test(t.request);
    assert_true(status.has_value());
    assert_int_equal(static_cast<int>(status->error), static_cast<int>(error));
  }
  // `r` has got what `s` sent, or as much as fits.
  void got(Transfer& r, Transfer& s, Error error = Error::none) {
    const auto status = net[r.owner].test(r.request);
    assert_true(status.has_value());
    assert_int_equal(static_cast<int>(status->error), static_cast<int>(error));
    assert_int_equal(status->source, s.owner);
    assert_int_equal(status->length, s.data.size());
    const Bytes sent = pattern(s.owner, s.number, s.data.size());
    assert_memory_equal(r.data.data(), sent.data(), std::min(r.data.size(), sent.size()));
  }
  std::uint64_t count(PeerId node, Count c) { return net[node].counters()[c]; }

  Net net;

 private:
  std::list<Transfer> transfers_;
  std::uint64_t sent_ = 0;
};

}  // namespace ewarp::channel::test
