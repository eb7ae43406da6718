# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What README.md, CONTRIBUTING.md and the pages in docs/ tell people to type, typed: in a network namespace that has the
pages' address, in a directory that looks like the source tree, with EtherWARP installed below a prefix. A command of the
pages that is neither typed here nor listed with the reason why not is a failure, and so is one here that no page tells
of."""
import contextlib
import json
import os
import pathlib
import re
import subprocess
import tempfile

from dissector import pcap
from harness import BUILD, check, listens, main, need, wait_until
from install import install
from page_commands import ROOT, extracted

ADDRESS = "192.0.2.1"  # the pages' other host

TYPED = set()

# Why it is not typed here. Tests that are named exist.
ELSEWHERE = {
    "./scripts/demo": "installs packages; demo_smoke runs it with --smoke",
    "./scripts/test": "runs this",
    "./scripts/build": "installs packages, and builds what is tested here",
    "./scripts/build --no-packages checked": "builds another preset; .ci/run builds it",
    "./scripts/test --quick": "runs other tests",
    "tests/system/inject.py": "a test by itself",
    "tests/system/inject.py --full": "takes hours",
    "tests/system/inject.py --full --seconds 1800": "takes half an hour",
    "tests/system/inject.py --point POINT": "takes the name of a finding",
    "scripts/soak --hours 8": "takes hours",
    "scripts/soak --minutes 2 --seed 7": ".ci/run has it",
    "./scripts/test --sanitizers": "runs other tests",
    "./scripts/test --quick -- -R wire": "runs other tests",
    "python3 tests/tree/conformance.py --write .": "writes the page; tree_conformance compares it",
    "scripts/mutants": "takes half an hour",
    "scripts/mutants --seed 7 --count 30": "takes minutes",
    "./scripts/lint": "installs clang and takes minutes; .ci/run runs it",
    "./scripts/fuzz": "installs clang and takes minutes; .ci/run runs it with --ci",
    "./scripts/fuzz --ci": "installs clang and takes minutes; .ci/run runs it",
    "./scripts/fuzz --seconds 3600 --target fuzz_stream": "takes an hour",
    "./scripts/fuzz --minimise": "rewrites tests/fuzz/corpus",
    "./scripts/fuzz --coverage": "a build of its own",
    "build-fuzz/bin/fuzz_stream build-fuzz/finds/fuzz_stream-crash-0123": "takes a file that a run left",
    ".ci/run": "runs this",
    "cmake --build --preset release --target wire_segments_test": "a build",
    "build/bin/wire_segments_test": "a test of its own",
    "tests/system/packages.py bookworm trixie": "takes half an hour and a mirror",
    "./scripts/package": "builds Debian packages; packages.py runs it",
    "apt-get install ./build-package/packages/etherwarp_*.deb": "installs a package; packages.py does, in a fresh root",
    "apt-get install ./build-package/packages/libetherwarp-dev_*.deb": "installs a package; packages.py does, in a fresh root",
    "apt-get purge --autoremove etherwarp libetherwarp-dev": "removes packages; packages.py does, in a fresh root",
    "etherwarp --version": "man_test.py runs it",
    "cmake --install": "a name",
    "cmake --install build --prefix /opt/etherwarp": "cmake --install build is typed; install.py installs below a prefix",
    "DESTDIR=stage cmake --install build --prefix /usr": "cmake --install build is typed, with DESTDIR",
    "tar -xzf etherwarp-0.1.0.tar.gz": "takes the tarball that scripts/package makes",
    "cmake -S etherwarp-0.1.0 -B build -DBUILD_TESTING=OFF": "builds what is tested here",
    "cmake --build build": "builds what is tested here",
    "xargs rm < build/install_manifest.txt": "removes what was installed",
    "podman build -t etherwarp .": "builds an image",
    "podman run --rm etherwarp": "takes the image",
    "podman run --rm etherwarp ci_job.sh": "takes the image",
    "./scripts/bench": "takes a quarter of an hour; bench_smoke runs bench.py with small counts",
    "./scripts/bench --smoke": "installs packages and builds; bench_smoke runs bench.py --smoke",
    "./scripts/bench --peers": "takes hours; peers_bench_smoke runs peers_bench.py --quick",
    "./scripts/bench --peers --rounds 3": "takes most of an hour; peers_bench_smoke runs peers_bench.py --quick",
    "./scripts/bench --peers --quick": "installs packages and builds; peers_bench_smoke runs peers_bench.py --quick",
    "./scripts/bench --peers --resume": "takes hours; peers_report_test holds what it does",
    "./scripts/bench --peers --only network --place 9000": "takes long; peers_bench_smoke runs peers_bench.py --quick",
    "FI_PROVIDER_PATH=$PWD/build/lib/libfabric FI_PROVIDER=etherwarp build/bin/etherwarp run -- build/bin/ewarp_ofi_getinfo":
        "ofi.py runs it",
    "tests/bench/datagram_bench.py": "takes minutes; datagram_bench_smoke runs datagram_bench.py --smoke",
    "tests/bench/datagram_bench.py --option local=auto": "takes minutes; datagram_bench_smoke runs datagram_bench.py --smoke",
    "tests/bench/datagram_bench.py --only latency loopback": "takes minutes; datagram_bench_smoke runs datagram_bench.py --smoke",
    "tests/bench/loss_bench.py": "takes minutes; loss_bench_smoke runs loss_bench.py --smoke",
    "tests/bench/memory.py": "takes minutes; memory_smoke runs memory.py with fewer endpoints",
    "python3 tests/bench/channel_bench.py --build build": "takes minutes; channel_bench_smoke runs channel_bench.py --smoke",
    "python3 tests/bench/channel_bench.py --build build --tune --rounds 15": "takes a minute; channel_tune_smoke runs it with --smoke",
    "python3 tests/bench/gravel_bench.py --build build": "takes minutes; gravel_bench_smoke runs gravel_bench.py --smoke",
    "mpicc ring.c $(pkg-config --cflags --libs gravel-openmpi) -o ring": "install.py builds the examples so",
    "mpifort ring.f90 $(pkg-config --cflags --libs gravel-openmpi) -o ring": "install.py builds the examples so",
    "python3 tests/bench/acp_bench.py --build build --rounds 5": "takes minutes; acp_bench_smoke runs acp_bench.py --smoke",
    "python3 tests/bench/mpi_bench.py --build build --rounds 20": "takes minutes; mpi_bench_smoke runs mpi_bench.py --smoke",
    "python3 tests/bench/mpi_bench.py --build build --rounds 8 beside": "takes a minute; mpi_bench_smoke runs it with --smoke",
    "python3 tests/bench/mpi_bench.py --build build --rounds 16 kernels": "takes minutes; mpi_bench_smoke runs it with --smoke",
    "python3 tests/bench/mpi_bench.py --build build --rounds 7 atomics put_flush": "mpi_bench_smoke runs it with --smoke",
    "EWARP_TEST_FULL=1 tests/system/rd_loss.py one_percent": "10 GiB; system_rd_loss runs rd_loss.py with fewer",
    "EWARP_TEST_FULL=1 tests/system/rd_scale.py": "takes long; system_rd_scale runs rd_scale.py with less",
    "tests/bench/engine_bench.py": "takes an hour; engine_bench_smoke runs engine_bench.py --quick",
    "tests/bench/engine_bench.py --only write_lat": "takes minutes; engine_bench_smoke runs engine_bench.py --quick",
    "tests/bench/engine_bench.py --quick": "a test of its own, engine_bench_smoke",
    "tests/system/perftest.py without_cm": "a part of system_perftest, perftest.py",
    "tests/system/tools_loopback.py rc_pingpong": "a part of system_tools_loopback, tools_loopback.py",
    "ib_send_lat -R": "with its other options in perftest.py",
    "ib_write_lat -R": "with its other options in perftest.py",
    "ib_read_lat -R": "with its other options in perftest.py",
    "ib_send_bw -e": "with its other options in perftest.py",
    "ib_send_bw -e -Q 1": "what the page tells of it is a fault of perftest's: it does not end",
    "ib_send_bw -c UD": "what the page tells of it is that it may wait for ever; datagrams.py runs it where it does not",
    "ib_send_bw --use-srq": "what the page tells of it is a fault of perftest's; twin.py and perftest.py run it where it works",
    "apt-get install openmpi-bin libopenmpi-dev": "installs packages; they are among those of scripts/packages.txt",
    "etherwarp mpirun --host one:2,other:2 ./program": "takes two hosts; mpi_launch.py has some",
    "mpirun -x EWARP_CHANNEL_JOB --host one:2,other:2 etherwarp run --mpi -- ./program": "takes two hosts; mpi_launch.py has some",
    "srun --mpi=pmix -K -n 4 ./program": "takes a cluster; mpi_launch.py runs it in one, where Slurm is installed",
    "srun --mpi=pmix -K -n 4 etherwarp run --mpi -- ./program": "takes a cluster; mpi_launch.py runs it in one, where Slurm is installed",
    "mpirun -n 4 ./program": "mpi_launch.py runs it in the environment of the line before",
    "eval \"$(etherwarp env --mpi)\"": "mpi_launch.py evaluates it",
    "etherwarp env --mpi": "mpi_launch.py evaluates it",
    "etherwarp run --mpi": "a name",
    "etherwarp run --twin": "a name",
    "etherwarp mpirun -n 4 ./program": "typed as build/bin/etherwarp mpirun",
    "etherwarp run --mpi -- PROGRAM": "mpi_launch.py runs it",
    "wireshark -X lua_script:scripts/wireshark/etherwarp_datagram.lua": "has a window; tshark takes the same words",
    "etherwarp run": "a name",
    "etherwarp env": "a name",
    "etherwarp mpirun": "a name",
    "etherwarp acprun": "a name",
}  # fmt: skip


def types(*commands):
    """A test that types these commands; it gets them behind the rig."""
    TYPED.update(commands)

    def with_commands(test):
        def run(rig):
            test(rig, *commands)

        run.__name__, run.__doc__ = test.__name__, test.__doc__
        return run

    return with_commands


def every_command(rig):
    """Each command of the pages is typed here or listed with a reason; nothing here is in no page."""
    del rig
    told = {command: page for page, commands in extracted().items() for command in commands}
    check(len(told) > 50, f"only {len(told)} commands were found in the pages")
    unknown = [f"{page}: {command}" for command, page in told.items() if command not in TYPED and command not in ELSEWHERE]
    check(not unknown, "neither typed nor listed in tests/system/pages.py:\n    " + "\n    ".join(unknown))
    stale = sorted((TYPED | set(ELSEWHERE)) - set(told))
    check(not stale, "in tests/system/pages.py, and in no page:\n    " + "\n    ".join(stale))
    check(not TYPED & set(ELSEWHERE), f"both typed and listed: {TYPED & set(ELSEWHERE)}")
    for reason in ELSEWHERE.values():
        for file in re.findall(r"\w+\.py", reason):
            check(any((ROOT / "tests").glob(f"*/{file}")), f"a reason names {file}, which is not there: {reason}")
        for test in re.findall(r"\w+_smoke", reason):
            listed = (ROOT / "tests" / "bench" / "CMakeLists.txt").read_text(encoding="utf-8")
            check(f"NAME {test} " in listed, f"a reason names the test {test}, which is not there: {reason}")
    listed = "".join((ROOT / layer / "examples" / "CMakeLists.txt").read_text(encoding="utf-8")
                     for layer in ("provider", "mpi_shim/acp", "mpi_shim/channel"))  # fmt: skip
    for command in told:  # a script that is typed by its name
        script = re.match(r"(?:[A-Z_]+=\S+ )*((?:\./|tests/|scripts/)\S+)", command)
        if script and (ROOT / script[1]).exists():
            check(os.access(ROOT / script[1], os.X_OK), f"the pages say to type {script[1]}, which is not executable")
    examples = re.findall(r"^(?:ewarp_example|add_executable)\((\w+)", listed, re.M)
    run = " ".join(TYPED) + (ROOT / "tests" / "system" / "examples.py").read_text(encoding="utf-8")
    missing = [name for name in examples if not re.search(rf"\b{name}\b", run)]
    check(len(examples) >= 4 and not missing, f"examples that nothing runs: {missing} of {examples}")
    packages = {line.split()[0] for line in (ROOT / "scripts" / "packages.txt").read_text(encoding="utf-8").splitlines() if line}
    for command in ELSEWHERE:
        if command.startswith("apt-get install "):
            debian = {name for name in command.split()[2:] if not name.startswith("./")}  # the others are files of ours
            check(debian <= packages, f"not among scripts/packages.txt: {command}")
    print(f"  {len(told)} commands: {len(TYPED)} typed, {len(ELSEWHERE)} listed")


class Here:
    """Where the commands are typed."""

    def __init__(self, rig, folder):
        self._rig, self.folder = rig, folder
        self._netns = rig.namespace("p")
        rig.ip("-n", self._netns, "addr", "add", f"{ADDRESS}/32", "dev", "lo")
        # Open MPI starts its ranks over an interface that is not the loopback one.
        rig.ip("-n", self._netns, "link", "add", "ew0", "type", "veth", "peer", "name", "ew1")
        rig.ip("-n", self._netns, "addr", "add", "10.99.0.1/24", "dev", "ew0")
        for name in ("ew0", "ew1"):
            rig.ip("-n", self._netns, "link", "set", name, "up")
        for name in ("docs", "provider", "scripts", "tests"):
            (folder / name).symlink_to(ROOT / name)
        (folder / "build").symlink_to(BUILD)
        prefix = folder / "prefix"
        install(prefix)
        self.env = {"PATH": f"{prefix}/bin:{os.environ['PATH']}:{BUILD}/bin", "MANPATH": f"{prefix}/share/man", "MANPAGER": "cat"}

    def start(self, *lines, env=None):
        """Typed into a shell, which the last line replaces."""
        last = lines[-1] if re.match(r"[A-Z_]+=|export |eval ", lines[-1]) or "&&" in lines[-1] else f"exec {lines[-1]}"
        words = ["ip", "netns", "exec", self._netns, "bash", "-ec", "\n".join([*lines[:-1], last])]
        return self._rig.start_plain(words, {**self.env, **(env or {})}, lines[-1], cwd=self.folder)

    def run(self, *lines, seconds=30, env=None, statuses=(0,)):
        """What it says until its good end."""
        process = self.start(*lines, env=env)
        process.must_end_well(seconds, statuses)
        return process.output()

    def listening(self, port, *lines):
        server = self.start(*lines)
        wait_until(lambda: server.status is not None or listens(server.pid, port), 15, server.said)
        check(server.status is None, f"ended at once: {server.said()}")
        return server

    def pair(self, port, server, client, seconds=30):
        """Both to their good ends; what they say."""
        serving = self.listening(port, server)
        said = self.run(client, seconds=seconds)
        serving.must_end_well(20)
        return serving.output(), said


@contextlib.contextmanager
def here(rig):
    with tempfile.TemporaryDirectory(prefix="ewarp-pages-") as folder:
        try:
            yield Here(rig, pathlib.Path(folder))
        finally:
            rig.end_children()


@types("build/bin/etherwarp doctor", "etherwarp doctor", "build/bin/etherwarp devices",
       "build/bin/etherwarp run -- ibv_devinfo -v", "ibv_devinfo -v",
       'eval "$(build/bin/etherwarp env)"', 'eval "$(etherwarp env)"', 'eval "$(etherwarp env --crc always)"',
       "etherwarp options", "man etherwarp", "ulimit -Hn", "ulimit -u")  # fmt: skip
def tool(rig, doctor, installed_doctor, devices, devinfo, plain_devinfo, *rest):
    """The tool of the build tree and the installed one: doctor, devices, run, env, options, the manual page."""
    shells, (options, manual, *limits) = rest[:3], rest[3:]
    need("ibv_devinfo", "ibv_devices", "man")
    with here(rig) as h:
        for command in (doctor, installed_doctor):
            check("ok" in h.run(command) and "FAIL" not in h.run(command), command)
        check("ewarp_lo" in h.run(devices), devices)
        for said in (h.run(devinfo), h.run(shells[0], plain_devinfo)):
            check(re.search(r"hca_id:\s+ewarp_lo", said) and "PORT_ACTIVE" in said, said)
        for command in shells:
            said = h.run(command, 'echo "CRC: ${ETHERWARP_CRC-}"', "ibv_devices")
            check("ewarp_lo" in said and ("CRC: always" in said) == ("--crc always" in command), f"{command}:\n{said}")
        check("ud_reliable" in h.run(options).lower(), options)
        check("SYNOPSIS" in h.run(manual), manual)
        for limit in limits:
            check(re.match(r"[1-9]\d*$|unlimited$", h.run(f"{limit} && true").strip()), limit)


@types("etherwarp run -- ib_write_bw -R -F", "etherwarp run -- ib_write_bw -R -F 192.0.2.1", "build/bin/etherwarp stat --watch",
       "etherwarp stat", "etherwarp stat -v")  # fmt: skip
def two_processes(rig, server, client, watch, *once):
    """ib_write_bw and its server on the pages' address, `etherwarp stat` beside them."""
    need("ib_write_bw")
    with here(rig) as h:
        serving = h.listening(18515, server)
        watching = h.start(watch)
        wait_until(lambda: str(serving.pid) in watching.output(), 10, lambda: f"no server in its table\n{watching.said()}")
        for command in once:
            check(str(serving.pid) in h.run(command), f"{command}: no {serving.pid}")
        said = h.run(client)
        check(re.search(r"^\s*65536(\s+[\d.]+){4}", said, re.M), f"no figures:\n{said}")
        serving.must_end_well(20)
        check(watching.status is None, watching.said())
        watching.end()


