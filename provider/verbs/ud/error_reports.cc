// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/verbs/ud/error_reports.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "ddp/header.h"
#include "ddp/untagged.h"
#include "provider/base/stats.h"
#include "provider/verbs/ud/address_handle.h"
#include "rdmap/header.h"

namespace ewarp::verbs {
namespace {

// An untagged segment on queue 2 that carries the Terminate with the header in error.
std::vector<std::byte> report_segment(Octets offending, const Fault& fault, std::uint32_t msn) {
  rdmap::Terminate t;
  t.fault = fault;
  t.length_valid = true;
  t.segment_length = static_cast<std::uint16_t>(offending.size());
  const Octets header = offending.first(ddp::UntaggedHeader::kSize);
  t.ddp_header.assign(header.begin(), header.end());
  const auto body = t.emit();
  std::vector<std::byte> segment(ddp::UntaggedHeader::kSize);
  ddp::UntaggedHeader{true, rdmap::control(rdmap::Opcode::terminate), 0, ddp::kQueueTerminate, msn, 0}.emit(
      MutableOctets(segment).first<ddp::UntaggedHeader::kSize>());
  segment.insert(segment.end(), body.begin(), body.end());
  return segment;
}

}  // namespace

bool ReportLimit::allow(const in6_addr& source, Clock::time_point now) {
  const std::chrono::nanoseconds since = now.time_since_epoch();
  return limit_.allow(llp::octets_of(source), static_cast<std::uint64_t>(since.count()));
}

ErrorReports& error_reports() {
  static auto* reports = new ErrorReports;
  return *reports;
}

void ErrorReports::send(const DatagramIn& in, std::uint32_t number, const Fault& fault, std::uint32_t& msn) {
  stats::Datagrams& counters = stats::page().datagrams;
  if (in.port == nullptr || is_multicast(in.arrival.to)) return;
  if (!limit_.allow(in.arrival.from.sin6_addr, ReportLimit::Clock::now())) {
    stats::add(counters.errors_suppressed);
    return;
  }
  const auto offending = ddp::UntaggedHeader::parse(in.datagram.segment);
  const auto segment = report_segment(in.datagram.segment, fault, msn++);
  std::array<std::byte, 256> octets;
  const std::size_t header = llp::UdError{offending.value().msn}.emit(octets, in.datagram.prefix.source, number);
  const std::size_t size = llp::finish_datagram(octets, header, segment);
  const llp::UdpDestination back = way_back(in.arrival);
  llp::UdpOutbox& out = datagram_outbox();
  out.clear();
  out.begin(back);
  out.append(octets.data(), size);
  int error = 0;
  if (in.port->send(out, &error) == 1) stats::add(counters.errors_sent);  // else it is lost, as any datagram may be
}

}  // namespace ewarp::verbs
