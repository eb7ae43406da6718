# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Hosts that vanish without a word: what was under way to them fails soon, with the right statuses and events. Hosts whose
programs have stopped are there."""
import contextlib
import os
import signal
import subprocess
import time

from faults import ends_with_error
from harness import BUILD, FULL, Skip, check, free_port, main, need, wait_until

VANISHED = BUILD / "bin" / "ewarp_vanished"
NEAR, FAR = "10.99.0.1", "10.99.0.2"
SOON = ["--keepalive-s", "1", "--unacknowledged-s", "2"]  # both find out within 10 s
RETRIES, FLUSHED = "transport retry counter exceeded", "Work Request Flushed Error"


def two_hosts(rig):
    need("nft")
    near, far = rig.namespace("a"), rig.namespace("b")
    rig.veth(near, far)
    return near, far


def vanish(namespace):
    """From now on nothing comes to this host from others, and nothing leaves it."""
    rules = "".join(f" chain {hook} {{ type filter hook {hook} priority 0; {way} ew0 drop; }}\n"
                    for hook, way in (("input", "iifname"), ("output", "oifname")))  # fmt: skip
    done = subprocess.run(["ip", "netns", "exec", namespace, "nft", "-f", "-"], input=f"table inet gone {{\n{rules}}}\n",
                          capture_output=True, text=True, check=False)  # fmt: skip
    if done.returncode != 0:
        raise Skip(f"no packet filter for us here: {done.stderr.strip()}")


def bring_back(namespace):
    """After vanish()."""
    subprocess.run(["ip", "netns", "exec", namespace, "nft", "delete", "table", "inet", "gone"], check=True)


def end_all_in(namespace):
    """What a job has started there, and nobody can reach any more."""
    done = subprocess.run(["ip", "netns", "pids", namespace], capture_output=True, text=True, check=True)
    for pid in done.stdout.split():
        with contextlib.suppress(OSError):
            os.kill(int(pid), signal.SIGKILL)


def says(process, word, seconds=20):
    wait_until(lambda: word in process.output() or process.status is not None, seconds,
               lambda: f"{process.name} does not say '{word}'\n{process.said()}")  # fmt: skip
    check(process.status is None, f"{process.name} has ended\n{process.said()}")


def queued(pid, port):
    """Octets that the process's host has sent to this port, or is to send, and that are not acknowledged."""
    total = 0
    with contextlib.suppress(OSError), open(f"/proc/{pid}/net/tcp", encoding="ascii") as f:
        for line in f.readlines()[1:]:
            fields = line.split()
            if int(fields[2].rsplit(":", 1)[1], 16) == port:
                total += int(fields[4].split(":")[0], 16)
    return total


def at_rest(look, seconds):
    """What look() gives, once it has given the same for a second and 20 looks."""
    seen, since, times, changes = look(), time.monotonic(), 0, 0

    def same_for_a_second():
        nonlocal seen, since, times, changes
        now = look()
        times += 1
        if now != seen:
            seen, since, times, changes = now, time.monotonic(), 0, changes + 1
        return time.monotonic() - since > 1 and times >= 20

    wait_until(same_for_a_second, seconds, lambda: f"no rest: {changes} changes, the last {time.monotonic() - since:.1f} s and "
               f"{times} looks ago: {seen}")  # fmt: skip
    return seen


def connected(rig, hosts, what):
    """The two ends of a connection, and its port: the far one serves."""
    port = free_port()
    serving = rig.start_server([VANISHED, "serve", FAR, port], port, netns=hosts[1], options=SOON)
    asking = rig.start([VANISHED, what, FAR, port], netns=hosts[0], options=SOON, name=what)
    says(asking, "connected")
    says(serving, "accepted")
    return serving, asking, port


