// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Requests that report to a listener, and what can be asked of a send or a receive beyond the plain forms.
#include <string>

#include "tests/channel/scene.h"

namespace ewarp::channel::test {
namespace {

struct Ear final : Listener {
  void on_done(const Completion& c) override { heard.push_back(c); }
  std::vector<Completion> heard;
};

Report report(Ear& ear, std::uint64_t label = 0) {
  return {.listener = &ear, .context = reinterpret_cast<void*>(label), .label = label};
}

// A pair that is connected, an ear on each side, and buffers.
struct Pair {
  explicit Pair(const Tuning& tuning = small_tuning()) : scene(tuning), in(4096) { scene.connect(); }
  void send(Tag tag, std::size_t size, SendOptions options, std::uint64_t label = 1) {
    out.push_back(pattern(kS, ++sent, size));
    options.report = report(sender, label);
    assert_true(static_cast<bool>(scene.net[kS].send(kR, tag, out.back(), options)));
  }
  void receive(PeerId source, Tag tag, MutableOctets buffer, ReceiveOptions options = {}, std::uint64_t label = 2) {
    options.report = report(receiver, label);
    assert_true(static_cast<bool>(scene.net[kR].receive(source, tag, 0, buffer, options)));
  }
  Scene scene;
  Ear sender, receiver;
  std::list<Bytes> out;
  Bytes in;
  std::uint64_t sent = 0;
};

void every_protocol_reports_once_with_the_attached_data(void**) {
  for (const std::size_t size : {std::size_t{0}, kSmall, kMedium, kLarge})
    for (const bool receiver_first : {false, true})
      for (const bool by_read : {false, true})
        for (const bool immediate : {false, true}) {
          Tuning tuning = small_tuning();
          tuning.rendezvous_by_read = by_read;
          Pair p(tuning);
          p.scene.net.immediate = immediate;
          // Thrice: other data, the same again, none.
          for (const std::optional<std::uint64_t> data :
               {std::optional<std::uint64_t>(77), std::optional<std::uint64_t>(77), std::optional<std::uint64_t>()}) {
            p.sender.heard.clear();
            p.receiver.heard.clear();
            if (receiver_first) p.receive(kS, 5, p.in);
            if (receiver_first) p.scene.net.run();
            p.send(5, size, {.data = data});
            p.scene.net.run();
            if (!receiver_first) p.receive(kS, 5, p.in);
            p.scene.net.run();
            assert_int_equal(p.sender.heard.size(), 1);
            assert_int_equal(p.receiver.heard.size(), 1);
            const Completion& c = p.receiver.heard[0];
            assert_int_equal(c.label, 2);
            assert_int_equal(c.status.error, Error::none);
            assert_int_equal(c.status.length, size);
            assert_int_equal(c.status.tag, 5);
            assert_true(c.status.data == data);
            assert_true(std::equal(p.out.back().begin(), p.out.back().end(), p.in.begin()));
          }
          assert_int_equal(p.scene.net[kS].pending() + p.scene.net[kR].pending(), 0);
        }
}

void data_that_was_told_before_costs_no_message(void**) {
  Pair p;
  for (int i = 0; i < 5; ++i) {
    p.receive(kS, 5, p.in);
    p.scene.net.run();
    p.send(5, kLarge, {.data = 9});
    p.scene.net.run();
  }
  assert_int_equal(p.scene.net[kS].counters()[Count::recv_rndv], 5);
  assert_int_equal(p.scene.net[kS].counters()[Count::written_notices], 1);
}

void an_injected_buffer_is_free_at_once(void**) {
  Tuning tuning = small_tuning();
  tuning.receive_depth = 2;
  tuning.copy_limit = 4 * kSmall;
  Pair p(tuning);
  Bytes buffer = pattern(kS, 1, kSmall), expected = buffer;
  std::size_t sent = 0;
  // Two go out with the credits that there are, four are copied, and the next is refused.
  while (p.scene.net[kS].send(kR, 5, buffer, {.inject = true, .report = report(p.sender)})) ++sent;
  std::fill(buffer.begin(), buffer.end(), std::byte{0xee});
  assert_int_equal(sent, 6);
  assert_int_equal(p.sender.heard.size(), 6);
  for (std::size_t i = 0; i < sent; ++i) {
    p.receive(kS, 5, p.in);
    p.scene.net.run();
    assert_int_equal(p.receiver.heard.size(), i + 1);
    assert_true(std::equal(expected.begin(), expected.end(), p.in.begin()));
  }
}

// One goes out, one waits as a copy, however short the limit is, and the next is refused until that has gone.
void one_injected_message_waits_whatever_the_limit(void**) {
  for (const bool puts : {false, true}) {
    Tuning tuning = small_tuning();
    tuning.copy_limit = 0;
    Pair p(tuning);
    p.scene.net.depth = 1;
    Bytes window(kSmall);
    Exposed* exposed = p.scene.net.expose(kR, window);
    const Bytes expected = pattern(kS, 1, kSmall);
    const auto inject = [&] {
      Bytes buffer = expected;
      const SendOptions options{.inject = true, .report = report(p.sender)};
      const Request r = puts ? p.scene.net[kS].put(kR, buffer, exposed->remote, options)
                             : p.scene.net[kS].send(kR, 5, buffer, options);
      std::fill(buffer.begin(), buffer.end(), std::byte{0xee});
      return static_cast<bool>(r);
    };
    for (int round = 0; round < 3; ++round) {
      assert_true(inject());
      assert_true(inject());
      assert_false(inject());
      p.scene.net.run();
    }
    assert_int_equal(p.sender.heard.size(), 6);
    if (puts) assert_true(window == expected);
    for (int i = 0; i < 6 && !puts; ++i) {
      p.receive(kS, 5, p.in);
      assert_int_equal(p.receiver.heard.size(), i + 1);
      assert_true(std::equal(expected.begin(), expected.end(), p.in.begin()));
    }
    p.scene.net.conceal(kR, exposed);
  }
}

// Also where others of its length wait for their receives.
void an_injected_message_to_oneself_is_a_copy(void**) {
  Tuning tuning = small_tuning();
  tuning.hybrid_threshold = kSmall - 1;
  Pair p(tuning);
  Bytes buffer = pattern(kS, 1, kSmall);
  const Bytes expected = buffer;
  assert_true(static_cast<bool>(p.scene.net[kS].send(kS, 5, buffer, {.inject = true, .report = report(p.sender)})));
  assert_int_equal(p.sender.heard.size(), 1);
  std::fill(buffer.begin(), buffer.end(), std::byte{0xee});
  assert_true(static_cast<bool>(p.scene.net[kS].receive(kS, 5, 0, p.in, {.report = report(p.receiver)})));
  assert_int_equal(p.receiver.heard.size(), 1);
  assert_true(std::equal(expected.begin(), expected.end(), p.in.begin()));
}

// The buffer is free at once; the end comes when it would come without `inject`.
void an_injected_send_is_delivered_when_the_peer_has_it(void**) {
  for (const bool full : {false, true}) {
    Pair p;
    p.scene.net.depth = full ? 1 : 64;
    if (full) p.send(6, kSmall, {});
    Bytes buffer = pattern(kS, 7, kSmall);
    const Bytes expected = buffer;
    Ear ear;
    assert_true(static_cast<bool>(
        p.scene.net[kS].send(kR, 5, buffer, {.inject = true, .delivered = true, .report = report(ear)})));
    std::fill(buffer.begin(), buffer.end(), std::byte{0xee});
    assert_int_equal(ear.heard.size(), 0);
    p.scene.net.run();
    assert_int_equal(ear.heard.size(), 1);
    assert_int_equal(ear.heard[0].status.error, Error::none);
    p.receive(kS, 5, p.in);
    assert_int_equal(p.receiver.heard.size(), 1);
    assert_true(std::equal(expected.begin(), expected.end(), p.in.begin()));
    assert_int_equal(p.scene.net[kS].pending(), 0);
  }
}

void a_delivered_send_is_done_when_the_peer_has_it(void**) {
  for (const bool receiver_first : {false, true})
    for (const std::size_t size : {kSmall, kMedium, kLarge}) {
      Pair p;
      if (receiver_first) p.receive(kS, 5, p.in);
      p.scene.net.run();
      p.send(5, size, {.delivered = true});
      assert_int_equal(p.sender.heard.size(), 0);
      p.scene.net.run();
      if (!receiver_first) {
        // A short message lies at the peer; a long one waits for its receive.
        assert_int_equal(p.sender.heard.size(), size == kSmall ? 1 : 0);
        p.receive(kS, 5, p.in);
        p.scene.net.run();
      }
      assert_int_equal(p.sender.heard.size(), 1);
      assert_int_equal(p.sender.heard[0].status.error, Error::none);
      assert_int_equal(p.receiver.heard.size(), 1);
    }
}

void a_delivered_send_ends_with_the_peer(void**) {
  Pair p;
  p.send(5, kSmall, {.delivered = true});
  p.scene.net.kill(kR);
  p.scene.net.run();
  assert_int_equal(p.sender.heard.size(), 1);
  assert_int_equal(p.sender.heard[0].status.error, Error::peer_down);
}

// --- multi-receives ---

void messages_lie_one_behind_the_other(void**) {
  for (const bool receiver_first : {false, true})
    for (const std::size_t size : {kSmall, kMedium, kLarge})
      for (const PeerId source : {kS, kAnySource}) {
        Pair p;
        Bytes buffer(3 * size + 20);
        if (receiver_first) p.receive(source, 5, buffer, {.multi = true, .least = 21});
        p.scene.net.run();
        for (int i = 0; i < 3; ++i) p.send(5, size, {});
        p.scene.net.run();
        if (!receiver_first) p.receive(source, 5, buffer, {.multi = true, .least = 21});
        p.scene.net.run();
        assert_int_equal(p.receiver.heard.size(), 3);
        int released = 0;
        for (const Completion& c : p.receiver.heard) {
          const auto at = static_cast<std::size_t>(c.buffer.data() - buffer.data());
          assert_int_equal(at % size, 0);
          assert_true(std::equal(c.buffer.begin(), c.buffer.end(), std::next(p.out.begin(), at / size)->begin()));
          released += c.released ? 1 : 0;
        }
        assert_int_equal(released, 1);
        assert_true(p.receiver.heard.back().released);
        assert_int_equal(p.scene.net[kR].pending(), 0);
      }
}

void the_last_of_a_multi_receive_may_be_truncated(void**) {
  Pair p;
  Bytes buffer(2 * kSmall + 10);
  p.receive(kS, 5, buffer, {.multi = true, .least = 1});
  for (int i = 0; i < 3; ++i) p.send(5, kSmall, {});
  p.scene.net.run();
  assert_int_equal(p.receiver.heard.size(), 3);
  assert_int_equal(p.receiver.heard[2].status.error, Error::truncated);
  assert_int_equal(p.receiver.heard[2].buffer.size(), 10);
  assert_int_equal(p.receiver.heard[2].status.length, kSmall);
  assert_true(p.receiver.heard[2].released);
}

// An announcement counts receives; one that takes any number of messages must not be counted with them.
void receives_behind_a_multi_receive_announce_nothing(void**) {
  Pair p;
  Bytes buffer(3 * kLarge), second(kLarge);
  p.receive(kS, 5, buffer, {.multi = true, .least = kLarge});
  p.receive(kS, 5, second, {}, 3);
  p.scene.net.run();
  assert_int_equal(p.scene.net[kR].counters()[Count::announced], 0);
  for (int i = 0; i < 4; ++i) p.send(5, kLarge, {});
  p.scene.net.run();
  assert_int_equal(p.receiver.heard.size(), 4);
  assert_true(std::equal(second.begin(), second.end(), p.out.back().begin()));
}

void a_multi_receive_is_cancelled_when_its_messages_have_come(void**) {
  Pair p;
  Bytes buffer(4 * kLarge);
  p.receive(kS, 5, buffer, {.multi = true, .least = 1});
  p.send(5, kLarge, {});
  assert_true(p.scene.net.deliver(kS, kR));  // SENDER_READY
  const Request r = p.scene.net[kR].find_posted(p.receiver, reinterpret_cast<void*>(2));
  assert_true(static_cast<bool>(r));
  p.scene.net[kR].cancel(r);
  assert_int_equal(p.receiver.heard.size(), 0);
  p.scene.net.run();
  assert_int_equal(p.receiver.heard.size(), 2);
  assert_int_equal(p.receiver.heard[0].status.error, Error::none);
  assert_false(p.receiver.heard[0].released);
  assert_int_equal(p.receiver.heard[1].status.error, Error::cancelled);
  assert_true(p.receiver.heard[1].released);
  assert_int_equal(p.scene.net[kR].pending(), 0);
}

void a_multi_receive_ends_with_its_peer(void**) {
  for (const bool under_way : {false, true}) {
    Pair p;
    Bytes buffer(4 * kLarge);
    p.receive(kS, 5, buffer, {.multi = true, .least = 1});
    if (under_way) p.send(5, kLarge, {});
    if (under_way) assert_true(p.scene.net.deliver(kS, kR));
    p.scene.net.kill(kS);
    p.scene.net.run();
    assert_int_equal(p.receiver.heard.size(), under_way ? 2 : 1);
    for (const Completion& c : p.receiver.heard) {
      assert_int_equal(c.status.error, Error::peer_down);
      assert_int_equal(c.released, &c == &p.receiver.heard.back());
    }
    assert_int_equal(p.scene.net[kR].pending(), 0);
  }
}

void the_oldest_of_a_context_is_cancelled(void**) {
  Pair p;
  // Too short to be announced, so that they leave at once.
  p.receive(kS, 5, MutableOctets(p.in).first(kSmall));
  p.receive(kS, 6, MutableOctets(p.in).first(kSmall));
  const auto cancel = [&] {
    const Request r = p.scene.net[kR].find_posted(p.receiver, reinterpret_cast<void*>(2));
    if (r) p.scene.net[kR].cancel(r);
    return static_cast<bool>(r);
  };
  assert_true(cancel());
  assert_int_equal(p.receiver.heard.size(), 1);
  assert_int_equal(p.receiver.heard[0].status.tag, 5);
  assert_int_equal(p.receiver.heard[0].status.error, Error::cancelled);
  assert_true(cancel());
  assert_false(cancel());
}

void a_discarded_message_releases_its_sender(void**) {
  for (const std::size_t size : {kSmall, kMedium, kLarge})
    for (const bool by_read : {false, true}) {
      Tuning tuning = small_tuning();
      tuning.rendezvous_by_read = by_read;
      Pair p(tuning);
      p.send(5, size, {});
      p.scene.net.run();
      Status status;
      auto message = p.scene.net[kR].matched_probe(kS, 5, 0, &status);
      assert_non_null(message.get());
      p.scene.net[kR].discard(std::move(message));
      p.scene.net.run();
      assert_int_equal(p.sender.heard.size(), 1);
      assert_int_equal(p.scene.net[kS].pending() + p.scene.net[kR].pending(), 0);
    }
}

// --- puts and calls ---

void a_put_tells_its_data_behind_what_it_wrote(void**) {
  for (const bool delivered : {false, true})
    for (const std::size_t size : {std::size_t{0}, kSmall, kLarge}) {
      Pair p;
      Bytes window(kLarge);
      Exposed* exposed = p.scene.net.expose(kR, window);
      struct Witness final : Listener {
        void on_done(const Completion& c) override {
          heard.push_back(c);
          seen = *window;
        }
        std::vector<Completion> heard;
        Bytes seen;
        const Bytes* window;
      } witness;
      witness.window = &window;
      p.scene.net[kR].tell_puts({.listener = &witness, .label = 7});
      const Bytes data = pattern(kS, 3, size);
      assert_true(static_cast<bool>(p.scene.net[kS].put(
          kR, data, exposed->remote, {.delivered = delivered, .data = 1234, .report = report(p.sender)})));
      p.scene.net.run();
      assert_int_equal(p.sender.heard.size(), 1);
      assert_int_equal(witness.heard.size(), 1);
      assert_int_equal(witness.heard[0].status.data.value_or(0), 1234);
      assert_int_equal(witness.heard[0].status.length, size);
      assert_int_equal(witness.heard[0].status.source, kS);
      assert_int_equal(witness.heard[0].label, 7);
      assert_true(std::equal(data.begin(), data.end(), witness.seen.begin()));
      p.scene.net.conceal(kR, exposed);
    }
}

void a_get_of_nothing_is_done(void**) {
  Pair p;
  assert_true(static_cast<bool>(p.scene.net[kS].get(kR, {}, {}, report(p.sender))));
  assert_int_equal(p.sender.heard.size(), 1);
  assert_int_equal(p.sender.heard[0].status.error, Error::none);
}

void an_injected_put_is_a_copy(void**) {
  Pair p;
  Bytes window(kSmall), data = pattern(kS, 3, kSmall);
  const Bytes expected = data;
  Exposed* exposed = p.scene.net.expose(kR, window);
  assert_true(
      static_cast<bool>(p.scene.net[kS].put(kR, data, exposed->remote, {.inject = true, .report = report(p.sender)})));
  assert_int_equal(p.sender.heard.size(), 1);
  std::fill(data.begin(), data.end(), std::byte{0});
  p.scene.net.run();
  assert_true(window == expected);
  p.scene.net.conceal(kR, exposed);
}

void an_injected_put_is_delivered_when_it_is_in_place(void**) {
  Pair p;
  Bytes window(kSmall), data = pattern(kS, 3, kSmall);
  const Bytes expected = data;
  Exposed* exposed = p.scene.net.expose(kR, window);
  assert_true(static_cast<bool>(
      p.scene.net[kS].put(kR, data, exposed->remote, {.inject = true, .delivered = true, .report = report(p.sender)})));
  std::fill(data.begin(), data.end(), std::byte{0});
  assert_int_equal(p.sender.heard.size(), 0);
  p.scene.net.run();
  assert_int_equal(p.sender.heard.size(), 1);
  assert_int_equal(p.sender.heard[0].status.error, Error::none);
  assert_true(window == expected);
  p.scene.net.conceal(kR, exposed);
}

struct Echo final : Answerer {
  std::size_t on_call(PeerId peer, Octets question, MutableOctets answer) override {
    last = peer;
    room = answer.size();
    std::reverse_copy(question.begin(), question.end(), answer.begin());
    return question.size();
  }
  PeerId last = kAnySource;
  std::size_t room = 0;
};

void a_call_is_answered(void**) {
  Pair p;
  Echo echo;
  const Bytes question = pattern(kS, 9, kSmall);
  Bytes answer(kSmall), expected(question.rbegin(), question.rend());
  // Without an answerer, with one, and to oneself.
  for (const PeerId to : {kR, kR, kS}) {
    p.sender.heard.clear();
    assert_true(static_cast<bool>(p.scene.net[kS].call(to, question, answer, report(p.sender))));
    p.scene.net.run();
    assert_int_equal(p.sender.heard.size(), 1);
    assert_int_equal(p.sender.heard[0].status.error, Error::none);
    const bool answered = echo.last != kAnySource || to == kS;
    assert_int_equal(p.sender.heard[0].status.length, answered ? kSmall : 0);
    if (answered) assert_true(answer == expected);
    // Whatever the asker has room for.
    if (answered) assert_int_equal(echo.room, small_tuning().eager_threshold);
    p.scene.net[kR].answer_with(&echo);
    p.scene.net[kS].answer_with(&echo);
  }
}

void a_call_ends_with_the_peer(void**) {
  Pair p;
  Bytes answer(kSmall);
  const Bytes question = pattern(kS, 9, kSmall);
  assert_true(static_cast<bool>(p.scene.net[kS].call(kR, question, answer, report(p.sender))));
  p.scene.net.kill(kR);
  p.scene.net.run();
  assert_int_equal(p.sender.heard.size(), 1);
  assert_int_equal(p.sender.heard[0].status.error, Error::peer_down);
}

}  // namespace
}  // namespace ewarp::channel::test

