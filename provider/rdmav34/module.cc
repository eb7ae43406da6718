// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The module's beginning: makes the provider known to libibverbs.
#include <atomic>
#include <new>

#include "llp/mutex.h"
#include "provider/host/host.h"
#include "provider/rdmav34/abi.h"
#include "provider/rdmav34/objects.h"

namespace ewarp::rdmav34 {
namespace {

// Called whenever somebody looks for devices. libibverbs may not be loaded yet then (UCX looks at paths first). It
// walks its list of drivers after it has asked us for the devices, so the list must be whole when this returns.
// False: that libibverbs is none that we can serve.
bool register_with_libibverbs() {
  const Library* library = nullptr;
  try {
    library = Library::get();
  } catch (const std::bad_alloc&) {
    return true;  // who looks again finds the devices
  }
  if (library == nullptr) return !Library::refused();
  // Once it is done, nobody takes the mutex any more: a forked child would not get it back.
  static llp::Mutex mutex;
  static std::atomic<bool> registered{false};
  if (registered.load(std::memory_order_acquire)) return true;
  const llp::Guard lock(mutex);
  if (registered.load(std::memory_order_relaxed)) return true;
  library->register_driver(device_ops());
  registered.store(true, std::memory_order_release);
  return true;
}

__attribute__((constructor)) void begin() {
  host::set_discovery(register_with_libibverbs);
  // libibverbs loads its drivers by name too, and expects them to register then.
  register_with_libibverbs();
}

}  // namespace
}  // namespace ewarp::rdmav34
