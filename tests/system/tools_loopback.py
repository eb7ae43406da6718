#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The example programs of rdma-core, and qperf, on the loopback interface."""
import hashlib
import os
import pathlib
import re

from harness import FULL, Failure, check, free_port, main, need

FILE_OCTETS = (1024 if FULL else 64) << 20


def devices_are_listed(rig):
    """ibv_devices and ibv_devinfo show the loopback device, as an RNIC with an active port."""
    need("ibv_devices", "ibv_devinfo")
    listed = rig.run(["ibv_devices"])
    check(re.search(r"^\s*ewarp_lo\s+[0-9a-f]{16}$", listed, re.M), f"ibv_devices does not list ewarp_lo:\n{listed}")
    info = rig.run(["ibv_devinfo", "-v", "-d", "ewarp_lo"])
    for expected in (r"hca_id:\s+ewarp_lo", r"transport:\s+iWARP", r"state:\s+PORT_ACTIVE", r"link_layer:\s+Ethernet",
                     r"active_mtu:\s+4096", r"GID\[\s*0\]:\s+::ffff:127\.0\.0\.1, RoCE v2"):  # fmt: skip
        check(re.search(expected, info), f"ibv_devinfo -v does not say {expected}:\n{info}")
    print("  ibv_devices, ibv_devinfo -v: ewarp_lo, iWARP, active")


def rping(rig):
    """rping -V -C 1000 -S 65535, IPv4 and IPv6: each ping is a Send, an RDMA Read, a Send, an RDMA Write, a Send."""
    need("rping")
    for address in ("127.0.0.1", "::1"):
        port = free_port()
        common = ["-a", address, "-p", port, "-V", "-C", 1000, "-S", 65535]
        run = rig.pair(f"rping {address}", ["rping", "-s", *common], ["rping", "-c", *common], port, 2 * 1000 * 65535)
        check(run.total("tx_reads") >= 1000 and run.total("tx_writes") >= 1000, "rping without its Reads and Writes")


def ucmatose(rig):
    """ucmatose: 100 connections in one process, asynchronous events, messages both ways on each."""
    need("ucmatose")
    port, messages = free_port(), 1000 if FULL else 100
    common = ["-p", port, "-c", 100, "-C", messages, "-S", 65536]
    run = rig.pair("ucmatose", ["ucmatose", *common], ["ucmatose", "-s", "127.0.0.1", *common], port,
                   2 * 100 * messages * 65536, seconds=300 if FULL else 60)  # fmt: skip
    check(run.total("connections") == 200, f"{run.total('connections')} connections, not 100 on each side")


def rdma_client(rig):
    """rdma_server and rdma_client: the synchronous calls of rdma_verbs.h."""
    need("rdma_server", "rdma_client")
    port = free_port()
    run = rig.pair("rdma_client", ["rdma_server", "-p", port], ["rdma_client", "-s", "127.0.0.1", "-p", port], port, 32)
    check("rdma_client: end 0" in run.client and "rdma_server: end 0" in run.server, "no good end was said")


def cmtime(rig):
    """cmtime: 100 connections one after the other and all at once. Its server never ends by itself."""
    need("cmtime")
    port = free_port()
    run = rig.pair("cmtime", ["cmtime", "-p", port, "-c", 100], ["cmtime", "-s", "127.0.0.1", "-p", port, "-c", 100],
                   port, 1, server_ends=False)  # fmt: skip
    for step in ("create qp", "connect", "disconnect", "destroy"):
        check(re.search(rf"^{step}\s*:\s+[\d.]+", run.client, re.M), f"cmtime reports no time of {step}:\n{run.client}")


# Both ends of an rsocket say goodbye with a Send, for which the other may have no receive left.
GOODBYE = {"terminates": True}


def rstream(rig):
    """rstream in its three manners: rsockets with poll(), blocking and non-blocking; the data is verified."""
    need("rstream")
    for kind in "abn":
        # With -T a the client takes the POLLHUP that may come together with the last data for an error, and makes it its
        # exit status. The server has everything by then.
        statuses = (0, 0x10) if kind == "a" else (0,)
        for size, iterations in ((1000, 100), (65536, 100), (1 << 20, 10)):
            port = free_port()
            common = ["-p", port, "-T", kind, "-T", "v", "-I", iterations, "-C", 10, "-S", size]
            run = rig.pair(f"rstream -T {kind} -S {size}", ["rstream", *common], ["rstream", "-s", "127.0.0.1", *common],
                           port, 2 * iterations * 10 * size, client_status=statuses, **GOODBYE)  # fmt: skip
            check(re.search(r"Gb/sec[^\n]*\n\S+\s+\S+\s+10\s+", run.server), f"no line of figures:\n{run.server}")


