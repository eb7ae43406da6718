// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What every start-up of a stream asks for by the options, whoever brings it up.
#pragma once

#include "mpa/startup.h"
#include "provider/startup/socket.h"

namespace ewarp::verbs {

// CRC, markers and extensions as the options say; the rest as it is by default. peer_is_here: on this host.
mpa::StartupConfig terms(bool peer_is_here);
// A responder's terms, to be replied with: opens what a local stream needs, where it is wanted.
mpa::StartupConfig responder_terms(mpa::StartupConfig config, const mpa::Responder& responder, Socket& socket);
// llp::tune_stream() and keep_alive() with our options; a refusal is logged.
void tune_socket(int fd, bool peer_is_here);

}  // namespace ewarp::verbs
