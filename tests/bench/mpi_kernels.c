// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#define _GNU_SOURCE
#include "mpi_kernels.h"

#include <complex.h>
#include <math.h>
#include <mpi.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "timing.h"

enum { kMostRanks = 8, kMostIterations = 64 };

typedef struct {
  MPI_Comm comm;
  int rank, ranks;
} Group;

static Group group(MPI_Comm comm) {
  Group g = {.comm = comm};
  MPI_Comm_rank(comm, &g.rank);
  MPI_Comm_size(comm, &g.ranks);
  return g;
}

static void* zeros(size_t count, size_t octets) {
  void* p = calloc(count, octets);
  if (p == NULL) MPI_Abort(MPI_COMM_WORLD, 1);
  return p;
}

static double sum(const Group* g, double mine) {
  double all;
  MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, g->comm);
  return all;
}

// The median of iterations, the first left out; negative: a rank says that its result is wrong.
typedef struct {
  double began, took[kMostIterations];
  int count;
} Watch;

static void start(const Group* g, Watch* w) {
  MPI_Barrier(g->comm);
  w->began = now_us();
}

static void stop(const Group* g, Watch* w) {
  double took = now_us() - w->began;
  MPI_Allreduce(MPI_IN_PLACE, &took, 1, MPI_DOUBLE, MPI_MAX, g->comm);
  if (w->count < kMostIterations) w->took[w->count++] = took;
}

static double verdict(const Group* g, Watch* w, bool right) {
  int all = right;
  MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_MIN, g->comm);
  if (!all) return -1;
  qsort(w->took + 1, (size_t)w->count - 1, sizeof *w->took, ascending);
  return w->took[1 + (w->count - 1) / 2];
}

// --- CG ---

enum { kBands = 5 };

// Rows of a symmetric matrix with 11 values in a row: 11.5 on the diagonal, -1 at these distances from it, in a ring.
typedef struct {
  int n, first, rows;
  int distance[kBands];
} Matrix;

static void multiply(const Matrix* m, const double* whole, double* out) {
  for (int i = 0; i < m->rows; ++i) {
    const int row = m->first + i;
    double value = 11.5 * whole[row];
    for (int k = 0; k < kBands; ++k) {
      const int up = row + m->distance[k], down = row - m->distance[k];
      value -= whole[up < m->n ? up : up - m->n] + whole[down >= 0 ? down : down + m->n];
    }
    out[i] = value;
  }
}

static double dot(const double* a, const double* b, int n) {
  double s = 0;
  for (int i = 0; i < n; ++i) s += a[i] * b[i];
  return s;
}

static void gather(const Group* g, const double* mine, double* whole, int rows) {
  MPI_Allgather(mine, rows, MPI_DOUBLE, whole, rows, MPI_DOUBLE, g->comm);
}

double kernel_cg(bool quick) {
  const Group g = group(MPI_COMM_WORLD);
  const int n = quick ? 512 : 7168, steps = quick ? 40 : 60;
  Matrix m = {.n = n, .rows = n / g.ranks, .distance = {1, n / 7, n / 5, n / 3, n / 2 - 1}};
  m.first = g.rank * m.rows;
  double *x = zeros((size_t)m.rows, sizeof *x), *r = zeros((size_t)m.rows, sizeof *r),
         *p = zeros((size_t)m.rows, sizeof *p), *q = zeros((size_t)m.rows, sizeof *q),
         *whole = zeros((size_t)n, sizeof *whole);
  for (int i = 0; i < m.rows; ++i) r[i] = p[i] = sin(0.37 * (m.first + i)) + 1;
  const double begin = sum(&g, dot(r, r, m.rows));
  double rho = begin;
  Watch w = {0};
  for (int step = 0; step < steps; ++step) {
    start(&g, &w);
    gather(&g, p, whole, m.rows);
    multiply(&m, whole, q);
    const double alpha = rho / sum(&g, dot(p, q, m.rows));
    for (int i = 0; i < m.rows; ++i) x[i] += alpha * p[i], r[i] -= alpha * q[i];
    const double next = sum(&g, dot(r, r, m.rows)), beta = next / rho;
    for (int i = 0; i < m.rows; ++i) p[i] = r[i] + beta * p[i];
    stop(&g, &w);
    rho = next;
    if (rho < begin * 1e-24) rho = next, step = steps;  // the rest would divide by nothing
  }
  gather(&g, x, whole, m.rows);
  multiply(&m, whole, q);
  double off = 0;
  for (int i = 0; i < m.rows; ++i) {
    const double e = q[i] - (sin(0.37 * (m.first + i)) + 1);
    off += e * e;
  }
  const bool right = sum(&g, off) < begin * 1e-12;
  free(x), free(r), free(p), free(q), free(whole);
  return verdict(&g, &w, right);
}

