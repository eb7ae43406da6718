#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The figures 6 to 12 and the tables I to III of the ACP paper, with its claims and whether they hold here.

    tests/bench/acp_bench.py [--build DIRECTORY] [--output DIRECTORY] [--rounds N] [--smoke]

Two processes under `etherwarp acprun` on this host; each setting is measured in every round, one after the other. The
figures are medians over the rounds. Writes a page, JSON, and an SVG for each figure.
"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import statistics
import sys
import time

from common import (ROOT, Failure, Rig, chart, cpu_model, end_well, keep_report, load_remark, run_to_end, say_since,
                    size_name)  # fmt: skip

SLOTS = (4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20)
LONG = (4 << 10, 64 << 10, 1 << 20, 4 << 20)
SHORT = (8, 64, 512, 4 << 10)
COUNTS = (2, 4, 8)


class Bench:
    def __init__(self, a, say):
        self.a, self.say, self.rig = a, say, Rig(a.build)
        self.figures = {}  # (figure, line, place): values, one a round

    def run(self, program, *words, preload=None, **options):
        env = {**self.rig.env, **{f"ACP_{k.upper()}": str(v) for k, v in options.items()}}
        if preload:
            env["LD_PRELOAD"] = str(preload)
        command = [self.rig.etherwarp, "acprun", "-n", "2", str(self.a.build / "bin" / program), *map(str, words)]
        return [json.loads(line) for line in run_to_end(command, self.a.timeout, env=env).splitlines()]

    def keep(self, figure, line, place, value):
        self.figures.setdefault((figure, line, place), []).append(value)

    def median(self, figure, line, place):
        return statistics.median(self.figures[figure, line, place])

    def round(self, number):
        n = self.a.iterations
        for row in self.run("ewarp_acp_bench", "copy", n, *SHORT, *LONG[1:]):
            self.keep("6", row["what"], row["octets"], row["us"])
        for row in self.run("ewarp_acp_bench", "put", n, *SHORT, *LONG[1:]):
            self.keep("8", "put", row["octets"], row["us"])
            self.keep("7", "put", row["octets"], row["octets"] / row["us"])
        for slot in SLOTS:
            for row in self.run("ewarp_acp_bench", "pingpong", n, *LONG, slot_size=slot):
                self.keep("7", size_name(slot), row["octets"], row["octets"] / row["us"])
        for mode in ("immediate", "paper"):
            for row in self.run("ewarp_acp_bench", "pingpong", n, *SHORT, mode=mode):
                self.keep("8", mode, row["octets"], row["us"])
        for figure, option in (("9", "sb_slots"), ("10", "rb_slots")):
            for count in COUNTS:
                settings = {"sb_slots": 2, "rb_slots": 8 if figure == "9" else 2, option: count}
                for row in self.run("ewarp_acp_bench", "pingpong", n, *LONG, **settings):
                    self.keep(figure, f"{count} slots", row["octets"], row["us"])
        for slot in SLOTS:
            for count in COUNTS:
                for row in self.run("ewarp_acp_bench", "connect", max(5, n // 50), slot_size=slot, sb_slots=count, rb_slots=count):
                    self.keep("11" if row["what"] == "connect" else "12", f"{count} slots", slot, row["us"])
        self.say(f"round {number + 1} of {self.a.rounds}")

    def memory(self):
        """{(slot, slots): (sender, receiver)}, and what a process takes."""
        out, process = {}, 0
        for slot in SLOTS:
            for count in COUNTS:
                rows = self.run("ewarp_acp_memory", preload=self.a.build / "lib" / "ewarp_acp_counted.so", slot_size=slot,
                                sb_slots=count, rb_slots=count)  # fmt: skip
                of = {r["what"]: r["octets"] for r in rows}
                out[slot, count] = of["sender"], of["receiver"]
                process = max(process, *(r["most"] for r in rows if r["what"] == "init"))
        return out, process

    def close(self):
        self.rig.close()


def lines_of(bench, figure):
    """{line: {place: median}}."""
    out = {}
    for f, line, place in bench.figures:
        if f == figure:
            out.setdefault(line, {})[place] = bench.median(f, line, place)
    return out


def table(bench, figure, title, unit):
    lines = lines_of(bench, figure)
    places = sorted({p for values in lines.values() for p in values})
    out = [f"## {title}", "", f"{unit}", "", "| | " + " | ".join(size_name(p) for p in places) + " |",
           "|---|" + "--:|" * len(places)]  # fmt: skip
    for line, values in lines.items():
        out.append(f"| {line} | " + " | ".join(f"{values[p]:.1f}" if p in values else "" for p in places) + " |")
    return [*out, ""]


def flat(bench, figure):
    """The widest spread among the numbers of slots at one length, as a ratio."""
    lines = lines_of(bench, figure)
    places = next(iter(lines.values()))
    return max(max(v[p] for v in lines.values()) / min(v[p] for v in lines.values()) for p in places)


def verdicts(bench, memory, process):
    """(what, the paper's claim, ours, whether it holds)."""
    raw = bench.median("7", "put", 4 << 20)
    ratio = {s: bench.median("7", size_name(s), 4 << 20) / raw for s in SLOTS}
    late = {m: bench.median("8", m, 8) / bench.median("8", "put", 8) for m in ("immediate", "paper")}
    grows = {f: bench.median(f, "8 slots", 1 << 20) / bench.median(f, "2 slots", 4 << 10) for f in ("11", "12")}
    sender = all(s <= 168 + n * (slot + 16) for (slot, n), (s, _) in memory.items())
    receiver = all(r <= 160 + n * slot for (slot, n), (_, r) in memory.items())
    rows = [("figure 7", "bandwidth depends on the slot size", f"4 KiB slots: {ratio[4096]:.2f} of a put", ratio[4096] < 0.8),
            ("figure 7", "from 64 KiB slots at least 0.95 of a put", " ".join(f"{ratio[s]:.2f}" for s in SLOTS[2:]),
             min(ratio[s] for s in SLOTS[2:]) >= 0.95),
            ("figure 8", "mode paper: some 4 times a put", f"{late['paper']:.2f}", 3 <= late["paper"] <= 5),
            ("figure 8", "mode immediate: at most 1.5 times a put", f"{late['immediate']:.2f}", late["immediate"] <= 1.5),
            ("figure 9", "flat in the slots of the send buffer", f"within {flat(bench, '9'):.2f}", flat(bench, "9") <= 1.25),
            ("figure 10", "flat in the slots of the receive buffer", f"within {flat(bench, '10'):.2f}", flat(bench, "10") <= 1.25),
            ("figure 11", "connecting grows with slots × size", f"{grows['11']:.2f} times from 8 KiB to 8 MiB", grows["11"] > 1.5),
            ("figure 12", "freeing grows with slots × size", f"{grows['12']:.2f} times from 8 KiB to 8 MiB", grows["12"] > 1.5),
            ("table I", "2 MB + 176 octets a process", f"{process} octets for two", process <= 2 * 2**20 + 352),
            ("table II", "168 + SB (slot + 16) octets", "each setting", sender),
            ("table III", "160 + RB slot octets", "each setting", receiver)]  # fmt: skip
    return ["| | the paper | here | holds |", "|---|---|---|---|",
            *(f"| {what} | {claim} | {ours} | {'yes' if holds else 'no'} |" for what, claim, ours, holds in rows), ""]  # fmt: skip


def memory_table(memory):
    out = ["## Tables II and III: octets that a channel takes, sender and receiver", "",
           "| slot | " + " | ".join(f"{n} slots" for n in COUNTS) + " |", "|---|" + "--:|" * len(COUNTS)]  # fmt: skip
    for slot in SLOTS:
        out.append(f"| {size_name(slot)} | " + " | ".join("{}, {}".format(*memory[slot, n]) for n in COUNTS) + " |")
    return [*out, ""]


FIGURES = {"6": ("Figure 6: one access of the basic layer", "µs"), "7": ("Figure 7: ping-pong by slot size, and put", "MB/s"),
           "8": ("Figure 8: half a ping-pong by mode, and put", "µs"), "9": ("Figure 9: half a ping-pong by SB slots", "µs"),
           "10": ("Figure 10: half a ping-pong by RB slots", "µs"), "11": ("Figure 11: connecting, by slot size", "µs"),
           "12": ("Figure 12: freeing, by slot size", "µs")}  # fmt: skip


def report(bench, memory, process, load, seconds):
    a = bench.a
    head = ["# ACP: figures and tables of the paper", "",
            f"{datetime.datetime.now().astimezone():%Y-%m-%d %H:%M %Z}; {cpu_model()}, {os.cpu_count()} CPUs; Linux "
            f"{platform.release()}; medians of {a.rounds} rounds; {seconds:.0f} s; {load_remark(load)}.", ""]  # fmt: skip
    body = [line for figure, (title, unit) in FIGURES.items() for line in table(bench, figure, title, unit)]
    return "\n".join([*head, *verdicts(bench, memory, process), *body, *memory_table(memory)])


def parse(argv):
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    p.add_argument("--output", type=pathlib.Path, help="directory (default: BUILD/bench)")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--iterations", type=int, default=2000, help="of short messages")
    p.add_argument("--timeout", type=float, default=120, help="seconds for one run")
    p.add_argument("--smoke", action="store_true", help="one round of tiny runs: shows that it runs, nothing about speed")
    a = p.parse_args(argv)
    a.build = a.build.resolve()
    if a.smoke:
        a.rounds, a.iterations = 1, 20
    return a


def measure(bench):
    begin, load = time.monotonic(), os.getloadavg()[0]
    for number in range(bench.a.rounds):
        bench.round(number)
    memory, process = bench.memory()
    page = report(bench, memory, process, load, time.monotonic() - begin)
    output = keep_report(bench.a.output or bench.a.build / "bench", "acp", page, {
        "figures": [{"figure": f, "line": n, "place": p, "values": v} for (f, n, p), v in bench.figures.items()],
        "cpu": cpu_model(), "kernel": platform.release(), "load": load})  # fmt: skip
    for figure, (title, unit) in FIGURES.items():
        lines = lines_of(bench, figure)
        common = sorted(set.intersection(*(set(v) for v in lines.values())))
        svg = chart(f"{title}, {unit}", "octets", common, {n: [v[p] for p in common] for n, v in lines.items()})
        (output / f"acp-{figure}.svg").write_text(svg, encoding="utf-8")
    bench.say(f"written: {output}/acp*")
    return 0


def main(argv):
    a = parse(argv)
    try:
        bench = Bench(a, say_since(time.monotonic()))
    except Failure as e:
        print(f"acp_bench: {e}", file=sys.stderr)
        return 1
    return end_well("acp_bench", bench, lambda: measure(bench))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
