// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The order in which receives end with ordered_completions: behind messages by HYBRID that are being read, and behind
// nothing else.
#include "tests/channel/scene.h"

namespace ewarp::channel::test {
namespace {

// Tells which receives ended, in order.
struct Ends final : Listener {
  void on_done(const Completion& c) override {
    labels.push_back(c.label);
    errors.push_back(c.status.error);
    released.push_back(c.released);
  }
  bool are(const std::vector<std::uint64_t>& want) const { return labels == want; }
  std::vector<std::uint64_t> labels;
  std::vector<Error> errors;
  std::vector<bool> released;
};

Tuning ordered_tuning() {
  Tuning t = small_tuning();
  t.ordered_completions = true;
  t.announce = false;  // each protocol is chosen by size, and by the test that wants an announcement
  return t;
}

// Messages to kR, which it hears of by a listener. Nothing moves but what a test delivers.
struct Line {
  explicit Line(const Tuning& tuning = ordered_tuning(), std::size_t nodes = 2) : scene(tuning, nodes), net(scene.net) {
    for (PeerId from = 0; from < nodes; ++from)
      if (from != kR) scene.connect_widely(from, kR);
  }
  Scene::Transfer& send(Tag tag, std::size_t size, PeerId from = kS) { return scene.send(from, kR, tag, size); }
  // Reports with its tag.
  Bytes& receive(Tag tag, std::size_t capacity, PeerId source = kS) {
    Bytes& buffer = buffers.emplace_back(capacity);
    name = net[kR].receive(source, tag, 0, buffer, {.report = report(tag)});
    return buffer;
  }
  Report report(Tag tag) { return {.listener = &ends, .context = nullptr, .label = tag}; }
  // Everything that `from` has sent arrives. Its answers to Reads do not.
  void arrives(PeerId from = kS) {
    while (net.deliver(from, kR)) {
    }
  }
  // A message of tag 1 that is being read.
  void hybrid_under_way() {
    receive(1, kMedium);
    send(1, kMedium);
    arrives();
    assert_true(ends.labels.empty());
  }
  void says(const Bytes& buffer, const Scene::Transfer& sent) {
    const Bytes want = pattern(sent.owner, sent.number, sent.data.size());
    assert_memory_equal(buffer.data(), want.data(), std::min(buffer.size(), want.size()));
  }
  std::uint64_t held() { return scene.count(kR, Count::completions_held); }

