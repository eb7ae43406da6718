# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The twin device (option twin): programs that know InfiniBand and RoCE only, without rdma_cm."""
import re

from harness import check, free_port, main, need

TWIN = {"options": ["--twin"]}


def pair(rig, words, octets, client_device=None):
    """A tool with itself on the twin; client_device: where the client is instead."""
    need(words[0])
    port = free_port()
    server = [*words, "-p", port]
    client = [client_device if client_device and w == "ewarpx_lo" else w for w in server]
    name = " ".join(map(str, words)) + (f", client on {client_device}" if client_device else "")
    run = rig.pair(name, server, [*client, "127.0.0.1"], port, octets, server_how=TWIN, client_how=TWIN)
    moved = {d["name"] for p in run.processes for d in p["devices"] if d["tx_octets"] + d["rx_octets"] > 0}
    wanted = {"ewarpx_lo"} | ({client_device} if client_device else set())
    check(moved == wanted, f"{name}: the octets went over {sorted(moved)}, not {sorted(wanted)}")
    return run


def listed(rig):
    """Not there by default; with the option a CA with a GUID of its own, behind the RNICs."""
    need("ibv_devices", "ibv_devinfo")
    check("ewarpx_" not in rig.run(["ibv_devices"]), "there are twins without the option")
    names = re.findall(r"^\s*(ewarp\S+)\s+([0-9a-f]{16})$", rig.run(["ibv_devices"], **TWIN), re.M)
    guids = dict(names)
    check("ewarp_lo" in guids and "ewarpx_lo" in guids and len(set(guids.values())) == len(guids),
          f"not each device with its own GUID: {names}")  # fmt: skip
    order = [name.startswith("ewarpx_") for name, _ in names]
    check(order == sorted(order), f"a twin before an RNIC: {names}")
    info = rig.run(["ibv_devinfo", "-v", "-d", "ewarpx_lo"], **TWIN)
    for expected in (r"transport:\s+InfiniBand", r"state:\s+PORT_ACTIVE", r"link_layer:\s+Ethernet",
                     r"GID\[\s*0\]:\s+::ffff:127\.0\.0\.1, RoCE v2"):  # fmt: skip
        check(re.search(expected, info), f"ibv_devinfo -v does not say {expected}:\n{info}")


def pingpong(rig):
    """ibv_rc_pingpong and ibv_srq_pingpong: polling, with events, and with an RNIC device at the other end."""
    for options in ([], ["-e"], ["-s", 1 << 20, "-n", 200]):
        pair(rig, ["ibv_rc_pingpong", "-d", "ewarpx_lo", "-g", 0, *options], 4096 * 1000)
    for options in ([], ["-e"], ["-q", 64]):
        pair(rig, ["ibv_srq_pingpong", "-d", "ewarpx_lo", "-g", 0, *options], 4096 * 1000)
    pair(rig, ["ibv_rc_pingpong", "-d", "ewarpx_lo", "-g", 0], 4096 * 1000, client_device="ewarp_lo")


def perftest(rig):
    """perftest without -R: Send (one way and both), Write, Read, atomics."""
    for words, octets in ((["ib_send_lat", "-n", 1000, "-s", 4096], 4096 * 1000),
                          (["ib_send_bw", "-n", 1000, "-s", 65536], 65536 * 1000),
                          (["ib_send_bw", "-n", 1000, "-s", 65536, "-b"], 65536 * 1000),
                          (["ib_send_bw", "-n", 1000, "-s", 4096, "--use-srq"], 4096 * 1000),
                          (["ib_send_bw", "-n", 200, "-s", 4096, "--use-srq", "-q", 64], 64 * 4096 * 200),
                          (["ib_send_bw", "-n", 100, "-s", 4096, "--use-srq", "-b", "-q", 16], 16 * 4096 * 100),
                          (["ib_write_lat", "-n", 1000, "-s", 4096], 4096 * 1000),
                          (["ib_write_bw", "-n", 1000, "-s", 65536], 65536 * 1000),
                          (["ib_read_bw", "-n", 1000, "-s", 65536], 65536 * 1000),
                          (["ib_atomic_bw", "-n", 1000, "-A", "FETCH_AND_ADD"], 8 * 1000),
                          (["ib_atomic_lat", "-n", 1000, "-A", "CMP_AND_SWAP"], 8 * 1000)):  # fmt: skip
        pair(rig, [*words, "-d", "ewarpx_lo", "-x", 0], octets)


def rdma_cm_takes_the_rnic(rig):
    """rping and ib_send_lat -R with twins about: every octet goes over the RNIC device."""
    need("rping", "ib_send_lat")
    for name, words, role in (("rping", ["rping", "-a", "127.0.0.1", "-C", 100, "-S", 4096], True),
                              ("ib_send_lat -R", ["ib_send_lat", "-R", "-n", 1000, "-s", 4096], False)):  # fmt: skip
        port = free_port()
        server = [*words, "-p", port, *(["-s"] if role else [])]
        client = [*words, "-p", port, *(["-c"] if role else ["127.0.0.1"])]
        run = rig.pair(name, server, client, port, 2 * 100 * 4096, server_how=TWIN, client_how=TWIN)
        moved = {d["name"] for p in run.processes for d in p["devices"] if d["tx_octets"] > 0}
        check(moved == {"ewarp_lo"}, f"{name}: the octets went over {sorted(moved)}")


if __name__ == "__main__":
    main(listed, pingpong, perftest, rdma_cm_takes_the_rnic)
