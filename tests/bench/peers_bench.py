#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""EtherWARP beside what users would take instead, in alternating runs: one page.

    tests/bench/peers_bench.py [--build DIRECTORY] [--output DIRECTORY] [--rounds N] [--only PART]... [--resume] [--quick]

Parts:
    network  the network's stream (option local=off) on the loopback interface and on a veth pair with MTU 1500 and 9000
             (namespaces of its own, for which it needs root), beside raw TCP and UDP, UCX tcp, libfabric tcp, qperf, iperf3
    host     streams of one host through shared memory (local=auto), beside the same over TCP, raw TCP, UCX posix
    mpi      mpi_bench.py --peers network, then --peers host
In each round all steps of a case run once, each round beginning with another one, and each ratio is of one round. Two
CPUs of a virtual machine may be beside each other at one time, near or far at another: where each end has one CPU, what
ran at each distance has tables of its own, and a ratio is of two runs of one distance. Writes
peers.md, peers_in_short.md (without ratios and quantiles), peers.json and charts (SVG), after each round what there is by
then. --resume goes on behind the rounds of the peers.json that is there, which must be of this machine and these cases.
A program that is not installed is left out, and named. The aims of the page say what is wanted; whether they are met
is no matter of the exit status.
"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import signal
import sys
import time

from common import (CONGESTION, ROOT, SKIPPED, Failure, Skip, at_distance, cpu_model, cpu_sets, in_turn, load_remark,
                    say_since, with_defaults)  # fmt: skip
from peers_report import Case, Step, aim_lines, aim_lines_in_short, by_distance, charts, tables, verdicts
from peers_tools import PACKAGES, PLACES, Tools, installed, mpi

SIZES = (8, 128, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 8 << 20)
VETH_SIZES = (8, 1 << 10, 64 << 10, 1 << 20)
HOST_SIZES = (1, *SIZES, 64 << 20)
QPERF_SIZES = (8, 64 << 10, 1 << 20)
MANY = 64  # queue pairs
CPU_SIZE = 128 << 10  # iperf3's block
PARTS = ("network", "host", "mpi")
RATE_OF_OTHERS = 10  # so many fewer messages take them as long
BEST_OF_STREAM = 16 << 10  # below it, iperf3 and a CRC of one piece measure calls
MICROSECONDS, GBIT, MILLIONS, THOUSANDS, CPU_SECONDS = "µs", "Gbit/s", "million/s", "thousand/s", "s/GiB"


