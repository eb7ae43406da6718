# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Launching MPI jobs: what users get wrong between hosts ends in one line, soon; hosts with EtherWARP in other places; other
launchers than `etherwarp mpirun`."""
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

from harness import BUILD, Skip, check, main, need, wait_until
from mpi import DEBIAN_PYTHON, KEPT, SCRIPTS, words
from mpi_hosts import several_hosts
from mpi_jobs import open_mpi, run_job

RING = [DEBIAN_PYTHON, "-B", "-m", "mpi4py", SCRIPTS / "objects.py"]
# How long a job may take that cannot be: the channel tries a connection for 10 s.
PATIENCE = 40


def on_host(rig, number, text):
    """What the shell does on this host before it starts anything there."""
    pathlib.Path(rig.rundir, f"host{number}").write_text(text + "\n", encoding="ascii")


def hidden(*more):
    """EtherWARP is not in its place."""
    return "\n".join([*more, f"mount -t tmpfs none {BUILD}"])


def differing(variable, value):
    """A program that has another value of a variable on host2."""
    return ["sh", "-c", f'[ "$(uname -n)" != host2 ] || export {variable}={value}; exec "$@"', "sh", *RING]


def lines_of(output):
    """EtherWARP's own, of errors."""
    return [line for line in output.splitlines() if "etherwarp: error: " in line]


def refused_job(rig, name, hosts, program, wanted, ranks=4, env=None, lines=1):
    """A job that cannot be: it ends with an error, in time, and the one line says these things."""
    _, inside, where, own = hosts
    began = time.monotonic()
    where = [w.replace(":1", f":{ranks // 2}") if isinstance(w, str) else w for w in where]
    job = rig.start_plain([*inside, *words(rig, ranks, program, *where)], {**own, **(env or {})}, name)
    status = job.wait(PATIENCE)
    check(status > 0, f"{name}: the job's status is {status}\n{job.said()}")
    told = lines_of(job.output())
    check(len(told) == lines, f"{name}: {len(told)} lines\n{job.said()}")
    for line in told:
        for word in wanted:
            check(re.search(word, line), f"{name}: nothing of {word}: {line}")
    print(f"  {name}, {time.monotonic() - began:.1f} s: {told[0]}", flush=True)
    rig.forget(job)


def missing(rig):
    """EtherWARP is not there on one host."""
    hosts = several_hosts(rig, 2)
    on_host(rig, 2, hidden())
    refused_job(rig, "missing", hosts, RING, ["host host2: EtherWARP is missing", f"{BUILD}/bin/etherwarp", "install"])


def elsewhere(rig):
    """EtherWARP is in another place on one host, where PATH finds it."""
    _, inside, where, env = several_hosts(rig, 2)
    other = rig.folder("else where")
    on_host(rig, 2, hidden(f"mount --bind {BUILD} '{other}'", f"PATH='{other}/bin':$PATH; export PATH"))
    refused_job(rig, "a path with a blank", (None, inside, where, env), RING, ["host host2: .*contains a blank"])
    other = rig.folder("elsewhere")
    on_host(rig, 2, hidden(f"mount --bind {BUILD} {other}", f"PATH={other}/bin:$PATH; export PATH"))
    output = run_job(rig, "elsewhere", [*inside, *words(rig, 2, RING, *where)], 2, 1 << 20, 120, env, "ewarp_ew0")
    check(output.count(" ok") == 2, f"objects.py:\n{output}")


def options(rig):
    """An option that is to be the same at all ends differs between the hosts."""
    hosts = several_hosts(rig, 2)
    for variable, value, here in (("EAGER_THRESHOLD", 65536, "131072"), ("RECEIVE_DEPTH", 32, "64"), ("IGNORED_BITS", 0, "4294967296")):
        refused_job(rig, variable, hosts, differing(f"EWARP_CHANNEL_{variable}", value),
                    [r"no connection from host\d \(10\.99\.0\.\d:\d+\) to 10\.99\.0\.\d:\d+: ",
                     f"EWARP_CHANNEL_{variable} is ({here} here and {value}|{value} here and {here}) there; set one value"])


def secrets(rig):
    """A process of another job."""
    refused_job(rig, "another job", several_hosts(rig, 2), differing("EWARP_CHANNEL_JOB", "another"),
                [r"no connection from host\d \(10\.99\.0\.\d:\d+\) to 10\.99\.0\.\d:\d+: it is of another job", "EWARP_CHANNEL_JOB"])


OTHER_VERSION = BUILD / "lib/libewarp_other_version.so"
AS_OTHER_VERSION = f'[ "$(uname -n)" != host2 ] || export LD_PRELOAD="$LD_PRELOAD:{OTHER_VERSION}"; exec "$@"'


def versions(rig):
    """EtherWARP on one host is of another version of the channel."""
    refused_job(rig, "another version", several_hosts(rig, 2), ["sh", "-c", AS_OTHER_VERSION, "sh", *RING],
                [r"no connection from host\d \(10\.99\.0\.\d:\d+\) to 10\.99\.0\.\d:\d+: it speaks version \d+ of the channel, "
                 r"this end version \d+; install the same EtherWARP on all hosts"])  # fmt: skip


