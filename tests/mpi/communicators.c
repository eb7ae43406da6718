// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Communicators: dup, idup, split, create, create_group, intercommunicators with their collectives, many at a time.
#include <stdlib.h>
#include <string.h>

#include "suite.h"

// Messages to every member, and a sum, within `c`: nothing of other communicators comes in between.
static void talk(MPI_Comm c, uint64_t step) {
  int me, n, sum = 0;
  MPI(MPI_Comm_rank(c, &me));
  MPI(MPI_Comm_size(c, &n));
  const size_t length = kSizes[step % (uint64_t)(kSizesCount - 3)];
  char *in = need_memory(length * (size_t)n), *out = need_memory(length * (size_t)n);
  MPI_Request* requests = need_memory(sizeof(MPI_Request) * 2 * (size_t)n);
  for (int i = 0; i < n; ++i) {
    fill(out + length * (size_t)i, length, seed_of(me, i, step));
    MPI(MPI_Irecv(in + length * (size_t)i, (int)length, MPI_BYTE, i, 1, c, &requests[i]));
    MPI(MPI_Isend(out + length * (size_t)i, (int)length, MPI_BYTE, i, 1, c, &requests[n + i]));
  }
  MPI(MPI_Waitall(2 * n, requests, MPI_STATUSES_IGNORE));
  for (int i = 0; i < n; ++i)
    VERIFY(in + length * (size_t)i, length, seed_of(i, me, step), "message in a communicator");
  MPI(MPI_Allreduce(&me, &sum, 1, MPI_INT, MPI_SUM, c));
  CHECK(sum == n * (n - 1) / 2, "the ranks' sum is %d", sum);
  free(requests);
  free(out);
  free(in);
}

static void made_of_world(void) {
  MPI_Comm c, d;
  MPI_Request request;
  MPI_Group world, group;
  int result, even[64], n = 0;
  MPI(MPI_Comm_dup(comm, &c));
  MPI(MPI_Comm_compare(comm, c, &result));
  CHECK(result == MPI_CONGRUENT, "a duplicate is %d", result);
  MPI(MPI_Comm_idup(c, &d, &request));
  MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
  talk(c, 1);
  talk(d, 2);
  MPI(MPI_Comm_free(&c));
  talk(d, 3);
  MPI(MPI_Comm_free(&d));
  // Backwards, in halves, and some left out.
  MPI(MPI_Comm_split(comm, 0, -rank, &c));
  int me;
  MPI(MPI_Comm_rank(c, &me));
  CHECK(me == size - 1 - rank, "rank %d after a split backwards", me);
  talk(c, 4);
  MPI(MPI_Comm_free(&c));
  MPI(MPI_Comm_split(comm, rank % 2, rank, &c));
  talk(c, 5 + (uint64_t)(rank % 2));
  MPI(MPI_Comm_free(&c));
  MPI(MPI_Comm_split(comm, rank == size - 1 ? MPI_UNDEFINED : 1, rank, &c));
  CHECK((c == MPI_COMM_NULL) == (rank == size - 1), "who is in the communicator");
  if (c != MPI_COMM_NULL) {
    talk(c, 7);
    MPI(MPI_Comm_free(&c));
  }
  MPI(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &c));
  talk(c, 8);
  MPI(MPI_Comm_free(&c));
  MPI(MPI_Comm_group(comm, &world));
  for (int i = 0; i < size && n < 64; i += 2) even[n++] = i;
  MPI(MPI_Group_incl(world, n, even, &group));
  MPI(MPI_Comm_create(comm, group, &c));
  if (c != MPI_COMM_NULL) {
    talk(c, 9);
    MPI(MPI_Comm_free(&c));
  }
  if (rank % 2 == 0 && rank / 2 < n) {  // only the members call
    MPI(MPI_Comm_create_group(comm, group, 5, &c));
    talk(c, 10);
    MPI(MPI_Comm_free(&c));
  }
  MPI(MPI_Group_free(&group));
  MPI(MPI_Group_free(&world));
}

