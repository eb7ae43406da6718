# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""ACP programs under `etherwarp acprun`: every call, storms, processes that are killed, memory by formula, the launcher."""
import contextlib
import json
import pathlib
import re
import socket
import struct
import time

from harness import BUILD, FULL, check, main, need, wait_until
from mpi_jobs import as_anybody

ROOT = pathlib.Path(__file__).resolve().parents[2]

MODES = ("immediate", "paper")
RD, RC = {}, {"ACP_TRANSPORT": "rc"}
HEARD_S = 5  # a process that was killed is heard of before; the network alone would take half a minute
COUNTED = str(BUILD / "lib" / "ewarp_acp_counted.so")
NO_RD = str(BUILD / "lib" / "ewarp_acp_no_rd.so")


# The paper's figure 2 as it is printed, and what it leaves to its reader.
FIGURE = r"""
acp_ch_t ch[2];
acp_request_t req[2];
int left, right;

create_proc_ring(&left, &right);

ch[0] = acp_create_ch(left, myrank);
ch[1] = acp_create_ch(myrank, right);

for (i = 0; i < 10000; i++){
    req[0]=acp_nbrecv_ch(ch[0], &lval, 8);
    req[1]=acp_nbsend_ch(ch[1], &(buf[0]), 8);
    acp_wait_ch(req[0]);
    acp_wait_ch(req[1]);
    calc(buf, lval, 100);
}

req[0] = acp_nbfree_ch(ch[0]);
req[1] = acp_nbfree_ch(ch[1]);
acp_wait_ch(req[0]);
acp_wait_ch(req[1]);
"""
AROUND = r"""
#include <acp.h>
#include <stdio.h>
static int myrank;
static void create_proc_ring(int *left, int *right) {
  *left = (myrank + acp_procs() - 1) %% acp_procs();
  *right = (myrank + 1) %% acp_procs();
}
static void calc(double *buf, double lval, int n) { for (int i = 0; i < n; i++) buf[i] += lval; }
int main(int argc, char **argv) {
  int i;
  static double buf[100], lval;
  acp_init(&argc, &argv);
  myrank = acp_rank();
  buf[0] = 1;
  %s
  printf("rank %%d: %%d\n", myrank, buf[0] > 10000);
  return acp_finalize();
}
"""


def figure(rig):
    """The paper's program compiles as it is printed, without a warning, and runs."""
    need("cc")
    source, program = pathlib.Path(rig.rundir) / "figure.c", pathlib.Path(rig.rundir) / "figure"
    source.write_text(AROUND % FIGURE, encoding="utf-8")
    words = ["cc", "-Wall", "-Wextra", "-Werror", f"-I{ROOT}/mpi_shim/acp", source, "-o", program, f"-L{BUILD}/lib", "-lewarp_acp",
             f"-Wl,-rpath,{BUILD}/lib"]  # fmt: skip
    rig.start_plain(words).must_end_well(30)
    said = job(rig, 2, program)
    check(all(f"rank {r}: 1" in said for r in range(2)), said)


def start(rig, procs, program, *words, env=None, keep=False):
    keeping = {"ETHERWARP_STATS_KEEP": "yes"} if keep else {}
    return rig.start_plain([rig.etherwarp, "acprun", "-n", procs, BUILD / "bin" / program, *words],
                           env={**keeping, **(env or {})}, name=f"{program} {' '.join(map(str, words))}")  # fmt: skip


def job(rig, procs, program, *words, env=None, seconds=60, statuses=(0,), keep=False):
    process = start(rig, procs, program, *words, env=env, keep=keep)
    process.must_end_well(seconds, statuses)
    return process.output()


def ring(rig):
    """The paper's figure 2 under eight processes; its messages go over EtherWARP, by reliable datagrams."""
    said = job(rig, 8, "acp_ring", 2000, keep=True)
    check("8 processes, 2000 rounds: right" in said, said)
    processes = rig.ended()
    check(len(processes) == 8, f"{len(processes)} processes used EtherWARP")
    for p in processes:
        check(sum(d["tx_octets"] for d in p["devices"]) > 2000 * 16, f"process {p['pid']} sent too little: {p['devices']}")


def calls(rig):
    """Every function and every error; both modes, small slots, with the thread, asleep."""
    for env in ({"MODE": "immediate"}, {"MODE": "paper"}, {"SLOT_SIZE": "16384", "SB_SLOTS": "1", "RB_SLOTS": "1"},
                {"PROGRESS_THREAD": "yes"}, {"SPIN_US": "0"}):  # fmt: skip
        said = job(rig, 3, "ewarp_acp_calls", env={f"ACP_{k}": v for k, v in env.items()}, seconds=120)
        check(said.count("all calls") == 3, said)
        print(f"  {env}")


