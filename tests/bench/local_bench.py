#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A local stream beside TCP over the loopback: perftest's tools with local=auto and local=off, by size.

    tests/bench/local_bench.py [--tool TOOL]... [--size OCTETS]... [--rounds N] [--smoke]

In alternating pairs, both ends pinned as in bench.py; the ratio is taken of each pair. Writes a page and its figures into BUILD/bench: local.*.
"""
import argparse
import collections
import datetime
import os
import platform
import statistics
import sys
import time

import bench
from common import ROOT, cpu_model, end_well, in_turn, keep_report, load_remark, say_since, size_name  # fmt: skip

TOOLS = ("ib_send_lat", "ib_write_lat", "ib_read_lat", "ib_write_bw")
SIZES = [1 << i for i in range(24)]  # 1 B to 8 MiB
WAYS = ("auto", "off")
# Before perftest sends anything each end fills two buffers of the size with random octets: 1 GiB takes some 40 s.
FILLED_IN_A_SECOND = 25 << 20  # octets of the size
LONG = 64 << 20  # octets: of these fewer make a run


class Bench(bench.Bench):
    def figure(self, tool, size, way):
        """Latency: the median in µs, of half a round trip (ib_read_lat: a whole one). Bandwidth: Gbit/s."""
        octets = self.a.octets
        least = 100 if tool.endswith("_lat") else 20
        iterations = min(self.a.iterations, max(least if size < LONG else 10, octets // size))
        self.a.timeout = 60 + 2 * size // FILLED_IN_A_SECOND
        before, self.options = self.options, [o for o in self.options if not o.startswith("local=")] + [f"local={way}"]
        try:
            return self.perftest(tool, size, iterations, "by_path")[4 if tool.endswith("_lat") else 3]
        finally:
            self.options = before


def measure(b, say):
    """{(tool, size): {way: figures}}."""
    found = collections.defaultdict(lambda: {way: [] for way in WAYS})
    for n in range(b.a.rounds):
        for tool in b.a.tool or TOOLS:
            for size in b.a.size or SIZES:
                values = in_turn(n, [lambda t=tool, s=size, w=way: b.figure(t, s, w) for way in WAYS])
                for way, value in zip(WAYS, values):
                    found[tool, size][way].append(value)
                say(f"round {n + 1}: {tool}, {size_name(size)}: local {values[0]:.2f}, TCP {values[1]:.2f}")
    return found


def ratios(tool, ways):
    """Local by TCP, of each pair, so that less than 1 is better."""
    pairs = zip(ways["auto"], ways["off"])
    return [local / tcp if tool.endswith("_lat") else tcp / local for local, tcp in pairs]


def report(b, found, seconds):
    lines = ["# A local stream beside TCP", "",
             f"{datetime.datetime.now().astimezone():%Y-%m-%d %H:%M %Z}; {cpu_model()}, {os.cpu_count()} CPUs; Linux "
             f"{platform.release()}; server on CPUs {b.server_cpus}, client on {b.client_cpus}; {b.a.rounds} alternating "
             f"pairs; {seconds:.0f} s; {load_remark(b.load)}.",
             "Latencies in µs, medians of a run; bandwidths in Gbit/s. Ratio: time with the local stream by time over TCP, "
             "median of the pairs, and the range.", "",
             "| tool | size | TCP | local | ratio | range |", "|---|--:|--:|--:|--:|--:|"]  # fmt: skip
    for (tool, size), ways in found.items():
        r = ratios(tool, ways)
        lines.append(f"| {tool} | {size_name(size)} | {statistics.median(ways['off']):.2f} | "
                     f"{statistics.median(ways['auto']):.2f} | {statistics.median(r):.2f} | {min(r):.2f} – {max(r):.2f} |")  # fmt: skip
    slower = [f"{tool} {size_name(size)}" for (tool, size), ways in found.items() if statistics.median(ratios(tool, ways)) > 1]
    return "\n".join([*lines, "", f"Slower than over TCP: {', '.join(slower) or 'nothing'}.", ""])


def parse(argv):
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--build", default=str(ROOT / "build"), help="build directory (default: build)")
    p.add_argument("--output", default=None, help="directory of the report (default: BUILD/bench)")
    p.add_argument("--rounds", type=int, default=15, help="alternating pairs (default: 15)")
    p.add_argument("--tool", action="append", choices=TOOLS + ("ib_send_bw", "ib_read_bw"), help="default: " + ", ".join(TOOLS))
    p.add_argument("--size", action="append", type=int, metavar="OCTETS", help="default: 1 to 8 MiB")
    p.add_argument("--smoke", action="store_true", help="one pair of tiny runs: does everything work?")
    p.add_argument("--iterations", type=int, default=10000, help="of one run, at most (default: 10000)")
    p.add_argument("--octets", type=int, default=1 << 30, help="of one run, about (default: 1 GiB)")
    p.add_argument("--server-cpus", help="such as 0,1 (default: the first half of the usable ones)")
    p.add_argument("--client-cpus", help="such as 2,3 (default: the second half)")
    p.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help="an option of EtherWARP")
    a = p.parse_args(argv)
    a.address, a.timeout = "127.0.0.1", 60
    if a.smoke:
        a.rounds, a.iterations, a.size = 1, 200, a.size or [65536]
    return a


def run(b):
    begin = time.monotonic()
    say = say_since(begin)
    if (problem := bench.missing(b)) is not None:
        print(f"local_bench: {problem[0]}", file=sys.stderr)
        return problem[1]
    found = measure(b, say)
    page = report(b, found, time.monotonic() - begin)
    keep_report(b.a.output or b.build / "bench", "local", page,
                {"figures": [{"tool": t, "size": s, **ways} for (t, s), ways in found.items()], "rounds": b.a.rounds,
                 "cpu": cpu_model(), "kernel": platform.release()})  # fmt: skip
    return 0


def main(argv):
    b = Bench(parse(argv))
    return end_well("local_bench", b, lambda: run(b))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
