// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Datatypes whose data does not begin where the buffer does: lower bounds above and below zero, in messages and in
// one-sided operations, at either end.
#include <string.h>

#include "suite.h"

enum { kInts = 4, kRoom = 64, kBase = 24, kTypes = 4, kMost = 3 };
static const int kUntouched = 0x55555555;

// kInts integers that lie `first` octets behind an element's beginning.
struct bound {
  MPI_Datatype type;
  MPI_Aint first, extent;
};

static void types_make(struct bound b[kTypes]) {
  const MPI_Aint octets = sizeof(int), three = 3 * octets, back = -5 * octets;
  const int block = kInts;
  MPI_Datatype integer = MPI_INT, four;
  // A block behind a gap: contiguous but for where it begins.
  MPI(MPI_Type_create_hindexed(1, &block, &three, MPI_INT, &b[0].type));
  // A block that ends before the address.
  MPI(MPI_Type_create_struct(1, &block, &back, &integer, &b[1].type));
  // A lower bound that is only said, below and above the data's beginning.
  MPI(MPI_Type_contiguous(kInts, MPI_INT, &four));
  MPI(MPI_Type_create_resized(four, -2 * octets, 7 * octets, &b[2].type));
  MPI(MPI_Type_create_resized(four, 2 * octets, 6 * octets, &b[3].type));
  MPI(MPI_Type_free(&four));
  for (int i = 0; i < kTypes; ++i) {
    MPI_Aint lower, true_extent;
    MPI(MPI_Type_commit(&b[i].type));
    MPI(MPI_Type_get_extent(b[i].type, &lower, &b[i].extent));
    MPI(MPI_Type_get_true_extent(b[i].type, &b[i].first, &true_extent));
    CHECK(lower != 0, "type %d has no lower bound", i);
  }
}

static int* element(int* base, const struct bound* b, int i) {
  return (int*)((char*)(base + kBase) + i / kInts * b->extent + b->first) + i % kInts;
}

static void clear(int* at) {
  for (int i = 0; i < kRoom; ++i) at[i] = kUntouched;
}

static int value(int from, int n) {
  return from * 10000 + n;
}

static void set(int* at, const struct bound* b, int count, int from) {
  clear(at);
  for (int i = 0; i < count * kInts; ++i) *element(at, b, i) = value(from, i);
}

// Just these elements hold what `from` has, `times` over.
static void verify(int* at, const struct bound* b, int count, int from, int times, const char* what) {
  int other[kRoom];
  memcpy(other, at, sizeof other);
  for (int i = 0; i < count * kInts; ++i) {
    const int got = *element(at, b, i), wanted = times * value(from, i);
    CHECK(got == wanted, "%s: element %d is %d, not %d", what, i, got, wanted);
    *element(other, b, i) = kUntouched;
  }
  UNTOUCHED(other, sizeof other, 0x55, what);
}

static void messages(const struct bound* out_type, const struct bound* in_type, int count) {
  const int right = (rank + 1) % size, left = (rank + size - 1) % size;
  int out[kRoom], in[kRoom];
  MPI_Request requests[2];
  set(out, out_type, count, rank);
  clear(in);
  MPI(MPI_Irecv(in + kBase, count, in_type->type, left, 1, comm, &requests[0]));
  MPI(MPI_Isend(out + kBase, count, out_type->type, right, 1, comm, &requests[1]));
  MPI(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
  verify(in, in_type, count, left, 1, "message");
}

static void windows(MPI_Win win, int* memory, const struct bound* own, const struct bound* target, int count) {
  const int right = (rank + 1) % size, left = (rank + size - 1) % size;
  int out[kRoom], in[kRoom], before[kMost * kInts];
  set(out, own, count, rank);
  clear(in);
  MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, win));
  clear(memory);
  MPI(MPI_Win_unlock(rank, win));
  MPI(MPI_Win_fence(0, win));
  MPI(MPI_Put(out + kBase, count, own->type, right, kBase, count, target->type, win));
  MPI(MPI_Win_fence(0, win));
  verify(memory, target, count, left, 1, "put");
  MPI(MPI_Get(in + kBase, count, own->type, right, kBase, count, target->type, win));
  MPI(MPI_Win_fence(0, win));
  verify(in, own, count, rank, 1, "got");
  for (int k = 0; k < 2; ++k)
    MPI(MPI_Accumulate(out + kBase, count, own->type, right, kBase, count, target->type, MPI_SUM, win));
  MPI(MPI_Win_fence(0, win));
  verify(memory, target, count, left, 3, "accumulated");
  MPI(MPI_Win_fence(0, win));
  MPI(MPI_Get_accumulate(out + kBase, count, own->type, before, count * kInts, MPI_INT, right, kBase, count,
                         target->type, MPI_REPLACE, win));
  MPI(MPI_Win_fence(0, win));
  for (int i = 0; i < count * kInts; ++i)
    CHECK(before[i] == 3 * value(rank, i), "get_accumulate: element %d was %d", i, before[i]);
  verify(memory, target, count, left, 1, "replaced");
}

void bounds(void) {
  struct bound types[kTypes];
  types_make(types);
  int created[kRoom], *allocated;
  MPI_Win one, other;
  MPI(MPI_Win_create(created, sizeof created, sizeof(int), MPI_INFO_NULL, comm, &one));
  MPI(MPI_Win_allocate(sizeof created, sizeof(int), MPI_INFO_NULL, comm, &allocated, &other));
  for (int i = 0; i < kTypes; ++i)
    for (int k = 0; k < kTypes; ++k) {
      if (size > 4 && i != k) continue;
      for (int count = 1; count <= kMost; count += kMost - 1) {
        messages(&types[i], &types[k], count);
        windows(one, created, &types[i], &types[k], count);
        windows(other, allocated, &types[i], &types[k], count);
      }
    }
  MPI(MPI_Win_free(&other));
  MPI(MPI_Win_free(&one));
  for (int i = 0; i < kTypes; ++i) MPI(MPI_Type_free(&types[i].type));
}