@types("ibv_rc_pingpong -g 0", "ibv_rc_pingpong -d ewarp_lo -g 0", "ibv_ud_pingpong -g 0",
       "etherwarp run --ud-reliable -- ibv_ud_pingpong -g 0", "ib_send_lat -c UD",
       "etherwarp run --twin --ud-reliable -- ib_send_bw -c UD -x 0 -d ewarpx_lo")  # fmt: skip
def without_cm(rig, *commands):
    """Programs that exchange their addresses themselves, RC and UD."""
    need("ibv_rc_pingpong", "ibv_ud_pingpong", "ib_send_lat")
    with here(rig) as h:
        for command in commands:
            words = command if command.startswith("etherwarp") else f"etherwarp run -- {command}"
            if "ib_send" in words:
                words += f"{'' if '-x 0' in words else ' -x 0 -d ewarp_lo'} -F -n 200"
            _, said = h.pair(18515, words, f"{words} {ADDRESS}")
            check("iters in" in said or re.search(r"^\s*\d+\s+200\s+[\d.]+", said, re.M), f"{command}: no figures\n{said}")


@types("etherwarp run --twin -- PROGRAM -d ewarpx_lo", "etherwarp run --crc always -- PROGRAM")
def any_program(rig, twin, crc):
    """Options in front of a program."""
    need("ibv_devinfo")
    with here(rig) as h:
        said = h.run(twin.replace("PROGRAM", "ibv_devinfo"))
        check("ewarpx_lo" in said and "PORT_ACTIVE" in said, said)
        check("ETHERWARP_CRC=always" in h.run(crc.replace("PROGRAM", "env")), crc)


