# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Every source and script names its licence in its first two lines. Arguments: the root of the sources."""
import pathlib
import re
import subprocess
import sys

LINE = "SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause"
SOURCE = re.compile(r"\.(h|c|cc|py|lua|cmake|sh)$|(^|/)(CMakeLists\.txt|Containerfile)$")


def main():
    root = pathlib.Path(sys.argv[1])
    names = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=root, check=True, capture_output=True,
                           text=True).stdout.splitlines()  # fmt: skip
    looked, missing = 0, []
    for name in names:
        if not (root / name).is_file():
            continue
        head = (root / name).read_bytes()[:400]
        if SOURCE.search(name) or head.startswith(b"#!"):
            looked += 1
            if not any(LINE in line for line in head.decode(errors="replace").splitlines()[:2]):
                missing.append(name)
    for name in missing:
        print(f"{name}: without the line '{LINE}'")
    print(f"{looked} files, {len(missing)} problems")
    sys.exit(looked == 0 or missing != [])


if __name__ == "__main__":
    main()
