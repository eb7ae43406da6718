// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What arrives: framing and segments, good and bad, on a live queue pair.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <thread>

#include "tests/wire/scene.h"

using namespace ewarp;
using namespace ewarp::wire;

namespace {

constexpr std::size_t kBuffer = 256 * 1024;
constexpr auto kAll = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

void fill(Scene& s, int value) {
  std::memset(s.side.at(0), value, s.side.memory_octets.size());
}

void expect_placed(Scene& s, std::size_t at, const Bytes& want, const std::string& what) {
  if (!std::equal(want.begin(), want.end(), s.side.at(at))) fail_msg("%s: wrong octets in memory", what.c_str());
}

// --- MPA ---

// Holds: MPA-7, MPA-16, DDP-23
// Whichever octet of an FPDU is hit, nothing of it nor behind it counts.
void mpa_7_a_hit_in_any_octet(void**) {
  const Bytes good = send_segment(2, pattern(9));
  const std::size_t octets = 2 + good.size() + 3 + 4;
  for (std::size_t at = 0; at < octets; ++at) {
    Scene s(Setup{.crc = true}, 8192);
    for (const std::uint64_t id : {100, 101, 102}) assert_int_equal(s.side.receive({s.side.sge(0, 64)}, id), 0);
    s.peer->send(send_segment(1, pattern(5)));
    Bytes fpdu = s.peer->frame(good);
    assert_int_equal(fpdu.size(), octets);
    fpdu[at] ^= std::byte{0x04};
    s.peer->raw(fpdu);
    s.peer->send(send_segment(2, pattern(9)));
    s.peer->send(send_segment(3, pattern(9)));
    s.peer->shut_down();  // a longer length would wait for more
    const std::string what = "octet " + std::to_string(at);
    s.expect_completions(what, {{100, IBV_WC_SUCCESS}, {101, IBV_WC_WR_FLUSH_ERR}, {102, IBV_WC_WR_FLUSH_ERR}});
    if (at >= 2) s.peer->expect(terminate(2, 0, 2), what);
  }
}

// MPA-7 where the payload is received straight into a receive buffer or a sink, and its CRC computed there: it counts
// no sooner, and what is beside the message stays as it was. The FPDU comes in pieces cut at `cut`.
void expect_direct_and_bad(const Bytes& good, std::size_t hit, std::size_t cut, bool read) {
  Scene s(Setup{.initiator = true, .crc = true}, kBuffer);
  fill(s, 0x33);
  Bytes ulpdu = good;
  if (read) {
    assert_int_equal(s.side.send(IBV_WR_RDMA_READ, {s.side.sge(1000, 60000)}, 0, 1), 0);
    const ReadFields r = dissect_read(s.peer->next_segment());
    ulpdu = read_response(r.sink_stag, r.sink_to, pattern(60000));
  } else {
    assert_int_equal(s.side.receive({s.side.sge(1000, 60000)}), 0);
  }
  Bytes fpdu = s.peer->frame(ulpdu);
  hit = std::min(hit, fpdu.size() - 1);
  fpdu[hit] ^= std::byte{0x20};
  s.peer->raw(slice(fpdu, 0, cut));
  poll(nullptr, 0, 2);
  s.peer->raw(slice(fpdu, cut, fpdu.size() - cut));
  s.peer->shut_down();
  const std::string what = "octet " + std::to_string(hit) + ", cut at " + std::to_string(cut);
  s.expect_completions(what, {{read ? 1 : 100, IBV_WC_WR_FLUSH_ERR}});
  for (const std::size_t at : {999, 61000}) assert_int_equal(*s.side.at(at), 0x33);
}

// Holds: MPA-7
void mpa_7_a_hit_in_what_goes_direct(void**) {
  const Bytes send = send_segment(1, pattern(60000));
  for (const bool read : {false, true})
    for (const std::size_t hit : {2u, 3u, 4u, 9u, 15u, 19u, 20u, 100u, 4000u, 5000u, 59990u, 60010u, 99999u})
      for (const std::size_t cut : {30u, 4000u, 59000u}) expect_direct_and_bad(send, hit, cut, read);
}

// Holds: MPA-4, DDP-24
// Good ones, in every kind of buffer: whole, in pieces, in pieces that are the same octets.
void direct_payloads_with_a_crc(void**) {
  for (const std::size_t cut : {30u, 1000u, 4000u, 59000u, 60010u}) {
    Scene s(Setup{.initiator = true, .crc = true}, kBuffer);
    const Bytes payload = pattern(60000);
    std::uint32_t msn = 1;
    const std::vector<std::vector<ibv_sge>> buffers = {
        {s.side.sge(1, 60000)},
        {s.side.sge(1, 20000), s.side.sge(20001, 50000)},
        {s.side.sge(1, 60000), s.side.sge(1, 10)},
        {s.side.sge(1, 30000), s.side.sge(1, 30000)},
    };
    for (const auto& sges : buffers) {
      fill(s, 0);
      assert_int_equal(s.side.receive(sges), 0);
      const Bytes fpdu = s.peer->frame(send_segment(msn++, payload));
      s.peer->raw(slice(fpdu, 0, cut));
      poll(nullptr, 0, 2);
      s.peer->raw(slice(fpdu, cut, fpdu.size() - cut));
      const ibv_wc wc = s.side.wait();
      assert_int_equal(wc.status, IBV_WC_SUCCESS);
      assert_int_equal(wc.byte_len, 60000);
      if (sges[0].length + sges.back().length == 60000 && sges.size() == 2 && sges[1].addr == sges[0].addr)
        expect_placed(s, 1, slice(payload, 30000, 30000), "the same octets twice");
      else
        expect_placed(s, 1, payload, "Send");
    }
    fill(s, 0);
    assert_int_equal(s.side.send(IBV_WR_RDMA_READ, {s.side.sge(1, 60000)}, 0, 1), 0);
    const ReadFields r = dissect_read(s.peer->next_segment());
    const Bytes fpdu = s.peer->frame(read_response(r.sink_stag, r.sink_to, payload));
    s.peer->raw(slice(fpdu, 0, cut));
    poll(nullptr, 0, 2);
    s.peer->raw(slice(fpdu, cut, fpdu.size() - cut));
    assert_int_equal(s.side.wait().status, IBV_WC_SUCCESS);
    expect_placed(s, 1, payload, "sink");
  }
}

// Holds: MPA-2, MPA-3, MPA-6, MPA-19
void mpa_2_6_pad_and_crc_field_without_meaning(void**) {
  for (const Setup& setup : kSetups) {
    Scene s(setup, 8192);
    for (std::uint32_t n = 0; n < 4; ++n) {
      assert_int_equal(s.side.receive({s.side.sge(0, 64)}, 100 + n), 0);
      Bytes fpdu = s.peer->frame(send_segment(1 + n, pattern(n, n)), 0xee);
      s.peer->raw(setup.crc ? fpdu : Peer::spoil_crc(fpdu));
      const ibv_wc wc = s.side.wait();
      assert_int_equal(wc.status, IBV_WC_SUCCESS);
      assert_int_equal(wc.byte_len, n);
      expect_placed(s, 0, pattern(n, n), "pad");
    }
  }
}

// Holds: MPA-14
// Too short for any segment, and too short for an untagged one.
void mpa_14_runts(void**) {
  for (const Setup& setup : kSetups)
    for (std::size_t n = 0; n < 18; ++n) {
      Scene s(setup, 8192);
      assert_int_equal(s.side.receive({s.side.sge(0, 64)}), 0);
      s.peer->send(slice(send_segment(1, {}), 0, n));
      const std::string what = name_of(setup) + ", ULPDU of " + std::to_string(n);
      s.peer->expect(terminate(1, 0, 0), what);
      s.peer->expect_fin();
      s.expect_completions(what, {{100, IBV_WC_WR_FLUSH_ERR}});
      if (n < 14) {
        Scene t(setup, 8192);
        t.peer->send(slice(write_segment(0, 0, {}), 0, n));
        t.peer->expect(terminate(1, 0, 0), what);
        t.peer->expect_fin();
      }
    }
}

// Holds: MPA-11, MPA-37, DDP-24
void mpa_11_the_longest_fpdu(void**) {
  for (const Setup& base : kSetups)
    for (const bool markers : {false, true}) {
      Setup setup = base;
      setup.rx_markers = markers;
      Scene s(setup, kBuffer);
      for (std::uint32_t round = 0; round < 3; ++round) {
        fill(s, 0x33);
        assert_int_equal(s.side.receive({s.side.sge(1, 70000)}), 0);
        const Bytes sent = pattern(65535 - 18, round), written = pattern(65535 - 14, round + 50);
        s.peer->send(write_segment(s.side.mr->stag(), s.side.address(100001), written));
        s.peer->send(send_segment(1 + round, sent));
        const ibv_wc wc = s.side.wait();
        assert_int_equal(wc.status, IBV_WC_SUCCESS);
        assert_int_equal(wc.byte_len, sent.size());
        expect_placed(s, 1, sent, "Send");
        expect_placed(s, 100001, written, "Write");
        for (const std::size_t at : {std::size_t{0}, 1 + sent.size(), std::size_t{100000}, 100001 + written.size()})
          assert_int_equal(*s.side.at(at), 0x33);
      }
    }
}

struct Mixed {
  Bytes stream;
  Bytes first, written, second;
  std::size_t read_octets;
};

// A short stream of every kind of message. The Read comes after the Write that it reads.
Mixed mixed(Scene& s, std::size_t unit) {
  Mixed m{{}, pattern(unit, 1), pattern(3 * unit + 1, 2), pattern(unit + 3, 3), 3 * unit + 1};
  const std::uint32_t stag = s.side.mr->stag();
  const auto half = static_cast<std::uint32_t>(m.second.size() / 2);
  for (const Bytes& ulpdu :
       {send_segment(1, m.first), write_segment(stag, s.side.address(50000), m.written),
        read_request(1, 0xabcd, 0x10, static_cast<std::uint32_t>(m.read_octets), stag, s.side.address(50000)),
        send_segment(2, slice(m.second, 0, half), 0, false),
        write_segment(0x5eed, 7, {}),  // between two segments of a message only tests send this
        send_segment(2, slice(m.second, half, m.second.size() - half), half, true), send_segment(3, {})})
    m.stream = concat({m.stream, s.peer->frame(ulpdu)});
  return m;
}

void post_for_mixed(Scene& s) {
  fill(s, 0);
  for (std::uint32_t i = 0; i < 3; ++i) assert_int_equal(s.side.receive({s.side.sge(16384 * i, 16384)}, 100 + i), 0);
}

void expect_mixed(Scene& s, const Mixed& m, const std::string& what) {
  const std::size_t lengths[] = {m.first.size(), m.second.size(), 0};
  for (std::uint64_t i = 0; i < 3; ++i) {
    const ibv_wc wc = s.side.wait();
    if (wc.status != IBV_WC_SUCCESS || wc.wr_id != 100 + i || wc.byte_len != lengths[i])
      fail_msg("%s: receive %lu: wr_id %lu, status %d, %u octets", what.c_str(), i, wc.wr_id, wc.status, wc.byte_len);
  }
  expect_placed(s, 0, m.first, what);
  expect_placed(s, 16384, m.second, what);
  expect_placed(s, 50000, m.written, what);
  Bytes response;
  for (;;) {
    const Segment g = s.peer->next_segment();
    EXPECT(what, g.is_tagged && g.opcode == kReadResponse && g.stag == 0xabcd && g.to == 0x10 + response.size());
    response = concat({response, g.payload});
    if (g.last) break;
  }
  EXPECT(what, response == m.written);
}

// Holds: MPA-10, MPA-17
void mpa_10_every_split_of_a_stream(void**) {
  for (const Setup& setup : kSetups)
    // With 1000 octets a unit and no CRC, payload goes straight to its target.
    for (const std::size_t unit : {std::size_t{6}, std::size_t{1000}}) {
      std::size_t total = 1;
      for (std::size_t cut = 1; cut < total; cut += unit < 100 ? 1 : 53) {
        Scene s(setup, 128 * 1024);
        post_for_mixed(s);
        const Mixed m = mixed(s, unit);
        total = m.stream.size();
        s.peer->raw(slice(m.stream, 0, cut));
        s.peer->wait_until_read();
        s.peer->raw(slice(m.stream, cut, total - cut));
        expect_mixed(s, m, name_of(setup) + ", cut at " + std::to_string(cut) + " of " + std::to_string(total));
      }
    }
}

// Holds: MPA-10, MPA-17
void mpa_10_octet_by_octet_and_all_at_once(void**) {
  for (const Setup& setup : kSetups)
    for (const std::size_t unit : {std::size_t{6}, std::size_t{1000}})
      for (const std::size_t piece : {std::size_t{1}, std::size_t{7}, std::size_t{100000}}) {
        Scene s(setup, 128 * 1024);
        post_for_mixed(s);
        const Mixed m = mixed(s, unit);
        for (std::size_t at = 0; at < m.stream.size(); at += piece) {
          s.peer->raw(slice(m.stream, at, std::min(piece, m.stream.size() - at)));
          if (unit == 6) s.peer->wait_until_read();
        }
        expect_mixed(s, m, name_of(setup) + ", pieces of " + std::to_string(piece));
      }
}

// --- DDP and RDMAP: segments that end the stream ---

struct Bad {
  const char* what;
  std::vector<Bytes> good;  // before it
  Bytes bad;
  unsigned layer, type, code;
};

Bytes with_first(Bytes b, unsigned ddp) {
  b[0] = static_cast<std::byte>(ddp);
  return b;
}
Bytes with_second(Bytes b, unsigned ulp) {
  b[1] = static_cast<std::byte>(ulp);
  return b;
}

std::vector<Bad> bad_segments() {
  const Bytes eight = pattern(8), read = slice(read_request(1, 1, 0, 0, 1, 0), 18, 28);
  const Bytes some = send_segment(1, eight), wr = write_segment(1, 0, eight);
  std::vector<Bad> all = {
      {"Send in a tagged segment", {}, with_second(wr, 0x43), 0, 2, 6},
      {"Read Request in a tagged segment", {}, with_second(wr, 0x41), 0, 2, 6},
      {"Terminate in a tagged segment", {}, with_second(wr, 0x47), 0, 2, 6},
      {"Write in an untagged segment", {}, with_second(some, 0x40), 0, 2, 6},
      {"Read Response in an untagged segment", {}, with_second(some, 0x42), 0, 2, 6},
      {"Read Response that nobody asked for", {}, read_response(1, 0, eight), 0, 2, 6},
      {"empty Read Response that nobody asked for", {}, read_response(1, 0, {}), 0, 2, 6},
      {"Send on the queue of requests", {}, untagged(0x41, 0x43, 0, 1, 1, 0, eight), 0, 2, 6},
      {"Send on the queue of Terminates", {}, untagged(0x41, 0x43, 0, 2, 1, 0, eight), 0, 2, 6},
      {"Read Request on queue 0", {}, untagged(0x41, 0x41, 0, 0, 1, 0, read), 0, 2, 6},
      {"Terminate on queue 0", {}, untagged(0x41, 0x47, 0, 0, 1, 0, Bytes(4)), 0, 2, 6},
      {"Send on queue 3", {}, untagged(0x41, 0x43, 0, 3, 1, 0, eight), 1, 2, 1},
      {"Send on the last queue number", {}, untagged(0x41, 0x43, 0, 0xffffffff, 1, 0, eight), 1, 2, 1},
      {"MSN 0", {}, send_segment(0, eight), 1, 2, 3},
      {"MSN 2 before 1", {}, send_segment(2, eight), 1, 2, 3},
      {"MSN 1 twice", {some}, some, 1, 2, 3},
      {"last MSN", {}, send_segment(0xffffffff, eight), 1, 2, 3},
      {"next MSN inside a message", {send_segment(1, eight, 0, false)}, send_segment(2, eight), 1, 2, 3},
      {"MO beyond the start", {}, send_segment(1, eight, 1), 1, 2, 4},
      {"gap", {send_segment(1, eight, 0, false)}, send_segment(1, eight, 9), 1, 2, 4},
      {"overlap", {send_segment(1, eight, 0, false)}, send_segment(1, eight, 7), 1, 2, 4},
      {"the same segment again", {send_segment(1, eight, 0, false)}, send_segment(1, eight, 0), 1, 2, 4},
      {"largest MO", {}, send_segment(1, eight, 0xffffffff), 1, 2, 4},
      {"largest MO inside a message", {send_segment(1, eight, 0, false)}, send_segment(1, eight, 0xfffffffc), 1, 2, 4},
      {"one octet more than the buffer", {}, send_segment(1, pattern(65)), 1, 2, 5},
      {"one octet more in a second segment",
       {send_segment(1, pattern(64), 0, false)},
       send_segment(1, pattern(1), 64),
       1,
       2,
       5},
      {"Read Request with MSN 2", {}, read_request(2, 1, 0, 0, 1, 0), 1, 2, 3},
      {"Read Request with MO 4", {}, untagged(0x41, 0x41, 0, 1, 1, 4, read), 1, 2, 4},
      {"Read Request that goes on", {}, untagged(0x01, 0x41, 0, 1, 1, 0, read), 0, 2, 0xff},
      {"Read Request of 27 octets", {}, untagged(0x41, 0x41, 0, 1, 1, 0, slice(read, 0, 27)), 0, 2, 0xff},
      {"Read Request of 29 octets", {}, untagged(0x41, 0x41, 0, 1, 1, 0, concat({read, u8(0)})), 0, 2, 0xff},
  };
  for (const unsigned dv : {0u, 2u, 3u}) {
    all.push_back({"DDP version, tagged", {}, with_first(wr, 0xc0 | dv), 1, 1, 4});
    all.push_back({"DDP version, untagged", {}, with_first(some, 0x40 | dv), 1, 2, 6});
  }
  for (const unsigned rv : {0u, 2u, 3u}) {
    all.push_back({"RDMAP version, tagged", {}, with_second(wr, rv << 6), 0, 2, 5});
    all.push_back({"RDMAP version, untagged", {}, with_second(some, rv << 6 | kSend), 0, 2, 5});
    all.push_back({"RDMAP version before opcode", {}, with_second(some, rv << 6 | 0x0e), 0, 2, 5});
  }
  // Opcodes of RFC 7306, unassigned ones, the experimental one: none without consent (MPA-71, RDM-36).
  for (unsigned op = 8; op < 16; ++op) {
    all.push_back({"opcode, untagged", {}, with_second(some, 0x40 | op), 0, 2, 6});
    all.push_back({"opcode, tagged", {}, with_second(wr, 0x40 | op), 0, 2, 6});
  }
  return all;
}

// Holds: MPA-71 (extensions), DDP-2, DDP-10, DDP-12, DDP-13, DDP-14, RDM-2, RDM-3, RDM-4, RDM-16, RDM-18, RDM-36
void bad_segments_are_answered(void**) {
  for (const Setup& setup : kSetups)
    for (const Bad& c : bad_segments()) {
      const std::string what = std::string(c.what) + ", " + name_of(setup);
      Scene s(setup, 8192);
      fill(s, 0x5a);
      for (const std::uint64_t id : {100, 101}) assert_int_equal(s.side.receive({s.side.sge(128, 64)}, id), 0);
      bool done = false;  // the first receive is used up
      for (const Bytes& g : c.good) {
        s.peer->send(g);
        done = (std::to_integer<unsigned>(g[0]) & 0x40) != 0;
      }
      s.peer->send(c.bad);
      s.peer->send(send_segment(done ? 2 : 1, pattern(3)));
      s.peer->expect(answer_to(c.bad, c.layer, c.type, c.code), what);
      s.peer->expect_fin();
      const bool too_long = c.layer == 1 && c.type == 2 && c.code == 5;
      s.expect_completions(what, {{100, done       ? IBV_WC_SUCCESS
                                        : too_long ? IBV_WC_LOC_LEN_ERR
                                                   : IBV_WC_WR_FLUSH_ERR},
                                  {101, IBV_WC_WR_FLUSH_ERR}});
      s.expect_ended(what);
      for (std::size_t i = 0; i < 8192; ++i)
        if (*s.side.at(i) != std::byte{0x5a} && (i < 128 || i >= 128 + 64)) fail_msg("%s: octet %zu", what.c_str(), i);
    }
}

// Holds: DDP-3, RDM-5, VRB-28
// Reserved bits and the unused Invalidate field mean nothing.
void ddp_3_reserved_bits_are_ignored(void**) {
  for (const Setup& setup : kSetups) {
    Scene s(setup, 8192);
    assert_int_equal(s.side.receive({s.side.sge(0, 64)}), 0);
    s.peer->send(tagged(0xfd, 0x70, s.side.mr->stag(), s.side.address(1000), pattern(20, 4)));
    s.peer->send(untagged(0x7d, 0x73, 0x0badbad0, 0, 1, 0, pattern(30, 5)));
    const ibv_wc wc = s.side.wait();
    assert_int_equal(wc.status, IBV_WC_SUCCESS);
    assert_int_equal(wc.wc_flags, 0);
    expect_placed(s, 0, pattern(30, 5), "Send");
    expect_placed(s, 1000, pattern(20, 4), "Write");
  }
}

// Holds: DDP-19, DDP-20, RDM-38
void ddp_19_20_messages_without_octets(void**) {
  for (const Setup& setup : kSetups) {
    Scene s(setup, 8192);
    fill(s, 0x5a);
    assert_int_equal(s.side.receive({}, 100), 0);
    assert_int_equal(s.side.receive({s.side.sge(0, 64)}, 101), 0);
    assert_int_equal(s.side.receive({ibv_sge{0x10, 0, 0xdead}}, 102), 0);
    for (const std::uint64_t to : {std::uint64_t{0}, ~std::uint64_t{0}})
      s.peer->send(write_segment(0xdeadbeef, to, {}));
    for (std::uint32_t msn = 1; msn <= 3; ++msn) s.peer->send(send_segment(msn, {}));
    s.expect_completions("empty", {{100, IBV_WC_SUCCESS}, {101, IBV_WC_SUCCESS}, {102, IBV_WC_SUCCESS}});
    for (std::size_t i = 0; i < 8192; ++i) assert_int_equal(*s.side.at(i), 0x5a);
    // The next one finds no buffer: those above were consumed.
    s.peer->send(send_segment(4, {}));
    s.peer->expect(answer_to(send_segment(4, {}), 1, 2, 2));
  }
}

// Holds: DDP-22, RDM-24, VRB-35
// The length is where the last segment ends; the message is whole before it is told of.
void ddp_22_messages_of_many_segments(void**) {
  for (const Setup& setup : kSetups) {
    Scene s(setup, kBuffer);
    const Bytes whole = pattern(50000, 9);
    std::uint32_t msn = 0;
    for (const std::size_t cut : {std::size_t{1}, std::size_t{999}, std::size_t{16000}, std::size_t{49999}}) {
      fill(s, 0);
      ++msn;
      assert_int_equal(s.side.receive({s.side.sge(0, 10000), s.side.sge(20000, 0), s.side.sge(30000, 40000)}), 0);
      const std::size_t step = cut == 1 ? 5000 : cut;
      for (std::size_t at = 0; at < whole.size();) {
        const std::size_t n = std::min(at == 0 ? cut : step, whole.size() - at);
        s.peer->send(send_segment(msn, slice(whole, at, n), static_cast<std::uint32_t>(at), at + n == whole.size()));
        at += n;
      }
      const ibv_wc wc = s.side.wait();
      assert_int_equal(wc.status, IBV_WC_SUCCESS);
      assert_int_equal(wc.byte_len, whole.size());
      expect_placed(s, 0, slice(whole, 0, 10000), "first piece");
      expect_placed(s, 30000, slice(whole, 10000, 40000), "second piece");
    }
  }
}

// --- memory ---

struct Range {
  const char* what;
  std::int64_t from;  // relative to the region's first octet
  std::size_t octets;
  bool good;
};
constexpr std::size_t kRegion = 5000, kOffset = 10000;
constexpr Range kRanges[] = {
    {"first octet", 0, 1, true},
    {"last octet", kRegion - 1, 1, true},
    {"all", 0, kRegion, true},
    {"octet before", -1, 1, false},
    {"octet behind", kRegion, 1, false},
    {"over the end", kRegion - 1, 2, false},
    {"over the begin", -1, 2, false},
    {"one more", 0, kRegion + 1, false},
    {"around", -1, kRegion + 2, false},
    {"all but earlier", -1, kRegion, false},
    {"all but later", 1, kRegion, false},
};

// Holds: DDP-16, DDP-18, DDP-24, RDM-11
// To the octet at both ends, however the region names its first one.
void ddp_16_24_bounds_to_the_octet(void**) {
  for (const Setup& setup : kSetups)
    for (const int naming : {0, 1, 2})
      for (const Range& r : kRanges)
        for (const bool reading : {false, true}) {
          Scene s(setup, 3 * kOffset);
          fill(s, 0x5a);
          const std::uint64_t base = naming == 0 ? s.side.address(kOffset) : naming == 1 ? 0x7000'0000'1234 : 0;
          const unsigned access = naming == 2 ? kAll | IBV_ACCESS_ZERO_BASED : kAll;
          MemoryRegion* mr = s.region(s.side.pd, kOffset, kRegion, access, base);
          const std::string what = name_of(setup) + ", " + r.what + (reading ? ", Read" : ", Write");
          const std::uint64_t to = base + static_cast<std::uint64_t>(r.from);
          const bool wraps = to + r.octets < to || (to + r.octets == 0);
          const Bytes data = pattern(r.octets, 3);
          const Bytes ulpdu = reading ? read_request(1, 5, 6, static_cast<std::uint32_t>(r.octets), mr->stag(), to)
                                      : write_segment(mr->stag(), to, data);
          s.peer->send(ulpdu);
          const std::size_t at = kOffset + static_cast<std::size_t>(r.from);
          if (!r.good) {
            Bytes answer = answer_to(ulpdu, reading ? 0 : 1, 1, wraps ? (reading ? 4 : 3) : 1);
            if (reading) {
              answer = concat({answer, slice(ulpdu, 18, 28)});
              answer[20] = std::byte{0xe0};
            }
            s.peer->expect(answer, what);
            for (std::size_t i = 0; i < 3 * kOffset; ++i)
              if (*s.side.at(i) != std::byte{0x5a}) fail_msg("%s: octet %zu was written", what.c_str(), i);
            continue;
          }
          if (reading) {
            Bytes got;
            for (bool last = false; !last;) {
              const Segment g = s.peer->next_segment();
              got = concat({got, g.payload});
              last = g.last;
            }
            EXPECT(what, got == Bytes(r.octets, std::byte{0x5a}));
            continue;
          }
          s.peer->send(read_request(1, 5, 6, 0, 0, 0));  // its answer says that the Write was placed
          assert_int_equal(s.peer->next_segment().opcode, kReadResponse);
          expect_placed(s, at, data, what);
          for (std::size_t i = 0; i < 3 * kOffset; ++i)
            if (*s.side.at(i) != std::byte{0x5a} && (i < at || i >= at + r.octets))
              fail_msg("%s: octet %zu", what.c_str(), i);
        }
}

// Holds: DDP-15
// A key that is right but for one bit; keys of regions that are gone or were changed.
void ddp_15_forged_and_stale_stags(void**) {
  for (int bit = 0; bit < 34; ++bit) {
    Scene s(Setup{}, 8192);
    fill(s, 0x5a);
    std::uint32_t stag = s.side.mr->stag();
    if (bit < 32) {
      stag ^= 1u << bit;
    } else if (bit == 32) {
      stag = 0;
    } else {
      stag = s.region(s.side.pd, 0, 100, kAll, s.side.address(0))->stag();
      s.regions.clear();
    }
    const Bytes ulpdu = write_segment(stag, s.side.address(0), pattern(50));
    s.peer->send(ulpdu);
    s.peer->expect(answer_to(ulpdu, 1, 1, 0), "bit " + std::to_string(bit));
    for (std::size_t i = 0; i < 8192; ++i) assert_int_equal(*s.side.at(i), 0x5a);
  }
}

// Holds: DDP-21
// No right to write remotely.
void ddp_21_a_missing_right_is_an_invalid_stag(void**) {
  for (const unsigned access : {unsigned{IBV_ACCESS_LOCAL_WRITE}, unsigned{IBV_ACCESS_REMOTE_READ}, 0u}) {
    Scene s(Setup{}, 8192);
    fill(s, 0x5a);
    const Bytes ulpdu =
        write_segment(s.region(s.side.pd, 0, 100, access, s.side.address(0))->stag(), s.side.address(0), pattern(50));
    s.peer->send(ulpdu);
    s.peer->expect(answer_to(ulpdu, 1, 1, 0), "rights " + std::to_string(access));
    for (std::size_t i = 0; i < 8192; ++i) assert_int_equal(*s.side.at(i), 0x5a);
  }
}

// Looks at memory that a peer is writing, as applications do that wait for a Write.
[[gnu::noinline, gnu::no_sanitize_thread]] unsigned peek(const std::byte* at) {
  return *reinterpret_cast<const volatile unsigned char*>(at);
}

// Holds: DDP-25
// When deregistration has returned, the memory is the application's alone, whatever is still arriving.
void ddp_25_nothing_is_written_after_deregistration(void**) {
  for (const bool crc : {false, true})
    for (const std::size_t octets : {std::size_t{200}, std::size_t{30000}})
      for (int round = 0; round < 25; ++round) {
        Scene s(Setup{.initiator = true, .crc = crc}, 65536);
        MemoryRegion* mr = s.region(s.side.pd, 0, 32768, kAll, s.side.address(0));
        const Bytes fpdu = s.peer->frame(write_segment(mr->stag(), s.side.address(0), pattern(octets, 7)));
        std::atomic<bool> stop{false};
        Peer& peer = *s.peer;
        std::thread writer([&] {
          while (!stop) peer.raw(fpdu);
        });
        const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(5);
        const std::byte* const end = s.side.at(octets - 1);
        while (peek(end) == 0 && std::chrono::steady_clock::now() < until) std::this_thread::yield();
        const bool began = peek(end) != 0;
        s.regions.clear();
        std::memset(s.side.at(0), 0x77, 32768);
        const bool ended = s.side.reaches(IBV_QPS_ERR);
        stop = true;
        writer.join();
        assert_true(began);
        assert_true(ended);
        for (std::size_t i = 0; i < 32768; ++i) assert_int_equal(*s.side.at(i), 0x77);
      }
}

// Holds: RDM-6, RDM-8, VRB-29
void rdm_6_send_with_invalidate(void**) {
  for (const Setup& setup : kSetups)
    for (const unsigned opcode : {kSendInv, kSendSeInv}) {
      Scene s(setup, 8192);
      const std::uint32_t stag = s.region(s.side.pd, 4096, 100, kAll, s.side.address(4096))->stag();
      assert_int_equal(s.side.receive({s.side.sge(0, 64)}, 100), 0);
      assert_int_equal(s.side.receive({s.side.sge(0, 64)}, 101), 0);
      s.peer->send(write_segment(stag, s.side.address(4096), pattern(100)));
      // Two segments: the key stays good until the last has arrived.
      s.peer->send(send_segment(1, pattern(10), 0, false, opcode, stag));
      s.peer->send(write_segment(stag, s.side.address(4096), pattern(100, 2)));
      s.peer->send(send_segment(1, pattern(10, 2), 10, true, opcode, stag));
      const ibv_wc wc = s.side.wait();
      assert_int_equal(wc.status, IBV_WC_SUCCESS);
      assert_int_equal(wc.byte_len, 20);
      assert_int_equal(wc.wc_flags, IBV_WC_WITH_INV);
      assert_int_equal(wc.invalidated_rkey, stag);
      const Bytes late = write_segment(stag, s.side.address(4096), pattern(100, 3));
      s.peer->send(late);
      s.peer->expect(answer_to(late, 1, 1, 0));
      expect_placed(s, 4096, pattern(100, 2), "after invalidation");
      s.expect_completions("invalidate", {{101, IBV_WC_WR_FLUSH_ERR}});
    }
}

// A window that is bound to a region.
struct WindowOn {
  WindowOn(test::Side& side, std::uint32_t lkey, std::uint64_t address) {
    std::uint32_t rkey = 0;
    assert_int_equal(memory().add_window(side.pd, IBV_MW_TYPE_1, &window, &rkey), 0);
    assert_true(memory().bind({rkey, lkey, address, 10, IBV_ACCESS_REMOTE_READ}, side.pd, 0));
  }
  ~WindowOn() { memory().remove_window(window); }
  MemoryRegion* window = nullptr;
};

// Holds: RDM-7
void rdm_7_what_cannot_be_invalidated(void**) {
  for (const Setup& setup : kSetups)
    for (const int kind : {0, 1, 2, 3}) {
      Scene s(setup, 8192);
      const std::uint32_t foreign = s.region(s.other_pd, 4096, 100, kAll, s.side.address(4096))->stag();
      const std::uint32_t bound =
          s.region(s.side.pd, 4096, 100, kAll | IBV_ACCESS_MW_BIND, s.side.address(4096))->stag();
      const WindowOn window(s.side, bound, s.side.address(4096));
      const std::uint32_t stag = std::array{0u, foreign, s.side.mr->stag() ^ 1, bound}[static_cast<std::size_t>(kind)];
      assert_int_equal(s.side.receive({s.side.sge(0, 64)}, 100), 0);
      const Bytes ulpdu = send_segment(1, pattern(8), 0, true, kSendInv, stag);
      s.peer->send(ulpdu);
      s.peer->expect(answer_to(ulpdu, 0, 1, 9));
      s.expect_completions("invalidate", {{100, IBV_WC_WR_FLUSH_ERR}});
      assert_int_equal(s.regions.front()->stag(), foreign);
    }
}

// Holds: RDM-8, VRB-17
void rdm_8_solicited_events(void**) {
  for (const Setup& setup : kSetups) {
    Scene s(setup, 8192);
    std::uint32_t msn = 1;
    for (const unsigned opcode : {kSendSe, kSendSeInv}) {
      s.side.cq.arm(true);
      for (const unsigned op : {kSend, kSendInv, opcode}) {
        const std::uint32_t stag = s.region(s.side.pd, 4096, 100, kAll, s.side.address(4096))->stag();
        assert_int_equal(s.side.receive({s.side.sge(0, 64)}), 0);
        s.peer->send(send_segment(msn++, pattern(4), 0, true, op, stag));
        assert_int_equal(s.side.wait().status, IBV_WC_SUCCESS);
        if (op != opcode) assert_false(s.side.cq_event(0));
      }
      assert_true(s.side.cq_event());
      assert_false(s.side.cq_event(0));
    }
    // An error is solicited, whoever asked for it.
    s.side.cq.arm(true);
    assert_int_equal(s.side.receive({s.side.sge(0, 64)}), 0);
    s.peer->close();
    assert_true(s.side.cq_event());
  }
}

// Holds: VRB-13
// The receive's own memory is not good.
void receive_into_bad_memory(void**) {
  for (const Setup& setup : kSetups)
    for (const int kind : {0, 1, 2, 3}) {
      Scene s(setup, 8192);
      fill(s, 0x5a);
      const std::uint32_t lkeys[] = {0, s.side.mr->stag() ^ 1,
                                     s.region(s.side.pd, 0, 4096, 0, s.side.address(0))->stag(),
                                     s.region(s.other_pd, 0, 4096, kAll, s.side.address(0))->stag()};
      assert_int_equal(s.side.receive({ibv_sge{s.side.address(0), 64, lkeys[kind]}}, 100), 0);
      assert_int_equal(s.side.receive({s.side.sge(0, 64)}, 101), 0);
      const Bytes ulpdu = send_segment(1, pattern(8));
      s.peer->send(ulpdu);
      s.peer->expect(answer_to(ulpdu, 1, 0, 0));
      s.peer->expect_fin();
      s.expect_completions("bad memory", {{100, IBV_WC_LOC_PROT_ERR}, {101, IBV_WC_WR_FLUSH_ERR}});
      for (std::size_t i = 0; i < 8192; ++i) assert_int_equal(*s.side.at(i), 0x5a);
    }
}

}  // namespace

