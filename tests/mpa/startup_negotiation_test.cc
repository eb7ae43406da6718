// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What the two frames of a start-up agree on: CRC, markers, depths, RTR forms, consent. Exhaustive where small.
#include <algorithm>

#include "tests/mpa/startup_tests.h"

namespace ewarp::test {

using mpa::Enhanced;
using mpa::Initiator;
using mpa::Responder;
using mpa::StartupConfig;
using mpa::StartupFrame;
using mpa::StreamParams;
using Outcome = Initiator::Outcome;

namespace {

std::string text(std::initializer_list<unsigned> values) {
  std::string out;
  for (const unsigned v : values) out += std::to_string(v) + " ";
  return out;
}

StartupFrame parsed(const Bytes& frame) {
  const auto f = StartupFrame::parse(frame);
  assert_true(f.ok());
  return f.value();
}

// Holds: MPA-8
void mpa_8_crc_is_on_if_either_side_wants_it(void**) {
  for (const Json& row : load("mpa_startup.json", "crc_negotiation")) {
    const bool request_c = flag(row, "request_C"), reply_c = flag(row, "reply_C"), in_use = flag(row, "crc_in_use");
    const StartupConfig config{.enhanced = false, .want_crc = request_c};
    const auto initiator = against(config, raw_frame(true, reply_c ? kC : 0, 1, {}), Outcome::accepted);
    assert_int_equal(initiator.params().crc, in_use);

    auto responder = with_request(raw_frame(false, request_c ? kC : 0, 1, {}));
    const Bytes reply = responder.accept(StartupConfig{.want_crc = reply_c}, {});
    assert_int_equal(responder.params().crc, in_use);
    assert_int_equal(parsed(reply).crc, in_use);  // said aloud whenever it is on
  }
}

// Holds: MPA-9
void mpa_9_crc_is_asked_for_by_default(void**) {
  Initiator initiator(StartupConfig{}, {});
  assert_true(parsed(exact(initiator.request())).crc);
  auto responder = with_request(raw_frame(false, 0, 1, {}));
  assert_true(parsed(responder.accept(StartupConfig{}, {})).crc);
}

// Holds: MPA-39
void mpa_39_markers_are_agreed_for_each_direction(void**) {
  for (const Json& row : load("mpa_startup.json", "marker_negotiation")) {
    const bool request_m = flag(row, "request_M"), reply_m = flag(row, "reply_M");
    const auto initiator = against(StartupConfig{.enhanced = false, .want_markers = request_m},
                                   raw_frame(true, reply_m ? kM : 0, 1, {}), Outcome::accepted);
    assert_int_equal(initiator.params().tx_markers, flag(row, "initiator_sends_markers"));
    assert_int_equal(initiator.params().rx_markers, flag(row, "responder_sends_markers"));

    auto responder = with_request(raw_frame(false, request_m ? kM : 0, 1, {}));
    const Bytes reply = responder.accept(StartupConfig{.want_markers = reply_m}, {});
    assert_int_equal(parsed(reply).markers, reply_m);
    assert_int_equal(responder.params().tx_markers, flag(row, "responder_sends_markers"));
    assert_int_equal(responder.params().rx_markers, flag(row, "initiator_sends_markers"));
  }
}

// Holds: MPA-63
void mpa_63_the_reply_is_enhanced_exactly_if_the_request_was(void**) {
  for (const bool enhanced : {false, true}) {
    const auto d = converse(StartupConfig{.enhanced = enhanced}, StartupConfig{.enhanced = !enhanced});
    assert_true(d.outcome == Outcome::accepted);
    assert_int_equal(parsed(d.request).enhanced.has_value(), enhanced);
    assert_int_equal(parsed(d.reply).enhanced.has_value(), enhanced);
    assert_int_equal(parsed(d.reply).revision, enhanced ? 2 : 1);
    assert_int_equal(d.initiator.enhanced, enhanced);
    assert_int_equal(d.responder.enhanced, enhanced);
  }
  // Rev 2 without S is answered with Rev 2 without S.
  auto responder = with_request(raw_frame(false, kC, 2, {}));
  expect_octets(responder.accept(StartupConfig{.extensions = false}, {}), raw_frame(true, kC, 2, {}), "Rev 2, S=0");
}

// Holds: MPA-63
void mpa_63_a_reply_of_the_other_kind_fails(void**) {
  against(StartupConfig{}, raw_frame(true, kC, 1, {}), Outcome::failed);
  against(StartupConfig{}, raw_frame(true, kC, 2, {}), Outcome::failed);
  against(StartupConfig{.enhanced = false}, raw_frame(true, kC | kS, 2, raw_word(false, 0, 1, 1)), Outcome::failed);
}

// --- depths ---

void expect_depths(const std::string& what, const StreamParams& p, unsigned ird, unsigned ord) {
  if (p.ird != ird || p.ord != ord) fail_msg("%s: IRD %u ORD %u, expected %u %u", what.c_str(), p.ird, p.ord, ird, ord);
}

// Holds: MPA-66
void mpa_66_both_sides_end_within_each_others_depths(void**) {
  constexpr unsigned kTop = 5;
  for (unsigned ird_i = 0; ird_i < kTop; ++ird_i)
    for (unsigned ord_i = 0; ord_i < kTop; ++ord_i)
      for (unsigned ird_r = 0; ird_r < kTop; ++ird_r)
        for (unsigned ord_r = 0; ord_r < kTop; ++ord_r)
          for (unsigned most = 0; most < kTop; ++most) {
            const auto u16 = [](unsigned v) { return static_cast<std::uint16_t>(v); };
            const std::string what = text({ird_i, ord_i, ird_r, ord_r, most});
            const auto d = converse({.peer_to_peer = false, .ird = u16(ird_i), .ord = u16(ord_i), .max_ird = 0},
                                    {.ird = u16(ird_r), .ord = u16(ord_r), .max_ird = u16(most)});
            EXPECT(what, d.outcome == Outcome::accepted && !d.initiator.terminate.has_value());
            EXPECT(what, d.initiator.ord <= d.responder.ird && d.responder.ord <= d.initiator.ird);
            // No more is given up than has to be.
            const unsigned raised = std::max(ird_r, std::min(ord_i, most));
            expect_depths(what + "initiator", d.initiator, ird_i, std::min(ord_i, raised));
            expect_depths(what + "responder", d.responder, raised, std::min(ord_r, ird_i));
            EXPECT(what, d.responder.peer_ird == ird_i && d.responder.peer_ord == ord_i);
            EXPECT(what, d.initiator.peer_ird == d.responder.ird && d.initiator.peer_ord == d.responder.ord);
          }
}

// Holds: MPA-68
void mpa_68_responder_wanting_more_than_the_initiator_can_serve(void**) {
  for (unsigned ird = 0; ird < 5; ++ird)
    for (unsigned most = 0; most < 5; ++most)
      for (unsigned wanted = 0; wanted < 5; ++wanted) {
        const StartupConfig config{.peer_to_peer = false,
                                   .ird = static_cast<std::uint16_t>(ird),
                                   .ord = 3,
                                   .max_ird = static_cast<std::uint16_t>(most)};
        const auto initiator =
            against(config, raw_frame(true, kC | kS, 2, raw_word(false, 0, 2, wanted)), Outcome::accepted);
        const StreamParams& p = initiator.params();
        const bool possible = wanted <= std::max(ird, most);
        EXPECT(text({ird, most, wanted}), p.terminate.has_value() != possible);
        if (possible) {
          expect_depths("served", p, std::max(ird, wanted), 2);
        } else {
          assert_true(*p.terminate == fault::kMpaInsufficientIrd);
        }
      }
}

// Holds: MPA-67
void mpa_67_a_depth_that_is_not_negotiated_stays_as_it_is(void**) {
  constexpr unsigned kNot = 0x3fff;
  // The initiator's word (IRD, ORD), the responder's answer to it, and what the responder (own 4/6) then uses.
  const struct {
    unsigned ird_i, ord_i, ird_r, ord_r, ird, ord;
  } kCases[] = {
      {kNot, kNot, kNot, kNot, 4, 6},   {kNot, 2, 4, kNot, 4, 6}, {3, kNot, kNot, 3, 4, 3},
      {0x3ffe, 0x3ffe, 128, 6, 128, 6}, {0, 0, 4, 0, 4, 0},
  };
  for (const auto& c : kCases) {
    const std::string what = text({c.ird_i, c.ord_i});
    auto responder = with_request(raw_frame(false, kC | kS, 2, raw_word(false, 0, c.ird_i, c.ord_i)));
    const Bytes reply = responder.accept(StartupConfig{.extensions = false, .ird = 4, .ord = 6}, {});
    expect_octets(reply, raw_frame(true, kC | kS, 2, raw_word(false, 0, c.ird_r, c.ord_r)), what);
    expect_depths(what, responder.params(), c.ird, c.ord);
  }
}

// Holds: MPA-67
void mpa_67_the_initiator_keeps_what_the_reply_leaves_open(void**) {
  constexpr unsigned kNot = 0x3fff;
  const struct {
    unsigned ird_r, ord_r, ird, ord;
  } kCases[] = {{kNot, kNot, 4, 6}, {2, kNot, 4, 2}, {kNot, 3, 4, 6}, {kNot, 7, 7, 6}};
  for (const auto& c : kCases) {
    const auto initiator =
        against(StartupConfig{.peer_to_peer = false, .ird = 4, .ord = 6},
                raw_frame(true, kC | kS, 2, raw_word(false, 0, c.ird_r, c.ord_r)), Outcome::accepted);
    expect_depths(text({c.ird_r, c.ord_r}), initiator.params(), c.ird, c.ord);
  }
  // Declined by this side: nothing that the reply says changes a depth.
  const StartupConfig declined{.peer_to_peer = false, .ird = 4, .ord = 6, .max_ird = 4, .negotiate_depths = false};
  Initiator asks(declined, {});
  assert_int_equal(parsed(exact(asks.request())).enhanced->ird, kNot);
  assert_int_equal(parsed(exact(asks.request())).enhanced->ord, kNot);
  const auto initiator = against(declined, raw_frame(true, kC | kS, 2, raw_word(false, 0, 1, 100)), Outcome::accepted);
  expect_depths("declined", initiator.params(), 4, 6);
  assert_false(initiator.params().terminate.has_value());
}

// Holds: MPA-66
void mpa_66_depths_above_the_field_are_clipped(void**) {
  const auto d = converse({.peer_to_peer = false, .ird = 0xffff, .ord = 0x4000, .max_ird = 0xffff},
                          {.ird = 0x8000, .ord = 0xffff, .max_ird = 0xffff});
  assert_true(d.outcome == Outcome::accepted);
  expect_depths("initiator", d.initiator, 0x3ffe, 0x3ffe);
  expect_depths("responder", d.responder, 0x3ffe, 0x3ffe);
}

// --- peer-to-peer ---

// Holds: MPA-69
void mpa_69_client_server_carries_no_rtr(void**) {
  for (unsigned bits = 0; bits < 8; ++bits) {
    const StartupConfig config{.peer_to_peer = false, .rtr = static_cast<std::uint8_t>(bits), .extensions = false};
    Initiator initiator(config, {});
    expect_octets(initiator.request(), raw_frame(false, kC | kS, 2, raw_word(false, 0, 0, 0)), "request");
    // Set all the same by a peer: ignored.
    auto responder = with_request(raw_frame(false, kC | kS, 2, raw_word(false, bits, 0, 0)));
    expect_octets(responder.accept(StartupConfig{.extensions = false}, {}),
                  raw_frame(true, kC | kS, 2, raw_word(false, 0, 0, 0)), "reply");
    assert_int_equal(responder.params().rtr, 0);
    assert_false(responder.params().peer_to_peer);
    const auto asked = against(config, raw_frame(true, kC | kS, 2, raw_word(false, bits, 0, 0)), Outcome::accepted);
    assert_int_equal(asked.params().rtr, 0);
    assert_false(asked.params().terminate.has_value());
  }
}

// Holds: MPA-69
void mpa_69_peer_to_peer_without_a_form_is_client_server(void**) {
  Initiator initiator(StartupConfig{.rtr = 0, .extensions = false}, {});
  expect_octets(initiator.request(), raw_frame(false, kC | kS, 2, raw_word(false, 0, 0, 0)), "request");
}

// Holds: MPA-70 (RTR options)
void mpa_70_reply_names_the_forms_both_support_and_one_at_least(void**) {
  for (unsigned asked = 0; asked < 8; ++asked)
    for (unsigned own = 0; own < 8; ++own) {
      auto responder = with_request(raw_frame(false, kC | kS, 2, raw_word(true, asked, 4, 4)));
      const StartupConfig config{.rtr = static_cast<std::uint8_t>(own), .ird = 4, .ord = 4};
      const Enhanced word = *parsed(responder.accept(config, {})).enhanced;
      const std::string what = text({asked, own});
      EXPECT(what, word.peer_to_peer && word.rtr != 0);
      const unsigned supported = own == 0 ? unsigned{mpa::kRtrWrite} : own;
      EXPECT(what, word.rtr == ((asked & supported) != 0 ? asked & supported : supported));
      EXPECT(what, responder.params().rtr == word.rtr && responder.params().peer_to_peer);
    }
}

unsigned first_of(unsigned set, unsigned preferred) {
  for (const unsigned form : {preferred, unsigned{mpa::kRtrWrite}, unsigned{mpa::kRtrRead}, unsigned{mpa::kRtrSend}})
    if ((set & form) != 0) return form;
  return 0;
}

// Holds: MPA-71 (RTR first), MPA-72
void mpa_71_and_72_initiator_takes_an_agreed_form_or_terminates(void**) {
  for (unsigned own = 1; own < 8; ++own)
    for (unsigned answered = 0; answered < 8; ++answered)
      for (const unsigned preferred : {mpa::kRtrWrite, mpa::kRtrRead, mpa::kRtrSend}) {
        const StartupConfig config{.rtr = static_cast<std::uint8_t>(own),
                                   .ird = 4,
                                   .ord = 4,
                                   .preferred = static_cast<std::uint8_t>(preferred)};
        const auto initiator =
            against(config, raw_frame(true, kC | kS, 2, raw_word(true, answered, 4, 4)), Outcome::accepted);
        const StreamParams& p = initiator.params();
        const std::string what = text({own, answered, preferred});
        EXPECT(what, p.rtr == first_of(own & answered, preferred));
        EXPECT(what, p.terminate.has_value() == ((own & answered) == 0));
        if (p.terminate.has_value()) EXPECT(what, *p.terminate == fault::kMpaNoRtr);
      }
}

// Holds: MPA-71 (RTR first)
void mpa_71_both_machines_agree_on_the_form(void**) {
  for (unsigned own = 1; own < 8; ++own)
    for (unsigned other = 1; other < 8; ++other) {
      const auto d = converse({.rtr = static_cast<std::uint8_t>(own), .ird = 1, .ord = 1},
                              {.rtr = static_cast<std::uint8_t>(other), .ird = 1, .ord = 1});
      const std::string what = text({own, other});
      EXPECT(what, d.outcome == Outcome::accepted);
      EXPECT(what, d.initiator.rtr == first_of(own & other, mpa::kRtrWrite));
      EXPECT(what, (d.initiator.rtr & d.responder.rtr) == d.initiator.rtr);
      EXPECT(what, d.initiator.terminate.has_value() == ((own & other) == 0));
    }
}

// Holds: MPA-72
void mpa_72_a_reply_of_the_other_model_terminates(void**) {
  // cxgb4 without its peer2peer option answers A=1 with A=0.
  const auto refused =
      against(StartupConfig{}, raw_frame(true, kC | kS, 2, raw_word(false, 0, 0, 0)), Outcome::accepted);
  assert_true(refused.params().terminate == fault::kMpaNoRtr);
  const auto forced = against(StartupConfig{.peer_to_peer = false},
                              raw_frame(true, kC | kS, 2, raw_word(true, mpa::kRtrWrite, 0, 0)), Outcome::accepted);
  assert_true(forced.params().terminate == fault::kMpaLocalCatastrophic);
  assert_int_equal(forced.params().rtr, 0);
}

// Holds: MPA-68
void mpa_68_insufficient_ird_wins_over_no_rtr_and_no_rtr_is_sent(void**) {
  const auto initiator = against(StartupConfig{.rtr = mpa::kRtrWrite, .max_ird = 2},
                                 raw_frame(true, kC | kS, 2, raw_word(true, mpa::kRtrRead, 0, 3)), Outcome::accepted);
  assert_true(initiator.params().terminate == fault::kMpaInsufficientIrd);
  const auto matching = against(StartupConfig{.max_ird = 2},
                                raw_frame(true, kC | kS, 2, raw_word(true, mpa::kRtrWrite, 0, 3)), Outcome::accepted);
  assert_true(matching.params().terminate == fault::kMpaInsufficientIrd);
  assert_int_equal(matching.params().rtr, 0);
}

// Holds: MPA-74
void mpa_74_an_rtr_read_finds_a_place_in_the_ird(void**) {
  const struct {
    const char* what;
    unsigned asked, own;
    std::uint16_t ird, max_ird;
    unsigned rtr, ird_then;
  } kCases[] = {
      {"raised for it", mpa::kRtrRead, 7, 0, 8, mpa::kRtrRead, 1},
      {"dropped where there is another", 7, 7, 0, 0, mpa::kRtrWrite | mpa::kRtrSend, 0},
      {"the only one: raised all the same", mpa::kRtrRead, mpa::kRtrRead, 0, 0, mpa::kRtrRead, 1},
      {"room already", mpa::kRtrRead, 7, 3, 0, mpa::kRtrRead, 3},
      {"no Read among them", mpa::kRtrWrite, 7, 0, 8, mpa::kRtrWrite, 0},
  };
  for (const auto& c : kCases) {
    auto responder = with_request(raw_frame(false, kC | kS, 2, raw_word(true, c.asked, 0, 0)));
    const StartupConfig config{.rtr = static_cast<std::uint8_t>(c.own), .ird = c.ird, .max_ird = c.max_ird};
    const Enhanced word = *parsed(responder.accept(config, {})).enhanced;
    EXPECT(c.what, word.rtr == c.rtr && word.ird == c.ird_then && responder.params().ird == c.ird_then);
  }
}

// --- consent, reject ---

// Holds: MPA-70 (extensions)
void mpa_70_extensions_need_an_offer_and_an_answer_that_is_no_echo(void**) {
  for (unsigned reserved = 0; reserved < 16; ++reserved) {
    const bool offer = (reserved & 3) == 2, answer = (reserved & 3) == 1;
    for (const bool own : {false, true}) {
      const StartupConfig config{.enhanced = false, .extensions = own};
      auto responder = with_request(raw_frame(false, kC | reserved, 1, {}));
      const Bytes reply = responder.accept(config, {});
      EXPECT(text({reserved}), responder.params().extensions == (own && offer));
      expect_octets(reply, raw_frame(true, kC | (own && offer ? 1u : 0u), 1, {}), text({reserved}));

      const auto initiator = against(config, raw_frame(true, kC | reserved, 1, {}), Outcome::accepted);
      EXPECT(text({reserved}), initiator.params().extensions == (own && answer));
    }
  }
  Initiator offers(StartupConfig{}, {});
  assert_int_equal(std::to_integer<unsigned>(offers.request()[16]) & 0x0f, 2);
  const auto d = converse({}, {});
  assert_true(d.initiator.extensions && d.responder.extensions);
}

// docs/protocol/local.md section 1
void memory_instead_of_tcp_needs_an_offer_and_an_answer_that_is_no_echo(void**) {
  for (unsigned reserved = 0; reserved < 16; ++reserved) {
    const bool offer = (reserved & 12) == 8, answer = (reserved & 12) == 4;
    for (const bool own : {false, true}) {
      const StartupConfig config{.enhanced = false, .extensions = false, .local = own};
      auto responder = with_request(raw_frame(false, kC | reserved, 1, {}));
      const Bytes reply = responder.accept(config, {});
      EXPECT(text({reserved}), responder.params().local == (own && offer));
      expect_octets(reply, raw_frame(true, kC | (own && offer ? 4u : 0u), 1, {}), text({reserved}));

      const auto initiator = against(config, raw_frame(true, kC | reserved, 1, {}), Outcome::accepted);
      EXPECT(text({reserved}), initiator.params().local == (own && answer));
    }
  }
  for (const bool own : {false, true}) {
    Initiator offers(StartupConfig{.local = own}, {});
    assert_int_equal(std::to_integer<unsigned>(offers.request()[16]) & 0x0c, own ? 8 : 0);
  }
}

// Holds: MPA-58, MPA-76
void mpa_58_and_76_reject_hands_over_data_and_depths(void**) {
  const Json vectors = load("mpa_startup.json")["vectors"];
  const auto frame = [&vectors](const char* id) {
    for (const Json& v : vectors)
      if (v["id"] == id) return hex(v["frame_hex"]);
    return Bytes{};
  };
  const auto plain = against(StartupConfig{.enhanced = false}, frame("STA-5"), Outcome::rejected);
  expect_octets(plain.private_data(), hex("0000002a"), "STA-5");
  const auto enhanced = against(StartupConfig{}, frame("STA-10"), Outcome::rejected);
  assert_int_equal(enhanced.params().peer_ird, 8);
  assert_int_equal(enhanced.params().peer_ord, 64);
  assert_false(enhanced.params().terminate.has_value());
  // siw refuses M=1 with a bare frame, also where the request was enhanced.
  against(StartupConfig{}, raw_frame(true, kR, 2, {}), Outcome::rejected);

  auto responder = with_request(raw_frame(false, kC | kS, 2, raw_word(false, 0, 4, 8)));
  assert_int_equal(responder.peer_ird(), 4);
  assert_int_equal(responder.peer_ord(), 8);
  expect_octets(responder.reject(StartupConfig{.ird = 8, .ord = 64}, {}), frame("STA-10"), "STA-10");
  auto unenhanced = with_request(raw_frame(false, kC, 1, {}));
  assert_int_equal(unenhanced.peer_ird(), 0);
  expect_octets(unenhanced.reject(StartupConfig{}, hex("0000002a")), frame("STA-5"), "STA-5");
}

// Holds: MPA-58
void mpa_58_a_reject_of_peer_to_peer_mirrors_the_model(void**) {
  auto responder = with_request(raw_frame(false, kC | kS, 2, raw_word(true, 7, 4, 4)));
  const StartupConfig config{.rtr = mpa::kRtrWrite, .ird = 1, .ord = 2};
  expect_octets(responder.reject(config, {}), raw_frame(true, kC | kR | kS, 2, raw_word(true, mpa::kRtrWrite, 1, 2)),
                "reject");
}

// Holds: MPA-77
void mpa_77_a_recorded_siw_start_up_is_understood_on_both_sides(void**) {
  const Json golden = load("siw_golden.json")["startup"];
  const auto frame = [&golden](const std::string& id) {
    for (const Json& v : golden)
      if (v["id"] == id) return hex(v["frame_hex"]);
    return Bytes{};
  };
  const struct {
    const char* name;
    bool enhanced, peer_to_peer, crc;
    unsigned rtr;
  } kCases[] = {{"SIW-V1", false, false, true, 0},
                {"SIW-V2", true, false, true, 0},
                {"SIW-P2PW", true, true, true, mpa::kRtrWrite},
                {"SIW-P2PR", true, true, true, mpa::kRtrRead},
                {"SIW-NOCRC", true, false, false, 0}};
  for (const auto& c : kCases) {
    const std::string name = c.name;
    auto responder = with_request(frame(name + "-REQ"));
    const Bytes reply = responder.accept(StartupConfig{.want_crc = c.crc, .ird = 4, .ord = 4}, {});
    const StreamParams& r = responder.params();
    EXPECT(name, r.enhanced == c.enhanced && r.peer_to_peer == c.peer_to_peer && r.rtr == c.rtr && r.crc == c.crc);
    EXPECT(name, !r.extensions);
    if (c.enhanced) EXPECT(name, r.ird == 4 && r.ord == 4 && r.peer_ird == 4 && r.peer_ord == 3);

    const StartupConfig config{.enhanced = c.enhanced,
                               .want_crc = c.crc,
                               .peer_to_peer = c.peer_to_peer,
                               .rtr = static_cast<std::uint8_t>(c.rtr),
                               .ird = 4,
                               .ord = 3};
    const auto initiator = against(config, frame(name + "-REP"), Outcome::accepted);
    const StreamParams& i = initiator.params();
    EXPECT(name, !i.terminate.has_value() && i.rtr == c.rtr && i.crc == c.crc && !i.extensions);
    EXPECT(name, i.ird == 4 && i.ord == 3);
  }
  const auto rejected = against(StartupConfig{.peer_to_peer = false}, frame("SIW-REJ-REP"), Outcome::rejected);
  assert_int_equal(rejected.private_data().size(), 7);
}

}  // namespace

const std::vector<CMUnitTest> kNegotiationTests = {
    cmocka_unit_test(mpa_8_crc_is_on_if_either_side_wants_it),
    cmocka_unit_test(mpa_9_crc_is_asked_for_by_default),
    cmocka_unit_test(mpa_39_markers_are_agreed_for_each_direction),
    cmocka_unit_test(mpa_63_the_reply_is_enhanced_exactly_if_the_request_was),
    cmocka_unit_test(mpa_63_a_reply_of_the_other_kind_fails),
    cmocka_unit_test(mpa_66_both_sides_end_within_each_others_depths),
    cmocka_unit_test(mpa_68_responder_wanting_more_than_the_initiator_can_serve),
    cmocka_unit_test(mpa_67_a_depth_that_is_not_negotiated_stays_as_it_is),
    cmocka_unit_test(mpa_67_the_initiator_keeps_what_the_reply_leaves_open),
    cmocka_unit_test(mpa_66_depths_above_the_field_are_clipped),
    cmocka_unit_test(mpa_69_client_server_carries_no_rtr),
    cmocka_unit_test(mpa_69_peer_to_peer_without_a_form_is_client_server),
    cmocka_unit_test(mpa_70_reply_names_the_forms_both_support_and_one_at_least),
    cmocka_unit_test(mpa_71_and_72_initiator_takes_an_agreed_form_or_terminates),
    cmocka_unit_test(mpa_71_both_machines_agree_on_the_form),
    cmocka_unit_test(mpa_72_a_reply_of_the_other_model_terminates),
    cmocka_unit_test(mpa_68_insufficient_ird_wins_over_no_rtr_and_no_rtr_is_sent),
    cmocka_unit_test(mpa_74_an_rtr_read_finds_a_place_in_the_ird),
    cmocka_unit_test(mpa_70_extensions_need_an_offer_and_an_answer_that_is_no_echo),
    cmocka_unit_test(memory_instead_of_tcp_needs_an_offer_and_an_answer_that_is_no_echo),
    cmocka_unit_test(mpa_58_and_76_reject_hands_over_data_and_depths),
    cmocka_unit_test(mpa_58_a_reject_of_peer_to_peer_mirrors_the_model),
    cmocka_unit_test(mpa_77_a_recorded_siw_start_up_is_understood_on_both_sides),
};

}  // namespace ewarp::test
