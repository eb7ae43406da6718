#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What many endpoints cost that all talk to each other, by transport: memory of the processes and of the kernel.

    tests/bench/memory.py [--build DIRECTORY] [--output DIRECTORY] [--endpoints N] [TRANSPORT...]

Each endpoint is a process under `etherwarp run`, in a network namespace of its own with the loopback device: it opens
the device, makes its queue pairs, connects them, and exchanges a message with each of the others. In between everything
is counted: private memory of the processes (smaps_rollup), the kernel's objects of sockets (slabinfo) and what is in the
sockets (sockstat). Needs root. Buffers for data are not in it: they are the application's. Writes memory.md and
memory.json.
"""
import argparse
import os
import pathlib
import subprocess
import sys
import threading

from common import ROOT, SKIPPED, Child, Failure, Rig, Skip, keep_report

# Name: argument of the program, what is posted.
TRANSPORTS = {"RC": ("rc", "16 receives for each connection"),
              "RC, SRQ": ("rc-srq", "256 receives for all"),
              "UD": ("ud", "256 receives for all"),
              "RD": ("rd", "256 receives for all")}  # fmt: skip
STEPS = ("open", "make", "connect", "talk")

# The kernel's objects of a socket: itself, its inode, its file, its bucket by port, what watches it.
SLABS = ("TCP", "TCPv6", "UDP", "UDPv6", "sock_inode_cache", "filp", "tcp_bind_bucket", "tcp_bind2_bucket",
         "eventpoll_epi", "eventpoll_pwq", "io_kiocb", "skbuff_head_cache",
         "skbuff_fclone_cache", "skbuff_small_head")  # fmt: skip


def kernel_octets():
    """{what: octets} of the whole machine; differences of it count."""
    sizes = {}
    with open("/proc/slabinfo", encoding="ascii") as f:
        for line in f.readlines()[2:]:
            name, active, _, size = line.split()[:4]
            if name in SLABS:
                sizes[name] = int(active) * int(size)
    with open("/proc/net/sockstat", encoding="ascii") as f:
        for line in f:
            words = line.replace(":", "").split()
            if "mem" in words:
                sizes[f"{words[0]} buffers"] = int(words[words.index("mem") + 1]) * 4096
    return sizes


def process_octets(pid):
    """What is its own, and would go with it."""
    total = 0
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as f:
        for line in f:
            if line.startswith(("Private_Clean:", "Private_Dirty:")):
                total += int(line.split()[1]) * 1024
    return total


class Endpoint(Child):
    def __init__(self, rig, namespace, program, transport, peers):
        super().__init__(rig, namespace, program, "--transport", transport, "--peers", peers, "--device", "ewarp_lo")

    def end(self):
        self._child.stdin.close()
        try:
            self._child.wait(20)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()


class Scene:
    """So many endpoints of one transport, and what they cost after each step."""

    def __init__(self, rig, a, transport):
        self.a = a
        namespace = rig.namespace(transport.replace("-", ""))
        program = a.build / "bin" / "ewarp_memory_endpoint"
        self.before = kernel_octets()
        self.ends = [Endpoint(rig, namespace, program, transport, a.endpoints - 1) for _ in range(a.endpoints)]
        self.watchdog = threading.Timer(a.timeout, self.kill)
        self.watchdog.start()

    def kill(self):
        for end in self.ends:
            end._child.kill()

    def exchange_addresses(self, told):
        """told[i]: addresses of endpoint i for each of the others, in order."""
        n = len(self.ends)
        for i, end in enumerate(self.ends):
            others = [j for j in range(n) if j != i]
            end.tell(*(f"peer {told[j][i - (i > j)]}" for j in others))

    def step(self, word):
        heard = {"open": "opened", "make": "made", "connect": "connected", "talk": "talked"}[word]
        for end in self.ends:
            end.tell(word)
        lines = [end.hear(heard) for end in self.ends]
        if word == "make":
            self.exchange_addresses([[line.removeprefix("address ") for line in each] for each in lines])
        kernel = {name: size - self.before.get(name, 0) for name, size in kernel_octets().items()}
        return {"processes": sum(process_octets(end.pid) for end in self.ends),
                "kernel": sum(kernel.values()), "kernel_by_kind": kernel}  # fmt: skip

    def close(self):
        self.watchdog.cancel()
        for end in self.ends:
            end.end()


def kib(octets):
    return f"{octets / 1024:.1f}"


def report(a, results):
    lines = [
        f"# Memory of {a.endpoints} endpoints, each with all others",
        "",
        f"KiB for each endpoint ({a.endpoints - 1} peers). First the process with the device open; then what came on top: "
        "its own memory, and the kernel's for its sockets, after everybody talked to everybody.",
        "",
        "| transport | posted | process, device open | + process | + kernel | for each peer |",
        "|---|---|--:|--:|--:|--:|",
    ]
    for name, steps in results.items():
        n = a.endpoints
        opened, talked = steps["open"], steps["talk"]
        process, kernel = talked["processes"] - opened["processes"], talked["kernel"] - opened["kernel"]
        lines.append(f"| {name} | {TRANSPORTS[name][1]} | {kib(opened['processes'] / n)} | {kib(process / n)} | "
                     f"{kib(kernel / n)} | {kib((process + kernel) / n / (n - 1))} |")  # fmt: skip
    return "\n".join([*lines, ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("transports", nargs="*", metavar="TRANSPORT", help=", ".join(TRANSPORTS))
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--output", type=pathlib.Path, help="directory (default: BUILD/bench)")
    parser.add_argument("--endpoints", type=int, default=64)
    parser.add_argument("--timeout", type=float, default=120, help="seconds for each transport")
    a = parser.parse_args()
    a.build = a.build.resolve()
    if unknown := set(a.transports) - set(TRANSPORTS):
        parser.error(f"no transport {', '.join(unknown)}; there are {', '.join(TRANSPORTS)}")
    if not os.access("/proc/slabinfo", os.R_OK):
        print("memory: /proc/slabinfo is root's alone, or this kernel has none", file=sys.stderr)
        return SKIPPED
    results = {}
    for name in a.transports or TRANSPORTS:
        rig, scene = Rig(a.build), None
        try:
            scene = Scene(rig, a, TRANSPORTS[name][0])
            results[name] = {step: scene.step(step) for step in STEPS}
        except (Failure, OSError) as e:
            print(f"memory: {name}: {e}", file=sys.stderr)
            return 1
        except Skip as e:
            print(f"memory: {e}", file=sys.stderr)
            return SKIPPED
        finally:
            if scene is not None:
                scene.close()
            rig.close()
        print(f"{name}: measured", file=sys.stderr, flush=True)
    keep_report(a.output or a.build / "bench", "memory", report(a, results), {"endpoints": a.endpoints, "results": results})
    return 0


if __name__ == "__main__":
    sys.exit(main())