@types("export ETHERWARP_RUNDIR=$(mktemp -d)", "etherwarp run --stats-keep -- PROGRAM", "etherwarp stat --ended --json",
       "etherwarp stat --ended")  # fmt: skip
def counters_that_stay(rig, directory, program, ended, table):
    """The counters of a program that has ended."""
    need("ibv_devinfo")
    with here(rig) as h:
        lines = (directory, program.replace("PROGRAM", "ibv_devinfo >&2"), f"{table} >&2", ended)
        said = h.run(*lines, env={"TMPDIR": str(h.folder)})
        (process,) = json.loads(said[said.index("\n[") if "\n[" in said else said.index("["):])
        check(process["ended"] and process["command"] if "command" in process else process["ended"], said)


@types("etherwarp run -- rd_ping", "etherwarp run -- rd_ping 192.0.2.1", "etherwarp run -- rd_many -q 1000",
       "etherwarp run -- rd_many 192.0.2.1")  # fmt: skip
def reliable_datagrams(rig, *commands):
    """The examples rd_ping and rd_many."""
    with here(rig) as h:
        for port, server, client in ((18515, *commands[:2]), (18516, *commands[2:])):
            served, asked = h.pair(port, server, client)
            check(asked.strip(), f"{client}: silence\n{served}")


