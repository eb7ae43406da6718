# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What a user meets when something is missing or breaks: programs end by themselves, and one clear line says why."""
import ctypes
import errno
import re
import signal
import struct
import subprocess
import time

from harness import BUILD, Skip, check, free_port, main, need, wait_until

# Numbers of the system calls on x86-64 and on every architecture after it.
IO_URING_CALLS = (425, 426, 427)


def ends_with_error(process, seconds, *expected):
    """It ends by itself, with a status that is neither 0 nor a signal's, and says what is expected."""
    status = process.wait(seconds)
    check(status > 0, f"{process.name}: exit status {status}, no error\n{process.said()}")
    for text in expected:
        check(re.search(text, process.output()), f"{process.name} does not say {text!r}\n{process.said()}")
    return status


def our_lines(output):
    return [line for line in output.splitlines() if line.startswith("etherwarp:")]


# Peers that go away.


def peer_killed(rig):
    """SIGKILL of either side in mid-transfer: the other ends by itself, and soon."""
    for tool in ("ib_write_bw", "ib_send_bw", "ib_read_bw"):
        need(tool)
        words = [tool, "-R", "-F", "-s", 65536, "-D", 20]
        kill_each(rig, tool, words, [*words, "127.0.0.1"], 16 << 20, ends_with_error)
    need("rping")
    common = ["-a", "127.0.0.1", "-v"]
    kill_each(rig, "rping", ["rping", "-s", *common], ["rping", "-c", *common], 100_000, rping_ends)


def rping_ends(process, seconds):
    # It may be a failed request that it notices first, and is an error to it, or the end of the connection, which is none.
    status = process.wait(seconds)
    check(status != 0 or "DISCONNECT EVENT" in process.output(), f"rping does not say why it ended\n{process.said()}")


def kill_each(rig, name, server, client, octets, ends):
    for victim in ("server", "client"):
        port = ["-p", free_port()]
        serving = rig.start_server([*server[:1], *port, *server[1:]], port[1], name=f"{name}: server")
        asking = rig.start([*client[:1], *port, *client[1:]], name=f"{name}: client")
        killed, left = (serving, asking) if victim == "server" else (asking, serving)
        wait_until(lambda left=left: rig.octets(left.pid) > octets, 20, lambda left=left: f"no transfer\n{left.said()}")
        check(left.status is None, f"{left.name} ended before\n{left.said()}")
        killed.send(signal.SIGKILL)
        ends(left, 10)
        check(left.status >= 0, f"{left.name} ended by a signal: {left.status}\n{left.said()}")
        for process in (serving, asking):
            rig.forget(process)
    rig.ended()
    print(f"  {name}: the client's end and the server's were noticed")


# Peers that are not there.


def refused(rig):
    """Nobody listens on the port: rping and ib_send_lat end with an error at once."""
    need("rping", "ib_send_lat")
    port = free_port()
    for words, expected in ((["rping", "-c", "-a", "127.0.0.1", "-p", port, "-C", 1], "RDMA_CM_EVENT_REJECTED, error -111"),
                            (["ib_send_lat", "-R", "-F", "-p", port, "127.0.0.1"], "Unexpected CM event")):  # fmt: skip
        ends_with_error(rig.start([*words], options=["--log", "info"]), 5, expected,
                        rf"-> 127\.0\.0\.1:{port} failed: .*Connection refused")  # fmt: skip


def no_route(rig):
    """Only lo is up: connecting to another host's address fails at once."""
    need("rping", "ib_send_lat")
    namespace = rig.namespace("r")
    for words, expected in ((["rping", "-c", "-a", "192.0.2.1", "-C", 1], "RDMA_CM_EVENT_ADDR_ERROR, error -101"),
                            (["rping", "-c", "-a", "2001:db8::1", "-C", 1], "RDMA_CM_EVENT_ADDR_ERROR, error -101"),
                            (["ib_send_lat", "-R", "-F", "192.0.2.1"], "ADDR_ERROR")):  # fmt: skip
        ends_with_error(rig.start(words, netns=namespace, options=["--log", "info"]), 10, expected,
                        "no route to .*: Network is unreachable")  # fmt: skip


