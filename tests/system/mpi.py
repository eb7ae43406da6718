# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`etherwarp mpirun`: unmodified MPI programs of all kinds over EtherWARP, on one machine (mpi_hosts.py: between several)."""
import os
import pathlib
import re
import signal

from harness import FULL, Skip, check, main, need, wait_until
from mpi_jobs import as_anybody, check_suite, run_job, run_job_counted, suite

SCRIPTS = pathlib.Path(__file__).resolve().parent.parent / "mpi" / "python"
SCALAPACK = pathlib.Path("/usr/lib/x86_64-linux-gnu/scalapack/openmpi-tests")
SCALAPACK_DATA = pathlib.Path("/usr/share/scalapack")
DEBIAN_PYTHON = "/usr/bin/python3"  # the one that mpi4py is for

POINT_TO_POINT = ["blocking", "nonblocking", "sendrecv", "persistent", "probe", "cancel", "wildcard", "order", "oneself", "errors"]
ONE_SIDED = ["onesided", "accumulate", "bounds", "layouts", "passive"]
REST = ["datatypes", "collectives", "icollectives", "neighbourhood", "communicators", *ONE_SIDED, "shared", "buffers",
        "children", "threads"]  # fmt: skip
KEPT = {"ETHERWARP_STATS_KEEP": "yes"}
SMALL, MEDIUM, LARGE, HUGE = 1 << 10, 160 << 10, 4 << 20, 128 << 20  # octets: by the thresholds of `etherwarp mpirun`


def words(rig, ranks, program, *options):
    """Of a job over EtherWARP."""
    need("mpirun.openmpi")
    return [rig.etherwarp, "mpirun", *as_anybody(), *options, "-n", ranks, *program]


def job(rig, name, ranks, program, least, seconds=60, **how):
    env = {**KEPT, **how.pop("env", {})}
    return run_job(rig, name, words(rig, ranks, program, *how.pop("options", ())), ranks, least, seconds, env, **how)


def run_suite(rig, ranks, subjects, *options, least=1 << 20, seconds=200, mpirun=(), env=None):
    """mpirun: options of its own. Open MPI before 4.1.5 crashes at some swaps (docs/user/mpi.md, Limits)."""
    name = f"suite{''.join(f' {o}' for o in (*mpirun, *options))}"
    output = job(rig, name, ranks, [suite("openmpi"), "--no-own-swaps", *options, *subjects], least, seconds,
                 options=mpirun, env=env or {})  # fmt: skip
    check_suite(name, output, subjects)


def two_ranks(rig):
    """The whole suite with 2 ranks; threads."""
    run_suite(rig, 2, POINT_TO_POINT + REST, *(["--full"] if FULL else []), least=100 << 20, seconds=600)
    run_suite(rig, 2, ["threads", "wildcard", "icollectives", *ONE_SIDED], "--threads")


def more_ranks(rig):
    """4 and 16 ranks: what needs many; in the full mode everything."""
    if FULL:
        for ranks in (4, 16):
            run_suite(rig, ranks, POINT_TO_POINT + REST, *(["--full"] if ranks == 4 else []), seconds=1500)
    else:
        run_suite(rig, 4, ["wildcard", "order", "communicators", "icollectives", "shared", *ONE_SIDED])
        run_suite(rig, 16, ["wildcard", "communicators", *ONE_SIDED])


def one_sided(rig):
    """One-sided communication without shared memory, which osc sm would take on one machine."""
    for ranks in (2, 4, 16):
        run_suite(rig, ranks, ONE_SIDED, *(["--threads"] if ranks == 4 else []), mpirun=("--mca", "osc", "rdma"))


def network_atomics(rig):
    """Atomic operations of the network for accumulates of one element, which docs/user/mpi.md offers, give right results."""
    need(DEBIAN_PYTHON)
    chosen = ("--mca", "osc", "rdma", "--mca", "osc_rdma_network_max_amo", "1")
    program, ranks, count = [DEBIAN_PYTHON, "-B", "-m", "mpi4py", SCRIPTS / "tickets.py", 200], 4, 200
    output = job(rig, "tickets.py", ranks, program, 8 * ranks * count, options=chosen)
    check(output.count(" ok") == ranks, f"tickets.py:\n{output}")
    # Without accumulate, which asks for operations that Open MPI's btl ofi has not.
    run_suite(rig, 4, [subject for subject in ONE_SIDED if subject != "accumulate"], mpirun=chosen)


