// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "llp/guarded_crc.h"

#include <isa-l/crc.h>

#include <algorithm>
#include <array>

#include "llp/guarded_copy.h"

namespace ewarp::llp {
namespace {

// By way of a copy of our own, so that each octet is read once.
constexpr std::size_t kBlock = 4096;

template <class Store>
bool by_blocks(const void* from, std::size_t n, std::uint32_t* crc, const Store& store) noexcept {
  std::array<unsigned char, kBlock> block;
  std::uint32_t value = *crc;
  for (std::size_t at = 0; at < n;) {
    const std::size_t piece = std::min(n - at, kBlock);
    if (!guarded_copy(block.data(), static_cast<const char*>(from) + at, piece)) return false;
    if (!store(at, block.data(), piece)) return false;
    value = crc32_iscsi(block.data(), static_cast<int>(piece), value);
    at += piece;
  }
  *crc = value;
  return true;
}

bool crc_by_blocks(const void* from, std::size_t n, std::uint32_t* crc) noexcept {
  return by_blocks(from, n, crc, [](std::size_t, const void*, std::size_t) { return true; });
}

bool copy_by_blocks(void* to, const void* from, std::size_t n, std::uint32_t* crc) noexcept {
  return by_blocks(from, n, crc, [to](std::size_t at, const void* block, std::size_t piece) {
    return guarded_copy(static_cast<char*>(to) + at, block, piece);
  });
}

}  // namespace
}  // namespace ewarp::llp

#if defined(__x86_64__)

