# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The MPI channel between real processes, each under `etherwarp run`: messages of all protocols, kill -9 of one."""
import collections
import os
import pathlib
import random
import re
import signal
import socket
import struct
import time

from harness import BUILD, FULL, check, free_port, main, wait_until

PROGRAM = BUILD / "bin" / "ewarp_channel_peer"
ASLEEP = BUILD / "bin" / "ewarp_channel_asleep"
UNMAPPED = BUILD / "bin" / "ewarp_channel_unmapped"
STORM = BUILD / "bin" / "ewarp_channel_storm"
PINGPONG = BUILD / "bin" / "channel_pingpong"
NOTICED_WITHIN = 10  # seconds after kill -9


def counters(output):
    """What a peer counted; it does not name what is 0."""
    return collections.Counter({name: int(value) for name, value in re.findall(r"^(\w+) (\d+)$", output, re.M)})


def start(rig, ranks, rounds, victim=None, env=None):
    """All ranks of one run; (processes, seed)."""
    seed = random.randrange(1, 1 << 31)
    folder = pathlib.Path(rig.rundir, f"ranks{seed}")
    folder.mkdir()
    last = [] if victim is None else [victim]
    return [rig.start([PROGRAM, folder, rank, ranks, seed, rounds, *last], env=env, name=f"rank {rank}, seed {seed}")
            for rank in range(ranks)], seed  # fmt: skip


def storm(rig, ranks, rounds, env=None):
    began = time.monotonic()
    processes, seed = start(rig, ranks, rounds, env=env)
    for process in processes:
        process.must_end_well(120)
    total = collections.Counter()
    for process in processes:
        check("done" in process.output(), process.said())
        total += counters(process.output())
    ended = rig.ended()
    octets = sum(d["rx_octets"] for p in ended for d in p["devices"])
    check(len(ended) == ranks and octets > 0, f"EtherWARP's counters show {octets} octets and {len(ended)} processes")
    # `etherwarp stat` says the same of each endpoint as the endpoint itself.
    shown = [c for p in ended for c in p["channels"]]
    check(len(shown) == ranks and sum(c["eager"] for c in shown) == total["eager"]
          and sum(c["hybrid"] for c in shown) == total["hybrid"], f"etherwarp stat shows {shown}")  # fmt: skip
    for process in processes:
        rig.forget(process)
    print(f"  {ranks} ranks, seed {seed}: {octets} octets, {time.monotonic() - began:.1f} s; "
          + ", ".join(f"{n} {total[n]}" for n in ("eager", "hybrid", "send_rndv_write", "send_rndv_read",
                                                         "recv_rndv")), flush=True)  # fmt: skip
    return total


def two(rig):
    """Two processes, every protocol."""
    total = storm(rig, 2, 40)
    for protocol in ("eager", "hybrid", "send_rndv_write", "recv_rndv"):
        check(total[protocol] > 0, f"no message went by {protocol}: {total}")
    total = storm(rig, 2, 40, {"EWARP_CHANNEL_RENDEZVOUS_BY_READ": "1"})
    check(total["send_rndv_read"] > 0, f"no message was read: {total}")
    # Long messages in pieces, and not one receive more than each peer has.
    total = storm(rig, 2, 40, {"EWARP_CHANNEL_EAGER_THRESHOLD": "131072", "EWARP_CHANNEL_EAGER_PIECE": "4096",
                               "EWARP_CHANNEL_RECEIVE_MEMORY": "0"})  # fmt: skip
    check(total["eager"] > 0 and total["credits_recalled"] == 0, f"{total}")


def many(rig):
    """4, 8 and 16 processes, all with all."""
    for ranks, rounds in ((4, 12), (8, 5), (16, 3 if FULL else 2)):
        storm(rig, ranks, rounds)
    # A receive buffer or two for all to share.
    storm(rig, 8, 5, {"EWARP_CHANNEL_EAGER_THRESHOLD": "65536", "EWARP_CHANNEL_RECEIVE_MEMORY": "40000"})


