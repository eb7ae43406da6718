"""The libfabric provider, through the unmodified libfabric: what fi_info says, fi_pingpong, every call that is claimed,
and two hosts."""
import os
import re

from harness import BUILD, check, free_port, main, need

TEST = BUILD / "bin" / "ewarp_ofi_test"
PROVIDER = {"FI_PROVIDER_PATH": str(BUILD / "lib" / "libfabric")}
PROMISED = ("FI_MSG", "FI_RMA", "FI_TAGGED", "FI_ATOMIC", "FI_MULTI_RECV", "FI_DIRECTED_RECV", "FI_SOURCE", "FI_LOCAL_COMM",
            "FI_REMOTE_COMM")  # fmt: skip


def travelled(rig, processes):
    """EtherWARP's own counters: octets that those processes received over it."""
    ended = rig.ended()
    check(len(ended) == processes, f"{len(ended)} processes used EtherWARP, not {processes}")
    return sum(d["rx_octets"] for p in ended for d in p["devices"])


def info(rig):
    """fi_info lists the provider, with what was asked for; without EtherWARP it is silent."""
    shown = rig.start(["fi_info", "-p", "etherwarp", "-v"], env=PROVIDER)
    shown.must_end_well(20)
    text = shown.output()
    for name in PROMISED:
        check(re.search(rf"^ {{4}}caps: \[.*\b{name}\b", text, re.M), f"{name} is not among the capabilities\n{text}")
    for fact in ("type: FI_EP_RDM", "resource_mgmt: FI_RM_ENABLED", "threading: FI_THREAD_SAFE", "FI_ORDER_SAS",
                 "cq_data_size: 8", "name: 127.0.0.0/8", "prov_name: etherwarp"):  # fmt: skip
        check(fact in text, f"no \"{fact}\"\n{text}")
    rig.forget(shown)
    chosen = rig.start(["fi_info", "-p", "etherwarp"], env={**PROVIDER, "FI_ETHERWARP_IFACE": "127.0.0.1"})
    chosen.must_end_well(20)
    check(re.findall(r"fabric: (\S+)", chosen.output()) == ["127.0.0.0/8"], chosen.said())


def calls(rig):
    """Every call that is claimed, in one process and with another one."""
    test = rig.start([TEST], env=PROVIDER)
    test.must_end_well(120)
    check(re.search(r"^\[  PASSED  \] \d+ test", test.output(), re.M) and "FAILED" not in test.output(), test.said())
    print(f"  {travelled(rig, 2)} octets", flush=True)


def pingpong(rig):
    """fi_pingpong in both matching spaces, every octet checked."""
    for kind in ("tagged", "msg"):
        port = free_port()
        words = ["fi_pingpong", "-p", "etherwarp", "-e", "rdm", "-m", kind, "-c", "-I", "20"]
        server = rig.start([*words, "-B", port], env=PROVIDER, name=f"fi_pingpong {kind}, server")
        rig.listening(server, port)
        client = rig.start([*words, "-P", port, "127.0.0.1"], env=PROVIDER, name=f"fi_pingpong {kind}, client")
        for process in (client, server):
            process.must_end_well(60)
            sizes = re.findall(r"^(\S+) +20 ", process.output(), re.M)
            check(sizes == ["64", "256", "1k", "4k", "64k", "1m"], process.said())
        octets = travelled(rig, 2)
        check(octets > 2 * 20 * (1 << 20), f"only {octets} octets travelled")
        rig.forget(client)
        rig.forget(server)


need("fi_info", "fi_pingpong")
main(info, calls, pingpong)
