// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What parallel programs do with MPI, after the NAS Parallel Benchmarks' CG, MG, IS and FT: their messages and their
// computation, at class W's sizes. Each kernel verifies its own result.
#pragma once

#include <stdbool.h>

// Microseconds of one iteration, the slowest rank's; the median of those after the first. Negative: the result is
// wrong, on all ranks. Collective over MPI_COMM_WORLD, whose size must be a power of two, 8 at most. quick: small.

// Conjugate gradients of a sparse matrix: an exchange of the vector's parts, two sums of 8 octets.
double kernel_cg(bool quick);
// A V-cycle of multigrid on a periodic cube of slabs: neighbours exchange planes of every size, down to 8 x 8.
double kernel_mg(bool quick);
// Integer sort by buckets: a sum of 4 KiB, all-to-all of counts, then of the keys.
double kernel_is(bool quick);
// A two-dimensional Fourier transform there and back: all-to-all of all octets, twice.
double kernel_ft(bool quick);
