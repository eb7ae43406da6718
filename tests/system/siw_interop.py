# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The Linux kernel's soft-iWARP (siw) as the peer, in both directions.

EWARP_SIW names the harness that brings it, a directory with three programs that obey VM_NAME: `up.sh -l siw0:siw:eth0`
boots a virtual machine with siw0 on 10.77.0.2 and makes the network namespace $VM_NAME, in which this machine is 10.77.0.1;
`exec.sh 'command'` runs a command in the machine and has its output and status; `down.sh` takes both away.
"""
import contextlib
import functools
import itertools
import os
import pathlib
import re
import subprocess

from harness import BUILD, FULL, PATIENCE, Failure, Run, Skip, check, free_port, main, need, wait_until
from perftest import KINDS, check_report

OURS, SIWS = "10.77.0.1", "10.77.0.2"
DIRECTIONS = (OURS, SIWS)  # who serves
PARAMETERS = "/sys/module/siw/parameters"
PEER = BUILD / "bin/ewarp_interop_peer"
LATE_EVENT = BUILD / "lib/libewarp_late_event.so"
# siw's kernel says this if told to, and sends no Terminate then.
UNSENT = "cannot send TERMINATE: op"
# rping's main thread closes the event channel while its other thread handles the last event, and that one asks again. Mended
# in rdma-core 59 ("rping: terminate CM event thread before exiting").
PINGS_RACE = re.compile(r"(server|client) DISCONNECT EVENT\.\.\.\n(.*\n)*rdma_get_cm_event: Bad file descriptor\n\Z")
# siw as initiator says this if the first message has come before it looks at the Reply (siw_alone_too_prompt). So ours
# waits for longer before it speaks first.
PATIENT = ["--responder-wait-ms", int(2000 * PATIENCE)]
TOO_PROMPT = "ask: RDMA_CM_EVENT_CONNECT_ERROR status -22 instead of RDMA_CM_EVENT_ESTABLISHED"
LOG = re.compile(r"etherwarp: (?:error|warn|info|debug): .*\n")


def with_siw(**switches):
    """A test of a kernel with siw becomes one of a rig. switches: of siw's module."""

    def wrap(test):
        @functools.wraps(test)
        def run(rig):
            with Siw(rig, switches) as siw:
                try:
                    return test(siw)
                except Failure as e:
                    # docs/protocol/start-up.md, section 10: known where a connection ends before siw has seen the RTR.
                    raise Failure(f"{e}\n{siw.state()}" if siw.alive() else f"siw's kernel died\n{e}") from None

        return run

    return wrap


