// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Which message goes to which receive (fi_tagged(3), fi_msg(3), fi_endpoint(3)).
#include <algorithm>
#include <numeric>

#include "tests/ofi/suite/scene.h"

namespace ewarp::ofi::suite {
namespace {

void receive(Scene& s, std::size_t at, std::uint64_t& in, std::uint64_t tag, std::uint64_t ignore = 0,
             fi_addr_t from = FI_ADDR_UNSPEC) {
  POST(s, fi_trecv(s[at].ep.get(), &in, sizeof in, nullptr, from, tag, ignore, s.context()));
}

void inject(Scene& s, std::size_t from, std::size_t to, std::uint64_t word, std::uint64_t tag) {
  POST(s, fi_tinject(s[from].ep.get(), &word, sizeof word, s.to(from, to), tag));
}

// Messages wait for their receives, whatever their order.
void messages_that_nobody_expects(void**) {
  Scene s;
  constexpr std::uint64_t kCount = 200;
  std::vector<Octets> out, in;
  for (std::uint64_t i = 0; i < kCount; ++i) {
    out.push_back(pattern(i, i % 20 == 19 ? 150'000 : i * 11));
    in.emplace_back(out.back().size());
    const Octets& m = out.back();
    POST(s, fi_tsend(s[0].ep.get(), m.data(), m.size(), nullptr, s.to(0, 1), i, s.context()));
  }
  s.stays_quiet(s[1].received);
  for (std::uint64_t i = kCount; i-- > 0;) {
    POST(s, fi_trecv(s[1].ep.get(), in[i].data(), in[i].size(), nullptr, FI_ADDR_UNSPEC, i, 0, s.context()));
    const fi_cq_tagged_entry e = s.received(1);
    assert_int_equal(e.tag, i);
    assert_int_equal(e.len, out[i].size());
    assert_true(in[i] == out[i]);
  }
  for (std::uint64_t i = 0; i < kCount; ++i) s.sent(0);
}

// Large and small ones of one sender meet receives in the order in which they were sent.
void messages_keep_their_order(void**) {
  Scene s;
  if ((s.bed.info->tx_attr->msg_order & s.bed.info->rx_attr->msg_order & FI_ORDER_SAS) == 0) skip();
  constexpr std::size_t kCount = 120;
  for (const bool receives_first : {true, false}) {
    std::vector<Octets> out, in;
    for (std::size_t i = 0; i < kCount; ++i) {
      out.push_back(pattern(i, i % 7 == 3 ? 70'000 : i % 5 == 2 ? 9000 : 20));
      in.emplace_back(100'000);
    }
    const auto post_receives = [&] {
      for (Octets& m : in) POST(s, fi_recv(s[1].ep.get(), m.data(), m.size(), nullptr, FI_ADDR_UNSPEC, s.context()));
    };
    if (receives_first) post_receives();
    for (const Octets& m : out) POST(s, fi_send(s[0].ep.get(), m.data(), m.size(), nullptr, s.to(0, 1), s.context()));
    if (!receives_first) post_receives();
    for (std::size_t i = 0; i < kCount; ++i) s.received(1);
    for (std::size_t i = 0; i < kCount; ++i) s.sent(0);
    for (std::size_t i = 0; i < kCount; ++i) assert_true(std::equal(out[i].begin(), out[i].end(), in[i].begin()));
  }
}

void ignored_bits_match_all(void**) {
  Scene s;
  std::uint64_t exact = 0, masked = 0, any = 0;
  receive(s, 1, exact, 0xF0);
  receive(s, 1, masked, 0x100, 0xFF);
  receive(s, 1, any, 0, ~std::uint64_t{0});
  inject(s, 0, 1, 1, 0x1AB);
  inject(s, 0, 1, 2, 0xF0);
  inject(s, 0, 1, 3, 0x5000);
  std::vector<std::uint64_t> tags;
  for (int i = 0; i < 3; ++i) tags.push_back(s.received(1).tag);
  std::sort(tags.begin(), tags.end());
  assert_true(tags == (std::vector<std::uint64_t>{0xF0, 0x1AB, 0x5000}));
  assert_int_equal(masked, 1);
  assert_int_equal(exact, 2);
  assert_int_equal(any, 3);
}

void tagged_and_untagged_are_apart(void**) {
  Scene s;
  std::uint64_t tagged = 0, untagged = 0, word = 1;
  receive(s, 1, tagged, 0, ~std::uint64_t{0});
  POST(s, fi_inject(s[0].ep.get(), &word, sizeof word, s.to(0, 1)));
  s.stays_quiet(s[1].received);
  POST(s, fi_recv(s[1].ep.get(), &untagged, sizeof untagged, nullptr, FI_ADDR_UNSPEC, s.context()));
  assert_true((s.received(1).flags & FI_MSG) != 0);
  inject(s, 0, 1, 2, 5);
  assert_true((s.received(1).flags & FI_TAGGED) != 0);
  assert_int_equal(untagged, 1);
  assert_int_equal(tagged, 2);
}

// The receive gets what there is room for, or nothing; what comes next is whole.
void messages_that_are_too_long(void**) {
  for (const bool tagged : {true, false})
    for (const std::size_t size : {100, 200'000}) {
      if (!ours() && size > 100) continue;  // ofi_rxm of libfabric 1.17 crashes
      Scene s;
      const Octets out = pattern(size, size);
      Octets in(size / 2), next(size);
      void* const context = s.context();
      const auto receive_into = [&](Octets& m, void* c) {
        return tagged ? fi_trecv(s[1].ep.get(), m.data(), m.size(), nullptr, FI_ADDR_UNSPEC, 1, 0, c)
                      : fi_recv(s[1].ep.get(), m.data(), m.size(), nullptr, FI_ADDR_UNSPEC, c);
      };
      POST(s, receive_into(in, context));
      POST(s, receive_into(next, s.context()));
      for (int i = 0; i < 2; ++i)
        POST(s, tagged ? fi_tsend(s[0].ep.get(), out.data(), size, nullptr, s.to(0, 1), 1, s.context())
                       : fi_send(s[0].ep.get(), out.data(), size, nullptr, s.to(0, 1), s.context()));
      const Ended e = s.next(s[1].received);
      assert_int_equal(e.error, FI_ETRUNC);
      assert_ptr_equal(e.entry.op_context, context);
      if (!ours()) continue;  // and loses what comes behind
      assert_int_equal(e.lost, size - in.size());
      s.received(1);
      assert_true(next == out);
      for (int i = 0; i < 2; ++i) s.next(s[0].sent);
    }
}

void receives_that_are_cancelled(void**) {
  Scene s;
  std::uint64_t first = 0, second = 0;
  void *const one = s.context(), *const two = s.context();
  POST(s, fi_trecv(s[1].ep.get(), &first, sizeof first, nullptr, FI_ADDR_UNSPEC, 5, 0, one));
  POST(s, fi_trecv(s[1].ep.get(), &second, sizeof second, nullptr, FI_ADDR_UNSPEC, 5, 0, two));
  MUST(fi_cancel(&s[1].ep.f(), one));
  const Ended e = s.next(s[1].received);
  assert_int_equal(e.error, FI_ECANCELED);
  assert_ptr_equal(e.entry.op_context, one);
  inject(s, 0, 1, 7, 5);
  assert_ptr_equal(s.received(1).op_context, two);
  assert_int_equal(second, 7);
  assert_int_equal(first, 0);
}

// A receive from somebody waits for him.
void directed_receives(void**) {
  constexpr std::uint64_t kCaps = FI_MSG | FI_TAGGED | FI_DIRECTED_RECV;
  need(kCaps);
  Scene s(kCaps, {}, 3);
  std::uint64_t from_two = 0, from_anybody = 0, untagged = 0;
  receive(s, 0, from_two, 1, 0, s.to(0, 2));
  receive(s, 0, from_anybody, 1);
  inject(s, 1, 0, 11, 1);
  s.received(0);
  assert_int_equal(from_anybody, 11);
  inject(s, 2, 0, 22, 1);
  s.received(0);
  assert_int_equal(from_two, 22);
  // Those that came before.
  for (const std::size_t from : {1, 2}) {
    const std::uint64_t word = from;
    POST(s, fi_inject(s[from].ep.get(), &word, sizeof word, s.to(from, 0)));
  }
  s.stays_quiet(s[0].received);
  for (const std::size_t from : {2, 1}) {
    POST(s, fi_recv(s[0].ep.get(), &untagged, sizeof untagged, nullptr, s.to(0, from), s.context()));
    s.received(0);
    assert_int_equal(untagged, from);
  }
}

void sources_are_told(void**) {
  constexpr std::uint64_t kCaps = FI_MSG | FI_TAGGED | FI_SOURCE;
  need(kCaps);
  Scene s(kCaps, {}, 4);
  for (int round = 0; round < 3; ++round)
    for (const std::size_t from : {2, 0, 1, 3}) {
      std::uint64_t in = 0;
      receive(s, 3, in, 1);
      inject(s, from, 3, from, 1);
      const Ended e = s.next(s[3].received);
      assert_int_equal(e.error, 0);
      assert_int_equal(e.source, s.to(3, from));
      assert_int_equal(in, from);
    }
}

// One buffer for many messages, one behind the other, until less than the least is left.
void one_buffer_for_many(void**) {
  constexpr std::uint64_t kCaps = FI_MSG | FI_MULTI_RECV;
  need(kCaps);
  Scene s(kCaps);
  constexpr std::size_t kLeast = 64, kCount = 40;
  MUST(fi_setopt(&s[1].ep.f(), FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &kLeast, sizeof kLeast));
  std::size_t told = 0, length = sizeof told;
  MUST(fi_getopt(&s[1].ep.f(), FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &told, &length));
  assert_int_equal(told, kLeast);
  Octets buffers[2] = {Octets(1000), Octets(1000)};
  const auto give = [&](Octets& buffer) {
    const iovec v{buffer.data(), buffer.size()};
    const fi_msg m{&v, nullptr, 1, FI_ADDR_UNSPEC, &buffer, 0};
    POST(s, fi_recvmsg(s[1].ep.get(), &m, FI_MULTI_RECV | FI_COMPLETION));
  };
  for (Octets& buffer : buffers) give(buffer);
  std::size_t releases = 0;
  for (std::size_t i = 0; i < kCount; ++i) {
    const Octets out = pattern(i, 1 + i * 37 % kLeast);
    POST(s, fi_inject(s[0].ep.get(), out.data(), out.size(), s.to(0, 1)));
    for (bool here = false; !here;) {
      const fi_cq_tagged_entry e = s.received(1);
      // That a buffer is free may be told with its last message, or by itself.
      if ((e.flags & FI_RECV) != 0) {
        here = true;
        assert_int_equal(e.len, out.size());
        assert_memory_equal(e.buf, out.data(), out.size());
      }
      if ((e.flags & FI_MULTI_RECV) == 0) continue;
      ++releases;
      give(*static_cast<Octets*>(e.op_context));
    }
  }
  assert_true(releases >= 1);
}

// --- what is looked at before it is received ---

struct Peek {
  Peek(Scene& scene, std::uint64_t tag) : s(scene), tag(tag) {}
  void ask(std::uint64_t flags, void* buffer = nullptr, std::size_t length = 0) {
    const iovec v{buffer, length};
    const fi_msg_tagged m{&v, nullptr, buffer != nullptr ? 1u : 0u, FI_ADDR_UNSPEC, tag, 0, context, 0};
    POST(s, fi_trecvmsg(s[1].ep.get(), &m, flags | FI_COMPLETION));
  }
  // Until it is there.
  fi_cq_tagged_entry find(std::uint64_t flags) {
    for (;;) {
      ask(FI_PEEK | flags);
      const Ended e = s.next(s[1].received);
      if (e.error == 0) return e.entry;
      assert_int_equal(e.error, FI_ENOMSG);
    }
  }
  Scene& s;
  const std::uint64_t tag;
  void* const context = s.context();
};

void what_is_looked_at(void**) {
  Scene s(FI_TAGGED);
  Peek nothing(s, 1);
  nothing.ask(FI_PEEK);
  const Ended none = s.next(s[1].received);
  assert_int_equal(none.error, FI_ENOMSG);
  assert_ptr_equal(none.entry.op_context, nothing.context);
  for (std::uint64_t tag = 1; tag <= 5; ++tag) inject(s, 0, 1, 100 + tag, tag);
  // Looked at, it stays.
  Peek stays(s, 1);
  for (int i = 0; i < 2; ++i) {
    const fi_cq_tagged_entry e = stays.find(0);
    assert_int_equal(e.len, sizeof(std::uint64_t));
    assert_int_equal(e.tag, 1);
  }
  std::uint64_t in = 0;
  receive(s, 1, in, 1);
  s.received(1);
  assert_int_equal(in, 101);
  // Claimed, it is nobody else's.
  Peek claimed(s, 3);
  claimed.find(FI_CLAIM);
  Peek again(s, 3);
  again.ask(FI_PEEK);
  assert_int_equal(s.next(s[1].received).error, FI_ENOMSG);
  claimed.ask(FI_CLAIM, &in, sizeof in);
  s.received(1);
  assert_int_equal(in, 103);
  // Discarded at once, or after it was claimed.
  Peek(s, 2).find(FI_DISCARD);
  Peek later(s, 4);
  later.find(FI_CLAIM);
  later.ask(FI_CLAIM | FI_DISCARD);
  s.received(1);
  for (const std::uint64_t tag : {2, 4}) {
    Peek gone(s, tag);
    gone.ask(FI_PEEK);
    assert_int_equal(s.next(s[1].received).error, FI_ENOMSG);
  }
  receive(s, 1, in, 0, ~std::uint64_t{0});
  assert_int_equal(s.received(1).tag, 5);
}

// Only what is asked for is told, and every error.
void selected_ends_are_told(void**) {
  Scene s(FI_MSG | FI_TAGGED,
          {.send_flags = FI_SELECTIVE_COMPLETION, .receive_flags = FI_SELECTIVE_COMPLETION, .counters = true});
  std::uint64_t word = 9, in[4] = {};
  for (const bool told : {false, true, false, true}) {
    const std::uint64_t flags = told ? FI_COMPLETION : 0;
    std::uint64_t& to = in[told ? 1 : 0];
    const iovec v{&to, sizeof to}, from{&word, sizeof word};
    const fi_msg_tagged receive{&v, nullptr, 1, FI_ADDR_UNSPEC, 1, 0, s.context(), 0};
    const fi_msg_tagged send{&from, nullptr, 1, s.to(0, 1), 1, 0, s.context(), 0};
    const std::uint64_t before = fi_cntr_read(s[1].receives.get());
    POST(s, fi_trecvmsg(s[1].ep.get(), &receive, flags));
    POST(s, fi_tsendmsg(s[0].ep.get(), &send, flags));
    until([&] { return s.progress(), fi_cntr_read(s[1].receives.get()) > before; });
    if (told) {
      assert_ptr_equal(s.received(1).op_context, receive.context);
      assert_ptr_equal(s.sent(0).op_context, send.context);
    }
    s.stays_quiet(s[1].received);
    s.stays_quiet(s[0].sent);
  }
  void* const context = s.context();
  POST(s, fi_trecv(s[1].ep.get(), &in[2], 8, nullptr, FI_ADDR_UNSPEC, 77, 0, context));
  MUST(fi_cancel(&s[1].ep.f(), context));
  assert_int_equal(s.next(s[1].received).error, FI_ECANCELED);
}

}  // namespace

Tests matching_tests() {
  return {cmocka_unit_test(messages_that_nobody_expects),
          cmocka_unit_test(messages_keep_their_order),
          cmocka_unit_test(ignored_bits_match_all),
          cmocka_unit_test(tagged_and_untagged_are_apart),
          cmocka_unit_test(messages_that_are_too_long),
          cmocka_unit_test(receives_that_are_cancelled),
          cmocka_unit_test(directed_receives),
          cmocka_unit_test(sources_are_told),
          cmocka_unit_test(one_buffer_for_many),
          cmocka_unit_test(what_is_looked_at),
          cmocka_unit_test(selected_ends_are_told)};
}

}  // namespace ewarp::ofi::suite
