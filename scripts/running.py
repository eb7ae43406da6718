#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Which processes came from process PID, and what each of their threads waits for: where a run hangs.

usage: running.py PID
       running.py --end-after SECONDS PID    waits so long, prints them, and ends PID and all of them

A line for each process: its id, its parent's, seconds since its start, its command; below it, for each state of its threads and
kernel function in which they wait, how many there are and the names of some. Linux names that function to root only.
With --end-after: SIGTERM first, SIGKILL to what is left after ten seconds. It ends without a word when PID has ended before.
"""

import collections
import os
import pathlib
import signal
import sys
import time

LONGEST = 160  # characters of a command


def read(path):
    try:
        return pathlib.Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:  # it has ended
        return ""


def fields(pid):
    """Those of /proc/PID/stat behind the name (state, parent, ...); none: there is no such process."""
    return read(f"/proc/{pid}/stat").rpartition(")")[2].split()


def alive(pid):
    return (fields(pid) or ["Z"])[0] != "Z"


def family(pid):
    """pid and what came from it, each right before its children."""
    children = collections.defaultdict(list)
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        if of := fields(folder.name):
            children[int(of[1])].append(int(folder.name))
    out, left = [], [pid]
    while left:
        out.append(left.pop())
        left += sorted(children[out[-1]], reverse=True)
    return out


def describe(pid):
    """The lines about one process; none if it has ended."""
    of = fields(pid)
    if not of:
        return []
    seconds = float(read("/proc/uptime").split()[0]) - int(of[19]) / os.sysconf("SC_CLK_TCK")
    command = read(f"/proc/{pid}/cmdline").replace("\0", " ").strip() or f"[{read(f'/proc/{pid}/comm').strip()}]"
    threads = collections.defaultdict(list)
    for thread in pathlib.Path(f"/proc/{pid}/task").glob("*"):
        state = (fields(f"{pid}/task/{thread.name}") or ["?"])[0]
        threads[state, read(thread / "wchan").strip("0") or "-"].append(read(thread / "comm").strip())
    return [f"{pid:7} {of[1]:>7} {seconds:7.0f} s  {command[:LONGEST]}",
            *(f"{'':27}{len(names)} {state} {where}: {', '.join(names[:4])}" for (state, where), names in sorted(threads.items()))]


def show(pid):
    for one in family(pid):
        if one != os.getpid():
            print(*describe(one), sep="\n", flush=True)


def end(pid):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # who ends tells what runs beside it
    ours = [one for one in family(pid) if one != os.getpid()]
    for what in (signal.SIGTERM, signal.SIGKILL):
        for one in filter(alive, ours):
            try:
                os.kill(one, what)
            except ProcessLookupError:
                pass
        until = time.monotonic() + 10
        while any(map(alive, ours)) and time.monotonic() < until:
            time.sleep(0.1)


def main():
    words = sys.argv[1:]
    if len(words) == 1 and words[0].isdigit():
        return show(int(words[0]))
    if len(words) != 3 or words[0] != "--end-after" or not words[2].isdigit():
        sys.exit(__doc__)
    seconds, pid = float(words[1]), int(words[2])
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if not alive(pid):
            return None
        time.sleep(min(1.0, seconds))
    print(f"== not ended after {seconds:.0f} s; what runs, and what it waits for:", flush=True)
    show(pid)
    return end(pid)


if __name__ == "__main__":
    main()
