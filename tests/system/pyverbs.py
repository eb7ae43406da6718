# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""rdma-core's own Python tests, as Debian's python3-pyverbs brings them, on the loopback device and on a veth device.

Each test passes, or pyverbs_list.txt says why it does not apply here. A test that does neither is a failure; so is one
that fails in another way than the list says, that ends the interpreter, or that never ran.
"""
import collections
import fnmatch
import gzip
import json
import pathlib
import shutil
import subprocess

from harness import Failure, Skip, check, main

TESTS = pathlib.Path("/usr/share/doc/rdma-core/tests")
PYTHON = "/usr/bin/python3"  # the one that Debian's module is for
HERE = pathlib.Path(__file__).parent
LIST = HERE / "pyverbs_list.txt"


def unpack(rig):
    """The tests in a directory of their own; Debian compresses the larger files."""
    if subprocess.run([PYTHON, "-c", "import pyverbs.device"], capture_output=True, check=False).returncode != 0:
        raise Skip("the package python3-pyverbs is not installed (scripts/packages.txt)")
    if not TESTS.is_dir():
        raise Skip(f"{TESTS} is not there: the package python3-pyverbs was installed without its documentation")
    directory = pathlib.Path(rig.rundir, "pyverbs")
    (directory / "tests").mkdir(parents=True)
    for file in TESTS.iterdir():
        if file.suffix == ".gz":
            (directory / "tests" / file.stem).write_bytes(gzip.decompress(file.read_bytes()))
        else:
            shutil.copy(file, directory / "tests")
    return directory


def read_list():
    """{pattern: (outcome, reason, text that the failure has)} of pyverbs_list.txt."""
    listed, heading = {}, None
    for line in LIST.read_text(encoding="utf-8").splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        if line[0].isspace():
            pattern, _, text = line.strip().partition(" -- ")
            check((heading[0] in ("fails", "race")) == bool(text), f"{LIST.name}: {pattern}: how does it fail?")
            listed[pattern] = (*heading, text)
        else:
            outcome, reason = line.split(":", 1)
            check(outcome in ("skipped", "fails", "race", "either", "not run"), f"{LIST.name}: unknown outcome {outcome}")
            heading = (outcome, reason.strip())
    return listed


def find(listed, test):
    return listed.get(test) or next((v for p, v in listed.items() if fnmatch.fnmatchcase(test, p)), None)


def became(module, lines, status, said):
    """What run_module() returns, of the lines that pyverbs_run.py wrote before it ended so."""
    outcomes = {}
    for line in map(json.loads, lines):
        outcomes[line["test"]] = (line["outcome"], line["why"])
    said = f"the interpreter ended with status {status}\n{said}"
    ended = {"started": "crashed", "collected": "missing"}
    outcomes = {test: (ended[outcome], said) if outcome in ended else (outcome, why)
                for test, (outcome, why) in outcomes.items()}  # fmt: skip
    check(outcomes, f"{module}: no test was found; {said}")
    check(status == 0 or any(outcome in ended.values() for outcome, _ in outcomes.values()), f"{module}: {said}")
    return outcomes


def run_module(rig, directory, module, device, arrivals, **how):
    """{test: (outcome, why)} of all tests of the module: passed, skipped, failed; crashed where the interpreter ended in
    it, missing where it never began."""
    results = directory / f"{module}.{arrivals}.json"
    process = rig.start([PYTHON, "-B", HERE / "pyverbs_run.py", directory, results, device, arrivals, module],
                        name=f"pyverbs {module}", **how)  # fmt: skip
    status = process.wait(120)
    lines = results.read_text(encoding="utf-8").splitlines() if results.exists() else []
    outcomes = became(module, lines, status, process.said())
    rig.forget(process)
    results.unlink(missing_ok=True)
    return outcomes


def verdict(test, outcome, why, expected):
    """None where this is as it should be, else a sentence."""
    if outcome == "passed":
        return None
    listed, _, text = expected or ("nothing", "", "")
    if outcome == "skipped" and listed in ("skipped", "either"):
        return None
    if outcome == "failed" and listed in ("fails", "race") and text in why:
        return None
    last = why.strip().splitlines()[-1][:300] if why.strip() else ""
    return f"{test} {outcome}, listed as {listed}" + (f" with '{text}'" if text else "") + f": {last}"


def compare(rig, device, **how):
    """All modules, against the list; tells of tests that pass although they are listed."""
    directory, listed = unpack(rig), read_list()
    count, wrong, better = collections.Counter(), [], []
    for module in sorted(p.stem for p in (directory / "tests").glob("test_*.py")):
        if (find(listed, module) or ("",))[0] == "not run":
            continue
        outcomes = run_module(rig, directory, module, device, "wait", **how)
        for test, (outcome, why) in outcomes.items():
            count[outcome] += 1
            expected = find(listed, test)
            sentence = verdict(test, outcome, why, expected)
            if sentence:
                wrong.append(sentence)
            elif outcome == "passed" and expected and expected[0] not in ("either", "race"):
                better.append(test)
    print(f"  {device}: " + ", ".join(f"{n} {what}" for what, n in sorted(count.items())), flush=True)
    if better:
        print(f"  passed although listed: {', '.join(better)}")
    octets = sum(d["tx_octets"] for p in rig.ended() for d in p["devices"])
    check(octets > 100000, f"{octets} octets went over EtherWARP: the tests did something else")
    if wrong:
        raise Failure("\n    ".join([f"{len(wrong)} tests are not as {LIST.name} says:", *wrong]))


def loopback(rig):
    """With the loopback device alone."""
    compare(rig, "ewarp_lo", env={"ETHERWARP_INTERFACES": "lo"})


def veth(rig):
    """With a veth device beside the loopback."""
    one, other = rig.namespace("a"), rig.namespace("b")
    rig.veth(one, other)
    compare(rig, "ewarp_ew0", netns=one)


if __name__ == "__main__":
    main(loopback, veth)
