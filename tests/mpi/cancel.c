// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// MPI_Cancel of receives: before and after they match; what comes later finds the receive behind.
#include <stdlib.h>
#include <string.h>

#include "suite.h"

static void never_matched(int source, int tag) {
  char data[64];
  MPI_Request request;
  MPI_Status status;
  int cancelled;
  memset(data, 0x55, sizeof data);
  MPI(MPI_Irecv(data, sizeof data, MPI_BYTE, source, tag, comm, &request));
  MPI(MPI_Cancel(&request));
  MPI(MPI_Wait(&request, &status));
  MPI(MPI_Test_cancelled(&status, &cancelled));
  CHECK(cancelled, "a receive that nothing matches is not cancelled");
  UNTOUCHED(data, sizeof data, 0x55, "cancelled receive");
}

// The first of two receives is cancelled before the one message is sent: the second takes it.
static void behind_a_cancelled(size_t length, bool wildcard) {
  const int to = (rank + 1) % size, from = (rank + size - 1) % size;
  const int source = wildcard ? MPI_ANY_SOURCE : from;
  char *out = need_memory(length), *first = need_memory(length), *second = need_memory(length);
  MPI_Request requests[2];
  MPI_Status status;
  int cancelled;
  memset(first, 0x55, length);
  fill(out, length, seed_of(rank, to, length));
  MPI(MPI_Irecv(first, (int)length, MPI_BYTE, source, 5, comm, &requests[0]));
  MPI(MPI_Irecv(second, (int)length, MPI_BYTE, source, 5, comm, &requests[1]));
  MPI(MPI_Cancel(&requests[0]));
  MPI(MPI_Wait(&requests[0], &status));
  MPI(MPI_Test_cancelled(&status, &cancelled));
  CHECK(cancelled, "not cancelled: %zu octets", length);
  MPI(MPI_Barrier(comm));
  MPI(MPI_Send(out, (int)length, MPI_BYTE, to, 5, comm));
  MPI(MPI_Wait(&requests[1], &status));
  STATUS(&status, from, 5, length);
  VERIFY(second, length, seed_of(from, rank, length), "message behind a cancelled receive");
  UNTOUCHED(first, length, 0x55, "cancelled receive");
  free(second);
  free(first);
  free(out);
}

// Cancel and message race: either the receive has the whole message, or the next receive has it.
static void races(size_t length, int step) {
  const int to = (rank + 1) % size, from = (rank + size - 1) % size;
  char *out = need_memory(length), *in = need_memory(length);
  MPI_Request request, sent;
  MPI_Status status;
  int cancelled;
  fill(out, length, seed_of(rank, to, (uint64_t)step));
  memset(in, 0x55, length);
  MPI(MPI_Irecv(in, (int)length, MPI_BYTE, from, 6, comm, &request));
  MPI(MPI_Isend(out, (int)length, MPI_BYTE, to, 6, comm, &sent));
  if (step % 3 == 1) linger();
  MPI(MPI_Cancel(&request));
  MPI(MPI_Wait(&request, &status));
  MPI(MPI_Test_cancelled(&status, &cancelled));
  if (cancelled) {
    UNTOUCHED(in, length, 0x55, "receive that was cancelled in time");
    MPI(MPI_Recv(in, (int)length, MPI_BYTE, from, 6, comm, &status));
  }
  STATUS(&status, from, 6, length);
  VERIFY(in, length, seed_of(from, rank, (uint64_t)step), "message that met a cancel");
  MPI(MPI_Wait(&sent, MPI_STATUS_IGNORE));
  MPI(MPI_Barrier(comm));
  free(in);
  free(out);
}

void cancel(void) {
  never_matched((rank + 1) % size, 900);
  never_matched(MPI_ANY_SOURCE, 901);
  never_matched(MPI_ANY_SOURCE, MPI_ANY_TAG);
  for (int i = 1; i < kSizesCount; ++i)
    for (int wildcard = 0; wildcard < 2; ++wildcard) behind_a_cancelled(kSizes[i], wildcard);
  for (int step = 0; step < (full ? 300 : 60); ++step) races(kSizes[1 + step % (kSizesCount - 3)], step);
}
