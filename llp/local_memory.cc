// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "llp/local_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cassert>
#include <cerrno>
#include <new>
#include <utility>

#include "llp/fd.h"

namespace ewarp::llp {
namespace {

// First in the memory; written before the peer has it, and never again.
struct Head {
  std::uint32_t magic, version;
  std::uint64_t ring_octets;
};

constexpr std::uint32_t kMagic = 0x45574c31, kVersion = 1;
constexpr std::size_t kRings = 64, kData = 4096;
constexpr std::size_t kOctets = kData + 2 * kLocalRing;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

std::atomic<int> memories{0};  // of this process

static_assert(sizeof(Head) <= kRings && kRings + 2 * sizeof(LocalRing) <= kData);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::uint32_t>::is_always_lock_free);

}  // namespace

LocalMemory& LocalMemory::operator=(LocalMemory&& other) noexcept {
  if (this == &other) return *this;
  unmap();
  at_ = std::exchange(other.at_, nullptr);
  process_ = other.process_;
  return *this;
}

// In a forked child there is nothing at this address, or something that came there since.
void LocalMemory::unmap() {
  if (at_ == nullptr) return;
  if (process_ == getpid()) munmap(at_, kOctets);
  at_ = nullptr;
  --memories;
}

int LocalMemory::map(int fd) {
  assert(at_ == nullptr);
  if (++memories > kMostLocalMemories) {
    --memories;
    return ENOSPC;
  }
  void* const at = mmap(nullptr, kOctets, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED) {
    --memories;
    return errno;
  }
  at_ = static_cast<std::byte*>(at);
  process_ = getpid();
  if (madvise(at, kOctets, MADV_DONTFORK) == 0) return 0;
  const int error = errno;
  unmap();
  return error;
}

int LocalMemory::create(LocalMemory* memory, int* fd) {
  const int made = make_high_fd([] { return memfd_create("etherwarp-local", MFD_CLOEXEC | MFD_ALLOW_SEALING); });
  if (made < 0) return errno;
  LocalMemory fresh;
  int error = 0;
  if (ftruncate(made, kOctets) != 0 || fcntl(made, F_ADD_SEALS, kSeals) != 0) error = errno;
  if (error == 0) error = fresh.map(made);
  if (error != 0) {
    close(made);
    return error;
  }
  new (fresh.at_) Head{kMagic, kVersion, kLocalRing};
  new (fresh.at_ + kRings) LocalRing[2]{};
  *memory = std::move(fresh);
  *fd = made;
  return 0;
}

int LocalMemory::adopt(int fd, LocalMemory* memory) {
  // Only memory has seals; anything else is not asked for more, which its owner might make us wait for.
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0) return errno;
  if ((seals & kSeals) != kSeals) return EPROTO;
  struct stat s {};
  if (fstat(fd, &s) != 0) return errno;
  if (s.st_size != static_cast<off_t>(kOctets)) return EPROTO;
  LocalMemory theirs;
  if (const int error = theirs.map(fd)) return error;
  const volatile Head& head = *reinterpret_cast<const volatile Head*>(theirs.at_);
  if (head.magic != kMagic || head.version != kVersion || head.ring_octets != kLocalRing) return EPROTO;
  *memory = std::move(theirs);
  return 0;
}

LocalRing& LocalMemory::ring(bool from_creator) const {
  assert(at_ != nullptr);
  return *std::launder(reinterpret_cast<LocalRing*>(at_ + kRings + (from_creator ? 0 : sizeof(LocalRing))));
}

std::byte* LocalMemory::octets(bool from_creator) const {
  assert(at_ != nullptr);
  return at_ + kData + (from_creator ? 0 : kLocalRing);
}

}  // namespace ewarp::llp
