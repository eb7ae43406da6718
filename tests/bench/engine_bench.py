#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What the engine is measured by: many connections, fairness, latency and bandwidth beside raw TCP, runs that stand out.

    tests/bench/engine_bench.py [--only ROW]... [--rounds N] [--quick] [--build DIRECTORY] [--output DIRECTORY]

One row after the other, each of at least 10 rounds; what is compared runs in alternation, and a run that does not end
in its time is counted, not waited for. Writes engine.md and engine.json. `--list` names the rows.
"""
import argparse
import collections
import datetime
import json
import os
import pathlib
import platform
import re
import shutil
import statistics
import subprocess
import sys
import time

import bench
import datagram_bench
from common import (ROOT, SKIPPED, Failure, Rig, cpu_model, end_well, free_port, in_turn, keep_report,
                    load_remark, run_to_end, say_since, size_name)  # fmt: skip

KIB, MIB = 1 << 10, 1 << 20
LAT_TOOLS = ("ib_send_lat", "ib_write_lat", "ib_read_lat", "ib_atomic_lat")
BW_TOOLS = ("ib_send_bw", "ib_write_bw", "ib_read_bw", "ib_atomic_bw")
RUN_S = 20  # a run of a tool that takes longer does not end

# What a row came to. figures: a value a round, of which `typical` is the one that counts; bound: (at most or at least,
# the value wanted), or None where the figure explains another one.
Result = collections.namedtuple("Result", "name unit figures better wanted of note")


def result(name, unit, figures, better, wanted, of=statistics.median, note=""):
    return Result(name, unit, list(figures), better, wanted, of, note)


def worst(values, better):
    return max(values) if better == "lower" else min(values)


def met(r):
    if r.wanted is None or not r.figures:
        return None
    value = r.of(r.figures)
    return value <= r.wanted if r.better == "lower" else value >= r.wanted


class Bench(bench.Bench):
    """The machinery of bench.py, and runs that may fail to end."""

    def __init__(self, a, say):
        super().__init__(a)
        self.say = say
        if a.free:  # each process sees all CPUs, and its defaults are those of every day
            self.options = list(a.option)

    def ends(self, run, seconds=RUN_S):
        """What run() gives; None if it is not finished after so many seconds."""
        before, self.a.timeout = self.a.timeout, seconds
        try:
            return run()
        except Failure as e:
            if not isinstance(e.__cause__, subprocess.TimeoutExpired):
                raise
            for file in pathlib.Path(self.rundir).iterdir():  # the counters of what was ended
                file.unlink()
            return None
        finally:
            self.a.timeout = before

    def tool(self, tool, size, iterations):
        return self.ends(lambda: self.perftest(tool, size, iterations, "by_path"))

    def raw_poll(self, iterations):
        """Half a round trip of raw polling TCP: median, 99 %."""
        half = self.raw_tcp("poll", 8, iterations)["half_round_trip_us"]
        return half["median"], half["p99"]

    def pairs(self, *words, least, seconds):
        """Two processes of ewarp_verbs_pairs; what the client says, or None."""
        port = free_port()
        command = [str(self.build / "bin" / "ewarp_verbs_pairs"), "--device", "ewarp_lo", "--port", str(port),
                   *map(str, words)]  # fmt: skip
        out = self.ends(lambda: self.two_processes("ewarp_verbs_pairs", command, [*command, self.a.address], port,
                                                   "by_path", least), seconds)  # fmt: skip
        return None if out is None else json.loads(next(line for line in out.splitlines() if line.startswith("{")))


# --- rows -----------------------------------------------------------------------------------------------------------


def wait_for_ports(count):
    """Until so many local ports are free: an ended connection keeps its own for a minute (TIME_WAIT)."""
    low, high = map(int, pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split())
    limit = time.monotonic() + 90
    while time.monotonic() < limit:
        waiting = int(re.search(r"^TCP: .*\btw (\d+)", pathlib.Path("/proc/net/sockstat").read_text(encoding="ascii"), re.M)[1])
        if high - low - waiting > 1.5 * count:
            return
        time.sleep(1)
    raise Failure(f"fewer than {count} local ports came free in 90 s")


def many(b):
    """4096 connections of rdma_cm between two processes: connecting, a round trip on all three times, ending."""
    count, found, unfinished = 200 if b.a.quick else 4096, collections.defaultdict(list), 0
    for n in range(b.a.rounds):
        wait_for_ports(count)
        rig = Rig(b.build)
        port, program = free_port(), b.build / "bin" / "ewarp_limits"
        try:
            run = rig.pair("many", *([program, role, port, count, 3] for role in ("many-server", "many-client")), port,
                           count * 3 * 8, seconds=b.a.many_seconds, quiet=True)  # fmt: skip
        except Failure as e:
            if "within" not in str(e):
                raise
            unfinished += 1
            found["in all"].append(float(b.a.many_seconds))
            b.say(f"many: run {n + 1}: not ended in {b.a.many_seconds:g} s")
            continue
        finally:
            rig.close()
        each = collections.Counter()  # seconds
        for what, us in re.findall(r"^(.*?): ([\d.]+) us, ", run.client, re.M):
            each[what] += float(us) * 1e-6 * count
        parts = {"connecting": each["connected"],
                 "traffic": each["round trips, 64 at once"] + each["round trips, all at once"],
                 "ending": each["disconnected"] + each["destroyed"]}  # fmt: skip
        for part, seconds in parts.items():
            found[part].append(seconds)
        found["in all"].append(sum(parts.values()))
        b.say(f"many: run {n + 1}: " + ", ".join(f"{part} {seconds:.2f}" for part, seconds in parts.items()) + " s")
    note = f"{unfinished} not ended in {b.a.many_seconds:g} s" if unfinished else ""
    yield result(f"{count} connections", "s", found.pop("in all"), "lower", 10, max, note)
    for part, seconds in found.items():
        yield result(f"{count} connections, {part}", "s", seconds, "lower", None)


def stress(b):
    """verbs_stress_test, as CTest runs it."""
    seconds = []
    for n in range(b.a.rounds):
        began = time.monotonic()
        try:
            run_to_end([str(b.build / "bin" / "verbs_stress_test")], b.a.many_seconds)
            seconds.append(time.monotonic() - began)
        except Failure as e:
            if not isinstance(e.__cause__, subprocess.TimeoutExpired):
                raise
            seconds.append(float(b.a.many_seconds))
        b.say(f"stress: run {n + 1}: {seconds[-1]:.2f} s")
    yield result("verbs_stress_test", "s", seconds, "lower", 5, max)


def one_of_many(b):
    """A ping-pong on one queue pair of 4000 connected ones, by the same on a single one; how long connecting took."""
    count, ratios, iterations = 100 if b.a.quick else 4000, [], 500 if b.a.quick else 20000
    connecting = []
    unfinished = 0

    def run(pairs):
        words = ("--mode", "latency", "--pairs", pairs, "--iterations", iterations, "--size", 8)
        return b.pairs(*words, least=iterations * 8, seconds=b.a.many_seconds)

    for n in range(b.a.rounds):
        wait_for_ports(count)
        one, of_many = in_turn(n, [lambda: run(1), lambda: run(count)])
        if one is None or of_many is None:
            unfinished += 1
            b.say(f"one_of_many: round {n + 1}: not ended in {b.a.many_seconds:g} s")
            continue
        us = [said["half_round_trip_us"]["median"] for said in (one, of_many)]
        ratios.append(us[1] / us[0])
        connecting.append(of_many["connect_s"])
        b.say(f"one_of_many: round {n + 1}: 1 of 1 {us[0]:.2f}, 1 of {count} {us[1]:.2f} µs, connected in "
              f"{connecting[-1]:.2f} s")  # fmt: skip
    note = f"{unfinished} rounds not ended in {b.a.many_seconds:g} s" if unfinished else ""
    yield result(f"latency, 1 active of {count} by 1 of 1", "ratio", ratios, "lower", 1.05, note=note)
    yield result(f"{count} connections by address", "s", connecting, "lower", 10, of=max)


def fairness(b):
    """Jain's index of what 64 queue pairs of one process wrote in a second."""
    jain, rate = [], []
    for n in range(b.a.rounds):
        said = b.pairs("--mode", "fairness", "--pairs", 64, "--size", 4096, "--seconds", 0.1 if b.a.quick else 1,
                       least=4096, seconds=RUN_S)  # fmt: skip
        if said is None:
            said = {"jain": 0, "least": 0, "most": 0, "gbit_per_s": 0}
        jain.append(said["jain"])
        rate.append(said["gbit_per_s"])
        b.say(f"fairness: run {n + 1}: {said}")
    yield result("Jain's fairness of 64 queue pairs", "index", jain, "higher", 0.98)
    yield result("… together", "Gbit/s", rate, "higher", None)


