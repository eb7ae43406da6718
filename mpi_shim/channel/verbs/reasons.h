// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Why no connection with a peer comes to be, or one ended, for people: what was found, and what to do about it. Where
// there is no memory for a text, a shorter one is given: an end is told all the same.
#pragma once

#include <rdma/rdma_cma.h>

#include <cstdint>
#include <string>

#include "mpi_shim/channel/verbs/address.h"
#include "mpi_shim/channel/verbs/hello.h"

namespace ewarp::channel::reason {

std::string of_version(std::uint8_t theirs) noexcept;
// Answer::mismatch: an option that is to be the same at all ends is not. Where all of them are, the peer has failed to
// make the connection.
std::string of_mismatch(const Hello& mine, const Hello& theirs) noexcept;
// Answer::stranger. own: this end's address.
std::string of_stranger(const Address& own) noexcept;
// An event of rdma_cm that ends an attempt.
std::string of_event(const rdma_cm_event& event) noexcept;
// All attempts were in vain for so long. last: why the last one was; empty: nothing came of it.
std::string of_silence(std::uint64_t ns, const std::string& last) noexcept;
// As it is.
std::string of(const char* text) noexcept;

// Says on stderr why, and ends the process: an MPI program may wait for another peer, and never ask how it went.
[[noreturn]] void end_process(const Address& own, const Address& peer, const std::string& why);

}  // namespace ewarp::channel::reason
