// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Puts and gets (fi_rma(3)).
#include <algorithm>

#include "tests/ofi/suite/scene.h"

namespace ewarp::ofi::suite {
namespace {

constexpr std::uint64_t kCaps = FI_MSG | FI_TAGGED | FI_RMA;

// So that a provider may leave progress to the target's program, too.
Ended end_of(Scene& s) {
  return s.next(s[0].sent);
}

void check_end(Scene& s, std::uint64_t what, void* context) {
  const fi_cq_tagged_entry e = s.sent(0);
  assert_ptr_equal(e.op_context, context);
  assert_true((e.flags & FI_RMA) != 0);
  assert_true((e.flags & what) != 0);
}

void puts_and_gets_of_every_size(void**) {
  need(kCaps);
  Scene s(kCaps, {.counters = true});
  std::uint64_t count = 0;
  for (const std::size_t size : kSizes) {
    if (size == 0) continue;
    Exposed target(s, size);
    const Octets out = pattern(size, size);
    void* context = s.context();
    POST(s, fi_write(s[0].ep.get(), out.data(), size, nullptr, s.to(0, 1), target.address(), target.key(), context));
    check_end(s, FI_WRITE, context);
    Octets in(size);
    context = s.context();
    POST(s, fi_read(s[0].ep.get(), in.data(), size, nullptr, s.to(0, 1), target.address(), target.key(), context));
    check_end(s, FI_READ, context);
    assert_true(in == out);
    assert_true(target.content() == out);
    target.check_guards();
    ++count;
  }
  until([&] { return fi_cntr_read(s[0].writes.get()) == count && fi_cntr_read(s[0].reads.get()) == count; });
  assert_int_equal(fi_cntr_read(s[0].sends.get()), 0);
}

// Parts of memory, by vectors of pieces; what lies beside them stays.
void puts_and_gets_by_every_call(void**) {
  need(kCaps);
  Scene s(kCaps);
  constexpr std::size_t kSize = 3000, kOffset = 70, kPart = 1500;
  const std::size_t most = std::min<std::size_t>(s.bed.info->tx_attr->iov_limit, 3);
  const auto pieces = [&](Octets& octets) {
    std::vector<iovec> v;
    for (std::size_t i = 0; i < most; ++i) v.push_back({octets.data() + i * (kPart / most), kPart / most});
    v.back().iov_len += kPart % most;
    return v;
  };
  for (int call = 0; call < 4; ++call) {
    Exposed target(s, kSize);
    Octets out = pattern(static_cast<std::size_t>(call), kPart), in(kPart);
    const fi_addr_t to = s.to(0, 1);
    const auto put = pieces(out), get = pieces(in);
    const fi_rma_iov there{target.address(kOffset), kPart, target.key()};
    const fi_msg_rma put_message{put.data(), nullptr, put.size(), to, &there, 1, s.context(), 77};
    const fi_msg_rma get_message{get.data(), nullptr, get.size(), to, &there, 1, s.context(), 0};
    fid_ep* const ep = s[0].ep.get();
    POST(s, call == 0   ? fi_write(ep, out.data(), kPart, nullptr, to, there.addr, there.key, put_message.context)
            : call == 1 ? fi_writev(ep, put.data(), nullptr, put.size(), to, there.addr, there.key, put_message.context)
            : call == 2 ? fi_writemsg(ep, &put_message, FI_COMPLETION)
                        : fi_writemsg(ep, &put_message, FI_COMPLETION | FI_DELIVERY_COMPLETE));
    check_end(s, FI_WRITE, put_message.context);
    POST(s, call == 0   ? fi_read(ep, in.data(), kPart, nullptr, to, there.addr, there.key, get_message.context)
            : call == 1 ? fi_readv(ep, get.data(), nullptr, get.size(), to, there.addr, there.key, get_message.context)
                        : fi_readmsg(ep, &get_message, FI_COMPLETION));
    check_end(s, FI_READ, get_message.context);
    assert_true(in == out);
    Octets expected(kSize, 0xEE);
    std::copy(out.begin(), out.end(), expected.begin() + kOffset);
    assert_true(target.content() == expected);
  }
}

// The target hears of it, with the data, when it is all there.
void puts_with_data(void**) {
  need(kCaps);
  Scene s(kCaps);
  const std::size_t inject = s.bed.info->tx_attr->inject_size;
  std::uint64_t data = 0x1234560000;
  if (s.bed.info->domain_attr->cq_data_size < 8) data = 1;
  // Where a receive has to be there for it.
  const bool takes_receive = (s.bed.info->mode & FI_RX_CQ_DATA) != 0;
  for (const std::size_t size : {std::size_t{1}, inject, std::size_t{100'000}})
    for (const bool injected : {false, true}) {
      if (injected && size > inject) continue;
      Exposed target(s, size);
      Octets out = pattern(size, size);
      const Octets sent = out;
      if (takes_receive) POST(s, fi_recv(s[1].ep.get(), nullptr, 0, nullptr, FI_ADDR_UNSPEC, s.context()));
      ++data;
      if (injected) {
        POST(s, fi_inject_writedata(s[0].ep.get(), out.data(), size, data, s.to(0, 1), target.address(), target.key()));
        std::fill(out.begin(), out.end(), 0);
      } else {
        void* const context = s.context();
        POST(s, fi_writedata(s[0].ep.get(), out.data(), size, nullptr, data, s.to(0, 1), target.address(), target.key(),
                             context));
        check_end(s, FI_WRITE, context);
      }
      const fi_cq_tagged_entry e = s.received(1);
      assert_true((e.flags & FI_REMOTE_CQ_DATA) != 0);
      if (ours()) assert_true((e.flags & (FI_RMA | FI_REMOTE_WRITE)) == (FI_RMA | FI_REMOTE_WRITE));
      assert_int_equal(e.data, data);
      assert_true(target.content() == sent);
    }
}

void injected_puts(void**) {
  need(kCaps);
  Scene s(kCaps);
  const std::size_t most = s.bed.info->tx_attr->inject_size;
  for (const std::size_t size : {std::size_t{1}, most / 2, most}) {
    Exposed target(s, size);
    Octets out = pattern(size, size);
    const Octets sent = out;
    POST(s, fi_inject_write(s[0].ep.get(), out.data(), size, s.to(0, 1), target.address(), target.key()));
    std::fill(out.begin(), out.end(), 0);
    until([&] { return s.progress(), target.content() == sent; });
    target.check_guards();
  }
}

// FI_ORDER_SAW: a message behind puts finds them done.
void messages_do_not_overtake_puts(void**) {
  need(kCaps);
  Scene s(kCaps);
  if ((s.bed.info->tx_attr->msg_order & s.bed.info->rx_attr->msg_order & FI_ORDER_SAW) == 0) skip();
  for (std::size_t round = 0; round < 50; ++round) {
    const std::size_t size = round % 2 == 0 ? 8 : 60'000;
    Exposed target(s, size);
    const Octets out = pattern(round, size);
    std::uint64_t word = round, in = 0;
    POST(s, fi_recv(s[1].ep.get(), &in, sizeof in, nullptr, FI_ADDR_UNSPEC, s.context()));
    POST(s,
         fi_write(s[0].ep.get(), out.data(), size, nullptr, s.to(0, 1), target.address(), target.key(), s.context()));
    POST(s, fi_inject(s[0].ep.get(), &word, sizeof word, s.to(0, 1)));
    s.received(1);
    assert_int_equal(in, round);
    assert_true(target.content() == out);
    s.sent(0);
  }
}

// Many at once, in parts of one region, in both directions.
void many_puts_and_gets_under_way(void**) {
  need(kCaps);
  Scene s(kCaps);
  constexpr std::size_t kCount = 64, kPart = 5000;
  Exposed targets[2] = {Exposed(s, kCount * kPart), Exposed(s, kCount * kPart)};
  const Octets out[2] = {pattern(1, kCount * kPart), pattern(2, kCount * kPart)};
  for (std::size_t i = 0; i < kCount; ++i)
    for (const std::size_t side : {0, 1}) {
      Exposed& there = targets[1 - side];
      POST(s, fi_write(s[side].ep.get(), out[side].data() + i * kPart, kPart, nullptr, s.to(side, 1 - side),
                       there.address(i * kPart), there.key(), s.context()));
    }
  for (std::size_t i = 0; i < 2 * kCount; ++i) s.sent(i % 2);
  Octets in[2] = {Octets(kCount * kPart), Octets(kCount * kPart)};
  for (std::size_t i = 0; i < kCount; ++i)
    for (const std::size_t side : {0, 1}) {
      Exposed& there = targets[1 - side];
      POST(s, fi_read(s[side].ep.get(), in[side].data() + i * kPart, kPart, nullptr, s.to(side, 1 - side),
                      there.address(i * kPart), there.key(), s.context()));
    }
  for (std::size_t i = 0; i < 2 * kCount; ++i) s.sent(i % 2);
  for (const std::size_t side : {0, 1}) {
    assert_true(in[side] == out[side]);
    assert_true(targets[1 - side].content() == out[side]);
    targets[side].check_guards();
  }
}

// What a region does not allow fails and changes nothing; the next connection is as good as the first.
void what_a_region_does_not_allow(void**) {
  ONLY_OURS();
  need(kCaps);
  for (int mistake = 0; mistake < 6; ++mistake) {
    Scene s(kCaps);
    constexpr std::size_t kSize = 256;
    Exposed read_only(s, kSize, FI_REMOTE_READ), write_only(s, kSize, FI_REMOTE_WRITE), both(s, kSize);
    Octets octets(kSize + 1, 0x11);
    fid_ep* const ep = s[0].ep.get();
    const fi_addr_t to = s.to(0, 1);
    void* const context = s.context();
    const bool reads = mistake == 1 || mistake == 3;
    Exposed& target = mistake == 0 ? read_only : mistake == 1 ? write_only : both;
    const std::size_t length = mistake == 2 ? kSize + 1 : 8;
    const iovec v{octets.data(), length};
    const std::uint64_t address = target.address(mistake == 3 ? kSize - 7 : 0) - (mistake == 4 ? 1 : 0);
    const fi_rma_iov there{address, length, target.key() + (mistake == 5 ? 12345 : 0)};
    // Below delivery a put may end before the target has judged it.
    const fi_msg_rma m{&v, nullptr, 1, to, &there, 1, context, 0};
    POST(s, reads ? fi_readmsg(ep, &m, FI_COMPLETION) : fi_writemsg(ep, &m, FI_COMPLETION | FI_DELIVERY_COMPLETE));
    const Ended e = end_of(s);
    assert_true(e.error > 0);
    assert_ptr_equal(e.entry.op_context, context);
    for (Exposed* memory : {&read_only, &write_only, &both}) {
      assert_true(memory->content() == Octets(kSize, 0xEE));
      memory->check_guards();
    }
  }
}

}  // namespace

Tests rma_tests() {
  return {cmocka_unit_test(puts_and_gets_of_every_size),
          cmocka_unit_test(puts_and_gets_by_every_call),
          cmocka_unit_test(puts_with_data),
          cmocka_unit_test(injected_puts),
          cmocka_unit_test(messages_do_not_overtake_puts),
          cmocka_unit_test(many_puts_and_gets_under_way),
          cmocka_unit_test(what_a_region_does_not_allow)};
}

}  // namespace ewarp::ofi::suite