def channel_totals(processes, names):
    """Counters of the message channel, all ranks together."""
    return {name: sum(c.get(name, 0) for p in processes for c in p["channels"]) for name in names}


def announced(rig):
    """Receives that come first announce their buffers, and what is sent afterwards is written there."""
    need(DEBIAN_PYTHON)
    output, processes = run_job_counted(rig, "announced.py", words(rig, 2, [DEBIAN_PYTHON, "-B", SCRIPTS / "announced.py"]), 2,
                                        20 << 18, env=KEPT)  # fmt: skip
    check(output.count(" ok") == 2, f"announced.py:\n{output}")
    total = channel_totals(processes, ("recv_rndv", "announced", "send_rndv_write"))
    check(total == {"recv_rndv": 20, "announced": 20, "send_rndv_write": 0}, f"by the channels' counters {total}")


def four_protocols(rig):
    """EAGER, HYBRID, SEND_RNDV and RECV_RNDV each carry messages of one job."""
    need(DEBIAN_PYTHON)
    output, processes = run_job_counted(rig, "protocols.py",
                                        words(rig, 2, [DEBIAN_PYTHON, "-B", SCRIPTS / "protocols.py", SMALL, MEDIUM, LARGE]),
                                        2, 40 * (MEDIUM + LARGE), env=KEPT)  # fmt: skip
    check(output.count(" ok") == 2, f"protocols.py:\n{output}")
    total = channel_totals(processes, ("eager", "hybrid", "send_rndv_write", "recv_rndv"))
    check(total["eager"] >= 40 and (total["hybrid"], total["send_rndv_write"], total["recv_rndv"]) == (20, 20, 40),
          f"by the channels' counters {total}")  # fmt: skip


def small_beside_large(rig):
    """Small messages pass large ones that wait for room at the adapter."""
    need(DEBIAN_PYTHON)
    output, processes = run_job_counted(rig, "beside.py", words(rig, 2, [DEBIAN_PYTHON, "-B", SCRIPTS / "beside.py", HUGE]), 2,
                                        HUGE, env=KEPT)  # fmt: skip
    check(output.count(" ok") == 2, f"beside.py:\n{output}")
    total = channel_totals(processes, ("writes_divided", "writes_passed"))
    check(all(total.values()), f"by the channels' counters {total}")
    print(f"  {total}", flush=True)


def all_to_one(rig):
    """A rank does not receive for seconds while all others send to it: its memory is bounded, nothing is lost, all go on."""
    need(DEBIAN_PYTHON)
    ranks, count, size, limit, shared = 6, 600, 8192, 2 << 20, 1 << 20
    # The options, and what was under way when the limit was reached: the receives of each, of 16508 octets.
    most = limit + shared + (ranks - 1) * 64 * 16508 // 4 + (4 << 20)
    program = [DEBIAN_PYTHON, "-B", "-m", "mpi4py", SCRIPTS / "to_one.py", count, size, most]
    env = {**KEPT, "EWARP_CHANNEL_UNEXPECTED_LIMIT": str(limit), "EWARP_CHANNEL_RECEIVE_MEMORY": str(shared)}
    least = (ranks - 1) * count * size
    check(least > 2 * most, f"{least} octets prove nothing about {most}")
    output, processes = run_job_counted(rig, "to_one.py", words(rig, ranks, program), ranks, least, 100, env=env)
    check(output.count(" ok") == ranks, f"to_one.py:\n{output}")
    total = channel_totals(processes, ("received_unexpected", "credits_held_back"))
    check(all(total.values()), f"by the channels' counters {total}")
    print(f"  {total}; {re.search('grown by .* octets', output)[0]}", flush=True)


def ends_in_order(rig):
    """A medium message ends before the one behind it, as osc pt2pt assumes; nothing waits for a rendezvous."""
    need(DEBIAN_PYTHON)
    program = [DEBIAN_PYTHON, "-B", "-m", "mpi4py", SCRIPTS / "ends.py", MEDIUM, LARGE, pathlib.Path(rig.rundir, "heard")]
    # Without announcements every medium message is HYBRID's.
    output, processes = run_job_counted(rig, "ends.py", words(rig, 2, program), 2, 100 * MEDIUM,
                                        env={**KEPT, "EWARP_CHANNEL_ANNOUNCE": "no"})  # fmt: skip
    check(output.count(" ok") == 2, f"ends.py:\n{output}")
    total = channel_totals(processes, ("hybrid", "completions_held"))
    check(total["hybrid"] == 100 and total["completions_held"] > 0, f"by the channels' counters {total}")
    # Its messages are of some KiB, so nearly all of them go by HYBRID. Its fault with lower bounds is not met here.
    run_suite(rig, 2, ["onesided", "accumulate"], mpirun=("--mca", "osc", "pt2pt"),
              env={"EWARP_CHANNEL_EAGER_THRESHOLD": "1024", "EWARP_CHANNEL_ANNOUNCE": "no"})  # fmt: skip


