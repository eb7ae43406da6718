# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Small messages there and back beside large ones in both directions. Argument: the size of a large message. Prints
`rank N ok`."""
import sys

from mpi4py import MPI

LARGE, SMALL = 1, 2

comm = MPI.COMM_WORLD
rank = comm.Get_rank()
other = 1 - rank
size = int(sys.argv[1])


def pattern(of):
    return (bytes(range(of + 1, of + 252)) * (size // 251 + 1))[:size]


mine, into = pattern(rank), bytearray(size)


def round_trips():
    """Of small messages while a large one goes each way."""
    into[:] = bytes(size)
    there = comm.Irecv(into, source=other, tag=LARGE)
    comm.Barrier()
    here = comm.Isend(mine, other, tag=LARGE)
    # Rank 0 says when it is enough: both large messages are over at its end.
    trips, last = 0, False
    while not last:
        word = bytearray(8)
        if rank == 0:
            last = here.Test() & there.Test()
            word[:] = (2 * trips + last).to_bytes(8, "little")
            comm.Send(word, 1, tag=SMALL)
            comm.Recv(word, source=1, tag=SMALL)
        else:
            comm.Recv(word, source=0, tag=SMALL)
            comm.Send(word, 0, tag=SMALL)
        assert int.from_bytes(word, "little") // 2 == trips, "a small message is another one"
        last = word[0] & 1 == 1
        trips += 1
    here.Wait()
    there.Wait()
    assert into == pattern(other), "a large message has other octets"
    return trips


# A large message is over after a few of them; where the CPUs are others' it may be before any could pass it.
trips, rounds = 0, 0
while trips < 50 and rounds < 50:
    trips += round_trips()
    rounds += 1
print(f"rank {rank} ok, {trips} small ones", flush=True)
