// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/verbs/memory/pages.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

#include "llp/guarded_copy.h"

namespace ewarp::verbs {
namespace {

std::size_t page_size() {
  static const auto size = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return size;
}

}  // namespace

bool touch(const std::byte* at, std::size_t length) {
  for (std::size_t n = 0; n < length;) {
    std::byte octet;
    if (!llp::guarded_copy(&octet, at + n, 1)) return false;
    n += page_size() - (reinterpret_cast<std::uintptr_t>(at) + n) % page_size();
  }
  return true;
}

namespace {

// Whether the page of this octet can be written.
bool touch_to_write(const std::byte* at) {
  std::uint64_t nothing = 0;
  return llp::guarded_fetch_add(reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(at) & ~std::uintptr_t{7}),
                                &nothing);
}

bool populate_pages(std::uintptr_t page, std::size_t length, bool writable) {
#ifdef MADV_POPULATE_WRITE  // Linux 5.14
  const auto ask = [](std::uintptr_t at, std::size_t n, bool write) {
    return madvise(reinterpret_cast<void*>(at), n, write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ) == 0 ? 0 : errno;
  };
  // EINVAL means a mapping without the right, but also a kernel without the call: tried on memory that is surely good.
  static const bool known = [&ask] {
    static char good;
    return ask(reinterpret_cast<std::uintptr_t>(&good) & ~(page_size() - 1), page_size(), true) == 0;
  }();
  if (!known) return true;
  const int error = ask(page, length, writable);
  return error != EFAULT && error != ENOMEM && error != EINVAL;
#else
  (void)page, (void)length, (void)writable;
  return true;
#endif
}

// By this thread: then they end the process.
bool faults_are_blocked() {
  sigset_t blocked;
  return pthread_sigmask(SIG_SETMASK, nullptr, &blocked) != 0 || sigismember(&blocked, SIGSEGV) != 0 ||
         sigismember(&blocked, SIGBUS) != 0;
}

}  // namespace

bool populate(const void* address, std::size_t length, bool writable) {
  const auto first = reinterpret_cast<std::uintptr_t>(address) & ~(page_size() - 1);
  const auto end = (reinterpret_cast<std::uintptr_t>(address) + length + page_size() - 1) & ~(page_size() - 1);
  return populate_pages(first, end - first, writable);
}

void expect(const void* address, std::size_t length) {
  const auto first = reinterpret_cast<std::uintptr_t>(address) & ~(page_size() - 1);
  madvise(reinterpret_cast<void*>(first), reinterpret_cast<std::uintptr_t>(address) + length - first, MADV_WILLNEED);
}

bool mapped(const void* address, std::size_t length, bool writable) {
  const bool caught = llp::install_copy_guard() && !faults_are_blocked();
  const auto* octets = static_cast<const std::byte*>(address);
  const auto first = reinterpret_cast<std::uintptr_t>(address) & ~(page_size() - 1);
  const auto end = reinterpret_cast<std::uintptr_t>(address) + length;
  // Does nothing since Linux 2.6.19 but to look at the mappings, where mincore() looks at every page.
  if (msync(reinterpret_cast<void*>(first), end - first, MS_ASYNC) != 0 && errno == ENOMEM) return false;
  if (!caught) return populate(octets, 1, writable) && populate(octets + length - 1, 1, writable);
  if (!touch(octets, 1) || !touch(octets + length - 1, 1)) return false;
  return !writable || (touch_to_write(octets) && touch_to_write(octets + length - 1));
}

}  // namespace ewarp::verbs
