#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Mixed verbs traffic on 64 connections between processes that come and go, for hours.

Two hosts (network namespaces) are joined by a link that loses frames and changes their order. Two processes stay: the
one serves, the other connects, and what is between them must never end but by their own doing. Around them others are
stopped, go on, are killed and start again. Each octet is verified by ewarp_soak_peer. Beside them reliable datagrams run
over the same link, from checksum to checksum (ewarp_rd_transfer).

The processes that stay are flat if, with all connections ended, after the first tenth of the time and at its end, they
have the same number of descriptors and of threads, and their resident memory has not grown by more than GROWTH_KIB. A
process at rest gives back what its allocator keeps for later (ewarp_soak_peer), which varies by more than that.
"""
import argparse
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "system"))
from harness import BUILD, SKIPPED, Failure, Rig, Skip, check, free_port, listens, need, tail, wait_until  # noqa: E402

GROWTH_KIB = 4096  # the engine keeps up to 64 buffers of 128 KiB for reuse, and touches what it needs
STEADY, TO_VICTIM, FROM_VICTIM, VICTIMS = 32, 16, 8, 2  # connections; 64 in all
LOST, HELD = 5, 20  # of 1000 frames
# Those that stay: a first message that is lost several times is no finding.
PATIENT = ["--rtr-timeout-ms", "60000"]
REST_S = 8  # more than request_timeout_ms: until then a Request that never came whole holds a descriptor
SERVER, CLIENT = "10.98.0.1", "10.98.0.2"
RD_OCTETS = 2 << 20
PEER, LINK, RD = (BUILD / "bin" / name for name in ("ewarp_soak_peer", "ewarp_soak_link", "ewarp_rd_transfer"))


class Soak:
    def __init__(self, rig, seed):
        self.rig, self.seed, self.random = rig, seed, random.Random(seed)
        self.hosts, self.counts = [], dict.fromkeys(("kills", "stops", "rd_transfers"), 0)
        self.victims, self.rd, self.samples = {}, None, []

    # The two hosts and what is between them.

    def join_hosts(self):
        need("ip", "ethtool")
        rig = self.rig
        self.hosts = [rig.namespace("a"), rig.namespace("b")]
        middle = rig.namespace("m")
        for number, host in enumerate(self.hosts, 1):
            try:
                rig.ip("link", "add", "ew0", "netns", host, "type", "veth", "peer", "name", f"port{number}", "netns", middle)
            except Failure as e:
                raise Skip(f"no veth devices here: {e}") from e
            rig.ip("-n", host, "addr", "add", f"10.98.0.{number}/24", "dev", "ew0")
            for namespace, name in ((host, "ew0"), (middle, f"port{number}")):
                rig.ip("-n", namespace, "link", "set", name, "up")
                # Frames as they are on a wire, with their checksums.
                for feature in ("tx", "gso", "tso", "gro"):
                    subprocess.run(["ip", "netns", "exec", namespace, "ethtool", "-K", name, feature, "off"],
                                   capture_output=True, check=False)  # fmt: skip
        self.link = rig.start_plain(["ip", "netns", "exec", middle, LINK, "port1", "port2", LOST, HELD, self.seed],
                                    name="the link")  # fmt: skip
        self.wait_for(self.link, "ready")
        rig.wait_for_link(*self.hosts)

    def wait_for(self, process, word, times=1, seconds=60):
        def said():
            check(process.status is None, f"{process.name} ended: {process.status}\n{process.said()}")
            return process.output().count(word + "\n") >= times
        wait_until(said, seconds, lambda: f"{process.name} does not say '{word}'\n{process.said()}")

    # Processes.

    def peer(self, name, host, *words, options=()):
        process = self.rig.start([PEER, "--seed", self.random.randrange(1 << 32), *words], options=options,
                                 netns=self.hosts[host], name=name)  # fmt: skip
        self.wait_for(process, "ready")
        return process

    def start_all(self):
        self.port, self.victim_port, self.rd_port = free_port(), free_port(), free_port()
        self.server = self.peer("the server", 0, "--listen", self.port, options=PATIENT)
        self.start_victim("serving")
        self.client = self.peer("the client", 1, "--to", f"{SERVER}:{self.port}:{STEADY}:steady",
                                "--to", f"{SERVER}:{self.victim_port}:{TO_VICTIM}", options=PATIENT)  # fmt: skip
        for n in range(VICTIMS):
            self.start_victim(n)

    def start_victim(self, which):
        if which == "serving":
            # The kernel closes the socket of a process that was killed when its io_uring has ended.
            wait_until(lambda: not listens(self.server.pid, self.victim_port), 20, "a killed server's port is not free")
            self.victims[which] = self.peer("a server that is killed", 0, "--listen", self.victim_port)
        else:
            self.victims[which] = self.peer(f"client {which} that is killed", 1, "--to",
                                            f"{SERVER}:{self.port}:{FROM_VICTIM}")  # fmt: skip

    def kill_victim(self, which):
        victim = self.victims.pop(which)
        check(victim.status is None, f"{victim.name} ended by itself: {victim.status}\n{victim.said()}")
        victim.send(signal.SIGKILL)
        victim.wait(10)
        self.rig.forget(victim)
        self.rig.ended()  # and their counters
        self.counts["kills"] += 1

    def stop_victim(self, which, seconds):
        victim = self.victims[which]
        victim.send(signal.SIGSTOP)
        self.run_for(seconds)
        victim.send(signal.SIGCONT)
        self.counts["stops"] += 1

    def run_for(self, seconds):
        """Looks after all that runs."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for process in (self.server, self.client, self.link, *self.victims.values()):
                check(process.status is None, f"{process.name} ended: {process.status}\n{process.said()}")
            self.look_after_rd()
            time.sleep(0.2)

    def look_after_rd(self):
        """One transfer after the other."""
        words = [RD, "--device", "ewarp_ew0", "--port", self.rd_port, "--octets", RD_OCTETS]
        if self.rd is None:
            sides = [self.rig.start_server(words, self.rd_port, seconds=60, netns=self.hosts[0], name="rd_transfer (receiver)")]
            sides.append(self.rig.start([*words, SERVER], netns=self.hosts[1], name="rd_transfer (sender)"))
            self.rd = sides
        bad = [side for side in self.rd if side.status]
        check(not bad, "\n".join(f"{side.name}: exit status {side.status}\n{side.said()}" for side in bad))
        if any(side.status is None for side in self.rd):
            check(time.monotonic() - self.rd[0].started < 300, "a transfer of reliable datagrams hangs\n"
                  + "\n".join(side.said() for side in self.rd))  # fmt: skip
            return
        sums = {tuple(re.findall(r"^octets (\d+) sum ([0-9a-f]{16})", side.output(), re.M)) for side in self.rd}
        check(len(sums) == 1 and sums != {()} and all(side.status == 0 for side in self.rd),
              "reliable datagrams: not the same at both ends\n" + "\n".join(side.said() for side in self.rd))  # fmt: skip
        for side in self.rd:
            self.rig.forget(side)
        self.rd = None
        self.counts["rd_transfers"] += 1

    # Figures.

    def possessions(self, process):
        folder = f"/proc/{process.pid}"
        with open(folder + "/statm", encoding="ascii") as f:
            kib = int(f.read().split()[1]) * os.sysconf("SC_PAGESIZE") // 1024
        return len(os.listdir(folder + "/fd")), len(os.listdir(folder + "/task")), kib

    def sample(self, paused):
        """With all connections ended: descriptors, threads and KiB of the two, once they rest."""
        for which in list(self.victims):
            self.kill_victim(which)
        for process in (self.client, self.server):
            process.send(signal.SIGUSR1)
            self.wait_for(process, "paused", paused)
        last, since, until = None, time.monotonic(), time.monotonic() + 120
        while time.monotonic() - since < REST_S:
            check(time.monotonic() < until, f"no rest: {last} descriptors and threads")
            now = [self.possessions(p)[:2] for p in (self.server, self.client)]
            if now != last:
                last, since = now, time.monotonic()
            time.sleep(0.2)
        for process in (self.client, self.server):
            process.send(signal.SIGUSR2)
            self.wait_for(process, "rests", paused)
        self.samples.append([self.possessions(p) for p in (self.server, self.client)])
        for who, (fds, threads, kib) in zip(("server", "client"), self.samples[-1]):
            print(f"  {who} at rest: {fds} descriptors, {threads} threads, {kib} KiB", flush=True)

    def go_on(self, times):
        self.start_victim("serving")
        for process in (self.server, self.client):
            process.send(signal.SIGUSR1)
            self.wait_for(process, "goes on", times)
        for n in range(VICTIMS):
            self.start_victim(n)

    def judge(self):
        first, last = self.samples
        for who, before, after in zip(("server", "client"), first, last):
            check(after[:2] == before[:2], f"the {who} has {after[:2]} descriptors and threads at the end, not {before[:2]}")
            check(after[2] <= before[2] + GROWTH_KIB, f"the {who} has grown from {before[2]} to {after[2]} KiB")

    def run(self, seconds):
        self.join_hosts()
        self.start_all()
        began = time.monotonic()
        self.disturb(began + seconds / 10)
        self.sample(1)
        self.go_on(1)
        next_word = began + 600
        while time.monotonic() < began + seconds:
            self.disturb(min(began + seconds, next_word))
            if time.monotonic() >= next_word:
                next_word += 600
                print(f"  after {int(time.monotonic() - began)} s: {self.counts}; KiB "
                      f"{[self.possessions(p)[2] for p in (self.server, self.client)]}", flush=True)  # fmt: skip
        self.sample(2)
        for process in (self.client, self.server, self.link):
            process.send(signal.SIGTERM)
            process.must_end_well(30)
        self.report(time.monotonic() - began)
        self.judge()

    def disturb(self, until):
        while time.monotonic() < until:
            self.run_for(min(self.random.uniform(1, 6), max(until - time.monotonic(), 0)))
            which = self.random.choice(list(self.victims))
            if self.random.random() < 0.5:
                self.kill_victim(which)
                self.run_for(self.random.uniform(0, 2))
                self.start_victim(which)
            else:
                self.stop_victim(which, self.random.uniform(1, 8))

    def report(self, seconds):
        print(f"  {seconds:.0f} s, seed {self.seed}: {self.counts}")
        for process in (self.server, self.client, self.link):
            print(f"  {process.name}: {process.output().strip().splitlines()[-1]}")
        octets = int(re.search(r"octets (\d+)", self.client.output()).group(1))
        connects = int(re.search(r"connects (\d+)", self.client.output()).group(1))
        check(octets > 1 << 20 and connects > STEADY + TO_VICTIM, "nothing was moved, or nothing connected again")
        for process in self.victims.values():
            print(tail(process.output()))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=0)
    parser.add_argument("--minutes", type=float, default=0)
    parser.add_argument("--seed", type=int, default=int(os.environ.get("EWARP_SEED", "0")) or random.randrange(1 << 31))
    chosen = parser.parse_args()
    seconds = chosen.hours * 3600 + chosen.minutes * 60 or 120
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    rig = Rig()
    try:
        Soak(rig, chosen.seed).run(seconds)
        print("  ok")
    except Skip as e:
        print(f"  SKIPPED: {e}")
        sys.exit(SKIPPED)
    except (Failure, OSError, subprocess.SubprocessError) as e:
        print(f"  FAILED (seed {chosen.seed}): {e}")
        sys.exit(1)
    finally:
        rig.close()


if __name__ == "__main__":
    main()
