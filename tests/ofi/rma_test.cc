// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Reads and Writes of a peer's memory.
#include <stdlib.h>
#include <sys/uio.h>

#include <algorithm>

#include "tests/ofi/sides.h"

namespace ewarp::ofi::test {
namespace {

int context;
constexpr std::uint64_t kData = 0x1122334455667788;

void writes_and_reads(void**) {
  Pair p({.send_flags = FI_DELIVERY_COMPLETE});
  Registered target(p.b, 400'000);
  unsigned seed = 0;
  for (const std::size_t size : kSizes)
    for (int way = 0; way < 3; ++way) {
      const Bytes out = pattern(++seed, size);
      Bytes in(size);
      const std::uint64_t at = target.address() + 1000;
      const iovec from{const_cast<std::uint8_t*>(out.data()), size}, to{in.data(), size};
      const fi_rma_iov remote{at, size, target.key()};
      const fi_msg_rma put{&from, nullptr, 1, p.to_b, &remote, 1, &context, 0};
      const fi_msg_rma get{&to, nullptr, 1, p.to_b, &remote, 1, &context, 0};
      MUST(way == 0   ? fi_write(p.a.ep, out.data(), size, nullptr, p.to_b, at, target.key(), &context)
           : way == 1 ? fi_writev(p.a.ep, &from, nullptr, 1, p.to_b, at, target.key(), &context)
                      : fi_writemsg(p.a.ep, &put, FI_DELIVERY_COMPLETE));
      const fi_cq_tagged_entry wrote = p.a.sent();
      assert_ptr_equal(wrote.op_context, &context);
      assert_int_equal(wrote.flags & (FI_RMA | FI_WRITE | FI_READ), FI_RMA | FI_WRITE);
      // Delivered: it is there.
      if (size > 0) assert_memory_equal(target.octets.data() + 1000, out.data(), size);
      MUST(way == 0   ? fi_read(p.a.ep, in.data(), size, nullptr, p.to_b, at, target.key(), &context)
           : way == 1 ? fi_readv(p.a.ep, &to, nullptr, 1, p.to_b, at, target.key(), &context)
                      : fi_readmsg(p.a.ep, &get, FI_COMPLETION));
      const fi_cq_tagged_entry read = p.a.sent();
      assert_int_equal(read.flags & (FI_RMA | FI_WRITE | FI_READ), FI_RMA | FI_READ);
      assert_true(in == out);
    }
  assert_true(p.b.quiet(p.b.receive_queue));
}

// The data is told after what was written, and with what it takes to know whose it is.
void remote_data_follows_a_write(void**) {
  Pair p;
  Registered target(p.b, 400'000);
  unsigned seed = 0;
  for (const std::size_t size : kSizes)
    for (int way = 0; way < 3; ++way) {
      const bool inject = way == 2;
      if (inject && size > p.a.info->tx_attr->inject_size) continue;
      const Bytes out = pattern(++seed, size);
      const iovec from{const_cast<std::uint8_t*>(out.data()), size};
      const fi_rma_iov remote{target.address(), size, target.key()};
      const fi_msg_rma put{&from, nullptr, 1, p.to_b, &remote, 1, &context, kData};
      MUST(way == 0   ? fi_writedata(p.a.ep, out.data(), size, nullptr, kData, p.to_b, target.address(), target.key(),
                                     &context)
           : way == 1 ? fi_writemsg(p.a.ep, &put, FI_REMOTE_CQ_DATA)
                      : fi_inject_writedata(p.a.ep, out.data(), size, kData, p.to_b, target.address(), target.key()));
      fi_cq_tagged_entry e{};
      fi_addr_t source = FI_ADDR_NOTAVAIL;
      assert_int_equal(fi_cq_sreadfrom(p.b.receive_queue, &e, 1, &source, nullptr, kPatienceMs), 1);
      assert_int_equal(e.flags, FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA);
      assert_int_equal(e.data, kData);
      assert_null(e.op_context);
      assert_int_equal(source, p.to_a);
      if (size > 0) assert_memory_equal(target.octets.data(), out.data(), size);
      if (!inject) p.a.sent();
    }
}

void an_injected_write_is_a_copy(void**) {
  Pair p;
  Registered target(p.b, 4096);
  Bytes out = pattern(4, 4096);
  const Bytes expected = out;
  MUST(fi_inject_write(p.a.ep, out.data(), out.size(), p.to_b, target.address(), target.key()));
  std::fill(out.begin(), out.end(), 0);
  // A message behind it comes after it.
  std::uint64_t word = 1, in = 0;
  MUST(fi_trecv(p.b.ep, &in, 8, nullptr, p.to_a, 5, 0, nullptr));
  MUST(fi_tinject(p.a.ep, &word, 8, p.to_b, 5));
  p.b.received();
  assert_true(target.octets == expected);
  assert_true(p.a.quiet(p.a.send_queue));
}

// What goes eagerly can be injected, and no more, which is told beforehand.
void a_low_threshold_bounds_what_is_injected(void**) {
  constexpr std::size_t kMost = 1000;
  setenv("EWARP_CHANNEL_EAGER_THRESHOLD", "1000", 1);
  Pair p;
  unsetenv("EWARP_CHANNEL_EAGER_THRESHOLD");
  assert_int_equal(p.a.info->tx_attr->inject_size, kMost);
  Registered target(p.b, kMost);
  Bytes out = pattern(4, kMost + 1);
  const Bytes expected(out.begin(), out.begin() + kMost);
  assert_int_equal(fi_inject_write(p.a.ep, out.data(), kMost + 1, p.to_b, target.address(), target.key()), -FI_EINVAL);
  assert_int_equal(fi_tinject(p.a.ep, out.data(), kMost + 1, p.to_b, 5), -FI_EINVAL);
  MUST(fi_inject_write(p.a.ep, out.data(), kMost, p.to_b, target.address(), target.key()));
  MUST(fi_tinject(p.a.ep, out.data(), kMost, p.to_b, 5));
  std::fill(out.begin(), out.end(), 0);
  Bytes in(kMost);
  MUST(fi_trecv(p.b.ep, in.data(), in.size(), nullptr, p.to_a, 5, 0, nullptr));
  p.b.received();
  assert_true(in == expected && target.octets == expected);
}

// Its buffer is free at once; its entry says that the octets are in place.
void an_injected_write_is_complete_when_it_was_delivered(void**) {
  Pair p;
  Registered target(p.b, 4096);
  for (unsigned i = 1; i <= 100; ++i) {
    Bytes out = pattern(i, 4096);
    const Bytes expected = out;
    const iovec from{out.data(), out.size()};
    const fi_rma_iov remote{target.address(), out.size(), target.key()};
    const fi_msg_rma put{&from, nullptr, 1, p.to_b, &remote, 1, &context, 0};
    MUST(fi_writemsg(p.a.ep, &put, FI_INJECT | FI_DELIVERY_COMPLETE | FI_COMPLETION));
    std::fill(out.begin(), out.end(), 0);
    assert_ptr_equal(p.a.sent().op_context, &context);
    assert_true(target.octets == expected);
  }
}

void memory_of_oneself(void**) {
  Side a;
  const fi_addr_t self = a.insert(a);
  Registered target(a, 1000);
  const Bytes out = pattern(1, 1000);
  Bytes in(1000);
  MUST(fi_writedata(a.ep, out.data(), 1000, nullptr, kData, self, target.address(), target.key(), &context));
  a.sent();
  assert_int_equal(a.received().data, kData);
  MUST(fi_read(a.ep, in.data(), 1000, nullptr, self, target.address(), target.key(), &context));
  a.sent();
  assert_true(in == out);
}

// As a peer's: the octets stay as they are, and the request fails.
void memory_of_oneself_is_guarded_too(void**) {
  Side a;
  const fi_addr_t self = a.insert(a);
  Registered readable(a, 100, FI_REMOTE_READ), writable(a, 100, FI_REMOTE_WRITE);
  const Bytes before = readable.octets, out(200, 9);
  Bytes in(200);
  const auto refused = [&a] {
    const fi_cq_err_entry e = a.failure(a.send_queue);
    assert_int_equal(e.err, FI_EACCES);
    assert_ptr_equal(e.op_context, &context);
  };
  MUST(fi_write(a.ep, out.data(), 100, nullptr, self, readable.address(), readable.key(), &context));
  refused();
  assert_true(readable.octets == before);
  MUST(fi_read(a.ep, in.data(), 100, nullptr, self, writable.address(), writable.key(), &context));
  refused();
  MUST(fi_read(a.ep, in.data(), 101, nullptr, self, readable.address(), readable.key(), &context));
  refused();
  Bytes gone(100);
  fid_mr* region = nullptr;
  MUST(fi_mr_reg(a.domain, gone.data(), 100, FI_REMOTE_WRITE, 0, 0, 0, &region, nullptr));
  const std::uint64_t key = fi_mr_key(region);
  MUST(fi_close(&region->fid));
  MUST(fi_write(a.ep, out.data(), 100, nullptr, self, reinterpret_cast<std::uint64_t>(gone.data()), key, &context));
  refused();
  assert_true(gone == Bytes(100) && in == Bytes(200));
}

// A key is 32 bits of 64: one that has others, too, is nobody's.
void a_key_of_more_than_32_bits_opens_nothing(void**) {
  Pair p;
  Registered target(p.b, 100);
  const Bytes before = target.octets, out(100, 9);
  Bytes in(100);
  const std::uint64_t wrong = target.key() | std::uint64_t{1} << 32;
  const auto refused = [&p] { assert_int_equal(p.a.failure(p.a.send_queue).err, FI_EACCES); };
  MUST(fi_write(p.a.ep, out.data(), 100, nullptr, p.to_b, target.address(), wrong, &context));
  refused();
  MUST(fi_read(p.a.ep, in.data(), 100, nullptr, p.to_b, target.address(), wrong, &context));
  refused();
  MUST(fi_read(p.a.ep, in.data(), 100, nullptr, p.to_b, target.address(), target.key(), &context));
  p.a.sent();
  assert_true(target.octets == before && in == before);
}

void memory_is_registered_in_every_way(void**) {
  Pair p;
  Bytes octets(100);
  const iovec v{octets.data(), octets.size()};
  fi_mr_attr attributes{};
  attributes.mr_iov = &v;
  attributes.iov_count = 1;
  attributes.access = FI_REMOTE_READ;
  for (int way = 0; way < 3; ++way) {
    fid_mr* region = nullptr;
    const Bytes content = pattern(static_cast<unsigned>(way), 100);
    std::copy(content.begin(), content.end(), octets.begin());
    MUST(way == 0   ? fi_mr_reg(p.b.domain, octets.data(), 100, FI_REMOTE_READ, 0, 0, 0, &region, nullptr)
         : way == 1 ? fi_mr_regv(p.b.domain, &v, 1, FI_REMOTE_READ, 0, 0, 0, &region, nullptr)
                    : fi_mr_regattr(p.b.domain, &attributes, 0, &region));
    Bytes in(100);
    MUST(fi_read(p.a.ep, in.data(), 100, fi_mr_desc(region), p.to_b, reinterpret_cast<std::uint64_t>(octets.data()),
                 fi_mr_key(region), nullptr));
    p.a.sent();
    assert_true(in == octets);
    MUST(fi_close(&region->fid));
  }
  fid_mr* region = nullptr;
  assert_int_equal(fi_mr_reg(p.b.domain, octets.data(), 100, FI_REMOTE_READ, 0, 0, FI_RMA_EVENT, &region, nullptr),
                   -FI_EBADFLAGS);
  const iovec two[2] = {v, v};
  assert_int_equal(fi_mr_regv(p.b.domain, two, 2, FI_REMOTE_READ, 0, 0, 0, &region, nullptr), -FI_EINVAL);
}

// A peer's adapter refuses, which ends the connection; what was not permitted did not happen.
void what_is_not_permitted_fails(void**) {
  for (const bool write : {false, true})
    for (int how = 0; how < 3; ++how) {
      Pair p;
      Registered target(p.b, 1000, write ? FI_REMOTE_READ : FI_REMOTE_WRITE);
      const Bytes before = target.octets;
      const std::uint64_t key = how == 0 ? target.key() : how == 1 ? target.key() + 12345 : target.key();
      const std::uint64_t at = how == 2 ? target.address() + 900 : target.address();
      Bytes octets = pattern(5, 200);
      if (write)
        MUST(fi_write(p.a.ep, octets.data(), 200, nullptr, p.to_b, at, key, &context));
      else
        MUST(fi_read(p.a.ep, octets.data(), 200, nullptr, p.to_b, at, key, &context));
      if (write) {
        fi_cq_tagged_entry e{};  // a Write is complete when it is sent
        if (fi_cq_sread(p.a.send_queue, &e, 1, nullptr, kPatienceMs) == -FI_EAVAIL) p.a.failure(p.a.send_queue);
        std::uint64_t word = 0;
        MUST(fi_tsend(p.a.ep, &word, 8, nullptr, p.to_b, 5, nullptr));
        MUST(fi_trecv(p.a.ep, &word, 8, nullptr, p.to_b, 5, 0, &word));
        assert_ptr_equal(p.a.failure(p.a.receive_queue).op_context, &word);
      } else {
        const fi_cq_err_entry e = p.a.failure(p.a.send_queue);
        assert_ptr_equal(e.op_context, &context);
        assert_int_equal(e.err, FI_ECONNRESET);
      }
      assert_true(target.octets == before);
    }
}

void lengths_must_agree(void**) {
  Pair p;
  Registered target(p.b, 100);
  std::uint8_t octets[100] = {};
  const iovec local{octets, 50};
  const fi_rma_iov remote[2] = {{target.address(), 60, target.key()}, {target.address(), 60, target.key()}};
  const fi_msg_rma unequal{&local, nullptr, 1, p.to_b, remote, 1, nullptr, 0};
  assert_int_equal(fi_writemsg(p.a.ep, &unequal, 0), -FI_EINVAL);
  const fi_msg_rma many{&local, nullptr, 1, p.to_b, remote, 2, nullptr, 0};
  assert_int_equal(fi_readmsg(p.a.ep, &many, 0), -FI_EINVAL);
}

}  // namespace

std::vector<CMUnitTest> rma_tests() {
  return {cmocka_unit_test(writes_and_reads),
          cmocka_unit_test(remote_data_follows_a_write),
          cmocka_unit_test(an_injected_write_is_a_copy),
          cmocka_unit_test(a_low_threshold_bounds_what_is_injected),
          cmocka_unit_test(an_injected_write_is_complete_when_it_was_delivered),
          cmocka_unit_test(memory_of_oneself),
          cmocka_unit_test(memory_of_oneself_is_guarded_too),
          cmocka_unit_test(a_key_of_more_than_32_bits_opens_nothing),
          cmocka_unit_test(memory_is_registered_in_every_way),
          cmocka_unit_test(what_is_not_permitted_fails),
          cmocka_unit_test(lengths_must_agree)};
}

}  // namespace ewarp::ofi::test
