// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The collectives that move data: every block is filled by its sender and verified by its receiver.
#include <stdlib.h>
#include <string.h>

#include "collective.h"

enum { kElement = sizeof(int), kGap = 2 };

void job_begin(struct job* j) {
  const size_t n = (size_t)size;
  j->octets = n * ((size_t)j->count + 2 + kGap) * 2 * sizeof(double);
  j->in = need_memory(j->octets);
  j->out = need_memory(j->octets);
  memset(j->in, 0x33, j->octets);
  memset(j->out, 0x55, j->octets);
  j->counts = calloc(4 * n, sizeof(int));
  j->at = j->counts + n;
  j->counts_out = j->counts + 2 * n;
  j->at_out = j->counts + 3 * n;
  j->types = calloc(n, sizeof(MPI_Datatype));
  j->what->begin(j);
}

void job_end(struct job* j) {
  j->what->verify(j);
  free(j->types);
  free(j->counts);
  free(j->out);
  free(j->in);
}

static uint64_t seed(const struct job* j, int from, int to) {
  return seed_of(from, to, j->step);
}

static size_t octets(const struct job* j) {
  return (size_t)j->count * kElement;
}

static char* block(const struct job* j, char* buffer, int i) {
  return buffer + octets(j) * (size_t)i;
}

static void fill_block(const struct job* j, char* buffer, int i, int from, int to) {
  fill(block(j, buffer, i), octets(j), seed(j, from, to));
}

static void verify_block(const struct job* j, char* buffer, int i, int from, int to) {
  VERIFY(block(j, buffer, i), octets(j), seed(j, from, to), j->what->name);
}

// What lies behind so many blocks was not written to.
static void verify_rest(const struct job* j, int blocks) {
  UNTOUCHED(j->out + octets(j) * (size_t)blocks, j->octets - octets(j) * (size_t)blocks, 0x55, j->what->name);
}

static void begin_bcast(struct job* j) {
  if (rank == j->root) fill_block(j, j->out, 0, j->root, 0);
  COLLECTIVE(j, MPI_Bcast, MPI_Ibcast, j->out, j->count, MPI_INT, j->root);
}

static void end_bcast(struct job* j) {
  verify_block(j, j->out, 0, j->root, 0);
  verify_rest(j, 1);
}

static void begin_gather(struct job* j) {
  const bool here = j->in_place && rank == j->root;
  if (here)
    fill_block(j, j->out, rank, rank, j->root);
  else
    fill_block(j, j->in, 0, rank, j->root);
  COLLECTIVE(j, MPI_Gather, MPI_Igather, here ? MPI_IN_PLACE : j->in, j->count, MPI_INT, j->out, j->count, MPI_INT,
             j->root);
}

static void end_gather(struct job* j) {
  if (rank == j->root)
    for (int i = 0; i < size; ++i) verify_block(j, j->out, i, i, j->root);
  verify_rest(j, rank == j->root ? size : 0);
}

static void begin_scatter(struct job* j) {
  const bool here = j->in_place && rank == j->root;
  if (rank == j->root)
    for (int i = 0; i < size; ++i) fill_block(j, j->in, i, j->root, i);
  COLLECTIVE(j, MPI_Scatter, MPI_Iscatter, j->in, j->count, MPI_INT, here ? MPI_IN_PLACE : j->out, j->count, MPI_INT,
             j->root);
}

static void end_scatter(struct job* j) {
  const bool here = j->in_place && rank == j->root;
  if (!here) verify_block(j, j->out, 0, j->root, rank);
  verify_rest(j, here ? 0 : 1);
}

static void begin_allgather(struct job* j) {
  if (j->in_place)
    fill_block(j, j->out, rank, rank, 0);
  else
    fill_block(j, j->in, 0, rank, 0);
  COLLECTIVE(j, MPI_Allgather, MPI_Iallgather, j->in_place ? MPI_IN_PLACE : j->in, j->count, MPI_INT, j->out, j->count,
             MPI_INT);
}

static void end_allgather(struct job* j) {
  for (int i = 0; i < size; ++i) verify_block(j, j->out, i, i, 0);
  verify_rest(j, size);
}

static void begin_alltoall(struct job* j) {
  for (int i = 0; i < size; ++i) fill_block(j, j->in_place ? j->out : j->in, i, rank, i);
  COLLECTIVE(j, MPI_Alltoall, MPI_Ialltoall, j->in_place ? MPI_IN_PLACE : j->in, j->count, MPI_INT, j->out, j->count,
             MPI_INT);
}

static void end_alltoall(struct job* j) {
  for (int i = 0; i < size; ++i) verify_block(j, j->out, i, i, rank);
  verify_rest(j, size);
}

// Blocks of different lengths with gaps between them. Symmetric, as MPI_IN_PLACE asks of alltoallv.
static int length(const struct job* j, int from, int to) {
  return j->count == 0 ? (from + to) % 2 : j->count - (j->count > 2 ? (from + to) % 3 : 0);
}

// counts and displacements of what `from`s send to `to`s, where either is -1 for each.
static void lay_out(const struct job* j, int from, int to, int* counts, int* at) {
  for (int i = 0, next = kGap; i < size; next += counts[i++] + kGap) {
    counts[i] = length(j, from < 0 ? i : from, to < 0 ? i : to);
    at[i] = next;
  }
}

static void fill_ragged(const struct job* j, char* buffer, const int* counts, const int* at, int i, int to) {
  fill(buffer + (size_t)at[i] * kElement, (size_t)counts[i] * kElement, seed(j, rank, to));
}