// --- MG ---

// n x n x (n / ranks) values of a cube that goes on at its other side; a plane more below and above.
typedef struct {
  int n, planes;
  double *u, *f, *residual;
} Level;

static size_t plane(const Level* l) {
  return (size_t)l->n * (size_t)l->n;
}

static Level level(const Group* g, int n) {
  Level l = {.n = n, .planes = n / g->ranks};
  const size_t all = plane(&l) * (size_t)(l.planes + 2);
  l.u = zeros(all, sizeof *l.u), l.f = zeros(all, sizeof *l.f), l.residual = zeros(all, sizeof *l.residual);
  return l;
}

static void exchange(const Group* g, const Level* l, double* of) {
  const int below = (g->rank + g->ranks - 1) % g->ranks, above = (g->rank + 1) % g->ranks, count = (int)plane(l);
  double* const last = of + plane(l) * (size_t)l->planes;
  MPI_Sendrecv(last, count, MPI_DOUBLE, above, 0, of, count, MPI_DOUBLE, below, 0, g->comm, MPI_STATUS_IGNORE);
  MPI_Sendrecv(of + plane(l), count, MPI_DOUBLE, below, 1, last + plane(l), count, MPI_DOUBLE, above, 1, g->comm,
               MPI_STATUS_IGNORE);
}

// residual = f - A u of the seven-point Laplacian, negated.
static void residual(const Group* g, const Level* l) {
  const int n = l->n;
  exchange(g, l, l->u);
  for (int k = 1; k <= l->planes; ++k)
    for (int j = 0; j < n; ++j) {
      const size_t row = plane(l) * (size_t)k + (size_t)(j * n);
      const double *here = l->u + row, *south = l->u + plane(l) * (size_t)k + (size_t)((j + n - 1) % n * n),
                   *north = l->u + plane(l) * (size_t)k + (size_t)((j + 1) % n * n);
      for (int i = 0; i < n; ++i)
        l->residual[row + (size_t)i] =
            l->f[row + (size_t)i] - (6 * here[i] - here[i > 0 ? i - 1 : n - 1] - here[i < n - 1 ? i + 1 : 0] -
                                     south[i] - north[i] - here[i - (long)plane(l)] - here[i + (long)plane(l)]);
    }
}

static void smooth(const Group* g, const Level* l) {
  residual(g, l);
  for (size_t i = plane(l); i < plane(l) * (size_t)(l->planes + 1); ++i) l->u[i] += 0.8 / 6 * l->residual[i];
}

// Eight points of the finer grid are one of the coarser; to_coarse: the sum of their residuals, halved, is the other's
// f.
static void between(const Level* fine, const Level* coarse, bool to_coarse) {
  for (int k = 0; k < fine->planes; ++k)
    for (int j = 0; j < fine->n; ++j)
      for (int i = 0; i < fine->n; ++i) {
        const size_t here = plane(fine) * (size_t)(k + 1) + (size_t)(j * fine->n + i);
        const size_t there = plane(coarse) * (size_t)(k / 2 + 1) + (size_t)(j / 2 * coarse->n + i / 2);
        if (to_coarse)
          coarse->f[there] += fine->residual[here] / 4;
        else
          fine->u[here] += coarse->u[there];
      }
}

static void cycle(const Group* g, Level* levels, int count) {
  for (int at = 0; at + 1 < count; ++at) {
    smooth(g, &levels[at]);
    residual(g, &levels[at]);
    const size_t all = plane(&levels[at + 1]) * (size_t)(levels[at + 1].planes + 2);
    memset(levels[at + 1].f, 0, all * sizeof(double));
    memset(levels[at + 1].u, 0, all * sizeof(double));
    between(&levels[at], &levels[at + 1], true);
  }
  for (int i = 0; i < 8; ++i) smooth(g, &levels[count - 1]);
  for (int at = count - 2; at >= 0; --at) {
    between(&levels[at], &levels[at + 1], false);
    smooth(g, &levels[at]);
  }
}

