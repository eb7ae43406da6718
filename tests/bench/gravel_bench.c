/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The paper's micro-benchmarks (Danalis et al. 2008, figures 3 and 4): a 1D ring and a 2D wavefront, whose messages go
 * by MPI or by Gravel, as a whole, tile by tile, or tile by tile behind one handshake.
 *
 *   gravel_bench ring|wavefront ELEMENTS TILES COLD TIMED RUNS WAY...
 *
 * A line of JSON for each way and run: the seconds of TIMED iterations, behind COLD ones that are not timed.
 */
#include <gravel_mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_NEIGHBOURS = 2, MOST_TILES = 64, PATTERN = 128 };
/* Tags: of a tile t in direction d t * MOST_NEIGHBOURS + d. */

static int rank, directions, from[MOST_NEIGHBOURS], to[MOST_NEIGHBOURS];
static size_t elements, tiles;
static double pattern[PATTERN], used[PATTERN];
static double *in[MOST_NEIGHBOURS], *out[MOST_NEIGHBOURS];

static void must(int error, const char* what) {
  if (error == 0) return;
  fprintf(stderr, "gravel_bench: %s: %s\n", what, gravel_reason());
  MPI_Abort(MPI_COMM_WORLD, 1);
}

/* --- what is computed: figure 3's copies --- */

static void fill(double* buffer, size_t begin, size_t end) {
  for (size_t i = begin; i < end; ++i) buffer[i] = pattern[i % PATTERN];
}

static void fill_all(size_t begin, size_t end) {
  for (int d = 0; d < directions; ++d) fill(out[d], begin, end);
}

static void use_all(void) {
  for (int d = 0; d < directions; ++d)
    for (size_t i = 0; i < elements; ++i) used[i % PATTERN] = in[d][i];
}

static size_t at(size_t tile, size_t count) {
  return elements * tile / count;
}
static size_t octets(size_t tile, size_t count) {
  return (at(tile + 1, count) - at(tile, count)) * sizeof(double);
}
static int tag_of(size_t tile, int d) {
  return (int)tile * MOST_NEIGHBOURS + d;
}

static void compute_only(size_t count) {
  (void)count;
  fill_all(0, elements);
  use_all();
}

/* --- MPI: whole messages are one tile --- */

static void by_mpi(size_t count) {
  MPI_Request receives[MOST_NEIGHBOURS * MOST_TILES], sends[MOST_NEIGHBOURS * MOST_TILES];
  int r = 0, s = 0;
  for (size_t t = 0; t < count; ++t)
    for (int d = 0; d < directions; ++d)
      MPI_Irecv(in[d] + at(t, count), (int)octets(t, count), MPI_BYTE, from[d], tag_of(t, d), MPI_COMM_WORLD,
                &receives[r++]);
  for (size_t t = 0; t < count; ++t) {
    fill_all(at(t, count), at(t + 1, count));
    for (int d = 0; d < directions; ++d)
      MPI_Isend(out[d] + at(t, count), (int)octets(t, count), MPI_BYTE, to[d], tag_of(t, d), MPI_COMM_WORLD,
                &sends[s++]);
  }
  MPI_Waitall(r, receives, MPI_STATUSES_IGNORE);
  use_all();
  MPI_Waitall(s, sends, MPI_STATUSES_IGNORE);
}

/* --- Gravel, consumer-initiated Write --- */

static int post_receives(size_t count, gravel_request* r) {
  int n = 0;
  for (size_t t = 0; t < count; ++t)
    for (int d = 0; d < directions; ++d)
      if (from[d] != MPI_PROC_NULL)
        must(gravel_post_rcv_buffer_rdma(from[d], in[d] + at(t, count), octets(t, count), tag_of(t, d), &r[n++]),
             "post_rcv");
  return n;
}

static void wait_receive_buffer(int d, int tag, gravel_request* r) {
  int proc = to[d];
  size_t size;
  must(gravel_wait_rcv_buffer(&proc, &tag, &size, r), "wait_rcv_buffer");
}

