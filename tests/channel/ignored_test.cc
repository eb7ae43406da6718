// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Bits of tags that receives of the whole job ignore, as Open MPI's do its mark of synchronous sends: such receives
// announce, and numbers count whatever comes with those bits. Node 0 sends, node 1 receives.
#include "tests/channel/scene.h"

using namespace ewarp::channel;
using namespace ewarp::channel::test;

namespace {

constexpr Tag kIgnored = 0x100, kOther = 0x200;

Tuning ignoring_tuning() {
  Tuning t = small_tuning();
  t.ignored_bits = kIgnored;
  return t;
}

struct IgnoringScene : Scene {
  IgnoringScene() : Scene(ignoring_tuning()) { connect(); }
  // As a receive of the job's does.
  Transfer& usual(Tag tag, std::size_t capacity, PeerId source = kS) {
    return receive(kR, source, tag, capacity, kIgnored);
  }
  void got_with_tag(Transfer& r, Transfer& s, Tag tag) {
    const auto status = net[r.owner].test(r.request);
    assert_true(status.has_value());
    assert_int_equal(static_cast<int>(status->error), static_cast<int>(Error::none));
    assert_int_equal(status->tag, tag);
    assert_int_equal(status->length, s.data.size());
    const Bytes sent = pattern(s.owner, s.number, s.data.size());
    assert_memory_equal(r.data.data(), sent.data(), sent.size());
  }
};

void a_receive_that_ignores_what_all_do_is_written_into(void**) {
  for (const std::size_t size : {kMedium, kLarge}) {
    IgnoringScene s;
    auto& received = s.usual(1, size);
    s.net.run();
    assert_int_equal(s.count(kR, Count::announced), 1);
    auto& sent = s.send(kS, kR, 1, size);
    assert_int_equal(s.net.in_flight(kS, kR), 1);  // the Write, and nothing else
    s.net.run();
    s.got_with_tag(received, sent, 1);
    assert_int_equal(s.count(kS, Count::recv_rndv), 1);
    assert_int_equal(s.count(kR, Count::wildcard_silent), 0);
  }
}

// An immediate could not say which bits the message had.
void a_message_with_other_bits_tells_its_tag(void**) {
  IgnoringScene s;
  auto& received = s.usual(1, kLarge);
  s.net.run();
  auto& sent = s.send(kS, kR, 1 | kIgnored, kLarge);
  assert_int_equal(s.net.in_flight(kS, kR), 2);
  s.net.run();
  s.got_with_tag(received, sent, 1 | kIgnored);
  s.ends(sent);
  assert_int_equal(s.count(kS, Count::recv_rndv), 1);
  assert_int_equal(s.count(kS, Count::written_notices), 1);
}

void a_crossed_message_has_told_its_tag(void**) {
  IgnoringScene s;
  auto& sent = s.send(kS, kR, 1 | kIgnored, kLarge);
  auto& received = s.usual(1, kLarge);
  s.net.run();
  s.got_with_tag(received, sent, 1 | kIgnored);
  assert_int_equal(s.count(kS, Count::recv_rndv), 1);
  assert_int_equal(s.count(kS, Count::written_notices), 0);
}

// What was announced second is for the second message, whatever the bits of the first were.
void numbers_count_messages_of_all_ignored_bits(void**) {
  for (const Tag first : {Tag{1}, 1 | kIgnored})
    for (const Tag second : {Tag{1}, 1 | kIgnored}) {
      IgnoringScene s;
      auto& r1 = s.usual(1, kLarge);
      auto& r2 = s.usual(1 | kIgnored, kLarge);
      auto& s1 = s.send(kS, kR, first, kLarge);
      auto& s2 = s.send(kS, kR, second, kSmall);  // mispredicted
      auto& r3 = s.usual(1, kLarge);
      s.net.run();
      auto& s3 = s.send(kS, kR, first, kLarge);
      s.net.run();
      s.got_with_tag(r1, s1, first);
      s.got_with_tag(r2, s2, second);
      s.got_with_tag(r3, s3, first);
      assert_int_equal(s.count(kS, Count::got_mispredicted) + s.count(kS, Count::got_crossed), 1);
    }
}

// A receive that minds those bits may leave a message to the one behind it, so neither announces.
void a_receive_that_minds_them_is_a_wildcard(void**) {
  for (const Tag comes : {Tag{1}, 1 | kIgnored}) {
    IgnoringScene s;
    auto& minds = s.receive(kR, kS, 1, kLarge, 0);
    auto& behind = s.usual(1, kLarge);
    s.net.run();
    assert_int_equal(s.count(kR, Count::announced), 0);
    assert_int_equal(s.count(kR, Count::wildcard_silent), 2);
    auto& s1 = s.send(kS, kR, comes, kLarge);
    s.net.run();
    s.got_with_tag(comes == 1 ? minds : behind, s1, comes);
    auto& s2 = s.send(kS, kR, 1, kLarge);
    s.net.run();
    s.got_with_tag(comes == 1 ? behind : minds, s2, 1);
  }
}

void one_that_minds_another_tag_silences_nobody(void**) {
  IgnoringScene s;
  auto& acknowledgement = s.receive(kR, kS, 1 | kOther, kSmall, 0);
  auto& large = s.usual(1, kLarge);
  s.net.run();
  assert_int_equal(s.count(kR, Count::announced), 1);
  auto& s1 = s.send(kS, kR, 1, kLarge);
  auto& s2 = s.send(kS, kR, 1 | kOther, kSmall);
  s.net.run();
  s.got_with_tag(large, s1, 1);
  s.got_with_tag(acknowledgement, s2, 1 | kOther);
  assert_int_equal(s.count(kS, Count::recv_rndv), 1);
}

void what_has_come_is_found_with_and_without_them(void**) {
  IgnoringScene s;
  auto& s1 = s.send(kS, kR, 1 | kIgnored, kSmall);
  auto& s2 = s.send(kS, kR, 1, kSmall);
  s.net.run();
  assert_int_equal(s.net[kR].probe(kS, 1, kIgnored)->tag, 1 | kIgnored);
  assert_int_equal(s.net[kR].probe(kAnySource, 1, 0)->tag, 1);
  assert_false(s.net[kR].probe(kS, 1 | kOther, kIgnored).has_value());
  auto& minds = s.receive(kR, kS, 1, kSmall, 0);
  auto& anybody = s.usual(1, kSmall, kAnySource);
  s.got_with_tag(minds, s2, 1);
  s.got_with_tag(anybody, s1, 1 | kIgnored);
}

void a_retraction_is_of_all_ignored_bits(void**) {
  IgnoringScene s;
  auto& r1 = s.usual(1, kLarge);
  auto& r2 = s.usual(1 | kIgnored, kLarge);
  s.net.run();
  s.net[kR].cancel(r1.request);
  s.net.run();
  s.ends(r1, Error::cancelled);
  assert_int_equal(s.count(kS, Count::got_retracted), 2);
  auto& sent = s.send(kS, kR, 1, kLarge);
  s.net.run();
  s.got_with_tag(r2, sent, 1);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_receive_that_ignores_what_all_do_is_written_into),
      cmocka_unit_test(a_message_with_other_bits_tells_its_tag),
      cmocka_unit_test(a_crossed_message_has_told_its_tag),
      cmocka_unit_test(numbers_count_messages_of_all_ignored_bits),
      cmocka_unit_test(a_receive_that_minds_them_is_a_wildcard),
      cmocka_unit_test(one_that_minds_another_tag_silences_nobody),
      cmocka_unit_test(what_has_come_is_found_with_and_without_them),
      cmocka_unit_test(a_retraction_is_of_all_ignored_bits),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
