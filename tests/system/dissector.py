# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The Wireshark dissector of datagrams: the golden vectors, and what EtherWARP really sends."""
import contextlib
import json
import pathlib
import struct
import subprocess
import tempfile

from harness import Failure, check, free_port, main, need, wait_until

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "wireshark" / "etherwarp_datagram.lua"

# The vectors' words for what the dissector shows; those that are not numbers are looked at apart.
FIELDS = {"type": "type", "HLen": "hlen", "dst_qpn": "dst_qpn", "src_qpn": "src_qpn", "qkey": "qkey", "imm": "imm",
          "opcode": "rdmap.opcode", "QN": "ddp.qn", "MSN": "ddp.msn", "MO": "ddp.mo", "STag": "ddp.stag", "TO": "ddp.to",
          "L": "ddp.l", "rec_msn": "rec_msn", "rec_len": "rec_len", "rec_off": "rec_off", "err_msn": "err_msn",
          "layer": "rdmap.layer", "etype": "rdmap.error_type", "code": "rdmap.error_code", "M": "rdmap.m", "D": "rdmap.d",
          "ddp_segment_length": "rdmap.error_length", "tag": "tag", "dst_tag": "tag", "init_tag": "init_tag",
          "isn_req": "isn_req", "isn_rsp": "isn_rsp", "wnd": "wnd_req", "msn_lim": "msn_lim", "max_seg": "max_seg",
          "opts": "options", "ird": "ird", "ord": "ord", "cookie": "cookie", "psn": "psn", "ack_req": "ack_req",
          "err_psn": "err_psn", "n_sack_req": "sack_words_req", "ack_delay_us": "ack_delay", "aux": "aux",
          "snd_nxt_req": "next_req", "reason": "reason", "trans_id": "trans_id", "port": "service_port",
          "status": "sidr_status", "qpn": "qpn"}  # fmt: skip
TEXTS = {"payload_hex": "payload", "private_hex": "private"}
FLAGS = {"I": "flags.i", "A": "flags.a", "F": "flags.f", "R": "flags.r", "K": "flags.k", "T": "flags.k", "ack": "flags.k"}
APART = {"flags", "words", "payload_len"}


def checksum(octets):
    total = sum(struct.unpack(f"!{len(octets) // 2}H", octets))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


def pcap(payloads):
    """A capture file of UDP datagrams over IPv4, without a link layer."""
    out = [struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 101)]
    for n, payload in enumerate(payloads):
        udp = struct.pack("!HHHH", 50000, 50001, 8 + len(payload), 0)
        ip = bytearray(struct.pack("!BBHHHBBH4s4s", 0x45, 0, 28 + len(payload), n, 0, 64, 17, 0, b"\x0a\0\0\1", b"\x0a\0\0\2"))
        ip[10:12] = struct.pack("!H", checksum(bytes(ip)))
        packet = bytes(ip) + udp + payload
        out.append(struct.pack("<IIII", n, 0, len(packet), len(packet)) + packet)
    return b"".join(out)


def tshark(*words):
    done = subprocess.run(["tshark", "-X", f"lua_script:{SCRIPT}", *map(str, words)], capture_output=True, text=True,
                          timeout=60, check=False)  # fmt: skip
    complaints = [line for line in done.stderr.splitlines() if "Running as user" not in line]
    check(done.returncode == 0 and not complaints, f"tshark: {done.returncode}\n{done.stderr}")
    return done.stdout


def dissect(file, names):
    """For each packet {field: its values, as text}."""
    columns = [word for name in names for word in ("-e", name)]
    out = tshark("-r", file, "-T", "fields", "-E", "separator=|", "-E", "aggregator=;", *columns)
    return [dict(zip(names, (column.split(";") for column in line.split("|")))) for line in out.splitlines()]


def number(text):
    return {"True": 1, "False": 0}.get(text) if text in ("True", "False") else int(text, 0)