// Point-to-point and collectives between the even and the odd ranks, then all of them in one.
static void between_groups(void) {
  MPI_Comm half, inter, merged;
  int mine, others, me, sum = 0, expected = 0, one, value;
  MPI(MPI_Comm_split(comm, rank % 2, rank, &half));
  MPI(MPI_Intercomm_create(half, 0, comm, 1 - rank % 2, 77, &inter));
  MPI(MPI_Comm_test_inter(inter, &one));
  CHECK(one, "no intercommunicator");
  MPI(MPI_Comm_rank(inter, &me));
  MPI(MPI_Comm_size(inter, &mine));
  MPI(MPI_Comm_remote_size(inter, &others));
  CHECK(mine == (size + 1 - rank % 2) / 2 && others == size - mine, "%d of us, %d of them", mine, others);
  for (int i = 0; i < kSizesCount; ++i) {
    const size_t length = kSizes[i];
    char *in = need_memory(length), *out = need_memory(length);
    if (me < others && me < mine) {
      MPI_Status status;
      // Their world rank is 2 * me + the other parity.
      const int theirs = 2 * me + 1 - rank % 2;
      fill(out, length, seed_of(rank, theirs, length));
      MPI(MPI_Sendrecv(out, (int)length, MPI_BYTE, me, 3, in, (int)length, MPI_BYTE, me, 3, inter, &status));
      STATUS(&status, me, 3, length);
      VERIFY(in, length, seed_of(theirs, rank, length), "message between groups");
    }
    free(out);
    free(in);
  }
  MPI(MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, inter));
  for (int i = 1 - rank % 2; i < size; i += 2) expected += i;
  CHECK(sum == expected, "the others' sum is %d, not %d", sum, expected);
  value = rank == 0 ? 4711 : -1;
  MPI(MPI_Bcast(&value, 1, MPI_INT, rank % 2 ? 0 : me == 0 ? MPI_ROOT : MPI_PROC_NULL, inter));
  CHECK(rank % 2 == 0 || value == 4711, "broadcast to the other group: %d", value);
  MPI(MPI_Barrier(inter));
  int* all = need_memory(sizeof(int) * (size_t)others);
  MPI(MPI_Allgather(&rank, 1, MPI_INT, all, 1, MPI_INT, inter));
  for (int i = 0; i < others; ++i) CHECK(all[i] == 2 * i + 1 - rank % 2, "rank %d of them is %d", i, all[i]);
  free(all);
  MPI(MPI_Intercomm_merge(inter, rank % 2, &merged));
  talk(merged, 11);
  MPI(MPI_Comm_free(&merged));
  MPI(MPI_Comm_free(&inter));
  MPI(MPI_Comm_free(&half));
}

// Many communicators at a time, with messages of the same tag under way in all of them.
static void many(int n) {
  MPI_Comm* list = need_memory(sizeof(MPI_Comm) * (size_t)n);
  MPI_Request* requests = need_memory(sizeof(MPI_Request) * 2 * (size_t)n);
  int *in = need_memory(sizeof(int) * (size_t)n), *out = need_memory(sizeof(int) * (size_t)n);
  const int to = (rank + 1) % size, from = (rank + size - 1) % size;
  for (int i = 0; i < n; ++i) MPI(MPI_Comm_dup(comm, &list[i]));
  for (int i = 0; i < n; ++i) {
    out[i] = rank * 1000 + i;
    MPI(MPI_Isend(&out[i], 1, MPI_INT, to, 1, list[i], &requests[i]));
  }
  for (int i = n; i-- > 0;) MPI(MPI_Irecv(&in[i], 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, list[i], &requests[n + i]));
  MPI(MPI_Waitall(2 * n, requests, MPI_STATUSES_IGNORE));
  for (int i = 0; i < n; ++i) CHECK(in[i] == from * 1000 + i, "communicator %d: %d", i, in[i]);
  for (int i = 0; i < n; ++i) MPI(MPI_Comm_free(&list[i]));
  free(out);
  free(in);
  free(requests);
  free(list);
}

void communicators(void) {
  made_of_world();
  if (size > 1) between_groups();
  many(full ? 200 : 30);
}
