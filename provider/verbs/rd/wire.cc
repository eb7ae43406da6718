// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/verbs/rd/wire.h"

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>

#include "llp/crc32c.h"
#include "llp/datagram_header.h"
#include "llp/rd/header.h"
#include "provider/base/stats.h"
#include "provider/verbs/memory/held_regions.h"

namespace ewarp::verbs {
namespace {

HeldRegions& held() {
  static auto* regions = new HeldRegions;
  return *regions;
}

std::uint32_t source_number(Octets head) {
  return get_be<std::uint32_t>(head, 8);
}

bool is_response(Octets head) {
  return (std::to_integer<unsigned>(head[0]) & 0x0f) == static_cast<unsigned>(llp::rd::Type::rsp);
}

void finish_crc(llp::Crc32c& crc, bool wanted, std::byte* at) {
  const std::span<std::byte, llp::kDatagramCrc> field(at, llp::kDatagramCrc);
  if (wanted)
    crc.emit(field);
  else
    put_be<std::uint32_t>(field, 0, 0);
}

}  // namespace

RdWire::RdWire(DatagramPort& port, Route route)
    : port_(port), route_(std::move(route)), arena_(new std::byte[kArena]), frames_(kFrames), pieces_(kPieces) {
  refused_.reserve(16);
}

bool RdWire::has_room(std::size_t octets, std::size_t pieces) const {
  return count_ < kFrames && arena_used_ + octets <= kArena && pieces_used_ + pieces <= kPieces;
}

// Short payload, and what a peer reads while its owner may be writing it: a CRC over memory that changes before the
// kernel copies it would condemn the datagram, again and again.
bool RdWire::copy_payload(Pending& p, std::span<const llp::Extent> payload, std::size_t octets) {
  std::byte* at = arena_.get() + p.head + p.head_size;
  for (const llp::Extent& e : payload) {
    if (!copy_out(at, e)) return false;
    at += e.length;
  }
  p.head_size += octets;
  llp::Crc32c crc;
  if (p.crc) crc.update(Octets(arena_.get() + p.head, p.head_size));
  finish_crc(crc, p.crc, arena_.get() + p.head + p.head_size);
  p.head_size += llp::kDatagramCrc;
  return true;
}

void RdWire::send(const llp::rd::Address& to, const llp::rd::Frame& frame) {
  const RdPath* path = route_(to, source_number(frame.head));
  if (path == nullptr) return;
  std::size_t octets = 0;
  bool ours = false;  // of a send queue, which may go before the frame does
  for (const llp::Extent& e : frame.payload) {
    octets += e.length;
    ours |= e.region == nullptr;
  }
  const bool copies = octets <= kCopyLimit || ours || (frame.crc && is_response(frame.head));
  const std::size_t arena = frame.head.size() + (copies ? octets : 0) + llp::kDatagramCrc;
  if (!has_room(arena, frame.payload.size())) {
    flush();
    if (!has_room(arena, frame.payload.size())) {  // the socket is full: a loss
      stats::add(stats::page().datagrams.tx_lost);
      return;
    }
  }
  Pending& p = frames_[count_];
  p.to = path->to;
  p.to.to.sin6_port = htons(to.port);
  p.head = arena_used_;
  p.head_size = frame.head.size();
  p.first = pieces_used_;
  p.pieces = 0;
  p.crc = frame.crc;
  p.fragments = frame.again;
  p.message = frame.message;
  std::memcpy(arena_.get() + p.head, frame.head.data(), frame.head.size());
  if (copies) {
    if (!copy_payload(p, frame.payload, octets)) return;
    p.crc = false;
  } else {
    std::copy(frame.payload.begin(), frame.payload.end(), pieces_.begin() + static_cast<std::ptrdiff_t>(p.first));
    p.pieces = frame.payload.size();
  }
  arena_used_ += arena;
  pieces_used_ += p.pieces;
  ++count_;
}

// False: its memory is gone; it was not added.
bool RdWire::append(llp::UdpOutbox& out, const Pending& p) {
  out.begin(p.to);
  std::byte* const head = arena_.get() + p.head;
  out.append(head, p.head_size);
  if (p.pieces == 0) return true;
  llp::Crc32c crc;
  if (p.crc) crc.update(Octets(head, p.head_size));
  for (std::size_t i = p.first; i < p.first + p.pieces; ++i) {
    const llp::Extent& e = pieces_[i];
    assert(e.region != nullptr);
    if (!held().enter(e) || (p.crc && !crc.read(e.address, e.length))) {
      out.undo();
      return false;
    }
    out.append(e.address, e.length);
  }
  finish_crc(crc, p.crc, head + p.head_size);
  out.append(head + p.head_size, llp::kDatagramCrc);
  return true;
}

// As many frames of one kind as the outbox takes, from the next one on; next_ moves to behind them.
std::size_t RdWire::gather(bool fragments) {
  llp::UdpOutbox& out = datagram_outbox();
  out.clear();
  for (; next_ < count_; ++next_) {
    const Pending& p = frames_[next_];
    if (p.head_size == 0) continue;
    if (p.fragments != fragments || !held().has_room() || !out.has_room(p.pieces + 2, 0)) break;
    if (append(out, p)) built_[out.size() - 1] = next_;
  }
  return out.size();
}

void RdWire::flush() {
  while (next_ < count_) {
    const bool fragments = frames_[next_].fragments;
    const std::size_t built = gather(fragments);
    int error = 0;
    const std::size_t sent = built == 0 ? 0 : port_.send(datagram_outbox(), &error, !fragments);
    held().leave();
    if (sent < built && !settle(sent, built, error)) return;
  }
  clear();
}

// The kernel did not take the datagram behind those that were sent. False: it has no room now.
bool RdWire::settle(std::size_t sent, std::size_t, int error) {
  next_ = built_[sent];
  if (error == EAGAIN) {
    port_.wait(*this);
    return false;
  }
  Pending& p = frames_[next_];
  if (error == EMSGSIZE && !p.fragments) {
    p.fragments = true;
    if (refused_.size() < refused_.capacity()) refused_.push_back(p.to.to);
    return true;
  }
  stats::add(stats::page().datagrams.tx_lost);
  ++next_;
  return true;
}

void RdWire::clear() {
  count_ = arena_used_ = pieces_used_ = next_ = 0;
}

void RdWire::let_go() {
  flush();
  for (std::size_t i = next_; i < count_; ++i)
    if (frames_[i].pieces > 0) frames_[i].head_size = 0;
}

void RdWire::acknowledged(const llp::rd::MessageId& message) {
  if (pieces_used_ == 0) return;
  for (std::size_t i = next_; i < count_; ++i)
    if (frames_[i].pieces > 0 && frames_[i].message == message) frames_[i].head_size = 0;
}

bool RdWire::transmit() {
  flush();
  return false;
}

std::vector<sockaddr_in6> RdWire::take_refused() {
  std::vector<sockaddr_in6> out(refused_);
  refused_.clear();
  return out;
}

}  // namespace ewarp::verbs
