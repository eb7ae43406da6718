// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Atomic operations: each of them on each type, against what fi_atomic(3) says it does.
#include <algorithm>
#include <cstring>

#include "tests/ofi/sides.h"

namespace ewarp::ofi::test {
namespace {

int context;

template <class T>
T expected(fi_op op, T now, T operand, T compare) {
  const auto as_bits = [&](auto f) {
    return static_cast<T>(f(static_cast<std::uint64_t>(now), static_cast<std::uint64_t>(operand)));
  };
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
    case FI_BOR:
      return as_bits([](auto a, auto b) { return a | b; });
    case FI_BAND:
      return as_bits([](auto a, auto b) { return a & b; });
    case FI_BXOR:
      return as_bits([](auto a, auto b) { return a ^ b; });
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
    case FI_MSWAP: {
      const auto a = static_cast<std::uint64_t>(now), b = static_cast<std::uint64_t>(operand),
                 c = static_cast<std::uint64_t>(compare);
      return static_cast<T>((b & c) | (a & ~c));
    }
    default:
      return now;
  }
}

constexpr std::size_t kCount = 5;

template <class T>
struct Operands {
  T operand[kCount], compare[kCount], before[kCount], result[kCount];
  Operands() {
    for (std::size_t i = 0; i < kCount; ++i) {
      operand[i] = static_cast<T>(3 * i);
      compare[i] = static_cast<T>(i == 2 ? 7 : 4 + i);
      before[i] = static_cast<T>(5 + (i == 1 ? 0 : i));
      result[i] = T{};
    }
  }
};

template <class T>
void one(Pair& p, Registered& target, fi_datatype type, fi_op op, std::uint64_t kind) {
  Operands<T> o;
  T* memory = reinterpret_cast<T*>(target.octets.data());
  std::copy_n(o.before, kCount, memory);
  const bool fetch = kind == FI_FETCH_ATOMIC, compare = kind == FI_COMPARE_ATOMIC;
  const long posted = compare ? fi_compare_atomic(p.a.ep, o.operand, kCount, nullptr, o.compare, nullptr, o.result,
                                                  nullptr, p.to_b, target.address(), target.key(), type, op, &context)
                      : fetch ? fi_fetch_atomic(p.a.ep, o.operand, kCount, nullptr, o.result, nullptr, p.to_b,
                                                target.address(), target.key(), type, op, &context)
                              : fi_atomic(p.a.ep, o.operand, kCount, nullptr, p.to_b, target.address(), target.key(),
                                          type, op, &context);
  MUST(posted);
  const fi_cq_tagged_entry e = p.a.sent();
  assert_ptr_equal(e.op_context, &context);
  assert_int_equal(e.flags & (FI_ATOMIC | FI_READ | FI_WRITE), FI_ATOMIC | (kind != 0 ? FI_READ : FI_WRITE));
  for (std::size_t i = 0; i < kCount; ++i) {
    assert_true(memory[i] == expected(op, o.before[i], o.operand[i], o.compare[i]));
    if (kind != 0) assert_true(o.result[i] == o.before[i]);
  }
}

template <class T>
int all_operations(Pair& p, Registered& target, fi_datatype type) {
  int done = 0;
  for (int op = FI_MIN; op <= FI_MSWAP; ++op)
    for (const std::uint64_t kind :
         {std::uint64_t{0}, std::uint64_t{FI_FETCH_ATOMIC}, std::uint64_t{FI_COMPARE_ATOMIC}}) {
      fi_atomic_attr attributes{};
      const int valid = fi_query_atomic(p.a.domain, type, static_cast<fi_op>(op), &attributes, kind);
      std::size_t count = 0;
      assert_int_equal(kind == FI_COMPARE_ATOMIC ? fi_compare_atomicvalid(p.a.ep, type, static_cast<fi_op>(op), &count)
                       : kind == FI_FETCH_ATOMIC ? fi_fetch_atomicvalid(p.a.ep, type, static_cast<fi_op>(op), &count)
                                                 : fi_atomicvalid(p.a.ep, type, static_cast<fi_op>(op), &count),
                       valid);
      if (valid != 0) continue;
      assert_int_equal(attributes.size, sizeof(T));
      assert_int_equal(attributes.count, count);
      one<T>(p, target, type, static_cast<fi_op>(op), kind);
      ++done;
    }
  return done;
}

void every_operation_on_every_type(void**) {
  Pair p;
  Registered target(p.b, 64);
  // 12 of them with and 11 without result, 7 that compare; of real numbers no bits.
  assert_int_equal(all_operations<std::int8_t>(p, target, FI_INT8), 30);
  assert_int_equal(all_operations<std::uint8_t>(p, target, FI_UINT8), 30);
  assert_int_equal(all_operations<std::int16_t>(p, target, FI_INT16), 30);
  assert_int_equal(all_operations<std::uint16_t>(p, target, FI_UINT16), 30);
  assert_int_equal(all_operations<std::int32_t>(p, target, FI_INT32), 30);
  assert_int_equal(all_operations<std::uint32_t>(p, target, FI_UINT32), 30);
  assert_int_equal(all_operations<std::int64_t>(p, target, FI_INT64), 30);
  assert_int_equal(all_operations<std::uint64_t>(p, target, FI_UINT64), 30);
  assert_int_equal(all_operations<float>(p, target, FI_FLOAT), 23);
  assert_int_equal(all_operations<double>(p, target, FI_DOUBLE), 23);
  fi_atomic_attr attributes{};
  assert_int_equal(fi_query_atomic(p.a.domain, FI_LONG_DOUBLE_COMPLEX, FI_SUM, &attributes, 0), -FI_EOPNOTSUPP);
}

void every_call(void**) {
  Pair p;
  Registered target(p.b, 64);
  auto* memory = reinterpret_cast<std::uint64_t*>(target.octets.data());
  std::uint64_t operand = 5, compare = 15, result = 0;
  const fi_ioc in{&operand, 1}, with{&compare, 1};
  fi_ioc out{&result, 1};
  const fi_rma_ioc remote{target.address(), 1, target.key()};
  *memory = 0;
  MUST(fi_atomicv(p.a.ep, &in, nullptr, 1, p.to_b, target.address(), target.key(), FI_UINT64, FI_SUM, &context));
  p.a.sent();
  const fi_msg_atomic m{&in, nullptr, 1, p.to_b, &remote, 1, FI_UINT64, FI_SUM, &context, 0};
  MUST(fi_atomicmsg(p.a.ep, &m, FI_COMPLETION));
  p.a.sent();
  MUST(fi_inject_atomic(p.a.ep, &operand, 1, p.to_b, target.address(), target.key(), FI_UINT64, FI_SUM));
  MUST(fi_fetch_atomicv(p.a.ep, &in, nullptr, 1, &out, nullptr, 1, p.to_b, target.address(), target.key(), FI_UINT64,
                        FI_ATOMIC_READ, &context));
  p.a.sent();
  assert_int_equal(result, 15);
  MUST(fi_fetch_atomicmsg(p.a.ep, &m, &out, nullptr, 1, 0));
  p.a.sent();
  assert_int_equal(result, 15);
  assert_int_equal(*memory, 20);
  compare = 20;
  MUST(fi_compare_atomicv(p.a.ep, &in, nullptr, 1, &with, nullptr, 1, &out, nullptr, 1, p.to_b, target.address(),
                          target.key(), FI_UINT64, FI_CSWAP, &context));
  p.a.sent();
  assert_int_equal(*memory, 5);
  const fi_msg_atomic swap{&in, nullptr, 1, p.to_b, &remote, 1, FI_UINT64, FI_CSWAP, &context, 0};
  MUST(fi_compare_atomicmsg(p.a.ep, &swap, &with, nullptr, 1, &out, nullptr, 1, 0));
  p.a.sent();
  assert_int_equal(result, 5);
  assert_int_equal(*memory, 5);
}

void on_memory_of_oneself(void**) {
  Pair p;
  const fi_addr_t self = p.a.insert(p.a);
  Registered target(p.a, 8);
  std::uint64_t operand = 5, compare = 5, result = 1;
  MUST(fi_atomic(p.a.ep, &operand, 1, nullptr, self, target.address(), target.key(), FI_UINT64, FI_SUM, &context));
  p.a.sent();
  MUST(fi_fetch_atomic(p.a.ep, &operand, 1, nullptr, &result, nullptr, self, target.address(), target.key(), FI_UINT64,
                       FI_ATOMIC_READ, &context));
  p.a.sent();
  assert_int_equal(result, 5);
  operand = 9;
  MUST(fi_compare_atomic(p.a.ep, &operand, 1, nullptr, &compare, nullptr, &result, nullptr, self, target.address(),
                         target.key(), FI_UINT64, FI_CSWAP, &context));
  p.a.sent();
  assert_int_equal(result, 5);
  assert_int_equal(*reinterpret_cast<std::uint64_t*>(target.octets.data()), 9);
}

void as_many_as_are_promised(void**) {
  Pair p;
  std::size_t count = 0;
  MUST(fi_compare_atomicvalid(p.a.ep, FI_UINT32, FI_CSWAP, &count));
  Registered target(p.b, 4 * count);
  std::vector<std::uint32_t> operand(count, 9), compare(count, 0), result(count, 1);
  MUST(fi_compare_atomic(p.a.ep, operand.data(), count, nullptr, compare.data(), nullptr, result.data(), nullptr,
                         p.to_b, target.address(), target.key(), FI_UINT32, FI_CSWAP, &context));
  p.a.sent();
  assert_memory_equal(target.octets.data(), operand.data(), 4 * count);
  assert_true(result == compare);
  operand.push_back(1);
  assert_int_equal(fi_atomic(p.a.ep, operand.data(), count + 1, nullptr, p.to_b, target.address(), target.key(),
                             FI_UINT32, FI_SUM, nullptr),
                   -FI_EINVAL);
}

// The peer says no, and goes on.
void what_is_not_permitted_fails(void**) {
  Pair p;
  Registered target(p.b, 16, FI_REMOTE_READ), all(p.b, 16);
  std::uint64_t word = 1, result = 0;
  const struct {
    std::uint64_t address, key;
    fi_op op;
    int error;
  } kCases[] = {{target.address(), target.key(), FI_SUM, FI_EACCES},
                {target.address() + 16, target.key(), FI_ATOMIC_READ, FI_EACCES},
                {target.address(), target.key() + 777, FI_ATOMIC_READ, FI_EACCES},
                {target.address() + 1, target.key(), FI_ATOMIC_READ, FI_EINVAL}};
  for (const auto& c : kCases) {
    MUST(fi_fetch_atomic(p.a.ep, &word, 1, nullptr, &result, nullptr, p.to_b, c.address, c.key, FI_UINT64, c.op,
                         &context));
    const fi_cq_err_entry e = p.a.failure(p.a.send_queue);
    assert_int_equal(e.err, c.error);
    assert_ptr_equal(e.op_context, &context);
  }
  MUST(fi_atomic(p.a.ep, &word, 1, nullptr, p.to_b, all.address(), all.key(), FI_UINT64, FI_SUM, &context));
  p.a.sent();
  assert_int_equal(*reinterpret_cast<std::uint64_t*>(all.octets.data()), 1);
}

}  // namespace

std::vector<CMUnitTest> atomic_tests() {
  return {cmocka_unit_test(every_operation_on_every_type), cmocka_unit_test(every_call),
          cmocka_unit_test(on_memory_of_oneself), cmocka_unit_test(as_many_as_are_promised),
          cmocka_unit_test(what_is_not_permitted_fails)};
}

}  // namespace ewarp::ofi::test
