// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A host of the simulation: what stands for DDP and RDMAP above an association, and checks everything.
#include <algorithm>
#include <cstring>

#include "ddp/header.h"
#include "rdmap/header.h"
#include "tests/llp/rd_sim.h"

namespace ewarp::rdsim {
namespace {

constexpr std::size_t kTagged = ddp::TaggedHeader::kSize, kUntagged = ddp::UntaggedHeader::kSize;
constexpr std::uint8_t kRefusedVersion = 0x00;  // RDMAP version 0: what the peer finds bad

std::uint8_t control(rdmap::Opcode op, bool bad) {
  const std::uint8_t good = rdmap::control(op);
  return bad ? static_cast<std::uint8_t>((good & 0x0f) | kRefusedVersion) : good;
}

bool is_bad(Octets segment) {
  return rdmap::version_of(std::to_integer<std::uint8_t>(segment[1])) != rdmap::kRdmapVersion;
}

unsigned opcode(Octets segment) {
  return rdmap::opcode_of(std::to_integer<std::uint8_t>(segment[1]));
}

}  // namespace

// --- a host: what is asked of it from outside ---

Host::Host(Network& network, unsigned number, const Config& config, std::uint64_t seed)
    : network_(network), number_(number), config_(config), random_(seed) {
  table_ = std::make_unique<llp::rd::Table>(config_, *this, *this, *this);
  network_.attach(number, this);
}

std::byte Host::content(std::uint32_t id, std::uint32_t offset) {
  return static_cast<std::byte>((id * 2654435761u) >> 24 ^ offset * 31 ^ offset >> 8);
}

Bytes Host::pattern(std::uint32_t id, std::size_t n) {
  Bytes out(n);
  for (std::size_t i = 0; i < n; ++i) out[i] = content(id, static_cast<std::uint32_t>(i));
  return out;
}

Key Host::key(unsigned peer) const {
  return {address_of(peer).ip, qpn_of(number_), qpn_of(peer), 0x11111111};
}

Association* Host::association(unsigned peer) {
  return table_->find(key(peer));
}

void Host::submit(unsigned peer, Kind kind, std::uint32_t id, std::uint32_t parts, int bad, int lost_source) {
  auto r = std::make_unique<Request>();
  r->kind = kind;
  r->id = id;
  r->parts = parts;
  r->bad = bad;
  r->lost_source = lost_source;
  const std::size_t n = std::size_t{parts} * part_octets(id);
  r->memory = kind == Kind::read ? Bytes(n) : pattern(id, n);
  auto& s = streams_[peer];
  if (!s) s = std::make_unique<Stream>();
  s->peer = peer;
  s->waiting.push_back(r.get());
  requests_[id] = std::move(r);
  table_->wake(network_.now(), key(peer), kPort, s.get());
}

void Host::post_receives(std::uint32_t n) {
  receives += n;
  for (const auto& [peer, s] : streams_)
    if (Association* a = association(peer)) table_->receives_posted(network_.now(), *a);
}

void Host::restart() {
  for (auto& [id, r] : requests_)
    if (!r->ended) {
      lost.push_back({r->id, Ending::local});
      finish(*r);
    }
  table_.reset();
  streams_.clear();
  drawn_ = 0;
  table_ = std::make_unique<llp::rd::Table>(config_, *this, *this, *this);
}

void Host::receive(const Address& from, const Bytes& datagram, bool ce) {
  const Bytes exact(datagram.begin(), datagram.end());
  // Half of the time it is one of a batch.
  const bool more = random_() % 2 == 0;
  table_->receive(network_.now(), from, exact, ce, more);
  if (more && !std::exchange(in_batch_, true)) end_batch();
}

void Host::end_batch() {
  network_.at(network_.now() + random_() % (300 * llp::rd::kMicrosecond), [this] {
    in_batch_ = random_() % 2 == 0;
    table_->finish(network_.now(), in_batch_);
    if (in_batch_) end_batch();
  });
}

// --- below ---

void Host::send(const Address& to, const llp::rd::Frame& frame) {
  Bytes out = octets_of(frame);
  SIM_CHECK(out.size() <= config_.max_seg);
  ++datagrams;
  if (on_send) on_send(out);
  network_.send(address_of(number_), to, std::move(out));
}

std::uint32_t Host::draw() {
  // Eight for the keys of the table, then a tag and two first PSNs at a time: those lie near the wrap as often as not.
  const std::uint64_t n = random_();
  const bool psn = drawn_ >= 8 && (drawn_ - 8) % 3 != 0;
  ++drawn_;
  return psn && n % 2 == 0 ? 0xffffffffu - static_cast<std::uint32_t>(n >> 40) % 5
                           : static_cast<std::uint32_t>(n >> 16);
}

// --- above ---

Stream& Host::stream(const Association& a) const {
  SIM_CHECK(a.user != nullptr);
  return *static_cast<Stream*>(a.user);
}

llp::rd::Admission Host::admit(const Key&) {
  return quits ? llp::rd::Admission::qp_gone : admission;
}

void Host::opening(Association& a) {
  ++epochs;
  const unsigned peer = (a.key().remote_qpn >> 16);
  auto& s = streams_[peer];
  if (!s) s = std::make_unique<Stream>();
  s->peer = peer;
  a.user = s.get();
  SIM_CHECK(s->current == nullptr && s->reads.empty() && s->responses.empty());
  s->tx_msn = s->rx_msn = s->request_msn = s->report_msn = 1;
  s->receiving = {};
}

void Host::established(Association& a) {
  SIM_CHECK(a.mulpdu() >= 128);
}

Request& Host::request(std::uint64_t id) {
  const auto at = requests_.find(static_cast<std::uint32_t>(id));
  SIM_CHECK(at != requests_.end());
  return *at->second;
}

// The memory is its owner's again: whoever reads it now is caught by the address sanitizer, or reads what is wrong.
void Host::finish(Request& r) {
  SIM_CHECK(!r.ended);
  r.ended = true;
  std::fill(r.memory.begin(), r.memory.end(), std::byte{0xee});
  r.memory.clear();
  r.memory.shrink_to_fit();
}

void Host::ended(Association& a, const llp::rd::Ended& how) {
  Stream& s = stream(a);
  endings.push_back(how.why);
  std::vector<Request*> begun;
  for (auto& [id, r] : requests_)
    if (!r->ended && (r->next_part > 0 || r->acknowledged) &&
        std::find(s.waiting.begin(), s.waiting.end(), r.get()) == s.waiting.end())
      begun.push_back(r.get());
  if (how.why == Ending::idle) SIM_CHECK(begun.empty() && s.responses.empty() && !s.receiving.open);
  for (Request* r : begun) {
    lost.push_back({r->id, how.why});
    finish(*r);
  }
  if (how.why == Ending::unreachable || how.why == Ending::refused || quits) {
    for (Request* r : s.waiting) {
      lost.push_back({r->id, how.why});
      finish(*r);
    }
    s.waiting.clear();
  }
  if (s.receiving.open) ++receives;
  s.current = nullptr;
  s.cut_short = false;
  s.reads.clear();
  s.responses.clear();
  s.response_memory.clear();
}

bool Host::peek(Association& a, Lane lane, std::optional<std::uint32_t>* first_msn) {
  Stream& s = stream(a);
  first_msn->reset();
  if (lane == Lane::rsp) return !s.responses.empty();
  if (s.current != nullptr) return true;
  if (s.waiting.empty()) return false;
  if (a.state() == Association::State::closed) return true;
  const Request& next = *s.waiting.front();
  if (next.kind == Kind::read && s.reads.size() >= a.ord()) return false;
  if (next.kind == Kind::send) *first_msn = s.tx_msn;
  return true;
}

void Host::take(Association& a, Lane lane, std::uint32_t psn, std::size_t mulpdu, Outgoing& out) {
  Stream& s = stream(a);
  if (lane == Lane::req)
    take_request(a, s, psn, out);
  else
    take_response(a, s, psn, out);
  SIM_CHECK(out.head_size + out.payload <= mulpdu);
}

void Host::take_request(Association&, Stream& s, std::uint32_t, Outgoing& out) {
  if (s.current == nullptr) {
    s.current = s.waiting.front();
    s.waiting.pop_front();
    if (s.current->kind == Kind::send) s.current->msn = s.tx_msn++;
    if (s.current->kind == Kind::read) s.reads.push_back(s.current);
  }
  Request& r = *s.current;
  const std::uint32_t size = part_octets(r.id), part = r.next_part;
  const std::uint32_t parts = r.kind == Kind::read ? 1 : r.parts;
  const bool bad = r.bad == static_cast<int>(part);
  out.last = part + 1 == parts || s.cut_short;
  out.message = s.cut_short ? 0 : r.id;
  out.offset = std::uint64_t{part} * size;
  out.payload = s.cut_short || r.kind == Kind::read ? 0 : size;
  if (r.kind == Kind::write) {
    ddp::TaggedHeader{out.last, control(rdmap::Opcode::write, bad), r.id, out.offset}.emit(
        std::span(out.head).first<kTagged>());
    out.head_size = kTagged;
  } else if (r.kind == Kind::send) {
    ddp::UntaggedHeader{out.last, control(rdmap::Opcode::send, bad),     r.id, 0,
                        r.msn,    static_cast<std::uint32_t>(out.offset)}
        .emit(std::span(out.head).first<kUntagged>());
    out.head_size = kUntagged;
    if (r.id % 5 == 0) out.immediate = r.id;
  } else {
    ddp::UntaggedHeader{true, control(rdmap::Opcode::read_request, bad), r.id, 1, s.request_msn++, 0}.emit(
        std::span(out.head).first<kUntagged>());
    rdmap::ReadRequest{r.id, 0, r.parts * size, r.id, 0}.emit(
        std::span(out.head).subspan<kUntagged, rdmap::ReadRequest::kSize>());
    out.head_size = kUntagged + rdmap::ReadRequest::kSize;
  }
  ++r.next_part;
  if (!out.last) return;
  s.current = nullptr;
  s.cut_short = false;
}

void Host::take_response(Association&, Stream& s, std::uint32_t, Outgoing& out) {
  Stream::Response& r = s.responses.front();
  if (r.report) {
    ddp::UntaggedHeader{true, rdmap::control(rdmap::Opcode::terminate), 0, 2, s.report_msn++, 0}.emit(
        std::span(out.head).first<kUntagged>());
    SIM_CHECK(kUntagged + r.octets.size() <= Outgoing::kMaxHead);
    std::memcpy(out.head.data() + kUntagged, r.octets.data(), r.octets.size());
    out.head_size = static_cast<std::uint8_t>(kUntagged + r.octets.size());
    out.error_psn = r.error_psn;
    out.last = true;
    s.responses.pop_front();
    return;
  }
  const std::uint32_t size = part_octets(r.id);
  if (r.sent == 0) s.response_memory[r.name] = r.octets;
  out.message = r.name;
  out.offset = r.sent;
  out.payload = std::min<std::uint32_t>(size, static_cast<std::uint32_t>(r.octets.size()) - r.sent);
  out.last = r.sent + out.payload == r.octets.size();
  ddp::TaggedHeader{out.last, rdmap::control(rdmap::Opcode::read_response), r.id, r.sent}.emit(
      std::span(out.head).first<kTagged>());
  out.head_size = kTagged;
  r.sent += out.payload;
  if (out.last) s.responses.pop_front();
}

int Host::memory(Association& a, Lane lane, const Outgoing& segment, std::span<llp::Extent> out) {
  Stream& s = stream(a);
  if (lane == Lane::rsp) {
    const auto at = s.response_memory.find(segment.message);
    SIM_CHECK(at != s.response_memory.end());
    out[0] = {at->second.data() + segment.offset, segment.payload, nullptr, 0};
    return 1;
  }
  Request& r = request(segment.message);
  SIM_CHECK(!r.ended && segment.offset + segment.payload <= r.memory.size());
  if (r.lost_source >= 0 && segment.offset == static_cast<unsigned>(r.lost_source) * part_octets(r.id)) return -1;
  const std::size_t cut = segment.payload / 3;  // in pieces, as a gather list has them
  out[0] = {r.memory.data() + segment.offset, cut, nullptr, 0};
  out[1] = {r.memory.data() + segment.offset + cut, segment.payload - cut, nullptr, 0};
  return 2;
}

void Host::acknowledged(Association& a, Lane lane, std::uint64_t message) {
  Stream& s = stream(a);
  if (lane == Lane::rsp) {
    SIM_CHECK(s.response_memory.erase(message) == 1);
    return;
  }
  Request& r = request(message);
  SIM_CHECK(!r.acknowledged);
  r.acknowledged = true;
  if (r.kind == Kind::read) return;
  done.push_back(r.id);
  finish(r);
}

void Host::reported(Association& a, std::uint64_t message, const Incoming& report) {
  Stream& s = stream(a);
  SIM_CHECK(report.error_psn.has_value() && message != 0);
  const auto terminate = rdmap::Terminate::parse(report.segment.subspan(kUntagged));
  SIM_CHECK(terminate.ok() && terminate.value().fault == fault::kRdmapVersion);
  Request& r = request(message);
  SIM_CHECK(r.bad >= 0 && !r.ended);
  // The header that came back is that of the part that is bad.
  const Octets header(terminate.value().ddp_header);
  if (r.kind == Kind::write)
    SIM_CHECK(ddp::TaggedHeader::parse(header).value().offset == static_cast<unsigned>(r.bad) * part_octets(r.id));
  else if (r.kind == Kind::send)
    SIM_CHECK(ddp::UntaggedHeader::parse(header).value().msn == r.msn);
  reported_ids.push_back(r.id);
  std::erase(s.reads, &r);
  s.cut_short = s.current == &r;
  finish(r);
}

bool Host::quiet(const Association& a) const {
  const Stream& s = stream(a);
  return s.waiting.empty() && s.current == nullptr && s.reads.empty() && s.responses.empty() && !s.receiving.open;
}

std::uint32_t Host::message_limit(const Association& a) const {
  return stream(a).rx_msn - 1 + receives + over_grant;
}

// --- what arrives ---

Take Host::refuse(Stream& s, const Incoming& in) {
  const bool tagged = ddp::is_tagged(in.segment);
  const std::size_t header = tagged ? kTagged : kUntagged;
  rdmap::Terminate t;
  t.fault = fault::kRdmapVersion;
  t.length_valid = true;
  t.segment_length = static_cast<std::uint16_t>(in.octets);
  t.ddp_header.assign(in.segment.begin(), in.segment.begin() + static_cast<std::ptrdiff_t>(header));
  s.responses.push_back({next_response_++, t.emit(), true, in.psn, 0, 0, 0});
  if (!tagged) {
    const auto h = ddp::UntaggedHeader::parse(in.segment).value();
    if (h.qn == 0) s.rx_msn = h.msn + 1;  // the failed message keeps its MSN
    if (s.receiving.open) ++receives;     // its receive is used again
    s.receiving = {};
  }
  return Take::bad;
}

Take Host::deliver(Association& a, const Incoming& in) {
  Stream& s = stream(a);
  SIM_CHECK(in.placed ? in.segment.size() == kTagged : in.segment.size() == in.octets);
  if (in.lane == Lane::rsp) return deliver_response(s, in);
  if (is_bad(in.segment)) return refuse(s, in);
  switch (static_cast<rdmap::Opcode>(opcode(in.segment))) {
    case rdmap::Opcode::send:
      return deliver_send(s, in);
    case rdmap::Opcode::write:
      SIM_CHECK(in.placed || put(s, in));
      return deliver_write(in);
    case rdmap::Opcode::read_request:
      return deliver_read(s, in);
    default:
      return Take::violation;
  }
}

Take Host::deliver_send(Stream& s, const Incoming& in) {
  const auto h = ddp::UntaggedHeader::parse(in.segment).value();
  if (h.mo == 0) {
    SIM_CHECK(!s.receiving.open && h.msn == s.rx_msn);
    if (receives == 0) return Take::no_receive;
    --receives;
    s.receiving = {true, h.ulp_word, 0};
  }
  SIM_CHECK(s.receiving.open && s.receiving.id == h.ulp_word && s.receiving.offset == h.mo && h.msn == s.rx_msn);
  SIM_CHECK(in.immediate == (h.ulp_word % 5 == 0 ? std::optional(h.ulp_word) : std::nullopt));
  const Octets payload = in.segment.subspan(kUntagged);
  SIM_CHECK(payload.size() == part_octets(h.ulp_word));
  for (std::size_t i = 0; i < payload.size(); ++i)
    SIM_CHECK(payload[i] == content(h.ulp_word, h.mo + static_cast<std::uint32_t>(i)));
  s.receiving.offset += static_cast<std::uint32_t>(payload.size());
  ++placed;
  if (!h.last) return Take::accepted;
  s.receiving = {};
  ++s.rx_msn;
  log.emplace_back(Kind::send, h.ulp_word);
  return Take::accepted;
}

Take Host::deliver_write(const Incoming& in) {
  const auto h = ddp::TaggedHeader::parse(in.segment).value();
  if (!h.last) return Take::accepted;
  const Bytes& all = written_[h.stag];
  SIM_CHECK(all == pattern(h.stag, all.size()) && all.size() == h.offset + in.octets - kTagged);
  log.emplace_back(Kind::write, h.stag);
  return Take::accepted;
}

Take Host::deliver_read(Stream& s, const Incoming& in) {
  const auto q = rdmap::ReadRequest::parse(in.segment.subspan(kUntagged)).value();
  s.responses.push_back({next_response_++, pattern(q.source_stag, q.length), false, 0, q.sink_stag, 0, 0});
  return Take::accepted;
}

Take Host::deliver_response(Stream& s, const Incoming& in) {
  const auto h = ddp::TaggedHeader::parse(in.segment).value();
  SIM_CHECK(!s.reads.empty());
  Request& r = *s.reads.front();
  SIM_CHECK(h.stag == r.id && h.offset == r.received);
  SIM_CHECK(in.placed || put(s, in));
  r.received += in.octets - static_cast<std::uint32_t>(kTagged);
  if (!h.last) return Take::accepted;
  SIM_CHECK(r.received == r.memory.size() && r.memory == pattern(r.id, r.memory.size()));
  s.reads.pop_front();
  done.push_back(r.id);
  finish(r);
  return Take::accepted;
}

// Stores the payload of a tagged segment; each only once, unless its sender began anew.
bool Host::put(Stream& s, const Incoming& in) {
  const auto h = ddp::TaggedHeader::parse(in.segment).value();
  const Octets payload = in.segment.subspan(kTagged);
  Bytes* target = &written_[h.stag];
  if (in.lane == Lane::rsp) {
    const auto r = std::find_if(s.reads.begin(), s.reads.end(), [&](const Request* q) { return q->id == h.stag; });
    if (r == s.reads.end()) return false;
    target = &(*r)->memory;
    if (h.offset + payload.size() > target->size()) return false;
  } else if (target->size() < h.offset + payload.size()) {
    target->resize(h.offset + payload.size());
  }
  ++placed;
  SIM_CHECK(++placements_[{h.stag | (in.lane == Lane::rsp ? 0x80000000u : 0), h.offset}] == 1 || !exactly_once);
  std::copy(payload.begin(), payload.end(), target->begin() + static_cast<std::ptrdiff_t>(h.offset));
  return true;
}

bool Host::place(Association& a, const Incoming& in) {
  const unsigned op = opcode(in.segment);
  const bool expected = in.lane == Lane::req ? op == static_cast<unsigned>(rdmap::Opcode::write)
                                             : op == static_cast<unsigned>(rdmap::Opcode::read_response);
  if (is_bad(in.segment) || !expected || !put(stream(a), in)) return false;
  ++placed_early;
  return true;
}

}  // namespace ewarp::rdsim
