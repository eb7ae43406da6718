// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// How an RDMAP stream begins and ends.
#include "rdmap/endpoint.h"

#include <cassert>

namespace ewarp::rdmap {

Endpoint::Endpoint(Consumer& consumer, const mpa::StreamParams& params, std::size_t mulpdu)
    : consumer_(consumer),
      params_(params),
      mulpdu_(mulpdu),
      framer_(params.crc, params.tx_markers),
      deframer_(params.crc, params.rx_markers),
      queues_(params.extensions ? 4 : 3),
      opening_(params),
      direct_(params.crc),
      outstanding_(params.ord),
      inbound_(params.ird) {
  assert(mulpdu > ddp::UntaggedHeader::kSize);
  if (params.terminate) fail(*params.terminate);
}

void Endpoint::fail(const Fault& f) {
  own_terminate_.report(f, terminate_about(f, nullptr, nullptr));
}

void Endpoint::abandon() {
  auto status = Status::success;
  if (SendRequest* failed = unacknowledged_.failed(&status)) consumer_.send_done(*failed, status);
  unacknowledged_.clear();
  outstanding_.clear();
  inbound_.clear();
  sending_.end();
  receive_open_ = false;
  direct_.stop();
  own_terminate_.give_up(fault::kRdmapLocalCatastrophic);  // nothing more is received or sent on this stream
}

bool Endpoint::quiescent() const {
  return sending_.idle() && inbound_.empty() && outstanding_.empty() && unacknowledged_.empty() && !receive_open_ &&
         direct_.idle() && consumer_.next_send() == nullptr;
}

}  // namespace ewarp::rdmap
