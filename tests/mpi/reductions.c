// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The collectives that compute: predefined operations on several types, and one of our own that does not commute.
#include <stdlib.h>
#include <string.h>

#include "collective.h"

// x -> a*x + b; composition is associative and does not commute.
struct affine {
  uint32_t a, b;
};

static void compose(void* left, void* right, int* n, MPI_Datatype* type) {
  (void)type;
  const struct affine* l = left;
  struct affine* r = right;
  for (int i = 0; i < *n; ++i) r[i] = (struct affine){l[i].a * r[i].a, l[i].a * r[i].b + l[i].b};
}

static MPI_Op compose_op(void) {
  static MPI_Op op = MPI_OP_NULL;
  if (op == MPI_OP_NULL) MPI(MPI_Op_create(compose, 0, &op));
  return op;
}

static MPI_Datatype affine_type(void) {
  static MPI_Datatype type = MPI_DATATYPE_NULL;
  if (type == MPI_DATATYPE_NULL) {
    MPI(MPI_Type_contiguous(2, MPI_UINT32_T, &type));
    MPI(MPI_Type_commit(&type));
  }
  return type;
}

enum kind { kSum, kMax, kXor, kDoubles, kOwn, kKinds };

static enum kind kind_of(const struct job* j) {
  return (enum kind)(j->step % kKinds);
}

static MPI_Datatype type_of(const struct job* j) {
  switch (kind_of(j)) {
    case kDoubles:
      return MPI_DOUBLE;
    case kOwn:
      return affine_type();
    default:
      return MPI_UINT64_T;
  }
}

static MPI_Op op_of(const struct job* j) {
  switch (kind_of(j)) {
    case kSum:
    case kDoubles:
      return MPI_SUM;
    case kMax:
      return MPI_MAX;
    case kXor:
      return MPI_BXOR;
    default:
      return compose_op();
  }
}

// All types have 8 octets.
static uint64_t element(const struct job* j, int from, int i) {
  const uint64_t x = seed_of(from, i, j->step);
  if (kind_of(j) == kMax) return x >> 1;  // some MPICH compare MPI_UINT64_T with its sign
  if (kind_of(j) != kDoubles) return x;
  const double d = (double)(x % 100000);  // sums of these are exact
  uint64_t out;
  memcpy(&out, &d, sizeof out);
  return out;
}

static uint64_t combined(const struct job* j, uint64_t left, uint64_t right) {
  switch (kind_of(j)) {
    case kSum:
      return left + right;
    case kMax:
      return left > right ? left : right;
    case kXor:
      return left ^ right;
    case kDoubles: {
      double l, r;
      memcpy(&l, &left, sizeof l);
      memcpy(&r, &right, sizeof r);
      r += l;
      memcpy(&right, &r, sizeof r);
      return right;
    }
    default: {
      int one = 1;
      compose(&left, &right, &one, NULL);
      return right;
    }
  }
}

static void fill_elements(const struct job* j, char* at, int n) {
  for (int i = 0; i < n; ++i) {
    const uint64_t x = element(j, rank, i);
    memcpy(at + 8 * (size_t)i, &x, 8);
  }
}

// Elements from `first` on are what the ranks 0 to `last` made together; nothing is behind the `n` of them.
static void verify_elements(const struct job* j, int first, int n, int last) {
  for (int i = 0; i < n; ++i) {
    uint64_t wanted = element(j, 0, first + i), got;
    for (int from = 1; from <= last; ++from) wanted = combined(j, wanted, element(j, from, first + i));
    memcpy(&got, j->out + 8 * (size_t)i, 8);
    CHECK(got == wanted, "%s, kind %d, element %d of %d: %016llx, not %016llx", j->what->name, (int)kind_of(j), i, n,
          (unsigned long long)got, (unsigned long long)wanted);
  }
}

static void verify_rest(const struct job* j, int n) {
  UNTOUCHED(j->out + 8 * (size_t)n, j->octets - 8 * (size_t)n, 0x55, j->what->name);
}

static const void* source(struct job* j, bool in_place, int n) {
  fill_elements(j, in_place ? j->out : j->in, n);
  return in_place ? MPI_IN_PLACE : j->in;
}

static void begin_reduce(struct job* j) {
#ifdef MPICH_VERSION
  if (j->root != 0)
    j->in_place = false;  // MPICH 4.0 dereferences MPI_IN_PLACE there, from 8 KiB on, over any transport
#endif
  const void* in = source(j, j->in_place && rank == j->root, j->count);
  COLLECTIVE(j, MPI_Reduce, MPI_Ireduce, in, j->out, j->count, type_of(j), op_of(j), j->root);
}

static void end_reduce(struct job* j) {
  const int n = rank == j->root ? j->count : 0;
  verify_elements(j, 0, n, size - 1);
  verify_rest(j, n);
}

static void begin_allreduce(struct job* j) {
  const void* in = source(j, j->in_place, j->count);
  COLLECTIVE(j, MPI_Allreduce, MPI_Iallreduce, in, j->out, j->count, type_of(j), op_of(j));
}

static void end_allreduce(struct job* j) {
  verify_elements(j, 0, j->count, size - 1);
  verify_rest(j, j->count);
}

static void begin_scatter_block(struct job* j) {
  const void* in = source(j, j->in_place, j->count * size);
  COLLECTIVE(j, MPI_Reduce_scatter_block, MPI_Ireduce_scatter_block, in, j->out, j->count, type_of(j), op_of(j));
}

static void end_scatter_block(struct job* j) {
  verify_elements(j, j->count * rank, j->count, size - 1);
  if (!j->in_place) verify_rest(j, j->count);
}

static void begin_scatter(struct job* j) {
  int all = 0;
  for (int i = 0; i < size; ++i) {
    j->counts[i] = j->count == 0 ? i % 2 : j->count - (j->count > 2 ? i % 3 : 0);
    j->at[i] = all;
    all += j->counts[i];
  }
  const void* in = source(j, j->in_place, all);
  COLLECTIVE(j, MPI_Reduce_scatter, MPI_Ireduce_scatter, in, j->out, j->counts, type_of(j), op_of(j));
}

static void end_scatter(struct job* j) {
  verify_elements(j, j->at[rank], j->counts[rank], size - 1);
  if (!j->in_place) verify_rest(j, j->counts[rank]);
}

static void begin_scan(struct job* j) {
  const void* in = source(j, j->in_place, j->count);
  COLLECTIVE(j, MPI_Scan, MPI_Iscan, in, j->out, j->count, type_of(j), op_of(j));
}

static void end_scan(struct job* j) {
  verify_elements(j, 0, j->count, rank);
  verify_rest(j, j->count);
}

static void begin_exscan(struct job* j) {
  const void* in = source(j, j->in_place, j->count);
  COLLECTIVE(j, MPI_Exscan, MPI_Iexscan, in, j->out, j->count, type_of(j), op_of(j));
}

static void end_exscan(struct job* j) {
  if (rank > 0) verify_elements(j, 0, j->count, rank - 1);
  verify_rest(j, j->count);
}

const struct collective kReductions[] = {
    {"reduce", begin_reduce, end_reduce, true, true},
    {"allreduce", begin_allreduce, end_allreduce, false, true},
    {"reduce_scatter", begin_scatter, end_scatter, false, true},
    {"reduce_scatter_block", begin_scatter_block, end_scatter_block, false, true},
    {"scan", begin_scan, end_scan, false, true},
    {"exscan", begin_exscan, end_exscan, false, true},
};
const int kReductionsCount = sizeof kReductions / sizeof kReductions[0];
