# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`etherwarp mpirun` with stand-ins for mpirun: what it gives them, and what it says where one is missing.

Argument: the tool, in a build tree.
"""
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

tool = pathlib.Path(sys.argv[1]).resolve()
library = tool.parent.parent / "lib" / "libfabric" / "libetherwarp-fi.so"
if not library.exists():
    print("built without libfabric: nothing to launch")
    sys.exit(77)
complaints = []

OPEN_MPI = """#!/bin/sh
if [ "$1" = --version ]; then echo 'mpirun (Open MPI) 4.1.4'; exit; fi
for word; do echo "word: $word"; done
env | sed 's/^/env: /'
exit 5
"""
AGENTS = ("env: OMPI_MCA_orte_fork_agent=", "env: PRTE_MCA_odls_base_exec_agent=")
ANOTHER = "#!/bin/sh\necho 'HYDRA build details:'\n"


def run(folder, programs, *words, **variables):
    """The tool with a PATH of these programs alone."""
    place(folder, programs)
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("ETHERWARP_", "EWARP_", "FI_", "OMPI_", "LD_PRELOAD"))}
    return subprocess.run([tool, "mpirun", *words], env={**clean, "PATH": str(folder), **variables}, capture_output=True,
                          text=True, check=False, timeout=60)  # fmt: skip


def place(folder, programs):
    for file in folder.iterdir():
        file.unlink()
    for name, text in programs.items():
        (folder / name).write_text(text, encoding="ascii")
        (folder / name).chmod(0o755)
    for needed in ("sh", "env", "sed"):
        (folder / needed).symlink_to(f"/bin/{needed}")


def check(condition, text, done):
    if not condition:
        complaints.append(f"{text}\n  status {done.returncode}\n  {done.stdout}\n  {done.stderr}")


RANK = """#!/bin/sh
echo "preload: $LD_PRELOAD, path: $FI_PROVIDER_PATH, provider: $FI_PROVIDER, pml: $OMPI_MCA_pml, launch: $EWARP_LAUNCH"
for word; do echo "word: $word"; done
"""


def agent(variables, expanded):
    """The words that Open MPI's daemon puts in front of a program: split at blanks; on another host a shell has had them."""
    text = variables["OMPI_MCA_orte_fork_agent"]
    if expanded:
        text = subprocess.run(["sh", "-c", f'printf %s "{text}"'], env={"PATH": "/bin"}, capture_output=True, text=True,
                              check=True).stdout  # fmt: skip
    return text.split(" ")


def as_a_rank(folder, given):
    """A program started as Open MPI's daemons start it, here and on another host; and with EtherWARP in another place."""
    variables = given[1]
    (folder / "program").write_text(RANK, encoding="ascii")
    (folder / "program").chmod(0o755)
    libraries = tool.parent.parent / "lib"
    for expanded in (False, True):
        words = [*agent(variables, expanded), "program", "a  b", "$HOME 'c'"]
        done = subprocess.run(words, env={**variables, "PATH": str(folder), "OMPI_MCA_pml": "ob1"}, capture_output=True,
                              text=True, check=False, timeout=60)  # fmt: skip
        wanted = (f"preload: {libraries}/libetherwarp-preload.so, path: {libraries}/libfabric:/else/where, "
                  "provider: etherwarp, pml: ob1, launch: \nword: a  b\nword: $HOME 'c'\n")  # fmt: skip
        check(done.returncode == 0 and done.stdout == wanted, f"a rank, expanded {expanded}", done)
        lost = {**variables, "PATH": str(folder), "EWARP_LAUNCH": variables["EWARP_LAUNCH"].replace(str(tool), "/no such/$HOME/tool")}
        (folder / "uname").symlink_to("/bin/uname")
        done = subprocess.run(words, env=lost, capture_output=True, text=True, check=False, timeout=60)
        said = f"etherwarp: error: host {os.uname().nodename}: EtherWARP is missing: there is neither /no such/$HOME/tool nor"
        check(done.returncode == 126 and done.stderr.startswith(said), f"missing, expanded {expanded}", done)
        (folder / "etherwarp").symlink_to(tool)
        done = subprocess.run(words, env=lost, capture_output=True, text=True, check=False, timeout=60)
        check(done.returncode == 0 and "provider: etherwarp" in done.stdout, f"found in PATH, expanded {expanded}", done)
        done = subprocess.run([*words[:-3], "nosuch"], env=lost, capture_output=True, text=True, check=False, timeout=60)
        check(done.returncode == 127 and f"host {os.uname().nodename}: program 'nosuch' not found" in done.stderr, "none", done)
        (folder / "etherwarp").unlink()
        (folder / "uname").unlink()


