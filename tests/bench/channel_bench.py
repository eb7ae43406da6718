#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The channel's protocols against plain sender-initiated rendezvous: figures, and the numbers beside them.

    tests/bench/channel_bench.py [--build DIRECTORY] [--output DIRECTORY] [--rounds N] [SCENARIO...]
    tests/bench/channel_bench.py --tune [--margin M]        the thresholds that are best on this machine (thresholds.py)

Scenarios: pingpong, progress (ICS'09 figures 8 to 10), overlap (thesis figure 4.13), delay (4.14), exchange (4.15,
4.16), reuse (5.6), held (KiB for a message that waits for its receive).
Two processes under `etherwarp run`, each on half of the CPUs, on the loopback interface; all modes take turns in one run.
"""
import argparse
import collections
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

from common import as_words, chart, cpu_sets, with_defaults
from thresholds import PROTOCOLS, choose, explain

SCENARIOS = ("pingpong", "progress", "overlap", "delay", "exchange", "reuse", "held")
COLOURS = {"new": "#1f77b4", "plain": "#d62728", "thread": "#7f7f7f"}
# What is on the abscissa, and whether less is better.
VARIED = {"figure9a": ("parameter", "X (units of 18 us)"), "exchange1": ("parameter", "computation (us)"),
          "exchange2": ("parameter", "computation (us)"),
          **{f"delay_{side}_{first}_first": ("parameter", f"computation of the {side} (us)")
             for side in ("sender", "receiver") for first in ("sender", "receiver")}}  # fmt: skip


def run(a, words, env=None):
    """The measurements of one run of two processes. words: scenarios, and options of ewarp_channel_bench."""
    bin_dir = a.build / "bin"
    with tempfile.TemporaryDirectory(prefix="ewarp-channel-bench-") as folder:
        os.mkdir(os.path.join(folder, "run"), 0o700)
        words = ["--rounds", str(a.rounds), *(["--quick"] if a.smoke else []), *words]
        everything = {**os.environ, "ETHERWARP_RUNDIR": os.path.join(folder, "run"), **(env or {})}
        cpus = cpu_sets(None, None)
        options = as_words(with_defaults([], cpus))
        ranks = [subprocess.Popen(["taskset", "-c", cpus[rank], bin_dir / "etherwarp", "run", *options, "--",
                                   bin_dir / "ewarp_channel_bench", folder, str(rank), *words],
                                  stdout=subprocess.PIPE, text=True, env=everything) for rank in (0, 1)]  # fmt: skip
        try:
            outputs = [rank.communicate(timeout=a.timeout)[0] for rank in ranks]
        finally:
            for rank in ranks:
                if rank.poll() is None:
                    rank.kill()
                    rank.wait()
        if any(rank.returncode != 0 for rank in ranks):
            sys.exit(f"the processes ended with {[rank.returncode for rank in ranks]}")
    return [json.loads(line) for output in outputs for line in output.splitlines()]


def by_scenario(rows):
    out = collections.defaultdict(lambda: collections.defaultdict(list))
    for row in rows:
        out[row["scenario"]][row["mode"]].append(row)
    return out


def abscissa(scenario, row):
    return row[VARIED.get(scenario, ("size", ""))[0]]


def table(scenario, modes):
    """Lines of text: one per abscissa, a column per mode."""
    names = [m for m in COLOURS if m in modes]
    unit = "of the transfer hidden" if scenario.startswith("overlap") else "us"
    lines = [f"{scenario} ({VARIED.get(scenario, ('', 'octets'))[1]}; {unit}: median, least, most)"]
    for rows in zip(*(modes[n] for n in names)):
        cells = "".join(f"  {n} {r['median']:10.2f} [{r['least']:.2f} {r['most']:.2f}]" for n, r in zip(names, rows))
        lines.append(f"  {abscissa(scenario, rows[0]):10g}{cells}")
    return lines


def costs(scenario, modes):
    """What hidden transfers cost all the same: no figure, medians only."""
    lines = [f"{scenario} (octets; us; the transfer by itself: what the call, slower computation and wait() cost)"]
    for rows in zip(*(modes[n] for n in COLOURS if n in modes)):
        cells = "".join(f"  {r['mode']} {r['parameter']:.0f}: {r['call']:.0f} + {r['slower']:.0f} + {r['wait']:.0f}"
                        for r in rows)  # fmt: skip
        lines.append(f"  {rows[0]['size']:10d}{cells}")
    return lines


def svg(scenario, modes):
    places = [abscissa(scenario, r) for r in next(iter(modes.values()))]
    medians = {mode: [r["median"] for r in rows] for mode, rows in modes.items()}
    return chart(scenario, VARIED.get(scenario, ("", "octets"))[1], places, medians, COLOURS)


def tune(a):
    """Each of the protocols alone, in turns: the time of a ping-pong, and the memory of messages that wait."""
    times = {name: collections.defaultdict(list) for name in PROTOCOLS}
    memory = {name: collections.defaultdict(lambda: collections.defaultdict(list)) for name in PROTOCOLS}
    for number in range(a.rounds):
        for name in [*PROTOCOLS][number % len(PROTOCOLS):] + [*PROTOCOLS][:number % len(PROTOCOLS)]:
            env = {f"EWARP_CHANNEL_{n}": str(v) for n, v in PROTOCOLS[name].items()}
            for row in run(a, ["pingpong", "--mode", "new", "--rounds", "1"], env):
                times[name][row["size"]].append(row["median"])
            # One heap for all threads: what an earlier size left in a thread's own would be taken for nothing.
            for row in run(a, ["held", "--mode", "new", "--rounds", "1"], {**env, "MALLOC_ARENA_MAX": "1"}):
                memory[name][row["size"]][row["rank"]].append(row["median"])
    sizes = sorted(set(times["eager"]) & set(memory["eager"]))
    figures = {name: {size: (times[name][size], sum(statistics.median(of) for of in memory[name][size].values()))
                      for size in sizes} for name in PROTOCOLS}  # fmt: skip
    print("\n".join(explain(figures, choose(figures, a.margin), a.margin)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO")
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("channel-bench"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--timeout", type=float, default=3600)
    parser.add_argument("--tune", action="store_true")
    parser.add_argument("--margin", type=float, default=0.05, help="how much slower than the fastest is as good (default: 0.05)")
    parser.add_argument("--smoke", action="store_true", help="tiny numbers: shows that it runs, says nothing about speed")
    a = parser.parse_args()
    a.build = a.build.resolve()
    if unknown := set(a.scenarios) - set(SCENARIOS):
        parser.error(f"no scenario {', '.join(unknown)}; there are {', '.join(SCENARIOS)}")
    if a.tune:
        return tune(a)
    rows = run(a, a.scenarios or SCENARIOS)
    a.output.mkdir(parents=True, exist_ok=True)
    lines = [f"{len(os.sched_getaffinity(0))} CPUs, load {os.getloadavg()[0]:.1f}"]
    for scenario, modes in sorted(by_scenario(rows).items()):
        if scenario.startswith("costs_"):
            lines += costs(scenario, modes)
            continue
        lines += table(scenario, modes)
        (a.output / f"{scenario}.svg").write_text(svg(scenario, modes), encoding="utf-8")
    (a.output / "channel.json").write_text(json.dumps(rows, indent=1), encoding="utf-8")
    (a.output / "channel.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))
    return None


if __name__ == "__main__":
    main()
