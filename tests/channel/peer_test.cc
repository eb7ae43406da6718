// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Peers that end, fall silent or break the protocol: errors for the requests concerned and for nobody else.
#include "tests/channel/scene.h"

using namespace ewarp::channel;
using namespace ewarp::channel::test;

namespace {

constexpr PeerId kMe = 0, kDead = 1, kAlive = 2;

void what_concerns_a_dead_peer_fails_and_nothing_else(void**) {
  for (const bool by_read : {false, true}) {
    Tuning t = small_tuning();
    t.rendezvous_by_read = by_read;
    Scene s(t, 3);
    s.connect(kMe, kDead);
    s.connect(kMe, kAlive);
    auto& eager_there = s.send(kDead, kMe, 1, kSmall);
    s.send(kDead, kMe, 2, kMedium);
    s.send(kDead, kMe, 3, kLarge);
    s.net.run();
    std::vector<Scene::Transfer*> concerned = {
        &s.send(kMe, kDead, 4, kLarge),    &s.receive(kMe, kDead, 5, kLarge),      &s.receive(kMe, kDead, 6, kSmall),
        &s.receive(kMe, kDead, 3, kLarge), &s.receive(kMe, kAnySource, 2, kLarge),
    };
    auto& anybody = s.receive(kMe, kAnySource, 7, kLarge);
    auto& other = s.receive(kMe, kAlive, 8, kLarge);
    auto& to_other = s.send(kMe, kAlive, 9, kLarge);
    s.net.kill(kDead);
    s.net.run();
    for (auto* each : concerned) s.ends(*each, Error::peer_down);
    assert_false(s.done(anybody) || s.done(other) || s.done(to_other));
    // What it had sent in full can still be had; everything new fails at once.
    auto& late = s.receive(kMe, kDead, 1, kLarge);
    const auto status = s.net[kMe].test(late.request);
    assert_true(status && status->error == Error::none && status->length == eager_there.data.size());
    s.ends(s.receive(kMe, kDead, 1, kLarge), Error::peer_down);
    s.ends(s.receive(kMe, kDead, 3, kLarge), Error::peer_down);
    for (const std::size_t size : {kSmall, kMedium, kLarge}) s.ends(s.send(kMe, kDead, 1, size), Error::peer_down);
    // The others go on.
    auto& r9 = s.receive(kAlive, kMe, 9, kLarge);
    auto& s7 = s.send(kAlive, kMe, 7, kLarge);
    auto& s8 = s.send(kAlive, kMe, 8, kLarge);
    s.net.run();
    s.got(anybody, s7);
    s.got(other, s8);
    s.got(r9, to_other);
    assert_int_equal(s.count(kMe, Count::peers_lost), 1);
  }
}

void a_matched_message_of_a_dead_peer_is_an_error(void**) {
  Scene s;
  s.connect(kMe, kDead);
  s.send(kDead, kMe, 1, kLarge);
  s.net.run();
  Status status;
  auto message = s.net[kMe].matched_probe(kDead, 1, 0, &status);
  assert_non_null(message.get());
  s.net.kill(kDead);
  Bytes data(kLarge);
  const Request r = s.net[kMe].receive_matched(message, data);
  assert_true(s.net[kMe].test(r)->error == Error::peer_down);
}

void a_peer_that_cannot_be_reached(void**) {
  Scene s;
  s.net.kill(kDead);
  auto& sent = s.send(kMe, kDead, 1, kSmall);
  auto& large = s.send(kMe, kDead, 1, kLarge);
  auto& received = s.receive(kMe, kDead, 1, kSmall);
  s.net.run();
  // The path was not up, so the small one was copied and done: MPI's buffered send to a peer that then ends.
  s.ends(sent);
  s.ends(large, Error::peer_down);
  s.ends(received, Error::peer_down);
}

void a_silent_peer_is_tried_and_given_up(void**) {
  Scene s;
  s.connect(kMe, kDead);
  const auto half = s.net[kMe].tuning().death_ns / 2 + 1;
  auto& waiting = s.receive(kMe, kDead, 1, kSmall);
  // It answers: nothing happens, however long.
  for (int i = 0; i < 10; ++i) {
    s.net.now += half;
    s.net[kMe].tick();
    s.net.run();
    assert_false(s.done(waiting));
  }
  s.net.silent = true;
  s.net.now += half;
  s.net[kMe].tick();
  s.net.run();
  s.net.now += half;
  s.net[kMe].tick();
  s.net.run();
  s.ends(waiting, Error::peer_down);
}

// Messages wait for credits that a peer in good health does not give (unexpected_limit), and nothing is under way: it
// is not given up. Then it is silent. copies: the sends are done, and nobody waits but their copies.
void a_silent_peer_whose_credits_are_waited_for_is_given_up(void**) {
  for (const bool copies : {false, true}) {
    Tuning t = small_tuning();
    t.unexpected_limit = 1 << 10;
    t.copy_limit = copies ? 1 << 20 : 0;
    Scene s(t);
    s.connect(kMe, kDead);
    const auto half = t.death_ns / 2 + 1;
    const auto pass = [&] {
      s.net.now += half;
      s.net[kMe].tick();
      s.net.run();
    };
    std::vector<Scene::Transfer*> sent;
    for (int i = 0; i < 500; ++i) sent.push_back(&s.send(kMe, kDead, 1, kSmall));
    s.net.run();
    assert_int_equal(s.count(kDead, Count::credits_held_back), 1);
    assert_int_equal(s.done(*sent.back()), copies);
    for (int i = 0; i < 10; ++i) pass();
    assert_int_equal(s.count(kMe, Count::peers_lost), 0);
    s.net.silent = true;
    for (int i = 0; i < 2; ++i) pass();
    assert_int_equal(s.count(kMe, Count::peers_lost), 1);
    s.ends(*sent.back(), copies ? Error::none : Error::peer_down);
    assert_int_equal(s.net[kMe].pending(), 0);
  }
}

void nobody_is_tried_who_is_not_waited_for(void**) {
  Scene s;
  s.connect(kMe, kDead);
  s.net.silent = true;
  for (int i = 0; i < 10; ++i) {
    s.net.now += s.net[kMe].tuning().death_ns;
    s.net[kMe].tick();
    s.net.run();
  }
  assert_int_equal(s.count(kMe, Count::peers_lost), 0);
}

// They are not looked at any more; those that are there still are.
void who_is_there_is_looked_after_when_others_are_lost(void**) {
  Scene s(small_tuning(), 4);
  for (PeerId peer = 1; peer < 4; ++peer) s.connect(kMe, peer);
  auto& waiting = s.receive(kMe, kAlive, 1, kSmall);
  s.net.kill(kDead);
  s.net.kill(3);
  s.net.silent = true;
  for (int i = 0; i < 2; ++i) {
    s.net.now += s.net[kMe].tuning().death_ns / 2 + 1;
    s.net[kMe].tick();
    s.net.run();
  }
  s.ends(waiting, Error::peer_down);
  assert_int_equal(s.count(kMe, Count::peers_lost), 3);
  s.net[kMe].tick();
}

// Each is one message that no correct peer sends.
void a_peer_that_breaks_the_protocol_is_cut_off(void**) {
  using wire::Kind;
  using wire::Message;
  const auto message = [](Kind kind, Tag tag, std::uint64_t number, std::uint32_t id) {
    Message m;
    m.kind = kind;
    m.tag = tag;
    m.number = number;
    m.id = id;
    return m;
  };
  Message release_buffer = message(Kind::note, 0, 0, 0), release_request = release_buffer;
  release_buffer.release_count = release_request.release_count = 1;
  release_buffer.releases[0] = 3;
  release_request.releases[0] = wire::kRequestId | 3;
  Message answer = message(Kind::receiver_ready, 1, 0, 0);
  answer.flags = wire::flag::kAnswer;
  const Message kBad[] = {
      message(Kind::eager, 999, 0, 0),            // a number that was used
      message(Kind::receiver_ready, 1, 5000, 0),  // far ahead
      answer,
      message(Kind::written, 1, 0, 12345),
      message(Kind::retracted, 1, 0, 0),
      release_buffer,
      release_request,
  };
  for (const Message& m : kBad) {
    Scene s;
    s.connect(kDead, kMe);
    auto& waiting = s.receive(kMe, kDead, 1, kLarge);
    s.net.forge(kDead, kMe, octets_of(m));
    s.net.run();
    assert_int_equal(s.net.failures.size(), 1);
    s.ends(waiting, Error::peer_down);
  }
  for (const std::size_t octets : {0, 1, 31}) {
    Scene s;
    s.connect(kDead, kMe);
    s.net.forge(kDead, kMe, Bytes(octets));
    assert_int_equal(s.net.failures.size(), 1);
    s.net.run();
  }
}

// It gives no credit back, so the answers wait, and more of them than an honest peer can have.
void a_peer_that_asks_and_takes_no_answers_is_given_up(void**) {
  for (const auto kind : {wire::Kind::call, wire::Kind::retract}) {
    Scene s;
    s.connect(kDead, kMe);
    s.net.run();
    s.net.deaf = kDead;
    wire::Message m;
    m.kind = kind;
    int asked = 0;
    for (; asked < 10'000 && s.net.failures.empty(); ++asked) {
      s.net.forge(kDead, kMe, octets_of(m));
      if (s.net.failures.empty()) s.net.run();
    }
    assert_in_range(asked, 4096, 4096 + 128);
  }
}

// An immediate must name a receive of this peer's that waits for a Write.
void immediates_that_name_the_wrong_receive(void**) {
  Scene s(small_tuning(), 3);
  s.connect(kMe, kDead);
  s.connect(kMe, kAlive);
  auto& announced = s.receive(kMe, kAlive, 1, kLarge);
  const auto id = s.net.head(kMe, kAlive)->id;
  s.net.forge_immediate(kDead, kMe, id, 10);
  assert_int_equal(s.net.failures.size(), 1);
  s.net.forge_immediate(kAlive, kMe, id, kLarge + 1);
  assert_int_equal(s.net.failures.size(), 2);
  assert_false(s.done(announced));
}

// No number was used for it, so what follows finds its receives.
void memory_that_cannot_be_registered(void**) {
  Scene s;
  s.connect(kMe, kDead);
  auto& first = s.receive(kDead, kMe, 1, kLarge);
  auto& second = s.receive(kDead, kMe, 1, kLarge);
  s.net.run();
  s.net.refuse_memory = true;
  s.ends(s.send(kMe, kDead, 1, kLarge), Error::no_memory);
  s.net.refuse_memory = false;
  auto& sent = s.send(kMe, kDead, 1, kLarge);
  auto& more = s.send(kMe, kDead, 1, kLarge);
  s.net.run();
  s.got(first, sent);
  s.got(second, more);
  // At the receiver: that receive fails, the sender does not wait.
  for (const std::size_t size : {kMedium, kLarge}) {
    auto& large = s.send(kMe, kDead, 2, size);
    s.net.run();
    s.net.refuse_memory = true;
    auto& refused = s.receive(kDead, kMe, 2, kLarge);
    s.net.run();
    s.net.refuse_memory = false;
    s.ends(refused, Error::no_memory);
    s.ends(large);
  }
  assert_true(s.net.failures.empty());
}

void a_message_too_long_for_one_transfer(void**) {
  for (const bool by_read : {false, true})
    for (const bool receiver_first : {false, true})
      for (const std::size_t size : {kLarge, kLarge + 1, 2 * kLarge, 3 * kLarge + 7}) {
        Tuning t = small_tuning();
        t.rendezvous_by_read = by_read;
        Scene s(t);
        s.connect(kMe, kDead);
        s.net.longest = kLarge;
        const auto receive = [&]() -> Scene::Transfer& { return s.receive(kDead, kMe, 2, 4 * kLarge); };
        Scene::Transfer* received = receiver_first ? &receive() : nullptr;
        s.net.run();
        auto& sent = s.send(kMe, kDead, 2, size);
        s.net.run();
        if (received == nullptr) received = &receive();
        s.net.run();
        s.got(*received, sent);
        s.ends(sent);
      }
}

void leaving_ends_what_waits_for_anybody(void**) {
  Scene s;
  auto& anybody = s.receive(kMe, kAnySource, 1, kLarge);
  auto& own = s.send(kMe, kMe, 2, kLarge);
  s.net[kMe].abandon();
  s.ends(anybody, Error::peer_down);
  s.ends(own, Error::peer_down);
  assert_int_equal(s.net[kMe].pending(), 0);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(what_concerns_a_dead_peer_fails_and_nothing_else),
      cmocka_unit_test(a_matched_message_of_a_dead_peer_is_an_error),
      cmocka_unit_test(a_peer_that_cannot_be_reached),
      cmocka_unit_test(a_silent_peer_is_tried_and_given_up),
      cmocka_unit_test(a_silent_peer_whose_credits_are_waited_for_is_given_up),
      cmocka_unit_test(nobody_is_tried_who_is_not_waited_for),
      cmocka_unit_test(who_is_there_is_looked_after_when_others_are_lost),
      cmocka_unit_test(a_peer_that_breaks_the_protocol_is_cut_off),
      cmocka_unit_test(a_peer_that_asks_and_takes_no_answers_is_given_up),
      cmocka_unit_test(immediates_that_name_the_wrong_receive),
      cmocka_unit_test(memory_that_cannot_be_registered),
      cmocka_unit_test(a_message_too_long_for_one_transfer),
      cmocka_unit_test(leaving_ends_what_waits_for_anybody),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
