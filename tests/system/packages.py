#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The Debian packages in fresh roots of Debian: built there, installed, used, removed.

    tests/system/packages.py [--debs DIRECTORY] [--container] [--keep] [bookworm] [trixie]

For each release (default: bookworm) mmdebstrap or debootstrap makes a root, from the mirror that this machine's own apt
uses. scripts/package builds the last commit in a copy of that root. The packages go into another copy. There the tool,
verbs programs, the examples and an MPI program run, each in a network of its own. In the end nothing of the packages
may be left. Only root can do this, it needs a mirror, and it takes 10 minutes or more for each release: CTest does not
run it. Mounts are made in namespaces that end with their command. Directories are removed in the end, also after a
failure. With --container the root is the base of Containerfile's image instead, which podman builds and runs.
"""
import argparse
import contextlib
import hashlib
import json
import os
import pathlib
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
SUITES = ("bookworm", "trixie")
TOOLS = ("ibverbs-utils", "rdmacm-utils", "perftest", "pkg-config", "g++", "openmpi-bin", "libopenmpi-dev")

# The first command of a root's: what it has mounted, and which network. /dev without the machine's shared memory.
INSIDE = r"""
root=$1 network=$2
shift 2
mount -t proc proc "$root/proc"
mount -t sysfs -o ro sysfs "$root/sys"
mount --bind /dev "$root/dev"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
if [ "$network" = own ]; then
  ip link set lo up
  # Open MPI wants an interface beside the loopback one.
  ip link add ew0 type veth peer name ew1
  ip address add 10.99.0.1/24 dev ew0
  ip link set ew0 up
  ip link set ew1 up
