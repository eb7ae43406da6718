// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// MPA start-up frames: octets against the vectors, delivery in pieces, what is refused.
#include <algorithm>

#include "tests/mpa/startup_tests.h"

namespace ewarp::test {

using mpa::FrameReader;
using mpa::Initiator;
using mpa::Responder;
using mpa::StartupConfig;
using mpa::StartupFrame;

Bytes raw_frame(bool reply, unsigned flags, unsigned revision, const Bytes& data) {
  const std::string_view key = reply ? "MPA ID Rep Frame" : "MPA ID Req Frame";
  Bytes out;
  for (const char c : key) out.push_back(static_cast<std::byte>(c));
  for (const std::size_t octet : {std::size_t{flags}, std::size_t{revision}, data.size() >> 8, data.size() & 0xff})
    out.push_back(static_cast<std::byte>(octet));
  return concat({out, data});
}

Bytes raw_word(bool peer_to_peer, unsigned rtr, unsigned ird, unsigned ord) {
  const unsigned first = (peer_to_peer ? 0x8000u : 0) | ((rtr & mpa::kRtrSend) != 0 ? 0x4000u : 0) | ird;
  const unsigned second =
      ((rtr & mpa::kRtrWrite) != 0 ? 0x8000u : 0) | ((rtr & mpa::kRtrRead) != 0 ? 0x4000u : 0) | ord;
  return {static_cast<std::byte>(first >> 8), static_cast<std::byte>(first & 0xff), static_cast<std::byte>(second >> 8),
          static_cast<std::byte>(second & 0xff)};
}

Bytes numbered(std::size_t n) {
  Bytes out(n);
  for (std::size_t i = 0; i < n; ++i) out[i] = static_cast<std::byte>(i & 0xff);
  return out;
}

namespace {

// Hands `octets` over as a socket would: never more than want().
template <class Side>
auto pump(Side& side, Octets octets) {
  auto outcome = side.feed({});
  while (!octets.empty() && side.want() > 0) {
    const std::size_t n = std::min(octets.size(), side.want());
    outcome = side.feed(octets.first(n));
    octets = octets.subspan(n);
  }
  return outcome;
}

}  // namespace

Initiator against(const StartupConfig& config, const Bytes& reply, Initiator::Outcome expected) {
  Initiator initiator(config, {});
  assert_int_equal(static_cast<int>(pump(initiator, reply)), static_cast<int>(expected));
  return initiator;
}

Responder with_request(const Bytes& request) {
  Responder responder;
  assert_int_equal(static_cast<int>(pump(responder, request)), static_cast<int>(Responder::Outcome::request));
  return responder;
}

Dialogue converse(const StartupConfig& initiator_config, const StartupConfig& responder_config) {
  Initiator initiator(initiator_config, {});
  const Bytes request = exact(initiator.request());
  Responder responder = with_request(request);
  const Bytes reply = responder.accept(responder_config, {});
  const Initiator::Outcome outcome = pump(initiator, reply);
  return {outcome, initiator.params(), responder.params(), request, reply};
}

namespace {

const Json& startup_json() {
  static const Json j = load("mpa_startup.json");
  return j;
}

const Json& siw_json() {
  static const Json j = load("siw_golden.json");
  return j;
}

const Json& vector_of(const std::string& id) {
  for (const Json& v : startup_json()["vectors"])
    if (v["id"] == id) return v;
  fail_msg("no vector %s", id.c_str());
  return startup_json();
}

// The value that the vector's `fields` describe; private data that is not spelled out there is taken from the frame.
StartupFrame frame_from(const Json& v, const char* rdma_write_key, const char* private_key) {
  const Json& f = v["fields"];
  StartupFrame frame;
  const auto kind = f["kind"].get<std::string>();
  frame.reply = kind == "reply" || kind == "Reply";
  frame.markers = flag(f, "M");
  frame.crc = flag(f, "C");
  frame.reject = flag(f, "R");
  frame.revision = static_cast<std::uint8_t>(number(f["Rev"]));
  if (flag(f, "S")) {
    mpa::Enhanced e;
    e.peer_to_peer = flag(f, "A");
    if (flag(f, "B")) e.rtr |= mpa::kRtrSend;
    if (flag(f, rdma_write_key)) e.rtr |= mpa::kRtrWrite;
    if (flag(f, "D")) e.rtr |= mpa::kRtrRead;
    e.ird = static_cast<std::uint16_t>(number(f["IRD"]));
    e.ord = static_cast<std::uint16_t>(number(f["ORD"]));
    frame.enhanced = e;
  }
  if (f.contains(private_key)) {
    frame.private_data = hex(f[private_key]);
  } else {
    const std::size_t data = number(f["PD_Length"]) - (frame.enhanced ? 4 : 0);
    const Bytes whole = hex(v["frame_hex"]);
    frame.private_data = Bytes(whole.end() - static_cast<std::ptrdiff_t>(data), whole.end());
  }
  return frame;
}

struct GoldenFrame {
  std::string id;
  Bytes octets;
  StartupFrame value;
};

// All frames that are right, with the value each stands for.
std::vector<GoldenFrame> golden_frames() {
  std::vector<GoldenFrame> out;
  for (const Json& v : startup_json()["vectors"])
    if (!v["fields"].empty()) out.push_back({v["id"], hex(v["frame_hex"]), frame_from(v, "C_flag", "private_hex")});
  for (const Json& v : siw_json()["startup"])
    out.push_back({v["id"], hex(v["frame_hex"]), frame_from(v, "Cflag", "private")});
  return out;
}

// Holds: MPA-50, MPA-64
void mpa_50_and_64_decode_agrees_with_the_vectors(void**) {
  const auto frames = golden_frames();
  assert_true(frames.size() >= 11 + 12);
  for (const auto& g : frames) {
    const auto got = StartupFrame::parse(exact(g.octets));
    EXPECT(g.id, got.ok());
    EXPECT(g.id, got.value() == g.value);
  }
}

// Holds: MPA-50, MPA-64
void mpa_50_and_64_encode_agrees_with_the_vectors(void**) {
  for (const auto& g : golden_frames()) expect_octets(g.value.emit(), g.octets, g.id);
}

// Holds: MPA-78
void mpa_78_siw_frames_re_encode_identically(void**) {
  for (const Json& v : siw_json()["startup"]) {
    const Bytes frame = hex(v["frame_hex"]);
    const auto got = StartupFrame::parse(frame);
    assert_true(got.ok());
    expect_octets(got.value().emit(), frame, v["id"]);
  }
}

void truncated_or_overlong_frames_do_not_parse(void**) {
  for (const auto& g : golden_frames()) {
    for (std::size_t n = 0; n < g.octets.size(); ++n)
      EXPECT(g.id, !StartupFrame::parse(exact(Octets(g.octets).first(n))).ok());
    EXPECT(g.id, !StartupFrame::parse(concat({g.octets, Bytes(1)})).ok());
  }
}

// Reads `stream` in pieces of the sizes that `next_size` gives (bounded by want(), as a socket reader does).
template <class NextSize>
bool read_in_pieces(FrameReader& reader, Octets stream, bool reply, NextSize next_size) {
  while (reader.want() > 0 && !stream.empty()) {
    const std::size_t n = std::min({reader.want(), stream.size(), next_size()});
    if (!reader.feed(exact(stream.first(n)), reply)) return false;
    stream = stream.subspan(n);
  }
  return reader.complete();
}

// Holds: MPA-61
void mpa_61_frames_arrive_in_single_octets(void**) {
  for (const auto& g : golden_frames()) {
    FrameReader reader;
    EXPECT(g.id, read_in_pieces(reader, g.octets, g.value.reply, [] { return std::size_t{1}; }));
    expect_octets(reader.frame(), g.octets, g.id);
  }
}

// Holds: MPA-61
void mpa_61_frames_arrive_in_every_two_pieces(void**) {
  for (const auto& g : golden_frames()) {
    for (std::size_t cut = 1; cut < g.octets.size(); ++cut) {
      FrameReader reader;
      bool first = true;  // up to the cut, then whatever is wanted
      std::size_t left = cut;
      const auto next = [&] {
        if (left == 0) first = false;
        const std::size_t n = first ? std::min(left, reader.want()) : g.octets.size();
        left -= first ? n : 0;
        return n;
      };
      EXPECT(g.id, read_in_pieces(reader, g.octets, g.value.reply, next));
      expect_octets(reader.frame(), g.octets, g.id);
    }
  }
}

// Holds: MPA-62
void mpa_62_octets_behind_the_frame_stay_unread(void**) {
  for (const auto& g : golden_frames()) {
    const Bytes stream = concat({g.octets, numbered(600)});
    FrameReader reader;
    std::size_t taken = 0;
    while (reader.want() > 0) {
      const std::size_t n = reader.want();
      assert_true(reader.feed(Octets(stream).subspan(taken, n), g.value.reply));
      taken += n;
    }
    assert_int_equal(taken, g.octets.size());
    expect_octets(reader.frame(), g.octets, g.id);
  }
}

// Holds: MPA-62
void mpa_62_more_than_was_wanted_is_an_error(void**) {
  const Bytes request = raw_frame(false, kC, 1, {});
  FrameReader reader;
  assert_false(reader.feed(concat({request, Bytes(1)}), false));
  assert_false(reader.why().empty());
  assert_int_equal(reader.want(), 0);
  assert_false(reader.complete());
}

// Holds: MPA-51, MPA-52, MPA-53, MPA-54, MPA-55
void mpa_51_to_55_bad_frames_are_refused(void**) {
  for (const char* id : {"STA-N1", "STA-N2", "STA-N3", "STA-N5", "STA-N6"}) {
    Responder responder;
    const Bytes frame = hex(vector_of(id)["frame_hex"]);
    EXPECT(id, pump(responder, frame) == Responder::Outcome::failed);
    EXPECT(id, !responder.why().empty());
    EXPECT(id, responder.want() == 0);
    // It stays failed, whatever follows.
    EXPECT(id, responder.feed(raw_frame(false, kC, 1, {})) == Responder::Outcome::failed);
  }
}

// Holds: MPA-51
void mpa_51_wrong_key_shows_with_the_octet_that_is_wrong(void**) {
  for (std::size_t at = 0; at < 16; ++at) {
    Bytes frame = raw_frame(false, kC, 1, {});
    frame[at] ^= std::byte{0x20};
    FrameReader reader;
    for (std::size_t i = 0; i < at; ++i) assert_true(reader.feed(Octets(frame).subspan(i, 1), false));
    assert_false(reader.feed(Octets(frame).subspan(at, 1), false));
  }
}

// Holds: MPA-52
void mpa_52_initiator_meeting_an_initiator_says_so(void**) {
  Initiator initiator(StartupConfig{}, {});
  assert_true(pump(initiator, raw_frame(false, kC, 1, {})) == Initiator::Outcome::failed);
  assert_true(initiator.why().find("both sides initiate") != std::string_view::npos);
}

// Holds: MPA-53
void mpa_53_length_above_512_is_refused_before_it_is_read(void**) {
  for (const std::size_t n : {std::size_t{513}, std::size_t{1024}, std::size_t{65535}}) {
    FrameReader reader;
    const Bytes frame = raw_frame(false, kC, 1, numbered(n));
    assert_false(reader.feed(Octets(frame).first(20), false));
    assert_int_equal(reader.want(), 0);
  }
}

// Holds: MPA-54
void mpa_54_truncated_private_data_never_completes(void**) {
  Responder responder;
  const Bytes frame = hex(vector_of("STA-N4")["frame_hex"]);
  assert_true(pump(responder, frame) == Responder::Outcome::more);
  assert_int_equal(responder.want(), 3);  // a FIN or a timer now means: close
}

// Holds: MPA-55
void mpa_55_revisions(void**) {
  for (unsigned revision = 0; revision < 256; ++revision) {
    Responder responder;
    const auto outcome = pump(responder, raw_frame(false, kC, revision, {}));
    const bool known = revision == 1 || revision == 2;
    assert_true(outcome == (known ? Responder::Outcome::request : Responder::Outcome::failed));
    Initiator initiator(StartupConfig{.enhanced = false}, {});
    const auto answer = pump(initiator, raw_frame(true, kC, revision, {}));
    assert_true(answer == (known ? Initiator::Outcome::accepted : Initiator::Outcome::failed));
  }
}

// Holds: MPA-56
void mpa_56_reserved_bits_change_nothing(void**) {
  // STA-N7: Rev 1 makes the place of S a reserved one too.
  const Bytes odd = hex(vector_of("STA-N7")["frame_hex"]);
  for (const unsigned s : {0u, kS}) {
    Bytes frame = odd;
    frame[16] |= static_cast<std::byte>(s);
    const auto got = StartupFrame::parse(frame);
    assert_true(got.ok());
    StartupFrame plain = got.value();
    assert_int_equal(plain.reserved, 0x0f);
    plain.reserved = 0;
    assert_true(plain == StartupFrame::parse(hex(vector_of("STA-1")["frame_hex"])).value());
  }
}

// Holds: MPA-56
void mpa_56_reserved_bits_are_sent_as_zero(void**) {
  const StartupConfig config{.extensions = false};
  Initiator initiator(config, {});
  assert_int_equal(std::to_integer<unsigned>(initiator.request()[16]) & 0x0f, 0);
  for (unsigned reserved = 0; reserved < 16; ++reserved) {
    auto responder = with_request(raw_frame(false, kC | reserved, 1, {}));
    assert_int_equal(std::to_integer<unsigned>(responder.accept(config, {})[16]) & 0x0f, 0);
    assert_int_equal(std::to_integer<unsigned>(responder.reject(StartupConfig{}, {})[16]) & 0x0f, 0);
  }
}

// Holds: MPA-56
void mpa_56_reject_bit_of_a_request_means_nothing(void**) {
  auto responder = with_request(raw_frame(false, kC | kR, 1, {}));
  const auto reply = StartupFrame::parse(responder.accept(StartupConfig{}, {}));
  assert_true(reply.ok());
  assert_false(reply.value().reject);
}

// Holds: MPA-57
void mpa_57_private_data_of_every_length_both_ways(void**) {
  for (const bool enhanced : {false, true}) {
    for (std::size_t n = 0; n <= mpa::max_private_data(enhanced); ++n) {
      const Bytes there = numbered(n);
      Bytes back = numbered(n);
      for (std::byte& b : back) b ^= std::byte{0xff};
      const StartupConfig config{.enhanced = enhanced};
      Initiator initiator(config, there);
      assert_int_equal(initiator.request().size(), 20 + (enhanced ? 4 : 0) + n);
      auto responder = with_request(exact(initiator.request()));
      expect_octets(responder.private_data(), there, "request");
      assert_true(pump(initiator, responder.accept(config, back)) == Initiator::Outcome::accepted);
      expect_octets(initiator.private_data(), back, "reply");
    }
  }
}

// Holds: MPA-57
void mpa_57_too_much_private_data_is_clipped(void**) {
  for (const bool enhanced : {false, true}) {
    const StartupConfig config{.enhanced = enhanced};
    Initiator initiator(config, numbered(600));
    assert_int_equal(initiator.request().size(), 532);
    auto responder = with_request(exact(initiator.request()));
    expect_octets(responder.private_data(), numbered(mpa::max_private_data(enhanced)), "request");
    assert_int_equal(responder.accept(config, numbered(600)).size(), 532);
    assert_int_equal(responder.reject(config, numbered(600)).size(), 532);
  }
}

// Holds: MPA-65
void mpa_65_enhanced_word_cut_short_is_refused(void**) {
  for (std::size_t n = 0; n < 4; ++n) {
    Responder responder;
    assert_true(pump(responder, raw_frame(false, kC | kS, 2, numbered(n))) == Responder::Outcome::failed);
    Initiator initiator(StartupConfig{}, {});
    assert_true(pump(initiator, raw_frame(true, kC | kS, 2, numbered(n))) == Initiator::Outcome::failed);
  }
}

void emit_never_lets_a_depth_spill_into_the_flags(void**) {
  StartupFrame frame;
  frame.enhanced = mpa::Enhanced{false, 0, 0xffff, 0x4000};
  expect_octets(frame.emit(), raw_frame(false, kS, 2, raw_word(false, 0, 0x3fff, 0x3fff)), "clipped");
}

}  // namespace
}  // namespace ewarp::test

