// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Large messages wait for room at the adapter, and what is sent meanwhile passes them, unless somebody could tell.
#include <utility>
#include <vector>

#include "tests/channel/scene.h"

namespace ewarp::channel::test {
namespace {

constexpr std::size_t kWindow = 400;

Tuning with_window() {
  Tuning t = small_tuning();
  t.eager_piece = 16;
  t.write_window = kWindow;
  t.announce_threshold = 64;
  return t;
}

struct WindowScene : Scene {
  // depth: of receives; 0: as many as no test here exhausts.
  explicit WindowScene(const Tuning& tuning = with_window(), std::uint32_t depth = 0)
      : Scene(with_depth(tuning, depth)) {
    depth == 0 ? connect_widely() : connect();
  }
  static Tuning with_depth(Tuning t, std::uint32_t depth) {
    if (depth != 0) t.receive_depth = depth;
    return t;
  }
  // A receive whose announcement the sender has.
  Transfer& announced(Tag tag, std::size_t size = kLarge) {
    Transfer& r = receive(kR, kS, tag, size);
    net.run();
    return r;
  }
  // What S sends, one after the other, until this is done.
  void deliver_until(const Transfer& t) {
    while (!done(t)) assert_true(net.deliver(kS, kR));
  }
  // Everything that R has of S, but no completions.
  void deliver_all() {
    while (net.deliver(kS, kR)) {
    }
  }
};

void no_more_than_the_window_is_with_the_adapter(void**) {
  WindowScene s;
  auto& received = s.announced(1, 10 * kWindow);
  auto& sent = s.send(kS, kR, 1, 10 * kWindow);
  assert_int_equal(s.net.in_flight(kS, kR), 4);  // pieces of a quarter
  assert_int_equal(s.count(kS, Count::writes_divided), 4);
  s.deliver_all();
  assert_int_equal(s.net.in_flight(kS, kR), 0);  // nothing has completed
  assert_true(s.net.complete(kS, kR));
  assert_int_equal(s.net.in_flight(kS, kR), 1);
  s.net.run();
  s.ends(sent);
  s.got(received, sent);
  assert_int_equal(s.count(kS, Count::written_notices), 1);  // its length is not that of a Write
}

void what_fits_goes_whole_and_by_immediate(void**) {
  WindowScene s;
  auto& received = s.announced(1, kWindow);
  auto& sent = s.send(kS, kR, 1, kWindow);
  assert_int_equal(s.net.in_flight(kS, kR), 1);
  s.net.run();
  s.ends(sent);
  s.got(received, sent);
  assert_int_equal(s.count(kS, Count::writes_divided), 0);
  assert_int_equal(s.count(kS, Count::written_notices), 0);
}

// Two that fit, but not together; what room is left is less than a piece.
void the_next_one_waits_for_room(void**) {
  WindowScene s;
  auto& first = s.announced(1, kWindow - 1);
  auto& second = s.announced(2, kWindow - 1);
  auto& a = s.send(kS, kR, 1, kWindow - 1);
  auto& b = s.send(kS, kR, 2, kWindow - 1);
  assert_int_equal(s.net.in_flight(kS, kR), 1);
  s.net.run();
  s.ends(a), s.ends(b);
  s.got(first, a), s.got(second, b);
  assert_int_equal(s.count(kS, Count::writes_divided), 0);
}

// What is on its way of R's large message afterwards is what a small one has to wait for.
void a_small_message_makes_the_window_narrow(void**) {
  for (const Tag small_tag : {2, 1}) {  // one that passes, and one that does not
    Tuning t = with_window();
    t.narrow_window = kWindow / 4;
    WindowScene s(t);
    auto& large = s.announced(1, 20 * kWindow);
    auto& bulk = s.send(kS, kR, 1, 20 * kWindow);
    auto& received = s.receive(kR, kS, small_tag, 5);
    auto& sent = s.send(kS, kR, small_tag, 5);
    s.deliver_all();
    while (s.net.complete(kS, kR)) {
    }
    assert_int_equal(s.net.octets_in_flight(kS, kR), small_tag == 2 ? kWindow / 4 : kWindow);
    s.net.run();
    s.ends(bulk), s.ends(sent);
    s.got(large, bulk), s.got(received, sent);
  }
}

void small_messages_of_other_tags_pass(void**) {
  for (const std::size_t size : {kSmall, std::size_t{5}}) {  // in pieces, and in one
    WindowScene s;
    auto& large = s.announced(1, 10 * kWindow);
    auto& bulk = s.send(kS, kR, 1, 10 * kWindow);
    auto& received = s.receive(kR, kS, 2, size);
    auto& sent = s.send(kS, kR, 2, size);
    assert_int_equal(s.count(kS, Count::writes_passed), size == kSmall ? 3 : 1);
    s.deliver_until(received);
    assert_false(s.done(large));
    s.got(received, sent);
    s.net.run();
    s.ends(bulk), s.ends(sent);
    s.got(large, bulk);
  }
}

// The peer counts messages of a tag: another one would be taken for the one that is written.
void messages_of_the_same_tag_do_not(void**) {
  WindowScene s;
  auto& large = s.announced(1, 10 * kWindow);
  auto& bulk = s.send(kS, kR, 1, 10 * kWindow);
  auto& next = s.receive(kR, kS, 1, kSmall);
  auto& sent = s.send(kS, kR, 1, kSmall);
  // Nor does anything pass what waits for its turn.
  auto& other = s.receive(kR, kAnySource, 2, kSmall, kAnyTag);
  auto& last = s.send(kS, kR, 2, kSmall);
  assert_int_equal(s.count(kS, Count::writes_passed), 0);
  s.net.run();
  s.ends(bulk), s.ends(sent), s.ends(last);
  s.got(large, bulk), s.got(next, sent), s.got(other, last);
}

// Its SENDER_READY has been counted.
void they_do_where_the_message_is_known(void**) {
  WindowScene s;
  auto& bulk = s.send(kS, kR, 1, 10 * kWindow);
  s.net.run();
  auto& large = s.receive(kR, kAnySource, 1, 10 * kWindow, kAnyTag);
  assert_true(s.net.deliver(kR, kS));  // the answer
  auto& next = s.receive(kR, kS, 1, kSmall);
  auto& sent = s.send(kS, kR, 1, kSmall);
  assert_true(s.count(kS, Count::writes_passed) > 0);
  s.deliver_until(next);
  assert_false(s.done(large));
  s.got(next, sent);
  s.net.run();
  s.ends(bulk), s.ends(sent);
  s.got(large, bulk);
  assert_int_equal(s.count(kS, Count::written_notices), 0);
}

// Two processes exchange large messages, each of which sends first: the answers pass what is written.
void answers_pass(void**) {
  WindowScene s;
  auto& to_r = s.announced(1, 10 * kWindow);
  auto& bulk = s.send(kS, kR, 1, 10 * kWindow);
  auto& back = s.send(kR, kS, 3, kLarge);
  while (s.net.deliver(kR, kS)) {
  }
  auto& to_s = s.receive(kS, kAnySource, 3, kLarge, kAnyTag);
  assert_int_equal(s.count(kS, Count::writes_passed), 1);
  while (!s.done(to_s)) assert_true(s.net.deliver(kS, kR) || s.net.deliver(kR, kS) || s.net.complete(kR, kS));
  assert_false(s.done(to_r));
  s.net.run();
  s.ends(bulk), s.ends(back);
  s.got(to_r, bulk), s.got(to_s, back);
}

// RETRACTED says that nothing will be written any more.
void a_retraction_is_answered_behind_them(void**) {
  WindowScene s;
  auto& large = s.announced(1, 10 * kWindow);
  auto& bulk = s.send(kS, kR, 1, 10 * kWindow);
  s.net[kR].cancel(large.request);
  while (s.net.deliver(kR, kS)) {
  }
  assert_int_equal(s.count(kR, Count::retractions), 1);
  s.net.run();
  s.ends(bulk);
  s.got(large, bulk);  // the message wins
}

void what_waits_for_a_credit_goes_first(void**) {
  WindowScene s(with_window(), 1);
  auto& large = s.announced(1, 10 * kWindow);
  std::vector<std::pair<Scene::Transfer*, Scene::Transfer*>> pairs;
  for (int i = 0; i < 2; ++i) {
    auto& sent = s.send(kS, kR, 2, 5);
    pairs.emplace_back(&sent, &s.receive(kR, kS, 2, 5));
  }
  auto& bulk = s.send(kS, kR, 1, 10 * kWindow);
  assert_int_equal(s.net.in_flight(kS, kR), 1);
  s.net.run();
  for (auto& [sent, received] : pairs) s.ends(*sent), s.got(*received, *sent);
  s.ends(bulk);
  s.got(large, bulk);
}

// Small ones that wait for credits do not hold up what needs none, nor what has waited for longer.
void small_messages_do_not_starve_it(void**) {
  WindowScene s(with_window(), 2);
  auto& large = s.announced(1, 10 * kWindow);
  auto& bulk = s.send(kS, kR, 1, 10 * kWindow);
  std::vector<Scene::Transfer*> small;
  for (int i = 0; i < 10; ++i) small.push_back(&s.send(kS, kR, 2, 5));
  // R says nothing: what needs no credit goes on until only the word that it is written is left.
  while (s.net.deliver(kS, kR) || s.net.complete(kS, kR)) {
  }
  assert_in_range(s.count(kS, Count::writes_divided), 36, 39);
  // There is always another small one, and still it ends.
  for (int i = 0; !s.done(large); ++i) {
    assert_in_range(i, 0, 100);
    small.push_back(&s.send(kS, kR, 2, 5));
    s.net.deliver(kR, kS);
    s.net.deliver(kS, kR);
    s.net.complete(kS, kR);
  }
  s.ends(bulk);
  s.got(large, bulk);
  s.net.run();
  for (auto* each : small) s.got(s.receive(kR, kS, 2, 5), *each), s.net.run(), s.ends(*each);
}

// An immediate refers to the octets that were attached before: nothing passes one that tells others.
void attached_octets_keep_their_order(void**) {
  WindowScene s;
  Heard heard;
  struct {
    Tag tag;
    std::uint64_t data;  // 0: none
    std::size_t size;
    Bytes from, to;
  } messages[] = {{10, 7, 5, {}, {}},
                  {1, 0, 10 * kWindow, {}, {}},
                  {2, 7, kWindow / 5, {}, {}},
                  {3, 8, 2 * kWindow, {}, {}},
                  {4, 8, 5, {}, {}}};
  for (auto& m : messages) {
    m.from = pattern(kS, m.tag, m.size);
    m.to.resize(m.size);
    s.net[kR].receive(kS, m.tag, 0, m.to, {.report = {.listener = &heard, .context = &m}});
  }
  s.net.run();
  for (auto& m : messages) {
    const auto data = m.data != 0 ? std::optional(m.data) : std::nullopt;
    s.net[kS].send(kR, m.tag, m.from, {.data = data, .report = {.listener = &heard}});
  }
  s.net.run();
  assert_int_equal(heard.heard.size(), 2 * std::size(messages));
  for (auto& m : messages) {
    assert_memory_equal(m.to.data(), m.from.data(), m.size);
    for (const Completion& c : heard.heard)
      if (c.context == &m) assert_int_equal(c.status.data.value_or(0), m.data);
  }
}

void attached_octets_that_differ_do_not_pass(void**) {
  for (const bool differs : {false, true}) {
    WindowScene s;
    Heard heard;
    const Bytes bulk = pattern(kS, 1, 10 * kWindow), little = pattern(kS, 2, 5), before = pattern(kS, 3, 5);
    Bytes first(5);
    s.net[kR].receive(kS, 3, 0, first, {.report = {.listener = &heard}});
    s.net[kS].send(kR, 3, before, {.data = 7, .report = {.listener = &heard}});
    Bytes to(bulk.size()), small(5);
    s.net[kR].receive(kS, 1, 0, to, {.report = {.listener = &heard}});
    s.net[kR].receive(kS, 2, 0, small, {.report = {.listener = &heard}});
    s.net.run();
    s.net[kS].send(kR, 1, bulk, {.data = 7, .report = {.listener = &heard}});
    s.net[kS].send(kR, 2, little, {.data = differs ? 8 : 7, .report = {.listener = &heard}});
    assert_int_equal(s.count(kS, Count::writes_passed), differs ? 0 : 1);
    s.net.run();
    assert_int_equal(heard.heard.size(), 6);
    for (const Completion& c : heard.heard) {
      if (!c.status.data) continue;  // a send
      const bool is_small = c.status.length == small.size();
      assert_int_equal(*c.status.data, is_small && c.status.tag == 2 && differs ? 8 : 7);
    }
    assert_memory_equal(to.data(), bulk.data(), to.size());
    assert_memory_equal(small.data(), little.data(), small.size());
  }
}

// A message that is done when it is copied: whatever is sent then comes behind it.
void nothing_passes_a_copy(void**) {
  WindowScene s;
  auto& large = s.announced(1, 10 * kWindow);
  auto& medium = s.announced(2, kMedium);
  auto& bulk = s.send(kS, kR, 1, 10 * kWindow);
  const Bytes octets = pattern(kS, 99, kMedium);
  const auto copy = s.net[kS].copy_ahead(kR, octets, {});
  assert_true(copy.has_value());
  const Request copied = s.net[kS].send(kR, 2, octets, {}, copy);
  assert_true(s.net[kS].done(copied));
  auto& received = s.receive(kR, kS, 3, kSmall);
  auto& sent = s.send(kS, kR, 3, kSmall);
  assert_int_equal(s.count(kS, Count::writes_passed), 0);
  while (!s.done(received)) {
    assert_true(s.net.deliver(kS, kR) || s.net.complete(kS, kR));
    assert_true(s.done(medium) || !s.done(received));
  }
  s.net.run();
  s.ends(bulk), s.ends(sent);
  s.got(large, bulk), s.got(received, sent);
  assert_memory_equal(medium.data.data(), octets.data(), kMedium);
}

void a_peer_that_ends_takes_what_waits_along(void**) {
  WindowScene s;
  s.announced(1, 10 * kWindow);
  auto& bulk = s.send(kS, kR, 1, 10 * kWindow);
  auto& held = s.send(kS, kR, 1, kSmall, true);
  s.net.deliver(kS, kR);
  s.net.kill(kR);
  s.ends(bulk, Error::peer_down);
  s.ends(held, Error::peer_down);
  assert_true(s.net[kS].idle());
}

}  // namespace
}  // namespace ewarp::channel::test

int main() {
  using namespace ewarp::channel::test;
  const CMUnitTest tests[] = {
      cmocka_unit_test(no_more_than_the_window_is_with_the_adapter),
      cmocka_unit_test(what_fits_goes_whole_and_by_immediate),
      cmocka_unit_test(the_next_one_waits_for_room),
      cmocka_unit_test(a_small_message_makes_the_window_narrow),
      cmocka_unit_test(small_messages_of_other_tags_pass),
      cmocka_unit_test(messages_of_the_same_tag_do_not),
      cmocka_unit_test(they_do_where_the_message_is_known),
      cmocka_unit_test(answers_pass),
      cmocka_unit_test(a_retraction_is_answered_behind_them),
      cmocka_unit_test(what_waits_for_a_credit_goes_first),
      cmocka_unit_test(small_messages_do_not_starve_it),
      cmocka_unit_test(attached_octets_keep_their_order),
      cmocka_unit_test(attached_octets_that_differ_do_not_pass),
      cmocka_unit_test(nothing_passes_a_copy),
      cmocka_unit_test(a_peer_that_ends_takes_what_waits_along),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
