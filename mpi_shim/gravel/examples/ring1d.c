/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A ring: every process receives from the one before and sends to the one behind, by each of Gravel's protocols in
 * turn, and looks at every element.
 *
 *   etherwarp mpirun -n 4 gravel_ring1d [ELEMENTS [ROUNDS]]
 */
#include <gravel_mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { TAG = 3, STRIPS = 4 };

static int rank, procs, previous, next;
static size_t elements = 4096;
static double *in, *out;

static void must(int error, const char* what) {
  if (error == GRAVEL_SUCCESS) return;
  fprintf(stderr, "gravel_ring1d: process %d: %s: %s: %s\n", rank, what, gravel_strerror(error), gravel_reason());
  MPI_Abort(MPI_COMM_WORLD, 1);
}

static double value(int of, int round, size_t i) {
  return of * 1e6 + round * 1e3 + (double)(i % 997);
}

static void compute(int round, size_t begin, size_t end) {
  for (size_t i = begin; i < end; ++i) out[i] = value(rank, round, i);
}

static void post_receive(gravel_request* r) {
  must(gravel_post_rcv_buffer_rdma(previous, in, elements * sizeof *in, TAG, r), "post_rcv_buffer_rdma");
}

static void wait_receive_buffer(gravel_request* r) {
  int proc = next, tag = TAG;
  size_t size;
  must(gravel_wait_rcv_buffer(&proc, &tag, &size, r), "wait_rcv_buffer");
}

/* The consumer begins: its buffer is known before the data is there. */
static void consumer_initiated(int round, size_t strips) {
  gravel_request r[2];
  post_receive(&r[0]);
  wait_receive_buffer(&r[1]);
  for (size_t s = 0; s < strips; ++s) {
    const size_t begin = elements * s / strips, end = elements * (s + 1) / strips;
    compute(round, begin, end);
    must(gravel_post_os_put(r[1], out + begin, (end - begin) * sizeof *out, begin * sizeof *out), "post_os_put");
  }
  must(gravel_send_fin(r[1]), "send_fin");
  must(gravel_waitall(2, r), "waitall");
}

static void by_write(int round) {
  consumer_initiated(round, 1);
}

/* One handshake, and a put as soon as a strip is computed. */
static void by_many_puts(int round) {
  consumer_initiated(round, STRIPS);
}

/* The consumer does not know who will send, and asks for anybody. */
static void producer_initiated(int round) {
  gravel_request r[3];
  int proc = GRAVEL_ANY_SOURCE, tag = GRAVEL_ANY_TAG;
  size_t size;
  must(gravel_post_send_request_rdma(next, elements * sizeof *out, TAG, &r[0]), "post_send_request_rdma");
  must(gravel_wait_send_request_rdma(&proc, &tag, &size), "wait_send_request_rdma");
  must(gravel_post_rcv_buffer_rdma(proc, in, size, tag, &r[1]), "post_rcv_buffer_rdma");
  compute(round, 0, elements);
  wait_receive_buffer(&r[2]);
  must(gravel_post_os_put(r[2], out, elements * sizeof *out, 0), "post_os_put");
  must(gravel_send_fin(r[2]), "send_fin");
  must(gravel_waitall(3, r), "waitall");
}

/* The data is there before anybody asks for it: the consumer reads it. */
static void by_read(int round) {
  gravel_request r[2];
  int proc = previous, tag = TAG;
  size_t size;
  compute(round, 0, elements);
  must(gravel_post_send_buffer_rdma(next, out, elements * sizeof *out, TAG, &r[0]), "post_send_buffer_rdma");
  must(gravel_wait_send_buffer_rdma(&proc, &tag, &size, &r[1]), "wait_send_buffer_rdma");
  must(gravel_post_os_get(r[1], in, size, 0), "post_os_get");
  must(gravel_waitall(2, r), "waitall");
}

static long wrong(int round) {
  long count = 0;
  for (size_t i = 0; i < elements; ++i) count += in[i] != value(previous, round, i);
  return count;
}

static void run(const char* name, void (*exchange)(int), int rounds) {
  long bad = 0, all;
  for (int round = 0; round < rounds; ++round) {
    exchange(round);
    bad += wrong(round);
    MPI_Barrier(MPI_COMM_WORLD); /* nobody writes into `in` before it was looked at */
  }
  MPI_Reduce(&bad, &all, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) printf("%-28s %d rounds of %zu elements: %ld wrong\n", name, rounds, elements, all);
  MPI_Bcast(&all, 1, MPI_LONG, 0, MPI_COMM_WORLD);
  if (all != 0) MPI_Abort(MPI_COMM_WORLD, 1);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &procs);
  if (argc > 1) elements = strtoul(argv[1], NULL, 0);
  const int rounds = argc > 2 ? atoi(argv[2]) : 20;
  previous = (rank + procs - 1) % procs;
  next = (rank + 1) % procs;
  in = calloc(elements, sizeof *in);
  out = calloc(elements, sizeof *out);
  must(gravel_init(MPI_COMM_WORLD), "init");
  must(gravel_register_buffer(in, elements * sizeof *in), "register_buffer");
  must(gravel_register_buffer(out, elements * sizeof *out), "register_buffer");
  run("consumer-initiated Write", by_write, rounds);
  run("one handshake, four puts", by_many_puts, rounds);
  run("producer-initiated Write", producer_initiated, rounds);
  run("producer-initiated Read", by_read, rounds);
  must(gravel_unregister_buffer(in, elements * sizeof *in), "unregister_buffer");
  must(gravel_unregister_buffer(out, elements * sizeof *out), "unregister_buffer");
  must(gravel_finalize(), "finalize");
  if (rank == 0) printf("gravel_ring1d: %d processes: verified\n", procs);
  MPI_Finalize();
  free(in);
  free(out);
  return 0;
}
