# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Other releases of rdma-core than this machine's, unpacked: EWARP_RELEASES names a directory with one directory each.

Below each is what the release's packages hold: usr/lib/x86_64-linux-gnu with libibverbs.so.1, librdmacm.so.1 and the
libnl they ask for, usr/bin with its tools (ibverbs-utils, rdmacm-utils, perftest), and, where the release was made for a
newer C library than the machine's, its libc6 with ld-linux-x86-64.so.2, which then runs the tools. What is missing comes
from the machine.
"""
import os
import pathlib
import re

from harness import Skip, check, free_port, main

LIBRARIES = "usr/lib/x86_64-linux-gnu"
SERVED = (34, 65)


class Release:
    def __init__(self, root):
        self.root, self.name = root, root.name
        self.libraries = root / LIBRARIES
        text = (self.libraries / "libibverbs.so.1").read_bytes()
        numbers = {int(n) for n in re.findall(rb"IBVERBS_PRIVATE_(\d+)", text)}
        self.interface = max(numbers, default=0)
        self.version = (self.libraries / "libibverbs.so.1").resolve().name.removeprefix("libibverbs.so.")
        self.loader = self.libraries / "ld-linux-x86-64.so.2"

    def has(self, program):
        return (self.root / "usr/bin" / program).exists()

    def words(self, program, *arguments):
        """The program of this release with this release's libraries."""
        path = self.root / "usr/bin" / program
        if self.loader.exists():
            return [self.loader, "--library-path", f"{self.libraries}:/{LIBRARIES}", path, *arguments]
        return ["env", f"LD_LIBRARY_PATH={self.libraries}", path, *arguments]


def releases(served):
    folder = os.environ.get("EWARP_RELEASES", "")
    if not folder:
        raise Skip("EWARP_RELEASES names no directory of unpacked rdma-core releases")
    all_of_them = [Release(p) for p in sorted(pathlib.Path(folder).resolve().iterdir())
                   if (p / LIBRARIES / "libibverbs.so.1").exists()]  # fmt: skip
    chosen = [r for r in all_of_them if (r.interface in SERVED) == served]
    if not chosen:
        raise Skip(f"no release in {folder} has a provider interface that EtherWARP {'serves' if served else 'refuses'}")
    return chosen


def pair(rig, release, program, options, to, octets, device_options=()):
    if not release.has(program):
        print(f"  {release.name}: no {program} there")
        return
    port = free_port()
    words = release.words(program, *options, "-p", port)
    client = [*words, *to] if program != "rping" else release.words(program, "-c", *to, *options, "-p", port)
    server = words if program != "rping" else release.words(program, "-s", *to, *options, "-p", port)
    name = f"{release.name} (interface {release.interface}): {program} {' '.join(map(str, options))}"
    how = {"options": device_options}
    rig.pair(name, server, client, port, octets, server_how=how, client_how=how)


def devices(rig):
    """ibv_devinfo of each release shows the RNIC and its twin, with all of the port's attributes."""
    for release in releases(True):
        for device, transport in (("ewarp_lo", "iWARP"), ("ewarpx_lo", "InfiniBand")):
            info = rig.run(release.words("ibv_devinfo", "-v", "-d", device), options=["--twin"])
            for expected in (rf"transport:\s+{transport}", r"state:\s+PORT_ACTIVE", r"link_layer:\s+Ethernet",
                             r"active_width:\s+1X", r"active_speed:\s+10\.0 Gbps", r"active_mtu:\s+4096",
                             r"GID\[\s*0\]:\s+(?:::ffff:127\.0\.0\.1|[0:]+:ffff:7f00:0001)"):  # fmt: skip
                check(re.search(expected, info), f"{release.name}: ibv_devinfo does not say {expected}:\n{info}")
        print(f"  {release.name}: libibverbs {release.version}, provider interface {release.interface}")


def rping(rig):
    """rping of each release: its librdmacm."""
    for release in releases(True):
        pair(rig, release, "rping", ["-V", "-C", 100, "-S", 65535], ["-a", "127.0.0.1"], 2 * 100 * 65535)


def pingpong(rig):
    """ibv_rc_pingpong and ibv_srq_pingpong of each release, on the RNIC and on the twin."""
    for release in releases(True):
        for device in ("ewarp_lo", "ewarpx_lo"):
            for program in ("ibv_rc_pingpong", "ibv_srq_pingpong"):
                pair(rig, release, program, ["-d", device, "-g", 0, "-e"], ["127.0.0.1"], 4096 * 1000, ["--twin"])


def perftest(rig):
    """ib_send_lat of each release: through rdma_cm, by address, on the twin."""
    for release in releases(True):
        for how in (["-R"], ["-d", "ewarp_lo", "-x", 0], ["-d", "ewarpx_lo", "-x", 0]):
            pair(rig, release, "ib_send_lat", ["-n", 1000, "-s", 4096, *how], ["127.0.0.1"], 4096 * 1000, ["--twin"])


def refused(rig):
    """A release with another provider interface: one line says so, and the program finds no device of ours."""
    for release in releases(False):
        process = rig.start(release.words("ibv_devices"))
        process.wait(20)
        said = process.output()
        check(said.count("EtherWARP serves IBVERBS_PRIVATE_34") == 1 and f"IBVERBS_PRIVATE_{release.interface}" in said,
              f"{release.name}: not one line that refuses interface {release.interface}:\n{said}")  # fmt: skip
        check("ewarp_" not in said and process.status >= 0, f"{release.name}: status {process.status}:\n{said}")
        print(f"  {release.name}: {said.strip().splitlines()[0]}")


if __name__ == "__main__":
    main(devices, rping, pingpong, perftest, refused)
