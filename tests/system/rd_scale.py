#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""One process and many peers over reliable datagrams: a message to each, an answer from each, every octet looked at; what
the one process grows by.

EWARP_TEST_FULL=1: 10,000 peers in ten processes; else 1000 in four."""
import subprocess
import threading

from harness import BUILD, FULL, PATIENCE, Child, check, main

PEERS, PROCESSES = (10000, 10) if FULL else (1000, 4)
# KiB that the one process may grow by: its buffers for datagrams, as far as they were filled; and for each peer an
# association, its share of tables, the address handle.
MOST_KIB = 6144 + PEERS * 0.625


class Scale(Child):
    def __init__(self, rig, namespace, *words):
        super().__init__(rig, namespace, BUILD / "bin" / "ewarp_rd_scale", "--device", "ewarp_lo", *words)

    def kill(self):
        self._child.kill()

    def end(self):
        """Its input ends, and it with it."""
        self._child.stdin.close()
        try:
            status = self._child.wait(20 * PATIENCE)
        except subprocess.TimeoutExpired:
            self._child.kill()
            status = self._child.wait()
        check(status == 0, f"exit status {status}")


def private_kib(pid):
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as f:
        return sum(int(line.split()[1]) for line in f if line.startswith(("Private_Clean:", "Private_Dirty:")))


def reliable(rig, pid):
    process = rig.counters(pid)
    check(process is not None, "no counters of the one process")
    return process["reliable"]


def many_peers(rig):
    """Every peer gets a message and answers, twice; then the one process has an association with each."""
    namespace = rig.namespace("s")
    children = [Scale(rig, namespace, "--answer", PEERS // PROCESSES) for _ in range(PROCESSES)]
    one = Scale(rig, namespace)
    watchdog = threading.Timer(300 * PATIENCE, lambda: [c.kill() for c in (*children, one)])
    watchdog.start()
    try:
        one.hear("made")
        before = private_kib(one.pid)
        for child in children:
            one.tell(*child.hear("made"))
        one.tell("ready")
        one.hear("prepared")
        prepared = private_kib(one.pid)
        for _ in range(2):
            one.tell("talk")
            one.hear("talked")
        after = private_kib(one.pid)
        counters = reliable(rig, one.pid)
        check(counters["associations"] == PEERS, f"{counters['associations']} associations with {PEERS} peers")
        check(counters["tx_segments"] >= 2 * PEERS, f"{counters['tx_segments']} segments to {PEERS} peers")
        print(f"  {PEERS} peers in {PROCESSES} processes: {before} KiB, with the addresses {prepared}, after two rounds {after}: "
              f"{(after - before) / PEERS:.2f} KiB for each peer, {(prepared - before) / PEERS:.2f} of them the program's addresses; "
              f"{counters['retransmitted']} segments repeated")  # fmt: skip
        check(after - before <= MOST_KIB, f"{after - before} KiB more, not {MOST_KIB}")
        for child in (one, *children):
            child.end()
    finally:
        watchdog.cancel()
        for child in (one, *children):
            child.kill()


if __name__ == "__main__":
    main(many_peers)
