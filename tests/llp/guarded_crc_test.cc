// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "llp/guarded_crc.h"

#include <isa-l/crc.h>

#include <cstring>
#include <vector>

#include "../vectors/vectors.h"
#include "llp/crc32c.h"
#include "llp/guarded_copy.h"
#include "tests/llp/guarded_pages.h"

namespace {

using namespace ewarp::llp;
using namespace ewarp::llp::test;

constexpr std::uint32_t kPreset = 0xffffffffu;

std::span<const CrcForm> forms() {
  const CrcForms f = crc_forms();
  return {f.first, f.count};
}

// Every length around the loops' strides, and some long ones.
std::vector<std::size_t> sizes() {
  std::vector<std::size_t> all;
  for (std::size_t n = 0; n <= 1100; ++n) all.push_back(n);
  for (const std::size_t n : {2047u, 2048u, 2049u, 4095u, 4096u, 4097u, 5003u, 8000u}) all.push_back(n);
  return all;
}

std::uint32_t reference(const std::byte* from, std::size_t n, std::uint32_t preset) {
  return crc32_iscsi(reinterpret_cast<unsigned char*>(const_cast<std::byte*>(from)), static_cast<int>(n), preset);
}

// Source and target end where their pages do: neither reads nor writes one octet too many.
void equals_isa_l_and_stays_within_its_bounds(void**) {
  install_copy_guard();
  Pages source, target;
  for (const CrcForm& form : forms()) {
    for (const std::size_t n : sizes()) {
      const std::byte* from = source.edge() - n;
      std::byte* to = target.edge() - n;
      for (const std::uint32_t preset : {kPreset, 0u, 0x12345678u}) {
        const std::uint32_t want = reference(from, n, preset);
        std::uint32_t got = preset;
        if (!form.crc(from, n, &got) || got != want) fail_msg("%s, %zu octets", form.name, n);
        got = preset;
        std::memset(to, 0xa5, n);
        const std::byte before = *(to - 1);
        if (!form.copy(to, from, n, &got) || got != want || std::memcmp(to, from, n) != 0 || *(to - 1) != before)
          fail_msg("%s, copy of %zu octets", form.name, n);
      }
    }
  }
}

void any_alignment(void**) {
  Pages source;
  std::vector<std::byte> target(2 * kPage);
  for (const CrcForm& form : forms())
    for (std::size_t from = 0; from < 70; from += 3)
      for (std::size_t to = 0; to < 70; to += 7) {
        std::uint32_t got = kPreset;
        assert_true(form.copy(target.data() + to, source.at(from), 3000, &got));
        assert_int_equal(got, reference(source.at(from), 3000, kPreset));
        assert_memory_equal(target.data() + to, source.at(from), 3000);
      }
}

// The mapping ends within the piece, at every octet of it.
void a_fault_is_false_and_leaves_the_register(void**) {
  install_copy_guard();
  Pages pages;
  std::vector<std::byte> other(8192);
  for (const CrcForm& form : forms())
    for (const std::size_t n : {1u, 2u, 4u, 7u, 8u, 63u, 64u, 127u, 128u, 200u, 511u, 512u, 700u, 1500u, 5000u})
      for (std::size_t inside = 0; inside < n; inside += n < 300 ? 1 : 41) {
        std::uint32_t value = 7;
        if (form.crc(pages.edge() - inside, n, &value) || form.copy(other.data(), pages.edge() - inside, n, &value) ||
            form.copy(pages.edge() - inside, other.data(), n, &value) || value != 7)
          fail_msg("%s: %zu octets, %zu of them there", form.name, n, inside);
      }
  for (const CrcForm& form : forms()) {
    std::uint32_t value = 7;
    EXPECT(form.name, form.crc(pages.edge(), 0, &value) && form.copy(pages.edge(), pages.edge(), 0, &value));
  }
}

void a_long_copy_keeps_what_came_before_the_fault(void**) {
  install_copy_guard();
  Pages pages;
  std::vector<std::byte> target(2 * kPage + 100);
  std::uint32_t value = 0;
  assert_false(guarded_copy_crc32c(target.data(), pages.at(0), target.size(), &value));
  assert_memory_equal(target.data(), pages.at(0), kPage);
}

void a_running_crc_takes_all_three(void**) {
  install_copy_guard();
  Pages pages;
  std::vector<std::byte> target(1000);
  Crc32c whole, parts;
  whole.update({pages.at(0), 3000});
  parts.update({pages.at(0), 1000});
  assert_true(parts.read(pages.at(1000), 1000));
  assert_true(parts.copy(target.data(), pages.at(2000), 1000));
  assert_int_equal(parts.value(), whole.value());
  assert_memory_equal(target.data(), pages.at(2000), 1000);
  assert_false(parts.read(pages.edge() - 3, 4));
  assert_int_equal(parts.value(), whole.value());
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(equals_isa_l_and_stays_within_its_bounds),
      cmocka_unit_test(any_alignment),
      cmocka_unit_test(a_fault_is_false_and_leaves_the_register),
      cmocka_unit_test(a_long_copy_keeps_what_came_before_the_fault),
      cmocka_unit_test(a_running_crc_takes_all_three),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