def storm(rig):
    """Random channels, sizes and orders; each octet is compared."""
    shapes = ({}, {"SLOT_SIZE": "64"}, {"SLOT_SIZE": "512", "SB_SLOTS": "1", "RB_SLOTS": "3", "PROGRESS_THREAD": "yes"})
    for seed in range(1, 21 if FULL else 3):
        for mode in MODES:
            for shape in shapes:
                env = {f"ACP_{k}": v for k, v in {"MODE": mode, **shape}.items()}
                said = job(rig, 4, "ewarp_acp_storm", seed, 2, env=env, seconds=120)
                check("as it must be" in said, said)


def killed(rig):
    """A partner is killed in each state: an error at once, and the others go on."""
    for how in ({"ACP_MODE": "immediate"}, {"ACP_MODE": "paper"}, RC):
        for state in ("asking", "waiting", "receiving", "sending", "freeing", "half", "sync", "copy", "finalize"):
            said = job(rig, 3, "ewarp_acp_death", state, env=how, statuses=(137,))
            check("process 1 was ended by signal 9" in said, said)
            check(all(f"rank {r} ends well" in said for r in (0, 2)), said)
            heard = re.search(r"heard after ([\d.]+) s", said)
            check(state == "finalize" or float(heard[1]) < HEARD_S, said)
    said = job(rig, 3, "ewarp_acp_death", "init", statuses=(137,))
    check(said.count("init failed") == 2, said)


def connections(rig):
    """The same over reliable connections: the example, every call, storms, threads and children."""
    said = job(rig, 8, "acp_ring", 2000, env=RC, keep=True)
    check("8 processes, 2000 rounds: right" in said, said)
    for p in rig.ended():
        count, segments = sum(d["connections"] for d in p["devices"]), p["reliable"]["tx_segments"]
        check(count >= 4 and segments == 0, f"process {p['pid']}: {count} connections, {segments} segments of RD")
    for env in ({}, {"MODE": "paper", "SPIN_US": "0"}, {"SB_SLOTS": "1", "RB_SLOTS": "1", "PROGRESS_THREAD": "yes"}):
        said = job(rig, 3, "ewarp_acp_calls", env={**RC, **{f"ACP_{k}": v for k, v in env.items()}}, seconds=120)
        check(said.count("all calls") == 3, said)
    for mode in MODES:
        said = job(rig, 4, "ewarp_acp_storm", 1, 2, env={**RC, "ACP_MODE": mode, "ACP_SLOT_SIZE": "64"}, seconds=120)
        check("as it must be" in said, said)
    for subject in ("both", "many", "fork", "exit"):
        said = job(rig, 2, "ewarp_acp_threads", subject, env={**RC, "ACP_SPIN_US": "0"}, seconds=120)
        check(said.count("over") == 2, f"{subject}: {said}")


def apart(rig):
    """Refused accesses, a process that makes no call, one that is stopped: whom it concerns, and nobody else."""
    for transport in (RD, RC):
        for subject in ("refused", "computes", "stopped"):
            said = job(rig, 2, "ewarp_acp_apart", subject, env=transport)
            check(said.count("over") == 2, f"{subject}, {transport}: {said}")


def choice(rig):
    """RC where there is no RD; a device that cannot serve; processes that have chosen differently."""
    ordinary = {"LD_PRELOAD": NO_RD}
    check("4 processes, 5 rounds: right" in job(rig, 4, "acp_ring", 5, env=ordinary), "no fallback")
    said = job(rig, 2, "acp_ring", 5, env={**ordinary, "ACP_TRANSPORT": "rd"}, statuses=(1,))
    check("has no reliable datagrams" in said, said)
    said = job(rig, 2, "acp_ring", 5, env={**ordinary, "ACP_DEVICE": "nobody"}, statuses=(1,))
    check("no RDMA device nobody" in said and "by reliable connections: no RDMA device nobody" in said, said)
    check("right" in job(rig, 2, "acp_ring", 5, env={**RC, "ACP_DEVICE": "ewarp_lo"}), "not by name")
    script = f"[ $ACP_RANK = 0 ] || export ACP_TRANSPORT=rc; exec {BUILD}/bin/acp_ring 5"
    process = rig.start_plain([rig.etherwarp, "acprun", "-n", 2, "sh", "-c", script])
    process.must_end_well(20, (1,))
    check("rank 1 and this one have not the same transport; ACP_TRANSPORT" in process.output(), process.said())