NO_PEER = "etherwarp: error: no connection from h (a) to b"
SAYS = f"""#!/bin/sh
if [ "$1" = --version ]; then echo 'mpirun (Open MPI) 4.1.4'; exit; fi
printf '%s\\n' '{NO_PEER}: c' 'words' '[1,1]<stderr>:{NO_PEER}: d' 'etherwarp: error: host h: x' 'etherwarp: error: host h: x' \\
    'etherwarp: error: host i: x' 'etherwarp: error: another' 'etherwarp: error: another' 'words' >&2
printf 'half a line, ether' >&2; read go; printf 'warp: error: no connection from x\\n' >&2
printf '{NO_PEER}' >&2; printf ': e\\nno end' >&2
"""
SAID = f"""{NO_PEER}: c
words
etherwarp: error: host h: x
etherwarp: error: host i: x
etherwarp: error: another
etherwarp: error: another
words
half a line, etherwarp: error: no connection from x
no end"""


def says_it_once(folder):
    place(folder, {"mpirun": SAYS})
    child = subprocess.Popen([tool, "mpirun", "program"], stdin=subprocess.PIPE, stderr=subprocess.PIPE,
                             env={**os.environ, "PATH": str(folder)})  # fmt: skip
    said = b""
    while not said.endswith(b"half a line, ether"):  # it is not kept back for ever
        said += os.read(child.stderr.fileno(), 1) or sys.exit(f"it ended: {said}")
    _, rest = child.communicate(b"go\n", timeout=60)
    if child.returncode != 0 or (said + rest).decode() != SAID:
        complaints.append(f"what is said once: status {child.returncode}\n{(said + rest).decode()}")


# Counts the signals that it gets, and ends with SIGALRM.
COUNTS = """#!/usr/bin/python3
import collections, os, signal, sys, time
if sys.argv[1] == "--version":
    sys.exit(print("mpirun (Open MPI) 4.1.4"))
got = collections.Counter()
numbers = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
for number in numbers:
    signal.signal(number, lambda n, _: (got.update([n]), print(n, flush=True)))
signal.signal(signal.SIGALRM, lambda *_: sys.exit(print(*(got[n] for n in numbers), flush=True)))
print(os.getpid(), flush=True)
for _ in range(100000):
    sys.stderr.write("x" * 1000 if os.environ.get("TALKS") else "")
    time.sleep(0.01)
"""


def counting(folder, **how):
    """The tool over COUNTS, and the pid of this."""
    for file in folder.iterdir():
        file.unlink()
    (folder / "mpirun").write_text(COUNTS, encoding="ascii")
    (folder / "mpirun").chmod(0o755)
    talks = {"TALKS": "1"} if how.pop("talks", False) else {}
    child = subprocess.Popen([tool, "mpirun", "program"], stdout=subprocess.PIPE, text=True, start_new_session=True,
                             env={**os.environ, "PATH": str(folder), **talks}, **how)  # fmt: skip
    return child, int(child.stdout.readline())


def until(condition, what, child):
    deadline = time.monotonic() + 20
    while not condition():
        if time.monotonic() > deadline:
            complaints.append(f"{what} did not come to be; status {child.poll()}")
            return
        time.sleep(0.01)


def pending(pid):
    """Whether a signal waits to be taken."""
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        return any(line.startswith("ShdPnd:") and int(line.split()[1], 16) for line in status)


def hands_signals_on(folder):
    """Each signal reaches mpirun once: sent to the tool alone, to its process group, or both."""
    child, below = counting(folder)
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        for to in (os.kill, os.killpg, os.kill, os.killpg):
            to(child.pid, number)
            # Two of a kind at a time would be one.
            child.stdout.readline()
            until(lambda: not pending(child.pid), "the tool's own signal", child)
    time.sleep(0.3)  # for what comes a second time
    os.kill(below, signal.SIGALRM)
    output, _ = child.communicate(timeout=30)
    if output.split() != ["4", "4", "4", "4"] or child.returncode != 0:
        complaints.append(f"signals that reached mpirun: {output.split()}, status {child.returncode}")

    child, below = counting(folder)
    os.kill(below, signal.SIGKILL)
    child.communicate(timeout=30)
    if child.returncode != -signal.SIGKILL:
        complaints.append(f"mpirun was killed, and the tool's status is {child.returncode}")

    child, below = counting(folder)
    os.kill(child.pid, signal.SIGKILL)  # mpirun is told by SIGTERM
    child.stdout.readline()
    os.kill(below, signal.SIGALRM)
    output, _ = child.communicate(timeout=30)
    if output.split() != ["0", "0", "1", "0"]:
        complaints.append(f"the tool was killed, and the signals that reached mpirun are {output.split()}")
    until(lambda: not os.path.exists(f"/proc/{below}"), "the end of mpirun", child)