@types("etherwarp run -- build/bin/channel_pingpong 127.0.0.1:7000 &",
       "etherwarp run -- build/bin/channel_pingpong 127.0.0.1:0 127.0.0.1:7000 65536")  # fmt: skip
def channel(rig, server, client):
    """The message channel's example."""
    with here(rig) as h:
        served, asked = h.pair(7000, server.removesuffix(" &"), client)
        check(re.search(r"^65536 octets: [\d.]+ us one way$", asked, re.M), served + asked)


@types("cc program.c $(pkg-config --cflags --libs etherwarp-acp)", "etherwarp acprun -n 4 ./a.out", "etherwarp mpirun -n 4 ./a.out",
       "etherwarp acprun -n 8 build/bin/acp_ring 2000")  # fmt: skip
def acp(rig, compiler, acprun, mpirun, example):
    """An ACP program: the example, compiled and run as the page says."""
    need("cc", "pkg-config", "mpirun.openmpi")
    with here(rig) as h:
        (h.folder / "program.c").write_text((ROOT / "mpi_shim/acp/examples/ring.c").read_text(encoding="utf-8"), encoding="utf-8")
        h.run(compiler, env={"PKG_CONFIG_PATH": str(h.folder / "prefix/lib/pkgconfig")})
        for started in (acprun, mpirun):
            said = h.run(started, env={"LD_LIBRARY_PATH": str(h.folder / "prefix/lib"), **MPI}, seconds=60)
            check("4 processes, 10000 rounds: right" in said, said)
        check("8 processes, 2000 rounds: right" in h.run(example, seconds=120), example)