def threads(rig):
    """Several threads, children by fork(), programs that end without acp_finalize(): with and without the thread, asleep."""
    for env in ({}, {"PROGRESS_THREAD": "yes"}, {"SPIN_US": "0"}, {"MODE": "paper", "SPIN_US": "0"}):
        for subject in ("both", "many", "fork", "exit"):
            said = job(rig, 2, "ewarp_acp_threads", subject, env={f"ACP_{k}": v for k, v in env.items()}, seconds=120)
            check(said.count("over") == 2, f"{subject}, {env}: {said}")


def counted(rig, procs, *words, **options):
    env = {"LD_PRELOAD": COUNTED, **{f"ACP_{k.upper()}": str(v) for k, v in options.items()}}
    said = job(rig, procs, "ewarp_acp_memory", *words, env=env, seconds=300)
    return [json.loads(line) for line in said.splitlines() if line.startswith("{")]


def channel_memory(rig):
    """Tables II and III: a sender takes at most 168 + SB (slot + 16) octets, a receiver 160 + RB slot."""
    for slot in (4096, 16384, 65536, 262144, 1048576):
        for slots in (2, 4, 8):
            rows = {r["what"]: r["octets"] for r in counted(rig, 2, slot_size=slot, sb_slots=slots, rb_slots=slots)}
            check(0 < rows["sender"] <= 168 + slots * (slot + 16), f"slot {slot}, {slots}: sender {rows['sender']}")
            check(0 < rows["receiver"] <= 160 + slots * slot, f"slot {slot}, {slots}: receiver {rows['receiver']}")


def check_process_memory(row):
    most = 2 * 2**20 + 176 * row["procs"]
    check(row["most"] <= most, f"{row['procs']} processes: {row['most']} octets, not {most} at most")
    print(f"  {row['procs']} processes: {row['most']} octets at most, resident {row['resident_kib']} KiB")


def most_processes():
    """1000 take 2 GB; with less memory, fewer."""
    with open("/proc/meminfo", encoding="ascii") as f:
        kib = int(re.search(r"MemAvailable: +(\d+) kB", f.read())[1])
    return 1000 if kib > 4 << 20 else 200


def process_memory(rig):
    """Table I: at most 2 MiB + 176 octets for each process of the job; a ring of so many processes."""
    most = most_processes()
    for procs in (2, 32, most):
        rows = [r for r in counted(rig, procs, "table") if r["what"] == "init"]
        check(len(rows) == procs, f"{len(rows)} reports of {procs}")
        check_process_memory(max(rows, key=lambda r: r["most"]))
    said = job(rig, most, "acp_ring", 20, seconds=300)
    check(f"{most} processes, 20 rounds: right" in said, said)
    rows = [r for r in counted(rig, 32, "table", transport="rc") if r["what"] == "init"]
    check_process_memory(max(rows, key=lambda r: r["most"]))


def take(connection, octets):
    got = b""
    while len(got) < octets:
        more = connection.recv(octets - len(got))
        check(more, "the process closed its connection")
        got += more
    return got


@contextlib.contextmanager
def coordinator():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.settimeout(30)
        yield listener


def many_processes(rig):
    """Table I on: one process that is told of 1000, and of a million; this script plays the coordinator."""
    for procs in (1000, 1000000):
        with coordinator() as listener:
            env = {"ACP_RANK": "5", "ACP_PROCS": str(procs), "ACP_SECRET": "0" * 32, "LD_PRELOAD": COUNTED,
                   "ACP_ROOT": f"127.0.0.1:{listener.getsockname()[1]}"}  # fmt: skip
            words = [rig.etherwarp, "run", "--", str(BUILD / "bin" / "ewarp_acp_memory"), "table"]
            process = rig.start_plain(words, env=env, name=f"one of {procs}")
            connection, _ = listener.accept()
            connection.settimeout(60)
            word, rank = struct.unpack("<II", take(connection, 8))
            version, told, secret, contact = struct.unpack("<II32s32s", take(connection, 72))
            check((word, rank, version, told, secret) == (1, 5, 2, procs, b"0" * 32), f"hello: {word, rank, version, told}")
            connection.sendall(struct.pack("<II", 2, procs) + contact * procs)
            check(take(connection, 8) == struct.pack("<II", 4, 0), "no arrival at acp_finalize()")
            connection.sendall(struct.pack("<II", 5, 0))
            process.must_end_well(30)
            connection.close()
        check_process_memory(json.loads(process.output()))


