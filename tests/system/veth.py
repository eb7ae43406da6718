# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Two hosts: network namespaces with a veth pair between them, and the loopback interface left alone."""
import re
import signal

from harness import check, free_port, main, need, wait_until
from perftest import check_report

DEVICE = "ewarp_ew0"
SERVER, SERVER6 = "10.99.0.1", "fd99::1"


def two_hosts(rig):
    """The names of two namespaces that see each other as 10.99.0.1 and .2."""
    one, other = rig.namespace("a"), rig.namespace("b")
    rig.veth(one, other)
    return one, other


def between(rig, hosts, name, server, client, port, least, options=(), **how):
    """A server on the first host and its client on the second; everything went over ewarp_ew0, with CRC."""
    run = rig.pair(name, server, client, port, least, server_how={"netns": hosts[0], "options": ["--log", "debug"]},
                   client_how={"netns": hosts[1], "options": options}, **how)  # fmt: skip
    for process in run.processes:
        busy = {d["name"] for d in process["devices"] if d["tx_octets"] + d["rx_octets"] > 0}
        check(busy <= {DEVICE}, f"{name}: octets on {busy}, not only on {DEVICE}")
    streams = re.findall(r"stream to \S+: crc (\w+)", run.server)
    check(streams and set(streams) == {"true"}, f"{name}: CRC between hosts is {streams or 'not in the log'}")
    return run


def rping(rig):
    """rping -V -C 100 between hosts, IPv4 and IPv6."""
    need("rping")
    hosts = two_hosts(rig)
    for address in (SERVER, SERVER6):
        port = free_port()
        common = ["-a", address, "-p", port, "-V", "-C", 100]
        between(rig, hosts, f"rping {address}", ["rping", "-s", *common], ["rping", "-c", *common], port, 2 * 100 * 64)


def perftest(rig):
    """ib_send_lat, ib_write_bw, ib_read_bw -R between hosts; the device's CRC is on by itself."""
    need("ib_send_lat", "ib_write_bw", "ib_read_bw")
    hosts = two_hosts(rig)
    for tool, size, iterations in (("ib_send_lat", 8, 1000), ("ib_write_bw", 65536, 1000), ("ib_read_bw", 65536, 1000)):
        port = free_port()
        words = [tool, "-R", "-F", "-d", DEVICE, "-p", port, "-s", size, "-n", iterations]
        run = between(rig, hosts, tool, words, [*words, SERVER], port, size * iterations, terminates="write" not in tool)
        check_report(tool, run.client, [size], iterations)
        check(re.search(rf"Device\s+: {DEVICE}\b", run.client), f"{tool} does not name {DEVICE}:\n{run.client}")


def libfabric(rig):
    """fi_info -p verbs finds a domain on the device; fi_pingpong -p verbs -e msg -c moves verified data over it."""
    need("fi_info", "fi_pingpong")
    hosts = two_hosts(rig)
    found = rig.run(["fi_info", "-p", "verbs"], netns=hosts[0])
    check(re.search(rf"^\s*domain: {DEVICE}$", found, re.M), f"fi_info -p verbs shows no domain {DEVICE}:\n{found}")
    rig.ended()
    port = free_port()
    common = ["fi_pingpong", "-p", "verbs", "-e", "msg", "-c"]
    # all sizes up to 1 MiB, 10 times each by default, both ways
    run = between(rig, hosts, "fi_pingpong", [*common, "-B", port], [*common, "-P", port, SERVER], port, 10 << 20,
                  terminates=True)  # fmt: skip
    sizes = re.findall(r"^(\d+[km]?)\s+\d+\s", run.client, re.M)
    check("64" in sizes and "1m" in sizes, f"fi_pingpong reports the sizes {sizes}:\n{run.client}")


def port_state(rig, words, **how):
    done = rig.start_plain(words, **how)
    status = done.wait(20)
    state = re.search(r"state:\s+(\w+)", done.output())
    check(status == 0 and state, f"no port state, exit status {status}\n{done.said()}")
    return state.group(1)


