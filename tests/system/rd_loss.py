"""Reliable datagrams between two hosts whose link drops datagrams at random, both ways: all octets arrive, in order.

EWARP_TEST_FULL=1: 10 GiB at 1 %."""
import re

from harness import BUILD, FULL, check, free_port, main, need
from reliable import drop, without_offloads

DEVICE, RECEIVER = "ewarp_ew0", "10.99.0.1"
MIB = 1 << 20


def transfer(rig, percent, octets, seconds, per_packet=True):
    """RDMA Writes and Sends from one to the other; both ends compute the same checksum of the same octets."""
    need("nft", "ethtool")
    hosts = rig.namespace("a"), rig.namespace("b")
    rig.veth(*hosts)
    for host in hosts:
        if per_packet:
            without_offloads(rig, host)
        drop(host, percent)
    port = free_port()
    words = [BUILD / "bin" / "ewarp_rd_transfer", "--device", DEVICE, "--port", port, "--octets", octets]
    run = rig.pair(f"{octets // MIB} MiB at {percent} %", words, [*words, RECEIVER], port, octets, seconds=seconds,
                   server_how={"netns": hosts[0]}, client_how={"netns": hosts[1]})  # fmt: skip
    said = [re.search(r"^octets (\d+) sum ([0-9a-f]{16}) seconds (\S+) gbit_per_s (\S+)$", end, re.M)
            for end in (run.server, run.client)]  # fmt: skip
    check(all(said), f"no result:\n{run.server}\n{run.client}")
    check(said[0].group(1, 2) == said[1].group(1, 2) and int(said[0].group(1)) == octets,
          f"not the same at both ends:\n{run.server}{run.client}")  # fmt: skip
    total = {key: sum(p["reliable"][key] for p in run.processes) for key in run.processes[0]["reliable"]}
    check(total["unreachable"] == 0, f"a peer was given up: {total}")
    # What was lost was sent again: no fewer than a half of what the filter takes of the data on average.
    check(total["retransmitted"] * 200 > percent * total["tx_segments"], f"too little was lost: {total}")
    names = ("tx_segments", "retransmitted", "losses", "timeouts", "rx_duplicates", "rx_out_of_order", "probes")
    print(f"  {said[1].group(3)} s, {said[1].group(4)} Gbit/s, checksum {said[1].group(2)}; "
          + ", ".join(f"{name} {total[name]}" for name in names if name in total))  # fmt: skip


def one_percent(rig):
    """1 %: 64 MiB, or 10 GiB."""
    transfer(rig, 1, (10240 if FULL else 64) * MIB, 900 if FULL else 60)


def ten_percent(rig):
    """10 %: 8 MiB, or 512."""
    transfer(rig, 10, (512 if FULL else 8) * MIB, 600 if FULL else 60)


def whole_trains(rig):
    """1 % where the link takes trains of datagrams: each loss is of many at once."""
    transfer(rig, 1, (1024 if FULL else 64) * MIB, 600 if FULL else 60, per_packet=False)


if __name__ == "__main__":
    main(one_percent, ten_percent, whole_trains)