def strangers(rig):
    """The coordinator of a job lets in nobody but its members, and each of them once."""
    process = start(rig, 2, "ewarp_acp_death", "init")  # rank 1 is killed; until then there is a coordinator
    process.wait(20)
    for secret, rank, procs, version in (("1" * 32, 0, 1, 2), (None, 7, 1, 2), (None, 0, 2, 2), (None, 0, 1, 9)):
        outer = rig.start_plain([rig.etherwarp, "acprun", "-n", 1, "sh", "-c", "env | grep ^ACP_; exec sleep 30"], name="sh")
        wait_until(lambda o=outer: "ACP_SECRET=" in o.output() and "ACP_ROOT" in o.output() and "ACP_PROCS" in o.output(), 10,
                   outer.said)  # fmt: skip
        said = dict(line.split("=", 1) for line in outer.output().splitlines() if "=" in line)
        host, port = said["ACP_ROOT"].split(":")
        with socket.create_connection((host, int(port)), timeout=10) as connection:
            key = (secret or said["ACP_SECRET"]).encode()
            connection.sendall(struct.pack("<IIII32s32s", 1, rank, version, procs, key, b""))
            check(take(connection, 8)[:4] == struct.pack("<I", 3), "not refused")
            check(connection.recv(1) == b"", "not hung up")
        with socket.create_connection((host, int(port)), timeout=10) as connection:
            connection.sendall(b"\xff" * 8)  # no frame
            check(connection.recv(1) == b"", "not hung up")
        # Who says nothing is hung up on when there are too many of them.
        silent = [socket.create_connection((host, int(port)), timeout=10) for _ in range(66)]
        check(silent[0].recv(1) == b"", "not hung up")
        for connection in silent:
            connection.close()
        outer.end()


def launcher(rig):
    """Exit statuses, what is said of them, acp_abort(), signals, and that nothing outlives the launcher."""
    check("acp: rank 0 aborts: a ring has two processes" in job(rig, 1, "acp_ring", statuses=(1,)), "no word of acp_abort()")
    for words, status in ((["sh", "-c", "exit 7"], 7), (["sh", "-c", "exit 0"], 0), (["nobody-has-this"], 127), ([], 2),
                          (["sh", "-c", "kill -9 $$"], 137), (["/etc/passwd"], 126), (["/etc"], 126)):  # fmt: skip
        rig.start_plain([rig.etherwarp, "acprun", "-n", 2, *words]).must_end_well(20, (status,))
    rig.start_plain([rig.etherwarp, "acprun", "-n", 0, "true"]).must_end_well(20, (2,))
    # Of its caller: daemons ignore SIGCHLD, nohup SIGHUP.
    rig.start_plain(["sh", "-c", f"trap '' CHLD; exec {rig.etherwarp} acprun -n 2 true"]).must_end_well(20)
    process = rig.start_plain(["sh", "-c", f"trap '' HUP; exec {rig.etherwarp} acprun -n 2 sh -c 'echo pid $$; exec sleep 3'"])
    wait_until(lambda: process.output().count("pid ") == 2, 10, process.said)
    process.send(1)
    process.must_end_well(20)
    for ending in (15, 9):
        process = rig.start_plain([rig.etherwarp, "acprun", "-n", 2, "sh", "-c", "echo pid $$; exec sleep 60"])
        pids = wait_until(lambda p=process: [n for n in re.findall(r"pid (\d+)", p.output())][1:] and
                          re.findall(r"pid (\d+)", p.output()), 10, process.said)  # fmt: skip
        began = time.monotonic()
        process.send(ending)
        process.wait(10)
        wait_until(lambda p=pids: not any(alive(n) for n in p), 10, f"{pids} live on behind signal {ending}")
        print(f"  signal {ending}: all ended after {time.monotonic() - began:.2f} s")


def left_behind(rig):
    """What the processes of a job have started ends with a job that is stopped, also if they ended before, or do not listen."""
    for script in ("sleep 60 & echo pid $!; wait", "(trap '' TERM; echo pid $(exec sh -c 'echo $PPID'); sleep 60; sleep 60) & wait",
                   "(sleep 60 & echo pid $!); [ $ACP_RANK = 0 ] || exec sleep 60"):  # fmt: skip
        process = rig.start_plain([rig.etherwarp, "acprun", "-n", 2, "sh", "-c", script], name=script)
        wait_until(lambda p=process: p.output().count("pid ") == 2, 10, process.said)
        pids = re.findall(r"pid (\d+)", process.output())
        check(all(alive(n) for n in pids), f"{pids}: {process.said()}")
        process.send(15)
        process.must_end_well(10, (143,))
        check(not any(alive(n) for n in pids), f"{pids} live on: {script}")


