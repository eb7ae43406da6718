// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Two ranks: latency, bandwidth, message rate and overlap of whatever carries MPI's messages, and kernels of programs;
// a line of JSON per figure. mpi_bench [--quick] [--cpus LIST0 LIST1] [--size OCTETS] [SCENARIO...]
#define _GNU_SOURCE
#include <mpi.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mpi_kernels.h"
#include "timing.h"

enum { kLargest = 4 << 20, kMostWindow = 64, kTag = 1, kDone = 2, kBulk = 3, kTurns = 7, kTransfers = 9 };

static int rank;
static bool quick;
static size_t only;  // if not 0: messages of this size alone
static char* buffers[kMostWindow];

static double median(double* values, int n) {
  qsort(values, (size_t)n, sizeof *values, ascending);
  return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

static void report(const char* scenario, long size, const char* unit, double value) {
  if (rank == 0)
    printf("{\"scenario\": \"%s\", \"size\": %ld, \"unit\": \"%s\", \"value\": %.4f}\n", scenario, size, unit, value);
}

// How often, so that a scenario takes about as long for every size.
static int times(size_t size, int small, int large) {
  const int n = size <= 4096 ? small : size >= kLargest ? large : (int)(small / (1 + size / 16384)) + large;
  return quick ? 4 : n;
}

static void ping_pong(size_t size) {
  const int n = times(size, 2000, 30), warm = n / 10 + 2;
  double* took = malloc(sizeof(double) * (size_t)n);
  for (int i = -warm; i < n; ++i) {
    const double began = now_us();
    if (rank == 0) {
      MPI_Send(buffers[0], (int)size, MPI_BYTE, 1, kTag, MPI_COMM_WORLD);
      MPI_Recv(buffers[1], (int)size, MPI_BYTE, 1, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
      MPI_Recv(buffers[1], (int)size, MPI_BYTE, 0, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      MPI_Send(buffers[0], (int)size, MPI_BYTE, 0, kTag, MPI_COMM_WORLD);
    }
    if (i >= 0) took[i] = (now_us() - began) / 2;
  }
  report("latency", (long)size, "us", median(took, n));
  free(took);
}

// One-sided operations, each flushed, while the target waits inside MPI. Not every transport offers them to Open MPI.

static MPI_Win window;

static void put(size_t size) {
  MPI_Put(buffers[0], (int)size, MPI_BYTE, 1, 0, (int)size, MPI_BYTE, window);
}

static int64_t result;
static const int64_t one = 1, never = -1;

static void fetch_and_op(size_t size) {
  (void)size;
  MPI_Fetch_and_op(&one, &result, MPI_INT64_T, 1, 0, MPI_SUM, window);
}

static void compare_and_swap(size_t size) {
  (void)size;
  MPI_Compare_and_swap(&one, &never, &result, MPI_INT64_T, 1, 0, window);
}

static void accumulate(size_t size) {
  const int n = (int)(size / sizeof(int64_t));
  MPI_Accumulate(buffers[0], n, MPI_INT64_T, 1, 0, n, MPI_INT64_T, MPI_SUM, window);
}

static void flushed(const char* scenario, void (*operation)(size_t), size_t size) {
  const int n = times(size, 2000, 30), warm = n / 10 + 2;
  double* took = malloc(sizeof(double) * (size_t)n);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  const int made = MPI_Win_create(buffers[1], kLargest, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
  if (made != MPI_SUCCESS) return free(took);
  MPI_Win_lock_all(0, window);
  for (int i = -warm; rank == 0 && i < n; ++i) {
    const double began = now_us();
    operation(size);
    MPI_Win_flush(1, window);
    if (i >= 0) took[i] = now_us() - began;
  }
  MPI_Win_unlock_all(window);
  MPI_Win_free(&window);
  if (rank == 0) report(scenario, (long)size, "us", median(took, n));
  free(took);
}

// Windows of messages, each answered by an empty one; microseconds a window.
static double windows(size_t size, int messages, int n) {
  MPI_Request requests[kMostWindow];
  double* took = malloc(sizeof(double) * (size_t)n);
  for (int i = -2; i < n; ++i) {
    const double began = now_us();
    for (int k = 0; k < messages; ++k) {
      if (rank == 0)
        MPI_Isend(buffers[k], (int)size, MPI_BYTE, 1, kTag, MPI_COMM_WORLD, &requests[k]);
      else
        MPI_Irecv(buffers[k], (int)size, MPI_BYTE, 0, kTag, MPI_COMM_WORLD, &requests[k]);
    }
    MPI_Waitall(messages, requests, MPI_STATUSES_IGNORE);
    if (rank == 0)
      MPI_Recv(NULL, 0, MPI_BYTE, 1, kDone, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else
      MPI_Send(NULL, 0, MPI_BYTE, 0, kDone, MPI_COMM_WORLD);
    if (i >= 0) took[i] = now_us() - began;
  }
  const double middle = median(took, n);
  free(took);
  return middle;
}

static void bandwidth(size_t size) {
  const int messages = size >= (1 << 20) ? 16 : kMostWindow;
  const double us = windows(size, messages, times(size, 100, 10));
  report("bandwidth", (long)size, "MB/s", (double)size * messages / us);
}

static void rate(size_t size) {
  const double us = windows(size, kMostWindow, quick ? 4 : 400);
  report("rate", (long)size, "messages/s", kMostWindow / us * 1e6);
}

// Rank 0 sends a message of `size` octets, and 8 octets go there and back until it is done with it. Adds to `took` half
// a round trip each; how many there are then. *us: until rank 1 has all of the large one.
static int trips_beside(char* bulk, int size, double* took, int trips, int most, double* us) {
  MPI_Request request;
  int done = 0;
  int64_t last = 0, echo;
  MPI_Barrier(MPI_COMM_WORLD);
  const double began = now_us();
  if (rank == 0)
    MPI_Isend(bulk, size, MPI_BYTE, 1, kBulk, MPI_COMM_WORLD, &request);
  else
    MPI_Irecv(bulk, size, MPI_BYTE, 0, kBulk, MPI_COMM_WORLD, &request);
  while (last == 0) {
    if (rank == 0) {
      MPI_Test(&request, &done, MPI_STATUS_IGNORE);
      last = done || trips + 1 == most;
      const double sent = now_us();
      MPI_Send(&last, 1, MPI_INT64_T, 1, kTag, MPI_COMM_WORLD);
      MPI_Recv(&echo, 1, MPI_INT64_T, 1, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      if (!done) took[trips++] = (now_us() - sent) / 2;
    } else {
      MPI_Recv(&last, 1, MPI_INT64_T, 0, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      MPI_Send(&last, 1, MPI_INT64_T, 0, kTag, MPI_COMM_WORLD);
    }
  }
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  MPI_Barrier(MPI_COMM_WORLD);
  *us = now_us() - began;
  return trips;
}

static void beside(void) {
  enum { kTimes = 7, kMostTrips = 1 << 20 };
  const int size = quick ? 16 << 20 : 256 << 20;
  char* bulk = aligned_alloc(4096, (size_t)size);
  double *took = malloc(sizeof(double) * kMostTrips), us[kTimes];
  memset(bulk, rank, (size_t)size);
  int trips = trips_beside(bulk, size, took, 0, kMostTrips, us);
  trips = 0;
  for (int i = 0; i < kTimes; ++i) trips = trips_beside(bulk, size, took, trips, kMostTrips, &us[i]);
  if (trips > 0) report("beside", 8, "us", median(took, trips));
  report("bulk beside", size, "MB/s", size / median(us, kTimes));
  free(took);
  free(bulk);
}

// Work of the CPU that reads no clock: what is taken away from it shows.
static volatile uint64_t sink;
static void compute(uint64_t rounds) {
  uint64_t x = sink + 1;
  for (uint64_t i = 0; i < rounds; ++i) x = x * 6364136223846793005u + 1442695040888963407u;
  sink = x;
}

static double rounds_per_us(void) {
  double best = 0;
  for (int i = 0; i < 5; ++i) {
    const double began = now_us();
    compute(1000000);
    const double speed = 1000000 / (now_us() - began);
    if (speed > best) best = speed;
  }
  return best;
}

// One transfer from rank 0 to 1, one of whose ends computes between its beginning and its Wait; how much longer than
// the computation alone, here and now, it is from its beginning at that end until both have done with it. Both are on
// one host, so their clocks are one.
static double transfer(size_t size, bool sender_computes, uint64_t rounds) {
  MPI_Request request;
  const bool computes = (rank == 0) == sender_computes;
  double began = now_us();
  if (computes) compute(rounds);
  const double computed = now_us() - began;
  MPI_Barrier(MPI_COMM_WORLD);
  began = now_us();
  if (rank == 0)
    MPI_Isend(buffers[0], (int)size, MPI_BYTE, 1, kTag, MPI_COMM_WORLD, &request);
  else
    MPI_Irecv(buffers[1], (int)size, MPI_BYTE, 0, kTag, MPI_COMM_WORLD, &request);
  if (computes) compute(rounds);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  double ended = now_us(), last;
  MPI_Allreduce(&ended, &last, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  double took = last - began - computed;
  MPI_Bcast(&took, 1, MPI_DOUBLE, sender_computes ? 0 : 1, MPI_COMM_WORLD);
  return took;
}

static double transfers(size_t size, bool sender_computes, uint64_t rounds, int n) {
  double took[kTransfers];
  for (int i = -2; i < n; ++i) {
    const double one = transfer(size, sender_computes, rounds);
    if (i >= 0) took[i] = one;
  }
  return median(took, n);
}

// The share of the transfer that a computation of 1.5 times its length hides: 1 all, 0 nothing. Transfers alone and
// with a computation take turns, as both change with the machine's mood.
static void overlap(size_t size, double speed) {
  const int turns = quick ? 1 : kTurns, n = quick ? 3 : kTransfers;
  double hidden[kTurns];
  for (int sender = 0; sender < 2; ++sender) {
    for (int turn = 0; turn < turns; ++turn) {
      const double alone = transfers(size, sender, 0, n);
      const double left = transfers(size, sender, (uint64_t)(1.5 * alone * speed), n);
      hidden[turn] = 1 - left / alone;
    }
    const double middle = median(hidden, turns);
    report(sender ? "overlap sender" : "overlap receiver", (long)size, "hidden", middle < 0 ? 0 : middle);
  }
}

static void kernels(void) {
  const struct {
    const char* name;
    double (*run)(bool quick);
  } all[] = {{"CG", kernel_cg}, {"MG", kernel_mg}, {"IS", kernel_is}, {"FT", kernel_ft}};
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) {
    const double us = all[i].run(quick);
    if (us < 0) {
      fprintf(stderr, "mpi_bench: the result of %s is wrong\n", all[i].name);
      MPI_Abort(MPI_COMM_WORLD, 1);
    }
    report(all[i].name, 0, "us", us);
  }
}

// Before MPI starts its threads; cpus: 0,2-3
static void pin(const char* cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const char* at = cpus; *at != 0;) {
    char* end;
    long first = strtol(at, &end, 10), last = first;
    if (*end == '-') last = strtol(end + 1, &end, 10);
    for (; first <= last; ++first) CPU_SET((size_t)first, &set);
    if (end == at) break;
    at = *end == ',' ? end + 1 : end;
  }
  sched_setaffinity(0, sizeof set, &set);
}

static bool wanted(int argc, char** argv, const char* scenario, size_t size) {
  bool named = false;
  if (only != 0 && size != only) return false;
  for (int i = 1; i < argc; ++i) {
    if (strcmp(argv[i], "--cpus") == 0)
      i += 2;
    else if (strcmp(argv[i], "--size") == 0)
      i += 1;
    else if (argv[i][0] != '-' && (named = true) && strcmp(argv[i], scenario) == 0)
      return true;
  }
  return !named;
}

int main(int argc, char** argv) {
  const char* number = getenv("OMPI_COMM_WORLD_RANK");
  if (number == NULL) number = getenv("PMI_RANK");  // MPICH's
  for (int i = 1; i < argc; ++i) {
    if (strcmp(argv[i], "--quick") == 0) quick = true;
    if (strcmp(argv[i], "--size") == 0 && i + 1 < argc) only = strtoul(argv[i + 1], NULL, 10);
    if (strcmp(argv[i], "--cpus") == 0 && i + 2 < argc) pin(argv[i + 1 + (number != NULL && atoi(number) == 1)]);
  }
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (int i = 0; i < kMostWindow; ++i) {
    buffers[i] = aligned_alloc(4096, kLargest);
    memset(buffers[i], i, kLargest);
  }
  const double speed = rounds_per_us();
  for (size_t size = 8; size <= kLargest; size *= 2)
    if (wanted(argc, argv, "latency", size)) ping_pong(size);
  for (size_t size = 8; size <= kLargest; size *= 2)
    if (wanted(argc, argv, "bandwidth", size)) bandwidth(size);
  if (wanted(argc, argv, "rate", 8)) rate(8);
  if (wanted(argc, argv, "beside", 8)) beside();
  for (size_t size = 8; size <= kLargest; size *= 8)
    if (wanted(argc, argv, "put_flush", size)) flushed("put_flush", put, size);
  if (wanted(argc, argv, "atomics", 8)) {
    flushed("fetch_and_op", fetch_and_op, 8);
    flushed("compare_and_swap", compare_and_swap, 8);
    flushed("accumulate", accumulate, 8);
    flushed("accumulate", accumulate, 4096);
  }
  if (wanted(argc, argv, "kernels", 0)) kernels();
  for (size_t size = 65536; size <= kLargest; size *= 4)
    if (wanted(argc, argv, "overlap", size)) overlap(size, speed);
  MPI_Finalize();
  return 0;
}
