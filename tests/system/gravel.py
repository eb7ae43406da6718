# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Gravel between real processes: its calls and their errors, storms, kill -9 of a partner in each state, and the examples
beside MPI."""
import os
import pathlib
import random
import signal
import subprocess
import time

from harness import BUILD, FULL, Skip, check, main, need, wait_until
from mpi_jobs import as_anybody, run_job
from mpi_ucx import UCX

BIN = BUILD / "bin"
CALLS, STORM, VICTIM, ODD = (BIN / f"ewarp_gravel_{name}" for name in ("calls", "storm", "victim", "odd"))
CLOSE_TIMEOUT = 2  # of the channel, seconds
LEDGER = 64 * 32  # octets of entries
NOTICED_WITHIN = 10  # seconds after kill -9
CONNECT_TIMEOUT = 10  # of the channel, seconds: for a peer that ended before anybody connected to it


def folder(rig):
    path = pathlib.Path(rig.rundir, f"gravel{random.randrange(1 << 40)}")
    path.mkdir()
    return path


def calls(rig):
    """Every call, and every error of it."""
    place = folder(rig)
    both = [rig.start([CALLS, place, rank], name=f"calls, rank {rank}") for rank in (0, 1)]
    for process in both:
        process.must_end_well(60)
    rig.end_children()
    rig.ended()


def storm(rig, procs, windows, env=None, hosts=(None,)):
    place, seed = folder(rig), random.randrange(1, 1 << 31)
    began = time.monotonic()
    all_of_them = [rig.start([STORM, place, rank, procs, seed, windows], env=env, name=f"rank {rank}, seed {seed}",
                             netns=hosts[rank % len(hosts)])
                   for rank in range(procs)]  # fmt: skip
    for process in all_of_them:
        process.must_end_well(120)
    ended = rig.ended()
    octets = sum(d["rx_octets"] for p in ended for d in p["devices"])
    check(procs == 1 or octets > windows * 100000, f"EtherWARP's counters show {octets} octets")
    rig.end_children()
    print(f"  {procs} processes, seed {seed}: {octets} octets, {time.monotonic() - began:.1f} s", flush=True)


def storms(rig):
    """All protocols between 1 to 16 processes, every octet; without extensions of ours, too."""
    for procs, windows in ((1, 5), (2, 40), (3, 30), (4, 20), (8, 10), (16, 4)):
        storm(rig, procs, windows * (10 if FULL else 1))
    storm(rig, 3, 10, {"ETHERWARP_EXTENSIONS": "no"})
    storm(rig, 3, 10, {"EWARP_CHANNEL_REGISTRATION": "costly"})


def hosts(rig):
    """Two hosts, with two processes each: the address is that of the interface that both have, and not loopback's."""
    names = [rig.namespace("a"), rig.namespace("b")]
    rig.veth(*names)
    storm(rig, 4, 10, hosts=names)


def states():
    return subprocess.run([VICTIM, "--list"], capture_output=True, text=True, check=True).stdout.split()


def one_ends(rig, state, number, within, late=False, env=None):
    """The victim gets this signal in this state: the survivor gets its error within so many seconds."""
    place = folder(rig)
    words = ["late"] if late else []
    survivor, victim = (rig.start([VICTIM, place, rank, state, *words], env=env, name=f"{state}, rank {rank}")
                        for rank in (0, 1))  # fmt: skip
    for process in (victim, survivor):
        wait_until(lambda p=process: p.status is not None or "there" in p.output(), 30, process.said)
        check(process.status is None or "failed" in process.output(), f"{process.name} ended\n{process.said()}")
    if state == "unasked":
        wait_until(lambda: rig.octets(survivor.pid) >= LEDGER, 30, victim.said)
    os.kill(victim.pid, number)
    if late:
        check(victim.wait(10) == -signal.SIGKILL, victim.said())
        (place / "go").touch()
    survivor.must_end_well(within)
    check("failed after" in survivor.output(), survivor.said())
    print(f"  {state}{' late' if late else ''}: {survivor.output().splitlines()[-1]}", flush=True)
    victim.send(signal.SIGKILL)
    rig.end_children()
    rig.ended()


def killed(rig):
    """kill -9 of a partner in each state."""
    for state in states():
        if state == "closing":
            continue  # its octets would be there before the signal is
        one_ends(rig, state, signal.SIGKILL, NOTICED_WITHIN)


def killed_before(rig):
    """It was killed before anybody had connected to it, or while nobody looked, or had connected to one who never asked."""
    some = ("idle-data", "receives", "unasked", "closing")
    for state in ("idle-buffer", "idle-anybody", "unread-receive", "offers", *some) if FULL else some:
        one_ends(rig, state, signal.SIGKILL, NOTICED_WITHIN + CONNECT_TIMEOUT, late=True)


def stopped(rig):
    """One stands still with its connections open and nothing under way, as a host that vanished: noticed after death_ns."""
    env = {"EWARP_CHANNEL_DEATH_NS": "4000000000"}
    for state in ("idle-buffer", "took-buffer", "unread-offer") if FULL else ("idle-buffer", "took-buffer"):
        one_ends(rig, state, signal.SIGSTOP, 4 + NOTICED_WITHIN, env=env)


