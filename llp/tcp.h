// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What is set on, and asked of, a TCP socket by everyone who brings up streams.
#pragma once

#include <optional>
#include <string>

#include "llp/host_watch.h"
#include "llp/octets.h"

namespace ewarp::llp {

// TCP_NODELAY, and congestion control as the option `congestion` says: the name of an algorithm, "system", or "auto",
// which is reno where the peer is on this host (the system's default, often BBR, halves the bandwidth there). 0, or the
// errno of an algorithm that was refused: an unprivileged process may only choose what
// net.ipv4.tcp_allowed_congestion_control lists.
int tune_stream(int fd, const std::string& congestion, bool peer_is_local);
// An idle connection whose peer's host does not answer ends (ETIMEDOUT) within twice this many seconds, at least 6 (RFC
// 9293 section 3.8.4). A host whose kernel answers is there, whether or not its program reads. 0: never.
void keep_alive(int fd, unsigned seconds);
// Keepalive is silent while octets are under way, and TCP_USER_TIMEOUT also ends a connection whose peer answers that
// it has no room. This tells the two apart (host_watch.h). Nothing: all is acknowledged.
std::optional<Unanswered> unanswered(int fd);
// Its two ends have different addresses, and none is 127.0.0.0/8. Two hosts, or a host with several addresses.
bool connects_hosts(int fd);

// How a connect() that did not wait has ended: 0 or an errno (SO_ERROR, which is cleared).
int take_error(int fd);
// A free port of this host can be given to our own end, and TCP then connects it to itself.
bool connected_to_itself(int fd);
// RST, and the connection is forgotten: no TIME_WAIT is left. The fd stays open.
void reset_connection(int fd);

// Without waiting, and without SIGPIPE. Octets, 0 at the end of the stream, or -errno.
long send_now(int fd, Octets data);
long receive_now(int fd, MutableOctets into, int flags = 0);

}  // namespace ewarp::llp
