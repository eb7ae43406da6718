# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The main job over EtherWARP, on this machine: rping, then perftest, with raw TCP beside it. Called by scripts/demo."""
import argparse
import pathlib
import platform
import statistics
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "bench"))
import bench as b  # noqa: E402

PING_OCTETS, BANDWIDTH_OCTETS = 65535, 65536


class Counts:
    """How much of each; the summary shows medians of the rounds."""

    def __init__(self, smoke):
        self.rounds, self.pings, self.latency, self.bandwidth = (1, 20, 200, 100) if smoke else (3, 1000, 10000, 10000)


def rping(bench, pings):
    port = b.free_port()
    words = ["-a", bench.a.address, "-p", str(port), "-V", "-C", str(pings), "-S", str(PING_OCTETS)]
    # Each ping is a Read by the server and a Write back, and both ends count what they send.
    bench.two_processes("rping", ["rping", "-s", *words], ["rping", "-c", *words], port, "by_path", 2 * pings * PING_OCTETS)


def alternate(rounds, raw, ours):
    pairs = [b.in_turn(n, [raw, ours]) for n in range(rounds)]
    return statistics.median(r for r, _ in pairs), statistics.median(o for _, o in pairs)


def table(rows):
    width = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))]
    for row in rows:
        print("  " + "  ".join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(row, width))).rstrip())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--smoke", action="store_true", help="small counts: does everything work?")
    arguments = parser.parse_args()
    count = Counts(arguments.smoke)
    bench = b.Bench(b.parse(["--build", arguments.build]))
    try:
        for program in ("rping", "ib_send_lat", "ib_write_bw"):
            print(f"== {program} over EtherWARP", flush=True)
            if program == "rping":
                rping(bench, count.pings)
            elif program == "ib_send_lat":
                latency = alternate(count.rounds, lambda: bench.raw_latency("poll", 8, count.latency),
                                    lambda: bench.latency("ib_send_lat", 8, count.latency))  # fmt: skip
            else:
                size = BANDWIDTH_OCTETS
                bandwidth = alternate(count.rounds, lambda: bench.raw_bandwidth(size, count.bandwidth),
                                      lambda: bench.bandwidth("ib_write_bw", size, count.bandwidth, "by_path"))  # fmt: skip
    except b.Failure as e:
        print(f"\ndemo FAILED: {e}\n`build/bin/etherwarp doctor` says what this machine lacks.", file=sys.stderr)
        return 1
    finally:
        bench.close()

    print(f"\nEtherWARP between two processes on this machine, Linux {platform.release()}\n")
    table([
        ["what ran", "EtherWARP", "raw TCP", "ratio"],
        [f"rping: {count.pings} pings of {PING_OCTETS} octets, contents checked", "ok", "", ""],
        ["ib_send_lat: latency at 8 B, half a round trip", f"{latency[1]:.2f} µs", f"{latency[0]:.2f} µs", f"{latency[1] / latency[0]:.2f}"],
        ["ib_write_bw: bandwidth at 64 KiB", f"{bandwidth[1]:.2f} Gbit/s", f"{bandwidth[0]:.2f} Gbit/s", f"{bandwidth[1] / bandwidth[0]:.2f}"],
    ])  # fmt: skip
    print(f"\nMedians of {count.rounds} runs in alternation; raw TCP polls, as EtherWARP does. CRC is off towards the own host (option crc).")
    for device, octets in sorted(bench.proof.items()):
        print(f"Went over {device}: {octets / 1e9:.2f} GB sent by EtherWARP's own counters.")
    print("Next: build/bin/etherwarp run -- YOUR-PROGRAM, build/bin/etherwarp --help, ./scripts/bench")
    return 0


if __name__ == "__main__":
    sys.exit(main())