def without_thread(rig):
    """Progress only inside the calls; ends in order; registrations kept; one credit; few counters; no extensions of ours, so no immediates."""
    storm(rig, 3, 10, {"EWARP_CHANNEL_PROGRESS_THREAD": "0", "EWARP_CHANNEL_ORDERED_COMPLETIONS": "1"})
    total = storm(rig, 3, 10, {"EWARP_CHANNEL_REGISTRATION": "kept"})
    check(total["frequent_buffer_sends"] > 0 and total["bounce_copies"] > 0, f"no buffer was found frequent: {total}")
    monitored(rig)
    storm(rig, 3, 10, {"EWARP_CHANNEL_RECEIVE_DEPTH": "1", "EWARP_CHANNEL_COUNTER_LIMIT": "2"})
    total = storm(rig, 3, 10, {"ETHERWARP_EXTENSIONS": "no"})
    check(total["written_notices"] > 0, f"who was told of Writes without immediates? {total}")


def monitored(rig):
    """Registrations are kept where the kernel tells what was unmapped, and not otherwise."""
    total = storm(rig, 3, 10, {"EWARP_CHANNEL_REGISTRATION": "monitored"})
    doctor = rig.start_plain([rig.etherwarp, "doctor"])
    doctor.must_end_well(20)
    kept = total["registration_hits"] > 0 and total["registrations_invalidated"] > 0
    check(kept == ("ok    memory monitor" in doctor.output()), f"registrations are kept: {kept}, {total}\n{doctor.said()}")


def asleep(rig):
    """One end never enters the library while the other waits for it: each protocol, either end first."""
    for number, env in enumerate(({}, {"EWARP_CHANNEL_RENDEZVOUS_BY_READ": "1"}, {"EWARP_CHANNEL_ANNOUNCE": "0"},
                                 {"EWARP_CHANNEL_REGISTRATION": "kept"})):  # fmt: skip
        folder = pathlib.Path(rig.rundir, f"asleep{number}")
        folder.mkdir()
        ranks = [rig.start([ASLEEP, folder, rank], env=env, name=f"asleep, rank {rank}, {env}") for rank in (0, 1)]
        for process in ranks:
            process.must_end_well(100)
        rig.end_children()
        print(f"  {env or 'defaults'}: done", flush=True)


def unmapped(rig):
    """Memory of a receive goes while it is written to: its receive fails, the process goes on."""
    folder = pathlib.Path(rig.rundir, "unmapped")
    folder.mkdir()
    ranks = [rig.start([UNMAPPED, folder, rank], name=f"unmapped, rank {rank}") for rank in (0, 1)]
    for process in ranks:
        process.must_end_well(100)
    rig.end_children()


def all_to_one(rig):
    """A rank does not receive for seconds while all others send to it: its memory is bounded, and nothing is lost."""
    ranks, messages, eager, shared, unexpected = 9, 1000, 131072, 262144, 4 << 20
    env = {"EWARP_CHANNEL_EAGER_THRESHOLD": str(eager), "EWARP_CHANNEL_RECEIVE_MEMORY": str(shared),
           "EWARP_CHANNEL_UNEXPECTED_LIMIT": str(unexpected)}  # fmt: skip
    # What the options say, a receive of each that was under way at the limit, and what else a process touches.
    most = (unexpected + shared + (ranks - 1) * (4 * 16508 + eager) >> 10) + 6144
    folder = pathlib.Path(rig.rundir, "all_to_one")
    folder.mkdir()
    processes = [rig.start([STORM, folder, rank, ranks, messages, most], env=env, name=f"all to one, rank {rank}")
                 for rank in range(ranks)]  # fmt: skip
    for process in processes:
        process.must_end_well(100)
    total = counters(processes[0].output())
    check(total["received_unexpected"] > 0 and total["credits_held_back"] > 0, f"{total}")
    octets = sum(d["rx_octets"] for p in rig.ended() for d in p["devices"])
    check(octets > 6 * most << 10, f"{octets} octets prove nothing about {most} KiB")
    print(f"  {octets} octets; {processes[0].output().splitlines()[0]}", flush=True)
    rig.end_children()


