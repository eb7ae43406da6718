# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`etherwarp mpirun` between hosts: network namespaces with host names of their own."""
import pathlib
import re
import time

from harness import check, main, need, wait_until
from mpi import DEBIAN_PYTHON, KEPT, ONE_SIDED, SCRIPTS, words
from mpi_jobs import run_job, suite
from vanished import bring_back, end_all_in, vanish


def several_hosts(rig, count):
    """So many network namespaces with host names and TMPDIRs of their own, on a bridge: they, what mpirun's words begin
    and go on with to start a rank on each, and its environment. A file host2 in rig.rundir is read by the shell that
    starts what runs on that host; what it mounts is seen there alone."""
    need("unshare", "hostname")
    hosts = rig.lan(count)
    agent = pathlib.Path(rig.rundir, "agent")
    # called as `agent [options] address command`: enters that host as ssh would
    agent.write_text(f"""#!/bin/sh
while [ "${{1#-}}" != "$1" ]; do shift; done
number=${{1##*.}}; shift
mkdir -p {rig.rundir}/tmp$number
exec ip netns exec {hosts[0][:-1]}$number unshare --uts sh -c "hostname host$number; \\
    TMPDIR={rig.rundir}/tmp$number; export TMPDIR; [ ! -e {rig.rundir}/host$number ] || . {rig.rundir}/host$number; $*"
""", encoding="ascii")  # fmt: skip
    agent.chmod(0o755)
    addresses = ",".join(f"10.99.0.{n}:1" for n in range(1, count + 1))
    # mpirun is on the first host, under its name
    inside = ["ip", "netns", "exec", hosts[0], "unshare", "--uts", "sh", "-c", 'hostname host1 && exec "$@"', "sh"]
    # Open MPI does not know that these hosts have the same CPUs, so it is told that ranks which wait are to let others run.
    env = {**KEPT, "TMPDIR": rig.rundir, "EWARP_CHANNEL_SHARES_CPU": "1", "OMPI_MCA_mpi_yield_when_idle": "1"}
    return hosts, inside, ["--mca", "plm_rsh_agent", agent, "--host", addresses], env


def four_hosts(rig):
    """4 ranks in 4 network namespaces with host names and TMPDIRs of their own, on a bridge."""
    _, inside, where, env = several_hosts(rig, 4)
    named = ["sh", "-c", "echo on $(hostname).; exec $0 -B $1", DEBIAN_PYTHON, SCRIPTS / "objects.py"]
    # Open MPI before 4.1.5 hangs in dynamic windows between hosts (docs/user/mpi.md, Limits).
    for name, program, least in (("suite", [suite("openmpi"), "--no-dynamic-windows", "blocking", "wildcard", "collectives",
                                            *ONE_SIDED], 10 << 20),
                                 ("hostname", named, 1 << 20)):  # fmt: skip
        output = run_job(rig, f"{name}, 4 hosts", [*inside, *words(rig, 4, program, *where)], 4, least, 180, env, "ewarp_ew0")
        if name == "hostname":
            names = set(re.findall(r"\bon (host\d)\.", output))
            check(len(names) == 4, f"the ranks ran on {sorted(names)}")
            check(output.count(" ok") == 4, f"objects.py:\n{output}")


def vanished_host(rig):
    """The host of a rank vanishes while the other rank waits for its message, and while it sends to it: the job ends with an
    error."""
    need("nft")
    hosts, inside, where, env = several_hosts(rig, 2)
    # The rank finds out after 6 to 8 s, and mpirun, which is first by default, after it.
    env = {**env, "ETHERWARP_KEEPALIVE_S": "1", "ETHERWARP_UNACKNOWLEDGED_S": "2", "OMPI_MCA_oob_tcp_keepalive_time": "9"}
    try:
        lose_a_host(rig, hosts, inside, where, env)
    finally:
        end_all_in(hosts[1])


def lose_a_host(rig, hosts, inside, where, env):
    for what in ("waits", "sends"):
        program = [DEBIAN_PYTHON, "-B", SCRIPTS / "bereft.py", what]
        job = rig.start_plain([*inside, *words(rig, 2, program, *where)], env, f"rank 0 {what}")
        wait_until(lambda job=job: "begins" in job.output() or job.status is not None, 60, lambda job=job: job.said())
        check(job.status is None, f"it ended\n{job.said()}")
        # Until the daemon there has acknowledged what mpirun sent it at the start: else mpirun waits for TCP, 15 minutes.
        time.sleep(2)
        vanish(hosts[1])
        began = time.monotonic()
        wait_until(lambda job=job: "rank 0: MPI_ERR" in job.output(), 60, lambda job=job: f"no error\n{job.said()}")
        print(f"  {job.name}: an error after {time.monotonic() - began:.1f} s")
        status = job.wait(60)
        check(status > 0, f"the job's status is {status}\n{job.said()}")
        print(f"  {job.name}: the end after {time.monotonic() - began:.1f} s")
        bring_back(hosts[1])
        end_all_in(hosts[1])


if __name__ == "__main__":
    main(four_hosts, vanished_host)