def golden_vectors(rig):
    """Every field of every golden vector, as docs/protocol has it; what is none of ours is left alone."""
    need("tshark")
    vectors = json.loads((ROOT / "tests" / "vectors" / "datagram.json").read_text(encoding="utf-8"))["vectors"]
    names = ["_ws.col.Protocol", "etherwarp.crc.bad", "etherwarp.sack_psn", "etherwarp.sack", "etherwarp.extension",
             *(f"etherwarp.{n}" for n in {*FIELDS.values(), *TEXTS.values(), *FLAGS.values()})]  # fmt: skip
    with tempfile.NamedTemporaryFile(suffix=".pcap") as file:
        file.write(pcap([bytes.fromhex(v["datagram_hex"]) for v in vectors]))
        file.flush()
        packets = dissect(file.name, names)
    check(len(packets) == len(vectors), f"{len(packets)} packets of {len(vectors)}")
    compared = 0
    for vector, packet in zip(vectors, packets):
        name = vector["id"]
        ours = packet["_ws.col.Protocol"] == ["EtherWARP"]
        check(ours == (name not in ("DG-N2", "DG-N3")), f"{name} ({vector['desc']}): taken for {packet['_ws.col.Protocol']}")
        bad = packet["etherwarp.crc.bad"] != [""]
        check(bad == (name == "DG-N1"), f"{name}: its CRC is said to be {'bad' if bad else 'good'}")
        for word, value in vector["fields"].items():
            if word in APART:
                continue
            shown = packet[f"etherwarp.{FIELDS.get(word) or TEXTS[word]}"][0]
            wanted = value if word in TEXTS else number(str(value))
            check(shown and (shown if word in TEXTS else number(shown)) == wanted, f"{name}: {word} is {value}, not '{shown}'")
            compared += 1
        flags = vector["fields"].get("flags", "")
        for letter in ([flags] if flags == "ack" else flags):
            check(number(packet[f"etherwarp.{FLAGS[letter]}"][0]) == 1, f"{name}: no flag {letter}")
        if "words" in vector["fields"]:
            check([number(w) for w in packet["etherwarp.sack"]] == [number(w) for w in vector["fields"]["words"]],
                  f"{name}: SACK words {packet['etherwarp.sack']}")  # fmt: skip
    by_id = {v["id"]: p for v, p in zip(vectors, packets)}
    for name, psns in (("DG-17", [0x1006, 0x1007, 0x100A, 0x1026]), ("DG-18", [0xFFFFFFFF, 0x00000001])):
        shown = [number(psn) for psn in by_id[name]["etherwarp.sack_psn"]]
        check(shown == psns, f"{name}: SACK of {shown}, not {psns}")
    check(by_id["DG-25"]["etherwarp.extension"] == ["eeeeeeee"], f"DG-25: {by_id['DG-25']['etherwarp.extension']}")
    print(f"  {len(vectors)} vectors, {compared} fields")


def any_octets(rig):
    """Every vector cut at every octet, with every octet changed, and with every octet behind it missing: no script error."""
    need("tshark")
    vectors = json.loads((ROOT / "tests" / "vectors" / "datagram.json").read_text(encoding="utf-8"))["vectors"]
    payloads = []
    for octets in (bytes.fromhex(v["datagram_hex"]) for v in vectors):
        payloads += [octets[:n] for n in range(len(octets))]
        payloads += [octets[:n] + bytes([octets[n] ^ bit]) + octets[n + 1:] for n in range(len(octets)) for bit in (0xFF, 1)]  # fmt: skip
    with tempfile.NamedTemporaryFile(suffix=".pcap") as file:
        file.write(pcap(payloads))
        file.flush()
        shown = tshark("-r", file.name, "-V")
    check("Lua Error" not in shown, shown[max(0, shown.find("Lua Error") - 300) : shown.find("Lua Error") + 300])
    check(shown.count("Frame ") >= len(payloads), "packets are missing")
    print(f"  {len(payloads)} datagrams")


def live_capture(rig):
    """udaddy with CRC over the loopback, captured: each datagram is known, and its CRC fits."""
    need("tshark", "dumpcap", "udaddy")
    space = rig.namespace("w")
    file = pathlib.Path(rig.rundir) / "live.pcap"
    file.touch()
    capture = rig.start_plain(["ip", "netns", "exec", space, "dumpcap", "-q", "-P", "-i", "lo", "-w", str(file)])
    wait_until(lambda: capture.status is not None or "File:" in capture.output(), 15,
               lambda: f"no capture\n{capture.said()}")  # fmt: skip
    how = {"netns": space, "options": ["--crc", "always"]}
    run = rig.pair("udaddy", ["udaddy"], ["udaddy", "-s", "127.0.0.1"], 7174, 1000, server_how=how, client_how=how)
    names = ["_ws.col.Protocol", "etherwarp.type", "etherwarp.crc.bad", "etherwarp.rdmap.opcode", "etherwarp.flags.n"]

    def packets():
        return [p for p in dissect(file, names) if p["etherwarp.type"] != [""]]

    def so_far():
        """The last packet may not be whole while it is written."""
        with contextlib.suppress(Failure):
            return sum(p["etherwarp.type"] == ["0"] for p in packets())
        return 0

    sent = sum(d["tx_messages"] for p in run.processes for d in p["devices"])
    wait_until(lambda: so_far() >= sent, 20, "not everything was captured")
    capture.end()
    found = packets()
    check({p["etherwarp.type"][0] for p in found} == {"0", "3", "4"}, f"types: {[p['etherwarp.type'] for p in found]}")
    for p in found:
        check(p["etherwarp.crc.bad"] == [""] and number(p["etherwarp.flags.n"][0]) == 0, f"a CRC does not fit: {p}")
        check(p["etherwarp.type"] != ["0"] or p["etherwarp.rdmap.opcode"] == ["3"], f"not a Send: {p}")
    print(f"  {len(found)} datagrams of {sent} messages")


if __name__ == "__main__":
    main(golden_vectors, any_octets, live_capture)
