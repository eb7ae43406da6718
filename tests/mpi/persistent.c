// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Persistent requests of all modes, started one by one and together, many times with new data.
#include <stdlib.h>
#include <string.h>

#include "suite.h"

enum { kModes = 4 };

static int starts(int mode) {
#ifdef OPEN_MPI
  // Its persistent buffered sends pack no data when they are started again (4.1.4, over any transport).
  if (mode == 1) return 1;
#else
  (void)mode;
#endif
  return 6;
}

static void make(int mode, void* out, int length, int to, MPI_Request* request) {
  switch (mode) {
    case 0:
      MPI(MPI_Send_init(out, length, MPI_BYTE, to, mode, comm, request));
      break;
    case 1:
      MPI(MPI_Bsend_init(out, length, MPI_BYTE, to, mode, comm, request));
      break;
    case 2:
      MPI(MPI_Ssend_init(out, length, MPI_BYTE, to, mode, comm, request));
      break;
    default:
      MPI(MPI_Rsend_init(out, length, MPI_BYTE, to, mode, comm, request));
  }
}

static void ring(int mode, size_t length) {
  const int to = (rank + 1) % size, from = (rank + size - 1) % size;
  char *out = need_memory(length), *in = need_memory(length);
  MPI_Request requests[2];
  MPI_Status statuses[2];
  MPI(MPI_Recv_init(in, (int)length, MPI_BYTE, mode % 2 ? MPI_ANY_SOURCE : from, mode, comm, &requests[0]));
  make(mode, out, (int)length, to, &requests[1]);
  for (int k = 0; k < starts(mode); ++k) {
    fill(out, length, seed_of(rank, to, (uint64_t)k));
    memset(in, 0x55, length);
    if (mode == 3) {  // ready: the receives first
      MPI(MPI_Start(&requests[0]));
      MPI(MPI_Barrier(comm));
      MPI(MPI_Start(&requests[1]));
    } else if (k % 2) {
      MPI(MPI_Startall(2, requests));
    } else {
      MPI(MPI_Start(&requests[1]));
      MPI(MPI_Start(&requests[0]));
    }
    MPI(MPI_Waitall(2, requests, statuses));
    CHECK(requests[0] != MPI_REQUEST_NULL && requests[1] != MPI_REQUEST_NULL, "a persistent request is gone");
    STATUS(&statuses[0], from, mode, length);
    VERIFY(in, length, seed_of(from, rank, (uint64_t)k), "persistent message");
    // Inactive requests are done, with an empty status.
    MPI(MPI_Wait(&requests[0], &statuses[0]));
    STATUS(&statuses[0], MPI_ANY_SOURCE, MPI_ANY_TAG, 0);
    MPI(MPI_Barrier(comm));
  }
  MPI(MPI_Request_free(&requests[0]));
  MPI(MPI_Request_free(&requests[1]));
  free(in);
  free(out);
}

void persistent(void) {
  const int attached = 2 * ((int)kSizes[kSizesCount - 1] + MPI_BSEND_OVERHEAD);
  void* buffer = need_memory((size_t)attached);
  int octets;
  MPI(MPI_Buffer_attach(buffer, attached));
  for (int mode = 0; mode < kModes; ++mode)
    for (int i = 0; i < kSizesCount; ++i)
      if (full || size <= 4 || kSizes[i] <= 65536) ring(mode, kSizes[i]);
  MPI(MPI_Buffer_detach(&buffer, &octets));
  free(buffer);
}
