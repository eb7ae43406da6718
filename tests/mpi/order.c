// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Messages of one sender with one tag do not overtake each other, whatever their sizes and modes; tags and
// communicators keep apart.
#include <stdlib.h>
#include <string.h>

#include "suite.h"

// Sizes from all protocols, in an order that invites overtaking: large before small.
static size_t length_of(int i) {
  static const size_t kMix[] = {1 << 19, 0, 8, 20000, 1, 70000, 4096, 30000, 12289, 3, 200000, 64};
  return kMix[i % (int)(sizeof kMix / sizeof kMix[0])];
}

static void in_order(int n, bool wildcard, bool receive_first) {
  const int to = (rank + 1) % size, from = (rank + size - 1) % size;
  char **out = need_memory(sizeof(char*) * (size_t)n), **in = need_memory(sizeof(char*) * (size_t)n);
  MPI_Request* requests = need_memory(sizeof(MPI_Request) * 2 * (size_t)n);
  MPI_Status* statuses = need_memory(sizeof(MPI_Status) * 2 * (size_t)n);
  for (int turn = 0; turn < 2; ++turn) {
    for (int i = 0; i < n; ++i) {
      const size_t length = length_of(i);
      if ((turn == 0) == receive_first) {
        in[i] = need_memory(1 << 19);
        MPI(MPI_Irecv(in[i], 1 << 19, MPI_BYTE, wildcard && i % 3 ? MPI_ANY_SOURCE : from,
                      wildcard && i % 2 ? MPI_ANY_TAG : 4, comm, &requests[i]));
      } else {
        out[i] = need_memory(length);
        fill(out[i], length, seed_of(rank, to, (uint64_t)i));
        if (i % 4 == 3)
          MPI(MPI_Issend(out[i], (int)length, MPI_BYTE, to, 4, comm, &requests[n + i]));
        else
          MPI(MPI_Isend(out[i], (int)length, MPI_BYTE, to, 4, comm, &requests[n + i]));
      }
    }
    if (turn == 0) MPI(MPI_Barrier(comm));
  }
  MPI(MPI_Waitall(2 * n, requests, statuses));
  for (int i = 0; i < n; ++i) {
    STATUS(&statuses[i], from, 4, length_of(i));
    VERIFY(in[i], length_of(i), seed_of(from, rank, (uint64_t)i), "message in order");
    free(in[i]);
    free(out[i]);
  }
  free(statuses);
  free(requests);
  free(in);
  free(out);
}

// The same tag in two communicators, and two tags in one, received in the other order than sent.
static void apart(void) {
  const int to = (rank + 1) % size, from = (rank + size - 1) % size;
  MPI_Comm other;
  MPI(MPI_Comm_dup(comm, &other));
  for (int i = 1; i < kSizesCount; ++i) {
    const size_t length = kSizes[i];
    char *out[3], *in = need_memory(length);
    MPI_Request requests[3];
    MPI_Status status;
    for (int k = 0; k < 3; ++k) {
      out[k] = need_memory(length);
      fill(out[k], length, seed_of(rank, to, (uint64_t)k));
      MPI(MPI_Isend(out[k], (int)length, MPI_BYTE, to, k == 2 ? 9 : 8, k == 1 ? other : comm, &requests[k]));
    }
    for (int k = 3; k-- > 0;) {
      MPI(MPI_Recv(in, (int)length, MPI_BYTE, from, k == 2 ? 9 : 8, k == 1 ? other : comm, &status));
      VERIFY(in, length, seed_of(from, rank, (uint64_t)k), "message of another tag or communicator");
    }
    MPI(MPI_Waitall(3, requests, MPI_STATUSES_IGNORE));
    for (int k = 0; k < 3; ++k) free(out[k]);
    free(in);
  }
  MPI(MPI_Comm_free(&other));
}

// The largest tag that the library promises.
static void largest_tag(void) {
  const int to = (rank + 1) % size, from = (rank + size - 1) % size;
  int *bound, set, value = rank, got;
  MPI_Status status;
  MPI(MPI_Comm_get_attr(comm, MPI_TAG_UB, &bound, &set));
  CHECK(set && *bound >= 32767, "the largest tag is %d", set ? *bound : -1);
  MPI(MPI_Sendrecv(&value, 1, MPI_INT, to, *bound, &got, 1, MPI_INT, from, *bound, comm, &status));
  STATUS(&status, from, *bound, sizeof got);
  CHECK(got == from, "got %d", got);
}

void order(void) {
  const int n = full ? 200 : 36;
  for (int k = 0; k < 4; ++k) in_order(n, k & 1, k & 2);
  apart();
  largest_tag();
}