def riostream(rig):
    """riostream: rsockets' riowrite(), which is RDMA Write to an offset of the peer's mapping."""
    need("riostream")
    for size, iterations in ((1000, 100), (65536, 100)):
        port = free_port()
        common = ["-p", port, "-I", iterations, "-C", 10, "-S", size]
        rig.pair(f"riostream -S {size}", ["riostream", *common], ["riostream", "-s", "127.0.0.1", *common], port,
                 2 * iterations * 10 * size, **GOODBYE)  # fmt: skip


def rcopy(rig):
    """rcopy of a file: both have the same SHA-256."""
    need("rcopy")
    folder = pathlib.Path(rig.rundir, "files")
    folder.mkdir()
    source, copy = folder / "source", folder / "copy"
    digest = hashlib.sha256()
    with open(source, "wb") as f:
        for _ in range(FILE_OCTETS >> 20):
            block = os.urandom(1 << 20)
            digest.update(block)
            f.write(block)
    port = free_port()
    rig.pair(f"rcopy of {FILE_OCTETS >> 20} MiB", ["rcopy", "-p", port], ["rcopy", source, f"127.0.0.1:{copy}", "-p", port],
             port, FILE_OCTETS, server_ends=False, seconds=120, **GOODBYE)  # fmt: skip
    copied = hashlib.sha256()
    with open(copy, "rb") as f:
        while block := f.read(1 << 20):
            copied.update(block)
    check(copied.digest() == digest.digest(), f"the copy of {copy.stat().st_size} octets has another SHA-256")


def rc_pingpong(rig):
    """ibv_rc_pingpong: no rdma_cm, the program exchanges GID and QPN; polling, events, data checked, ibv_wr_*, stamps."""
    need("ibv_rc_pingpong")
    large = 10000 if FULL else 1000
    for options, octets in (([], 4096 * 1000), (["-e"], 4096 * 1000), (["-s", 1 << 20, "-n", large], large << 20),
                            (["-N"], 4096 * 1000), (["-t"], 4096 * 1000), (["-e", "-N"], 4096 * 1000),
                            (["-c"], 4096 * 1000)):  # fmt: skip
        port = free_port()
        words = ["ibv_rc_pingpong", "-d", "ewarp_lo", "-g", 0, "-p", port, *options]
        run = rig.pair(" ".join(map(str, ["ibv_rc_pingpong", *options])), words, [*words, "127.0.0.1"], port, octets,
                       seconds=600 if FULL else 60)  # fmt: skip
        check("iters in" in run.server and "iters in" in run.client, f"no figures:\n{run.client}")


def srq_pingpong(rig):
    """ibv_srq_pingpong -q 64: 64 queue pairs by address, their receives from one queue; polling and sleeping."""
    need("ibv_srq_pingpong")
    for options in ([], ["-e"]):
        port = free_port()
        words = ["ibv_srq_pingpong", "-d", "ewarp_lo", "-g", 0, "-p", port, "-q", 64, "-r", 256, *options]
        run = rig.pair(" ".join(map(str, ["ibv_srq_pingpong -q 64", *options])), words, [*words, "127.0.0.1"], port,
                       4096 * 1000)  # fmt: skip
        check("iters in" in run.server and "iters in" in run.client, f"no figures:\n{run.client}")
        check(run.total("qps_created") == 128, f"{run.total('qps_created')} queue pairs, not 64 on each side")


def qperf(rig):
    """qperf -cm 1: Send, RDMA Read, RDMA Write with Immediate, atomics."""
    need("qperf")
    for test, figure in (("rc_lat", "latency"), ("rc_bw", "bw"), ("rc_rdma_read_bw", "bw"), ("rc_rdma_write_lat", "latency"),
                         ("rc_compare_swap_mr", "msg_rate"), ("rc_fetch_add_mr", "msg_rate")):  # fmt: skip
        run = qperf_once(rig, test)
        # Three digits: what rounds up to a thousand is "1,000".
        check(re.search(rf"^{test}:\n\s+{figure}\s+=\s+[\d.,]+ \S+$", run.client, re.M), f"no figure:\n{run.client}")


def qperf_once(rig, test):
    # qperf's server tells its rdma_cm port between bind and listen: on a busy machine the client is there before it
    # listens, and is refused.
    for attempt in range(10):
        port = free_port()
        try:
            return rig.pair(f"qperf {test}", ["qperf", "-lp", port],
                            ["qperf", "-lp", port, "127.0.0.1", "-cm", 1, "-t", 1, test, "quit"], port, 10000,
                            terminates=True, processes=1)  # fmt: skip
        except Failure as e:
            if attempt == 9 or "RDMA CM: Event rejected" not in str(e):
                raise
            rig.end_children()
    return None


if __name__ == "__main__":
    main(devices_are_listed, rping, ucmatose, rdma_client, cmtime, rstream, riostream, rcopy, rc_pingpong, srq_pingpong, qperf)
