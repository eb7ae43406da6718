#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Memory of MPI ranks by the number of their partners: resident memory, descriptors, and the kernel's for their sockets.

    tests/bench/mpi_memory.py [--build DIRECTORY] [--ranks 16,64] [--partners 0,2,8,all] [--over TRANSPORT,...] [--most KIB]

All ranks on this machine (--oversubscribe), standing still after an exchange of 8 octets and 64 KiB, 20 times, with each
partner. Medians of the ranks: private memory (RssAnon), all of it (VmRSS), descriptors, and what `ss -tm` counts for TCP:
queued (r, t, w) and reserved (f). The transports are those of mpi_bench.py. --most: it is an error if a rank over EtherWARP
has more private memory.
"""
import argparse
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

from bench import Failure, end, tail
from mpi_bench import transports


def of_process(pid):
    status = pathlib.Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    values = {name: int(re.search(rf"^{name}:\s+(\d+) kB", status, re.M)[1]) for name in ("RssAnon", "VmRSS")}
    return {**values, "fds": len(os.listdir(f"/proc/{pid}/fd"))}


def socket_memory(pids):
    """By pid, KiB."""
    out = subprocess.run(["ss", "-tnmpO"], capture_output=True, text=True, check=True).stdout
    found = dict.fromkeys(pids, 0)
    for line in out.splitlines():
        memory = re.search(r"skmem:\(([^)]*)\)", line)
        for pid in map(int, re.findall(r"pid=(\d+)", line)):
            if pid in found and memory:
                fields = dict(re.findall(r"([a-z]+)(\d+)", memory[1]))
                found[pid] += sum(int(fields.get(name, 0)) for name in "rtwf") // 1024
    return found


def measure(a, name, ranks, partners):
    """Medians over the ranks."""
    words, env = transports(str(a.build / "bin" / "etherwarp"), "network")[name]
    with tempfile.TemporaryDirectory(prefix="ewarp-mpi-memory-") as folder:
        command = [*words, *(["--allow-run-as-root"] if os.geteuid() == 0 else []), "--oversubscribe", "--bind-to", "none",
                   "-n", str(ranks), str(a.build / "bin" / "ewarp_mpi_memory"), str(partners), folder]  # fmt: skip
        with tempfile.TemporaryFile("w+") as log:
            job = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env={**os.environ, **env})
            try:
                deadline = time.monotonic() + a.timeout
                files = [pathlib.Path(folder, str(rank)) for rank in range(ranks)]
                while not all(file.exists() and file.stat().st_size for file in files):
                    if job.poll() is not None or time.monotonic() > deadline:
                        log.seek(0)
                        raise Failure(f"{name}, {ranks} ranks, {partners} partners: not all began\n{tail(log.read())}")
                    time.sleep(0.05)
                time.sleep(1)  # what is given back when nothing happens
                pids = [int(file.read_text(encoding="ascii")) for file in files]
                rows = [{**of_process(pid), "sockets": kib} for pid, kib in socket_memory(pids).items()]
                pathlib.Path(folder, "go").touch()
                job.wait(a.timeout)
            finally:
                end(job)
    return {key: statistics.median(row[key] for row in rows) for key in rows[0]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    parser.add_argument("--ranks", default="16,64")
    parser.add_argument("--partners", default="0,2,8,all")
    parser.add_argument("--over", default="etherwarp,btl-tcp,ucx-tcp,ofi-tcp")
    parser.add_argument("--most", type=float, default=float("inf"), help="KiB of RssAnon")
    parser.add_argument("--timeout", type=float, default=300)
    a = parser.parse_args()
    a.build = a.build.resolve()
    print(f"{'':>10} {'ranks':>6} {'partners':>8} {'RssAnon':>9} {'VmRSS':>9} {'fds':>5} {'sockets':>8}   (KiB, medians)")
    for ranks in map(int, a.ranks.split(",")):
        for word in a.partners.split(","):
            partners = ranks - 1 if word == "all" else int(word)
            for name in a.over.split(","):
                try:
                    found = measure(a, name, ranks, partners)
                except Failure as e:
                    sys.exit(str(e))
                print(f"{name:>10} {ranks:6} {partners:8} {found['RssAnon']:9.0f} {found['VmRSS']:9.0f} {found['fds']:5.0f} "
                      f"{found['sockets']:8.0f}", flush=True)  # fmt: skip
                if name == "etherwarp" and found["RssAnon"] > a.most:
                    sys.exit(f"a rank has {found['RssAnon']:.0f} KiB, more than {a.most:.0f}")


if __name__ == "__main__":
    main()
