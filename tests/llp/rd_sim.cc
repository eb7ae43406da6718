// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The network, and what tells of a run.
#include "tests/llp/rd_sim.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "llp/crc32c.h"

namespace ewarp::rdsim {
namespace {

std::string g_run = "unnamed";

// A line for each datagram, for a person (EWARP_TRACE=1).
void trace(Time now, const Address& from, const Bytes& out) {
  const auto parsed = llp::rd::parse(out, true);
  if (!parsed.ok()) return;
  static const char* const kNames[] = {"REQ", "RSP", "ACK", "OPEN", "OPENACK", "CLOSE", "RESET"};
  const auto& d = parsed.value();
  std::fprintf(stderr, "%12.3f %u %-8s flags %02x", static_cast<double>(now) / 1e6,
               std::to_integer<unsigned>(from.ip[15]), kNames[static_cast<unsigned>(d.prefix.type) - 8],
               d.prefix.flags);
  const auto standing = [](const llp::rd::Standing& s) {
    std::fprintf(stderr, " tag %08x psn %08x ack %08x %08x limit %u", s.tag, s.psn, s.ack[0], s.ack[1], s.msn_limit);
  };
  if (const auto* data = std::get_if<llp::rd::Data>(&d.body)) {
    standing(data->standing);
    std::fprintf(stderr, " segment %02x%02x of %zu octets", std::to_integer<unsigned>(data->segment[0]),
                 std::to_integer<unsigned>(data->segment[1]), data->segment.size());
  }
  if (const auto* ack = std::get_if<llp::rd::Ack>(&d.body)) standing(ack->standing);
  if (const auto* o = std::get_if<llp::rd::Open>(&d.body))
    std::fprintf(stderr, " to %08x tag %08x isn %08x %08x", o->destination_tag, o->initial_tag, o->isn[0], o->isn[1]);
  if (const auto* c = std::get_if<llp::rd::Close>(&d.body))
    std::fprintf(stderr, " tag %08x next %08x %08x ack %08x %08x", c->tag, c->next[0], c->next[1], c->ack[0],
                 c->ack[1]);
  if (const auto* r = std::get_if<llp::rd::Reset>(&d.body))
    std::fprintf(stderr, " tag %08x reason %u", r->tag, static_cast<unsigned>(r->reason));
  std::fputc('\n', stderr);
}

}  // namespace

void broken(const std::string& what) {
  std::fprintf(stderr, "run %s: %s\n", g_run.c_str(), what.c_str());
  std::abort();
}

void name_run(std::string name) {
  g_run = std::move(name);
}

Address address_of(unsigned host) {
  Address a;
  a.ip[10] = a.ip[11] = std::byte{0xff};
  a.ip[12] = std::byte{10};
  a.ip[13] = static_cast<std::byte>(host >> 16);
  a.ip[14] = static_cast<std::byte>(host >> 8);
  a.ip[15] = static_cast<std::byte>(host);
  a.port = kPort;
  return a;
}

Bytes octets_of(const llp::rd::Frame& frame) {
  Bytes out(frame.head.begin(), frame.head.end());
  for (const llp::Extent& e : frame.payload) out.insert(out.end(), e.address, e.address + e.length);
  std::array<std::byte, 4> crc{};
  if (frame.crc) {
    llp::Crc32c c;
    c.update(out);
    c.emit(crc);
  }
  out.insert(out.end(), crc.begin(), crc.end());
  return out;
}

void Network::at(Time when, std::function<void()> what) {
  queue_.push({std::max(when, now_), events_++, std::move(what)});
}

void Network::send(const Address& from, const Address& to, Bytes datagram) {
  ++datagrams;
  if (std::getenv("EWARP_TRACE") != nullptr) trace(now_, from, datagram);
  const bool dark = now_ >= conditions.dark_from && now_ < conditions.dark_to;
  if (dark || (filter && !filter(to, datagram))) return;
  const unsigned number = std::to_integer<unsigned>(to.ip[13]) << 16 | std::to_integer<unsigned>(to.ip[14]) << 8 |
                          std::to_integer<unsigned>(to.ip[15]);
  for (int copies = uniform() < conditions.duplicate ? 2 : 1; copies > 0; --copies) {
    if (uniform() < conditions.loss) continue;
    Bytes copy = datagram;
    if (uniform() < conditions.corrupt) copy[below(copy.size())] ^= static_cast<std::byte>(1u << below(8));
    const bool ce = uniform() < conditions.congestion_mark;
    const auto delay = static_cast<Time>((0.1 + uniform() * conditions.spread_ms) * kMillisecond);
    at(now_ + delay, [this, from, number, ce, copy = std::move(copy)] {
      if (const auto h = hosts_.find(number); h != hosts_.end()) h->second->receive(from, copy, ce);
    });
  }
}

void Network::run(Time until) {
  for (std::uint64_t steps = 0;; ++steps) {
    if (steps > 20'000'000) broken("does not come to an end");
    Time next = queue_.empty() ? kNever : queue_.top().when;
    for (const auto& [number, host] : hosts_) next = std::min(next, host->deadline());
    if (next == kNever || next > until) {
      if (until != kNever) now_ = std::max(now_, until);
      return;
    }
    now_ = std::max(now_, next);
    for (const auto& [number, host] : hosts_)
      if (host->deadline() <= now_) host->tick();
    if (queue_.empty() || queue_.top().when > now_) continue;
    const std::function<void()> what = queue_.top().what;
    queue_.pop();
    what();
  }
}

}  // namespace ewarp::rdsim
