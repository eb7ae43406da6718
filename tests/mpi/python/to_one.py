# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""All ranks send to rank 0, which asks for nothing for a while. Arguments: how many messages each sends, their size, and the
octets that rank 0 may grow by meanwhile. Prints `rank N ok`."""
import re
import sys
import time

from mpi4py import MPI

DATA = 1
SECONDS = 2

comm = MPI.COMM_WORLD
rank, ranks = comm.Get_rank(), comm.Get_size()
count, size, most = map(int, sys.argv[1:])


def memory():
    """Private octets of this process."""
    with open("/proc/self/status", encoding="ascii") as status:
        return int(re.search(r"^RssAnon:\s+(\d+) kB", status.read(), re.M)[1]) << 10


def message(sender, number):
    return (sender * count + number).to_bytes(8, "little") * (size // 8)


if rank == 0:
    # Everybody's connection is there, and its buffers.
    for sender in range(1, ranks):
        comm.recv(source=sender, tag=DATA)
    before = memory()
    for sender in range(1, ranks):
        comm.send(None, sender, tag=DATA)
    time.sleep(SECONDS)
    grown = memory() - before
    assert grown <= most, f"{grown} octets more"
    numbers, into, status = [0] * ranks, bytearray(size), MPI.Status()
    for _ in range(count * (ranks - 1)):
        comm.Recv(into, source=MPI.ANY_SOURCE, tag=DATA, status=status)
        sender = status.Get_source()
        assert into == message(sender, numbers[sender]), f"message {numbers[sender]} of {sender} is another one"
        numbers[sender] += 1
    assert numbers[1:] == [count] * (ranks - 1)
    print(f"rank 0 ok, grown by {grown} octets", flush=True)
else:
    comm.send(None, 0, tag=DATA)
    comm.recv(source=0, tag=DATA)
    requests = [comm.Isend(message(rank, number), 0, tag=DATA) for number in range(count)]
    MPI.Request.Waitall(requests)
    print(f"rank {rank} ok", flush=True)
