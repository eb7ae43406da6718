// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// MPI_Send, Bsend, Ssend, Rsend and MPI_Recv between all pairs, all sizes, either end first.
#include <stdlib.h>
#include <string.h>

#include "suite.h"

enum mode { kSend, kBsend, kSsend, kRsend, kModes };
enum first { kTogether, kSenderFirst, kReceiverFirst, kOrders };
enum { kTag = 11, kToken = 12 };

static void send_one(enum mode mode, enum first first, void* data, size_t length, int to, uint64_t seed) {
  fill(data, length, seed);
  if (mode == kRsend) MPI(MPI_Recv(NULL, 0, MPI_BYTE, to, kToken, comm, MPI_STATUS_IGNORE));
  if (first == kReceiverFirst) linger();
  switch (mode) {
    case kSend:
      MPI(MPI_Send(data, (int)length, MPI_BYTE, to, kTag, comm));
      break;
    case kBsend:
      MPI(MPI_Bsend(data, (int)length, MPI_BYTE, to, kTag, comm));
      break;
    case kSsend:
      MPI(MPI_Ssend(data, (int)length, MPI_BYTE, to, kTag, comm));
      break;
    default:
      MPI(MPI_Rsend(data, (int)length, MPI_BYTE, to, kTag, comm));
  }
  memset(data, 0xee, length);  // the buffer is ours again
}

static void receive_one(enum mode mode, enum first first, void* data, size_t length, int from, uint64_t seed) {
  MPI_Status status;
  memset(data, 0x55, length + 16);
  if (mode == kRsend) {
    MPI_Request request;
    MPI(MPI_Irecv(data, (int)length + 16, MPI_BYTE, from, kTag, comm, &request));
    MPI(MPI_Send(NULL, 0, MPI_BYTE, from, kToken, comm));
    MPI(MPI_Wait(&request, &status));
  } else {
    if (first == kSenderFirst) linger();
    MPI(MPI_Recv(data, (int)length + 16, MPI_BYTE, from, kTag, comm, &status));
  }
  STATUS(&status, from, kTag, length);
  VERIFY(data, length, seed, "message");
  UNTOUCHED((char*)data + length, 16, 0x55, "behind the message");
}

// A synchronous send is not done before its receive has begun.
static void synchronous_waits(int partner) {
  for (int i = 0; i < 3; ++i) {
    const size_t length = i == 0 ? 8 : i == 1 ? 30000 : 500000;
    char* data = need_memory(length);
    if (rank < partner) {
      MPI_Request request;
      int done = 0;
      fill(data, length, seed_of(rank, partner, length));
      MPI(MPI_Issend(data, (int)length, MPI_BYTE, partner, kTag, comm, &request));
      for (int k = 0; k < 200 && !done; ++k) MPI(MPI_Test(&request, &done, MPI_STATUS_IGNORE));
      CHECK(!done, "a synchronous send of %zu octets is done without a receive", length);
      MPI(MPI_Send(NULL, 0, MPI_BYTE, partner, kToken, comm));
      MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
    } else {
      MPI(MPI_Recv(NULL, 0, MPI_BYTE, partner, kToken, comm, MPI_STATUS_IGNORE));
      MPI(MPI_Recv(data, (int)length, MPI_BYTE, partner, kTag, comm, MPI_STATUS_IGNORE));
      VERIFY(data, length, seed_of(partner, rank, length), "synchronous message");
    }
    free(data);
  }
}

void blocking(void) {
  const size_t largest = kSizes[kSizesCount - 1];
  char* data = need_memory(largest + 16);
  // Two of the largest may be under way before the first has left.
  const int attached = 4 * ((int)largest + MPI_BSEND_OVERHEAD);
  void* buffer = need_memory((size_t)attached);
  MPI(MPI_Buffer_attach(buffer, attached));
  for (int round = 0; round < size; ++round) {
    const int partner = (round - rank + size) % size;
    if (partner == rank) continue;
    for (int mode = 0; mode < kModes; ++mode) {
      for (int i = 0; i < kSizesCount; ++i) {
        if (!full && size > 4 && round > 1 && kSizes[i] > 65536) continue;
        const enum first first = (enum first)((i + mode + round) % kOrders);
        for (int turn = 0; turn < 2; ++turn) {
          const bool sends = (rank < partner) == (turn == 0);
          const uint64_t seed = seed_of(sends ? rank : partner, sends ? partner : rank, (uint64_t)(i * kModes + mode));
          if (sends)
            send_one((enum mode)mode, first, data, kSizes[i], partner, seed);
          else
            receive_one((enum mode)mode, first, data, kSizes[i], partner, seed);
        }
      }
    }
    if (round < 2) synchronous_waits(partner);
  }
  void* detached;
  int octets;
  MPI(MPI_Buffer_detach(&detached, &octets));
  CHECK(detached == buffer && octets == attached, "another buffer was detached");
  free(buffer);
  free(data);
}
