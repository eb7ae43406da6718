// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// One-sided communication: put, get and accumulate between fences, in post-start-complete-wait, under locks; windows of
// all kinds; requests.
#include <stdlib.h>
#include <string.h>

#include "suite.h"

enum kind { kCreated, kAllocated, kDynamic, kKinds };

struct window {
  MPI_Win win;
  char* base;
  MPI_Aint* bases;  // of every rank: displacements in a dynamic window; else 0
  size_t octets;
  enum kind kind;
};

static struct window window_make(enum kind kind, size_t octets) {
  octets = (octets + 63) / 64 * 64;  // MPICH 4.0's MPI_Win_allocate mistakes the others' addresses by the remainder
  struct window w = {.octets = octets, .kind = kind, .bases = calloc((size_t)size, sizeof(MPI_Aint))};
  switch (kind) {
    case kCreated:
      MPI(MPI_Alloc_mem((MPI_Aint)octets, MPI_INFO_NULL, &w.base));
      MPI(MPI_Win_create(w.base, (MPI_Aint)octets, 1, MPI_INFO_NULL, comm, &w.win));
      break;
    case kAllocated:
      MPI(MPI_Win_allocate((MPI_Aint)octets, 1, MPI_INFO_NULL, comm, &w.base, &w.win));
      break;
    default: {
      w.base = need_memory(octets);
      MPI(MPI_Win_create_dynamic(MPI_INFO_NULL, comm, &w.win));
      MPI(MPI_Win_attach(w.win, w.base, (MPI_Aint)octets));
      MPI_Aint mine;
      MPI(MPI_Get_address(w.base, &mine));
      MPI(MPI_Allgather(&mine, 1, MPI_AINT, w.bases, 1, MPI_AINT, comm));
    }
  }
  memset(w.base, 0x55, octets);
  MPI(MPI_Barrier(comm));
  return w;
}

static void window_end(struct window* w) {
  if (w->kind == kDynamic) MPI(MPI_Win_detach(w->win, w->base));
  MPI(MPI_Win_free(&w->win));
  if (w->kind == kCreated) MPI(MPI_Free_mem(w->base));
  if (w->kind == kDynamic) free(w->base);
  free(w->bases);
}

// Everybody puts a block into everybody's window, then everybody gets them from everybody.
static void fences(enum kind kind, size_t block) {
  struct window w = window_make(kind, block * (size_t)size + 64);
  char *out = need_memory(block * (size_t)size), *in = need_memory(block * (size_t)size);
  MPI(MPI_Win_fence(MPI_MODE_NOPRECEDE, w.win));
  for (int i = 0; i < size; ++i) {
    const int to = (rank + i) % size;
    char* mine = out + block * (size_t)to;
    fill(mine, block, seed_of(rank, to, block));
    MPI(MPI_Put(mine, (int)block, MPI_BYTE, to, w.bases[to] + (MPI_Aint)block * rank, (int)block, MPI_BYTE, w.win));
  }
  MPI(MPI_Win_fence(0, w.win));
  for (int from = 0; from < size; ++from)
    VERIFY(w.base + block * (size_t)from, block, seed_of(from, rank, block), "put between fences");
  UNTOUCHED(w.base + block * (size_t)size, 64, 0x55, "behind what was put");
  memset(in, 0, block * (size_t)size);
  for (int i = 0; i < size; ++i) {
    const int from = (rank + i) % size;
    MPI(MPI_Get(in + block * (size_t)from, (int)block, MPI_BYTE, from, w.bases[from] + (MPI_Aint)block * rank,
                (int)block, MPI_BYTE, w.win));
  }
  MPI(MPI_Win_fence(MPI_MODE_NOSUCCEED, w.win));
  for (int from = 0; from < size; ++from)
    VERIFY(in + block * (size_t)from, block, seed_of(rank, from, block), "got between fences");
  free(in);
  free(out);
  window_end(&w);
}

