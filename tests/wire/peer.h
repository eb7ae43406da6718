// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The other end of a stream, played by a script. Its encoder, decoder and CRC are its own, so that it can send what our
// code never would and does not share our misreadings. Figures: RFC 5044 section 4.4, RFC 5041 section 4, RFC 5040
// section 4.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tests/vectors/vectors.h"
#include "tests/wire/peer_end.h"

namespace ewarp::wire {

using test::Bytes;
using test::concat;
using test::to_hex;

Bytes u8(unsigned value);
Bytes u16(unsigned value);
Bytes u32(std::uint32_t value);
Bytes u64(std::uint64_t value);
Bytes pattern(std::size_t octets, unsigned seed = 1);
Bytes slice(const Bytes& in, std::size_t from, std::size_t octets);
std::uint32_t crc32c(Octets in);

// RFC 5040 figure 4.
inline constexpr unsigned kWrite = 0, kReadRequest = 1, kReadResponse = 2, kSend = 3, kSendInv = 4, kSendSe = 5,
                          kSendSeInv = 6, kTerminate = 7, kImmediate = 8, kImmediateSe = 9, kAtomicRequest = 10,
                          kAtomicResponse = 11, kSendImmediate = 15;

// One DDP segment with every field free. ddp: the first octet (T 0x80, L 0x40, DV 0x03); ulp: the second (RV 0xc0).
Bytes tagged(unsigned ddp, unsigned ulp, std::uint32_t stag, std::uint64_t to, const Bytes& payload);
Bytes untagged(unsigned ddp, unsigned ulp, std::uint32_t word, std::uint32_t qn, std::uint32_t msn, std::uint32_t mo,
               const Bytes& payload);

// Well-formed ones.
Bytes write_segment(std::uint32_t stag, std::uint64_t to, const Bytes& payload, bool last = true);
Bytes read_response(std::uint32_t stag, std::uint64_t to, const Bytes& payload, bool last = true);
Bytes send_segment(std::uint32_t msn, const Bytes& payload, std::uint32_t mo = 0, bool last = true,
                   unsigned opcode = kSend, std::uint32_t invalidate = 0);
Bytes read_request(std::uint32_t msn, std::uint32_t sink_stag, std::uint64_t sink_to, std::uint32_t octets,
                   std::uint32_t source_stag, std::uint64_t source_to);
// RFC 7306 figures 5 and 7; Immediate Data takes any payload, so that it can be wrong.
struct AtomicFields {
  std::uint32_t op = 0, id = 0, stag = 0;
  std::uint64_t to = 0, data = 0, mask = 0, compare = 0, compare_mask = ~std::uint64_t{0};
};
Bytes atomic_request(std::uint32_t msn, const AtomicFields& fields);
Bytes atomic_response(std::uint32_t msn, std::uint32_t id, std::uint64_t original);
Bytes immediate(std::uint32_t msn, const Bytes& payload, unsigned opcode = kImmediate);
// headers: what follows the four control octets (segment length, DDP header, RDMAP header).
Bytes terminate(unsigned layer, unsigned type, unsigned code, unsigned hdrct = 0, const Bytes& headers = {});
// The Terminate that tells of this segment by its DDP header.
Bytes answer_to(const Bytes& ulpdu, unsigned layer, unsigned type, unsigned code);

// The fields of a segment that our code sent.
struct Segment {
  bool is_tagged = false, last = false;
  unsigned ahead = 0;  // segments that it tells of
  unsigned opcode = 0;
  std::uint32_t stag = 0, word = 0, qn = 0, msn = 0, mo = 0;
  std::uint64_t to = 0;
  Bytes payload;
};
// Fails the test on a segment with wrong versions, or with reserved bits set. consenting: but for those that have a
// meaning between two ends that agreed on extensions.
Segment dissect(const Bytes& ulpdu, bool consenting = false);

struct ReadFields {
  std::uint32_t sink_stag, octets, source_stag;
  std::uint64_t sink_to, source_to;
};
ReadFields dissect_read(const Segment& segment);
AtomicFields dissect_atomic(const Segment& segment);

// Every wait is bounded; running out of time fails the test.
class Peer {
 public:
  // Takes the fd. send_markers, get_markers: in which direction the start-up agreed on markers.
  Peer(int fd, bool crc, bool send_markers = false, bool get_markers = false);
  Peer(std::unique_ptr<PeerEnd> end, bool crc, bool send_markers = false, bool get_markers = false);

  // --- sending ---
  void send(const Bytes& ulpdu) { raw(frame(ulpdu)); }
  void raw(const Bytes& octets);
  // Returns when the other side has read everything (not over TCP).
  void wait_until_read();
  // One FPDU, as it comes next on this half of the stream.
  Bytes frame(const Bytes& ulpdu, unsigned pad_value = 0);
  // The same with marker pointers that lie by this many octets.
  Bytes frame_with_marker_error(const Bytes& ulpdu, unsigned error);
  // For a CRC that is wrong, or junk where none is checked.
  static Bytes spoil_crc(Bytes fpdu);
  // Whole FPDUs, one after the other, until the other side has taken none for a while, or ends; the last one goes in
  // part.
  void flood(const Bytes& ulpdu);
  void shut_down();
  void close();
  // TCP: the connection is reset. Rings: as close(); nothing else is like it.
  void reset();

  // --- receiving ---
  // Octets that have come and were not taken.
  int unread() const;
  Bytes next();
  Segment next_segment() { return dissect(next(), consenting); }
  void expect(const Bytes& ulpdu, const std::string& what = "ULPDU");
  // Nothing arrives for a while.
  void expect_silence(int milliseconds = 25);
  // The end of the stream, with no octet before it. A reset is not an end.
  void expect_fin();
  // TCP: the other side's kernel forgets the connection, while nothing is read here.
  void expect_forgotten();
  // Whatever still arrives is discarded until the end of the stream, be it a FIN or a reset.
  void discard();
  // Reads single octets: sees the stream's end, and how much came before it.
  std::size_t discard_until_end(bool* reset);

  bool consenting = false;  // extensions were agreed on
  // Largest ULPDU seen.
  std::size_t largest = 0;

 private:
  Bytes take(std::size_t octets);
  void take_marker(Bytes& covered);
  Bytes take_covered(std::size_t octets, Bytes& covered);
  Bytes frame_marked(const Bytes& ulpdu, unsigned pad_value, unsigned error);

  std::unique_ptr<PeerEnd> end_;
  bool crc_, send_markers_, get_markers_;
  std::uint64_t sent_ = 0, got_ = 0;  // octets of full operation, for the marker positions
  bool lead_marker_ = false;          // the FPDU being taken began with a marker
};

}  // namespace ewarp::wire