def odd(rig, case, procs=2):
    """The processes of a case, and their folder."""
    place = folder(rig)
    return place, [rig.start([ODD, place, rank, case], name=f"{case}, rank {rank}") for rank in range(procs)]


def all_end_well(rig, processes, seconds):
    for process in processes:
        process.must_end_well(seconds)
    print(f"  {processes[0].name.partition(',')[0]}", flush=True)
    rig.end_children()
    rig.ended()


def said(process, word, seconds=30):
    wait_until(lambda: process.status is not None or word in process.output(), seconds, process.said)
    check(word in process.output(), process.said())


def limits(rig):
    """As many requests as there may be; offsets beyond 4 GiB; calls by threads in turn."""
    for case, seconds in (("far", 30), ("threads", 60), ("outstanding", 120)):
        all_end_well(rig, odd(rig, case)[1], seconds)


def leaves(rig):
    """One that nobody asked for anything leaves in order."""
    place, (asks, posts, goes) = odd(rig, "leaves", 3)
    said(asks, "told")
    wait_until(lambda: rig.octets(goes.pid) >= LEDGER, 30, asks.said)
    (place / "leave").touch()
    goes.must_end_well(30)
    (place / "post").touch()
    all_end_well(rig, (asks, posts), 30)


def ends(rig):
    """Ends with transfers under way: by exit(), by gravel_finalize(), of forked children, of their parent before them."""
    for case in ("exits", "finalizes"):
        all_end_well(rig, odd(rig, case)[1], 60)
    _, (survivor, parent) = odd(rig, "forks")
    for process in (survivor, parent):
        said(process, "there")
    os.kill(parent.pid, signal.SIGKILL)
    survivor.must_end_well(NOTICED_WITHIN)
    os.kill(int(parent.output().split()[1]), signal.SIGKILL)
    rig.end_children()
    rig.ended()


def delivers(rig):
    """What was put before gravel_finalize() comes to one that stands still for longer than that takes."""
    place, (consumer, producer) = odd(rig, "delivers")
    for process in (consumer, producer):
        said(process, "there")
    os.kill(consumer.pid, signal.SIGSTOP)
    (place / "go").touch()
    time.sleep(CLOSE_TIMEOUT + 2)
    os.kill(consumer.pid, signal.SIGCONT)
    all_end_well(rig, (consumer, producer), 60)


def example(name):
    program = BIN / name
    if not program.exists():
        raise Skip(f"no {name}: its compiler was not there at build time (scripts/packages.txt)")
    return program


def verify(rig, name, words, ranks, env=None):
    output = run_job(rig, name, words, ranks, 10000, 60, {"ETHERWARP_STATS_KEEP": "yes", **(env or {})})
    check("verified" in output, f"{name}: {output}")


def mpirun(rig, ranks, *words):
    return [rig.etherwarp, "mpirun", *as_anybody(), "-n", ranks, *words]


def examples(rig):
    """The ring and the wavefront beside Open MPI, in C and Fortran."""
    need("mpirun.openmpi")
    for name in ("gravel_ring1d", "gravel_wavefront2d", "gravel_ring1d_f", "gravel_wavefront2d_f"):
        verify(rig, name, mpirun(rig, 4, example(name)), 4)
    verify(rig, "ring of 3, long", mpirun(rig, 3, example("gravel_ring1d"), 300000, 4), 3)
    verify(rig, "wavefront of 6", mpirun(rig, 6, example("gravel_wavefront2d"), 30, 10), 6)


def fortran(rig):
    """Every call in Fortran, by the module and by the header, of a process with itself."""
    need("mpirun.openmpi")
    for name in ("ewarp_gravel_f90", "ewarp_gravel_f77"):
        job = rig.start_plain(mpirun(rig, 1, example(name)), name=name)
        job.must_end_well(60)
        check("verified" in job.output(), job.said())
        print(f"  {name}", flush=True)
    rig.end_children()


def mpich(rig):
    """The same beside MPICH, which goes over the twin."""
    need("mpiexec.hydra")
    env = {**UCX, "UCX_TLS": "ud_verbs,self"}
    for name in ("gravel_ring1d.mpich", "gravel_wavefront2d.mpich"):
        verify(rig, name, ["mpiexec.hydra", "-n", 4, *rig.words([example(name)], ["--twin"])], 4, env)


def no_device(rig):
    """Without an RDMA device every process gets the error, and the reason names who has none."""
    place = folder(rig)
    both = [rig.start_plain([CALLS, place, rank], name=f"no device, rank {rank}") for rank in (0, 1)]
    for process in both:
        check(process.wait(30) == 1, process.said())
        check("11 (no RDMA device)" in process.output() and "process 0: " in process.output(), process.said())
    rig.end_children()


if __name__ == "__main__":
    main(calls, no_device, storms, hosts, limits, leaves, ends, delivers, killed, killed_before, stopped, examples, fortran,
         mpich)  # fmt: skip
