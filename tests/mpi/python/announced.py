# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Rank 1 posts a large receive, then says so; rank 0 sends. Every fourth send is synchronous. Prints `rank N ok`."""
from mpi4py import MPI

TIMES, OCTETS = 20, 1 << 18

comm = MPI.COMM_WORLD
rank = comm.Get_rank()
token = bytearray(1)
for i in range(TIMES):
    if rank == 0:
        comm.Recv(token, source=1, tag=2)
        (comm.Ssend if i % 4 == 0 else comm.Send)(bytes([i]) * OCTETS, 1, tag=1)
    else:
        into = bytearray(OCTETS)
        status = MPI.Status()
        request = comm.Irecv(into, source=0, tag=1)
        comm.Send(token, 0, tag=2)
        request.Wait(status)
        assert into == bytes([i]) * OCTETS and status.Get_tag() == 1 and status.Get_count() == OCTETS
print(f"rank {rank} ok")
