// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "llp/guarded_copy.h"

#include <sys/uio.h>
#include <unistd.h>

#include <cassert>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "llp/fault_chain.h"
#include "llp/guarded_crc.h"

namespace ewarp::llp {

bool guarded_copy_by_kernel(void* to, const void* from, std::size_t n) noexcept {
  auto* target = static_cast<char*>(to);
  auto* source = static_cast<const char*>(from);
  while (n > 0) {
    const iovec local{const_cast<char*>(source), n};
    const iovec remote{target, n};
    const ssize_t copied = process_vm_writev(getpid(), &local, 1, &remote, 1, 0);
    if (copied < 0) {
      if (errno == EFAULT) return false;
      // Forbidden by a sandbox. Without the guard is better than not at all: only unmapped memory is hurt by it.
      std::memcpy(target, source, n);
      return true;
    }
    if (copied == 0) return false;
    // Short at the first bad page (the next call says EFAULT), or at the kernel's limit of 2 GiB a call.
    target += copied;
    source += copied;
    n -= static_cast<std::size_t>(copied);
  }
  return true;
}

}  // namespace ewarp::llp

#if defined(__x86_64__)

#include <ucontext.h>

// bool ewarp_copy(void* to, const void* from, size_t n): false by way of ewarp_copy_fault, as are the others.
// It uses no stack, so going on at ewarp_copy_fault is right from any instruction of the range. Each octet is stored
// once, in ascending order, and on x86 seen in it. Overlapping the head and tail of a piece would spare branches, but
// whoever has seen the last octet may write there himself, and a second store would undo that. `rep movsb` is the
// exception (its own stores are unordered, but all precede later ones), hence the last 16 octets by a plain store.
// From 2048 octets on `rep movsb` is as fast as the vector loop of the C library, below it starts up too slowly. Not so
// where the low 12 bits of the target's address are a little more than those of the source's: some CPUs go octet by
// octet then, 20 times as slow (docs/design/performance.md, *octet by octet*).
asm(R"(
  .pushsection .text
  .p2align 6
  .globl ewarp_copy
  .hidden ewarp_copy
  .type ewarp_copy, @function
ewarp_copy:
  .cfi_startproc
  cmpq $2048, %rdx
  jae 8f
  cmpq $64, %rdx
  jb 2f
1: # whole lines
  movups (%rsi), %xmm0
  movups 16(%rsi), %xmm1
  movups 32(%rsi), %xmm2
  movups 48(%rsi), %xmm3
  addq $64, %rsi
  movups %xmm0, (%rdi)
  movups %xmm1, 16(%rdi)
  movups %xmm2, 32(%rdi)
  movups %xmm3, 48(%rdi)
  addq $64, %rdi
  subq $64, %rdx
  cmpq $64, %rdx
  jae 1b
2: # below 64: by the bits of the length
  testl $32, %edx
  jz 3f
  movups (%rsi), %xmm0
  movups 16(%rsi), %xmm1
  addq $32, %rsi
  movups %xmm0, (%rdi)
  movups %xmm1, 16(%rdi)
  addq $32, %rdi
3:
  testl $16, %edx
  jz 4f
  movups (%rsi), %xmm0
  addq $16, %rsi
  movups %xmm0, (%rdi)
  addq $16, %rdi
4:
  testl $15, %edx
  jz 9f
  testl $8, %edx
  jz 5f
  movq (%rsi), %rax
  addq $8, %rsi
  movq %rax, (%rdi)
  addq $8, %rdi
5:
  testl $4, %edx
  jz 6f
  movl (%rsi), %eax
  addq $4, %rsi
  movl %eax, (%rdi)
  addq $4, %rdi
6:
  testl $2, %edx
  jz 7f
  movzwl (%rsi), %eax
  addq $2, %rsi
  movw %ax, (%rdi)
  addq $2, %rdi
7:
  testl $1, %edx
  jz 9f
  movzbl (%rsi), %eax
  movb %al, (%rdi)
  jmp 9f
8: # 2048 and more, by vectors where the target is 1 to 63 further
  movl %edi, %eax
  subl %esi, %eax
  decl %eax
  andl $4095, %eax
  cmpl $63, %eax
  jb 1b
  leaq -16(%rdx), %rcx
  rep movsb
  movups (%rsi), %xmm0
  movups %xmm0, (%rdi)
9:
  movl $1, %eax
  ret
  .globl ewarp_copy_past_caches
  .hidden ewarp_copy_past_caches
ewarp_copy_past_caches:
  movq %rdi, %rcx # up to the first whole line of the target
  negq %rcx
  andq $63, %rcx
  cmpq %rdx, %rcx
  cmovaq %rdx, %rcx
  subq %rcx, %rdx
  rep movsb
  cmpq $64, %rdx
  jb 2f
1: # whole lines
  movups (%rsi), %xmm0
  movups 16(%rsi), %xmm1
  movups 32(%rsi), %xmm2
  movups 48(%rsi), %xmm3
  addq $64, %rsi
  movntdq %xmm0, (%rdi)
  movntdq %xmm1, 16(%rdi)
  movntdq %xmm2, 32(%rdi)
  movntdq %xmm3, 48(%rdi)
  addq $64, %rdi
  subq $64, %rdx
  cmpq $64, %rdx
  jae 1b
2:
  movq %rdx, %rcx
  rep movsb
  sfence # such stores are not ordered with later ones
  movl $1, %eax
  ret
  .macro ewarp_atomic name, instruction, operand # on (%rdi); (%rsi) goes into %rax, and %rax back there
  .globl \name
  .hidden \name
\name:
  movq (%rsi), %rax
  lock \instruction \operand, (%rdi)
  movq %rax, (%rsi)
  movl $1, %eax
  ret
  .endm
  ewarp_atomic ewarp_fetch_add, xaddq, %rax
  ewarp_atomic ewarp_compare_exchange, cmpxchgq, %rdx
  .purgem ewarp_atomic
  .globl ewarp_copy_fault
  .hidden ewarp_copy_fault
ewarp_copy_fault:
  xorl %eax, %eax
  ret
  .cfi_endproc
  .size ewarp_copy, .-ewarp_copy
  .popsection
)");

