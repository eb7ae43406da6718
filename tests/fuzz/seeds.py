#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""First inputs for the fuzz targets that take records: conversations in which everything goes well.

usage: seeds.py DIRECTORY
Writes DIRECTORY/TARGET/seed-N. The fields are those of the targets' sources.
"""

import sys
from itertools import product
from pathlib import Path


def record(size, *octets, at=None):
    """These octets from the front, and others where `at` says; the rest is 0."""
    out = bytearray(size)
    out[: len(octets)] = octets
    for place, value in (at or {}).items():
        out[place] = value
    return bytes(out)


# --- fuzz_stream: segments of a peer, and our own deeds ---

def segment(opcode, length=0, last=True, stag=1, extra=None):
    return record(16, opcode | (0 if last else 16), 0, stag if opcode in (0, 1, 10) else 0,
                  at={6: length >> 8, 7: length & 255, **(extra or {})})


def own(deed, how=0, length=0):
    return record(16, 0x80 | deed, how, length & 255, length >> 8)


# One that tells of so many behind it, and comes together with the next.
def told(opcode, length, ahead, stag=1):
    return segment(opcode, length, last=False, stag=stag, extra={14: ahead << 4 | 1})


RECEIVE, POST, TRANSMIT = 0, 2, 9
SEND, WRITE, READ, ADD = 0, 1, 2, 3


def stream():
    parts = {
        "sends": [own(RECEIVE, 0, 300), own(RECEIVE, 0, 30000), own(RECEIVE, 128, 30000), segment(3, 100),
                  segment(3, 9000, last=False), segment(3, 9000), segment(5, 20000)],
        "writes": [segment(0, 30000), segment(0, 5000, last=False), segment(0, 3000), own(RECEIVE, 0, 64), segment(8), segment(0, 0)],
        "reads": [segment(1, 20000), own(TRANSMIT), segment(1, 0), own(TRANSMIT)],
        "asks": [own(POST, READ, 20000), segment(2, 15000, last=False, stag=0), segment(2, 5000, stag=0)],
        "atomics": [segment(10, 0x0001, extra={7: 1}), own(TRANSMIT), own(POST, ADD), segment(11)],
        "own": [own(POST, SEND, 100), own(POST, WRITE, 20000), own(POST, WRITE | 16, 300), own(POST, SEND | 32, 8)],
        "immediate": [own(RECEIVE, 0, 3000), segment(15, 2900), own(RECEIVE, 0, 10), segment(9)],
        "terminate": [own(POST, SEND, 10), segment(7, 0x1200, extra={8: 1, 9: 3, 10: 0, 11: 1})],
        "waits": [segment(3, 50), own(5), own(RECEIVE, 0, 50)],
        "told": [told(0, 9000, 3), told(0, 9000, 2), told(0, 9000, 1), segment(0, 3000),
                 own(RECEIVE, 0, 30000), told(3, 9000, 2), told(3, 9000, 1), segment(3, 9000),
                 own(POST, READ, 25000), told(2, 9000, 1, stag=0), told(2, 9000, 0, stag=0), segment(2, 7000, stag=0)],
        "misled": [told(0, 9000, 3), told(0, 9000, 2), segment(7, 0x1200, extra={8: 1, 9: 3, 10: 0, 11: 1})],
    }
    for head, (_, talk) in product((0, 1, 2, 8, 9, 16, 24 + 32), parts.items()):
        yield bytes([head, 1, 3, 0]) + b"".join(talk)
    yield bytes([0, 3, 5, 0]) + b"".join(b"".join(talk) for talk in parts.values())


# --- fuzz_ucma: commands ---

CREATE, DESTROY, BIND, RESOLVE, ROUTE, QUERY, CONNECT, LISTEN, ACCEPT, REJECT, DISCONNECT = range(11)
EVENT, SETTLE, QUEUE_PAIR, CALL, SPEAK = 12, 32, 33, 35, 37


def ucma():
    def c(number, *rest):
        return record(28, number, 0, *rest)

    fetch = [c(SETTLE), c(EVENT)]
    listener = [c(CREATE), c(BIND), c(LISTEN, 0, 4), c(QUERY)]
    active = [c(CREATE), c(RESOLVE, 0, 0, 2), *fetch, c(ROUTE), *fetch, c(QUEUE_PAIR), c(CONNECT, 0, 0, 0, 5, 65, 4, 4), *fetch]
    yield b"\0" + b"".join(listener + active + [c(QUEUE_PAIR), c(ACCEPT, 0, 0, 1, 3, 66, 4, 4)] + 3 * fetch +
                           [c(DISCONNECT)] + 2 * fetch + [c(DESTROY), c(DESTROY, 1)])
    yield b"\0" + b"".join(listener + active + [c(REJECT, 0, 0, 0, 4, 67)] + 2 * fetch)
    frame = record(28, CALL, 0, 0, 0, 0x40, 1, 8)
    yield b"\0" + b"".join(listener + [frame] + fetch + [c(QUEUE_PAIR), c(ACCEPT)] + fetch)
    yield b"\0" + b"".join(listener + [record(28, CALL, 0, 0, 0, 0x50, 2, 12, 0, 0x80, 4, 0x40, 4)] + fetch + [c(QUEUE_PAIR), c(ACCEPT)])
    datagram = [c(CREATE, 0, 1), c(BIND), c(LISTEN, 0, 4), c(QUERY)]
    yield b"\0" + b"".join(datagram + [c(CREATE, 0, 1), c(RESOLVE, 0, 0, 2)] + fetch + [c(ROUTE)] + fetch + [c(CONNECT)] + fetch)
    yield b"\0" + b"".join([c(CREATE, 0, 1), c(BIND), record(28, 22, 0, 0, 5), *fetch, c(17), c(DESTROY)])
    for number in (5, 11, 14, 15, 18, 19, 20, 21, 16):
        yield b"\0" + b"".join([c(CREATE), c(BIND), record(28, number, 0, 0, 1, at={5: 2})])


# --- fuzz_host ---

def host():
    request = [record(40, 0, 0, how, 0, kind, 1, 1, 0, 8 + 1, 0) for how, kind in product((0, 2), range(4))]
    chardev = [record(40, 0, 0, 0, 0, 2, 1, 2, 0, 9, 0, 0, 0, 0, 0, 8 + 2, name) for name in (2, 3)]
    hear = record(40, 2, 255, 255, 12)
    yield b"\0" + b"".join(part + hear for part in request + chardev)
    yield b"\0" + record(40, 16, 0, 2, 0, 0, 1) + record(40, 4, 0, 0, 0, 4, 1) + record(40, 18, 255, 255, 12)
    paths = ([128], [1], [2], [29, 29], [31], [6, 6], [1, 7, 18], [29, 6, 10, 11, 12, 13], [2, 7], [2, 9], [1, 17], [29, 6, 15])
    for path in paths:
        yield b"\0" + record(40, 5, 8, 0, 0, *[p or 29 for p in path])
    opened = record(40, 8, 1)
    gid = record(40, 12, 0, 1, 0, 4, 0, 0, 1, 1, 0, 8, 1, 1, 0, 0, 8, 2, 1, 0, 0, 8, 3, 1, 64, 0, 0)
    table = record(40, 12, 0, 2, 0, 4, 0, 0, 1, 32, 0, 8, 1, 1, 0, 0, 8, 2, 1, 0, 2, 0, 3, 1, 8, 0, 0)
    channel = record(40, 12, 0, 0, 0, 2, 0, 2, 1, 255, 0, 8, 1, 1, 8, 0, 0)
    yield b"\0" + opened + gid + table + channel + record(40, 10) + record(40, 11)


# --- fuzz_channel ---

def channel():
    def c(deed, *, at=None, length=0):
        return record(24, deed, at={9: length & 255, 10: length >> 8, **(at or {})})

    complete = c(10, at={2: 7})
    for length in (40, 200, 1000):
        yield b"\0\1" + b"".join([c(13, length=length), complete, c(13, at={1: 2}, length=length), c(14, at={1: 2}, length=length)])
        yield b"\0\1" + b"".join([c(13, length=8), complete, c(14, length=length), complete, c(0, at={2: 1}, length=40), complete])
        yield b"\0\1" + b"".join([c(13, length=8), complete, c(14, length=length),
                                  c(0, at={2: 2, 3: 2}, length=length), complete, complete, c(19, at={3: 1})])
        yield b"\0\1" + b"".join([c(13, length=length), complete, c(0, at={2: 3, 3: 8, 12: 1 | 2 | 4 | 8}, length=length),
                                  complete, c(0, at={2: 7, 4: 1, 12: 8 | 32})])
    yield b"\0\3" + b"".join([c(13, length=8), complete, c(17, at={3: 20}, length=60), c(0, at={2: 9}, length=20), complete,
                              c(0, at={2: 10, 12: 8}, length=20), c(16, length=100), c(16, at={3: 1}, length=100), complete])
    for first in (c(14, length=40), c(19, at={3: 3})):  # EAGER in pieces, asked for before or between them
        yield b"\0\x09" + b"".join([c(13, length=8), complete, c(14, length=8), complete, first,
                                    c(0, at={2: 1, 12: 0}, length=40), first, c(0, at={2: 11}, length=20), complete])
    yield b"\0\x09" + b"".join([c(13, length=60), complete, c(0, at={2: 12}), c(0, at={2: 13}), c(13, length=60), complete])
    yield b"\0\1" + b"".join([c(13, length=8), complete, c(14, length=900), complete, c(18, at={2: 1}), complete,
                              c(0, at={2: 6, 12: 1}), c(12)])


# --- fuzz_rd_wire ---

def rd_wire():
    def post(op, length, host=0, how=0):
        return record(16, 0, host, op, length & 255, length >> 8, how)

    def fate(what, where=0, bits=0, delay=1, wait=0):
        return record(16, 8, 0, what, where, bits, delay, wait)

    passes = record(16, 5, 0, 200, 10)
    work = [post(op, length, host) for op, length, host in product(range(5), (20, 5000), (0, 1))]
    for head in (0, 1, 4, 2, 64):
        yield bytes([head, 8, 1, 0]) + b"".join(work) + passes
    for what in range(6):
        yield bytes([0, 8, 1, 0]) + b"".join(work[:4]) + b"".join(fate(what, 20 + n, 1, 3, n) for n in range(4)) + passes + work[5]


# --- fuzz_ofi ---

def ofi():
    def c(call, *rest, at=None):
        return record(24, call, *rest, at=at)

    reap = [c(12, side, queue, 0xff) for side in (0, 1) for queue in (0, 1)]
    for kind, length in product(range(8), (20, 200)):
        yield b"\0\0\0" + b"".join([c(4, 1, length, 0, 1 if kind in (1, 3, 5) else 0, 2), c(0, 0, length, 0, kind)] + reap)
    for kind in range(6):
        yield b"\0\4\0" + b"".join([c(7, 0, 100, 0, 0, 0, 0, 0, kind)] + reap)
    for kind, op, type_ in product(range(3), (2, 9, 11), (2, 7)):
        yield b"\0\0\0" + b"".join([c(9, 0, at={8: kind, 10: type_, 11: op, 12: 2})] + reap)
    yield b"\0\0\0" + b"".join([c(0, 0, 20), c(26, 1, 20, 0, 4, 2), *reap, c(26, 1, 20, 0, 1, 2), *reap])
    for call in (11, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25):
        yield b"\0\0\0" + b"".join(c(call, 0, n, 3 * n, n, n) for n in range(6))


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    for make in (stream, ucma, host, channel, rd_wire, ofi):
        directory = Path(sys.argv[1]) / f"fuzz_{make.__name__}"
        directory.mkdir(parents=True, exist_ok=True)
        for number, octets in enumerate(make()):
            (directory / f"seed-{number}").write_bytes(octets)


if __name__ == "__main__":
    main()
