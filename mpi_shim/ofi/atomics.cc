// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "mpi_shim/ofi/atomics.h"

#include <rdma/fi_errno.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <type_traits>

#include "mpi_shim/channel/core/fields.h"
#include "mpi_shim/ofi/memory_region.h"

namespace ewarp::ofi {
namespace {

// Calls f with a value of the C++ type. False: not one of ours.
template <class F>
bool with_type(fi_datatype datatype, F&& f) {
  switch (datatype) {
    case FI_INT8:
      f(std::int8_t{});
      return true;
    case FI_UINT8:
      f(std::uint8_t{});
      return true;
    case FI_INT16:
      f(std::int16_t{});
      return true;
    case FI_UINT16:
      f(std::uint16_t{});
      return true;
    case FI_INT32:
      f(std::int32_t{});
      return true;
    case FI_UINT32:
      f(std::uint32_t{});
      return true;
    case FI_INT64:
      f(std::int64_t{});
      return true;
    case FI_UINT64:
      f(std::uint64_t{});
      return true;
    case FI_FLOAT:
      f(float{});
      return true;
    case FI_DOUBLE:
      f(double{});
      return true;
    default:
      return false;
  }
}

bool on_integers_only(fi_op op) {
  return op == FI_BOR || op == FI_BAND || op == FI_BXOR || op == FI_MSWAP;
}

bool allowed(AtomicKind kind, fi_op op) {
  if (op > FI_MSWAP) return false;
  const bool compares = op >= FI_CSWAP;
  if (compares) return kind == AtomicKind::compare;
  return kind == AtomicKind::fetch || (kind == AtomicKind::write && op != FI_ATOMIC_READ);
}

// Sums and products of small integers wrap as libfabric's users expect of memory of that size.
template <class T, class F>
T arithmetic(T a, T b, F&& f) {
  if constexpr (std::is_integral_v<T>) {
    using Wide = std::uint64_t;
    return static_cast<T>(f(static_cast<Wide>(a), static_cast<Wide>(b)));
  } else {
    return f(a, b);
  }
}

template <class T>
T bits(fi_op op, T now, T operand, T compare) {
  if constexpr (std::is_integral_v<T>) {
    switch (op) {
      case FI_BOR:
        return static_cast<T>(now | operand);
      case FI_BAND:
        return static_cast<T>(now & operand);
      case FI_BXOR:
        return static_cast<T>(now ^ operand);
      default:
        return static_cast<T>((operand & compare) | (now & ~compare));
    }
  }
  return now;
}

// What is in memory afterwards (fi_atomic(3)).
template <class T>
T result_of(fi_op op, T now, T operand, T compare) {
  const auto truth = [](bool b) { return static_cast<T>(b ? 1 : 0); };
  const bool a = now != T{}, b = operand != T{};
  switch (op) {
    case FI_MIN:
      return std::min(now, operand);
    case FI_MAX:
      return std::max(now, operand);
    case FI_SUM:
      return arithmetic(now, operand, [](auto x, auto y) { return x + y; });
    case FI_PROD:
      return arithmetic(now, operand, [](auto x, auto y) { return x * y; });
    case FI_LOR:
      return truth(a || b);
    case FI_LAND:
      return truth(a && b);
    case FI_LXOR:
      return truth(a != b);
    case FI_ATOMIC_READ:
      return now;
    case FI_ATOMIC_WRITE:
      return operand;
    case FI_CSWAP:
      return compare == now ? operand : now;
    case FI_CSWAP_NE:
      return compare != now ? operand : now;
    case FI_CSWAP_LE:
      return compare <= now ? operand : now;
    case FI_CSWAP_LT:
      return compare < now ? operand : now;
    case FI_CSWAP_GE:
      return compare >= now ? operand : now;
    case FI_CSWAP_GT:
      return compare > now ? operand : now;
    default:
      return bits(op, now, operand, compare);
  }
}

// Atomic also for the owner's own instructions, where the address is aligned.
template <class T>
T replace(fi_op op, T* at, T operand, T compare) {
  std::atomic_ref<T> memory(*at);
  T now = memory.load();
  if (op == FI_ATOMIC_READ) return now;  // the memory may not be writable
  while (!memory.compare_exchange_weak(now, result_of(op, now, operand, compare))) {
  }
  return now;
}

template <class T>
T load(const std::byte* from, std::size_t i) {
  T out;
  std::memcpy(&out, from + i * sizeof(T), sizeof(T));
  return out;
}

template <class T>
void run(const AtomicQuestion& q, const std::byte* operands, const std::byte* compares, std::byte* before) {
  T* target = reinterpret_cast<T*>(q.address);
  for (std::uint32_t i = 0; i < q.count; ++i) {
    const T operand = q.op == FI_ATOMIC_READ ? T{} : load<T>(operands, i);
    const T compare = q.kind == AtomicKind::compare ? load<T>(compares, i) : T{};
    const T now = replace(q.op, target + i, operand, compare);
    if (q.kind != AtomicKind::write) std::memcpy(before + i * sizeof(T), &now, sizeof(T));
  }
}

std::size_t operand_octets(AtomicKind kind, fi_op op, std::size_t octets) {
  return kind == AtomicKind::compare ? 2 * octets : op == FI_ATOMIC_READ ? 0 : octets;
}

}  // namespace

std::optional<std::size_t> atomic_size(AtomicKind kind, fi_datatype datatype, fi_op op) {
  if (!allowed(kind, op)) return std::nullopt;
  std::optional<std::size_t> size;
  with_type(datatype, [&]<class T>(T) {
    if (std::is_integral_v<T> || !on_integers_only(op)) size = sizeof(T);
  });
  return size;
}

void AtomicQuestion::emit(channel::MutableOctets out) const {
  channel::wire::Writer w(out);
  w.put(static_cast<std::uint8_t>(kind)).put(static_cast<std::uint8_t>(op)).put(static_cast<std::uint8_t>(datatype));
  w.put(std::uint8_t{0}).put(count).put(address).put(key);
}

std::optional<AtomicQuestion> AtomicQuestion::parse(channel::Octets in) {
  if (in.size() < kSize) return std::nullopt;
  channel::wire::Reader r(in);
  AtomicQuestion q;
  q.kind = static_cast<AtomicKind>(r.take<std::uint8_t>());
  q.op = static_cast<fi_op>(r.take<std::uint8_t>());
  q.datatype = static_cast<fi_datatype>(r.take<std::uint8_t>());
  r.take<std::uint8_t>();
  q.count = r.take<std::uint32_t>();
  q.address = r.take<std::uint64_t>();
  q.key = r.take<std::uint64_t>();
  const auto size = q.kind <= AtomicKind::compare ? atomic_size(q.kind, q.datatype, q.op) : std::nullopt;
  if (!size || q.count > kAtomicOctets / *size || q.address % *size != 0) return std::nullopt;
  if (in.size() - kSize != operand_octets(q.kind, q.op, q.count * *size)) return std::nullopt;
  return q;
}

std::size_t answer_atomic(Regions& regions, channel::Octets question, channel::MutableOctets answer) {
  channel::wire::Writer w(answer);
  const auto q = AtomicQuestion::parse(question);
  if (!q) {
    w.put(static_cast<std::uint32_t>(FI_EINVAL));
    return kAnswerHead;
  }
  const std::size_t octets = q->count * *atomic_size(q->kind, q->datatype, q->op);
  const std::uint64_t rights =
      (q->kind != AtomicKind::write ? FI_REMOTE_READ : 0) | (q->op != FI_ATOMIC_READ ? FI_REMOTE_WRITE : 0);
  const std::byte* operands = question.data() + AtomicQuestion::kSize;
  const bool done = regions.with(q->key, q->address, octets, rights, [&] {
    with_type(q->datatype, [&]<class T>(T) { run<T>(*q, operands, operands + octets, answer.data() + kAnswerHead); });
  });
  w.put(static_cast<std::uint32_t>(done ? 0 : FI_EACCES));
  return kAnswerHead + (done && q->kind != AtomicKind::write ? octets : 0);
}

}  // namespace ewarp::ofi
