// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Short segments in front of long messages (rdmap/lead.h): from a live queue pair.
#include "rdmap/lead.h"

#include <algorithm>

#include "tests/wire/scene.h"

using namespace ewarp;
using namespace ewarp::wire;

namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kBuffer = 1 << 20;
constexpr std::uint32_t kFullSend = 64750, kFullWrite = 64754;  // payloads of the largest segments
constexpr Setup kTcp{.initiator = true, .tcp = true, .extensions = true};

// Where in the buffer an address is `behind` octets behind the begin of a page.
std::size_t place(Scene& s, std::size_t behind) {
  return (2 * kPage + behind - s.side.address(0) % kPage) % kPage;
}

ibv_sge source(Scene& s, std::size_t behind, std::uint32_t octets) {
  return s.side.sge(place(s, behind), octets);
}

// The segments of one message, whose payload is that of the buffer from there on: their lengths.
std::vector<std::size_t> take_message(Scene& s, std::size_t behind, unsigned opcode, std::uint32_t octets) {
  std::vector<std::size_t> lengths;
  std::size_t got = 0;
  for (bool last = false; !last;) {
    const Segment g = s.peer->next_segment();
    assert_int_equal(g.opcode, opcode);
    assert_int_equal(g.is_tagged ? g.to - kFar : g.mo, got);
    assert_memory_equal(g.payload.data(), s.side.at(place(s, behind) + got), g.payload.size());
    got += g.payload.size();
    last = g.last;
    const bool tells = s.setup.extensions && g.payload.size() > rdmap::kLeadPayload && !last;
    assert_int_equal(g.ahead, tells ? std::min<std::size_t>((octets - got - 1) / g.payload.size(), 15) : 0);
    lengths.push_back(g.payload.size());
  }
  assert_int_equal(got, octets);
  return lengths;
}

// full: of the segments behind the lead, but for the last one; 0: whatever TCP's segments allow.
void expect_lead(const std::vector<std::size_t>& lengths, std::size_t segments, std::size_t full) {
  assert_true(lengths.size() > segments);
  if (full == 0) full = lengths[segments];
  assert_true(full > rdmap::kLeadPayload);
  for (std::size_t i = 0; i < segments; ++i) assert_int_equal(lengths[i], rdmap::kLeadPayload);
  for (std::size_t i = segments; i + 1 < lengths.size(); ++i) assert_int_equal(lengths[i], full);
}

std::unique_ptr<Scene> scene(const Setup& setup) {
  auto s = std::make_unique<Scene>(setup, kBuffer);
  const Bytes octets = pattern(kBuffer);
  std::copy(octets.begin(), octets.end(), s->side.at(0));
  return s;
}

std::vector<std::size_t> sent(Scene& s, std::size_t behind, std::uint32_t octets) {
  assert_int_equal(s.side.send(IBV_WR_SEND, {source(s, behind, octets)}), 0);
  const auto lengths = take_message(s, behind, kSend, octets);
  assert_int_equal(s.side.wait().status, IBV_WC_SUCCESS);
  return lengths;
}

std::vector<std::size_t> written(Scene& s, std::size_t behind, std::uint32_t octets) {
  assert_int_equal(s.side.send(IBV_WR_RDMA_WRITE, {source(s, behind, octets)}, kFar, kKey), 0);
  const auto lengths = take_message(s, behind, kWrite, octets);
  assert_int_equal(s.side.wait().status, IBV_WC_SUCCESS);
  return lengths;
}

// --- what has one ---

