# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""UD over UDP sockets: Debian's own datagram programs on the loopback and between two hosts."""
import contextlib
import re
import socket

from harness import check, free_port, main, need, wait_until
from perftest import check_report

DEVICE = "ewarp_lo"
UDADDY_PORT = 7174


def dropped(run):
    """What was dropped or lost, by cause."""
    total = {}
    for process in run.processes:
        for cause, count in process["datagrams"].items():
            total[cause] = total.get(cause, 0) + count
    return {cause: count for cause, count in total.items() if count}


def both(rig, name, server, client, port, octets, **how):
    run = rig.pair(name, server, client, port, octets, **how)
    check(not dropped(run), f"{name}: datagrams were lost or dropped: {dropped(run)}")
    kinds = {qp["type"] for process in run.processes for qp in process["qps"]}
    check(kinds <= {"UD"}, f"{name}: queue pairs of type {kinds}, not UD alone")
    return run


def ud_pingpong(rig):
    """ibv_ud_pingpong: the program exchanges GID and QPN; polling, sleeping for events, data checked."""
    need("ibv_ud_pingpong")
    for options in ([], ["-e"], ["-s", 4096, "-n", 500], ["-c"]):
        port = free_port()
        words = ["ibv_ud_pingpong", "-d", DEVICE, "-g", 0, "-p", port, *options]
        name = " ".join(map(str, ["ibv_ud_pingpong", *options]))
        run = both(rig, name, words, [*words, "127.0.0.1"], port, 500 * 2048)
        check("iters in" in run.server and "iters in" in run.client, f"no figures:\n{run.client}")


def perftest(rig):
    """ib_send_lat -c UD: by address and with rdma_cm, all sizes, sleeping, inline."""
    need("ib_send_lat")
    sizes = [2 << i for i in range(12)]  # up to the MTU that the device tells
    for options, wanted, iterations in ((["-x", 0], [2], 500), (["-R"], [2], 500), (["-x", 0, "-a"], sizes, 100),
                                        (["-R", "-e"], [2], 500),
                                        (["-x", 0, "-I", 64, "-s", 64], [64], 500)):  # fmt: skip
        port = free_port()
        words = ["ib_send_lat", "-c", "UD", "-F", "-d", DEVICE, "-p", port, "-n", iterations, *options]
        name = " ".join(map(str, ["ib_send_lat", *options]))
        run = both(rig, name, words, [*words, "127.0.0.1"], port, iterations * sum(wanted))
        check_report(name, run.client, wanted, iterations)


def may_have_a_large_buffer():
    """Whether the provider's sockets hold 8 MiB, or what net.core.rmem_max allows."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s, contextlib.suppress(OSError):
        s.setsockopt(socket.SOL_SOCKET, getattr(socket, "SO_RCVBUFFORCE", 33), 8 << 20)
        return True
    return False


def bandwidth(rig):
    """ib_send_bw -c UD on the twin: its usual size and count, both ways, several queue pairs; no more messages than the
    socket holds and receives are posted."""
    need("ib_send_bw")
    twin = {"server_how": {"options": ["--twin"]}, "client_how": {"options": ["--twin"]}}
    few = ["-n", 200, "-r", 256]
    usual = [(["-n", 1000, "-r", 1024], 4096, 1000)] if may_have_a_large_buffer() else []
    for options, size, iterations in (*usual, (few, 512, 200), ([*few, "-b"], 512, 200), ([*few, "-q", 4], 512, 200),
                                      ([*few, "-I", 128], 128, 200)):  # fmt: skip
        port = free_port()
        words = ["ib_send_bw", "-c", "UD", "-F", "-x", 0, "-d", "ewarpx_lo", "-p", port, "-s", size, *options]
        name = " ".join(map(str, ["ib_send_bw", *options]))
        run = both(rig, name, words, [*words, "127.0.0.1"], port, iterations * size, **twin)
        check_report(name, run.client, [size], iterations)


# Holds: UD-3
def udaddy(rig):
    """udaddy: a service is asked for its QP by SIDR, the answers find their way by the received header."""
    need("udaddy")
    for options in ([], ["-c", 8], ["-C", 100, "-S", 1024]):
        name = " ".join(map(str, ["udaddy", *options]))
        run = both(rig, name, ["udaddy", *options], ["udaddy", *options, "-s", "127.0.0.1"], UDADDY_PORT, 10 * 100)
        check("return status 0" in run.server and "return status 0" in run.client, f"{name}:\n{run.client}")


def mckey_between(rig, address, own, peers, **how):
    """A member and a sender of a group."""
    member = rig.start(["mckey", "-m", address, "-b", own], name="mckey (member)", netns=peers[0], **how)
    wait_until(lambda: member.status is not None or is_member(member.pid, address), 15,
               lambda: f"nobody joins\n{member.said()}")  # fmt: skip
    sender = rig.start(["mckey", "-m", address, "-b", peers[2], "-s"], name="mckey (sender)", netns=peers[1], **how)
    for process in (sender, member):
        process.must_end_well(30)
        check("data transfers complete" in process.output(), process.said())
    received = sum(d["rx_messages"] for p in rig.ended() for d in p["devices"])
    check(received == 10, f"mckey {address}: {received} messages received, not 10")
    print(f"  mckey {address}: {received} messages", flush=True)


def is_member(pid, group):
    """True if somebody has joined the group where the process lives."""
    if ":" in group:
        table, number = "igmp6", socket.inet_pton(socket.AF_INET6, group).hex()
    else:
        table, number = "igmp", socket.inet_aton(group)[::-1].hex()
    with open(f"/proc/{pid}/net/{table}", encoding="ascii") as f:
        return number in f.read().lower().split()


# Holds: UD-9
def mckey(rig):
    """mckey on the loopback: IPv4 groups."""
    need("mckey")
    mckey_between(rig, "239.99.1.1", "127.0.0.1", (None, None, "127.0.0.1"))


# Holds: UD-9
def two_hosts(rig):
    """Between two hosts: perftest, udaddy with IPv4 and IPv6, groups; with CRC."""
    need("ib_send_lat", "udaddy", "mckey", "ibv_ud_pingpong")
    one, other = rig.namespace("a"), rig.namespace("b")
    rig.veth(one, other)
    how = {"server_how": {"netns": one}, "client_how": {"netns": other}}
    port = free_port()
    for gid in (0, 1):
        words = ["ibv_ud_pingpong", "-d", "ewarp_ew0", "-g", gid, "-p", port, "-c"]
        both(rig, f"ibv_ud_pingpong -g {gid}", words, [*words, "10.99.0.1"], port, 1000 * 2048, **how)
    for options in (["-x", 0], ["-R"]):
        words = ["ib_send_lat", "-c", "UD", "-F", "-d", "ewarp_ew0", "-p", port, "-n", 500, "-s", 1024, *options]
        run = both(rig, f"ib_send_lat {options[0]}", words, [*words, "10.99.0.1"], port, 500 * 1024, **how)
        check_report("ib_send_lat", run.client, [1024], 500)
    for bound, address in (("10.99.0.1", "10.99.0.1"), ("fd99::1", "fd99::1")):
        both(rig, f"udaddy {address}", ["udaddy", "-b", bound], ["udaddy", "-s", address], UDADDY_PORT, 1000, **how)
    mckey_between(rig, "239.99.1.2", "10.99.0.1", (one, other, "10.99.0.2"))
    mckey_between(rig, "ff05::99", "fd99::1", (one, other, "fd99::2"))


if __name__ == "__main__":
    main(ud_pingpong, perftest, bandwidth, udaddy, mckey, two_hosts)