def pending_work(rig):
    """Sends that were never acknowledged, Reads whose requests were, and no work at all."""
    hosts = two_hosts(rig)
    ends = {what: connected(rig, hosts, what) for what in ("sends", "reads", "nothing")}
    # Its kernel takes the requests, and it does not answer them.
    serving, asking, port = ends["reads"]
    serving.send(signal.SIGSTOP)
    asking.send(signal.SIGUSR1)
    says(asking, "posted")
    wait_until(lambda: queued(asking.pid, port) == 0, 10, lambda: f"not acknowledged\n{asking.said()}")
    vanish(hosts[1])
    for what in ("sends", "nothing"):
        ends[what][1].send(signal.SIGUSR1)
    for what, (_, asking, _) in ends.items():
        asking.must_end_well(30)
        said = asking.output().splitlines()
        requests = [] if what == "nothing" else [f"request 1: {RETRIES}", f"request 2: {FLUSHED}", f"request 3: {FLUSHED}"]
        expected = ["connected", "posted", *requests, f"receive: {FLUSHED}", "event RDMA_CM_EVENT_DISCONNECTED", "state 6"]
        check(said == expected, f"{what}: {said}, not {expected}")
        print(f"  {what}: {time.monotonic() - asking.started:.1f} s after the start")
    # The far end finds out, too.
    serving = ends["nothing"][0]
    serving.must_end_well(20)
    check("event RDMA_CM_EVENT_DISCONNECTED" in serving.output(), serving.said())
    ends["reads"][0].send(signal.SIGKILL)


def timeout_and_retry_cnt(rig):
    """Without rdma_cm a queue pair waits as long as its attributes say, where that is longer than the option."""
    need("ib_write_bw")
    near, far = two_hosts(rig)
    processes = []
    # 8 tries of 4.096 us * 2^18 are 8.6 s; those of 2^10 are 34 ms, and the option is longer.
    for timeout in (18, 10):
        port = free_port()
        words = ["ib_write_bw", "-F", "-d", "ewarp_ew0", "-x", 0, "-D", 100, "-u", timeout, "-p", port]
        serving = rig.start_server(words, port, netns=far, options=SOON)
        asking = rig.start([*words, FAR], netns=near, options=SOON, name=f"timeout {timeout}")
        processes.append(asking)
        wait_until(lambda asking=asking: rig.octets(asking.pid) > 1 << 20, 20,
                   lambda asking=asking, serving=serving: f"no traffic\n{asking.said()}\n{serving.said()}")  # fmt: skip
    began = time.monotonic()
    vanish(far)
    after = []
    for asking in reversed(processes):
        ends_with_error(asking, 40, "Failed status 12")
        after.append(time.monotonic() - began)
        print(f"  {asking.name}: {after[-1]:.1f} s")
    check(after[1] >= 8, f"after {after[1]:.1f} s")


STOP = 600 if FULL else 35  # seconds: of each limit on TCP several, and that of reliable datagrams
LIMITS = [] if FULL else ["--keepalive-s", "1", "--unacknowledged-s", "1"]  # the longer of both takes 7 s
# Messages of 64 KiB, and MiB in a second: it takes 5 s, so none is through before it is stopped. Between two programs that spin,
# shared memory is slow if CPUs are few.
VOLUME = {"tcp": (1600, 20), "local": (320, 4)}


