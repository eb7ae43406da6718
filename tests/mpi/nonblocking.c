// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Isend, Ibsend, Issend, Irsend and Irecv, to all and to oneself, completed by every call that completes.
#include <stdlib.h>
#include <string.h>

#include "suite.h"

enum completion {
  kWait,
  kWaitall,
  kWaitany,
  kWaitsome,
  kTest,
  kTestall,
  kTestany,
  kTestsome,
  kGetStatus,
  kCompletions
};

// Completes all; statuses[i] belongs to requests[i].
static void complete(enum completion how, int n, MPI_Request* requests, MPI_Status* statuses) {
  int flag = 0, index, some;
  int* indices = need_memory(sizeof(int) * (size_t)n);
  MPI_Status* found = need_memory(sizeof(MPI_Status) * (size_t)n);
  switch (how) {
    case kWait:
      for (int i = n; i-- > 0;) MPI(MPI_Wait(&requests[i], &statuses[i]));
      break;
    case kWaitall:
      MPI(MPI_Waitall(n, requests, statuses));
      break;
    case kWaitany:
      for (int i = 0; i < n; ++i) {
        MPI(MPI_Waitany(n, requests, &index, found));
        CHECK(index >= 0 && index < n, "index %d of %d", index, n);
        statuses[index] = *found;
      }
      break;
    case kWaitsome:
      for (int done = 0; done < n; done += some) {
        MPI(MPI_Waitsome(n, requests, &some, indices, found));
        CHECK(some > 0 && some <= n - done, "%d of %d", some, n - done);
        for (int i = 0; i < some; ++i) statuses[indices[i]] = found[i];
      }
      break;
    case kTest:
      for (int i = 0; i < n; ++i)
        for (flag = 0; !flag;) MPI(MPI_Test(&requests[i], &flag, &statuses[i]));
      break;
    case kTestall:
      while (!flag) MPI(MPI_Testall(n, requests, &flag, statuses));
      break;
    case kTestany:
      for (int i = 0; i < n; i += flag) {
        MPI(MPI_Testany(n, requests, &index, &flag, found));
        if (flag) statuses[index] = *found;
      }
      break;
    case kTestsome:
      for (int done = 0; done < n; done += some) {
        MPI(MPI_Testsome(n, requests, &some, indices, found));
        for (int i = 0; i < some; ++i) statuses[indices[i]] = found[i];
      }
      break;
    default:
      for (int i = 0; i < n; ++i) {
        for (flag = 0; !flag;) MPI(MPI_Request_get_status(requests[i], &flag, &statuses[i]));
        CHECK(requests[i] != MPI_REQUEST_NULL, "get_status freed the request");
        MPI(MPI_Wait(&requests[i], MPI_STATUS_IGNORE));
      }
  }
  for (int i = 0; i < n; ++i) CHECK(requests[i] == MPI_REQUEST_NULL, "request %d of %d is left", i, n);
  free(found);
  free(indices);
}

static void begin_send(int mode, const void* data, int length, int to, int tag, MPI_Request* request) {
  switch (mode) {
    case 0:
      MPI(MPI_Isend(data, length, MPI_BYTE, to, tag, comm, request));
      break;
    case 1:
      MPI(MPI_Ibsend(data, length, MPI_BYTE, to, tag, comm, request));
      break;
    case 2:
      MPI(MPI_Issend(data, length, MPI_BYTE, to, tag, comm, request));
      break;
    default:
      MPI(MPI_Irsend(data, length, MPI_BYTE, to, tag, comm, request));
  }
}

// Everybody sends to everybody and to itself; receives come first where the mode is ready, or by turns.
static void all_with_all(int mode, enum completion how, size_t length) {
  const int n = 2 * size;
  char *in = need_memory(length * (size_t)size), *out = need_memory(length * (size_t)size);
  MPI_Request* requests = need_memory(sizeof(MPI_Request) * (size_t)n);
  MPI_Status* statuses = need_memory(sizeof(MPI_Status) * (size_t)n);
  const bool receive_first = mode == 3 || (rank + how) % 2 == 0;
  memset(in, 0x55, length * (size_t)size);
  for (int turn = 0; turn < 2; ++turn) {
    for (int k = 0; k < size; ++k) {
      const int other = (rank + k) % size, tag = 100 + mode;
      char* mine = out + length * (size_t)other;
      if ((turn == 0) == receive_first) {
        MPI(MPI_Irecv(in + length * (size_t)other, (int)length, MPI_BYTE, other, tag, comm, &requests[other]));
      } else {
        fill(mine, length, seed_of(rank, other, length));
        begin_send(mode, mine, (int)length, other, tag, &requests[size + other]);
        if (mode == 1) {  // buffered: the data may change at once when the request is done
          MPI(MPI_Wait(&requests[size + other], MPI_STATUS_IGNORE));
          memset(mine, 0xee, length);
        }
      }
    }
    if (mode == 3 && turn == 0) MPI(MPI_Barrier(comm));
  }
  complete(how, mode == 1 ? size : n, requests, statuses);
  for (int other = 0; other < size; ++other) {
    STATUS(&statuses[other], other, 100 + mode, length);
    VERIFY(in + length * (size_t)other, length, seed_of(other, rank, length), "non-blocking message");
  }
  free(statuses);
  free(requests);
  free(out);
  free(in);
}

// A request that is freed while under way completes all the same.
static void freed(void) {
  const int to = (rank + 1) % size, from = (rank + size - 1) % size;
  for (int i = 0; i < kSizesCount; ++i) {
    const size_t length = kSizes[i];
    char *out = need_memory(length), *in = need_memory(length);
    MPI_Request request;
    fill(out, length, seed_of(rank, to, length));
    MPI(MPI_Isend(out, (int)length, MPI_BYTE, to, 7, comm, &request));
    MPI(MPI_Request_free(&request));
    CHECK(request == MPI_REQUEST_NULL, "a freed request");
    MPI(MPI_Recv(in, (int)length, MPI_BYTE, from, 7, comm, MPI_STATUS_IGNORE));
    VERIFY(in, length, seed_of(from, rank, length), "message of a freed request");
    MPI(MPI_Barrier(comm));  // received everywhere, so the buffer is ours
    free(in);
    free(out);
  }
}

void nonblocking(void) {
  const size_t most = full || size <= 4 ? kSizes[kSizesCount - 1] : 65536;
  const int attached = 2 * size * ((int)most + MPI_BSEND_OVERHEAD);
  void* buffer = need_memory((size_t)attached);
  int octets;
  MPI(MPI_Buffer_attach(buffer, attached));
  for (int mode = 0; mode < 4; ++mode)
    for (int i = 0; i < kSizesCount; ++i)
      if (kSizes[i] <= most)
        for (int how = 0; how < kCompletions; ++how)
          if (full || kSizes[i] < 65536 || how == (i + mode) % kCompletions)
            all_with_all(mode, (enum completion)how, kSizes[i]);
  MPI(MPI_Buffer_detach(&buffer, &octets));
  free(buffer);
  freed();
}