def latency(tool, wanted):
    def row(b):
        ratios, tails, raw_tails, unfinished = [], [], [], 0
        factor = 2 if tool == "ib_read_lat" else 1
        n_of = b.a.latency_iterations
        for n in range(b.a.rounds):
            (raw, raw_tail), ours = in_turn(n, [lambda: b.raw_poll(n_of), lambda: b.tool(tool, 8, n_of)])
            raw_tails.append(raw_tail / raw)
            if ours is None:
                unfinished += 1
                b.say(f"{tool}: round {n + 1}: not ended in {RUN_S} s")
                continue
            ratios.append(ours[4] / (raw * factor))
            tails.append(ours[7] / ours[4])
            b.say(f"{tool}: round {n + 1}: raw {raw * factor:.2f}, EtherWARP {ours[4]:.2f} µs; mean {ours[5]:.2f}, 99 % {ours[7]:.2f}")
        mine = tool == "ib_write_lat"
        yield result(f"{tool} -R by raw polling TCP", "ratio", ratios, "lower", wanted)
        yield result(f"{tool} -R, 99 % by its median", "ratio", tails, "lower", 2.5 if mine else None,
                     note=f"raw TCP {statistics.median(raw_tails):.2f}")  # fmt: skip
        if mine or unfinished:
            yield result(f"{tool} -R, of {b.a.rounds} runs not ended in {RUN_S} s", "runs", [unfinished], "lower", 0, max)

    row.__doc__ = f"{tool} -R, 8 B, beside raw polling TCP: typical, its 99 %, runs that do not end."
    return row


