// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What an endpoint is made of, each part alone.

#include <algorithm>

#include "llp/guarded_copy.h"
#include "mpa/framing.h"
#include "rdmap/direct.h"
#include "rdmap/inbound.h"
#include "rdmap/lead.h"
#include "rdmap/opening.h"
#include "rdmap/outstanding.h"
#include "rdmap/own_terminate.h"
#include "rdmap/sending.h"
#include "rdmap/unacknowledged.h"
#include "tests/vectors/vectors.h"

namespace ewarp::test {
namespace {

using namespace rdmap;

// --- leads ---

// Octets that a payload of a message lies further behind the begin of a page than it does where it is copied from, if
// the message is copied to the begin of one, behind so many segments.
std::size_t beyond(std::uintptr_t source, std::size_t header, std::size_t segments) {
  const std::size_t head = mpa::kLengthField + header;
  return (head + segments * (head + mpa::kCrcField) - source) % 4096;
}

bool is_slow(std::size_t beyond) {
  return beyond > 0 && beyond < 64;
}

void a_lead_is_as_long_as_it_must_be(void**) {
  for (const std::size_t header : {ddp::TaggedHeader::kSize, ddp::UntaggedHeader::kSize})
    for (std::uintptr_t source = 0x7000'0000; source < 0x7000'0000 + 4096; ++source) {
      const std::uint64_t octets = lead_octets(source, header);
      assert_int_equal(octets % kLeadPayload, 0);
      const std::uint64_t segments = octets / kLeadPayload;
      const bool about_there = source % 4096 < 64 || is_slow(beyond(source, header, 0));
      assert_int_equal(segments > 0, about_there);
      assert_true(segments <= 6);
      if (segments == 0) continue;
      for (std::uint64_t behind = segments; behind < segments + 100; ++behind)
        assert_false(is_slow(beyond(source, header, behind)));
      assert_true(is_slow(beyond(source, header, segments - 1)));
    }
}

// --- who speaks first ---

void an_initiator_sends_its_rtr(void**) {
  mpa::StreamParams p;
  p.initiator = true;
  assert_false(Opening(p).rtr_due());
  p.peer_to_peer = true;
  p.rtr = mpa::kRtrWrite;
  Opening o(p);
  assert_true(o.rtr_due() && o.may_send() && o.established() && !o.awaits_first());
  o.received();
  assert_true(o.rtr_due());
  o.rtr_sent();
  assert_true(o.state() == Opening::State::open);
  p.terminate = fault::kMpaNoRtr;
  assert_false(Opening(p).rtr_due());
}

// An empty Write changes nothing at the peer however often it comes; a Read and a Send do.
void an_rtr_goes_out_once_more_if_it_is_a_write(void**) {
  for (const std::uint8_t form : {mpa::kRtrWrite, mpa::kRtrRead, mpa::kRtrSend})
    for (const bool initiator : {false, true}) {
      mpa::StreamParams p;
      p.initiator = initiator;
      p.peer_to_peer = true;
      p.rtr = form;
      Opening o(p);
      assert_false(o.repeat_rtr());  // the first is not out
      if (!initiator) o.received();
      if (o.rtr_due()) o.rtr_sent();
      const bool may = initiator && form != mpa::kRtrSend;
      assert_false(o.repeats());
      assert_int_equal(o.repeat_rtr(), may);
      assert_int_equal(o.rtr_due(), may);
      assert_int_equal(o.repeats(), may);
      assert_false(o.repeat_rtr());  // it is on its way
      assert_true(o.may_send() && o.established());
      if (may) o.rtr_sent();
      assert_true(o.state() == Opening::State::open);
    }
}

void a_responder_is_silent_until_it_has_heard_something(void**) {
  for (const bool peer_to_peer : {false, true})
    for (const bool waited : {false, true}) {
      mpa::StreamParams p;
      p.peer_to_peer = peer_to_peer;
      Opening o(p);
      assert_true(o.awaits_first() && !o.may_send());
      if (waited) o.speak_first();
      assert_int_equal(o.may_send(), waited);
      assert_true(o.awaits_first());
      assert_int_equal(o.established(), !peer_to_peer);
      o.received();
      assert_true(o.may_send() && o.established() && !o.awaits_first());
      o.speak_first();
      assert_true(o.state() == Opening::State::open);
    }
}

// --- what is sent ---

void a_message_is_sent_to_its_end(void**) {
  SendRequest write;
  write.operation = Operation::write;
  write.immediate = true;
  write.length = 100;
  Sending sending;
  sending.begin(write);
  sending.advance(60);
  assert_true(sending.has_request() && sending.offset() == 60);
  sending.advance(40);
  sending.payload_done();
  assert_true(sending.state() == Sending::State::immediate && &sending.request() == &write);
  sending.end();
  assert_true(sending.idle());

  SendRequest send;  // its immediate is in its header
  send.immediate = true;
  sending.begin(send);
  assert_int_equal(sending.offset(), 0);
  sending.payload_done();
  assert_true(sending.idle());
}

void what_may_follow_what_is_sent(void**) {
  using enum Sending::State;
  constexpr Sending::State kAll[] = {nothing, request, immediate, response};
  for (const auto from : kAll)
    for (const auto to : kAll) {
      const bool begins = from == nothing && (to == request || to == response);
      const bool goes_on = from == request && to == immediate;
      assert_int_equal(Sending::allowed(from, to), to == nothing || begins || goes_on);
    }
}

void requests_are_complete_when_the_kernel_has_their_last_octet(void**) {
  SendRequest first, second;
  Unacknowledged u;
  u.produced(100);
  u.push(first);
  u.produced(30);  // a response between the two
  u.produced(50);
  u.push(second);
  u.taken(99);
  assert_null(u.pop_taken().request);
  u.taken(1);
  assert_ptr_equal(u.pop_taken().request, &first);
  assert_null(u.pop_taken().request);
  u.clear();
  u.taken(80);
  assert_null(u.pop_taken().request);
}

void the_first_fault_is_told_once(void**) {
  OwnTerminate t;
  assert_false(t.fault().has_value() || t.wanted());
  t.report(fault::kDdpBounds, terminate_about(fault::kDdpBounds, nullptr, nullptr));
  t.report(fault::kMpaCrc, terminate_about(fault::kMpaCrc, nullptr, nullptr));
  t.give_up(fault::kRdmapLocalCatastrophic);
  assert_true(t.wanted() && !t.sent() && *t.fault() == fault::kDdpBounds && t.message().fault == fault::kDdpBounds);
  t.produced();
  assert_true(!t.wanted() && t.sent());
  t.report(fault::kMpaCrc, terminate_about(fault::kMpaCrc, nullptr, nullptr));
  assert_false(t.wanted());
}

void of_a_stream_that_was_given_up_nothing_is_told(void**) {
  OwnTerminate t;
  t.give_up(fault::kRdmapLocalCatastrophic);
  t.report(fault::kMpaCrc, terminate_about(fault::kMpaCrc, nullptr, nullptr));
  assert_true(*t.fault() == fault::kRdmapLocalCatastrophic && !t.wanted() && !t.sent());
}

// --- Reads and atomics ---

void ord_and_fences_hold_requests_back(void**) {
  SendRequest read, atomic, send, fenced;
  read.operation = Operation::read;
  read.length = 10;
  atomic.operation = Operation::fetch_add;
  atomic.length = 8;
  fenced.fence = true;
  OutstandingRequests out(2);
  assert_true(out.allow(read) && out.allow(fenced));
  const std::uint32_t a = out.push(&read, 1);
  assert_true(out.allow(atomic) && out.allow(send) && !out.allow(fenced));
  const std::uint32_t b = out.push(&atomic, 2);
  assert_true(a != b && !out.allow(read) && out.allow(send));
  out.received(10);
  assert_int_equal(out.oldest().received, 10);
  assert_ptr_equal(out.pop(), &read);
  assert_true(out.oldest().is_atomic() && out.oldest().sink_stag == b && out.allow(read) && !out.allow(fenced));
  assert_ptr_equal(out.pop(), &atomic);
  assert_true(out.empty() && out.allow(fenced));
}

void an_rtr_asks_for_no_depth(void**) {
  OutstandingRequests out(0);
  out.push(nullptr, 1);
  assert_false(out.oldest().is_atomic());
  assert_null(out.pop());
  InboundRequests in(0);
  assert_true(in.full());
  in.push({});
  in.pop();
  assert_true(in.empty());
}

// --- direct payload ---

constexpr std::size_t kPayload = 5000, kPresent = 700;

// A segment of kPayload octets into two pieces of `memory`, of which kPresent have come.
struct Arriving {
  Bytes memory = Bytes(kPayload, std::byte{0});
  Bytes octets = Bytes(kPayload);
  Segment segment;

