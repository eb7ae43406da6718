# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Runs modules of rdma-core's Python tests and writes what became of each test, one JSON object a line.

Run by pyverbs.py under `etherwarp run`, with the Python that Debian's python3-pyverbs belongs to:
    pyverbs_run.py DIRECTORY RESULTS DEVICE ARRIVALS MODULE
DIRECTORY holds the package `tests`; ARRIVALS is "wait" or "as-is". The first lines name all tests of the module, with the
outcome "collected".
"""
import json
import os
import sys
import time
import unittest

DIRECTORY, RESULTS, DEVICE, ARRIVALS, MODULE = sys.argv[1:]
sys.path[:1] = [DIRECTORY, os.path.join(DIRECTORY, "tests")]  # not this directory: pyverbs.py is no module of it
sys.argv[1:] = ["--dev", DEVICE, "--gid", "0"]

from args_parser import parser  # noqa: E402  (of the tests)

parser.parse_args()

import pyverbs.enums as e  # noqa: E402
import tests.rdmacm_utils  # noqa: E402
import tests.utils  # noqa: E402

ARRIVAL_SECONDS = 10


class Recorder(unittest.TestResult):
    def __init__(self, out):
        super().__init__()
        self.out = out
        self.printed = 0  # octets in the file that is the standard output, before the test

    def say(self, test, outcome, why=""):
        if isinstance(test, unittest.TestSuite):
            for one in test:
                self.say(one, outcome, why)
            return
        print(json.dumps({"test": test.id().removeprefix("tests."), "outcome": outcome, "why": why[-4000:]}),
              file=self.out, flush=True)  # fmt: skip

    def startTest(self, test):
        super().startTest(test)
        self.printed = os.fstat(1).st_size
        self.say(test, "started")

    def addSuccess(self, test):
        self.say(test, "passed")

    def addSkip(self, test, reason):
        self.say(test, "skipped", reason)

    def addError(self, test, err):
        # Many tests play with two processes; what these have printed says what happened.
        sys.stdout.flush()
        said = os.pread(1, 1 << 16, self.printed).decode(errors="replace")
        self.say(test, "failed", said + self._exc_info_to_string(err, test))

    addFailure = addError

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self.addError(test, err)


def when_arrived(read, size, letter, gone=lambda: False):
    """What is read once it is nothing but this letter, or nothing comes any more."""
    deadline = time.monotonic() + ARRIVAL_SECONDS
    while True:
        octets = read()
        if octets[:size] == letter.encode() * size or gone() or time.monotonic() > deadline:
            return octets
        time.sleep(0.001)


def in_error(qp):
    return qp.query(e.IBV_QP_STATE)[0].qp_state == e.IBV_QPS_ERR


class PatientRegion:
    """A memory region that is read when the peer's octets are there."""

    def __init__(self, region):
        self._region = region

    def __getattr__(self, name):
        return getattr(self._region, name)

    def read(self, size, offset):
        return when_arrived(lambda: self._region.read(size, offset), size, "c")


def wait_for_arrivals():
    """The tests look at a Write's target when the Write has completed at its sender."""
    plain_traffic = tests.utils.rdma_traffic
    plain_remote = tests.rdmacm_utils.CMConnection.remote_traffic

    def rdma_traffic(client, server, *arguments, **named):
        for player, letter in ((client, "s"), (server, "c")):
            def mem_read(size=None, offset=0, player=player, letter=letter):
                size = player.msg_size if size is None else size
                return when_arrived(lambda: player.mr.read(size, offset), size, letter, lambda: in_error(player.qp))
            player.mem_read = mem_read
        return plain_traffic(client, server, *arguments, **named)

    def remote_traffic(self, passive, remote_op="write"):
        if passive and remote_op == "write":
            self.cm_res.mr = PatientRegion(self.cm_res.mr)
        return plain_remote(self, passive, remote_op)

    tests.utils.rdma_traffic = rdma_traffic
    tests.rdmacm_utils.CMConnection.remote_traffic = remote_traffic


if ARRIVALS == "wait":
    wait_for_arrivals()
with open(RESULTS, "a", encoding="utf-8") as results:
    suite = unittest.defaultTestLoader.loadTestsFromName(f"tests.{MODULE}")
    recorder = Recorder(results)
    recorder.say(suite, "collected")
    suite.run(recorder)