// The norm of what is left after so many cycles.
static double multigrid(const Group* g, int n, int cycles, Watch* w) {
  enum { kMostLevels = 8 };
  Level levels[kMostLevels];
  int count = 0;
  // The same levels whatever the number of ranks, so that all compute the same.
  for (int size = n; size >= kMostRanks && count < kMostLevels; size /= 2) levels[count++] = level(g, size);
  const Level* top = &levels[0];
  for (int k = 0; k < top->planes; ++k)
    for (size_t i = 0; i < plane(top); ++i) {
      const size_t z = (size_t)(g->rank * top->planes + k);
      top->f[plane(top) * (size_t)(k + 1) + i] = (i * 7 + z * 3) % 64 == 5 ? 1 : (i * 7 + z * 3) % 64 == 41 ? -1 : 0;
    }
  for (int i = 0; i < cycles; ++i) {
    if (w != NULL) start(g, w);
    cycle(g, levels, count);
    if (w != NULL) stop(g, w);
  }
  residual(g, top);
  double left = 0;
  for (size_t i = plane(top); i < plane(top) * (size_t)(top->planes + 1); ++i)
    left += top->residual[i] * top->residual[i];
  while (count > 0) --count, free(levels[count].u), free(levels[count].f), free(levels[count].residual);
  return sqrt(sum(g, left));
}

double kernel_mg(bool quick) {
  const Group g = group(MPI_COMM_WORLD), alone = group(MPI_COMM_SELF);
  const int n = quick ? 16 : 128, cycles = quick ? 5 : 25;
  Watch w = {0};
  const double before = multigrid(&g, n, 0, NULL), here = multigrid(&g, n, cycles, &w),
               expected = multigrid(&alone, n, cycles, NULL);
  return verdict(&g, &w, here < before / 2 && fabs(here - expected) <= 1e-9 * before);
}

// --- IS ---

enum { kBuckets = 1024, kKeyBits = 16 };

static void scan(const int* counts, int* begins, int n) {
  for (int i = 0, at = 0; i < n; at += counts[i++]) begins[i] = at;
}

double kernel_is(bool quick) {
  const Group g = group(MPI_COMM_WORLD);
  const int total = quick ? 1 << 12 : 1 << 20, mine = total / g.ranks, steps = quick ? 5 : 30;
  const int shift = kKeyBits - 10;  // of a key, to its bucket
  int32_t *keys = zeros((size_t)mine, 4), *packed = zeros((size_t)mine, 4), *got = zeros((size_t)total, 4);
  int *held = zeros(1 << kKeyBits, sizeof *held), counts[kBuckets], all[kBuckets], owner[kBuckets];
  int out[kMostRanks], out_at[kMostRanks], in[kMostRanks], in_at[kMostRanks], place[kMostRanks];
  Watch w = {0};
  bool right = true;
  uint64_t random = 88172645463325252u + (uint64_t)g.rank;
  for (int i = 0; i < mine; ++i) {
    int32_t key = 0;  // of four, so that the middle is more frequent
    for (int k = 0; k < 4; ++k) {
      random ^= random << 13, random ^= random >> 7, random ^= random << 17;
      key += (int32_t)(random >> 40 & ((1 << (kKeyBits - 2)) - 1));
    }
    keys[i] = key;
  }
  for (int step = 0; step < steps; ++step) {
    keys[step % mine] = step;
    start(&g, &w);
    memset(counts, 0, sizeof counts);
    for (int i = 0; i < mine; ++i) ++counts[keys[i] >> shift];
    MPI_Allreduce(counts, all, kBuckets, MPI_INT, MPI_SUM, g.comm);
    memset(out, 0, sizeof out);
    for (int b = 0, before = 0; b < kBuckets; before += all[b++]) {
      owner[b] = (int)((int64_t)before * g.ranks / total);
      out[owner[b]] += counts[b];
    }
    scan(out, out_at, g.ranks);
    memcpy(place, out_at, sizeof place);
    for (int i = 0; i < mine; ++i) packed[place[owner[keys[i] >> shift]]++] = keys[i];
    MPI_Alltoall(out, 1, MPI_INT, in, 1, MPI_INT, g.comm);
    scan(in, in_at, g.ranks);
    MPI_Alltoallv(packed, out, out_at, MPI_INT32_T, got, in, in_at, MPI_INT32_T, g.comm);
    const int n = in_at[g.ranks - 1] + in[g.ranks - 1];
    memset(held, 0, sizeof *held << kKeyBits);
    for (int i = 0; i < n; ++i) ++held[got[i]];
    stop(&g, &w);
    int sorted = 0;
    for (int key = 0; key < 1 << kKeyBits; ++key) {
      if (held[key] > 0 && owner[key >> shift] != g.rank) right = false;
      sorted += held[key];
    }
    right = right && (int)sum(&g, sorted) == total;
  }
  free(keys), free(packed), free(got), free(held);
  return verdict(&g, &w, right);
}

