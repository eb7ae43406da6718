// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Atomic operations (fi_atomic(3)): each that is claimed, on each type, beside what the manual page says that it does.
#include <algorithm>
#include <cstring>
#include <type_traits>

#include "tests/ofi/suite/scene.h"

namespace ewarp::ofi::suite {
namespace {

constexpr std::uint64_t kCaps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC;

enum class Kind { write, fetch, compare };

template <class T>
T bits(fi_op op, T now, T operand, T compare) {
  if constexpr (std::is_integral_v<T>) {
    if (op == FI_BOR) return static_cast<T>(now | operand);
    if (op == FI_BAND) return static_cast<T>(now & operand);
    if (op == FI_BXOR) return static_cast<T>(now ^ operand);
    return static_cast<T>((operand & compare) | (now & static_cast<T>(~compare)));
  }
  return now;
}

// What is there afterwards.
template <class T>
T after(fi_op op, T now, T operand, T compare) {
  switch (op) {
    case FI_MIN:
      return std::min(now, operand);
    case FI_MAX:
      return std::max(now, operand);
    case FI_SUM:
      return static_cast<T>(now + operand);
    case FI_PROD:
      return static_cast<T>(now * operand);
    case FI_LOR:
      return static_cast<T>(now != 0 || operand != 0);
    case FI_LAND:
      return static_cast<T>(now != 0 && operand != 0);
    case FI_LXOR:
      return static_cast<T>((now != 0) != (operand != 0));
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

template <class T>
struct Case {
  Kind kind;
  fi_datatype type;
  fi_op op;
  std::size_t count;
};

// The call without a vector, or by a message, in turns.
template <class T>
long ask(Scene& s, const Case<T>& c, const T* operands, const T* compares, T* results, std::uint64_t address,
         std::uint64_t key, void* context, bool by_message) {
  fid_ep* const ep = s[0].ep.get();
  const fi_addr_t to = s.to(0, 1);
  fi_ioc operand{const_cast<T*>(operands), c.count}, result{results, c.count};
  const fi_ioc compare{const_cast<T*>(compares), c.count};
  const fi_rma_ioc there{address, c.count, key};
  const fi_msg_atomic m{&operand, nullptr, 1, to, &there, 1, c.type, c.op, context, 0};
  switch (c.kind) {
    case Kind::write:
      return by_message ? fi_atomicmsg(ep, &m, FI_COMPLETION)
                        : fi_atomic(ep, operands, c.count, nullptr, to, address, key, c.type, c.op, context);
    case Kind::fetch:
      return by_message ? fi_fetch_atomicmsg(ep, &m, &result, nullptr, 1, FI_COMPLETION)
                        : fi_fetch_atomic(ep, operands, c.count, nullptr, results, nullptr, to, address, key, c.type,
                                          c.op, context);
    default:
      return by_message ? fi_compare_atomicmsg(ep, &m, &compare, nullptr, 1, &result, nullptr, 1, FI_COMPLETION)
                        : fi_compare_atomic(ep, operands, c.count, nullptr, compares, nullptr, results, nullptr, to,
                                            address, key, c.type, c.op, context);
  }
}

template <class T>
void run(Scene& s, const Case<T>& c, bool by_message) {
  std::vector<T> operands(c.count), compares(c.count), results(c.count), expected(c.count);
  Exposed target(s, c.count * sizeof(T));
  T* const now = reinterpret_cast<T*>(target.data());
  for (std::size_t i = 0; i < c.count; ++i) {
    now[i] = static_cast<T>(i % 5);
    operands[i] = static_cast<T>(i % 7 + (i % 2));
    compares[i] = static_cast<T>(i % 3 * 2);
    expected[i] = after(c.op, now[i], operands[i], compares[i]);
  }
  const std::vector<T> before(now, now + c.count);
  void* const context = s.context();
  POST(s, ask(s, c, operands.data(), compares.data(), results.data(), target.address(), target.key(), context,
              by_message));
  const fi_cq_tagged_entry e = s.sent(0);
  assert_ptr_equal(e.op_context, context);
  assert_true((e.flags & FI_ATOMIC) != 0);
  // An end of a write says nothing about the target, but to somebody who asks behind it.
  until([&] { return s.progress(), std::equal(expected.begin(), expected.end(), now); });
  if (c.kind != Kind::write) assert_true(results == before);
  target.check_guards();
}

template <class T>
int each_operation_on(Scene& s, fi_datatype type) {
  int done = 0;
  for (const Kind kind : {Kind::write, Kind::fetch, Kind::compare})
    for (int op = FI_MIN; op <= FI_MSWAP; ++op) {
      const auto operation = static_cast<fi_op>(op);
      fid_ep* const ep = s[0].ep.get();
      std::size_t most = 0;
      const int valid = kind == Kind::write   ? fi_atomicvalid(ep, type, operation, &most)
                        : kind == Kind::fetch ? fi_fetch_atomicvalid(ep, type, operation, &most)
                                              : fi_compare_atomicvalid(ep, type, operation, &most);
      fi_atomic_attr told{};
      const std::uint64_t flags = kind == Kind::fetch ? FI_FETCH_ATOMIC : kind == Kind::compare ? FI_COMPARE_ATOMIC : 0;
      if (ours()) assert_int_equal(fi_query_atomic(s.bed.domain, type, operation, &told, flags), valid);
      if (valid != 0) continue;
      if (ours()) assert_int_equal(told.count, most);
      if (ours()) assert_int_equal(told.size, sizeof(T));
      assert_true(most > 0);
      for (const std::size_t count : {std::size_t{1}, std::min<std::size_t>(most, 3), most})
        run<T>(s, {.kind = kind, .type = type, .op = operation, .count = count}, ++done % 2 == 0);
    }
  return done;
}

void each_operation_that_is_claimed(void**) {
  need(kCaps);
  Scene s(kCaps);
  int done = each_operation_on<std::int8_t>(s, FI_INT8) + each_operation_on<std::uint8_t>(s, FI_UINT8);
  done += each_operation_on<std::int16_t>(s, FI_INT16) + each_operation_on<std::uint16_t>(s, FI_UINT16);
  done += each_operation_on<std::int32_t>(s, FI_INT32) + each_operation_on<std::uint32_t>(s, FI_UINT32);
  done += each_operation_on<std::int64_t>(s, FI_INT64) + each_operation_on<std::uint64_t>(s, FI_UINT64);
  done += each_operation_on<float>(s, FI_FLOAT) + each_operation_on<double>(s, FI_DOUBLE);
  assert_true(done > 500);
}

// Of several endpoints at once: nothing is lost.
void sums_from_several(void**) {
  need(kCaps);
  constexpr std::size_t kEnds = 4, kEach = 200;
  Scene s(kCaps, {}, kEnds);
  Exposed target(s, 8);
  std::memset(target.data(), 0, 8);
  const std::uint64_t one = 1;
  std::vector<std::uint64_t> results(kEnds * kEach);
  for (std::size_t i = 0; i < kEach; ++i)
    for (std::size_t from = 1; from < kEnds; ++from)
      POST(s, fi_fetch_atomic(s[from].ep.get(), &one, 1, nullptr, &results[from * kEach + i], nullptr, s.to(from, 0),
                              target.address(), target.key(), FI_UINT64, FI_SUM, s.context()));
  for (std::size_t i = 0; i < kEach; ++i)
    for (std::size_t from = 1; from < kEnds; ++from) s.sent(from);
  std::vector<std::uint64_t> before(results.begin() + kEach, results.end());
  std::sort(before.begin(), before.end());
  for (std::size_t i = 0; i < before.size(); ++i) assert_int_equal(before[i], i);
  std::uint64_t sum = 0;
  std::memcpy(&sum, target.data(), 8);
  assert_int_equal(sum, before.size());
}

void injected_sums(void**) {
  need(kCaps);
  Scene s(kCaps);
  Exposed target(s, 8);
  std::memset(target.data(), 0, 8);
  for (std::uint64_t i = 1; i <= 100; ++i)
    POST(s, fi_inject_atomic(s[0].ep.get(), &i, 1, s.to(0, 1), target.address(), target.key(), FI_UINT64, FI_SUM));
  std::uint64_t sum = 0;
  until([&] { return s.progress(), std::memcpy(&sum, target.data(), 8), sum == 5050; });
}

// What nobody has, or the region does not allow.
void operations_that_fail(void**) {
  ONLY_OURS();
  Scene s(kCaps);
  fid_ep* const ep = s[0].ep.get();
  std::size_t count = 0;
  assert_int_equal(fi_atomicvalid(ep, FI_UINT64, FI_ATOMIC_READ, &count), -FI_EOPNOTSUPP);
  assert_int_equal(fi_atomicvalid(ep, FI_FLOAT, FI_BOR, &count), -FI_EOPNOTSUPP);
  assert_int_equal(fi_compare_atomicvalid(ep, FI_UINT64, FI_SUM, &count), -FI_EOPNOTSUPP);
  assert_int_equal(fi_atomicvalid(ep, FI_UINT64, static_cast<fi_op>(19), &count), -FI_EOPNOTSUPP);
  assert_int_equal(fi_atomicvalid(ep, FI_LONG_DOUBLE_COMPLEX, FI_SUM, &count), -FI_EOPNOTSUPP);
  Exposed read_only(s, 16, FI_REMOTE_READ), both(s, 16);
  const std::uint64_t one = 1;
  POST(s,
       fi_atomic(ep, &one, 1, nullptr, s.to(0, 1), read_only.address(), read_only.key(), FI_UINT64, FI_SUM, nullptr));
  assert_int_equal(s.next(s[0].sent).error, FI_EACCES);
  POST(s, fi_atomic(ep, &one, 1, nullptr, s.to(0, 1), both.address(4), both.key(), FI_UINT64, FI_SUM, nullptr));
  assert_int_equal(s.next(s[0].sent).error, FI_EINVAL);
  POST(s, fi_atomic(ep, &one, 1, nullptr, s.to(0, 1), both.address(16), both.key(), FI_UINT64, FI_SUM, nullptr));
  assert_int_equal(s.next(s[0].sent).error, FI_EACCES);
  for (Exposed* memory : {&read_only, &both}) {
    assert_true(memory->content() == Octets(16, 0xEE));
    memory->check_guards();
  }
}

}  // namespace

Tests atomic_tests() {
  return {cmocka_unit_test(each_operation_that_is_claimed), cmocka_unit_test(sums_from_several),
          cmocka_unit_test(injected_sums), cmocka_unit_test(operations_that_fail)};
}

}  // namespace ewarp::ofi::suite
