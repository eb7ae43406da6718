#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Makes siw_sessions.json: whole sessions of Linux's siw with itself, octet for octet, from captures of them.

usage: siw_sessions.py ID=FILE.pcap... >siw_sessions.json
A capture has one TCP connection over IPv4 and Ethernet. Each half of it becomes the start-up frame in hex, and a list of
FPDUs: 'head' (length field to the end of the headers) in hex, 'runs' of the payload, 'tail' (PAD and CRC) in hex. A run is
[letter, octets]: the alphabet from this letter on, over and over. A payload that is none is 'hex'.
"""
import json
import pathlib
import struct
import sys

START_UP = 20  # octets before the private data (RFC 5044 figure 6)
UNTAGGED, TAGGED = 18, 14  # DDP headers (RFC 5041 figures 3 and 4)
READ_REQUEST, TERMINATE = 1, 7


def halves(capture):
    """The octets of either direction, the initiator's first; segments are put in order by their sequence numbers."""
    streams, at = {}, 24
    while at + 16 <= len(capture):
        (octets,) = struct.unpack_from("<8xI", capture, at)
        packet = capture[at + 16 : at + 16 + octets]
        at += 16 + octets
        ip = packet[14 : 14 + struct.unpack_from(">H", packet, 16)[0]]
        tcp = ip[(ip[0] & 15) * 4 :]
        source, sequence, flags = struct.unpack_from(">HxxI5xB", tcp)
        stream = streams.setdefault(source, {"first": sequence + 1, "data": {}})
        if flags & 2:  # SYN
            stream["first"] = sequence + 1
        elif data := tcp[(tcp[12] >> 4) * 4 :]:
            stream["data"][(sequence - stream["first"]) & 0xFFFFFFFF] = data
    for stream in streams.values():  # the first SYN was the initiator's
        octets = b""
        for offset in sorted(stream["data"]):
            assert offset <= len(octets), "a segment is missing"
            octets = octets[:offset] + stream["data"][offset]
        yield octets


def runs(payload):
    """The payload as runs of the alphabet; None: it is something else."""
    found = []
    for octet in payload:
        letter = chr(octet)
        if not (letter.isascii() and letter.isalpha()):
            return None
        if found:
            first, count = found[-1]
            base = ord("A") if first.isupper() else ord("a")
            if octet == base + (ord(first) - base + count) % 26:
                found[-1][1] += 1
                continue
        found.append([letter, 1])
    return found


def fpdus(octets):
    while octets:
        (length,) = struct.unpack_from(">H", octets)
        size = 2 + length + -(2 + length) % 4 + 4
        fpdu, octets = octets[:size], octets[size:]
        assert len(fpdu) == size, "the last FPDU is cut"
        opcode = fpdu[3] & 15
        head = 2 + (TAGGED if fpdu[2] & 0x80 else length if opcode in (READ_REQUEST, TERMINATE) else UNTAGGED)
        payload = fpdu[head : 2 + length]
        body = {"runs": found} if (found := runs(payload)) is not None else {"hex": payload.hex()}
        yield {"head": fpdu[:head].hex(), **body, "tail": fpdu[2 + length :].hex()}


def half(octets):
    (length,) = struct.unpack_from(">H", octets, START_UP - 2)
    frame, rest = octets[: START_UP + length], octets[START_UP + length :]
    return {"frame": frame.hex(), "fpdus": list(fpdus(rest))}


def lines(sessions):
    """JSON with one FPDU a line."""
    yield "["
    for number, (name, ends) in enumerate(sessions):
        yield f'{"," if number else ""}{{"id": {json.dumps(name)}'
        for who, octets in zip(("initiator", "responder"), ends):
            end = half(octets)
            yield f',"{who}": {{"frame": "{end["frame"]}", "fpdus": ['
            yield ",\n".join(json.dumps(fpdu, separators=(",", ":")) for fpdu in end["fpdus"])
            yield "]}"
        yield "}"
    yield "]"


if __name__ == "__main__":
    named = [argument.split("=", 1) for argument in sys.argv[1:]]
    if not named or any(len(pair) != 2 for pair in named):
        sys.exit(__doc__)
    print("\n".join(lines((name, halves(pathlib.Path(file).read_bytes())) for name, file in named)))
