// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "llp/crc32c.h"

#include <algorithm>
#include <array>

#include "../vectors/vectors.h"

namespace {

using ewarp::Octets;
using ewarp::llp::Crc32c;
using ewarp::test::Bytes;

struct Vector {
  std::string id;
  Bytes input;
  std::uint32_t value;
  Bytes wire;
};

std::vector<Vector> vectors() {
  std::vector<Vector> result;
  const auto file = ewarp::test::load("crc32c.json");
  for (const auto& v : file.at("vectors"))
    result.push_back({v.at("id"), ewarp::test::hex(v.at("input_hex")),
                      static_cast<std::uint32_t>(ewarp::test::number(v.at("crc_value"))),
                      ewarp::test::hex(v.at("crc_wire_hex"))});
  return result;
}

std::array<std::byte, 4> wire_of(const Crc32c& crc) {
  std::array<std::byte, 4> out{std::byte{0xa5}, std::byte{0xa5}, std::byte{0xa5}, std::byte{0xa5}};
  crc.emit(out);
  return out;
}

// Holds: MPA-4
void vectors_hold(void**) {
  const auto all = vectors();
  assert_true(all.size() >= 12);
  for (const Vector& v : all) {
    Crc32c crc;
    crc.update(ewarp::test::exact(v.input));
    EXPECT(v.id, crc.value() == v.value);
    ewarp::test::expect_octets(wire_of(crc), v.wire, v.id);
  }
}

void every_two_way_cut_gives_the_same(void**) {
  for (const Vector& v : vectors()) {
    const Octets in = v.input;
    for (std::size_t cut = 0; cut <= in.size(); ++cut) {
      Crc32c crc;
      crc.update(in.first(cut));
      crc.update(in.subspan(cut));
      EXPECT(v.id, crc.value() == v.value);
    }
  }
}

// Holds: MPA-4
void octet_by_octet_gives_the_same(void**) {
  for (const Vector& v : vectors()) {
    Crc32c crc;
    for (const std::byte& b : v.input) crc.update(Octets(&b, 1));
    EXPECT(v.id, crc.value() == v.value);
  }
}

void matches_its_own_octets_and_no_others(void**) {
  for (const Vector& v : vectors()) {
    Crc32c crc;
    crc.update(v.input);
    std::array<std::byte, 4> field{};
    std::copy(v.wire.begin(), v.wire.end(), field.begin());
    EXPECT(v.id, crc.matches(field));
    for (unsigned bit = 0; bit < 32; ++bit) {
      auto flipped = field;
      flipped[bit / 8] ^= std::byte{1} << (bit % 8);
      EXPECT(v.id, !crc.matches(flipped));
    }
  }
}

// The same residue for every frame: what a receiver that runs over the CRC field as well would find.
void residue_over_data_and_field(void**) {
  for (const Vector& v : vectors()) {
    Crc32c crc;
    crc.update(v.input);
    crc.update(wire_of(crc));
    EXPECT(v.id, crc.value() == 0x48674bc7u);
  }
}

void reset_starts_over(void**) {
  const Vector v = vectors().front();
  Crc32c crc;
  crc.update(v.input);
  crc.reset();
  assert_int_equal(crc.value(), 0);
  crc.update(v.input);
  assert_int_equal(crc.value(), v.value);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(vectors_hold),
      cmocka_unit_test(every_two_way_cut_gives_the_same),
      cmocka_unit_test(octet_by_octet_gives_the_same),
      cmocka_unit_test(matches_its_own_octets_and_no_others),
      cmocka_unit_test(residue_over_data_and_field),
      cmocka_unit_test(reset_starts_over),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
