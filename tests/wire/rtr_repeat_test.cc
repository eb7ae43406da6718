// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A peer that seems not to have heard the RTR gets it again, some times, until it says something
// (docs/design/verbs.md, "An initiator that nobody answers").
#include "tests/wire/scene.h"

using namespace ewarp;
using namespace ewarp::wire;

namespace {

constexpr int kWait = 100;  // ms: option rtr_repeat_ms
constexpr unsigned kRepeats = 4;

Setup initiator(std::uint8_t rtr) {
  return Setup{.initiator = true, .crc = true, .peer_to_peer = true, .rtr = rtr};
}

bool is_empty_write(const Segment& s) {
  return s.opcode == kWrite && s.last && s.payload.empty();
}

// The last comes after 15 times the wait; a further one would after 31 times.
void a_silent_peer_gets_the_rtr_again(void**) {
  Scene s(initiator(mpa::kRtrWrite), 8192);
  for (unsigned i = 0; i < 1 + kRepeats; ++i) assert_true(is_empty_write(s.peer->next_segment()));
  s.peer->expect_silence(18 * kWait);
  assert_int_equal(s.side.state(), IBV_QPS_RTS);
  assert_int_equal(s.side.send(IBV_WR_SEND, {s.side.sge(0, 8)}, 0, 0, IBV_SEND_SIGNALED, 1), 0);
  assert_int_equal(s.peer->next_segment().payload.size(), 8);
  s.expect_completions("repeated RTR", {{1, IBV_WC_SUCCESS}});
}

// Any octet of the peer is enough. Three times more would take 14 waits: so long nobody is kept from reading here.
void a_peer_that_speaks_does_not(void**) {
  Scene s(initiator(mpa::kRtrWrite), 8192);
  assert_true(is_empty_write(s.peer->next_segment()));
  assert_true(is_empty_write(s.peer->next_segment()));
  s.peer->send(write_segment(1, 1, {}));
  s.peer->wait_until_read();
  // Those that were on their way before it was heard.
  poll(nullptr, 0, 16 * kWait);
  assert_int_equal(s.side.send(IBV_WR_SEND, {s.side.sge(0, 8)}, 0, 0, IBV_SEND_SIGNALED, 1), 0);
  unsigned repeats = 1;
  for (Segment g = s.peer->next_segment(); g.opcode == kWrite; g = s.peer->next_segment()) ++repeats;
  assert_true(repeats < kRepeats);
  s.expect_completions("RTR that was heard", {{1, IBV_WC_SUCCESS}});
}

// A message that is posted in the meantime goes as always, and what is repeated does not come into its middle.
void a_message_in_the_meantime_is_whole(void**) {
  Scene s(initiator(mpa::kRtrWrite), 1 << 20);
  assert_true(is_empty_write(s.peer->next_segment()));
  constexpr std::uint32_t kLarge = 600'000;
  assert_int_equal(s.side.send(IBV_WR_RDMA_WRITE, {s.side.sge(0, kLarge)}, kFar, kKey, IBV_SEND_SIGNALED, 1), 0);
  poll(nullptr, 0, 2 * kWait);
  std::size_t got = 0;
  for (bool last = false; !last;) {
    const Segment g = s.peer->next_segment();
    if (is_empty_write(g) && got == 0) continue;
    assert_int_equal(g.to, kFar + got);
    got += g.payload.size();
    last = g.last;
  }
  assert_int_equal(got, kLarge);
}

// It is an empty Write that follows; the Read is answered once, and a Read of ours is the second.
void a_read_is_followed_by_empty_writes(void**) {
  Scene s(initiator(mpa::kRtrRead), 8192);
  const Bytes first = s.peer->next();
  assert_int_equal(get_be<std::uint8_t>(first, 1) & 0x0f, kReadRequest);
  assert_true(is_empty_write(s.peer->next_segment()));
  const auto rtr = rdmap::ReadRequest::parse(Octets(first).subspan(18)).value();
  s.peer->send(read_response(rtr.sink_stag, rtr.sink_to, {}));
  s.peer->wait_until_read();
  assert_int_equal(s.side.send(IBV_WR_RDMA_READ, {s.side.sge(0, 8)}, kFar, kKey, IBV_SEND_SIGNALED, 1), 0);
  Bytes second = s.peer->next();
  while ((get_be<std::uint8_t>(second, 1) & 0x0f) == kWrite) second = s.peer->next();
  assert_int_equal(get_be<std::uint32_t>(second, 10), 2);  // MSN
  const auto ours = rdmap::ReadRequest::parse(Octets(second).subspan(18)).value();
  s.peer->send(read_response(ours.sink_stag, ours.sink_to, pattern(8)));
  s.expect_completions("a Read behind an RTR by Read", {{1, IBV_WC_SUCCESS}});
}

void other_forms_and_our_own_kind_go_out_once(void**) {
  {
    Scene s(initiator(mpa::kRtrSend), 8192);
    s.peer->next_segment();
    s.peer->expect_silence(2 * kWait);
  }
  Scene s(consenting(initiator(mpa::kRtrWrite)), 8192);
  assert_true(is_empty_write(s.peer->next_segment()));
  s.peer->expect_silence(2 * kWait);
  // Without peer-to-peer there is none to repeat.
  Scene plain(Setup{.initiator = true}, 8192);
  plain.peer->expect_silence(2 * kWait);
}

}  // namespace

int main() {
  stop_at_first_failure();
  set_waits("2000", "0");
  setenv("ETHERWARP_RTR_REPEAT_MS", std::to_string(kWait).c_str(), 1);
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_silent_peer_gets_the_rtr_again),         cmocka_unit_test(a_peer_that_speaks_does_not),
      cmocka_unit_test(a_message_in_the_meantime_is_whole),       cmocka_unit_test(a_read_is_followed_by_empty_writes),
      cmocka_unit_test(other_forms_and_our_own_kind_go_out_once),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
