# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`etherwarp mpirun` with stand-ins for mpirun: what it gives them, and what it says where one is missing.

Argument: the tool, in a build tree.
"""
import os
import pathlib
import subprocess
import sys
import tempfile

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
ANOTHER = "#!/bin/sh\necho 'HYDRA build details:'\n"


def run(folder, programs, *words, **variables):
    """The tool with a PATH of these programs alone."""
    for file in folder.iterdir():
        file.unlink()
    for name, text in programs.items():
        (folder / name).write_text(text, encoding="ascii")
        (folder / name).chmod(0o755)
    for needed in ("sh", "env", "sed"):
        (folder / needed).symlink_to(f"/bin/{needed}")
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("ETHERWARP_", "EWARP_", "FI_", "OMPI_", "LD_PRELOAD"))}
    return subprocess.run([tool, "mpirun", *words], env={**clean, "PATH": str(folder), **variables}, capture_output=True,
                          text=True, check=False, timeout=60)  # fmt: skip


def check(condition, text, done):
    if not condition:
        complaints.append(f"{text}\n  status {done.returncode}\n  {done.stdout}\n  {done.stderr}")


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
    for wanted in (f"LD_PRELOAD={library.parent.parent}/libetherwarp-preload.so",
                   f"FI_PROVIDER_PATH={library.parent}:/else/where", "FI_PROVIDER=etherwarp", "ETHERWARP_CRC",
                   "ETHERWARP_LOG"):  # fmt: skip
        check(("-x", wanted) in pairs, f"not for the ranks: {wanted}", done)
    for wanted in ("pml=cm", "mtl=ofi", "opal_common_ofi_provider_include=etherwarp", "btl=ofi,self", "osc=rdma,sm",
                   "osc_rdma_priority=99", "osc_rdma_network_max_amo=0", "oob_tcp_keepalive_time=9",
                   "oob_tcp_keepalive_intvl=2"):  # fmt: skip
        check(f"env: OMPI_MCA_{wanted}" in got, f"not in the environment: {wanted}", done)
    check(not any(line.startswith("env: LD_PRELOAD=") for line in got), "mpirun itself is preloaded", done)

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

    doctor = subprocess.run([tool, "doctor"], env={**os.environ, "PATH": str(path)}, capture_output=True, text=True,
                            check=False, timeout=60)  # fmt: skip
    check("ok    Open MPI" in doctor.stdout and "ok    libfabric" in doctor.stdout, "doctor", doctor)
    (path / "mpirun").unlink()
    doctor = subprocess.run([tool, "doctor"], env={**os.environ, "PATH": str(path)}, capture_output=True, text=True,
                            check=False, timeout=60)  # fmt: skip
    check("warn  Open MPI" in doctor.stdout and "openmpi-bin" in doctor.stdout, "doctor without mpirun", doctor)

print("\n".join(complaints))
sys.exit(1 if complaints else 0)
