// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Counters that each process publishes in a shared page (a file in the run directory), for `etherwarp stat`.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace ewarp::stats {

inline constexpr std::uint32_t kMagic = 0x50525745;  // "EWRP", little endian
inline constexpr std::uint32_t kVersion = 9;
inline constexpr std::size_t kMaxDevices = 32;  // twins included
// QPs beyond are counted in their device only. Room for so many makes a page of 2 MiB, of which exists what is used.
inline constexpr std::size_t kMaxQps = 8192;

// Every counter is written by one thread at a time (the engine's holder, or under a lock) and read by anybody.
using Counter = std::atomic<std::uint64_t>;
inline void add(Counter& c, std::uint64_t n = 1) {
  c.store(c.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
}

struct Traffic {
  Counter tx_octets, rx_octets;      // on the stream, framing included
  Counter tx_messages, rx_messages;  // RDMAP messages
  Counter tx_sends, rx_sends, tx_writes, rx_write_segments, tx_reads, rx_reads;
  Counter completions, flushed_completions, error_completions;
  Counter terminates_sent, terminates_received, crc_errors;
};

// Of the process's UDP sockets: a datagram that is dropped early belongs to no device.
struct Datagrams {
  static constexpr std::size_t kCauses = 13;  // llp::DatagramDrop
  Counter drops[kCauses];
  Counter tx_lost;  // the kernel refused them for the network's reasons: to UD, loss
  Counter errors_sent, errors_received, errors_suppressed;  // UD_ERR
};

// Of reliable datagrams (llp::rd::Counters), all ports of the process together.
struct Reliable {
  Counter associations;  // now
  Counter opened, accepted, closed, unreachable;
  Counter tx_segments, retransmitted, timeouts, losses, probes;
  Counter rx_segments, duplicates, out_of_order, not_held;
  Counter rnr_sent, rnr_received, reports_sent, reports_received, resets_sent, resets_received, challenges;
  Counter dropped_runt, dropped_version, dropped_length, dropped_crc, dropped_qp, dropped_tag, dropped_full;
  Counter violations, wrong_stags;  // associations that ended for the first; requests that named no memory of ours
  Counter round_trip_ns;            // smoothed, of the association that was acknowledged last
};

struct DevicePage {
  char name[64];
  char interface[16];
  Traffic traffic;
  Counter qps_created, qps_destroyed, connections, connect_failures, disconnects;
  Counter local_streams;  // of the connections, those that left TCP for shared memory
  Counter half_messages;  // connections that ended for one, as others needed its receive
};

// Cache lines of its own: its writer is whoever moves this QP's octets.
struct alignas(64) QpPage {
  std::atomic<std::uint32_t> number;       // 0: slot free
  std::atomic<std::uint32_t> state;        // ibv_qp_state
  std::uint32_t device;                    // index in devices
  std::uint32_t type;                      // ibv_qp_type
  char peer[64];                           // "address:port", empty until connected
  std::atomic<std::uint32_t> peer_number;  // its QP, 0: not known (rdma_cm does not say)
  std::atomic<std::uint32_t> local;        // its stream goes through shared memory
  Traffic traffic;
};

struct Page {
  std::uint32_t magic, version;
  std::uint64_t size;  // octets of the whole page
  std::int32_t pid;
  std::uint32_t device_count;
  std::uint64_t start_ns;  // CLOCK_REALTIME
  char command[64];
  std::uint64_t pid_namespace;  // inode; a reader elsewhere cannot tell whether pid lives
  std::uint32_t keep;           // option stats_keep: the file stays when the process has ended
  char poller[16];              // "io_uring" or "epoll"
  Counter app_passes, background_passes, background_wakeups;
  Datagrams datagrams;
  Reliable reliable;
  DevicePage devices[kMaxDevices];
  QpPage qps[kMaxQps];
};
static_assert(sizeof(Page) < (2 << 20) + (64 << 10));

// This process's page: shared with readers where the run directory can be written, else private memory. Never null.
// Its address stays the same for the life of the process, in forked children too. Thread-safe.
Page& page();
// A free QP slot with its counters at zero, or nullptr when all are taken. The caller fills it, number last.
// Thread-safe.
QpPage* take_qp_slot();
// nullptr is ignored.
void release_qp_slot(QpPage* slot);

// Where pages live: $ETHERWARP_RUNDIR, else /dev/shm/etherwarp-<uid> (mode 0700); a file is named by its pid.
std::string run_directory();
// In a forked child: forgets the parent's page (a new one is made on use) without removing its file. References into
// the page stay valid and count from zero. Called by itself after fork(); calling it again is harmless.
void forget_in_child();

// What a reader found.
struct Snapshot {
  std::unique_ptr<const Page> page;
  std::string file;
  std::uint32_t uid;  // owner
  bool ended;         // the process is gone; its file was kept on its wish
};
inline constexpr std::size_t kMostFiles = 512;  // a page in memory is 2 MiB

// The pages of every process whose run directory we may read. Removes files that dead processes of this user left
// behind, except those they wished to be kept; so does a process that makes its page. Of what stays in a directory at
// most kMostFiles are looked at. Texts have printable characters only, since they are shown on a terminal that may be
// another user's. unreadable, if not null: one line per file that is not a page of ours.
std::vector<Snapshot> snapshots(std::vector<std::string>* unreadable = nullptr);

}  // namespace ewarp::stats
