// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Receives that all peers share: who borrows how many, who gives them back, and that nobody waits for ever or takes
// more than was lent. The wires check that each message finds a receive, and that no more are posted than there are.
#include <numeric>

#include "tests/channel/scene.h"

namespace ewarp::channel::test {
namespace {

constexpr PeerId kA = 0, kB = 1, kC = 2, kAt = 3;  // three senders and their receiver

// So many receives to share.
Tuning sharing(std::uint32_t receives) {
  Tuning t = small_tuning();
  t.receive_memory = receives * Link::receive_octets(t);
  assert_int_equal(Link::shared_receives(t), receives);
  return t;
}

class Senders {
 public:
  explicit Senders(const Tuning& tuning, std::size_t nodes = 4)
      : s(tuning, nodes), at(static_cast<PeerId>(nodes - 1)) {}

  // What the peer may have under way.
  std::size_t window(PeerId from) { return s.net.receives(from, at) - Link::receives(0); }
  void send(PeerId from, int messages) {
    for (int i = 0; i < messages; ++i) sent_.push_back(&s.send(from, at, 1, kSmall));
  }
  // Each in turn sends and everything arrives, in order and unchanged.
  void stream(std::initializer_list<PeerId> from, int messages, int at_once = 1) {
    for (int i = 0; i < messages; i += at_once) {
      for (const PeerId each : from) send(each, at_once);
      s.net.run();
    }
    receive_all();
  }
  void receive_all() {
    for (Scene::Transfer* sent : std::exchange(sent_, {})) {
      auto& received = s.receive(at, sent->owner, 1, kSmall);
      s.net.run();
      s.got(received, *sent);
      s.ends(*sent);
    }
  }

  Scene s;
  const PeerId at;

