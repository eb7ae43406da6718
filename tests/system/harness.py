# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Two processes over EtherWARP: starting them, bounding them in time, ending them, and proof that they used it.

A test script is a module with functions that take a Rig; `main(...)` runs them in order. Nothing here waits for a fixed
time where a condition can be waited for; everything that can hang has an end.
"""
import argparse
import contextlib
import faulthandler
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

SKIPPED = 77  # what CTest takes for "skipped"
BUILD = pathlib.Path(os.environ.get("EWARP_BUILD", "build")).resolve()

LOCAL = os.environ.get("EWARP_TEST_STREAM") == "local"  # streams of one host through shared memory, as by default
# How much longer than on an idle machine things may take: the limits are there to end what hangs, not to measure.
PATIENCE = float(os.environ.get("EWARP_TEST_PATIENCE", "1"))
ALL = os.environ.get("EWARP_ALL_TESTS", "") not in ("", "0")  # what is not installed is no reason to skip a test
SANITIZER_RUNTIME = os.environ.get("EWARP_SANITIZER_RUNTIME", "")  # of the sanitizer that the build has
FULL = os.environ.get("EWARP_TEST_FULL", "") not in ("", "0")  # the sizes of a release, not of CI
RUNNING = pathlib.Path(__file__).resolve().parents[2] / "scripts/running.py"
# After so many seconds a test that still runs says where it waits, and ends: before CTest kills it without a word.
ENDS = float(os.environ.get("EWARP_TEST_ENDS", "0"))


class Failure(Exception):
    """Something did not do what it should; the text says what."""


class Skip(Exception):
    """This machine does not allow the test; the text says why."""


def check(condition, text):
    if not condition:
        raise Failure(text)


def tail(text, lines=40):
    return "\n".join("    | " + line for line in text.strip().splitlines()[-lines:])


def wait_until(condition, seconds, what):
    """Polls; a Failure with `what` (text, or a function that makes it) after so many seconds."""
    deadline = time.monotonic() + seconds * PATIENCE
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise Failure(what() if callable(what) else what)
        time.sleep(0.01)


def need(*programs):
    for program in programs:
        if shutil.which(program) is None:
            raise (Failure if ALL else Skip)(f"the program {program} is not installed (scripts/packages.txt)")


def check_possessions(who, text, count):
    """What report_possessions() printed after 10, 200 and all of so many connections: nothing has grown."""
    after = {int(n): tuple(map(int, rest)) for n, *rest in
             re.findall(r"^after (\d+): fds (\d+) threads (\d+) rss_kib (\d+)$", text, re.M)}  # fmt: skip
    check(sorted(after) == [10, 200, count], f"reports of the {who} after {sorted(after)}")
    check(after[count][:2] == after[10][:2], f"fds and threads of the {who}: grown\n{text}")
    check(after[count][2] <= after[200][2] + 2048, f"memory of the {who}: grown\n{text}")
    print(f"  {who}: {after[count][0]} fds, {after[count][1]} threads; from 200 to {count} connections "
          f"{after[count][2] - after[200][2]:+} KiB")  # fmt: skip


_ports = []  # that are ours and were not given yet
_claims = []  # sockets: each holds a hundred ports against other test processes


FIRST_PORT = 20000  # below lie the ports that tools choose themselves


def claim_ports():
    """A hundred ports from below the ephemeral range that no other test process takes while this one lives. Who only looks
    which port is free now may find that another test has looked, too."""
    for block in random.sample(range(FIRST_PORT // 100, 300), 100):
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0ewarp-test-ports-{block}")
        except OSError:
            claim.close()
            continue
        _claims.append(claim)
        return random.sample(range(block * 100, block * 100 + 100), 100)
    raise Failure("other tests have taken all ports")


def free_port():
    """A TCP port that nobody has, IPv4 or IPv6, each time another one."""
    while True:
        if not _ports:
            _ports.extend(claim_ports())
        port = _ports.pop()
        try:
            for family, address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
                with socket.socket(family) as s:
                    if family == socket.AF_INET6:
                        s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                    s.bind((address, port))
            return port
        except OSError:
            continue


@contextlib.contextmanager
def alone_on(port, seconds=120):
    """No other test process uses this port meanwhile: for tools that let nobody choose theirs."""
    with socket.socket(socket.AF_UNIX) as claim:
        def claimed():
            with contextlib.suppress(OSError):
                claim.bind(f"\0ewarp-test-port-{port}")
                return True
            return False
        wait_until(claimed, seconds, f"port {port} is another test's")
        yield


def listens(pid, port):
    """True if a socket listens on this port where the process lives, or a UDP socket has it. Asked of the kernel: a
    connection would disturb."""
    for table, state in (("tcp", "0A"), ("tcp6", "0A"), ("udp", "07"), ("udp6", "07")):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/net/{table}", encoding="ascii") as f:
            for line in f.readlines()[1:]:
                fields = line.split()
                if fields[3] == state and int(fields[1].rsplit(":", 1)[1], 16) == port:
                    return True
    return False


class Process:
    """A child with its output in a file; only ever ended by its pid."""

    def __init__(self, words, env, name, **popen):
        self.words, self.name = words, name
        self._out = tempfile.TemporaryFile("w+b")
        self.started = time.monotonic()
        self._child = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=self._out, stderr=subprocess.STDOUT,
                                       env=env, **popen)  # fmt: skip
        self.pid = self._child.pid

    def output(self):
        return os.pread(self._out.fileno(), 1 << 24, 0).decode(errors="replace")

    @property
    def status(self):
        """None while it runs."""
        return self._child.poll()

    def wait(self, seconds, what="did not end"):
        """Its exit status; a Failure if it still runs after so many seconds."""
        try:
            return self._child.wait(seconds * PATIENCE)
        except subprocess.TimeoutExpired:
            raise Failure(f"{self.name} {what} within {seconds * PATIENCE:g} s\n{self.said()}") from None

    def must_end_well(self, seconds, statuses=(0,)):
        status = self.wait(seconds)
        check(status in statuses, f"{self.name}: exit status {status}\n{self.said()}")

    def said(self):
        return f"    $ {' '.join(self.words)}\n{tail(self.output())}"

    def send(self, number):
        if self.status is None:
            os.kill(self.pid, number)

    def end(self, patience=2):
        self.send(signal.SIGTERM)
        try:
            self._child.wait(patience)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()

    def close(self):
        self.end()
        self._out.close()


def check_streams(name, processes):
    """Streams between processes of one host went through what is tested: shared memory, or TCP."""
    local = sum(d["local_streams"] for p in processes for d in p["devices"])
    check((local > 0) == LOCAL, f"{name}: {local} streams through shared memory")


class Run:
    """What is left of a server and its client: their output and EtherWARP's counters of the two."""

    def __init__(self, server, client, processes):
        self.server, self.client, self.processes = server.output(), client.output(), processes

    def total(self, counter):
        return sum(d[counter] for p in self.processes for d in p["devices"])

    def octets(self):
        return max(self.total("tx_octets"), self.total("rx_octets"))

    def check_path(self, name, least, terminates=False, processes=2):
        """At least so many octets went over EtherWARP, and nothing broke on the way."""
        check(len(self.processes) >= processes and self.octets() >= least,
              f"{name}: EtherWARP's counters show {self.octets()} octets and {len(self.processes)} processes, not the "
              f"{least} of {processes} that there must be")  # fmt: skip
        for counter in ("crc_errors", "terminates_sent", "terminates_received"):
            check(self.total(counter) == 0 or (terminates and counter.startswith("term")),
                  f"{name}: {self.total(counter)} {counter}")  # fmt: skip
        if LOCAL and self.total("connections") > 0:
            check_streams(name, self.processes)


