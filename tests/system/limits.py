# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Limits that hold: 4096 connected queue pairs, completion queues of 4 M entries, messages of 1 GiB, connections without end."""
import re
import resource

from harness import BUILD, FULL, check, check_possessions, free_port, main, wait_until

LIMITS = BUILD / "bin" / "ewarp_limits"
SLEEPER = BUILD / "bin" / "ewarp_sleeper"
MANY = 4096
MAX_CQE = 4 << 20


def run_role(rig, role, *arguments, seconds=60, **how):
    """One process of ewarp_limits to its good end; its report and EtherWARP's counters of it."""
    said = rig.run([LIMITS, role, *arguments], seconds, **how)
    print("  " + "\n  ".join(said.strip().splitlines()), flush=True)
    (counters,) = rig.ended()
    return said, counters


def figure(said, what, text=r"{}: .*?([\d.-]+)$"):
    """The last number of the line about this."""
    found = re.search(text.format(re.escape(what)), said, re.M)
    check(found, f"no figure of {what}:\n{said}")
    return float(found[1])


def queue_pairs_by_cm(rig):
    """4096 connections of rdma_cm between two processes whose soft limit is 256 descriptors: traffic, idling, ending."""
    port = free_port()
    how = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard_limit()))}
    check(hard_limit() > MANY + 300, f"only {hard_limit()} file descriptors are allowed here")
    run = rig.pair("many", *([LIMITS, role, port, MANY, 3] for role in ("many-server", "many-client")), port, MANY * 3 * 8,
                   seconds=300, server_how=how, client_how=how)  # fmt: skip
    print("  " + "\n  ".join((run.server + run.client).strip().splitlines()), flush=True)
    check(run.total("connections") == 2 * MANY, f"{run.total('connections')} connections, not {MANY} on each side")
    check(figure(run.server, "after the messages: rss_kib_per_qp", r"{} ([\d.]+)$") < 64, "too much memory per queue pair")
    check(figure(run.client, "idle", r"{}: ([\d.]+) %") < 5, "idle queue pairs take CPU time")


def queue_pairs_by_address(rig):
    """4096 queue pairs in one process, joined by address two by two; `etherwarp stat` has a row for each."""
    process = rig.start([LIMITS, "pairs", MANY // 2])
    wait_until(lambda: process.status is not None or "exchanged" in process.output(), 60, process.said)
    counters = rig.counters(process.pid)
    check(counters is None or len(counters["qps"]) == MANY, f"{len(counters['qps'])} rows of queue pairs, not {MANY}")
    process.must_end_well(60)
    print("  " + "\n  ".join(process.output().strip().splitlines()), flush=True)
    (counters,) = rig.ended()
    device = next(d for d in counters["devices"] if d["name"] == "ewarp_lo")
    check((device["qps_created"], device["qps_destroyed"], device["connections"]) == (MANY, MANY, MANY), f"{device}")
    check(figure(process.output(), "again: rss_kib_per_qp", r"{} ([\d.]+)$") < 64, "too much memory per queue pair")


def hard_limit():
    return resource.getrlimit(resource.RLIMIT_NOFILE)[1]


def too_few_descriptors(rig):
    """Where the hard limit is too low: an errno at the call and one clear line, by rdma_cm and by address."""
    how = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (600, 600))}
    clear = r"etherwarp: error: out of file descriptors: each connection takes one, and 600 are allowed; `ulimit -Hn`"
    refused = rig.start([LIMITS, "pairs", 1000], **how)
    check(refused.wait(20) == 1, f"more queue pairs than descriptors\n{refused.said()}")
    check(re.search(r"^ewarp_limits: to RT[RS]: Too many open files$", refused.output(), re.M), refused.said())
    check(len(re.findall(clear, refused.output())) == 1, f"not one clear line:\n{refused.output()}")
    port = free_port()
    server = rig.start_server([LIMITS, "many-server", port, 1000, 1], port)
    client = rig.start([LIMITS, "many-client", port, 1000, 1], **how)
    check(client.wait(20) == 1, f"more connections than descriptors\n{client.said()}")
    check("Too many open files" in client.output(), client.said())
    check(len(re.findall(clear, client.output())) == 1, f"not one clear line:\n{client.output()}")
    server.end()


def completion_queue(rig):
    """A completion queue of max_cqe (4 M) entries: filled, taken, resized, overflowed; memory comes with use."""
    said, _ = run_role(rig, "completions")
    check(figure(said, "max_cqe", r"{} (\d+)$") == MAX_CQE, "max_cqe")
    kib = [int(n) for n in re.findall(r"rss_kib (\d+)$", said, re.M)]
    entry = 48 / 1024  # sizeof(ibv_wc)
    check(len(kib) == 4, said)
    check(kib[0] < 1024, f"{kib[0]} KiB before the first entry")
    check(kib[1] < 1.1e6 * entry + 4096, f"{kib[1]} KiB for a million entries")
    check(kib[2] < 1.0e6 * entry + 4096, f"{kib[2]} KiB after the resize")
    check(kib[3] < 1.1 * MAX_CQE * entry, f"{kib[3]} KiB when full")


def large_messages(rig):
    """Send, Write and Read of 1 GiB each, every word checked; as much as max_msg_sz (2 GiB) in the full run."""
    for octets in (1 << 30, 1 << 31) if FULL else (1 << 30,):
        _, counters = run_role(rig, "large", octets, seconds=240)
        sent = sum(d["tx_octets"] for d in counters["devices"])
        check(sent > 3 * octets, f"{sent} octets over EtherWARP, not three times {octets}")


def turnover(rig):
    """Connections one after the other, by rdma_cm and by address, 1000 a minute for ten minutes in the full run."""
    count, period, seconds = (10_000, 60, 1200) if FULL else (1500, 0, 60)
    port = free_port()
    roles = ([SLEEPER, "churn-server", port, count], [SLEEPER, "churn-client", port, count, period])
    by_address = rig.start([LIMITS, "turnover", count, period])
    run = rig.pair("by rdma_cm", *roles, port, count, seconds=seconds, processes=2)
    by_address.must_end_well(seconds)
    for who, text in (("server", run.server), ("client", run.client), ("by address", by_address.output())):
        check_possessions(who, text, count)
    connections = run.total("connections") + sum(d["connections"] for p in rig.ended() for d in p["devices"])
    check(connections == 4 * count, f"{connections} connections, not {4 * count}")


if __name__ == "__main__":
    main(queue_pairs_by_cm, queue_pairs_by_address, too_few_descriptors, completion_queue, large_messages, turnover)
