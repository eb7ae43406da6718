// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The races that the papers name (Small and Yuan 2009, section 4.1; Rashti 2010, section 4.2.3), each one told what is
// delivered when. Node 0 sends, node 1 receives.
#include "tests/channel/scene.h"

using namespace ewarp::channel;
using namespace ewarp::channel::test;

namespace {

// --- the table of protocols ---

void small_is_eager_whoever_comes_first(void**) {
  Scene s;
  auto& first = s.send(kS, kR, 1, kSmall);
  s.net.run();
  s.ends(first);
  auto& late = s.receive(kR, kS, 1, kSmall);
  s.got(late, first);
  auto& early = s.receive(kR, kS, 1, kSmall);
  s.net.run();
  auto& second = s.send(kS, kR, 1, kSmall);
  s.net.run();
  s.got(early, second);
  assert_int_equal(s.count(kS, Count::eager), 2);
  assert_int_equal(s.count(kR, Count::announced), 0);
}

void medium_with_an_early_sender_is_done_at_once_and_read(void**) {
  Scene s;
  s.connect();
  auto& sent = s.send(kS, kR, 1, kMedium);
  s.ends(sent);
  std::fill(sent.data.begin(), sent.data.end(), std::byte{0xee});  // the user's again
  s.net.run();
  auto& received = s.receive(kR, kS, 1, kMedium);
  assert_false(s.done(received));
  s.net.run();
  s.got(received, sent);
  assert_int_equal(s.count(kS, Count::hybrid), 1);
}

void a_receiver_that_is_first_gets_it_written(void**) {
  for (const std::size_t size : {kMedium, kLarge}) {
    Scene s;
    s.connect();
    auto& received = s.receive(kR, kS, 1, size);
    s.net.run();
    auto& sent = s.send(kS, kR, 1, size);
    assert_int_equal(s.net.in_flight(kS, kR), 1);  // the Write, and nothing else
    assert_false(s.net.head(kS, kR).has_value());
    s.net.run();
    s.got(received, sent);
    s.ends(sent);
    assert_int_equal(s.count(kS, Count::recv_rndv), 1);
    assert_int_equal(s.count(kR, Count::announcements_used), 1);
  }
}

// Eager, but for a receiver that was first and does something else meanwhile; and never into a stale announcement.
void between_the_thresholds(void**) {
  Tuning tuning = small_tuning();
  tuning.announce_threshold = tuning.eager_threshold;
  tuning.eager_threshold = 2 * kMedium;
  Scene s(tuning);
  s.connect();
  const auto eager = s.count(kS, Count::eager);
  auto& early = s.receive(kR, kS, 1, kMedium);
  s.net.run();
  auto& written = s.send(kS, kR, 1, kMedium);
  s.net.run();
  s.got(early, written);
  assert_int_equal(s.count(kS, Count::recv_rndv), 1);
  auto& late = s.send(kS, kR, 1, kMedium);
  auto& crossed = s.receive(kR, kS, 1, kMedium);
  assert_int_equal(s.count(kR, Count::announced), 2);
  s.net.run();
  s.got(crossed, late);
  assert_int_equal(s.count(kS, Count::got_crossed), 1);
  Bytes buffer(kMedium);
  const Request waiting = s.net[kR].receive(kS, 1, 0, buffer, {}, true);
  s.net.run();
  assert_int_equal(s.count(kR, Count::announced), 2);
  auto& last = s.send(kS, kR, 1, kMedium);
  s.net.run();
  assert_true(s.net[kR].test(waiting)->error == Error::none);
  assert_true(buffer == pattern(kS, last.number, kMedium));
  assert_int_equal(s.count(kS, Count::eager), eager + 2);
  // What cannot be eager is announced all the same.
  Bytes large(kLarge);
  s.net[kR].receive(kS, 1, 0, large, {}, true);
  assert_int_equal(s.count(kR, Count::announced), 3);
  // Nothing of it counts for a message that is never written.
  auto& small = s.send(kS, kR, 1, kSmall);
  s.net.run();
  s.ends(small);
  assert_int_equal(s.count(kS, Count::eager), eager + 3);
}

void large_with_an_early_sender_by_write_and_by_read(void**) {
  for (const bool by_read : {false, true}) {
    Tuning t = small_tuning();
    t.rendezvous_by_read = by_read;
    Scene s(t);
    s.connect();
    auto& sent = s.send(kS, kR, 1, kLarge);
    s.net.run();
    assert_false(s.done(sent));
    auto& received = s.receive(kR, kS, 1, kLarge);
    s.net.run();
    s.got(received, sent);
    s.ends(sent);
    assert_int_equal(s.count(kS, Count::send_rndv_read), by_read);
    assert_int_equal(s.count(kS, Count::send_rndv_write), !by_read);
  }
}

// --- crossed announcements ---

void crossed_medium_is_read_and_the_announcement_dropped(void**) {
  Scene s;
  s.connect();
  auto& sent = s.send(kS, kR, 1, kMedium);
  auto& received = s.receive(kR, kS, 1, kMedium);
  s.net.run();
  s.ends(sent);
  s.got(received, sent);
  assert_int_equal(s.count(kS, Count::hybrid), 1);
  assert_int_equal(s.count(kS, Count::got_crossed), 1);
  assert_int_equal(s.count(kR, Count::announcements_unused), 1);
}

// ICS'09, figure 6, lines 8 and 9: the announcement comes while the message is copied.
void medium_announced_during_the_copy_is_written_from_it_and_done_at_once(void**) {
  for (const bool immediate : {false, true})
    for (const std::size_t capacity : {kMedium, kLarge}) {
      Scene s;
      s.net.immediate = immediate;
      if (!immediate) s.net.longest = 150;  // several Writes
      s.connect();
      auto& received = s.receive(kR, kS, 1, capacity);
      Bytes data = pattern(kS, 7, kMedium);
      const auto copy = s.net[kS].copy_ahead(kR, data, {});
      assert_true(copy.has_value());
      assert_true(s.net.deliver(kR, kS));
      const Request sent = s.net[kS].send(kR, 1, data, {}, copy);
      assert_true(s.net[kS].test(sent).has_value());
      std::fill(data.begin(), data.end(), std::byte{0xee});  // the user's again
      assert_false(s.net[kS].idle());
      s.net.run();
      const Bytes want = pattern(kS, 7, kMedium);
      assert_true(s.net[kR].test(received.request)->length == kMedium);
      assert_memory_equal(received.data.data(), want.data(), kMedium);
      assert_int_equal(s.count(kS, Count::recv_rndv), 1);
      assert_int_equal(s.count(kS, Count::recv_rndv_copied), 1);
      assert_int_equal(s.count(kS, Count::hybrid), 0);
      assert_true(s.net[kS].idle());  // the buffer is free
      assert_int_equal(s.net[kS].pending() + s.net[kR].pending(), 0);
    }
}

void medium_without_an_announcement_is_read_from_the_copy(void**) {
  Tuning t = small_tuning();
  t.hybrid_buffers = 1;
  Scene s(t);
  s.connect();
  const Bytes data = pattern(kS, 7, kMedium);
  const auto copy = s.net[kS].copy_ahead(kR, data, {});
  assert_true(copy.has_value());
  assert_false(s.net[kS].copy_ahead(kR, data, {}).has_value());  // there is one buffer
  const Request sent = s.net[kS].send(kR, 1, data, {}, copy);
  assert_true(s.net[kS].test(sent).has_value());
  auto& received = s.receive(kR, kS, 1, kMedium);
  s.net.run();
  assert_memory_equal(received.data.data(), data.data(), kMedium);
  assert_int_equal(s.count(kS, Count::hybrid), 1);
}

void only_what_may_go_hybrid_is_copied_ahead(void**) {
  Scene s;
  s.connect();
  const Bytes data(kLarge);
  const auto copied = [&](PeerId to, std::size_t size, const SendOptions& options) {
    return s.net[kS].copy_ahead(to, Octets(data).first(size), options).has_value();
  };
  assert_false(copied(kR, kSmall, {}) || copied(kR, kLarge, {}) || copied(kS, kMedium, {}));
  assert_false(copied(kR, kMedium, {.synchronous = true}) || copied(kR, kMedium, {.delivered = true}));
  assert_true(s.net[kS].idle());
}

void a_copy_for_a_peer_that_ends_is_given_back(void**) {
  for (const bool sent_before : {false, true}) {
    Scene s;
    s.connect();
    s.receive(kR, kS, 1, kMedium);
    const Bytes data = pattern(kS, 7, kMedium);
    const auto copy = s.net[kS].copy_ahead(kR, data, {});
    assert_true(s.net.deliver(kR, kS));
    Request sent;
    if (sent_before) sent = s.net[kS].send(kR, 1, data, {}, copy);
    s.net.kill(kR);
    s.net.run();
    if (!sent_before) sent = s.net[kS].send(kR, 1, data, {}, copy);
    assert_true(s.net[kS].test(sent)->error == (sent_before ? Error::none : Error::peer_down));
    assert_true(s.net[kS].idle());
    assert_false(s.net[kS].copy_ahead(kR, data, {}).has_value());
  }
}

// SENDER_READY is the useless one: the receiver neither answers nor reads, whichever of the two is delivered first.
void crossed_large_is_written_once(void**) {
  for (const bool announcement_first : {false, true})
    for (const bool by_read : {false, true}) {
      Tuning t = small_tuning();
      t.rendezvous_by_read = by_read;
      Scene s(t);
      s.connect();
      auto& sent = s.send(kS, kR, 1, kLarge);
      auto& received = s.receive(kR, kS, 1, kLarge);
      assert_true(announcement_first ? s.net.deliver(kR, kS) : s.net.deliver(kS, kR));
      s.net.run();
      s.ends(sent);
      s.got(received, sent);
      assert_int_equal(s.count(kS, Count::recv_rndv), 1);
      assert_int_equal(s.count(kS, Count::send_rndv_read) + s.count(kS, Count::send_rndv_write), 0);
    }
}

// --- the ambiguous destination of RTS and RTR ---

// Thesis figure 4.7, case 1: the first send uses the announcement, so SENDER_READY belongs to the second receive.
void sender_ready_of_the_second_send_goes_to_the_second_receive(void**) {
  Scene s;
  s.connect();
  auto& r1 = s.receive(kR, kS, 1, kLarge);
  assert_true(s.net.deliver(kR, kS));
  auto& r2 = s.receive(kR, kS, 1, kLarge);
  auto& s1 = s.send(kS, kR, 1, kLarge);
  auto& s2 = s.send(kS, kR, 1, kLarge);
  s.net.run();
  s.got(r1, s1);
  s.got(r2, s2);
  assert_int_equal(s.count(kS, Count::recv_rndv), 2);
}

// Case 2: the first send has not seen the announcement, so its SENDER_READY is for the first receive.
void sender_ready_of_the_first_send_goes_to_the_first_receive(void**) {
  Scene s;
  s.connect();
  auto& r1 = s.receive(kR, kS, 1, kLarge);
  auto& s1 = s.send(kS, kR, 1, kLarge);
  assert_true(s.net.deliver(kS, kR));
  auto& r2 = s.receive(kR, kS, 1, kLarge);
  assert_true(s.net.deliver(kR, kS));
  auto& s2 = s.send(kS, kR, 1, kLarge);
  s.net.run();
  s.got(r1, s1);
  s.got(r2, s2);
}

// Figure 4.9: the first receive announces nothing, so the announcement belongs to the second send.
void an_announcement_behind_a_silent_receive_waits_for_the_second_send(void**) {
  Scene s;
  s.connect();
  auto& r1 = s.receive(kR, kS, 1, kSmall);
  auto& r2 = s.receive(kR, kS, 1, kLarge);
  s.net.run();
  auto& s1 = s.send(kS, kR, 1, kSmall);
  auto& s2 = s.send(kS, kR, 1, kLarge);
  s.net.run();
  s.got(r1, s1);
  s.got(r2, s2);
  assert_int_equal(s.count(kS, Count::recv_rndv), 1);
}

// ... and so it does where the first send is large: it must not go into the second receive.
void a_large_message_for_a_silent_receive_is_not_written_into_the_next(void**) {
  Scene s;
  s.connect();
  auto& r1 = s.receive(kR, kS, 1, kSmall);
  auto& r2 = s.receive(kR, kS, 1, kLarge);
  s.net.run();
  auto& s1 = s.send(kS, kR, 1, kLarge);
  auto& s2 = s.send(kS, kR, 1, kLarge);
  s.net.run();
  s.got(r1, s1, Error::truncated);
  s.got(r2, s2);
}

// --- mispredicted protocols, stale announcements ---

void a_mispredicted_announcement_is_not_used_by_the_next_send(void**) {
  Scene s;
  s.connect();
  auto& r1 = s.receive(kR, kS, 1, kLarge);
  s.net.run();
  auto& s1 = s.send(kS, kR, 1, kSmall);
  auto& s2 = s.send(kS, kR, 1, kLarge);
  s.net.run();
  s.got(r1, s1);
  assert_int_equal(s.count(kS, Count::got_mispredicted), 1);
  auto& r2 = s.receive(kR, kS, 1, kLarge);
  s.net.run();
  s.got(r2, s2);
  assert_int_equal(s.count(kS, Count::recv_rndv), 0);
}

// The announcement is on its way while an eager message takes its receive; a large message follows.
void a_stale_announcement_is_recognised(void**) {
  Scene s;
  s.connect();
  auto& s1 = s.send(kS, kR, 1, kSmall);
  auto& r1 = s.receive(kR, kS, 1, kLarge);
  assert_true(s.net.deliver(kS, kR));
  s.got(r1, s1);
  std::fill(r1.data.begin(), r1.data.end(), std::byte{0x77});
  assert_int_equal(s.net.in_flight(kR, kS), 1);
  s.net.run();
  auto& s2 = s.send(kS, kR, 1, kLarge);
  s.net.run();
  assert_int_equal(s.count(kS, Count::got_crossed), 1);
  auto& r2 = s.receive(kR, kS, 1, kLarge);
  s.net.run();
  s.got(r2, s2);
  for (const std::byte b : r1.data) assert_int_equal(std::to_integer<int>(b), 0x77);
}

// Announced for the next message, then an eager one comes; the announcement of the second receive stays good.
void a_stale_announcement_before_a_good_one(void**) {
  Scene s;
  s.connect();
  auto& r1 = s.receive(kR, kS, 1, kLarge);
  auto& r2 = s.receive(kR, kS, 1, kLarge);
  s.net.run();
  auto& s1 = s.send(kS, kR, 1, kSmall);
  auto& s2 = s.send(kS, kR, 1, kLarge);
  s.net.run();
  s.got(r1, s1);
  s.got(r2, s2);
  assert_int_equal(s.count(kS, Count::recv_rndv), 1);
}

void tags_are_counted_apart(void**) {
  Scene s;
  s.connect();
  auto& r1 = s.receive(kR, kS, 1, kLarge);
  auto& r2 = s.receive(kR, kS, 2, kLarge);
  s.net.run();
  auto& s2 = s.send(kS, kR, 2, kLarge);
  auto& s1 = s.send(kS, kR, 1, kLarge);
  s.net.run();
  s.got(r1, s1);
  s.got(r2, s2);
  assert_int_equal(s.count(kS, Count::recv_rndv), 2);
}

// --- wildcards ---

void a_wildcard_before_an_exact_receive_silences_it(void**) {
  for (const Tag ignore : {Tag{0}, kAnyTag, Tag{7}})
    for (const PeerId source : {kAnySource, kS}) {
      if (ignore == 0 && source == kS) continue;
      Scene s;
      s.connect();
      auto& wild = s.receive(kR, source, 1, kLarge, ignore);
      auto& exact = s.receive(kR, kS, 1, kLarge);
      s.net.run();
      assert_int_equal(s.count(kR, Count::announced), 0);
      assert_int_equal(s.count(kR, Count::wildcard_silent), 2);
      auto& s1 = s.send(kS, kR, 1, kLarge);
      auto& s2 = s.send(kS, kR, 1, kLarge);
      s.net.run();
      s.got(wild, s1);
      s.got(exact, s2);
      // The wildcard is resolved: numbers are certain again.
      auto& r3 = s.receive(kR, kS, 1, kLarge);
      s.net.run();
      auto& s3 = s.send(kS, kR, 1, kLarge);
      s.net.run();
      s.got(r3, s3);
      assert_int_equal(s.count(kS, Count::recv_rndv), 1);
    }
}

void a_wildcard_that_cannot_take_the_message_silences_nobody(void**) {
  Scene s;
  s.connect();
  auto& wild = s.receive(kR, kAnySource, 0x100, kLarge, 0xff);
  auto& exact = s.receive(kR, kS, 1, kLarge);
  s.net.run();
  assert_int_equal(s.count(kR, Count::announced), 1);
  auto& s1 = s.send(kS, kR, 1, kLarge);
  auto& s2 = s.send(kS, kR, 0x123, kLarge);
  s.net.run();
  s.got(exact, s1);
  s.got(wild, s2);
}

// Posted behind, the wildcard can only have what the exact one does not.
void a_wildcard_behind_an_announced_receive(void**) {
  Scene s;
  s.connect();
  auto& exact = s.receive(kR, kS, 1, kLarge);
  auto& wild = s.receive(kR, kAnySource, 1, kLarge);
  s.net.run();
  auto& s1 = s.send(kS, kR, 1, kLarge);
  auto& s2 = s.send(kS, kR, 1, kLarge);
  s.net.run();
  s.got(exact, s1);
  s.got(wild, s2);
}

// The wildcard takes a message of the same (peer, tag) while the exact receive behind it says nothing; one posted after
// that announces, and its number counts both.
void numbers_count_what_wildcards_took(void**) {
  Scene s;
  s.connect();
  auto& wild = s.receive(kR, kAnySource, 1, kSmall);
  auto& r1 = s.receive(kR, kS, 1, kLarge);
  auto& s1 = s.send(kS, kR, 1, kSmall);
  s.net.run();
  s.got(wild, s1);
  auto& r2 = s.receive(kR, kS, 1, kLarge);
  s.net.run();
  assert_int_equal(s.count(kR, Count::announced), 1);
  auto& s2 = s.send(kS, kR, 1, kLarge);
  auto& s3 = s.send(kS, kR, 1, kLarge);
  s.net.run();
  s.got(r1, s2);
  s.got(r2, s3);
  assert_int_equal(s.count(kS, Count::recv_rndv), 1);
}

// --- sizes differ ---

void the_sender_decides_when_sizes_differ(void**) {
  struct {
    std::size_t sent, received;
  } const kCases[] = {{kSmall, kLarge},  {kMedium, kLarge}, {kLarge, 2 * kLarge}, {0, kLarge}, {kMedium, kSmall},
                      {kLarge, kMedium}, {kLarge, kSmall},  {kLarge, 0},          {kSmall, 8}};
  for (const auto& c : kCases)
    for (const int order : {0, 1, 2})  // the receiver first, together, the sender first
      for (const bool by_read : {false, true}) {
        Tuning t = small_tuning();
        t.rendezvous_by_read = by_read;
        Scene s(t);
        s.connect();
        Scene::Transfer* sent = order == 2 ? &s.send(kS, kR, 1, c.sent) : nullptr;
        if (order == 2) s.net.run();
        auto& received = s.receive(kR, kS, 1, c.received);
        if (order == 0) s.net.run();
        if (sent == nullptr) sent = &s.send(kS, kR, 1, c.sent);
        s.net.run();
        s.got(received, *sent, c.sent > c.received ? Error::truncated : Error::none);
        s.ends(*sent);
        // Truncation is of that receive alone.
        auto& next = s.receive(kR, kS, 1, kLarge);
        auto& more = s.send(kS, kR, 1, kLarge);
        s.net.run();
        s.got(next, more);
        s.ends(more);
        assert_true(s.net.failures.empty());
      }
}

// --- useless announcements pile up ---

void unused_announcements_do_not_accumulate(void**) {
  Tuning t = small_tuning();
  t.adapt = false;
  Scene s(t);
  s.connect();
  std::vector<Scene::Transfer*> received;
  for (int i = 0; i < 2000; ++i) received.push_back(&s.receive(kR, kS, 1, kLarge));
  s.net.run();
  assert_int_equal(s.count(kS, Count::got_announcements), kWindow);
  for (auto* r : received) {
    auto& sent = s.send(kS, kR, 1, kSmall);
    s.net.run();
    s.got(*r, sent);
  }
  assert_int_equal(s.count(kS, Count::got_mispredicted), s.count(kS, Count::got_announcements));
  // All tags together are bounded, too.
  for (Tag tag = 100; tag < 200; ++tag)
    for (int i = 0; i < 20; ++i) s.receive(kR, kS, tag, kLarge);
  s.net.run();
  assert_int_equal(s.count(kS, Count::got_announcements), kWindow + kMostAnnounced);
  assert_true(s.net.failures.empty());
}

// --- without the immediate ---

void a_peer_without_immediates_is_told_by_a_send(void**) {
  for (const std::size_t capacity : {kLarge, 2 * kLarge}) {
    Scene s;
    s.net.immediate = false;
    s.connect();
    auto& received = s.receive(kR, kS, 1, capacity);
    s.net.run();
    auto& sent = s.send(kS, kR, 1, kLarge);
    s.net.run();
    s.got(received, sent);
    s.ends(sent);
    assert_int_equal(s.count(kS, Count::written_notices), 1);
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(small_is_eager_whoever_comes_first),
      cmocka_unit_test(medium_with_an_early_sender_is_done_at_once_and_read),
      cmocka_unit_test(a_receiver_that_is_first_gets_it_written),
      cmocka_unit_test(between_the_thresholds),
      cmocka_unit_test(large_with_an_early_sender_by_write_and_by_read),
      cmocka_unit_test(crossed_medium_is_read_and_the_announcement_dropped),
      cmocka_unit_test(medium_announced_during_the_copy_is_written_from_it_and_done_at_once),
      cmocka_unit_test(medium_without_an_announcement_is_read_from_the_copy),
      cmocka_unit_test(only_what_may_go_hybrid_is_copied_ahead),
      cmocka_unit_test(a_copy_for_a_peer_that_ends_is_given_back),
      cmocka_unit_test(crossed_large_is_written_once),
      cmocka_unit_test(sender_ready_of_the_second_send_goes_to_the_second_receive),
      cmocka_unit_test(sender_ready_of_the_first_send_goes_to_the_first_receive),
      cmocka_unit_test(an_announcement_behind_a_silent_receive_waits_for_the_second_send),
      cmocka_unit_test(a_large_message_for_a_silent_receive_is_not_written_into_the_next),
      cmocka_unit_test(a_mispredicted_announcement_is_not_used_by_the_next_send),
      cmocka_unit_test(a_stale_announcement_is_recognised),
      cmocka_unit_test(a_stale_announcement_before_a_good_one),
      cmocka_unit_test(tags_are_counted_apart),
      cmocka_unit_test(a_wildcard_before_an_exact_receive_silences_it),
      cmocka_unit_test(a_wildcard_that_cannot_take_the_message_silences_nobody),
      cmocka_unit_test(a_wildcard_behind_an_announced_receive),
      cmocka_unit_test(numbers_count_what_wildcards_took),
      cmocka_unit_test(the_sender_decides_when_sizes_differ),
      cmocka_unit_test(unused_announcements_do_not_accumulate),
      cmocka_unit_test(a_peer_without_immediates_is_told_by_a_send),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
