#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""EtherWARP against raw TCP, in the same minute, on the same CPUs.

Runs the raw TCP programs and perftest's tools over EtherWARP in alternating pairs, takes the ratio of each pair, and
reports the median of the ratios with their spread. Writes bench.md and bench.json. Needs Python's standard library only.
"""
import argparse
import collections
import datetime
import json
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import tempfile
import time

from common import (ROOT, SKIPPED, Failure, Row, as_words, cpu_model, cpu_sets, end, end_well, free_port, in_turn,
                    keep_report, load_remark, run_to_end, say_since, size_name, tail, wait_until, with_defaults)  # fmt: skip
from harness import listens

LATENCY_TOOLS = ("ib_send_lat", "ib_write_lat", "ib_read_lat")
BANDWIDTH_TOOLS = ("ib_send_bw", "ib_write_bw", "ib_read_bw")


# --- what is measured -----------------------------------------------------------------------------------------------


class Bench:
    def __init__(self, arguments):
        self.a = arguments
        self.build = pathlib.Path(arguments.build).resolve()
        self.etherwarp = str(self.build / "bin" / "etherwarp")
        self.raw = str(self.build / "bin" / "ewarp_bench_tcp")
        self.server_cpus, self.client_cpus = cpu_sets(arguments.server_cpus, arguments.client_cpus)
        self.options = with_defaults(arguments.option, (self.server_cpus, self.client_cpus))
        self.rundir = tempfile.mkdtemp(prefix="ewarp-bench-")  # mode 0700
        self.proof = collections.Counter()
        self.load = os.getloadavg()[0]

    def close(self):
        shutil.rmtree(self.rundir, ignore_errors=True)

    # Raw TCP.

    def raw_tcp(self, mode, size, iterations, *more):
        command = [self.raw, "--mode", mode, "--size", str(size), "--iterations", str(iterations),
                   "--warm-up", str(max(1, iterations // 20)), "--address", self.a.address,
                   "--server-cpus", self.server_cpus, "--client-cpus", self.client_cpus,
                   "--timeout", str(self.a.timeout), *more]  # fmt: skip
        return json.loads(run_to_end(command, self.a.timeout + 5))

    def raw_latency(self, mode, size, iterations):
        return self.raw_tcp(mode, size, iterations)["half_round_trip_us"]["median"]

    def raw_bandwidth(self, size, iterations):
        return self.raw_tcp("stream", size, iterations)["gbit_per_s"]

    def model_bandwidth(self, size, iterations):
        """Raw TCP and what a CRC costs at the least: one pass over the octets at each end."""
        return self.raw_tcp("stream", size, iterations, "--crc")["gbit_per_s"]

    # Programs over EtherWARP.

    def wrapped(self, side):
        """Words before `etherwarp run`, and before the program, of one side (server, client)."""
        return [], []

    def two_processes(self, name, server_words, client_words, port, crc, least_octets):
        """Runs a server and its client over EtherWARP to their ends; the client's standard output."""
        options = ["--stats-keep", "--crc", crc, *as_words(self.options)]
        env = dict(os.environ, ETHERWARP_RUNDIR=self.rundir)

        def command(side, cpus, words):
            around, before = self.wrapped(side)
            return ["taskset", "-c", cpus, *around, self.etherwarp, "run", *options, "--", *before, *words]

        with tempfile.TemporaryFile("w+") as log:
            server = subprocess.Popen(command("server", self.server_cpus, server_words), stdout=log, stderr=subprocess.STDOUT, env=env)

            def server_said():
                log.seek(0)
                return tail(log.read())

            try:
                wait_until(lambda: server.poll() is not None or listens(server.pid, port), 10, f"{name}: the server does not listen")
                if server.poll() is not None:
                    raise Failure(f"{name}: the server ended before the client came\n{server_said()}")
                out = run_to_end(command("client", self.client_cpus, client_words), self.a.timeout, env)
                try:
                    server.wait(10)
                except subprocess.TimeoutExpired as e:
                    raise Failure(f"{name}: the server did not end after its client") from e
                if server.returncode != 0:
                    raise Failure(f"{name}: the server's exit status is {server.returncode}\n{server_said()}")
            finally:
                end(server)
        self.check_path(name, least_octets)
        return out

    def perftest(self, tool, size, iterations, crc):
        """The line of figures that the client prints, as numbers."""
        port = free_port()
        # -F: no word about CPU frequencies; -N with _bw: no peak, which limits the number of iterations.
        words = [tool, "-R", "-F", "-s", str(size), "-n", str(iterations), "-p", str(port)]
        if tool.endswith("_bw"):
            words += ["-N", "--report_gbits"]
        out = self.two_processes(tool, words, [*words, self.a.address], port, crc, size * iterations)
        return self.figures(tool, size, out)

    def check_path(self, name, least):
        """The octets went over EtherWARP, or the figures mean nothing."""
        env = dict(os.environ, ETHERWARP_RUNDIR=self.rundir)
        processes = json.loads(run_to_end([self.etherwarp, "stat", "--ended", "--json"], 10, env))
        for file in pathlib.Path(self.rundir).iterdir():
            if file.name.isdigit():
                file.unlink()
        octets = sum(d["tx_octets"] for p in processes for d in p["devices"])
        if len(processes) != 2 or octets < least:
            raise Failure(f"{name}: EtherWARP's counters show {octets} octets sent by {len(processes)} processes; "
                          f"{least} by 2 are the least: the traffic did not go over EtherWARP")  # fmt: skip
        for p in processes:
            for d in p["devices"]:
                if d["tx_octets"] + d["rx_octets"] > 0:
                    self.proof[f"{d['name']} ({p['poller'] or '?'})"] += d["tx_octets"]

    @staticmethod
    def figures(tool, size, out):
        for line in out.splitlines():
            fields = line.split()
            if len(fields) >= 5 and fields[0] == str(size):
                try:
                    return [float(f) for f in fields]
                except ValueError:
                    continue
        raise Failure(f"{tool}: no line of figures for {size} octets in its output\n{tail(out)}")

    def latency(self, tool, size, iterations):
        """t_typical: perftest's word for the median. Half a round trip; ib_read_lat: a whole one."""
        return self.perftest(tool, size, iterations, "by_path")[4]

    def bandwidth(self, tool, size, iterations, crc):
        return self.perftest(tool, size, iterations, crc)[3]