// bool name(void* to, const void* from, size_t n, uint32_t* crc, const Folds* folds): false by way of ewarp_crc_fault.
// As in guarded_copy.cc no stack is used, and each octet is stored once, in ascending order.
//
// A message is a polynomial over GF(2), its CRC the remainder by P. Four accumulators hold what the octets so far are
// congruent to; to move one forward by a distance d each half of it is multiplied by x^d modulo P, and the octets found
// there are added ("folding"). At the end three of them are folded onto the fourth, whose 16 octets have the CRC of
// all. The wide form has accumulators of 64 octets.
asm(R"(
  .pushsection .text
  .macro ewarp_crc_load i, copies
  movdqu 16*\i(%rsi), %xmm\i
  .if \copies
  movdqu %xmm\i, 16*\i(%rdi)
  .endif
  .endm
  .macro ewarp_crc_step i, spare, copies # accumulator i onto the next octets of its own
  movdqa %xmm\i, %xmm\spare
  movdqu 16*\i(%rsi), %xmm9
  pclmulqdq $0x00, %xmm8, %xmm\i
  pclmulqdq $0x11, %xmm8, %xmm\spare
  .if \copies
  movdqu %xmm9, 16*\i(%rdi)
  .endif
  pxor %xmm\spare, %xmm\i
  pxor %xmm9, %xmm\i
  .endm
  .macro ewarp_crc_onto i, next
  movdqa %xmm\i, %xmm4
  pclmulqdq $0x00, %xmm8, %xmm\i
  pclmulqdq $0x11, %xmm8, %xmm4
  pxor %xmm\i, %xmm\next
  pxor %xmm4, %xmm\next
  .endm
  .macro ewarp_crc_wide_load i, copies
  vmovdqu64 64*\i(%rsi), %zmm\i
  .if \copies
  vmovdqu64 %zmm\i, 64*\i(%rdi)
  .endif
  .endm
  .macro ewarp_crc_wide_step i, spare, data, copies
  vmovdqu64 64*\i(%rsi), %zmm\data
  vpclmulqdq $0x00, %zmm8, %zmm\i, %zmm\spare
  vpclmulqdq $0x11, %zmm8, %zmm\i, %zmm\i
  .if \copies
  vmovdqu64 %zmm\data, 64*\i(%rdi)
  .endif
  vpternlogq $0x96, %zmm\data, %zmm\spare, %zmm\i
  .endm
  .macro ewarp_crc_wide_onto i, next
  vpclmulqdq $0x00, %zmm8, %zmm\i, %zmm4
  vpclmulqdq $0x11, %zmm8, %zmm\i, %zmm5
  vpternlogq $0x96, %zmm4, %zmm5, %zmm\next
  .endm
  .macro ewarp_crc_lane lane # what xmm2 has, onto this part of zmm3
  vpclmulqdq $0x00, %xmm8, %xmm2, %xmm4
  vpclmulqdq $0x11, %xmm8, %xmm2, %xmm5
  vextracti32x4 $\lane, %zmm3, %xmm2
  vpxor %xmm4, %xmm2, %xmm2
  vpxor %xmm5, %xmm2, %xmm2
  .endm
  .macro ewarp_crc_advance n, copies
  addq $\n, %rsi
  .if \copies
  addq $\n, %rdi
  .endif
  subq $\n, %rdx
  .endm
  .macro ewarp_crc_word load, store, stored, loaded, octets, copies
  \load (%rsi), \loaded
  .if \copies
  \store \stored, (%rdi)
  addq $\octets, %rdi
  .endif
  addq $\octets, %rsi
  .endm

  .macro ewarp_crc_routine name, copies, wide
  .p2align 6
  .globl \name
  .hidden \name
\name:
  movl (%rcx), %eax
  .if \wide
  cmpq $512, %rdx
  jb 2f
  ewarp_crc_wide_load 0, \copies
  ewarp_crc_wide_load 1, \copies
  ewarp_crc_wide_load 2, \copies
  ewarp_crc_wide_load 3, \copies
  vmovd %eax, %xmm4
  vpxorq %zmm4, %zmm0, %zmm0
  vbroadcasti32x4 (%r8), %zmm8
  ewarp_crc_advance 256, \copies
1:
  ewarp_crc_wide_step 0, 4, 9, \copies
  ewarp_crc_wide_step 1, 5, 10, \copies
  ewarp_crc_wide_step 2, 6, 11, \copies
  ewarp_crc_wide_step 3, 7, 12, \copies
  ewarp_crc_advance 256, \copies
  cmpq $256, %rdx
  jae 1b
  vbroadcasti32x4 16(%r8), %zmm8
  ewarp_crc_wide_onto 0, 1
  ewarp_crc_wide_onto 1, 2
  ewarp_crc_wide_onto 2, 3
  vmovdqu 32(%r8), %xmm8
  vmovdqa %xmm3, %xmm2
  ewarp_crc_lane 1
  ewarp_crc_lane 2
  ewarp_crc_lane 3
  vmovq %xmm2, %r9
  vpextrq $1, %xmm2, %r10
  vzeroupper
  xorl %eax, %eax
  crc32q %r9, %rax
  crc32q %r10, %rax
2:
  .endif
  cmpq $128, %rdx
  jb 4f
  ewarp_crc_load 0, \copies
  ewarp_crc_load 1, \copies
  ewarp_crc_load 2, \copies
  ewarp_crc_load 3, \copies
  movd %eax, %xmm4
  pxor %xmm4, %xmm0
  movdqu 16(%r8), %xmm8
  ewarp_crc_advance 64, \copies
3:
  ewarp_crc_step 0, 4, \copies
  ewarp_crc_step 1, 5, \copies
  ewarp_crc_step 2, 6, \copies
  ewarp_crc_step 3, 7, \copies
  ewarp_crc_advance 64, \copies
  cmpq $64, %rdx
  jae 3b
  movdqu 32(%r8), %xmm8
  ewarp_crc_onto 0, 1
  ewarp_crc_onto 1, 2
  ewarp_crc_onto 2, 3
  movq %xmm3, %r9
  pextrq $1, %xmm3, %r10
  xorl %eax, %eax
  crc32q %r9, %rax
  crc32q %r10, %rax
4:
  cmpq $8, %rdx
  jb 5f
  ewarp_crc_word movq, movq, %r9, %r9, 8, \copies
  crc32q %r9, %rax
  subq $8, %rdx
  jmp 4b
5: # below 8: by the bits of the length
  testl $4, %edx
  jz 6f
  ewarp_crc_word movl, movl, %r9d, %r9d, 4, \copies
  crc32l %r9d, %eax
6:
  testl $2, %edx
  jz 7f
  ewarp_crc_word movzwl, movw, %r9w, %r9d, 2, \copies
  crc32w %r9w, %eax
7:
  testl $1, %edx
  jz 8f
  ewarp_crc_word movzbl, movb, %r9b, %r9d, 1, \copies
  crc32b %r9b, %eax
8:
  movl %eax, (%rcx)
  movl $1, %eax
  ret
  .endm

  .p2align 6
  .globl ewarp_crc_begin
  .hidden ewarp_crc_begin
ewarp_crc_begin:
  .cfi_startproc
  ewarp_crc_routine ewarp_crc, 0, 0
  ewarp_crc_routine ewarp_crc_copy, 1, 0
  ewarp_crc_routine ewarp_crc_wide, 0, 1
  ewarp_crc_routine ewarp_crc_copy_wide, 1, 1
  .globl ewarp_crc_fault
  .hidden ewarp_crc_fault
ewarp_crc_fault:
  xorl %eax, %eax
  ret
  .cfi_endproc
  .purgem ewarp_crc_routine
  .popsection
)");