def one_ends(rig, ranks, number, within, env=None):
    """A signal to one of so many ranks: the others' requests to it fail within so many seconds, and nothing else does."""
    victim = random.randrange(ranks)
    processes, _ = start(rig, ranks, 3, victim, env)
    for rank, process in enumerate(processes):
        word = "victim waits" if rank == victim else "waits for the end"
        wait_until(lambda p=process, w=word: p.status is not None or w in p.output(), 60,
                   lambda p=process: f"{p.name} does not get there\n{p.said()}")  # fmt: skip
        check(process.status is None, f"{process.name} ended\n{process.said()}")
    os.kill(processes[victim].pid, number)
    began = time.monotonic()
    others = [p for rank, p in enumerate(processes) if rank != victim]
    for process in others:
        wait_until(lambda p=process: p.status is not None or "saw it after" in p.output(), within,
                   lambda p=process: f"{p.name} does not notice\n{p.said()}")  # fmt: skip
    took = time.monotonic() - began
    for process in others:
        process.must_end_well(60)
    print(f"  {ranks} ranks: noticed by all after {took:.2f} s", flush=True)
    processes[victim].send(signal.SIGKILL)
    rig.end_children()
    rig.ended()


def killed(rig):
    """kill -9 of one: its peers' requests fail soon, the others go on."""
    for ranks in (2, 5):
        one_ends(rig, ranks, signal.SIGKILL, NOTICED_WITHIN)


def stopped(rig):
    """One stands still with its connections open, as a host that vanished: noticed after death_ns."""
    one_ends(rig, 3, signal.SIGSTOP, 8 + NOTICED_WITHIN, {"EWARP_CHANNEL_DEATH_NS": "8000000000"})


WELCOME, MISMATCH, STRANGER, VERSION, BUSY = 0, 2, 4, 5, 6
HELLO_VERSION = 7
MOST_NEWCOMERS = 64


def hello(version=HELLO_VERSION, ip="127.0.0.1", port=1, depth=64, eager=12288, piece=16384, proof=0, answer=WELCOME):
    """The private data of a connection, as mpi_shim/channel/verbs/hello.cc has it."""
    mapped = bytes(10) + b"\xff\xff" + socket.inet_aton(ip)
    return struct.pack(">HBB16sHHIQIQQ", 0x4557, version, answer, mapped, port, depth, piece // 1024 << 21 | eager,
                       0, 0, 0, proof)  # fmt: skip


def knock(address, data):
    """A connection whose MPA Request has these private data, peer-to-peer; it never sends the RTR."""
    host, port = address.rsplit(":", 1)
    link = socket.create_connection((host, int(port)), 10)
    data = struct.pack(">HH", 0xC001, 0xC001) + data
    link.sendall(b"MPA ID Req Frame" + bytes([0x10, 2]) + struct.pack(">H", len(data)) + data)
    return link


def answer(link):
    """(answer, version) of the hello in the MPA Reply."""
    link.settimeout(20)

    def take(n):
        octets = b""
        while len(octets) < n:
            more = link.recv(n - len(octets))
            check(more, f"the connection ended after {octets}")
            octets += more
        return octets

    head = take(20)
    check(head[:16] == b"MPA ID Rep Frame", f"no Reply: {head}")
    data = take(struct.unpack(">H", head[18:])[0])[4 if head[16] & 0x10 else 0:]
    check(struct.unpack(">H", data[:2])[0] == 0x4557, f"no hello: {data}")
    check(bool(head[16] & 0x20) == (data[3] != WELCOME), f"rejected, or not: {head} {data}")
    return data[3], data[2]


def strangers(rig):
    """Forged hellos: of another version, job or address they are refused; what others may begin is bounded."""
    for number, env in enumerate(({}, {"EWARP_CHANNEL_JOB": "a secret"})):
        folder = pathlib.Path(rig.rundir, f"strangers{number}")
        folder.mkdir()
        first = rig.start([ASLEEP, folder, 0], env=env, name=f"strangers, rank 0, {env}")
        file = folder / "address0"
        wait_until(lambda p=file: p.exists() and ":" in p.read_text(), 30, first.said)
        address = file.read_text().strip()
        for what, octets, wanted in (
            ("newer", hello(version=HELLO_VERSION + 1), VERSION),
            ("older", hello(version=HELLO_VERSION - 1), VERSION),
            ("newer and short", hello(version=99)[:4], VERSION),
            ("another's address", hello(ip="192.0.2.1"), STRANGER),
            ("its own address", hello(port=int(address.rpartition(":")[2])), STRANGER),
            ("another job", hello(proof=1), STRANGER),
            ("another piece", hello(piece=8192), STRANGER if env else MISMATCH),
            ("another depth", hello(depth=63), STRANGER if env else MISMATCH),
            ("no job", hello(), STRANGER if env else WELCOME),
        ):
            with knock(address, octets) as link:
                got = answer(link)
                check(got == (wanted, HELLO_VERSION), f"{what}, {env}: {got}")
        links = [knock(address, hello(port=100 + i)) for i in range(3 * MOST_NEWCOMERS)]
        answers = collections.Counter(answer(link)[0] for link in links)
        for link in links:
            link.close()
        wanted = {STRANGER} if env else {WELCOME, BUSY}
        check(set(answers) == wanted and answers[WELCOME] <= MOST_NEWCOMERS, f"{env}: {answers}")
        # Those who belong together are not disturbed.
        second = rig.start([ASLEEP, folder, 1], env=env, name=f"strangers, rank 1, {env}")
        for process in (first, second):
            process.must_end_well(100)
        rig.end_children()
        print(f"  {env or 'no secret'}: {dict(answers)}", flush=True)
    folder = pathlib.Path(rig.rundir, "strangers2")
    folder.mkdir()
    ranks = [rig.start([ASLEEP, folder, rank], env={"EWARP_CHANNEL_JOB": f"job {rank}"}, name=f"job {rank}")
             for rank in (0, 1)]  # fmt: skip
    # The other one waits for a word of this one.
    wait_until(lambda: any(p.status is not None for p in ranks), 60, "two jobs connected")
    check(all(p.status != 0 for p in ranks), "one reached another job")
    rig.end_children()


