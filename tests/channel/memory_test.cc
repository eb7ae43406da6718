// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What is known of memory, and what is kept by it: sets of addresses, the log of changes, the list of mappings, and the
// cache of registrations with a monitor that does as it is told.
#include <atomic>
#include <sstream>
#include <thread>

#include "mpi_shim/channel/memory/change_log.h"
#include "mpi_shim/channel/memory/mappings.h"
#include "mpi_shim/channel/verbs/registration_cache.h"
#include "tests/channel/pinning_adapter.h"
#include "tests/channel/scene.h"

using namespace ewarp::channel;
using namespace ewarp::channel::test;

namespace {

using Stay = RegistrationCache::Stay;

// --- sets of addresses ---

// Against a set of single addresses.
void ranges_are_what_was_added_and_not_removed(void**) {
  constexpr std::uintptr_t kAll = 24;
  std::uint32_t random = 1;
  const auto below = [&](std::uint32_t n) { return (random = random * 1664525 + 1013904223) / 65536 % n; };
  Ranges ranges;
  std::array<bool, kAll> in{};
  for (int step = 0; step < 3'000; ++step) {
    const std::uintptr_t begin = below(kAll - 1), end = begin + 1 + below(static_cast<std::uint32_t>(kAll - begin - 1));
    const bool add = below(2) == 0;
    add ? ranges.add({begin, end}) : ranges.remove({begin, end});
    std::fill(in.begin() + static_cast<long>(begin), in.begin() + static_cast<long>(end), add);
    for (std::uintptr_t b = 0; b < kAll; ++b)
      for (std::uintptr_t e = b + 1; e <= kAll; ++e) {
        const auto first = in.begin() + static_cast<long>(b), last = in.begin() + static_cast<long>(e);
        assert_int_equal(ranges.covers({b, e}), std::count(first, last, true) == last - first);
        assert_int_equal(ranges.overlap({b, e}), std::count(first, last, true) > 0);
      }
  }
  ranges.remove(Range::everything());
  assert_int_equal(ranges.size(), 0);
}

// --- the log ---

void changes_are_read_once_and_in_order(void**) {
  ChangeLog log;
  std::uint64_t seen = log.count();
  std::vector<Change> read;
  const auto collect = [&](const Change& c) { read.push_back(c); };
  log.since(seen, collect);
  assert_true(read.empty());
  log.add({.memory = {1, 2}});
  log.add({.memory = {3, 4}, .emptied = true});
  log.since(seen, collect);
  log.since(seen, collect);
  assert_true(read == std::vector<Change>({{.memory = {1, 2}}, {.memory = {3, 4}, .emptied = true}}));
}

void who_comes_too_late_is_told_of_everything(void**) {
  ChangeLog log;
  for (const std::size_t behind : {ChangeLog::kKept - 1, ChangeLog::kKept, 3 * ChangeLog::kKept}) {
    std::uint64_t seen = log.count();
    for (std::size_t i = 0; i < behind; ++i) log.add({.memory = {i + 1, i + 2}});
    std::vector<Change> read;
    log.since(seen, [&](const Change& c) { read.push_back(c); });
    assert_int_equal(seen, log.count());
    assert_int_equal(read.size(), behind < ChangeLog::kKept ? behind : 1);
    assert_true(read.back() == (behind < ChangeLog::kKept ? Change{.memory = {behind, behind + 1}}
                                                          : Change{.memory = Range::everything(), .emptied = true}));
  }
}

// Whatever is read while it is written is as it was written.
void a_reader_meets_no_half_a_change(void**) {
  ChangeLog log;
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (std::uintptr_t i = 1; !stop; ++i) log.add({.memory = {i, ~i}});
  });
  std::uint64_t seen = 0, read = 0;
  std::uintptr_t last = 0;
  while (read < 300'000)
    log.since(seen, [&](const Change& c) {
      ++read;
      if (c.memory == Range::everything()) return;
      assert_int_equal(c.memory.end, ~c.memory.begin);
      assert_true(c.memory.begin > last);
      last = c.memory.begin;
    });
  stop = true;
  writer.join();
}

// --- the mappings ---