static void verify_ragged(const struct job* j, const int* counts, const int* at, int to) {
  size_t next = 0;
  for (int i = 0; i < size; ++i) {
    const size_t start = (size_t)at[i] * kElement, n = (size_t)counts[i] * kElement;
    UNTOUCHED(j->out + next, start - next, 0x55, j->what->name);
    VERIFY(j->out + start, n, seed(j, i, to), j->what->name);
    next = start + n;
  }
  UNTOUCHED(j->out + next, j->octets - next, 0x55, j->what->name);
}

static void begin_gatherv(struct job* j) {
  const bool here = j->in_place && rank == j->root;
  const int mine = length(j, rank, j->root);
  lay_out(j, -1, j->root, j->counts, j->at);
  if (here)
    fill_ragged(j, j->out, j->counts, j->at, rank, j->root);
  else
    fill(j->in, (size_t)mine * kElement, seed(j, rank, j->root));
  COLLECTIVE(j, MPI_Gatherv, MPI_Igatherv, here ? MPI_IN_PLACE : j->in, mine, MPI_INT, j->out, j->counts, j->at,
             MPI_INT, j->root);
}

static void end_gatherv(struct job* j) {
  if (rank == j->root)
    verify_ragged(j, j->counts, j->at, j->root);
  else
    UNTOUCHED(j->out, j->octets, 0x55, j->what->name);
}

static void begin_scatterv(struct job* j) {
  const bool here = j->in_place && rank == j->root;
  lay_out(j, j->root, -1, j->counts, j->at);
  if (rank == j->root)
    for (int i = 0; i < size; ++i) fill_ragged(j, j->in, j->counts, j->at, i, i);
  COLLECTIVE(j, MPI_Scatterv, MPI_Iscatterv, j->in, j->counts, j->at, MPI_INT, here ? MPI_IN_PLACE : j->out,
             length(j, j->root, rank), MPI_INT, j->root);
}

static void end_scatterv(struct job* j) {
  const size_t n = j->in_place && rank == j->root ? 0 : (size_t)length(j, j->root, rank) * kElement;
  VERIFY(j->out, n, seed(j, j->root, rank), j->what->name);
  UNTOUCHED(j->out + n, j->octets - n, 0x55, j->what->name);
}

static void begin_allgatherv(struct job* j) {
  lay_out(j, -1, 0, j->counts, j->at);
  if (j->in_place)
    fill_ragged(j, j->out, j->counts, j->at, rank, 0);
  else
    fill(j->in, (size_t)j->counts[rank] * kElement, seed(j, rank, 0));
  COLLECTIVE(j, MPI_Allgatherv, MPI_Iallgatherv, j->in_place ? MPI_IN_PLACE : j->in, j->counts[rank], MPI_INT, j->out,
             j->counts, j->at, MPI_INT);
}

static void end_allgatherv(struct job* j) {
  verify_ragged(j, j->counts, j->at, 0);
}

static void prepare_alltoallv(struct job* j) {
  lay_out(j, rank, -1, j->counts, j->at);
  lay_out(j, -1, rank, j->counts_out, j->at_out);
  for (int i = 0; i < size; ++i) fill_ragged(j, j->in_place ? j->out : j->in, j->counts, j->at, i, i);
}

static void begin_alltoallv(struct job* j) {
  prepare_alltoallv(j);
  COLLECTIVE(j, MPI_Alltoallv, MPI_Ialltoallv, j->in_place ? MPI_IN_PLACE : j->in, j->counts, j->at, MPI_INT, j->out,
             j->counts_out, j->at_out, MPI_INT);
}

static void end_alltoallv(struct job* j) {
  verify_ragged(j, j->counts_out, j->at_out, rank);
}

// Displacements in octets, and types that differ from pair to pair. Not in place, so both layouts are the same.
static void begin_alltoallw(struct job* j) {
  prepare_alltoallv(j);
  for (int i = 0; i < size; ++i) {
    const bool as_octets = (rank + i) % 2;
    j->types[i] = as_octets ? MPI_BYTE : MPI_INT;
    j->at[i] *= kElement;
    j->at_out[i] *= kElement;
    if (!as_octets) continue;
    j->counts[i] *= kElement;
    j->counts_out[i] *= kElement;
  }
  COLLECTIVE(j, MPI_Alltoallw, MPI_Ialltoallw, j->in, j->counts, j->at, j->types, j->out, j->counts_out, j->at_out,
             j->types);
}

static void end_alltoallw(struct job* j) {
  lay_out(j, -1, rank, j->counts_out, j->at_out);
  verify_ragged(j, j->counts_out, j->at_out, rank);
}

const struct collective kMovements[] = {
    {"bcast", begin_bcast, end_bcast, true, false},
    {"gather", begin_gather, end_gather, true, true},
    {"gatherv", begin_gatherv, end_gatherv, true, true},
    {"scatter", begin_scatter, end_scatter, true, true},
    {"scatterv", begin_scatterv, end_scatterv, true, true},
    {"allgather", begin_allgather, end_allgather, false, true},
    {"allgatherv", begin_allgatherv, end_allgatherv, false, true},
    {"alltoall", begin_alltoall, end_alltoall, false, true},
    {"alltoallv", begin_alltoallv, end_alltoallv, false, true},
    {"alltoallw", begin_alltoallw, end_alltoallw, false, false},
};
const int kMovementsCount = sizeof kMovements / sizeof kMovements[0];