  Arriving(Segment::Kind kind, bool last, std::size_t pieces) {
    for (std::size_t i = 0; i < kPayload; ++i) octets[i] = static_cast<std::byte>(i * 7);
    segment.kind = kind;
    segment.last = last;
    segment.payload = kPayload;
    segment.ulpdu = kPayload + 14;
    const std::size_t cut = pieces == 1 ? kPayload : 2000;
    segment.target.add({memory.data(), cut});
    if (pieces == 2) segment.target.add({memory.data() + cut, kPayload - cut});
  }
  Octets from(std::size_t i, std::size_t n) const { return Octets(octets).subspan(i, n); }
};

// Stores n octets where the payload says, as recvmsg() does.
void store(DirectPayload& d, Octets in) {
  for (const llp::Extent& e : d.extents()) {
    const std::size_t n = std::min(e.length, in.size());
    std::copy_n(in.begin(), n, e.address);
    in = in.subspan(n);
  }
}

void what_comes_direct_lands_in_order_and_the_end_is_kept_back(void**) {
  struct Case {
    Segment::Kind kind;
    bool last;
    std::size_t kept;
  };
  for (const Case& c : {Case{Segment::Kind::write, true, 64}, Case{Segment::Kind::write, false, 0},
                        Case{Segment::Kind::send, true, 0}, Case{Segment::Kind::read_response, true, 64}})
    for (const std::size_t step : {1u, 999u, 1300u, 4300u}) {
      Arriving a(c.kind, c.last, 2);
      DirectPayload d(false);
      d.begin(a.segment, kPresent, a.from(0, kPresent));
      assert_int_equal(d.kept(), c.kept);
      assert_int_equal(d.left(), kPayload - kPresent - c.kept);
      while (d.left() > 0) {
        const std::size_t at = d.position(), n = std::min(step, d.left());
        store(d, a.from(at, n));
        assert_true(d.arrived(n));
      }
      assert_true(d.state() == DirectPayload::State::trailer && d.extents().empty());
      const std::size_t end = kPayload - c.kept;
      assert_memory_equal(a.memory.data() + kPresent, a.octets.data() + kPresent, end - kPresent);
      for (std::size_t i = end; i < kPayload; ++i) assert_true(a.memory[i] == std::byte{0});
      assert_int_equal(d.trailer(), c.kept + mpa::pad_octets(a.segment.ulpdu) + mpa::kCrcField);
      assert_true(d.finish(Bytes(d.trailer())));
      assert_true(d.idle());
    }
}

// The FPDU as the framer makes it; half of the payload comes where it belongs, half by way of staging.
void the_crc_counts_wherever_the_octets_came(void**) {
  assert_true(llp::install_copy_guard());
  for (const bool flipped : {false, true}) {
    Arriving a(Segment::Kind::write, true, 1);
    const Bytes header(14, std::byte{0x41});
    llp::Gather gather;
    mpa::Framer framer(true, false);
    const llp::Extent source{a.octets.data(), kPayload};
    assert_true(framer.frame_copied(gather, header, std::span(&source, 1)));
    Bytes fpdu;
    for (const iovec& v : gather.vectors()) {
      const auto* p = static_cast<const std::byte*>(v.iov_base);
      fpdu.insert(fpdu.end(), p, p + v.iov_len);
    }
    const std::size_t head = mpa::kLengthField + header.size();
    if (flipped) fpdu[head + 3000] ^= std::byte{1};
    const Octets in(fpdu);
    DirectPayload d(true);
    d.begin(a.segment, kPresent, in.first(head + kPresent));
    store(d, in.subspan(head + d.position(), 2000));
    assert_true(d.arrived(2000));
    d.placed(in.subspan(head + d.position(), d.left()));
    assert_int_equal(d.finish(in.last(d.trailer())), !flipped);
  }
}

void a_payload_that_stops_leaves_room_for_the_next(void**) {
  Arriving a(Segment::Kind::write, false, 2);
  DirectPayload d(false);
  const Octets kept = d.keep_header(a.from(0, 14));
  assert_memory_equal(kept.data(), a.octets.data(), 14);
  d.begin(a.segment, kPresent, a.from(0, kPresent));
  assert_true(d.arrived(1500));
  d.stop();
  assert_true(d.idle() && d.extents().empty() && d.left() == 0);
  d.begin(a.segment, kPresent, a.from(0, kPresent));
  assert_int_equal(d.position(), kPresent);
}

}  // namespace
}  // namespace ewarp::test

int main() {
  using namespace ewarp::test;
  const CMUnitTest tests[] = {cmocka_unit_test(a_lead_is_as_long_as_it_must_be),
                              cmocka_unit_test(an_initiator_sends_its_rtr),
                              cmocka_unit_test(an_rtr_goes_out_once_more_if_it_is_a_write),
                              cmocka_unit_test(a_responder_is_silent_until_it_has_heard_something),
                              cmocka_unit_test(a_message_is_sent_to_its_end),
                              cmocka_unit_test(what_may_follow_what_is_sent),
                              cmocka_unit_test(requests_are_complete_when_the_kernel_has_their_last_octet),
                              cmocka_unit_test(the_first_fault_is_told_once),
                              cmocka_unit_test(of_a_stream_that_was_given_up_nothing_is_told),
                              cmocka_unit_test(ord_and_fences_hold_requests_back),
                              cmocka_unit_test(an_rtr_asks_for_no_depth),
                              cmocka_unit_test(what_comes_direct_lands_in_order_and_the_end_is_kept_back),
                              cmocka_unit_test(the_crc_counts_wherever_the_octets_came),
                              cmocka_unit_test(a_payload_that_stops_leaves_room_for_the_next)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