void only_private_memory_without_a_file_is_found(void**) {
  constexpr char kMaps[] =
      "1000-3000 r-xp 00000000 08:01 42                         /usr/bin/program\n"
      "3000-5000 rw-p 00000000 00:00 0 \n"
      "5000-6000 ---p 00000000 00:00 0                          [heap]\n"
      "8000-9000 rw-p 00000000 00:00 0 \n"
      "9000-a000 rw-s 00000000 00:01 7                          /dev/zero (deleted)\n"
      "7f0000000000-7fffffffffff rw-p 00000000 00:00 0          [stack]\n";
  const struct {
    Range range;
    std::vector<Range> mappings;
  } kCases[] = {{{0x3000, 0x5000}, {{0x3000, 0x5000}}},
                {{0x3010, 0x3020}, {{0x3000, 0x5000}}},
                {{0x4fff, 0x5001}, {{0x3000, 0x5000}, {0x5000, 0x6000}}},
                {{0x8fff, 0x9000}, {{0x8000, 0x9000}}},
                {{0x7f0000000001, 0x7f0000000002}, {{0x7f0000000000, 0x7fffffffffff}}},
                {{0x2fff, 0x3001}, {}},  // a file
                {{0x8000, 0x9001}, {}},  // shared
                {{0x5fff, 0x6001}, {}},  // a hole behind
                {{0x7fff, 0x8001}, {}},  // a hole before
                {{0x10, 0x20}, {}},      // nothing
                {{0xa000, 0xb000}, {}}};
  for (const auto& c : kCases) {
    std::istringstream maps(kMaps);
    assert_true(private_mappings(maps, c.range) == c.mappings);
  }
  std::istringstream nonsense("what is this\n");
  assert_true(private_mappings(nonsense, {0x3000, 0x5000}).empty());
}

void this_process_has_mappings(void**) {
  int local = 0;
  const auto at = reinterpret_cast<std::uintptr_t>(&local);
  const auto found = private_mappings({at, at + sizeof local});
  assert_int_equal(found.size(), 1);
  assert_true(found[0].begin <= at && at < found[0].end);
}

// --- the cache ---

struct ToldMonitor final : MemoryMonitor {
  bool watch(const Range& memory) override {
    watched.push_back(memory);
    return watches;
  }
  bool settled() override { return settles; }
  const ChangeLog& changes() const override { return log; }
  double settled_ns() const override { return 0; }

  bool watches = true, settles = true;
  std::vector<Range> watched;
  ChangeLog log;
};

struct CacheScene {
  explicit CacheScene(std::size_t kept = 8) : cache(nullptr, kept, &monitor, counters) {
    PinningAdapter::counts_only = true;
  }
  ~CacheScene() { PinningAdapter::most_regions = 0; }

  Octets buffer(std::size_t number) const { return Octets(memory).subspan(number * 100, 100); }
  Range range(std::size_t number) const {
    const auto begin = reinterpret_cast<std::uintptr_t>(buffer(number).data());
    return {begin, begin + 100};
  }
  // One use; whether it was a registration that was there already.
  bool hits(std::size_t number, Stay stay = Stay::if_it_may, int access = 0) {
    const std::uint64_t before = counters[Count::registration_hits];
    auto* const region = cache.take(buffer(number), access, stay);
    assert_non_null(region);
    cache.give(*region);
    return counters[Count::registration_hits] > before;
  }