extern "C" {
[[gnu::visibility("hidden")]] bool ewarp_copy(void* to, const void* from, std::size_t n) noexcept;
[[gnu::visibility("hidden")]] bool ewarp_copy_past_caches(void* to, const void* from, std::size_t n) noexcept;
[[gnu::visibility("hidden")]] bool ewarp_fetch_add(void* at, std::uint64_t* value) noexcept;
[[gnu::visibility("hidden")]] bool ewarp_compare_exchange(void* at, std::uint64_t* expected,
                                                          std::uint64_t desired) noexcept;
[[gnu::visibility("hidden")]] extern const char ewarp_copy_fault[];
}

namespace ewarp::llp {

namespace {

bool recover(int signal, const siginfo_t& info, void* context) {
  // Sent by somebody while the copy ran is not a fault of the copy.
  if (!from_instruction(signal, info)) return false;
  greg_t& rip = static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP];
  const auto at = static_cast<std::uintptr_t>(rip);
  auto go_on = reinterpret_cast<std::uintptr_t>(ewarp_copy_fault);
  const bool copy = at >= reinterpret_cast<std::uintptr_t>(&ewarp_copy) && at < go_on;
  if (!copy && !in_guarded_crc(at, &go_on)) return false;
  rip = static_cast<greg_t>(go_on);
  return true;
}

}  // namespace

#if !defined(NDEBUG)
namespace {

bool is_aligned(const void* at) {
  return reinterpret_cast<std::uintptr_t>(at) % sizeof(std::uint64_t) == 0;
}

}  // namespace
#endif

bool faults_can_be_caught() noexcept {
  return true;
}

bool install_copy_guard() {
  return take_fault_signals(&recover);
}

bool guarded_copy(void* to, const void* from, std::size_t n) noexcept {
  return ewarp_copy(to, from, n);
}

bool guarded_copy_past_caches(void* to, const void* from, std::size_t n) noexcept {
  return ewarp_copy_past_caches(to, from, n);
}

bool guarded_fetch_add(void* at, std::uint64_t* value) noexcept {
  assert(is_aligned(at));
  return ewarp_fetch_add(at, value);
}

bool guarded_compare_exchange(void* at, std::uint64_t* expected, std::uint64_t desired) noexcept {
  assert(is_aligned(at));
  return ewarp_compare_exchange(at, expected, desired);
}

}  // namespace ewarp::llp

#else

namespace ewarp::llp {

bool faults_can_be_caught() noexcept {
  return false;
}

bool install_copy_guard() {
  return false;
}

bool guarded_copy(void* to, const void* from, std::size_t n) noexcept {
  return guarded_copy_by_kernel(to, from, n);
}

bool guarded_copy_past_caches(void* to, const void* from, std::size_t n) noexcept {
  return guarded_copy_by_kernel(to, from, n);
}

bool guarded_fetch_add(void* at, std::uint64_t* value) noexcept {
  std::uint64_t seen;
  if (!guarded_copy_by_kernel(&seen, at, sizeof seen)) return false;
  *value = __atomic_fetch_add(static_cast<std::uint64_t*>(at), *value, __ATOMIC_SEQ_CST);
  return true;
}

bool guarded_compare_exchange(void* at, std::uint64_t* expected, std::uint64_t desired) noexcept {
  std::uint64_t seen;
  if (!guarded_copy_by_kernel(&seen, at, sizeof seen)) return false;
  __atomic_compare_exchange_n(static_cast<std::uint64_t*>(at), expected, desired, false, __ATOMIC_SEQ_CST,
                              __ATOMIC_SEQ_CST);
  return true;
}

}  // namespace ewarp::llp

#endif
