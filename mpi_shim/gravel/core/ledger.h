// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Ledgers: rings of entries in the reader's memory, which the writer fills by RDMA Write.
//
// For each peer a process has a board: three ledgers that the peer writes, and behind them how much of this process's
// entries the peer has taken out of its own ledgers. A writer fills no entry that the reader may not have taken.
#pragma once

#include <array>
#include <cassert>
#include <cstdint>
#include <optional>

#include "mpi_shim/gravel/core/entry.h"
#include "mpi_shim/gravel/core/words.h"

namespace ewarp::gravel {

enum class Ledger : std::uint8_t { receive_info, send_info, fin };
inline constexpr std::array kLedgers = {Ledger::receive_info, Ledger::send_info, Ledger::fin};
inline constexpr std::uint32_t kEntries = 64;  // of a ledger

namespace board {

inline constexpr std::size_t kLedgerOctets = kEntries * Entry::kOctets;
inline constexpr std::size_t kCounts = kLedgers.size() * kLedgerOctets;
inline constexpr std::size_t kCountsOctets = 4 * kLedgers.size();
inline constexpr std::size_t kOctets = kCounts + 32;  // an entry's alignment for the next one

// number: from 1.
constexpr std::size_t offset(Ledger ledger, std::uint32_t number) {
  return static_cast<std::size_t>(ledger) * kLedgerOctets + (number - 1) % kEntries * Entry::kOctets;
}

using CountsOctets = std::array<std::byte, kCountsOctets>;

}  // namespace board

// Counts are modulo 2^32.

class LedgerWriter {
 public:
  bool full() const { return written_ - taken_ == kEntries; }
  // The number of the next entry.
  std::uint32_t next() const { return written_ + 1; }
  // It was written. Requires: !full().
  void advance() {
    assert(!full());
    ++written_;
  }
  // The reader says that it has taken so many in all. False: it cannot have.
  bool taken(std::uint32_t count) {
    if (count - taken_ > written_ - taken_) return false;
    taken_ = count;
    return true;
  }

 private:
  std::uint32_t written_ = 0, taken_ = 0;
};

class LedgerReader {
 public:
  // The next entry; it stays. board: of the peer that writes it.
  std::optional<Entry> look(const std::byte* board, Ledger ledger) const {
    const std::uint32_t number = taken_ + 1;
    return read(board + board::offset(ledger, number), number);
  }
  // It was looked at.
  void advance() { ++taken_; }
  // The next entry, once.
  std::optional<Entry> take(const std::byte* board, Ledger ledger) {
    const auto entry = look(board, ledger);
    if (entry) advance();
    return entry;
  }
  std::uint32_t taken() const { return taken_; }
  // The writer should be told: half of the ledger is free without its knowing.
  bool untold() const { return taken_ - told_ >= kEntries / 2; }
  void set_told() { told_ = taken_; }

 private:
  std::uint32_t taken_ = 0, told_ = 0;
};

}  // namespace ewarp::gravel
