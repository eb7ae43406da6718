#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What .ci/run prints at its end, from its own log: the ten slowest tests, what was skipped, then ctest's closing lines of
the last preset.

usage: ci_summary.py slowest LOG | skips LIST LOG | closing LOG
`skips` reads what the tests of each preset printed, too (Testing/Temporary/LastTest.log below build, build-asan and so on).
LIST says what may be skipped: a line for each, 'test case: reason', with '*' for any case, '-' for a test that was skipped as
a whole. Ends with 1 where something else was skipped, otherwise with 0, also where the log has no test.
"""

import fnmatch
import pathlib
import re
import sys

PRESET = re.compile(r"== testing: preset (\S+)")
RAN = re.compile(r" *\d+/\d+ Test +#\d+: (\S+) .*?([0-9.]+) sec")
TEST = re.compile(r"\d+/\d+ Testing: (\S+)")
CASE = re.compile(r"(\w+): \S")  # of a Python test
LEFT_OUT = re.compile(r" *\d+/\d+ Test +#\d+: (\S+) \.*\*\*\*(?:Skipped|Not Run)")
WHOLE = "-"  # the case of a test that was skipped as a whole


def slowest(lines, count=10):
    """The `count` slowest tests as (seconds, preset, name), the slowest first."""
    preset, ran = "", []
    for line in lines:
        if found := PRESET.match(line):
            preset = found[1]
        elif found := RAN.match(line):
            ran.append((float(found[2]), preset, found[1]))
    return sorted(ran, reverse=True)[:count]


def presets(lines):
    """{preset: its tests that were skipped as a whole}."""
    preset, found = None, {}
    for line in lines:
        if begun := PRESET.match(line):
            preset = begun[1]
            found.setdefault(preset, [])
        elif preset and (left := LEFT_OUT.match(line)):
            found[preset].append(left[1])
    return found


def skips(lines):
    """What was skipped in one LastTest.log: (test, case, reason as far as it was said)."""
    test = case = reason = ""
    for line in lines:
        if found := TEST.match(line):
            test, case, reason = found[1], "?", ""
        elif found := re.match(r"skipped: (.*)", line):
            reason = found[1]
        elif found := re.match(r"\[  SKIPPED \] (\w+)$", line):
            yield test, found[1], reason
            reason = ""
        elif line.startswith("[ RUN "):
            reason = ""
        elif found := re.match(r"  SKIPPED: (.*)", line):
            yield test, case, found[1]
        elif found := CASE.match(line):
            case = found[1]


def closing(lines):
    """The lines from the last '% tests passed' on; none where no test ran."""
    begins = [at for at, line in enumerate(lines) if "% tests passed" in line]
    return lines[begins[-1]:] if begins else []


def read(path):
    return pathlib.Path(path).read_text(encoding="utf-8", errors="replace").splitlines()


def print_skips(list_of, ci_log):
    """Prints them; the exit status."""
    allowed = [line.split(":", 1)[0].split() for line in read(list_of) if line.strip() and not line.startswith("#")]
    wrong = 0
    for preset, left_out in presets(read(ci_log)).items():
        log = pathlib.Path("build" if preset == "release" else f"build-{preset}", "Testing/Temporary/LastTest.log")
        found = {(test, WHOLE, "") for test in left_out} | set(skips(read(log)) if log.exists() else ())
        for test, case, reason in sorted(found):
            listed = any(fnmatch.fnmatch(test, t) and fnmatch.fnmatch(case, c) for t, c in allowed)
            wrong += not listed
            print(f"{preset}: {test} {case}" + (f": {reason}" if reason else "") + ("" if listed else f": not in {list_of}"))
    return 1 if wrong else 0


def main():
    words = sys.argv[1:]
    if len(words) == 3 and words[0] == "skips":
        sys.exit(print_skips(*words[1:]))
    if len(words) != 2 or words[0] not in ("slowest", "closing"):
        sys.exit(__doc__)
    lines = read(words[1])
    if words[0] == "closing":
        print(*closing(lines), sep="\n")
    else:
        for seconds, preset, name in slowest(lines):
            print(f"{seconds:8.1f} s  {preset:<8} {name}")


if __name__ == "__main__":
    main()