class Stopped:
    """Two programs, one of which is stopped. path: tcp (two hosts) or local (one, shared memory), full buffers or idle."""

    def __init__(self, rig, hosts, path, state, stopped):
        self.rig, self.port = rig, free_port()
        count, rate = VOLUME[path]
        self.octets = count * 65536 if state == "full" else 0
        self.name = f"{path}, {state}, {stopped} stopped"
        words = ["-R", "-F", "-d", "ewarp_ew0" if path == "tcp" else "ewarp_lo", "-p", self.port]
        if state == "full":
            # Writes need no receives, for want of which ib_send_bw would stop before the buffers are full.
            words = ["ib_write_bw", *words, "-s", 65536, "-n", count, "--rate_limit", rate, "--rate_units", "M",
                     "--rate_limit_type", "SW"]  # fmt: skip
        else:
            words = ["ib_send_lat", *words, "-e", "-n", 10_000_000]
        how = {"options": LIMITS + ["--local", "auto" if path == "local" else "off"], "wrap": ["nice", "-n", 10]}
        self.receiver = rig.start_server(words, self.port, netns=hosts[0], name=f"{self.name}: receiver", **how)
        self.sender = rig.start([*words, NEAR if path == "tcp" else "127.0.0.1"], netns=hosts[1 if path == "tcp" else 0],
                                name=f"{self.name}: sender", **how)  # fmt: skip
        wait_until(lambda: rig.octets(self.sender.pid) > 1 << 18, 20, lambda: f"no traffic\n{self.sender.said()}")
        self.victim = self.receiver if stopped == "receiver" else self.sender
        self.victim.send(signal.SIGSTOP)

    def must_live(self):
        for process in (self.receiver, self.sender):
            check(process.status is None, f"{process.name} has ended\n{process.said()}")

    def goes_on(self):
        """After SIGCONT. A transfer comes to its end; for the others it is enough that they move."""
        if self.octets > 0:
            for process in (self.sender, self.receiver):
                process.must_end_well(120)
            return
        moved = rig_octets(self)
        wait_until(lambda: rig_octets(self) > moved + 10_000, 20, lambda: f"no traffic any more\n{self.sender.said()}")
        for process in (self.sender, self.receiver):
            process.send(signal.SIGKILL)
            process.wait(10)


def stand(rig, pairs):
    """Of each pair what moved, and what waits in the kernel."""
    moved = rig.octets_of_all()
    return [(moved.get(pair.sender.pid, 0), queued(pair.sender.pid, pair.port)) for pair in pairs]


def rig_octets(pair):
    return pair.rig.octets(pair.sender.pid)


class StoppedDatagrams:
    """The same of reliable datagrams. No kernel answers for a program that is stopped: what is under way to it fails after
    some time, as to a host that is gone. What is asked later comes through, once it runs again."""

    def __init__(self, rig, hosts, state, stopped):
        self.rig, self.state, self.stopped, port = rig, state, stopped, free_port()
        self.name = f"RD, {state}, {stopped} stopped"
        words = [BUILD / "bin/ewarp_rd_stopped", "--device", "ewarp_ew0", "--port", port]
        self.receiver = rig.start_server(words, port, netns=hosts[0], name=f"{self.name}: receiver")
        self.sender = rig.start([*words, NEAR], netns=hosts[1], name=f"{self.name}: sender")
        wait_until(lambda: rig_octets(self) > 1 << 20, 20, lambda: f"no traffic\n{self.sender.said()}")
        if state == "idle":
            self.sender.send(signal.SIGUSR1)
            says(self.sender, "idle")
        self.victim = self.receiver if stopped == "receiver" else self.sender
        self.victim.send(signal.SIGSTOP)

    must_live = Stopped.must_live

    def goes_on(self):
        moved = rig_octets(self)
        self.sender.send(signal.SIGUSR2)
        wait_until(lambda: rig_octets(self) > moved + (4 << 20), 60, lambda: f"no traffic any more\n{self.sender.said()}")
        self.sender.send(signal.SIGTERM)
        self.sender.must_end_well(40)
        self.receiver.send(signal.SIGTERM)
        self.receiver.must_end_well(10)
        said = [line for line in self.sender.output().splitlines() if line != "idle"]
        # Half a message whose sender is silent is given up, if it was stopped in the middle of one.
        allowed = {"idle, receiver": [[]], "idle, sender": [[]], "full, receiver": [[RETRIES, "again"]],
                   "full, sender": [[], ["remote operation error", "again"]]}[f"{self.state}, {self.stopped}"]  # fmt: skip
        check(said[:-1] in allowed, f"{self.name}: {said}")
        print(f"  {self.name}: {', '.join(said)}; {self.receiver.output().splitlines()[-1]}", flush=True)


