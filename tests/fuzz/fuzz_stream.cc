// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The receive stack of a stream, MPA, DDP and RDMAP, as a connection drives it: staging, and payload that is received
// straight into its target. The input is a conversation: segments of a peer, each right but for what its record says,
// and deeds of our own side between them. The peer's FPDUs get length, markers, PAD and CRC of their own, so that all
// but the wanted errors get past MPA.
// However the octets are cut, and whether payload goes direct or not: the same completions, faults, answers and memory.
#include <array>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>

#include "rdmap/endpoint.h"
#include "tests/fuzz/records.h"
#include "tests/wire/ahead.h"

namespace ewarp::fuzz {
namespace {

using Bytes = std::vector<std::byte>;
using rdmap::Operation;
using rdmap::Status;

// Head: 0 crc, markers, extensions, initiator, peer to peer, RTR forms; 1 our marker and MULPDU; 2, 3 how octets are
// cut.
using Talk = Records<4, 16>;

enum Wrong : unsigned {  // bits of a record's octet 1
  kDdpVersion = 0x01,
  kRdmapVersion = 0x02,
  kCrc = 0x04,
  kLength = 0x08,
  kMarker = 0x10,
  kPad = 0x20,
  kShort = 0x40,   // the ULPDU ends early
  kTagBit = 0x80,  // tagged where the opcode is not, and the other way round
};

constexpr std::uint32_t kOpen = 1, kForeign = 2, kReadOnly = 3, kWriteOnly = 4, kGoing = 5;
constexpr std::size_t kRegion = 50000;
constexpr std::size_t kMostPayload = 48000;

struct Request : rdmap::SendRequest {
  std::vector<Bytes> pieces;  // each of exactly its size
  bool done = false;
};

// What both ways of receiving must agree on.
struct Story {
  bool misled = false;  // what was told of did not come
  std::vector<std::array<std::uint64_t, 4>> events;
  Bytes said;
  std::map<std::uint32_t, Bytes> memory;
  Bytes received;
  std::optional<Fault> fault;
  bool terminated = false;
  bool operator==(const Story&) const = default;
};

class Side final : public rdmap::Consumer {
 public:
  Side() {
    for (const std::uint32_t stag : {kOpen, kForeign, kReadOnly, kWriteOnly, kGoing})
      regions[stag] = Bytes(stag == kOpen ? kRegion : 3000);
  }
  void post(unsigned what, std::size_t length) {
    auto r = std::make_unique<Request>();
    r->operation = static_cast<Operation>(what % 5);
    r->fence = what & 8;
    r->solicited = what & 64;
    r->immediate = (what & 16) && !rdmap::has_response(r->operation);
    r->invalidate = (what & 32) && r->operation == Operation::send && !r->immediate;
    if (rdmap::is_atomic(r->operation)) length = 8;
    r->length = static_cast<std::uint32_t>(length);
    r->remote_stag = 0x99;
    r->pieces = cut(length, what);
    sends_.push_back(std::move(r));
  }
  void post_receive(unsigned how, std::size_t length) { receives_.push_back(cut(length, how)); }

  Story story;
  std::map<std::uint32_t, Bytes> regions;
  bool mapped = true;
  std::size_t unfinished() const {
    return static_cast<std::size_t>(std::count_if(sends_.begin(), sends_.end(), [](auto& r) { return !r->done; }));
  }

 private:
  enum Event : std::uint64_t { kSendDone, kReceived };
  static std::vector<Bytes> cut(std::size_t length, unsigned how) {
    if (how & 128) return {Bytes(length / 3), Bytes(length - length / 3)};
    return {Bytes(length)};
  }
  static Status pieces_of(std::vector<Bytes>& of, std::uint64_t at, std::uint64_t n, rdmap::ExtentList& out) {
    out.clear();
    for (Bytes& p : of) {
      if (at >= p.size()) {
        at -= p.size();
        continue;
      }
      const std::size_t here = std::min<std::uint64_t>(n, p.size() - at);
      if (here > 0) out.add({p.data() + at, here, nullptr, 0});
      n -= here;
      at = 0;
    }
    FUZZ_CHECK(n == 0);
    return Status::success;
  }

