# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Messages round about for two minutes, unless somebody ends it; the first round prints `rank N begins`."""
import sys
import time

from mpi4py import MPI

comm = MPI.COMM_WORLD
rank, size = comm.Get_rank(), comm.Get_size()
out, into = bytearray(100000), bytearray(100000)
began = time.monotonic()
first = True
while time.monotonic() < began + 120:
    comm.Sendrecv(out, (rank + 1) % size, recvbuf=into, source=(rank - 1) % size)
    comm.barrier()
    if first:
        print(f"rank {rank} begins")
        sys.stdout.flush()
        first = False
