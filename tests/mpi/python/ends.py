# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The order in which receives end, of messages of a medium size and a small one, and that no message waits for one whose
sender has left MPI. Arguments: the sizes of a medium and of a large message, and a file to be made. Prints `rank N ok`."""
import pathlib
import sys
import time

from mpi4py import MPI

TIMES = 100
FIRST, SECOND, READY = 1, 2, 3
LEFT_FOR = 30  # seconds at most

comm = MPI.COMM_WORLD
rank = comm.Get_rank()
medium, large = int(sys.argv[1]), int(sys.argv[2])
heard = pathlib.Path(sys.argv[3])
small = bytearray(1)


def in_order(i):
    """The small message is sent when the medium one's send is done: when it has come, so has the other, without another
    call of MPI. Every second time the receives are there before the messages are sent."""
    told = i % 2 == 0
    if rank == 0:
        if told:
            comm.Recv(small, source=1, tag=READY)
        comm.Send(bytes([i % 255 + 1]) * medium, 1, tag=FIRST)
        comm.Send(small, 1, tag=SECOND)
    else:
        into = bytearray(medium)
        first = comm.Irecv(into, source=0, tag=FIRST)
        second = comm.Irecv(small, source=0, tag=SECOND)
        if told:
            comm.Send(small, 0, tag=READY)
        second.Wait()
        assert into[0] == into[-1] == i % 255 + 1, f"message {i} came behind the one after it"
        first.Wait()
    comm.Barrier()


def sender_leaves():
    """A large message is begun, then a small one is sent; the sender comes back when it hears that the small one came."""
    if rank == 0:
        first = comm.Isend(bytes([7]) * large, 1, tag=FIRST)
        comm.Send(small, 1, tag=SECOND)
        until = time.monotonic() + LEFT_FOR
        while not heard.exists():
            assert time.monotonic() < until, "nobody heard of the small message"
            time.sleep(0.001)
        first.Wait()
    else:
        into = bytearray(large)
        first = comm.Irecv(into, source=0, tag=FIRST)
        comm.Recv(small, source=0, tag=SECOND)
        heard.touch()
        first.Wait()
        assert into == bytes([7]) * large


for number in range(TIMES):
    in_order(number)
sender_leaves()
print(f"rank {rank} ok")
