// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// FI_MULTI_RECV.
#include <sys/uio.h>

#include "tests/ofi/sides.h"

namespace ewarp::ofi::test {
namespace {

int context;

void post(const Side& s, Bytes& buffer, fi_addr_t from, bool by_flag) {
  const iovec v{buffer.data(), buffer.size()};
  const fi_msg m{&v, nullptr, 1, from, &context, 0};
  if (by_flag)
    MUST(fi_recvmsg(s.ep, &m, FI_MULTI_RECV));
  else
    MUST(fi_recv(s.ep, buffer.data(), buffer.size(), nullptr, from, &context));
}

void one_buffer_takes_many_messages(void**) {
  for (const bool by_flag : {false, true})
    for (const bool receiver_first : {false, true})
      for (const std::size_t size : {std::size_t{100}, std::size_t{20'000}, std::size_t{300'000}}) {
        Pair p({.receive_flags = by_flag ? 0 : FI_MULTI_RECV});
        const std::size_t least = size;
        MUST(fi_setopt(&p.b.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, sizeof least));
        std::size_t told = 0, length = sizeof told;
        MUST(fi_getopt(&p.b.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &told, &length));
        assert_int_equal(told, least);
        constexpr std::size_t kCount = 5;
        Bytes buffer(kCount * size + size / 2);
        if (receiver_first) post(p.b, buffer, FI_ADDR_UNSPEC, by_flag);
        std::vector<Bytes> out;
        for (unsigned i = 0; i < kCount; ++i) {
          out.push_back(pattern(i, size));
          MUST(fi_senddata(p.a.ep, out.back().data(), size, nullptr, i, p.to_b, nullptr));
        }
        if (!receiver_first) post(p.b, buffer, FI_ADDR_UNSPEC, by_flag);
        bool released = false;
        for (std::size_t i = 0; i < kCount; ++i) {
          assert_false(released);
          const fi_cq_tagged_entry e = p.b.received();
          assert_ptr_equal(e.op_context, &context);
          assert_true((e.flags & FI_RECV) != 0);
          assert_int_equal(e.len, size);
          assert_memory_equal(e.buf, out[e.data].data(), size);
          released = (e.flags & FI_MULTI_RECV) != 0;
        }
        assert_true(released);
        for (std::size_t i = 0; i < kCount; ++i) p.a.sent();
        assert_true(p.b.quiet(p.b.receive_queue));
      }
}

// With completions suppressed, that the buffer is free is told nevertheless.
void a_release_is_always_told(void**) {
  Pair p({.bind_flags = FI_SELECTIVE_COMPLETION});
  Bytes buffer(128);
  const iovec v{buffer.data(), buffer.size()};
  const fi_msg m{&v, nullptr, 1, FI_ADDR_UNSPEC, &context, 0};
  MUST(fi_recvmsg(p.b.ep, &m, FI_MULTI_RECV));
  const Bytes out(100);
  MUST(fi_inject(p.a.ep, out.data(), out.size(), p.to_b));
  const fi_cq_tagged_entry e = p.b.received();
  assert_ptr_equal(e.op_context, &context);
  assert_int_equal(e.flags, FI_MULTI_RECV);
}

void a_multi_receive_is_cancelled(void**) {
  Pair p;
  Bytes buffer(1000);
  post(p.b, buffer, p.to_a, true);
  const Bytes out(100);
  MUST(fi_inject(p.a.ep, out.data(), out.size(), p.to_b));
  assert_int_equal(p.b.received().flags & FI_MULTI_RECV, 0);
  assert_int_equal(fi_cancel(&p.b.ep->fid, &context), 0);
  assert_int_equal(p.b.failure(p.b.receive_queue).err, FI_ECANCELED);
}

}  // namespace

std::vector<CMUnitTest> multi_receive_tests() {
  return {cmocka_unit_test(one_buffer_takes_many_messages), cmocka_unit_test(a_release_is_always_told),
          cmocka_unit_test(a_multi_receive_is_cancelled)};
}

}  // namespace ewarp::ofi::test
