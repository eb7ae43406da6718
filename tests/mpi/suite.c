// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Runs the subjects that are named, or all: suite [--full] [--threads] [--seed N] [--list] [SUBJECT...]
// --pending-lost: for libraries that free the requests which an error elsewhere left pending.
// --no-dynamic-windows: for libraries that wait for ever in them.
// --no-own-swaps: for libraries that crash where a compare_and_swap is of memory that needs no network.
#include "suite.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

MPI_Comm comm;
int rank, size, provided;
bool full, pending_kept = true, own_swaps = true, dynamic_windows = true;
uint64_t suite_seed;
_Atomic unsigned long long checks;

static const char* running = "start";

const size_t kSizes[] = {0,     1,     7,     8,     64,    1000,  4096,   8192,    12287,
                         12288, 12289, 20000, 40960, 40961, 65536, 262145, 1 << 20, (2 << 20) + 3};
const int kSizesCount = sizeof kSizes / sizeof kSizes[0];

void fail(const char* file, int line, const char* format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  fprintf(stderr, "%s: rank %d of %d: %s:%d: %s (seed %llu)\n", running, rank, size, file, line, text,
          (unsigned long long)suite_seed);
  fflush(stderr);
  MPI_Abort(MPI_COMM_WORLD, 1);
  abort();
}

static uint64_t mixed(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

void fill(void* at, size_t length, uint64_t seed) {
  unsigned char* out = at;
  for (size_t i = 0; i < length; i += 8) {
    const uint64_t word = mixed(seed + i);
    memcpy(out + i, &word, length - i < 8 ? length - i : 8);
  }
}

void verify_at(const char* file, int line, const void* at, size_t length, uint64_t seed, const char* what) {
  const unsigned char* in = at;
  ++checks;
  for (size_t i = 0; i < length; i += 8) {
    const uint64_t word = mixed(seed + i);
    const size_t n = length - i < 8 ? length - i : 8;
    if (memcmp(in + i, &word, n) == 0) continue;
    for (size_t k = 0; k < n; ++k) {
      const unsigned char wanted = ((const unsigned char*)&word)[k];
      if (in[i + k] != wanted)
        fail(file, line, "%s: octet %zu of %zu is %02x, not %02x", what, i + k, length, in[i + k], wanted);
    }
  }
}

void untouched_at(const char* file, int line, const void* at, size_t length, unsigned char value, const char* what) {
  const unsigned char* in = at;
  ++checks;
  for (size_t i = 0; i < length; ++i)
    if (in[i] != value) fail(file, line, "%s: octet %zu of %zu was written to: %02x", what, i, length, in[i]);
}

void status_at(const char* file, int line, const MPI_Status* status, int source, int tag, size_t length) {
  int count;
  MPI_Get_count(status, MPI_BYTE, &count);
  checks += 3;
  if (status->MPI_SOURCE != source || status->MPI_TAG != tag || (size_t)count != length)
    fail(file, line, "status: source %d, tag %d, %d octets, not %d, %d, %zu", status->MPI_SOURCE, status->MPI_TAG,
         count, source, tag, length);
}

uint64_t seed_of(int from, int to, uint64_t n) {
  return mixed(mixed(mixed(suite_seed + (uint64_t)from) + (uint64_t)to) + n);
}

uint64_t draw(uint64_t* state, uint64_t below) {
  *state = mixed(*state);
  return *state % below;
}

void* need_memory(size_t octets) {
  void* at = malloc(octets == 0 ? 1 : octets);
  if (at == NULL) fail(__FILE__, __LINE__, "no memory: %zu octets", octets);
  return at;
}

void linger(void) {
  usleep(300);
}

static void run(const struct subject* s) {
  running = s->name;
  const unsigned long long before = checks;
  MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
  const double began = MPI_Wtime();
  s->run();
  MPI(MPI_Barrier(comm));
  const double took = MPI_Wtime() - began;
  MPI(MPI_Comm_free(&comm));
  unsigned long long made = checks - before, sum = 0;
  MPI(MPI_Reduce(&made, &sum, 1, MPI_UNSIGNED_LONG_LONG, MPI_SUM, 0, MPI_COMM_WORLD));
  CHECK(rank != 0 || sum > 0, "%s checked nothing", s->name);
  if (rank == 0) printf("%-16s ok  %9llu checks  %6.2f s\n", s->name, sum, took), fflush(stdout);
}

static const struct subject* find(const char* name) {
  for (int i = 0; i < kSubjectsCount; ++i)
    if (strcmp(kSubjects[i].name, name) == 0) return &kSubjects[i];
  fprintf(stderr, "no subject '%s'; --list shows them\n", name);
  exit(2);
}

int main(int argc, char** argv) {
  bool threads = false, named = false;
  suite_seed = (uint64_t)time(NULL);
  for (int i = 1; i < argc; ++i) {
    if (strcmp(argv[i], "--full") == 0)
      full = true;
    else if (strcmp(argv[i], "--threads") == 0)
      threads = true;
    else if (strcmp(argv[i], "--pending-lost") == 0)
      pending_kept = false;
    else if (strcmp(argv[i], "--no-dynamic-windows") == 0)
      dynamic_windows = false;
    else if (strcmp(argv[i], "--no-own-swaps") == 0)
      own_swaps = false;
    else if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc)
      suite_seed = strtoull(argv[++i], NULL, 10);
    else if (strcmp(argv[i], "--list") == 0) {
      for (int k = 0; k < kSubjectsCount; ++k) printf("%s%s\n", kSubjects[k].name, kSubjects[k].slow ? " (slow)" : "");
      return 0;
    } else
      find(argv[i]), named = true;
  }
  MPI_Init_thread(&argc, &argv, threads ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Bcast(&suite_seed, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
  if (rank == 0) printf("%d ranks, threads %d, seed %llu\n", size, provided, (unsigned long long)suite_seed);
  fflush(stdout);
  if (named) {
    for (int i = 1; i < argc; ++i)
      if (strcmp(argv[i], "--seed") == 0)
        ++i;
      else if (argv[i][0] != '-')
        run(find(argv[i]));
  } else {
    for (int i = 0; i < kSubjectsCount; ++i)
      if (full || !kSubjects[i].slow) run(&kSubjects[i]);
  }
  running = "end";
  if (rank == 0) printf("all subjects ok\n"), fflush(stdout);
  MPI_Finalize();
  return 0;
}
