// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The same stream in every way that TCP may cut it: the result must not depend on it.
#include <algorithm>
#include <optional>

#include "mpa/framing.h"
#include "tests/mpa/wire_fpdu.h"

namespace ewarp::test {
namespace {

using mpa::Deframer;

// What a stream came to: ULPDUs, then at most one fault.
struct Heard {
  std::vector<Bytes> ulpdus;
  std::optional<Fault> fault;
  std::size_t left = 0;  // octets that are no whole FPDU
  bool operator==(const Heard&) const = default;
};

// Keeps what was not consumed, as a staging buffer does. Each call sees a buffer of exactly the octets that arrived.
class Listener {
 public:
  Listener(bool crc, bool markers) : deframer_(crc, markers) {}

  void arrive(Octets octets) {
    pending_.insert(pending_.end(), octets.begin(), octets.end());
    while (!heard_.fault.has_value()) {
      const Bytes in = exact(pending_);
      const auto got = deframer_.next(in);
      if (!got.ok()) {
        heard_.fault = got.error();
      } else if (got.value().has_value()) {
        assert_true(got.value()->consumed <= in.size());
        heard_.ulpdus.push_back(exact(got.value()->ulpdu));
        pending_.erase(pending_.begin(), pending_.begin() + static_cast<std::ptrdiff_t>(got.value()->consumed));
      } else {
        break;
      }
    }
  }

  Heard heard() const {
    Heard h = heard_;
    h.left = h.fault.has_value() ? 0 : pending_.size();
    return h;
  }

 private:
  Deframer deframer_;
  Bytes pending_;
  Heard heard_;
};

struct Stream {
  std::string what;
  bool crc, markers;
  Bytes octets;
  Heard heard;                    // of the whole stream
  std::vector<std::size_t> ends;  // of the good FPDUs
};

enum class Defect { none, crc, marker, runt };

const char* name_of(Defect d) {
  switch (d) {
    case Defect::none:
      return "good";
    case Defect::crc:
      return "bad CRC";
    case Defect::marker:
      return "bad marker";
    case Defect::runt:
      return "runt";
  }
  return "";
}

// Good FPDUs of sizes that end around the marker positions, then the defect, then good ones again.
Stream make_stream(bool crc, bool markers, Defect defect) {
  Stream s;
  s.what = std::string(name_of(defect)) + (crc ? ", CRC" : "") + (markers ? ", markers" : "");
  s.crc = crc;
  s.markers = markers;
  WireSender sender(crc, markers);
  const auto add = [&s](const Bytes& fpdu) { s.octets.insert(s.octets.end(), fpdu.begin(), fpdu.end()); };
  unsigned seed = 0;
  for (const std::size_t n : {506u, 498u, 14u, 15u, 18u, 21u, 640u}) {
    const Bytes ulpdu = some_ulpdu(n, ++seed);
    add(sender.fpdu(ulpdu));
    s.heard.ulpdus.push_back(ulpdu);
    s.ends.push_back(s.octets.size());
  }
  switch (defect) {
    case Defect::none:
      return s;
    case Defect::crc:
      add(sender.fpdu(some_ulpdu(40), {.crc_xor = 0x80}));
      s.heard.fault = fault::kMpaCrc;
      break;
    case Defect::marker:
      add(sender.fpdu(some_ulpdu(600), {.pointer_xor = 8}));
      s.heard.fault = fault::kMpaMarker;
      break;
    case Defect::runt:
      add(sender.fpdu(some_ulpdu(13)));
      s.heard.fault = fault::kDdpLocalCatastrophic;
      break;
  }
  add(sender.fpdu(some_ulpdu(50)));
  return s;
}

std::vector<Stream> all_streams() {
  std::vector<Stream> out;
  for (const bool crc : {false, true})
    for (const bool markers : {false, true})
      for (const Defect d : {Defect::none, Defect::crc, Defect::marker, Defect::runt}) {
        if (d == Defect::crc && !crc) continue;
        if (d == Defect::marker && !markers) continue;
        out.push_back(make_stream(crc, markers, d));
      }
  return out;
}

// Holds: MPA-10
void mpa_10_octet_by_octet(void**) {
  for (const Stream& s : all_streams()) {
    Listener listener(s.crc, s.markers);
    for (std::size_t i = 0; i < s.octets.size(); ++i) listener.arrive(Octets(s.octets).subspan(i, 1));
    EXPECT(s.what, listener.heard() == s.heard);
  }
}

// Holds: MPA-10
void mpa_10_every_split_in_two(void**) {
  for (const Stream& s : all_streams())
    for (std::size_t cut = 0; cut <= s.octets.size(); ++cut) {
      Listener listener(s.crc, s.markers);
      listener.arrive(Octets(s.octets).first(cut));
      listener.arrive(Octets(s.octets).subspan(cut));
      EXPECT(s.what + " cut at " + std::to_string(cut), listener.heard() == s.heard);
    }
}

// Holds: MPA-10
void mpa_10_pieces_of_every_size(void**) {
  for (const Stream& s : all_streams())
    for (std::size_t piece = 1; piece < 700; piece += piece < 40 ? 1 : 37) {
      Listener listener(s.crc, s.markers);
      for (std::size_t at = 0; at < s.octets.size(); at += piece)
        listener.arrive(Octets(s.octets).subspan(at, std::min(piece, s.octets.size() - at)));
      EXPECT(s.what + " pieces of " + std::to_string(piece), listener.heard() == s.heard);
    }
}

// Holds: MPA-15
void mpa_15_a_stream_that_ends_inside_an_fpdu_yields_only_the_whole_ones(void**) {
  for (const Stream& s : all_streams())
    for (std::size_t end = 0; end <= s.octets.size(); ++end) {
      Listener listener(s.crc, s.markers);
      listener.arrive(Octets(s.octets).first(end));
      std::size_t whole = 0;
      while (whole < s.ends.size() && s.ends[whole] <= end) ++whole;
      EXPECT(s.what + " ended at " + std::to_string(end), listener.heard().ulpdus.size() == whole);
      // Between two FPDUs nothing is left over: a FIN is graceful there and nowhere else.
      const std::size_t boundary = whole == 0 ? 0 : s.ends[whole - 1];
      if (!listener.heard().fault.has_value()) EXPECT(s.what, listener.heard().left == end - boundary);
    }
}

}  // namespace

const std::vector<CMUnitTest> kSplitTests = {
    cmocka_unit_test(mpa_10_octet_by_octet),
    cmocka_unit_test(mpa_10_every_split_in_two),
    cmocka_unit_test(mpa_10_pieces_of_every_size),
    cmocka_unit_test(mpa_15_a_stream_that_ends_inside_an_fpdu_yields_only_the_whole_ones),
};

}  // namespace ewarp::test
