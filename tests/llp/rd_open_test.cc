// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Opening, challenges, strangers: docs/protocol/reliable-datagrams.md section 3, rule by rule.
#include <algorithm>

#include "tests/llp/rd_scene.h"

using namespace ewarp;
using namespace ewarp::rdscene;

namespace {

void open_is_repeated_twelve_times(void**) {
  Scene s;
  s.send(7);
  Time wait = 100 * kMillisecond;
  Heard first = s.expect(Type::open);
  assert_true(first.open().destination_tag == 0 && first.open().initial_tag != 0 && first.open().qkey == kQkey);
  for (int i = 1; i < 12; ++i) {
    s.silence();
    s.pass(wait - 1);
    s.silence();
    s.pass(1);
    expect_octets(s.expect(Type::open).octets, first.octets, "the same again");
    wait = std::min(2 * wait, 4 * kSecond);
  }
  s.pass(wait);
  s.silence();
  assert_true(s.gone() && s.endings.size() == 1 && s.endings[0].why == Ending::unreachable);
}

// Holds: RD-2
void openack_lets_data_go(void**) {
  Scene s;
  s.send(7);
  s.note_open(s.expect(Type::open));
  s.say_openack(s.offer());
  const Heard h = s.expect(Type::req);
  assert_true(h.data().standing.tag == kPeerTag && h.psn() == s.own_isn[0]);
  assert_true(h.data().standing.ack == kPeerIsn && h.has(flag::kAckNow));
  s.silence();
  assert_true(s.association().state() == Association::State::established);
  assert_true(s.association().mulpdu() == 1472 - 42 && s.association().ord() == 4);
  assert_true(s.association().options() == (option::kCredits | option::kAtomics));
}

// What comes with our tag before the peer has named its own: no PSN is known yet.
void nothing_counts_before_the_openack(void**) {
  Scene s;
  s.send(7);
  s.note_open(s.expect(Type::open));
  s.say_data(Lane::req, s.peer_next[0], segment(true), flag::kAckNow);
  s.say_ack();
  s.silence();
  assert_true(s.delivered.empty());
  assert_true(s.association().state() == Association::State::open_sent);
  s.say_openack(s.offer());
  assert_true(s.expect(Type::req).psn() == s.own_isn[0]);
}

void openack_without_data_is_acknowledged(void**) {
  Scene s;
  s.send(7);
  s.note_open(s.expect(Type::open));
  s.jobs[0].clear();
  s.say_openack(s.offer());
  assert_true(s.expect(Type::ack).ack().standing.tag == kPeerTag);
  s.silence();
}

void limits_are_the_smaller_ones(void**) {
  Config c;
  c.ord = 2;
  c.atomics = false;
  c.max_seg = 9000;
  Scene s(c);
  Open o = s.offer();
  o.max_seg = 1000;
  o.ird = 1;
  s.establish(o);
  assert_true(s.association().mulpdu() == 1000 - 42 && s.association().ord() == 1);
  assert_true(s.association().options() == option::kCredits);
}

void refusal(void**) {
  Scene s;
  s.send(7);
  s.note_open(s.expect(Type::open));
  s.say_reset(s.own_tag ^ 1, ResetReason::qkey);  // not about us
  assert_false(s.gone());
  s.say_reset(s.own_tag, ResetReason::qkey);
  assert_true(s.gone() && s.endings.back().why == Ending::refused && s.endings.back().reason == ResetReason::qkey);
}

void repeated_open_gets_the_same_answer(void**) {
  Scene s;
  s.say_open(s.offer());
  const Heard first = s.expect(Type::openack);
  assert_true(first.open().destination_tag == kPeerTag && first.open().initial_tag != 0);
  for (int i = 0; i < 3; ++i) {
    s.say_open(s.offer());
    expect_octets(s.expect(Type::openack).octets, first.octets, "repeated");
  }
  assert_int_equal(s.table.embryonic(), 1);
  s.note_open(first);
  s.say_ack();
  assert_int_equal(s.table.embryonic(), 0);
  assert_true(s.association().state() == Association::State::established);
  s.say_open(s.offer());  // the initiator may not have our answer still
  expect_octets(s.expect(Type::openack).octets, first.octets, "established");
}

void embryonic_ends_after_thirty_seconds(void**) {
  Scene s;
  s.be_opened();
  s.pass(30 * kSecond - 1);
  assert_false(s.gone());
  s.pass(1);
  assert_true(s.gone());
  s.silence();
}

// Whoever began it has gone silent while we have something to say: we open it ourselves, as it is.
void embryonic_with_something_to_send_opens(void**) {
  const auto begin = [](Scene& s) {
    s.be_opened();
    s.send(7);
    s.silence();
    s.pass(Config{}.rto_init);
    const Heard open = s.expect(Type::open);
    assert_true(open.open().initial_tag == s.own_tag && open.open().isn == s.own_isn && open.open().cookie == 0);
    assert_int_equal(s.table.embryonic(), 0);
  };
  {
    Scene s;  // it is there, and its acknowledgement was lost
    begin(s);
    s.say_openack(s.offer());
    assert_true(s.expect(Type::req).psn() == s.own_isn[0]);
  }
  {
    Scene s;  // the acknowledgement was late
    begin(s);
    s.say_ack();
    assert_true(s.expect(Type::req).psn() == s.own_isn[0]);
  }
  {
    Scene s;  // the queue pair has gone
    begin(s);
    s.say_reset(s.own_tag, ResetReason::qp_gone);
    assert_true(s.gone() && s.endings.back().why == Ending::refused);
  }
  {
    Scene s;  // it knows nothing of what it began: that may be said of our OPENACK, so we begin anew
    begin(s);
    s.say_reset(kPeerTag, ResetReason::unknown, flag::kReflected);
    assert_true(s.endings.back().why == Ending::idle);
    const Heard open = s.expect(Type::open);
    assert_int_not_equal(open.open().initial_tag, s.own_tag);
    s.note_open(open);
    s.say_openack(s.offer());
    s.expect(Type::req);
  }
  {
    Scene s;  // nobody is there
    begin(s);
    s.pass(60 * kSecond);
    assert_true(s.gone() && s.endings.back().why == Ending::unreachable);
  }
}

// Holds: RD-2
void simultaneous_opens_use_their_own_tags(void**) {
  Scene s;
  s.send(7);
  s.note_open(s.expect(Type::open));
  s.say_open(s.offer());
  const Heard answer = s.expect(Type::openack);
  assert_true(answer.open().initial_tag == s.own_tag && answer.open().isn == s.own_isn &&
              answer.open().destination_tag == kPeerTag);
  s.silence();
  s.say_openack(s.offer());
  assert_true(s.expect(Type::req).psn() == s.own_isn[0]);
  // ... or by valid data, when the answer was lost.
  Scene t;
  t.send(7);
  t.note_open(t.expect(Type::open));
  t.say_open(t.offer());
  t.expect(Type::openack);
  t.say_data(Lane::req, kPeerIsn[0], segment(true));
  assert_int_equal(t.delivered.size(), 1);
  assert_true(t.expect(Type::req).psn() == t.own_isn[0]);
}

// Holds: RD-13
// An OPEN proves nothing; what answers our tag is the peer.
void forged_open_is_corrected_by_the_openack(void**) {
  Scene s;
  s.send(7);
  s.note_open(s.expect(Type::open));
  Open forged = s.offer();
  forged.initial_tag = 0xdead;
  forged.isn = {5, 6};
  s.say_open(forged);
  s.expect(Type::openack);
  s.say_openack(s.offer());
  const Heard h = s.expect(Type::req);
  assert_true(h.data().standing.tag == kPeerTag && h.data().standing.ack == kPeerIsn);
}

// Nor does it make segments small for the life of the association; what is known of the path stays known.
void forged_open_makes_no_small_segments(void**) {
  for (const std::uint16_t path : {std::uint16_t{1472}, std::uint16_t{1200}}) {
    Scene s;
    s.send(7);
    s.note_open(s.expect(Type::open));
    s.table.limit_segments(peer_address().ip, path);
    Open forged = s.offer();
    forged.initial_tag = 0xdead;
    forged.max_seg = 170;
    s.say_open(forged);
    s.expect(Type::openack);
    s.say_openack(s.offer());
    assert_int_equal(s.association().mulpdu(), path - 42);
  }
}

// Holds: RD-13
void another_open_is_challenged(void**) {
  Scene s;
  s.establish();
  s.send(8);
  s.expect(Type::req);
  Open other = s.offer();
  other.initial_tag = 0xc0ffee;
  other.isn = {70, 80};
  s.say_open(other);
  const Heard challenge = s.expect(Type::openack);
  assert_true(challenge.has(flag::kChallenge) && challenge.open().initial_tag == 0 &&
              challenge.open().destination_tag == 0xc0ffee && challenge.open().cookie != 0);
  assert_true(s.endings.empty() && s.association().peer_tag() == kPeerTag);
  Open wrong = other;
  wrong.cookie = challenge.open().cookie ^ 1;
  s.say_open(wrong);
  assert_true(s.expect(Type::openack).has(flag::kChallenge));
  s.say_ack();  // untouched
  assert_true(s.endings.empty());
  other.cookie = challenge.open().cookie;
  s.say_open(other);
  assert_true(s.endings.size() == 1 && s.endings[0].why == Ending::restarted);
  const Heard answer = s.expect(Type::openack);
  assert_false(answer.has(flag::kChallenge));
  assert_true(answer.open().destination_tag == 0xc0ffee && answer.open().initial_tag != s.own_tag);
  s.note_open(answer);
  s.say_ack();
  assert_true(s.association().state() == Association::State::established && s.association().peer_tag() == 0xc0ffee);
}

// Holds: RD-13
void challenged_initiator_shows_the_cookie(void**) {
  Scene s;
  s.send(7);
  s.note_open(s.expect(Type::open));
  Open o;
  o.cookie = 0x1122334455667788;
  s.say_openack(o, flag::kChallenge);
  const Heard again = s.expect(Type::open);
  assert_true(again.open().cookie == o.cookie && again.open().initial_tag == s.own_tag);
  s.say_openack(o, flag::kChallenge);  // a copy does not make us speak
  s.silence();
  s.say_openack(s.offer());
  s.expect(Type::req);
}

// Holds: RD-14
void unknown_tags_are_answered_ten_times_a_second(void**) {
  Scene s;
  s.own_tag = 0x1234;
  for (int i = 0; i < 100; ++i) {
    s.say_data(Lane::req, 5, segment(true));
    s.say_ack();
    s.say_close();
  }
  assert_int_equal(s.heard.size(), 10);
  const Heard h = s.expect(Type::reset);
  assert_true(h.reset() == (Reset{0x1234, ResetReason::unknown}) && h.has(flag::kReflected));
  s.quiet();
  s.pass(kSecond);
  s.say_close(flag::kAcknowledgement);  // never answered
  s.say_reset(0x1234, ResetReason::unknown);
  s.say_reset(0x1234, ResetReason::unknown, flag::kReflected);
  s.silence();
  s.say_ack();
  s.expect(Type::reset);
  assert_true(s.delivered.empty() && s.table.size() == 0);
}

// Holds: RD-14
void own_tag_from_elsewhere_is_unknown(void**) {
  Scene s;
  s.establish();
  s.send(7);
  s.quiet();
  const auto before = s.table.counters().dropped_tag;
  Address stranger = peer_address();
  stranger.ip[15] = std::byte{10};
  const struct {
    Address from;
    std::uint32_t qpn;
  } kElsewhere[] = {{stranger, kPeerQpn}, {peer_address(), kPeerQpn ^ 0x10000}};
  for (const auto& e : kElsewhere) {
    const auto say = [&](Type type, const auto&... body) {
      s.table.receive(s.now, e.from, datagram(Prefix{type, 0, 0, kOwnQpn, e.qpn}, body...));
    };
    Data data;
    data.standing = s.standing();
    data.standing.psn = s.peer_next[0];
    data.standing.ack[0] += 1;  // what we have sent
    say(Type::req, data, segment(true));
    say(Type::ack, data.standing, std::uint16_t{0}, std::array<SackWords, 2>{});
    say(Type::close, Close{s.own_tag, s.peer_next, data.standing.ack, 1});
    say(Type::reset, Reset{s.own_tag, ResetReason::unknown});
  }
  assert_int_equal(s.table.counters().dropped_tag, before + 8);
  assert_false(s.gone());
  assert_true(s.endings.empty() && s.delivered.empty() && s.acknowledged_messages.empty());
  // The peer itself is believed.
  s.acked[0] += 1;
  s.say_ack();
  assert_int_equal(s.acknowledged_messages.size(), 1);
}

void answers_go_to_the_observed_port(void**) {
  Scene s;
  s.establish();
  Address moved = peer_address();
  moved.port = 4444;
  std::array<SackWords, 2> none;
  const Bytes ask =
      datagram(Prefix{Type::ack, flag::kAckNow, 0, kOwnQpn, kPeerQpn}, s.standing(), std::uint16_t{0}, none);
  s.table.receive(s.now, moved, ask);
  s.expect(Type::ack);
  assert_true(s.destinations.back() == moved);
}

// One queue pair of the peer asks at two of our addresses: two associations, each with answers from its own.
void each_own_address_has_its_associations(void**) {
  Scene s;
  const auto say_to = [&](std::uint32_t local, const Bytes& octets) {
    Address from = peer_address();
    from.local = local;
    s.table.receive(s.now, from, octets);
  };
  const auto heard_from = [&](std::uint32_t local, Type type) {
    const Heard h = s.expect(type);
    assert_int_equal(s.destinations.back().local, local);
    return h;
  };
  const Prefix to_us{Type::open, 0, 0, kOwnQpn, kPeerQpn};
  for (const std::uint32_t local : {1u, 2u}) {
    Open o = s.offer();
    o.initial_tag += local;
    say_to(local, datagram(to_us, o));
    assert_false(heard_from(local, Type::openack).has(flag::kChallenge));
    Key key = s.key();
    key.local = local;
    assert_non_null(s.table.find(key));
    assert_int_equal(s.table.find(key)->peer_tag(), o.initial_tag);
  }
  assert_int_equal(s.table.size(), 2);
  // What is answered by the table alone: a challenge, and a RESET for who is not known.
  say_to(2, datagram(to_us, s.offer()));
  assert_true(heard_from(2, Type::openack).has(flag::kChallenge));
  Data d;
  d.standing.tag = 1;
  say_to(3, datagram(Prefix{Type::req, 0, 0, kOwnQpn, kPeerQpn}, d, segment(true)));
  heard_from(3, Type::reset);
  s.silence();
}

void admission_is_the_layer_above_s(void**) {
  const struct {
    Admission says;
    std::optional<ResetReason> answer;
  } kCases[] = {{Admission::unknown, {}},
                {Admission::no_resources, ResetReason::resources},
                {Admission::qp_gone, ResetReason::qp_gone}};
  for (const auto& c : kCases) {
    Scene s;
    s.admission = c.says;
    s.say_open(s.offer());
    if (c.answer) {
      const Heard h = s.expect(Type::reset);
      assert_true(h.reset() == (Reset{kPeerTag, *c.answer}) && !h.has(flag::kReflected));
    }
    s.silence();
    assert_int_equal(s.table.size(), 0);
  }
}

void foreign_version_is_told_ours(void**) {
  Scene s;
  Bytes open(60, std::byte{0});
  open[0] = std::byte{0x2b};
  put_be<std::uint32_t>(open, 4, kOwnQpn);
  put_be<std::uint32_t>(open, 8, kPeerQpn);
  put_be<std::uint32_t>(open, 16, 0xabcd);
  s.say(seal(open));
  const Heard h = s.expect(Type::reset);
  assert_true(h.reset() == (Reset{0xabcd, ResetReason::version}) && h.d.prefix.aux == 1);
}

void embryonic_states_are_few(void**) {
  Config c;
  c.max_embryonic = 4;
  Scene s(c);
  unsigned challenged = 0;
  for (std::uint32_t i = 0; i < 20; ++i) {
    Open o = s.offer();
    o.initial_tag = 100 + i;
    s.say(datagram(Prefix{Type::open, 0, 0, kOwnQpn, 0x10000 * i + 5000}, o));
    challenged += s.expect(Type::openack).has(flag::kChallenge);
  }
  assert_int_equal(challenged, 16);
  assert_int_equal(s.table.size(), 4);
}

// A full table makes room by closing what is idle, and says no where nothing is.
void full_table(void**) {
  Config c;
  c.max_associations = 1;
  Scene s(c);
  s.establish();
  const Bytes newcomer = datagram(Prefix{Type::open, 0, 0, kOwnQpn, 0x51000}, s.offer());
  s.waits = true;
  s.say(newcomer);
  assert_true(s.expect(Type::reset).reset().reason == ResetReason::resources);
  s.waits = false;
  s.say(newcomer);
  s.expect(Type::close);
  s.silence();
  s.say_close(flag::kAcknowledgement);
  assert_true(s.gone() && s.endings.back().why == Ending::idle);
  s.say(newcomer);
  s.expect(Type::openack);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(open_is_repeated_twelve_times),
      cmocka_unit_test(openack_lets_data_go),
      cmocka_unit_test(nothing_counts_before_the_openack),
      cmocka_unit_test(openack_without_data_is_acknowledged),
      cmocka_unit_test(limits_are_the_smaller_ones),
      cmocka_unit_test(refusal),
      cmocka_unit_test(repeated_open_gets_the_same_answer),
      cmocka_unit_test(embryonic_ends_after_thirty_seconds),
      cmocka_unit_test(embryonic_with_something_to_send_opens),
      cmocka_unit_test(simultaneous_opens_use_their_own_tags),
      cmocka_unit_test(forged_open_is_corrected_by_the_openack),
      cmocka_unit_test(forged_open_makes_no_small_segments),
      cmocka_unit_test(another_open_is_challenged),
      cmocka_unit_test(challenged_initiator_shows_the_cookie),
      cmocka_unit_test(unknown_tags_are_answered_ten_times_a_second),
      cmocka_unit_test(own_tag_from_elsewhere_is_unknown),
      cmocka_unit_test(answers_go_to_the_observed_port),
      cmocka_unit_test(each_own_address_has_its_associations),
      cmocka_unit_test(admission_is_the_layer_above_s),
      cmocka_unit_test(foreign_version_is_told_ours),
      cmocka_unit_test(embryonic_states_are_few),
      cmocka_unit_test(full_table),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