fi
exec chroot "$root" "$@"
"""

MPI_PROGRAM = r"""
#include <mpi.h>
#include <stdio.h>
int main(int argc, char **argv) {
  int rank, size, got = -1, sum = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  int other = (rank + 1) % size;
  MPI_Sendrecv(&rank, 1, MPI_INT, other, 7, &got, 1, MPI_INT, (rank + size - 1) % size, 7, MPI_COMM_WORLD,
               MPI_STATUS_IGNORE);
  MPI_Allreduce(&got, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  int memory[2] = {-1, 0}, one = 1;
  MPI_Win window;
  MPI_Win_create(memory, sizeof memory, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &window);
  MPI_Win_fence(0, window);
  MPI_Put(&rank, 1, MPI_INT, other, 0, 1, MPI_INT, window);
  MPI_Accumulate(&one, 1, MPI_INT, 0, 1, 1, MPI_INT, MPI_SUM, window);
  MPI_Win_fence(0, window);
  int right = memory[0] == got && memory[1] == (rank == 0 ? size : 0);
  MPI_Win_free(&window);
  MPI_Allreduce(MPI_IN_PLACE, &right, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  if (rank == 0) printf("%d ranks, sum %d, one-sided %s\n", size, sum, right ? "right" : "wrong");
  MPI_Finalize();
  return right && sum == size * (size - 1) / 2 ? 0 : 1;
}
"""


class Failure(Exception):
    """Something did not do what it should; the text says what."""


def check(condition, text):
    if not condition:
        raise Failure(text)


def run(words, seconds, **how):
    """What a command says, which ends well in time."""
    words = [str(w) for w in words]
    name = " ".join(words)[-300:]
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace", start_new_session=True, **how) as process:  # fmt: skip
        try:
            said, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            said, _ = process.communicate()
            raise Failure(f"{name}: not done after {seconds} s\n{said[-4000:]}") from None
        except BaseException:
            process.kill()
            raise
    check(process.returncode == 0, f"{name}: status {process.returncode}\n{said[-6000:]}")
    return said


def mirror():
    """The archive of Debian that this machine's apt takes its packages from."""
    files = [pathlib.Path("/etc/apt/sources.list"), *sorted(pathlib.Path("/etc/apt/sources.list.d").glob("*"))]
    for file in files:
        text = file.read_text(encoding="utf-8") if file.is_file() else ""
        if file.suffix == ".sources":
            found = re.findall(r"^URIs:\s*(\S+)", text, re.M)
        else:
            found = re.findall(r"^deb\s+(?:\[.*?\]\s*)?(\S+)", text, re.M)
        for address in found:
            if re.search(r"/debian/?$", address):
                return address
    raise Failure("no archive of Debian in /etc/apt/sources.list or /etc/apt/sources.list.d")


class Machine:
    """A root, and commands in it."""

    def __init__(self, root):
        self.root = root

    def copy(self, name):
        other = self.root.with_name(name)
        run(["cp", "-a", "--reflink=auto", self.root, other], 300)
        return Machine(other)

    def run(self, *words, seconds=120, network="own", **variables):
        """In namespaces of its own, which end with the command; `machine` is the network of this machine."""
        kinds = ["--mount", "--pid", "--fork", "--kill-child", "--ipc", *(["--net"] if network == "own" else [])]
        proxies = {key: value for key, value in os.environ.items() if key.lower().endswith("_proxy")}
        environment = {"HOME": "/root", "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive", "TERM": "dumb",
                       "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", **proxies,
                       **variables}  # fmt: skip
        inside = ["env", "-i", *(f"{key}={value}" for key, value in environment.items()), *words]
        return run(["unshare", *kinds, "sh", "-ec", INSIDE, "sh", self.root, network, *inside], seconds)

    def shell(self, text, **how):
        return self.run("sh", "-ec", text, **how)

    def apt(self, *words, seconds=900):
        return self.run("apt-get", "-q", "-y", "-o", "Acquire::Retries=3", *words, seconds=seconds, network="machine")

    def packages(self):
        return set(self.run("dpkg-query", "-W", "-f", "${db:Status-Abbrev}${Package}\\n").splitlines())

    def write(self, path, text):
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text, encoding="utf-8")

    def files(self):
        """What there is of every file but those that apt and the loader keep for themselves, or programs made. Groups
        stay in Debian: libibverbs1 makes one, rdma."""
        apart = re.compile(r"(proc|sys|dev|run|tmp|root|src|var/(cache|log|tmp|lib/apt))(/|$)|"
                           r"etc/(ld\.so\.cache|g?(group|shadow)-?)$|"
                           r"var/lib/dpkg/(\w+-old|lock.*|status|available|triggers/.*)$")  # fmt: skip
        found = {}
        for folder, folders, names in os.walk(self.root):
            here = pathlib.Path(folder)
            folders[:] = [f for f in folders if not apart.match(str((here / f).relative_to(self.root)))]
            for name in [*folders, *names]:
                path = here / name
                below = str(path.relative_to(self.root))
                if apart.match(below):
                    continue
                status = path.lstat()
                content = ""
                if stat.S_ISLNK(status.st_mode):
                    content = os.readlink(path)
                elif stat.S_ISREG(status.st_mode) and below.startswith("etc/"):
                    content = hashlib.sha256(path.read_bytes()).hexdigest()
                found[below] = (status.st_mode, content)
        return found


def difference(before, after):
    lines = [f"left: /{name}" for name in sorted(after.keys() - before.keys())]
    lines += [f"gone: /{name}" for name in sorted(before.keys() - after.keys())]
    lines += [f"changed: /{name}" for name in sorted(before.keys() & after.keys()) if before[name] != after[name]]
    return lines


class Steps:
    """A line for each step: what, and how long it took."""

    def __init__(self, suite):
        self._suite, self._began = suite, time.monotonic()

    def done(self, text):
        print(f"{self._suite}: {text} ({time.monotonic() - self._began:.0f} s)", flush=True)
        self._began = time.monotonic()


def fresh(suite, folder, address):
    """A small root of this release, with apt; and with adduser, which libibverbs1 needs and apt does not take away."""
    root = folder / f"{suite}-base"
    if shutil.which("mmdebstrap"):
        run(["mmdebstrap", "--mode=root", "--variant=minbase", "--include=adduser", suite, root, address], 600)
    else:
        check(shutil.which("debootstrap"), "neither mmdebstrap nor debootstrap is installed")
        run(["debootstrap", "--variant=minbase", "--include=adduser", suite, root, address], 900)
    # Names are resolved as they are here.
    (root / "etc/resolv.conf").unlink(missing_ok=True)
    shutil.copyfile("/etc/resolv.conf", root / "etc/resolv.conf")
    shutil.copyfile("/etc/hosts", root / "etc/hosts")
    machine = Machine(root)
    machine.apt("update")
    return machine


def sources(folder):
    """The last commit, in a new directory."""
    folder.mkdir()
    archive = subprocess.run(["git", "-C", ROOT, "archive", "HEAD"], capture_output=True, check=True, timeout=60).stdout
    subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True, timeout=60)


def build(base, debs, step):
    """scripts/package of the last commit, in a copy of the root; its packages in `debs`."""
    machine = base.copy(f"{base.root.name}-build")
    sources(machine.root / "src")
    said = machine.run("/src/scripts/package", seconds=3600, network="machine", EWARP_CONFIGURE="-DEWARP_WERROR=ON")
    compiler = machine.run("c++", "-dumpfullversion").strip()
    step.done(f"scripts/package with gcc {compiler}, which warns of nothing")
    print("".join(f"    {line}\n" for line in said.splitlines() if re.match(r"==|[EW]: ", line)), end="")
    debs.mkdir(parents=True, exist_ok=True)
    for file in (machine.root / "src/build-package/packages").glob("*.deb"):
        shutil.copy(file, debs)
    shutil.rmtree(machine.root)


