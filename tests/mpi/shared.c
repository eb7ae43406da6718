// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A window of shared memory, in which ranks of one host load what others have stored, and beside it one of messages:
// both are in use at the same time.
#include <stdlib.h>

#include "suite.h"

static void beside_each_other(MPI_Comm node, size_t block) {
  const int right = (rank + 1) % size, left = (rank + size - 1) % size;
  MPI_Win memory, messages;
  char *mine, *theirs, *out = need_memory(block), *in;
  MPI_Aint octets;
  int unit;
  MPI(MPI_Win_allocate_shared((MPI_Aint)block, 1, MPI_INFO_NULL, node, &mine, &memory));
  MPI(MPI_Win_shared_query(memory, right, &octets, &unit, &theirs));
  CHECK(octets == (MPI_Aint)block && unit == 1, "rank %d has %lld octets in units of %d", right, (long long)octets,
        unit);
  MPI(MPI_Alloc_mem((MPI_Aint)block, MPI_INFO_NULL, &in));
  MPI(MPI_Win_create(in, (MPI_Aint)block, 1, MPI_INFO_NULL, comm, &messages));
  MPI(MPI_Win_lock_all(0, memory));
  MPI(MPI_Win_lock_all(0, messages));
  for (uint64_t step = 0; step < 5; ++step) {
    fill(out, block, seed_of(rank, right, step));
    MPI(MPI_Put(out, (int)block, MPI_BYTE, right, 0, (int)block, MPI_BYTE, messages));
    fill(mine, block, seed_of(rank, rank, step));
    MPI(MPI_Win_sync(memory));
    MPI(MPI_Win_flush(right, messages));
    MPI(MPI_Barrier(comm));
    MPI(MPI_Win_sync(memory));
    MPI(MPI_Win_sync(messages));
    VERIFY(theirs, block, seed_of(right, right, step), "stored by the neighbour");
    VERIFY(in, block, seed_of(left, rank, step), "put beside it");
    MPI(MPI_Barrier(comm));
  }
  MPI(MPI_Win_unlock_all(messages));
  MPI(MPI_Win_unlock_all(memory));
  MPI(MPI_Win_free(&messages));
  MPI(MPI_Win_free(&memory));
  MPI(MPI_Free_mem(in));
  free(out);
}

void shared(void) {
  MPI_Comm node;
  int here = 0;
  MPI(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node));
  MPI(MPI_Comm_size(node, &here));
  // Ranks of several hosts have no memory in common.
  if (here == size) {
    beside_each_other(node, 4096);
    beside_each_other(node, 1 << 20);
  }
  MPI(MPI_Comm_free(&node));
}