def stopped_programs(rig):
    """Programs that are stopped for longer than all limits, with full buffers and idle: nothing is lost, they go on."""
    need("ib_write_bw", "ib_send_lat")
    hosts = two_hosts(rig)
    pairs = [Stopped(rig, hosts, path, state, stopped) for path in ("tcp", "local") for state, stopped in
             (("full", "receiver"), ("full", "sender"), ("idle", "sender"))]  # fmt: skip
    datagrams = [StoppedDatagrams(rig, hosts, state, stopped) for state in ("full", "idle") for stopped in ("receiver", "sender")]
    before = at_rest(lambda: stand(rig, pairs), 20)
    check(before[0][1] > 0, f"nothing waits to be sent: {before}\n{pairs[0].sender.said()}")
    time.sleep(STOP)
    check(before == stand(rig, pairs), f"they went on: {before}")
    for pair in pairs + datagrams:
        pair.must_live()
    for pair in pairs + datagrams:
        pair.victim.send(signal.SIGCONT)
    for pair in datagrams + pairs:
        pair.goes_on()
    moved = {p["pid"]: sum(max(d["tx_octets"], d["rx_octets"]) for d in p["devices"]) for p in rig.ended()}
    for pair in pairs:
        ends = [moved.get(process.pid, 0) for process in (pair.receiver, pair.sender)]
        check(min(ends) >= pair.octets, f"{pair.name}: octets of the two: {ends}")
    print(f"  {before[0][1]} octets waited for the receiver for {STOP} s")


def stopped_while_idle(rig):
    """A connection on which nothing is under way: a peer that has stopped keeps it; one whose host is gone does not."""
    need("ib_send_lat")
    near, far = two_hosts(rig)
    words = ["ib_send_lat", "-R", "-F", "-d", "ewarp_ew0", "-n", 10_000_000]
    port = free_port()
    serving = rig.start_server([*words, "-p", port], port, netns=near, options=SOON, name="server")
    asking = rig.start([*words, "-p", port, NEAR], netns=far, options=SOON, name="client")
    wait_until(lambda: rig.octets(serving.pid) > 100_000, 20, lambda: f"no traffic\n{serving.said()}")
    asking.send(signal.SIGSTOP)
    time.sleep(9)
    check(serving.status is None, f"the server gave a stopped peer up\n{serving.said()}")
    asking.send(signal.SIGCONT)
    moved = rig.octets(serving.pid)
    wait_until(lambda: rig.octets(serving.pid) > moved + 10_000, 20, lambda: f"no traffic any more\n{serving.said()}")
    asking.send(signal.SIGSTOP)
    time.sleep(0.5)
    vanish(far)
    ends_with_error(serving, 20, "Completion with error|Failed status|Got event|polling")
    asking.send(signal.SIGKILL)


def datagrams(rig):
    """Reliable datagrams: a message to a host that vanished fails. rdma_cm of datagrams: nobody answers, UNREACHABLE."""
    need("udaddy")
    near, far = two_hosts(rig)
    port = free_port()
    words = [BUILD / "bin" / "rd_ping", "-d", "ewarp_ew0", "-p", port, "-n", 100_000_000]
    serving = rig.start_server(words, port, netns=far)
    asking = rig.start([*words, FAR], netns=near)
    wait_until(lambda: rig.octets(asking.pid) > 100_000, 20, lambda: f"no traffic\n{asking.said()}")
    vanish(far)
    began = time.monotonic()
    lost = rig.start(["udaddy", "-s", FAR], netns=near)
    ends_with_error(lost, 20, "RDMA_CM_EVENT_UNREACHABLE")
    print(f"  udaddy: {time.monotonic() - began:.1f} s")
    # A message is under way to the one host or to the other; who waits for one hears of nothing.
    wait_until(lambda: asking.status is not None or serving.status is not None, 60, lambda: f"no error\n{asking.said()}")
    ends_with_error(asking if asking.status is not None else serving, 1, RETRIES)
    print(f"  rd_ping: {time.monotonic() - began:.1f} s")


if __name__ == "__main__":
    main(pending_work, timeout_and_retry_cnt, stopped_programs, stopped_while_idle, datagrams)
