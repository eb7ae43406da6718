// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Copies and atomics on a transport that does nothing until it is told: which posts are made, whose memory they name,
// and what becomes of an access when a process is gone or an entry of a region's table is old.
#include "mpi_shim/acp/accesses.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
extern "C" {
#include <cmocka.h>
}

namespace ewarp::acp::test {
namespace {

constexpr std::uint32_t kStarter = 4096;

class Recorder final : public Transport {
 public:
  bool register_memory(void* memory, std::size_t, Registration* out) override {
    *out = {memory, 1, ++keys};
    return true;
  }
  void deregister(void*) override {}
  Registration registration(void* handle) const override { return {handle, 1, 2}; }
  void introduce(Contact*) const override {}
  bool fits(const Contact&) const override { return true; }
  std::uint32_t room() const override { return kSends - in_use - static_cast<std::uint32_t>(posts.size()); }
  void post(Peer&, const Post& p) override { posts.push_back(p); }
  std::uint32_t most_copied() const override { return 0; }
  int poll(Completion*, int) override { return 0; }
  int descriptor() const override { return -1; }
  void arm() override {}
  void drain() override {}

  std::vector<Post> posts;
  std::uint32_t in_use = 0;  // by others
  std::uint32_t keys = 0;    // given
};

// Rank 0 of four; the others have their areas at addresses that nobody touches.
struct Ranks {
  Ranks() : area(static_cast<Area*>(std::calloc(1, sizeof(Area) + kStarter)), &std::free) {
    for (std::uint32_t r = 0; r < 4; ++r) peers[r].contact.address = 0x1'0000'0000u * (r + 1);
    own = std::make_unique<OwnRegions>(path, *area, kStarter, Registration{area.get(), 1, 2});
    accesses = std::make_unique<Accesses>(path, *own, kStarter);
  }
  static std::uint64_t starter(std::uint32_t rank, std::uint64_t offset = 0) {
    return GlobalAddress{rank, 0, offset}.emit();
  }
  std::int64_t copy(std::uint64_t to, std::uint64_t from, std::uint64_t octets, std::int64_t order = 0) {
    const std::int64_t handle =
        accesses->begin({.what = Change::copy, .to = to, .from = from, .octets = octets, .order = order});
    assert_true(handle > 0);
    accesses->advance();
    return handle;
  }
  // The oldest post ends.
  void end(int error = 0) {
    assert_false(transport.posts.empty());
    const Post p = transport.posts.front();
    transport.posts.erase(transport.posts.begin());
    accesses->completed({.id = p.id, .error = error, .notice = false, .immediate = 0});
    accesses->advance();
  }
  const Post& only() {
    assert_int_equal(transport.posts.size(), 1);
    return transport.posts.front();
  }
  void fails(std::int64_t handle, int error) {
    assert_true(accesses->ended(handle));
    assert_int_equal(accesses->take(handle), error);
  }
  // Answers the reads of that process's table; what is left are the accesses.
  void answer(std::uint32_t rank, const Area& table) {
    const std::uint64_t entries = peers[rank].contact.address + offsetof(Area, regions);
    const auto asks = [&](const Post& p) { return p.peer == rank && p.remote - entries < sizeof table.regions; };
    for (;;) {
      const auto found = std::find_if(transport.posts.begin(), transport.posts.end(), asks);
      if (found == transport.posts.end()) return;
      const Post p = *found;
      transport.posts.erase(found);
      std::memcpy(const_cast<void*>(p.local), &table.regions[(p.remote - entries) / sizeof(RegionEntry)], p.octets);
      accesses->completed({.id = p.id, .error = 0, .notice = false, .immediate = 0});
      accesses->advance();
    }
  }
  // The process is no more.
  void gone(std::uint32_t rank) {
    peers[rank].gone = true;
    accesses->gone(rank);
    accesses->advance();
  }

  Recorder transport;
  PeerTable peers{4};
  Path path{transport, peers, 0};
  std::unique_ptr<Area, void (*)(void*)> area;
  std::unique_ptr<OwnRegions> own;
  std::unique_ptr<Accesses> accesses;
};

// Another process's regions.
struct Owner {
  Owner(Ranks& r, std::uint32_t rank)
      : path{r.transport, r.peers, rank},
        area(std::make_unique<Area>()),
        regions(path, *area, kStarter, Registration{area.get(), 1, 2}) {}
  std::uint64_t add(std::size_t octets) {
    key = regions.add(memory, octets);
    assert_true(key != 0);
    return regions.global(key, memory);
  }
  std::uint32_t rkey(std::uint64_t ga) const { return area->regions[GlobalAddress::parse(ga).tag].rkey; }