namespace {

using ewarp::llp::CrcForm;

// The multipliers of the two halves of an accumulator, low half first, for distances of 256, 64 and 16 octets.
using Folds = std::array<std::uint64_t, 6>;

// x^n modulo P = x^32 + 0x1edc6f41, the coefficient of x^31 in the lowest bit and the whole shifted by one: a product
// of two factors whose bits are in reverse order is one place short.
constexpr std::uint64_t power(unsigned n) {
  std::uint32_t value = 1;
  for (unsigned i = 0; i < n; ++i) value = (value & 0x80000000u) != 0 ? value << 1 ^ 0x1edc6f41u : value << 1;
  std::uint64_t reversed = 0;
  for (unsigned i = 0; i < 32; ++i) reversed |= std::uint64_t{value >> i & 1} << (31 - i);
  return reversed << 1;
}

// The halves are 64 places apart; the product of 96 bits stands 32 places above the remainder's end.
constexpr Folds kFolds{power(2048 + 32), power(2048 - 32), power(512 + 32),
                       power(512 - 32),  power(128 + 32),  power(128 - 32)};

}  // namespace

extern "C" {
using EwarpCrcRoutine = bool(void* to, const void* from, std::size_t n, std::uint32_t* crc,
                             const std::uint64_t* folds) noexcept;
[[gnu::visibility("hidden")]] EwarpCrcRoutine ewarp_crc, ewarp_crc_copy, ewarp_crc_wide, ewarp_crc_copy_wide;
[[gnu::visibility("hidden")]] extern const char ewarp_crc_begin[], ewarp_crc_fault[];
}

namespace {

template <EwarpCrcRoutine* routine>
bool crc(const void* from, std::size_t n, std::uint32_t* value) noexcept {
  return routine(nullptr, from, n, value, kFolds.data());
}

template <EwarpCrcRoutine* routine>
bool copy(void* to, const void* from, std::size_t n, std::uint32_t* value) noexcept {
  return routine(to, from, n, value, kFolds.data());
}

constexpr std::array<CrcForm, 3> kForms{{
    {"blocks", ewarp::llp::crc_by_blocks, ewarp::llp::copy_by_blocks},
    {"pclmulqdq", crc<ewarp_crc>, copy<ewarp_crc_copy>},
    {"vpclmulqdq", crc<ewarp_crc_wide>, copy<ewarp_crc_copy_wide>},
}};

std::size_t usable_forms() noexcept {
  if (!__builtin_cpu_supports("pclmul") || !__builtin_cpu_supports("sse4.2")) return 1;
  return __builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("avx512vl") ? 3 : 2;
}

}  // namespace

namespace ewarp::llp {

bool in_guarded_crc(std::uintptr_t instruction, std::uintptr_t* go_on) noexcept {
  *go_on = reinterpret_cast<std::uintptr_t>(ewarp_crc_fault);
  return instruction >= reinterpret_cast<std::uintptr_t>(ewarp_crc_begin) && instruction < *go_on;
}

}  // namespace ewarp::llp

#else

namespace {

constexpr std::array<ewarp::llp::CrcForm, 1> kForms{
    {{"blocks", ewarp::llp::crc_by_blocks, ewarp::llp::copy_by_blocks}}};

std::size_t usable_forms() noexcept {
  return 1;
}

}  // namespace

namespace ewarp::llp {

bool in_guarded_crc(std::uintptr_t, std::uintptr_t*) noexcept {
  return false;
}

}  // namespace ewarp::llp

#endif

namespace ewarp::llp {

CrcForms crc_forms() noexcept {
  return {kForms.data(), usable_forms()};
}

namespace {

const CrcForm& best() noexcept {
  static const CrcForm& form = kForms[usable_forms() - 1];
  return form;
}

}  // namespace

bool guarded_crc32c(const void* from, std::size_t n, std::uint32_t* crc) noexcept {
  return best().crc(from, n, crc);
}

bool guarded_copy_crc32c(void* to, const void* from, std::size_t n, std::uint32_t* crc) noexcept {
  return best().copy(to, from, n, crc);
}

}  // namespace ewarp::llp