def install(machine, *names):
    machine.apt("install", "--no-install-recommends", *(f"/tmp/debs/{name}" for name in names))


def removed(machine, before, step, what):
    machine.apt("purge", "--autoremove", "etherwarp", "libetherwarp-dev")
    left = difference(before, machine.files())
    check(not left, f"{what}: purged, and not as it was before:\n    " + "\n    ".join(left[:50]))
    step.done(f"{what}: purged; {len(before)} files and directories, all as before")


def first_installation(machine, names, step):
    """In a root that has nothing else: what the packages need is what they depend on."""
    before, packages = machine.files(), machine.packages()
    install(machine, *names)
    more = machine.packages() - packages
    step.done(f"installed with apt: {', '.join(names)}, with {len(more) - len(names)} packages that they need")
    version = machine.run("etherwarp", "--version").strip()
    expected = re.search(r"project\(etherwarp VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text(encoding="utf-8"))[1]
    check(version == f"etherwarp {expected}", f"--version says {version}")
    step.done(f"etherwarp --version: {version}")
    doctor = machine.run("etherwarp", "doctor")
    check("FAIL" not in doctor and re.search(r"^ok\s+provider\s+/usr/lib/", doctor, re.M), doctor)
    step.done("etherwarp doctor: nothing fails")
    print("".join(f"    {line}\n" for line in doctor.splitlines()), end="")
    removed(machine, before, step, "alone")


def ended(machine, name, script, seconds=120, **variables):
    """What a shell script says, and the processes that its programs were over EtherWARP, by their counters."""
    script = f"mkdir -m 700 /tmp/{name} && {script} && echo COUNTERS && etherwarp stat --ended --json"
    said, counters = machine.shell(script, seconds=seconds, ETHERWARP_RUNDIR=f"/tmp/{name}", ETHERWARP_STATS_KEEP="yes",
                                   **variables).split("COUNTERS\n")  # fmt: skip
    processes = json.loads(counters)
    octets = [sum(d["tx_octets"] for d in p["devices"] if d["name"].startswith("ewarp_")) for p in processes]
    check(octets and min(octets) > 0, f"{name}: octets by EtherWARP's counters: {octets}\n{said}")
    return said, len(octets), sum(octets)


def programs(machine, step):
    """Verbs programs; the examples, built as the package has them; the preload library for the whole system."""
    shutil.copy(ROOT / "docs/user/ci_job.sh", machine.root / "tmp/ci_job.sh")
    said, processes, octets = ended(machine, "job", "/tmp/ci_job.sh")
    check(processes == 4 and re.search(r"^\s*2\s+1000(\s+[\d.]+){7}", said, re.M), said)
    step.done(f"rping, ib_send_lat: {processes} processes over ewarp_lo, {octets} octets sent")

    examples = "/usr/share/doc/libetherwarp-dev/examples"
    said = machine.shell(f"""
        cd /tmp && for name in rd_ping rd_many; do
          cc -Wall -o $name {examples}/$name.c {examples}/rd_end.c $(pkg-config --cflags --libs etherwarpdv libibverbs)
        done
        cc -Wall -o ud_media_stream {examples}/ud_media_stream.c $(pkg-config --cflags --libs libibverbs) -lm
        flags=$(pkg-config --cflags --libs etherwarp-channel)
        c++ -std=c++20 -Wall -o channel_pingpong {examples}/channel_pingpong.cc $flags
        """)  # fmt: skip
    check(not said, said)
    said, processes, octets = ended(machine, "examples", """
        cd /tmp && { etherwarp run -- ./rd_ping & } && sleep 1 && etherwarp run -- ./rd_ping 127.0.0.1 && wait &&
        { etherwarp run -- ./channel_pingpong 127.0.0.1:7000 & } && sleep 1 &&
        etherwarp run -- ./channel_pingpong 127.0.0.1:0 127.0.0.1:7000 65536 && wait""",
        ETHERWARP_INTERFACES="lo")  # fmt: skip
    check(processes == 4 and "65536 octets:" in said, said)
    step.done(f"examples built with pkg-config; rd_ping, channel_pingpong: {processes} processes, {octets} octets sent")

    preload = machine.run("pkg-config", "--variable=preload", "etherwarp").strip()
    said = machine.shell(f"echo {preload} > /etc/ld.so.preload && ibv_devices; rm /etc/ld.so.preload")
    check(re.search(r"^\s*ewarp_lo\s", said, re.M), said)
    step.done("ibv_devices with /etc/ld.so.preload: ewarp_lo")


def mpi(machine, step):
    """Messages and one-sided communication."""
    machine.write("tmp/ranks.c", MPI_PROGRAM)
    machine.run("mpicc", "-o", "/tmp/ranks", "/tmp/ranks.c")
    version = machine.run("mpirun", "--version", "--allow-run-as-root").splitlines()[0]
    for ranks in (2, 4):
        said, processes, octets = ended(machine, f"mpi{ranks}", f"""
            cd /tmp && timeout 60 etherwarp mpirun --allow-run-as-root --oversubscribe -n {ranks} ./ranks""")  # fmt: skip
        check(f"{ranks} ranks, sum {ranks * (ranks - 1) // 2}, one-sided right" in said, said)
        step.done(f"etherwarp mpirun -n {ranks} ({version}): {processes} processes, {octets} octets sent")


def container(base, debs, step):
    """Containerfile, on this root as the image that it begins with; doctor and a job in the image that it makes."""
    check(shutil.which("podman"), "podman is not installed")
    name = f"localhost/ewarp-packages-{os.getpid()}"
    context = base.root.with_name("context")
    sources(context)
    if debs.is_dir():
        shutil.copytree(debs, context / "build-package/packages")
    try:
        script = 'tar -C "$1" --one-file-system -c . | podman import - "$2"'
        run(["sh", "-ec", script, "sh", base.root, f"{name}:base"], 300)
        # Here and below: what podman needs where it may neither make control groups nor raise limits.
        said = run(["podman", "build", "--isolation=chroot", "--build-arg", f"BASE={name}:base", "-t", f"{name}:made",
                    context], 3600)  # fmt: skip
        size = int(run(["podman", "image", "inspect", "-f", "{{.Size}}", f"{name}:made"], 60))
        built = "built in it" if "== built" in said else "made before"
        step.done(f"podman build, from packages that were {built}: an image of {size >> 20} MiB")
        for words in ([], ["ci_job.sh"]):
            script = """[ ! -d /sys/fs/cgroup/unified ] || mount --bind /sys/fs/cgroup/unified /sys/fs/cgroup
                exec podman run --rm --ulimit nofile=4096 --ulimit nproc=4096 --cgroups=disabled --network=none "$@" """
            said = run(["unshare", "--mount", "sh", "-ec", script, "sh", f"{name}:made", *words], 120)
            check("FAIL" not in said and "ewarp_lo" in said, said)
            check(not words or re.search(r"^\s*2\s+1000(\s+[\d.]+){7}", said, re.M), said)
            step.done(f"podman run {' '.join(words) or '(etherwarp doctor)'}")
            print("".join(f"    {line}\n" for line in said.splitlines()[-15:]), end="")
    finally:
        for words in (["rmi", "-f", f"{name}:made", f"{name}:base"], ["image", "prune", "-f"]):
            subprocess.run(["podman", *words], capture_output=True, timeout=120, check=False)


def release(suite, folder, address, debs, in_container):
    step = Steps(suite)
    base = fresh(suite, folder, address)
    step.done(f"a fresh root, {len(base.packages())} packages")
    if in_container:
        container(base, debs, step)
        return
    if not list(debs.glob("etherwarp_*.deb")):
        build(base, debs, step)
    machine = base.copy(f"{suite}-use")
    shutil.copytree(debs, machine.root / "tmp/debs")
    names = sorted(file.name for file in debs.glob("*.deb"))
    check(len(names) == 2, f"the packages are {names}")
    first_installation(machine, names, step)

    machine.apt("install", "--no-install-recommends", *TOOLS)
    before = machine.files()
    install(machine, *names)
    step.done(f"installed again beside {', '.join(TOOLS)}")
    programs(machine, step)
    mpi(machine, step)
    removed(machine, before, step, "after use")
    shutil.rmtree(machine.root)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=f"releases of Debian: {', '.join(SUITES)}")
    parser.add_argument("--debs", type=pathlib.Path, help="packages that are built are left here, in a directory for"
                        " each release; if there are some, they are taken and nothing is built")  # fmt: skip
    parser.add_argument("--container", action="store_true", help="build and run the image of Containerfile with podman")
    parser.add_argument("--keep", action="store_true", help="leave the roots, and say where they are")
    arguments = parser.parse_args()
    suites = arguments.suites or [SUITES[0]]
    if not set(suites) <= set(SUITES):
        parser.error(f"there are {', '.join(SUITES)}")
    if os.geteuid() != 0:
        parser.error("only root can make roots")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))  # as after a failure: everything is removed
    folder = pathlib.Path(tempfile.mkdtemp(prefix="ewarp-packages-"))
    folder.chmod(0o755)
    try:
        address = mirror()
        for suite in suites:
            debs = (arguments.debs or folder / "debs").resolve() / suite
            release(suite, folder, address, debs, arguments.container)
        print("ok")
    except Failure as failure:
        print(f"FAILED: {failure}")
        return 1
    finally:
        if arguments.keep:
            print(f"the roots are in {folder}")
        else:
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
