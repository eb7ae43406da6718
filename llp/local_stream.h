// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A stream between two processes of one host: octets go through rings in shared memory, without the kernel. A connected
// AF_UNIX socket beside them tells of the peer's end, and carries bells for an end that sleeps.
#pragma once

#include <memory>
#include <string>

#include "llp/local_memory.h"
#include "llp/stream.h"

namespace ewarp::llp {

// Takes the fd of a connected AF_UNIX socket (SOCK_SEQPACKET, non-blocking), also where it throws (std::bad_alloc).
// creator: this end made the memory. peer: for people. The peer is not trusted: it can end or stall this stream, and
// garble what it sends, no more.
std::unique_ptr<Stream> local_stream(int fd, LocalMemory memory, bool creator, std::string peer);

}  // namespace ewarp::llp
