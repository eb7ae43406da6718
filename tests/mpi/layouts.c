// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// One-sided operations between random datatypes: holes, lower bounds on both sides of zero, nested, at MPI_BOTTOM. What
// they have to do is done by MPI_Pack and MPI_Unpack beside them.
#include <stdlib.h>
#include <string.h>

#include "suite.h"

// A layout's integers lie within kReach octets of where it begins, on both sides.
enum { kInts = 24, kReach = 6000, kOctets = 2 * kReach };

static uint64_t state;

static MPI_Aint octets_of(uint64_t ints) {
  return (MPI_Aint)(ints * sizeof(int));
}

// n integers in pieces with holes between them, some of these before the beginning.
static MPI_Datatype pieces(int n) {
  int lengths[kInts];
  MPI_Aint at[kInts], next = -octets_of(draw(&state, 40));
  int count = 0;
  while (n > 0) {
    const int length = 1 + (int)draw(&state, (uint64_t)n);
    next += octets_of(draw(&state, 4));
    lengths[count] = length;
    at[count++] = next;
    next += octets_of((uint64_t)length);
    n -= length;
  }
  MPI_Datatype out;
  MPI(MPI_Type_create_hindexed(count, lengths, at, MPI_INT, &out));
  return out;
}

// kInts integers in all: pieces, repeated at some distance, or behind each other with bounds of their own.
static MPI_Datatype layout(void) {
  static const int kFactors[] = {1, 2, 3, 4, 6};
  const int times = kFactors[draw(&state, 5)];
  MPI_Datatype inner = pieces(kInts / times), out;
  MPI_Aint first, extent;
  MPI(MPI_Type_get_true_extent(inner, &first, &extent));
  const MPI_Aint distance = extent + octets_of(draw(&state, 5));
  if (draw(&state, 2) == 0) {
    MPI(MPI_Type_create_hvector(times, 1, distance, inner, &out));
  } else {
    MPI_Datatype bounded;
    MPI(MPI_Type_create_resized(inner, octets_of(draw(&state, 9)) - octets_of(4), distance, &bounded));
    MPI(MPI_Type_contiguous(times, bounded, &out));
    MPI(MPI_Type_free(&bounded));
  }
  MPI(MPI_Type_free(&inner));
  MPI(MPI_Type_commit(&out));
  return out;
}

// The same layout at an absolute address.
static MPI_Datatype at_bottom(MPI_Datatype type, const char* base) {
  const int one = 1;
  MPI_Aint at;
  MPI_Datatype out;
  MPI(MPI_Get_address(base, &at));
  MPI(MPI_Type_create_hindexed(1, &one, &at, type, &out));
  MPI(MPI_Type_commit(&out));
  return out;
}

static void pack(const char* base, MPI_Datatype type, int out[kInts]) {
  int position = 0;
  MPI(MPI_Pack(base, 1, type, out, kInts * (int)sizeof(int), &position, comm));
  CHECK(position == kInts * (int)sizeof(int), "%d octets of %d integers", position, kInts);
}

static void unpack(const int in[kInts], MPI_Datatype type, char* base) {
  int position = 0;
  MPI(MPI_Unpack((void*)in, kInts * (int)sizeof(int), &position, base, 1, type, comm));
}

// Everybody to the right neighbour; both draw what the layouts are from the same seed.
static void operations(MPI_Win win, char* window, uint64_t round, MPI_Op op) {
  const int right = (rank + 1) % size, left = (rank + size - 1) % size;
  char *mine = need_memory(kOctets), *lefts = need_memory(kOctets), *wanted = need_memory(kOctets);
  int moved[kInts], there[kInts], got[kInts];
  state = seed_of(left, 0, round);
  MPI_Datatype lefts_own = layout(), lefts_target = layout();
  state = seed_of(rank, 0, round);
  MPI_Datatype own = layout(), target = layout(), bottom = at_bottom(own, mine + kReach);
  const bool absolute = draw(&state, 2) == 0;
  const void* origin = absolute ? MPI_BOTTOM : mine + kReach;
  const MPI_Datatype origin_type = absolute ? bottom : own;
  fill(mine, kOctets, seed_of(rank, 1, round));
  fill(lefts, kOctets, seed_of(left, 1, round));
  fill(wanted, kOctets, seed_of(rank, 2, round));
  MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, win));
  memcpy(window, wanted, kOctets);
  MPI(MPI_Win_unlock(rank, win));
  MPI(MPI_Win_fence(0, win));
  if (op == MPI_OP_NULL)
    MPI(MPI_Put(origin, 1, origin_type, right, kReach, 1, target, win));
  else
    MPI(MPI_Accumulate(origin, 1, origin_type, right, kReach, 1, target, op, win));
  MPI(MPI_Win_fence(0, win));
  // What the left neighbour has done here.
  pack(lefts + kReach, lefts_own, moved);
  pack(wanted + kReach, lefts_target, there);
  for (int i = 0; i < kInts; ++i) there[i] = op == MPI_SUM ? (int)((unsigned)there[i] + (unsigned)moved[i]) : moved[i];
  unpack(there, lefts_target, wanted + kReach);
  CHECK(memcmp(window, wanted, kOctets) == 0, "round %d: other octets in the window", (int)round);
  // And back, into the same places of the origin.
  MPI(MPI_Win_fence(0, win));
  fill(mine, kOctets, seed_of(rank, 3, round));
  fill(lefts, kOctets, seed_of(rank, 3, round));
  fill(wanted, kOctets, seed_of(rank, 1, round));  // what was put
  MPI(MPI_Get((void*)origin, 1, origin_type, right, kReach, 1, target, win));
  MPI(MPI_Win_fence(0, win));
  pack(mine + kReach, own, got);
  pack(wanted + kReach, own, moved);
  if (op != MPI_SUM) CHECK(memcmp(got, moved, sizeof got) == 0, "round %d: other integers came back", (int)round);
  unpack(got, own, lefts + kReach);
  CHECK(memcmp(mine, lefts, kOctets) == 0, "round %d: a get wrote elsewhere", (int)round);
  MPI_Datatype all[] = {lefts_own, lefts_target, own, target, bottom};
  for (int i = 0; i < 5; ++i) MPI(MPI_Type_free(&all[i]));
  free(wanted);
  free(lefts);
  free(mine);
}

void layouts(void) {
  const int rounds = full ? 300 : size > 4 ? 4 : 25;
  char* window = need_memory(kOctets);
  MPI_Win win;
  MPI(MPI_Win_create(window, kOctets, 1, MPI_INFO_NULL, comm, &win));
  for (int i = 0; i < rounds; ++i) {
    operations(win, window, 3 * (uint64_t)i, MPI_OP_NULL);
    operations(win, window, 3 * (uint64_t)i + 1, MPI_SUM);
    operations(win, window, 3 * (uint64_t)i + 2, MPI_REPLACE);
  }
  MPI(MPI_Win_free(&win));
  free(window);
}