def ends_without_word_of_children(folder):
    """Its caller ignores SIGCHLD, as daemons do, and the kernel says nothing of children then."""
    place(folder, {"mpirun": OPEN_MPI})
    done = subprocess.run([tool, "mpirun", "program"], env={**os.environ, "PATH": str(folder)}, capture_output=True, text=True,
                          check=False, timeout=60, preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))  # fmt: skip
    check(done.returncode == 5, "SIGCHLD is ignored", done)


def survives_its_reader(folder):
    """Whoever reads stderr goes away; the job goes on."""
    ends = os.pipe()
    child, below = counting(folder, stderr=ends[1], talks=True)
    os.close(ends[1])
    os.read(ends[0], 1)
    os.close(ends[0])
    time.sleep(0.5)
    if child.poll() is not None:
        complaints.append(f"the reader of stderr went, and the tool with it: {child.returncode}")
    os.kill(below, signal.SIGALRM)
    child.communicate(timeout=30)
    if child.returncode != 0:
        complaints.append(f"without a reader of stderr: {child.returncode}")


# Open MPI 4.1.4 behind a rank that ended while it connected to PMIx: it waits for itself. The pieces of PMIx's word come
# apart. SAYS and CHILDREN in the environment: whether it comes, and for how many seconds processes come and go.
HANGS = """#!/usr/bin/python3
import os, subprocess, sys, time
if sys.argv[1] == "--version":
    sys.exit(print("mpirun (Open MPI) 4.1.4"))
if os.environ["SAYS"] == "yes":
    for piece in ("[h:1] PMIX ERR", "OR: UNREACH", "ABLE in file x.c\\n"):
        sys.stderr.write(piece)
        sys.stderr.flush()
        time.sleep(0.3)
for _ in range(int(os.environ["CHILDREN"]) // 2):
    subprocess.run(["/bin/sleep", "1.5"])
    time.sleep(0.5)
time.sleep(float(os.environ["SLEEPS"]))
sys.exit(5)
"""
HUNG = "etherwarp: warn: mpirun has not ended, although all its processes have; it is ended now"


def ends_what_hangs(folder):
    """An mpirun that hangs; one whose processes still come and go; one that waits for processes of other hosts."""
    place(folder, {"mpirun": HANGS})
    begun = time.monotonic()
    children = [subprocess.Popen([tool, "mpirun", "program"], stderr=subprocess.PIPE, text=True,
                                 env={**os.environ, "PATH": str(folder), "SAYS": says, "CHILDREN": some, "SLEEPS": sleeps})
                for says, some, sleeps in (("yes", "0", "60"), ("yes", "14", "0"), ("no", "0", "14"))]  # fmt: skip
    for child, status, said in zip(children, (1, 5, 5), (f"[h:1] PMIX ERROR: UNREACHABLE in file x.c\n{HUNG}\n",
                                   "[h:1] PMIX ERROR: UNREACHABLE in file x.c\n", ""), strict=True):  # fmt: skip
        _, errors = child.communicate(timeout=60)
        if child.returncode != status or errors != said:
            complaints.append(f"an mpirun that may hang: status {child.returncode} instead of {status}\n{errors}")
    if not 10 < (took := time.monotonic() - begun) < 40:
        complaints.append(f"an mpirun that hangs was ended after {took:.1f} s")