static void put(gravel_request r, int d, size_t t, size_t count, size_t offset) {
  must(gravel_post_os_put(r, out[d] + at(t, count), octets(t, count), offset), "post_os_put");
}

static void by_write(size_t count) {
  gravel_request receives[MOST_NEIGHBOURS * MOST_TILES], puts[MOST_NEIGHBOURS * MOST_TILES];
  const int r = post_receives(count, receives);
  int p = 0;
  for (size_t t = 0; t < count; ++t) {
    fill_all(at(t, count), at(t + 1, count));
    for (int d = 0; d < directions; ++d) {
      if (to[d] == MPI_PROC_NULL) continue;
      wait_receive_buffer(d, tag_of(t, d), &puts[p]);
      put(puts[p], d, t, count, 0);
      must(gravel_send_fin(puts[p++]), "send_fin");
    }
  }
  must(gravel_waitall(r, receives), "waitall");
  use_all();
  must(gravel_waitall(p, puts), "waitall");
}

/* One handshake and many puts: the paper's figure 2C. */
static void by_many_puts(size_t count) {
  gravel_request receives[MOST_NEIGHBOURS], puts[MOST_NEIGHBOURS] = {0};
  const int r = post_receives(1, receives);
  for (size_t t = 0; t < count; ++t) {
    fill_all(at(t, count), at(t + 1, count));
    for (int d = 0; d < directions; ++d) {
      if (to[d] == MPI_PROC_NULL) continue;
      if (t == 0) wait_receive_buffer(d, tag_of(0, d), &puts[d]);
      put(puts[d], d, t, count, at(t, count) * sizeof(double));
      if (t == count - 1) must(gravel_send_fin(puts[d]), "send_fin");
    }
  }
  must(gravel_waitall(r, receives), "waitall");
  use_all();
  must(gravel_waitall(directions, puts), "waitall");
}

/* --- Gravel, producer-initiated Read --- */

static int offer(size_t t, size_t count, gravel_request* r) {
  int n = 0;
  for (int d = 0; d < directions; ++d)
    if (to[d] != MPI_PROC_NULL)
      must(gravel_post_send_buffer_rdma(to[d], out[d] + at(t, count), octets(t, count), tag_of(t, d), &r[n++]),
           "post_send");
  return n;
}

static int fetch(size_t t, size_t count, gravel_request* r) {
  int n = 0;
  for (int d = 0; d < directions; ++d) {
    int proc = from[d], tag = tag_of(t, d);
    size_t size;
    if (proc == MPI_PROC_NULL) continue;
    must(gravel_wait_send_buffer_rdma(&proc, &tag, &size, &r[n]), "wait_send_buffer");
    must(gravel_post_os_get(r[n++], in[d] + at(t, count), size, 0), "post_os_get");
  }
  return n;
}

static void by_read(size_t count) {
  gravel_request offers[MOST_NEIGHBOURS * MOST_TILES], fetches[MOST_NEIGHBOURS * MOST_TILES];
  int o = 0, f = 0;
  for (size_t t = 0; t < count; ++t) {
    fill_all(at(t, count), at(t + 1, count));
    o += offer(t, count, &offers[o]);
    if (t > 0) f += fetch(t - 1, count, &fetches[f]);
  }
  f += fetch(count - 1, count, &fetches[f]);
  must(gravel_waitall(f, fetches), "waitall");
  use_all();
  must(gravel_waitall(o, offers), "waitall");
}

/* --- runs --- */

static const struct way {
  const char* name;
  void (*iterate)(size_t count);
  int strips;
} kWays[] = {
    {"compute", compute_only, 0}, {"mpi", by_mpi, 0},
    {"write", by_write, 0},       {"read", by_read, 0},
    {"mpi-strips", by_mpi, 1},    {"write-strips", by_write, 1},
    {"read-strips", by_read, 1},  {"one-handshake", by_many_puts, 1},
};

