// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// FI_PEEK, FI_CLAIM, FI_DISCARD.
#include "tests/ofi/sides.h"

namespace ewarp::ofi::test {
namespace {

fi_context context;

long ask(const Side& s, Bytes* buffer, fi_addr_t from, std::uint64_t tag, std::uint64_t flags) {
  const iovec v{buffer != nullptr ? buffer->data() : nullptr, buffer != nullptr ? buffer->size() : 0};
  const fi_msg_tagged m{&v, nullptr, buffer != nullptr ? std::size_t{1} : 0, from, tag, 0, &context, 0};
  return fi_trecvmsg(s.ep, &m, flags | FI_COMPLETION);
}

// Asks until it is there.
fi_cq_tagged_entry find(Side& s, fi_addr_t from, std::uint64_t tag, std::uint64_t flags) {
  for (;;) {
    MUST(ask(s, nullptr, from, tag, flags));
    fi_cq_tagged_entry entry{};
    const long n = fi_cq_sread(s.receive_queue, &entry, 1, nullptr, kPatienceMs);
    if (n == 1) return entry;
    assert_int_equal(n, -FI_EAVAIL);
    fi_cq_err_entry e{};
    assert_int_equal(fi_cq_readerr(s.receive_queue, &e, 0), 1);
    assert_int_equal(e.err, FI_ENOMSG);
    assert_ptr_equal(e.op_context, &context);
  }
}

void what_is_peeked_at_stays(void**) {
  Pair p;
  for (const std::size_t size : kSizes) {
    const Bytes out = pattern(2, size);
    Bytes in(size);
    MUST(fi_tsenddata(p.a.ep, out.data(), size, nullptr, 42, p.to_b, 5, nullptr));
    for (int i = 0; i < 2; ++i) {
      const fi_cq_tagged_entry e = find(p.b, p.to_a, 5, FI_PEEK);
      assert_ptr_equal(e.op_context, &context);
      assert_int_equal(e.len, size);
      assert_int_equal(e.tag, 5);
      assert_int_equal(e.data, 42);
      assert_true((e.flags & FI_REMOTE_CQ_DATA) != 0);
    }
    MUST(fi_trecv(p.b.ep, in.data(), size, nullptr, p.to_a, 5, 0, nullptr));
    p.b.received();
    assert_true(in == out);
    p.a.sent();
  }
}

void what_is_claimed_is_for_its_claimer(void**) {
  Pair p;
  for (const std::size_t size : kSizes) {
    const Bytes first = pattern(2, size), second = pattern(3, size);
    Bytes in(size), claimed(size);
    MUST(fi_tsend(p.a.ep, first.data(), size, nullptr, p.to_b, 5, nullptr));
    MUST(fi_tsend(p.a.ep, second.data(), size, nullptr, p.to_b, 5, nullptr));
    assert_int_equal(find(p.b, FI_ADDR_UNSPEC, 5, FI_PEEK | FI_CLAIM).len, size);
    MUST(fi_trecv(p.b.ep, in.data(), size, nullptr, p.to_a, 5, 0, nullptr));
    p.b.received();
    assert_true(in == second);
    MUST(ask(p.b, &claimed, 0, 5, FI_CLAIM));
    assert_ptr_equal(p.b.received().op_context, &context);
    assert_true(claimed == first);
    // It is claimed once.
    assert_int_equal(ask(p.b, &claimed, 0, 5, FI_CLAIM), -FI_EINVAL);
    p.a.sent();
    p.a.sent();
  }
}

void what_is_discarded_is_gone(void**) {
  Pair p;
  for (const bool claim_first : {false, true})
    for (const std::size_t size : kSizes) {
      const Bytes out = pattern(2, size), next = pattern(3, 10);
      Bytes in(10);
      MUST(fi_tsend(p.a.ep, out.data(), size, nullptr, p.to_b, 5, nullptr));
      if (claim_first) {
        find(p.b, p.to_a, 5, FI_PEEK | FI_CLAIM);
        MUST(ask(p.b, nullptr, 0, 5, FI_CLAIM | FI_DISCARD));
        const fi_cq_tagged_entry e = p.b.received();
        assert_ptr_equal(e.op_context, &context);
        assert_int_equal(e.tag, 5);
        assert_int_equal(e.len, size);
      } else {
        assert_int_equal(find(p.b, p.to_a, 5, FI_PEEK | FI_DISCARD).len, size);
      }
      // Its sender is not left waiting.
      p.a.sent();
      MUST(fi_tsend(p.a.ep, next.data(), next.size(), nullptr, p.to_b, 5, nullptr));
      MUST(fi_trecv(p.b.ep, in.data(), in.size(), nullptr, p.to_a, 5, 0, nullptr));
      p.b.received();
      assert_true(in == next);
      p.a.sent();
    }
}

// Counters count receives, and nobody has received before the last call.
void to_look_is_not_to_receive(void**) {
  Pair p({.counters = true});
  const Bytes out = pattern(2, 10);
  Bytes in(10);
  MUST(fi_tsend(p.a.ep, out.data(), out.size(), nullptr, p.to_b, 5, nullptr));
  find(p.b, p.to_a, 5, FI_PEEK);
  find(p.b, p.to_a, 5, FI_PEEK | FI_CLAIM);
  MUST(ask(p.b, nullptr, 0, 5, FI_CLAIM | FI_DISCARD));
  p.b.received();
  p.a.sent();
  MUST(fi_tsend(p.a.ep, out.data(), out.size(), nullptr, p.to_b, 5, nullptr));
  find(p.b, p.to_a, 5, FI_PEEK | FI_CLAIM);
  assert_int_equal(fi_cntr_read(p.b.receives), 0);
  MUST(ask(p.b, &in, 0, 5, FI_CLAIM));
  p.b.received();
  assert_true(in == out);
  MUST(fi_cntr_wait(p.b.receives, 1, kPatienceMs));
  assert_int_equal(fi_cntr_read(p.b.receives), 1);
  assert_int_equal(fi_cntr_readerr(p.b.receives), 0);
  p.a.sent();
}

}  // namespace

std::vector<CMUnitTest> peek_tests() {
  return {cmocka_unit_test(what_is_peeked_at_stays), cmocka_unit_test(what_is_claimed_is_for_its_claimer),
          cmocka_unit_test(what_is_discarded_is_gone), cmocka_unit_test(to_look_is_not_to_receive)};
}

}  // namespace ewarp::ofi::test
