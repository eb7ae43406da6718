// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// More than 2 GiB: one message of so much by a large datatype, its count in MPI_Count; slow, and 5 GiB of memory.
#include <stdlib.h>
#include <string.h>

#include "suite.h"

enum { kBlock = 1 << 20 };

// Even ranks send to the next odd one. Every mebibyte is filled and verified by itself.
static void message(size_t blocks, bool synchronous) {
  MPI_Datatype block, whole;
  MPI_Count octets;
  MPI_Status status;
  const int partner = rank ^ 1;
  MPI(MPI_Type_contiguous(kBlock, MPI_BYTE, &block));
  MPI(MPI_Type_contiguous((int)blocks, block, &whole));
  MPI(MPI_Type_commit(&whole));
  MPI(MPI_Type_size_x(whole, &octets));
  CHECK((size_t)octets == blocks * kBlock, "the type has %lld octets", (long long)octets);
  if (rank < 2 && size > 1) {
    char* data = need_memory(blocks * kBlock);
    if (rank == 0) {
      for (size_t i = 0; i < blocks; ++i) fill(data + i * kBlock, kBlock, seed_of(0, 1, i));
      if (synchronous)
        MPI(MPI_Ssend(data, 1, whole, partner, 1, comm));
      else
        MPI(MPI_Send(data, 1, whole, partner, 1, comm));
    } else {
      memset(data, 0x55, blocks * kBlock);
      MPI(MPI_Recv(data, 1, whole, partner, 1, comm, &status));
      MPI(MPI_Get_elements_x(&status, whole, &octets));
      CHECK((size_t)octets == blocks * kBlock, "%lld octets came", (long long)octets);
      for (size_t i = 0; i < blocks; ++i) VERIFY(data + i * kBlock, kBlock, seed_of(0, 1, i), "large message");
    }
    free(data);
  }
  MPI(MPI_Type_free(&whole));
  MPI(MPI_Type_free(&block));
  MPI(MPI_Barrier(comm));
  CHECK(true, "all are here");
}

void large(void) {
  message(100, true);
  message(2049, false);
  message(2500, true);
}
