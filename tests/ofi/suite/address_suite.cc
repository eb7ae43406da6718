// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Address vectors (fi_av(3)).
#include <cstring>

#include "tests/ofi/suite/bed.h"

namespace ewarp::ofi::suite {
namespace {

void open(const Bed& bed, Owned<fid_av>& out, fi_av_type type, std::uint64_t flags = 0, std::size_t count = 0) {
  fi_av_attr attributes{};
  attributes.type = type;
  attributes.flags = flags;
  attributes.count = count;
  MUST(fi_av_open(bed.domain, &attributes, out.out(), nullptr));
}

std::vector<sockaddr_in> good(std::size_t count) {
  std::vector<sockaddr_in> out;
  for (std::size_t i = 0; i < count; ++i) out.push_back(at("127.0.0.1", static_cast<std::uint16_t>(7000 + i)));
  return out;
}

void address_vectors_of_any_size(void**) {
  const Bed bed;
  for (const fi_av_type type : {FI_AV_MAP, FI_AV_TABLE})
    for (std::size_t count = 1; count <= 1 << 16; count *= 16) {
      Owned<fid_av> v;
      open(bed, v, type, 0, count);
    }
  fi_av_attr unspecified{};
  Owned<fid_av> v;
  MUST(fi_av_open(bed.domain, &unspecified, v.out(), nullptr));
  assert_true(unspecified.type == FI_AV_MAP || unspecified.type == FI_AV_TABLE);
}

void addresses_are_found_again(void**) {
  const Bed bed;
  for (const fi_av_type type : {FI_AV_MAP, FI_AV_TABLE}) {
    Owned<fid_av> v;
    open(bed, v, type);
    const auto in = good(16);
    fi_addr_t out[16];
    assert_int_equal(fi_av_insert(v.get(), in.data(), 1, &out[0], 0, nullptr), 1);
    assert_int_equal(fi_av_insert(v.get(), &in[1], 15, &out[1], 0, nullptr), 15);
    for (std::size_t i = 0; i < in.size(); ++i) {
      assert_true(out[i] != FI_ADDR_NOTAVAIL);
      if (type == FI_AV_TABLE) assert_int_equal(out[i], i);
      sockaddr_in found{};
      std::size_t length = sizeof found;
      MUST(fi_av_lookup(v.get(), out[i], &found, &length));
      assert_int_equal(length, sizeof found);
      assert_memory_equal(&found, &in[i], sizeof found);
    }
    char text[64];
    std::size_t length = sizeof text;
    assert_non_null(fi_av_straddr(v.get(), &in[3], text, &length));
    assert_non_null(std::strstr(text, "127.0.0.1:7003"));
    MUST(fi_av_remove(v.get(), out, 16, 0));
    assert_int_equal(fi_av_insert(v.get(), in.data(), 16, out, 0, nullptr), 16);
  }
}

// In a table the places are known without being told.
void places_need_not_be_told(void**) {
  const Bed bed;
  Owned<fid_av> v;
  open(bed, v, FI_AV_TABLE);
  const auto in = good(4);
  assert_int_equal(fi_av_insert(v.get(), in.data(), 4, nullptr, 0, nullptr), 4);
  sockaddr_in found{};
  std::size_t length = sizeof found;
  MUST(fi_av_lookup(v.get(), 2, &found, &length));
  assert_memory_equal(&found, &in[2], sizeof found);
}

// Addresses that are none: how many were good, and which were not.
void bad_ones_are_told(void**) {
  ONLY_OURS();
  const Bed bed;
  for (const fi_av_type type : {FI_AV_MAP, FI_AV_TABLE}) {
    Owned<fid_av> v;
    open(bed, v, type);
    auto in = good(3);
    std::memset(&in[1], 0, sizeof in[1]);
    fi_addr_t out[3] = {1, 2, 3};
    assert_int_equal(fi_av_insert(v.get(), &in[1], 1, out, 0, nullptr), 0);
    assert_true(out[0] == FI_ADDR_NOTAVAIL);
    assert_int_equal(fi_av_insert(v.get(), in.data(), 3, out, 0, nullptr), 2);
    assert_true(out[0] != FI_ADDR_NOTAVAIL && out[1] == FI_ADDR_NOTAVAIL && out[2] != FI_ADDR_NOTAVAIL);
    int errors[3] = {-1, 0, -1};
    assert_int_equal(fi_av_insert(v.get(), in.data(), 3, out, FI_SYNC_ERR, errors), 2);
    assert_int_equal(errors[0], 0);
    assert_true(errors[1] != 0);
    assert_int_equal(errors[2], 0);
  }
}

void services(void**) {
  const Bed bed;
  Owned<fid_av> v;
  open(bed, v, FI_AV_MAP);
  fi_addr_t out[6];
  MUST_OR_SKIP(fi_av_insertsvc(v.get(), "127.0.0.1", "7001", out, 0, nullptr));
  assert_int_equal(fi_av_insertsym(v.get(), "127.0.0.1", 2, "7001", 3, out, 0, nullptr), 6);
  sockaddr_in found{};
  std::size_t length = sizeof found;
  MUST(fi_av_lookup(v.get(), out[5], &found, &length));
  const sockaddr_in expected = at("127.0.0.2", 7003);
  assert_memory_equal(&found.sin_addr, &expected.sin_addr, sizeof found.sin_addr);
  assert_int_equal(found.sin_port, expected.sin_port);
}

// Insertions that an event queue tells of.
struct Async {
  explicit Async(const Bed& bed, fi_av_type type = FI_AV_MAP) {
    fi_eq_attr attributes{};
    attributes.wait_obj = FI_WAIT_UNSPEC;
    MUST(fi_eq_open(bed.fabric, &attributes, queue.out(), nullptr));
    open(bed, v, type, FI_EVENT);
    MUST(fi_av_bind(v.get(), &queue.f(), 0));
  }
  // How many were inserted with this context.
  std::uint64_t done(void* context) {
    std::uint32_t event = 0;
    fi_eq_entry e{};
    assert_int_equal(fi_eq_sread(queue.get(), &event, &e, sizeof e, kPatienceMs, 0), sizeof e);
    assert_int_equal(event, FI_AV_COMPLETE);
    assert_ptr_equal(e.fid, &v.f());
    assert_ptr_equal(e.context, context);
    return e.data;
  }
  Owned<fid_eq> queue;
  Owned<fid_av> v;
};

bool has_events(const Bed& bed) {
  fi_av_attr attributes{};
  attributes.flags = FI_EVENT;
  fid_av* v = nullptr;
  const int result = fi_av_open(bed.domain, &attributes, &v, nullptr);
  if (result == 0) fi_close(&v->fid);
  return result == 0;
}

void insertions_are_told_by_events(void**) {
  const Bed bed;
  if (!has_events(bed)) skip();
  Async a(bed);
  const auto in = good(8);
  fi_addr_t out[8];
  int first, second, third;
  MUST(fi_av_insert(a.v.get(), in.data(), 4, out, FI_MORE, &first));
  MUST(fi_av_insert(a.v.get(), &in[4], 4, &out[4], 0, &second));
  assert_int_equal(a.done(&first), 4);
  assert_int_equal(a.done(&second), 4);
  for (const fi_addr_t at : out) assert_true(at != FI_ADDR_NOTAVAIL);
  MUST(fi_av_insert(a.v.get(), in.data(), 0, out, 0, &third));
  assert_int_equal(a.done(&third), 0);
}

void bad_ones_are_told_by_events(void**) {
  const Bed bed;
  if (!has_events(bed)) skip();
  Async a(bed);
  auto in = good(3);
  std::memset(&in[1], 0, sizeof in[1]);
  fi_addr_t out[3];
  int context;
  MUST(fi_av_insert(a.v.get(), in.data(), 3, out, 0, &context));
  std::uint32_t event = 0;
  fi_eq_entry e{};
  assert_int_equal(fi_eq_sread(a.queue.get(), &event, &e, sizeof e, kPatienceMs, 0), -FI_EAVAIL);
  fi_eq_err_entry error{};
  assert_int_equal(fi_eq_readerr(a.queue.get(), &error, 0), sizeof error);
  assert_ptr_equal(error.fid, &a.v.f());
  assert_ptr_equal(error.context, &context);
  assert_int_equal(error.data, 1);  // which one
  assert_true(error.err > 0);
  assert_int_equal(a.done(&context), 2);
  assert_true(out[1] == FI_ADDR_NOTAVAIL);
}

}  // namespace

Tests address_tests() {
  return {cmocka_unit_test(address_vectors_of_any_size),
          cmocka_unit_test(addresses_are_found_again),
          cmocka_unit_test(places_need_not_be_told),
          cmocka_unit_test(bad_ones_are_told),
          cmocka_unit_test(services),
          cmocka_unit_test(insertions_are_told_by_events),
          cmocka_unit_test(bad_ones_are_told_by_events)};
}

}  // namespace ewarp::ofi::suite
