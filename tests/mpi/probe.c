// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Probe, Iprobe, Mprobe, Improbe, Mrecv, Imrecv: sources, tags and lengths are found before the message is taken.
#include <stdlib.h>
#include <string.h>

#include "suite.h"

enum way { kProbe, kIprobe, kMprobe, kImprobe, kWays };

// Takes one message that was found with wildcards or without; its source.
static int take(enum way way, int source, int tag, uint64_t step) {
  MPI_Status found, got;
  MPI_Message message = MPI_MESSAGE_NULL;
  int flag = 0, length;
  switch (way) {
    case kProbe:
      MPI(MPI_Probe(source, tag, comm, &found));
      break;
    case kIprobe:
      while (!flag) MPI(MPI_Iprobe(source, tag, comm, &flag, &found));
      break;
    case kMprobe:
      MPI(MPI_Mprobe(source, tag, comm, &message, &found));
      break;
    default:
      while (!flag) MPI(MPI_Improbe(source, tag, comm, &flag, &message, &found));
  }
  MPI(MPI_Get_count(&found, MPI_BYTE, &length));
  CHECK(source == MPI_ANY_SOURCE || found.MPI_SOURCE == source, "found one of %d", found.MPI_SOURCE);
  CHECK(tag == MPI_ANY_TAG || found.MPI_TAG == tag, "found one of tag %d", found.MPI_TAG);
  char* data = need_memory((size_t)length);
  if (way == kProbe || way == kIprobe) {
    MPI(MPI_Recv(data, length, MPI_BYTE, found.MPI_SOURCE, found.MPI_TAG, comm, &got));
  } else if (step % 2) {
    MPI_Request request;
    MPI(MPI_Imrecv(data, length, MPI_BYTE, &message, &request));
    MPI(MPI_Wait(&request, &got));
  } else {
    MPI(MPI_Mrecv(data, length, MPI_BYTE, &message, &got));
  }
  CHECK(message == MPI_MESSAGE_NULL, "the message is left");
  STATUS(&got, found.MPI_SOURCE, found.MPI_TAG, (size_t)length);
  VERIFY(data, (size_t)length, seed_of(found.MPI_SOURCE, rank, (uint64_t)found.MPI_TAG), "probed message");
  free(data);
  return found.MPI_SOURCE;
}

// Each sends one message of each size to its neighbours on both sides; the tag is the number of the size.
static void exchange(enum way way) {
  const int right = (rank + 1) % size, left = (rank + size - 1) % size;
  MPI_Request* requests = need_memory(sizeof(MPI_Request) * 2 * (size_t)kSizesCount);
  char** data = need_memory(sizeof(char*) * 2 * (size_t)kSizesCount);
  for (int i = 0; i < kSizesCount; ++i)
    for (int side = 0; side < 2; ++side) {
      const int to = side ? right : left, n = 2 * i + side, tag = 2 * i + (side ? 0 : 1);
      data[n] = need_memory(kSizes[i]);
      fill(data[n], kSizes[i], seed_of(rank, to, (uint64_t)tag));
      MPI(MPI_Isend(data[n], (int)kSizes[i], MPI_BYTE, to, tag, comm, &requests[n]));
    }
  // Of the left one backwards by tag, then of the right one as they come.
  for (int i = kSizesCount; i-- > 0;) take(way, left, 2 * i, (uint64_t)i);
  for (int i = 0; i < kSizesCount; ++i) {
    const int source = take(way, i % 2 ? MPI_ANY_SOURCE : right, i % 3 ? MPI_ANY_TAG : 2 * i + 1, (uint64_t)i);
    CHECK(source == right, "one of %d", source);
  }
  MPI(MPI_Waitall(2 * kSizesCount, requests, MPI_STATUSES_IGNORE));
  for (int i = 0; i < 2 * kSizesCount; ++i) free(data[i]);
  free(data);
  free(requests);
}

// A matched message is no longer found by others, not even by a receive that names it.
static void matched_is_taken(void) {
  const int to = (rank + 1) % size, from = (rank + size - 1) % size;
  int out[2] = {rank * 10, rank * 10 + 1}, in = -1, flag;
  MPI_Message first = MPI_MESSAGE_NULL, second;
  MPI_Request requests[2];
  MPI_Status status;
  for (int i = 0; i < 2; ++i) MPI(MPI_Isend(&out[i], 1, MPI_INT, to, 77, comm, &requests[i]));
  MPI(MPI_Mprobe(from, 77, comm, &first, &status));
  MPI(MPI_Recv(&in, 1, MPI_INT, from, 77, comm, MPI_STATUS_IGNORE));
  CHECK(in == from * 10 + 1, "the receive took %d", in);
  MPI(MPI_Improbe(from, 77, comm, &flag, &second, &status));
  CHECK(!flag, "a message that was taken is found");
  MPI(MPI_Mrecv(&in, 1, MPI_INT, &first, &status));
  CHECK(in == from * 10, "the matched message is %d", in);
  MPI(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
}

static void nobody(void) {
  MPI_Status status;
  MPI_Message message;
  int flag = 0;
  MPI(MPI_Barrier(comm));
  MPI(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &flag, &status));
  CHECK(!flag, "a message from nowhere: source %d, tag %d", status.MPI_SOURCE, status.MPI_TAG);
  MPI(MPI_Mprobe(MPI_PROC_NULL, 3, comm, &message, &status));
  STATUS(&status, MPI_PROC_NULL, MPI_ANY_TAG, 0);
  CHECK(message == MPI_MESSAGE_NO_PROC, "a message of nobody");
  MPI(MPI_Mrecv(NULL, 0, MPI_BYTE, &message, &status));
  STATUS(&status, MPI_PROC_NULL, MPI_ANY_TAG, 0);
}

void probe(void) {
  if (size == 1) return nobody();
  for (int way = 0; way < kWays; ++way) {
    exchange((enum way)way);
    MPI(MPI_Barrier(comm));
  }
  matched_is_taken();
  nobody();
}
