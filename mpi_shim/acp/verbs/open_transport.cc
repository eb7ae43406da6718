// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "mpi_shim/acp/verbs/open_transport.h"

#include "mpi_shim/acp/verbs/rc_transport.h"
#include "mpi_shim/acp/verbs/rd_transport.h"

namespace ewarp::acp {
namespace {

std::unique_ptr<Transport> open_rd(const Surroundings& own, std::string* why) {
  auto out = std::make_unique<RdTransport>();
  *why = out->open(own.device, own.one_host, own.qkey);
  return why->empty() ? std::move(out) : nullptr;
}

std::unique_ptr<Transport> open_rc(const Surroundings& own, std::string* why) {
  auto out = std::make_unique<RcTransport>();
  *why = out->open(own.device, own.one_host, {.rank = own.rank, .procs = own.procs, .secret = own.secret});
  return why->empty() ? std::move(out) : nullptr;
}

}  // namespace

std::unique_ptr<Transport> open_transport(TransportKind kind, const Surroundings& own, std::string* why) {
  if (kind == TransportKind::rc) return open_rc(own, why);
  auto out = open_rd(own, why);
  if (out != nullptr || kind == TransportKind::rd) return out;
  std::string no_rc;
  out = open_rc(own, &no_rc);
  if (out == nullptr) *why += "; by reliable connections: " + no_rc;
  return out;
}

}  // namespace ewarp::acp
