// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Messages (fi_msg(3), fi_tagged(3)): every call, every size, and what their ends say.
#include <algorithm>
#include <cstring>

#include "tests/ofi/suite/scene.h"

namespace ewarp::ofi::suite {
namespace {

constexpr std::uint64_t kTag = 0x1234;

// So many pieces as the provider takes, of uneven lengths, together all of it.
std::vector<iovec> pieces(Octets& octets, std::size_t limit) {
  const std::size_t count = std::max<std::size_t>(1, std::min(limit, octets.size()));
  std::vector<iovec> out;
  std::size_t at = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t left = octets.size() - at, length = i + 1 == count ? left : std::max<std::size_t>(1, left / 3);
    out.push_back({octets.data() + at, length});
    at += length;
  }
  return out;
}

// A way to send, or to receive. Which of them go with which is for the test.
enum class Call { plain, vector, message, inject, data, inject_data, message_data };

struct Message {
  bool tagged = false;
  Octets octets;
  std::uint64_t data = 0;
};

bool injects(Call call) {
  return call == Call::inject || call == Call::inject_data;
}
bool has_data(Call call) {
  return call == Call::data || call == Call::inject_data || call == Call::message_data;
}

long send_untagged(Scene& s, Call call, Message& m, const std::vector<iovec>& v, fi_addr_t to, void* context) {
  fid_ep* const ep = s[0].ep.get();
  const fi_msg message{v.data(), nullptr, v.size(), to, context, m.data};
  switch (call) {
    case Call::plain:
      return fi_send(ep, m.octets.data(), m.octets.size(), nullptr, to, context);
    case Call::vector:
      return fi_sendv(ep, v.data(), nullptr, v.size(), to, context);
    case Call::message:
      return fi_sendmsg(ep, &message, FI_COMPLETION);
    case Call::inject:
      return fi_inject(ep, m.octets.data(), m.octets.size(), to);
    case Call::data:
      return fi_senddata(ep, m.octets.data(), m.octets.size(), nullptr, m.data, to, context);
    case Call::inject_data:
      return fi_injectdata(ep, m.octets.data(), m.octets.size(), m.data, to);
    default:
      return fi_sendmsg(ep, &message, FI_COMPLETION | FI_REMOTE_CQ_DATA);
  }
}

long send_tagged(Scene& s, Call call, Message& m, const std::vector<iovec>& v, fi_addr_t to, void* context) {
  fid_ep* const ep = s[0].ep.get();
  const fi_msg_tagged message{v.data(), nullptr, v.size(), to, kTag, 0, context, m.data};
  switch (call) {
    case Call::plain:
      return fi_tsend(ep, m.octets.data(), m.octets.size(), nullptr, to, kTag, context);
    case Call::vector:
      return fi_tsendv(ep, v.data(), nullptr, v.size(), to, kTag, context);
    case Call::message:
      return fi_tsendmsg(ep, &message, FI_COMPLETION);
    case Call::inject:
      return fi_tinject(ep, m.octets.data(), m.octets.size(), to, kTag);
    case Call::data:
      return fi_tsenddata(ep, m.octets.data(), m.octets.size(), nullptr, m.data, to, kTag, context);
    case Call::inject_data:
      return fi_tinjectdata(ep, m.octets.data(), m.octets.size(), m.data, to, kTag);
    default:
      return fi_tsendmsg(ep, &message, FI_COMPLETION | FI_REMOTE_CQ_DATA);
  }
}

void send(Scene& s, Call call, Message& m, void* context) {
  const auto v = pieces(m.octets, s.bed.info->tx_attr->iov_limit);
  const fi_addr_t to = s.to(0, 1);
  POST(s, m.tagged ? send_tagged(s, call, m, v, to, context) : send_untagged(s, call, m, v, to, context));
}

long receive_untagged(Scene& s, Call call, Octets& in, const std::vector<iovec>& v, void* context) {
  fid_ep* const ep = s[1].ep.get();
  const fi_msg message{v.data(), nullptr, v.size(), FI_ADDR_UNSPEC, context, 0};
  if (call == Call::plain) return fi_recv(ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, context);
  if (call == Call::vector) return fi_recvv(ep, v.data(), nullptr, v.size(), FI_ADDR_UNSPEC, context);
  return fi_recvmsg(ep, &message, FI_COMPLETION);
}

long receive_tagged(Scene& s, Call call, Octets& in, const std::vector<iovec>& v, void* context) {
  fid_ep* const ep = s[1].ep.get();
  const fi_msg_tagged message{v.data(), nullptr, v.size(), FI_ADDR_UNSPEC, kTag, 0, context, 0};
  if (call == Call::plain) return fi_trecv(ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, kTag, 0, context);
  if (call == Call::vector) return fi_trecvv(ep, v.data(), nullptr, v.size(), FI_ADDR_UNSPEC, kTag, 0, context);
  return fi_trecvmsg(ep, &message, FI_COMPLETION);
}

void receive(Scene& s, Call call, bool tagged, Octets& in, void* context) {
  const auto v = pieces(in, s.bed.info->rx_attr->iov_limit);
  POST(s, tagged ? receive_tagged(s, call, in, v, context) : receive_untagged(s, call, in, v, context));
}

// What a receive's end says.
void check(const fi_cq_tagged_entry& e, const Message& m, bool data, void* context) {
  assert_ptr_equal(e.op_context, context);
  assert_int_equal(e.len, m.octets.size());
  assert_true((e.flags & FI_RECV) != 0);
  assert_true((e.flags & (m.tagged ? FI_TAGGED : FI_MSG)) != 0);
  assert_int_equal((e.flags & FI_REMOTE_CQ_DATA) != 0, data);
  if (data) assert_int_equal(e.data, m.data);
  if (m.tagged) assert_int_equal(e.tag, kTag);
}

// One message, of which the end of its send is told unless it was injected.
void transfer(Scene& s, Call out_call, Call in_call, Message m, bool receive_first) {
  Octets in(m.octets.size());
  void *const out_context = s.context(), *const in_context = s.context();
  if (receive_first) receive(s, in_call, m.tagged, in, in_context);
  const Octets sent = m.octets;
  send(s, out_call, m, out_context);
  if (injects(out_call)) std::fill(m.octets.begin(), m.octets.end(), 0xAA);
  if (!receive_first) receive(s, in_call, m.tagged, in, in_context);
  const fi_cq_tagged_entry e = s.received(1);
  m.octets = sent;
  check(e, m, has_data(out_call), in_context);
  assert_true(in == sent);
  if (!injects(out_call)) {
    const fi_cq_tagged_entry end = s.sent(0);
    assert_ptr_equal(end.op_context, out_context);
    assert_true((end.flags & FI_SEND) != 0);
  }
  assert_true(s[0].sent.empty() && s[1].received.empty());
}

void messages_of_every_size(void**) {
  Scene s;
  for (const bool tagged : {false, true})
    for (const std::size_t size : kSizes)
      for (const bool receive_first : {true, false})
        transfer(s, Call::plain, Call::plain, {.tagged = tagged, .octets = pattern(size, size)}, receive_first);
}

void messages_by_every_call(void**) {
  Scene s;
  for (const bool tagged : {false, true})
    for (const Call out :
         {Call::plain, Call::vector, Call::message, Call::inject, Call::data, Call::inject_data, Call::message_data})
      for (const Call in : {Call::plain, Call::vector, Call::message})
        for (const std::size_t size : {0, 1, 500, 50'000}) {
          if (injects(out) && size > s.bed.info->tx_attr->inject_size) continue;
          transfer(s, out, in, {.tagged = tagged, .octets = pattern(size + 1, size), .data = 0xABCD0000u + size}, true);
        }
}

// Up to the size that is told, and the buffer is the caller's again at once.
void what_is_injected_is_a_copy(void**) {
  Scene s;
  const std::size_t most = s.bed.info->tx_attr->inject_size;
  for (const bool tagged : {false, true})
    for (const std::size_t size : {std::size_t{0}, std::size_t{1}, most / 2, most}) {
      transfer(s, Call::inject, Call::plain, {.tagged = tagged, .octets = pattern(size, size)}, true);
      transfer(s, Call::inject_data, Call::plain, {.tagged = tagged, .octets = pattern(3, size), .data = 7}, false);
    }
  if (!ours()) return;
  const Octets more(most + 1);
  assert_int_equal(fi_inject(s[0].ep.get(), more.data(), more.size(), s.to(0, 1)), -FI_EINVAL);
}

// All bits of the data come over that the provider says that it has.
void data_comes_whole(void**) {
  Scene s;
  const std::size_t bits = 8 * s.bed.info->domain_attr->cq_data_size;
  for (std::size_t bit = 0; bit < bits; ++bit)
    transfer(s, bit % 2 == 0 ? Call::data : Call::inject_data, Call::plain,
             {.tagged = bit % 3 == 0, .octets = pattern(bit, bit), .data = std::uint64_t{1} << bit}, true);
}

// Each format has as much of an entry as it says.
void entries_of_every_format(void**) {
  for (const fi_cq_format format : {FI_CQ_FORMAT_CONTEXT, FI_CQ_FORMAT_MSG, FI_CQ_FORMAT_DATA, FI_CQ_FORMAT_TAGGED}) {
    Scene s(FI_MSG | FI_TAGGED, {.format = format});
    std::uint64_t word = 5, in = 0;
    void* const context = s.context();
    POST(s, fi_trecv(s[1].ep.get(), &in, sizeof in, nullptr, FI_ADDR_UNSPEC, kTag, 0, context));
    POST(s, fi_tsenddata(s[0].ep.get(), &word, sizeof word, nullptr, 9, s.to(0, 1), kTag, s.context()));
    const fi_cq_tagged_entry e = s.received(1);
    assert_ptr_equal(e.op_context, context);
    assert_int_equal(e.len, format >= FI_CQ_FORMAT_MSG ? sizeof word : 0);
    assert_int_equal(e.data, format >= FI_CQ_FORMAT_DATA ? 9 : 0);
    assert_int_equal(e.tag, format >= FI_CQ_FORMAT_TAGGED ? kTag : 0);
    assert_int_equal(in, word);
    s.sent(0);
  }
}

// Each level of completion: the send ends, and from delivery on not before the message is there.
void levels_of_completion(void**) {
  Scene s;
  for (const std::uint64_t level : {FI_INJECT_COMPLETE, FI_TRANSMIT_COMPLETE, FI_DELIVERY_COMPLETE})
    for (const std::size_t size : {8, 100'000}) {
      Octets out = pattern(size, size), in(size);
      const iovec v{out.data(), out.size()};
      const fi_msg_tagged m{&v, nullptr, 1, s.to(0, 1), kTag, 0, s.context(), 0};
      POST(s, fi_trecv(s[1].ep.get(), in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, kTag, 0, s.context()));
      POST(s, fi_tsendmsg(s[0].ep.get(), &m, FI_COMPLETION | level));
      assert_ptr_equal(s.sent(0).op_context, m.context);
      s.received(1);
      assert_true(in == out);
    }
}

void counters_follow_messages(void**) {
  Scene s(FI_MSG | FI_TAGGED, {.counters = true});
  constexpr std::uint64_t kCount = 20;
  std::uint64_t words[kCount] = {};
  for (std::uint64_t i = 0; i < kCount; ++i) {
    POST(s, fi_trecv(s[1].ep.get(), &words[i], 8, nullptr, FI_ADDR_UNSPEC, kTag, 0, s.context()));
    if (i % 2 == 0)
      POST(s, fi_tsend(s[0].ep.get(), &i, 8, nullptr, s.to(0, 1), kTag, s.context()));
    else
      POST(s, fi_tinject(s[0].ep.get(), &i, 8, s.to(0, 1), kTag));
    if (i % 2 == 0) s.sent(0);
    s.received(1);
    assert_int_equal(words[i], i);
  }
  until([&] { return fi_cntr_read(s[0].sends.get()) == kCount && fi_cntr_read(s[1].receives.get()) == kCount; });
  MUST(fi_cntr_wait(s[1].receives.get(), kCount, kPatienceMs));
  assert_int_equal(fi_cntr_read(s[0].writes.get()), 0);
  for (const auto* c : {&s[0].sends, &s[1].receives}) assert_int_equal(fi_cntr_readerr(c->get()), 0);
}

}  // namespace

Tests message_tests() {
  return {cmocka_unit_test(messages_of_every_size),     cmocka_unit_test(messages_by_every_call),
          cmocka_unit_test(what_is_injected_is_a_copy), cmocka_unit_test(data_comes_whole),
          cmocka_unit_test(entries_of_every_format),    cmocka_unit_test(levels_of_completion),
          cmocka_unit_test(counters_follow_messages)};
}

}  // namespace ewarp::ofi::suite