class Siw:
    """A kernel with siw, up as long as the context lasts."""

    def __init__(self, rig, switches):
        self.rig, self.switches = rig, switches
        self.folder = pathlib.Path(os.environ.get("EWARP_SIW") or "/nonexistent")
        if not all(os.access(self.folder / script, os.X_OK) for script in ("up.sh", "exec.sh", "down.sh")):
            raise Skip("no siw: EWARP_SIW names no directory with up.sh, exec.sh and down.sh")
        self.name = f"ewt{os.getpid()}siw"
        self.env = {**rig.env, "VM_NAME": self.name}

    def __enter__(self):
        try:
            self.script("up.sh", "-l", "siw0:siw:eth0")
            # If it cannot be told, it never says so, and nothing is allowed for it.
            self.script("exec.sh", f"""echo 'module siw format "{UNSENT}" +p' >/proc/dynamic_debug/control; true""")
            self.switch(**self.switches)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.rig.end_children()  # none of ours stays in the namespace
        self.script("down.sh")

    def alive(self):
        try:
            self.script("exec.sh", "true")
        except Failure:
            return False
        return True

    def state(self):
        """What its processes wait for, and what its kernel said last."""
        return self.script("exec.sh", "ps -ww -N --ppid 2 -o pid,stat,wchan:32,args; dmesg | tail -n 20")

    def unsent(self):
        """How many Terminates its kernel has held back so far."""
        return int(self.script("exec.sh", f"dmesg | grep -c '{UNSENT}'; true"))

    def script(self, name, *arguments):
        done = subprocess.run([self.folder / name, *arguments], env=self.env, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=180 * PATIENCE, check=False)  # fmt: skip
        check(done.returncode == 0, f"{name}: status {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def switch(self, **switches):
        """Sets switches of siw's module, for the connections to come. An unpatched siw has none."""
        for name, value in switches.items():
            file = f"{PARAMETERS}/{name}"
            if self.script("exec.sh", f"if [ -e {file} ]; then echo {value} >{file}; else echo no; fi"):
                raise Skip(f"this siw has no parameter {name}")

    def shape(self, how):
        """The network inside its machine, over which it talks with itself."""
        need("tc")
        if "no" in self.script("exec.sh", f"tc qdisc add dev lo root netem {how} 2>/dev/null || echo no"):
            raise Skip("this kernel has no netem")

    def start(self, words, seconds, name):
        """In the virtual machine, where it ends soon after so many seconds: who waits here can still look at it."""
        command = " ".join(["timeout", "-k", "1", f"{(seconds + 10) * PATIENCE:g}", *map(str, words)])
        return self.rig.start_plain([self.folder / "exec.sh", command], {"VM_NAME": self.name}, f"{name} (siw)")

    def start_server(self, words, port, seconds, name):
        """Started in the virtual machine, and listening on the port."""
        server = self.start(words, seconds, name)
        listens = f"grep -Eq ':{port:04X} [0-9A-F]+:0000 0A ' /proc/net/tcp"
        try:
            self.script("exec.sh", f"for i in $(seq 300); do {listens} && exit 0; sleep .05; done; exit 1")
        except Failure:
            raise Failure(f"{server.name} does not listen on port {port}\n{server.said()}") from None
        return server

    def start_pair(self, serves, name, server, client, port, seconds, options):
        """One of the two is ours, under `etherwarp run` with these options; serves: whose address the server has."""
        ours = {"netns": self.name, "options": ["--log", "debug", *options]}
        if serves == OURS:
            return (self.rig.start_server(server, port, name=f"{name}: server (ours)", **ours),
                    self.start(client, seconds, f"{name}: client"))  # fmt: skip
        return (self.start_server(server, port, seconds, f"{name}: server"),
                self.rig.start(client, name=f"{name}: client (ours)", **ours))  # fmt: skip

    def pair(self, serves, name, server, client, port, least=0, options=(), seconds=60, terminates=False, crc=None,
             statuses=((0,), (0,)), processes=1, excused=None):  # fmt: skip
        """A server and its client to their ends; the run, in which our side moved so many octets one way or the other.

        crc: whether there must be CRC. statuses: of server and client. processes: of how many there must be counters.
        excused: tells of siw's process whether it ended well all the same.
        """
        name = f"{name}, {'siw to us' if serves == OURS else 'we to siw'}"
        serving, asking = self.start_pair(serves, name, server, client, port, seconds, options)
        try:
            for process, good, ours in ((asking, statuses[1], serves == SIWS), (serving, statuses[0], serves == OURS)):
                process.wait(seconds + 5)
                if ours or excused is None or not excused(process):
                    process.must_end_well(seconds + 5, good)
        except Failure as e:
            raise Failure(f"{e}\n{serving.name}:\n{serving.said()}\n{asking.name}:\n{asking.said()}") from None
        run = Run(serving, asking, self.rig.ended())
        run.log = "".join(LOG.findall(run.server + run.client))
        # The log comes in the middle of a line, too.
        run.server, run.client = (LOG.sub("", t) for t in (run.server, run.client))
        run.streams = re.findall(r"QP \S+: stream to (.*)", run.log)
        run.check_path(name, least, terminates, processes)
        if crc is not None:
            check(run.streams and all(f": crc {str(crc).lower()}," in s for s in run.streams),
                  f"{name}: CRC should be {crc} on {run.streams}")  # fmt: skip
        for process in (serving, asking):
            self.rig.forget(process)
        print(f"  {name}: {run.octets()} octets", flush=True)
        return run

    @contextlib.contextmanager
    def refuses_nobody(self):
        """A connection to a port of ours that nobody listens on is not refused: TCP tries again until somebody does.

        For perftest: its server closes its listener and opens it again for the client's second connection, which may
        come in between. What answers a SYN so is a RST with sequence number 0.
        """
        need("nft")
        nft = ["netns", "exec", self.name, "nft"]
        self.rig.ip(*nft, "table inet patience { chain out { type filter hook output priority 0; "
                          "tcp flags & rst == rst tcp sequence 0 drop; }; }")  # fmt: skip
        try:
            yield
        finally:
            self.rig.ip(*nft, "delete", "table", "inet", "patience")

    def alone(self, scenario, connections=1, first=()):
        """Both ends of a scenario (below) over siw, in the virtual machine: server and client."""
        port = free_port()
        server, client = ([PEER, verb, SIWS, port, scenario, connections, *first] for verb in ("serve", "ask"))
        return self.pair_alone(scenario, server, client, port)

    def pair_alone(self, name, server, client, port):
        return (self.start_server(server, port, 120, f"siw alone, {name}: server"),
                self.start(client, 120, f"siw alone, {name}: client"))  # fmt: skip

    # The tools.

    def rping(self, serves, size, **how):
        port = free_port()
        common = ["-a", serves, "-p", port, "-V", "-C", 20, "-S", size]
        return self.pair(serves, f"rping -S {size}", ["rping", "-s", *common], ["rping", "-c", *common], port,
                         20 * size, excused=is_pings_race, **how)  # fmt: skip

    def ucmatose(self, serves, **how):
        port, connections, messages, size = free_port(), 10, 20, 4096
        common = ["ucmatose", "-p", port, "-c", connections, "-C", messages, "-S", size]
        how["options"] = [*how.get("options", ()), *PATIENT]
        run = self.pair(serves, "ucmatose", common, [*common, "-s", serves], port, connections * messages * size, **how)
        check(run.total("connections") == connections, f"{run.total('connections')} connections, not {connections}")
        return run

    def perftest(self, serves, tool, size, iterations=100, options=(), **how):
        """To be called with refuses_nobody()."""
        port = free_port()
        # The same towards siw: its server may be slow to listen again.
        options = [*options, "--refused-wait-ms", 20_000, *PATIENT]
        words = [tool, "-R", "-F", "-p", port, "-n", iterations, "-s", size]
        server, client = siw0(serves, words, words)
        run = self.pair(serves, f"{tool} -s {size}", server, [*client, serves], port, size * iterations,
                        terminates="write" not in tool, options=options, **how)  # fmt: skip
        check_report(tool, run.client, [size], iterations)
        return run

    # The program that knows what it wants (interop_peer.cc).

    def scenario(self, serves, scenario, connections=1, options=(), ends=((0,), (0,)), **how):
        """Both ends of a scenario; the run. ends: the exit statuses that server and client may have."""
        port = free_port()
        # Else our first word might come too early for siw, as at PATIENT. (Without a receive there is none for theirs.)
        first = ["first"] if serves == OURS and scenario != "no_receive" else []
        words = [[PEER, verb, serves, port, scenario, connections, *first] for verb in ("serve", "ask")]
        return self.pair(serves, scenario, *words, port, options=options, terminates=True, statuses=ends,
                         **how)  # fmt: skip


def is_pings_race(process):
    """Whether rping has met its own race, after it had done what it should: pings_race()."""
    race = process.status == 255 and PINGS_RACE.search(process.output()) is not None
    if race:
        print(f"  {process.name}: rping's own race", flush=True)
    return race


def must_refuse(siw, serves, scenario, ours, siws=None, **how):
    """A scenario whose last request the serving end must refuse, with this reason in a Terminate; the run."""
    before = siw.unsent()
    run = siw.scenario(serves, scenario, **how)
    counter, word = (("terminates_sent", f"stream error {ours}") if serves == OURS else
                     ("terminates_received", f"terminated .* {siws or ours}"))  # fmt: skip
    if serves == SIWS and run.total(counter) == 0 and siw.unsent() == before + 1:
        print("  siw held its Terminate back", flush=True)  # siw_alone_busy()
        return run
    check(re.search(word, run.log), f"{scenario}: our log says nothing of '{word}':\n{run.log}")
    check(run.total(counter) == 1, f"{scenario}: {run.total(counter)} {counter}, not 1")
    return run


def lost(output):
    """How many connections of a run heard nothing of the passive end until they sent more."""
    found = re.search(r"done: \d+ connections, (\d+) lost", output)
    check(found, f"no last line:\n{output}")
    return int(found[1])


def siw0(serves, server, client):
    """The words of perftest's two programs, siw's with its device: its machine has others."""
    return (server, [*client, "-d", "siw0"]) if serves == OURS else ([*server, "-d", "siw0"], client)


@with_siw()
# Holds: MPA-77
def rping(siw):
    """rping -V with CRC and without: each ping is a Send, an RDMA Read, a Send, an RDMA Write, a Send."""
    need("rping")
    for crc in (True, False):
        for serves in DIRECTIONS:
            for size in (4000, 65535):
                run = siw.rping(serves, size, options=["--crc", "always" if crc else "never"], crc=crc)
                check("extensions true" not in run.log, f"siw consents to our extensions:\n{run.log}")


@with_siw(mpa_crc_required=1)
def crc_that_siw_demands(siw):
    """siw as initiator asks for CRC and we do not. (As responder it forgets to ask.)"""
    need("rping")
    siw.rping(OURS, 65535, options=["--crc", "never"], crc=True)


@with_siw()
# Holds: MPA-77
def start_ups(siw):
    """Every first message of a peer-to-peer start-up, and none; as initiator and as responder."""
    need("rping")
    for options in (["--rtr", "write"], ["--rtr", "read"], ["--rtr", "send"]):
        siw.rping(SIWS, 4000, options=options)
    # Not rping: siw may not see a first message that comes as soon as its Reply is sent. Here its program speaks first.
    siw.scenario(SIWS, "operations", options=["--no-peer-to-peer"])
    for switches in ({"rtr_write": 1, "rtr_read": 1}, {"rtr_write": 1, "rtr_read": 0}, {"rtr_write": 0, "rtr_read": 1}):
        siw.switch(peer_to_peer=1, **switches)
        siw.rping(OURS, 4000)


@with_siw(mpa_version=1)
def revision_1(siw):
    """The start-up of RFC 5044, asked for by either side."""
    need("rping", "ucmatose", "ib_send_lat", "ib_write_lat", "ib_read_lat")
    # Not rping with siw's server: it reads with the depth that siw told it, which is 0 (docs/design/cm.md).
    siw.rping(OURS, 65535)
    for serves in DIRECTIONS:
        for crc in (True, False):
            how = {"options": ["--mpa-revision", 1, "--crc", "always" if crc else "never"], "crc": crc}
            siw.scenario(serves, "operations", **how)
            # These wait for an answer to their first message, which siw may have missed (siw_alone_at_first).
            if serves == SIWS or (crc and not FULL):
                continue
            siw.ucmatose(serves, **how)
            with siw.refuses_nobody():
                for kind in KINDS:
                    siw.perftest(serves, f"ib_{kind}_lat", 4096, **how)


@with_siw()
def ucmatose(siw):
    """ucmatose: 10 connections in one process, messages both ways on each."""
    need("ucmatose")
    for serves in DIRECTIONS:
        siw.ucmatose(serves)


@with_siw()
def perftest(siw):
    """ib_send, ib_write and ib_read, latency and bandwidth, with CRC and without."""
    tools = [f"ib_{kind}_{which}" for kind in KINDS for which in ("lat", "bw")]
    need(*tools)
    kinds = ((8, True), (4096, False), (65536, True))
    with siw.refuses_nobody():
        for number, (tool, serves) in enumerate(itertools.product(tools, DIRECTIONS)):
            # The three in turn, so that each meets both directions.
            for size, crc in kinds if FULL else kinds[number % 3 :][:1]:
                siw.perftest(serves, tool, size, options=["--crc", "always" if crc else "never"], crc=crc)


# Processes in the virtual machine alone, each with all the others.
STORM = """d=$(mktemp -d); for r in 0 1 2; do
env EWARP_CHANNEL_ADDRESS={address}:0 {env} timeout 100 {peer} $d $r 3 {seed} 3 >$d.$r 2>&1 & done; wait; cat $d.*"""


@with_siw()
def channel(siw):
    """The channel over siw's device and no other: an adapter that pins what is registered, and knows nothing of ours."""
    peer = BUILD / "bin/ewarp_channel_peer"
    envs = ("", "EWARP_CHANNEL_RENDEZVOUS_BY_READ=1", "EWARP_CHANNEL_RECEIVE_DEPTH=2")
    for seed, env in enumerate(envs if FULL else envs[:1], 1):
        said = siw.script("exec.sh", STORM.format(address=SIWS, env=env, peer=peer, seed=seed))
        check(said.count("done") == 3, f"the storm over siw, {env or 'defaults'}:\n{said}")
        print(f"  3 processes over siw, {env or 'defaults'}: done", flush=True)


@with_siw()
def nobody_listens(siw):
    """A port without a listener: the client learns that it was refused."""
    need("ucmatose")
    asking = siw.rig.start(["ucmatose", "-s", SIWS, "-p", free_port(), "-c", 1], netns=siw.name)
    check(asking.wait(20) != 0 and "RDMA_CM_EVENT_REJECTED, error: -111" in asking.output(), asking.said())
    # An event that it did not wait for ends it, too.
    asking = siw.rig.start([PEER, "ask", SIWS, free_port(), "established", 1], netns=siw.name)
    said = "ask: RDMA_CM_EVENT_REJECTED status -111 instead of RDMA_CM_EVENT_ESTABLISHED"
    check(asking.wait(20) == 1 and said in asking.output(), asking.said())
    asking = siw.start(["ucmatose", "-s", OURS, "-p", free_port(), "-c", 1], 20, "ucmatose")
    check(asking.wait(25) != 0 and "refused" in asking.output(), asking.said())


@with_siw()
# Holds: MPA-77, MPA-78
def operations(siw):
    """Sends, Writes and Reads of many sizes, every octet looked at, with CRC and without."""
    for serves in DIRECTIONS:
        for crc in (True, False):
            siw.scenario(serves, "operations", options=["--crc", "always" if crc else "never"], crc=crc)


@with_siw()
def empty_reads(siw):
    """A Read of no octets behind a message. Where siw answers with octets of the message, we end the stream."""
    siw.scenario(OURS, "empty_reads")
    for attempt in range(8):
        run = siw.scenario(SIWS, "empty_reads", ends=((0, 1), (0, 1)))
        if "done:" in run.client:
            print(f"  {attempt} times siw brought octets", flush=True)
            return
        check("stream error 1/1/01" in run.log, f"empty Reads:\n{run.client}\n{run.log}")
    raise Failure("siw answered no three empty Reads with nothing")


@with_siw()
def invalidate(siw):
    """Send with Invalidate: a key works, is invalidated, works no more. siw has no windows, so there it is a region's."""
    for serves, kind, options in ((OURS, "window", []), (OURS, "region", ["--invalidate-regions"]), (SIWS, "region", []),
                                  (SIWS, "plain", [])):  # fmt: skip
        run = must_refuse(siw, serves, f"invalidate_{kind}", "1/1/00", options=options)
        told = "not told of it" not in run.server
        check(told == (serves == OURS), f"the server's completion:\n{run.server}")
    # By default a peer may not take away what was not bound for it.
    run = siw.scenario(OURS, "invalidate_region", ends=((1,), (1,)))
    check("stream error 0/1/" in run.log, f"a region of ours was invalidated:\n{run.log}")


@with_siw()
# Holds: RDM-23
def faults(siw):
    """A request that the other end must refuse: it says why in a Terminate, and both programs learn of the end."""
    whys = {"bad_write": "1/1/00", "bad_read": "0/1/00", "long_write": "1/1/01", "long_read": "0/1/01",
            "long_send": "1/2/05", "no_receive": "1/2/02", "busy": "1/1/00"}  # fmt: skip
    for serves in DIRECTIONS:
        for what, why in whys.items():
            # siw tells of a message that is too long as of one without a receive.
            must_refuse(siw, serves, what, why, siws="1/2/02" if what == "long_send" else None)


@with_siw()
def late_receives(siw):
    """A receive that is posted behind the end of the connection comes back flushed; siw keeps it."""
    for serves in DIRECTIONS:
        run = siw.scenario(serves, "late_receive")
        ours, siws = (run.server, run.client) if serves == OURS else (run.client, run.server)
        check("a late receive comes back" in ours and "receives stay" not in ours, f"our end says\n{ours}")
        check("a late receive stays" in siws, f"siw's end says\n{siws}")


@with_siw()
def endings(siw):
    """Who ends the connection, and how: in good order, by an error of its own, killed. The other end learns of it."""
    killed = (-9, 137)  # what the process says, and what a shell says of it
    for serves in DIRECTIONS:
        for how in ("close", "error", "kill"):
            for number, who in enumerate(("serve", "ask")):
                ends = [(0,), (0,)]
                ours = (serves == OURS) == (who == "serve")
                if how == "kill":
                    ends[number] = killed
                siw.scenario(serves, f"{how}_{who}", ends=ends, processes=0 if how == "kill" and ours else 1)


@with_siw()
def rejected(siw):
    """A server that does not want the connection; the MPA Reply says so, with its private data."""
    for serves in DIRECTIONS:
        run = siw.scenario(serves, "reject", connections=3, processes=0)
        print(f"  {run.client.count('a rejection says nothing')} of 3 say nothing", flush=True)


@with_siw()
def connections(siw):
    """Many connections, one after the other: siw hears of each, as the RTR is repeated where it missed the first."""
    for serves in DIRECTIONS:
        run = siw.scenario(serves, "established", connections=30)
        missed = lost(run.client)
        # siw may not look at a message while it is busy with its queue pair (siw_qp_llp_data_ready()), as an initiator, too.
        check(missed == 0 or serves == OURS, f"connections that stood at one end only: {missed}\n{run.log[-4000:]}")
        print(f"  the RTR was sent again {run.log.count('the RTR once more')} times; {missed} greetings were missed", flush=True)


def missed_alone(siw, *first):
    """Of 30 connections between siw and itself, by two pairs at once, so that its CPUs are busy."""
    ends = [end for _ in range(2) for end in siw.alone("established", 15, first)]
    for end in ends:
        end.must_end_well(125)
    return sum(lost(end.output()) for end in ends)


@with_siw(peer_to_peer=1)
def siw_alone(siw):
    """siw with itself: what it does to its own kind is not ours. It misses an RTR now and then, until more octets come."""
    missed = missed_alone(siw)
    print(f"  {missed} of 30 connections between two siw missed the RTR until more octets came", flush=True)


@with_siw(peer_to_peer=0)
def siw_alone_at_first(siw):
    """siw with itself, not peer-to-peer: it misses an initiator's first message now and then, until more octets come."""
    missed = missed_alone(siw, "first")
    print(f"  {missed} of 30 first messages between two siw were missed until more octets came", flush=True)


@with_siw()
def siw_alone_rejected(siw):
    """siw with itself: of a rejection it may see the end of the connection alone, not the Reply and its private data."""
    ends = [end for _ in range(2) for end in siw.alone("reject", 15)]
    for end in ends:
        end.must_end_well(125)
    silent = sum(end.output().count("a rejection says nothing") for end in ends)
    print(f"  {silent} of 30 rejections between two siw said nothing", flush=True)


@with_siw(peer_to_peer=1)
def siw_alone_with_empty_reads(siw):
    """siw with itself: it brings octets where none were asked for, now and then, and refuses them."""
    brought = 0
    for _ in range(5):
        for server, client in [siw.alone("empty_reads") for _ in range(2)]:
            for end in (server, client):
                end.must_end_well(125, (0, 1))
            if client.status == server.status == 0:
                continue
            check("ask: a request: " in client.output(), f"no empty Read failed\n{client.said()}\n{server.said()}")
            brought += 1
    print(f"  in {brought} of 10 connections between two siw an empty Read brought octets", flush=True)


@with_siw(peer_to_peer=0)
def siw_alone_too_prompt(siw):
    """siw with itself: as initiator it refuses a Reply if the responder's first message has come by the time it looks."""
    # Half of all packets are late, among them a Reply that the message behind it overtakes: TCP hands both over at once.
    siw.shape("delay 100ms reorder 50%")
    for connections in range(4, 44, 4):
        ends = [siw.alone("established") for _ in range(4)]
        for server, client in ends:
            server.must_end_well(125, (0, 1))
            client.must_end_well(125, (0, 1))
            check(client.status == 0 or TOO_PROMPT in client.output(), f"siw alone\n{client.said()}\n{server.said()}")
        refused = sum(client.status == 1 for _, client in ends)
        if refused:
            print(f"  {refused} of {connections}")
            return
    raise Failure("siw takes a first message behind its Reply")


@with_siw(peer_to_peer=1)
def siw_keeps(siw):
    """siw with itself: receives that never come back, and a key that libibverbs' library for siw does not send."""

    def says(scenario, word, statuses=(0,)):
        server, client = siw.alone(scenario)
        for end in (client, server):
            end.must_end_well(125, statuses)
        said = server.output() + client.output()
        check(word in said, f"siw with itself, {scenario}: no '{word}', so ours need make no allowance for it\n{said}")
        print(f"  {scenario}: {word}", flush=True)

    says("invalidate_region", "not told of it")
    says("invalidate_plain", "a message: Work Request Flushed Error", (1,))
    says("bad_write", "ended")
    says("bad_read", "receives stay")
    says("late_receive", "a late receive stays")


@with_siw(peer_to_peer=1)
def siw_alone_busy(siw):
    """siw with itself: it sends no Terminate in the middle of a message of its own."""
    # 450 KiB through a socket of 16 KiB over a slow network: two seconds in which it is.
    siw.shape("rate 2mbit")
    siw.script("exec.sh", "echo 4096 16384 16384 >/proc/sys/net/ipv4/tcp_wmem")
    server, client = siw.alone("busy")
    for end in (client, server):
        end.must_end_well(125)
    check(siw.unsent() == 1, f"siw sends a Terminate in the middle of its own messages\n{server.said()}\n{client.said()}")


@with_siw()
def pings_race(siw):
    """siw with itself: rping ends with an error, though all went well, if its thread for events is late."""
    need("rping")
    port = free_port()
    common = ["-a", SIWS, "-p", port, "-V", "-C", 3]
    server, client = siw.pair_alone("rping", ["env", f"LD_PRELOAD={LATE_EVENT}", "rping", "-s", *common],
                                    ["rping", "-c", *common], port)  # fmt: skip
    server.wait(125)
    check(is_pings_race(server), f"status {server.status}, not of the race\n{server.said()}")
    client.wait(125)
    check(client.status == 0 or is_pings_race(client), f"status {client.status}\n{client.said()}")


@with_siw()
def markers(siw):
    """siw has no markers: it rejects a Request that demands them, and gives up on such a Reply."""
    need("rping")
    for serves, error in ((SIWS, -104), (OURS, -111)):
        port = free_port()
        common = ["-a", serves, "-p", port, "-C", 1]
        serving, asking = siw.start_pair(serves, "rping", ["rping", "-s", *common], ["rping", "-c", *common], port, 20,
                                         ["--markers"])  # fmt: skip
        check(asking.wait(20) != 0 and f"RDMA_CM_EVENT_REJECTED, error {error}" in asking.output(), asking.said())
        serving.close()


@with_siw()
def beside_the_kernel(siw):
    """A program in siw's machine under `etherwarp run`: its loopback is ours, siw's address the kernel's rdma_cm's."""
    need("rping")
    inside = [siw.rig.etherwarp, "run", "--interfaces", "lo", "--"]

    def rping(address):
        port = free_port()
        common = ["-a", address, "-p", port, "-V", "-C", 20]
        return siw.start_server([*inside, "rping", "-s", *common], port, 20, "rping"), ["rping", "-c", *common]

    server, client = rping("127.0.0.1")
    siw.start([*inside, *client], 20, "rping: client").must_end_well(25)
    server.must_end_well(25)
    server, client = rping(SIWS)
    asking = siw.rig.start(client, netns=siw.name, name="rping: client (ours)")
    asking.must_end_well(25)
    server.wait(25)
    if not is_pings_race(server):
        server.must_end_well(25)
    run = Run(server, asking, siw.rig.ended())
    run.check_path("rping to siw under etherwarp run", 4000, processes=1)
    server, client = rping("127.0.0.1")
    refused = siw.start([*inside, *[SIWS if word == "127.0.0.1" else word for word in client]], 20, "rping: lost client")
    # After that rping waits for a thread of its own for ever, over siw alone as well.
    wait_until(lambda: "rdma_connect: Connection refused" in refused.output(), 20,
               lambda: f"siw did not refuse a connection to a server on our loopback\n{refused.said()}")  # fmt: skip
    server.close()


if __name__ == "__main__":
    main(siw_alone, siw_alone_at_first, siw_alone_rejected, siw_alone_with_empty_reads, siw_alone_too_prompt, siw_alone_busy,
         siw_keeps, pings_race, connections, operations, empty_reads, invalidate, faults, late_receives, endings, rejected,
         rping, crc_that_siw_demands, start_ups, revision_1, ucmatose, perftest, channel, nobody_listens, markers,
         beside_the_kernel)  # fmt: skip