def surroundings(rig):
    """The first process alone has the standard input; descriptors for more processes than are allowed at first."""
    script = f"printf 'a line\n' | {rig.etherwarp} acprun -n 3 sh -c 'echo \"$ACP_RANK:$(cat):\"'"
    said = rig.start_plain(["sh", "-c", script])
    said.must_end_well(20)
    check(sorted(said.output().split("\n")[:3]) == ["0:a line:", "1::", "2::"], said.said())
    script = f"ulimit -Sn 40; exec {rig.etherwarp} acprun -n 40 sh -c 'ulimit -Sn'"
    said = rig.start_plain(["sh", "-c", script])
    said.must_end_well(20)
    check(said.output().split() == ["40"] * 40, said.said())
    said = rig.start_plain(["sh", "-c", f"ulimit -n 40; exec {rig.etherwarp} acprun -n 40 true"])
    said.must_end_well(20, (126,))
    check("40 processes need 136 descriptors" in said.output(), said.said())
    said = rig.start_plain([rig.etherwarp, "acprun", "-n", 2, "sh", "-c", f"[ $ACP_RANK = 0 ] || exec {BUILD}/bin/acp_ring 5"])
    said.must_end_well(20, (1,))  # rank 0 ends without acp_init(): there is no job
    check("a process of the job has ended" in said.output(), said.said())


def open_mpi(rig):
    """Open MPI's mpirun starts a job, which rank 0 coordinates; two jobs at a time; a rank that is killed."""
    need("mpirun.openmpi")

    def start_mpi(procs, program, *words, **how):
        command = [rig.etherwarp, "mpirun", *as_anybody(), "-n", procs, BUILD / "bin" / program, *words]
        return rig.start_plain(command, name=program, **how)

    for procs in (1, 2, 8):
        process = start_mpi(procs, "acp_ring", 500)
        process.must_end_well(60, (1,) if procs == 1 else (0,))
        check(("two processes at least" if procs == 1 else f"{procs} processes, 500 rounds: right") in process.output(),
              process.said())  # fmt: skip
    both = [start_mpi(2, "ewarp_acp_storm", seed, 2, env={"TMPDIR": rig.folder(f"job{seed}")})
            for seed in (1, 2)]  # at a time: each finds its own
    for process in both:
        process.must_end_well(120)
        check("as it must be" in process.output(), process.said())
    calls_of_three = start_mpi(3, "ewarp_acp_calls")
    calls_of_three.must_end_well(120)
    check(calls_of_three.output().count("all calls") == 3, calls_of_three.said())
    process = start_mpi(3, "ewarp_acp_death", "receiving")
    process.must_end_well(60, (137,))


def alive(pid):
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", encoding="ascii") as f:
        return f.read().rsplit(")", 1)[1].split()[0] != "Z"
    return False


def options(rig):
    """Values that make no sense are said and ignored; processes whose slots differ do not connect; a program by itself."""
    said = job(rig, 2, "acp_ring", 5, env={"ACP_SLOT_SIZE": "20", "ACP_MODUS": "paper", "ACP_DEVICE": "chosen"})
    check(said.count("a multiple of 8 from 16") == 2 and said.count("did you mean ACP_MODE?") == 2 and "right" in said, said)
    said = job(rig, 2, "acp_ring", 5, env={"ACP_DEVICE": "nobody"}, statuses=(1,))
    check("no RDMA device nobody" in said, said)
    script = f"[ $ACP_RANK = 0 ] || export ACP_SLOT_SIZE=1024; exec {BUILD}/bin/acp_ring 5"
    process = rig.start_plain([rig.etherwarp, "acprun", "-n", 2, "sh", "-c", script])
    process.must_end_well(20, (1,))
    check("aborts: receive: Invalid argument" in process.output() or "aborts: send: Invalid" in process.output(), process.said())
    alone = rig.start([BUILD / "bin" / "acp_ring"])
    alone.must_end_well(20, (1,))
    check("two processes at least" in alone.output(), alone.said())
    plain = rig.start_plain([BUILD / "bin" / "acp_ring"], env={"ACP_RANK": "3", "ACP_PROCS": "2"})
    plain.must_end_well(20, (1,))
    check("do not name a process of a job" in plain.output(), plain.said())


if __name__ == "__main__":
    main(ring, figure, calls, storm, killed, connections, apart, choice, threads, channel_memory, process_memory, many_processes,
         strangers, launcher, left_behind, surroundings, open_mpi, options)  # fmt: skip
