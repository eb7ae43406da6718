/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A wavefront: the processes are a grid, each with a block of a table in which an element is the sum of those to its
 * north and west. A process waits for its northern and western neighbours' edges, computes, and sends its own edges
 * south and east. The table is computed several times over, with other borders, and each block is compared with one
 * that a single process computes.
 *
 *   etherwarp mpirun -n 4 gravel_wavefront2d [EDGE [SWEEPS]]
 */
#include <gravel_mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NORTH, WEST, SOUTH, EAST, DIRECTIONS };

static int rank, neighbours[DIRECTIONS], place[2], dims[2];
static size_t edge = 64;
static uint32_t *block, *edges[DIRECTIONS]; /* edges: of the neighbours, and ours to the south and east */

static void must(int error, const char* what) {
  if (error == GRAVEL_SUCCESS) return;
  fprintf(stderr, "gravel_wavefront2d: process %d: %s: %s: %s\n", rank, what, gravel_strerror(error), gravel_reason());
  MPI_Abort(MPI_COMM_WORLD, 1);
}

/* From the edges to the north and west to those to the south and east. Sums are modulo 2^32. */
static void compute(void) {
  for (size_t i = 0; i < edge; ++i)
    for (size_t j = 0; j < edge; ++j) {
      const uint32_t north = i > 0 ? block[(i - 1) * edge + j] : edges[NORTH][j];
      const uint32_t west = j > 0 ? block[i * edge + j - 1] : edges[WEST][i];
      block[i * edge + j] = north + west;
    }
  memcpy(edges[SOUTH], block + (edge - 1) * edge, edge * sizeof *block);
  for (size_t i = 0; i < edge; ++i) edges[EAST][i] = block[i * edge + edge - 1];
}

static void fill(uint32_t* border, int sweep) {
  for (size_t i = 0; i < edge; ++i) border[i] = (uint32_t)(sweep + 1);
}

static int has(int direction) {
  return neighbours[direction] != MPI_PROC_NULL;
}

static void post_receive(int direction, gravel_request* r) {
  *r = GRAVEL_REQUEST_NULL;
  if (has(direction))
    must(gravel_post_rcv_buffer_rdma(neighbours[direction], edges[direction], edge * sizeof *block, direction, r),
         "post_rcv_buffer_rdma");
}

/* The neighbour to the south has this process to its north. */
static void send_edge(int direction, gravel_request* r) {
  int proc = neighbours[direction], tag = direction - SOUTH + NORTH;
  size_t size;
  *r = GRAVEL_REQUEST_NULL;
  if (!has(direction)) return;
  must(gravel_wait_rcv_buffer(&proc, &tag, &size, r), "wait_rcv_buffer");
  must(gravel_post_os_put(*r, edges[direction], size, 0), "post_os_put");
  must(gravel_send_fin(*r), "send_fin");
}

static void sweep_once(int sweep) {
  gravel_request in[2], out[2];
  for (int d = NORTH; d <= WEST; ++d) {
    post_receive(d, &in[d]);
    if (!has(d)) fill(edges[d], sweep);
  }
  must(gravel_waitall(2, in), "waitall");
  compute();
  send_edge(SOUTH, &out[0]);
  send_edge(EAST, &out[1]);
  must(gravel_waitall(2, out), "waitall");
}

/* The whole table, row by row. */
static long wrong(int sweep) {
  const size_t rows = edge * (size_t)dims[0], columns = edge * (size_t)dims[1];
  const size_t top = edge * (size_t)place[0], left = edge * (size_t)place[1];
  uint32_t* row = malloc(columns * sizeof *row);
  long bad = 0;
  for (size_t j = 0; j < columns; ++j) row[j] = (uint32_t)(sweep + 1);
  for (size_t i = 0; i < rows; ++i) {
    for (size_t j = 0; j < columns; ++j) row[j] += j > 0 ? row[j - 1] : (uint32_t)(sweep + 1);
    if (i >= top && i < top + edge) bad += memcmp(row + left, block + (i - top) * edge, edge * sizeof *row) != 0;
  }
  free(row);
  return bad;
}

static void find_place(void) {
  int procs, periods[2] = {0, 0};
  MPI_Comm grid;
  MPI_Comm_size(MPI_COMM_WORLD, &procs);
  MPI_Dims_create(procs, 2, dims);
  MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 0, &grid);
  MPI_Cart_coords(grid, rank, 2, place);
  MPI_Cart_shift(grid, 0, 1, &neighbours[NORTH], &neighbours[SOUTH]);
  MPI_Cart_shift(grid, 1, 1, &neighbours[WEST], &neighbours[EAST]);
  must(gravel_init(grid), "init");
  MPI_Comm_free(&grid);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (argc > 1) edge = strtoul(argv[1], NULL, 0);
  const int sweeps = argc > 2 ? atoi(argv[2]) : 20;
  find_place();
  block = malloc(edge * edge * sizeof *block);
  for (int d = 0; d < DIRECTIONS; ++d) {
    edges[d] = malloc(edge * sizeof *block);
    must(gravel_register_buffer(edges[d], edge * sizeof *block), "register_buffer");
  }
  long bad = 0, all;
  for (int sweep = 0; sweep < sweeps; ++sweep) {
    sweep_once(sweep);
    bad += wrong(sweep);
  }
  MPI_Allreduce(&bad, &all, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
  must(gravel_finalize(), "finalize");
  if (rank == 0)
    printf("gravel_wavefront2d: %d x %d processes, %d sweeps of %zu x %zu elements each: %s\n", dims[0], dims[1],
           sweeps, edge, edge, all == 0 ? "verified" : "WRONG");
  MPI_Finalize();
  for (int d = 0; d < DIRECTIONS; ++d) free(edges[d]);
  free(block);
  return all != 0;
}
