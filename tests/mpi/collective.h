// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Collectives as jobs: prepared, begun (blocking, or with a request) and verified apart, so that many can be under way.
#ifndef EWARP_TESTS_MPI_COLLECTIVE_H
#define EWARP_TESTS_MPI_COLLECTIVE_H

#include "suite.h"

struct job;
struct collective {
  const char* name;
  void (*begin)(struct job*);
  void (*verify)(struct job*);
  bool rooted, in_place;
};

struct job {
  const struct collective* what;
  int count;  // elements a rank or a block
  int root;
  bool in_place;
  uint64_t step;         // makes the data of one job unlike another's
  MPI_Request* request;  // NULL: blocking

  char *in, *out;  // room for size blocks of count + 2 elements, and gaps, each
  size_t octets;   // of each
  int *counts, *at, *counts_out, *at_out;
  MPI_Datatype* types;
};

extern const struct collective kMovements[], kReductions[];
extern const int kMovementsCount, kReductionsCount;

// Prepares and begins; with a request it returns at once.
void job_begin(struct job* j);
// Verifies what came and frees; the request is done.
void job_end(struct job* j);

// An MPI collective, or its non-blocking form with the job's request.
#define COLLECTIVE(j, blocking, nonblocking, ...) \
  MPI((j)->request == NULL ? blocking(__VA_ARGS__, comm) : nonblocking(__VA_ARGS__, comm, (j)->request))

#endif
