# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The libfabric provider, through the unmodified libfabric: what fi_info says, fi_pingpong, every call that is claimed,
and two hosts."""
import json
import re
import signal

from harness import BUILD, PATIENCE, check, check_streams, free_port, main, need, wait_until
from veth import DEVICE, SERVER, between, two_hosts

TEST = BUILD / "bin" / "ewarp_ofi_test"
SUITE = BUILD / "bin" / "ewarp_ofi_suite"
PROVIDER = {"FI_PROVIDER_PATH": str(BUILD / "lib" / "libfabric")}
PROMISED = ("FI_MSG", "FI_RMA", "FI_TAGGED", "FI_ATOMIC", "FI_MULTI_RECV", "FI_DIRECTED_RECV", "FI_SOURCE", "FI_LOCAL_COMM",
            "FI_REMOTE_COMM")  # fmt: skip


def info(rig):
    """fi_info lists the provider with what is promised; where there is no device it lists nothing, quietly."""
    need("fi_info")
    text = rig.run(["fi_info", "-p", "etherwarp", "-v"], env=PROVIDER)
    for name in PROMISED:
        check(re.search(rf"^ {{4}}caps: \[.*\b{name}\b", text, re.M), f"{name} is not among the capabilities\n{text}")
    for fact in ("type: FI_EP_RDM", "resource_mgmt: FI_RM_ENABLED", "threading: FI_THREAD_SAFE", "FI_ORDER_SAS",
                 "cq_data_size: 8", "name: 127.0.0.0/8", "prov_name: etherwarp"):  # fmt: skip
        check(fact in text, f"no \"{fact}\"\n{text}")
    text = rig.run(["fi_info", "-p", "etherwarp"], env={**PROVIDER, "FI_ETHERWARP_IFACE": "127.0.0.1"})
    check(re.findall(r"fabric: (\S+)", text) == ["127.0.0.0/8"], text)
    text = rig.run(["fi_info", "-p", "etherwarp"], env={**PROVIDER, "FI_ETHERWARP_IFACE": "lo"})
    check("127.0.0.0/8" in text and "ewarp_lo" in text, text)
    nothing = rig.start(["fi_info", "-p", "etherwarp"], env={**PROVIDER, "FI_ETHERWARP_IFACE": "no-such-interface"})
    check(nothing.wait(20) != 0 and nothing.output().strip() == "fi_getinfo: -61", nothing.said())


def getinfo(rig):
    """fi_getinfo() takes less than 1 ms but for the first time, as librdmacm is not asked again."""
    took = json.loads(rig.run([BUILD / "bin" / "ewarp_ofi_getinfo"], env=PROVIDER))
    print(f"  {took}", flush=True)
    check(took["offers"] > 0 and took["median_us"] < 1000 * PATIENCE, f"fi_getinfo(): {took}")


def calls(rig):
    """Every call that is claimed, in one process and with another one; then with peers that take no immediates."""
    for env in ({}, {"ETHERWARP_EXTENSIONS": "no"}, {"EWARP_CHANNEL_RENDEZVOUS_BY_READ": "1"}):
        rig.ended()
        said = rig.run([TEST], 120, env={**PROVIDER, **env})
        check(re.search(r"PASSED  \] \d+ test", said) and "FAILED" not in said, said)
        processes = rig.ended()
        octets = sum(d["rx_octets"] for p in processes for d in p["devices"])
        check(octets > 10 << 20, f"only {octets} octets travelled")
        check_streams(f"{TEST.name} {env}", processes)
        print(f"  {env}: {octets} octets", flush=True)


def suite(rig):
    """What any provider has to hold, over ours; and over one of libfabric's own, to prove the suite."""
    for provider in ("etherwarp", "tcp;ofi_rxm"):
        said = rig.run([SUITE, provider], 120, env=PROVIDER)
        passed = re.search(r"PASSED  \] (\d+) test", said)
        check(passed and "FAILED" not in said, f"{provider}\n{said}")
        check(provider != "etherwarp" or "SKIPPED" not in said, said)
        print(f"  {provider}: {passed[1]} tests", flush=True)


def words(kind, *more):
    return ["fi_pingpong", "-p", "etherwarp", "-e", "rdm", "-m", kind, "-c", "-I", 20, *more]


def all_sizes(run):
    for said in (run.server, run.client):
        sizes = re.findall(r"^(\S+) +20 ", said, re.M)
        check(sizes == ["64", "256", "1k", "4k", "64k", "1m"], said)


def pingpong(rig):
    """fi_pingpong in both matching spaces, every octet checked."""
    need("fi_pingpong")
    how = {"env": PROVIDER}
    for kind in ("tagged", "msg"):
        port = free_port()
        run = rig.pair(f"fi_pingpong {kind}", words(kind, "-B", port), words(kind, "-P", port, "127.0.0.1"), port, 20 << 20,
                       server_how=how, client_how=how)  # fmt: skip
        all_sizes(run)
        check_streams(f"fi_pingpong {kind}", run.processes)


def ended_by_signal(rig):
    """SIGTERM in the midst of traffic, where a handler calls exit() while its thread may be in the middle of our code: both end.

    libinfinipath, which Debian's libfabric loads, has such a handler."""
    need("fi_pingpong")
    port = free_port()
    endless = words("tagged", "-S", 8, "-I", 100_000_000)
    server = rig.start_server([*endless, "-B", port], port, env=PROVIDER)
    client = rig.start([*endless, "-P", port, "127.0.0.1"], env=PROVIDER)
    wait_until(lambda: rig.octets(client.pid) > 100_000, 20, lambda: f"no traffic\n{client.said()}")
    for process in (client, server):
        process.send(signal.SIGTERM)
        process.wait(10)


def two_namespaces(rig):
    """The same between hosts that see each other over a wire; the endpoint is at the address of that wire by itself."""
    need("fi_pingpong")
    hosts = two_hosts(rig)
    for kind in ("tagged", "msg"):
        port = free_port()
        rig.env.update(PROVIDER)
        all_sizes(between(rig, hosts, f"fi_pingpong {kind}", words(kind, "-B", port), words(kind, "-P", port, SERVER),
                          port, 20 << 20))  # fmt: skip
    print(f"  only {DEVICE} was used", flush=True)


if __name__ == "__main__":
    main(info, getinfo, calls, suite, pingpong, ended_by_signal, two_namespaces)
