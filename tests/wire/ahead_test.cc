// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Segments that a sender tells of before they come (docs/protocol/extensions.md section 7): to a live queue pair, and
// from one.
#include <algorithm>
#include <cstring>

#include "tests/wire/scene.h"

using namespace ewarp;
using namespace ewarp::wire;

namespace {

constexpr std::size_t kBuffer = 256 * 1024;
constexpr std::size_t kAt = 1000;  // where messages go
constexpr std::size_t kHead = 30;  // octets of a first FPDU that make its payload go direct
constexpr auto kUntouched = std::byte{0x33};

enum class Kind : std::uint8_t { write, send, response };
constexpr Kind kKinds[] = {Kind::write, Kind::send, Kind::response};

Bytes told(Bytes ulpdu, std::size_t segments) {
  ulpdu[0] |= static_cast<std::byte>(std::min<std::size_t>(segments, 15) << 2);
  return ulpdu;
}

void fill(Scene& s) {
  std::fill_n(s.side.at(0), s.side.memory_octets.size(), kUntouched);
}

void expect_untouched(Scene& s, std::size_t from, std::size_t to, const std::string& what) {
  for (std::size_t i = from; i < to; ++i)
    if (*s.side.at(i) != kUntouched) fail_msg("%s: octet %zu was stored", what.c_str(), i);
}

// A message of one kind to the queue pair under test, which has what it needs for it.
class Message {
 public:
  Message(Scene& s, Kind kind, std::size_t octets) : s_(s), kind_(kind), octets_(octets) {
    const auto n = static_cast<std::uint32_t>(octets);
    if (kind == Kind::response) {
      assert_int_equal(s.side.send(IBV_WR_RDMA_READ, {s.side.sge(kAt, n)}, 0, 1), 0);
      read_ = dissect_read(s.peer->next_segment());
    } else {
      assert_int_equal(s.side.receive({s.side.sge(kAt, kind == Kind::send ? n : 0)}), 0);
    }
  }

  // Without what it tells.
  Bytes segment(std::size_t at, const Bytes& payload) const {
    const bool last = at + payload.size() == octets_;
    if (kind_ == Kind::write) return write_segment(s_.side.mr->stag(), s_.side.address(kAt + at), payload, last);
    if (kind_ == Kind::response) return read_response(read_.sink_stag, read_.sink_to + at, payload, last);
    return send_segment(1, payload, static_cast<std::uint32_t>(at), last);
  }

  // All of it, cut into segments of so many octets, and what tells that a Write has come.
  Bytes stream(const Bytes& whole, std::size_t cut) const {
    Bytes out;
    for (std::size_t at = 0; at < octets_; at += cut) {
      const std::size_t n = std::min(cut, octets_ - at);
      const std::size_t behind = at + n == octets_ ? 0 : (octets_ - at - n - 1) / cut;
      out = concat({out, s_.peer->frame(told(segment(at, slice(whole, at, n)), behind))});
    }
    return kind_ == Kind::write ? concat({out, s_.peer->frame(send_segment(1, {}))}) : out;
  }

