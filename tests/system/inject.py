#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Fails the system calls and allocations of EtherWARP one by one, during a session of RC, UD, RD, rdma_cm or MPI.

A session is ewarp_inject_session: three standard sessions in one process. It is run once for a list of points: where
EtherWARP calls the system (by ewarp_inject_calls) or asks for memory (by libewarp_inject_allocations.so), and how often.
Then it is run once for each point, which fails there once. Good is: all of its answers are right, at most one of its
three sessions stops with an error, it ends in time, no descriptor is left, and no signal ends it.

A session of MPI is a job of two ranks. Its first one is what fails. Good is: the job ends in time, with all of its answers
right or with an error of MPI, no check of a rank fails, and no signal ends one.

    inject.py                     a sample of --points points of each kind of session, the same for the same build: spread
                                  evenly over calls and allocations, and over the places where they are made
    inject.py --full              all points, with every error that each call can give; --seconds ends it earlier. The
                                  first time that each place is reached comes first, then the second
    inject.py --point KIND:POINT  one of them, as a finding names it
"""
import argparse
import bisect
import collections
import concurrent.futures
import errno
import os
import re
import subprocess
import sys
import tempfile
import time
import zlib

from harness import BUILD, PATIENCE, SKIPPED, Failure, Rig, Skip, tail
from mpi_jobs import as_anybody, suite

KINDS = ("rc", "ud", "rd", "cm", "mpi")
MODULES = ("libetherwarp-rdmav34.so", "libfabric/libetherwarp-fi.so")  # whose calls are failed
NO_NOTIFICATION = 120  # exit status of ewarp_inject_calls

# What a step waits for at most is far below the watchdog's limit, and far above what a busy machine takes for it.
OPTIONS = {"CONNECT_TIMEOUT_MS": 6000, "REPLY_TIMEOUT_MS": 6000, "BRING_UP_TIMEOUT_MS": 6000, "REQUEST_TIMEOUT_MS": 6000,
           "RTR_TIMEOUT_MS": 6000, "CLOSE_TIMEOUT_MS": 500}  # fmt: skip
WATCHDOG_S = 90

# Name and errors of each system call (x86-64): those of its manual page that a machine can give to a correct caller.
CALLS = {
    0: ("read", "EINTR EIO"), 1: ("write", "EINTR EAGAIN"), 4: ("stat", "ENOENT ENOMEM"), 5: ("fstat", "ENOMEM"),
    7: ("poll", "EINTR ENOMEM"), 9: ("mmap", "ENOMEM"), 10: ("mprotect", "ENOMEM"), 12: ("brk", "ENOMEM"),
    17: ("pread64", "EIO"), 19: ("readv", "ECONNRESET"), 20: ("writev", "EPIPE"),
    21: ("access", "ENOENT"), 25: ("mremap", "ENOMEM"), 27: ("mincore", "ENOMEM"), 28: ("madvise", "ENOMEM EINVAL"),
    32: ("dup", "EMFILE"), 33: ("dup2", "EMFILE"), 35: ("nanosleep", "EINTR"), 41: ("socket", "EMFILE ENOBUFS EAFNOSUPPORT"),
    42: ("connect", "ENETUNREACH EADDRNOTAVAIL ECONNREFUSED"), 43: ("accept", "EMFILE ECONNABORTED"),
    44: ("sendto", "ENOBUFS ECONNRESET"), 45: ("recvfrom", "ENOMEM ECONNRESET EINTR"),
    46: ("sendmsg", "ENOBUFS ECONNRESET EINTR"), 47: ("recvmsg", "ENOMEM ECONNRESET EINTR"), 48: ("shutdown", "ENOTCONN"),
    49: ("bind", "EADDRINUSE ENOMEM"), 50: ("listen", "EADDRINUSE"), 51: ("getsockname", "ENOBUFS"),
    52: ("getpeername", "ENOTCONN"), 53: ("socketpair", "EMFILE"), 54: ("setsockopt", "ENOMEM ENOPROTOOPT"),
    55: ("getsockopt", "ENOPROTOOPT"), 56: ("clone", "EAGAIN"), 72: ("fcntl", "EMFILE"), 73: ("flock", "EINTR"),
    77: ("ftruncate", "EINTR"), 82: ("rename", "ENOSPC"), 83: ("mkdir", "EACCES ENOSPC"), 87: ("unlink", "EACCES"),
    89: ("readlink", "ENOENT"), 149: ("mlock", "ENOMEM"), 204: ("sched_getaffinity", "EINVAL"),
    203: ("sched_setaffinity", "EINVAL"), 217: ("getdents64", "ENOMEM"), 230: ("clock_nanosleep", "EINTR"),
    232: ("epoll_wait", "EINTR"), 233: ("epoll_ctl", "ENOMEM ENOSPC"), 257: ("openat", "EMFILE ENOENT EACCES"),
    258: ("mkdirat", "EACCES"), 262: ("newfstatat", "ENOMEM"), 263: ("unlinkat", "EACCES"), 267: ("readlinkat", "ENOENT"),
    271: ("ppoll", "EINTR ENOMEM"), 281: ("epoll_pwait", "EINTR"), 283: ("timerfd_create", "EMFILE"),
    285: ("fallocate", "ENOSPC"), 286: ("timerfd_settime", "EINVAL"), 288: ("accept4", "EMFILE ECONNABORTED ENOMEM"),
    290: ("eventfd2", "EMFILE"), 291: ("epoll_create1", "EMFILE"), 292: ("dup3", "EMFILE"), 293: ("pipe2", "EMFILE"),
    299: ("recvmmsg", "ENOMEM EINTR"), 302: ("prlimit64", "EPERM"), 307: ("sendmmsg", "ENOBUFS EPERM EINTR"),
    310: ("process_vm_readv", "EPERM"), 311: ("process_vm_writev", "EPERM"), 318: ("getrandom", "EAGAIN"),
    319: ("memfd_create", "EMFILE"), 323: ("userfaultfd", "EPERM"), 332: ("statx", "ENOMEM"),
    425: ("io_uring_setup", "EMFILE ENOMEM EPERM"), 426: ("io_uring_enter", "EINTR EAGAIN ENOMEM"),
    427: ("io_uring_register", "ENOMEM EPERM"), 435: ("clone3", "EAGAIN"), 439: ("faccessat2", "ENOENT"),
    441: ("epoll_pwait2", "EINTR"),
}  # fmt: skip

# A point of a session: call is the number of a system call, or "malloc"; where: module and offset; the n-th time.
Point = collections.namedtuple("Point", "kind call where n error")


def text_of(point):
    name = "malloc" if point.call == "malloc" else CALLS[int(point.call)][0]
    return f"{point.kind}:{point.call}:{point.where}:{point.n}:{point.error}   ({name})"


def allocator(module):
    """Where in it operator new lies, and what that calls: 'FROM-TO ' each. Nothing is known of a stripped module."""
    done = subprocess.run(["nm", "-C", "-S", module], capture_output=True, text=True, check=False)
    ranges = ""
    for line in done.stdout.splitlines():
        words = line.split(" ", 3)
        if len(words) == 4 and words[3].startswith(("operator new", "ewarp::verbs::shortage::allocate")):
            ranges += f"{int(words[0], 16):x}-{int(words[0], 16) + int(words[1], 16):x} "
    return ranges


class Names:
    """The functions of modules, so that a sample stays the same where other functions change: a place in the code is known
    by its function and its turn in it."""

    def __init__(self, modules):
        self._functions = {}
        for module in modules:
            done = subprocess.run(["nm", "-C", module], capture_output=True, text=True, check=False)
            found = [line.split(" ", 2) for line in done.stdout.splitlines() if line[:1] != " "]
            self._functions[module.name] = sorted((int(at, 16), name) for at, kind, name in found if kind in "tTwW")

    def function(self, where):
        module, _, offset = where.partition("+")
        functions = self._functions.get(module, [])
        at = bisect.bisect_right(functions, (int(offset, 16), "\x7f")) - 1
        return functions[at][1] if at >= 0 else module

    def of_places(self, places):
        """{(call, where): name} of all places of a session."""
        by_function = collections.defaultdict(list)
        for call, where in sorted(places, key=lambda place: (place[0], int(place[1].partition("+")[2], 16))):
            by_function[call, self.function(where)].append(where)
        return {(call, where): f"{call}:{function}:{turn}" for (call, function), wheres in by_function.items()
                for turn, where in enumerate(wheres)}  # fmt: skip


def spread(points, each, names):
    """So many points of each kind of session, of MPI a quarter of that, as a job takes so long; half of them allocations; no two
    of the same place. Their order is that of a checksum of their names, so that a place that comes or goes displaces one
    other at most."""
    groups = collections.defaultdict(lambda: collections.defaultdict(list))
    for point in points:
        groups[point.kind, point.call == "malloc"][point.call, point.where].append(point)
    chosen = []
    for (kind, _), places in sorted(groups.items()):
        name_of = names.of_places(places)
        order = sorted(places, key=lambda place, kind=kind: zlib.crc32(f"{kind}:{name_of[place]}".encode()))
        for place in order[: each // (8 if kind == "mpi" else 2)]:
            # The first time: how often a place is reached depends on who has a CPU.
            some = [p for p in places[place] if p.n == 1]
            chosen.append(some[zlib.crc32(name_of[place].encode()) // 7 % len(some)])
    return chosen


# Of an MPI job the first rank alone runs under the injectors: $1 is how many words they are.
RANK = """n=$1; shift
if [ "$OMPI_COMM_WORLD_RANK" = 0 ]; then export LD_PRELOAD="$EWARP_INJECT_LIBRARY:$LD_PRELOAD"; else shift "$n"; fi
exec "$@"
"""


class Sessions:
    """Runs them under the two injectors, each with a run directory of its own."""

    def __init__(self, rig):
        self.rig, self.fds, self.passed = rig, {}, allocator(BUILD / "lib" / MODULES[0])

    def words(self, kind, injector):
        bin = BUILD / "bin"
        if kind == "mpi":
            return [self.rig.etherwarp, "mpirun", *as_anybody(), "-n", "2", "sh", "-c", RANK, "rank", str(len(injector)),
                    *injector, str(suite("openmpi")), "blocking"]  # fmt: skip
        most = [str(self.fds[kind])] if kind in self.fds else []
        return [self.rig.etherwarp, "run", "--", *injector, str(bin / "ewarp_inject_session"), kind, *most]

    def run(self, kind, point=None):
        """Its exit status (None: the watchdog ended it), its output, and the lines of the two reports."""
        with tempfile.TemporaryDirectory(prefix="ewarp-inject-") as folder:
            library = str(BUILD / "lib" / "libewarp_inject_allocations.so")
            env = {**self.rig.env, **{f"ETHERWARP_{k}": str(v) for k, v in OPTIONS.items()}, "ETHERWARP_RUNDIR": folder,
                   "LD_PRELOAD" if kind != "mpi" else "EWARP_INJECT_LIBRARY": library,
                   "EWARP_INJECT_REPORT": folder + "/allocations", "EWARP_INJECT_PASSED": self.passed}  # fmt: skip
            injector = [str(BUILD / "bin" / "ewarp_inject_calls"), "--report", folder + "/calls"]
            if point and point.call == "malloc":
                env["EWARP_INJECT_FAIL"] = f"malloc:{point.where}:{point.n}"
            elif point:
                injector += ["--fail", f"{point.call}:{point.where}:{point.n}:{getattr(errno, point.error)}"]
            status, output = ended(self.words(kind, injector), env)
            lines = []
            for name in ("calls", "allocations"):
                if os.path.exists(f"{folder}/{name}"):
                    with open(f"{folder}/{name}", encoding="ascii") as f:
                        lines += f.read().splitlines()
            return status, output, lines

    def points(self, kind):
        """Of a session to which nothing happens; what it leaves is what others may leave."""
        status, output, lines = self.run(kind)
        if status == NO_NOTIFICATION:
            print(f"SKIPPED: no notification of system calls here: {output.strip()}")
            sys.exit(SKIPPED)
        answers, fds, _ = answers_of(output)
        if status != 0 or (answers != ["ok"] * 3 and ALL_WELL not in output):
            raise Failure(f"a session of {kind} to which nothing happens: status {status}\n{tail(output)}")
        self.fds[kind] = fds
        found = []
        for call, where, count in (line.split() for line in lines if line != "failed"):
            errors = ["ENOMEM"] if call == "malloc" else CALLS[int(call)][1].split()
            found += [Point(kind, call, where, n, error) for n in range(1, int(count) + 1) for error in errors]
        return found

    def judge(self, point):
        """'not reached', 'survived', 'stopped ...', or 'FINDING ...'."""
        status, output, lines = self.run(point.kind, point)
        if "failed" not in lines and status == 0:
            return "not reached"
        if status is None:
            return f"FINDING: it hangs\n{tail(output)}"
        if point.kind == "mpi":
            return judge_job(status, output)
        if status != 0:
            return f"FINDING: exit status {status}\n{tail(output)}"
        answers, fds, _ = answers_of(output)
        stopped = [a for a in answers if a != "ok"]
        if len(answers) != 3 or len(stopped) > 1:
            return f"FINDING: more than one session stopped\n{tail(output)}"
        if fds > self.fds[point.kind]:
            return f"FINDING: {fds} descriptors are left, not {self.fds[point.kind]}\n{tail(output)}"
        return stopped[0] if stopped else "survived"


ALL_WELL = "all subjects ok"  # says the suite of MPI programs


# Open MPI's own faults, in its ways out of an error: it takes down a context that it has not made (4.1.4).
OPEN_MPI = ("mca_btl_ofi_context_finalize+",)


# A check of the suite that failed (tests/mpi/suite.c): a message that is another one than was sent, a status, a buffer.
# A call of MPI that failed is none, and neither is memory that the suite did not get.
WRONG = re.compile(r"\w+: rank \d+ of \d+: [\w./-]+\.[ch]:\d+: (?!.* failed \(seed|no memory: )(.*) \(seed \d+\)")


def judge_job(status, output):
    # First: whatever else went wrong is no excuse for it.
    if wrong := WRONG.search(output):
        return f"FINDING: a rank got what nobody sent: {wrong[1]}\n{tail(output, 40)}"
    if any(text in output for text in OPEN_MPI):
        return "stopped in Open MPI"
    if re.search(r"exited on signal (4|6|7|8|11)\b|Exit code: +1(32|34|35|36|39)\b", output):
        return f"FINDING: a signal ends a rank\n{tail(output, 40)}"
    if status == 0 and ALL_WELL not in output:
        return f"FINDING: the job is not done\n{tail(output, 40)}"
    return "survived" if status == 0 else f"stopped status {status}"


def ended(words, env):
    """Exit status and output of a program; the status is None if the watchdog ended it."""
    with tempfile.TemporaryFile("w+", errors="replace") as said:
        child = subprocess.Popen(words, env=env, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT)
        try:
            status = child.wait(WATCHDOG_S * PATIENCE)
        except subprocess.TimeoutExpired:
            status = None
            child.terminate()  # mpirun ends its ranks
            try:
                child.wait(10)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        said.seek(0)
        return status, said.read()


def answers_of(output):
    """What the three sessions said; descriptors and allocations that were left."""
    answers, fds, live = [], -1, -1
    for line in output.splitlines():
        first, _, rest = line.partition(" ")
        if first in ("first", "second", "third"):
            answers.append(rest)
        elif first == "fds":
            fds, live = int(line.split()[1]), int(line.split()[5])
    return answers, fds, live


def parse_point(text):
    return Point(*(int(word) if at == 3 else word for at, word in enumerate(text.split()[0].split(":"))))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--points", type=int, default=24, help="of each kind of session in the sample (%(default)s)")
    parser.add_argument("--seconds", type=float, default=0, help="no point begins after so many")
    parser.add_argument("--kind", choices=KINDS, action="append")
    parser.add_argument("--what", choices=("calls", "allocations"))
    parser.add_argument("--point", action="append", default=[])
    parser.add_argument("--jobs", type=int, default=2 * os.cpu_count(), help="sessions at once: some wait for a time-out")
    chosen = parser.parse_args()
    rig = Rig()
    try:
        sys.exit(1 if inject(Sessions(rig), chosen) else 0)
    finally:
        rig.close()


def choose(sessions, chosen):
    """The points to try, in their order; how many there are."""
    points = []
    for kind in chosen.kind or KINDS:
        try:
            points += sessions.points(kind)
        except Skip as e:
            print(f"no session of {kind}: {e}")
    if chosen.point:
        return [parse_point(text) for text in chosen.point], len(points)
    if chosen.what:
        points = [p for p in points if (p.call == "malloc") == (chosen.what == "allocations")]
    if chosen.full:
        # Of neighbours in the code one finding may be the other's: they are not neighbours in time.
        return sorted(points, key=lambda p: (p.n, zlib.crc32(text_of(p).encode()))), len(points)
    return spread(points, chosen.points, Names(BUILD / "lib" / module for module in MODULES)), len(points)


# What is said of a session that had too little time.
SLOW = ("it hangs", "sessions stopped", "descriptors are left", "never came", "no datagram", "not flushed")


def inject(sessions, chosen):
    """The number of findings."""
    points, count = choose(sessions, chosen)
    print(f"{len(points)} of {count} points", flush=True)
    until = time.monotonic() + (chosen.seconds or 1e9)
    tried, outcomes, findings = 0, collections.Counter(), 0

    def one(point):
        if time.monotonic() > until:
            return None
        outcome = sessions.judge(point)
        # On a busy machine a step may take longer than its time-out: in the sample that is a finding if it comes again.
        if not outcome.startswith("FINDING") or chosen.full or chosen.point or not any(word in outcome for word in SLOW):
            return outcome
        again = [sessions.judge(point) for _ in range(2)]
        return next((o for o in again if o.startswith("FINDING")), outcome.replace("FINDING", "ONCE", 1))

    with concurrent.futures.ThreadPoolExecutor(max(chosen.jobs, 1)) as pool:
        for point, outcome in zip(points, pool.map(one, points)):
            if outcome is None:
                continue
            tried += outcome != "not reached"
            if chosen.full and sum(outcomes.values()) % 500 == 499:
                print(f"... {tried} tried", flush=True)
            outcomes[outcome.split()[0].rstrip(":") if outcome != "not reached" else outcome] += 1
            if outcome.startswith("FINDING"):
                findings += 1
                print(f"{text_of(point)}\n  {outcome}", flush=True)
            elif chosen.point or outcome.startswith("ONCE"):
                print(f"{text_of(point)}\n  {outcome}", flush=True)
    print(f"tried {tried} points: " + ", ".join(f"{n} {what}" for what, n in sorted(outcomes.items())))
    if not chosen.seconds and tried < 0.8 * len(points):
        raise Failure("too few of the points were reached")
    return findings


if __name__ == "__main__":
    main()
