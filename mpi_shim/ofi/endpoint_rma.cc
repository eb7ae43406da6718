// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Puts and gets.
#include <rdma/fi_rma.h>

#include "mpi_shim/ofi/endpoint.h"
#include "mpi_shim/ofi/fid.h"
#include "mpi_shim/ofi/info.h"
#include "mpi_shim/ofi/provider.h"

namespace ewarp::ofi {

// Of memory of our own no adapter looks at key, range and rights; and none has a key of more than 32 bits. True:
// refused, and told.
bool Endpoint::is_refused_here(channel::PeerId peer, const Rma& r, std::uint64_t rights, std::uint64_t label) {
  if (r.length == 0) return false;
  const bool possible = r.key <= UINT32_MAX;
  if (possible && peer != channel::Endpoint::self()) return false;
  if (possible && domain_.regions.with(r.key, r.address, r.length, rights, [] {})) return false;
  report_failure({.context = r.context, .label = label, .status = {.source = peer}, .buffer = {}, .released = false},
                 FI_EACCES);
  return true;
}

ssize_t Endpoint::put(const Rma& r) {
  if (!takes_requests()) return -FI_EOPBADSTATE;
  const channel::PeerId peer = peer_of(r.peer);
  if (peer == kUnknown) return -FI_EINVAL;
  const bool inject = (r.flags & FI_INJECT) != 0;
  if (inject && r.length > inject_size(channel_->most_injected())) return -FI_EINVAL;
  if (inject && is_lost(peer)) return -FI_ECONNRESET;
  const std::uint64_t label = label_of(FI_RMA | FI_WRITE, r.flags);
  if (is_refused_here(peer, r, FI_REMOTE_WRITE, label)) return 0;
  const channel::Request request =
      channel_->put(peer, {static_cast<const std::byte*>(r.buffer), r.length},
                    {.address = r.address, .key = static_cast<std::uint32_t>(r.key)},
                    {.inject = inject,
                     .delivered = (r.flags & (FI_DELIVERY_COMPLETE | FI_TRANSMIT_COMPLETE | FI_MATCH_COMPLETE)) != 0,
                     .data = r.data,
                     .report = {.listener = this, .context = r.context, .label = label}});
  return request ? 0 : -FI_EAGAIN;
}

ssize_t Endpoint::get(const Rma& r) {
  if (!takes_requests()) return -FI_EOPBADSTATE;
  const channel::PeerId peer = peer_of(r.peer);
  if (peer == kUnknown) return -FI_EINVAL;
  const std::uint64_t label = label_of(FI_RMA | FI_READ, r.flags);
  if (is_refused_here(peer, r, FI_REMOTE_READ, label)) return 0;
  const channel::Request request = channel_->get(peer, {static_cast<std::byte*>(const_cast<void*>(r.buffer)), r.length},
                                                 {.address = r.address, .key = static_cast<std::uint32_t>(r.key)},
                                                 {.listener = this, .context = r.context, .label = label});
  return request ? 0 : -FI_EAGAIN;
}

namespace {

// One element at most of each side; nothing if there are more, or their lengths differ.
std::optional<Endpoint::Rma> from_message(const Endpoint& e, const fi_msg_rma& m, std::uint64_t flags) {
  const iovec one = m.iov_count > 0 ? *m.msg_iov : iovec{};
  if (m.iov_count > 1 || m.rma_iov_count != 1 || m.rma_iov->len != one.iov_len) return std::nullopt;
  return Endpoint::Rma{.peer = m.addr,
                       .buffer = one.iov_base,
                       .length = one.iov_len,
                       .address = m.rma_iov->addr,
                       .key = m.rma_iov->key,
                       .flags = e.send_flags(flags),
                       .context = m.context};
}

ssize_t read(fid_ep* ep, void* buffer, size_t length, void*, fi_addr_t from, uint64_t address, uint64_t key,
             void* context) {
  Endpoint& e = Endpoint::from(ep);
  return e.get({.peer = from,
                .buffer = buffer,
                .length = length,
                .address = address,
                .key = key,
                .flags = e.send_flags(),
                .context = context});
}

ssize_t readv(fid_ep* ep, const iovec* v, void** descriptors, size_t count, fi_addr_t from, uint64_t address,
              uint64_t key, void* context) {
  if (count > 1) return -FI_EINVAL;
  const iovec one = count > 0 ? *v : iovec{};
  return read(ep, one.iov_base, one.iov_len, descriptors, from, address, key, context);
}

ssize_t readmsg(fid_ep* ep, const fi_msg_rma* m, uint64_t flags) {
  Endpoint& e = Endpoint::from(ep);
  const auto rma = from_message(e, *m, flags);
  return rma ? e.get(*rma) : -FI_EINVAL;
}

ssize_t put(fid_ep* ep, const void* buffer, size_t length, std::uint64_t flags, fi_addr_t to, uint64_t address,
            uint64_t key, std::optional<std::uint64_t> data, void* context) {
  return Endpoint::from(ep).put({.peer = to,
                                 .buffer = buffer,
                                 .length = length,
                                 .address = address,
                                 .key = key,
                                 .flags = flags,
                                 .data = data,
                                 .context = context});
}

ssize_t write(fid_ep* ep, const void* buffer, size_t length, void*, fi_addr_t to, uint64_t address, uint64_t key,
              void* context) {
  return put(ep, buffer, length, Endpoint::from(ep).send_flags(), to, address, key, {}, context);
}

ssize_t writev(fid_ep* ep, const iovec* v, void** descriptors, size_t count, fi_addr_t to, uint64_t address,
               uint64_t key, void* context) {
  if (count > 1) return -FI_EINVAL;
  const iovec one = count > 0 ? *v : iovec{};
  return write(ep, one.iov_base, one.iov_len, descriptors, to, address, key, context);
}

ssize_t writemsg(fid_ep* ep, const fi_msg_rma* m, uint64_t flags) {
  Endpoint& e = Endpoint::from(ep);
  auto rma = from_message(e, *m, flags);
  if (!rma) return -FI_EINVAL;
  if ((flags & FI_REMOTE_CQ_DATA) != 0) rma->data = m->data;
  return e.put(*rma);
}

ssize_t inject_write(fid_ep* ep, const void* buffer, size_t length, fi_addr_t to, uint64_t address, uint64_t key) {
  return put(ep, buffer, length, FI_INJECT, to, address, key, {}, nullptr);
}

ssize_t write_data(fid_ep* ep, const void* buffer, size_t length, void*, uint64_t data, fi_addr_t to, uint64_t address,
                   uint64_t key, void* context) {
  return put(ep, buffer, length, Endpoint::from(ep).send_flags(), to, address, key, data, context);
}

ssize_t inject_write_data(fid_ep* ep, const void* buffer, size_t length, uint64_t data, fi_addr_t to, uint64_t address,
                          uint64_t key) {
  return put(ep, buffer, length, FI_INJECT, to, address, key, data, nullptr);
}

}  // namespace

fi_ops_rma rma_ops = {.size = sizeof(fi_ops_rma),
                      .read = entry<read>,
                      .readv = entry<readv>,
                      .readmsg = entry<readmsg>,
                      .write = entry<write>,
                      .writev = entry<writev>,
                      .writemsg = entry<writemsg>,
                      .inject = entry<inject_write>,
                      .writedata = entry<write_data>,
                      .injectdata = entry<inject_write_data>};

}  // namespace ewarp::ofi
