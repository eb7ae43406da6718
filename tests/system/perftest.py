#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""perftest, unmodified: ib_send, ib_write, ib_read and ib_atomic, latency and bandwidth, in the ways in which people run them."""
import re

from harness import FULL, check, free_port, main, need

KINDS = ("send", "write", "read")
ALL_SIZES = [2 << i for i in range(23)]  # 2 B to 8 MiB


BY_CM = ("-R",)
BY_ADDRESS = ("-d", "ewarp_lo", "-x", 0)  # the tool itself exchanges GIDs and numbers of queue pairs


def perftest(rig, tool, *options, sizes, iterations, run_options=(), processes=2, by=BY_CM, **how):
    """Runs the tool over loopback and holds its report against what was asked; the run."""
    need(tool)
    port = free_port()
    # -F: no word about CPU frequencies
    words = [tool, *by, "-F", "-p", port, "-n", iterations, *options]
    if len(sizes) == 1:
        words += ["-s", sizes[0]]
    name = " ".join(str(w) for w in (tool, *(by if by != BY_CM else ()), *options, *run_options))
    shared = {"options": run_options}
    run = rig.pair(name, words, [*words, "127.0.0.1"], port, sum(sizes) * iterations, server_how=shared,
                   client_how=shared, terminates="write" not in tool, processes=processes, **how)  # fmt: skip
    check_report(name, run.client, sizes, iterations)
    return run


def by_address(rig, tool, *options, **how):
    """The same without rdma_cm."""
    if tool != "ib_send_bw":
        return perftest(rig, tool, *options, by=BY_ADDRESS, **how)
    # Without -R it forgets a memory region of its own on iWARP, and its exit status tells of that (docs/user/byaddr.md).
    run = perftest(rig, tool, *options, by=BY_ADDRESS, client_status=(1,), server_status=(1,), **how)
    for report in (run.client, run.server):
        check("Failed to deallocate PD" in report, f"an exit status of 1, and another complaint:\n{report}")
    return run


def check_report(name, report, sizes, iterations):
    """A line for each size, with figures that are more than nothing."""
    lines = {}
    # Complaints follow on the last figure's line, and a deviation may be the root of something negative.
    report = report.replace("Failed", "\nFailed").replace("-nan", "0")
    # On a busy machine perftest may fail to find its clock's frequency; it says so, and its figures are 0 or infinite.
    no_clock = "Correlation coefficient" in report
    if no_clock:
        report = re.sub(r"\binf\b", "0", report)
    for line in report.splitlines():
        if re.fullmatch(r"[\s\d.]+", line) and len(line.split()) >= 5:
            fields = [float(f) for f in line.split()]
            lines[int(fields[0])] = fields
    check(sorted(lines) == sorted(sizes), f"{name}: figures for the sizes {sorted(lines)}, not {sorted(sizes)}:\n{report}")
    for fields in lines.values():
        check(fields[1] >= iterations, f"{name}: {fields[1]} iterations, not {iterations}:\n{report}")
        if not no_clock:
            check(max(fields[3:5]) > 0, f"{name}: a figure of nothing:\n{report}")


def all_sizes_latency(rig):
    """_lat -R -a: every size from 2 B to 8 MiB."""
    # Most of the time it is perftest that finds out how fast the clock is, anew for each size. All kinds: below.
    for kind in KINDS if FULL else ("write",):
        perftest(rig, f"ib_{kind}_lat", "-a", sizes=ALL_SIZES, iterations=1000 if FULL else 20)


def all_sizes_bandwidth(rig):
    """_bw -R -a: every size from 2 B to 8 MiB."""
    for kind in KINDS:
        perftest(rig, f"ib_{kind}_bw", "-a", sizes=ALL_SIZES, iterations=1000 if FULL else 50)


def atomics(rig):
    """ib_atomic: both kinds, and many on their way."""
    for kind in ("FETCH_AND_ADD", "CMP_AND_SWAP"):
        perftest(rig, "ib_atomic_lat", "-A", kind, sizes=[8], iterations=1000)
        perftest(rig, "ib_atomic_bw", "-A", kind, sizes=[8], iterations=1000)
        perftest(rig, "ib_atomic_bw", "-A", kind, "-q", 16, sizes=[8], iterations=100)