class Child:
    """A program that does what its input says, and says what it did."""

    def __init__(self, rig, namespace, *words):
        self._child = subprocess.Popen(rig.words(list(words), netns=namespace), stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE, text=True, env=rig.env)  # fmt: skip
        self.pid = self._child.pid

    def tell(self, *lines):
        self._child.stdin.write("".join(line + "\n" for line in lines))
        self._child.stdin.flush()

    def hear(self, word):
        """The lines up to this one."""
        lines = []
        for line in self._child.stdout:
            if line.strip() == word:
                return lines
            lines.append(line.strip())
        raise Failure(f"a process ended, status {self._child.wait()}: no word '{word}'")


class Rig:
    """Starts programs under `etherwarp run` and cleans up after them."""

    def __init__(self, build=BUILD):
        self.etherwarp = str(build / "bin" / "etherwarp")
        if not os.access(self.etherwarp, os.X_OK):
            raise Failure(f"no {self.etherwarp}: build first, or set EWARP_BUILD to the build directory")
        self.rundir = tempfile.mkdtemp(prefix="ewarp-system-")  # mode 0700
        self._children, self._namespaces = [], []
        # What the caller's shell sets must not decide what is tested.
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("ETHERWARP_") and k != "LD_PRELOAD"}
        self.env["ETHERWARP_RUNDIR"] = self.rundir
        self.env["TMPDIR"] = self.folder("temporary")
        if not LOCAL:
            self.env["ETHERWARP_LOCAL"] = "off"
        self._reports = None
        if SANITIZER_RUNTIME:
            self._reports = tempfile.mkdtemp(prefix="ewarp-sanitizer-")
            self.env |= self.sanitizer(build)

    # Sanitizers.

    def sanitizer(self, build):
        """What lets a provider that was built with a sanitizer into any program, and makes it write reports."""
        common = f"log_path={self._reports}/report"
        return {
            # The run-time library insists on being the first, so that its malloc() is everybody's: `etherwarp run` leaves
            # a list alone that has the preload library already.
            "LD_PRELOAD": f"{SANITIZER_RUNTIME}:{build / 'lib' / 'libetherwarp-preload.so'}",
            # Debian's programs end without freeing what they have, and librdmacm frees nothing of its own at the end.
            "ASAN_OPTIONS": f"{common}:detect_leaks=0",
            "UBSAN_OPTIONS": f"{common}:print_stacktrace=1",
            # What libibverbs and librdmacm order by atomics of their own is unseen: only accesses of ours are compared.
            # Devices are opened in forked children, which start threads there.
            "TSAN_OPTIONS": f"{common}:ignore_noninstrumented_modules=1:die_after_fork=0",
        }

    def leaks_are_errors(self):
        """For a program of our own: what is left at its end, and nobody points to, is reported."""
        if not SANITIZER_RUNTIME:
            return {}
        return {"ASAN_OPTIONS": self.env["ASAN_OPTIONS"].replace("detect_leaks=0", "detect_leaks=1")}

    def check_reports(self):
        for report in sorted(pathlib.Path(self._reports).iterdir()) if self._reports else ():
            raise Failure(f"a sanitizer reports\n{tail(report.read_text(errors='replace'), 60)}")

    # Processes.

    def words(self, words, options=(), netns=None, wrap=()):
        inside = ["ip", "netns", "exec", netns] if netns else []
        return [*inside, *wrap, self.etherwarp, "run", "--stats-keep", *options, "--", *map(str, words)]

    def start(self, words, options=(), netns=None, env=None, name=None, wrap=(), **popen):
        """Under `etherwarp run`; the pid is the program's own, as every program in between replaces itself."""
        return self.start_plain(self.words(words, options, netns, wrap), env, name or str(words[0]), **popen)

    def start_plain(self, words, env=None, name=None, **popen):
        process = Process([str(w) for w in words], {**self.env, **(env or {})}, name or str(words[0]), **popen)
        self._children.append(process)
        return process

    def start_server(self, words, port, seconds=15, **how):
        """Started, and listening on the port."""
        name = how.pop("name", f"{words[0]} (server)")
        server = self.start(words, name=name, **how)
        wait_until(lambda: server.status is not None or listens(server.pid, port), seconds,
                   lambda: f"{server.name} does not listen on port {port}\n{server.said()}")  # fmt: skip
        check(server.status is None, f"{server.name} ended at once: status {server.status}\n{server.said()}")
        return server

    def run(self, words, seconds=20, **how):
        """To its end, which must be a good one; its output."""
        process = self.start(words, **how)
        process.must_end_well(seconds)
        return process.output()

    def pair(self, name, server, client, port, least, seconds=60, server_how=None, client_how=None, server_ends=True,
             client_status=(0,), server_status=(0,), terminates=False, processes=2, quiet=False):  # fmt: skip
        """A server and its client to their good ends over EtherWARP, with at least so many octets one way or the other.

        terminates: the tool may end a stream while messages without a receive are under way.
        processes: of how many counters must be left (a server that forks moves nothing itself).
        """
        with contextlib.nullcontext() if port >= FIRST_PORT else alone_on(port):
            began = time.monotonic()
            serving = self.start_server(server, port, name=f"{name}: server", **(server_how or {}))
            asking = self.start(client, name=f"{name}: client", **(client_how or {}))
            try:
                asking.must_end_well(seconds, client_status)
            except Failure as e:
                raise Failure(f"{e}\n{serving.name}:\n{serving.said()}") from None
            if server_ends:
                serving.must_end_well(20, server_status)
            else:
                serving.end()
            run = Run(serving, asking, self.ended())
            run.check_path(name, least, terminates, processes)
            for process in (serving, asking):
                self.forget(process)
            if not quiet:
                print(f"  {name}: {run.octets()} octets over EtherWARP, {time.monotonic() - began:.1f} s", flush=True)
            return run

    def ended(self):
        """EtherWARP's counters of the programs that ended since the last question."""
        processes = [p for p in self.stat("--ended") if p["ended"]]
        for p in processes:
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(self.rundir, str(p["pid"])))
        return processes

    def counters(self, pid):
        """Those of a running program, or None."""
        return next((p for p in self.stat() if p["pid"] == pid), None)

    def octets(self, pid):
        """Sent and received so far by a running program."""
        return self.octets_of_all().get(pid, 0)

    def octets_of_all(self):
        """The same by process id."""
        return {p["pid"]: sum(d["tx_octets"] + d["rx_octets"] for d in p["devices"]) for p in self.stat()}

    def stat(self, *arguments):
        done = subprocess.run([self.etherwarp, "stat", "--json", *arguments], env=self.env, capture_output=True,
                              text=True, timeout=20 * PATIENCE, check=False)  # fmt: skip
        check(done.returncode == 0, f"etherwarp stat: {done.stderr}")
        return json.loads(done.stdout)

    def forget(self, process):
        process.close()
        self._children.remove(process)

    def folder(self, name):
        """A new folder. Two jobs of Open MPI that begin at a time need one each as TMPDIR: it makes a folder there of
        which the second says 'File exists'."""
        path = os.path.join(self.rundir, name)
        os.mkdir(path)
        return path

    def end_children(self):
        for process in self._children:
            process.close()
        self._children.clear()

    # Network namespaces.

    def namespace(self, word):
        """A network namespace of its own with its loopback up; removed by close()."""
        need("ip")
        name = f"ewt{os.getpid()}{word}"
        done = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Skip(f"no network namespaces for us here: {done.stderr.strip()}")
        self._namespaces.append(name)
        self.ip("-n", name, "link", "set", "lo", "up")
        return name

    def ip(self, *words):
        done = subprocess.run(["ip", *map(str, words)], capture_output=True, text=True, check=False)
        check(done.returncode == 0, f"ip {' '.join(map(str, words))}: {done.stderr.strip()}")

    def veth(self, one, other):
        """Joins two namespaces: ew0 in each, 10.99.0.1 and .2, fd99::1 and ::2."""
        try:
            self.ip("link", "add", "ew0", "netns", one, "type", "veth", "peer", "name", "ew0", "netns", other)
        except Failure as e:
            raise Skip(f"no veth devices here: {e}") from e
        for number, name in enumerate((one, other), 1):
            self.ip("-n", name, "addr", "add", f"10.99.0.{number}/24", "dev", "ew0")
            # nodad: an address on probation cannot be bound
            self.ip("-n", name, "addr", "add", f"fd99::{number}/64", "dev", "ew0", "nodad")
            self.ip("-n", name, "link", "set", "ew0", "up")
        self.wait_for_link(one, other)

    def lan(self, count):
        """So many namespaces on one bridge, itself in a namespace: ew0 in each, 10.99.0.1 and up; their names, which end in
        their numbers."""
        switch = self.namespace("s")
        self.ip("-n", switch, "link", "add", "br0", "type", "bridge")
        self.ip("-n", switch, "link", "set", "br0", "up")
        names = []
        for number in range(1, count + 1):
            name = self.namespace(f"h{number}")
            self.ip("link", "add", "ew0", "netns", name, "type", "veth", "peer", "name", f"port{number}", "netns", switch)
            self.ip("-n", switch, "link", "set", f"port{number}", "master", "br0", "up")
            self.ip("-n", name, "addr", "add", f"10.99.0.{number}/24", "dev", "ew0")
            self.ip("-n", name, "link", "set", "ew0", "up")
            names.append(name)
        self.wait_for_link(*names)
        return names

    def wait_for_link(self, *namespaces):
        """Until ew0 runs in each: after both ends are up the kernel takes its time to say so."""
        for name in namespaces:
            wait_until(lambda name=name: "state UP" in subprocess.run(["ip", "-n", name, "link", "show", "ew0"],
                       capture_output=True, text=True, check=False).stdout, 10, "the veth pair does not come up")  # fmt: skip

    def end_namespaces(self):
        for name in self._namespaces:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
        self._namespaces.clear()

    def close(self):
        self.end_children()
        self.end_namespaces()
        shutil.rmtree(self.rundir, ignore_errors=True)
        if self._reports:
            shutil.rmtree(self._reports, ignore_errors=True)


