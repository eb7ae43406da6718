#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""One-way bandwidth over a veth pair that drops packets at random, both ways: reliable datagrams beside TCP.

    tests/bench/loss_bench.py [--build DIRECTORY] [--output DIRECTORY] [--pairs N] [--loss PERCENT,...]

RD: RDMA Writes of 256 KiB, each with a Send behind it (`ewarp_rd_transfer --plain`). TCP: a stream of 256 KiB sends
(`ewarp_bench_tcp`), with Reno, whose arithmetic RD's congestion window has too, and with the system's congestion control.
Alternating runs, ratios of the pairs. Segmentation and merging are switched off in the device, so that each packet is
lost by itself (--offloads leaves them on: then trains of packets are lost). Needs root, nft, ethtool. Writes loss.md
and loss.json.
"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import re
import sys
import time

from common import (ROOT, SKIPPED, Failure, Rig, Row, Skip, as_words, cpu_model, cpu_sets, free_port, in_turn,
                    keep_report, load_remark, say_since, with_defaults)  # fmt: skip
from harness import listens, need, wait_until
from reliable import drop, without_offloads

BLOCK = 256 << 10
LISTENER = "10.99.0.1"
BASES = {"TCP, Reno": "reno", "TCP, the system's": "system"}


class Link:
    """Two hosts, with so much loss between them."""

    def __init__(self, a, percent):
        self.a, self.percent = a, percent
        self.rig = Rig(a.build)
        self.cpus = cpu_sets(None, None)
        self.options = with_defaults([], self.cpus)

    def open(self):
        need("nft", "ethtool")
        self.hosts = self.rig.namespace("a"), self.rig.namespace("b")
        self.rig.veth(*self.hosts)
        for host in self.hosts:
            self.rig.ip("-n", host, "link", "set", "ew0", "mtu", self.a.mtu)
            if not self.a.offloads:
                without_offloads(self.rig, host)
            if self.percent > 0:
                drop(host, self.percent, "tcp, udp")

    def rd(self):
        port = free_port()
        words = [self.a.build / "bin" / "ewarp_rd_transfer", "--plain", "--device", "ewarp_ew0", "--port", port,
                 "--octets", self.a.octets, "--block", BLOCK]  # fmt: skip
        how = [{"netns": host, "wrap": ["taskset", "-c", cpus], "options": as_words(self.options)}
               for host, cpus in zip(self.hosts, self.cpus)]  # fmt: skip
        run = self.rig.pair("RD", words, [*words, LISTENER], port, self.a.octets, server_how=how[0], client_how=how[1],
                            seconds=self.a.timeout, quiet=True)  # fmt: skip
        return float(re.search(r" gbit_per_s (\S+)", run.client).group(1))

    def tcp(self, congestion):
        port = free_port()
        words = [self.a.build / "bin" / "ewarp_bench_tcp", "--mode", "stream", "--address", LISTENER, "--port", port, "--size", BLOCK,
                 "--iterations", self.a.octets // BLOCK, "--congestion", congestion, "--timeout", self.a.timeout,
                 "--server-cpus", self.cpus[0], "--client-cpus", self.cpus[1]]  # fmt: skip
        start = [["ip", "netns", "exec", host, *words, "--role", role] for host, role in zip(self.hosts, ("server", "client"))]
        server = self.rig.start_plain(start[0])
        wait_until(lambda: listens(server.pid, port), 20, lambda: f"the server does not listen\n{server.said()}")
        client = self.rig.start_plain(start[1])
        client.must_end_well(self.a.timeout)
        server.must_end_well(5)
        said = json.loads(client.output())
        self.rig.forget(server)
        self.rig.forget(client)
        return said["gbit_per_s"]


def measure(a, percent, say):
    link = Link(a, percent)
    try:
        link.open()
        rows = [Row(f"{percent:g} % loss: RD / {name}", "Gbit/s", "higher", name) for name in BASES]
        for n in range(a.pairs):
            rd, *tcp = in_turn(n, [link.rd, *[lambda c=c: link.tcp(c) for c in BASES.values()]])
            for row, value in zip(rows, tcp):
                row.add(value, rd)
            say(f"{percent:g} %, pair {n + 1} of {a.pairs}: RD {rd:.3f}, "
                + ", ".join(f"{name} {value:.3f}" for name, value in zip(BASES, tcp)) + " Gbit/s")  # fmt: skip
        return rows
    finally:
        link.rig.close()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    p.add_argument("--output", type=pathlib.Path, help="directory (default: BUILD/bench)")
    p.add_argument("--pairs", type=int, default=15)
    p.add_argument("--loss", type=lambda s: [float(x) for x in s.split(",")], default=[0, 0.1, 1], help="percent, each way")
    p.add_argument("--octets", type=int, default=256 << 20, help="of each run")
    p.add_argument("--mtu", type=int, default=1500)
    p.add_argument("--offloads", action="store_true")
    p.add_argument("--timeout", type=int, default=60, help="seconds for one run")
    p.add_argument("--smoke", action="store_true", help="one pair of tiny runs: shows that it runs, nothing about speed")
    a = p.parse_args()
    a.build = a.build.resolve()
    if a.smoke:
        a.pairs, a.octets, a.loss = 1, 4 << 20, [0, 1]
    begin, load, rows = time.monotonic(), os.getloadavg()[0], []
    try:
        for percent in a.loss:
            rows += measure(a, percent, say_since(begin))
    except Skip as e:
        print(f"loss_bench: {e}", file=sys.stderr)
        return SKIPPED
    except Failure as e:
        print(f"loss_bench: {e}", file=sys.stderr)
        return 1
    page = "\n".join([
        "# Reliable datagrams beside TCP, with loss",
        "",
        f"{datetime.datetime.now().astimezone():%Y-%m-%d %H:%M %Z}; {cpu_model()}, {os.cpu_count()} CPUs; Linux {platform.release()}; veth, "
        f"MTU {a.mtu}, offloads {'on' if a.offloads else 'off'}; {a.octets >> 20} MiB one way; {a.pairs} alternating pairs; {load_remark(load)}.",
        "",
        "| what | unit | TCP | RD | ratio (median) | min | quartiles | max |",
        "|---|---|--:|--:|--:|--:|--:|--:|",
        *[row.as_line() for row in rows],
        ""])  # fmt: skip
    keep_report(a.output or a.build / "bench", "loss", page, [row.as_dict() for row in rows])
    return 0


if __name__ == "__main__":
    sys.exit(main())