 private:
  Scene& s_;
  Kind kind_;
  std::size_t octets_;
  ReadFields read_{};
};

// The front, then the rest at once.
void give(Scene& s, const Bytes& stream, std::size_t front) {
  s.peer->raw(slice(stream, 0, front));
  s.peer->wait_until_read();
  s.peer->raw(slice(stream, front, stream.size() - front));
}

std::string name(Kind kind) {
  return kind == Kind::write ? "Write" : kind == Kind::send ? "Send" : "Read Response";
}

// --- received ---

// Holds: DDP-29 (extensions)
// Whatever was agreed on, wherever the first part of it ends.
void what_is_told_is_placed(void**) {
  for (const Setup& plain : kSetups)
    for (const Setup& setup : {plain, consenting(plain)})
      for (const Kind kind : kKinds)
        for (const std::size_t cut : {2100u, 20000u, 60000u})
          for (const std::size_t front : {kHead, kHead + 1500, cut + 2, cut + 16, cut + 60}) {
            Scene s(setup, kBuffer);
            s.open_responder();
            fill(s);
            const std::size_t octets = std::min<std::size_t>(4 * cut + 777, 250000);
            const Bytes whole = pattern(octets, static_cast<unsigned>(front));
            const Message m(s, kind, octets);
            give(s, m.stream(whole, cut), front);
            const ibv_wc wc = s.side.wait();
            assert_int_equal(wc.status, IBV_WC_SUCCESS);
            const std::string what =
                name(kind) + " by " + std::to_string(cut) + ", " + std::to_string(front) + " first, " + name_of(setup);
            if (!std::equal(whole.begin(), whole.end(), s.side.at(kAt))) fail_msg("%s: wrong octets", what.c_str());
            expect_untouched(s, 0, kAt, what);
            expect_untouched(s, kAt + octets, kBuffer, what);
          }
}

// Into a receive of several pieces nothing goes ahead.
void what_is_told_goes_into_pieces(void**) {
  Scene s(Setup{.initiator = true, .extensions = true}, kBuffer);
  const Bytes whole = pattern(100000);
  const auto piece = [&s](std::uint32_t at) { return s.side.sge(at, 25001); };
  assert_int_equal(s.side.receive({piece(100000), piece(0), piece(30000), piece(60000)}), 0);
  Bytes stream;
  for (std::uint32_t at = 0; at < 100000; at += 20000) {
    const Bytes g = send_segment(1, slice(whole, at, 20000), at, at == 80000);
    stream = concat({stream, s.peer->frame(told(g, at == 80000 ? 0 : 3 - at / 20000))});
  }
  give(s, stream, kHead);
  assert_int_equal(s.side.wait().status, IBV_WC_SUCCESS);
  std::size_t from = 0;
  for (const std::size_t at : {100000u, 0u, 30000u, 60000u}) {
    const std::size_t n = std::min<std::size_t>(25001, 100000 - from);
    assert_memory_equal(s.side.at(at), whole.data() + from, n);
    from += n;
  }
}

// Holds: DDP-29 (extensions)
// A peer that cannot go on with its message says so, and is understood.
void a_terminate_comes_instead(void**) {
  for (const Kind kind : kKinds)
    for (const std::size_t first : {1u, 2u}) {
      Scene s(Setup{.initiator = true, .extensions = true}, kBuffer);
      fill(s);
      constexpr std::size_t kCut = 2100;
      const Message m(s, kind, 10 * kCut);
      Bytes stream;
      for (std::size_t i = 0; i < first; ++i)
        stream = concat({stream, s.peer->frame(told(m.segment(i * kCut, pattern(kCut)), 8 - i))});
      give(s, concat({stream, s.peer->frame(terminate(0, 0, 0))}), kHead);
      s.peer->expect_fin();  // a Terminate is not answered with another
      s.expect_ended(name(kind));
      s.expect_completions(name(kind), {{kind == Kind::response ? 1 : 100, IBV_WC_WR_FLUSH_ERR}});
      expect_untouched(s, 0, kAt, name(kind));
      expect_untouched(s, kAt + 10 * kCut, kBuffer, name(kind));
    }
}

// Holds: DDP-29 (extensions)
// A peer that says what is not so: the stream ends, and nothing was stored but where its messages go.
void something_else_comes_instead(void**) {
  for (const Kind kind : kKinds) {
    Scene s(Setup{.initiator = true, .extensions = true}, kBuffer);
    fill(s);
    constexpr std::size_t kCut = 2100;
    const Message m(s, kind, 10 * kCut);
    const Bytes first = s.peer->frame(told(m.segment(0, pattern(kCut)), 8));
    const Bytes other = s.peer->frame(write_segment(s.side.mr->stag(), s.side.address(100000), pattern(kCut)));
    give(s, concat({first, other}), kHead);
    s.peer->expect(terminate(1, 0, 0), name(kind));
    s.expect_ended(name(kind));
    s.expect_completions(name(kind), {{kind == Kind::response ? 1 : 100, IBV_WC_WR_FLUSH_ERR}});
    expect_untouched(s, 0, kAt, name(kind));
    expect_untouched(s, kAt + 10 * kCut, 100000, name(kind));
    expect_untouched(s, 100000 + kCut, kBuffer, name(kind));
  }
}

// Holds: DDP-29 (extensions)
// What is told does not fit its region, its receive or its Read: it is judged when it comes, and not stored before.
void more_is_told_than_there_is_room_for(void**) {
  constexpr std::size_t kCut = 2100;
  for (const Kind kind : kKinds) {
    Scene s(Setup{.initiator = true, .extensions = true}, kBuffer);
    fill(s);
    const Message m(s, kind, 2 * kCut + 100);
    MemoryRegion* small =
        s.region(s.side.pd, kAt, 2 * kCut + 100, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, s.side.address(kAt));
    const auto segment = [&](std::size_t i) {
      if (kind == Kind::write)
        return write_segment(small->stag(), s.side.address(kAt + i * kCut), pattern(kCut), false);
      return m.segment(i * kCut, pattern(kCut));
    };
    Bytes stream;
    for (std::size_t i = 0; i < 3; ++i) stream = concat({stream, s.peer->frame(told(segment(i), 15))});
    give(s, stream, kHead);
    const Bytes bad = told(segment(2), 15);
    s.peer->expect(kind == Kind::send ? answer_to(bad, 1, 2, 5) : answer_to(bad, 1, 1, 1), name(kind));
    s.expect_ended(name(kind));
    expect_untouched(s, kAt + 2 * kCut, kBuffer, name(kind));
  }
}

// Holds: DDP-3
// Without consent these bits mean nothing, whatever follows.
void without_consent_nothing_is_told(void**) {
  Scene s(Setup{.initiator = true}, kBuffer);
  constexpr std::size_t kCut = 2100;
  assert_int_equal(s.side.receive({s.side.sge(50000, 10000)}), 0);
  fill(s);
  const Bytes payload = pattern(kCut), other = pattern(5000, 2);
  give(s,
       concat({s.peer->frame(told(write_segment(s.side.mr->stag(), s.side.address(kAt), payload, false), 15)),
               s.peer->frame(write_segment(s.side.mr->stag(), s.side.address(100), payload)),
               s.peer->frame(send_segment(1, other))}),
       kHead);
  assert_int_equal(s.side.wait().status, IBV_WC_SUCCESS);
  assert_memory_equal(s.side.at(50000), other.data(), other.size());
  assert_memory_equal(s.side.at(100), payload.data(), kAt - 100);
  expect_untouched(s, kAt + kCut, 50000, "behind the Write");
}

// --- sent ---

void expect_told(Scene& s, unsigned opcode, std::size_t octets) {
  std::size_t got = 0, first = 0;
  for (bool last = false; !last;) {
    const Segment g = s.peer->next_segment();
    assert_int_equal(g.opcode, opcode);
    first = std::max(first, g.payload.size());
    got += g.payload.size();
    last = g.last;
    const std::size_t behind = last ? 0 : (octets - got - 1) / first;
    if (g.ahead != std::min<std::size_t>(behind, 15)) fail_msg("told of %u instead of %zu", g.ahead, behind);
    if (!last) assert_int_equal(g.payload.size(), first);
  }
  assert_int_equal(got, octets);
}

// Holds: DDP-29 (extensions)
void what_follows_is_told(void**) {
  for (const bool crc : {false, true})
    for (const std::uint32_t octets : {100u, 64750u, 64751u, 64755u, 129508u, 129509u, 200000u, 1200000u}) {
      Scene s(Setup{.initiator = true, .crc = crc, .tcp = true, .extensions = true}, 2 << 20);
      const std::size_t at = 6144 - s.side.address(0) % 4096;  // amid a page a message has no lead (lead_test.cc)
      assert_int_equal(s.side.send(IBV_WR_SEND, {s.side.sge(at, octets)}), 0);
      expect_told(s, kSend, octets);
      assert_int_equal(s.side.send(IBV_WR_RDMA_WRITE, {s.side.sge(at, octets)}, 0, kKey), 0);
      expect_told(s, kWrite, octets);
      s.peer->send(read_request(1, 5, 0, octets, s.side.mr->stag(), s.side.address(0)));
      expect_told(s, kReadResponse, octets);
    }
}

// Holds: DDP-3
// The peer's script fails on reserved bits that are set.
void nothing_is_told_without_consent(void**) {
  Scene s(Setup{.initiator = true, .tcp = true}, 1 << 20);
  assert_int_equal(s.side.send(IBV_WR_RDMA_WRITE, {s.side.sge(0, 300000)}, 0, kKey), 0);
  for (bool last = false; !last;) last = s.peer->next_segment().last;
}

}  // namespace

int main() {
  stop_at_first_failure();
  set_waits("300", "0");
  const CMUnitTest tests[] = {
      cmocka_unit_test(what_is_told_is_placed),
      cmocka_unit_test(what_is_told_goes_into_pieces),
      cmocka_unit_test(a_terminate_comes_instead),
      cmocka_unit_test(something_else_comes_instead),
      cmocka_unit_test(more_is_told_than_there_is_room_for),
      cmocka_unit_test(without_consent_nothing_is_told),
      cmocka_unit_test(what_follows_is_told),
      cmocka_unit_test(nothing_is_told_without_consent),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