// Each opens its window to its left neighbour and puts into its right one's.
static void post_start(enum kind kind, size_t block) {
  const int right = (rank + 1) % size, left = (rank + size - 1) % size;
  struct window w = window_make(kind, block + 64);
  MPI_Group world, origin, target;
  char *out = need_memory(block), *in = need_memory(block);
  MPI(MPI_Comm_group(comm, &world));
  MPI(MPI_Group_incl(world, 1, &left, &origin));
  MPI(MPI_Group_incl(world, 1, &right, &target));
  for (uint64_t step = 0; step < 5; ++step) {
    fill(out, block, seed_of(rank, right, step));
    MPI(MPI_Win_post(origin, 0, w.win));
    MPI(MPI_Win_start(target, 0, w.win));
    MPI(MPI_Put(out, (int)block, MPI_BYTE, right, w.bases[right], (int)block, MPI_BYTE, w.win));
    MPI(MPI_Win_complete(w.win));
    if (step % 2) {
      for (int done = 0; !done;) MPI(MPI_Win_test(w.win, &done));
    } else {
      MPI(MPI_Win_wait(w.win));
    }
    VERIFY(w.base, block, seed_of(left, rank, step), "put in an access epoch");
    MPI(MPI_Win_post(origin, 0, w.win));
    MPI(MPI_Win_start(target, 0, w.win));
    MPI(MPI_Get(in, (int)block, MPI_BYTE, right, w.bases[right], (int)block, MPI_BYTE, w.win));
    MPI(MPI_Win_complete(w.win));
    MPI(MPI_Win_wait(w.win));
    VERIFY(in, block, seed_of(rank, right, step), "got in an access epoch");
  }
  UNTOUCHED(w.base + block, 64, 0x55, "behind what was put");
  MPI(MPI_Group_free(&origin));
  MPI(MPI_Group_free(&target));
  MPI(MPI_Group_free(&world));
  free(in);
  free(out);
  window_end(&w);
}

// Exclusive and shared locks, lock_all with flushes, requests. Of many ranks each takes every few.
static void locks(enum kind kind, size_t block) {
  const int stride = full || size <= 4 ? 1 : size / 3;
  struct window w = window_make(kind, block * (size_t)size);
  char *out = need_memory(block), *in = need_memory(block);
  const MPI_Aint mine = (MPI_Aint)block * rank;
  for (int i = 1; i <= size; i += stride) {
    const int to = (rank + i) % size;
    fill(out, block, seed_of(rank, to, 1));
    MPI(MPI_Win_lock(i % 2 ? MPI_LOCK_EXCLUSIVE : MPI_LOCK_SHARED, to, 0, w.win));
    MPI(MPI_Put(out, (int)block, MPI_BYTE, to, w.bases[to] + mine, (int)block, MPI_BYTE, w.win));
    MPI(MPI_Win_unlock(to, w.win));
    // Done at the target: what is got now is what was put.
    MPI(MPI_Win_lock(MPI_LOCK_SHARED, to, 0, w.win));
    MPI(MPI_Get(in, (int)block, MPI_BYTE, to, w.bases[to] + mine, (int)block, MPI_BYTE, w.win));
    MPI(MPI_Win_unlock(to, w.win));
    VERIFY(in, block, seed_of(rank, to, 1), "got under a lock");
  }
  MPI(MPI_Barrier(comm));
  MPI(MPI_Win_lock_all(0, w.win));
  for (int i = 1; i <= size; i += stride) {
    const int to = (rank + i) % size;
    MPI_Request request;
    fill(out, block, seed_of(rank, to, 2));
    if (i % 2) {
      MPI(MPI_Rput(out, (int)block, MPI_BYTE, to, w.bases[to] + mine, (int)block, MPI_BYTE, w.win, &request));
      MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
      MPI(MPI_Win_flush(to, w.win));
    } else {
      MPI(MPI_Put(out, (int)block, MPI_BYTE, to, w.bases[to] + mine, (int)block, MPI_BYTE, w.win));
      MPI(MPI_Win_flush_local(to, w.win));
      MPI(MPI_Win_flush_all(w.win));
    }
    MPI(MPI_Rget(in, (int)block, MPI_BYTE, to, w.bases[to] + mine, (int)block, MPI_BYTE, w.win, &request));
    MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
    VERIFY(in, block, seed_of(rank, to, 2), "got after a flush");
  }
  MPI(MPI_Win_unlock_all(w.win));
  MPI(MPI_Barrier(comm));
  MPI(MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, w.win));
  MPI(MPI_Win_sync(w.win));
  for (int i = 1; i <= size; i += stride) {
    const int from = (rank + size - i) % size;
    VERIFY(w.base + block * (size_t)from, block, seed_of(from, rank, 2), "put under lock_all");
  }
  MPI(MPI_Win_unlock(rank, w.win));
  MPI(MPI_Barrier(comm));
  free(in);
  free(out);
  window_end(&w);
}

