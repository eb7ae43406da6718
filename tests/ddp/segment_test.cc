// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// How messages are cut.
#include "ddp/segment.h"

#include "ddp/header.h"
#include "mpa/framing.h"
#include "tests/ddp/ddp_tests.h"

namespace ewarp::test {
namespace {

using ddp::Cut;

// Holds: DDP-4, DDP-5, DDP-6, DDP-7, DDP-8
void ddp_4_to_8_segments_agree_with_the_vectors(void**) {
  for (const Json& v : load("ddp_segmentation.json", "vectors")) {
    const Json& segments = v["segments"];
    const bool tagged = segments[0].contains("TO");
    const std::size_t header = tagged ? ddp::TaggedHeader::kSize : ddp::UntaggedHeader::kSize;
    std::uint64_t length = 0, offset = 0;
    for (const Json& s : segments) length += number(s["payload_len"]);
    const Bytes first = hex(segments[0]["header_hex"]);
    for (const Json& s : segments) {
      const Cut c = ddp::cut(length, offset, number(v["mulpdu"]), header);
      EXPECT(v["id"], c.payload == number(s["payload_len"]) && c.last == flag(s, "L") && c.offset == offset);

      Bytes got(header, std::byte{0x5a});
      if (tagged) {
        auto h = ddp::TaggedHeader::parse(first).value();  // of the message; then what changes from cut to cut
        h.last = c.last;
        h.offset += c.offset;
        h.emit(std::span(got).first<ddp::TaggedHeader::kSize>());
      } else {
        auto h = ddp::UntaggedHeader::parse(first).value();
        h.last = c.last;
        h.mo = static_cast<std::uint32_t>(c.offset);
        h.emit(std::span(got).first<ddp::UntaggedHeader::kSize>());
      }
      expect_octets(got, hex(s["header_hex"]), v["id"]);
      offset += c.payload;
    }
    EXPECT(v["id"], offset == length);
  }
}

// Walks a message and returns the number of its segments.
std::uint64_t walk(std::uint64_t length, std::size_t mulpdu, std::size_t header) {
  std::uint64_t offset = 0, segments = 0;
  for (;;) {
    const Cut c = ddp::cut(length, offset, mulpdu, header);
    ++segments;
    assert_true(c.offset == offset && header + c.payload <= mulpdu);
    offset += c.payload;
    assert_true(offset <= length);
    assert_int_equal(c.last, offset == length);
    if (c.last) return segments;
    assert_int_equal(header + c.payload, mulpdu);
  }
}

// Holds: DDP-4, DDP-6, DDP-7
void ddp_4_6_and_7_every_small_length(void**) {
  for (const std::size_t header : {14u, 18u})
    for (const std::size_t mulpdu : {128u, 129u, 130u, 131u})
      for (std::uint64_t length = 0; length < 1000; ++length) {
        const std::uint64_t room = mulpdu - header;
        assert_int_equal(walk(length, mulpdu, header), length == 0 ? 1 : (length + room - 1) / room);
      }
}

// Holds: DDP-26
void ddp_26_the_longest_message_does_not_overflow(void**) {
  constexpr std::uint64_t kLongest = 0xffffffff;
  assert_int_equal(walk(kLongest, 64768, 18), (kLongest + 64749) / 64750);
  assert_int_equal(walk(kLongest, 1442, 14), (kLongest + 1427) / 1428);
  const Cut last = ddp::cut(kLongest, kLongest - 1, 128, 18);
  assert_true(last.last && last.payload == 1 && last.offset == kLongest - 1);
}

// Behind it a message is cut as if it began there.
void a_lead_is_cut_into_short_segments(void**) {
  constexpr std::size_t kMulpdu = 130, kHeader = 18;
  for (const std::uint64_t lead : {0u, 4u, 12u})
    for (std::uint64_t length = lead + 1; length < 1000; ++length) {
      std::uint64_t offset = 0;
      for (bool last = false; !last;) {
        const Cut c = ddp::cut_with_lead(length, offset, kMulpdu, kHeader, lead, 4);
        assert_int_equal(c.offset, offset);
        if (offset < lead) {
          assert_true(c.payload == 4 && !c.last);
        } else {
          const Cut want = ddp::cut(length - lead, offset - lead, kMulpdu, kHeader);
          assert_true(c.payload == want.payload && c.last == want.last);
        }
        offset += c.payload;
        last = c.last;
      }
      assert_int_equal(offset, length);
    }
}

void full_segments_need_no_pad_where_mulpdu_is_not_clamped(void**) {
  for (std::size_t emss = 200; emss < 9000; ++emss)
    for (const bool markers : {false, true})
      for (const std::size_t header : {14u, 18u}) {
        const std::size_t mulpdu = mpa::mulpdu(emss, markers);
        const Cut c = ddp::cut(1000000, 0, mulpdu, header);
        assert_int_equal(c.payload % 4, 0);
        assert_int_equal(mpa::pad_octets(header + c.payload), 0);
      }
}

void few_segments_are_equally_long(void**) {
  constexpr std::size_t kMulpdu = 1442, kHeader = 18;
  for (std::uint64_t length = 1; length < 40000; length += 37) {
    std::uint64_t offset = 0, segments = 0;
    const std::uint64_t least = (length + kMulpdu - kHeader - 1) / (kMulpdu - kHeader);
    const std::uint32_t first = ddp::cut_evenly(length, 0, kMulpdu, kHeader).payload;
    for (bool last = false; !last; ++segments) {
      const Cut c = ddp::cut_evenly(length, offset, kMulpdu, kHeader);
      assert_true(c.offset == offset && c.payload <= kMulpdu - kHeader && c.payload <= first);
      last = c.last;
      assert_true(c.payload == first || (last && (least > 16 || first - c.payload < least)));
      offset += c.payload;
    }
    assert_int_equal(offset, length);
    assert_int_equal(segments, least);
  }
}

}  // namespace

const std::vector<CMUnitTest> kSegmentTests = {
    cmocka_unit_test(ddp_4_to_8_segments_agree_with_the_vectors),
    cmocka_unit_test(ddp_4_6_and_7_every_small_length),
    cmocka_unit_test(ddp_26_the_longest_message_does_not_overflow),
    cmocka_unit_test(full_segments_need_no_pad_where_mulpdu_is_not_clamped),
    cmocka_unit_test(few_segments_are_equally_long),
    cmocka_unit_test(a_lead_is_cut_into_short_segments),
};

}  // namespace ewarp::test
