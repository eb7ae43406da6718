// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/startup/terms.h"

#include "llp/tcp.h"
#include "provider/base/log.h"
#include "provider/base/options.h"

namespace ewarp::verbs {

mpa::StartupConfig terms(bool peer_is_here) {
  mpa::StartupConfig c;
  c.want_crc = asks_for_crc(peer_is_here);
  c.want_markers = options().markers;
  c.extensions = options().extensions;
  c.local = options().local && peer_is_here;
  return c;
}

mpa::StartupConfig responder_terms(mpa::StartupConfig config, const mpa::Responder& responder, Socket& socket) {
  config.local = config.local && responder.offers_local() && socket.listen_locally();
  return config;
}

void tune_socket(int fd, bool peer_is_here) {
  if (const int error = llp::tune_stream(fd, options().congestion, peer_is_here); error != 0)
    log::debug("congestion control '{}' refused: errno {}", options().congestion, error);
  // This host's kernel is there as long as we are.
  if (!peer_is_here) llp::keep_alive(fd, options().keepalive_s);
}

}  // namespace ewarp::verbs
