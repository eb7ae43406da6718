# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What .ci/run does with what its steps did, beside steps that only print: its exit status, its record, its last lines."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(sys.argv[1])
# What the tests of preset asan printed: of cmocka, and of tests/system/harness.py.
PRINTED = """7/9 Testing: slow_one
skipped: no IPv6
[  SKIPPED ] a_case
9/9 Testing: python_one
a_function: does something
  SKIPPED: no namespace
"""
SKIPS = "# a comment\nslow_one a_case: reason\nwhole_one -: reason\npython_one *: reason\n"
LINES = 100_000  # more than the buffer of any pipe
COMMON = 'EWARP_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)\nEWARP_JOBS=1\n' \
         'install_packages() { [[ " $* " != *" ${UNAVAILABLE-none} "* ]] || { echo "no $UNAVAILABLE" >&2; exit 1; }; }\n' \
         'build_preset() { :; }\nctest() { :; }\n'
RELEASE = f"""#!/bin/bash
echo "== testing: preset asan"
echo "  7/9 Test   #7: slow_one ......   Passed   52.60 sec"
echo "  8/9 Test   #8: whole_one .....***Skipped   0.10 sec"
echo "100% tests passed, 0 tests failed out of 9"
echo "siw: ${{EWARP_SIW-none}}"
echo "== testing: preset release"
for ((i = 0; i < ${{LONG-1}}; i++)); do echo "line $i of a long log"; done
echo "  1/1 Test   #1: last_one ......   Passed    1.50 sec"
echo "$CLOSING"
echo "Total Test time (real) =   1.50 sec"
exit $STATUS
"""


def program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def run(root, status, closing, **more):
    record = root.parent / "record"
    record.unlink(missing_ok=True)
    ended = subprocess.run(["bash", ".ci/run"], cwd=root, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=50,
                           env={**{k: v for k, v in os.environ.items() if k != "EWARP_SIW"}, **more, "STATUS": str(status),
                                "CLOSING": closing, "EWARP_CI_PASSED": str(record)})
    return ended, record.read_text().strip() if record.exists() else None


