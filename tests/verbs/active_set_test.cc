// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// One pass over the sockets of the engine: each ready one has its turn, the silent ones cost nothing.
#include "provider/engine/active_set.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "../vectors/vectors.h"

namespace {

using ewarp::verbs::ActiveSet;
using ewarp::verbs::Pollable;

struct Socket final : Pollable {
  Socket() {
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    ours = ends[0];
    theirs = ends[1];
  }
  ~Socket() override {
    close(ours);
    close(theirs);
  }
  int fd() const override { return ours; }
  std::size_t turn() override {
    ++turns;
    if (victim != nullptr) set->remove(*std::exchange(victim, nullptr));
    if (!reads) return 0;
    char octets[16];
    const ssize_t n = recv(ours, octets, most, MSG_DONTWAIT);
    return n > 0 ? static_cast<std::size_t>(n) : 0;
  }
  bool is_near() const override { return near; }
  bool wants_to_read() const override { return reads; }
  bool wants_to_write() const override { return writes; }
  bool arm(bool rang) override {
    ++(rang ? armed_rung : armed_silent);
    return holds;
  }
  bool rung() const override { return rings; }
  void close_in_child() override {}
  void say(std::size_t octets = 1) { assert_int_equal(send(theirs, "0123456789abcdef", octets, 0), octets); }

  int ours, theirs, turns = 0;
  std::size_t most = 16;
  bool reads = true, writes = false, holds = false, near = false, rings = false;
  int armed_rung = 0, armed_silent = 0;
  ActiveSet* set = nullptr;
  Socket* victim = nullptr;
};

// One whose receives share a system call; `calls` are those of all of them, in their order.
struct Sharer final : Pollable, ewarp::verbs::BatchedReceiver {
  explicit Sharer(std::string& of_all) : calls(of_all) {
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
    assert_int_equal(send(ends[1], "0123", 4, 0), 4);
  }
  ~Sharer() override {
    for (const int end : ends) close(end);
  }
  int fd() const override { return ends[0]; }
  std::size_t turn() override { return 0; }
  bool wants_to_write() const override { return false; }
  void close_in_child() override {}
  BatchedReceiver* batched() override { return this; }
  void take_buffers() noexcept override { calls += 't'; }
  msghdr* prepare() noexcept override {
    calls += 'p';
    piece = {octets.data(), octets.size()};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    return &message;
  }
  void leave_regions() override { calls += 'l'; }
  std::size_t finish_turn(ssize_t result) override {
    calls += 'f';
    return result > 0 ? static_cast<std::size_t>(result) : 0;
  }

