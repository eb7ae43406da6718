#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What .ci/run prints at its end, from its own log: the ten slowest tests, then ctest's closing lines of the last preset.

usage: ci_summary.py slowest LOG | closing LOG
Ends with 0 also where the log has no test.
"""

import re
import sys

PRESET = re.compile(r"== testing: preset (\S+)")
RAN = re.compile(r" *\d+/\d+ Test +#\d+: (\S+) .*?([0-9.]+) sec")


def slowest(lines, count=10):
    """The `count` slowest tests as (seconds, preset, name), the slowest first."""
    preset, ran = "", []
    for line in lines:
        if found := PRESET.match(line):
            preset = found[1]
        elif found := RAN.match(line):
            ran.append((float(found[2]), preset, found[1]))
    return sorted(ran, reverse=True)[:count]


def closing(lines):
    """The lines from the last '% tests passed' on; none where no test ran."""
    begins = [at for at, line in enumerate(lines) if "% tests passed" in line]
    return lines[begins[-1]:] if begins else []


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in ("slowest", "closing"):
        sys.exit(__doc__)
    with open(sys.argv[2], encoding="utf-8", errors="replace") as log:
        lines = log.read().splitlines()
    if sys.argv[1] == "closing":
        print(*closing(lines), sep="\n")
    else:
        for seconds, preset, name in slowest(lines):
            print(f"{seconds:8.1f} s  {preset:<8} {name}")


if __name__ == "__main__":
    main()
