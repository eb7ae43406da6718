// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The first octets of a message that SENDER_READY takes along: who stores them, who drops them, what is written then.
#include "tests/channel/scene.h"

namespace ewarp::channel::test {
namespace {

constexpr std::size_t kHead = 16;

Tuning with_head() {
  Tuning t = small_tuning();
  t.eager_piece = kHead;
  return t;
}

struct HeadScene : Scene {
  explicit HeadScene(const Tuning& tuning = with_head()) : Scene(tuning) {
    connect();
    net.on_delivery = [this](PeerId, PeerId, const Packet& p) {
      if (p.what == Packet::What::write) written.push_back(p.copy.empty() ? p.source.size() : p.copy.size());
    };
  }
  // What was written of the messages so far, octet counts.
  void wrote(const std::vector<std::size_t>& want) {
    assert_int_equal(written.size(), want.size());
    for (std::size_t i = 0; i < want.size(); ++i) assert_int_equal(written[i], want[i]);
  }
  std::vector<std::size_t> written;
};

// A wildcard announces nothing, so SENDER_READY is answered.
void who_has_a_receive_stores_them_and_gets_the_rest(void**) {
  HeadScene s;
  auto& received = s.receive(kR, kAnySource, 1, kLarge, kAnyTag);
  auto& sent = s.send(kS, kR, 1, kLarge);
  s.net.run();
  s.ends(sent);
  s.got(received, sent);
  s.wrote({kLarge - kHead});
  assert_int_equal(s.count(kS, Count::heads), 1);
  assert_int_equal(s.count(kS, Count::send_rndv_write), 1);
  assert_int_equal(s.count(kR, Count::heads_dropped), 0);
}

void an_announcement_that_crosses_gets_the_rest(void**) {
  for (const bool announcement_first : {false, true}) {
    HeadScene s;
    auto& sent = s.send(kS, kR, 1, kLarge);
    auto& received = s.receive(kR, kS, 1, kLarge);
    assert_true(announcement_first ? s.net.deliver(kR, kS) : s.net.deliver(kS, kR));
    s.net.run();
    s.ends(sent);
    s.got(received, sent);
    s.wrote({kLarge - kHead});
    assert_int_equal(s.count(kS, Count::recv_rndv), 1);
    assert_int_equal(s.count(kR, Count::heads_dropped), 0);
  }
}

void an_announcement_that_is_there_spares_the_head(void**) {
  HeadScene s;
  auto& received = s.receive(kR, kS, 1, kLarge);
  s.net.run();
  auto& sent = s.send(kS, kR, 1, kLarge);
  s.net.run();
  s.ends(sent);
  s.got(received, sent);
  s.wrote({kLarge});
  assert_int_equal(s.count(kS, Count::heads), 0);
}

// Nothing of it is kept: neither for a receive nor for who takes the message out.
void who_has_no_receive_drops_them_and_gets_all(void**) {
  for (const bool probed : {false, true}) {
    HeadScene s;
    auto& sent = s.send(kS, kR, 1, kLarge);
    s.net.run();
    assert_false(s.done(sent));
    assert_int_equal(s.count(kR, Count::heads_dropped), 1);
    if (probed) {
      Status status;
      auto message = s.net[kR].matched_probe(kS, 1, 0, &status);
      assert_int_equal(status.length, kLarge);
      assert_null(message->payload.get());
      Bytes data(kLarge);
      const Request r = s.net[kR].receive_matched(message, data);
      s.net.run();
      assert_true(s.net[kR].test(r)->error == Error::none);
      assert_true(data == pattern(kS, sent.number, kLarge));
    } else {
      auto& received = s.receive(kR, kS, 1, kLarge);
      s.net.run();
      s.got(received, sent);
    }
    s.ends(sent);
    s.wrote({kLarge});
  }
}

// Nothing beyond the receive is touched, whether it ends within the head or behind it.
void a_short_receive_gets_what_fits(void**) {
  for (const bool announced : {false, true})
    for (const std::size_t capacity : {std::size_t{0}, std::size_t{5}, kHead, kHead + 1, kLarge - 1}) {
      HeadScene s;
      Bytes room(capacity + 8, std::byte{0xee});
      auto& sent = s.send(kS, kR, 1, kLarge);
      const Request r = s.net[kR].receive(announced ? kS : kAnySource, 1, announced ? 0 : kAnyTag,
                                          MutableOctets(room).first(capacity));
      s.net.run();
      s.ends(sent);
      assert_true(s.net[kR].test(r)->error == Error::truncated);
      const Bytes want = pattern(kS, sent.number, kLarge);
      assert_memory_equal(room.data(), want.data(), capacity);
      for (std::size_t i = capacity; i < room.size(); ++i) assert_int_equal(room[i], 0xee);
      s.wrote({capacity - std::min(capacity, kHead)});
    }
}

// All of a synchronous message may fit; then an empty Write tells its end.
void a_synchronous_message_that_fits_needs_no_rest(void**) {
  for (const bool immediate : {true, false})
    for (const std::size_t size : {std::size_t{0}, std::size_t{1}, kHead - 1, kHead, kHead + 1}) {
      HeadScene s;
      s.net.immediate = immediate;
      auto& received = s.receive(kR, kAnySource, 1, size, kAnyTag);
      auto& sent = s.send(kS, kR, 1, size, true);
      assert_false(s.done(sent));
      s.net.run();
      s.ends(sent);
      s.got(received, sent);
    }
}

void what_is_read_has_no_head(void**) {
  Tuning t = with_head();
  t.rendezvous_by_read = true;
  for (const std::size_t size : {kMedium, kLarge}) {
    HeadScene s(t);
    auto& received = s.receive(kR, kAnySource, 1, size, kAnyTag);
    auto& sent = s.send(kS, kR, 1, size);
    s.net.run();
    s.ends(sent);
    s.got(received, sent);
    assert_int_equal(s.count(kS, Count::heads), 0);
  }
}

void a_multi_receive_stores_them(void**) {
  HeadScene s;
  Heard heard;
  Bytes buffer(2 * kLarge);
  s.net[kR].receive(kS, 1, 0, buffer, {.multi = true, .report = {.listener = &heard}});
  std::vector<Scene::Transfer*> sent;
  for (int i = 0; i < 2; ++i) sent.push_back(&s.send(kS, kR, 1, kLarge));
  s.net.run();
  assert_int_equal(heard.heard.size(), 2);
  for (std::size_t i = 0; i < 2; ++i) {
    const Bytes want = pattern(kS, sent[i]->number, kLarge);
    assert_memory_equal(buffer.data() + i * kLarge, want.data(), kLarge);
  }
  s.wrote({kLarge - kHead, kLarge - kHead});
}

// A receive that is being cancelled and whose message is on its way gets it, head and rest.
void a_message_beats_the_cancelling(void**) {
  HeadScene s;
  auto& received = s.receive(kR, kS, 1, kLarge);
  auto& sent = s.send(kS, kR, 1, kLarge);
  s.net[kR].cancel(received.request);
  s.net.run();
  s.ends(sent);
  s.got(received, sent);
  s.wrote({kLarge - kHead});
}

// --- peers that break the protocol ---

wire::Message sender_ready(std::uint64_t size, std::uint8_t flags = 0) {
  wire::Message m;
  m.kind = wire::Kind::sender_ready;
  m.flags = flags;
  m.tag = 1;
  m.size = size;
  m.id = wire::kRequestId | 1;
  return m;
}

void a_head_of_another_length_ends_the_connection(void**) {
  for (const std::size_t payload : {std::size_t{1}, kHead - 1, kHead + 1}) {
    HeadScene s;
    s.net.forge(kS, kR, octets_of(sender_ready(kLarge), payload));
    s.net.run();
    assert_int_equal(s.net.failures.size(), 1);
    assert_string_equal(s.net.failures[0].c_str(), "first octets of another length");
  }
  for (const std::uint8_t flags : {wire::flag::kHybrid, wire::flag::kByRead}) {
    HeadScene s;
    s.net.forge(kS, kR, octets_of(sender_ready(kLarge, flags), kHead));
    s.net.run();
    assert_int_equal(s.net.failures.size(), 1);
    assert_string_equal(s.net.failures[0].c_str(), "no message of the channel");
  }
}

// A peer may leave them out.
void a_peer_without_a_head_is_answered(void**) {
  HeadScene s;
  auto& received = s.receive(kR, kAnySource, 1, kLarge, kAnyTag);
  s.net.forge(kS, kR, octets_of(sender_ready(kLarge), 0));
  assert_false(s.done(received));
  const auto m = s.net.head(kR, kS);
  assert_true(m.has_value() && m->has(wire::flag::kAnswer) && !m->has_extra(wire::extra::kTaken));
}

// Only an answer can say that they were taken.
void an_announcement_takes_nothing(void**) {
  wire::Message m;
  m.kind = wire::Kind::receiver_ready;
  m.extras = wire::extra::kTaken;
  std::size_t used = 0;
  assert_false(wire::Message::parse(octets_of(m, 0), &used).has_value());
  m.flags = wire::flag::kAnswer;
  assert_true(wire::Message::parse(octets_of(m, 0), &used).has_value());
}

}  // namespace
}  // namespace ewarp::channel::test

int main() {
  using namespace ewarp::channel::test;
  const CMUnitTest tests[] = {
      cmocka_unit_test(who_has_a_receive_stores_them_and_gets_the_rest),
      cmocka_unit_test(an_announcement_that_crosses_gets_the_rest),
      cmocka_unit_test(an_announcement_that_is_there_spares_the_head),
      cmocka_unit_test(who_has_no_receive_drops_them_and_gets_all),
      cmocka_unit_test(a_short_receive_gets_what_fits),
      cmocka_unit_test(a_synchronous_message_that_fits_needs_no_rest),
      cmocka_unit_test(what_is_read_has_no_head),
      cmocka_unit_test(a_multi_receive_stores_them),
      cmocka_unit_test(a_message_beats_the_cancelling),
      cmocka_unit_test(a_head_of_another_length_ends_the_connection),
      cmocka_unit_test(a_peer_without_a_head_is_answered),
      cmocka_unit_test(an_announcement_takes_nothing),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
