# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Two ranks. After a message each way rank 1 sends nothing more, and rank 0 waits for it (waits), or sends to it without end
(sends). Prints `rank 0 begins`, and the error by which that ends; then the job is mpirun's to end."""
import sys
import time

from mpi4py import MPI

comm = MPI.COMM_WORLD
rank, what = comm.Get_rank(), sys.argv[1]
octets = bytearray(1000)
comm.Sendrecv(octets, 1 - rank, recvbuf=bytearray(1000), source=1 - rank)
if rank == 0:
    print("rank 0 begins", flush=True)
try:
    while what == "sends":
        if rank == 0:
            comm.Send(octets, 1)
        else:
            comm.Recv(octets, 0)
    if rank == 0:
        comm.Recv(octets, 1)
except MPI.Exception as e:
    print(f"rank {rank}: {e}", flush=True)
time.sleep(600)