def port_in_use(rig):
    """A second server on the same port ends with a line that says so; the first goes on."""
    need("rping", "ucmatose")
    port = free_port()
    first = rig.start_server(["rping", "-s", "-a", "127.0.0.1", "-p", port, "-C", 10], port)
    for words in (["rping", "-s", "-a", "127.0.0.1", "-p", port], ["ucmatose", "-p", port]):
        ends_with_error(rig.start(words), 10, "Address already in use")
    rig.run(["rping", "-c", "-a", "127.0.0.1", "-p", port, "-C", 10])
    first.must_end_well(10)


# A machine that has too little.


def limited(descriptors):
    return ["prlimit", f"--nofile={descriptors}:{descriptors}"]


def says_shortage(process):
    said = [line for line in our_lines(process.output()) if "open files" in line or "file descriptors" in line]
    check(1 <= len(said) <= 2 and all("ulimit" in line for line in said),
          f"{process.name} does not say once what is short and how to mend it\n{process.said()}")  # fmt: skip


def few_descriptors(rig):
    """100 connections where few descriptors are allowed: errors and a clear line, no hang and no crash."""
    need("ucmatose", "prlimit")
    # From hardly enough to load the provider to enough for some of the connections.
    for descriptors in (6, 7, 9, 14, 40):
        port = free_port()
        server = rig.start_server(["ucmatose", "-p", port, "-c", 100], port)
        client = rig.start(["ucmatose", "-s", "127.0.0.1", "-p", port, "-c", 100], wrap=limited(descriptors),
                           name=f"ucmatose with {descriptors} descriptors")  # fmt: skip
        ends_with_error(client, 20)
        says_shortage(client)
        rig.forget(server)
    for descriptors in (6, 7):
        server = rig.start(["ucmatose", "-p", free_port(), "-c", 100], wrap=limited(descriptors),
                           name=f"ucmatose -s with {descriptors} descriptors")  # fmt: skip
        ends_with_error(server, 10)
        says_shortage(server)
    # The listener's queue is the kernel's, so that a client learns nothing before its own time is over.
    impatient = ["--connect-timeout-ms", 2000, "--reply-timeout-ms", 2000]
    for descriptors in (14, 40):
        port = free_port()
        words = ["ucmatose", "-p", port, "-c", 100]
        server = rig.start_server(words, port, wrap=limited(descriptors), name=f"ucmatose -s with {descriptors} descriptors")
        client = rig.start([*words, "-s", "127.0.0.1"], options=impatient)
        ends_with_error(client, 20)
        says_shortage(server)
        check(server.status is None or server.status > 0, f"the server's status is {server.status}\n{server.said()}")
        rig.forget(server)


