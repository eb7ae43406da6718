// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Memory that comes and goes beneath the library: what was registered once must not be used for what lies there later.
#define _GNU_SOURCE  // mremap
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "suite.h"

static void* map_as(void* where, size_t octets, int flags) {
  void* at = mmap(where, octets, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
  CHECK(at != MAP_FAILED, "mmap of %zu octets", octets);
  return at;
}

static void* map(size_t octets) {
  return map_as(NULL, octets, 0);
}

// In the place of what the caller has mapped there.
static void map_over(void* where, size_t octets) {
  map_as(where, octets, MAP_FIXED);
}

// Where the caller had something until now. It is elsewhere where a thread of the library has taken the place
// meanwhile, for buffers of its own.
static void* map_again(void* where, size_t octets) {
  return map_as(where, octets, 0);
}

static void exchange(char* out, char* in, size_t length, uint64_t step) {
  const int to = (rank + 1) % size, from = (rank + size - 1) % size;
  MPI_Request requests[2];
  fill(out, length, seed_of(rank, to, step));
  memset(in, 0x55, length);
  MPI(MPI_Irecv(in, (int)length, MPI_BYTE, from, 1, comm, &requests[0]));
  MPI(MPI_Isend(out, (int)length, MPI_BYTE, to, 1, comm, &requests[1]));
  MPI(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
  VERIFY(in, length, seed_of(from, rank, step), "message in memory that was mapped anew");
}

// The same addresses with other pages each time: munmap and mmap, mmap over what is there, MADV_DONTNEED, mremap.
static void mapped_anew(size_t length) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE), room = (length + page - 1) / page * page;
  char *out = map(room), *in = map(room);
  int same = 0;
  for (uint64_t step = 0; step < 24; ++step) {
    exchange(out, in, length, step);
    const char* was;
    switch (step % 4) {
      case 0:
        munmap(in, room);
        munmap(out, room);
        was = in;
        in = map_again(in, room);
        same += in == was;
        out = map_again(out, room);
        break;
      case 1:
        map_over(in, room);
        map_over(out, room);
        break;
      case 2:
        madvise(in, room, MADV_DONTNEED);
        madvise(out, room, MADV_DONTNEED);
        break;
      default: {  // moved away, as it cannot grow, and another put in its place; MREMAP_FIXED is lost on UCX 1.13's
                  // hook
        char* elsewhere = mremap(in, room, 64 * room, MREMAP_MAYMOVE);
        CHECK(elsewhere != MAP_FAILED, "mremap");
        in = elsewhere != in ? map_again(in, room) : map(room);
        exchange(out, elsewhere, length, step + 1000);
        munmap(elsewhere, 64 * room);
      }
    }
  }
  munmap(in, room);
  munmap(out, room);
  CHECK(same > 0, "memory of %zu octets was never mapped where it had been", room);
}

// malloc and free of large blocks between messages: glibc maps and unmaps them, and moves the break.
static void allocated_anew(void) {
  uint64_t state = seed_of(rank, 0, 5), common = suite_seed;
  for (int i = 0; i < (full ? 400 : 60); ++i) {
    const size_t length = 1000 + draw(&common, i % 4 ? 100000 : 3000000);
    char *out = need_memory(length), *in = need_memory(length), *more = need_memory(1 + draw(&state, 500000));
    exchange(out, in, length, (uint64_t)i);
    const bool upwards = draw(&state, 2);
    free(upwards ? out : more);
    free(in);
    free(upwards ? more : out);
  }
}

void buffers(void) {
  static const size_t kLengths[] = {4096, 12289, 30000, 65536, 1000000, 3000001};
  for (int i = 0; i < 6; ++i) mapped_anew(kLengths[i]);
  allocated_anew();
}
