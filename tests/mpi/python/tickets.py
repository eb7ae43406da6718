# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""All ranks draw tickets of rank 0: each number is drawn once, whoever asks. Argument: how many each rank draws."""
import array
import sys

from mpi4py import MPI

comm, count = MPI.COMM_WORLD, int(sys.argv[1])
memory = array.array("q", [0, 0] if comm.rank == 0 else [])
window = MPI.Win.Create(memory, memory.itemsize, comm=comm)
one, drawn = array.array("q", [1]), array.array("q", [-1])
tickets = []
comm.Barrier()
window.Lock_all()
for _ in range(count):
    window.Fetch_and_op([one, MPI.INT64_T], [drawn, MPI.INT64_T], 0, 0, MPI.SUM)
    window.Flush(0)
    tickets.append(drawn[0])
    window.Accumulate([one, MPI.INT64_T], 0, (1, 1, MPI.INT64_T), MPI.SUM)
window.Flush(0)
comm.Barrier()
totals = array.array("q", [-1, -1])
for i in range(2):
    window.Fetch_and_op([one, MPI.INT64_T], [drawn, MPI.INT64_T], 0, i, MPI.NO_OP)
    window.Flush(0)
    totals[i] = drawn[0]
window.Unlock_all()
window.Free()

assert tickets == sorted(set(tickets)), tickets
everybodys = sorted(sum(comm.allgather(tickets), []))
assert everybodys == list(range(count * comm.size)), everybodys
assert list(totals) == [count * comm.size] * 2, totals
print(f"rank {comm.rank} ok", flush=True)