def outliers(b):
    """The slowest run of each perftest tool by its median, by raw TCP's own slowest by median in the same alternation."""
    runs = 3 if b.a.quick else max(20, b.a.rounds)
    lat_n, bw_n = (200, 50) if b.a.quick else (5000, 20000)
    for tool in (*LAT_TOOLS, *BW_TOOLS):
        if b.a.tool and tool not in b.a.tool:
            continue
        is_bw = tool.endswith("_bw")
        size = 8 if "atomic" in tool or not is_bw else 64 * KIB
        theirs, ours, unfinished = [], [], 0
        for n in range(runs):
            raw, figures = in_turn(n, [
                (lambda: 1 / b.raw_bandwidth(64 * KIB, bw_n)) if is_bw else (lambda: b.raw_poll(lat_n)[0]),
                lambda: b.tool(tool, size, bw_n if is_bw else lat_n),
            ])  # fmt: skip
            theirs.append(raw)
            if figures is None:
                unfinished += 1
                ours.append(None)
            else:  # time for a message, or for an octet
                ours.append(1 / max(figures[3], 1e-3) if is_bw else figures[4])
        ended = [v for v in ours if v is not None]
        if not ended:
            yield result(f"{tool}, slowest of {runs}", "ratio", [], "lower", 1.2, note=f"none ended in {RUN_S} s")
            continue
        own, raw = (max(v) / statistics.median(v) for v in (ended, theirs))
        b.say(f"outliers: {tool}: slowest by median {own:.2f}, raw TCP {raw:.2f}, {unfinished} not ended")
        note = f"{own:.2f} against {raw:.2f}" + (f"; {unfinished} not ended in {RUN_S} s" if unfinished else "")
        yield result(f"{tool}, slowest of {runs} by its median, by raw TCP's", "ratio", [own / raw], "lower",
                     1.2 if not unfinished else 0, note=note)  # fmt: skip


