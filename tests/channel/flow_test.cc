// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What goes along with the protocols: credits, copies, releases, adaptation, cancelling, probes, messages to oneself.
#include "tests/channel/scene.h"

using namespace ewarp::channel;
using namespace ewarp::channel::test;

namespace {

// --- credits and copies ---

void one_way_traffic_never_starves_for_credits(void**) {
  for (const std::uint32_t depth : {1u, 2u, 3u, 64u}) {
    Tuning t = small_tuning();
    t.receive_depth = depth;
    Scene s(t);
    std::vector<Scene::Transfer*> sent;
    for (int i = 0; i < 300; ++i) sent.push_back(&s.send(kS, kR, 1, kSmall));
    s.net.run();
    for (auto* each : sent) {
      auto& received = s.receive(kR, kS, 1, kSmall);
      s.got(received, *each);
      s.ends(*each);
    }
  }
}

void both_ways_with_one_credit_each(void**) {
  Tuning t = small_tuning();
  t.receive_depth = 1;
  Scene s(t);
  std::vector<std::pair<Scene::Transfer*, Scene::Transfer*>> pairs;
  for (int i = 0; i < 100; ++i)
    for (const PeerId from : {kS, kR}) {
      auto& sent = s.send(from, 1 - from, 1, i % 3 == 0 ? kLarge : i % 3 == 1 ? kMedium : kSmall);
      pairs.emplace_back(&sent, &s.receive(1 - from, from, 1, kLarge));
    }
  s.net.run();
  for (auto& [sent, received] : pairs) {
    s.got(*received, *sent);
    s.ends(*sent);
  }
}

// What is sent at once, and then answered once.
void bursts(Scene& s, int rounds, int messages) {
  for (int round = 0; round < rounds; ++round) {
    std::vector<std::pair<Scene::Transfer*, Scene::Transfer*>> pairs;
    const auto send = [&](PeerId from) {
      auto& sent = s.send(from, 1 - from, 1, kSmall);
      pairs.emplace_back(&sent, &s.receive(1 - from, from, 1, kSmall));
    };
    for (int i = 0; i < messages; ++i) send(kS);
    s.net.run();
    send(kR);
    s.net.run();
    for (auto& [sent, received] : pairs) s.got(*received, *sent), s.ends(*sent);
  }
}

void the_window_of_receives_follows_the_traffic(void**) {
  constexpr std::size_t kConversation = Link::receives(2), kMost = Link::receives(64);
  constexpr std::size_t kSmallest = Link::receives(7);  // where one message is a quarter of it
  Scene s;
  bursts(s, 100, 1);  // the first credit is returned by a note, so there are two; then by each answer
  assert_int_equal(s.net.receives(kS, kR), kConversation);
  assert_int_equal(s.net.receives(kR, kS), kConversation);
  assert_int_equal(s.count(kR, Count::notes), 1);
  bursts(s, 3, 64);
  assert_int_equal(s.net.receives(kS, kR), kMost);
  assert_int_equal(s.net.receives(kR, kS), kConversation);
  bursts(s, 100, 64);
  assert_int_equal(s.net.receives(kS, kR), kMost);  // that is what they need
  bursts(s, 16 * 64, 1);
  assert_int_equal(s.net.receives(kS, kR), kSmallest);
  bursts(s, 3, 64);
  assert_int_equal(s.net.receives(kS, kR), kMost);
}

// --- messages that nobody asks for ---

// What stays with the receiver of messages that it does not ask for, from `senders` peers.
void unexpected_messages_are_bounded(void**) {
  constexpr int kMessages = 2000;
  constexpr std::size_t kSenders = 3, kLimit = 64 << 10;
  Tuning t = small_tuning();
  t.receive_depth = 16;
  t.unexpected_limit = kLimit;
  t.copy_limit = 0;
  Scene s(t, kSenders + 1);
  const PeerId at = kSenders;
  std::vector<std::vector<Scene::Transfer*>> sent(kSenders);
  for (int i = 0; i < kMessages; ++i)
    for (PeerId from = 0; from < kSenders; ++from) sent[from].push_back(&s.send(from, at, 1, kSmall));
  s.net.run();
  const std::size_t most = kLimit / (sizeof(Stored) + kSmall) + 1 + kSenders * t.receive_depth;
  assert_in_range(s.net[at].unexpected(), kLimit / (sizeof(Stored) + kSmall), most);
  assert_int_equal(s.count(at, Count::credits_held_back), kSenders);
  // What was not sent is not lost, and comes in order when the program asks.
  for (int i = 0; i < kMessages; ++i)
    for (PeerId from = 0; from < kSenders; ++from) {
      auto& received = s.receive(at, from, 1, kSmall);
      s.net.run();
      s.got(received, *sent[from][static_cast<std::size_t>(i)]);
      s.ends(*sent[from][static_cast<std::size_t>(i)]);
      assert_true(s.net[at].unexpected() <= most);
    }
  assert_int_equal(s.net[at].unexpected(), 0);
  // And the way is free again.
  bursts(s, 3, 64);
}

Tuning nearly_nothing_unexpected() {
  Tuning t = small_tuning();
  t.receive_depth = 16;
  t.unexpected_limit = 4 << 10;
  return t;
}

// One sender's messages fill the memory; those of another are received one by one.
void who_is_waited_for_is_not_held(void**) {
  constexpr PeerId kA = 0, kB = 1, kAt = 2;
  for (const bool probes : {false, true})
    for (const bool anybody : {false, true}) {
      Scene s(nearly_nothing_unexpected(), 3);
      std::vector<Scene::Transfer*> a, b;
      for (int i = 0; i < 200; ++i) a.push_back(&s.send(kA, kAt, 1, kSmall)), b.push_back(&s.send(kB, kAt, 2, kSmall));
      s.net.run();
      assert_int_equal(s.count(kAt, Count::credits_held_back), 2);
      const std::size_t held = s.net[kAt].unexpected();
      for (auto* sent : a) {
        if (probes) {
          s.net[kAt].probe(anybody ? kAnySource : kA, 1, 0);
          s.net.run();
          assert_true(s.net[kAt].probe(anybody ? kAnySource : kA, 1, 0).has_value());
        }
        auto& received = s.receive(kAt, anybody ? kAnySource : kA, 1, kSmall);
        s.net.run();
        s.got(received, *sent);
      }
      if (!anybody) assert_true(s.net[kAt].unexpected() <= held + 16);  // of B, nothing more has come
      for (auto* sent : b) {
        auto& received = s.receive(kAt, kB, 2, kSmall);
        s.net.run();
        s.got(received, *sent);
      }
    }
}

// A message that was announced before its sender was held: the Write that brings it uses a credit.
void a_message_that_a_held_peer_has_announced_is_received(void**) {
  Scene s(nearly_nothing_unexpected());
  auto& first = s.send(kS, kR, 2, kLarge);
  for (int i = 0; i < 500; ++i) s.send(kS, kR, 1, kSmall);
  s.net.run();
  assert_int_equal(s.count(kR, Count::credits_held_back), 1);
  auto& received = s.receive(kR, kS, 2, kLarge);
  s.net.run();
  s.got(received, first);
  s.ends(first);
}

// As in a barrier, or an answer, behind any number of sends.
void what_is_behind_unexpected_messages_comes_when_it_is_asked_for(void**) {
  for (const std::size_t size : {kSmall, kMedium, kLarge}) {
    Scene s(nearly_nothing_unexpected());
    std::vector<Scene::Transfer*> sent;
    for (int i = 0; i < 500; ++i) sent.push_back(&s.send(kS, kR, 1, kSmall));
    auto& last = s.send(kS, kR, 2, size);
    s.net.run();
    assert_true(s.net[kR].unexpected() < 100);
    auto& first = s.receive(kR, kS, 2, size);
    s.net.run();
    s.got(first, last);
    for (auto* each : sent) {
      auto& received = s.receive(kR, kS, 1, kSmall);
      s.net.run();
      s.got(received, *each);
    }
  }
}

// Its answer is behind its messages.
void a_send_to_a_peer_that_is_held_ends(void**) {
  Scene s(nearly_nothing_unexpected());
  for (int i = 0; i < 500; ++i) s.send(kS, kR, 1, kSmall);
  auto& received = s.receive(kS, kAnySource, 2, kLarge);
  s.net.run();
  assert_int_equal(s.count(kR, Count::credits_held_back), 1);
  auto& sent = s.send(kR, kS, 2, kLarge, true);
  s.net.run();
  s.got(received, sent);
  s.ends(sent);
}

void without_a_limit_all_of_them_are_kept(void**) {
  Tuning t = small_tuning();
  t.unexpected_limit = 0;
  Scene s(t);
  for (int i = 0; i < 2000; ++i) s.send(kS, kR, 1, kSmall);
  s.net.run();
  assert_int_equal(s.net[kR].unexpected(), 2000);
  assert_int_equal(s.count(kR, Count::credits_held_back), 0);
}

// A held link still carries what goes the other way, and Writes that need no credit of this side.
void a_peer_that_waits_for_credits_still_receives(void**) {
  Tuning t = small_tuning();
  t.unexpected_limit = 1 << 10;
  Scene s(t);
  for (int i = 0; i < 500; ++i) s.send(kS, kR, 1, kSmall);
  s.net.run();
  assert_int_equal(s.count(kR, Count::credits_held_back), 1);
  std::vector<std::pair<Scene::Transfer*, Scene::Transfer*>> pairs;
  for (int i = 0; i < 200; ++i) {
    auto& received = s.receive(kS, kR, 2, kSmall);
    pairs.emplace_back(&s.send(kR, kS, 2, kSmall), &received);
    s.net.run();
  }
  for (auto& [sent, received] : pairs) s.got(*received, *sent), s.ends(*sent);
}

void where_no_receives_can_be_added_the_window_stays(void**) {
  Scene s;
  s.net.refuse_receives = true;
  bursts(s, 20, 64);
  assert_int_equal(s.net.receives(kS, kR), Link::receives(Link::kFirstWindow));
}

void a_free_path_costs_no_copy_a_full_one_does(void**) {
  Scene s;
  s.net.depth = 1;
  s.connect();
  const auto before = s.count(kS, Count::eager_copies);
  auto& first = s.send(kS, kR, 1, kSmall);
  assert_false(s.done(first));  // its octets are still the adapter's
  assert_int_equal(s.count(kS, Count::eager_copies), before);
  auto& second = s.send(kS, kR, 1, kSmall);
  s.ends(second);
  assert_int_equal(s.count(kS, Count::eager_copies), before + 1);
  std::fill(second.data.begin(), second.data.end(), std::byte{0});
  s.net.run();
  s.ends(first);
  auto& r1 = s.receive(kR, kS, 1, kSmall);
  auto& r2 = s.receive(kR, kS, 1, kSmall);
  s.got(r1, first);
  s.got(r2, second);
}

void copies_are_bounded(void**) {
  Tuning t = small_tuning();
  t.copy_limit = 3 * kSmall;
  Scene s(t);
  std::vector<Scene::Transfer*> sent;
  for (int i = 0; i < 10; ++i) sent.push_back(&s.send(kS, kR, 1, kSmall));
  for (std::size_t i = 0; i < sent.size(); ++i) assert_int_equal(s.done(*sent[i]), i < 3);
  s.net.run();
  for (auto* each : sent) {
    auto& received = s.receive(kR, kS, 1, kSmall);
    s.got(received, *each);
    s.ends(*each);
  }
}

// --- HYBRID's buffers ---

void releases_ride_along(void**) {
  Scene s;
  s.connect();
  for (int i = 0; i < 100; ++i)
    for (const PeerId from : {kS, kR}) {
      auto& sent = s.send(from, 1 - from, 1, kMedium);
      s.net.run();
      auto& received = s.receive(1 - from, from, 1, kMedium);
      s.net.run();
      s.got(received, sent);
      s.ends(sent);
    }
  for (const PeerId node : {kS, kR}) {
    assert_int_equal(s.count(node, Count::hybrid), 100);
    assert_int_equal(s.count(node, Count::hybrid_without_buffer), 0);
    assert_true(s.count(node, Count::releases_piggybacked) >= 90);
    assert_true(s.count(node, Count::notes) <= 1);  // the first window is soon used up
  }
}

void one_way_releases_come_in_batches(void**) {
  Scene s;
  s.connect();
  for (int i = 0; i < 160; ++i) {
    auto& sent = s.send(kS, kR, 1, kMedium);
    s.net.run();
    auto& received = s.receive(kR, kS, 1, kMedium);
    s.net.run();
    s.got(received, sent);
  }
  assert_int_equal(s.count(kS, Count::hybrid), 160);
  assert_in_range(s.count(kR, Count::notes), 10, 160 / Link::kReleaseBatch + 3);
}

void without_a_buffer_the_sender_waits_for_its_receiver(void**) {
  Tuning t = small_tuning();
  t.hybrid_buffers = 2;
  Scene s(t);
  s.connect();
  std::vector<Scene::Transfer*> sent;
  for (int i = 0; i < 4; ++i) sent.push_back(&s.send(kS, kR, 1, kMedium));
  for (std::size_t i = 0; i < sent.size(); ++i) assert_int_equal(s.done(*sent[i]), i < 2);
  assert_int_equal(s.count(kS, Count::hybrid_without_buffer), 2);
  for (auto* each : sent) {
    auto& received = s.receive(kR, kS, 1, kMedium);
    s.net.run();
    s.got(received, *each);
    s.ends(*each);
  }
}

void leaving_waits_for_the_buffers(void**) {
  Scene s;
  s.connect();
  auto& sent = s.send(kS, kR, 1, kMedium);
  s.ends(sent);
  s.net[kS].begin_close();
  s.net.run();
  assert_false(s.net[kS].idle());
  auto& received = s.receive(kR, kS, 1, kMedium);
  s.net.run();
  s.got(received, sent);
  assert_true(s.net[kS].idle());
}

// --- adaptation ---

void wasted_announcements_stop_and_resume(void**) {
  Scene s;
  s.connect();
  const auto receiver_first = [&s](std::size_t size) {
    auto& received = s.receive(kR, kS, 1, kLarge);
    s.net.run();
    auto& sent = s.send(kS, kR, 1, size);
    s.net.run();
    s.got(received, sent);
  };
  for (int i = 0; i < 50; ++i) receiver_first(kSmall);
  assert_int_equal(s.count(kR, Count::announced), 8);
  assert_int_equal(s.count(kR, Count::announcements_withheld), 42);
  // Another tag of the same peer is not concerned.
  auto& other = s.receive(kR, kS, 2, kLarge);
  assert_int_equal(s.count(kR, Count::announced), 9);
  // Silent monitoring sees that they would be used again.
  for (int i = 0; i < 50; ++i) receiver_first(kLarge);
  assert_true(s.count(kS, Count::recv_rndv) >= 50 - 16);
  assert_true(s.count(kR, Count::announcements_used) >= 50 - 16);
  auto& sent = s.send(kS, kR, 2, kLarge);
  s.net.run();
  s.got(other, sent);
}

// Together: medium messages cross with the announcement, which is useless; large ones use it.
void crossing_counts_as_waste_only_where_it_is(void**) {
  for (const std::size_t size : {kMedium, kLarge}) {
    Scene s;
    s.connect();
    for (int i = 0; i < 50; ++i) {
      auto& received = s.receive(kR, kS, 1, size);
      auto& sent = s.send(kS, kR, 1, size);
      s.net.run();
      s.got(received, sent);
    }
    assert_int_equal(s.count(kR, Count::announced), size == kMedium ? 8 : 50);
  }
}

// --- cancel ---

void a_receive_that_announced_nothing_is_cancelled_at_once(void**) {
  Scene s;
  s.connect();
  auto& exact = s.receive(kR, kS, 1, kSmall);
  auto& wild = s.receive(kR, kAnySource, 1, kLarge);
  s.net[kR].cancel(exact.request);
  s.net[kR].cancel(wild.request);
  s.ends(exact, Error::cancelled);
  s.ends(wild, Error::cancelled);
  assert_int_equal(s.count(kR, Count::retractions), 0);
  auto& sent = s.send(kS, kR, 1, kSmall);
  s.net.run();
  auto& received = s.receive(kR, kS, 1, kSmall);
  s.got(received, sent);
}

void an_announced_receive_is_cancelled_with_the_peer(void**) {
  Scene s;
  s.connect();
  auto& gone = s.receive(kR, kS, 1, kLarge);
  auto& stays = s.receive(kR, kS, 1, kLarge);
  s.net.run();
  s.net[kR].cancel(gone.request);
  s.net[kR].cancel(gone.request);
  assert_false(s.done(gone));
  s.net.run();
  s.ends(gone, Error::cancelled);
  assert_int_equal(s.count(kR, Count::retractions), 1);
  auto& sent = s.send(kS, kR, 1, kLarge);
  s.net.run();
  s.got(stays, sent);
  auto& next = s.receive(kR, kS, 1, kLarge);
  s.net.run();
  auto& more = s.send(kS, kR, 1, kLarge);
  s.net.run();
  s.got(next, more);
  assert_int_equal(s.count(kS, Count::recv_rndv), 1);  // numbers are right again
}

void a_silent_receive_before_announced_ones_is_cancelled_with_the_peer(void**) {
  Scene s;
  s.connect();
  auto& gone = s.receive(kR, kS, 1, kSmall);
  auto& stays = s.receive(kR, kS, 1, kLarge);
  s.net.run();
  s.net[kR].cancel(gone.request);
  s.net.run();
  s.ends(gone, Error::cancelled);
  auto& sent = s.send(kS, kR, 1, kLarge);
  s.net.run();
  s.got(stays, sent);
}

// The message is under way when the receive is cancelled: it wins.
void a_message_wins_over_a_cancel(void**) {
  for (const std::size_t size : {kSmall, kMedium, kLarge}) {
    Scene s;
    s.connect();
    auto& received = s.receive(kR, kS, 1, kLarge);
    s.net.run();
    auto& sent = s.send(kS, kR, 1, size);
    s.net[kR].cancel(received.request);
    s.net.run();
    s.got(received, sent);
    assert_int_equal(s.count(kR, Count::cancelled), 0);
  }
}

void a_receive_in_progress_is_not_cancelled(void**) {
  Scene s;
  s.connect();
  auto& sent = s.send(kS, kR, 1, kLarge);
  s.net.run();
  auto& received = s.receive(kR, kS, 1, kLarge);
  s.net[kR].cancel(received.request);
  s.net.run();
  s.got(received, sent);
}

// --- probes, messages to oneself, synchronous sends, one-sided ---

void probes_see_what_has_come(void**) {
  Scene s;
  s.connect();
  assert_false(s.net[kR].probe(kS, 1, 0).has_value());
  std::vector<Scene::Transfer*> sent;
  for (const std::size_t size : {kSmall, kMedium, kLarge}) sent.push_back(&s.send(kS, kR, 1, size));
  s.net.run();
  assert_int_equal(s.net[kR].probe(kAnySource, 0, kAnyTag)->length, kSmall);
  Status status;
  auto message = s.net[kR].matched_probe(kS, 1, 0, &status);
  assert_int_equal(status.length, kSmall);
  // What was taken out is nobody else's.
  assert_int_equal(s.net[kR].probe(kS, 1, 0)->length, kMedium);
  auto& r2 = s.receive(kR, kS, 1, kLarge);
  s.net.run();
  s.got(r2, *sent[1]);
  auto large = s.net[kR].matched_probe(kS, 1, 0, &status);
  assert_int_equal(status.length, kLarge);
  for (auto* taken : {&message, &large}) {
    Bytes data(kLarge);
    const Request r = s.net[kR].receive_matched(*taken, data);
    s.net.run();
    const auto got = s.net[kR].test(r);
    const Scene::Transfer& from = taken == &message ? *sent[0] : *sent[2];
    assert_int_equal(got->length, from.data.size());
    assert_memory_equal(data.data(), from.data.data(), from.data.size());
  }
}

void messages_to_oneself(void**) {
  for (const std::size_t size : {std::size_t{0}, kSmall, kMedium, kLarge})
    for (const bool receive_first : {false, true}) {
      Scene s;
      Scene::Transfer* received = receive_first ? &s.receive(kS, kAnySource, 1, kMedium) : nullptr;
      auto& sent = s.send(kS, kS, 1, size);
      assert_int_equal(s.done(sent), receive_first || size <= kMedium);
      if (received == nullptr) received = &s.receive(kS, kS, 1, kMedium);
      s.got(*received, sent, size > kMedium ? Error::truncated : Error::none);
      s.ends(sent);
      assert_int_equal(s.count(kS, Count::self), 1);
    }
}

void a_synchronous_send_waits_for_its_receive(void**) {
  for (const std::size_t size : {std::size_t{0}, kSmall, kMedium, kLarge}) {
    Scene s;
    s.connect();
    auto& sent = s.send(kS, kR, 1, size, true);
    auto& own = s.send(kS, kS, 1, size, true);
    s.net.run();
    assert_false(s.done(sent));
    assert_false(s.done(own));
    auto& received = s.receive(kR, kS, 1, kLarge);
    auto& mine = s.receive(kS, kS, 1, kLarge);
    s.net.run();
    s.got(received, sent);
    s.got(mine, own);
    s.ends(sent);
    s.ends(own);
  }
}

void put_and_get(void**) {
  for (const std::size_t longest : {1000, 16}) {  // of one Write or Read
    Scene s;
    Bytes window(100), source = pattern(kS, 1, 40), back(40);
    // The window's key comes out of a receive's announcement, as the machine itself exposes nothing else.
    s.connect();
    s.net.longest = longest;
    const Request r = s.net[kR].receive(kS, 5, 0, window);
    const auto announcement = s.net.head(kR, kS);
    assert_true(announcement && announcement->kind == wire::Kind::receiver_ready);
    wire::Remote remote = announcement->remote;
    remote.address += 8;
    const Request put = s.net[kS].put(kR, source, remote);
    const Request get = s.net[kS].get(kR, back, remote);
    s.net.run();
    assert_true(s.net[kS].test(put)->error == Error::none);
    assert_true(s.net[kS].test(get)->error == Error::none);
    assert_memory_equal(window.data() + 8, source.data(), source.size());
    assert_memory_equal(back.data(), source.data(), source.size());
    s.net[kR].cancel(r);
    s.net.run();
  }
}

// --- what wakes a progress thread ---

// Names of what reached `to`; with an exclamation mark what raised an event at a node that waits for control messages.
class Heard {
 public:
  explicit Heard(Net& net, PeerId to = kR) {
    net.on_delivery = [this, to](PeerId, PeerId node, const Packet& p) {
      if (node != to) return;
      if (!text.empty()) text += ' ';
      text += p.header.empty() ? "Write" : kNames.at(static_cast<wire::Kind>(p.header[0]));
      if (p.solicited) text += '!';
    };
  }
  std::string text;