 private:
  std::vector<Scene::Transfer*> sent_;
};

// --- the budget alone ---

void a_window_grows_as_far_as_there_are_receives(void**) {
  for (const std::uint32_t shared : {0u, 1u, 10u, 63u, 1000u}) {
    Senders n(sharing(shared));
    n.stream({kA}, 2000, 100);
    assert_int_equal(n.window(kA), std::min(1 + shared, 64u));
  }
}

void a_storm_stays_within_the_bound(void**) {
  constexpr std::size_t kSenders = 40;
  constexpr int kMessages = 100;
  for (const std::uint32_t shared : {0u, 7u, 100u}) {
    Senders n(sharing(shared), kSenders + 1);
    for (int i = 0; i < kMessages; ++i)
      for (PeerId from = 0; from < kSenders; ++from) n.send(from, 1);
    n.s.net.run();
    assert_true(n.s.net.borrowed(n.at) <= shared);
    n.receive_all();
    assert_int_equal(n.s.net[n.at].unexpected(), 0);
    assert_true(n.s.net.failures.empty());
  }
}

// With long messages, and beyond what unexpected ones may take: nobody waits for ever.
void a_storm_of_pieces_is_received_in_any_order(void**) {
  constexpr std::size_t kSenders = 8;
  for (const unsigned seed : {1u, 2u, 3u, 4u, 5u}) {
    std::mt19937 random(seed);
    Tuning t = small_tuning();
    t.eager_piece = 16;
    t.receive_memory = 15 * Link::receive_octets(t);
    t.unexpected_limit = 10'000;
    t.copy_limit = random() % 2 == 0 ? 1 << 20 : 200;
    Senders n(t, kSenders + 1);
    n.s.net.depth = 1 + random() % 31;
    for (PeerId from = 0; from < kSenders; ++from) n.s.connect(from, n.at);
    std::vector<std::vector<Scene::Transfer*>> sent(kSenders);
    for (int i = 0; i < 200; ++i)
      for (PeerId from = 0; from < kSenders; ++from)
        sent[from].push_back(&n.s.send(from, n.at, 1, 1 + random() % (random() % 2 == 0 ? 8 : 64)));
    n.s.net.run();
    assert_true(n.s.count(n.at, Count::credits_held_back) >= kSenders);
    for (std::size_t i = 0; i < 200; ++i)
      for (PeerId from = 0; from < kSenders; ++from) {
        auto& received = n.s.receive(n.at, from, 1, 64);
        for (auto moves = random() % 200; moves > 0 && n.s.net.step(); --moves) {
        }
        n.s.net.run();
        n.s.got(received, *sent[from][i]);
        n.s.ends(*sent[from][i]);
      }
  }
}

// --- giving back ---

void an_idle_peer_gives_back_what_it_borrowed(void**) {
  Senders n(sharing(63));
  n.stream({kA}, 1000, 100);
  assert_int_equal(n.window(kA), 64);
  n.stream({kB}, 1000, 100);
  assert_int_equal(n.window(kA), 1);
  assert_int_equal(n.window(kB), 64);
  assert_int_equal(n.s.count(kAt, Count::credits_recalled), 1);
  // And the other way round, as often as it happens.
  for (int i = 0; i < 5; ++i)
    for (const PeerId from : {kA, kB, kC}) {
      n.stream({from}, 1000, 100);
      assert_int_equal(n.window(from), 64);
    }
}

void the_one_that_was_idle_for_longest_is_asked(void**) {
  Senders n(sharing(61));
  n.stream({kA}, 10, 10);
  n.stream({kB}, 10, 10);
  const std::size_t of_b = n.window(kB);
  assert_true(n.window(kA) > 1 && of_b > 1);
  n.stream({kC}, 1000, 100);
  assert_int_equal(n.window(kA), 1);
  assert_int_equal(n.window(kB), 1);  // that was not enough
  assert_int_equal(n.window(kC), 62);
}

void a_dead_peer_gives_back_what_it_borrowed(void**) {
  Senders n(sharing(63));
  n.stream({kA}, 1000, 100);
  assert_int_equal(n.window(kA), 64);
  n.s.net.kill(kA);
  n.stream({kB}, 1000, 100);
  assert_int_equal(n.window(kB), 64);
  assert_int_equal(n.s.count(kAt, Count::credits_recalled), 0);
}

// Neither takes everything, nor do they take it from each other for ever.
void busy_peers_come_to_share(void**) {
  Senders n(sharing(61));
  n.stream({kA}, 1000, 100);
  assert_int_equal(n.window(kA), 62);
  n.stream({kA, kB}, 2000, 50);
  assert_in_range(n.window(kA), 16, 48);
  assert_in_range(n.window(kB), 16, 48);
  const std::size_t a = n.window(kA), b = n.window(kB);
  n.stream({kA, kB}, 1000, 50);
  assert_int_equal(n.window(kA), a);
  assert_int_equal(n.window(kB), b);
}

// A peer that is answered message by message has no use for its window, and another one wants some of it.
void a_window_that_shrinks_for_two_reasons_takes_back_nothing(void**) {
  Senders n(sharing(61));
  n.stream({kA}, 1000, 100);
  for (int i = 0; i < 100; ++i) {
    n.send(kA, 1);
    n.s.net.run();
    auto& answer = n.s.send(n.at, kA, 1, kSmall);
    n.send(kB, 10);
    n.s.net.run();
    auto& received = n.s.receive(kA, n.at, 1, kSmall);
    n.s.got(received, answer);
  }
  n.receive_all();
  assert_true(n.window(kA) < 31);
}

// A peer that computes, or means harm, does not answer. The others go on with what they have.
void who_does_not_give_back_stops_nobody(void**) {
  Senders n(sharing(31));
  n.stream({kA}, 1000, 100);
  n.s.connect(kB, n.at);
  n.s.connect(kC, n.at);
  bool asked = false;
  for (int i = 0; i < 300; ++i) {
    n.send(kB, 1);
    n.send(kC, 1);
    // All but what goes to the silent one.
    for (bool moved = true; moved;) {
      moved = false;
      for (const PeerId p : {kB, kC}) moved = n.s.net.deliver(p, n.at) || n.s.net.deliver(n.at, p) || moved;
      n.s.net.complete(kB, n.at), n.s.net.complete(kC, n.at), n.s.net.complete(n.at, kB), n.s.net.complete(n.at, kC);
    }
    asked = asked || n.s.count(n.at, Count::credits_recalled) == 1;
  }
  assert_true(asked);
  assert_int_equal(n.s.net[n.at].unexpected(), 600);
  assert_int_equal(n.window(kA), 32);
  n.s.net.run();  // it answers at last
  assert_int_equal(n.window(kA), 1);
  n.receive_all();
}

// What is asked for is under way when the peer begins to send again.
void a_peer_that_is_asked_may_send_meanwhile(void**) {
  Senders n(sharing(31));
  n.stream({kA}, 1000, 100);
  n.send(kB, 200);
  n.send(kA, 10);
  n.s.net.run();
  n.send(kA, 300);
  n.s.net.run();
  n.receive_all();
  n.stream({kA}, 1000, 100);
  assert_int_equal(n.window(kA), 32);
}

// --- peers of another mind ---

void says(Senders& n, PeerId from, wire::Kind kind, std::uint8_t flags = 0) {
  wire::Message m;
  m.kind = kind;
  m.flags = flags;
  n.s.net.forge(from, n.at, octets_of(m));
}

// The receives of each peer are its own: nobody else is concerned.
void a_message_without_a_credit_ends_the_connection(void**) {
  Senders n(sharing(11));
  n.s.connect(kA, n.at);
  n.s.connect(kB, n.at);
  n.s.net.depth = 0;  // so it is told of no more
  int taken = 0;
  while (n.s.net.failures.empty() && taken < 100) says(n, kA, wire::Kind::unused), ++taken;
  assert_string_equal(n.s.net.failures[0].c_str(), "a message without a credit");
  assert_int_equal(taken, 3);  // it has two credits
  n.s.net.depth = 64;
  n.s.net.run();
  assert_int_equal(static_cast<int>(n.s.net[n.at].peer_state(kA)), static_cast<int>(Link::State::down));
  n.stream({kB}, 1000, 100);
  assert_int_equal(n.window(kB), 12);
}

void a_write_without_a_credit_ends_the_connection(void**) {
  Senders n(sharing(11));
  n.s.connect(kA, n.at);
  n.s.net.depth = 0;
  for (int i = 0; i < 2; ++i) says(n, kA, wire::Kind::unused);
  n.s.net.forge_immediate(kA, n.at, 5, 0);
  assert_string_equal(n.s.net.failures[0].c_str(), "a Write without a credit");
}

Bytes recall(std::uint64_t keep, std::uint32_t credits = 0) {
  wire::Message m;
  m.kind = wire::Kind::recall;
  m.number = keep;
  m.credits = credits;
  return octets_of(m);
}

// Without having been asked, again and again: it keeps its own.
void credits_may_be_given_up_unasked(void**) {
  Senders n(sharing(11));
  n.stream({kA}, 1000, 100);
  assert_int_equal(n.window(kA), 12);
  for (int i = 0; i < 10; ++i) {
    n.s.net.forge(n.at, kA, recall(0));
    n.s.net.run();
    assert_true(n.window(kA) >= 1);
  }
  n.stream({kA}, 1000, 100);
  assert_int_equal(n.window(kA), 12);
}

// Two thousand million credits, which it wants back: they take no memory while the path takes nothing.
void a_recall_of_more_than_there_is_takes_no_memory(void**) {
  Senders n(sharing(11));
  n.s.connect(kA, n.at);
  n.s.net.run();
  n.s.net.depth = 0;
  for (int i = 0; i < 3; ++i) n.s.net.forge(n.at, kA, recall(0, 0x7fffffff));
  assert_int_equal(n.s.net.in_flight(kA, n.at), 0);
  n.s.net.kill(n.at);  // which has no receives for them
}

// What the program sends meanwhile waits for no more than the path holds.
void a_message_passes_what_a_recall_asks_for(void**) {
  Senders n(sharing(63));
  n.stream({kA}, 1000, 100);
  n.s.net.depth = 4;
  n.s.net.forge(n.at, kA, recall(0));
  auto& sent = n.s.send(kA, n.at, 2, kSmall);
  for (int i = 0; i < 6; ++i) {
    assert_true(n.s.net.in_flight(kA, n.at) <= 4);
    n.s.net.deliver(kA, n.at);
    n.s.net.complete(kA, n.at);
  }
  assert_int_equal(n.s.net[n.at].unexpected(), 1);
  auto& received = n.s.receive(n.at, kA, 2, kSmall);
  n.s.net.run();
  n.s.got(received, sent);
  assert_int_equal(n.window(kA), 1);
}

}  // namespace
}  // namespace ewarp::channel::test

int main() {
  using namespace ewarp::channel::test;
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_window_grows_as_far_as_there_are_receives),
      cmocka_unit_test(a_storm_stays_within_the_bound),
      cmocka_unit_test(a_storm_of_pieces_is_received_in_any_order),
      cmocka_unit_test(an_idle_peer_gives_back_what_it_borrowed),
      cmocka_unit_test(the_one_that_was_idle_for_longest_is_asked),
      cmocka_unit_test(a_dead_peer_gives_back_what_it_borrowed),
      cmocka_unit_test(busy_peers_come_to_share),
      cmocka_unit_test(a_window_that_shrinks_for_two_reasons_takes_back_nothing),
      cmocka_unit_test(who_does_not_give_back_stops_nobody),
      cmocka_unit_test(a_peer_that_is_asked_may_send_meanwhile),
      cmocka_unit_test(a_message_without_a_credit_ends_the_connection),
      cmocka_unit_test(a_write_without_a_credit_ends_the_connection),
      cmocka_unit_test(credits_may_be_given_up_unasked),
      cmocka_unit_test(a_recall_of_more_than_there_is_takes_no_memory),
      cmocka_unit_test(a_message_passes_what_a_recall_asks_for),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
