// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The four protocols step by step, matching, full ledgers, and every error of a call.
#include "tests/gravel/fake_net.h"

using namespace ewarp::gravel;
using namespace ewarp::gravel::test;

namespace {

constexpr Proc kC = 0, kP = 1;  // consumer, producer

// The producer's half once it has the consumer's buffer: all of `data`, in so many puts, and the FIN.
void produce(Machine& p, RequestId r, Bytes& data, std::size_t puts = 1) {
  const std::size_t piece = (data.size() + puts - 1) / puts;
  for (std::size_t at = 0; at < data.size(); at += piece) is(p.put(r, local(data, at, piece), at), Error::none);
  is(p.send_fin(r), Error::none);
}

struct Taken {
  Proc proc = kAnySource;
  int tag = kAnyTag;
  std::uint64_t size = 0;
  RequestId request = 0;
};
using Take = Error (Machine::*)(Proc*, int*, std::uint64_t*, RequestId*);

Taken take(Machine& m, Take how, Proc proc = kAnySource, int tag = kAnyTag) {
  Taken t{.proc = proc, .tag = tag};
  m.look_around();
  is((m.*how)(&t.proc, &t.tag, &t.size, &t.request), Error::none);
  return t;
}
void nothing_to_take(Machine& m, Take how, Proc proc, int tag, Error wanted = Error::full) {
  Taken t{.proc = proc, .tag = tag};
  is((m.*how)(&t.proc, &t.tag, &t.size, &t.request), wanted);
}
constexpr Take kReceiveBuffer = &Machine::take_receive_buffer, kSendBuffer = &Machine::take_send_buffer;

void consumer_initiated_by_write(void**) {
  for (const std::size_t puts : {1, 3, 10}) {
    Net net(2);
    Bytes in(100), out = pattern(1, 100);
    RequestId r;
    is(net[kC]->post_receive_buffer(kP, local(in), 5, &r), Error::none);
    nothing_to_take(*net[kP], kReceiveBuffer, kC, 5);
    net.run();
    const Taken t = take(*net[kP], kReceiveBuffer, kC, 5);
    assert_int_equal(t.size, 100);
    produce(*net[kP], t.request, out, puts);
    not_done(*net[kP], t.request);  // the source is in use
    not_done(*net[kC], r);
    net.run();
    ends(*net[kC], r);
    ends(*net[kP], t.request);
    assert_true(in == out);
    assert_int_equal(net[kC]->requests() + net[kP]->requests(), 0);
  }
}

void producer_initiated_by_write(void**) {
  Net net(2);
  Bytes in(100), out = pattern(1, 100);
  RequestId notice, r;
  is(net[kP]->post_send_request(kC, 100, 5, &notice), Error::none);
  ends(*net[kP], notice);  // at once: there is no buffer to wait for
  net.run();
  Taken t{.proc = kP};
  is(net[kC]->take_send_request(&t.proc, &t.tag, &t.size), Error::none);
  assert_true(t.proc == kP && t.tag == 5 && t.size == 100);
  is(net[kC]->post_receive_buffer(t.proc, local(in), t.tag, &r), Error::none);
  net.run();
  const Taken p = take(*net[kP], kReceiveBuffer, kC, 5);
  produce(*net[kP], p.request, out);
  net.run();
  ends(*net[kC], r);
  ends(*net[kP], p.request);
  assert_true(in == out);
}

void producer_initiated_by_read(void**) {
  for (const bool in_parts : {false, true}) {
    Net net(2);
    Bytes in(100), out = pattern(1, 100);
    RequestId offer;
    is(net[kP]->post_send_buffer(kC, local(out), 5, &offer), Error::none);
    net.run();
    const Taken t = take(*net[kC], kSendBuffer);
    assert_true(t.proc == kP && t.tag == 5 && t.size == 100);
    is(net[kC]->get(t.request, local(in, 0, in_parts ? 60 : 100), 0), Error::none);
    if (in_parts) is(net[kC]->get(t.request, local(in, 60), 60), Error::none);
    not_done(*net[kC], t.request);
    not_done(*net[kP], offer);
    // No FIN before the last octet has come.
    net.step(kC, kP);
    net.step(kP, kC);
    if (in_parts) not_done(*net[kP], offer);
    net.run();
    ends(*net[kC], t.request);
    net.run();
    ends(*net[kP], offer);
    assert_true(in == out);
  }
}

// A FIN is entered when the last get ends; a test behind it finds the request done.
void a_fetch_of_nothing_is_a_fin(void**) {
  Net net(2);
  Bytes out(10);
  RequestId offer;
  is(net[kP]->post_send_buffer(kC, local(out), 0, &offer), Error::none);
  net.run();
  const Taken t = take(*net[kC], kSendBuffer);
  ends(*net[kC], t.request);
  net.run();
  ends(*net[kP], offer);
}

void nothing_is_sent_too(void**) {
  Net net(2);
  RequestId r;
  is(net[kC]->post_receive_buffer(kP, {}, 0, &r), Error::none);
  net.run();
  const Taken t = take(*net[kP], kReceiveBuffer);
  is(net[kP]->put(t.request, {}, 0), Error::none);
  is(net[kP]->send_fin(t.request), Error::none);
  ends(*net[kP], t.request);
  net.run();
  ends(*net[kC], r);
}

void oneself_is_a_peer(void**) {
  Net net(1);
  Bytes in(10), out = pattern(3, 10);
  RequestId r;
  nothing_to_take(*net[0], kReceiveBuffer, 0, 0, Error::state);
  is(net[0]->post_receive_buffer(0, local(in), 0, &r), Error::none);
  net.run();
  Taken t{.tag = 0};
  is(net[0]->take_receive_buffer(&t.proc, &t.tag, &t.size, &t.request), Error::none);
  produce(*net[0], t.request, out);
  net.run();
  ends(*net[0], t.request);
  ends(*net[0], r);
  assert_true(in == out);
  nothing_to_take(*net[0], kReceiveBuffer, kAnySource, 0, Error::peer);
}

void tags_and_sources_match(void**) {
  Net net(3);
  Bytes in(60);
  RequestId r;
  for (int tag : {1, 2, 1})
    is(net[0]->post_receive_buffer(2, local(in, 0, 10u + static_cast<unsigned>(tag)), tag, &r), Error::none);
  is(net[1]->post_receive_buffer(2, local(in, 0, 20), 7, &r), Error::none);
  net.run();
  nothing_to_take(*net[2], kReceiveBuffer, 0, 7);
  nothing_to_take(*net[2], kReceiveBuffer, 0, 3);
  assert_int_equal(take(*net[2], kReceiveBuffer, kAnySource, 7).proc, 1 + 0 * net.size());
  assert_int_equal(take(*net[2], kReceiveBuffer, 0, 2).size, 12);
  assert_int_equal(take(*net[2], kReceiveBuffer, 0, kAnyTag).tag, 1);
  assert_int_equal(take(*net[2], kReceiveBuffer, kAnySource, 1).proc, 0);
  net[2]->look_around();
  nothing_to_take(*net[2], kReceiveBuffer, kAnySource, kAnyTag);
}

// Of two that always have something, both are taken from.
void anybody_means_everybody(void**) {
  Net net(3);
  RequestId r;
  for (int i = 0; i < 4; ++i)
    for (Proc from : {0, 1}) is(net[from]->post_send_request(2, 1, 0, &r), Error::none);
  net.run();
  net[2]->look_around();
  int from[3] = {};
  for (int i = 0; i < 4; ++i) {
    Taken t;
    is(net[2]->take_send_request(&t.proc, &t.tag, &t.size), Error::none);
    ++from[t.proc];
  }
  assert_true(from[0] == 2 && from[1] == 2);
}

// Requests and buffers are kept apart, though they share a ledger.
void a_request_is_no_buffer(void**) {
  Net net(2);
  Bytes out(10);
  RequestId r;
  is(net[kP]->post_send_request(kC, 10, 0, &r), Error::none);
  net.run();
  nothing_to_take(*net[kC], kSendBuffer, kP, kAnyTag);
  is(net[kP]->post_send_buffer(kC, local(out), 0, &r), Error::none);
  net.run();
  take(*net[kC], kSendBuffer, kP);
  Taken t;
  is(net[kC]->take_send_request(&t.proc, &t.tag, &t.size), Error::none);
  is(net[kC]->take_send_request(&t.proc, &t.tag, &t.size), Error::full);
}

void a_full_ledger_waits_for_its_reader(void**) {
  Net net(2);
  RequestId r;
  for (std::uint32_t i = 0; i < kEntries; ++i) is(net[kP]->post_send_request(kC, i, 0, &r), Error::none);
  is(net[kP]->post_send_request(kC, 0, 0, &r), Error::full);
  net.run();
  is(net[kP]->post_send_request(kC, 0, 0, &r), Error::full);
  is(net[kC]->look(kP), Error::none);  // reads all, and says so
  net.run();
  for (std::uint32_t i = 0; i < kEntries; ++i) is(net[kP]->post_send_request(kC, kEntries + i, 0, &r), Error::none);
  net.run();
  for (std::uint32_t i = 0; i < 2 * kEntries; ++i) {
    Taken t{.proc = kP};
    is(net[kC]->take_send_request(&t.proc, &t.tag, &t.size), Error::none);
    assert_int_equal(t.size, i);
  }
}

// What nobody waits for is kept up to a bound. The rest stays in the ledger, and its writer waits.
void what_is_kept_is_bounded(void**) {
  Net net(2);
  RequestId r;
  std::size_t posted = 0;
  for (int rounds = 0; rounds < 200; ++rounds) {
    while (net[kP]->post_send_request(kC, posted, 0, &r) == Error::none) {
      ends(*net[kP], r);
      ++posted;
    }
    net.run();
    is(net[kC]->look(kP), Error::none);
    net.run();
  }
  assert_int_equal(posted, Arrivals::kMost + kEntries);
  for (std::size_t i = 0; i < posted; ++i) {
    Taken t{.proc = kP};
    is(net[kC]->take_send_request(&t.proc, &t.tag, &t.size), Error::none);
    assert_int_equal(t.size, i);
  }
}

// A FIN that finds its ledger full: the call says so, and a fetch tries again by itself.
void a_full_ledger_of_fins(void**) {
  Net net(2);
  std::vector<Bytes> out(kEntries + 2, Bytes(1));
  std::vector<RequestId> offers(out.size());
  for (std::size_t i = 0; i < out.size(); ++i)
    while (net[kP]->post_send_buffer(kC, local(out[i]), 0, &offers[i]) == Error::full) {
      net.run();
      is(net[kC]->look(kP), Error::none);
      net.run();
    }
  net.run();
  RequestId last = 0;
  for (std::size_t i = 0; i <= kEntries; ++i) {
    last = take(*net[kC], kSendBuffer, kP).request;
    if (i < kEntries) ends(*net[kC], last);
  }
  not_done(*net[kC], last);
  net.run();
  not_done(*net[kC], last);
  ends(*net[kP], offers[0]);
  net.run();
  ends(*net[kC], last);
  // And send_fin().
  Net second(2);
  Bytes in(1);
  std::vector<RequestId> receives(kEntries + 1);
  std::vector<RequestId> puts;
  for (RequestId& r : receives) {
    while (second[kC]->post_receive_buffer(kP, local(in), 0, &r) == Error::full) {
      is(second[kP]->look(kC), Error::none);
      second.run();
    }
    second.run();
    puts.push_back(take(*second[kP], kReceiveBuffer, kC).request);
  }
  for (std::size_t i = 0; i < kEntries; ++i) is(second[kP]->send_fin(puts[i]), Error::none);
  is(second[kP]->send_fin(puts.back()), Error::full);
  second.run();
  ends(*second[kC], receives[0]);
  second.run();
  is(second[kP]->send_fin(puts.back()), Error::none);
}

// A path that takes nothing: every call says so and has changed nothing.
void a_full_path(void**) {
  Net net(2);
  Bytes in(10), out = pattern(9, 10);
  RequestId r, other;
  is(net[kC]->post_receive_buffer(kP, local(in), 0, &r), Error::none);
  is(net[kP]->post_send_buffer(kC, local(out), 0, &other), Error::none);
  net.run();
  const Taken p = take(*net[kP], kReceiveBuffer), c = take(*net[kC], kSendBuffer);
  net[kP].room = net[kC].room = 0;
  RequestId none = 0;
  is(net[kC]->post_receive_buffer(kP, local(in), 0, &none), Error::full);
  is(net[kP]->post_send_request(kC, 1, 0, &none), Error::full);
  is(net[kP]->post_send_buffer(kC, local(out), 0, &none), Error::full);
  is(net[kP]->put(p.request, local(out), 0), Error::full);
  is(net[kP]->send_fin(p.request), Error::full);
  is(net[kC]->get(c.request, local(in), 0), Error::full);
  assert_int_equal(none, 0);
  assert_int_equal(net[kP]->requests() + net[kC]->requests(), 4);
  net[kP].room = net[kC].room = 1000;
  produce(*net[kP], p.request, out);
  net.run();
  ends(*net[kC], r);
  assert_true(in == out);
}

void transfers_under_way_are_bounded(void**) {
  Net net(2);
  Bytes in(10), out(10);
  RequestId r;
  is(net[kC]->post_receive_buffer(kP, local(in), 0, &r), Error::none);
  net.run();
  const Taken p = take(*net[kP], kReceiveBuffer);
  for (std::uint32_t i = 0; i < Machine::kMostTransfers; ++i) is(net[kP]->put(p.request, local(out), 0), Error::none);
  is(net[kP]->put(p.request, local(out), 0), Error::full);
  net.step(kP, kC);
  net.step(kC, kP);
  is(net[kP]->put(p.request, local(out), 0), Error::none);
}

void errors_of_calls(void**) {
  Net net(2);
  Bytes m(10);
  RequestId r = 0;
  Machine& c = *net[kC];
  for (const Proc bad : {-1, -2, 2}) {
    is(c.post_receive_buffer(bad, local(m), 0, &r), Error::rank);
    is(c.post_send_request(bad, 1, 0, &r), Error::rank);
    is(c.post_send_buffer(bad, local(m), 0, &r), Error::rank);
    if (bad == kAnySource) continue;
    nothing_to_take(c, kReceiveBuffer, bad, 0, Error::rank);
    nothing_to_take(c, kSendBuffer, bad, 0, Error::rank);
  }
  is(c.post_receive_buffer(kP, local(m), -1, &r), Error::tag);
  is(c.post_send_request(kP, 1, -1, &r), Error::tag);
  is(c.post_send_buffer(kP, local(m), -1, &r), Error::tag);
  nothing_to_take(c, kReceiveBuffer, kP, -2, Error::tag);
  ends(c, 0, Error::request);
  ends(c, 0x10005, Error::request);
  is(c.put(0, local(m), 0), Error::request);
  is(c.get(77, local(m), 0), Error::request);
  is(c.send_fin(77), Error::request);
  assert_int_equal(r, 0);
  assert_int_equal(c.requests(), 0);
  assert_int_equal(c.proc_of(1), kAnySource);
}

void errors_of_transfers(void**) {
  Net net(2);
  Bytes in(10), out(20);
  RequestId r, offer;
  is(net[kC]->post_receive_buffer(kP, local(in), 0, &r), Error::none);
  is(net[kP]->post_send_buffer(kC, local(out), 0, &offer), Error::none);
  net.run();
  const Taken p = take(*net[kP], kReceiveBuffer), c = take(*net[kC], kSendBuffer);
  // Beyond the buffer: nothing was sent.
  is(net[kP]->put(p.request, local(out, 0, 11), 0), Error::range);
  is(net[kP]->put(p.request, local(out, 0, 1), 10), Error::range);
  is(net[kP]->put(p.request, {}, 11), Error::range);
  is(net[kP]->put(p.request, local(out, 0, 2), ~std::uint64_t{0}), Error::range);
  is(net[kC]->get(c.request, local(out), 1), Error::range);
  assert_true(net.wire(kP, kC).empty() && net.wire(kC, kP).empty());
  // Requests of another kind.
  is(net[kP]->get(p.request, local(out), 0), Error::request);
  is(net[kC]->put(c.request, local(in), 0), Error::request);
  is(net[kC]->put(r, local(in), 0), Error::request);
  is(net[kC]->send_fin(c.request), Error::request);
  is(net[kP]->send_fin(offer), Error::request);
  // A put waits for its FIN, and ends with it.
  ends(*net[kP], p.request, Error::state);
  is(net[kP]->put(p.request, local(out, 0, 10), 0), Error::none);
  is(net[kP]->send_fin(p.request), Error::none);
  is(net[kP]->put(p.request, local(out, 0, 10), 0), Error::state);
  is(net[kP]->send_fin(p.request), Error::state);
  // A fetch that was tested for is complete.
  is(net[kC]->get(c.request, local(in), 0), Error::none);
  not_done(*net[kC], c.request);
  is(net[kC]->get(c.request, local(in), 0), Error::state);
  net.run();
  ends(*net[kP], p.request);
  ends(*net[kP], p.request, Error::request);
}

void a_done_request_gives_its_buffer_back(void**) {
  Net net(2);
  Bytes in(10);
  RequestId r;
  is(net[kC]->post_receive_buffer(kP, local(in), 0, &r), Error::none);
  net.run();
  const Taken p = take(*net[kP], kReceiveBuffer);
  is(net[kP]->send_fin(p.request), Error::none);
  net.run();
  std::optional<std::uint32_t> used;
  is(net[kC]->test(r, &used), Error::none);
  assert_true(used == local(in).slot);
  is(net[kP]->test(p.request, &used), Error::none);
  assert_false(used.has_value());
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(consumer_initiated_by_write),
      cmocka_unit_test(producer_initiated_by_write),
      cmocka_unit_test(producer_initiated_by_read),
      cmocka_unit_test(a_fetch_of_nothing_is_a_fin),
      cmocka_unit_test(nothing_is_sent_too),
      cmocka_unit_test(oneself_is_a_peer),
      cmocka_unit_test(tags_and_sources_match),
      cmocka_unit_test(anybody_means_everybody),
      cmocka_unit_test(a_request_is_no_buffer),
      cmocka_unit_test(a_full_ledger_waits_for_its_reader),
      cmocka_unit_test(what_is_kept_is_bounded),
      cmocka_unit_test(a_full_ledger_of_fins),
      cmocka_unit_test(a_full_path),
      cmocka_unit_test(transfers_under_way_are_bounded),
      cmocka_unit_test(errors_of_calls),
      cmocka_unit_test(errors_of_transfers),
      cmocka_unit_test(a_done_request_gives_its_buffer_back),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
