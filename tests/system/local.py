# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Streams between processes of one host that leave TCP for shared memory (option local), and those that do not."""
import os
import signal
import time

from harness import Skip, check, free_port, main, need, wait_until
from vanished import at_rest
from veth import DEVICE, SERVER, two_hosts

LOCAL, TCP = ("--local", "auto"), ("--local", "off")


def tool(rig, name, *options, sides=(LOCAL, LOCAL), octets=1000, local=True, **how):
    """A server and its client of perftest; all of the streams at the two ends go through memory, or none."""
    need(name)
    port = free_port()
    words = [name, "-R", "-F", "-d", "ewarp_lo", "-p", port, *options]
    server, client = ({"options": side, **how} for side in sides)
    title = " ".join(map(str, (name, *options)))
    run = rig.pair(title, words, [*words, "127.0.0.1"], port, octets, server_how=server, client_how=client,
                   terminates="write" not in name)  # fmt: skip
    streams, all_of_them = run.total("local_streams"), run.total("connections")
    check(all_of_them >= 2, f"{title}: {all_of_them} connections")
    check(streams == (all_of_them if local else 0), f"{title}: {streams} of {all_of_them} streams go through memory")
    return run


def through_memory(rig):
    """Every kind of message, small and large, polled and by events; with CRC; several queue pairs; Sends of every size."""
    for kind in ("send", "write", "read"):
        tool(rig, f"ib_{kind}_lat", "-n", 1000)
        tool(rig, f"ib_{kind}_bw", "-n", 1000, "-s", 65536, octets=1000 << 16)
        tool(rig, f"ib_{kind}_bw", "-n", 20, "-s", 8 << 20, octets=20 << 23)
    tool(rig, "ib_send_bw", "-a", "-n", 20, octets=20 << 23)
    tool(rig, "ib_atomic_lat", "-n", 1000)
    tool(rig, "ib_send_lat", "-e", "-n", 300)
    tool(rig, "ib_send_bw", "-b", "-n", 1000, "-s", 65536, octets=1000 << 16)
    tool(rig, "ib_write_bw", "-q", 8, "-n", 300, "-s", 65536, octets=8 * 300 << 16)
    tool(rig, "ib_write_bw", "-n", 1000, "-s", 65536, octets=1000 << 16, sides=((*LOCAL, "--crc", "always"), LOCAL))


def stays_with_tcp(rig):
    """One end does not want it; the two are different users."""
    tool(rig, "ib_send_lat", "-n", 100, sides=(TCP, LOCAL), local=False)
    tool(rig, "ib_send_lat", "-n", 100, sides=(LOCAL, TCP), local=False)
    if os.geteuid() != 0:
        raise Skip("only root can be two users")
    need("setpriv", "ib_send_lat")
    port = free_port()
    words = ["ib_send_lat", "-R", "-F", "-d", "ewarp_lo", "-n", 100, "-p", port]
    nobody = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")
    serving = rig.start_server(words, port, options=LOCAL)
    # What it counts goes to a directory of its own.
    asking = rig.start([*words, "127.0.0.1"], options=LOCAL, wrap=nobody, env={"ETHERWARP_RUNDIR": ""})
    for process in (asking, serving):
        process.must_end_well(30)
    (counted,) = rig.ended()
    check(sum(d["connections"] for d in counted["devices"]) > 0, f"it is not connected: {counted['devices']}")
    check(sum(d["local_streams"] for d in counted["devices"]) == 0, "memory is shared with another user")


def other_namespaces(rig):
    """Two hosts on one machine: nobody offers memory, both ends wanting it."""
    need("ib_send_lat")
    hosts, port = two_hosts(rig), free_port()
    words = ["ib_send_lat", "-R", "-F", "-d", DEVICE, "-n", 100, "-p", port]
    run = rig.pair("ib_send_lat between namespaces", words, [*words, SERVER], port, 1000,
                   server_how={"netns": hosts[0], "options": LOCAL}, client_how={"netns": hosts[1], "options": LOCAL},
                   terminates=True)  # fmt: skip
    check(run.total("connections") >= 2, f"{run.total('connections')} connections")
    check(run.total("local_streams") == 0, "memory is shared between namespaces")


def stat_tells(rig):
    """`etherwarp stat` says of each queue pair what its stream goes through."""
    need("ib_send_lat")
    for sides, via in ((LOCAL, "local"), (TCP, "tcp")):
        port = free_port()
        words = ["ib_send_lat", "-R", "-F", "-d", "ewarp_lo", "-n", 10_000_000, "-p", port]
        serving = rig.start_server(words, port, options=sides)
        asking = rig.start([*words, "127.0.0.1"], options=sides)
        wait_until(lambda pid=serving.pid: rig.octets(pid) > 100_000, 20, lambda p=asking: f"no traffic\n{p.said()}")
        rows = rig.counters(serving.pid)["qps"]
        check(rows and all(row["local"] == (via == "local") for row in rows), f"{via}: {rows}")
        table = rig.run([rig.etherwarp, "stat", "-v"])
        check(f" {via} " in table, f"no '{via}' in\n{table}")
        for process in (asking, serving):
            process.send(signal.SIGKILL)
            process.wait(10)
        rig.end_children()
        rig.ended()


def stopped_program(rig):
    """A receiver, and a sender, that are stopped for 5 s with full rings: nothing is lost."""
    need("ib_send_bw")
    count, pairs = 30_000, []
    for stopped in ("receiver", "sender"):
        port = free_port()
        # At 2 Gbit/s all of it takes 8 s: neither is through before it is stopped.
        words = ["ib_send_bw", "-R", "-F", "-d", "ewarp_lo", "-s", 65536, "-n", count, "-p", port,
                 "--rate_limit", 2, "--rate_limit_type", "SW"]  # fmt: skip
        serving = rig.start_server(words, port, options=LOCAL, name="receiver")
        asking = rig.start([*words, "127.0.0.1"], options=LOCAL, name="sender")
        wait_until(lambda p=asking: rig.octets(p.pid) > 1 << 20, 20, lambda p=asking: f"no traffic\n{p.said()}")
        victim, other = (serving, asking) if stopped == "receiver" else (asking, serving)
        victim.send(signal.SIGSTOP)
        pairs.append((victim, other))

    def moved():
        return [rig.octets(other.pid) for _, other in pairs]

    before = at_rest(moved, 20)
    time.sleep(5)
    check(moved() == before, "who was not stopped went on")
    for victim, other in pairs:
        check(other.status is None, f"the {other.name} has ended\n{other.said()}")
        victim.send(signal.SIGCONT)
    for pair in pairs:
        for process in pair:
            process.must_end_well(60)
    ended = rig.ended()
    moved = [sum(max(d["tx_octets"], d["rx_octets"]) for d in p["devices"]) for p in ended]
    check(len(moved) == 4 and min(moved) >= count * 65536, f"octets of the four: {moved}")
    check(all(sum(d["local_streams"] for d in p["devices"]) > 0 for p in ended), "not through memory")


if __name__ == "__main__":
    main(through_memory, stays_with_tcp, other_namespaces, stat_tells, stopped_program)
