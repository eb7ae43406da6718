# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What tests/system/inject.py makes of the end of an MPI job, and tests/system/pyverbs.py of the end of a test.

Arguments: the root of the sources.
"""
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(sys.argv[1]) / "tests/system"))
from harness import Failure  # noqa: E402
from inject import judge_job  # noqa: E402
from pyverbs import became, verdict  # noqa: E402

WELL = "2 ranks, threads 0, seed 7\nblocking         ok        960 checks    0.31 s\nall subjects ok\n"
ABORT = "MPI_ABORT was invoked on rank 1 in communicator MPI_COMM_WORLD\nwith errorcode 1.\n"


def failed_check(text):
    return f"blocking: rank 1 of 2: /src/tests/mpi/blocking.c:49: {text} (seed 1795443811)\n{ABORT}"


JOBS = [
    (0, WELL, "survived"),
    (0, "", "FINDING: the job is not done"),
    (1, "A process failed to create a queue pair.\n" + ABORT, "stopped status 1"),
    (1, failed_check("MPI_Send(data, (int)length, MPI_BYTE, to, kTag, comm) failed"), "stopped status 1"),
    (1, failed_check("no memory: 4096 octets"), "stopped status 1"),
    (1, failed_check("message: octet 17 of 4096 is 55, not 3a"), "FINDING: a rank got what nobody sent: message: octet 17 "),
    (1, failed_check("behind the message: octet 0 of 16 was written to: 3a"), "FINDING: a rank got what nobody sent: behind"),
    (1, failed_check("status: source 0, tag 11, 8 octets, not 0, 11, 64"), "FINDING: a rank got what nobody sent: status"),
    (0, WELL + failed_check("message: octet 0 of 8 is 55, not 3a"), "FINDING: a rank got what nobody sent"),
    # Open MPI may go down on its way out of this, too.
    (139, failed_check("message: octet 0 of 8 is 55, not 3a") + "mca_btl_ofi_context_finalize+0x1c\n", "FINDING: a rank got"),
    (139, "mca_btl_ofi_context_finalize+0x1c\n", "stopped in Open MPI"),
    (139, "exited on signal 11 (Segmentation fault)\n", "FINDING: a signal ends a rank"),
    (1, "  Exit code:    134\n", "FINDING: a signal ends a rank"),
]

FAILS = ("fails", "not offered", "Operation not supported")
# Outcome of a test, why, what the list says of it; whether that is as it should be.
TESTS = [
    ("passed", "", None, True),
    ("passed", "", FAILS, True),
    ("failed", "errno: Operation not supported", FAILS, True),
    ("failed", "a wrong octet", FAILS, False),
    ("failed", "Operation not supported", None, False),
    ("skipped", "no ODP", ("skipped", "not offered", ""), True),
    ("skipped", "no ODP", FAILS, False),
    ("skipped", "no ODP", None, False),
    # An interpreter that ends says nothing that a list could expect.
    ("crashed", "Operation not supported", FAILS, False),
    ("missing", "Operation not supported", FAILS, False),
    ("missing", "", ("skipped", "not offered", ""), False),
]


def module(*outcomes, status=0):
    """{test: outcome} where the program wrote of test 1, 2... what it was last, and all of them were collected before."""
    lines = [{"test": str(at), "outcome": "collected", "why": ""} for at in range(len(outcomes))]
    lines += [{"test": str(at), "outcome": outcome, "why": ""} for at, outcome in enumerate(outcomes)]
    try:
        return [outcome for outcome, _ in became("m", map(json.dumps, lines), status, "").values()]
    except Failure:
        return None


MODULES = [
    (module("passed", "failed", "skipped"), ["passed", "failed", "skipped"]),
    (module("passed", "started", "collected", status=-11), ["passed", "crashed", "missing"]),
    (module("passed", "collected"), ["passed", "missing"]),
    (module("passed", status=1), None),
    (module(), None),
]

wrong = [(test, verdict("test", *test[:3])) for test in TESTS if (verdict("test", *test[:3]) is None) != test[3]]
wrong += [found for found in MODULES if found[0] != found[1]]
for text in wrong:
    print(f"pyverbs: is judged: {text}")
if wrong:
    sys.exit(1)

wrong = [(status, output, judge_job(status, output)) for status, output, word in JOBS
         if not judge_job(status, output).startswith(word)]  # fmt: skip
for status, output, said in wrong:
    print(f"status {status}, {output!r}\n  is judged: {said}")
sys.exit(1 if wrong else 0)
