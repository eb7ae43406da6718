# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Hosts that vanish without a word: what was under way to them fails soon, with the right statuses and events. Hosts whose
programs have stopped are there."""
import contextlib
import os
import signal
import subprocess
import time

from faults import ends_with_error
from harness import BUILD, Skip, check, free_port, main, need, wait_until

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
    seen, since, times = look(), time.monotonic(), 0

    def same_for_a_second():
        nonlocal seen, since, times
        now = look()
        times += 1
        if now != seen:
            seen, since, times = now, time.monotonic(), 0
        return time.monotonic() - since > 1 and times >= 20

    wait_until(same_for_a_second, seconds, lambda: f"no rest: {seen}")
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


def stopped_program(rig):
    """Programs that are stopped with full buffers for longer than all limits: nothing is lost, and they go on."""
    need("ib_write_bw")
    near, far = two_hosts(rig)
    count, options = 40_000, ["--keepalive-s", "1", "--unacknowledged-s", "1"]  # the longer of both takes 7 s
    pairs = {}
    for stopped in ("receiver", "sender"):
        port = free_port()
        # At 2 Gbit/s all of it takes 10 s: none is through before it is stopped. Writes need no receives, for want of which
        # ib_send_bw would stop before the buffers are full.
        words = ["ib_write_bw", "-R", "-F", "-d", "ewarp_ew0", "-s", 65536, "-n", count, "-p", port,
                 "--rate_limit", 2, "--rate_limit_type", "SW"]  # fmt: skip
        serving = rig.start_server(words, port, netns=near, options=options, name="receiver")
        asking = rig.start([*words, NEAR], netns=far, options=options, name="sender")
        wait_until(lambda asking=asking: rig.octets(asking.pid) > 1 << 20, 20, lambda asking=asking: f"no traffic\n{asking.said()}")
        victim = serving if stopped == "receiver" else asking
        victim.send(signal.SIGSTOP)
        pairs[stopped] = serving, asking, port, victim

    def moved_and_queued():
        return {name: (rig.octets(asking.pid), queued(asking.pid, port)) for name, (_, asking, port, _) in pairs.items()}

    before = at_rest(moved_and_queued, 20)
    check(before["receiver"][1] > 0, f"nothing waits to be sent: {before}\n{pairs['receiver'][1].said()}")
    time.sleep(10)
    after = moved_and_queued()
    check(before == after, f"they went on: {before}, {after}")
    for serving, asking, _, victim in pairs.values():
        for process in (serving, asking):
            check(process.status is None, f"{process.name} has ended\n{process.said()}")
        victim.send(signal.SIGCONT)
    for serving, asking, _, _ in pairs.values():
        for process in (asking, serving):
            process.must_end_well(120)
    moved = [sum(max(d["tx_octets"], d["rx_octets"]) for d in p["devices"]) for p in rig.ended()]
    check(len(moved) == 4 and min(moved) >= count * 65536, f"octets of the four: {moved}")
    print(f"  {before['receiver'][1]} octets waited for the receiver")


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
    main(pending_work, timeout_and_retry_cnt, stopped_program, stopped_while_idle, datagrams)
