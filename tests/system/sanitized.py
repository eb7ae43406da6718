# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The boundary between a program and EtherWARP under a sanitizer: a provider that was built with one, in Debian's programs,
which were not, and in one of our own, which was. harness.py loads the sanitizer's run-time library first and fails a test
after which there is a report."""
import pathlib
import re
import signal
import subprocess

import acp
from datagrams import both
from gravel import all_end_well, calls, odd, one_ends, storm
from harness import BUILD, SANITIZER_RUNTIME, check, free_port, main, need
from reliable import example
from tools_loopback import devices_are_listed, rdma_client

SECONDS = 120  # of a pair; on an idle machine none takes more than three
UDADDY_PORT = 7174


def the_runtime_is_there(rig):
    """A program that was built without a sanitizer has its run-time library and the preload library."""
    maps = rig.run(["cat", "/proc/self/maps"])
    for library in (SANITIZER_RUNTIME, str(BUILD / "lib" / "libetherwarp-preload.so")):
        check(library.rpartition("/")[2] in maps, f"no {library} in a program:\n{maps}")


def the_provider_is_instrumented(rig):
    """The provider that a program loads calls the sanitizer for its accesses; that there is no report means nothing else.

    The preload library is built without: it is in programs that have no run-time library, too.
    """
    need("rping", "nm")
    port = free_port()
    server = rig.start_server(["rping", "-s", "-a", "127.0.0.1", "-p", port], port, SECONDS)
    maps = pathlib.Path(f"/proc/{server.pid}/maps").read_text(encoding="utf-8")
    rig.forget(server)
    loaded = set(re.findall(r"/\S*/libetherwarp-rdmav\d+\.so", maps))
    check(len(loaded) == 1, f"providers in rping: {loaded}")
    provider = loaded.pop()
    done = subprocess.run(["nm", "-D", "--undefined-only", provider], capture_output=True, text=True, check=True)
    word = "__tsan_read" if "libtsan" in SANITIZER_RUNTIME else "__asan_report_load"
    check(word in done.stdout, f"{provider} was built without the sanitizer: it never calls {word}*")


def sessions(rig):
    """Three sessions of RC, UD, RD and rdma_cm in a program of our own: nothing is leaked either."""
    for kind in ("rc", "ud", "rd", "cm"):
        said = rig.run([BUILD / "bin" / "ewarp_inject_session", kind], seconds=SECONDS, env=rig.leaks_are_errors())
        check(said.count(" ok\n") == 3, f"not all sessions of {kind} were good:\n{said}")
        print(f"  {kind}: {said.splitlines()[-1]}", flush=True)


def rping(rig):
    """rping -V -C 100, IPv4 and IPv6."""
    need("rping")
    for address in ("127.0.0.1", "::1"):
        port = free_port()
        common = ["-a", address, "-p", port, "-V", "-C", 100, "-S", 10000]
        rig.pair(f"rping {address}", ["rping", "-s", *common], ["rping", "-c", *common], port, 2 * 100 * 10000, SECONDS)


def ucmatose(rig):
    """ucmatose: 20 connections in one process."""
    need("ucmatose")
    port = free_port()
    common = ["-p", port, "-c", 20, "-C", 10, "-S", 4096]
    rig.pair("ucmatose", ["ucmatose", *common], ["ucmatose", "-s", "127.0.0.1", *common], port, 2 * 20 * 10 * 4096,
             SECONDS)  # fmt: skip


def pingpongs(rig):
    """ibv_rc_pingpong, ibv_srq_pingpong and ibv_ud_pingpong: by address, polling and by events."""
    need("ibv_rc_pingpong", "ibv_srq_pingpong", "ibv_ud_pingpong")
    for program, options in (("rc", ["-c"]), ("rc", ["-e", "-N"]), ("rc", ["-s", 1 << 20, "-n", 50]), ("srq", ["-e"]),
                             ("ud", ["-c"]), ("ud", ["-e"])):  # fmt: skip
        port = free_port()
        words = [f"ibv_{program}_pingpong", "-d", "ewarp_lo", "-g", 0, "-p", port, "-n", 200, *options]
        name = " ".join(map(str, [words[0], *options]))
        if program == "ud":
            both(rig, name, words, [*words, "127.0.0.1"], port, 200 * 1024, seconds=SECONDS)
        else:
            rig.pair(name, words, [*words, "127.0.0.1"], port, 200 * 1024, SECONDS)


def udaddy(rig):
    """udaddy: SIDR."""
    need("udaddy")
    both(rig, "udaddy", ["udaddy", "-c", 4], ["udaddy", "-c", 4, "-s", "127.0.0.1"], UDADDY_PORT, 1000, seconds=SECONDS)


def reliable_datagrams(rig):
    """rd_ping: EtherWARP's own verbs, in an example that was built with the sanitizer."""
    for size in (8, 100000):
        example(rig, "rd_ping", "-s", size, "-n", 100, octets=100 * size, seconds=SECONDS)


def gravel_programs(rig):
    """Gravel and the channel, which were built with the sanitizer: every call, a storm, odd ends, a partner that is killed."""
    calls(rig)
    storm(rig, 3, 10)
    for case in ("exits", "finalizes", "threads"):
        all_end_well(rig, odd(rig, case)[1], SECONDS)
    for state in ("puts", "receives", "offers"):
        one_ends(rig, state, signal.SIGKILL, SECONDS)


def acp_programs(rig):
    """ACP programs, which were built with the sanitizer: every call, storms, threads, forks, partners that are killed."""
    for env in ({}, {"ACP_MODE": "paper", "ACP_PROGRESS_THREAD": "yes"}):
        said = acp.job(rig, 3, "ewarp_acp_calls", env={**env, **rig.leaks_are_errors()}, seconds=2 * SECONDS)
        check(said.count("all calls") == 3, said)
        acp.job(rig, 2, "ewarp_acp_threads", "many", env=env, seconds=SECONDS)
    acp.job(rig, 4, "ewarp_acp_storm", 1, 1, env={"ACP_SLOT_SIZE": "64"}, seconds=SECONDS)
    for subject in ("both", "fork", "exit"):
        acp.job(rig, 2, "ewarp_acp_threads", subject, seconds=SECONDS)
    for state in ("asking", "sending", "freeing", "copy"):
        acp.job(rig, 3, "ewarp_acp_death", state, seconds=SECONDS, statuses=(137,))
    acp.job(rig, 3, "ewarp_acp_calls", env={**acp.RC, **rig.leaks_are_errors()}, seconds=2 * SECONDS)
    for subject in ("many", "exit"):
        acp.job(rig, 2, "ewarp_acp_threads", subject, env=acp.RC, seconds=SECONDS)
    acp.job(rig, 2, "ewarp_acp_apart", "refused", env=acp.RC, seconds=SECONDS)
    acp.job(rig, 3, "ewarp_acp_death", "copy", env=acp.RC, seconds=SECONDS, statuses=(137,))


if __name__ == "__main__":
    main(the_runtime_is_there, the_provider_is_instrumented, devices_are_listed, sessions, rping, ucmatose, rdma_client, pingpongs, udaddy,
         reliable_datagrams, gravel_programs, acp_programs)  # fmt: skip