def registrations_kept(rig):
    """Registrations are kept and memory is mapped anew, in every way (tests/mpi/buffers.c): hot buffers under MPI."""
    subjects = ["buffers", "children", "blocking", "nonblocking", "persistent", *ONE_SIDED]
    output, processes = run_job_counted(rig, "suite, monitored", words(rig, 2, [suite("openmpi"), "--no-own-swaps", *subjects]),
                                        2, 1 << 20, 200, env={**KEPT, "EWARP_CHANNEL_REGISTRATION": "monitored"})  # fmt: skip
    check_suite("suite, monitored", output, subjects)
    total = channel_totals(processes, ("registrations_kept", "registration_hits", "registrations_invalidated"))
    print(f"  {total}", flush=True)
    doctor = rig.start_plain([rig.etherwarp, "doctor"])
    doctor.must_end_well(20)
    check(all(total.values()) == ("ok    memory monitor" in doctor.output()), f"by the channels' counters {total}\n{doctor.said()}")


def large_counts(rig):
    """One message of more than 2 GiB (full mode)."""
    if not FULL:
        raise Skip("only with EWARP_TEST_FULL=1")
    run_suite(rig, 2, ["large"], least=4 << 30, seconds=900)


def mpi4py(rig):
    """Python scripts, with 2 and 4 ranks, and mpi4py's own."""
    need(DEBIAN_PYTHON)
    for ranks in (2, 4, 16) if FULL else (2, 4):
        output = job(rig, "objects.py", ranks, [DEBIAN_PYTHON, "-B", SCRIPTS / "objects.py"], 1 << 20)
        for rank in range(ranks):
            check(f"rank {rank} ok" in output, f"objects.py, {ranks} ranks: rank {rank} is missing\n{output}")
    output = job(rig, "mpi4py.bench ringtest", 4, [DEBIAN_PYTHON, "-m", "mpi4py.bench", "ringtest", "-n", 1000, "-l", 10],
                 4 * 10 * 1000)  # fmt: skip
    check("time for 10 loops" in output, f"ringtest:\n{output}")


def netpipe(rig):
    """NetPIPE: every size with its contents checked, then its figures."""
    need("NPopenmpi")
    largest = 1 << 22 if FULL else 1 << 17
    output = job(rig, "NPopenmpi -i", 2, ["NPopenmpi", "-i", "-u", largest, "-o", f"{rig.rundir}/np.out"], largest, 300)
    passed = len(re.findall(r"Integrity check passed", output))
    check(passed >= 25 and "failed" not in output.lower(), f"NPopenmpi -i: {passed} passed\n{output[-1000:]}")
    output = job(rig, "NPopenmpi", 2, ["NPopenmpi", "-u", largest, "-n", 20, "-p", 0, "-o", f"{rig.rundir}/np.out"],
                 largest, 300)  # fmt: skip
    check(len(re.findall(r"Mbps in", output)) >= 25, f"NPopenmpi:\n{output[-1000:]}")


def hpcc(rig):
    """The HPC Challenge: every part of it, and what it verifies itself."""
    need("hpcc")
    here = pathlib.Path(rig.rundir, "hpcc")
    here.mkdir()
    text = pathlib.Path("/usr/share/doc/hpcc/examples/_hpccinf.txt").read_text(encoding="ascii")
    size, ranks = (2000, 4) if FULL else (200, 2)
    text = re.sub(r"^1000( +Ns)$", rf"{size}\1", text, flags=re.M)
    text = re.sub(r"^2( +Ps)$", rf"{ranks // 2}\1", text, flags=re.M)
    (here / "hpccinf.txt").write_text(text, encoding="ascii")
    run_job(rig, "hpcc", ["env", "-C", here, *words(rig, ranks, ["hpcc"])], ranks, 10 << 20, 1200, KEPT)
    output = (here / "hpccoutf.txt").read_text(encoding="ascii")
    summary = dict(re.findall(r"^(\w+)=(\S+)$", output, re.M))
    check(summary.get("Success") == "1", f"hpcc: no success\n{output[-3000:]}")
    # the residuals of HPL and PTRANS, the errors of RandomAccess
    check("FAILED" not in output and output.count("PASSED") >= 2, f"hpcc: a part failed\n{output[-3000:]}")
    for part in ("HPL_Tflops", "PTRANS_GBs", "MPIRandomAccess_GUPs", "MPIFFT_Gflops", "MaxPingPongLatency_usec",
                 "RandomlyOrderedRingBandwidth_GBytes"):  # fmt: skip
        check(float(summary.get(part, 0)) > 0, f"hpcc: {part} is {summary.get(part)}")


