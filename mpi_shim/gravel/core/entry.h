// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// An entry of a ledger, octet by octet (docs/design/gravel.md has the figure). Big-endian.
//
// The last word publishes an entry. It is made of the entry's number in its ledger and of all other octets, so an entry
// whose octets arrive in another order is not there before all of them are.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "mpi_shim/gravel/core/types.h"

namespace ewarp::gravel {

struct Entry {
  static constexpr std::size_t kOctets = 32;

  std::uint64_t size = 0;  // of the buffer; FIN: octets that were moved
  Remote remote = {};      // the buffer at the writer of the entry; FIN, and a mere notice: none
  int tag = 0;
  // Receive and send information: the writer's request, which a FIN is to name; 0: a notice, and no buffer. FIN: the
  // reader's request.
  RequestId request = 0;

  bool operator==(const Entry&) const = default;
};

using EntryOctets = std::array<std::byte, Entry::kOctets>;

// number: of the entry in its ledger, from 1, modulo 2^32.
EntryOctets emit(const Entry& entry, std::uint32_t number);
// Nothing if the entry of this number is not there, or not all of it. A peer may be writing it meanwhile. Requires:
// 4-octet alignment.
std::optional<Entry> read(const std::byte* slot, std::uint32_t number);

}  // namespace ewarp::gravel
