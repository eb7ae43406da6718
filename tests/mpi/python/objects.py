# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""mpi4py: Python objects and buffers by every way that MPI4py has for them; each rank prints `rank N ok`."""
import array
import random
import sys

import mpi4py

mpi4py.rc.thread_level = "serialized"  # Open MPI's osc pt2pt takes no more
from mpi4py import MPI  # noqa: E402

comm = MPI.COMM_WORLD
rank, size = comm.Get_rank(), comm.Get_size()
right, left = (rank + 1) % size, (rank - 1) % size


def thing(who, number):
    """Picklable, of all sizes, and the same wherever it is made."""
    source = random.Random(who * 1000 + number)
    return {"from": who, "number": number, "octets": source.randbytes(source.choice((0, 10, 5000, 20000, 300000)))}


def objects():
    for number in range(20):
        request = comm.isend(thing(rank, number), right, tag=number)
        assert comm.recv(source=left, tag=number) == thing(left, number)
        request.wait()
    status = MPI.Status()
    requests = [comm.isend(thing(rank, k), k, tag=k) for k in range(size) if k != rank]
    seen = set()
    for _ in range(size - 1):
        message = comm.mprobe(MPI.ANY_SOURCE, MPI.ANY_TAG, status)
        assert message.recv() == thing(status.source, rank) and status.tag == rank
        seen.add(status.source)
    assert len(seen) == size - 1
    MPI.Request.waitall(requests)


def collectives():
    assert comm.bcast(thing(0, 1) if rank == 0 else None) == thing(0, 1)
    assert comm.scatter([thing(0, k) for k in range(size)] if rank == 0 else None) == thing(0, rank)
    gathered = comm.gather(thing(rank, 2), root=size - 1)
    assert gathered == ([thing(k, 2) for k in range(size)] if rank == size - 1 else None)
    assert comm.allgather(rank) == list(range(size))
    assert comm.alltoall([thing(rank, k) for k in range(size)]) == [thing(k, rank) for k in range(size)]
    assert comm.allreduce([rank], op=MPI.SUM) == list(range(size))  # concatenates: does not commute
    assert comm.scan(str(rank), op=MPI.SUM) == "".join(map(str, range(rank + 1)))


def buffers():
    out, into = array.array("d", range(50000)), array.array("d", bytes(8 * 50000))
    comm.Sendrecv(out, right, recvbuf=into, source=left)
    assert into == out
    comm.Allreduce(out, into, op=MPI.SUM)
    assert into == array.array("d", (size * x for x in range(50000)))
    persistent = [comm.Send_init(out, right), comm.Recv_init(into, left)]
    for turn in range(5):
        out[0] = rank * 10 + turn
        MPI.Prequest.Startall(persistent)
        MPI.Request.Waitall(persistent)
        assert into[0] == left * 10 + turn and into[1:] == out[1:]


def windows():
    memory = bytearray(1000 * size)
    window = MPI.Win.Create(memory, comm=comm)
    window.Fence()
    for k in range(size):
        window.Put(bytes([rank + 1]) * 1000, k, 1000 * rank)
    window.Fence()
    assert memory == b"".join(bytes([k + 1]) * 1000 for k in range(size))
    window.Free()


for part in (objects, collectives, buffers, windows):
    part()
print(f"rank {rank} ok")
sys.stdout.flush()