  rdmap::SendRequest* next_send() override { return started_ < sends_.size() ? sends_[started_].get() : nullptr; }
  void send_started() override { ++started_; }
  void send_done(rdmap::SendRequest& request, Status status) override {
    auto& r = static_cast<Request&>(request);
    FUZZ_CHECK(!r.done);
    r.done = true;
    const auto at = std::find_if(sends_.begin(), sends_.end(), [&](auto& s) { return s.get() == &r; });
    FUZZ_CHECK(at != sends_.end() && static_cast<std::size_t>(at - sends_.begin()) < started_);
    if (r.operation == Operation::read || rdmap::is_atomic(r.operation))
      for (const Bytes& p : r.pieces) story.received.insert(story.received.end(), p.begin(), p.end());
    r.pieces.clear();  // whoever touches it now is caught
    story.events.push_back(
        {kSendDone, static_cast<std::uint64_t>(at - sends_.begin()), static_cast<std::uint64_t>(status), 0});
  }
  Status request_memory(const rdmap::SendRequest& r, std::uint64_t at, std::uint64_t n,
                        rdmap::ExtentList& out) override {
    auto& request = const_cast<Request&>(static_cast<const Request&>(r));
    FUZZ_CHECK(!request.done && at <= r.length && n <= r.length - at);
    return pieces_of(request.pieces, at, n, out);
  }
  bool take_receive() override { return !receives_.empty(); }
  bool has_receive() const override { return !receives_.empty(); }
  std::uint64_t receive_capacity() const override {
    std::uint64_t n = 0;
    for (const Bytes& p : receives_.front()) n += p.size();
    return n;
  }
  Status receive_memory(std::uint64_t at, std::uint64_t n, rdmap::ExtentList& out) override {
    return pieces_of(receives_.front(), at, n, out);
  }
  void receive_done(const rdmap::Received& r) override {
    FUZZ_CHECK(!receives_.empty());
    FUZZ_CHECK(r.by_write || r.status != Status::success || r.length <= receive_capacity());
    if (r.status == Status::success)
      for (const Bytes& p : receives_.front()) story.received.insert(story.received.end(), p.begin(), p.end());
    receives_.pop_front();
    const unsigned flags =
        (r.solicited ? 8u : 0) | (r.immediate ? 4u : 0) | (r.by_write ? 2u : 0) | (r.invalidated ? 1u : 0);
    story.events.push_back(
        {kReceived, static_cast<std::uint64_t>(r.status), r.length, std::uint64_t{r.immediate_data} << 8 | flags});
  }
  ddp::Verdict resolve(std::uint32_t stag, std::uint64_t to, std::uint64_t n, rdmap::RemoteRight right,
                       llp::Extent& out) override {
    FUZZ_CHECK(n > 0);
    const auto r = regions.find(stag);
    if (r == regions.end()) return ddp::Verdict::invalid_stag;
    if (stag == kForeign) return ddp::Verdict::not_associated;
    if ((stag == kReadOnly && right != rdmap::RemoteRight::read) ||
        (stag == kWriteOnly && right != rdmap::RemoteRight::write))
      return ddp::Verdict::access;
    if (to + n < to) return ddp::Verdict::wrap;
    if (to + n > r->second.size()) return ddp::Verdict::bounds;
    out = {r->second.data() + to, n, nullptr, 0};
    return ddp::Verdict::ok;
  }
  ddp::Verdict invalidate(std::uint32_t stag) override {
    // Kept in memory: what is in use at this moment is looked at again by the connection, not here.
    if (stag != kGoing || gone_) return ddp::Verdict::invalid_stag;
    gone_ = true;
    return ddp::Verdict::ok;
  }
  bool copy_in(const llp::Extent& to, const std::byte* from) override {
    if (!mapped) return false;
    std::memcpy(to.address, from, to.length);
    return true;
  }
  bool atomic(const llp::Extent& target, const rdmap::AtomicRequest& a, std::uint64_t* original) override {
    FUZZ_CHECK(target.length == 8 && reinterpret_cast<std::uintptr_t>(target.address) % 8 == 0);
    if (!mapped) return false;
    std::memcpy(original, target.address, sizeof *original);
    const std::uint64_t now = a.is(rdmap::AtomicRequest::Op::fetch_add)
                                  ? rdmap::fetch_add(*original, a.data, a.data_mask)
                                  : rdmap::compare_swap(*original, a.data, a.data_mask, a.compare, a.compare_mask);
    std::memcpy(target.address, &now, sizeof now);
    return true;
  }
  bool readable(const llp::Extent&) override { return mapped; }
  bool hold(const llp::Extent&) override { return mapped; }
  void let_go(const llp::Extent&) override {}

