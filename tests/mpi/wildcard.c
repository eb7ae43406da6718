// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Storms at MPI_ANY_SOURCE and MPI_ANY_TAG, mixed with receives that name one or both; nothing lost, order kept.
#include <stdlib.h>
#include <string.h>

#include "suite.h"

enum { kTags = 3 };

// What a sender puts in front, so that the receiver knows what it got.
struct head {
  int from, tag, number;  // number: of this sender's messages with this tag
  int length;
};

static size_t length_of(int from, int to, int tag, int number) {
  uint64_t state = seed_of(from, to, (uint64_t)(tag * 100000 + number));
  const uint64_t kind = draw(&state, 20);
  const uint64_t below = kind < 12 ? 200 : kind < 17 ? 20000 : kind < 19 ? 60000 : 200000;
  return sizeof(struct head) + draw(&state, below);
}

static int tag_of(int from, int to, int i) {
  uint64_t state = seed_of(from, to, (uint64_t)(7000000 + i));
  return (int)draw(&state, kTags);
}

static char* message(int to, int tag, int number) {
  const size_t length = length_of(rank, to, tag, number);
  char* data = need_memory(length);
  const struct head head = {rank, tag, number, (int)length};
  memcpy(data, &head, sizeof head);
  fill(data + sizeof head, length - sizeof head, seed_of(rank, to, (uint64_t)(tag * 100000 + number)));
  return data;
}

// seen[from * kTags + tag]: how many were received. The next is the one of that number.
static void account(const char* data, const MPI_Status* status, int* seen) {
  struct head head;
  memcpy(&head, data, sizeof head);
  CHECK(head.from == status->MPI_SOURCE && head.tag == status->MPI_TAG, "a message of %d, tag %d as of %d, tag %d",
        head.from, head.tag, status->MPI_SOURCE, status->MPI_TAG);
  int* next = &seen[head.from * kTags + head.tag];
  CHECK(head.number == *next, "message %d of %d with tag %d came when %d was due", head.number, head.from, head.tag,
        *next);
  ++*next;
  STATUS(status, head.from, head.tag, length_of(head.from, rank, head.tag, head.number));
  VERIFY(data + sizeof head, (size_t)head.length - sizeof head,
         seed_of(head.from, rank, (uint64_t)(head.tag * 100000 + head.number)), "message of the storm");
}

// What a rank has sent so far: n to each other, round about.
struct outgoing {
  int sent, *numbers;
  char** data;
  MPI_Request* requests;
};

static void send_next(struct outgoing* o) {
  const int to = (rank + 1 + o->sent % (size - 1)) % size, tag = tag_of(rank, to, o->sent / (size - 1));
  const int number = o->numbers[to * kTags + tag]++;
  o->data[o->sent] = message(to, tag, number);
  MPI(MPI_Isend(o->data[o->sent], (int)length_of(rank, to, tag, number), MPI_BYTE, to, tag, comm,
                &o->requests[o->sent]));
  ++o->sent;
}

// Everybody sends n to each other and takes what comes, any tag or one that is due.
static void storm(int n, bool any_tag) {
  const int all = n * (size - 1);
  struct outgoing o = {0, calloc((size_t)(size * kTags), sizeof(int)), need_memory(sizeof(char*) * (size_t)all),
                       need_memory(sizeof(MPI_Request) * (size_t)all)};
  int *seen = calloc((size_t)(size * kTags), sizeof(int)), due[kTags] = {0};
  char* in = need_memory(300000);
  for (int from = 0; from < size; ++from)
    if (from != rank)
      for (int i = 0; i < n; ++i) ++due[tag_of(from, rank, i)];
  uint64_t state = seed_of(rank, rank, any_tag);
  for (int received = 0; received < all; ++received) {
    for (uint64_t burst = draw(&state, 4); burst > 0 && o.sent < all; --burst) send_next(&o);
    int tag = MPI_ANY_TAG;
    if (!any_tag)
      for (tag = (int)draw(&state, kTags); due[tag] == 0;) tag = (tag + 1) % kTags;
    MPI_Request request;
    MPI_Status status;
    MPI(MPI_Irecv(in, 300000, MPI_BYTE, MPI_ANY_SOURCE, tag, comm, &request));
    // Whoever only waited might wait for one who waits for us.
    for (int done = 0; MPI_Test(&request, &done, &status) == MPI_SUCCESS && !done;)
      if (o.sent < all) send_next(&o);
    account(in, &status, seen);
    --due[status.MPI_TAG];
  }
  while (o.sent < all) send_next(&o);
  MPI(MPI_Waitall(all, o.requests, MPI_STATUSES_IGNORE));
  for (int i = 0; i < all; ++i) free(o.data[i]);
  free(in);
  free(seen);
  free(o.requests);
  free(o.data);
  free(o.numbers);
  MPI(MPI_Barrier(comm));
}