def main():
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch) / "tree"
        for file in (".ci/run", "scripts/ci_summary.py", "scripts/running.py"):
            (root / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(SOURCE / file, root / file)
        (root / ".gitignore").write_text("/build*/\n")
        program(root / "scripts/common.sh", COMMON)
        for step in ("demo", "lint", "soak", "fuzz"):
            program(root / "scripts" / step, f'#!/bin/bash\necho "did {step} $*"\n')
        program(root / "scripts/test", RELEASE)
        program(root / "build-asan/Testing/Temporary/LastTest.log", PRINTED)
        program(root / "tests/skips.txt", SKIPS)
        git = ["git", "-c", "user.name=test", "-c", "user.email=test@invalid"]
        for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "a tree"]):
            subprocess.run(git + words, cwd=root, check=True)
        head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, check=True, capture_output=True, text=True).stdout.strip()

        passed = "100% tests passed, 0 tests failed out of 1"
        ended, record = run(root, 0, passed, LONG=str(LINES))
        assert ended.returncode == 0, (ended.returncode, ended.stderr, ended.stdout[-500:])
        assert record == head, record
        assert (root / "build/.ci-passed").read_text().strip() == head
        lines = ended.stdout.splitlines()
        assert lines[-2:] == [passed, "Total Test time (real) =   1.50 sec"], lines[-3:]
        slowest = lines[lines.index("== the ten slowest tests") + 1:][:2]
        assert [line.split() for line in slowest] == [["52.6", "s", "asan", "slow_one"], ["1.5", "s", "release", "last_one"]], slowest

        told = lines[lines.index("== skipped") + 1:][:3]
        assert told == ["asan: python_one a_function: no namespace", "asan: slow_one a_case: no IPv6", "asan: whole_one -"], told
        for missing in SKIPS.splitlines()[1:]:
            program(root / "tests/skips.txt", SKIPS.replace(missing + "\n", ""))
            ended, record = run(root, 0, passed)
            assert ended.returncode == 1 and record is None, "what is skipped without being listed is a failure"
            assert ended.stdout.count("not in tests/skips.txt") == 1, ended.stdout[-800:]
        program(root / "tests/skips.txt", SKIPS)

        # siw's harness: none, none where it should be, without a setup, with its kernel built or not.
        def siw_of(**more):
            ended, _ = run(root, 0, passed, **more)
            assert ended.returncode == 0, "CI does not fail for want of siw"
            said = [line for line in ended.stdout.splitlines() if line.startswith(("siw: ", "== not run: system_siw_interop: "))]
            return said[-1].removeprefix("siw: "), len(said) == 2

        harness = root.parent / "siw"
        assert siw_of() == siw_of(EWARP_SIW=str(harness)) == ("none", True)
        program(harness / "up.sh", "#!/bin/bash\n")
        assert siw_of(EWARP_SIW=str(harness)) == (str(harness), False)
        for status in (0, 1):
            program(harness / "setup.sh", f"#!/bin/bash\necho no source\nexit {status}\n")
            assert siw_of(EWARP_SIW=str(harness)) == (("none", True) if status else (str(harness), False)), status

        for status, outcome in ((1, 1), (77, 0), (0, 0)):
            program(root / "scripts/soak", f"#!/bin/bash\nexit {status}\n")
            assert run(root, 0, passed)[0].returncode == outcome, f"scripts/soak ended with {status}"

        # The fuzz targets: in each run; a find fails it; where there is no libFuzzer, which is no failure, that is said.
        assert lines.count("did fuzz --ci --no-packages") == 1, "scripts/fuzz --ci did not run once"
        not_run = "== not run: scripts/fuzz --ci: clang-19 and its libFuzzer cannot be installed here"
        assert not_run not in lines
        for more in {}, {"EWARP_SIW": str(harness)}:
            ended, record = run(root, 0, passed, UNAVAILABLE="fuzz", **more)
            assert ended.returncode == 0, (ended.returncode, ended.stdout[-500:])
            assert ended.stdout.splitlines().count(not_run) == 1 and "did fuzz" not in ended.stdout, ended.stdout[-500:]
        fuzz = (root / "scripts/fuzz").read_text()
        for status in (1, 77):
            program(root / "scripts/fuzz", f"#!/bin/bash\nexit {status}\n")
            ended, record = run(root, 0, passed)
            assert ended.returncode == 1 and record is None, f"scripts/fuzz ended with {status}"
        program(root / "scripts/fuzz", fuzz)

        # What hangs is named and ended.
        program(root / "scripts/test", "#!/bin/bash\nsleep 1000\n")
        ended, record = run(root, 0, passed, EWARP_CI_SECONDS="4")
        assert ended.returncode == 1 and record is None, "a run that hangs is a failure"
        told = ended.stdout.partition("== not ended after ")[2]
        assert "./scripts/test --sanitizers" in told and re.search(r"^ +\d+ +\d+ +\d+ s  sleep 1000\n +1 S ", told, re.M), told
        program(root / "scripts/test", RELEASE)

        failed = "0% tests passed, 1 tests failed out of 1"
        ended, record = run(root, 8, failed)
        assert ended.returncode == 1, ended.returncode
        assert record is None and not (root / "build/.ci-passed").exists()
        assert f"== failed: commit {head}" in ended.stdout
        assert ended.stdout.splitlines()[-2] == failed

        (root / "scripts/demo").write_text("#!/bin/bash\nexit 3\n")
        ended, record = run(root, 0, passed)
        assert ended.returncode == 1 and record is None, "a step before the tests failed"
        lines = ended.stdout.splitlines()
        assert "== failed: ./scripts/demo" in lines and passed in lines, "the steps after it did not run, or it is not named"

        (root / "scripts/demo").write_text("#!/bin/bash\n# changed\n")
        ended, record = run(root, 0, passed)
        assert ended.returncode == 0 and record is None, "a tree that differs from the commit is no commit that passed"


main()
