# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The command lines that README.md, the other pages at the top and the pages in docs/ tell people to type, extracted from
the pages."""
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]

# The first line of each code block that holds no commands.
PICTURES = ("octet 0      1      2         3      4        8      16       24      32",
            "octet 0                     2048               4096      6144                           6176",
            "octet 0         8      16    20    24        28        32")  # fmt: skip

# What a command in the middle of a sentence begins with, behind variables that are set for it.
PROGRAM = re.compile(
    r"\./|(build|tests|scripts)/\S+|"
    r"(etherwarp|cmake|ctest|eval|man|ip|ulimit|python3|apt-get|pkg-config|mpicc|mpirun|mpiexec|tshark|wireshark|"
    r"rping|ucmatose|qperf)$|"
    r"ib_\w+(lat|bw)$|ibv_\w+pingpong$|ibv_dev\w+$|fi_\w+$")  # fmt: skip


def blocks(text):
    """The code blocks, indented or fenced, each as its lines."""
    block, fenced, blank = [], False, True
    for line in [*text.splitlines(), ""]:
        if line.startswith("```"):
            fenced = not fenced
        elif fenced or (line.startswith("    ") and (block or blank)):
            block.append(line.strip())
            continue
        if block:
            yield block
            block = []
        blank = not line.strip()


def plain(command):
    """Without a comment behind it, words one space apart."""
    return " ".join(re.sub(r"(^|\s+)# .*$", "", command).split())


def of_block(block):
    if block[0] in PICTURES:
        return
    for line in "\n".join(block).replace("\\\n", " ").splitlines():
        for command in re.split(r"\s{4,}(?=etherwarp )", line):  # two columns: what runs here, what runs there
            if plain(command):
                yield plain(command)


def of_sentences(text):
    outside = re.sub(r"^(```.*?^```|    .*?)$", "", text, flags=re.M | re.S)
    for quoted in re.findall(r"`([^`\n]+)`", outside):
        words = quoted.split()
        while words and re.match(r"[A-Z_]+=", words[0]):
            words.pop(0)
        if words and PROGRAM.match(words[0]) and (len(quoted.split()) > 1 or words[0].startswith("./")):
            yield plain(quoted)


def extracted():
    """By page, in the order of the page, each command once."""
    found = {}
    for file in [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]:
        text = file.read_text(encoding="utf-8")
        commands = [c for block in blocks(text) for c in of_block(block)] + list(of_sentences(text))
        found[str(file.relative_to(ROOT))] = list(dict.fromkeys(commands))
    return found
