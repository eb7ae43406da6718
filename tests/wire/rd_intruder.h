// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A peer of the reliable service whose association is in order and whose segments are not: it opens one, and
// acknowledges and says what it is told to. It is the Wire of the table that it talks to.
#pragma once

#include <optional>
#include <vector>

#include "ddp/header.h"
#include "ddp/untagged.h"
#include "llp/rd/table.h"
#include "rdmap/header.h"
#include "tests/llp/rd_seal.h"

namespace ewarp::wire {

class Intruder final : public llp::rd::Wire {
 public:
  using Lane = llp::rd::Lane;
  using Bytes = std::vector<std::byte>;
  static constexpr std::uint32_t kOwn = 0x2c351, kVictim = 0x1c350;

  struct Heard {
    llp::rd::Lane lane;
    Bytes segment;
    std::optional<std::uint32_t> error_psn;
  };

  static llp::rd::Address address() {
    llp::rd::Address a;
    a.ip[10] = a.ip[11] = std::byte{0xff};  // IPv4-mapped
    a.ip[15] = std::byte{9};
    a.port = 0xc351;
    return a;
  }
  static llp::rd::Key key() { return {address().ip, kVictim, kOwn, 1}; }

  // One of several: its host and queue pair.
  explicit Intruder(std::uint8_t host = 9, std::uint32_t qpn = kOwn) : own(qpn) {
    from = address();
    from.ip[15] = std::byte{host};
  }
  // The same with an IPv6 address of this network of 64 bits.
  void move_to(std::uint8_t network, std::uint8_t host) {
    from.ip = {};
    from.ip[0] = std::byte{0xfd};
    from.ip[7] = std::byte{network};
    from.ip[15] = std::byte{host};
  }
  llp::rd::Address from;
  const std::uint32_t own;

  void open(llp::rd::Time now) {
    llp::rd::Open o;
    o.initial_tag = ++initial_tag_;
    o.qkey = 1;
    o.window = {500, 500};
    o.isn = psn;
    o.msn_limit = 500;
    o.max_seg = 1472;
    o.options = llp::rd::option::kAtomics;
    o.ird = o.ord = 4;
    table->receive(now, from, rdtest::datagram(prefix(llp::rd::Type::open), o));
    acknowledge(now);
  }
  // A segment with the next PSN of its lane, or one further on, which leaves a gap; 0: the gap.
  void say(llp::rd::Time now, Lane lane, const Bytes& segment, std::optional<std::uint32_t> immediate = {},
           std::optional<std::uint32_t> error_psn = {}, std::uint32_t ahead = 0) {
    llp::rd::Data d;
    d.standing = standing(psn[llp::rd::index(lane)] + ahead);
    if (ahead == 0) ++psn[llp::rd::index(lane)];
    d.immediate = immediate;
    d.error_psn = error_psn;
    const auto type = lane == Lane::req ? llp::rd::Type::req : llp::rd::Type::rsp;
    table->receive(now, from, rdtest::datagram(prefix(type), d, segment));
  }
  void acknowledge(llp::rd::Time now) {
    acked_ = next_;
    table->receive(now, from,
                   rdtest::datagram(prefix(llp::rd::Type::ack), standing(0), std::uint16_t{0},
                                    std::array<llp::rd::SackWords, llp::rd::kLaneCount>{}));
  }
  void send(const llp::rd::Address&, const llp::rd::Frame& frame) override {
    Bytes all(frame.head.begin(), frame.head.end());
    for (const llp::Extent& e : frame.payload) all.insert(all.end(), e.address, e.address + e.length);
    all = rdtest::seal(all);
    const auto parsed = llp::rd::parse(all, false);
    if (!parsed.ok()) return;
    const llp::rd::Datagram& d = parsed.value();
    if (const auto* o = std::get_if<llp::rd::Open>(&d.body); o != nullptr && o->initial_tag != 0) {
      tag = o->initial_tag;
      next_ = acked_ = o->isn;
      first_heard = o->isn[0];
    }
    if (const auto* r = std::get_if<llp::rd::Reset>(&d.body)) reset = r->reason;
    const auto* data = std::get_if<llp::rd::Data>(&d.body);
    if (data == nullptr) return;
    const Lane lane = d.prefix.type == llp::rd::Type::req ? Lane::req : Lane::rsp;
    if (data->standing.psn != next_[llp::rd::index(lane)]) return;  // again
    ++next_[llp::rd::index(lane)];
    heard.push_back({lane, Bytes(data->segment.begin(), data->segment.end()), data->error_psn});
  }

  llp::rd::Table* table = nullptr;
  std::uint32_t tag = 0;  // the victim's
  std::array<std::uint32_t, llp::rd::kLaneCount> psn{0xfffffff0, 3};
  std::vector<Heard> heard;
  std::optional<llp::rd::ResetReason> reset;
  std::uint32_t first_heard = 0;  // the victim's first PSN in the REQ lane

 private:
  llp::rd::Prefix prefix(llp::rd::Type t) const { return {t, 0, 0, kVictim, own}; }
  llp::rd::Standing standing(std::uint32_t own_psn) const {
    llp::rd::Standing s;
    s.tag = tag;
    s.psn = own_psn;
    s.ack = acked_;
    s.window = {500, 500};
    s.msn_limit = 500;
    return s;
  }
  std::uint32_t initial_tag_ = 4;
  std::array<std::uint32_t, llp::rd::kLaneCount> next_{}, acked_{};
};

inline std::vector<std::byte> untagged_segment(std::uint8_t control, std::uint32_t qn, std::uint32_t msn,
                                               std::uint32_t mo, bool last, std::span<const std::byte> payload = {},
                                               std::uint32_t word = 0) {
  std::vector<std::byte> s(ddp::UntaggedHeader::kSize);
  ddp::UntaggedHeader{last, control, word, qn, msn, mo}.emit(std::span(s).first<ddp::UntaggedHeader::kSize>());
  s.insert(s.end(), payload.begin(), payload.end());
  return s;
}

inline std::vector<std::byte> tagged_segment(std::uint8_t control, std::uint32_t stag, std::uint64_t to, bool last,
                                             std::span<const std::byte> payload = {}) {
  std::vector<std::byte> s(ddp::TaggedHeader::kSize);
  ddp::TaggedHeader{last, control, stag, to}.emit(std::span(s).first<ddp::TaggedHeader::kSize>());
  s.insert(s.end(), payload.begin(), payload.end());
  return s;
}

}  // namespace ewarp::wire