// A column of the target's matrix from a row of the origin's.
static void typed(enum kind kind) {
  enum { kSide = 300 };
  const int right = (rank + 1) % size, left = (rank + size - 1) % size;
  struct window w = window_make(kind, kSide * kSide * sizeof(int));
  MPI_Datatype column;
  int row[kSide];
  for (int i = 0; i < kSide; ++i) row[i] = rank * 1000 + i;
  MPI(MPI_Type_vector(kSide, 1, kSide, MPI_INT, &column));
  MPI(MPI_Type_commit(&column));
  MPI(MPI_Win_fence(0, w.win));
  MPI(MPI_Put(row, kSide, MPI_INT, right, w.bases[right] + 7 * (MPI_Aint)sizeof(int), 1, column, w.win));
  MPI(MPI_Win_fence(0, w.win));
  for (int i = 0; i < kSide * kSide; ++i) {
    int got;
    memcpy(&got, w.base + (size_t)i * sizeof got, sizeof got);
    CHECK(got == (i % kSide == 7 ? left * 1000 + i / kSide : 0x55555555), "element %d is %d", i, got);
  }
  MPI(MPI_Type_free(&column));
  window_end(&w);
}

// Pieces of memory, each in pages of its own, attached one behind the other.
static void many_pieces(int pieces) {
  const size_t octets = 65536;
  MPI_Win win;
  MPI(MPI_Win_create_dynamic(MPI_INFO_NULL, comm, &win));
  char* memory = need_memory(octets * (size_t)pieces);
  memset(memory, 0, octets * (size_t)pieces);
  for (int i = 0; i < pieces; ++i) MPI(MPI_Win_attach(win, memory + octets * (size_t)i, 4096));
  MPI_Aint base, *bases = calloc((size_t)size, sizeof(MPI_Aint));
  MPI(MPI_Get_address(memory, &base));
  MPI(MPI_Allgather(&base, 1, MPI_AINT, bases, 1, MPI_AINT, comm));
  const int to = (rank + 1) % size, from = (rank + size - 1) % size;
  int* out = need_memory(sizeof(int) * (size_t)pieces);
  MPI(MPI_Win_fence(0, win));
  for (int i = 0; i < pieces; ++i) {
    out[i] = rank * 1000000 + i;
    MPI(MPI_Put(out + i, 1, MPI_INT, to, bases[to] + (MPI_Aint)octets * i, 1, MPI_INT, win));
  }
  MPI(MPI_Win_fence(0, win));
  for (int i = 0; i < pieces; ++i) {
    int got;
    memcpy(&got, memory + octets * (size_t)i, sizeof got);
    CHECK(got == from * 1000000 + i, "piece %d: %d", i, got);
  }
  for (int i = 0; i < pieces; ++i) MPI(MPI_Win_detach(win, memory + octets * (size_t)i));
  MPI(MPI_Win_free(&win));
  free(out);
  free(bases);
  free(memory);
}

void onesided(void) {
  static const size_t kBlocks[] = {8, 1000, 12289, 100000, 1 << 20};
  for (int kind = 0; kind < kKinds; ++kind) {
    if (kind == kDynamic && !dynamic_windows) continue;
    for (int i = 0; i < 5; ++i) {
      if (!full && size > 4 && kBlocks[i] > 12289) continue;
      fences((enum kind)kind, kBlocks[i]);
      post_start((enum kind)kind, kBlocks[i]);
      locks((enum kind)kind, kBlocks[i]);
    }
    typed((enum kind)kind);
  }
  if (dynamic_windows) many_pieces(200);
}
