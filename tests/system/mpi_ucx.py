# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""MPI libraries on UCX, over the twin device: Debian's MPICH (ch4:ucx) and Open MPI's pml ucx."""
from harness import FULL, LOCAL, check_streams, main, need
from mpi_jobs import check_suite, open_mpi, run_job_counted, suite

# docs/user/mpi.md
UCX = {"UCX_NET_DEVICES": "ewarpx_lo:1", "UCX_UD_VERBS_ETH_DGID_CHECK": "n"}
UD, RC = "ud_verbs,self", "rc_verbs,ud_verbs:aux,self"
OPEN_MPI = ["--mca", "pml", "ucx", "--mca", "btl", "^vader,tcp,openib,ofi,uct",
            "--mca", "opal_common_ucx_tls", "any", "--mca", "opal_common_ucx_devices", "any"]  # fmt: skip

TWO_SIDED = ["blocking", "nonblocking", "sendrecv", "persistent", "probe", "cancel", "wildcard", "order", "errors"]
COLLECTIVE = ["collectives", "icollectives", "neighbourhood", "communicators", "buffers", "children", "threads"]
# MPICH 4.0 over UCX calls a message truncated whose derived datatype is cut within an element by UCX's fragments, over
# tcp too (UCX_TCP_TX_SEG_SIZE=4093).
MPICH = ["onesided", "accumulate"]
# Open MPI's one-sided communication does not go together with its pml ucx: osc pt2pt hangs over UCX's tcp too, and
# Debian switches osc ucx off.
OPENMPI = ["datatypes"]
# Open MPI's pml ucx leaves the error of a request's last use in it; a Waitall that ends with an error frees what is
# pending beside it for that, over tcp too.
OPTIONS = {"mpich": [], "openmpi": ["--pending-lost"]}


def hydra(rig, ranks, words):
    need("mpiexec.hydra")
    return ["mpiexec.hydra", "-n", ranks, *rig.words(words, ["--twin"])]


def suite_job(rig, library, launcher, transport, subjects, ranks):
    program = suite(library)
    name = f"{library}, {transport.split(',', maxsplit=1)[0]}"
    words = launcher(rig, ranks, [program, *OPTIONS[library], *subjects])
    # sizes up to 2 MiB between all: a few MiB a subject
    output, processes = run_job_counted(rig, name, words, ranks, len(subjects) << 20, 240, {**UCX, "UCX_TLS": transport},
                                        "ewarpx_lo")  # fmt: skip
    check_streams(name, processes)
    check_suite(name, output, subjects)


def open_mpi_ucx(rig, ranks, words):
    return open_mpi("-n", ranks, *OPEN_MPI, *rig.words(words, ["--twin"]))


def both_transports(rig, library, launcher, more):
    """Half of the suite over each, or in the full mode all over both, with more ranks too. Datagrams never go through shared
    memory, so where that is tested RC has all."""
    parts = ((UD, TWO_SIDED), (RC, COLLECTIVE + more))
    for transport, subjects in ((RC, TWO_SIDED + COLLECTIVE + more),) if LOCAL else parts:
        if FULL:
            subjects = TWO_SIDED + COLLECTIVE + more
        for ranks in (2, 4, 16) if FULL else (2,):
            suite_job(rig, library, launcher, transport, subjects, ranks)


def mpich(rig):
    """The suite with MPICH: two-sided over UD, the rest over RC."""
    both_transports(rig, "mpich", hydra, MPICH)


def openmpi(rig):
    """The suite with Open MPI's pml ucx: two-sided over UD, the rest over RC."""
    both_transports(rig, "openmpi", open_mpi_ucx, OPENMPI)


if __name__ == "__main__":
    main(mpich, openmpi)
