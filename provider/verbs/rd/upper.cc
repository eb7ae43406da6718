// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What the associations of a port ask of their queue pairs.
#include <arpa/inet.h>

#include <array>

#include "provider/base/log.h"
#include "provider/engine/engine.h"
#include "provider/verbs/rd/port.h"

namespace ewarp::verbs {
namespace {

using namespace llp::rd;

void log_fault_of_peer(const Association& a, const Ended& how) {
  const bool version = how.why == Ending::refused && how.reason == llp::rd::ResetReason::version;
  const auto level = version ? log::Level::error : log::Level::warn;
  if ((!version && how.why != Ending::violation) || !log::enabled(level)) return;
  std::array<char, INET6_ADDRSTRLEN> ip{};
  inet_ntop(AF_INET6, a.key().ip.data(), ip.data(), ip.size());
  const bool guessed = a.strikes() >= rdmap::DatagramEndpoint::kMostWrongStags;
  const char* what = version ? "speaks another version of datagrams" : guessed ? "guessed STags" : "broke the protocol";
  log::line(level, "QP {:#08x}: the association with QP {:#08x} of {} ends: it {}", a.key().local_qpn,
            a.key().remote_qpn, ip.data(), what);
}

}  // namespace

Admission RdPort::admit(const Key& key) {
  const Seat& seat = seats_[index_of(key.local_qpn)];
  if (seat.number != key.local_qpn) return Admission::unknown;
  if (seat.endpoint != nullptr) return seat.endpoint->admit(key);
  return seat.qkey == key.qkey ? Admission::qp_gone : Admission::unknown;
}

void RdPort::opening(Association& a) {
  const Key& key = a.key();
  RdPath back;
  const RdPath* known = fresh_;
  if (known == nullptr && arrived_from(key.ip, key.local)) {
    back = RdPaths::of(*arrival_);
    known = &back;
  }
  const RdPath& p = paths_.open(name_of(key), known);
  a.limit_segment(p.max_payload);
  if (p.crc) a.demand_crc();
  try {
    if (auto* e = endpoint_of(a)) e->opening(a);
  } catch (...) {
    paths_.close(name_of(key));
    throw;
  }
}

void RdPort::established(Association& a) {
  if (auto* e = touch(a)) e->established(a);
}

void RdPort::ended(Association& a, const Ended& how) {
  log_fault_of_peer(a, how);
  paths_.close(name_of(a.key()));
  if (auto* e = touch(a)) e->ended(a, how);
}

bool RdPort::peek(Association& a, Lane lane, std::optional<std::uint32_t>* first_msn) {
  auto* e = endpoint_of(a);
  return e != nullptr && e->peek(a, lane, first_msn);
}

void RdPort::take(Association& a, Lane lane, std::uint32_t psn, std::size_t mulpdu, Outgoing& out) {
  touch(a)->take(a, lane, psn, mulpdu, out);
}

int RdPort::memory(Association& a, Lane lane, const Outgoing& segment, std::span<llp::Extent> out) {
  auto* e = endpoint_of(a);
  return e == nullptr ? -1 : e->memory(a, lane, segment, out);
}

void RdPort::acknowledged(Association& a, Lane lane, std::uint64_t message) {
  round_trip_ = a.round_trip().smoothed();
  wire_.acknowledged({&a, lane, message});
  if (auto* e = touch(a)) e->acknowledged(a, lane, message);
}

void RdPort::reported(Association& a, std::uint64_t message, const Incoming& report) {
  if (auto* e = touch(a)) e->reported(a, message, report);
}

bool RdPort::quiet(const Association& a) const {
  auto* e = endpoint_of(a);
  return e == nullptr || e->quiet(a);
}

bool RdPort::awaits_rest(const Association& a) const {
  auto* e = endpoint_of(a);
  return e != nullptr && e->awaits_rest(a);
}

Take RdPort::deliver(Association& a, const Incoming& in) {
  auto* e = touch(a);
  return e == nullptr ? Take::violation : e->deliver(a, in);
}

bool RdPort::place(Association& a, const Incoming& in) {
  auto* e = touch(a);
  return e != nullptr && e->place(a, in);
}

std::uint32_t RdPort::message_limit(const Association& a) const {
  auto* e = endpoint_of(a);
  return e == nullptr ? 0 : e->message_limit(a);
}

}  // namespace ewarp::verbs