  Path path;
  std::unique_ptr<Area> area;
  OwnRegions regions;
  void* memory = reinterpret_cast<void*>(std::uintptr_t{1} << 40);  // nobody touches it
  std::uint64_t key = 0;                                            // of the latest
};

void between_two_others(void**) {
  Ranks r;
  const auto handle = r.copy(r.starter(2), r.starter(1), 100);
  assert_true(r.only().what == Operation::read && r.only().peer == 1);
  r.end();
  assert_true(r.only().what == Operation::write && r.only().peer == 2);
  assert_false(r.accesses->ended(handle));
  r.end();
  r.fails(handle, 0);
}

// The buffer between two others belongs to one at a time, until nothing is placed there any more.
void who_lives_still_writes_to_the_buffer(void**) {
  Ranks r;
  const auto first = r.copy(r.starter(2), r.starter(1), 100);
  const auto second = r.copy(r.starter(1), r.starter(3), 100);
  assert_true(r.only().peer == 1);
  r.gone(2);
  assert_true(r.only().peer == 1);  // the second waits: rank 1 is still answering
  r.end();
  r.fails(first, ECONNRESET);
  assert_true(r.only().what == Operation::read && r.only().peer == 3);
  r.end();
  r.end();
  r.fails(second, 0);
}

// It would take half a minute to hear that its post has failed.
void who_was_asked_and_is_gone_is_not_waited_for(void**) {
  Ranks r;
  const auto first = r.copy(r.starter(2), r.starter(1), 100);
  const auto second = r.copy(r.starter(2), r.starter(3), 100);
  r.gone(1);
  r.fails(first, ECONNRESET);
  assert_int_equal(r.transport.posts.size(), 2);
  r.end(ECONNRESET);  // of the first, late
  assert_true(r.only().peer == 3);
  r.end();
  r.end();
  r.fails(second, 0);
}

void what_comes_behind_a_failure_is_cancelled(void**) {
  Ranks r;
  const auto first = r.copy(r.starter(1), r.starter(0), 8);
  const auto second = r.copy(r.starter(2), r.starter(0), 8, first);
  assert_true(r.only().peer == 1);
  r.end(EACCES);
  assert_true(r.transport.posts.empty());
  assert_true(r.accesses->ended(second));
  assert_int_equal(r.accesses->take(first), EACCES);
  assert_int_equal(r.accesses->take(second), ECANCELED);
}

void no_room(void**) {
  Ranks r;
  r.transport.in_use = Path::kForChannels;
  const auto handle = r.copy(r.starter(1), r.starter(0), 8);
  assert_true(r.transport.posts.empty() && r.accesses->restless());
  --r.transport.in_use;
  r.accesses->advance();
  r.end();
  r.fails(handle, 0);
}

// A program that removes a region while a copy of it is under way: an error, and no other memory is read.
void a_region_that_is_removed_under_way(void**) {
  Ranks r;
  void* memory = reinterpret_cast<void*>(std::uintptr_t{1} << 40);  // nobody touches it
  auto key = r.own->add(memory, 4096);
  const auto waits =
      r.accesses->begin({.what = Change::copy, .to = r.starter(1), .from = r.own->global(key, memory), .octets = 4096});
  assert_true(waits > 0);
  assert_true(r.own->remove(key));
  r.accesses->advance();
  assert_true(r.transport.posts.empty());
  r.fails(waits, EACCES);

  Owner owner(r, 1);
  const std::uint64_t octets = 300ull << 20;
  key = r.own->add(memory, octets);
  const auto moves = r.copy(owner.add(octets), r.own->global(key, memory), octets);
  r.answer(1, *owner.area);
  assert_int_equal(r.transport.posts.size(), Accesses::kMostChunks);
  assert_true(r.own->remove(key));
  for (std::uint32_t i = 0; i < Accesses::kMostChunks; ++i) {
    assert_true(r.transport.posts.front().local != nullptr && !r.accesses->ended(moves));
    r.end();
  }
  assert_true(r.transport.posts.empty());
  r.fails(moves, EACCES);
}

// A process that does not answer keeps what was posted to it; channels to the others go on.
void long_copies_leave_room_for_channels(void**) {
  Ranks r;
  Owner owner(r, 1);
  const std::uint64_t octets = 300ull << 20;
  const auto from = r.own->global(r.own->add(owner.memory, octets), owner.memory), to = owner.add(octets);
  r.copy(to, from, octets);
  r.answer(1, *owner.area);
  assert_int_equal(r.transport.posts.size(), Accesses::kMostChunks);
  for (int i = 0; i < 20; ++i) r.copy(to, from, octets);
  assert_int_equal(r.transport.posts.size(), r.transport.kSends - Path::kForChannels);
  assert_true(r.path.has_room(Path::kForChannels));
  std::uint64_t chunks = 0;
  for (; !r.transport.posts.empty(); ++chunks) {
    assert_true(r.path.has_room(Path::kForChannels));
    r.end();
  }
  assert_int_equal(chunks, 21 * 300);
  r.fails(Accesses::kAll, 0);
}

// Tags come back after 1023 rounds. No wrong key is named: RD would end the association at the eighth.
void tags_come_back(void**) {
  Ranks r;
  Owner owner(r, 1);
  const auto access = [&](std::uint64_t ga) {
    const auto handle = r.copy(r.starter(0), ga, 8);
    r.answer(1, *owner.area);
    assert_int_equal(r.only().rkey, owner.rkey(ga));
    r.end();
    r.fails(handle, 0);
  };
  std::uint64_t stays[3];  // far from each other
  for (auto& ga : stays) {
    ga = owner.add(8);
    for (int i = 0; i < 340; ++i) assert_true(owner.add(8) != 0 && owner.regions.remove(owner.key));
  }
  for (int round = 0; round < 2500; ++round) {
    access(owner.add(8));
    assert_true(owner.regions.remove(owner.key));
    access(stays[round % 3]);
  }
  assert_int_equal(r.peers[1].refusals, 0);
}

// What was not replaced is read once.
void regions_that_stay_are_known(void**) {
  Ranks r;
  Owner owner(r, 1);
  std::vector<std::uint64_t> all(GlobalAddress::kTags - 1);
  for (auto& ga : all) ga = owner.add(8);
  for (int round = 0; round < 3; ++round)
    for (const auto ga : all) {
      const auto handle = r.copy(r.starter(0), ga, 8);
      if (round < 2) r.answer(1, *owner.area);
      assert_int_equal(r.only().rkey, owner.rkey(ga));
      r.end();
      r.fails(handle, 0);
    }
}

// One tag that others' regions have left free: nothing says that its region is another one each time. Before the peer's
// patience ends its entries are read for each access.
void refused_too_often(void**) {
  Ranks r;
  Owner owner(r, 1);
  for (std::uint32_t i = 0; i + 2 < GlobalAddress::kTags; ++i) owner.add(8);
  unsigned refused = 0;
  for (int round = 0; round < 20; ++round) {
    const auto ga = owner.add(8);
    const auto handle = r.copy(r.starter(0), ga, 8);
    r.answer(1, *owner.area);
    if (r.only().rkey != owner.rkey(ga)) {
      ++refused;
      r.end(EACCES);
      r.answer(1, *owner.area);
    }
    assert_int_equal(r.only().rkey, owner.rkey(ga));
    r.end();
    r.fails(handle, 0);
    assert_true(owner.regions.remove(owner.key));
  }
  assert_int_equal(refused, 4);
}

// The entry of one was read for the copy; that of the other is an old one from the cache.
void an_old_entry_of_the_second_of_two(void**) {
  Ranks r;
  Owner one(r, 1), two(r, 2);
  auto to = two.add(8);
  const auto known = r.copy(to, r.starter(0), 8);
  r.answer(2, *two.area);
  r.end();
  r.fails(known, 0);
  assert_true(two.regions.remove(two.key));
  for (int i = 0; i < 1022; ++i) assert_true(two.add(8) != 0 && two.regions.remove(two.key));
  assert_true(two.add(8) == to);

  const auto from = one.add(8);
  const auto handle = r.copy(to, from, 8);
  r.answer(1, *one.area);
  assert_true(r.only().what == Operation::read && r.only().rkey == one.rkey(from));
  r.end();
  assert_true(r.only().what == Operation::write && r.only().rkey != two.rkey(to));
  r.end(EACCES);
  r.answer(1, *one.area);
  r.answer(2, *two.area);
  assert_true(r.only().what == Operation::read && r.only().rkey == one.rkey(from));
  r.end();
  assert_true(r.only().what == Operation::write && r.only().rkey == two.rkey(to));
  r.end();
  r.fails(handle, 0);
}

// More have ended than are kept. The error of one that is not stays its own.
void a_failure_that_is_not_kept(void**) {
  Ranks r;
  const auto before = r.copy(r.starter(1), r.starter(0), 8);
  r.end();
  const auto failed = r.copy(r.starter(1), r.starter(0), 8);
  r.end(ECONNRESET);
  const auto later = r.copy(r.starter(1), r.starter(0), 8);
  r.end(EACCES);
  for (std::int64_t i = 0; i < Accesses::kMost; ++i) {
    assert_true(r.accesses->has_room());
    r.copy(r.starter(1), r.starter(0), 8, before);
    r.end();
  }
  assert_true(r.accesses->has_room());
  const auto behind = r.copy(r.starter(1), r.starter(0), 8, Accesses::kAll);
  assert_true(r.transport.posts.empty());
  r.fails(before, 0);
  r.fails(failed, ECONNRESET);
  r.fails(later, EACCES);
  r.fails(behind, ECANCELED);
}

void an_atomic_that_others_disturb(void**) {
  Ranks r;
  const auto handle =
      r.accesses->begin({.what = Change::swap, .to = r.starter(0, 8), .from = r.starter(1), .octets = 4, .value = 5});
  r.accesses->advance();
  assert_true(r.only().what == Operation::read);
  auto* word = static_cast<std::uint64_t*>(const_cast<void*>(r.only().local));
  *word = 0x1111111122222222u;
  r.end();
  assert_true(r.only().what == Operation::swap_if && r.only().compare == 0x1111111122222222u);
  assert_int_equal(r.only().value, 0x1111111100000005u);
  *word = 0x3333333322222222u;  // found: another has changed the other half
  r.end();
  assert_true(r.only().compare == 0x3333333322222222u && r.only().value == 0x3333333300000005u);
  r.end();
  r.fails(handle, 0);
  std::uint32_t found;
  std::memcpy(&found, r.area->starter() + 8, sizeof found);
  assert_int_equal(found, 0x22222222);
}

// One after the other: of several that try at a time, all but one would try in vain.
void changes_of_one_word(void**) {
  Ranks r;
  std::int64_t handles[3];
  for (std::uint64_t i = 0; i < 3; ++i)
    handles[i] = r.accesses->begin(
        {.what = Change::add, .to = r.starter(0, 8), .from = r.starter(1, i < 2 ? 4 * i : 8), .octets = 4, .value = 1});
  r.accesses->advance();
  assert_int_equal(r.transport.posts.size(), 2);  // of the first and the third, which is another word
  for (int i = 0; i < 4; ++i) r.end();
  assert_true(r.accesses->ended(handles[0]) && !r.accesses->ended(handles[1]));
  assert_true(r.only().what == Operation::read);
  r.end();
  r.end();
  for (const auto handle : handles) r.fails(handle, 0);
}

}  // namespace
}  // namespace ewarp::acp::test

int main() {
  using namespace ewarp::acp::test;
  const CMUnitTest tests[] = {
      cmocka_unit_test(between_two_others),
      cmocka_unit_test(who_lives_still_writes_to_the_buffer),
      cmocka_unit_test(who_was_asked_and_is_gone_is_not_waited_for),
      cmocka_unit_test(what_comes_behind_a_failure_is_cancelled),
      cmocka_unit_test(no_room),
      cmocka_unit_test(a_region_that_is_removed_under_way),
      cmocka_unit_test(long_copies_leave_room_for_channels),
      cmocka_unit_test(tags_come_back),
      cmocka_unit_test(regions_that_stay_are_known),
      cmocka_unit_test(refused_too_often),
      cmocka_unit_test(an_old_entry_of_the_second_of_two),
      cmocka_unit_test(a_failure_that_is_not_kept),
      cmocka_unit_test(an_atomic_that_others_disturb),
      cmocka_unit_test(changes_of_one_word),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
