// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What every subject of the suite uses: checks that end the job, data that can be verified octet by octet, sizes.
// Plain MPI 3.1 in C: nothing here knows what carries the messages.
#ifndef EWARP_TESTS_MPI_SUITE_H
#define EWARP_TESTS_MPI_SUITE_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Of the communicator that the subject got.
extern MPI_Comm comm;
extern int rank, size;
extern bool full;                          // the sizes of a release
extern bool pending_kept;                  // a request that an error elsewhere left pending can be waited for
extern bool own_swaps;                     // a rank may compare and swap what it reaches without the network
extern bool dynamic_windows;               // they work
extern int provided;                       // level of threads
extern uint64_t suite_seed;                // the same on all ranks
extern _Atomic unsigned long long checks;  // made so far by this rank

void fail(const char* file, int line, const char* format, ...) __attribute__((noreturn, format(printf, 3, 4)));

// A condition that holds, or the job ends with the text.
#define CHECK(condition, ...)                                \
  do {                                                       \
    ++checks;                                                \
    if (!(condition)) fail(__FILE__, __LINE__, __VA_ARGS__); \
  } while (0)
// An MPI call that succeeds, also where errors are returned.
#define MPI(call) CHECK((call) == MPI_SUCCESS, "%s failed", #call)

// Octets that depend on seed and position.
void fill(void* at, size_t length, uint64_t seed);
// Ends the job at the first octet that is not what fill() wrote, or not `value`.
void verify_at(const char* file, int line, const void* at, size_t length, uint64_t seed, const char* what);
void untouched_at(const char* file, int line, const void* at, size_t length, unsigned char value, const char* what);
#define VERIFY(at, length, seed, what) verify_at(__FILE__, __LINE__, at, length, seed, what)
#define UNTOUCHED(at, length, value, what) untouched_at(__FILE__, __LINE__, at, length, value, what)

// Source, tag and length of what was received.
void status_at(const char* file, int line, const MPI_Status* status, int source, int tag, size_t length);
#define STATUS(status, source, tag, length) status_at(__FILE__, __LINE__, status, source, tag, length)

// One number of several: a seed for what `from` sends to `to` in step n.
uint64_t seed_of(int from, int to, uint64_t n);

// A sequence of random numbers; `below` > 0.
uint64_t draw(uint64_t* state, uint64_t below);

void* need_memory(size_t octets);
// Lets the other end come first, mostly.
void linger(void);

// Around every threshold that a transport may have; ends with 0 < length of the largest.
extern const size_t kSizes[];
extern const int kSizesCount;

struct subject {
  const char* name;
  void (*run)(void);
  bool slow;  // only with --full, or when named
};
extern const struct subject kSubjects[];
extern const int kSubjectsCount;

#endif
