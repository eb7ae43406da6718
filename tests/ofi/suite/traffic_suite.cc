// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Many messages, many endpoints, several threads; ends of endpoints in the midst of it; waits (fi_cq(3), fi_av(3)).
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "tests/ofi/suite/scene.h"

namespace ewarp::ofi::suite {
namespace {

constexpr std::uint64_t kTag = 3;

void one(Scene& s, std::size_t from, std::size_t to, std::uint64_t word) {
  std::uint64_t in = 0;
  POST(s, fi_trecv(s[to].ep.get(), &in, sizeof in, nullptr, FI_ADDR_UNSPEC, kTag, 0, s.context()));
  POST(s, fi_tsend(s[from].ep.get(), &word, sizeof word, nullptr, s.to(from, to), kTag, s.context()));
  s.received(to);
  s.sent(from);
  assert_int_equal(in, word);
}

// Everybody to everybody, himself too, in one domain.
void many_endpoints(void**) {
  constexpr std::size_t kEnds = 12;
  Scene s(FI_MSG | FI_TAGGED, {}, kEnds);
  std::vector<Octets> names;
  for (std::size_t i = 0; i < kEnds; ++i) names.push_back(s[i].name());
  std::sort(names.begin(), names.end());
  assert_true(std::adjacent_find(names.begin(), names.end()) == names.end());
  for (std::size_t from = 0; from < kEnds; ++from)
    for (std::size_t to = 0; to < kEnds; ++to) one(s, from, to, from * 100 + to);
}

// Names are found again, in both kinds of vector; who was removed and inserted anew is as good as before.
void addresses_that_come_and_go(void**) {
  for (const fi_av_type type : {FI_AV_MAP, FI_AV_TABLE}) {
    Scene s(FI_MSG | FI_TAGGED, {.addresses = type}, 3);
    const Octets name = s[1].name();
    Octets found(sizeof(sockaddr_storage));
    std::size_t length = found.size();
    MUST(fi_av_lookup(s[0].addresses.get(), s.to(0, 1), found.data(), &length));
    found.resize(length);
    assert_true(found == name);
    one(s, 0, 1, 1);
    fi_addr_t gone = s.to(0, 1);
    MUST(fi_av_remove(s[0].addresses.get(), &gone, 1, 0));
    const fi_addr_t again = s[0].insert(name);
    std::uint64_t word = 7, in = 0;
    POST(s, fi_trecv(s[1].ep.get(), &in, sizeof in, nullptr, FI_ADDR_UNSPEC, kTag, 0, s.context()));
    POST(s, fi_tsend(s[0].ep.get(), &word, sizeof word, nullptr, again, kTag, s.context()));
    s.received(1);
    s.sent(0);
    assert_int_equal(in, 7);
    one(s, 2, 0, 9);
  }
}

// Both at once, with windows of messages.
void streams_in_both_directions(void**) {
  Scene s;
  constexpr std::size_t kCount = 400, kWindow = 16;
  for (const std::size_t size : {64, 5000, 200'000}) {
    std::vector<Octets> in[2];
    for (auto& side : in) side.assign(kWindow, Octets(size));
    std::size_t posted[2] = {}, asked[2] = {}, sent[2] = {}, received[2] = {};
    const std::size_t count = size > 100'000 ? 100 : kCount;
    const Octets out = pattern(size, size);
    until([&] {
      for (const std::size_t i : {0, 1}) {
        End& e = s[i];
        while (asked[i] < count && asked[i] - received[i] < kWindow) {
          Octets& m = in[i][asked[i] % kWindow];
          if (fi_trecv(e.ep.get(), m.data(), size, nullptr, FI_ADDR_UNSPEC, kTag, 0, s.context()) != 0) break;
          ++asked[i];
        }
        while (posted[i] < count && posted[i] - sent[i] < kWindow) {
          if (fi_tsend(e.ep.get(), out.data(), size, nullptr, s.to(i, 1 - i), kTag, s.context()) != 0) break;
          ++posted[i];
        }
        e.progress();
        for (; !e.sent.empty(); e.sent.pop_front(), ++sent[i]) assert_int_equal(e.sent.front().error, 0);
        for (; !e.received.empty(); e.received.pop_front(), ++received[i]) {
          assert_int_equal(e.received.front().entry.len, size);
          assert_true(in[i][received[i] % kWindow] == out);
        }
      }
      return sent[0] == count && sent[1] == count && received[0] == count && received[1] == count;
    });
  }
}

// A receiver that does nothing: its sender is told to wait, or everything is taken. Nothing is lost (FI_RM_ENABLED).
void a_receiver_that_does_not_keep_up(void**) {
  Scene s;
  if (s.bed.info->domain_attr->resource_mgmt != FI_RM_ENABLED) skip();
  one(s, 0, 1, 1);  // a connection may take two
  constexpr std::size_t kMost = 5000, kSize = 704;
  std::size_t taken = 0;
  std::vector<std::uint64_t> out(kSize / 8);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  while (taken < kMost && std::chrono::steady_clock::now() < end) {
    out[0] = taken;
    if (fi_inject(s[0].ep.get(), out.data(), std::min(kSize, s.bed.info->tx_attr->inject_size), s.to(0, 1)) == 0)
      ++taken;
    else
      s[0].progress();
  }
  assert_true(taken > 0);
  std::vector<std::uint64_t> in(kSize / 8);
  for (std::size_t i = 0; i < taken; ++i) {
    POST(s, fi_recv(s[1].ep.get(), in.data(), kSize, nullptr, FI_ADDR_UNSPEC, s.context()));
    s.received(1);
    assert_int_equal(in[0], i);
  }
  s.stays_quiet(s[1].received);
}

// More ends of requests than the queue was asked to hold, read by nobody for a while.
void more_ends_than_a_queue_was_made_for(void**) {
  Scene s(FI_MSG | FI_TAGGED, {.queue_size = 4});
  if (s.bed.info->domain_attr->resource_mgmt != FI_RM_ENABLED) skip();
  constexpr std::size_t kCount = 300;
  std::vector<std::uint64_t> in(kCount);
  std::vector<void*> contexts;
  for (std::uint64_t& word : in) {
    contexts.push_back(s.context());
    POST(s, fi_trecv(s[1].ep.get(), &word, 8, nullptr, FI_ADDR_UNSPEC, kTag, 0, contexts.back()));
  }
  std::size_t sent = 0;
  for (std::uint64_t i = 0; i < kCount; ++i)
    until([&] {
      const long result = fi_tsend(s[0].ep.get(), &i, 8, nullptr, s.to(0, 1), kTag, s.context());
      if (result == -FI_EAGAIN)
        s.progress();
      else
        MUST(result);
      // The word is on the stack: its message ends before the next is made.
      if (result == 0) s.sent(0), ++sent;
      return result == 0;
    });
  assert_int_equal(sent, kCount);
  for (std::size_t i = 0; i < kCount; ++i) {
    assert_ptr_equal(s.received(1).op_context, contexts[i]);
    assert_int_equal(in[i], i);
  }
}

// An endpoint ends while others send to it: their requests end, one way or the other, and the rest goes on.
void an_endpoint_that_ends_in_the_midst(void**) {
  ONLY_OURS();
  for (const std::size_t size : {100, 100'000}) {
    Scene s(FI_MSG | FI_TAGGED, {}, 3);
    one(s, 0, 2, 1);
    const Octets out = pattern(1, size);
    constexpr std::size_t kCount = 200;
    std::size_t taken = 0, ended = 0;
    for (std::size_t i = 0; i < kCount; ++i) {
      if (i == kCount / 2) s.close(2);
      const std::uint64_t tag = i % 2 == 0 ? kTag : 99;
      if (i < kCount / 2 && i % 4 == 0)
        POST(s, fi_trecv(s[2].ep.get(), nullptr, 0, nullptr, FI_ADDR_UNSPEC, kTag, 0, s.context()));
      if (fi_tsend(s[0].ep.get(), out.data(), size, nullptr, s.to(0, 2), tag, s.context()) == 0) ++taken;
      s.progress();
    }
    until([&] {
      s.progress();
      ended += s[0].sent.size();
      s[0].sent.clear();
      return ended == taken;
    });
    one(s, 0, 1, 5);
    one(s, 1, 0, 6);
  }
}

// Threads that send at once by one endpoint, and one that receives.
void several_threads(void**) {
  Scene s;
  constexpr std::uint64_t kThreads = 4, kEach = 300;
  std::vector<std::uint64_t> in(kThreads * kEach);
  for (std::uint64_t t = 0; t < kThreads; ++t)
    for (std::uint64_t i = 0; i < kEach; ++i)
      POST(s, fi_trecv(s[1].ep.get(), &in[t * kEach + i], 8, nullptr, FI_ADDR_UNSPEC, t, 0, s.context()));
  std::atomic<bool> failed{false};
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      for (std::uint64_t i = 0; i < kEach; ++i) {
        long result;
        while ((result = fi_tinject(s[0].ep.get(), &i, 8, s.to(0, 1), t)) == -FI_EAGAIN)
          fi_cq_read(s[0].send_queue.get(), nullptr, 0);
        if (result != 0) failed = true;
      }
    });
  for (std::uint64_t i = 0; i < kThreads * kEach; ++i) s.received(1);
  for (std::thread& t : threads) t.join();
  assert_false(failed.load());
  for (std::uint64_t t = 0; t < kThreads; ++t)
    for (std::uint64_t i = 0; i < kEach; ++i) assert_int_equal(in[t * kEach + i], i);
}

// A reader that sleeps, on the descriptor or in the call, is woken by every message.
void readers_that_sleep(void**) {
  for (const bool by_descriptor : {true, false}) {
    Scene s(FI_MSG | FI_TAGGED, {.wait = FI_WAIT_FD});
    one(s, 0, 1, 1);
    int fd = -1;
    MUST(fi_control(&s[1].receive_queue.f(), FI_GETWAIT, &fd));
    constexpr std::uint64_t kCount = 20;
    std::uint64_t in[kCount] = {};
    for (std::uint64_t& word : in)
      POST(s, fi_trecv(s[1].ep.get(), &word, 8, nullptr, FI_ADDR_UNSPEC, kTag, 0, s.context()));
    std::thread sender([&] {
      for (std::uint64_t i = 0; i < kCount; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(i % 3 == 0 ? 5 : 0));
        while (fi_tinject(s[0].ep.get(), &i, 8, s.to(0, 1), kTag) == -FI_EAGAIN)
          fi_cq_read(s[0].send_queue.get(), nullptr, 0);
      }
      fi_cq_read(s[0].send_queue.get(), nullptr, 0);
    });
    fid* queue = &s[1].receive_queue.f();
    for (std::size_t got = 0; got < kCount;) {
      fi_cq_tagged_entry e{};
      const long n = by_descriptor ? fi_cq_read(s[1].receive_queue.get(), &e, 1)
                                   : fi_cq_sread(s[1].receive_queue.get(), &e, 1, nullptr, kPatienceMs);
      if (n == 1) {
        ++got;
        continue;
      }
      assert_int_equal(n, -FI_EAGAIN);
      if (!by_descriptor || fi_trywait(s.bed.fabric, &queue, 1) != 0) continue;
      pollfd waiting{.fd = fd, .events = POLLIN, .revents = 0};
      assert_int_equal(poll(&waiting, 1, kPatienceMs), 1);
    }
    sender.join();
    for (std::uint64_t i = 0; i < kCount; ++i) assert_int_equal(in[i], i);
  }
}

// What a provider does not have it says, and makes nothing.
void what_is_not_there_is_refused(void**) {
  ONLY_OURS();
  Scene s;
  fid_stx* stx = nullptr;
  fid_ep *srx = nullptr, *scalable = nullptr, *alias = nullptr;
  assert_int_equal(fi_stx_context(s.bed.domain, nullptr, &stx, nullptr), -FI_ENOSYS);
  assert_int_equal(fi_srx_context(s.bed.domain, nullptr, &srx, nullptr), -FI_ENOSYS);
  assert_int_equal(fi_scalable_ep(s.bed.domain, s.bed.info, &scalable, nullptr), -FI_ENOSYS);
  assert_int_equal(fi_ep_alias(s[0].ep.get(), &alias, FI_TRANSMIT), -FI_ENOSYS);
  fid_ep* context = nullptr;
  assert_int_equal(fi_tx_context(s[0].ep.get(), 0, nullptr, &context, nullptr), -FI_ENOSYS);
  assert_int_equal(fi_rx_context(s[0].ep.get(), 0, nullptr, &context, nullptr), -FI_ENOSYS);
  fid_pep* passive = nullptr;
  assert_int_equal(fi_passive_ep(s.bed.fabric, s.bed.info, &passive, nullptr), -FI_ENOSYS);
  fi_info* const shared = fi_dupinfo(s.bed.info);
  shared->ep_attr->tx_ctx_cnt = FI_SHARED_CONTEXT;
  const Answer none(shared, nullptr, nullptr, 0);
  assert_int_equal(none.error(), -FI_ENODATA);
  fi_freeinfo(shared);
}

}  // namespace

Tests traffic_tests() {
  return {cmocka_unit_test(many_endpoints),
          cmocka_unit_test(addresses_that_come_and_go),
          cmocka_unit_test(streams_in_both_directions),
          cmocka_unit_test(a_receiver_that_does_not_keep_up),
          cmocka_unit_test(more_ends_than_a_queue_was_made_for),
          cmocka_unit_test(an_endpoint_that_ends_in_the_midst),
          cmocka_unit_test(several_threads),
          cmocka_unit_test(readers_that_sleep),
          cmocka_unit_test(what_is_not_there_is_refused)};
}

}  // namespace ewarp::ofi::suite
