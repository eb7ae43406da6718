/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Gravel's beginning by MPI. In a library for each MPI library: libgravel_openmpi.a, libgravel_mpich.a. */
#ifndef GRAVEL_MPI_H
#define GRAVEL_MPI_H

#include <gravel.h>
#include <mpi.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Collective over comm, whose ranks name the processes from now on. Between MPI_Init() and MPI_Finalize(); comm may be
 * freed afterwards, and gravel_finalize() may come behind MPI_Finalize(). As gravel_start().
 */
int gravel_init(MPI_Comm comm);

#ifdef __cplusplus
}
#endif

#endif
