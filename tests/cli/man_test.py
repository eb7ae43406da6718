# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""docs/user/etherwarp.1 against the tool: no warning of man, and every command, argument, option and exit status is in it.

Arguments: the tool, the page. In the page an option is a paragraph `name (unit; default: value)` with its meaning in the
words of `etherwarp options`.
"""
import os
import re
import shutil
import subprocess
import sys

tool, page = sys.argv[1:]
complaints = []


def output(*words, **how):
    return subprocess.run(words, capture_output=True, text=True, check=True, **how)


def plain(text):
    """roff without its escapes and macros, on one line."""
    text = re.sub(r"^\.[A-Z]+ ?", "", text, flags=re.M)
    text = re.sub(r"\\f[BIR]", "", text).replace("\\-", "-").replace("\\&", "").replace("\\(ti", "~")
    return " ".join(text.split())


def compare_options(section, prefix, source, least=20):
    """The options of a prefix are the paragraphs of a section, no more and no fewer."""
    said = output(tool, "options").stdout
    found = re.findall(rf"^{prefix}(\w+)  \((.*); default: (.*?)\)\n((?:    .*\n)+)", said, re.M)
    if len(found) < least:
        complaints.append(f"`etherwarp options` was not understood: {len(found)} options {prefix}*")
    wanted = {f'{name.lower()} " ({unit}; default: {default})" ' + " ".join(meaning.replace("`", "").split())
              for name, unit, default, meaning in found}  # fmt: skip
    text = re.search(rf"^\.SH {section}\n(.*?)^\.SH ", source, re.M | re.S)
    paragraphs = {plain(p) for p in text[1].split("\n.TP\n")[1:]} if text else set()
    complaints.extend(f"{section}: there is no paragraph\n    {p}" for p in sorted(wanted - paragraphs))
    complaints.extend(f"{section}: not in `etherwarp options`\n    {p}" for p in sorted(paragraphs - wanted))


def compare_commands(source):
    text = plain(source)
    commands = re.findall(r"^  (\w+)  +\S", output(tool, "--help").stdout.split("Subcommands:")[1], re.M)
    for command in commands:
        if not re.search(rf"^\.SS {command}$", source, re.M):
            complaints.append(f"command {command}: there is no section")
        arguments = output(tool, command, "--help").stdout.split("Options of EtherWARP")[0]
        for argument in re.findall(r"^  (?:-\w,)?(--[\w-]+)", arguments, re.M):
            if argument not in text:
                complaints.append(f"{command} {argument}: not in the page")
    for option in re.findall(r"^  (?:-\w,)?(--[\w-]+)", output(tool, "--help").stdout, re.M):
        if option not in text:
            complaints.append(f"{option}: not in the page")
    version = output(tool, "--version").stdout.split()[-1]
    if f'"EtherWARP {version}"' not in source:
        complaints.append(f"the page is not of version {version}")


def render():
    if shutil.which("man") is None:
        print("no man here: the page is not formatted")
        return
    done = output("man", "--warnings", "-E", "UTF-8", "-l", page,
                  env={**os.environ, "LC_ALL": "C.UTF-8", "MANWIDTH": "80", "MANROFFOPT": "-ww"})  # fmt: skip
    if done.stderr:
        complaints.append(f"man: {done.stderr}")
    for section in ("NAME", "SYNOPSIS", "OPTIONS", "CHANNEL OPTIONS", "ACP OPTIONS", "ENVIRONMENT", "FILES", "EXIT STATUS",
                    "EXAMPLES"):  # fmt: skip
        if not re.search(rf"^{section}$", done.stdout, re.M):
            complaints.append(f"no section {section}")


with open(page, encoding="utf-8") as f:
    roff = f.read()
compare_options("OPTIONS", "ETHERWARP_", roff)
compare_options("CHANNEL OPTIONS", "EWARP_CHANNEL_", roff)
compare_options("ACP OPTIONS", "ACP_", roff, 8)
compare_commands(roff)
render()
print("\n".join(complaints))
sys.exit(1 if complaints else 0)
