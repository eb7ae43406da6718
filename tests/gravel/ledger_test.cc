// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Entries and ledgers, names of requests, registered buffers.
#include <random>

#include "tests/gravel/fake_net.h"

using namespace ewarp::gravel;
using namespace ewarp::gravel::test;

namespace {

const Entry kEntry{.size = 0x0102030405060708,
                   .remote = {.address = 0x1112131415161718, .key = 0x21222324},
                   .tag = 0x31323334,
                   .request = 0x41424344};

struct alignas(32) Slot {
  std::byte octets[Entry::kOctets] = {};
  void set(const EntryOctets& from, std::size_t begin = 0, std::size_t end = Entry::kOctets) {
    memcpy(octets + begin, from.data() + begin, end - begin);
  }
};

void an_entry_keeps_what_is_in_it(void**) {
  Slot slot;
  slot.set(emit(kEntry, 5));
  assert_true(read(slot.octets, 5) == kEntry);
  // Big-endian: address, size, key, tag, request.
  const unsigned char wanted[28] = {0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 1,    2,    3,    4,    5,    6,
                                    7,    8,    0x21, 0x22, 0x23, 0x24, 0x31, 0x32, 0x33, 0x34, 0x41, 0x42, 0x43, 0x44};
  assert_memory_equal(slot.octets, wanted, sizeof wanted);
}

// The same octets of the round before, memory that was never written, another number.
void an_entry_of_another_number_is_none(void**) {
  Slot slot;
  for (std::uint32_t number : {0u, 1u, 2u, 64u, ~0u}) assert_false(read(slot.octets, number).has_value());
  slot.set(emit(kEntry, 1));
  for (std::uint32_t number : {0u, 2u, 65u, 129u, ~0u}) assert_false(read(slot.octets, number).has_value());
  assert_true(read(slot.octets, 1).has_value());
}

// However its octets arrive: until the last one is there, it is not.
void half_an_entry_is_none(void**) {
  const Entry before{.size = 1, .remote = {2, 3}, .tag = 4, .request = 5};
  for (const bool used : {false, true})
    for (std::size_t cut = 1; cut < Entry::kOctets; ++cut)
      for (const bool backwards : {false, true}) {
        Slot slot;
        if (used) slot.set(emit(before, 1));
        const EntryOctets next = emit(kEntry, 65);
        slot.set(next, backwards ? cut : 0, backwards ? Entry::kOctets : cut);
        assert_false(read(slot.octets, 65).has_value());
        slot.set(next);
        assert_true(read(slot.octets, 65) == kEntry);
      }
}

// Any word of the round before makes it none: all of them count.
void an_entry_with_one_old_word_is_none(void**) {
  for (std::size_t word = 0; word < Entry::kOctets / 4; ++word) {
    Slot slot;
    slot.set(emit(kEntry, 65));
    slot.set(emit({.size = ~std::uint64_t{0}, .remote = {~std::uint64_t{0}, 9}, .tag = 4, .request = 5}, 1), 4 * word,
             4 * word + 4);
    assert_false(read(slot.octets, 65).has_value());
  }
}

void a_ledger_is_never_overwritten(void**) {
  LedgerWriter writer;
  for (std::uint32_t i = 1; i <= kEntries; ++i) {
    assert_false(writer.full());
    assert_int_equal(writer.next(), i);
    writer.advance();
  }
  assert_true(writer.full());
  assert_true(writer.taken(1));
  assert_false(writer.full());
  writer.advance();
  assert_true(writer.full());
  assert_false(writer.taken(0));             // it has taken it back
  assert_false(writer.taken(kEntries + 2));  // more than there are
  assert_true(writer.taken(kEntries + 1));
}

void a_reader_takes_each_entry_once(void**) {
  std::vector<std::uint32_t> memory(board::kOctets / 4);
  std::byte* board = reinterpret_cast<std::byte*>(memory.data());
  LedgerReader reader;
  for (std::uint32_t number = 1; number <= 3 * kEntries + 5; ++number) {
    assert_false(reader.take(board, Ledger::fin).has_value());
    const Entry e{.size = number, .remote = {}, .tag = 0, .request = 1};
    memcpy(board + board::offset(Ledger::fin, number), emit(e, number).data(), Entry::kOctets);
    assert_true(reader.take(board, Ledger::fin) == e);
    assert_int_equal(reader.untold(), number % (kEntries / 2) == 0);
    if (reader.untold()) reader.set_told();
  }
}

void entries_of_a_board_are_apart(void**) {
  std::vector<bool> used(board::kOctets);
  for (const Ledger ledger : kLedgers)
    for (std::uint32_t number = 1; number <= kEntries; ++number)
      for (std::size_t i = 0; i < Entry::kOctets; ++i) {
        const std::size_t at = board::offset(ledger, number) + i;
        assert_true(at < board::kCounts && !used[at]);
        used[at] = true;
      }
  assert_true(board::kCounts + board::kCountsOctets <= board::kOctets && board::kOctets % Entry::kOctets == 0);
}

// Numbers go round 2^32: the next entry is always behind the last one, and known from that of the round before.
void numbers_go_round(void**) {
  for (std::uint32_t number = ~std::uint32_t{0} - 2 * kEntries; number != 2 * kEntries; ++number) {
    const std::size_t at = board::offset(Ledger::send_info, number);
    assert_int_equal(at, board::kLedgerOctets + (number - 1) % kEntries * Entry::kOctets);
    assert_int_equal(board::offset(Ledger::send_info, number + kEntries), at);
    Slot slot;
    slot.set(emit(kEntry, number));
    assert_true(read(slot.octets, number) == kEntry);
    assert_false(read(slot.octets, number + kEntries).has_value());
  }
}

void a_name_of_before_is_none(void**) {
  Requests requests;
  const RequestId first = requests.begin(Request::Kind::receive);
  assert_true(first != 0 && requests.find(first) != nullptr);
  assert_null(requests.find(0));
  requests.end(first);
  assert_null(requests.find(first));
  for (int i = 0; i < 70000; ++i) {
    const RequestId next = requests.begin(Request::Kind::offer);
    assert_true(next != 0);
    requests.end(next);
  }
  assert_int_equal(requests.in_use(), 0);
}

void there_are_so_many_names(void**) {
  Requests requests;
  for (std::size_t i = 0; i < Requests::kMost; ++i) assert_true(requests.begin(Request::Kind::receive) != 0);
  assert_int_equal(requests.begin(Request::Kind::receive), 0);
  assert_int_equal(requests.in_use(), Requests::kMost);
}

void parts_of_buffers_are_found(void**) {
  Bytes memory(1000);
  std::byte* const m = memory.data();
  Buffers buffers;
  assert_false(buffers.find(m, 1).has_value());
  assert_true(buffers.find(nullptr, 0).has_value());
  const std::uint32_t all = buffers.add(memory, 1), part = buffers.add({m + 100, 100}, 2);
  assert_int_equal(buffers.find(m + 150, 10)->key, 2);
  assert_int_equal(buffers.find(m + 150, 100)->key, 1);  // beyond the part
  assert_int_equal(buffers.find(m, 1000)->slot, all);
  assert_false(buffers.find(m, 1001).has_value());
  assert_false(buffers.find(m + 999, 2).has_value());
  assert_false(buffers.find(m + 500, ~std::size_t{0}).has_value());
  assert_false(buffers.find_whole(m, 999).has_value());
  assert_false(buffers.find_whole(m + 1, 999).has_value());
  assert_true(buffers.find_whole(m + 100, 100) == part);
  buffers.remove(all);
  assert_false(buffers.find(m, 10).has_value());
  assert_true(buffers.find(m + 100, 100).has_value());
  assert_int_equal(buffers.add(memory, 3), all);
}

void a_buffer_knows_its_users(void**) {
  Bytes memory(10);
  Buffers buffers;
  const std::uint32_t first = buffers.add(memory, 1);
  const Local part = *buffers.find(memory.data(), 5);
  buffers.use(part);
  assert_int_equal(buffers.users(first), 1);
  // Registered twice: the idle one goes first.
  const std::uint32_t second = buffers.add(memory, 2);
  assert_true(buffers.find_whole(memory.data(), 10) == second);
  buffers.leave(part.slot);
  assert_int_equal(buffers.users(first), 0);
  const Local nothing = *buffers.find(nullptr, 0);
  buffers.use(nothing);
  buffers.leave(nothing.slot);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(an_entry_keeps_what_is_in_it),  cmocka_unit_test(an_entry_of_another_number_is_none),
      cmocka_unit_test(half_an_entry_is_none),         cmocka_unit_test(an_entry_with_one_old_word_is_none),
      cmocka_unit_test(a_ledger_is_never_overwritten), cmocka_unit_test(a_reader_takes_each_entry_once),
      cmocka_unit_test(entries_of_a_board_are_apart),  cmocka_unit_test(numbers_go_round),
      cmocka_unit_test(a_name_of_before_is_none),      cmocka_unit_test(there_are_so_many_names),
      cmocka_unit_test(parts_of_buffers_are_found),    cmocka_unit_test(a_buffer_knows_its_users),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
