// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Messages, tagged and not: every call, every protocol of the channel, and the ends that are not good ones.
#include <netinet/in.h>
#include <sys/uio.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <string>

#include "tests/ofi/sides.h"

namespace ewarp::ofi::test {
namespace {

constexpr std::uint64_t kTag = 0x1234567812345678, kData = 0xabcdef0123456789;

int context_a, context_b;

// One way to send: what is reported of it, and whether it carries data.
struct Way {
  std::function<long(const Side&, const Bytes&, fi_addr_t)> post;
  bool tagged, reports, data;
};

std::vector<Way> ways_to_send() {
  return {
      {[](const Side& s, const Bytes& b, fi_addr_t to) {
         return fi_tsend(s.ep, b.data(), b.size(), nullptr, to, kTag, &context_a);
       },
       true, true, false},
      {[](const Side& s, const Bytes& b, fi_addr_t to) {
         const iovec v{const_cast<std::uint8_t*>(b.data()), b.size()};
         return fi_tsendv(s.ep, &v, nullptr, 1, to, kTag, &context_a);
       },
       true, true, false},
      {[](const Side& s, const Bytes& b, fi_addr_t to) {
         const iovec v{const_cast<std::uint8_t*>(b.data()), b.size()};
         const fi_msg_tagged m{&v, nullptr, 1, to, kTag, 0, &context_a, kData};
         return fi_tsendmsg(s.ep, &m, FI_REMOTE_CQ_DATA);
       },
       true, true, true},
      {[](const Side& s, const Bytes& b, fi_addr_t to) {
         return fi_tsenddata(s.ep, b.data(), b.size(), nullptr, kData, to, kTag, &context_a);
       },
       true, true, true},
      {[](const Side& s, const Bytes& b, fi_addr_t to) {
         return b.size() > s.info->tx_attr->inject_size ? 1 : fi_tinject(s.ep, b.data(), b.size(), to, kTag);
       },
       true, false, false},
      {[](const Side& s, const Bytes& b, fi_addr_t to) {
         return b.size() > s.info->tx_attr->inject_size ? 1 : fi_tinjectdata(s.ep, b.data(), b.size(), kData, to, kTag);
       },
       true, false, true},
      {[](const Side& s, const Bytes& b, fi_addr_t to) {
         return fi_send(s.ep, b.data(), b.size(), nullptr, to, &context_a);
       },
       false, true, false},
      {[](const Side& s, const Bytes& b, fi_addr_t to) {
         const iovec v{const_cast<std::uint8_t*>(b.data()), b.size()};
         return fi_sendv(s.ep, &v, nullptr, 1, to, &context_a);
       },
       false, true, false},
      {[](const Side& s, const Bytes& b, fi_addr_t to) {
         const iovec v{const_cast<std::uint8_t*>(b.data()), b.size()};
         const fi_msg m{&v, nullptr, 1, to, &context_a, kData};
         return fi_sendmsg(s.ep, &m, FI_REMOTE_CQ_DATA | FI_DELIVERY_COMPLETE);
       },
       false, true, true},
      {[](const Side& s, const Bytes& b, fi_addr_t to) {
         return fi_senddata(s.ep, b.data(), b.size(), nullptr, kData, to, &context_a);
       },
       false, true, true},
      {[](const Side& s, const Bytes& b, fi_addr_t to) {
         return b.size() > s.info->tx_attr->inject_size ? 1 : fi_inject(s.ep, b.data(), b.size(), to);
       },
       false, false, false},
      {[](const Side& s, const Bytes& b, fi_addr_t to) {
         return b.size() > s.info->tx_attr->inject_size ? 1 : fi_injectdata(s.ep, b.data(), b.size(), kData, to);
       },
       false, false, true},
  };
}

// Three ways to receive each.
long post_receive(const Side& s, Bytes& buffer, fi_addr_t from, bool tagged, int way) {
  const iovec v{buffer.data(), buffer.size()};
  if (tagged) {
    if (way == 0) return fi_trecv(s.ep, buffer.data(), buffer.size(), nullptr, from, kTag, 0, &context_b);
    if (way == 1) return fi_trecvv(s.ep, &v, nullptr, 1, from, kTag & ~0xffull, 0xff, &context_b);
    const fi_msg_tagged m{&v, nullptr, 1, from, kTag, 0, &context_b, 0};
    return fi_trecvmsg(s.ep, &m, FI_COMPLETION);
  }
  if (way == 0) return fi_recv(s.ep, buffer.data(), buffer.size(), nullptr, from, &context_b);
  if (way == 1) return fi_recvv(s.ep, &v, nullptr, 1, from, &context_b);
  const fi_msg m{&v, nullptr, 1, from, &context_b, 0};
  return fi_recvmsg(s.ep, &m, FI_COMPLETION);
}

void one_message(Pair& p, const Way& way, std::size_t size, int receive_way, bool receiver_first) {
  const Bytes out = pattern(static_cast<unsigned>(size), size);
  Bytes in(size + 3);
  const fi_addr_t from = receive_way == 2 ? FI_ADDR_UNSPEC : p.to_a;
  if (receiver_first) MUST(post_receive(p.b, in, from, way.tagged, receive_way));
  const long posted = way.post(p.a, out, p.to_b);
  MUST(posted);
  if (posted == 1) {  // too long to be injected
    if (receiver_first) assert_int_equal(fi_cancel(&p.b.ep->fid, &context_b), 0);
    if (receiver_first) assert_int_equal(p.b.failure(p.b.receive_queue).err, FI_ECANCELED);
    return;
  }
  if (!receiver_first) MUST(post_receive(p.b, in, from, way.tagged, receive_way));
  const fi_cq_tagged_entry got = p.b.received();
  assert_ptr_equal(got.op_context, &context_b);
  assert_int_equal(got.flags & (FI_RECV | FI_TAGGED | FI_MSG), FI_RECV | (way.tagged ? FI_TAGGED : FI_MSG));
  assert_int_equal(got.len, size);
  if (way.tagged) assert_int_equal(got.tag, kTag);
  assert_int_equal((got.flags & FI_REMOTE_CQ_DATA) != 0, way.data);
  if (way.data) assert_int_equal(got.data, kData);
  if (size > 0) assert_memory_equal(in.data(), out.data(), size);
  if (!way.reports) return;
  const fi_cq_tagged_entry sent = p.a.sent();
  assert_ptr_equal(sent.op_context, &context_a);
  assert_int_equal(sent.flags & (FI_SEND | FI_TAGGED | FI_MSG), FI_SEND | (way.tagged ? FI_TAGGED : FI_MSG));
}

void every_call_and_size(void**) {
  Pair p;
  int receive_way = 0;
  for (const Way& way : ways_to_send())
    for (const std::size_t size : kSizes)
      for (const bool receiver_first : {false, true}) one_message(p, way, size, receive_way++ % 3, receiver_first);
  assert_true(p.a.quiet(p.a.send_queue) && p.a.quiet(p.a.receive_queue));
  assert_true(p.b.quiet(p.b.send_queue) && p.b.quiet(p.b.receive_queue));
}

// Everything of one sender in one space, in order.
void messages_stay_in_order(void**) {
  Pair p;
  constexpr int kCount = 200;
  std::vector<Bytes> out, in;
  for (int i = 0; i < kCount; ++i) {
    out.push_back(pattern(static_cast<unsigned>(i), kSizes[static_cast<std::size_t>(i) % 6]));
    in.emplace_back(20'000);
  }
  for (int i = 0; i < kCount; ++i) {
    MUST(fi_tsend(p.a.ep, out[i].data(), out[i].size(), nullptr, p.to_b, 5, nullptr));
    if (i % 3 == 0) MUST(fi_trecv(p.b.ep, in[i].data(), in[i].size(), nullptr, p.to_a, 5, 0, &in[i]));
  }
  std::vector<Bytes*> order;
  for (int i = 0; i < kCount; ++i)
    if (i % 3 == 0) order.push_back(&in[i]);
  for (int i = 0; i < kCount; ++i) {
    if (i % 3 == 0) continue;
    MUST(fi_trecv(p.b.ep, in[i].data(), in[i].size(), nullptr, FI_ADDR_UNSPEC, 5, 0, &in[i]));
    order.push_back(&in[i]);
  }
  for (int i = 0; i < kCount; ++i) p.b.received();
  for (int i = 0; i < kCount; ++i) {
    if (!out[i].empty()) assert_memory_equal(order[i]->data(), out[i].data(), out[i].size());
    p.a.sent();
  }
}

void tagged_and_untagged_do_not_meet(void**) {
  Pair p;
  std::uint64_t tagged = 0, untagged = 0;
  const std::uint64_t one = 1, two = 2;
  MUST(fi_trecv(p.b.ep, &tagged, 8, nullptr, FI_ADDR_UNSPEC, 0, ~std::uint64_t{0}, &tagged));
  MUST(fi_inject(p.a.ep, &one, 8, p.to_b));
  MUST(fi_tinject(p.a.ep, &two, 8, p.to_b, 99));
  assert_ptr_equal(p.b.received().op_context, &tagged);
  assert_int_equal(tagged, 2);
  MUST(fi_recv(p.b.ep, &untagged, 8, nullptr, FI_ADDR_UNSPEC, &untagged));
  assert_ptr_equal(p.b.received().op_context, &untagged);
  assert_int_equal(untagged, 1);
}

void a_directed_receive_waits_for_its_sender(void**) {
  Pair p;
  Side c({}, &p.a);
  const fi_addr_t c_to_b = c.insert(p.b), from_c = p.b.insert(c);
  const std::uint64_t from_a = 1, from_third = 3;
  std::uint64_t in[2] = {};
  MUST(fi_trecv(p.b.ep, &in[1], 8, nullptr, from_c, 5, 0, &in[1]));
  MUST(fi_trecv(p.b.ep, &in[0], 8, nullptr, p.to_a, 5, 0, &in[0]));
  MUST(fi_tinject(p.a.ep, &from_a, 8, p.to_b, 5));
  fi_cq_tagged_entry entry{};
  fi_addr_t source = FI_ADDR_NOTAVAIL;
  assert_int_equal(fi_cq_sreadfrom(p.b.receive_queue, &entry, 1, &source, nullptr, kPatienceMs), 1);
  assert_ptr_equal(entry.op_context, &in[0]);
  assert_int_equal(source, p.to_a);
  MUST(fi_tinject(c.ep, &from_third, 8, c_to_b, 5));
  assert_int_equal(fi_cq_sreadfrom(p.b.receive_queue, &entry, 1, &source, nullptr, kPatienceMs), 1);
  assert_ptr_equal(entry.op_context, &in[1]);
  assert_int_equal(source, from_c);
}

void a_sender_that_was_not_inserted_has_no_address(void**) {
  Side a, b({}, &a);
  const fi_addr_t to_b = a.insert(b);
  std::uint64_t word = 7, in = 0;
  MUST(fi_tinject(a.ep, &word, 8, to_b, 5));
  MUST(fi_trecv(b.ep, &in, 8, nullptr, FI_ADDR_UNSPEC, 5, 0, nullptr));
  fi_cq_tagged_entry entry{};
  fi_addr_t source = 0;
  assert_int_equal(fi_cq_sreadfrom(b.receive_queue, &entry, 1, &source, nullptr, kPatienceMs), 1);
  assert_true(source == FI_ADDR_NOTAVAIL);
  // Inserted later, it is known.
  const fi_addr_t to_a = b.insert(a);
  MUST(fi_tinject(a.ep, &word, 8, to_b, 5));
  MUST(fi_trecv(b.ep, &in, 8, nullptr, FI_ADDR_UNSPEC, 5, 0, nullptr));
  assert_int_equal(fi_cq_sreadfrom(b.receive_queue, &entry, 1, &source, nullptr, kPatienceMs), 1);
  assert_int_equal(source, to_a);
}

// Removed it has none, and inserted anew another, before anything is sent to it.
void a_sender_has_the_address_that_is_inserted(void**) {
  Pair p;
  const auto source_of_message = [&] {
    std::uint64_t word = 7, in = 0;
    MUST(fi_tinject(p.a.ep, &word, 8, p.to_b, 5));
    MUST(fi_trecv(p.b.ep, &in, 8, nullptr, FI_ADDR_UNSPEC, 5, 0, nullptr));
    fi_cq_tagged_entry entry{};
    fi_addr_t source = 0;
    assert_int_equal(fi_cq_sreadfrom(p.b.receive_queue, &entry, 1, &source, nullptr, kPatienceMs), 1);
    return source;
  };
  assert_int_equal(source_of_message(), p.to_a);
  assert_int_equal(fi_av_remove(p.b.addresses, &p.to_a, 1, 0), 0);
  assert_true(source_of_message() == FI_ADDR_NOTAVAIL);
  const fi_addr_t again = p.b.insert(p.a);
  assert_true(again != p.to_a);
  assert_int_equal(source_of_message(), again);
}

void messages_to_oneself(void**) {
  Side a;
  const fi_addr_t self = a.insert(a);
  for (const std::size_t size : kSizes) {
    const Bytes out = pattern(3, size);
    Bytes in(size);
    MUST(fi_tsenddata(a.ep, out.data(), size, nullptr, kData, self, 5, &context_a));
    MUST(fi_trecv(a.ep, in.data(), size, nullptr, self, 5, 0, &context_b));
    const fi_cq_tagged_entry got = a.received();
    assert_int_equal(got.len, size);
    assert_int_equal(got.data, kData);
    assert_true(in == out);
    assert_ptr_equal(a.sent().op_context, &context_a);
  }
}

void a_message_that_is_too_long_is_an_error_of_its_receive(void**) {
  Pair p;
  for (const std::size_t size : {std::size_t{64}, std::size_t{20'000}, std::size_t{300'000}})
    for (const bool receiver_first : {false, true}) {
      const Bytes out = pattern(9, size);
      Bytes in(size - 10);
      if (receiver_first) MUST(fi_trecv(p.b.ep, in.data(), in.size(), nullptr, p.to_a, 5, 0, &context_b));
      MUST(fi_tsenddata(p.a.ep, out.data(), size, nullptr, kData, p.to_b, 5, &context_a));
      if (!receiver_first) MUST(fi_trecv(p.b.ep, in.data(), in.size(), nullptr, p.to_a, 5, 0, &context_b));
      const fi_cq_err_entry e = p.b.failure(p.b.receive_queue);
      assert_ptr_equal(e.op_context, &context_b);
      assert_int_equal(e.err, FI_ETRUNC);
      assert_int_equal(e.olen, 10);
      assert_int_equal(e.len, in.size());
      assert_int_equal(e.tag, 5);
      assert_int_equal(e.data, kData);
      assert_non_null(fi_cq_strerror(p.b.receive_queue, e.prov_errno, e.err_data, nullptr, 0));
      assert_memory_equal(in.data(), out.data(), in.size());
      p.a.sent();
    }
}

// A completion, an error, a completion: they are read in the order in which they came. Messages to oneself come at
// once.
void an_error_does_not_overtake(void**) {
  Pair p;
  const fi_addr_t self = p.a.insert(p.a);
  char in = 0;
  const Bytes out(2);
  for (int i = 0; i < 3; ++i) MUST(fi_trecv(p.a.ep, &in, 1, nullptr, self, 5, 0, &context_b));
  for (const std::size_t size : {1, 2, 1}) MUST(fi_tsend(p.a.ep, out.data(), size, nullptr, self, 5, &context_a));
  assert_int_equal(p.a.received().len, 1);
  assert_int_equal(p.a.failure(p.a.receive_queue).err, FI_ETRUNC);
  assert_int_equal(p.a.received().len, 1);
  assert_true(p.a.quiet(p.a.receive_queue));
  for (int i = 0; i < 3; ++i) p.a.sent();
}

void a_receive_is_cancelled(void**) {
  Pair p;
  Bytes in(100'000);
  // One that the peer was told of, and ones that it was not.
  for (const fi_addr_t from : {p.to_a, fi_addr_t{FI_ADDR_UNSPEC}}) {
    MUST(fi_trecv(p.b.ep, in.data(), in.size(), nullptr, from, 5, 0, &context_b));
    assert_int_equal(fi_cancel(&p.b.ep->fid, &context_b), 0);
    const fi_cq_err_entry e = p.b.failure(p.b.receive_queue);
    assert_int_equal(e.err, FI_ECANCELED);
    assert_ptr_equal(e.op_context, &context_b);
  }
  assert_int_equal(fi_cancel(&p.b.ep->fid, &context_b), -FI_ENOENT);
  // The next message goes to the next receive.
  const Bytes out = pattern(1, 50'000);
  MUST(fi_trecv(p.b.ep, in.data(), in.size(), nullptr, p.to_a, 5, 0, &context_a));
  MUST(fi_tsend(p.a.ep, out.data(), out.size(), nullptr, p.to_b, 5, nullptr));
  assert_ptr_equal(p.b.received().op_context, &context_a);
  p.a.sent();
}

void nobody_is_sent_to_who_is_not_there(void**) {
  const Side a;
  fi_addr_t nobody;
  assert_int_equal(fi_av_insertsvc(a.addresses, "127.0.0.1", "1", &nobody, 0, nullptr), 1);
  assert_int_equal(fi_tsend(a.ep, nullptr, 0, nullptr, nobody + 1, 5, nullptr), -FI_EINVAL);
  assert_int_equal(fi_tsend(a.ep, nullptr, 0, nullptr, FI_ADDR_UNSPEC, 5, nullptr), -FI_EINVAL);
  const Bytes much(5000);
  assert_int_equal(fi_tinject(a.ep, much.data(), much.size(), nobody, 5), -FI_EINVAL);
  const iovec two[2] = {};
  assert_int_equal(fi_tsendv(a.ep, two, nullptr, 2, nobody, 5, nullptr), -FI_EINVAL);
}

std::string port_of(const Side& side) {
  sockaddr_in address{};
  const auto name = side.name();
  std::memcpy(&address, name.data(), std::min(name.size(), sizeof address));
  return std::to_string(ntohs(address.sin_port));
}

// No completion tells of it.
void inject_until_it_fails(const Side& a, fi_addr_t to) {
  const std::uint64_t word = 7;
  ssize_t result = 0;
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(kPatienceMs);
  while ((result == 0 || result == -FI_EAGAIN) && std::chrono::steady_clock::now() < until) {
    result = fi_tinject(a.ep, &word, 8, to, 5);
    fi_cq_tagged_entry entry{};
    assert_int_equal(fi_cq_read(a.send_queue, &entry, 1), -FI_EAGAIN);  // no entry without a context
  }
  assert_int_equal(result, -FI_ECONNRESET);
}

void injecting_fails_when_the_peer_is_gone(void**) {
  Side a;
  auto b = std::make_unique<Side>(SideOptions{}, &a);
  const fi_addr_t to_b = a.insert(*b);
  std::uint64_t word = 7, in = 0;
  MUST(fi_trecv(b->ep, &in, 8, nullptr, FI_ADDR_UNSPEC, 5, 0, nullptr));
  MUST(fi_tinject(a.ep, &word, 8, to_b, 5));
  b->received();
  b.reset();
  inject_until_it_fails(a, to_b);
  assert_int_equal(fi_inject_atomic(a.ep, &word, 1, to_b, 0, 0, FI_UINT64, FI_SUM), -FI_ECONNRESET);
  // A peer that refuses may only be late: it is tried again and again, and not lost meanwhile.
  fi_addr_t late;
  assert_int_equal(fi_av_insertsvc(a.addresses, "127.0.0.1", "1", &late, 0, nullptr), 1);
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(300);
  while (std::chrono::steady_clock::now() < until) {
    const ssize_t result = fi_tinject(a.ep, &word, 8, late, 5);
    assert_true(result == 0 || result == -FI_EAGAIN);
    fi_cq_tagged_entry entry{};
    assert_int_equal(fi_cq_read(a.send_queue, &entry, 1), -FI_EAGAIN);
  }
}

// Another one at the address of the first: once it has sent something, what is sent there is sent to it.
void a_peer_that_comes_back_is_answered(void**) {
  Side a;
  auto b = std::make_unique<Side>();
  const std::string port = port_of(*b);
  const fi_addr_t to_b = a.insert(*b);
  std::uint64_t word = 7, in = 0;
  MUST(fi_trecv(b->ep, &in, 8, nullptr, FI_ADDR_UNSPEC, 5, 0, nullptr));
  MUST(fi_tinject(a.ep, &word, 8, to_b, 5));
  b->received();
  b.reset();
  inject_until_it_fails(a, to_b);
  SideOptions same;
  same.service = port.c_str();
  b = std::make_unique<Side>(same);
  const fi_addr_t to_a = b->insert(a);
  MUST(fi_trecv(a.ep, &in, 8, nullptr, FI_ADDR_UNSPEC, 6, 0, nullptr));
  MUST(fi_tinject(b->ep, &word, 8, to_a, 6));
  fi_cq_tagged_entry e{};
  fi_addr_t source = FI_ADDR_NOTAVAIL;
  assert_int_equal(fi_cq_sreadfrom(a.receive_queue, &e, 1, &source, nullptr, kPatienceMs), 1);
  assert_int_equal(source, to_b);
  word = 8;
  MUST(fi_trecv(b->ep, &in, 8, nullptr, FI_ADDR_UNSPEC, 7, 0, nullptr));
  MUST(fi_tsend(a.ep, &word, 8, nullptr, source, 7, nullptr));
  b->received();
  assert_int_equal(in, 8);
}

// So it is without a request that failed, if the address is inserted again: who does so has heard of another one.
void a_peer_that_is_inserted_again_may_be_another(void**) {
  Side a;
  auto b = std::make_unique<Side>();
  const std::string port = port_of(*b);
  const fi_addr_t to_b = a.insert(*b);
  std::uint64_t word = 7, in = 0;
  MUST(fi_trecv(b->ep, &in, 8, nullptr, FI_ADDR_UNSPEC, 5, 0, nullptr));
  MUST(fi_tsend(a.ep, &word, 8, nullptr, to_b, 5, nullptr));
  b->received();
  a.sent();
  b.reset();
  SideOptions same;
  same.service = port.c_str();
  b = std::make_unique<Side>(same);
  const fi_addr_t to_a = b->insert(a);
  MUST(fi_trecv(a.ep, &in, 8, nullptr, FI_ADDR_UNSPEC, 6, 0, nullptr));
  MUST(fi_tsend(b->ep, &word, 8, nullptr, to_a, 6, nullptr));
  a.received();
  b->sent();
  assert_int_equal(a.insert(*b), to_b);
  word = 8;
  for (int i = 0; i < 2; ++i) {
    in = 0;
    MUST(fi_trecv(b->ep, &in, 8, nullptr, FI_ADDR_UNSPEC, 7, 0, nullptr));
    MUST(fi_tsend(a.ep, &word, 8, nullptr, to_b, 7, nullptr));
    b->received();
    a.sent();
    assert_int_equal(in, 8);
  }
}

// Not before the peer has it; and without a receive, if it is short.
void delivery_is_completion(void**) {
  Pair p({.send_flags = FI_DELIVERY_COMPLETE});
  for (const std::size_t size : kSizes) {
    const Bytes out = pattern(5, size);
    Bytes in(size);
    const bool waits = size > 12 << 10;
    MUST(fi_tsend(p.a.ep, out.data(), size, nullptr, p.to_b, 5, &context_a));
    if (!waits) p.a.sent();
    MUST(fi_trecv(p.b.ep, in.data(), size, nullptr, p.to_a, 5, 0, &context_b));
    p.b.received();
    if (waits) p.a.sent();
    assert_true(in == out);
  }
}

void matching_is_completion(void**) {
  Pair p;
  std::uint64_t word = 8, in = 0;
  const iovec v{&word, sizeof word};
  const fi_msg_tagged m{&v, nullptr, 1, p.to_b, 5, 0, &context_a, 0};
  assert_int_equal(fi_tsendmsg(p.a.ep, &m, FI_INJECT | FI_MATCH_COMPLETE), -FI_EOPNOTSUPP);
  MUST(fi_tsendmsg(p.a.ep, &m, FI_MATCH_COMPLETE));
  // A message behind it has come, so it has, too; but nobody has asked for it.
  std::uint64_t second = 0;
  MUST(fi_tinject(p.a.ep, &word, 8, p.to_b, 6));
  MUST(fi_trecv(p.b.ep, &second, 8, nullptr, p.to_a, 6, 0, nullptr));
  p.b.received();
  assert_true(p.a.quiet(p.a.send_queue));
  MUST(fi_trecv(p.b.ep, &in, 8, nullptr, p.to_a, 5, 0, nullptr));
  p.b.received();
  p.a.sent();
  assert_int_equal(in, 8);
}

}  // namespace

std::vector<CMUnitTest> message_tests() {
  return {cmocka_unit_test(every_call_and_size),
          cmocka_unit_test(messages_stay_in_order),
          cmocka_unit_test(tagged_and_untagged_do_not_meet),
          cmocka_unit_test(a_directed_receive_waits_for_its_sender),
          cmocka_unit_test(a_sender_that_was_not_inserted_has_no_address),
          cmocka_unit_test(a_sender_has_the_address_that_is_inserted),
          cmocka_unit_test(messages_to_oneself),
          cmocka_unit_test(a_message_that_is_too_long_is_an_error_of_its_receive),
          cmocka_unit_test(an_error_does_not_overtake),
          cmocka_unit_test(a_receive_is_cancelled),
          cmocka_unit_test(nobody_is_sent_to_who_is_not_there),
          cmocka_unit_test(injecting_fails_when_the_peer_is_gone),
          cmocka_unit_test(a_peer_that_comes_back_is_answered),
          cmocka_unit_test(a_peer_that_is_inserted_again_may_be_another),
          cmocka_unit_test(delivery_is_completion),
          cmocka_unit_test(matching_is_completion)};
}

}  // namespace ewarp::ofi::test