// --- FT ---

typedef double complex Complex;

// In place, n a power of two; roots: n / 2 of them, of this direction.
static void transform(Complex* x, int n, const Complex* roots) {
  for (int i = 1, j = 0; i < n; ++i) {
    int bit = n >> 1;
    for (; (j & bit) != 0; bit >>= 1) j ^= bit;
    j ^= bit;
    if (i < j) {
      const Complex t = x[i];
      x[i] = x[j], x[j] = t;
    }
  }
  for (int length = 2; length <= n; length *= 2)
    for (int i = 0; i < n; i += length)
      for (int k = 0; k < length / 2; ++k) {
        const Complex a = x[i + k], r = roots[k * (n / length)], b = x[i + k + length / 2];
        const Complex t = CMPLX(creal(r) * creal(b) - cimag(r) * cimag(b), creal(r) * cimag(b) + cimag(r) * creal(b));
        x[i + k] = a + t, x[i + k + length / 2] = a - t;
      }
}

// Rows become columns: a block for each rank, in which the rows of `from` stand transposed.
static void transpose(const Group* g, Complex* x, Complex* packed, Complex* got, int n) {
  const int rows = n / g->ranks;
  for (int r = 0; r < g->ranks; ++r)
    for (int i = 0; i < rows; ++i)
      for (int j = 0; j < rows; ++j)
        packed[(r * rows + j) * rows + i] = x[(size_t)i * (size_t)n + (size_t)(r * rows + j)];
  MPI_Alltoall(packed, 2 * rows * rows, MPI_DOUBLE, got, 2 * rows * rows, MPI_DOUBLE, g->comm);
  for (int r = 0; r < g->ranks; ++r)
    for (int j = 0; j < rows; ++j)
      memcpy(x + (size_t)j * (size_t)n + (size_t)(r * rows), got + (r * rows + j) * rows, (size_t)rows * sizeof *x);
}

double kernel_ft(bool quick) {
  const Group g = group(MPI_COMM_WORLD);
  const int n = quick ? 32 : 512, rows = n / g.ranks, steps = quick ? 3 : 15;
  const size_t all = (size_t)rows * (size_t)n;
  Complex *x = zeros(all, sizeof *x), *first = zeros(all, sizeof *x), *packed = zeros(all, sizeof *x),
          *got = zeros(all, sizeof *x), *roots[2];
  for (int back = 0; back < 2; ++back) {
    roots[back] = zeros((size_t)n / 2, sizeof *x);
    for (int k = 0; k < n / 2; ++k) roots[back][k] = cexp(CMPLX(0, (back ? 2 : -2) * M_PI * k / n));
  }
  for (size_t i = 0; i < all; ++i) first[i] = x[i] = CMPLX(sin(0.1 * (double)i + g.rank), cos(0.3 * (double)i));
  Watch w = {0};
  double worst = 0;
  for (int step = 0; step < steps; ++step) {
    start(&g, &w);
    for (int back = 0; back < 2; ++back) {
      for (int i = 0; i < rows; ++i) transform(x + (size_t)i * (size_t)n, n, roots[back]);
      transpose(&g, x, packed, got, n);
      for (int i = 0; i < rows; ++i) transform(x + (size_t)i * (size_t)n, n, roots[back]);
    }
    stop(&g, &w);
    for (size_t i = 0; i < all; ++i) x[i] /= (double)n * n;
  }
  for (size_t i = 0; i < all; ++i) worst = fmax(worst, cabs(x[i] - first[i]));
  free(x), free(first), free(packed), free(got), free(roots[0]), free(roots[1]);
  return verdict(&g, &w, worst < 1e-9);
}
