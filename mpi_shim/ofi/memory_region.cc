// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "mpi_shim/ofi/memory_region.h"

#include <cassert>
#include <memory>

#include "mpi_shim/ofi/domain.h"
#include "mpi_shim/ofi/fid.h"

namespace ewarp::ofi {

void Regions::add(const MemoryRegion& region) {
  const llp::Guard lock(mutex_);
  by_key_[region.key] = &region;
}

void Regions::remove(const MemoryRegion& region) {
  const llp::Guard lock(mutex_);
  [[maybe_unused]] const std::size_t erased = by_key_.erase(region.key);
  assert(erased == 1);
}

bool Regions::allows(std::uint64_t key, std::uint64_t address, std::uint64_t length, std::uint64_t rights) const {
  const auto at = by_key_.find(key);
  if (at == by_key_.end()) return false;
  const MemoryRegion& r = *at->second;
  return (r.access & rights) == rights && address >= r.address && length <= r.length &&
         address - r.address <= r.length - length;
}

namespace {

int close_region(struct fid* f) noexcept {
  auto& r = object<MemoryRegion, fid_mr>(f);
  r.domain->regions.remove(r);
  r.domain->device->conceal(r.region);
  --r.domain->users;
  delete &r;
  return 0;
}

fi_ops fid_ops = {.size = sizeof(fi_ops),
                  .close = close_region,
                  .bind = kUnsupported,
                  .control = kUnsupported,
                  .ops_open = kUnsupported,
                  .tostr = kUnsupported,
                  .ops_set = kUnsupported};

int register_one(struct fid* d, iovec memory, std::uint64_t access, std::uint64_t flags, fid_mr** out,
                 void* context) noexcept {
  return guarded([&] {
    if (flags != 0) return -FI_EBADFLAGS;
    Domain& domain = object<Domain, fid_domain>(d);
    const auto region = domain.device->expose({static_cast<std::byte*>(memory.iov_base), memory.iov_len},
                                              (access & FI_REMOTE_READ) != 0, (access & FI_REMOTE_WRITE) != 0);
    if (!region) return -FI_ENOMEM;
    auto r = std::make_unique<MemoryRegion>();
    r->fid = {.fclass = FI_CLASS_MR, .context = context, .ops = &fid_ops};
    r->mem_desc = nullptr;  // local buffers need none
    r->key = region->remote.key;
    r->domain = &domain;
    r->region = *region;
    r->address = region->remote.address;
    r->length = memory.iov_len;
    r->access = access;
    domain.regions.add(*r);
    ++domain.users;
    *out = r.release();
    return 0;
  });
}

int reg(struct fid* domain, const void* buffer, size_t length, uint64_t access, uint64_t offset, uint64_t,
        uint64_t flags, fid_mr** out, void* context) noexcept {
  if (offset != 0) return -FI_EINVAL;
  return register_one(domain, {const_cast<void*>(buffer), length}, access, flags, out, context);
}

int regv(struct fid* domain, const iovec* v, size_t count, uint64_t access, uint64_t offset, uint64_t, uint64_t flags,
         fid_mr** out, void* context) noexcept {
  if (offset != 0 || count != 1) return -FI_EINVAL;
  return register_one(domain, *v, access, flags, out, context);
}

int regattr(struct fid* domain, const fi_mr_attr* a, uint64_t flags, fid_mr** out) noexcept {
  if (a->offset != 0 || a->iov_count != 1 || a->auth_key_size != 0) return -FI_EINVAL;
  if (a->iface != FI_HMEM_SYSTEM) return -FI_ENOSYS;
  return register_one(domain, *a->mr_iov, a->access, flags, out, a->context);
}

}  // namespace

fi_ops_mr memory_ops = {.size = sizeof(fi_ops_mr), .reg = reg, .regv = regv, .regattr = regattr};

}  // namespace ewarp::ofi