def firewall(rig):
    """A packet filter between the hosts drops or refuses the ranks' connections, and lets those of mpirun through."""
    need("nft")
    hosts = several_hosts(rig, 2)
    env = {"OMPI_MCA_oob_tcp_dynamic_ipv4_ports": "20000-20099"}
    for verdict in ("drop", "reject", "reject with tcp reset"):
        rules = f"""flush ruleset
            table inet t {{ chain c {{ type filter hook input priority 0
                iif lo accept
                tcp dport 20000-20099 accept; tcp sport 20000-20099 accept
                meta l4proto tcp {verdict}
            }}
            }}
"""
        done = subprocess.run(["ip", "netns", "exec", hosts[0][1], "nft", "-f", "-"], input=rules, text=True, check=False,
                              capture_output=True)  # fmt: skip
        check(done.returncode == 0, done.stderr)
        refused_job(rig, verdict, hosts, RING, [r"no connection from host\d \(10\.99\.0\.\d:\d+\) to 10\.99\.0\.\d:\d+: ",
                                                "no answer within 10 s", "firewall"], env=env)  # fmt: skip


# What `eval "$(etherwarp env --mpi)"` makes of a shell, and what replaces it.
IN_ENVIRONMENT = 'eval "$("$0" env --mpi)"; exec "$@"'


def plain_mpirun(rig):
    """Open MPI's own mpirun between hosts, by the environment of `etherwarp env --mpi` and `etherwarp run --mpi`; EtherWARP in
    another place on one of them."""
    _, inside, where, env = several_hosts(rig, 2)
    other = rig.folder("elsewhere")
    on_host(rig, 2, hidden(f"mount --bind {BUILD} {other}", f"PATH={other}/bin:$PATH; export PATH"))
    env = {**env, "PATH": f"{BUILD}/bin:{os.environ['PATH']}"}
    forwarded = [word for name in ("EWARP_CHANNEL_JOB", "ETHERWARP_STATS_KEEP", "ETHERWARP_RUNDIR", "ETHERWARP_LOCAL",
                                   "EWARP_CHANNEL_SHARES_CPU") for word in ("-x", name)]  # fmt: skip
    output = run_job(rig, "plain mpirun", [*inside, "sh", "-c", IN_ENVIRONMENT, rig.etherwarp, *open_mpi(*where), *forwarded,
                                           "-n", 2, "etherwarp", "run", "--mpi", "--", *RING],
                     2, 1 << 20, 120, env, "ewarp_ew0")  # fmt: skip
    check(output.count(" ok") == 2, f"objects.py:\n{output}")


SLURM = """ClusterName=t
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthInfo=socket={folder}/munge
ProctrackType=proctrack/pgid
TaskPlugin=task/none
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
NodeName={host} NodeAddr=127.0.0.1 CPUs=2
PartitionName=p Nodes={host} Default=YES OverSubscribe=FORCE:8
"""


def slurm(rig):
    """srun with PMIx, in a cluster of one host: by the environment of `etherwarp env --mpi`, and by `etherwarp run --mpi`."""
    for program in ("munged", "slurmctld", "slurmd", "srun"):
        if shutil.which(program) is None:
            raise Skip(f"no {program}: Debian's munge, slurmctld, slurmd and slurm-client are not installed")
    folder = pathlib.Path(rig.folder("slurm"))
    for name in ("state", "spool"):
        (folder / name).mkdir()
    (folder / "slurm.conf").write_text(SLURM.format(folder=folder, host=os.uname().nodename), encoding="ascii")
    (folder / "key").write_bytes(os.urandom(1024))
    (folder / "key").chmod(0o600)
    # The host has an address beside the loopback one, else no name or address is resolved there. Not by ip(8), which mounts
    # another /sys, without cgroups: slurmd looks for them, though it uses none.
    inside = ["nsenter", f"--net=/run/netns/{rig.lan(1)[0]}"]
    env = {**KEPT, "SLURM_CONF": str(folder / "slurm.conf")}

    def start(name, *words):
        return rig.start_plain([*inside, name, *words], env, name)

    munged = start("munged", "--foreground", "--force", f"--key-file={folder}/key", f"--socket={folder}/munge",
                   f"--pid-file={folder}/munged.pid", f"--log-file={folder}/log", f"--seed-file={folder}/seed")  # fmt: skip
    wait_until((folder / "munge").exists, 20, munged.said)
    controller = start("slurmctld", "-D", "-i")
    node = start("slurmd", "-D")

    def is_idle():
        done = subprocess.run([*inside, "sinfo", "-h", "-o", "%T"], env={**rig.env, **env}, capture_output=True, text=True,
                              timeout=20, check=False)  # fmt: skip
        return done.stdout.strip() == "idle"

    wait_until(is_idle, 60, lambda: f"no node\n{controller.said()}\n{node.said()}")
    srun = ["srun", "--mpi=pmix", "--immediate=60", "-K", "-n", 2]
    for name, words in (("srun, etherwarp env --mpi", ["sh", "-c", IN_ENVIRONMENT, rig.etherwarp, *srun, *RING]),
                        ("srun, etherwarp run --mpi", [*srun, rig.etherwarp, "run", "--mpi", "--", *RING])):  # fmt: skip
        output = run_job(rig, name, [*inside, *words], 2, 1 << 20, 120, env, "ewarp_ew0")
        check(output.count(" ok") == 2, f"objects.py:\n{output}")
    # Each rank draws a secret of its own.
    job = rig.start_plain([*inside, *srun, "sh", "-c", IN_ENVIRONMENT, rig.etherwarp, *RING], env, "srun, other secrets")
    check(job.wait(PATIENCE) > 0 and "it is of another job" in lines_of(job.output())[0], job.said())
    for daemon in (node, controller, munged):
        daemon.send(signal.SIGTERM)
        daemon.wait(30)


if __name__ == "__main__":
    main(missing, elsewhere, options, secrets, versions, firewall, plain_mpirun, slurm)
