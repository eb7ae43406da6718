# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Reliable datagrams: the examples, and programs of UD that lose nothing (option ud_reliable), on the loopback and over a
link that drops datagrams."""
import subprocess

from harness import BUILD, FULL, Skip, check, free_port, main, need
from perftest import check_report

DEVICE = "ewarp_lo"
UDADDY_PORT = 7174
RELIABLE = {"options": ["--ud-reliable"]}


def reliably(rig, name, server, client, port, octets, lossy=False, **how):
    """Over associations; on a link that loses nothing and then leaves no association behind."""
    run = rig.pair(name, server, client, port, octets, **how)
    total = {key: sum(p["reliable"][key] for p in run.processes) for key in run.processes[0]["reliable"]}
    check(total["tx_segments"] > 0, f"{name}: not over reliable datagrams: {total}")
    check(total["unreachable"] == 0, f"{name}: a peer was given up: {total}")
    # Farewells that are lost are not waited for.
    check(lossy or total["associations"] == 0, f"{name}: associations are left: {total}")
    check(not lossy or total["retransmitted"] > 0, f"{name}: nothing was lost: {total}")
    return run


def example(rig, program, *options, address="127.0.0.1", octets=1000, **how):
    port = free_port()
    words = [BUILD / "bin" / program, "-p", port, *options]
    name = " ".join(map(str, [program, *options]))
    peers = ["-q", 300] if program == "rd_many" else []
    return reliably(rig, name, [*words, *peers], [*words, address], port, octets, **how)


def examples(rig):
    """rd_ping and rd_many, from one datagram to many."""
    for size in (8, 5000, 200000):
        run = example(rig, "rd_ping", "-d", DEVICE, "-s", size, "-n", 200, octets=200 * size)
        check("200 rounds" in run.client, run.client)
    run = example(rig, "rd_many", "-d", DEVICE, octets=300 * 4096)
    check("as they should be" in run.client, run.client)


def ud_programs(rig):
    """ibv_ud_pingpong, ib_send_lat, ib_send_bw and udaddy, unchanged; a flood for which there are few receives."""
    need("ibv_ud_pingpong", "ib_send_lat", "ib_send_bw", "udaddy")
    both = {"server_how": RELIABLE, "client_how": RELIABLE}
    port = free_port()
    for options in ([], ["-e"], ["-c", "-s", 4096]):
        words = ["ibv_ud_pingpong", "-d", DEVICE, "-g", 0, "-p", port, "-n", 500, *options]
        reliably(rig, " ".join(map(str, words[:1] + options)), words, [*words, "127.0.0.1"], port, 500 * 2048, **both)
    words = ["ib_send_lat", "-c", "UD", "-F", "-d", DEVICE, "-x", 0, "-p", port, "-n", 500]
    run = reliably(rig, "ib_send_lat", words, [*words, "127.0.0.1"], port, 1000, **both)
    check_report("ib_send_lat", run.client, [2], 500)
    twin = {"server_how": {"options": ["--twin", "--ud-reliable"]}, "client_how": {"options": ["--twin", "--ud-reliable"]}}
    words = ["ib_send_bw", "-c", "UD", "-F", "-d", "ewarpx_lo", "-x", 0, "-p", port, "-n", 5000, "-s", 2048]
    run = reliably(rig, "ib_send_bw", words, [*words, "127.0.0.1"], port, 5000 * 2048, **twin)
    check_report("ib_send_bw", run.client, [2048], 5000)
    reliably(rig, "udaddy", ["udaddy"], ["udaddy", "-s", "127.0.0.1"], UDADDY_PORT, 1000, **both)


def without_offloads(rig, namespace):
    """Each packet goes by itself, and is lost by itself: a train of datagrams is one packet to a filter."""
    rig.start_plain(["ip", "netns", "exec", namespace, "ethtool", "-K", "ew0", "tx-udp-segmentation", "off", "tso", "off",
                     "gso", "off", "gro", "off"]).must_end_well(10)  # fmt: skip


def drop(namespace, percent, protocols="udp"):
    """Of the packets that come in, so many are dropped at random."""
    rules = ("table inet loss {\n chain arriving {\n  type filter hook input priority 0;\n"
             f"  meta l4proto {{ {protocols} }} numgen random mod 1000 < {int(percent * 10)} drop\n }}\n}}\n")  # fmt: skip
    done = subprocess.run(["ip", "netns", "exec", namespace, "nft", "-f", "-"], input=rules, capture_output=True,
                          text=True, check=False)  # fmt: skip
    if done.returncode != 0:
        raise Skip(f"no packet filter for us here: {done.stderr.strip()}")


def lossy_link(rig):
    """Between two hosts whose link loses 3 % each way: the same programs, nothing missing, nothing in another order."""
    need("nft", "ibv_ud_pingpong", "ib_send_bw")
    one, other = rig.namespace("a"), rig.namespace("b")
    rig.veth(one, other)
    for host in (one, other):
        without_offloads(rig, host)
        drop(host, 3)
    how = {"server_how": {"netns": one}, "client_how": {"netns": other}, "lossy": True}
    for size, rounds in ((100, 500), (100000, 30)) if not FULL else ((100, 10000), (1400, 10000), (10000000, 100)):
        example(rig, "rd_ping", "-d", "ewarp_ew0", "-s", size, "-n", rounds, address="10.99.0.1", octets=rounds * size,
                seconds=60 if not FULL else 1200, **how)  # fmt: skip
    run = example(rig, "rd_many", "-d", "ewarp_ew0", address="10.99.0.1", octets=300 * 4096, **how)
    check("as they should be" in run.client, run.client)
    how = {side: {**how[side], **RELIABLE} for side in ("server_how", "client_how")}
    port = free_port()
    words = ["ibv_ud_pingpong", "-d", "ewarp_ew0", "-g", 0, "-p", port, "-c", "-n", 500]
    reliably(rig, "ibv_ud_pingpong -c", words, [*words, "10.99.0.1"], port, 500 * 2048, lossy=True, **how)


if __name__ == "__main__":
    main(examples, ud_programs, lossy_link)