  std::deque<std::unique_ptr<Request>> sends_;  // all that were ever posted
  std::size_t started_ = 0;
  std::deque<std::vector<Bytes>> receives_;  // the current one is in front
  bool gone_ = false;
};

// As provider/verbs/rc/connection.cc: staging and what goes direct are the two targets of one system call.
class Connection {
 public:
  Connection(Side& side, const mpa::StreamParams& params, std::size_t mulpdu, bool direct, unsigned seed)
      : side_(side),
        crc_(params.crc),
        markers_(params.tx_markers),
        endpoint(side, params, mulpdu),
        direct_(direct),
        random_(seed) {}

  // These octets arrive, at once or in pieces.
  void arrive(Octets octets) {
    if (!direct_) {
      staged_.insert(staged_.end(), octets.begin(), octets.end());
      parse();
      return;
    }
    while (!octets.empty()) octets = octets.subspan(receive(octets));
  }
  // Takes what is to be sent, and looks whether a peer could read it.
  void transmit(bool all) {
    for (int i = 0; endpoint.wants_transmit(); ++i) {
      FUZZ_CHECK(i < 10000);
      const std::size_t before = out_.octets();
      endpoint.transmit(out_, 70000);
      if (out_.empty()) break;
      FUZZ_CHECK(out_.octets() >= before);
      std::size_t n = out_.octets();
      for (const iovec& v : out_.vectors()) {
        const auto* at = static_cast<const std::byte*>(v.iov_base);
        side_.story.said.insert(side_.story.said.end(), at, at + v.iov_len);
      }
      out_.consume(n);
      endpoint.transmitted(n);
      if (!all) break;
    }
  }
  void parse() {
    const Bytes in = exact(staged_);
    const std::size_t taken = endpoint.receive(in);
    FUZZ_CHECK(taken <= in.size());
    staged_.erase(staged_.begin(), staged_.begin() + static_cast<std::ptrdiff_t>(taken));
    FUZZ_CHECK(endpoint.stalled() || staged_.size() <= mpa::fpdu_octets(65535) + 600);
  }
  void check_said() {
    mpa::Deframer deframer(crc_, markers_);
    Octets in(side_.story.said);
    while (!in.empty()) {
      const auto got = deframer.next(in);
      FUZZ_CHECK(got.ok() && got.value().has_value());
      const Octets ulpdu = got.value()->ulpdu;
      const auto* t = rdmap::traits(rdmap::opcode_of(std::to_integer<std::uint8_t>(ulpdu[1])));
      FUZZ_CHECK(t != nullptr && t->tagged == ddp::is_tagged(ulpdu));
      if (t->tagged)
        FUZZ_CHECK(ddp::TaggedHeader::parse(ulpdu).ok());
      else
        FUZZ_CHECK(ddp::UntaggedHeader::parse(ulpdu).ok());
      in = in.subspan(got.value()->consumed);
    }
  }

 private:
  Side& side_;
  bool crc_, markers_;

 public:
  rdmap::Endpoint endpoint;

 private:
  std::size_t receive(Octets octets) {
    static constexpr std::size_t kPieces[] = {1, 7, 60, 511, 1448, 3000, 9000, 30000, 70000};
    std::size_t room = std::min(octets.size(), kPieces[random_() % std::size(kPieces)]);
    std::size_t taken = 0, stored = 0;
    Ahead ahead(endpoint);
    const bool gone = !side_.mapped && !endpoint.direct().empty() && random_() % 2;
    if (gone) {
      endpoint.direct_failed();
    } else {
      for (const llp::Extent& e : endpoint.direct()) {
        if (!side_.mapped) break;  // the octets come by way of staging, and cannot be placed
        const std::size_t n = std::min(room - taken, e.length);
        std::memcpy(e.address, octets.data() + taken, n);
        taken += n;
        stored += n;
      }
      if (stored > 0) endpoint.direct_received(stored);
      if (stored > 0 && endpoint.direct().empty() && ahead.room() > 0)
        return taken + receive_ahead(ahead, octets.subspan(taken));
    }
    if (endpoint.fault() || endpoint.terminated()) return room;
    // A connection offers little staging while payload goes direct.
    const std::size_t staged = std::min(room - taken, stored > 0 ? std::size_t{512} : room);
    staged_.insert(staged_.end(), octets.begin() + static_cast<std::ptrdiff_t>(taken),
                   octets.begin() + static_cast<std::ptrdiff_t>(taken + staged));
    parse();
    return taken + staged;
  }
  // What the same receive brings behind the payload that went direct. Returns how many octets.
  std::size_t receive_ahead(Ahead& ahead, Octets octets) {
    octets = octets.first(std::min<std::size_t>(octets.size(), random_() % (ahead.room() + 513)));
    const Bytes standing = ahead.arrived(octets);
    side_.story.misled |= endpoint.fault() == fault::kDdpLocalCatastrophic || endpoint.terminated();
    staged_.insert(staged_.end(), standing.begin(), standing.end());
    parse();
    return octets.size();
  }
  bool direct_;
  std::minstd_rand random_;
  Bytes staged_;
  llp::Gather out_;
};

// The peer's half of the stream.
class Peer {
 public:
  Peer(bool crc, bool markers) : crc_(crc), markers_(markers) {}

