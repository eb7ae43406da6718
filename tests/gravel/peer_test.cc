// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Peers that end, in each state of a request, and peers that enter what is not Gravel's.
#include "tests/gravel/fake_net.h"

using namespace ewarp::gravel;
using namespace ewarp::gravel::test;

namespace {

constexpr Proc kC = 0, kP = 1;

struct Scene {
  Net net{2};
  Bytes in = Bytes(10), out = pattern(1, 10);
  Machine& c = *net[kC];
  Machine& p = *net[kP];

  RequestId receive(int tag = 0) {
    RequestId r = 0;
    is(c.post_receive_buffer(kP, local(in), tag, &r), Error::none);
    net.run();
    return r;
  }
  RequestId offer() {
    RequestId r = 0;
    is(p.post_send_buffer(kC, local(out), 0, &r), Error::none);
    net.run();
    return r;
  }
  RequestId put() { return take(p, &Machine::take_receive_buffer, Error::none); }
  RequestId fetch() { return take(c, &Machine::take_send_buffer, Error::none); }

  using Take = Error (Machine::*)(Proc*, int*, std::uint64_t*, RequestId*);
  static RequestId take(Machine& m, Take how, Error wanted, Proc proc = kAnySource, Proc* found = nullptr) {
    int tag = kAnyTag;
    std::uint64_t size;
    RequestId r = 0;
    m.look_around();
    is((m.*how)(&proc, &tag, &size, &r), wanted);
    if (found != nullptr) *found = proc;
    return r;
  }
};

void the_producer_ends_before_it_has_the_buffer(void**) {
  Scene s;
  const RequestId r = s.receive();
  s.net.kill(kP);
  ends(s.c, r, Error::peer);
  assert_int_equal(s.c.requests(), 0);
}

void the_producer_ends_in_the_middle_of_its_puts(void**) {
  Scene s;
  const RequestId r = s.receive(), p = s.put();
  is(s.p.put(p, local(s.out, 0, 5), 0), Error::none);
  s.net.step(kP, kC);
  s.net.kill(kP);
  ends(s.c, r, Error::peer);
}

void the_producer_ends_behind_its_fin(void**) {
  Scene s;
  const RequestId r = s.receive(), p = s.put();
  is(s.p.put(p, local(s.out), 0), Error::none);
  is(s.p.send_fin(p), Error::none);
  s.net.run();
  s.net.kill(kP);
  ends(s.c, r);  // all was there
  assert_true(s.in == s.out);
}

void the_consumer_ends_before_the_producer_asks(void**) {
  Scene s;
  s.receive();
  s.p.look(kC);
  s.net.kill(kC);
  // What it had entered is of no use.
  Scene::take(s.p, &Machine::take_receive_buffer, Error::peer, kC);
}

void the_consumer_ends_in_the_middle_of_the_puts(void**) {
  Scene s;
  s.receive();
  const RequestId p = s.put();
  is(s.p.put(p, local(s.out), 0), Error::none);
  s.net.kill(kC);
  is(s.p.put(p, local(s.out), 0), Error::peer);
  is(s.p.send_fin(p), Error::peer);
  ends(s.p, p, Error::peer);
  assert_int_equal(s.p.requests(), 0);
}

// The end is known before the transfers have come back: their buffers are in use until they have.
void transfers_come_back_before_the_request_ends(void**) {
  for (const bool fin : {false, true}) {
    Scene s;
    s.receive();
    const RequestId p = s.put();
    is(s.p.put(p, local(s.out), 0), Error::none);
    if (fin) is(s.p.send_fin(p), Error::none);
    s.p.on_gone(kC, false);
    is(s.p.put(p, local(s.out), 0), fin ? Error::state : Error::peer);
    not_done(s.p, p);
    s.p.on_moved(p, Error::peer);
    ends(s.p, p, Error::peer);
  }
}

// The consumer has all, and leaves; its farewell passes the ends of the puts.
void the_consumer_leaves_before_the_puts_have_come_back(void**) {
  Scene s;
  const RequestId r = s.receive(), p = s.put();
  is(s.p.put(p, local(s.out), 0), Error::none);
  is(s.p.send_fin(p), Error::none);
  s.net.step(kP, kC);
  s.net.step(kP, kC);
  ends(s.c, r);
  s.p.on_gone(kC, true);
  not_done(s.p, p);
  s.net.run();
  ends(s.p, p);
}

void a_transfer_fails_before_the_end_is_known(void**) {
  Scene s;
  s.receive();
  const RequestId p = s.put();
  is(s.p.put(p, local(s.out), 0), Error::none);
  s.p.on_moved(p, Error::peer);
  is(s.p.put(p, local(s.out), 0), Error::peer);
  ends(s.p, p, Error::peer);
}

// No memory for it here, say: the request says so, not that the peer has ended; others go on.
void a_transfer_fails_for_want_of_memory(void**) {
  Scene s;
  s.receive();
  const RequestId p = s.put();
  is(s.p.put(p, local(s.out), 0), Error::none);
  s.p.on_moved(p, Error::memory);
  is(s.p.send_fin(p), Error::memory);
  ends(s.p, p, Error::memory);
  assert_true(s.p.peer_state(kC) == Machine::PeerState::present);
}

void the_consumer_ends_behind_the_fin(void**) {
  Scene s;
  s.receive();
  const RequestId p = s.put();
  is(s.p.put(p, local(s.out), 0), Error::none);
  is(s.p.send_fin(p), Error::none);
  s.net.step(kP, kC);
  s.net.step(kC, kP);
  s.net.kill(kC);
  ends(s.p, p);
}

void the_consumer_ends_while_an_offer_is_out(void**) {
  for (const bool fetched : {false, true}) {
    Scene s;
    const RequestId offer = s.offer();
    if (fetched) {
      is(s.c.get(s.fetch(), local(s.in), 0), Error::none);
      s.net.run();
    }
    s.net.kill(kC);
    ends(s.p, offer, Error::peer);
  }
}

void the_producer_ends_while_it_is_read(void**) {
  Scene s;
  s.offer();
  const RequestId f = s.fetch();
  is(s.c.get(f, local(s.in), 0), Error::none);
  not_done(s.c, f);
  s.net.kill(kP);
  ends(s.c, f, Error::peer);
}

void a_fetch_without_its_fin_fails(void**) {
  Scene s;
  s.offer();
  const RequestId f = s.fetch();
  s.net[kC].room = 0;
  not_done(s.c, f);
  s.net.kill(kP);
  ends(s.c, f, Error::peer);
}

void who_is_asked_for_after_its_end_is_an_error(void**) {
  for (const bool in_order : {false, true}) {
    Scene s;
    s.c.on_gone(kP, in_order);
    RequestId r;
    is(s.c.post_receive_buffer(kP, local(s.in), 0, &r), Error::peer);
    is(s.c.post_send_buffer(kP, local(s.in), 0, &r), Error::peer);
    is(s.c.post_send_request(kP, 1, 0, &r), Error::peer);
    Scene::take(s.c, &Machine::take_receive_buffer, Error::peer, kP);
    Scene::take(s.c, &Machine::take_send_buffer, Error::peer, kP);
    s.c.on_gone(kP, false);  // once more changes nothing
    assert_true(s.c.peer_state(kP) == (in_order ? Machine::PeerState::left : Machine::PeerState::lost));
  }
}

// One that was lost is named once; one that left is not. When nobody is left, always.
void anybody_when_some_have_ended(void**) {
  Net net(4);
  Machine& m = *net[0];
  const auto ask = [&m](Error wanted) {
    Proc who = kAnySource;
    Scene::take(m, &Machine::take_send_buffer, wanted, kAnySource, &who);
    return who;
  };
  ask(Error::full);
  net.kill(2);
  assert_int_equal(ask(Error::peer), 2);
  ask(Error::full);
  m.on_gone(1, true);
  ask(Error::full);
  net.kill(3);
  assert_int_equal(ask(Error::peer), 3);
  assert_true(ask(Error::peer) > 0);
  ask(Error::peer);
}

// --- what is not Gravel's ---

void write_entry(Node& at, Proc from, Ledger ledger, std::uint32_t number, const Entry& e) {
  memcpy(at.board(from) + board::offset(ledger, number), emit(e, number).data(), Entry::kOctets);
}

void a_fin_of_nothing_loses_the_peer(void**) {
  for (int which = 0; which < 4; ++which) {
    Scene s;
    const RequestId r = s.receive();
    RequestId notice;
    is(s.c.post_send_request(kP, 1, 0, &notice), Error::none);
    const RequestId named[] = {0, r + 1, r + 0x10000, notice};
    write_entry(s.net[kC], kP, Ledger::fin, 1, {.request = named[which]});
    is(s.c.look(kP), Error::peer);
    assert_true(s.c.peer_state(kP) == Machine::PeerState::lost);
    ends(s.c, r, Error::peer);
  }
}

void a_fin_of_another_peers_request_loses_the_peer(void**) {
  Net net(3);
  Bytes in(10);
  RequestId r;
  is(net[0]->post_receive_buffer(1, local(in), 0, &r), Error::none);
  write_entry(net[0], 2, Ledger::fin, 1, {.request = r});
  is(net[0]->look(2), Error::peer);
  not_done(*net[0], r);
}

void a_second_fin_loses_the_peer(void**) {
  Scene s;
  const RequestId r = s.receive();
  write_entry(s.net[kC], kP, Ledger::fin, 1, {.request = r});
  is(s.c.look(kP), Error::none);
  write_entry(s.net[kC], kP, Ledger::fin, 2, {.request = r});
  is(s.c.look(kP), Error::peer);
  ends(s.c, r);
}

void entries_that_cannot_be_lose_the_peer(void**) {
  const std::pair<Ledger, Entry> kBad[] = {{Ledger::receive_info, {.size = 1, .tag = -1, .request = 1}},
                                           {Ledger::receive_info, {.size = 1, .tag = 1, .request = 0}},
                                           {Ledger::send_info, {.size = 1, .tag = -5, .request = 1}}};
  for (const auto& [ledger, entry] : kBad) {
    Scene s;
    write_entry(s.net[kC], kP, ledger, 1, entry);
    is(s.c.look(kP), Error::peer);
  }
}

void counts_that_cannot_be_lose_the_peer(void**) {
  for (std::size_t ledger = 0; ledger < kLedgers.size(); ++ledger) {
    Scene s;
    store_word(s.net[kC].board(kP) + board::kCounts + 4 * ledger, 1);
    is(s.c.look(kP), Error::peer);
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(the_producer_ends_before_it_has_the_buffer),
      cmocka_unit_test(the_producer_ends_in_the_middle_of_its_puts),
      cmocka_unit_test(the_producer_ends_behind_its_fin),
      cmocka_unit_test(the_consumer_ends_before_the_producer_asks),
      cmocka_unit_test(the_consumer_ends_in_the_middle_of_the_puts),
      cmocka_unit_test(transfers_come_back_before_the_request_ends),
      cmocka_unit_test(the_consumer_leaves_before_the_puts_have_come_back),
      cmocka_unit_test(a_transfer_fails_before_the_end_is_known),
      cmocka_unit_test(a_transfer_fails_for_want_of_memory),
      cmocka_unit_test(the_consumer_ends_behind_the_fin),
      cmocka_unit_test(the_consumer_ends_while_an_offer_is_out),
      cmocka_unit_test(the_producer_ends_while_it_is_read),
      cmocka_unit_test(a_fetch_without_its_fin_fails),
      cmocka_unit_test(who_is_asked_for_after_its_end_is_an_error),
      cmocka_unit_test(anybody_when_some_have_ended),
      cmocka_unit_test(a_fin_of_nothing_loses_the_peer),
      cmocka_unit_test(a_fin_of_another_peers_request_loses_the_peer),
      cmocka_unit_test(a_second_fin_loses_the_peer),
      cmocka_unit_test(entries_that_cannot_be_lose_the_peer),
      cmocka_unit_test(counts_that_cannot_be_lose_the_peer),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
