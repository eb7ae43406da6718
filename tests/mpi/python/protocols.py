# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Messages of a small, a medium and a large size, sender first and receiver first, many times. Who comes second hears
of it by a message. The sizes are the arguments. Prints `rank N ok`."""
import sys

from mpi4py import MPI

TIMES = 20
DATA, TOKEN = 1, 2

comm = MPI.COMM_WORLD
rank = comm.Get_rank()
token = bytearray(1)


def sender_first(size, octet):
    if rank == 0:
        message = bytearray([octet]) * size
        request = comm.Isend(message, 1, tag=DATA)
        comm.Send(token, 1, tag=TOKEN)
        request.Wait()
        message[:] = bytes(size)  # ours again
    else:
        into = bytearray(size)
        comm.Recv(token, source=0, tag=TOKEN)
        comm.Recv(into, source=0, tag=DATA)
        assert into == bytes([octet]) * size


def receiver_first(size, octet):
    if rank == 0:
        comm.Recv(token, source=1, tag=TOKEN)
        comm.Send(bytes([octet]) * size, 1, tag=DATA)
    else:
        into = bytearray(size)
        request = comm.Irecv(into, source=0, tag=DATA)
        comm.Send(token, 0, tag=TOKEN)
        request.Wait()
        assert into == bytes([octet]) * size


for size in map(int, sys.argv[1:]):
    for i in range(TIMES):
        sender_first(size, 2 * i)
        receiver_first(size, 2 * i + 1)
print(f"rank {rank} ok")