# --- pairs ----------------------------------------------------------------------------------------------------------


def chosen(a, name):
    return not a.only or any(word in name for word in a.only)


def measure_latency(bench, say):
    a, rows, size = bench.a, [], 8
    for tool in LATENCY_TOOLS:
        whole = tool == "ib_read_lat"
        row = Row(f"{tool}, {size_name(size)}", "µs, round trip" if whole else "µs, half a round trip", "lower")
        blocking = Row(f"{tool}, {size_name(size)}, against blocking TCP", row.unit, "lower")
        if not chosen(a, row.name):
            continue
        for n in range(a.pairs):
            raw, ours, block = in_turn(n, [
                lambda: bench.raw_latency("poll", size, a.latency_iterations),
                lambda t=tool: bench.latency(t, size, a.latency_iterations),
                lambda: bench.raw_latency("block", size, max(100, a.latency_iterations // 5)),
            ])  # fmt: skip
            factor = 2 if whole else 1
            row.add(raw * factor, ours)
            blocking.add(block * factor, ours)
            say(f"{row.name}: pair {n + 1} of {a.pairs}: raw {raw * factor:.2f}, EtherWARP {ours:.2f} µs")
        rows.append(row)
        if tool == "ib_send_lat":
            rows.append(blocking)
    return rows


def measure_bandwidth(bench, say):
    a, rows = bench.a, []
    for size in a.sizes:
        iterations = max(10, a.bandwidth_octets // size)
        for tool in BANDWIDTH_TOOLS:
            off = Row(f"{tool}, {size_name(size)}, CRC off", "Gbit/s", "higher")
            on = Row(f"{tool}, {size_name(size)}, CRC on, against raw TCP with a CRC pass", "Gbit/s", "higher")
            if not chosen(a, off.name):
                continue
            for n in range(a.pairs):
                raw, model, without, with_crc = in_turn(n, [
                    lambda: bench.raw_bandwidth(size, iterations),
                    lambda: bench.model_bandwidth(size, iterations),
                    lambda t=tool: bench.bandwidth(t, size, iterations, "never"),
                    lambda t=tool: bench.bandwidth(t, size, iterations, "always"),
                ])  # fmt: skip
                off.add(raw, without)
                on.add(model, with_crc)
                say(f"{tool}, {size_name(size)}: pair {n + 1} of {a.pairs}: raw {raw:.2f}, CRC off {without:.2f}; "
                    f"with a CRC pass: raw {model:.2f}, CRC on {with_crc:.2f} Gbit/s")  # fmt: skip
            rows += [off, on]
    return rows


# --- report ---------------------------------------------------------------------------------------------------------


def report(bench, rows, seconds):
    a = bench.a
    lines = [
        "# EtherWARP against raw TCP",
        "",
        f"{datetime.datetime.now().astimezone():%Y-%m-%d %H:%M %Z}; {cpu_model()}, {os.cpu_count()} CPUs; Linux {platform.release()}; "
        f"address {a.address}; server on CPUs {bench.server_cpus}, client on {bench.client_cpus}; {a.pairs} alternating pairs; "
        f"{seconds:.0f} s; {load_remark(bench.load)}.",
        f"Options of EtherWARP: {' '.join(bench.options) or 'defaults'}. Raw TCP: TCP_NODELAY, reno; ping-pong by polling "
        "unless said otherwise. Latencies are medians of a run.",
        "",
        "| what | unit | raw TCP | EtherWARP | ratio (median) | min | quartiles | max |",
        "|---|---|--:|--:|--:|--:|--:|--:|",
    ]
    lines += [row.as_line() for row in rows]
    lines += [
        "",
        "Ratio: EtherWARP / raw TCP of the same pair; for latencies less is better, for bandwidths more. CRC on is "
        "compared with raw TCP whose ends compute one CRC32C over each 64 KiB (`ewarp_bench_tcp --crc`). "
        "A ping-pong of ib_read_lat is one Read, compared with a whole round trip.",
        "Proof of path (octets sent by EtherWARP's own counters): "
        + "; ".join(f"{name}: {octets}" for name, octets in sorted(bench.proof.items())) + ".",
        "",
    ]  # fmt: skip
    return "\n".join(lines)


def parse(argv):
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--build", default=str(ROOT / "build"), help="build directory (default: build)")
    p.add_argument("--output", default=None, help="directory of bench.md and bench.json (default: BUILD/bench)")
    p.add_argument("--pairs", type=int, default=15, help="alternating pairs (default: 15)")
    p.add_argument("--smoke", action="store_true", help="one pair of tiny runs: does everything work?")
    p.add_argument("--address", default="127.0.0.1", help="address of the server (default: 127.0.0.1)")
    p.add_argument("--server-cpus", help="such as 0,1 (default: the first half of the usable ones)")
    p.add_argument("--client-cpus", help="such as 2,3 (default: the second half)")
    p.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help="an option of EtherWARP, such as spin_us=100")
    p.add_argument("--only", action="append", default=[], metavar="WORD", help="only rows whose name contains it, such as write_lat")
    p.add_argument("--latency-iterations", type=int, default=20000)
    p.add_argument("--bandwidth-octets", type=int, default=4 << 30, help="octets of one bandwidth run (default: 4 GiB)")
    p.add_argument("--timeout", type=int, default=60, help="seconds for one run (default: 60)")
    a = p.parse_args(argv)
    a.sizes = [64 << 10, 1 << 20]
    if a.smoke:
        a.pairs, a.latency_iterations, a.bandwidth_octets = 1, 200, 4 << 20
    if ":" in a.address:
        p.error("--address must be an IPv4 address: perftest's -R knows no other in Debian 12")
    if a.pairs < 1:
        p.error("--pairs must be at least 1")
    return a


def missing(bench):
    """What cannot be run here: text for the user, or nothing."""
    for program in (bench.etherwarp, bench.raw, bench.build / "lib" / "libetherwarp-preload.so"):
        if not os.path.exists(program):
            return f"{program} does not exist; build it with ./scripts/build", 1
    for tool in (*LATENCY_TOOLS, *BANDWIDTH_TOOLS, "taskset"):
        if shutil.which(tool) is None:
            package = "util-linux" if tool == "taskset" else "perftest"
            return f"{tool} is not installed; `apt-get install {package}`", SKIPPED
    return None


def run(a, bench):
    begin = time.monotonic()
    say = say_since(begin)
    if (problem := missing(bench)) is not None:
        print(f"bench: {problem[0]}", file=sys.stderr)
        return problem[1]
    rows = measure_latency(bench, say) + measure_bandwidth(bench, say)
    if not rows:
        print("bench: nothing to measure; --only names none of the rows", file=sys.stderr)
        return 2
    page = report(bench, rows, time.monotonic() - begin)
    output = keep_report(a.output or bench.build / "bench", "bench", page, {
        "rows": [r.as_dict() for r in rows], "pairs": a.pairs, "address": a.address, "options": bench.options,
        "server_cpus": bench.server_cpus, "client_cpus": bench.client_cpus, "cpu": cpu_model(),
        "kernel": platform.release(), "tx_octets": dict(bench.proof),
    })  # fmt: skip
    say(f"written: {output / 'bench.md'}, {output / 'bench.json'}")
    return 0


def main(argv):
    a = parse(argv)
    bench = Bench(a)
    return end_well("bench", bench, lambda: run(a, bench))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