def latency_count(a, size):
    """So that the time of a run is about the same at all sizes."""
    return max(20, min(a.latency_messages, (256 << 20) // size))


def bandwidth_count(a, size):
    return max(10, min(a.messages, a.octets // size))


def steps(*all_of_them):
    """Those whose program is installed. Each: name, whether it is ours, program of others (or None), run()."""
    return [Step(name, ours, run) for name, ours, program, run in all_of_them if program is None or installed(program)]


def qperf(t, test, size):
    """At three sizes: each run takes a second."""
    return [("qperf", False, "qperf", lambda: t.qperf(test, size))] if size in QPERF_SIZES else []


# --- cases ----------------------------------------------------------------------------------------------------------


def latency(t, size):
    n, every = latency_count(t.a, size), size == 8
    return Case("network", t.place.name, "latency", size, MICROSECONDS, steps(
        ("raw TCP", False, None, lambda: t.raw_latency(size, n)),
        ("framed TCP", False, None, lambda: t.raw_latency(size, n, "--framed")),
        ("RC Send", True, "ib_send_lat", lambda: t.perftest_latency("ib_send_lat", size, n, crc="never")),
        ("RC Write", True, "ib_send_lat", lambda: t.perftest_latency("ib_write_lat", size, n, crc="never")),
        ("RC Read", True, "ib_send_lat", lambda: t.perftest_latency("ib_read_lat", size, n, crc="never")),
        ("RC Send, CRC", True, "ib_send_lat", lambda: t.perftest_latency("ib_send_lat", size, n, crc="always")),
        ("UCX tcp", False, "ucx_perftest", lambda: t.ucx_latency(size, n, every_quantile=every)),
        ("tcp;ofi_rxm", False, "fi_pingpong", lambda: t.fi_latency("tcp;ofi_rxm", "rdm", size, n)),
        ("libfabric tcp", False, "fi_pingpong", lambda: t.fi_latency("tcp", "msg", size, n)),
        *qperf(t, "tcp_lat", size),
    ))  # fmt: skip


def datagram_latency(t, size):
    n = latency_count(t.a, size)
    return Case("network", t.place.name, "datagram latency", size, MICROSECONDS, steps(
        ("raw UDP", False, None, lambda: t.raw_latency(size, n, "--udp")),
        ("UD", True, None, lambda: t.verbs_latency("ud", size, n)),
        ("RD", True, None, lambda: t.verbs_latency("rd", size, n)),
        ("RC", True, None, lambda: t.verbs_latency("rc", size, n)),
        ("qperf", False, "qperf", lambda: t.qperf("udp_lat", size)),
    ))  # fmt: skip


def many_latency(t):
    n = latency_count(t.a, 8)
    return Case("network", t.place.name, "latency, 64 queue pairs", 8, MICROSECONDS, steps(
        ("RC, 64 pairs", True, None, lambda: t.pairs_latency(MANY, 8, n)),
        ("RC, 1 pair", True, None, lambda: t.pairs_latency(1, 8, n)),
        ("raw TCP", False, None, lambda: t.raw_latency(8, n)),
    ))  # fmt: skip


def bandwidth(t, size):
    n = bandwidth_count(t.a, size)
    large = [
        ("framed TCP", False, None, lambda: t.raw_stream(size, n, "--framed")),
        ("raw TCP, CRC", False, None, lambda: t.raw_stream(size, n, "--crc")),
        ("iperf3", False, "iperf3", lambda: t.iperf3_stream(size, n * size)),
    ] if size >= BEST_OF_STREAM else []  # fmt: skip
    return Case("network", t.place.name, "bandwidth", size, GBIT, steps(
        ("raw TCP", False, None, lambda: t.raw_stream(size, n)),
        ("RC Write", True, "ib_send_lat", lambda: t.perftest_bandwidth("ib_write_bw", size, n, crc="never")),
        ("RC Write, CRC", True, "ib_send_lat", lambda: t.perftest_bandwidth("ib_write_bw", size, n, crc="always")),
        ("RC Send", True, "ib_send_lat", lambda: t.perftest_bandwidth("ib_send_bw", size, n, crc="never")),
        ("RC Read", True, "ib_send_lat", lambda: t.perftest_bandwidth("ib_read_bw", size, n, crc="never")),
        *large,
        ("UCX tcp", False, "ucx_perftest", lambda: t.ucx_bandwidth(size, n)),
        ("tcp;ofi_rxm", False, t.ofi_stream, lambda: t.fi_bandwidth(size, n)),
        *qperf(t, "tcp_bw", size),
    ))  # fmt: skip


def many_bandwidth(t, size):
    n = bandwidth_count(t.a, size * MANY)
    return Case("network", t.place.name, "bandwidth, 64 queue pairs", size, GBIT, steps(
        ("RC Write", True, "ib_send_lat", lambda: t.perftest_bandwidth("ib_write_bw", size, n, pairs=MANY, crc="never")),
        ("RC Write, CRC", True, "ib_send_lat", lambda: t.perftest_bandwidth("ib_write_bw", size, n, pairs=MANY, crc="always")),
        ("iperf3", False, "iperf3", lambda: t.iperf3_stream(size, n * size * MANY, MANY)),
    ))  # fmt: skip


def both_ways(t, size):
    return Case("network", t.place.name, "both ways", size, GBIT, steps(
        ("UD", True, None, lambda: t.verbs_both_ways("ud", size)),
        ("RD", True, None, lambda: t.verbs_both_ways("rd", size)),
        ("RC", True, None, lambda: t.verbs_both_ways("rc", size)),
        ("iperf3, UDP", False, "iperf3", lambda: t.iperf3_datagrams(size)),
    ))  # fmt: skip


def rate(t):
    n = t.a.rate_messages
    slower = n // RATE_OF_OTHERS
    return Case("network", t.place.name, "rate", 8, MILLIONS, steps(
        ("raw TCP", False, None, lambda: t.raw_rate(8, slower)),
        ("RC Send", True, "ib_send_lat", lambda: t.perftest_rate("ib_send_bw", 8, n)),
        ("UCX tcp", False, "ucx_perftest", lambda: t.ucx_rate(8, slower)),
        ("tcp;ofi_rxm", False, t.ofi_stream, lambda: t.fi_rate(8, slower)),
        ("qperf", False, "qperf", lambda: t.qperf_rate(8)),
    ))  # fmt: skip


def atomics(t):
    n = t.a.latency_messages
    return Case("network", t.place.name, "atomics", 8, THOUSANDS, steps(
        ("etherwarp", True, t.ofi_stream, lambda: t.fi_atomics(n, True)),
        ("tcp;ofi_rxm", False, t.ofi_stream, lambda: t.fi_atomics(n, False)),
    ))  # fmt: skip


def cpu_time(t):
    a = t.a
    return Case("network", t.place.name, "CPU time", CPU_SIZE, CPU_SECONDS, steps(
        ("iperf3", False, "iperf3", lambda: t.cpu_of_iperf3(CPU_SIZE, a.cpu_octets, a.gbit)),
        ("RC Send", True, None, lambda: t.cpu_of_ours(CPU_SIZE, a.cpu_octets, a.gbit, "never")),
        ("RC Send, CRC", True, None, lambda: t.cpu_of_ours(CPU_SIZE, a.cpu_octets, a.gbit, "always")),
    ))  # fmt: skip


def network_cases(t):
    if t.a.quick:
        return quick_network_cases(t)
    datagrams = [size for size in (8, 1 << 10, 8 << 10) if size < (t.place.mtu or 64 << 10)]
    sizes = t.a.sizes or (SIZES if t.place.mtu is None else VETH_SIZES)
    return [*(latency(t, size) for size in sizes), many_latency(t), *(datagram_latency(t, size) for size in datagrams),
            *(bandwidth(t, size) for size in sizes), many_bandwidth(t, 64 << 10), both_ways(t, 1 << 10), rate(t),
            atomics(t), cpu_time(t)]  # fmt: skip


def quick_network_cases(t):
    """Each step once; between namespaces only what is started otherwise there."""
    if t.place.mtu is not None:
        return [latency(t, 8), cpu_time(t)]
    return [latency(t, 8), many_latency(t), datagram_latency(t, 8), bandwidth(t, 64 << 10),
            many_bandwidth(t, 64 << 10), both_ways(t, 1 << 10), rate(t), atomics(t), cpu_time(t)]  # fmt: skip


def host_latency(t, size):
    n = latency_count(t.a, size)
    return Case("host", t.place.name, "latency", size, MICROSECONDS, steps(
        ("raw TCP", False, None, lambda: t.raw_latency(size, n)),
        ("RC Send", True, "ib_send_lat", lambda: t.perftest_latency("ib_send_lat", size, n)),
        ("RC Write", True, "ib_send_lat", lambda: t.perftest_latency("ib_write_lat", size, n)),
        ("RC Send, TCP", True, "ib_send_lat", lambda: t.perftest_latency("ib_send_lat", size, n, local="off")),
        ("UCX posix", False, "ucx_perftest", lambda: t.ucx_latency(size, n, "posix,self")),
    ))  # fmt: skip


def host_bandwidth(t, size):
    n = bandwidth_count(t.a, size)
    return Case("host", t.place.name, "bandwidth", size, GBIT, steps(
        ("raw TCP", False, None, lambda: t.raw_stream(size, n)),
        ("RC Write", True, "ib_send_lat", lambda: t.perftest_bandwidth("ib_write_bw", size, n)),
        ("RC Send", True, "ib_send_lat", lambda: t.perftest_bandwidth("ib_send_bw", size, n)),
        ("RC Write, TCP", True, "ib_send_lat", lambda: t.perftest_bandwidth("ib_write_bw", size, n, local="off")),
        ("UCX posix", False, "ucx_perftest", lambda: t.ucx_bandwidth(size, n, "posix,self")),
    ))  # fmt: skip


def host_rate(t):
    n = t.a.rate_messages
    return Case("host", t.place.name, "rate", 8, MILLIONS, steps(
        ("raw TCP", False, None, lambda: t.raw_rate(8, n)),
        ("RC Send", True, "ib_send_lat", lambda: t.perftest_rate("ib_send_bw", 8, n)),
        ("RC Send, TCP", True, "ib_send_lat", lambda: t.perftest_rate("ib_send_bw", 8, n, local="off")),
        ("UCX posix", False, "ucx_perftest", lambda: t.ucx_rate(8, n, "posix,self")),
    ))  # fmt: skip


def host_atomics(t):
    n = t.a.latency_messages
    return Case("host", t.place.name, "atomics", 8, THOUSANDS, steps(
        ("etherwarp", True, t.ofi_stream, lambda: t.fi_atomics(n, True)),
        ("etherwarp, TCP", True, t.ofi_stream, lambda: t.fi_atomics(n, True, local="off")),
        ("tcp;ofi_rxm", False, t.ofi_stream, lambda: t.fi_atomics(n, False)),
    ))  # fmt: skip


def host_cases(t):
    if t.a.quick:
        return [host_latency(t, 8), host_bandwidth(t, 64 << 10), host_rate(t), host_atomics(t)]
    sizes = t.a.sizes or HOST_SIZES
    return [*(host_latency(t, size) for size in sizes), *(host_bandwidth(t, size) for size in sizes), host_rate(t),
            host_atomics(t)]  # fmt: skip


class MpiCases:
    """The cases of mpi_bench.py beside the peers of this word: what they are is known when a round was run."""

    def __init__(self, peers):
        self.peers, self.cases, self.done = peers, {}, 0

    def take(self, found):
        """A round. found: what mpi_bench.py wrote, or nothing where it failed."""
        for scenario in ("latency", "bandwidth", "rate"):
            for row in found.get(scenario, []):
                names = [name for name, figure in row.items() if isinstance(figure, dict) and not name.startswith("by ")]
                case = self.case(scenario, row["size"], row["unit"], names)
                for name in names:
                    case.found[name].append({"value": row[name]["median"]})
        self.done += 1
        for case in self.cases.values():
            for figures in case.found.values():
                figures += [None] * (self.done - len(figures))

    def case(self, scenario, size, unit, names):
        steps = [Step(name, name == "etherwarp", None) for name in names]
        case = self.cases.setdefault((scenario, size), Case(f"MPI, {self.peers}", "loopback", scenario, size, unit, steps))
        for name in names:
            case.found.setdefault(name, [None] * self.done)
        return case


# --- rounds ---------------------------------------------------------------------------------------------------------


class Bench:
    def __init__(self, a):
        self.a, self.cases, self.failures, self.done = a, [], [], 0
        self.begin, self.load = time.monotonic(), os.getloadavg()[0]
        self.seconds, self.sittings = 0, 1  # of earlier sittings; how many there are with this one
        self.say = say_since(self.begin)
        self.cpus = cpu_sets(a.server_cpus, a.client_cpus)
        self.left_out = [f"{program} is not installed (package {package})" for program, package in PACKAGES.items()
                         if not installed(program)]  # fmt: skip
        for line in self.left_out:
            self.say(f"left out: {line}")
        self.open, self.mpi = [], []

    def one(self, case, step):
        """A figure, or None: one run that fails is named, and costs its round alone."""
        try:
            figure, cpus = at_distance(self.a.build, self.cpus, step.run)
            figure["cpus"] = cpus
            if figure["value"] <= 0 and not self.a.quick:  # CPU time of next to nothing is nothing
                raise Failure("a figure of nothing")
            return figure
        except (Failure, ValueError, KeyError) as e:
            self.failures.append({"case": case.name, "step": step.name, "ours": step.ours, "error": repr(e)})
            self.say(f"{case.name}, {step.name} FAILED: {e}")
            return None

    def round(self, number):
        for case in self.cases:
            figures = in_turn(number, [lambda s=step: self.one(case, s) for step in case.steps])
            for step, figure in zip(case.steps, figures):
                case.found[step.name].append(figure)
            said = ", ".join(f"{s.name} {f['value']:.2f}" for s, f in zip(case.steps, figures) if f)
            self.say(f"round {number + 1} of {self.a.rounds}: {case.name}: {said} {case.unit}")

    def take_places(self):
        places = PLACES[:2] if self.a.quick else PLACES
        wanted = [("network", place, "off", network_cases) for place in places] + [("host", PLACES[0], "auto", host_cases)]
        for part, place, local, cases in wanted:
            if part not in self.a.only or (self.a.place and not any(word in place.name for word in self.a.place)):
                continue
            tools = Tools(self.a, place, local)
            self.open.append(tools)
            try:
                tools.open()
                # without perftest there is nothing of ours in some of them
                self.cases += [case for case in cases(tools) if case.ours()]
            except Skip as e:
                self.left_out.append(f"{place.name}: {e}")
                self.say(f"left out: {self.left_out[-1]}")

    def run(self):
        self.take_places()
        self.take_mpi()
        if self.a.resume:
            self.resume()
        for number in range(self.done, self.a.rounds if self.cases or self.mpi else 0):
            self.round(number)
            for cases in self.mpi:
                self.mpi_round(cases, number)
            self.done = number + 1
            self.write()
        if not self.done:
            print("peers_bench: nothing could be measured", file=sys.stderr)
            return SKIPPED
        print(self.write().read_text(encoding="utf-8"))
        return 1 if any(failure["ours"] for failure in self.failures) else 0

    def take_mpi(self):
        if "mpi" not in self.a.only:
            return
        if installed("mpirun.openmpi") and (self.a.build / "bin" / "ewarp_mpi_bench").exists():
            self.mpi = [MpiCases(peers) for peers in ("network", "host")]
            return
        self.left_out.append("MPI: openmpi-bin is not installed, or was not at build time")
        self.say(f"left out: {self.left_out[-1]}")

    def mpi_round(self, cases, number):
        found = {}
        try:
            found = mpi(self.a, cases.peers, self.a.output / f"mpi-{cases.peers}", number)
        except Failure as e:
            self.failures.append({"case": f"MPI, {cases.peers}", "step": "mpi_bench.py", "ours": True, "error": str(e)})
            self.say(f"MPI, {cases.peers} FAILED: {e}")
        cases.take(found)
        self.say(f"round {number + 1} of {self.a.rounds}: MPI, {cases.peers}")

    def all_cases(self):
        return [*self.cases, *(case for of in self.mpi for case in of.cases.values())]

    def machine(self):
        return {"cpus": self.cpus, "cpu": cpu_model(), "kernel": platform.release(), "options": self.a.option}

    def resume(self):
        """Takes the rounds that peers.json has. Failure if it is of another machine, or of other cases."""
        try:
            earlier = json.loads((self.a.output / "peers.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            return
        here = json.loads(json.dumps(self.machine()))
        if other := [name for name in here if here[name] != earlier.get(name)]:
            raise Failure(f"{self.a.output / 'peers.json'} is of another machine: {', '.join(other)}")
        self.restore(earlier)
        self.done, self.seconds = earlier["rounds"], earlier["seconds"]
        self.sittings, self.load = earlier["sittings"] + 1, max(self.load, earlier["load"])
        self.failures = earlier["failures"]

    def restore(self, earlier):
        figures = {(c["part"], c["place"], c["what"], c["size"]): c for c in earlier["cases"]}
        for cases in self.mpi:
            for (part, _, what, size), c in figures.items():
                if part == f"MPI, {cases.peers}":
                    cases.case(what, size, c["unit"], c["figures"])
            cases.done = earlier["rounds"]
        for case in self.all_cases():
            there = figures.pop((case.part, case.place, case.what, case.size), None)
            if there is None or set(there["figures"]) != set(case.found):
                raise Failure(f"{self.a.output / 'peers.json'} has other figures of: {case.name}")
            case.found = there["figures"]
        if figures:
            raise Failure(f"{self.a.output / 'peers.json'} has more cases: {', '.join(map(str, figures))}")

    # The page.

    def about(self):
        a = self.a
        return [
            f"{datetime.datetime.now().astimezone():%Y-%m-%d %H:%M %Z}; {cpu_model()}, {os.cpu_count()} CPUs; "
            f"Linux {platform.release()}; the ends on CPUs {self.cpus[0]} and {self.cpus[1]};",
            f"{self.done} rounds in turns; {self.spent():.0f} s{self.in_sittings()}; {load_remark(self.load)}.",
            f"Options of EtherWARP: {' '.join(with_defaults(a.option, self.cpus))}; local=auto where it is about one host.",
            f"Raw TCP polls. Congestion control: {CONGESTION}; the system's of others than raw TCP if not run by root.",
            f"CPU time: at {a.gbit:g} Gbit/s{self.held()}.",
            *(f"Left out: {line}." for line in self.left_out),
            *([f"{len(self.failures)} runs failed; peers.json names them."] if self.failures else []),
            "",
        ]  # fmt: skip

    def page(self, found, apart, in_short=False):
        return "\n".join([
            "# EtherWARP beside its peers",
            "",
            *self.about(),
            "## Aims",
            "",
            "The median of the rounds' ratios decides; the worst case of each place is shown.",
            "",
            *(aim_lines_in_short if in_short else aim_lines)(found),
            "",
            *tables(apart, in_short),
        ])  # fmt: skip

    def spent(self):
        return self.seconds + time.monotonic() - self.begin

    def in_sittings(self):
        return f" in {self.sittings} sittings" if self.sittings > 1 else ""

    def held(self):
        """How well the rate was held at which CPU time was taken: on a machine that has none to spare it is not."""
        rates = [f["gbit_per_s"] for case in self.cases for found in case.found.values() for f in found
                 if f and "gbit_per_s" in f]  # fmt: skip
        return f" (of which each run held {min(rates) / self.a.gbit:.0%} or more)" if rates else ""

    def write(self):
        """The page's path."""
        cases = self.all_cases()
        apart = by_distance(cases)
        found = verdicts(apart)
        output = self.a.output
        output.mkdir(parents=True, exist_ok=True)
        for name, svg in charts(apart).items():
            (output / name).write_text(svg, encoding="utf-8")
        figures = {**self.machine(), "rounds": self.done, "seconds": self.spent(), "sittings": self.sittings,
                   "load": self.load, "left_out": self.left_out, "failures": self.failures, "aims": found,
                   "cases": [case.as_dict() for case in cases]}  # fmt: skip
        (output / "peers.json").write_text(json.dumps(figures, indent=1), encoding="utf-8")
        (output / "peers.md").write_text(self.page(found, apart), encoding="utf-8")
        (output / "peers_in_short.md").write_text(self.page(found, apart, in_short=True), encoding="utf-8")
        return output / "peers.md"

    def close(self):
        for tools in self.open:
            tools.close()


def parse(argv):
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    p.add_argument("--output", type=pathlib.Path, help="directory (default: BUILD/bench/peers)")
    p.add_argument("--rounds", type=int, default=15)
    p.add_argument("--only", action="append", choices=PARTS, default=[], metavar="PART", help="network, host, mpi (default: all)")
    p.add_argument("--place", action="append", default=[], metavar="WORD",
                   help="only places with it in their name, such as veth or 9000")
    p.add_argument("--sizes", type=lambda s: [int(n) for n in s.split(",")],
                   help="octets (default: 8 to 8388608; one host: 1 to 67108864)")
    p.add_argument("--server-cpus")
    p.add_argument("--client-cpus")
    p.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help="an option of EtherWARP")
    p.add_argument("--octets", type=int, default=1 << 30, help="of one bandwidth run (default: 1 GiB)")
    p.add_argument("--gbit", type=float, default=4, help="the rate at which CPU time is taken (default: 4 Gbit/s)")
    p.add_argument("--timeout", type=int, default=60, help="seconds for one run")
    p.add_argument("--resume", action="store_true", help="go on behind the rounds of OUTPUT/peers.json, to --rounds in all")
    p.add_argument("--quick", action="store_true", help="one round of tiny runs: shows that it runs, nothing about speed")
    a = p.parse_args(argv)
    a.bench, a.build = pathlib.Path(__file__).resolve().parent, a.build.resolve()
    a.output = (a.output or a.build / "bench" / "peers").resolve()
    a.only = a.only or PARTS
    a.latency_messages, a.messages, a.rate_messages, a.cpu_octets, a.seconds = 20000, 100_000, 500_000, 1 << 30, 0.5
    if a.quick:
        a.rounds, a.octets, a.timeout = 1, 16 << 20, 2 * a.timeout
        a.latency_messages, a.messages, a.rate_messages, a.cpu_octets, a.seconds = 100, 1000, 5000, 64 << 20, 0.1
    if a.rounds < 1:
        p.error("--rounds must be at least 1")
    return a


def main(argv):
    a = parse(argv)
    if not installed("taskset"):
        print("peers_bench: taskset is not installed (package util-linux)", file=sys.stderr)
        return SKIPPED
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the namespaces are taken down
    bench = Bench(a)
    try:
        return bench.run()
    except Failure as e:
        print(f"peers_bench: {e}", file=sys.stderr)
        return 1
    finally:
        bench.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