  std::string& calls;
  std::array<int, 2> ends{};
  std::array<char, 16> octets{};
  iovec piece{};
  msghdr message{};
};

struct World {
  explicit World(std::size_t n, std::size_t near = 0) : sockets(n), set(ewarp::llp::make_batch(false)) {
    assert_int_equal(set.open(), 0);
    for (Socket& s : sockets) {
      s.set = &set;
      s.near = &s < sockets.data() + near;
      assert_int_equal(set.add(s), 0);
    }
  }
  ~World() {
    for (Socket& s : sockets) set.remove(s);
  }
  std::size_t pass() {
    return set.pass([] {});
  }
  void forget_turns() {
    for (Socket& s : sockets) s.turns = 0;
  }
  std::vector<Socket> sockets;
  ActiveSet set;
};

void nothing_to_do(void**) {
  World none(0), one(1), many(200);
  assert_int_equal(none.pass(), 0);
  assert_int_equal(one.pass(), 0);
  assert_int_equal(one.sockets[0].turns, 1);  // asked directly
  for (int i = 0; i < 10; ++i) assert_int_equal(many.pass(), 0);
  int turns = 0;
  for (const Socket& s : many.sockets) turns += s.turns;
  assert_in_range(turns, 0, 10);  // the one that is asked directly
}

void each_ready_one_has_its_turn(void**) {
  World w(200);
  for (Socket& s : w.sockets) s.say();
  std::size_t moved = 0;
  int passes = 0;
  for (; moved < 200; ++passes) {
    assert_true(passes < 20);
    const std::size_t now = w.pass();
    assert_in_range(now, 1, 33);  // a pass is bounded
    moved += now;
  }
  assert_int_equal(w.pass(), 0);
}

// Sockets that always have more take turns.
void turns_are_fair(void**) {
  World w(64);
  for (Socket& s : w.sockets) {
    s.most = 1;
    for (int i = 0; i < 60; ++i) s.say(16);
  }
  for (int i = 0; i < 4; ++i) w.pass();
  w.forget_turns();
  for (int i = 0; i < 100; ++i) w.pass();
  for (const Socket& s : w.sockets) assert_in_range(s.turns, 48, 54);
}

// One that talks without end keeps no other one from its turn.
void the_hot_one_does_not_starve_others(void**) {
  World w(3);
  for (int i = 0; i < 5; ++i) {
    w.sockets[0].say();
    w.pass();
  }
  w.sockets[0].most = 1;
  w.sockets[0].say(16);
  w.sockets[2].say();
  int passes = 0;
  while (w.sockets[2].turns == 0) {
    w.pass();
    assert_true(++passes <= 3);
  }
}

void who_is_removed_is_not_called(void**) {
  World w(20);
  for (Socket& s : w.sockets) s.say();
  // Each removes its neighbour, if that has not had its turn.
  for (std::size_t i = 0; i < 20; i += 2) {
    w.sockets[i].victim = &w.sockets[i + 1];
    w.sockets[i + 1].victim = &w.sockets[i];
  }
  for (int i = 0; i < 5; ++i) w.pass();
  for (std::size_t i = 0; i < 20; i += 2) assert_int_equal(w.sockets[i].turns > 0, w.sockets[i + 1].turns == 0);
}

// Level-triggered: what wants to write is ready until it no longer does; what wants nothing is not asked, not even when
// its peer has gone.
void wishes(void**) {
  World w(3);
  Socket& s = w.sockets[1];
  w.sockets[0].say();
  w.pass();
  w.forget_turns();
  s.writes = true;
  w.set.update(s, false);
  w.pass();
  w.pass();
  assert_int_equal(s.turns, 2);
  s.writes = s.reads = false;
  w.set.update(s, false);
  w.sockets[0].say();
  w.pass();
  w.pass();
  w.forget_turns();
  shutdown(s.theirs, SHUT_RDWR);
  s.writes = false;
  w.set.update(s, false);
  for (int i = 0; i < 4; ++i) w.pass();
  assert_int_equal(s.turns, 0);
  s.reads = true;
  w.set.update(s, false);
  w.pass();
  assert_int_equal(s.turns, 1);
}

// Who arms hears whether the descriptor was ready: of the one that has its turns unasked it always may have been.
void arming(void**) {
  World one(1), many(3);
  for (World* w : {&one, &many}) {
    Socket& s = w->sockets[0];
    s.say();
    assert_int_equal(w->pass(), 1);
    assert_int_equal(w->pass(), 0);
    const int rung = s.armed_rung;
    w->set.watch_all(true);
    assert_int_equal(s.armed_rung, rung + 1);
    int silent = s.armed_silent;
    w->set.watch_all(false);
    assert_int_equal(s.armed_silent, silent + 1);
    s.rings = true;
    w->set.watch_all(false);
    s.rings = false;
    assert_int_equal(s.armed_rung, rung + 2);
    silent = s.armed_silent;
    w->set.keep_watching();  // for somebody else, who is to find what there is
    assert_int_equal(s.armed_silent, silent + 1);
    assert_int_equal(s.armed_rung, rung + 2);
  }
  Socket& other = many.sockets[1];
  const int rung = other.armed_rung;
  many.set.update(other, false);
  assert_int_equal(other.armed_rung, rung);
  other.say();
  many.sockets[0].say();
  while (many.pass() > 0) continue;
  many.set.update(other, false);
  assert_int_equal(other.armed_rung, rung + 1);
}

// What a descriptor does not tell, the set's does, until that one has had its turn.
void who_holds_something_is_awake(void**) {
  World many(3);
  Socket& s = many.sockets[1];
  const auto is_ready = [&many] {
    pollfd p{many.set.fd(), POLLIN, 0};
    return poll(&p, 1, 0) == 1;
  };
  s.holds = true;
  many.set.update(s, false);
  assert_true(is_ready());
  s.holds = false;
  many.forget_turns();
  many.pass();
  assert_int_equal(s.turns, 1);
  assert_false(is_ready());
}

// Where all are near nobody else is asked: each has one turn in a pass, and nobody has to tell of it.
void the_near_ones_have_their_turns_unasked(void**) {
  World w(5, 5);
  for (int i = 0; i < 2; ++i) {
    for (Socket& s : w.sockets) s.say();
    for (int pass = 0; pass < 3; ++pass) w.pass();
  }
  for (Socket& s : w.sockets) s.say();
  assert_int_equal(w.pass(), 5);
  assert_int_equal(w.set.served(), 5);
  w.forget_turns();
  for (int i = 0; i < 10; ++i) assert_int_equal(w.pass(), 0);
  for (const Socket& s : w.sockets) assert_int_equal(s.turns, 10);
  for (Socket& s : w.sockets) {
    s.armed_rung = s.armed_silent = 0;
    w.set.update(s, true);
    assert_int_equal(s.armed_silent, 0);
  }
  w.set.watch_all(true);
  for (const Socket& s : w.sockets) assert_int_equal(s.armed_rung, 1);
  // As watch_all() has left them, but for those that have moved something since, and the hot one.
  w.sockets[1].say();
  w.sockets[3].say();
  assert_int_equal(w.pass(), 2);
  w.set.keep_watching();
  int armed = 0;
  for (const Socket& s : w.sockets) armed += s.armed_silent;
  assert_int_equal(w.sockets[1].armed_silent + w.sockets[3].armed_silent, 2);
  assert_in_range(armed, 2, 3);
}

// Of more than have room those are asked that have moved something last. The others are watched.
void who_is_silent_makes_room(void**) {
  World w(12, 12);
  const auto asked = [&w] {
    w.forget_turns();
    w.pass();
    std::vector<std::size_t> who;
    for (std::size_t i = 0; i < w.sockets.size(); ++i)
      if (w.sockets[i].turns > 0) who.push_back(i);
    return who;
  };
  const auto range = [](std::size_t from, std::size_t to) {
    std::vector<std::size_t> who;
    for (; from < to; ++from) who.push_back(from);
    return who;
  };
  for (std::size_t i = 0; i < 9; ++i) {
    w.sockets[i].say();
    while (w.pass() == 0) continue;
  }
  assert_true(asked() == range(0, 9));
  const int armed = w.sockets[0].armed_rung + w.sockets[0].armed_silent;
  w.sockets[9].say();
  while (w.pass() == 0) continue;
  assert_true(asked() == range(1, 10));
  assert_int_equal(w.sockets[0].armed_rung + w.sockets[0].armed_silent, armed + 1);
  w.sockets[0].say();
  assert_int_equal(w.pass() + w.pass(), 1);
  // Where the ready set is asked in any case, none is asked for long without anything to say.
  for (int i = 0; i < 1000; ++i) w.pass();
  assert_int_equal(asked().size(), 1);
  for (Socket& s : w.sockets) s.say();
  std::size_t moved = 0;
  for (int i = 0; i < 4; ++i) moved += w.pass();
  assert_int_equal(moved, 12);
}

// One that is not near ends that all are asked directly; when it has gone they are again.
void others_come_and_go(void**) {
  World w(4, 4);
  Socket far;
  w.pass();
  assert_int_equal(w.set.add(far), 0);
  for (int i = 0; i < 1000; ++i) w.pass();
  far.say();
  assert_int_equal(w.pass() + w.pass(), 1);
  w.sockets[2].say();
  assert_int_equal(w.pass() + w.pass(), 1);
  w.set.remove(far);
  w.pass();
  w.forget_turns();
  for (int i = 0; i < 10; ++i) w.pass();
  for (const Socket& s : w.sockets) assert_int_equal(s.turns, 10);
}

void a_near_one_ends_in_its_turn(void**) {
  for (const std::size_t victim : {0, 2, 4}) {
    World w(6, 5);
    w.sockets[2].victim = &w.sockets[victim];
    for (Socket& s : w.sockets) s.say();
    for (int i = 0; i < 4; ++i) w.pass();
    w.forget_turns();
    for (Socket& s : w.sockets) s.say();
    for (int i = 0; i < 4; ++i) w.pass();
    for (std::size_t i = 0; i < 6; ++i) assert_int_equal(w.sockets[i].turns > 0, i != victim);
  }
}

void the_near_ones_do_not_starve_others(void**) {
  World w(10, 6);
  for (std::size_t i = 0; i < 6; ++i) {
    w.sockets[i].most = 1;
    w.sockets[i].say(16);
  }
  w.pass();
  w.sockets[8].say();
  w.forget_turns();
  w.pass();
  w.pass();
  w.pass();
  assert_true(w.sockets[8].turns > 0);
}

// Between the first prepare() and the last leave_regions() no memory is taken (llp/gather.h).
void buffers_are_taken_before_regions_are_entered(void**) {
  std::string calls;
  ActiveSet set(ewarp::llp::make_batch(false));
  assert_int_equal(set.open(), 0);
  std::vector<std::unique_ptr<Sharer>> sharers;
  for (int i = 0; i < 10; ++i) {
    sharers.push_back(std::make_unique<Sharer>(calls));
    assert_int_equal(set.add(*sharers.back()), 0);
  }
  set.pass([] {});
  const std::size_t n = calls.size() / 4;
  assert_true(n >= 8);
  std::string want;
  for (const char call : {'t', 'p', 'l', 'f'}) want.append(n, call);
  assert_string_equal(calls.c_str(), want.c_str());
  for (auto& sharer : sharers) set.remove(*sharer);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(nothing_to_do),
      cmocka_unit_test(each_ready_one_has_its_turn),
      cmocka_unit_test(turns_are_fair),
      cmocka_unit_test(the_hot_one_does_not_starve_others),
      cmocka_unit_test(who_is_removed_is_not_called),
      cmocka_unit_test(wishes),
      cmocka_unit_test(arming),
      cmocka_unit_test(who_holds_something_is_awake),
      cmocka_unit_test(the_near_ones_have_their_turns_unasked),
      cmocka_unit_test(who_is_silent_makes_room),
      cmocka_unit_test(others_come_and_go),
      cmocka_unit_test(a_near_one_ends_in_its_turn),
      cmocka_unit_test(the_near_ones_do_not_starve_others),
      cmocka_unit_test(buffers_are_taken_before_regions_are_entered),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
