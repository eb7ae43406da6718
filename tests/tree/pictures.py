# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Holds docs/pictures to the tree: each .dot has its .svg, made from it as it is now, and names files that exist, and
functions that are in them.

Arguments: the root of the sources. docs/pictures/render.py makes the .svg files.
"""
import hashlib
import pathlib
import re
import sys

TOP = "llp|mpa|ddp|rdmap|provider|mpi_shim|tests|scripts|docs"
# A path that begins with a folder at the top; behind a file and a colon, functions of that file.
PATH = re.compile(rf"\b(?:{TOP})(?:/[\w.]+)+")
FUNCTIONS = re.compile(rf"((?:{TOP})(?:/[\w.]+)+\.(?:h|cc|c)): ((?:\w+\(\)(?:, )?)+)")


def findings(root, source):
    text = source.read_text(encoding="utf-8")
    name = source.relative_to(root)
    svg = source.with_suffix(".svg")
    if not svg.exists():
        yield f"{name}: there is no {svg.name}; docs/pictures/render.py makes it"
    elif hashlib.sha256(source.read_bytes()).hexdigest() not in svg.read_text(encoding="utf-8"):
        yield f"{name}: {svg.name} was made of another version; docs/pictures/render.py makes it anew"
    for path in dict.fromkeys(PATH.findall(text)):
        if not (root / path).exists():
            yield f"{name}: there is no {path}"
    for path, functions in FUNCTIONS.findall(text):
        code = (root / path).read_text(encoding="utf-8") if (root / path).is_file() else ""
        for function in re.findall(r"\w+(?=\(\))", functions):
            if code and not re.search(rf"\b{function}\(", code):
                yield f"{name}: {path} has no {function}()"


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    folder = root / "docs" / "pictures"
    sources = sorted(folder.glob("*.dot"))
    problems = [finding for source in sources for finding in findings(root, source)]
    problems += [f"docs/pictures/{svg.name}: there is no source of it"
                 for svg in sorted(folder.glob("*.svg")) if not svg.with_suffix(".dot").exists()]
    print("\n".join([*problems, f"{len(sources)} pictures, {len(problems)} problems"]))
    return 1 if problems or len(sources) < 4 else 0


if __name__ == "__main__":
    sys.exit(main())