int main() {
  stop_at_first_failure();
  setenv("ETHERWARP_INVALIDATE_REGIONS", "yes", 1);  // rdm_6
  set_waits("500", "0");
  const CMUnitTest tests[] = {
      cmocka_unit_test(mpa_7_a_hit_in_any_octet),
      cmocka_unit_test(mpa_7_a_hit_in_what_goes_direct),
      cmocka_unit_test(direct_payloads_with_a_crc),
      cmocka_unit_test(mpa_2_6_pad_and_crc_field_without_meaning),
      cmocka_unit_test(mpa_14_runts),
      cmocka_unit_test(mpa_11_the_longest_fpdu),
      cmocka_unit_test(mpa_10_every_split_of_a_stream),
      cmocka_unit_test(mpa_10_octet_by_octet_and_all_at_once),
      cmocka_unit_test(bad_segments_are_answered),
      cmocka_unit_test(ddp_3_reserved_bits_are_ignored),
      cmocka_unit_test(ddp_19_20_messages_without_octets),
      cmocka_unit_test(ddp_22_messages_of_many_segments),
      cmocka_unit_test(ddp_16_24_bounds_to_the_octet),
      cmocka_unit_test(ddp_15_forged_and_stale_stags),
      cmocka_unit_test(ddp_21_a_missing_right_is_an_invalid_stag),
      cmocka_unit_test(ddp_25_nothing_is_written_after_deregistration),
      cmocka_unit_test(rdm_6_send_with_invalidate),
      cmocka_unit_test(rdm_7_what_cannot_be_invalidated),
      cmocka_unit_test(rdm_8_solicited_events),
      cmocka_unit_test(receive_into_bad_memory),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
