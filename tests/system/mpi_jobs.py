# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""MPI jobs for the system tests: how they are started, and that every rank's messages went over EtherWARP."""
import os
import re
import time

from harness import BUILD, Skip, check, check_streams, need


def suite(library):
    """tests/mpi, built with this library's compiler."""
    program = BUILD / "bin" / f"ewarp_mpi_suite.{library}"
    if not program.exists():
        raise Skip(f"no {program.name}: mpicc.{library} was not there at build time (scripts/packages.txt)")
    return program


def open_mpi(*options):
    """mpirun's words on one machine, whoever we are."""
    need("mpirun.openmpi")
    return ["mpirun.openmpi", *as_anybody(), *options]


def as_anybody():
    return ["--oversubscribe", *(["--allow-run-as-root"] if os.geteuid() == 0 else [])]


def run_job(*arguments, **more):
    """As run_job_counted(); returns its output alone."""
    return run_job_counted(*arguments, **more)[0]


def run_job_counted(rig, name, words, ranks, least, seconds=60, env=None, device=None):
    """A job to its good end; by EtherWARP's counters each rank sent and received, together at least so many octets, and
    nothing went wrong below. device: the only one that carried any; how its streams went is not asked then. Returns its
    output, and the counters of its ranks. In the output a rank's line may be apart from its end, with another rank's line
    between them: Open MPI gives each rank a terminal, which passes a line and its end on one after the other."""
    began = time.monotonic()
    job = rig.start_plain(words, env, name)
    job.must_end_well(seconds)
    processes = [p for p in rig.ended() if any(d["tx_octets"] for d in p["devices"])]
    devices = [d for p in processes for d in p["devices"] if d["tx_octets"] + d["rx_octets"]]
    octets = sum(d["tx_octets"] for d in devices)
    check(len(processes) >= ranks and octets >= least,
          f"{name}: EtherWARP's counters show {octets} octets of {len(processes)} processes, not {least} of {ranks}\n"
          f"{job.said()}")  # fmt: skip
    check(all(d["rx_octets"] for d in devices), f"{name}: a rank received nothing over EtherWARP: {devices}")
    check(device is None or {d["name"] for d in devices} == {device}, f"{name}: not only over {device}: {devices}")
    check(sum(d["crc_errors"] for d in devices) == 0, f"{name}: CRC errors: {devices}")
    if device is None:
        check_streams(name, processes)
    output = job.output()
    rig.forget(job)
    print(f"  {name}: {ranks} ranks, {octets} octets over EtherWARP, {time.monotonic() - began:.1f} s", flush=True)
    return output, processes


def check_suite(name, output, subjects):
    """The suite says that it did all of these, and that it came to its end."""
    done = re.findall(r"^(\w+) +ok +(\d+) checks", output, re.M)
    missing = set(subjects) - {subject for subject, checks in done if int(checks) > 0}
    check(not missing and "all subjects ok" in output, f"{name}: not done: {sorted(missing)}\n{output[-2000:]}")
