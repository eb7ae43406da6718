#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Reliable datagrams between two hosts whose path drops datagrams: at random, both ways, or those that are too large for
it. All octets arrive, in order.

EWARP_TEST_FULL=1: 10 GiB at 1 %."""
import re
import subprocess

from harness import BUILD, FULL, Skip, check, free_port, main, need
from reliable import drop, without_offloads

DEVICE, RECEIVER = "ewarp_ew0", "10.99.0.1"
MIB = 1 << 20


def transfer(rig, title, hosts, octets, seconds, receiver=RECEIVER):
    """RDMA Writes and Sends from one to the other; both ends compute the same checksum of the same octets. The counters of
    both."""
    port = free_port()
    words = [BUILD / "bin" / "ewarp_rd_transfer", "--device", DEVICE, "--port", port, "--octets", octets]
    run = rig.pair(f"{octets // MIB} MiB {title}", words, [*words, receiver], port, octets, seconds=seconds,
                   server_how={"netns": hosts[0]}, client_how={"netns": hosts[1]})  # fmt: skip
    said = [re.search(r"^octets (\d+) sum ([0-9a-f]{16}) seconds (\S+) gbit_per_s (\S+)$", end, re.M)
            for end in (run.server, run.client)]  # fmt: skip
    check(all(said), f"no result:\n{run.server}\n{run.client}")
    check(said[0].group(1, 2) == said[1].group(1, 2) and int(said[0].group(1)) == octets,
          f"not the same at both ends:\n{run.server}{run.client}")  # fmt: skip
    total = {key: sum(p["reliable"][key] for p in run.processes) for key in run.processes[0]["reliable"]}
    check(total["unreachable"] == 0, f"a peer was given up: {total}")
    names = ("tx_segments", "retransmitted", "losses", "timeouts", "rx_duplicates", "rx_out_of_order", "probes")
    print(f"  {said[1].group(3)} s, {said[1].group(4)} Gbit/s, checksum {said[1].group(2)}; "
          + ", ".join(f"{name} {total[name]}" for name in names if name in total))  # fmt: skip
    return total


def lossy(rig, percent, octets, seconds, per_packet=True):
    need("nft", "ethtool")
    hosts = rig.namespace("a"), rig.namespace("b")
    rig.veth(*hosts)
    for host in hosts:
        if per_packet:
            without_offloads(rig, host)
        drop(host, percent)
    total = transfer(rig, f"at {percent} %", hosts, octets, seconds)
    # What was lost was sent again: no fewer than a half of what the filter takes of the data on average; of trains, which
    # are few (some 3000 of 64), no fewer than an eighth.
    share = 2 if per_packet else 8
    check(total["retransmitted"] * 100 * share > percent * total["tx_segments"], f"too little was lost: {total}")


# Holds: RD-3
def one_percent(rig):
    """1 %: 64 MiB, or 10 GiB."""
    lossy(rig, 1, (10240 if FULL else 64) * MIB, 900 if FULL else 60)


# Holds: RD-3
def ten_percent(rig):
    """10 %: 8 MiB, or 512."""
    lossy(rig, 10, (512 if FULL else 8) * MIB, 600 if FULL else 60)


def whole_trains(rig):
    """256 MiB, or 1 GiB, at 1 % where the link takes trains of datagrams: each loss is of many at once."""
    lossy(rig, 1, (1024 if FULL else 256) * MIB, 600 if FULL else 60, per_packet=False)


def smaller_path(rig):
    """Both hosts have an MTU of 9000, the link between their routers one of 1400: the first segments are too large, and
    what is cut afterwards fits."""
    hosts = near, *routers, far = [rig.namespace(word) for word in ("a", "r", "s", "b")]
    for number, (one, other) in enumerate(zip(hosts, hosts[1:]), 1):
        names = "ew0" if one is near else "out", "ew0" if other is far else "in"
        rig.ip("link", "add", names[0], "netns", one, "type", "veth", "peer", "name", names[1], "netns", other)
        for end, (host, name) in enumerate(zip((one, other), names), 1):
            rig.ip("-n", host, "addr", "add", f"10.99.{number}.{end}/24", "dev", name)
            rig.ip("-n", host, "link", "set", name, "mtu", 1400 if number == 2 else 9000, "up")
    for host, *gateways in ((near, "10.99.1.2"), (routers[0], "10.99.2.2"), (routers[1], "10.99.2.1"), (far, "10.99.3.1")):
        rig.ip("-n", host, "route", "add", "10.99.0.0/16", "via", *gateways)
    for router in routers:
        done = subprocess.run(["ip", "netns", "exec", router, "sysctl", "-qw", "net.ipv4.ip_forward=1"],
                              capture_output=True, text=True, check=False)  # fmt: skip
        if done.returncode != 0:
            raise Skip(f"a namespace may not forward here: {done.stderr.strip()}")
    total = transfer(rig, "through 1400 octets", (near, far), 8 * MIB, 60, "10.99.1.1")
    # 8 MiB in segments of some 1350 octets; those of 9000 octets would be below 1000.
    check(total["tx_segments"] > 8 * MIB // 1400, f"segments did not become smaller: {total}")
    check(total["retransmitted"] < total["tx_segments"] // 10, f"it did not learn: {total}")


if __name__ == "__main__":
    main(one_percent, ten_percent, whole_trains, smaller_path)
