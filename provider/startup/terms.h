// What every start-up of a stream asks for by the options, whoever brings it up.
#pragma once

#include "mpa/startup.h"

namespace ewarp::verbs {

// Whether a CRC is asked for (option crc). peer_is_here: on this host.
bool wants_crc(bool peer_is_here);
// CRC, markers and extensions as the options say; the rest as it is by default.
mpa::StartupConfig terms(bool peer_is_here);
// llp::tune_stream() with our options; a refusal is logged.
void tune_socket(int fd, bool peer_is_here);

}  // namespace ewarp::verbs
