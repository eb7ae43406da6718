// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A wavefront of MPI ranks: the messages of NPB's LU. mpi_wavefront [--grid N] [--steps N] [--quick]
//
// Five values at each of N x N x N points; each rank has a slab of columns i. A step computes a residual, for which
// neighbours exchange two columns, and sweeps twice over it, towards higher and towards lower k: each plane k waits for
// the neighbour's column next to it (5 N doubles), solves a 5 x 5 system at each of its points, and sends its own last
// column on. N is 64 as in class A; 33, class W, has planes of a quarter of the time.
//
// The first rank computes the same alone; every value must be equal. A line of JSON says how long the steps took.
#define _GNU_SOURCE
#include <math.h>
#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kValues = 5, kGhosts = 2, kDown = 1, kUp = 2, kToLower = 3, kToHigher = 4 };

typedef double Cell[kValues];

// Columns first ... first + width - 1 of the grid, with kGhosts more on either side. What lies outside of the grid is
// 0.
typedef struct {
  int n, first, width;
  int lower, higher;  // the neighbours' ranks, or MPI_PROC_NULL
  Cell *u, *residual;
  Cell *out, *in;  // for messages: two faces at most
} Slab;

static int stride(const Slab* s) {
  return s->width + 2 * kGhosts;
}

// i from -kGhosts; j, k of the whole grid.
static Cell* at(const Slab* s, Cell* of, int i, int j, int k) {
  return &of[((size_t)k * (size_t)s->n + (size_t)j) * (size_t)stride(s) + (size_t)(i + kGhosts)];
}

static Cell* cells(size_t count) {
  Cell* c = calloc(count, sizeof *c);
  if (c == NULL) MPI_Abort(MPI_COMM_WORLD, 1);
  return c;
}

static Slab new_slab(int n, int first, int width, int lower, int higher) {
  Slab s = {.n = n, .first = first, .width = width, .lower = lower, .higher = higher};
  const size_t faces = (size_t)kGhosts * (size_t)n * (size_t)n;
  const size_t all = (size_t)n * (size_t)n * (size_t)stride(&s);
  s.u = cells(all), s.residual = cells(all), s.out = cells(faces), s.in = cells(faces);
  for (int k = 0; k < n; ++k)
    for (int j = 0; j < n; ++j)
      for (int i = 0; i < width; ++i)
        for (int v = 0; v < kValues; ++v)
          (*at(&s, s.u, i, j, k))[v] = 1 + 0.1 * sin(0.3 * (first + i) + 0.5 * j + 0.7 * k + v);
  return s;
}

static void free_slab(Slab* s) {
  free(s->u), free(s->residual), free(s->out), free(s->in);
}

// --- messages ---

// kGhosts columns from i on, of all j and k; true: into `packed`.
static void pack(const Slab* s, Cell* of, Cell* packed, int i, bool out) {
  for (int k = 0; k < s->n; ++k)
    for (int j = 0; j < s->n; ++j, packed += kGhosts) {
      Cell* const cell = at(s, of, i, j, k);
      out ? memcpy(packed, cell, kGhosts * sizeof *cell) : memcpy(cell, packed, kGhosts * sizeof *cell);
    }
}

// Our columns from i on to one neighbour, the other's into the ghosts from `ghosts` on.
static void shift(Slab* s, int to, int i, int from, int ghosts, int tag) {
  const int count = kGhosts * s->n * s->n * kValues;
  MPI_Request request;
  if (from != MPI_PROC_NULL) MPI_Irecv(s->in, count, MPI_DOUBLE, from, tag, MPI_COMM_WORLD, &request);
  if (to != MPI_PROC_NULL) {
    pack(s, s->u, s->out, i, true);
    MPI_Send(s->out, count, MPI_DOUBLE, to, tag, MPI_COMM_WORLD);
  }
  if (from == MPI_PROC_NULL) return;
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  pack(s, s->u, s->in, ghosts, false);
}

static void exchange_faces(Slab* s) {
  shift(s, s->higher, s->width - kGhosts, s->lower, -kGhosts, kToHigher);
  shift(s, s->lower, 0, s->higher, s->width, kToLower);
}