with tempfile.TemporaryDirectory() as name:
    path = pathlib.Path(name)
    done = run(path, {"mpirun": OPEN_MPI}, "-n", "2", "--mca", "pml", "ob1", "program", "an argument", "--help",
               ETHERWARP_CRC="always", ETHERWARP_LOG="warn", FI_PROVIDER_PATH="/else/where",
               OMPI_MCA_oob_tcp_keepalive_time="9")  # fmt: skip
    got = done.stdout.splitlines()
    given = [line[6:] for line in got if line.startswith("word: ")]
    check(done.returncode == 5, "mpirun's exit status", done)
    check(given[-7:] == ["2", "--mca", "pml", "ob1", "program", "an argument", "--help"], "mpirun's words", done)
    pairs = list(zip(given, given[1:], strict=False))
    for wanted in ("FI_PROVIDER_PATH", "ETHERWARP_CRC", "ETHERWARP_LOG", "EWARP_CHANNEL_JOB", "EWARP_CHANNEL_END_IF_UNREACHABLE",
                   "EWARP_LAUNCH"):  # fmt: skip
        check(("-x", wanted) in pairs, f"not for the ranks: {wanted}", done)
    check(not any(word.startswith("LD_PRELOAD=") for word in given), "the ranks' shell is preloaded", done)
    for wanted in ("pml=^ucx", "mtl=ofi", "opal_common_ofi_provider_include=etherwarp", "btl=ofi,self", "osc=rdma,sm",
                   "osc_rdma_priority=99", "osc_rdma_network_max_amo=0", "oob_tcp_keepalive_time=9",
                   "oob_tcp_keepalive_intvl=2", "osc_rdma_max_attach=1024",
                   "osc_rdma_buffer_size=524288"):  # fmt: skip
        check(f"env: OMPI_MCA_{wanted}" in got, f"not in the environment: {wanted}", done)
    agents = {line.partition("=")[2] for line in got if line.startswith(AGENTS)}
    check(sum(line.startswith(AGENTS) for line in got) == 2 and len(agents) == 1, "the agents of Open MPI 4 and 5", done)
    check(not any(line.startswith("env: LD_PRELOAD=") for line in got), "mpirun itself is preloaded", done)
    as_a_rank(path, ["-c", dict(line[5:].partition("=")[::2] for line in got if line.startswith("env: "))])
    # A tool built with AddressSanitizer wants its runtime before whatever is preloaded.
    done = run(path, {"mpirun": OPEN_MPI}, "program", ASAN_OPTIONS="verify_asan_link_order=0",
               LD_PRELOAD=f"{tool.parent.parent}/lib/libetherwarp-preload.so:libm.so.6")  # fmt: skip
    check("word: LD_PRELOAD=libm.so.6" in done.stdout.splitlines(), "what else is preloaded", done)

    done = run(path, {"mpirun": ANOTHER, "mpirun.openmpi": OPEN_MPI}, "program")
    check(done.returncode == 5, "Open MPI's is not found beside another's", done)
    done = run(path, {"mpirun": ANOTHER}, "program")
    check(done.returncode == 127 and "is not Open MPI's" in done.stderr and "openmpi-bin" in done.stderr, "another's", done)
    done = run(path, {}, "program")
    check(done.returncode == 127 and "no mpirun in PATH" in done.stderr and "openmpi-bin" in done.stderr, "none", done)
    done = run(path, {"mpirun": OPEN_MPI}, "program", ETHERWARP_INTERFACES="nosuch0")
    check(done.returncode == 126 and "'nosuch0'" in done.stderr, "an interface that is not there", done)
    done = run(path, {"mpirun": OPEN_MPI})
    check(done.returncode == 2 and "no program" in done.stderr, "no program", done)
    done = run(path, {"mpirun": OPEN_MPI}, "--help")
    check(done.returncode == 0 and "Usage: etherwarp mpirun" in done.stdout, "help", done)

    says_it_once(path)
    hands_signals_on(path)
    ends_without_word_of_children(path)
    survives_its_reader(path)
    ends_what_hangs(path)
    run(path, {"mpirun": OPEN_MPI}, "program")

    doctor = subprocess.run([tool, "doctor"], env={**os.environ, "PATH": str(path)}, capture_output=True, text=True,
                            check=False, timeout=60)  # fmt: skip
    check("ok    Open MPI" in doctor.stdout and "ok    libfabric" in doctor.stdout, "doctor", doctor)
    (path / "mpirun").unlink()
    doctor = subprocess.run([tool, "doctor"], env={**os.environ, "PATH": str(path)}, capture_output=True, text=True,
                            check=False, timeout=60)  # fmt: skip
    check("warn  Open MPI" in doctor.stdout and "openmpi-bin" in doctor.stdout, "doctor without mpirun", doctor)

print("\n".join(complaints))
sys.exit(1 if complaints else 0)
