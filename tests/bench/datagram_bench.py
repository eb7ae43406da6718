#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Datagrams beside RC: latency, and what arrives when both ends send 2 KiB messages as fast as the other takes them.

    tests/bench/datagram_bench.py [--build DIRECTORY] [--output DIRECTORY] [--pairs N] [LINK...]

Links: loopback, veth1500, veth9000 (namespaces of its own, for which it needs root). One program, `ewarp_verbs_bench`,
with the same loop for all transports, in alternating runs; the ratio is taken of each pair. Writes datagram.md,
datagram.json and SVG. RC with markers is the baseline of the papers: both ends demand them (option `markers`).
"""
import argparse
import collections
import datetime
import json
import os
import pathlib
import platform
import sys
import time

from common import (ROOT, Failure, Rig, Row, Skip, as_words, chart, cpu_model, cpu_sets, free_port, in_turn,
                    keep_report, load_remark, say_since, size_name, spread, with_defaults)  # fmt: skip

MARKERS = "RC with markers"
# Name: arguments of the program, options of EtherWARP at both ends.
TRANSPORTS = {"UD": (["--transport", "ud"], []),
              "RD": (["--transport", "rd"], []),
              "RC": (["--transport", "rc"], []),
              MARKERS: (["--transport", "rc"], ["--markers", "--log", "debug"])}  # fmt: skip
DATAGRAMS = ("UD", "RD")  # measured against RC; the rest is what they are measured against

# Latencies of what fits the MTU; both ways also what fits it where 2 KiB do not.
Link = collections.namedtuple("Link", "name device address mtu latency_sizes sizes")
LINKS = (Link("loopback", "ewarp_lo", "127.0.0.1", None, (8, 1024, 8192), (2048,)),
         Link("veth1500", "ewarp_ew0", "10.99.0.1", 1500, (8, 1024), (1024, 2048)),
         Link("veth9000", "ewarp_ew0", "10.99.0.1", 9000, (8, 1024, 8192), (2048,)))  # fmt: skip


class Bench:
    def __init__(self, a, link):
        self.a, self.link = a, link
        self.rig = Rig(a.build)
        self.cpus = cpu_sets(a.server_cpus, a.client_cpus)
        self.options = with_defaults(a.option, self.cpus)
        self.namespaces = (None, None)
        self.lost = collections.Counter()  # messages that the receiver missed, by transport

    def open(self):
        if self.link.mtu is None:
            return
        self.namespaces = self.rig.namespace("a"), self.rig.namespace("b")
        self.rig.veth(*self.namespaces)
        for name in self.namespaces:
            self.rig.ip("-n", name, "link", "set", "ew0", "mtu", self.link.mtu)

    def run(self, transport, *words, least):
        """Two processes to their ends; what the client says."""
        arguments, options = TRANSPORTS[transport]
        port = free_port()
        command = [self.a.build / "bin" / "ewarp_verbs_bench", *arguments, *words, "--device", self.link.device,
                   "--port", port]  # fmt: skip
        how = [{"netns": netns, "wrap": ["taskset", "-c", cpus], "options": [*as_words(self.options), *options]}
               for netns, cpus in zip(self.namespaces, self.cpus)]  # fmt: skip
        run = self.rig.pair(f"{self.link.name}: {transport} {' '.join(map(str, words))}", command,
                            [*command, self.link.address], port, least, server_how=how[0], client_how=how[1],
                            seconds=self.a.timeout, quiet=True)  # fmt: skip
        if transport == MARKERS:
            for end in (run.server, run.client):
                if "markers true/true" not in end:
                    raise Failure(f"no markers both ways:\n{end}")
        said = json.loads(next(line for line in run.client.splitlines() if line.startswith("{")))
        self.lost[transport] += said["lost"]
        return said

    def latency(self, transport, size):
        n = self.a.latency_iterations
        said = self.run(transport, "--mode", "latency", "--size", size, "--iterations", n, least=n * size)
        return said["half_round_trip_us"]["median"]

    def bandwidth(self, transport, size):
        said = self.run(transport, "--mode", "bandwidth", "--size", size, "--seconds", self.a.seconds,
                        "--window", self.a.window, least=size)  # fmt: skip
        return said["gbit_per_s"]

    def close(self):
        self.rig.close()


def measure(bench, say):
    """Rows of datagrams against RC, of one link; and every figure, by what and transport."""
    a, rows, figures = bench.a, [], {}

    def one(what, unit, better, transports, measured):
        if a.only and not any(word in what for word in a.only):
            return
        values = {t: [] for t in transports}
        for n in range(a.pairs):
            for t, value in zip(transports, in_turn(n, [lambda t=t: measured(t) for t in transports])):
                values[t].append(value)
            said = ", ".join(f"{t} {values[t][-1]:.2f}" for t in transports)
            say(f"{bench.link.name}, {what}: pair {n + 1} of {a.pairs}: {said} {unit}")
        figures[what] = values
        for ours in (t for t in transports if t in DATAGRAMS):
            for base in (t for t in transports if t not in DATAGRAMS):
                row = Row(f"{bench.link.name}, {what}: {ours} / {base}", unit, better, base)
                for theirs, mine in zip(values[base], values[ours]):
                    row.add(theirs, mine)
                rows.append(row)

    for size in bench.link.latency_sizes:
        one(f"latency, {size_name(size)}", "µs", "lower", [*DATAGRAMS, "RC"], lambda t, s=size: bench.latency(t, s))
    for size in a.sizes or bench.link.sizes:
        one(f"both ways, {size_name(size)}", "Gbit/s", "higher", [*DATAGRAMS, MARKERS, "RC"],
            lambda t, s=size: bench.bandwidth(t, s))  # fmt: skip
    return rows, figures


def report(a, options, cpus, load, rows, lost, seconds):
    return "\n".join([
        "# Datagrams beside RC",
        "",
        f"{datetime.datetime.now().astimezone():%Y-%m-%d %H:%M %Z}; {cpu_model()}, {os.cpu_count()} CPUs; Linux {platform.release()}; "
        f"the ends on CPUs {cpus[0]} and {cpus[1]}; {a.pairs} alternating pairs; {seconds:.0f} s; {load_remark(load)}.",
        f"Options of EtherWARP: {' '.join(options) or 'defaults'}. Latency: half a round trip, median of {a.latency_iterations}. "
        f"Both ways: the sum of what arrived at both ends in {a.seconds:g} s; at most {a.window} messages unacknowledged by "
        "the application.",
        f"Messages lost on the way: {', '.join(f'{t} {n}' for t, n in lost.items())}.",
        "",
        "| what | unit | RC | datagrams | ratio (median) | min | quartiles | max |",
        "|---|---|--:|--:|--:|--:|--:|--:|",
        *[row.as_line() for row in rows],
        "",
    ])  # fmt: skip


def charts(figures):
    """{file name: SVG}: bandwidths by link, latencies of each link by size."""
    out = {}
    both = {link: next((v for what, v in f.items() if what == "both ways, 2 KiB"), None) for link, f in figures.items()}
    both = {link: v for link, v in both.items() if v}
    if both:
        names = next(iter(both.values()))
        out["bandwidth.svg"] = chart("both ways, Gbit/s that arrived", "link", list(both),
                                     {t: [spread(v[t])["median"] for v in both.values()] for t in names})  # fmt: skip
    for link, f in figures.items():
        if not any(what.startswith("latency") for what in f):
            continue
        latencies = {what.split(", ")[1]: v for what, v in f.items() if what.startswith("latency")}
        names = next(iter(latencies.values()))
        out[f"latency-{link}.svg"] = chart(f"{link}: half a round trip, µs", "message", list(latencies),
                                           {t: [spread(v[t])["median"] for v in latencies.values()] for t in names})  # fmt: skip
    return out


def parse(argv):
    names = [link.name for link in LINKS]
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("links", nargs="*", metavar="LINK")
    p.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    p.add_argument("--output", type=pathlib.Path, help="directory (default: BUILD/bench)")
    p.add_argument("--pairs", type=int, default=15)
    p.add_argument("--sizes", type=lambda s: [int(n) for n in s.split(",")], help="both ways (default: 2048, and 1024 at MTU 1500)")
    p.add_argument("--only", action="append", default=[], metavar="WORD", help="only what has it in its name, such as latency")
    p.add_argument("--server-cpus")
    p.add_argument("--client-cpus")
    p.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help="an option of EtherWARP")
    p.add_argument("--latency-iterations", type=int, default=10000)
    p.add_argument("--seconds", type=float, default=0.5, help="of each run both ways")
    p.add_argument("--window", type=int, default=256, help="messages that the peer's application has not acknowledged")
    p.add_argument("--timeout", type=float, default=30, help="seconds for one run")
    p.add_argument("--smoke", action="store_true", help="one pair of tiny runs: shows that it runs, nothing about speed")
    a = p.parse_args(argv)
    a.build = a.build.resolve()
    if unknown := set(a.links) - set(names):
        p.error(f"no link {', '.join(unknown)}; there are {', '.join(names)}")
    if a.smoke:
        a.pairs, a.latency_iterations, a.seconds = 1, 100, 0.1
    return a


def main(argv):
    a = parse(argv)
    begin, load = time.monotonic(), os.getloadavg()[0]
    say = say_since(begin)
    rows, figures, lost = [], {}, collections.Counter()
    for link in LINKS:
        if a.links and link.name not in a.links:
            continue
        bench = Bench(a, link)
        try:
            bench.open()
            more, figures[link.name] = measure(bench, say)
            rows += more
            lost.update(bench.lost)
        except Skip as e:
            say(f"{link.name} is left out: {e}")
        except Failure as e:
            print(f"datagram_bench: {e}", file=sys.stderr)
            return 1
        finally:
            bench.close()
    page = report(a, bench.options, bench.cpus, load, rows, lost, time.monotonic() - begin)
    output = keep_report(a.output or a.build / "bench", "datagram", page, {
        "rows": [r.as_dict() for r in rows], "figures": figures, "lost": lost, "options": bench.options,
        "cpus": bench.cpus, "cpu": cpu_model(), "kernel": platform.release(), "load": load})  # fmt: skip
    for name, svg in charts(figures).items():
        (output / f"datagram-{name}").write_text(svg, encoding="utf-8")
    say(f"written: {output}/datagram.*")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