  Scene scene;
  Net& net;
  Ends ends;
  std::list<Bytes> buffers;
  Request name;
};

// --- what is held ---

void a_small_message_ends_behind_the_medium_one_before_it(void**) {
  for (const bool ordered : {false, true})
    for (const bool posted_before : {false, true}) {
      Tuning t = ordered_tuning();
      t.ordered_completions = ordered;
      Line l(t);
      Bytes* small = posted_before ? &l.receive(2, kSmall) : nullptr;
      l.hybrid_under_way();
      auto& sent = l.send(2, kSmall);
      l.arrives();
      if (!posted_before) small = &l.receive(2, kSmall);
      assert_true(l.ends.are(ordered ? std::vector<std::uint64_t>{} : std::vector<std::uint64_t>{2}));
      l.net.run();
      assert_true(l.ends.are(ordered ? std::vector<std::uint64_t>{1, 2} : std::vector<std::uint64_t>{2, 1}));
      l.says(*small, sent);
      assert_int_equal(l.held(), ordered);
      assert_int_equal(l.scene.count(kS, Count::hybrid), 1);
    }
}

void a_request_that_is_tested_for_is_held_too(void**) {
  Line l;
  auto& medium = l.scene.receive(kR, kS, 1, kMedium);
  auto& small = l.scene.receive(kR, kS, 2, kSmall);
  auto& medium_sent = l.send(1, kMedium);
  auto& small_sent = l.send(2, kSmall);
  l.arrives();
  assert_false(l.scene.done(medium) || l.scene.done(small));
  assert_true(l.net[kR].pending_request(small.request));
  l.net[kR].cancel(small.request);  // too late: it has its message
  l.net.run();
  l.scene.got(medium, medium_sent);
  l.scene.got(small, small_sent);
}

void what_is_written_is_held_behind_earlier_reads(void**) {
  // An answer to SENDER_READY is on its way when the Read begins.
  Line l;
  l.send(2, kLarge);
  l.send(1, kMedium);
  l.arrives();
  l.receive(2, kLarge);
  l.receive(1, kMedium);
  assert_true(l.net.deliver(kR, kS));  // the answer, so that the sender writes
  l.arrives();
  assert_true(l.ends.labels.empty());
  l.net.run();
  assert_true(l.ends.are({1, 2}));
  assert_int_equal(l.scene.count(kS, Count::send_rndv_write), 1);
}

void what_is_written_into_an_announced_buffer_is_held(void**) {
  for (const bool immediate : {false, true}) {
    Tuning t = ordered_tuning();
    t.announce = true;
    Line l(t);
    l.net.immediate = immediate;
    l.receive(2, kLarge);
    assert_true(l.net.deliver(kR, kS));  // RECEIVER_READY
    l.receive(1, kMedium);               // whose announcement is not delivered
    l.send(1, kMedium);
    l.send(2, kLarge);
    l.arrives();
    assert_true(l.ends.labels.empty());
    l.net.run();
    assert_true(l.ends.are({1, 2}));
    assert_int_equal(l.scene.count(kS, Count::recv_rndv), 1);
    assert_int_equal(l.scene.count(kS, Count::hybrid), 1);
  }
}

void messages_end_in_the_order_in_which_they_were_received(void**) {
  Line l;
  for (Tag tag = 1; tag <= 6; ++tag) {
    l.receive(tag, kMedium, tag % 2 == 0 ? kAnySource : kS);
    l.send(tag, tag % 2 == 0 ? kSmall : kMedium);
  }
  l.arrives();
  assert_true(l.ends.labels.empty());
  // The first Read's answer lets go of what was held behind it, up to the next Read.
  while (l.net.in_flight(kR, kS) > 0 && !l.net.deliver_response(kS, kR)) l.net.deliver(kR, kS);
  while (l.ends.labels.empty()) assert_true(l.net.step());
  assert_true(l.ends.are({1, 2}));
  l.net.run();
  assert_true(l.ends.are({1, 2, 3, 4, 5, 6}));
  assert_int_equal(l.scene.count(kS, Count::hybrid), 3);
}

void the_messages_of_a_multi_receive_are_held(void**) {
  Line l;
  Bytes buffer(kSmall + 8);
  l.net[kR].receive(kS, 2, 0, buffer, {.multi = true, .least = 9, .report = l.report(2)});
  l.hybrid_under_way();
  l.send(2, kSmall);
  l.arrives();
  assert_true(l.ends.labels.empty());
  l.net.run();
  assert_true(l.ends.are({1, 2}));
  assert_true(l.ends.released[1]);
  assert_int_equal(l.net[kR].pending(), 0);
}

// --- what is not ---

// The rule of progress: a program that is not told of the small message may wait for it for ever, as the sender of the
// large one does not come back to MPI before it hears that the small one came.
void nothing_is_held_behind_a_rendezvous(void**) {
  for (const bool by_read : {false, true})
    for (const bool sender_first : {false, true}) {
      Tuning t = ordered_tuning();
      t.rendezvous_by_read = by_read;
      Line l(t);
      if (!sender_first) l.receive(1, kLarge);
      auto& large = l.send(1, kLarge);
      l.send(2, kSmall);
      l.arrives();
      if (sender_first) l.receive(1, kLarge);
      l.receive(2, kSmall);
      assert_true(l.ends.are({2}));
      assert_false(l.scene.done(large));
      assert_int_equal(l.held(), 0);
      l.net.run();
      assert_true(l.ends.are({2, 1}));
    }
}

void nothing_is_held_behind_an_announced_receive(void**) {
  Tuning t = ordered_tuning();
  t.announce = true;
  Line l(t);
  l.receive(1, kLarge);
  l.receive(2, kSmall);
  l.send(2, kSmall);
  l.arrives();
  assert_true(l.ends.are({2}));
}

void nothing_is_held_behind_a_message_that_nobody_asked_for(void**) {
  Line l;
  l.receive(2, kSmall);
  l.send(1, kMedium);
  l.send(2, kSmall);
  l.arrives();
  assert_true(l.ends.are({2}));
}

void other_peers_are_not_held(void**) {
  constexpr PeerId kOther = 2;
  Line l(ordered_tuning(), 3);
  l.hybrid_under_way();
  l.receive(2, kSmall, kOther);
  l.receive(3, kSmall, kAnySource);
  l.receive(4, kSmall, kR);
  l.send(2, kSmall, kOther);
  l.send(3, kSmall, kOther);
  l.send(4, kSmall, kR);
  l.arrives(kOther);
  assert_int_equal(l.ends.labels.size(), 3);
  l.net.run();
  assert_int_equal(l.ends.labels.back(), 1);
}

// --- what lets go ---

void a_truncated_message_lets_go(void**) {
  for (const std::size_t capacity : {std::size_t{0}, std::size_t{10}}) {
    Line l;
    l.receive(1, capacity);
    l.receive(2, kSmall);
    l.send(1, kMedium);
    l.send(2, kSmall);
    l.arrives();
    assert_int_equal(l.ends.labels.size(), capacity == 0 ? 2 : 0);
    l.net.run();
    assert_true(l.ends.are({1, 2}));
    assert_true(l.ends.errors == (std::vector<Error>{Error::truncated, Error::none}));
  }
}

void a_message_that_cannot_be_fetched_lets_go(void**) {
  for (const bool behind_another : {false, true}) {
    Line l;
    if (behind_another) l.hybrid_under_way();
    l.receive(2, kMedium);
    l.receive(3, kSmall);
    l.send(2, kMedium);
    l.send(3, kSmall);
    l.net.refuse_memory = true;
    l.arrives();
    l.net.refuse_memory = false;
    assert_int_equal(l.ends.labels.size(), behind_another ? 0 : 2);
    l.net.run();
    const std::size_t first = behind_another ? 1 : 0;
    assert_int_equal(l.ends.labels.size(), first + 2);
    assert_int_equal(l.ends.labels[first], 2);
    assert_true(l.ends.errors[first] == Error::no_memory);
    assert_int_equal(l.ends.labels[first + 1], 3);
    assert_true(l.ends.errors[first + 1] == Error::none);
    assert_int_equal(l.net[kR].pending(), 0);
  }
}

// It has no message, so it waits for none.
void a_cancelled_receive_is_not_held_and_holds_nothing(void**) {
  Line l;
  l.receive(5, kMedium);
  const Request early = l.name;
  l.hybrid_under_way();
  l.receive(6, kSmall);
  const Request late = l.name;
  l.receive(2, kSmall);
  l.send(2, kSmall);
  l.arrives();
  assert_true(l.ends.labels.empty());
  l.net[kR].cancel(early);
  l.net[kR].cancel(late);
  assert_true(l.ends.are({5, 6}));
  assert_true(l.ends.errors[1] == Error::cancelled);
  l.net.run();
  assert_true(l.ends.are({5, 6, 1, 2}));
}

// What was held had come; what was being read is lost.
void the_end_of_the_peer_lets_go(void**) {
  Line l;
  auto& small_in = l.receive(2, kSmall);
  l.receive(3, kMedium);
  auto& last_in = l.receive(4, kSmall);
  l.receive(5, kSmall);
  l.hybrid_under_way();
  auto& small = l.send(2, kSmall);
  l.send(3, kMedium);
  auto& last = l.send(4, kSmall);
  l.arrives();
  assert_true(l.ends.labels.empty());
  l.net.kill(kS);
  l.net.run();
  assert_true(l.ends.are({1, 2, 3, 4, 5}));
  const auto lost = Error::peer_down, got = Error::none;
  assert_true(l.ends.errors == (std::vector<Error>{lost, got, lost, got, lost}));
  l.says(small_in, small);
  l.says(last_in, last);
  assert_int_equal(l.net[kR].pending(), 0);
}

}  // namespace
}  // namespace ewarp::channel::test

int main() {
  using namespace ewarp::channel::test;
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_small_message_ends_behind_the_medium_one_before_it),
      cmocka_unit_test(a_request_that_is_tested_for_is_held_too),
      cmocka_unit_test(what_is_written_is_held_behind_earlier_reads),
      cmocka_unit_test(what_is_written_into_an_announced_buffer_is_held),
      cmocka_unit_test(messages_end_in_the_order_in_which_they_were_received),
      cmocka_unit_test(the_messages_of_a_multi_receive_are_held),
      cmocka_unit_test(nothing_is_held_behind_a_rendezvous),
      cmocka_unit_test(nothing_is_held_behind_an_announced_receive),
      cmocka_unit_test(nothing_is_held_behind_a_message_that_nobody_asked_for),
      cmocka_unit_test(other_peers_are_not_held),
      cmocka_unit_test(a_truncated_message_lets_go),
      cmocka_unit_test(a_message_that_cannot_be_fetched_lets_go),
      cmocka_unit_test(a_cancelled_receive_is_not_held_and_holds_nothing),
      cmocka_unit_test(the_end_of_the_peer_lets_go),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
