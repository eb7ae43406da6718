# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Makes docs/protocol/conformance.md from the tests, and holds it to them.

A test says which requirements of docs/protocol/requirements.md it holds, in the comment above its function:
    // Holds: RDM-6, VRB-29
    void rdm_6_send_with_invalidate(void**) {
In Python tests the same with '#' above the function that main() is given. This complains of a number that does not
exist, of a test that its program does not run, of a program that is not built, of a requirement without a test, of a
test whose name begins with a number that it does not hold, and of a page that differs from what the tests say. Of every
other source of tests, too, it complains if no program is built of it, and of a folder of tests that the build leaves out.

Arguments: the root of the sources; --write writes the page.
"""
import pathlib
import re
import sys

PAGE = "docs/protocol/conformance.md"
LONGEST = 130  # of a row (tests/tree/pages.py)

# What no test can hold, and why.
NOT_TESTED = {
    "DDP-27": "TCP delivers nothing behind a FIN, so nothing of the kind can reach a receiver",
    "UD-12 (write-record)": "Write-Record is not implemented: section 7 of datagrams.md is a proposal",
}

# Test programs that CTest does not run.
BY_HAND = {"packages.py"}  # scripts/package does

HEAD = """# Conformance: the tests of each requirement

`tests/tree/conformance.py` makes this page from the tests: each says in the comment above it which requirements it
holds. The numbers are those of [requirements.md](requirements.md). A test that is named fails without the requirement.
`wire/segments` is `tests/wire/segments_test.cc`, `system/datagrams` is `tests/system/datagrams.py`; the names of the
cases follow.
"""

ID = r"(?:MPA|DDP|RDM|VRB|UD|RD)-\d+"
HOLDS = re.compile(r"^(?://|#) Holds: (.*)")
FUNCTION = {".cc": re.compile(r"^void (\w+)\(void\*\*\w*\)"), ".py": re.compile(r"^def (\w+)\(")}
NUMBERED = re.compile(r"(mpa|ddp|rdm|vrb|ud|rd)_(\d+)_")


def requirements(root):
    """[(heading, [(id, text)])] of docs/protocol/requirements.md."""
    sections = []
    for line in (root / "docs/protocol/requirements.md").read_text(encoding="utf-8").splitlines():
        if heading := re.match(r"## \d+\. (.*)", line):
            sections.append((heading[1], []))
        elif row := re.match(rf"\| ({ID}(?: \([\w -]+\))?) \| (.*) \| .* \|$", line):
            sections[-1][1].append(row.groups())
    return sections


def registered(path, text):
    """The names of the cases that the program runs."""
    if path.suffix == ".cc":
        return set(re.findall(r"cmocka_unit_test\w*\(\s*(\w+)", text))
    called = re.search(r"^    (?:sys\.exit\()?main\(([^()]*)\)", text, re.M)
    return set(re.findall(r"\w+", called[1])) if called else set()


def built(path):
    """Whether the CMakeLists.txt beside it names the file; names made by a loop over subjects count."""
    lists = (path.parent / "CMakeLists.txt").read_text(encoding="utf-8")
    if path.suffix == ".py":
        return path.name in lists or re.search(rf"ewarp_system_test\({path.stem}\b", lists) is not None
    lists = re.sub(r"foreach\((\w+) ([^)]*)\)(.*?)endforeach",
                   lambda loop: " ".join(loop[3].replace(f"${{{loop[1]}}}", item) for item in loop[2].split()),
                   lists, flags=re.S)
    return path.name in re.findall(r"[\w.]+", lists)


def left_out(root):
    """What is built of nothing: folders of tests that tests/CMakeLists.txt does not name, and fuzz targets."""
    named = re.findall(r"[\w.]+", (root / "tests/CMakeLists.txt").read_text(encoding="utf-8"))
    for path in sorted(root.glob("tests/*/CMakeLists.txt")):
        if path.parent.name not in named:
            yield f"{path.relative_to(root)}: tests/CMakeLists.txt does not name its folder"
    for path in sorted(root.glob("tests/fuzz/fuzz_*.cc")):
        if not built(path):
            yield f"{path.relative_to(root)}: its CMakeLists.txt does not name this file"


def claims(path, text):
    """(line, name, ids) of each function with a comment that says what it holds, or with a number in its name. No
    name: the comment stands above something else."""
    lines, at = text.splitlines(), None
    for number, line in enumerate(lines, 1):
        if found := HOLDS.match(line):
            at, held = number, found[1]
            for more in lines[number:]:  # a list may go on in the next line
                if not held.endswith(","):
                    break
                held += " " + more.lstrip("/# ")
        elif function := FUNCTION[path.suffix].match(line):
            if at is not None or NUMBERED.match(function[1]):
                yield number, function[1], [i.strip() for i in held.split(",")] if at is not None else []
            at = None
        elif at is not None and not line.startswith(("//", "#")):
            yield at, None, []
            at = None


def read_tests(root, known):
    """({id: {program: [case]}}, complaints)."""
    tests, complaints = {}, []
    for path in sorted([*root.glob("tests/*/*.cc"), *root.glob("tests/*/*.py")]):
        text = path.read_text(encoding="utf-8")
        runs = registered(path, text)
        if runs and not built(path) and path.name not in BY_HAND:
            complaints.append(f"{path.relative_to(root)}: its CMakeLists.txt does not name this file")
        program = f"{path.parent.name}/{path.stem.removesuffix('_test')}"
        for line, name, held in claims(path, text):
            def complain(what, where=f"{path.relative_to(root)}:{line}"):
                complaints.append(f"{where}: {what}")
            if name is None:
                complain("'Holds:' stands above no test")
                continue
            if held and name not in runs:
                complain(f"the program does not run {name}")
            number = NUMBERED.match(name)
            if number and name in runs and f"{number[1].upper()}-{number[2]}" not in {i.split(" ")[0] for i in held}:
                complain(f"{name} does not hold what its name says")
            for one in held:
                if one not in known:
                    complain(f"no such requirement: {one}")
                tests.setdefault(one, {}).setdefault(program, []).append(name)
    return tests, complaints


def rows(programs):
    """The tests of one requirement as rows below it, each of them short enough."""
    for program, names in programs.items():
        start = f"| | `{program}`: "
        row = start
        for name in names:
            if row != start and len(row) + len(name) + 4 > LONGEST:
                yield row + ", |"
                row = start
            row += name if row == start else f", {name}"
        yield f"{row} |"


def made(sections, tests):
    lines = [HEAD.rstrip("\n")]
    for heading, ids in sections:
        lines += ["", f"## {heading}", "", "| ID | Requirement, and the tests that hold it |", "|---|---|"]
        for one, text in ids:
            lines.append(f"| {one} | {text} |")
            lines += [f"| | not tested: {NOT_TESTED[one]} |"] if one in NOT_TESTED else rows(tests.get(one, {}))
    return "\n".join(lines) + "\n"


def main():
    write = "--write" in sys.argv
    root = pathlib.Path(next(a for a in sys.argv[1:] if not a.startswith("-"))).resolve()
    sections = requirements(root)
    known = [one for _, ids in sections for one, _ in ids]
    tests, complaints = read_tests(root, set(known))
    complaints += left_out(root)
    complaints += [f"twice: {one}" for one in set(known) if known.count(one) > 1]
    complaints += [f"no test holds {one}" for one in known if one not in tests and one not in NOT_TESTED]
    complaints += [f"{one} is listed as not tested, and is not a requirement or has a test" for one in NOT_TESTED
                   if one in tests or one not in known]
    page = made(sections, tests)
    if write:
        (root / PAGE).write_text(page, encoding="utf-8")
    elif (root / PAGE).read_text(encoding="utf-8") != page:
        complaints.append(f"{PAGE} is not what the tests say: python3 tests/tree/conformance.py --write .")
    for complaint in complaints:
        print(complaint)
    cases = {(program, name) for programs in tests.values() for program, names in programs.items() for name in names}
    print(f"{len(known)} requirements, {len(cases)} tests that hold them, {len(complaints)} problems")
    return 1 if complaints or len(known) < 190 else 0


if __name__ == "__main__":
    sys.exit(main())
