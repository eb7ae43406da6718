# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What the scripts install (install_packages in scripts/common.sh), with stand-ins for Debian's tools: what is missing, but
not what this release of Debian does not have; only what tests do without may be missing. Arguments: the root of the sources.
"""
import pathlib
import subprocess
import sys
import tempfile

# INSTALLED, KNOWN and LISTED are files: what is installed, what the archive has, and what apt knows of it.
STAND_INS = {
    "dpkg-query": """for name; do :; done; grep -qx "$name" INSTALLED && echo installed""",
    "apt-cache": """
        if grep -qx "$2" LISTED; then echo "$2:"; echo "  Candidate: 1.2-3"; elif [ "$2" = virtual ]; then
          echo "$2:"; echo "  Candidate: (none)"; fi""",
    "apt-get": """
        echo "apt-get $*" >> CALLS
        case $1 in
          update) cp KNOWN LISTED ;;
          install) shift 3; for name; do grep -qx "$name" LISTED || exit 100; done ;;
        esac""",
    "id": "echo 0",
}
PACKAGES = """
[build]
compiler   builds
[test]
old-tool   tests: Debian 12 alone has it
virtual    tests: nobody has it
tool       tests
"""


def install(common, installed, known, listed):
    """The status, what it says and the calls of apt-get."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "scripts").mkdir()
        (folder / "scripts/common.sh").write_text(common, encoding="utf-8")
        (folder / "scripts/packages.txt").write_text(PACKAGES, encoding="ascii")
        for file, names in (("INSTALLED", installed), ("KNOWN", known), ("LISTED", listed), ("CALLS", [])):
            (folder / file).write_text("".join(f"{n}\n" for n in names), encoding="ascii")
        for program, script in STAND_INS.items():
            (folder / program).write_text(f"#!/bin/sh\ncd {folder}\n{script}\n", encoding="ascii")
            (folder / program).chmod(0o755)
        done = subprocess.run(["bash", "-c", f"PATH={folder}:$PATH; source scripts/common.sh; install_packages build test"],
                              cwd=folder, capture_output=True, text=True, timeout=60, check=False)  # fmt: skip
        return done.returncode, done.stdout + done.stderr, (folder / "CALLS").read_text(encoding="ascii").splitlines()


def main():
    common = (pathlib.Path(sys.argv[1]) / "scripts/common.sh").read_text(encoding="utf-8")
    words = "apt-get install -y --no-install-recommends"
    everything = ["compiler", "old-tool", "virtual", "tool"]
    lacks = "== this release of Debian has no"
    problems = []

    def check(what, given, status, said, calls):
        done = install(common, *given)
        if done[0] != status or done[2] != calls or any(line not in done[1] for line in said):
            problems.append(f"{what}: {done}")

    check("all is there", (everything, [], []), 0, [], [])
    check("all that is missing is known", (["compiler"], everything, everything), 0, ["== installing: old-tool virtual tool"],
          [f"{words} old-tool virtual tool"])  # fmt: skip
    check("lists are old", ([], everything, ["compiler"]), 0, [],
          [f"{words} compiler old-tool virtual tool", "apt-get update -q", f"{words} compiler old-tool virtual tool"])  # fmt: skip
    check("another release", ([], ["compiler", "tool"], []), 0, [f"{lacks} old-tool", f"{lacks} virtual"],
          [f"{words} compiler old-tool virtual tool", "apt-get update -q", f"{words} compiler tool"])  # fmt: skip
    check("nothing that is missing is known", (["compiler", "tool"], ["compiler", "tool"], []), 0, [f"{lacks} old-tool"],
          [f"{words} old-tool virtual", "apt-get update -q"])  # fmt: skip
    check("what the build needs is not to be had", ([], ["tool"], []), 1, ["compiler"],
          [f"{words} compiler old-tool virtual tool", "apt-get update -q"])  # fmt: skip
    print("\n".join(problems) or "ok")
    sys.exit(bool(problems))


main()