int main() {
  using namespace ewarp::channel::test;
  const CMUnitTest tests[] = {
      cmocka_unit_test(every_protocol_reports_once_with_the_attached_data),
      cmocka_unit_test(data_that_was_told_before_costs_no_message),
      cmocka_unit_test(an_injected_buffer_is_free_at_once),
      cmocka_unit_test(one_injected_message_waits_whatever_the_limit),
      cmocka_unit_test(an_injected_message_to_oneself_is_a_copy),
      cmocka_unit_test(an_injected_send_is_delivered_when_the_peer_has_it),
      cmocka_unit_test(a_delivered_send_is_done_when_the_peer_has_it),
      cmocka_unit_test(a_delivered_send_ends_with_the_peer),
      cmocka_unit_test(messages_lie_one_behind_the_other),
      cmocka_unit_test(the_last_of_a_multi_receive_may_be_truncated),
      cmocka_unit_test(receives_behind_a_multi_receive_announce_nothing),
      cmocka_unit_test(a_multi_receive_is_cancelled_when_its_messages_have_come),
      cmocka_unit_test(a_multi_receive_ends_with_its_peer),
      cmocka_unit_test(the_oldest_of_a_context_is_cancelled),
      cmocka_unit_test(a_discarded_message_releases_its_sender),
      cmocka_unit_test(a_put_tells_its_data_behind_what_it_wrote),
      cmocka_unit_test(a_get_of_nothing_is_done),
      cmocka_unit_test(an_injected_put_is_a_copy),
      cmocka_unit_test(an_injected_put_is_delivered_when_it_is_in_place),
      cmocka_unit_test(a_call_is_answered),
      cmocka_unit_test(a_call_ends_with_the_peer),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
