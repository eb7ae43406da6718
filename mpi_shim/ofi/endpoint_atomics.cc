// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Atomic operations, as calls to the peer: see atomics.h.
#include <algorithm>
#include <cassert>
#include <cstring>

#include "mpi_shim/channel/core/fields.h"
#include "mpi_shim/ofi/endpoint.h"
#include "mpi_shim/ofi/fid.h"
#include "mpi_shim/ofi/provider.h"

namespace ewarp::ofi {

Endpoint::Asked& Endpoint::take_asked() {
  const llp::Guard lock(asking_);
  if (free_asked_.empty()) {
    all_asked_.push_back(std::make_unique<Asked>());
    free_asked_.push_back(all_asked_.back().get());
  }
  Asked& out = *free_asked_.back();
  free_asked_.pop_back();
  return out;
}

void Endpoint::give_asked(Asked& asked) {
  const llp::Guard lock(asking_);
  assert(free_asked_.size() < all_asked_.size());
  free_asked_.push_back(&asked);
}

ssize_t Endpoint::atomic(const Atomic& a) {
  if (!takes_requests()) return -FI_EOPBADSTATE;
  const auto size = atomic_size(a.kind, a.datatype, a.op);
  if (!size) return -FI_EOPNOTSUPP;
  if (a.count == 0 || a.count > kAtomicOctets / *size) return -FI_EINVAL;
  const channel::PeerId peer = peer_of(a.peer);
  if (peer == kUnknown) return -FI_EINVAL;
  if ((a.flags & FI_INJECT) != 0 && is_lost(peer)) return -FI_ECONNRESET;
  const std::size_t octets = a.count * *size;
  std::byte question[AtomicQuestion::kSize + 2 * kAtomicOctets];
  AtomicQuestion{.kind = a.kind,
                 .op = a.op,
                 .datatype = a.datatype,
                 .count = static_cast<std::uint32_t>(a.count),
                 .address = a.address,
                 .key = a.key}
      .emit(question);
  std::size_t length = AtomicQuestion::kSize;
  for (const void* part : {a.op == FI_ATOMIC_READ ? nullptr : a.operands, a.compares}) {
    if (part == nullptr) continue;
    std::memcpy(question + length, part, octets);
    length += octets;
  }
  Asked& asked = take_asked();
  asked.context = a.context;
  asked.results = static_cast<std::byte*>(a.results);
  asked.octets = a.kind == AtomicKind::write ? 0 : octets;
  const std::uint64_t label = label_of(FI_ATOMIC | (a.kind == AtomicKind::write ? FI_WRITE : FI_READ), a.flags);
  asked.answer.resize(kAnswerHead + asked.octets);
  const channel::Request r =
      channel_->call(peer, {question, length}, asked.answer, {.listener = this, .context = &asked, .label = label});
  if (r) return 0;
  give_asked(asked);
  return -FI_EAGAIN;
}

void Endpoint::answered(const channel::Completion& c) {
  Asked& asked = *static_cast<Asked*>(c.context);
  channel::Completion out = c;
  out.context = asked.context;
  out.buffer = {};
  int error = 0;
  if (c.status.error != channel::Error::none) {
    error = c.status.error == channel::Error::too_long ? FI_EMSGSIZE : FI_ECONNRESET;
  } else if (c.status.length < kAnswerHead) {
    error = FI_EOPNOTSUPP;
  } else {
    error = static_cast<int>(channel::wire::Reader(channel::Octets(asked.answer)).take<std::uint32_t>());
    if (error == 0 && c.status.length == kAnswerHead + asked.octets)
      std::copy_n(asked.answer.data() + kAnswerHead, asked.octets, asked.results);
    else if (error == 0)
      error = FI_EIO;
  }
  give_asked(asked);
  error == 0 ? report(out) : report_failure(out, error);
}

std::size_t Endpoint::on_call(channel::PeerId, channel::Octets question, channel::MutableOctets answer) {
  return answer.size() < kAnswerHead + kAtomicOctets ? 0 : answer_atomic(domain_.regions, question, answer);
}

namespace {

// The arguments that the calls for one element have in common.
struct Target {
  fi_addr_t peer;
  std::uint64_t address, key;
  fi_datatype datatype;
  fi_op op;
};

ssize_t ask(fid_ep* ep, AtomicKind kind, const void* operands, const void* compares, void* results, std::size_t count,
            const Target& t, std::uint64_t flags, void* context) {
  return Endpoint::from(ep).atomic({.kind = kind,
                                    .peer = t.peer,
                                    .op = t.op,
                                    .datatype = t.datatype,
                                    .count = count,
                                    .operands = operands,
                                    .compares = compares,
                                    .results = results,
                                    .address = t.address,
                                    .key = t.key,
                                    .flags = flags,
                                    .context = context});
}

ssize_t write(fid_ep* ep, const void* buffer, size_t count, void*, fi_addr_t to, uint64_t address, uint64_t key,
              fi_datatype datatype, fi_op op, void* context) {
  return ask(ep, AtomicKind::write, buffer, nullptr, nullptr, count, {to, address, key, datatype, op},
             Endpoint::from(ep).send_flags(), context);
}

ssize_t writev(fid_ep* ep, const fi_ioc* v, void** d, size_t count, fi_addr_t to, uint64_t address, uint64_t key,
               fi_datatype datatype, fi_op op, void* context) {
  if (count != 1) return -FI_EINVAL;
  return write(ep, v->addr, v->count, d, to, address, key, datatype, op, context);
}

ssize_t inject(fid_ep* ep, const void* buffer, size_t count, fi_addr_t to, uint64_t address, uint64_t key,
               fi_datatype datatype, fi_op op) {
  return ask(ep, AtomicKind::write, buffer, nullptr, nullptr, count, {to, address, key, datatype, op}, FI_INJECT,
             nullptr);
}

// One element at most of everything. FI_ATOMIC_READ has no operands.
ssize_t from_message(fid_ep* ep, AtomicKind kind, const fi_msg_atomic& m, const fi_ioc* compares, fi_ioc* results,
                     std::uint64_t flags) {
  if (m.iov_count > 1 || m.rma_iov_count != 1) return -FI_EINVAL;
  return ask(ep, kind, m.iov_count > 0 ? m.msg_iov->addr : nullptr, compares != nullptr ? compares->addr : nullptr,
             results != nullptr ? results->addr : nullptr, m.rma_iov->count,
             {m.addr, m.rma_iov->addr, m.rma_iov->key, m.datatype, m.op}, Endpoint::from(ep).send_flags(flags),
             m.context);
}

ssize_t writemsg(fid_ep* ep, const fi_msg_atomic* m, uint64_t flags) {
  return from_message(ep, AtomicKind::write, *m, nullptr, nullptr, flags);
}

ssize_t fetch(fid_ep* ep, const void* buffer, size_t count, void*, void* result, void*, fi_addr_t to, uint64_t address,
              uint64_t key, fi_datatype datatype, fi_op op, void* context) {
  return ask(ep, AtomicKind::fetch, buffer, nullptr, result, count, {to, address, key, datatype, op},
             Endpoint::from(ep).send_flags(), context);
}

ssize_t fetchv(fid_ep* ep, const fi_ioc* v, void** d, size_t count, fi_ioc* results, void** rd, size_t result_count,
               fi_addr_t to, uint64_t address, uint64_t key, fi_datatype datatype, fi_op op, void* context) {
  if (result_count != 1 || (count != 1 && op != FI_ATOMIC_READ)) return -FI_EINVAL;
  return fetch(ep, count > 0 ? v->addr : nullptr, results->count, d, results->addr, rd, to, address, key, datatype, op,
               context);
}

ssize_t fetchmsg(fid_ep* ep, const fi_msg_atomic* m, fi_ioc* results, void**, size_t result_count, uint64_t flags) {
  return result_count == 1 ? from_message(ep, AtomicKind::fetch, *m, nullptr, results, flags) : -FI_EINVAL;
}

ssize_t compare(fid_ep* ep, const void* buffer, size_t count, void*, const void* compares, void*, void* result, void*,
                fi_addr_t to, uint64_t address, uint64_t key, fi_datatype datatype, fi_op op, void* context) {
  return ask(ep, AtomicKind::compare, buffer, compares, result, count, {to, address, key, datatype, op},
             Endpoint::from(ep).send_flags(), context);
}

ssize_t comparev(fid_ep* ep, const fi_ioc* v, void** d, size_t count, const fi_ioc* compares, void** cd,
                 size_t compare_count, fi_ioc* results, void** rd, size_t result_count, fi_addr_t to, uint64_t address,
                 uint64_t key, fi_datatype datatype, fi_op op, void* context) {
  if (count != 1 || compare_count != 1 || result_count != 1) return -FI_EINVAL;
  return compare(ep, v->addr, v->count, d, compares->addr, cd, results->addr, rd, to, address, key, datatype, op,
                 context);
}

ssize_t comparemsg(fid_ep* ep, const fi_msg_atomic* m, const fi_ioc* compares, void**, size_t compare_count,
                   fi_ioc* results, void**, size_t result_count, uint64_t flags) {
  if (m->iov_count != 1 || compare_count != 1 || result_count != 1) return -FI_EINVAL;
  return from_message(ep, AtomicKind::compare, *m, compares, results, flags);
}

int valid(AtomicKind kind, fi_datatype datatype, fi_op op, size_t* count) {
  const auto size = atomic_size(kind, datatype, op);
  if (!size) return -FI_EOPNOTSUPP;
  *count = kAtomicOctets / *size;
  return 0;
}

}  // namespace

fi_ops_atomic atomic_ops = {
    .size = sizeof(fi_ops_atomic),
    .write = entry<write>,
    .writev = entry<writev>,
    .writemsg = entry<writemsg>,
    .inject = entry<inject>,
    .readwrite = entry<fetch>,
    .readwritev = entry<fetchv>,
    .readwritemsg = entry<fetchmsg>,
    .compwrite = entry<compare>,
    .compwritev = entry<comparev>,
    .compwritemsg = entry<comparemsg>,
    .writevalid = [](fid_ep*, fi_datatype d, fi_op op, size_t* n) { return valid(AtomicKind::write, d, op, n); },
    .readwritevalid = [](fid_ep*, fi_datatype d, fi_op op, size_t* n) { return valid(AtomicKind::fetch, d, op, n); },
    .compwritevalid = [](fid_ep*, fi_datatype d, fi_op op, size_t* n) { return valid(AtomicKind::compare, d, op, n); }};

int query_atomic(fid_domain*, fi_datatype datatype, fi_op op, fi_atomic_attr* out, std::uint64_t flags) noexcept {
  if ((flags & ~(FI_FETCH_ATOMIC | FI_COMPARE_ATOMIC)) != 0) return -FI_EBADFLAGS;
  const AtomicKind kind = (flags & FI_COMPARE_ATOMIC) != 0 ? AtomicKind::compare
                          : (flags & FI_FETCH_ATOMIC) != 0 ? AtomicKind::fetch
                                                           : AtomicKind::write;
  const int error = valid(kind, datatype, op, &out->count);
  if (error == 0) out->size = *atomic_size(kind, datatype, op);
  return error;
}

}  // namespace ewarp::ofi