static void receive_column(Slab* s, int from, int i, int k, int tag) {
  if (from == MPI_PROC_NULL) return;
  MPI_Recv(s->in, s->n * kValues, MPI_DOUBLE, from, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  for (int j = 0; j < s->n; ++j) memcpy(at(s, s->residual, i, j, k), s->in[j], sizeof(Cell));
}

static void send_column(Slab* s, int to, int i, int k, int tag) {
  if (to == MPI_PROC_NULL) return;
  for (int j = 0; j < s->n; ++j) memcpy(s->out[j], at(s, s->residual, i, j, k), sizeof(Cell));
  MPI_Send(s->out, s->n * kValues, MPI_DOUBLE, to, tag, MPI_COMM_WORLD);
}

// --- arithmetic ---

// Of planes inside of the grid; what neighbours in i have is in the ghosts.
static void residuals(Slab* s) {
  for (int k = 1; k < s->n - 1; ++k)
    for (int j = 1; j < s->n - 1; ++j)
      for (int i = 0; i < s->width; ++i) {
        const Cell *c = at(s, s->u, i, j, k), *north = at(s, s->u, i, j + 1, k), *south = at(s, s->u, i, j - 1, k);
        const Cell *above = at(s, s->u, i, j, k + 1), *below = at(s, s->u, i, j, k - 1);
        for (int v = 0; v < kValues; ++v) {
          const double along = 16 * (c[-1][v] + c[1][v]) - (c[-2][v] + c[2][v]) - 30 * (*c)[v];
          const double across = (*north)[v] + (*south)[v] + (*above)[v] + (*below)[v] - 4 * (*c)[v];
          (*at(s, s->residual, i, j, k))[v] = 0.05 * (along / 12 + across + 1 - (*c)[v]);
        }
      }
}

// x = a^-1 x by elimination. Requires: the diagonal dominates.
static void solve(double a[kValues][kValues], Cell x) {
  for (int p = 0; p < kValues; ++p) {
    const double by = 1 / a[p][p];
    for (int row = p + 1; row < kValues; ++row) {
      const double factor = a[row][p] * by;
      for (int column = p + 1; column < kValues; ++column) a[row][column] -= factor * a[p][column];
      x[row] -= factor * x[p];
    }
  }
  for (int p = kValues - 1; p >= 0; --p) {
    for (int column = p + 1; column < kValues; ++column) x[p] -= a[p][column] * x[column];
    x[p] /= a[p][p];
  }
}

// One point, from what the sweep has made of its neighbours in i, j and k.
static void relax(Cell x, const Cell u, const Cell in_i, const Cell in_j, const Cell in_k) {
  double a[kValues][kValues];
  for (int row = 0; row < kValues; ++row)
    for (int column = 0; column < kValues; ++column) {
      const double coupling = 0.1 * u[row] * u[column] / (1 + u[column] * u[column]);
      a[row][column] = (row == column ? 3.5 : 0) + coupling;
      x[row] += coupling * (in_i[column] + 0.9 * in_j[column] + 0.8 * in_k[column]);
    }
  solve(a, x);
}

// by: 1 from the lower corner, -1 from the upper one.
static void sweep_plane(Slab* s, int k, int by) {
  for (int n = 1; n < s->n - 1; ++n)
    for (int m = 0; m < s->width; ++m) {
      const int i = by > 0 ? m : s->width - 1 - m, j = by > 0 ? n : s->n - 1 - n;
      relax(*at(s, s->residual, i, j, k), *at(s, s->u, i, j, k), *at(s, s->residual, i - by, j, k),
            *at(s, s->residual, i, j - by, k), *at(s, s->residual, i, j, k - by));
    }
}

static void sweep(Slab* s, int by) {
  const int from = by > 0 ? s->lower : s->higher, to = by > 0 ? s->higher : s->lower, tag = by > 0 ? kUp : kDown;
  for (int plane = 1; plane < s->n - 1; ++plane) {
    const int k = by > 0 ? plane : s->n - 1 - plane;
    receive_column(s, from, by > 0 ? -1 : s->width, k, tag);
    sweep_plane(s, k, by);
    send_column(s, to, by > 0 ? s->width - 1 : 0, k, tag);
  }
}

static void step(Slab* s) {
  exchange_faces(s);
  residuals(s);
  sweep(s, 1);
  sweep(s, -1);
  const size_t all = (size_t)s->n * (size_t)s->n * (size_t)stride(s);
  for (size_t c = 0; c < all; ++c)
    for (int v = 0; v < kValues; ++v) s->u[c][v] += s->residual[c][v];
}

// --- the job ---

static int first_of(int n, int rank, int ranks) {
  return (int)((long)n * rank / ranks);
}

// How many values of columns first ... first + width - 1 are others than those of the slab `mine`.
static long differences(const Slab* whole, const Slab* mine) {
  long count = 0;
  for (int k = 0; k < whole->n; ++k)
    for (int j = 0; j < whole->n; ++j)
      for (int i = 0; i < mine->width; ++i)
        for (int v = 0; v < kValues; ++v) {
          const double one = (*at(whole, whole->u, mine->first + i, j, k))[v], other = (*at(mine, mine->u, i, j, k))[v];
          count += !(fabs(one - other) <= 1e-12 * fabs(one));  // not a number differs, too
        }
  return count;
}

// By the first rank: all slabs against a computation without messages.
static long verify(Slab* mine, int steps, int ranks) {
  Slab whole = new_slab(mine->n, 0, mine->n, MPI_PROC_NULL, MPI_PROC_NULL);
  for (int t = 0; t < steps; ++t) step(&whole);
  long wrong = differences(&whole, mine);
  for (int r = 1; r < ranks; ++r) {
    const int first = first_of(mine->n, r, ranks), end = first_of(mine->n, r + 1, ranks);
    Slab theirs = new_slab(mine->n, first, end - first, MPI_PROC_NULL, MPI_PROC_NULL);
    const size_t all = (size_t)mine->n * (size_t)mine->n * (size_t)stride(&theirs);
    MPI_Recv(theirs.u, (int)(all * kValues), MPI_DOUBLE, r, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    wrong += differences(&whole, &theirs);
    free_slab(&theirs);
  }
  free_slab(&whole);
  return wrong;
}

static double timed(Slab* s, int steps) {
  MPI_Barrier(MPI_COMM_WORLD);
  const double began = MPI_Wtime();
  for (int t = 0; t < steps; ++t) step(s);
  MPI_Barrier(MPI_COMM_WORLD);
  return MPI_Wtime() - began;
}

int main(int argc, char** argv) {
  int n = 64, steps = 25, rank, ranks;
  for (int i = 1; i < argc; ++i) {
    if (strcmp(argv[i], "--quick") == 0) n = 16, steps = 3;
    if (strcmp(argv[i], "--grid") == 0 && i + 1 < argc) n = atoi(argv[i + 1]);
    if (strcmp(argv[i], "--steps") == 0 && i + 1 < argc) steps = atoi(argv[i + 1]);
  }
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (n < kGhosts * ranks || steps < 1) {
    fprintf(stderr, "mpi_wavefront: a grid of %d is too small for %d ranks, or there are no steps\n", n, ranks);
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  const int first = first_of(n, rank, ranks), width = first_of(n, rank + 1, ranks) - first;
  Slab mine =
      new_slab(n, first, width, rank > 0 ? rank - 1 : MPI_PROC_NULL, rank + 1 < ranks ? rank + 1 : MPI_PROC_NULL);
  const double seconds = timed(&mine, steps);
  long wrong = 0;
  if (rank == 0)
    wrong = verify(&mine, steps, ranks);
  else
    MPI_Send(mine.u, n * n * stride(&mine) * kValues, MPI_DOUBLE, 0, 0, MPI_COMM_WORLD);
  if (rank == 0)
    printf("{\"grid\": %d, \"steps\": %d, \"ranks\": %d, \"seconds\": %.6f, \"wrong\": %ld}\n", n, steps, ranks,
           seconds, wrong);
  free_slab(&mine);
  MPI_Finalize();
  return wrong == 0 ? 0 : 1;
}