def without_cm(rig):
    """-x 0: no rdma_cm; latency and bandwidth, both directions, 16 queue pairs, inline data, events, SRQ."""
    for kind in KINDS:
        for which in ("lat", "bw"):
            if FULL:
                by_address(rig, f"ib_{kind}_{which}", "-a", sizes=ALL_SIZES, iterations=1000)
            by_address(rig, f"ib_{kind}_{which}", sizes=[4096], iterations=200)
        by_address(rig, f"ib_{kind}_bw", "-b", sizes=[65536], iterations=200)
        by_address(rig, f"ib_{kind}_bw", "-q", 16, sizes=[65536], iterations=50)
    for kind in ("send", "write"):
        for which in ("lat", "bw"):
            by_address(rig, f"ib_{kind}_{which}", "-I", 64, sizes=[64], iterations=200)
    for kind in ("send", "read"):
        for which in ("lat", "bw"):
            by_address(rig, f"ib_{kind}_{which}", "-e", sizes=[4096], iterations=200)
    by_address(rig, "ib_send_lat", "--use-srq", sizes=[64], iterations=200)
    for kind in ("FETCH_AND_ADD", "CMP_AND_SWAP"):
        by_address(rig, "ib_atomic_lat", "-A", kind, sizes=[8], iterations=200)
        by_address(rig, "ib_atomic_bw", "-A", kind, sizes=[8], iterations=200)


def events(rig):
    """-e: sleeping on completion events instead of polling."""
    for tool in ("ib_send_lat", "ib_send_bw", "ib_read_lat", "ib_read_bw"):
        for size in (8, 65536):
            perftest(rig, tool, "-e", sizes=[size], iterations=1000)


def bandwidth_options(rig):
    """-b both directions at once, -q 16 queue pairs, -t 1024 requests on their way."""
    for kind in KINDS:
        # perftest takes no -b for reads of a queue deeper than the iterations; the rest is its default
        perftest(rig, f"ib_{kind}_bw", "-b", sizes=[65536], iterations=200)
        perftest(rig, f"ib_{kind}_bw", "-q", 16, sizes=[65536], iterations=50)
        perftest(rig, f"ib_{kind}_bw", "-b", "-q", 16, sizes=[4096], iterations=100)
        perftest(rig, f"ib_{kind}_bw", "-t", 1024, sizes=[4096], iterations=2048)


def inline_data(rig):
    """-I 64: payload copied when it is posted."""
    for tool in ("ib_send_lat", "ib_send_bw", "ib_write_lat", "ib_write_bw"):
        perftest(rig, tool, "-I", 64, sizes=[64], iterations=1000)


def shared_receive_queue(rig):
    """--use-srq: all receives from one queue. Several queue pairs: in twin.py, as perftest's credits of iWARP fail then."""
    perftest(rig, "ib_send_lat", "--use-srq", sizes=[64], iterations=1000)
    perftest(rig, "ib_send_bw", "--use-srq", sizes=[4096], iterations=2000)
    perftest(rig, "ib_send_bw", "--use-srq", "-b", sizes=[4096], iterations=1000)


def crc(rig):
    """CRC32C for everything, and for nothing; with markers, too."""
    for run_options in (["--crc", "always"], ["--crc", "never"], ["--crc", "always", "--markers"]):
        for kind in KINDS:
            perftest(rig, f"ib_{kind}_bw", sizes=[1 << 20], iterations=100, run_options=run_options)
            perftest(rig, f"ib_{kind}_lat", sizes=[1000], iterations=200, run_options=run_options)


def small_segments(rig):
    """Without the extensions: segments as large as the path's MSS, as a foreign peer gets them."""
    for kind in KINDS:
        perftest(rig, f"ib_{kind}_bw", sizes=[1 << 20], iterations=100, run_options=["--no-extensions"])


def epoll(rig):
    """The same without io_uring."""
    for kind in KINDS:
        for which, size, iterations in (("lat", 8, 500), ("lat", 65536, 100), ("bw", 65536, 500)):
            run = perftest(rig, f"ib_{kind}_{which}", sizes=[size], iterations=iterations, run_options=["--no-io-uring"])
            pollers = {p["poller"] for p in run.processes}
            check(pollers == {"epoll"}, f"the poller is {pollers}, not epoll")
    perftest(rig, "ib_send_lat", "-e", sizes=[8], iterations=100, run_options=["--no-io-uring"])
    perftest(rig, "ib_write_bw", "-q", 16, sizes=[65536], iterations=50, run_options=["--no-io-uring"])


if __name__ == "__main__":
    main(all_sizes_latency, all_sizes_bandwidth, without_cm, atomics, events, bandwidth_options, inline_data, shared_receive_queue, crc,
         small_segments, epoll)  # fmt: skip