 private:
  const std::map<wire::Kind, const char*> kNames = {{wire::Kind::eager, "EAGER"},
                                                    {wire::Kind::sender_ready, "SENDER_READY"},
                                                    {wire::Kind::receiver_ready, "RECEIVER_READY"},
                                                    {wire::Kind::written, "WRITTEN"},
                                                    {wire::Kind::note, "NOTE"}};
};

void what_only_ends_a_request_wakes_nobody(void**) {
  for (const bool immediate : {true, false}) {
    Scene s;
    s.net.immediate = immediate;
    s.connect_widely();
    const Heard receiver(s.net);
    s.send(kS, kR, 1, kSmall);
    s.net.run();
    s.send(kS, kR, 2, kLarge);
    s.net.run();
    s.receive(kR, kS, 2, kLarge);
    s.net.run();
    assert_string_equal(receiver.text.c_str(), immediate ? "EAGER SENDER_READY! Write" : "EAGER SENDER_READY! WRITTEN");
  }
  Tuning by_read = small_tuning();
  by_read.rendezvous_by_read = true;
  Scene r(by_read);
  r.connect_widely();
  const Heard released(r.net, kS);
  r.send(kS, kR, 1, kLarge);
  r.net.run();
  r.receive(kR, kS, 1, kLarge);
  r.net.run();
  assert_string_equal(released.text.c_str(), "NOTE");
  Scene s;
  s.connect();
  const Heard sender(s.net, kS);
  s.receive(kR, kS, 1, kLarge);
  s.net.run();
  assert_string_equal(sender.text.c_str(), "RECEIVER_READY!");
}

// Else a peer that computes would return none, and what is behind the last credit would wait for its application.
void the_last_credits_wake_the_peer(void**) {
  for (const std::uint32_t depth : {1u, 2u, 8u}) {
    Tuning t = small_tuning();
    t.receive_depth = depth;
    Scene s(t);
    s.connect();
    unsigned solicited = 0, since = 0, longest = 0;
    s.net.on_delivery = [&](PeerId, PeerId node, const Packet& p) {
      if (node != kR) return;
      solicited += p.solicited ? 1 : 0;
      since = p.solicited ? 0 : since + 1;
      longest = std::max(longest, since);
    };
    for (int i = 0; i < 40; ++i) s.send(kS, kR, 1, kSmall);
    s.net.run();
    assert_true(solicited >= 40 / depth);
    assert_true(longest <= depth / 2);  // the credits that are returned at once
  }
}

void what_is_waited_for_follows_the_requests(void**) {
  const auto wakes = [](Scene& s, PeerId node, Wake wake) {
    assert_int_equal(static_cast<int>(s.net[node].wake_for()), static_cast<int>(wake));
  };
  for (const bool by_read : {false, true}) {
    Tuning t = small_tuning();
    t.rendezvous_by_read = by_read;
    t.announce = !by_read;
    Scene s(t);
    s.connect();
    s.receive(kR, kS, 1, kSmall);
    wakes(s, kR, Wake::nothing);
    auto& first = s.receive(kR, kS, 2, kLarge);
    wakes(s, kR, Wake::control);  // SENDER_READY may come
    s.net.run();
    auto& sent = s.send(kS, kR, 2, kLarge);
    if (by_read) {
      wakes(s, kS, Wake::control);
      assert_true(s.net.deliver(kS, kR));
      wakes(s, kR, Wake::everything);  // the sender waits for the end of the Read
    } else {
      wakes(s, kS, Wake::control);  // it is being written
    }
    s.net.run();
    s.got(first, sent);
    s.ends(sent);
    wakes(s, kS, Wake::nothing);
    wakes(s, kR, Wake::nothing);
  }
  Scene s;
  s.connect();
  s.net.depth = 1;
  s.send(kS, kR, 1, kSmall);
  wakes(s, kS, Wake::nothing);
  s.send(kS, kR, 1, kSmall);
  wakes(s, kS, Wake::everything);  // to be handed over when the first is complete
  s.net.run();
  wakes(s, kS, Wake::nothing);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(one_way_traffic_never_starves_for_credits),
      cmocka_unit_test(both_ways_with_one_credit_each),
      cmocka_unit_test(the_window_of_receives_follows_the_traffic),
      cmocka_unit_test(where_no_receives_can_be_added_the_window_stays),
      cmocka_unit_test(unexpected_messages_are_bounded),
      cmocka_unit_test(who_is_waited_for_is_not_held),
      cmocka_unit_test(a_message_that_a_held_peer_has_announced_is_received),
      cmocka_unit_test(what_is_behind_unexpected_messages_comes_when_it_is_asked_for),
      cmocka_unit_test(a_send_to_a_peer_that_is_held_ends),
      cmocka_unit_test(without_a_limit_all_of_them_are_kept),
      cmocka_unit_test(a_peer_that_waits_for_credits_still_receives),
      cmocka_unit_test(a_free_path_costs_no_copy_a_full_one_does),
      cmocka_unit_test(copies_are_bounded),
      cmocka_unit_test(releases_ride_along),
      cmocka_unit_test(one_way_releases_come_in_batches),
      cmocka_unit_test(without_a_buffer_the_sender_waits_for_its_receiver),
      cmocka_unit_test(leaving_waits_for_the_buffers),
      cmocka_unit_test(wasted_announcements_stop_and_resume),
      cmocka_unit_test(crossing_counts_as_waste_only_where_it_is),
      cmocka_unit_test(a_receive_that_announced_nothing_is_cancelled_at_once),
      cmocka_unit_test(an_announced_receive_is_cancelled_with_the_peer),
      cmocka_unit_test(a_silent_receive_before_announced_ones_is_cancelled_with_the_peer),
      cmocka_unit_test(a_message_wins_over_a_cancel),
      cmocka_unit_test(a_receive_in_progress_is_not_cancelled),
      cmocka_unit_test(probes_see_what_has_come),
      cmocka_unit_test(messages_to_oneself),
      cmocka_unit_test(a_synchronous_send_waits_for_its_receive),
      cmocka_unit_test(put_and_get),
      cmocka_unit_test(what_only_ends_a_request_wakes_nobody),
      cmocka_unit_test(the_last_credits_wake_the_peer),
      cmocka_unit_test(what_is_waited_for_follows_the_requests),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
