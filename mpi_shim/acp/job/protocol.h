// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What the processes of a job and its coordinator say to each other over TCP: frames of 8 octets, some with octets
// behind them. The coordinator is on a host of the same kind, so integers go as the CPU has them.
//
//   member: hello, the Contact           coordinator: table, Contacts of all ranks
//   member: arrived                      coordinator: all_arrived, when everybody did
//   member: leaving (then it may close)  coordinator: gone, for a rank that closed without it
//   member: abort                        coordinator: abort, to all
//   member: parted                       coordinator: parted, to both, if the other one is there
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "mpi_shim/acp/core/peers.h"

namespace ewarp::acp {

enum class Word : std::uint32_t {
  hello = 1,    // value: the rank; a Hello follows
  table,        // value: the number of processes; as many Contacts follow
  refused,      // the hello was not good: wrong secret, version or rank
  arrived,      // at acp_sync() or acp_finalize()
  all_arrived,  //
  leaving,      //
  gone,         // value: the rank
  abort,        //
  parted,       // value: the other rank; a channel between the two was lost, so all of them are
};

struct Frame {
  Word word;
  std::uint32_t value;
};
static_assert(sizeof(Frame) == 8);

inline constexpr std::uint32_t kJobVersion = 2;
inline constexpr std::size_t kSecretOctets = 32;  // hexadecimal digits

struct Hello {
  std::uint32_t version;
  std::uint32_t procs;
  char secret[kSecretOctets];
  Contact contact;
};
static_assert(sizeof(Hello) == 72);

// The environment of a member.
inline constexpr char kRankVariable[] = "ACP_RANK";      // from 0
inline constexpr char kProcsVariable[] = "ACP_PROCS";    //
inline constexpr char kRootVariable[] = "ACP_ROOT";      // the coordinator: IPv4 address:port
inline constexpr char kSecretVariable[] = "ACP_SECRET";  // kSecretOctets digits: everybody else is refused

}  // namespace ewarp::acp