// Receives with and without wildcards, all posted at once. With one sender it is certain which message each gets.
static void posted_mix(int n) {
  const int to = (rank + 1) % size, from = (rank + size - 1) % size;
  int *wanted = need_memory(sizeof(int) * (size_t)n), *taken = calloc((size_t)n, sizeof(int));
  int *got = need_memory(sizeof(int) * (size_t)n), *expected = need_memory(sizeof(int) * (size_t)n);
  char **in = need_memory(sizeof(char*) * (size_t)n), **out = need_memory(sizeof(char*) * (size_t)n);
  MPI_Request* requests = need_memory(sizeof(MPI_Request) * 2 * (size_t)n);
  MPI_Status* statuses = need_memory(sizeof(MPI_Status) * 2 * (size_t)n);
  uint64_t state = seed_of(from, rank, 99);
  for (int i = 0; i < n; ++i) wanted[i] = draw(&state, 3) == 0 ? MPI_ANY_TAG : tag_of(from, rank, i);
  // Each message takes the first free receive that fits it. Where none is left, a free one becomes a wildcard, which
  // may change what earlier messages take.
  for (int i = 0; i < n; ++i) {
    int k = 0;
    while (k < n && (taken[k] || (wanted[k] != MPI_ANY_TAG && wanted[k] != tag_of(from, rank, i)))) ++k;
    if (k < n) {
      taken[k] = 1;
      expected[k] = i;
      continue;
    }
    for (k = 0; taken[k];) ++k;
    wanted[k] = MPI_ANY_TAG;
    memset(taken, 0, sizeof(int) * (size_t)n);
    i = -1;
  }
  const bool receive_first = draw(&state, 2) == 0;
  for (int turn = 0; turn < 2; ++turn)
    for (int i = 0; i < n; ++i) {
      const int tag = tag_of(rank, to, i);
      if ((turn == 0) == receive_first) {
        in[i] = need_memory(300000);
        MPI(MPI_Irecv(in[i], 300000, MPI_BYTE, i % 2 ? MPI_ANY_SOURCE : from, wanted[i], comm, &requests[i]));
      } else {
        out[i] = message(to, tag, i);
        MPI(MPI_Isend(out[i], (int)length_of(rank, to, tag, i), MPI_BYTE, to, tag, comm, &requests[n + i]));
      }
    }
  MPI(MPI_Waitall(2 * n, requests, statuses));
  for (int i = 0; i < n; ++i) {
    struct head head;
    memcpy(&head, in[i], sizeof head);
    got[i] = head.number;
    CHECK(got[i] == expected[i], "receive %d (tag %d) got message %d, not %d", i, wanted[i], got[i], expected[i]);
    STATUS(&statuses[i], from, tag_of(from, rank, got[i]), (size_t)head.length);
    VERIFY(in[i] + sizeof head, (size_t)head.length - sizeof head,
           seed_of(from, rank, (uint64_t)(head.tag * 100000 + head.number)), "message of the mix");
    free(in[i]);
    free(out[i]);
  }
  free(statuses);
  free(requests);
  free(out);
  free(in);
  free(expected);
  free(got);
  free(taken);
  free(wanted);
  MPI(MPI_Barrier(comm));
}

void wildcard(void) {
  const int n = full ? 400 : size <= 4 ? 100 : 25;
  if (size > 1) {
    storm(n, true);
    storm(n, false);
  }
  for (int i = 0; i < (full ? 40 : 10); ++i) posted_mix(20);
}