@types("tshark -X lua_script:scripts/wireshark/etherwarp_datagram.lua",
       "tshark -X lua_script:scripts/wireshark/etherwarp_datagram.lua -r FILE -Y 'etherwarp.type == 8 && etherwarp.flags.x'")
def wireshark(rig, live, filtered):
    """The dissector, by the pages' words; a file stands for what would be captured."""
    need("tshark")
    with here(rig) as h:
        vectors = json.loads((ROOT / "tests" / "vectors" / "datagram.json").read_text(encoding="utf-8"))["vectors"]
        (h.folder / "FILE").write_bytes(pcap([bytes.fromhex(v["datagram_hex"]) for v in vectors]))
        said = h.run(f"{live} -r FILE")
        check(said.count("EtherWARP") > 10 or said.lower().count("etherwarp") > 10, said)
        opened = h.run(filtered.replace("FILE", "FILE"))
        check("Lua" not in opened or "rror" not in opened, opened)


PROGRAM = r"""
#include <mpi.h>
#include <stdio.h>
int main(int argc, char **argv) {
  int rank, size, sum;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0) printf("%d ranks, sum %d\n", size, sum);
  MPI_Finalize();
  return sum != size * (size - 1) / 2;
}
"""

# Four ranks on few CPUs, and whoever we are.
MPI = {"OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def job(h, ranks, *lines):
    said = h.run(*lines, seconds=60, env=MPI)
    check(f"{ranks} ranks, sum {ranks * (ranks - 1) // 2}" in said, f"{lines[-1]}:\n{said}")


@types("mpicc program.c -o program", "build/bin/etherwarp mpirun -n 4 ./program", "ETHERWARP_CRC=always etherwarp mpirun ...",
       "build/bin/ewarp_mpi_suite.openmpi --list", "export FI_PROVIDER_PATH=$PWD/build/lib/libfabric",
       "build/bin/etherwarp run -- fi_info -p etherwarp -v",
       "mpirun -n 2 -x FI_PROVIDER_PATH --mca pml cm --mca mtl ofi --mca mtl_ofi_provider_include etherwarp --mca btl ^openib "
       "build/bin/etherwarp run -- PROGRAM")  # fmt: skip
def open_mpi(rig, compiler, mpirun, with_option, suite, path, fabric, by_hand):
    """Open MPI over libfabric's provider, by `etherwarp mpirun` and by hand; the provider by itself."""
    need("mpicc.openmpi", "mpirun.openmpi", "fi_info")
    with here(rig) as h:
        (h.folder / "program.c").write_text(PROGRAM, encoding="utf-8")
        h.run(compiler.replace("mpicc ", "mpicc.openmpi "))
        job(h, 4, mpirun)
        job(h, 2, with_option.replace("...", "-n 2 ./program"))
        check("blocking" in h.run(suite, env=MPI), suite)
        check("prov_name: etherwarp" in h.run(path, fabric), fabric)
        job(h, 2, path, by_hand.replace("mpirun ", "mpirun.openmpi ").replace("PROGRAM", "./program"))


@types("build/bin/etherwarp mpirun -n 4 build/bin/gravel_ring1d",
       "build/bin/etherwarp mpirun -n 4 build/bin/gravel_wavefront2d")  # fmt: skip
def gravel(rig, *commands):
    """Gravel's examples."""
    need("mpirun.openmpi")
    with here(rig) as h:
        for command in commands:
            check("verified" in h.run(command, seconds=60, env=MPI), command)


@types("export UCX_NET_DEVICES=ewarpx_lo:1 UCX_UD_VERBS_ETH_DGID_CHECK=n",
       "UCX_TLS=ud_verbs,self mpiexec.hydra -n 4 etherwarp run --twin -- ./program",
       "UCX_TLS=rc_verbs,ud_verbs:aux,self mpiexec.hydra -n 4 etherwarp run --twin -- ./program",
       "mpirun --mca pml ucx --mca btl ^vader,tcp,openib,ofi,uct --mca opal_common_ucx_tls any --mca opal_common_ucx_devices any "
       "-n 4 etherwarp run --twin -- ./program",
       "UCX_TLS=ud_verbs,self etherwarp run --twin -- ucx_perftest",
       "UCX_TLS=rc_verbs,ud_verbs:aux,self etherwarp run --twin -- ucx_perftest")  # fmt: skip
def ucx(rig, devices, hydra_ud, hydra_rc, openmpi, *perftests):
    """UCX on the twin: MPICH, Open MPI's pml ucx, ucx_perftest."""
    need("mpicc.mpich", "mpiexec.hydra", "mpicc.openmpi", "mpirun.openmpi", "ucx_perftest")
    with here(rig) as h:
        (h.folder / "program.c").write_text(PROGRAM, encoding="utf-8")
        h.run("mpicc.mpich program.c -o program")
        for command in (hydra_ud, hydra_rc):
            job(h, 4, devices, command)
        h.run("mpicc.openmpi program.c -o program")
        job(h, 4, devices, openmpi.replace("mpirun ", "mpirun.openmpi "))
        for command in perftests:
            serving = h.listening(13337, devices, command)
            said = h.run(devices, f"{command} 127.0.0.1 -t tag_lat -n 1000")
            check(re.search(r"^Final:\s+1000\s", said, re.M), f"{command}:\n{said}")
            serving.wait(10)


@types("cmake --install build")
def cmake_install(rig, command):
    """Into the default place, with DESTDIR before it."""
    need("cmake")
    with here(rig) as h:
        h.run(command, env={"DESTDIR": str(h.folder / "stage")})
        check((h.folder / "stage/usr/local/bin/etherwarp").exists(), "nothing below /usr/local")


if __name__ == "__main__":
    main(every_command, tool, two_processes, without_cm, any_program, counters_that_stay, reliable_datagrams, channel, acp,
         wireshark, open_mpi, gravel, ucx, cmake_install)  # fmt: skip
