// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Answers to requests of the peer: Read Responses, Atomic Responses and error reports, in the order of what they are
// about.
#include <algorithm>
#include <cassert>

#include "ddp/segment.h"
#include "rdmap/datagram/stream.h"
#include "rdmap/message.h"

namespace ewarp::rdmap {
namespace {

// How far ahead the pages of a Read Response's source are probed.
constexpr std::uint64_t kProbe = 1024 * 1024;

}  // namespace

void DatagramEndpoint::take_answer(Stream& s, std::size_t mulpdu, Outgoing& out) {
  Activity& act = *s.activity;
  assert(act.answers_taken < act.answers.size());
  PeersRequest& q = act.answers.at(act.answers_taken);
  out.message = act.first_answer + act.answers_taken;
  out.last = true;
  if (std::holds_alternative<PeersRead>(q.what)) {
    answer_read(s, q, mulpdu, out);
  } else if (std::holds_alternative<AtomicRequest>(q.what)) {
    answer_atomic(s, q, out);
  } else {
    const auto& report = std::get<PeersFault>(q.what);
    answer_report(s, q.psn, Octets(report.octets).first(report.size), out);
  }
  if (!out.last) return;
  ++act.answers_taken;
  ++counters.tx_messages;
}

void DatagramEndpoint::answer_report(Stream& s, std::uint32_t psn, Octets message, Outgoing& out) {
  out.head_size =
      static_cast<std::uint8_t>(emit_terminate(message, s.tx_msn[ddp::kQueueTerminate]++, MutableOctets(out.head)));
  out.error_psn = psn;
  ++counters.reports_sent;
}

// Nothing of a segment can be taken back once it is numbered, so the pages are probed before.
void DatagramEndpoint::answer_read(Stream& s, PeersRequest& q, std::size_t mulpdu, Outgoing& out) {
  auto& read = std::get<PeersRead>(q.what);
  const ReadRequest& r = read.request;
  const ddp::Cut cut = ddp::cut_evenly(r.length, read.sent, mulpdu, ddp::TaggedHeader::kSize);
  if (cut.payload > 0) {
    const std::uint64_t at = r.source_to + read.sent, left = r.length - read.sent;
    llp::Extent source;
    bool good = consumer_.resolve(r.source_stag, at, left, RemoteRight::read, source) == ddp::Verdict::ok;
    if (good && read.sent + cut.payload > read.probed) {
      source.length = std::min<std::uint64_t>(source.length, std::max<std::uint64_t>(kProbe, cut.payload));
      good = consumer_.readable(source);
      if (good) read.probed = read.sent + source.length;
    }
    if (!good) {
      const Fault f = lost_memory_fault(consumer_, r.source_stag, at, left, RemoteRight::read);
      return answer_report(s, q.psn, terminate_about_request(f, q.msn, r, read.sent).emit(), out);
    }
  }
  out.head_size = static_cast<std::uint8_t>(emit_read_response_header(r, read.sent, cut.last, out.head));
  out.offset = read.sent;
  out.payload = cut.payload;
  out.last = cut.last;
  read.sent += cut.payload;
}

// Here, not on arrival: the next one is not executed before this one's response was made (RFC 7306 section 5). A
// segment is taken once, so it is executed once.
void DatagramEndpoint::answer_atomic(Stream& s, PeersRequest& q, Outgoing& out) {
  const AtomicRequest& r = std::get<AtomicRequest>(q.what);
  llp::Extent target;
  AtomicResponse response{r.request_id, 0};
  if (consumer_.resolve(r.stag, r.to, kAtomicOctets, RemoteRight::atomic, target) != ddp::Verdict::ok ||
      !consumer_.atomic(target, r, &response.original)) {
    const Fault f = lost_memory_fault(consumer_, r.stag, r.to, kAtomicOctets, RemoteRight::atomic);
    return answer_report(s, q.psn, terminate_about_atomic(f, q.msn).emit(), out);
  }
  out.head_size = static_cast<std::uint8_t>(
      emit_atomic_response(response, s.tx_msn[ddp::kQueueAtomicResponse]++, MutableOctets(out.head)));
}

int DatagramEndpoint::answer_memory(Activity& act, const Outgoing& segment, std::span<llp::Extent> out) {
  const std::uint64_t i = segment.message - act.first_answer;
  if (i >= act.answers.size()) return -1;
  const auto* read = std::get_if<PeersRead>(&act.answers.at(i).what);
  if (read == nullptr) return -1;
  const ReadRequest& r = read->request;
  const bool good = consumer_.resolve(r.source_stag, r.source_to + segment.offset, segment.payload, RemoteRight::read,
                                      out[0]) == ddp::Verdict::ok;
  return good ? 1 : -1;
}

}  // namespace ewarp::rdmap