static const struct way* way_of(const char* name) {
  for (size_t i = 0; i < sizeof kWays / sizeof *kWays; ++i)
    if (strcmp(kWays[i].name, name) == 0) return &kWays[i];
  fprintf(stderr, "gravel_bench: no way %s\n", name);
  MPI_Abort(MPI_COMM_WORLD, 2);
  return NULL;
}

static void verify(const char* way) {
  for (int d = 0; d < directions; ++d) {
    if (from[d] == MPI_PROC_NULL) continue;
    for (size_t i = 0; i < elements; ++i)
      if (in[d][i] != from[d] * 1000.0 + (double)(i % PATTERN)) must(1, way);
    memset(in[d], 0, elements * sizeof(double));
  }
}

static void run(const char* benchmark, const struct way* way, int cold, int timed) {
  const size_t count = way->strips ? tiles : 1;
  double took, longest;
  for (int i = 0; i < cold; ++i) way->iterate(count);
  MPI_Barrier(MPI_COMM_WORLD);
  const double began = MPI_Wtime();
  for (int i = 0; i < timed; ++i) way->iterate(count);
  took = MPI_Wtime() - began;
  MPI_Reduce(&took, &longest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  if (way->iterate != compute_only) verify(way->name);
  MPI_Barrier(MPI_COMM_WORLD); /* nobody writes before all have verified */
  if (rank == 0)
    printf("{\"benchmark\": \"%s\", \"way\": \"%s\", \"octets\": %zu, \"tiles\": %zu, \"seconds\": %.9f}\n", benchmark,
           way->name, elements * sizeof(double), count, longest);
}

static void find_neighbours(const char* benchmark, int procs) {
  int dims[2] = {0, 0}, periods[2] = {0, 0};
  MPI_Comm grid;
  if (strcmp(benchmark, "ring") == 0) {
    directions = 1;
    from[0] = (rank + procs - 1) % procs;
    to[0] = (rank + 1) % procs;
    return;
  }
  directions = 2;
  MPI_Dims_create(procs, 2, dims);
  MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 0, &grid);
  for (int d = 0; d < 2; ++d) MPI_Cart_shift(grid, d, 1, &from[d], &to[d]);
  MPI_Comm_free(&grid);
}

static int uses_gravel(int ways, char** names) {
  int any = 0;
  for (int i = 0; i < ways; ++i) any |= strncmp(names[i], "mpi", 3) != 0 && strcmp(names[i], "compute") != 0;
  return any;
}

int main(int argc, char** argv) {
  int procs;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &procs);
  if (argc < 8) MPI_Abort(MPI_COMM_WORLD, 2);
  elements = strtoul(argv[2], NULL, 0);
  tiles = strtoul(argv[3], NULL, 0);
  if (tiles < 1 || tiles > MOST_TILES) MPI_Abort(MPI_COMM_WORLD, 2);
  const int cold = atoi(argv[4]), timed = atoi(argv[5]), runs = atoi(argv[6]), gravel = uses_gravel(argc - 7, argv + 7);
  find_neighbours(argv[1], procs);
  if (gravel) must(gravel_init(MPI_COMM_WORLD), "init");
  for (int i = 0; i < PATTERN; ++i) pattern[i] = rank * 1000.0 + i;
  for (int d = 0; d < directions; ++d) {
    in[d] = calloc(elements, sizeof(double));
    out[d] = calloc(elements, sizeof(double));
    if (!gravel) continue;
    must(gravel_register_buffer(in[d], elements * sizeof(double)), "register_buffer");
    must(gravel_register_buffer(out[d], elements * sizeof(double)), "register_buffer");
  }
  for (int i = 0; i < runs; ++i)
    for (int w = 7; w < argc; ++w) run(argv[1], way_of(argv[w]), cold, timed);
  if (gravel) must(gravel_finalize(), "finalize");
  MPI_Finalize();
  for (int d = 0; d < directions; ++d) {
    free(in[d]);
    free(out[d]);
  }
  return used[0] < 0;
}
