// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Neighbourhood collectives on a torus, a line and a directed graph, blocking and not.
#include <stdlib.h>
#include <string.h>

#include "suite.h"

struct place {
  MPI_Comm where;
  int in, out, *sources, *targets;
};

static struct place cart(int dimensions, bool periodic) {
  int dims[3] = {0, 0, 0};
  const int periods[3] = {periodic, periodic, periodic};
  struct place p = {.in = 2 * dimensions, .out = 2 * dimensions};
  MPI(MPI_Dims_create(size, dimensions, dims));
  MPI(MPI_Cart_create(comm, dimensions, dims, periods, 0, &p.where));
  p.sources = need_memory(sizeof(int) * (size_t)p.in);
  for (int d = 0; d < dimensions; ++d) MPI(MPI_Cart_shift(p.where, d, 1, &p.sources[2 * d], &p.sources[2 * d + 1]));
  p.targets = p.sources;
  return p;
}

// Everybody sends to the next three in number, itself included where there are fewer.
static struct place graph(void) {
  struct place p = {.in = 3, .out = 3};
  p.sources = need_memory(sizeof(int) * 3);
  p.targets = need_memory(sizeof(int) * 3);
  for (int i = 0; i < 3; ++i) {
    p.targets[i] = (rank + i + 1) % size;
    p.sources[i] = (rank + 3 * size - i - 1) % size;
  }
  MPI(MPI_Dist_graph_create_adjacent(comm, 3, p.sources, MPI_UNWEIGHTED, 3, p.targets, MPI_UNWEIGHTED, MPI_INFO_NULL, 0,
                                     &p.where));
  return p;
}

// Two edges may join the same two ranks; MPI then matches them in order, so the data is that of the pair.
static void exchange(const struct place* p, int count, bool later) {
  const size_t block = (size_t)count * sizeof(int);
  char *out = need_memory(block * (size_t)(p->out + 1)), *in = need_memory(block * (size_t)(p->in + 1));
  int *counts = need_memory(sizeof(int) * 8), *at = need_memory(sizeof(int) * 8);
  MPI_Aint* octets_at = need_memory(sizeof(MPI_Aint) * 8);
  MPI_Datatype* types = need_memory(sizeof(MPI_Datatype) * 8);
  MPI_Request request;
  for (int i = 0; i < 8; ++i) {
    counts[i] = count;
    at[i] = i * count;
    octets_at[i] = (MPI_Aint)block * i;
    types[i] = MPI_INT;
  }
  for (int call = 0; call < 5; ++call) {
    const bool gathers = call < 2;
    memset(in, 0x55, block * (size_t)p->in);
    if (gathers)
      fill(out, block, seed_of(rank, -1, (uint64_t)call));
    else
      for (int i = 0; i < p->out; ++i)
        fill(out + block * (size_t)i, block, seed_of(rank, p->targets[i], (uint64_t)call));
    switch (call) {
      case 0:
        if (later)
          MPI(MPI_Ineighbor_allgather(out, count, MPI_INT, in, count, MPI_INT, p->where, &request));
        else
          MPI(MPI_Neighbor_allgather(out, count, MPI_INT, in, count, MPI_INT, p->where));
        break;
      case 1:
        if (later)
          MPI(MPI_Ineighbor_allgatherv(out, count, MPI_INT, in, counts, at, MPI_INT, p->where, &request));
        else
          MPI(MPI_Neighbor_allgatherv(out, count, MPI_INT, in, counts, at, MPI_INT, p->where));
        break;
      case 2:
        if (later)
          MPI(MPI_Ineighbor_alltoall(out, count, MPI_INT, in, count, MPI_INT, p->where, &request));
        else
          MPI(MPI_Neighbor_alltoall(out, count, MPI_INT, in, count, MPI_INT, p->where));
        break;
      case 3:
        if (later)
          MPI(MPI_Ineighbor_alltoallv(out, counts, at, MPI_INT, in, counts, at, MPI_INT, p->where, &request));
        else
          MPI(MPI_Neighbor_alltoallv(out, counts, at, MPI_INT, in, counts, at, MPI_INT, p->where));
        break;
      default:
        if (later)
          MPI(MPI_Ineighbor_alltoallw(out, counts, octets_at, types, in, counts, octets_at, types, p->where, &request));
        else
          MPI(MPI_Neighbor_alltoallw(out, counts, octets_at, types, in, counts, octets_at, types, p->where));
    }
    if (later) MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
    for (int i = 0; i < p->in; ++i) {
      const int from = p->sources[i];
      char* got = in + block * (size_t)i;
      if (from == MPI_PROC_NULL)
        UNTOUCHED(got, block, 0x55, "block of no neighbour");
      else
        VERIFY(got, block, seed_of(from, gathers ? -1 : rank, (uint64_t)call), "neighbour's block");
    }
  }
  free(types);
  free(octets_at);
  free(at);
  free(counts);
  free(in);
  free(out);
}

void neighbourhood(void) {
  for (int kind = 0; kind < 4; ++kind) {
    struct place p = kind < 3 ? cart(kind == 2 ? 1 : 2, kind == 1) : graph();
    for (int count = 1; count <= 100000; count = count * 17 + 1)
      for (int later = 0; later < 2; ++later) exchange(&p, count, later);
    MPI(MPI_Comm_free(&p.where));
    if (p.targets != p.sources) free(p.targets);
    free(p.sources);
  }
}
