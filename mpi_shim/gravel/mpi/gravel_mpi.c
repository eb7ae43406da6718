/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "gravel_mpi.h"

#include <limits.h>

static int gather(const void* mine, void* all, size_t octets, void* context) {
  const MPI_Comm* comm = context;
  if (octets > INT_MAX) return 1;
  return MPI_Allgather(mine, (int)octets, MPI_BYTE, all, (int)octets, MPI_BYTE, *comm);
}

int gravel_init(MPI_Comm comm) {
  int rank, procs;
  if (MPI_Comm_rank(comm, &rank) != MPI_SUCCESS || MPI_Comm_size(comm, &procs) != MPI_SUCCESS) return GRAVEL_ERR_JOB;
  return gravel_start(rank, procs, gather, &comm);
}

/* Fortran: for the module gravel, and as the compilers of FORTRAN 77 call it. */
int gravel_init_f(MPI_Fint comm);
void gravel_init_(const MPI_Fint* comm, MPI_Fint* error);

int gravel_init_f(MPI_Fint comm) {
  return gravel_init(MPI_Comm_f2c(comm));
}

void gravel_init_(const MPI_Fint* comm, MPI_Fint* error) {
  *error = gravel_init_f(*comm);
}