def datagrams(b):
    """RD's and UD's latency at 8 B by RC's."""
    words = ["--build", str(b.build), "--only", "latency, 8 B", "--pairs", str(b.a.rounds), "loopback"]
    a = datagram_bench.parse([*words, *(["--smoke"] if b.a.quick else [])])
    loopback = next(link for link in datagram_bench.LINKS if link.name == "loopback")
    inner = datagram_bench.Bench(a, loopback)
    try:
        rows, _ = datagram_bench.measure(inner, b.say)
    finally:
        inner.close()
    for row in rows:
        name = "RD" if "RD" in row.name else "UD"
        ratios = [o / t for o, t in zip(row.ours, row.theirs)]
        yield result(f"{name}'s latency at 8 B by RC's", "ratio", ratios, "lower", 1.15 if name == "RD" else 0.9)


def wavefront(b):
    """A wavefront over two ranks (the pattern of NPB LU), its time by that over Open MPI's btl tcp."""
    program = b.build / "bin" / "ewarp_mpi_wavefront"
    if not program.exists() or shutil.which("mpirun.openmpi") is None:
        b.say("wavefront: left out: ewarp_mpi_wavefront or Open MPI is not there")
        return
    # Class A, and planes of a quarter of its time (class W). Bound as mpirun does for two ranks, and not.
    for grid, steps, wanted in ((64, 20, 1.0), (33, 150, None)):
        for binding in ("core", "none"):
            size = ("--quick",) if b.a.quick else ("--grid", str(grid), "--steps", str(steps))
            name = f"wavefront, grid {grid}, {'bound' if binding == 'core' else 'not bound'}"
            ratios = []
            for n in range(b.a.rounds):
                tcp, ours = in_turn(n, [lambda way=way: wavefront_run(b, program, way, binding, size)
                                        for way in ("btl-tcp", "etherwarp")])  # fmt: skip
                ratios.append(ours / tcp)
                b.say(f"{name}: round {n + 1}: btl tcp {tcp:.3f}, EtherWARP {ours:.3f} s")
            yield result(f"{name}, by btl tcp", "ratio of times", ratios, "lower", wanted)


def wavefront_run(b, program, way, binding, size):
    """Seconds. The program fails if its result is wrong."""
    from mpi_bench import transports

    words, env = transports(b.etherwarp, "network")[way]
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    command = [*words, *root, "--bind-to", binding, *(["--oversubscribe"] if binding == "none" else []), "-n", "2",
               str(program), *size]  # fmt: skip
    out = run_to_end(command, b.a.many_seconds, {**os.environ, "ETHERWARP_RUNDIR": b.rundir, **env})
    if way == "etherwarp":
        b.check_path("wavefront", 10000)
    return json.loads(next(line for line in out.splitlines() if line.startswith("{")))["seconds"]