  Bytes memory = Bytes(10'000);
  ToldMonitor monitor;
  Counters counters;
  RegistrationCache cache;
};

void what_is_kept_is_used_again(void**) {
  CacheScene s;
  assert_false(s.hits(0));
  assert_true(s.hits(0));
  assert_true(s.monitor.watched == std::vector<Range>({s.range(0)}));
  assert_false(s.hits(0, Stay::if_it_may, IBV_ACCESS_REMOTE_READ));  // more rights
  assert_true(s.hits(0, Stay::if_it_may, IBV_ACCESS_REMOTE_READ));
  assert_int_equal(s.counters[Count::registrations_kept], 2);
}

void what_changed_is_let_go(void**) {
  CacheScene s;
  s.hits(0);
  s.hits(1);
  s.monitor.log.add({.memory = {s.range(0).end - 1, s.range(0).end}});
  assert_true(s.hits(1));
  assert_int_equal(s.cache.size(), 1);
  assert_int_equal(PinningAdapter::regions(), 1);
  assert_false(s.hits(0));
  assert_int_equal(s.counters[Count::registrations_invalidated], 1);
  // Also without a use.
  s.monitor.log.add({.memory = Range::everything()});
  s.cache.look();
  assert_int_equal(PinningAdapter::regions(), 0);
}

void what_changed_in_use_is_let_go_afterwards(void**) {
  CacheScene s;
  auto* const used = s.cache.take(s.buffer(0), 0, Stay::if_it_may);
  s.monitor.log.add({.memory = s.range(0)});
  auto* const other = s.cache.take(s.buffer(0), 0, Stay::if_it_may);
  assert_ptr_not_equal(used, other);
  s.cache.give(*used);
  assert_int_equal(s.cache.size(), 1);
  s.cache.give(*other);
  assert_true(s.hits(0));
}

// It may be of memory that somebody has just got.
void nothing_is_used_again_while_a_change_is_under_way(void**) {
  CacheScene s;
  s.hits(0);
  s.monitor.settles = false;
  assert_false(s.hits(0));
  assert_null(s.cache.take(s.buffer(0), 0, Stay::or_nothing));
  assert_int_equal(s.monitor.watched.size(), 1);
  assert_int_equal(s.cache.size(), 1);
  s.monitor.settles = true;
  assert_true(s.hits(0));
}

void what_cannot_be_watched_is_not_kept(void**) {
  CacheScene s;
  s.monitor.watches = false;
  assert_false(s.hits(0));
  assert_false(s.hits(0));
  assert_null(s.cache.take(s.buffer(0), 0, Stay::or_nothing));
  assert_int_equal(s.cache.size(), 0);
  assert_int_equal(s.counters[Count::registrations_kept], 0);
}

// It is watched before its pages are pinned: a change in between is told.
void a_change_while_it_is_registered_counts(void**) {
  CacheScene s;
  PinningAdapter::meanwhile = [&] {
    assert_false(s.monitor.watched.empty());
    s.monitor.log.add({.memory = s.range(0)});
  };
  s.hits(0);
  PinningAdapter::meanwhile = nullptr;
  assert_false(s.hits(0));
}

// A window of before is gone when it is concealed, with its key.
void for_one_use_nothing_is_shared(void**) {
  CacheScene s;
  s.hits(0);
  assert_false(s.hits(0, Stay::never));
  auto* const window = s.cache.take(s.buffer(1), 0, Stay::never);
  assert_false(s.hits(1));
  s.cache.give(*window);
  assert_int_equal(s.cache.size(), 2);
}

void the_oldest_makes_room(void**) {
  CacheScene s(2);
  for (const std::size_t number : {0, 1, 0, 2}) s.hits(number);
  assert_int_equal(s.cache.size(), 2);
  assert_true(s.hits(0));
  assert_false(s.hits(1));
}

// What the adapter has no more room for.
void kept_registrations_do_not_stand_in_the_way(void**) {
  CacheScene s;
  PinningAdapter::most_regions = 3;
  for (std::size_t number = 0; number < 5; ++number) assert_false(s.hits(number));
  assert_true(s.hits(4));
  assert_int_equal(PinningAdapter::regions(), 3);
  RegistrationCache::Region* used[3];
  for (std::size_t number = 0; number < 3; ++number)
    used[number] = s.cache.take(s.buffer(10 + number), 0, Stay::if_it_may);
  assert_null(s.cache.take(s.buffer(20), 0, Stay::if_it_may));
  for (auto* region : used) s.cache.give(*region);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(ranges_are_what_was_added_and_not_removed),
      cmocka_unit_test(changes_are_read_once_and_in_order),
      cmocka_unit_test(who_comes_too_late_is_told_of_everything),
      cmocka_unit_test(a_reader_meets_no_half_a_change),
      cmocka_unit_test(only_private_memory_without_a_file_is_found),
      cmocka_unit_test(this_process_has_mappings),
      cmocka_unit_test(what_is_kept_is_used_again),
      cmocka_unit_test(what_changed_is_let_go),
      cmocka_unit_test(what_changed_in_use_is_let_go_afterwards),
      cmocka_unit_test(nothing_is_used_again_while_a_change_is_under_way),
      cmocka_unit_test(what_cannot_be_watched_is_not_kept),
      cmocka_unit_test(a_change_while_it_is_registered_counts),
      cmocka_unit_test(for_one_use_nothing_is_shared),
      cmocka_unit_test(the_oldest_makes_room),
      cmocka_unit_test(kept_registrations_do_not_stand_in_the_way),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
