// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A rank of a ring that talks to so many partners, then stands still to be measured: mpi_memory PARTNERS FOLDER
// Leaves its pid in FOLDER/RANK and ends when FOLDER/go is there.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { kLarge = 65536 };

static void exchange(int to, int from, char* out, char* in, int length) {
  MPI_Sendrecv(out, length, MPI_BYTE, to, 1, in, length, MPI_BYTE, from, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

int main(int argc, char** argv) {
  static char out[kLarge], in[kLarge];
  char name[4096];
  int rank, size;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (argc != 3) MPI_Abort(MPI_COMM_WORLD, 2);
  const int partners = atoi(argv[1]);
  // One step to the right is one to the left of another: so each distance makes two partners.
  for (int distance = 1; distance <= (partners + 1) / 2; ++distance)
    for (int k = 0; k < 20; ++k) {
      exchange((rank + distance) % size, (rank + size - distance) % size, out, in, 8);
      exchange((rank + distance) % size, (rank + size - distance) % size, out, in, kLarge);
    }
  snprintf(name, sizeof name, "%s/%d", argv[2], rank);
  FILE* file = fopen(name, "w");
  if (file == NULL) MPI_Abort(MPI_COMM_WORLD, 2);
  fprintf(file, "%d\n", (int)getpid());
  fclose(file);
  snprintf(name, sizeof name, "%s/go", argv[2]);
  while (access(name, F_OK) != 0) usleep(20000);
  MPI_Finalize();
  return 0;
}