def machine():
    """What the machine had left, for who reads of a failure elsewhere."""
    def read(path):
        return pathlib.Path(path).read_text(encoding="ascii").strip()

    fields = dict(re.findall(r"^(\w+): +(\d+)", read("/proc/meminfo"), re.M))
    said = [f"{name} {int(fields[name]) >> 10} MiB" for name in ("MemTotal", "MemAvailable", "Committed_AS", "CommitLimit")]
    said.append(f"overcommit_memory {read('/proc/sys/vm/overcommit_memory')}")
    group = pathlib.Path("/sys/fs/cgroup", read("/proc/self/cgroup").split("::")[-1].lstrip("/"))
    said += [f"{name} {read(group / name)}" for name in ("memory.max", "memory.current", "pids.max") if (group / name).exists()]
    return ", ".join([*said, f"load {os.getloadavg()[0]:.1f}"])


def say_where_it_waits():
    print(f"== not ended after {ENDS:.0f} s; where it is, what runs, and what that waits for:", flush=True)
    faulthandler.dump_traceback(sys.stdout)
    subprocess.run([sys.executable, RUNNING, str(os.getpid())], check=False)
    os.kill(os.getpid(), signal.SIGTERM)


def main(*tests):
    """Runs the functions (all, or those named on the command line) each with a rig of its own; the exit status."""
    parser = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__)
    parser.add_argument("tests", nargs="*", metavar="TEST", help=", ".join(t.__name__ for t in tests))
    chosen = parser.parse_args().tests
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the rigs are taken down
    if ENDS > 0:
        watch = threading.Timer(ENDS, say_where_it_waits)
        watch.daemon = True
        watch.start()
    failed, skipped, ran = [], [], 0
    for test in tests:
        if chosen and test.__name__ not in chosen:
            continue
        print(f"{test.__name__}: {(test.__doc__ or '').strip().splitlines()[0]}", flush=True)
        rig, began = None, time.monotonic()
        try:
            rig = Rig()
            test(rig)
            rig.check_reports()
            ran += 1
            print(f"  ok, {time.monotonic() - began:.1f} s", flush=True)
        except Skip as e:
            skipped.append(test.__name__)
            print(f"  SKIPPED: {e}", flush=True)
        except (Failure, OSError, subprocess.SubprocessError) as e:
            failed.append(test.__name__)
            print(f"  FAILED: {e}\n  the machine: {machine()}", flush=True)
        finally:
            if rig:
                rig.close()
    for word, names in (("failed", failed), ("skipped", skipped)):
        if names:
            print(f"{word}: {', '.join(names)}")
    sys.exit(1 if failed else SKIPPED if skipped and ran == 0 else 0)