  Bytes segment(const std::array<std::uint8_t, 16>& r, const Bytes& heard) {
    const unsigned opcode = r[0] & 15, wrong = r[1];
    const bool last = (r[0] & 16) == 0;
    const auto* traits = rdmap::traits(static_cast<std::uint8_t>(opcode));
    const bool tagged = (traits != nullptr && traits->tagged) != ((wrong & kTagBit) != 0);
    Bytes body = payload(opcode, r);
    Bytes s;
    const auto ulp = static_cast<std::uint8_t>((wrong & kRdmapVersion ? 0 : 0x40) | (r[0] & 32 ? 0x10 : 0) | opcode);
    if (tagged) {
      std::uint32_t stag = r[2];
      std::uint64_t to = number(r, 8, 8);
      if (opcode == 2) {  // what was asked for, or near it
        const auto asked = asked_for(heard);
        stag = asked.first + r[2];
        to += asked.second + answered_;
        answered_ = last ? 0 : answered_ + body.size();
        answers_ += last;
      } else if (r[3] == 0) {
        to += written_;
        written_ = last ? 0 : written_ + body.size();
      }
      s.resize(ddp::TaggedHeader::kSize);
      ddp::TaggedHeader{last, ulp, stag, to}.emit(std::span(s).first<ddp::TaggedHeader::kSize>());
    } else {
      const std::uint32_t qn = (traits == nullptr ? 0 : traits->qn) ^ (r[2] >> 4);
      const std::size_t q = qn & 3;
      s.resize(ddp::UntaggedHeader::kSize);
      ddp::UntaggedHeader{last, ulp, r[2] & 15u, qn, msn_[q] + r[3], mo_[q] + r[4]}.emit(
          std::span(s).first<ddp::UntaggedHeader::kSize>());
      mo_[q] = last ? 0 : mo_[q] + static_cast<std::uint32_t>(body.size());
      msn_[q] += last;
      answers_ += opcode == 11;
    }
    if (!last) ddp::set_ahead(s, r[14] >> 4);
    if (wrong & kDdpVersion) s[0] ^= std::byte{0x03};
    s.insert(s.end(), body.begin(), body.end());
    if (wrong & kShort) s.resize(r[15] % (s.size() + 1));
    return frame(s, wrong, r[5]);
  }

