// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Every option of EtherWARP: environment variable ETHERWARP_<NAME>, or `name = value` in the configuration file
// (ETHERWARP_CONFIG, else $XDG_CONFIG_HOME/etherwarp.conf, else /etc/etherwarp.conf). The environment wins.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "provider/base/option_table.h"

namespace ewarp {

// by_path: asked for unless the peer is on this host (docs/protocol/start-up.md section 5).
enum class CrcPolicy { by_path, always, never };

struct Options {
  std::vector<std::string> interfaces;  // devices to offer; empty: every interface that is up
  bool twin = false;                    // a second device per interface, of type CA
  std::string log = "error";            // error, warn, info, debug
  CrcPolicy crc = CrcPolicy::by_path;
  bool markers = false;                // demand markers from peers
  bool local = true;                   // streams of one host through shared memory (docs/protocol/local.md)
  bool extensions = true;              // offer/accept extension set 1 (docs/protocol/extensions.md section 1)
  unsigned mpa_revision = 2;           // 1: plain RFC 5044 start-up
  bool peer_to_peer = true;            // ask for it (RFC 6581)
  std::string rtr = "write";           // first choice among write, read, send
  bool io_uring = true;                // false: epoll, sendmsg, recvmsg
  unsigned ulpdu_octets = 64768;       // largest ULPDU between consenting peers
  unsigned takeover_us = 2500;         // so long after the last poll the background thread takes over, at the latest
  int spin_us = -1;                    // how long it spins at most before it sleeps; -1: effective_spin_us()
  unsigned hand_over_octets = 131072;  // posts of so much go out by the background thread; 0: none do
  unsigned write_hold_us = 50;  // the completion of a Write is held so long at most (write_hold.h); 0: not at all
  unsigned post_wait_us = 50;   // posts wait so long for a poll (burst_habit.h); 0: not at all
  unsigned connect_timeout_ms = 10000;   // TCP connection
  unsigned reply_timeout_ms = 60000;     // MPA Reply after the Request: the peer's program accepts meanwhile
  unsigned refused_wait_ms = 100;        // connect() goes on trying while the connection is refused; 0: not at all
  unsigned bring_up_timeout_ms = 30000;  // a QP without rdma_cm waits so long for its peer
  unsigned request_timeout_ms = 5000;    // MPA Request after accept
  unsigned rtr_timeout_ms = 10000;       // first FPDU after Reply
  unsigned rtr_repeat_ms = 250;          // an initiator that hears nothing repeats its RTR after this time; 0: never
  unsigned responder_wait_ms = 250;      // a responder without peer-to-peer holds its sends so long; 0: for ever
  unsigned close_timeout_ms = 2000;      // graceful close
  unsigned keepalive_s = 30;             // an idle connection asks whether its peer is there; 0: never
  unsigned unacknowledged_s = 15;        // a host that acknowledges nothing for so long is gone; 0: TCP decides
  unsigned rnr_wait_ms = 1000;           // how long a Send that arrives may wait for a receive; 0: an error at once
  unsigned half_message_ms = 10000;      // a message that stands still keeps a receive that others need; 0: for ever
  bool invalidate_regions = false;       // a peer's Send with Invalidate may name an ordinary region
  bool ud_reliable = false;              // queue pairs of UD run on reliable datagrams
  std::string congestion = "auto";       // auto: reno on this host, the system's elsewhere; or a name; or "system"
  bool stats = true;                     // publish counters for `etherwarp stat`
  bool stats_keep = false;               // leave them behind at exit, for `etherwarp stat --ended`

  bool operator==(const Options&) const = default;
};

// Read once, at first use. A bad value or an unknown ETHERWARP_ name is said once on stderr and ignored.
const Options& options();
// Whether a CRC is asked for towards such a peer, and of it (option crc). near: the octets do not leave this host.
bool asks_for_crc(bool near);

// Problems found while reading (unknown names, bad values), one line each.
std::span<const std::string> option_problems();

std::span<const OptionDoc> option_docs();

// What options() is made of; nothing is printed. environment: strings NAME=value, the last may be a null pointer.
// trusted: false in a set-user-ID program, where only /etc/etherwarp.conf is read.
struct OptionsRead {
  Options options;
  std::vector<std::string> problems;
  std::string file;  // the configuration file that was read, empty if none
};
OptionsRead read_options(std::span<const char* const> environment, bool trusted = true);
// The environment of this process.
OptionsRead read_options();

// Empty if this value is good for this option (name as in option_docs()), else one line that says what is wrong.
std::string check_option(std::string_view name, std::string_view value);
// "ETHERWARP_IO_URING" for "io_uring".
std::string option_variable(std::string_view name);

// CPUs that this process may run on: its affinity, and a cgroup's CPU quota (rounded up). At least 1.
unsigned usable_cpus();
// spin_us with its default resolved.
unsigned effective_spin_us(const Options& options);

}  // namespace ewarp