def bandwidth(size):
    def row(b):
        octets = 8 * MIB if b.a.quick else b.a.bandwidth_octets
        iterations = max(10, octets // size)
        models = has_crc_mode(b)
        for tool in ("ib_write_bw", "ib_send_bw", "ib_read_bw"):
            if b.a.tool and tool not in b.a.tool:
                continue
            off, on = [], []
            for n in range(b.a.rounds):
                raw, raw_crc, without, with_crc = in_turn(n, [
                    lambda: b.raw_bandwidth(size, iterations),
                    lambda: raw_stream_with_crc(b, size, iterations) if models else None,
                    lambda: b.bandwidth(tool, size, iterations, "never"),
                    lambda: b.bandwidth(tool, size, iterations, "always"),
                ])  # fmt: skip
                off.append(without / raw)
                on.append(with_crc / (raw_crc or raw))
                b.say(f"{tool}, {size_name(size)}: round {n + 1}: raw {raw:.1f}, with a CRC {raw_crc or 0:.1f}; EtherWARP "
                      f"{without:.1f}, with CRC {with_crc:.1f} Gbit/s")  # fmt: skip
            yield result(f"{tool}, {size_name(size)}, CRC off, by raw TCP", "ratio", off, "higher", 0.95)
            model = "raw TCP with one CRC pass at each end" if models else "raw TCP (no model with CRC here)"
            yield result(f"{tool}, {size_name(size)}, CRC on, by {model}", "ratio", on, "higher", 0.95 if models else None)

    row.__doc__ = f"ib_write_bw, ib_send_bw, ib_read_bw with {size_name(size)} beside a raw stream, CRC off and on."
    return row


def has_crc_mode(b):
    return "--crc" in run_to_end([b.raw, "--help"], 10)


def raw_stream_with_crc(b, size, iterations):
    """A raw stream whose ends each compute a CRC of all octets."""
    command = [b.raw, "--mode", "stream", "--crc", "--size", str(size), "--iterations", str(iterations), "--warm-up",
               str(max(1, iterations // 20)), "--address", b.a.address, "--server-cpus", b.server_cpus, "--client-cpus",
               b.client_cpus, "--timeout", str(b.a.timeout)]  # fmt: skip
    return json.loads(run_to_end(command, b.a.timeout + 5))["gbit_per_s"]


def puts(b):
    """A loop that writes 8 B, waits for the completion and computes 10 µs: what completions that are held cost."""
    n = 500 if b.a.quick else 20000
    found = collections.defaultdict(list)
    for round_ in range(b.a.rounds):
        for who, words in (("alone", ()), ("both ends", ("--mutual",))):
            said = b.pairs("--mode", "puts", "--size", 8, "--iterations", n, *words, least=8 * n, seconds=RUN_S)
            found[who].append(float(RUN_S * 1e6 / n) if said is None else said["put_us"]["mean"])
        b.say(f"puts: round {round_ + 1}: " + ", ".join(f"{who} {us[-1]:.2f} µs" for who, us in found.items()))
    for who, us in found.items():
        yield result(f"a put and its completion, {who}", "µs (mean)", us, "lower", None)


ROWS = {
    "many": many,
    "stress": stress,
    "one_of_many": one_of_many,
    "fairness": fairness,
    "send_lat": latency("ib_send_lat", 1.12),
    "read_lat": latency("ib_read_lat", 1.12),
    "write_lat": latency("ib_write_lat", 1.5 if (os.cpu_count() or 1) < 4 else 1.25),
    "outliers": outliers,
    "datagrams": datagrams,
    "wavefront": wavefront,
    "bw_64k": bandwidth(64 * KIB),
    "bw_1m": bandwidth(MIB),
    "puts": puts,
}


# --- report ---------------------------------------------------------------------------------------------------------


def as_line(r):
    if not r.figures:
        return f"| {r.name} | {r.unit} | | | | 0 | {r.note or 'nothing measured'} |"
    wanted = "" if r.wanted is None else f"{'≤' if r.better == 'lower' else '≥'} {r.wanted:g}"
    if r.wanted is not None and r.of is max and len(r.figures) > 1:
        wanted = f"every one {wanted}"
    mark = {None: "", True: " (met)", False: " (missed)"}[met(r)]
    return (f"| {r.name} | {r.unit} | {statistics.median(r.figures):.3g} | {worst(r.figures, r.better):.3g} | {wanted}{mark} | "
            f"{len(r.figures)} | {r.note} |")  # fmt: skip


def report(b, results, seconds):
    return "\n".join([
        "# The engine, measured",
        "",
        f"{datetime.datetime.now().astimezone():%Y-%m-%d %H:%M %Z}; {cpu_model()}, {os.cpu_count()} CPUs; Linux {platform.release()}; "
        + ("not pinned; " if b.a.free else f"server on CPUs {b.server_cpus}, client on {b.client_cpus}; ")
        + f"{seconds:.0f} s; {load_remark(b.load)}.",
        f"Options of EtherWARP: {' '.join(b.options) or 'defaults'}.",
        "",
        "| what | unit | median | worst | wanted | runs | |",
        "|---|---|--:|--:|--:|--:|---|",
        *[as_line(r) for r in results],
        "",
    ])  # fmt: skip


def parse(argv):
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", default=str(ROOT / "build"), help="build directory (default: build)")
    p.add_argument("--output", help="directory of engine.md and engine.json (default: BUILD/bench)")
    p.add_argument("--only", action="append", default=[], metavar="ROW", help="only this row, may be repeated")
    p.add_argument("--tool", action="append", default=[], help="in rows of several perftest tools only this one")
    p.add_argument("--list", action="store_true", help="name the rows")
    p.add_argument("--rounds", type=int, default=10, help="runs of each thing (default: 10)")
    p.add_argument("--quick", action="store_true", help="one round of tiny runs: does everything work?")
    p.add_argument("--seconds", dest="many_seconds", type=float, default=60,
                   help="bound of one run of the long rows (default: 60)")  # fmt: skip
    p.add_argument("--address", default="127.0.0.1")
    p.add_argument("--server-cpus")
    p.add_argument("--client-cpus")
    p.add_argument("--free", action="store_true", help="do not pin the two sides to CPUs of their own")
    p.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help="an option of EtherWARP")
    p.add_argument("--latency-iterations", type=int, default=20000)
    p.add_argument("--bandwidth-octets", type=int, default=2 << 30, help="octets of one bandwidth run (default: 2 GiB)")
    a = p.parse_args(argv)
    a.timeout = 60
    if unknown := set(a.only) - set(ROWS):
        p.error(f"no row {', '.join(sorted(unknown))}; there are {', '.join(ROWS)}")
    if a.quick:
        a.rounds, a.latency_iterations = 1, 200
    if a.free:
        a.server_cpus = a.client_cpus = ",".join(map(str, sorted(os.sched_getaffinity(0))))
    if a.rounds < 1:
        p.error("--rounds must be at least 1")
    return a


def run(a, b, begin):
    if (problem := bench.missing(b)) is not None:
        print(f"engine_bench: {problem[0]}", file=sys.stderr)
        return problem[1]
    results = [r for name in (a.only or ROWS) for r in ROWS[name](b)]
    if not results:
        print("engine_bench: nothing could be measured", file=sys.stderr)
        return SKIPPED
    page = report(b, results, time.monotonic() - begin)
    keep_report(a.output or b.build / "bench", "engine", page, {
        "rows": [{**r._replace(of=r.of.__name__)._asdict(), "met": met(r)} for r in results], "rounds": a.rounds,
        "options": b.options, "server_cpus": b.server_cpus, "client_cpus": b.client_cpus, "cpu": cpu_model(),
        "kernel": platform.release(), "load": b.load})  # fmt: skip
    return 0


def main(argv):
    a = parse(argv)
    if a.list:
        for name, row in ROWS.items():
            print(f"{name:12} {row.__doc__.splitlines()[0]}")
        return 0
    begin = time.monotonic()
    b = Bench(a, say_since(begin))
    return end_well("engine_bench", b, lambda: run(a, b, begin))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