int main() {
  using namespace ewarp::test;
  std::vector<CMUnitTest> tests = {
      cmocka_unit_test(mpa_50_and_64_decode_agrees_with_the_vectors),
      cmocka_unit_test(mpa_50_and_64_encode_agrees_with_the_vectors),
      cmocka_unit_test(mpa_78_siw_frames_re_encode_identically),
      cmocka_unit_test(truncated_or_overlong_frames_do_not_parse),
      cmocka_unit_test(mpa_61_frames_arrive_in_single_octets),
      cmocka_unit_test(mpa_61_frames_arrive_in_every_two_pieces),
      cmocka_unit_test(mpa_62_octets_behind_the_frame_stay_unread),
      cmocka_unit_test(mpa_62_more_than_was_wanted_is_an_error),
      cmocka_unit_test(mpa_51_to_55_bad_frames_are_refused),
      cmocka_unit_test(mpa_51_wrong_key_shows_with_the_octet_that_is_wrong),
      cmocka_unit_test(mpa_52_initiator_meeting_an_initiator_says_so),
      cmocka_unit_test(mpa_53_length_above_512_is_refused_before_it_is_read),
      cmocka_unit_test(mpa_54_truncated_private_data_never_completes),
      cmocka_unit_test(mpa_55_revisions),
      cmocka_unit_test(mpa_56_reserved_bits_change_nothing),
      cmocka_unit_test(mpa_56_reserved_bits_are_sent_as_zero),
      cmocka_unit_test(mpa_56_reject_bit_of_a_request_means_nothing),
      cmocka_unit_test(mpa_57_private_data_of_every_length_both_ways),
      cmocka_unit_test(mpa_57_too_much_private_data_is_clipped),
      cmocka_unit_test(mpa_65_enhanced_word_cut_short_is_refused),
      cmocka_unit_test(emit_never_lets_a_depth_spill_into_the_flags),
  };
  tests.insert(tests.end(), kNegotiationTests.begin(), kNegotiationTests.end());
  return _cmocka_run_group_tests("mpa start-up", tests.data(), tests.size(), nullptr, nullptr);
}
