# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Progress without the application's help, and what is left behind: processes that sleep, idle, reconnect and fork."""
import contextlib
import os
import re
import select
import signal

from harness import BUILD, FULL, Failure, check, check_possessions, free_port, listens, main, wait_until

SLEEPER = BUILD / "bin" / "ewarp_sleeper"
COMPUTING = BUILD / "bin" / "ewarp_computing"
BLOCK = 64 << 10


def roles(rig, server, client, *arguments, least, **how):
    """Two roles of the sleeper to their good ends; the run."""
    port = free_port()
    words = [[SLEEPER, role, port, *arguments] for role in (server, client)]
    return rig.pair(f"{server}, {client}", *words, port, least, **how)


def served_while_asleep(rig):
    """An RDMA Write and two Reads of 64 KiB run from end to end while the target's only thread is in nanosleep()."""
    for options in ((), ("--no-io-uring",)):
        how = {"options": options}
        run = roles(rig, "target", "initiator", least=2 * BLOCK, server_how=how, client_how=how)
        at = {word: int(time) for word, time in re.findall(r"^(\w+) (\d+)$", run.server + run.client, re.M)}
        check(set(at) == {"asleep", "awake", "began", "done"}, f"times of {sorted(at)}:\n{run.server}{run.client}")
        began, done, awake = ((at[word] - at["asleep"]) / 1000 for word in ("began", "done", "awake"))
        check(0 < began < done < awake, f"after {began} to {done} ms of a sleep of {awake} ms")
        print(f"  served after {began:.1f} to {done:.1f} ms of a sleep of {awake:.1f} ms")


def served_while_computing(rig):
    """Reads, Writes and atomics to a process that computes, with no CPU to spare: within 5 ms. Sends wake
    no thread, nor do Writes that a poll meets, between which it computes."""
    if len(os.sched_getaffinity(0)) < 2:
        return print("  left out: the peer has no CPU of its own")
    for options in ((), ("--no-io-uring",)):
        # Where others want the CPUs, too, waiting says nothing about EtherWARP.
        for _ in range(3):
            run, medians, had = visit_computing(rig, options)
            if (had >= 90 or max(medians.values()) <= 5) and met(run) > 950:
                break
        check(max(medians.values()) <= 5 or had < 90, f"not served:\n{run.client}{run.server}")
        said = []
        for what, most in (("Sends", 0.25), ("Writes", 0.5)):
            pattern = rf"^woken (\d+) times by (\d+) {what} in (\d+) us, of which it computed or polled (\d+) %$"
            woken, came, us, of_its_cpu = map(int, re.search(pattern, run.server, re.M).groups())
            said.append(f"{woken} wake-ups by {came} {what}")
            # A Write that comes after the polls is for the thread.
            if what == "Writes" and (of_its_cpu < 95 or met(run) < 0.95 * came):
                said.append(f"not judged: {met(run)} met polls, {of_its_cpu} % of its CPU")
                continue
            # It wakes by itself once in takeover_us, however long they take.
            check(woken < most * came + us / 2500, f"{came} {what} woke the thread {woken} times in {us} us")
        print("  " + ", ".join(run.client.strip().splitlines() + said) + f"; the host had {had} % of its CPU")


def met(run):
    """Writes that were there before the visited process's polls ended."""
    return int(re.search(r"^met (\d+) times$", run.client, re.M)[1])


def visit_computing(rig, options):
    """The run; the median of each operation, in ms; what part of its CPU the visited process had, in percent."""
    port = free_port()
    run = rig.pair("computing", *([COMPUTING, role, port] for role in ("host", "visitor")), port, least=2000,
                   server_how={"options": options}, client_how={"options": options})  # fmt: skip
    medians = {name: float(ms) for name, ms in re.findall(r"^(\w+): median ([\d.]+) ms", run.client, re.M)}
    check(set(medians) == {"Read", "Write", "atomic"}, f"no times:\n{run.client}")
    return run, medians, int(re.search(r"^computed (\d+) % of the time$", run.server, re.M)[1])


def idle_connections_cost_nothing(rig):
    """100 connected queue pairs without traffic: less than 1 % of a CPU on each side."""
    for options in ((), ("--no-io-uring",)):
        how = {"options": options}
        run = roles(rig, "idle-server", "idle-client", 100, 5 if FULL else 3, least=100, server_how=how, client_how=how)
        for side, report in (("server", run.server), ("client", run.client)):
            used = [float(p) for p in re.findall(r"^100 connections idle: ([\d.]+) % of a CPU$", report, re.M)]
            check(used and used[-1] < 1, f"idle, the {side} took {used} % of a CPU in period after period")
            print(f"  {side}: {used[-1]} % of a CPU")


def nothing_is_left_after_1000_connects(rig):
    """1000 times connect, a Send each way, disconnect: fds and threads as after 10, memory as after 200."""
    run = roles(rig, "churn-server", "churn-client", 1000, 0, least=1000, seconds=120)
    check(run.total("connections") == 2000, f"{run.total('connections')} connections, not 1000 on each side")
    for side, text in (("server", run.server), ("client", run.client)):
        check_possessions(side, text, 1000)


def fork_and_exec(rig):
    """Children that exit, exec or sleep do not disturb a connection, nor keep it up when their parent is killed."""
    port = free_port()
    forker = rig.start_server([SLEEPER, "forker", port], port)
    companion = rig.start([SLEEPER, "companion", port], name="companion")
    wait_until(lambda: "children" in forker.output() or None not in (forker.status, companion.status), 30,
               lambda: f"no messages or no children\n{forker.said()}\n{companion.said()}")  # fmt: skip
    check(companion.status is None and forker.status is None, f"an early end\n{forker.said()}\n{companion.said()}")
    with contextlib.ExitStack() as at_end:
        children = []
        for pid in re.search(r"^children (\d+) (\d+)$", forker.output(), re.M).groups():
            children.append(os.pidfd_open(int(pid)))
            at_end.callback(end_child, children[-1])
        forker.send(signal.SIGKILL)
        try:
            companion.must_end_well(10)
        except Failure as e:
            raise Failure(f"the peer of a killed process with living children: {e}") from None
        # It may outlive its process by moments: the kernel takes down an io_uring, which knows it, in the background.
        wait_until(lambda: not listens("self", port), 5, "a child keeps the listening socket of its killed parent")
        check(not select.select(children, [], [], 0)[0], "the children did not live long enough to prove anything")
    said = re.search(r"^(\d+) messages, then (\w+)$", companion.output(), re.M)
    check(said and int(said[1]) >= 800 and said[2] == "RDMA_CM_EVENT_DISCONNECTED", f"no good end\n{companion.said()}")
    print(f"  {said[1]} messages around three forks and a spawn; then {said[2]}, while the children lived")


def end_child(pidfd):
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    os.close(pidfd)


if __name__ == "__main__":
    main(served_while_asleep, served_while_computing, idle_connections_cost_nothing, nothing_is_left_after_1000_connects, fork_and_exec)
