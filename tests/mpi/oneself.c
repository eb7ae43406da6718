// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A rank that goes on with messages to itself hears what others send to it.
#include <stdlib.h>
#include <unistd.h>

#include "suite.h"

// Odd ranks wait for their left neighbours while they talk to themselves: a library that finds something to do in each
// call must look at its network all the same.
static void hears(size_t length) {
  char *in = need_memory(length), *out = need_memory(length), flag = 0;
  const int odd = rank % 2, other = odd ? rank - 1 : rank + 1;
  MPI_Request remote;
  int done = 0;
  if (odd) MPI(MPI_Irecv(in, (int)length, MPI_BYTE, other, 1, comm, &remote));
  MPI(MPI_Barrier(comm));
  if (!odd && other < size) {
    usleep(20000);  // so that it has begun
    fill(out, length, seed_of(rank, other, length));
    MPI(MPI_Send(out, (int)length, MPI_BYTE, other, 1, comm));
  }
  const double began = MPI_Wtime();
  for (long rounds = 0; odd && !done; ++rounds) {
    MPI_Request requests[2];
    MPI(MPI_Irecv(&flag, 1, MPI_BYTE, rank, 2, comm, &requests[0]));
    MPI(MPI_Isend(&flag, 1, MPI_BYTE, rank, 2, comm, &requests[1]));
    MPI(MPI_Test(&remote, &done, MPI_STATUS_IGNORE));
    MPI(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
    CHECK(MPI_Wtime() - began < 30, "nothing came in %ld rounds", rounds);
  }
  if (odd) VERIFY(in, length, seed_of(other, rank, length), "message to a rank that talks to itself");
  free(out);
  free(in);
}

void oneself(void) {
  hears(8);
  hears(20000);
  hears(1 << 20);
}
