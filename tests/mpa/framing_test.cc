// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// FPDUs octet for octet: MULPDU, CRC, PAD, markers, in both directions.
#include "mpa/framing.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "llp/guarded_copy.h"

#include "tests/mpa/wire_fpdu.h"

namespace ewarp::test {
namespace {

using llp::Extent;
using llp::Gather;
using mpa::Deframer;
using mpa::Framer;

constexpr std::size_t kHeader = 14;  // framed as header; the rest as payload

// Frames `ulpdu` with its payload in `pieces` extents.
void frame(Framer& framer, Gather& out, Octets ulpdu, std::size_t pieces = 1) {
  const Octets header = ulpdu.first(std::min(kHeader, ulpdu.size()));
  Octets rest = ulpdu.subspan(header.size());
  std::vector<Extent> payload;
  for (std::size_t i = 0; i < pieces && !rest.empty(); ++i) {
    const std::size_t n = i + 1 == pieces ? rest.size() : rest.size() / (pieces - i);
    payload.push_back(extent_of(rest.first(n)));
    rest = rest.subspan(n);
  }
  framer.frame(out, header, payload);
}

Bytes framed(Framer& framer, Octets ulpdu, std::size_t pieces = 1) {
  Gather out;
  frame(framer, out, ulpdu, pieces);
  return flatten(out);
}

void expect_fpdu(Deframer& deframer, Octets in, Octets ulpdu, std::size_t consumed, const std::string& what) {
  const Bytes copy = exact(in);
  const auto got = deframer.next(copy);
  EXPECT(what, got.ok() && got.value().has_value());
  expect_octets(got.value()->ulpdu, ulpdu, what);
  EXPECT(what, got.value()->consumed == consumed);
}

void expect_fault(Deframer& deframer, Octets in, const Fault& fault, const std::string& what) {
  const Bytes copy = exact(in);
  const auto got = deframer.next(copy);
  EXPECT(what, !got.ok());
  EXPECT(what, got.error() == fault);
}

// --- MULPDU ---

// Holds: MPA-12, MPA-13
void mpa_12_and_13_mulpdu_agrees_with_the_table(void**) {
  for (const Json& row : load("ddp_segmentation.json", "mulpdu")) {
    assert_int_equal(mpa::mulpdu(number(row["emss"]), false), number(row["mulpdu_no_markers"]));
    assert_int_equal(mpa::mulpdu(number(row["emss"]), true), number(row["mulpdu_markers"]));
  }
}

// Holds: MPA-12
void mpa_12_a_full_fpdu_fits_the_segment_at_every_marker_phase(void**) {
  for (std::size_t emss = 0; emss < 3000; ++emss) {
    for (const bool markers : {false, true}) {
      const std::size_t n = mpa::mulpdu(emss, markers);
      assert_true(n >= 128 && n <= 64768);
      if (n == 128) continue;  // the floor may exceed the segment
      const std::size_t plain = mpa::fpdu_octets(n);
      // Of any `plain` octets at most this many can be the 509th since a marker.
      const std::size_t most_markers = markers ? (plain + 507) / 508 : 0;
      assert_true(plain + 4 * most_markers <= emss + (markers ? 4 : 0));
      assert_true(plain <= emss);
      assert_int_equal(n % 4, 2);  // no PAD
    }
  }
  for (const std::size_t emss : {536u, 1220u, 1448u, 1460u, 8948u}) {
    const std::size_t n = mpa::mulpdu(emss, true);
    for (unsigned phase = 0; phase < 512; phase += 4) {
      WireSender sender(true, true, phase);
      assert_true(sender.fpdu(some_ulpdu(n)).size() <= emss);
    }
  }
}

// --- FPDUs without markers ---

// Holds: MPA-1, MPA-2, MPA-3, MPA-4, MPA-5
void mpa_1_to_5_encode_agrees_with_the_vectors(void**) {
  for (const Json& v : load("fpdu.json", "vectors")) {
    const Bytes ulpdu = hex(v["ulpdu_hex"]);
    assert_int_equal(mpa::pad_octets(ulpdu.size()), number(v["pad"]));
    assert_int_equal(mpa::fpdu_octets(ulpdu.size()), hex(v["fpdu_hex"]).size());
    for (std::size_t pieces = 1; pieces <= 5; ++pieces) {
      Framer framer(true, false);
      expect_octets(framed(framer, ulpdu, pieces), hex(v["fpdu_hex"]), v["id"]);
    }
    Framer whole(true, false);  // everything in the header: an inline message
    Gather out;
    whole.frame(out, ulpdu, {});
    expect_octets(flatten(out), hex(v["fpdu_hex"]), v["id"]);
    assert_int_equal(out.vectors().size(), 1);
  }
}

// Holds: MPA-1, MPA-2, MPA-3, MPA-4, MPA-5
void mpa_1_to_5_decode_agrees_with_the_vectors(void**) {
  for (const Json& v : load("fpdu.json", "vectors")) {
    Deframer deframer(true, false);
    const Bytes fpdu = hex(v["fpdu_hex"]);
    expect_fpdu(deframer, fpdu, hex(v["ulpdu_hex"]), fpdu.size(), v["id"]);
  }
  for (const Json& v : load("terminate.json", "vectors")) {
    Deframer deframer(true, false);
    const Bytes fpdu = hex(v["fpdu_hex"]);
    expect_fpdu(deframer, fpdu, hex(v["terminate_ulpdu_hex"]), fpdu.size(), v["id"]);
  }
}

// The vectors abbreviate large FPDUs. The payload of Sends and Writes is the alphabet over and over, which the recorded
// CRC confirms; that of Read Responses is whatever the run's buffer held.
bool is_spelled_out(const Json& v) {
  return v["fpdu_hex"].get<std::string>().find("...") == std::string::npos ||
         v["decoded"].get<std::string>().find("ReadResp") == std::string::npos;
}

Bytes golden_fpdu(const Json& v) {
  const auto text = v["fpdu_hex"].get<std::string>();
  const std::size_t shown = text.find("...");
  if (shown == std::string::npos) return hex(text);
  Bytes fpdu = hex(std::string_view(text).substr(0, shown));
  const std::size_t end = mpa::kLengthField + get_be<std::uint16_t>(fpdu, 0);
  while (fpdu.size() < end) {
    const auto last = std::to_integer<unsigned>(fpdu.back());
    fpdu.push_back(static_cast<std::byte>(last == 'Z' ? 'A' : last + 1));
  }
  fpdu.resize(number(v["octets"]) - mpa::kCrcField);
  return concat({fpdu, hex(v["crc_wire_hex"])});
}

// Holds: MPA-78
void mpa_78_recorded_siw_fpdus_decode_and_re_encode(void**) {
  std::size_t checked = 0;
  for (const Json& v : load("siw_golden.json", "fpdus")) {
    if (!is_spelled_out(v)) continue;
    const Bytes fpdu = golden_fpdu(v);
    const bool crc = flag(v, "crc");
    const Bytes ulpdu = exact(Octets(fpdu).subspan(2, get_be<std::uint16_t>(fpdu, 0)));
    Deframer deframer(crc, false);
    expect_fpdu(deframer, fpdu, ulpdu, fpdu.size(), v["id"]);
    if (v["id"] == "SIW-NONZERO-PAD") continue;
    Framer framer(crc, false);
    expect_octets(framed(framer, ulpdu), fpdu, v["id"]);
    ++checked;
  }
  assert_true(checked > 30);
}

// Holds: MPA-2, MPA-19
void mpa_19_pad_octets_count_as_they_were_sent(void**) {
  for (const Json& v : load("siw_golden.json", "fpdus")) {
    if (v["id"] != "SIW-NONZERO-PAD") continue;
    const Bytes fpdu = hex(v["fpdu_hex"]);
    Deframer deframer(true, false);
    expect_fpdu(deframer, fpdu, Octets(fpdu).subspan(2, 20), fpdu.size(), v["id"]);
    Bytes zeroed = fpdu;
    zeroed[22] = zeroed[23] = std::byte{0};
    Deframer strict(true, false);
    expect_fault(strict, zeroed, fault::kMpaCrc, "pad changed on the way");
    return;
  }
  fail_msg("no SIW-NONZERO-PAD");
}

// Holds: MPA-2
void mpa_2_any_pad_value_is_accepted_for_every_pad_size(void**) {
  for (std::size_t n = 14; n < 18; ++n) {
    WireSender sender(true, false);
    Deframer deframer(true, false);
    const Bytes ulpdu = some_ulpdu(n);
    const Bytes fpdu = sender.fpdu(ulpdu, {.pad = std::byte{0xee}});
    expect_fpdu(deframer, fpdu, ulpdu, fpdu.size(), std::to_string(n));
  }
}

// Holds: MPA-3, MPA-6
void mpa_3_and_6_without_crc_the_field_is_zero_and_never_looked_at(void**) {
  for (const bool markers : {false, true}) {
    Framer framer(false, markers);
    const Bytes ulpdu = some_ulpdu(21);
    const Bytes fpdu = framed(framer, ulpdu);
    expect_octets(Octets(fpdu).last(4), Bytes(4), "CRC field");
    for (const std::uint32_t value : {0u, 1u, 0xffffffffu, 0x12345678u}) {
      WireSender sender(false, markers);
      Deframer deframer(false, markers);
      const Bytes odd = sender.fpdu(ulpdu, {.crc_xor = value});
      expect_fpdu(deframer, odd, ulpdu, odd.size(), "any CRC value");
    }
  }
}

// Holds: MPA-7
void mpa_7_every_flipped_bit_is_noticed(void**) {
  for (const bool markers : {false, true}) {
    WireSender sender(true, markers);
    const Bytes fpdu = sender.fpdu(some_ulpdu(600));
    const std::size_t length_at = markers ? 4 : 0;
    for (std::size_t bit = 0; bit < fpdu.size() * 8; ++bit) {
      // Length field: judged as a length first; covered by the next test.
      if (bit / 8 == length_at || bit / 8 == length_at + 1) continue;
      Bytes bad = fpdu;
      bad[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
      Deframer deframer(true, markers);
      expect_fault(deframer, bad, fault::kMpaCrc, std::to_string(bit));
    }
  }
}

// Holds: MPA-7
void mpa_7_a_flipped_length_never_yields_an_fpdu(void**) {
  for (const bool markers : {false, true}) {
    WireSender sender(true, markers);
    const Bytes fpdu = sender.fpdu(some_ulpdu(600));
    for (unsigned bit = 0; bit < 16; ++bit) {
      Bytes bad = fpdu;
      bad[(markers ? 4 : 0) + bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
      bad.resize(70000);  // enough for any length
      Deframer deframer(true, markers);
      assert_false(deframer.next(bad).ok());
    }
  }
}

// Holds: MPA-16
void mpa_16_after_an_error_nothing_more_is_delivered(void**) {
  for (const bool markers : {false, true}) {
    WireSender sender(true, markers);
    Deframer deframer(true, markers);
    const Bytes bad = sender.fpdu(some_ulpdu(20), {.crc_xor = 1});
    const Bytes good = sender.fpdu(some_ulpdu(20));
    expect_fault(deframer, bad, fault::kMpaCrc, "bad");
    expect_fault(deframer, good, fault::kMpaCrc, "good behind it");
    expect_fault(deframer, {}, fault::kMpaCrc, "nothing behind it");
  }
}

// Holds: MPA-14
void mpa_14_runts_are_fatal_at_once(void**) {
  for (const bool crc : {false, true})
    for (unsigned length = 0; length < 16; ++length) {
      Deframer deframer(crc, false);
      const Bytes two{std::byte{0}, static_cast<std::byte>(length)};
      if (length < 14) {
        expect_fault(deframer, two, fault::kDdpLocalCatastrophic, std::to_string(length));
      } else {
        const auto got = deframer.next(two);
        assert_true(got.ok() && !got.value().has_value());
      }
      Deframer marked(crc, true);
      const Bytes six{std::byte{0}, std::byte{0}, std::byte{0},
                      std::byte{0}, std::byte{0}, static_cast<std::byte>(length)};
      if (length < 14) expect_fault(marked, six, fault::kDdpLocalCatastrophic, std::to_string(length));
    }
}

// Holds: MPA-11
void mpa_11_any_length_of_16_bits_is_received(void**) {
  for (const bool markers : {false, true})
    for (const std::size_t n : {14u, 64768u, 64769u, 65532u, 65533u, 65534u, 65535u}) {
      WireSender sender(true, markers);
      Deframer deframer(true, markers);
      for (unsigned i = 0; i < 2; ++i) {
        const Bytes ulpdu = some_ulpdu(n, i);
        const Bytes fpdu = sender.fpdu(ulpdu);
        expect_fpdu(deframer, fpdu, ulpdu, fpdu.size(), std::to_string(n));
      }
    }
}

// --- markers ---

// Holds: MPA-30, MPA-32, MPA-33, MPA-34, MPA-35
void mpa_30_and_32_to_35_marked_stream_encodes_as_the_vectors(void**) {
  const Json j = load("markers.json");
  Framer framer(true, true);
  Gather whole;
  for (std::size_t i = 0; i < j["frames"].size(); ++i) {
    const Bytes ulpdu = hex(j["ulpdus_hex"][i]);
    Gather one;
    Framer same = framer;
    frame(same, one, ulpdu, 3);
    expect_octets(flatten(one), hex(j["frames"][i]["fpdu_hex"]), "frame " + std::to_string(i));
    framer = same;
  }
  Framer again(true, true);
  std::vector<Bytes> ulpdus;
  for (const Json& u : j["ulpdus_hex"]) ulpdus.push_back(hex(u));
  for (const Bytes& u : ulpdus) frame(again, whole, u);
  expect_octets(flatten(whole), hex(j["stream_hex"]), "stream");
}

// Holds: MPA-33, MPA-34, MPA-35, MPA-36, MPA-37
void mpa_33_to_37_marked_stream_decodes_as_the_vectors(void**) {
  const Json j = load("markers.json");
  const Bytes stream = hex(j["stream_hex"]);
  Deframer deframer(true, true);
  Octets rest = stream;
  for (std::size_t i = 0; i < j["frames"].size(); ++i) {
    assert_int_equal(stream.size() - rest.size(), number(j["frames"][i]["stream_offset"]));
    expect_fpdu(deframer, rest, hex(j["ulpdus_hex"][i]), number(j["frames"][i]["octets"]), std::to_string(i));
    rest = rest.subspan(number(j["frames"][i]["octets"]));
  }
  assert_true(rest.empty());
}

// A framer and a deframer whose half connection has carried `offset` octets.
void advance_to(Framer& framer, Deframer& deframer, std::size_t offset) {
  if (offset == 0) return;
  assert_true(offset % 4 == 0 && offset >= 24 && offset <= 512);
  const Bytes filler = framed(framer, some_ulpdu(offset - 4 - 6));
  assert_int_equal(filler.size(), offset);
  assert_true(deframer.next(filler).ok());
}

// Holds: MPA-32
void mpa_32_figures_of_rfc_5044(void**) {
  const Json j = load("markers.json");
  const struct {
    const char* what;
    std::size_t offset;
    Bytes fpdu, ulpdu;
  } kCases[] = {
      {"figure 4", 500, hex(j["rfc5044_fig4_shape"]["hex"]), hex("000102030405060708090a0b0c0d0e0f")},
      {"figure 5", 0, hex(j["rfc5044_fig5_hex"]), concat({hex("414300000000000000000000000100000000"), Bytes(24)})},
      {"figure 6", 0x1ec, hex(j["rfc5044_fig6"]["hex"]),
       concat({hex("414300000000000000000000000200000000"), Bytes(24)})},
  };
  for (const auto& c : kCases) {
    Framer framer(true, true);
    Deframer deframer(true, true);
    advance_to(framer, deframer, c.offset);
    expect_octets(framed(framer, c.ulpdu), c.fpdu, c.what);
    expect_fpdu(deframer, c.fpdu, c.ulpdu, c.fpdu.size(), c.what);
  }
}

// Holds: MPA-31
void mpa_31_no_markers_unless_asked_for(void**) {
  Framer framer(true, false);
  WireSender plain(true, false);
  for (unsigned i = 0; i < 20; ++i) {
    const Bytes ulpdu = some_ulpdu(300 + i, i);
    expect_octets(framed(framer, ulpdu), plain.fpdu(ulpdu), "no marker");
  }
}

// Holds: MPA-30, MPA-31, MPA-32, MPA-33, MPA-34, MPA-35
void mpa_30_to_35_every_phase_and_many_sizes(void**) {
  for (std::size_t offset = 24; offset <= 512; offset += 4)
    for (const std::size_t n : {14u, 15u, 16u, 17u, 18u, 470u, 490u, 498u, 500u, 502u, 506u, 1010u, 1014u, 1018u}) {
      const std::string what = std::to_string(offset) + " " + std::to_string(n);
      Framer framer(true, true);
      Deframer deframer(true, true);
      advance_to(framer, deframer, offset);
      WireSender reference(true, true, offset);
      for (unsigned i = 0; i < 2; ++i) {  // the second begins wherever the first one ended
        const Bytes ulpdu = some_ulpdu(n, i);
        const Bytes want = reference.fpdu(ulpdu);
        expect_octets(framed(framer, ulpdu, 1 + i), want, what);
        expect_fpdu(deframer, want, ulpdu, want.size(), what);
      }
    }
}

// Holds: MPA-36
void mpa_36_positions_across_the_wrap_of_the_sequence_space(void**) {
  for (const Json& example : load("markers.json", "sequence_examples")) {
    const auto start = static_cast<std::uint32_t>(number(example["start"]));
    Framer framer(false, true);
    const Bytes stream = framed(framer, some_ulpdu(1400));
    for (std::size_t k = 0; k < 3; ++k) {
      const auto at = static_cast<std::uint32_t>(number(example["markers"][k])) - start;  // modulo 2^32
      assert_int_equal(at, 512 * k);
      assert_int_equal(get_be<std::uint16_t>(stream, at), 0);
      assert_int_equal(get_be<std::uint16_t>(stream, at + 2), k == 0 ? 0 : at - 4);
    }
  }
}

// Holds: MPA-36
// More than 2^32 octets through one framer. CRC is off, so that nothing but the marker positions costs time.
void mpa_36_positions_after_more_than_4_gib(void**) {
  const Bytes ulpdu = some_ulpdu(64766);
  Framer framer(false, true);
  Gather out;
  std::uint64_t position = 0;
  while (position < (std::uint64_t{1} << 32) + 100000) {
    frame(framer, out, ulpdu);
    position += out.octets();
    out.clear();
  }
  WireSender reference(false, true, position);
  expect_octets(framed(framer, some_ulpdu(600)), reference.fpdu(some_ulpdu(600)), "behind 2^32");
}

// Holds: MPA-37
void mpa_37_reserved_bits_of_a_marker_are_ignored(void**) {
  for (const Oddities& odd :
       {Oddities{.reserved = 0xffff}, Oddities{.pointer_xor = 3}, Oddities{.reserved = 1, .pointer_xor = 2}}) {
    WireSender sender(true, true);
    Deframer deframer(true, true);
    for (unsigned i = 0; i < 4; ++i) {
      const Bytes ulpdu = some_ulpdu(700, i);
      const Bytes fpdu = sender.fpdu(ulpdu, odd);
      expect_fpdu(deframer, fpdu, ulpdu, fpdu.size(), "odd marker");
    }
  }
}

// Holds: MPA-38
void mpa_38_a_marker_that_points_elsewhere_is_an_error_of_its_own(void**) {
  for (const bool crc : {false, true})
    for (unsigned bit = 2; bit < 16; ++bit) {
      const auto flip = static_cast<std::uint16_t>(1u << bit);
      // The one between FPDUs.
      WireSender first(crc, true);
      Deframer at_once(crc, true);
      expect_fault(at_once, first.fpdu(some_ulpdu(20), {.pointer_xor = flip}), fault::kMpaMarker, "leading");
      // One inside.
      WireSender sender(crc, true, 480);
      Framer framer(crc, true);
      Deframer inside(crc, true);
      advance_to(framer, inside, 480);
      expect_fault(inside, sender.fpdu(some_ulpdu(40), {.pointer_xor = flip}), fault::kMpaMarker, "inner");
    }
}

// Holds: MPA-38
void mpa_38_markers_are_judged_after_the_crc(void**) {
  WireSender sender(true, true);
  Deframer deframer(true, true);
  expect_fault(deframer, sender.fpdu(some_ulpdu(20), {.pointer_xor = 4, .crc_xor = 1}), fault::kMpaCrc, "both wrong");
}

// Holds: MPA-38
void mpa_38_only_the_last_of_many_markers_is_wrong(void**) {
  WireSender sender(false, true);
  const Bytes ulpdu = some_ulpdu(2000);
  Bytes fpdu = sender.fpdu(ulpdu);
  fpdu[3 * 512 + 3] ^= std::byte{4};
  Deframer deframer(false, true);
  expect_fault(deframer, fpdu, fault::kMpaMarker, "last");
}

// --- what the gather list looks like ---

void small_messages_share_one_vector(void**) {
  Framer framer(true, false);
  Gather out;
  WireSender reference(true, false);
  Bytes want;
  for (unsigned i = 0; i < 50; ++i) {
    const Bytes ulpdu = some_ulpdu(18 + i, i);
    framer.frame(out, ulpdu, {});
    want = concat({want, reference.fpdu(ulpdu)});
  }
  assert_int_equal(out.vectors().size(), 1);
  expect_octets(flatten(out), want, "fifty");
}

void payload_is_gathered_in_place(void**) {
  const Bytes header = some_ulpdu(14);
  Bytes payload = some_ulpdu(100);
  int region = 0;
  Extent e = extent_of(payload);
  e.region = &region;
  e.ticket = 7;
  Framer framer(true, false);
  Gather out;
  framer.frame(out, header, std::span(&e, 1));
  assert_int_equal(out.vectors().size(), 3);
  assert_ptr_equal(out.vectors()[1].iov_base, payload.data());
  assert_int_equal(out.regions().size(), 1);
  assert_ptr_equal(out.regions()[0].region, &region);

  // With markers it is cut into pieces, each under the same ticket.
  Framer marked(true, true);
  Gather cut;
  Bytes large = some_ulpdu(3000);
  e = extent_of(large);
  e.region = &region;
  e.ticket = 7;
  marked.frame(cut, header, std::span(&e, 1));
  WireSender reference(true, true);
  expect_octets(flatten(cut), reference.fpdu(concat({header, large})), "cut");
  assert_int_equal(cut.regions().size(), 1);
  assert_int_equal(cut.regions()[0].ticket, 7);
}

// A copied payload: the same FPDU, whose octets may change before they are written.
void payload_is_copied(void**) {
  const Bytes header = some_ulpdu(14);
  for (const bool crc : {false, true})
    for (const bool markers : {false, true})
      for (const std::size_t n : {0u, 1u, 7u, 1000u, 60000u}) {
        Bytes payload = some_ulpdu(n, 3);
        Framer framer(crc, markers);
        WireSender reference(crc, markers);
        const Bytes want = concat({reference.fpdu(concat({header, payload})), reference.fpdu(header)});
        Gather out;
        const Extent whole = extent_of(payload);
        assert_true(framer.frame_copied(out, header, std::span(&whole, 1)));
        framer.frame(out, header, {});
        std::fill(payload.begin(), payload.end(), std::byte{0});
        expect_octets(flatten(out), want, std::to_string(n));
        assert_int_equal(out.vectors().size(), 1);
        assert_int_equal(out.regions().size(), 0);
      }
}

// A CRC meets pages that are gone, behind a piece that is there: nothing was appended, and what follows is as ever.
void payload_that_is_gone(void**) {
  const long size = sysconf(_SC_PAGESIZE);
  void* gone = mmap(nullptr, static_cast<std::size_t>(size), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_true(gone != MAP_FAILED && llp::install_copy_guard());
  const Bytes header = some_ulpdu(14);
  const Bytes there = some_ulpdu(1000);
  int region = 0;
  const Extent pieces[] = {extent_of(there), {static_cast<std::byte*>(gone), 1000, &region, 1}};
  for (const bool markers : {false, true}) {
    Framer framer(true, markers);
    WireSender reference(true, markers);
    Gather out;
    framer.frame(out, header, {});
    assert_false(framer.frame(out, header, pieces));
    assert_false(framer.frame_copied(out, header, pieces));
    assert_int_equal(out.regions().size(), 0);
    assert_true(framer.frame(out, header, std::span(pieces, 1)));
    expect_octets(flatten(out), concat({reference.fpdu(header), reference.fpdu(concat({header, there}))}), "the rest");
  }
  munmap(gone, static_cast<std::size_t>(size));
}

void a_used_arena_leaves_nothing_behind(void**) {
  for (const bool markers : {false, true})
    for (const bool crc : {false, true}) {
      Gather out;
      const MutableOctets dirt = out.append(Gather::kArena);
      std::fill(dirt.begin(), dirt.end(), std::byte{0xa5});
      out.clear();
      Framer framer(crc, markers);
      WireSender reference(crc, markers);
      for (std::size_t n = 14; n < 40; ++n) {
        const Bytes ulpdu = some_ulpdu(n);
        frame(framer, out, ulpdu);
        expect_octets(flatten(out), reference.fpdu(ulpdu), std::to_string(n));
        out.clear();
      }
    }
}

void room_that_is_asked_for_suffices(void**) {
  for (const bool markers : {false, true})
    for (std::size_t offset = 24; offset <= 512; offset += 4)
      for (const std::size_t n : {14u, 15u, 500u, 506u, 1014u, 4000u, 64768u})
        for (const std::size_t pieces : {1u, 4u}) {
          Framer framer(false, markers);
          if (markers) {
            Deframer unused(false, true);
            advance_to(framer, unused, offset);
          }
          const std::size_t vectors = framer.vectors_needed(n, n > kHeader ? pieces : 0);
          const std::size_t arena = framer.arena_needed(kHeader, n);
          static const Bytes kLarge = some_ulpdu(64768);
          Gather out;
          frame(framer, out, Octets(kLarge).first(n), pieces);
          assert_true(out.vectors().size() <= vectors);
          assert_true(Gather::kArena - out.arena_room() <= arena);
        }
}

// Holds: MPA-17
void mpa_17_many_fpdus_in_one_run_come_out_in_order(void**) {
  for (const bool markers : {false, true}) {
    Framer framer(true, markers);
    Gather out;
    std::vector<Bytes> ulpdus;
    for (unsigned i = 0; i < 60; ++i) ulpdus.push_back(some_ulpdu(14 + i * 13, i));
    for (const Bytes& u : ulpdus) frame(framer, out, u);
    const Bytes stream = flatten(out);
    Deframer deframer(true, markers);
    Octets rest = stream;
    for (const Bytes& u : ulpdus) {
      const auto got = deframer.next(rest);
      assert_true(got.ok() && got.value().has_value());
      expect_octets(got.value()->ulpdu, u, "in order");
      rest = rest.subspan(got.value()->consumed);
    }
    assert_true(rest.empty());
  }
}

}  // namespace
}  // namespace ewarp::test

int main() {
  using namespace ewarp::test;
  std::vector<CMUnitTest> tests = {
      cmocka_unit_test(mpa_12_and_13_mulpdu_agrees_with_the_table),
      cmocka_unit_test(mpa_12_a_full_fpdu_fits_the_segment_at_every_marker_phase),
      cmocka_unit_test(mpa_1_to_5_encode_agrees_with_the_vectors),
      cmocka_unit_test(mpa_1_to_5_decode_agrees_with_the_vectors),
      cmocka_unit_test(mpa_78_recorded_siw_fpdus_decode_and_re_encode),
      cmocka_unit_test(mpa_19_pad_octets_count_as_they_were_sent),
      cmocka_unit_test(mpa_2_any_pad_value_is_accepted_for_every_pad_size),
      cmocka_unit_test(mpa_3_and_6_without_crc_the_field_is_zero_and_never_looked_at),
      cmocka_unit_test(mpa_7_every_flipped_bit_is_noticed),
      cmocka_unit_test(mpa_7_a_flipped_length_never_yields_an_fpdu),
      cmocka_unit_test(mpa_16_after_an_error_nothing_more_is_delivered),
      cmocka_unit_test(mpa_14_runts_are_fatal_at_once),
      cmocka_unit_test(mpa_11_any_length_of_16_bits_is_received),
      cmocka_unit_test(mpa_30_and_32_to_35_marked_stream_encodes_as_the_vectors),
      cmocka_unit_test(mpa_33_to_37_marked_stream_decodes_as_the_vectors),
      cmocka_unit_test(mpa_32_figures_of_rfc_5044),
      cmocka_unit_test(mpa_31_no_markers_unless_asked_for),
      cmocka_unit_test(mpa_30_to_35_every_phase_and_many_sizes),
      cmocka_unit_test(mpa_36_positions_across_the_wrap_of_the_sequence_space),
      cmocka_unit_test(mpa_36_positions_after_more_than_4_gib),
      cmocka_unit_test(mpa_37_reserved_bits_of_a_marker_are_ignored),
      cmocka_unit_test(mpa_38_a_marker_that_points_elsewhere_is_an_error_of_its_own),
      cmocka_unit_test(mpa_38_markers_are_judged_after_the_crc),
      cmocka_unit_test(mpa_38_only_the_last_of_many_markers_is_wrong),
      cmocka_unit_test(small_messages_share_one_vector),
      cmocka_unit_test(payload_is_gathered_in_place),
      cmocka_unit_test(payload_is_copied),
      cmocka_unit_test(payload_that_is_gone),
      cmocka_unit_test(a_used_arena_leaves_nothing_behind),
      cmocka_unit_test(room_that_is_asked_for_suffices),
      cmocka_unit_test(mpa_17_many_fpdus_in_one_run_come_out_in_order),
  };
  tests.insert(tests.end(), kSplitTests.begin(), kSplitTests.end());
  return _cmocka_run_group_tests("mpa framing", tests.data(), tests.size(), nullptr, nullptr);
}
