#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What one message costs: system calls, time of the CPUs, and, where the machine counts them, instructions and cycles.

    tests/bench/message_cost.py [--rounds N] [--smoke]

`perf stat` of both ends of a ping-pong, over TCP and over a local stream. Two runs that differ in the number of messages
alone, so that start and end cost nothing. Needs perf, and root for the system calls. Writes a page and its figures into BUILD/bench: cost.*.
"""
import argparse
import collections
import datetime
import os
import pathlib
import platform
import re
import shutil
import statistics
import sys
import time

import bench
from common import ROOT, SKIPPED, cpu_model, end_well, in_turn, keep_report, load_remark, say_since, size_name  # fmt: skip

CASES = (("ib_send_lat", 8), ("ib_write_lat", 64 << 10))
WAYS = ("off", "auto")
# perf's names, how many of a unit make one of ours, ours
EVENTS = (("raw_syscalls:sys_enter", 1, "system calls"), ("task-clock", 1e3, "µs of CPU"), ("context-switches", 1, "switches"),
          ("instructions:u", 1, "instructions"), ("instructions:k", 1, "instructions of the kernel"), ("cycles", 1, "cycles"))  # fmt: skip


class Bench(bench.Bench):
    wrapper = None

    def wrapped(self, side):
        return self.wrapper(side) if self.wrapper is not None else ([], [])

    def run(self, tool, size, way, iterations, wrapper):
        before, self.options, self.wrapper = self.options, [*self.a.option, f"local={way}"], wrapper
        try:
            return self.perftest(tool, size, iterations, "by_path")
        finally:
            self.options, self.wrapper = before, None

    def perf(self, tool, size, way, iterations):
        """Sums of both ends, by perf's names."""
        files = {side: pathlib.Path(self.rundir, f"perf.{side}") for side in ("server", "client")}
        events = ",".join(name for name, _, _ in EVENTS)
        self.run(tool, size, way, iterations,
                 lambda side: (["perf", "stat", "-x", ";", "-o", str(files[side]), "-e", events], []))  # fmt: skip
        total = collections.Counter()
        for file in files.values():
            for line in file.read_text(encoding="utf-8").splitlines():
                fields = line.split(";")
                if len(fields) > 2 and re.fullmatch(r"[\d.]+", fields[0]):
                    total[fields[2]] += float(fields[0])
            file.unlink()
        return total


def each(measured, least, most):
    """What one message more costs: a ping-pong of n rounds has 2 n of them."""
    few, many = measured(least), measured(most)
    return {name: (many[name] - few.get(name, 0)) / (2 * (most - least)) for name in many}


def measure(b, say):
    """{(tool, size, way): {what: values}}."""
    a, found = b.a, collections.defaultdict(lambda: collections.defaultdict(list))
    for n in range(a.rounds):
        for tool, size in CASES[:1] if a.smoke else CASES:
            steps = [lambda w=way: each(lambda i: b.perf(tool, size, w, i), *a.iterations) for way in WAYS]
            for way, values in zip(WAYS, in_turn(n, steps)):
                for name, factor, ours in EVENTS:
                    if name in values:
                        found[tool, size, way][ours].append(values[name] * factor)
            say(f"round {n + 1}: {tool}, {size_name(size)}")
    return found


def report(b, found, seconds):
    kinds = [ours for _, _, ours in EVENTS]
    lines = ["# What a message costs", "",
             f"{datetime.datetime.now().astimezone():%Y-%m-%d %H:%M %Z}; {cpu_model()}, {os.cpu_count()} CPUs; Linux "
             f"{platform.release()}; server on CPUs {b.server_cpus}, client on {b.client_cpus}; medians of {b.a.rounds} rounds; "
             f"{seconds:.0f} s; {load_remark(b.load)}.",
             "Of a message there and none back, both ends together, polls that find nothing included.", "",
             "| message | stream | " + " | ".join(kinds) + " |", "|---|---|" + "--:|" * len(kinds)]  # fmt: skip
    for (tool, size, way), values in found.items():
        cells = [f"{statistics.median(values[k]):.2f}" if values.get(k) else "not counted" for k in kinds]
        lines.append(f"| {tool}, {size_name(size)} | {'TCP' if way == 'off' else 'local'} | {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def parse(argv):
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--build", default=str(ROOT / "build"), help="build directory (default: build)")
    p.add_argument("--output", default=None, help="directory of the report (default: BUILD/bench)")
    p.add_argument("--rounds", type=int, default=5, help="default: 5")
    p.add_argument("--smoke", action="store_true", help="one round of tiny runs: does everything work?")
    p.add_argument("--server-cpus", help="such as 0,1 (default: the first half of the usable ones)")
    p.add_argument("--client-cpus", help="such as 2,3 (default: the second half)")
    p.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help="an option of EtherWARP")
    a = p.parse_args(argv)
    a.address, a.timeout = "127.0.0.1", 60
    a.iterations = (2000, 22000)
    if a.smoke:
        a.rounds, a.iterations = 1, (100, 600)
    return a


def run(b):
    begin = time.monotonic()
    if shutil.which("perf") is None:
        print("message_cost: perf is not installed (Debian: linux-perf)", file=sys.stderr)
        return SKIPPED
    if (problem := bench.missing(b)) is not None:
        print(f"message_cost: {problem[0]}", file=sys.stderr)
        return problem[1]
    found = measure(b, say_since(begin))
    keep_report(b.a.output or b.build / "bench", "cost", report(b, found, time.monotonic() - begin),
                {"cases": [{"tool": t, "size": s, "local": w, **v} for (t, s, w), v in found.items()], "rounds": b.a.rounds,
                 "cpu": cpu_model(), "kernel": platform.release()})  # fmt: skip
    return 0


def main(argv):
    b = Bench(parse(argv))
    return end_well("message_cost", b, lambda: run(b))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