 private:
  static std::uint64_t number(const std::array<std::uint8_t, 16>& r, std::size_t at, std::size_t octets) {
    std::uint64_t n = 0;
    for (std::size_t i = 0; i < octets; ++i) n = n << 8 | r[at + i];
    return n;
  }
  Bytes payload(unsigned opcode, const std::array<std::uint8_t, 16>& r) const {
    const auto at = number(r, 12, 4);
    if (opcode == 1) {
      Bytes b(rdmap::ReadRequest::kSize);
      rdmap::ReadRequest{7, 0, static_cast<std::uint32_t>(number(r, 6, 2)), r[2], at}.emit(
          std::span(b).first<rdmap::ReadRequest::kSize>());
      return b;
    }
    if (opcode == 10) {
      Bytes b(rdmap::AtomicRequest::kSize);
      rdmap::AtomicRequest a;
      a.op = r[6] & 15;
      a.stag = r[2];
      a.to = at;
      a.data = number(r, 8, 4);
      a.data_mask = r[7] & 1 ? ~std::uint64_t{0} : 0;
      a.compare_mask = r[7] & 2 ? ~std::uint64_t{0} : 0;
      a.emit(std::span(b).first<rdmap::AtomicRequest::kSize>());
      return b;
    }
    if (opcode == 11) {
      Bytes b(rdmap::AtomicResponse::kSize);
      rdmap::AtomicResponse{static_cast<std::uint32_t>(id_ + r[6]), 5}.emit(
          std::span(b).first<rdmap::AtomicResponse::kSize>());
      return b;
    }
    if (opcode == 7) {
      rdmap::Terminate t;
      t.fault = {static_cast<Layer>(r[6] & 3), static_cast<std::uint8_t>(r[6] >> 4), r[7]};
      if (r[8] & 1) {
        t.length_valid = true;
        t.ddp_header.resize(r[8] & 2 ? ddp::TaggedHeader::kSize : ddp::UntaggedHeader::kSize);
        if (r[8] & 2)
          ddp::TaggedHeader{true, static_cast<std::uint8_t>(0x40 | (r[9] & 15)), 0x99, r[10]}.emit(
              std::span(t.ddp_header).first<ddp::TaggedHeader::kSize>());
        else
          ddp::UntaggedHeader{true, static_cast<std::uint8_t>(0x40 | (r[9] & 15)), 0, r[10] & 3u, r[11], 0}.emit(
              std::span(t.ddp_header).first<ddp::UntaggedHeader::kSize>());
      }
      if (r[8] & 4) t.rdmap_header.resize(rdmap::ReadRequest::kSize);
      return t.emit();
    }
    const std::size_t n = (opcode == 8 || opcode == 9) && r[6] == 0 ? 8 : number(r, 6, 2) % kMostPayload;
    Bytes b(n);
    for (std::size_t i = 0; i < n; ++i) b[i] = static_cast<std::byte>(r[5] + i * 7 + (i >> 8));
    return b;
  }
  // Sink of the Read that is to be answered next, found in what was said so far.
  std::pair<std::uint32_t, std::uint64_t> asked_for(const Bytes& heard) {
    mpa::Deframer deframer(crc_, false);
    Octets in(heard);
    std::size_t n = 0;
    while (!in.empty()) {
      const auto got = deframer.next(in);
      if (!got.ok() || !got.value()) break;
      const Octets u = got.value()->ulpdu;
      const unsigned opcode = std::to_integer<unsigned>(u[1]) & 15;
      if (opcode == 1 || opcode == 10) {
        const Octets h = u.subspan(ddp::UntaggedHeader::kSize);
        if (n++ == answers_) {
          id_ = opcode == 10 ? get_be<std::uint32_t>(h, 4) : 0;
          return {get_be<std::uint32_t>(h, 0), get_be<std::uint64_t>(h, 4)};
        }
      }
      in = in.subspan(got.value()->consumed);
    }
    return {0, 0};
  }
  // RFC 5044 section 4: by hand, so that every field can be wrong.
  Bytes frame(const Bytes& ulpdu, unsigned wrong, std::uint8_t how) {
    Bytes plain(mpa::kLengthField);
    put_be<std::uint16_t>(plain, 0, static_cast<std::uint16_t>(ulpdu.size() + (wrong & kLength ? how - 128 : 0)));
    plain.insert(plain.end(), ulpdu.begin(), ulpdu.end());
    plain.resize(plain.size() + mpa::pad_octets(ulpdu.size()), static_cast<std::byte>(wrong & kPad ? how : 0));
    Bytes out;
    const std::uint64_t began = sent_;
    std::uint64_t start = began;  // where the length field is
    const auto put = [&](std::byte b) {
      out.push_back(b);
      ++sent_;
    };
    const auto marker = [&] {
      if (!markers_ || sent_ % mpa::kMarkerSpacing != 0) return;
      const unsigned back =
          sent_ == began ? 0 : static_cast<std::uint16_t>(sent_ - start + (wrong & kMarker ? how : 0));
      for (const unsigned b : {0u, 0u, back >> 8, back & 255u}) put(static_cast<std::byte>(b));
      if (back == 0 && sent_ == began + mpa::kMarkerSize) start = began;
    };
    for (const std::byte b : plain) {
      marker();
      put(b);
    }
    marker();
    llp::Crc32c sum;
    sum.update(out);
    std::array<std::byte, mpa::kCrcField> field;
    sum.emit(field);
    if (wrong & kCrc) field[how & 3] ^= std::byte{0x10};
    if (!crc_ && (how & 1)) field.fill(static_cast<std::byte>(how));  // says nothing
    for (const std::byte b : field) put(b);
    return out;
  }
  bool crc_, markers_;
  std::uint64_t sent_ = 0;
  std::array<std::uint32_t, 4> msn_{1, 1, 1, 1}, mo_{};
  std::uint64_t written_ = 0, answered_ = 0;
  std::size_t answers_ = 0;
  std::uint32_t id_ = 0;
};

mpa::StreamParams params_of(const std::array<std::uint8_t, 4>& head) {
  mpa::StreamParams p;
  p.crc = (head[0] & 1) == 0;
  p.rx_markers = head[0] & 2;
  p.extensions = (head[0] & 4) == 0;
  p.initiator = (head[0] & 8) == 0;
  p.peer_to_peer = head[0] & 16;
  p.enhanced = p.peer_to_peer;
  static constexpr std::uint8_t kForms[] = {mpa::kRtrWrite, mpa::kRtrRead, mpa::kRtrSend};
  p.rtr = p.initiator ? (p.peer_to_peer ? kForms[(head[0] >> 6) % 3] : 0) : (head[0] >> 5 & 7);
  p.ird = p.ord = 3;
  return p;
}

// False: what is heard may differ when payload goes direct, as it is placed before all of its FPDU has come.
bool comparable(const Talk& talk) {
  for (std::size_t i = 0; i < talk.count(); ++i) {
    const auto r = talk[i];
    if ((r[0] >> 6) < 2 && (r[1] & (kLength | kShort)) != 0) return false;
    if ((r[0] >> 6) >= 2 && (r[0] & 15) == 4) return false;  // pages that go away
  }
  return true;
}

Story tell(const Talk& talk, bool direct) {
  const auto head = talk.head();
  const mpa::StreamParams params = params_of(head);
  Side side;
  static constexpr std::size_t kMulpdu[] = {128, 1442, 8934, mpa::kMaxMulpdu};
  Connection c(side, params, kMulpdu[head[1] & 3], direct, 1u + head[2] + 256u * head[3]);
  Peer peer(params.crc, params.rx_markers);
  Bytes together;  // what comes with the next segment
  for (std::size_t i = 0; i < talk.count() && i < 200; ++i) {
    const auto r = talk[i];
    if (r[0] >> 6 < 2) {
      const Bytes segment = peer.segment(r, side.story.said);
      together.insert(together.end(), segment.begin(), segment.end());
      if (r[14] & 1) continue;
    }
    c.arrive(std::exchange(together, {}));
    if (r[0] >> 6 < 2) continue;
    const std::size_t length = (r[2] + 256u * r[3]) % kMostPayload;
    switch (r[0] & 15) {
      case 0:
      case 1:
        side.post_receive(r[1], length);
        c.parse();
        break;
      case 2:
      case 3:
        side.post(r[1], length);
        c.transmit(true);
        break;
      case 4:
        side.mapped = !side.mapped;
        break;
      case 5:
        c.endpoint.stop_waiting();
        c.parse();
        break;
      case 6:
        c.endpoint.speak_first();
        break;
      case 7:
        c.endpoint.fail(fault::kRdmapLocalCatastrophic);
        break;
      case 8:
        side.post(r[1], length);  // and it is not sent yet
        break;
      default:
        c.transmit(true);
        break;
    }
  }
  c.transmit(true);
  (void)c.endpoint.end_of_stream();
  c.check_said();
  side.story.fault = c.endpoint.fault();
  side.story.terminated = c.endpoint.terminated().has_value();
  // With a fault in the middle, some payload may be placed that was not told of.
  if (!c.endpoint.fault() && c.endpoint.end_of_stream()) side.story.memory = std::move(side.regions);
  c.endpoint.abandon();
  FUZZ_CHECK(!c.endpoint.wants_transmit() || c.endpoint.fault().has_value());
  return std::move(side.story);
}

}  // namespace
}  // namespace ewarp::fuzz

FUZZ_MUTATES(ewarp::fuzz::Talk)

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ewarp::fuzz;
  const Talk talk(data, size);
  const Story direct = tell(talk, true);
  if (!comparable(talk)) return 0;
  const Story staged = tell(talk, false);
  if (direct.misled) return 0;
  FUZZ_CHECK(direct.events == staged.events);
  FUZZ_CHECK(direct.fault == staged.fault && direct.terminated == staged.terminated);
  FUZZ_CHECK(direct.said == staged.said);
  FUZZ_CHECK(direct.received == staged.received);
  if (!direct.memory.empty() && !staged.memory.empty()) FUZZ_CHECK(direct.memory == staged.memory);
  return 0;
}