def refuse_io_uring():
    """For a child before its exec: io_uring's system calls are refused as by the seccomp profiles of containers."""
    filters = [(0x20, 0, 0, 0)]  # load the number of the call
    for call in IO_URING_CALLS:
        filters += [(0x15, 0, 1, call), (0x06, 0, 0, 0x00050000 | errno.EPERM)]  # equal? then this error
    filters.append((0x06, 0, 0, 0x7FFF0000))  # allow
    program = b"".join(struct.pack("HBBI", *f) for f in filters)
    buffer = ctypes.create_string_buffer(program, len(program))
    argument = struct.pack("HxxxxxxP", len(filters), ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(38, 1, 0, 0, 0) != 0 or libc.prctl(22, 2, argument, 0, 0) != 0:  # no new privileges; filter
        raise OSError(ctypes.get_errno(), "no seccomp filters here")


def no_io_uring(rig):
    """--no-io-uring, and io_uring refused by seccomp: epoll does the same work, and the log says why."""
    need("ib_write_bw", "rping")
    for name, how in (("option", {"options": ["--no-io-uring", "--log", "info"]}),
                      ("seccomp", {"options": ["--log", "info"], "preexec_fn": refuse_io_uring})):  # fmt: skip
        for tool, words, least in (("rping", ["rping", "-V", "-C", 100, "-S", 65535], 100 * 65535),
                                   ("ib_write_bw", ["ib_write_bw", "-R", "-F", "-n", 500], 500 * 65536)):  # fmt: skip
            port = free_port()
            words = [*words, "-p", port]
            server, client = (words, [*words, "127.0.0.1"]) if tool != "rping" else (
                [*words, "-s", "-a", "127.0.0.1"], [*words, "-c", "-a", "127.0.0.1"])  # fmt: skip
            try:
                run = rig.pair(f"{tool}, {name}", server, client, port, least, server_how=how, client_how=how)
            except subprocess.SubprocessError as e:  # what becomes of an exception before exec
                raise Skip(f"no seccomp filters here: {e}") from e
            pollers = {p["poller"] for p in run.processes}
            check(pollers == {"epoll"}, f"the poller is {pollers}, not epoll")
            said = "io_uring is not usable" in run.server
            check(said == (name == "seccomp"), f"{name}: the log says of io_uring:\n{run.server}")


# Mistakes.


def unknown_option(rig):
    """A word that no option has: one line that names it, and the word that was probably meant."""
    need("ibv_devices")
    for option, meant in (("--no-such-option", ""), ("--crcc", "--crc"), ("--no-io-urin", "--no-io-uring")):
        process = rig.start(["ibv_devices"], options=[option])
        check(process.wait(10) == 2, f"{option}: exit status {process.status}\n{process.said()}")
        lines = process.output().strip().splitlines()
        check(len(lines) == 1 and f"unknown option {option};" in lines[0] and (not meant or f"mean {meant}?" in lines[0]),
              f"{option}: not one line that names it\n{process.said()}")  # fmt: skip
    for name, value, meant in (("NO_SUCH", "1", "`etherwarp options`"), ("CRCC", "always", "ETHERWARP_CRC?"),
                               ("CRC", "sometimes", "by_path, always, never")):  # fmt: skip
        process = rig.start(["ibv_devices"], env={f"ETHERWARP_{name}": value})
        process.must_end_well(10)
        lines = our_lines(process.output())
        check(len(lines) == 1 and f"ETHERWARP_{name}" in lines[0] and meant in lines[0] and "ignored" in lines[0],
              f"ETHERWARP_{name}={value}: not one line that says it\n{process.said()}")  # fmt: skip
        check("ewarp_lo" in process.output(), f"ETHERWARP_{name}={value}: no devices\n{process.said()}")
    for name, value, meant in (("EAGER_TRESHOLD", "1", "EWARP_CHANNEL_EAGER_THRESHOLD?"),
                               ("REGISTRATION", "dear", "measured, cheap, costly, monitored, kept")):  # fmt: skip
        process = rig.start([BUILD / "bin" / "channel_pingpong", "no-address"], env={f"EWARP_CHANNEL_{name}": value})
        process.wait(10)
        lines = our_lines(process.output())
        check(len(lines) == 1 and f"EWARP_CHANNEL_{name}" in lines[0] and meant in lines[0] and "ignored" in lines[0],
              f"EWARP_CHANNEL_{name}={value}: not one line that says it\n{process.said()}")  # fmt: skip
    process = rig.start_plain([rig.etherwarp, "doctor"], env={"ETHERWARP_NO_SUCH": "1"})
    process.must_end_well(20)
    check("ETHERWARP_NO_SUCH" in process.output(), f"doctor does not show it\n{process.said()}")


def no_interface(rig):
    """No interface is up: the tool and the programs each say in one line what is missing."""
    need("ibv_devices", "rping")
    namespace = rig.namespace("d")
    rig.ip("-n", namespace, "link", "set", "lo", "down")
    inside = ["ip", "netns", "exec", namespace]
    missing = r"no network interface is up and has an address.*`ip link set lo up`"
    for process in (rig.start(["ibv_devices"], netns=namespace), rig.start_plain([*inside, rig.etherwarp, "devices"])):
        ends_with_error(process, 10, missing)
        check(len(process.output().strip().splitlines()) == 1, f"not one line\n{process.said()}")
    doctor = rig.start_plain([*inside, rig.etherwarp, "doctor"])
    ends_with_error(doctor, 20, rf"FAIL\s+interfaces\s+{missing}")
    check(doctor.output().count("FAIL") == 1, f"not one failure\n{doctor.said()}")
    # A shell that has EtherWARP in its environment.
    for program, good in (("ibv_devices", True), ("ibv_devinfo", False), ("rping -c -a 127.0.0.1", False)):
        process = rig.start_plain([*inside, "sh", "-c", f'eval "$({rig.etherwarp} env)" && exec {program}'])
        status = process.wait(10)
        check((status == 0) == good and status >= 0, f"{program}: exit status {status}\n{process.said()}")
        lines = our_lines(process.output())
        check(len(lines) == 1 and "no usable network interface: one must be up" in lines[0],
              f"{program}: not one line that says it\n{process.said()}")  # fmt: skip


if __name__ == "__main__":
    main(peer_killed, refused, no_route, port_in_use, few_descriptors, no_io_uring, unknown_option,
         no_interface)  # fmt: skip
