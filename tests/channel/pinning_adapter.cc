// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tests/channel/pinning_adapter.h"

#include <liburing.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

namespace ewarp::channel::test {
namespace {

std::atomic<int> registered{0};

struct Region : ibv_mr {
  io_uring ring{};
  int sink = -1;  // a file that takes what is sent
};

void must(bool good, const char* what, int error) {
  if (good) return;
  std::fprintf(stderr, "%s: %s\n", what, std::strerror(error));
  std::abort();
}

ibv_mr* enter(ibv_pd* pd, void* memory, std::size_t octets) {
  if (PinningAdapter::meanwhile) PinningAdapter::meanwhile();
  const bool full = PinningAdapter::most_regions != 0 && registered >= PinningAdapter::most_regions;
  auto* region = full ? nullptr : new (std::nothrow) Region;
  if (region == nullptr) {
    errno = ENOMEM;
    return nullptr;
  }
  region->pd = pd;
  region->addr = memory;
  region->length = octets;
  if (!PinningAdapter::counts_only) {
    int error = -io_uring_queue_init(2, &region->ring, 0);
    must(error == 0, "io_uring_queue_init", error);
    const iovec buffer{.iov_base = memory, .iov_len = octets};
    error = -io_uring_register_buffers(&region->ring, &buffer, 1);
    must(error == 0, "io_uring_register_buffers", error);
    region->sink = memfd_create("sink", MFD_CLOEXEC);
    must(region->sink >= 0, "memfd_create", errno);
  }
  ++registered;
  return region;
}

}  // namespace

int PinningAdapter::regions() {
  return registered;
}

std::vector<std::byte> PinningAdapter::sends(const ibv_mr& mr, Octets memory) {
  auto& region = const_cast<Region&>(static_cast<const Region&>(mr));
  std::vector<std::byte> out(memory.size());
  io_uring_sqe* const sqe = io_uring_get_sqe(&region.ring);
  io_uring_prep_write_fixed(sqe, region.sink, memory.data(), static_cast<unsigned>(memory.size()), 0, 0);
  must(io_uring_submit_and_wait(&region.ring, 1) == 1, "io_uring_submit_and_wait", errno);
  io_uring_cqe* cqe = nullptr;
  must(io_uring_peek_cqe(&region.ring, &cqe) == 0, "io_uring_peek_cqe", 0);
  must(cqe->res == static_cast<int>(memory.size()), "a write from pinned memory", -cqe->res);
  io_uring_cqe_seen(&region.ring, cqe);
  const ssize_t n = pread(region.sink, out.data(), out.size(), 0);
  must(n == static_cast<ssize_t>(out.size()), "pread", errno);
  return out;
}

}  // namespace ewarp::channel::test

extern "C" {

#undef ibv_reg_mr

ibv_mr* ibv_reg_mr(ibv_pd* pd, void* memory, size_t octets, int) {
  return ewarp::channel::test::enter(pd, memory, octets);
}

ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* memory, size_t octets, uint64_t, unsigned int) {
  return ewarp::channel::test::enter(pd, memory, octets);
}

int ibv_dereg_mr(ibv_mr* mr) {
  using namespace ewarp::channel::test;
  if (PinningAdapter::meanwhile) PinningAdapter::meanwhile();
  auto* const region = static_cast<Region*>(mr);
  if (region->sink >= 0) {
    close(region->sink);
    io_uring_queue_exit(&region->ring);
  }
  delete region;
  --registered;
  return 0;
}
}
