// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// CRC32C over memory that its owner may have unmapped, and a copy that computes it on the way.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ewarp::llp {

// Both carry the bare register of a CRC32C (neither preset nor complemented) over n octets at `from`. False: a page was
// not accessible; the register is as it was. What is promised of guarded_copy() (llp/guarded_copy.h) holds here too: a
// fault is caught once install_copy_guard() was called and while this thread does not block SIGSEGV and SIGBUS.
// Cost on a CPU with VPCLMULQDQ: 0.02 ns an octet; with the copy no more than the copy alone.
bool guarded_crc32c(const void* from, std::size_t n, std::uint32_t* crc) noexcept;
// What was copied before a fault stays copied. Each octet is read once, so the CRC is that of what was stored even
// where `from` changes meanwhile; each is stored once, in ascending order.
bool guarded_copy_crc32c(void* to, const void* from, std::size_t n, std::uint32_t* crc) noexcept;

// The forms that a machine may have, for tests; guarded_crc32c() and guarded_copy_crc32c() are those of the best one.
struct CrcForm {
  const char* name;
  bool (*crc)(const void* from, std::size_t n, std::uint32_t* crc) noexcept;
  bool (*copy)(void* to, const void* from, std::size_t n, std::uint32_t* crc) noexcept;
};
// Those that run here, the best one last; the first one runs everywhere.
struct CrcForms {
  const CrcForm* first;
  std::size_t count;
};
CrcForms crc_forms() noexcept;

// Whether an instruction belongs to the routines, and where to go on from a fault in them.
bool in_guarded_crc(std::uintptr_t instruction, std::uintptr_t* go_on) noexcept;

}  // namespace ewarp::llp
