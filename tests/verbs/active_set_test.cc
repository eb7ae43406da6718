// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// One pass over the sockets of the engine: each ready one has its turn, the silent ones cost nothing.
#include "provider/engine/active_set.h"

#include <sys/socket.h>
#include <unistd.h>

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
  bool wants_to_read() const override { return reads; }
  bool wants_to_write() const override { return writes; }
  void close_in_child() override {}
  void say(std::size_t octets = 1) { assert_int_equal(send(theirs, "0123456789abcdef", octets, 0), octets); }

  int ours, theirs, turns = 0;
  std::size_t most = 16;
  bool reads = true, writes = false;
  ActiveSet* set = nullptr;
  Socket* victim = nullptr;
};

struct World {
  explicit World(std::size_t n) : sockets(n), set(ewarp::llp::make_batch(false)) {
    assert_int_equal(set.open(), 0);
    for (Socket& s : sockets) {
      s.set = &set;
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

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(nothing_to_do),
      cmocka_unit_test(each_ready_one_has_its_turn),
      cmocka_unit_test(turns_are_fair),
      cmocka_unit_test(the_hot_one_does_not_starve_others),
      cmocka_unit_test(who_is_removed_is_not_called),
      cmocka_unit_test(wishes),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
