// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "llp/gather.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "../vectors/vectors.h"

namespace {

using ewarp::llp::Extent;
using ewarp::llp::Gather;
using ewarp::test::Bytes;

// Octets 0, 1, 2, ... from `first` on.
void fill(ewarp::MutableOctets out, unsigned first) {
  for (std::byte& b : out) b = static_cast<std::byte>(first++);
}

Bytes flat(const Gather& gather) {
  Bytes out;
  for (const iovec& v : gather.vectors()) {
    const auto* from = static_cast<const std::byte*>(v.iov_base);
    out.insert(out.end(), from, from + v.iov_len);
  }
  return out;
}

Bytes counting(std::size_t from, std::size_t to) {
  Bytes out;
  for (std::size_t i = from; i < to; ++i) out.push_back(static_cast<std::byte>(i));
  return out;
}

void a_new_one_is_empty(void**) {
  const Gather gather;
  assert_true(gather.empty());
  assert_int_equal(gather.octets(), 0);
  assert_int_equal(gather.vectors().size(), 0);
  assert_int_equal(gather.regions().size(), 0);
  assert_int_equal(gather.arena_room(), Gather::kArena);
}

void neighbours_in_the_arena_share_a_vector(void**) {
  Gather gather;
  fill(gather.append(10), 0);
  fill(gather.append(20), 10);
  fill(gather.append(1), 30);
  assert_int_equal(gather.vectors().size(), 1);
  assert_int_equal(gather.octets(), 31);
  assert_int_equal(gather.arena_room(), Gather::kArena - 31);
  ewarp::test::expect_octets(flat(gather), counting(0, 31), "three appends");
}

// Header, payload of somebody else, trailer; then the header of the next one, which joins the trailer.
struct TwoSegments {
  Gather gather;
  Bytes payload = counting(4, 14);
  Bytes more = counting(24, 31);
  TwoSegments() {
    fill(gather.append(4), 0);
    gather.append(Extent{payload.data(), payload.size(), nullptr, 0});
    fill(gather.append(6), 14);
    fill(gather.append(4), 20);
    gather.append(Extent{more.data(), more.size(), nullptr, 0});
    fill(gather.append(2), 31);
  }
  static constexpr std::size_t kSize = 33;
};

void extents_stand_where_they_were_appended(void**) {
  TwoSegments two;
  assert_int_equal(two.gather.vectors().size(), 5);
  assert_int_equal(two.gather.octets(), TwoSegments::kSize);
  assert_ptr_equal(two.gather.vectors()[1].iov_base, two.payload.data());
  ewarp::test::expect_octets(flat(two.gather), counting(0, TwoSegments::kSize), "two segments");
}

void consume_stops_anywhere(void**) {
  for (std::size_t first = 0; first <= TwoSegments::kSize; ++first) {
    for (std::size_t second = 0; first + second <= TwoSegments::kSize; ++second) {
      TwoSegments two;
      two.gather.consume(first);
      ewarp::test::expect_octets(flat(two.gather), counting(first, TwoSegments::kSize), "after the first");
      two.gather.consume(second);
      ewarp::test::expect_octets(flat(two.gather), counting(first + second, TwoSegments::kSize), "after the second");
      assert_int_equal(two.gather.octets(), TwoSegments::kSize - first - second);
      for (const iovec& v : two.gather.vectors()) assert_true(v.iov_len > 0);
    }
  }
}

void what_is_appended_after_a_partial_consume_follows(void**) {
  for (std::size_t done = 0; done < TwoSegments::kSize; ++done) {
    TwoSegments two;
    two.gather.consume(done);
    fill(two.gather.append(5), TwoSegments::kSize);
    ewarp::test::expect_octets(flat(two.gather), counting(done, TwoSegments::kSize + 5), "appended later");
  }
}

void all_room_comes_back_when_nothing_is_left(void**) {
  int region = 0;
  Bytes payload(8);
  Gather gather;
  for (int round = 0; round < 3; ++round) {
    gather.append(Gather::kArena);
    gather.append(Extent{payload.data(), payload.size(), &region, 1});
    assert_false(gather.has_room(1, 1));
    gather.consume(gather.octets() - 1);
    assert_false(gather.has_room(1, 1));
    gather.consume(1);
    assert_true(gather.empty());
    assert_int_equal(gather.vectors().size(), 0);
    assert_int_equal(gather.regions().size(), 0);
    assert_true(gather.has_room(Gather::kMaxVectors, Gather::kArena, Gather::kMaxRegions));
  }
}

void room_is_counted_in_three_ways(void**) {
  Gather gather;
  assert_true(gather.has_room(Gather::kMaxVectors, Gather::kArena, Gather::kMaxRegions));
  assert_false(gather.has_room(Gather::kMaxVectors + 1, 0, 0));
  assert_false(gather.has_room(0, Gather::kArena + 1, 0));
  assert_false(gather.has_room(0, 0, Gather::kMaxRegions + 1));
  // Header and foreign octet in turn: nothing can be joined.
  std::byte octet{};
  for (std::size_t i = 0; i < Gather::kMaxVectors / 2; ++i) {
    gather.append(1);
    gather.append(Extent{&octet, 1, nullptr, 0});
  }
  assert_int_equal(gather.vectors().size(), Gather::kMaxVectors);
  assert_false(gather.has_room(1, 1, 0));
}

void regions_are_named_once_a_ticket(void**) {
  int one = 0;
  int two = 0;
  Bytes memory(64);
  Gather gather;
  const auto add = [&](void* region, std::uint32_t ticket, std::size_t length) {
    gather.append(Extent{memory.data(), length, region, ticket});
  };
  add(&one, 1, 4);
  add(&one, 1, 4);
  add(&two, 1, 4);
  add(&one, 2, 4);  // registered anew: another ticket
  add(nullptr, 9, 4);
  add(&two, 7, 0);  // nothing to read, nothing to enter
  const auto regions = gather.regions();
  assert_int_equal(regions.size(), 3);
  assert_ptr_equal(regions[0].region, &one);
  assert_int_equal(regions[0].ticket, 1);
  assert_ptr_equal(regions[1].region, &two);
  assert_ptr_equal(regions[2].region, &one);
  assert_int_equal(regions[2].ticket, 2);
  assert_int_equal(gather.octets(), 20);
  assert_int_equal(gather.vectors().size(), 5);
}

void clear_forgets_everything(void**) {
  TwoSegments two;
  int region = 0;
  two.gather.append(Extent{two.payload.data(), 1, &region, 1});
  two.gather.clear();
  assert_true(two.gather.empty());
  assert_int_equal(two.gather.regions().size(), 0);
  assert_int_equal(two.gather.arena_room(), Gather::kArena);
  fill(two.gather.append(3), 0);
  ewarp::test::expect_octets(flat(two.gather), counting(0, 3), "after clear");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_new_one_is_empty),
      cmocka_unit_test(neighbours_in_the_arena_share_a_vector),
      cmocka_unit_test(extents_stand_where_they_were_appended),
      cmocka_unit_test(consume_stops_anywhere),
      cmocka_unit_test(what_is_appended_after_a_partial_consume_follows),
      cmocka_unit_test(all_room_comes_back_when_nothing_is_left),
      cmocka_unit_test(room_is_counted_in_three_ways),
      cmocka_unit_test(regions_are_named_once_a_ticket),
      cmocka_unit_test(clear_forgets_everything),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