// As many as heads of 20 and 16 octets, and 4 of a CRC, need.
void what_begins_at_a_page_has_a_lead(void**) {
  for (const bool crc : {false, true})
    for (const bool extensions : {false, true}) {
      const auto s = scene({.initiator = true, .crc = crc, .tcp = true, .extensions = extensions});
      const std::size_t send = extensions ? kFullSend : 0, write = extensions ? kFullWrite : 0;
      for (const std::uint32_t octets : {65536u, 200000u, 1000000u}) {
        expect_lead(sent(*s, 0, octets), 2, send);
        expect_lead(sent(*s, 16, octets), 3, send);
        expect_lead(sent(*s, 63, octets), 5, send);
        expect_lead(sent(*s, 4095, octets), 2, send);
        expect_lead(written(*s, 0, octets), 3, write);
        expect_lead(written(*s, 16, octets), 4, write);
        expect_lead(written(*s, 63, octets), 6, write);
      }
    }
}

// --- what has none ---

void what_begins_elsewhere_has_none(void**) {
  const auto s = scene(kTcp);
  for (const std::size_t behind : {64u, 100u, 2048u, 4000u}) {
    expect_lead(sent(*s, behind, 200000), 0, kFullSend);
    expect_lead(written(*s, behind, 200000), 0, kFullWrite);
  }
}

void a_message_of_one_segment_has_none(void**) {
  const auto s = scene(kTcp);
  for (const std::uint32_t octets : {0u, 1u, 4096u, 8192u, kFullSend}) assert_int_equal(sent(*s, 0, octets).size(), 1);
  assert_int_equal(written(*s, 0, kFullWrite).size(), 1);
  expect_lead(sent(*s, 0, kFullSend + 1), 2, kFullSend);
}

// It stands at the begin of a page itself. Posts of one call leave together.
void what_waits_before_a_message_spares_the_lead(void**) {
  const auto s = scene(kTcp);
  ibv_sge small = source(*s, 0, 100), large = source(*s, 0, 200000);
  ibv_send_wr second{}, first{}, *bad = nullptr;
  first.sg_list = &small;
  second.sg_list = &large;
  first.num_sge = second.num_sge = 1;
  first.opcode = second.opcode = IBV_WR_SEND;
  second.send_flags = IBV_SEND_SIGNALED;
  first.next = &second;
  assert_int_equal(s->side.qp->post_send(&first, &bad), 0);
  assert_int_equal(take_message(*s, 0, kSend, 100).size(), 1);
  expect_lead(take_message(*s, 0, kSend, 200000), 0, kFullSend);
  assert_int_equal(s->side.wait().status, IBV_WC_SUCCESS);
}

// Where segments are short, those that a lead would spare are few octets.
void short_segments_have_none(void**) {
  const auto s = scene({.initiator = true, .tcp = true, .mss = 1460});
  const auto lengths = sent(*s, 0, 200000);
  assert_true(lengths.front() > rdmap::kLeadPayload && lengths.front() < rdmap::kLeadMulpdu);
}

// Markers lie where they fall; and no kernel copies what goes through shared memory.
void other_streams_have_none(void**) {
  const auto marked = scene({.initiator = true, .tcp = true, .tx_markers = true});
  assert_true(sent(*marked, 0, 200000).front() > rdmap::kLeadPayload);
  const auto other = scene({.initiator = true});
  assert_true(sent(*other, 0, 200000).front() > rdmap::kLeadPayload);
}

void a_read_response_has_none(void**) {
  const auto s = scene(kTcp);
  s->peer->send(read_request(1, 5, kFar, 200000, s->side.mr->stag(), s->side.address(place(*s, 0))));
  expect_lead(take_message(*s, 0, kReadResponse, 200000), 0, kFullWrite);
}

}  // namespace

int main() {
  stop_at_first_failure();
  set_waits("300", "0");
  const CMUnitTest tests[] = {
      cmocka_unit_test(what_begins_at_a_page_has_a_lead),
      cmocka_unit_test(what_begins_elsewhere_has_none),
      cmocka_unit_test(a_message_of_one_segment_has_none),
      cmocka_unit_test(what_waits_before_a_message_spares_the_lead),
      cmocka_unit_test(short_segments_have_none),
      cmocka_unit_test(other_streams_have_none),
      cmocka_unit_test(a_read_response_has_none),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