def link_goes_down(rig):
    """The server's link goes down in a running transfer and comes back: PORT_DOWN meanwhile, then the transfer goes on."""
    need("ib_write_bw", "ibv_devinfo")
    hosts = two_hosts(rig)
    port = free_port()
    words = ["ib_write_bw", "-R", "-F", "-d", DEVICE, "-p", port, "-s", 65536, "-n", 10_000_000,
             "--rate_limit", 2, "--rate_limit_type", "SW"]  # fmt: skip
    server = rig.start_server(words, port, netns=hosts[0])
    client = rig.start([*words, SERVER], netns=hosts[1], name="ib_write_bw (client)")

    def arrived():
        for process in (server, client):
            check(process.status is None, f"{process.name} ended, status {process.status}\n{process.said()}")
        return rig.octets(server.pid)

    def states():
        """At the end that lost its carrier, and at the end whose interface is down: only a name brings that one back."""
        shell = f'eval "$({rig.etherwarp} env --interfaces ew0)" && exec ibv_devinfo -d {DEVICE}'
        return {port_state(rig, rig.words(["ibv_devinfo", "-d", DEVICE], netns=hosts[1])),
                port_state(rig, ["ip", "netns", "exec", hosts[0], "sh", "-c", shell])}  # fmt: skip

    wait_until(lambda: arrived() > 64 << 20, 20, lambda: f"no transfer\n{client.said()}")
    check(states() == {"PORT_ACTIVE"}, f"the ports are {states()} while the link is up")
    rig.ip("-n", hosts[0], "link", "set", "ew0", "down")
    down = arrived()
    # the kernel tells of a lost carrier once a second at most
    wait_until(lambda: states() == {"PORT_DOWN"}, 30, lambda: f"the ports are {states()} while the link is down")
    refusal = rig.start(["ibv_devinfo"], netns=hosts[0], options=["--interface", "ew0"])
    check(refusal.wait(20) == 126 and "interface 'ew0' is down" in refusal.output(),
          f"`etherwarp run` says of an interface that is down:\n{refusal.said()}")  # fmt: skip
    # What was on its way was less than this.
    still = arrived()
    check(still - down < 16 << 20, f"{still - down} octets arrived over a link that is down")
    rig.ip("-n", hosts[0], "link", "set", "ew0", "up")
    # Far more than what waited to be sent.
    wait_until(lambda: arrived() > still + (512 << 20), 60, lambda: f"the transfer does not go on\n{client.said()}")
    print(f"  {still >> 20} MiB before the link went down, {(arrived() - still) >> 20} MiB after it")
    for process in (client, server):
        process.send(signal.SIGKILL)
        process.wait(10)


def port_events(rig):
    """ibv_asyncwatch hears of the link that goes and comes, and of a new address."""
    need("ibv_asyncwatch")
    hosts = two_hosts(rig)
    watch = rig.start(["stdbuf", "-oL", "ibv_asyncwatch", "-d", DEVICE], netns=hosts[0], name="ibv_asyncwatch")
    wait_until(lambda: "async event FD" in watch.output(), 10, lambda: f"it does not wait for events\n{watch.said()}")
    for words, event in ((("-n", hosts[1], "link", "set", "ew0", "down"), "IBV_EVENT_PORT_ERR"),
                         (("-n", hosts[1], "link", "set", "ew0", "up"), "IBV_EVENT_PORT_ACTIVE"),
                         (("-n", hosts[0], "addr", "add", "10.99.0.77/24", "dev", "ew0"), "IBV_EVENT_GID_CHANGE")):  # fmt: skip
        before = watch.output().count(event)
        rig.ip(*words)
        wait_until(lambda: watch.output().count(event) > before, 10, lambda: f"no {event}\n{watch.said()}")


if __name__ == "__main__":
    main(rping, perftest, libfabric, link_goes_down, port_events)
