// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// EAGER messages that are longer than a receive: they come in pieces, to a receive or to where unexpected messages lie,
// and everything that can be asked of a message can be asked of one of which only some pieces have come.
#include <numeric>

#include "tests/channel/scene.h"

namespace ewarp::channel::test {
namespace {

constexpr std::size_t kPiece = 16, kLong = 60;  // four pieces, the last of 12 octets

Tuning in_pieces() {
  Tuning t = small_tuning();
  t.eager_piece = kPiece;
  return t;
}

// Of the message that kS has sent, so many more pieces arrive at kR.
void arrive(Scene& s, int pieces) {
  for (int i = 0; i < pieces; ++i) assert_true(s.net.deliver(kS, kR));
}

void a_message_in_pieces_arrives_whole(void**) {
  for (const bool receiver_first : {false, true})
    for (const std::size_t size : {0, 1, 15, 16, 17, 32, 60, 64}) {
      Scene s(in_pieces());
      s.connect();
      Scene::Transfer* received = receiver_first ? &s.receive(kR, kS, 1, size) : nullptr;
      auto& sent = s.send(kS, kR, 1, size);
      s.net.run();
      if (received == nullptr) received = &s.receive(kR, kS, 1, size);
      s.got(*received, sent);
      s.ends(sent);
      assert_int_equal(s.count(kS, Count::eager), 2);
    }
}

// Requires pieces that go out at once.
void a_receive_may_come_between_the_pieces(void**) {
  for (int before = 1; before < 4; ++before)
    for (const std::size_t capacity : {kLong, std::size_t{5}, std::size_t{20}, std::size_t{0}}) {
      Scene s(in_pieces());
      s.connect_widely();
      auto& sent = s.send(kS, kR, 1, kLong);
      arrive(s, before);
      assert_int_equal(s.net[kR].probe(kS, 1, 0)->length, kLong);
      auto& received = s.receive(kR, kS, 1, capacity);
      assert_false(s.done(received));
      assert_int_equal(s.net[kR].unexpected(), 0);
      arrive(s, 3 - before);
      assert_false(s.done(received));
      arrive(s, 1);
      s.got(received, sent, capacity < kLong ? Error::truncated : Error::none);
    }
}

void a_message_may_be_taken_out_between_the_pieces(void**) {
  for (const int when : {0, 1, 2}) {  // it is received between the pieces, behind them, or discarded
    Scene s(in_pieces());
    s.connect_widely();
    auto& sent = s.send(kS, kR, 1, kLong);
    arrive(s, 2);
    Status status;
    auto message = s.net[kR].matched_probe(kS, 1, 0, &status);
    assert_int_equal(status.length, kLong);
    if (when == 1) s.net.run();
    if (when == 2) s.net[kR].discard(std::move(message));
    Bytes data(kLong);
    const Request r = when == 2 ? Request{} : s.net[kR].receive_matched(message, data);
    s.net.run();
    s.ends(sent);
    if (when == 2) continue;
    assert_true(s.net[kR].test(r)->error == Error::none);
    assert_true(data == pattern(kS, sent.number, kLong));
  }
  // Dropped by who had it: what comes then belongs to nobody.
  Scene s(in_pieces());
  s.connect_widely();
  s.send(kS, kR, 1, kLong);
  arrive(s, 2);
  Status status;
  s.net[kR].matched_probe(kS, 1, 0, &status).reset();
  s.net.run();
  auto& next = s.send(kS, kR, 1, kLong);
  auto& received = s.receive(kR, kS, 1, kLong);
  s.net.run();
  s.got(received, next);
}

void a_multi_receive_takes_messages_in_pieces(void**) {
  Scene s(in_pieces());
  s.connect_widely();
  Heard heard;
  Bytes buffer(3 * kLong);
  s.net[kR].receive(kS, 1, 0, buffer, {.multi = true, .report = {.listener = &heard}});
  std::vector<Scene::Transfer*> sent;
  for (int i = 0; i < 3; ++i) sent.push_back(&s.send(kS, kR, 1, kLong));
  s.net.run();
  assert_int_equal(heard.heard.size(), 3);
  for (std::size_t i = 0; i < 3; ++i) {
    const Bytes want = pattern(kS, sent[i]->number, kLong);
    assert_memory_equal(buffer.data() + i * kLong, want.data(), kLong);
    assert_int_equal(heard.heard[i].released, i == 2);
  }
}

// The buffer of an injected message is the caller's at once, wherever its pieces are.
void pieces_that_wait_are_copied(void**) {
  for (const bool inject : {false, true}) {
    Scene s(in_pieces());
    s.connect_widely();
    s.net.depth = 2;
    auto& sent = s.send(kS, kS == 0 ? kR : kS, 7, 1);  // one of the two
    Bytes data = pattern(kS, 77, kLong);
    const Request r = s.net[kS].send(kR, 1, data, {.inject = inject});
    assert_int_equal(s.net[kS].done(r), inject);
    if (inject) std::fill(data.begin(), data.end(), std::byte{0xee});
    s.net.run();
    assert_true(s.net[kS].test(r)->error == Error::none);
    auto& first = s.receive(kR, kS, 7, 1);
    s.got(first, sent);
    Bytes in(kLong);
    const Request received = s.net[kR].receive(kS, 1, 0, in);
    assert_true(s.net[kR].test(received)->error == Error::none);
    assert_true(in == pattern(kS, 77, kLong));
  }
}

// Not in place of the user's octets: when the pieces that are the adapter's are complete, the send is done.
void a_send_ends_with_the_last_piece_out_of_its_buffer(void**) {
  Scene s(in_pieces());
  s.connect_widely();
  s.net.depth = 2;
  const auto before = s.count(kS, Count::eager_copies);
  auto& sent = s.send(kS, kR, 1, kLong);
  assert_false(s.done(sent));  // two pieces are under way, two were copied
  assert_int_equal(s.count(kS, Count::eager_copies), before + 2);
  arrive(s, 1);
  assert_false(s.done(sent));
  s.net.run();
  s.ends(sent);
  Tuning t = in_pieces();
  t.copy_limit = 10;
  Scene none(t);
  none.connect_widely();
  none.net.depth = 2;
  const auto copies = none.count(kS, Count::eager_copies);
  auto& waits = none.send(kS, kR, 1, kLong);
  assert_int_equal(none.count(kS, Count::eager_copies), copies);
  none.net.run();
  none.ends(waits);
  auto& received = none.receive(kR, kS, 1, kLong);
  none.got(received, waits);
}

void a_delivered_send_ends_with_the_last_piece(void**) {
  Scene s(in_pieces());
  s.connect_widely();
  Bytes data = pattern(kS, 1, kLong);
  const Request r = s.net[kS].send(kR, 1, data, {.delivered = true});
  arrive(s, 3);
  assert_int_equal(s.net.in_flight(kR, kS), 0);  // no release
  assert_false(s.net[kS].done(r));
  s.net.run();
  assert_true(s.net[kS].test(r)->error == Error::none);
}

struct Doubles final : Answerer {
  std::size_t on_call(PeerId, Octets question, MutableOctets answer) override {
    std::copy(question.begin(), question.end(), answer.begin());
    return question.size();
  }
};

void questions_and_answers_come_in_pieces(void**) {
  for (const std::size_t size : {15, 16, 17, 64}) {
    Scene s(in_pieces());
    s.connect();
    Doubles doubles;
    s.net[kR].answer_with(&doubles);
    Bytes question = pattern(kS, 5, size), answer(size);
    const Request r = s.net[kS].call(kR, question, answer);
    auto& sent = s.send(kS, kR, 1, kLong);
    s.net.run();
    assert_int_equal(s.net[kS].test(r)->length, size);
    assert_true(answer == question);
    auto& received = s.receive(kR, kS, 1, kLong);
    s.got(received, sent);
  }
}

// --- ends ---

void what_came_in_part_is_lost_with_its_peer(void**) {
  for (const int how : {0, 1, 2}) {  // into a receive; unexpected; taken out before
    Scene s(in_pieces());
    s.connect_widely();
    auto& whole = s.send(kS, kR, 9, kLong);
    s.net.run();
    Scene::Transfer* received = how == 0 ? &s.receive(kR, kS, 1, kLong) : nullptr;
    s.send(kS, kR, 1, kLong);
    arrive(s, 2);
    Status status;
    auto taken = how == 2 ? s.net[kR].matched_probe(kS, 1, 0, &status) : nullptr;
    s.net.kill(kS);
    s.net.run();
    assert_int_equal(s.net[kR].unexpected(), 1);  // the whole one
    if (how == 0) s.ends(*received, Error::peer_down);
    if (how == 1) {
      auto& none = s.receive(kR, kS, 1, kLong);
      s.ends(none, Error::peer_down);
    }
    if (how == 2) {
      Bytes data(kLong);
      const Request r = s.net[kR].receive_matched(taken, data);
      assert_true(s.net[kR].test(r)->error == Error::peer_down);
    }
    auto& last = s.receive(kR, kS, 9, kLong);
    s.got(last, whole);
  }
}

// What a peer sends, octet by octet.
struct Rogue {
  Rogue() : s(in_pieces()) { s.connect_widely(); }
  void says(wire::Kind kind, std::uint64_t size, std::size_t payload, std::uint64_t number = 0) {
    wire::Message m;
    m.kind = kind;
    m.tag = 1;
    m.size = size;
    m.number = number;
    s.net.forge(kS, kR, octets_of(m, payload));
  }
  void is_cut_off(const char* why) {
    s.net.run();
    assert_int_equal(s.net.failures.size(), 1);
    assert_string_equal(s.net.failures[0].c_str(), why);
    assert_int_equal(static_cast<int>(s.net[kR].peer_state(kS)), static_cast<int>(Link::State::down));
    assert_int_equal(s.net[kR].unexpected(), 0);
  }
  Scene s;
};

void pieces_of_nothing_end_the_connection(void**) {
  constexpr const char* kOther = "a piece of another message";
  constexpr const char* kLength = "a piece of another length";
  using wire::Kind;
  {
    Rogue r;
    r.says(Kind::more, 10, 10);
    r.is_cut_off(kOther);
  }
  for (const Kind second : {Kind::eager, Kind::call, Kind::told, Kind::sender_ready, Kind::unused}) {
    Rogue r;
    r.says(Kind::eager, kLong, kPiece);
    if (second == Kind::told || second == Kind::sender_ready || second == Kind::unused) {
      wire::Message m;
      m.kind = second;
      m.extras = second == Kind::told ? wire::extra::kData : std::uint8_t{0};
      r.s.net.forge(kS, kR, octets_of(m));
    } else {
      r.says(second, 10, 10, 1);
    }
    r.is_cut_off(kOther);
  }
  for (const std::size_t payload : {0, 15, 17}) {
    Rogue r;
    r.says(Kind::eager, kLong, payload);
    r.is_cut_off(kLength);
  }
  for (const std::size_t payload : {0, 15, 17}) {  // the second piece
    Rogue r;
    r.says(Kind::eager, kLong, kPiece);
    r.says(Kind::more, payload, payload);
    r.is_cut_off(kLength);
  }
  {
    Rogue r;
    r.says(Kind::eager, 20, kPiece);
    r.says(Kind::more, 16, 16);  // beyond the message
    r.is_cut_off(kLength);
  }
  for (const Kind kind : {Kind::eager, Kind::call}) {
    Rogue r;
    r.says(kind, std::uint64_t{1} << 60, kPiece);
    r.is_cut_off("a message that is too long");
  }
  {
    Rogue r;
    r.says(Kind::eager, kLong, kPiece);
    r.s.net.forge_immediate(kS, kR, 5, 0);
    r.is_cut_off("a Write between the pieces of a message");
  }
}

}  // namespace
}  // namespace ewarp::channel::test

int main() {
  using namespace ewarp::channel::test;
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_message_in_pieces_arrives_whole),
      cmocka_unit_test(a_receive_may_come_between_the_pieces),
      cmocka_unit_test(a_message_may_be_taken_out_between_the_pieces),
      cmocka_unit_test(a_multi_receive_takes_messages_in_pieces),
      cmocka_unit_test(pieces_that_wait_are_copied),
      cmocka_unit_test(a_send_ends_with_the_last_piece_out_of_its_buffer),
      cmocka_unit_test(a_delivered_send_ends_with_the_last_piece),
      cmocka_unit_test(questions_and_answers_come_in_pieces),
      cmocka_unit_test(what_came_in_part_is_lost_with_its_peer),
      cmocka_unit_test(pieces_of_nothing_end_the_connection),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