def smaller(text):
    """A tester's data file with one grid of 2 x 2 and no more than two values of anything."""
    text = re.sub(r"^(\d+)(\s+number of process grids.*)$", r"1\2", text, flags=re.M)
    text = re.sub(r"^[\d ]+(\s+values? of [PQ])\s*$", r"2\1", text, flags=re.M)
    return re.sub(r"^(\d+)(\s+number of (?!process|fact).*)$", lambda m: f"{min(2, int(m[1]))}{m[2]}", text, flags=re.M)


def scalapack(rig):
    """ScaLAPACK's testers with 4 ranks: no residual check fails."""
    if not SCALAPACK.is_dir():
        raise Skip("scalapack-mpi-test is not installed (scripts/packages.txt)")
    testers = ["xdlu", "xzqr"]
    if FULL:
        testers = [f"x{kind}{what}" for what in ("lu", "llt", "qr", "ls", "inv", "brd", "hrd", "trd") for kind in "sdcz"]
    here = pathlib.Path(rig.rundir, "scalapack")
    here.mkdir()
    for file in SCALAPACK_DATA.glob("*.dat"):
        text = file.read_text(encoding="ascii")
        (here / file.name).write_text(text if FULL else smaller(text), encoding="ascii")
    for tester in testers:
        output = run_job(rig, tester, ["env", "-C", here, *words(rig, 4, [SCALAPACK / tester])], 4, 10000, 3000, KEPT)
        tests = re.search(r"(\d+) tests completed and passed", output)
        failed = re.search(r"(\d+) tests completed and failed", output)
        check(tests and int(tests[1]) > 0 and failed and int(failed[1]) == 0 and "FAILED" not in output,
              f"{tester}: not all passed\n{output[-2000:]}")  # fmt: skip
        print(f"    {tests[1]} tests passed", flush=True)


def children_of(pid):
    """The processes whose parent it is."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
            except OSError:
                continue
            if int(fields[1]) == pid:
                found.append(int(entry.name))
    return found


def begun(rig, ranks, program, **how):
    """A job that runs for long, every rank in the midst of it; (the tool, the ranks of the mpirun that it has started)."""
    started = rig.start_plain(words(rig, ranks, program), name="endless.py", **how)
    wait_until(lambda: started.status is not None or all(f"rank {r} begins" in started.output() for r in range(ranks)), 60,
               lambda: f"not all ranks begin\n{started.said()}")  # fmt: skip
    check(started.status is None, f"it ended\n{started.said()}")
    return started, [rank for child in children_of(started.pid) for rank in children_of(child)]


def killed(rig):
    """kill -9 of one of 4 ranks: the job ends soon, with an error, and leaves nothing behind."""
    temporary = pathlib.Path(rig.rundir, "tmp")
    temporary.mkdir()
    started, ranks = begun(rig, 4, [DEBIAN_PYTHON, "-B", SCRIPTS / "endless.py"], env={"TMPDIR": str(temporary)})
    check(len(ranks) == 4, f"{len(ranks)} ranks")
    check(all(rig.octets(pid) > 0 for pid in ranks), "a rank's octets did not go over EtherWARP")
    os.kill(ranks[1], signal.SIGKILL)
    status = started.wait(30, "did not end after a rank was killed")
    check(status != 0, f"the job ended well\n{started.said()}")
    check("signal 9" in started.output(), f"mpirun does not say why\n{started.said()}")
    wait_until(lambda: not any(pathlib.Path(f"/proc/{pid}").exists() for pid in ranks), 10, "ranks are left")
    left = [str(p) for p in temporary.rglob("*") if not p.is_dir()]
    check(not left, f"files are left: {left}")
    check(not rig.stat(), f"counters are left: {rig.stat()}")


if __name__ == "__main__":
    main(two_ranks, more_ranks, one_sided, network_atomics, announced, four_protocols, small_beside_large, all_to_one,
         ends_in_order, registrations_kept, large_counts, mpi4py, netpipe, hpcc, scalapack, killed)  # fmt: skip