def refuse(listener, data):
    """The next connection gets an MPA Reply that rejects it, with these private data."""
    link, _ = listener.accept()
    with link:
        link.settimeout(20)
        head = link.recv(20, socket.MSG_WAITALL)
        link.recv(struct.unpack(">H", head[18:])[0], socket.MSG_WAITALL)
        data = struct.pack(">HH", 0xC001, 0xC001) + data
        link.sendall(b"MPA ID Rep Frame" + bytes([0x30, 2]) + struct.pack(">H", len(data)) + data)
        link.recv(1)  # until the other end has it


def unreachable(rig):
    """A peer that refuses for good: the reason, in a line that ends the process if it is asked for; what is refused for now
    ends nothing."""
    why = (("another version", hello(version=99),
            f"it speaks version 99 of the channel, this end version {HELLO_VERSION}; install the same"),
           ("another job", hello(answer=STRANGER), "it is of another job, or sees this end at another address than 127.0.0.1:"),
           ("other options", hello(answer=MISMATCH, depth=32),
            "EWARP_CHANNEL_RECEIVE_DEPTH is 64 here and 32 there; set one value"),
           ("the same options", hello(answer=MISMATCH), "it cannot make the connection"))  # fmt: skip
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(30)
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        for ends in ("yes", "no"):
            for name, data, reason in why:
                asks = rig.start([PINGPONG, "127.0.0.1:0", address], env={"EWARP_CHANNEL_END_IF_UNREACHABLE": ends}, name=name)
                for _ in range(3):
                    refuse(listener, hello(answer=BUSY))
                    check(asks.status is None, f"it ended for a refusal that is tried again\n{asks.said()}")
                refuse(listener, data)
                check(asks.wait(20) > 0 and reason in asks.output(), f"{name}: {asks.said()}")
                line = f"etherwarp: error: no connection from {os.uname().nodename} (127.0.0.1:"
                check((line in asks.output()) == (ends == "yes"), f"{name}, {ends}: {asks.said()}")
                rig.forget(asks)
    silent = {"EWARP_CHANNEL_END_IF_UNREACHABLE": "yes", "EWARP_CHANNEL_CONNECT_TIMEOUT_NS": "1500000000"}
    asks = rig.start([PINGPONG, "127.0.0.1:0", f"127.0.0.1:{free_port()}"], env=silent, name="nobody")
    check(asks.wait(20) > 0 and "no answer within 1500 ms (" in asks.output() and "firewall" in asks.output(), asks.said())


def example(rig):
    """The example program."""
    for octets in (8, 30000, 1 << 20):
        port = free_port()
        run = rig.pair(f"channel_pingpong {octets}", [PINGPONG, f"127.0.0.1:{port}"],
                       [PINGPONG, "127.0.0.1:0", f"127.0.0.1:{port}", octets, 100], port, 200 * octets)  # fmt: skip
        check("us one way" in run.client, f"no figure:\n{run.client}")


if __name__ == "__main__":
    main(two, many, without_thread, asleep, unmapped, all_to_one, killed, stopped, strangers, unreachable, example)
