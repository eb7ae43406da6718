#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Gravel beside MPI: the paper's figure 4 (Danalis et al. 2008), and what of its claims holds here.

    tests/bench/gravel_bench.py [--build DIRECTORY] [--output DIRECTORY] [--rounds N] [--octets N ...] [--ranks N]
                                [--local]

A 1D ring and a 2D wavefront, of four processes (a grid of 2 x 2), or of two where there are fewer CPUs: more processes
than CPUs measure the scheduler. Messages of three sizes. Ways of an exchange:
    plain           computes, sends the whole message: MPI over btl tcp, MPI over EtherWARP, Gravel by consumer-initiated
                    Write, Gravel by producer-initiated Read
    strips          computes a tile, sends it, computes the next one: the same four
    one handshake   tiles as above, but one handshake of Gravel's for all of them
1000 iterations that are not timed, then 1000 that are, for each way; the least time of all rounds, by that of the
computation alone. Writes figure4.md, figure4.json and a chart (SVG) a pattern.
"""
import argparse
import collections
import json
import os
import pathlib
import sys
import tempfile
import time

from common import SKIPPED, Failure, end_well, keep_report, load_remark, run_to_end, say_since

PATTERNS = ("ring", "wavefront")
SIZES = (8 << 10, 64 << 10, 512 << 10)
TILES = 4
MPI = ("mpi", "mpi-strips")
GRAVEL = ("write", "read", "write-strips", "read-strips", "one-handshake")
# In the order of the paper's bars.
BARS = (("btl-tcp", "mpi"), ("etherwarp", "mpi"), ("gravel", "write"), ("gravel", "read"),
        ("btl-tcp", "mpi-strips"), ("etherwarp", "mpi-strips"), ("gravel", "write-strips"), ("gravel", "read-strips"),
        ("gravel", "one-handshake"))  # fmt: skip
NAMES = {"btl-tcp": "MPI, btl tcp", "etherwarp": "MPI, EtherWARP", "write": "Gravel, Write", "read": "Gravel, Read"}


def title(bar):
    transport, way = bar
    how = "plain" if way in ("mpi", "write", "read") else "strips" if way != "one-handshake" else "one handshake"
    return f"{NAMES.get(transport) or NAMES[way.partition('-')[0] if how != 'one handshake' else 'write']}, {how}"


class Bench:
    def __init__(self, a):
        self.a = a
        build = a.build.resolve()
        self.etherwarp, self.program = str(build / "bin" / "etherwarp"), str(build / "bin" / "ewarp_gravel_bench")
        self.folder = tempfile.TemporaryDirectory(prefix="ewarp-gravel-bench-")
        self.seconds = collections.defaultdict(list)  # (pattern, octets, transport, way): of each round
        self.octets = 0

    def close(self):
        self.folder.cleanup()

    def job(self, transport, pattern, octets, ways):
        env = {k: v for k, v in os.environ.items() if not k.startswith(("OMPI_MCA_", "ETHERWARP_", "EWARP_"))}
        env |= {"ETHERWARP_RUNDIR": self.folder.name, "ETHERWARP_STATS_KEEP": "yes", "ETHERWARP_INTERFACES": "lo"}
        if not self.a.local:
            env["ETHERWARP_LOCAL"] = "off"
        tcp = ["mpirun.openmpi", "--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo"]
        words = [*(tcp if transport == "btl-tcp" else [self.etherwarp, "mpirun"]),
                 *(["--allow-run-as-root"] if os.geteuid() == 0 else []), "--oversubscribe", "--bind-to", "none",
                 "-n", self.a.ranks, self.program, pattern, octets // 8, TILES, self.a.iterations, self.a.iterations, 1,
                 "compute", *ways]  # fmt: skip
        for line in run_to_end([str(w) for w in words], self.a.timeout, env).splitlines():
            row = json.loads(line)
            name = "compute" if row["way"] == "compute" else "gravel" if row["way"] in GRAVEL else transport
            self.seconds[pattern, octets, name, row["way"]].append(row["seconds"])
        if transport != "btl-tcp":
            self.check_path(self.a.ranks)

    def check_path(self, ranks):
        """The octets of all ranks went over EtherWARP, or the figures mean nothing."""
        env = {**os.environ, "ETHERWARP_RUNDIR": self.folder.name}
        processes = json.loads(run_to_end([self.etherwarp, "stat", "--ended", "--json"], 20, env))
        octets = [sum(d["tx_octets"] + d["rx_octets"] for d in p["devices"]) for p in processes]
        if len(octets) < ranks or min(octets) < 1000:
            raise Failure(f"EtherWARP's counters show {octets} octets: the messages did not go over it")
        self.octets += sum(octets)
        for file in pathlib.Path(self.folder.name).iterdir():
            if file.name.isdigit():
                file.unlink()

    def run(self, say):
        for number in range(self.a.rounds):
            for pattern in PATTERNS:
                for octets in self.a.octets:
                    jobs = [("btl-tcp", MPI), ("etherwarp", MPI + GRAVEL)]
                    for transport, ways in jobs[number % 2:] + jobs[:number % 2]:
                        self.job(transport, pattern, octets, ways)
            say(f"round {number + 1} of {self.a.rounds}")

    def by_compute(self, pattern, octets, bar):
        """The least time of a way, by the least of the computation alone."""
        return min(self.seconds[pattern, octets, *bar]) / min(self.seconds[pattern, octets, "compute", "compute"])


def claims(value, sizes):
    """What the paper says of its figure, and whether it holds for each size. value(octets, bar)."""
    def least_mpi(octets, way):
        return min(value(octets, (t, way)) for t in ("btl-tcp", "etherwarp"))

    def over_ours(octets, way):
        return value(octets, ("etherwarp", way))

    plain = [value(o, ("gravel", "write")) for o in sizes]
    strips = [value(o, ("gravel", "write-strips")) for o in sizes]
    one = [value(o, ("gravel", "one-handshake")) for o in sizes]
    read = [value(o, ("gravel", "read")) for o in sizes]
    return [
        ("(i) Gravel's Write below MPI over EtherWARP, plain: all sizes", [p < over_ours(o, "mpi") for p, o in zip(plain, sizes)]),
        ("(i) ... and below MPI over btl tcp", [p < value(o, ("btl-tcp", "mpi")) for p, o in zip(plain, sizes)]),
        ("(ii) Gravel's Write below both MPIs, strips: large sizes",
         [s < least_mpi(o, "mpi-strips") for s, o in zip(strips, sizes)]),
        ("(iii) one handshake below a handshake a tile: all sizes", [a < b for a, b in zip(one, strips)]),
        ("(iv) Write below Read, plain: all but very large sizes", [a < b for a, b in zip(plain, read)]),
    ]  # fmt: skip


def report(bench):
    a = bench.a
    stream = "streams of one host" if a.local else "TCP on the loopback interface"
    lines = ["# Gravel beside MPI", "", f"{len(os.sched_getaffinity(0))} CPUs, {a.rounds} rounds of {a.iterations} iterations, {TILES} "
             f"tiles, {stream}; {bench.octets} octets over EtherWARP; {load_remark(a.load)}.", "",
             "Time by that of the computation alone; less is better, 1 is communication that costs nothing.", ""]  # fmt: skip
    for pattern in PATTERNS:
        heads = [f"{o >> 10} KiB" for o in a.octets]
        lines += [f"## {pattern}, {a.ranks} processes", "", f"| way | {' | '.join(heads)} |", "|---|" + "--:|" * len(heads)]
        for bar in BARS:
            lines.append(f"| {title(bar)} | " + " | ".join(f"{bench.by_compute(pattern, o, bar):.2f}" for o in a.octets) + " |")
        lines += ["", f"| the paper's claim | {' | '.join(heads)} |", "|---|" + "---|" * len(heads)]
        for claim, holds in claims(lambda o, bar, p=pattern: bench.by_compute(p, o, bar), a.octets):
            lines.append(f"| {claim} | " + " | ".join("holds" if h else "does not" for h in holds) + " |")
        lines.append("")
    return "\n".join(lines)


COLOURS = ("#c6c6c6", "#8d8d8d", "#4c78a8", "#72b7b2", "#e0c9a6", "#c9a063", "#2f5d8a", "#3f8f89", "#d62728")


def bars(bench, pattern):
    """The paper's figure: a cluster of bars a size, in the order of BARS."""
    width, height, left = 60 + len(bench.a.octets) * 290, 330, 50
    most = max(bench.by_compute(pattern, o, b) for o in bench.a.octets for b in BARS)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height + 130}" font-family="sans-serif" '
           f'font-size="12">', f"<title>{pattern}: time by computation alone</title>"]  # fmt: skip
    for step in range(0, int(most) + 2, max(1, int(most) // 5)):
        y = height - 300 * step / (int(most) + 1)
        out.append(f'<line x1="{left}" x2="{width}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>'
                   f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{step}</text>')  # fmt: skip
    for cluster, octets in enumerate(bench.a.octets):
        for number, bar in enumerate(BARS):
            tall = 300 * bench.by_compute(pattern, octets, bar) / (int(most) + 1)
            x = left + 10 + cluster * 290 + number * 28 + (number >= 4) * 8 + (number >= 8) * 8
            out.append(f'<rect x="{x}" y="{height - tall:.1f}" width="24" height="{tall:.1f}" fill="{COLOURS[number]}"/>')
        out.append(f'<text x="{left + 140 + cluster * 290}" y="{height + 18}" text-anchor="middle">{octets >> 10} KiB</text>')
    for number, bar in enumerate(BARS):
        x, y = left + number % 3 * 250, height + 45 + number // 3 * 22
        out.append(f'<rect x="{x}" y="{y - 10}" width="14" height="14" fill="{COLOURS[number]}"/>'
                   f'<text x="{x + 20}" y="{y + 2}">{title(bar)}</text>')  # fmt: skip
    return "\n".join([*out, "</svg>", ""])


def measure(bench):
    bench.run(say_since(time.monotonic()))
    figures = {" ".join(map(str, key)): values for key, values in bench.seconds.items()}
    output = keep_report(bench.a.output, "figure4", report(bench), figures)
    for pattern in PATTERNS:
        (output / f"{pattern}.svg").write_text(bars(bench, pattern), encoding="utf-8")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("gravel-bench"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--iterations", type=int, default=1000)
    parser.add_argument("--octets", type=int, nargs="+", default=SIZES, help="of a message, multiples of 8")
    parser.add_argument("--ranks", type=int, default=4 if len(os.sched_getaffinity(0)) >= 4 else 2)
    parser.add_argument("--timeout", type=float, default=600, help="of one job, seconds")
    parser.add_argument("--local", action="store_true", help="EtherWARP's streams of one host, not TCP")
    parser.add_argument("--smoke", action="store_true", help="tiny numbers: shows that it runs, says nothing about speed")
    a = parser.parse_args()
    if a.smoke:
        a.rounds, a.iterations, a.octets = 1, 5, (1024, 65536)
    a.load = os.getloadavg()[0]
    bench = Bench(a)
    if not os.path.exists(bench.program):
        print(f"no {bench.program}: mpicc.openmpi was not there at build time (scripts/packages.txt)")
        return SKIPPED
    return end_well("gravel_bench", bench, lambda: measure(bench))


if __name__ == "__main__":
    sys.exit(main())
