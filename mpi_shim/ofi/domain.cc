// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "mpi_shim/ofi/domain.h"

#include "mpi_shim/ofi/address_vector.h"
#include "mpi_shim/ofi/completion_queue.h"
#include "mpi_shim/ofi/counter.h"
#include "mpi_shim/ofi/endpoint.h"
#include "mpi_shim/ofi/fid.h"
#include "mpi_shim/ofi/interfaces.h"
#include "mpi_shim/ofi/poll_set.h"
#include "mpi_shim/ofi/provider.h"

namespace ewarp::ofi {
namespace {

int close_domain(fid* f) noexcept {
  Domain& domain = object<Domain, fid_domain>(f);
  if (domain.users.load() > 0) return -FI_EBUSY;
  --domain.fabric->users;
  delete &domain;
  return 0;
}

fi_ops fid_ops = {.size = sizeof(fi_ops),
                  .close = close_domain,
                  .bind = kUnsupported,
                  .control = kUnsupported,
                  .ops_open = kUnsupported,
                  .tostr = kUnsupported,
                  .ops_set = kUnsupported};

fi_ops_domain domain_ops = {.size = sizeof(fi_ops_domain),
                            .av_open = open_address_vector,
                            .cq_open = open_completion_queue,
                            .endpoint = open_endpoint,
                            .scalable_ep = kUnsupported,
                            .cntr_open = open_counter,
                            .poll_open = open_poll_set,
                            .stx_ctx = kUnsupported,
                            .srx_ctx = kUnsupported,
                            .query_atomic = query_atomic,
                            .query_collective = kUnsupported,
                            .endpoint2 = kUnsupported};

}  // namespace

int open_domain(fid_fabric* f, fi_info* info, fid_domain** out, void* context) noexcept {
  return guarded([&] {
    const auto address = info->src_addr != nullptr
                             ? channel::Address::from(*static_cast<const sockaddr*>(info->src_addr))
                             : std::nullopt;
    if (!address) return -FI_EINVAL;
    auto domain = std::make_unique<Domain>();
    std::string error;
    int code = 0;
    domain->device = channel::Device::open(*address, &error, &code);
    if (!domain->device) {
      FI_WARN(&provider, FI_LOG_DOMAIN, "%s\n", error.c_str());
      return -code;
    }
    domain->address = *address;
    domain->fabric = static_cast<Fabric*>(f);
    domain->fid = {.fclass = FI_CLASS_DOMAIN, .context = context, .ops = &fid_ops};
    domain->ops = &domain_ops;
    domain->mr = &memory_ops;
    ++domain->fabric->users;
    *out = domain.release();
    return 0;
  });
}

}  // namespace ewarp::ofi
