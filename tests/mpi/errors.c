// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// With MPI_ERRORS_RETURN: truncation is reported, harms nothing beside the buffer, and communication goes on.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "suite.h"

static int class_of(int error) {
  int class = MPI_SUCCESS;
  MPI_Error_class(error, &class);
  return class;
}

static void truncated(size_t length, size_t room, bool posted_first) {
  const int to = (rank + 1) % size, from = (rank + size - 1) % size;
  char *out = need_memory(length), *in = need_memory(room + 64);
  MPI_Request sent, received;
  MPI_Status status;
  fill(out, length, seed_of(rank, to, length));
  memset(in, 0x55, room + 64);
  if (posted_first) {
    MPI(MPI_Irecv(in, (int)room, MPI_BYTE, from, 1, comm, &received));
    MPI(MPI_Barrier(comm));
  }
  MPI(MPI_Isend(out, (int)length, MPI_BYTE, to, 1, comm, &sent));
  if (!posted_first) {
    MPI(MPI_Barrier(comm));
    MPI(MPI_Irecv(in, (int)room, MPI_BYTE, from, 1, comm, &received));
  }
  const int error = MPI_Wait(&received, &status);
  CHECK(class_of(error) == MPI_ERR_TRUNCATE, "a receive of %zu octets for %zu: error class %d", room, length,
        class_of(error));
  UNTOUCHED(in + room, 64, 0x55, "behind a truncated message");
  MPI(MPI_Wait(&sent, MPI_STATUS_IGNORE));
  // What follows is whole.
  MPI(MPI_Sendrecv(out, (int)length, MPI_BYTE, to, 1, in = realloc(in, length + 1), (int)length, MPI_BYTE, from, 1,
                   comm, &status));
  STATUS(&status, from, 1, length);
  VERIFY(in, length, seed_of(from, rank, length), "message after a truncated one");
  free(in);
  free(out);
}

// One of several is truncated: Waitall tells which, and the others are whole, those too that it left pending.
static void one_of_several(bool others_late) {
  const int to = (rank + 1) % size, from = (rank + size - 1) % size;
  // The others come after the truncated one: a while after it from an even rank, and with no wait for one that sends
  // later than it receives.
  const int late_order[] = {1, 0, 2}, order[] = {0, 2, 1}, *nth = others_late ? late_order : order;
  const bool receives_first = others_late && rank % 2 == 1;
  char out[3][100], in[3][100];
  MPI_Request sent[3], received[3];
  MPI_Status statuses[3];
  for (int i = 0; i < 3; ++i) {
    fill(out[i], 100, seed_of(rank, to, (uint64_t)i));
    MPI(MPI_Irecv(in[i], i == 1 ? 50 : 100, MPI_BYTE, from, i, comm, &received[i]));
  }
  MPI(MPI_Barrier(comm));
  int posted = 0;
  while (posted < (receives_first ? 1 : 3)) {
    if (others_late && posted == 1) usleep(20000);
    MPI(MPI_Isend(out[nth[posted]], 100, MPI_BYTE, to, nth[posted], comm, &sent[posted]));
    ++posted;
  }
  const int error = MPI_Waitall(3, received, statuses);
  CHECK(class_of(error) == MPI_ERR_IN_STATUS, "error class %d, not MPI_ERR_IN_STATUS", class_of(error));
  CHECK(class_of(statuses[1].MPI_ERROR) == MPI_ERR_TRUNCATE, "class %d in the status", class_of(statuses[1].MPI_ERROR));
  for (; posted < 3; ++posted) MPI(MPI_Isend(out[nth[posted]], 100, MPI_BYTE, to, nth[posted], comm, &sent[posted]));
  for (int i = 0; i < 3; i += 2) {
    if (statuses[i].MPI_ERROR == MPI_ERR_PENDING) {
      CHECK(received[i] != MPI_REQUEST_NULL, "request %d is pending and gone", i);
      MPI(MPI_Wait(&received[i], &statuses[i]));
    } else {
      CHECK(statuses[i].MPI_ERROR == MPI_SUCCESS, "status %d has an error", i);
    }
    VERIFY(in[i], 100, seed_of(from, rank, (uint64_t)i), "message beside a truncated one");
  }
  MPI(MPI_Waitall(3, sent, MPI_STATUSES_IGNORE));
}

static void arguments(void) {
  char octet = 0;
  CHECK(class_of(MPI_Send(&octet, 1, MPI_BYTE, size, 0, comm)) == MPI_ERR_RANK, "a rank that is not there");
  CHECK(class_of(MPI_Send(&octet, 1, MPI_BYTE, 0, -5, comm)) == MPI_ERR_TAG, "a negative tag");
  CHECK(class_of(MPI_Send(&octet, -1, MPI_BYTE, 0, 0, comm)) == MPI_ERR_COUNT, "a negative count");
}

void errors(void) {
  // Requests' errors belong to their communicator in some libraries, to MPI_COMM_WORLD or MPI_COMM_SELF in others.
  const MPI_Comm all[] = {comm, MPI_COMM_WORLD, MPI_COMM_SELF};
  for (int i = 0; i < 3; ++i) MPI(MPI_Comm_set_errhandler(all[i], MPI_ERRORS_RETURN));
  arguments();
  for (int i = 3; i < kSizesCount; ++i)
    for (int posted_first = 0; posted_first < 2; ++posted_first) {
      truncated(kSizes[i], kSizes[i] - 1, posted_first);
      truncated(kSizes[i], kSizes[i] / 3, posted_first);
      truncated(kSizes[i], 0, posted_first);
    }
  one_of_several(false);
  if (pending_kept) one_of_several(true);
  for (int i = 0; i < 3; ++i) MPI(MPI_Comm_set_errhandler(all[i], MPI_ERRORS_ARE_FATAL));
}
