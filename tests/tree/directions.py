# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Holds the tree to its architecture: which folder may include which, and how long a file may be.

Arguments: the root of the sources.
"""
import pathlib
import re
import sys

# A folder, and those whose headers it may include, or single headers. A folder not named here may include nothing of
# another.
ALLOWED = {
    # The protocol stack: each layer knows what lies below it.
    "llp": "",
    "llp/rd": "llp",
    "mpa": "llp",
    "ddp": "llp",
    "rdmap": "ddp llp mpa",
    "rdmap/datagram": "ddp llp llp/rd rdmap",
    # The provider, from below.
    "provider/base": "llp",
    "provider/engine": "llp provider/base",
    "provider/verbs/device": "llp provider/base provider/engine",
    "provider/verbs/memory": "ddp llp provider/verbs/device rdmap",
    "provider/verbs": "llp mpa provider/base provider/engine provider/verbs/device provider/verbs/memory rdmap",
    "provider/startup": "llp mpa provider/base provider/engine provider/verbs provider/verbs/device",
    "provider/verbs/rc": "llp mpa provider/base provider/engine provider/startup provider/verbs"
                         " provider/verbs/memory rdmap",
    "provider/verbs/ud": "ddp llp provider/base provider/engine provider/verbs provider/verbs/device"
                         " provider/verbs/memory rdmap",
    "provider/verbs/rd": "llp llp/rd provider/base provider/engine provider/verbs provider/verbs/memory"
                         " provider/verbs/ud rdmap rdmap/datagram",
    # Who knows all of them: what happens when the process forks or ends.
    "provider/process": "llp provider/base provider/engine provider/startup provider/verbs provider/verbs/device"
                        " provider/verbs/memory provider/verbs/ud",
    # The boundaries: librdmacm's commands, the kernel's files, libibverbs.
    "provider/cm": "llp mpa provider/base provider/engine provider/startup provider/verbs provider/verbs/device",
    "provider/host": "llp provider/base provider/cm provider/verbs/device",
    "provider/direct": "provider/direct/infiniband",
    "provider/rdmav34": "llp provider/base provider/direct provider/engine provider/host provider/verbs provider/verbs/device"
                        " provider/verbs/memory provider/verbs/rc provider/verbs/rd provider/verbs/ud",
    "provider/cli": "llp mpi_shim/acp mpi_shim/acp/job mpi_shim/channel mpi_shim/channel/core mpi_shim/channel/memory provider/base"
                    " provider/rdmav34",
    # The channel and the libfabric provider use public verbs only.
    "mpi_shim/channel/core": "",
    "mpi_shim/channel/memory": "llp/annotations.h llp/mutex.h",
    "mpi_shim/channel/verbs": "llp/clock.h llp/siphash.h mpi_shim/channel/core mpi_shim/channel/memory",
    "mpi_shim/channel": "llp/annotations.h llp/clock.h llp/mutex.h mpi_shim/channel/core mpi_shim/channel/verbs provider/base",
    "mpi_shim/channel/examples": "mpi_shim/channel",
    # Gravel sits on the channel's public face.
    "mpi_shim/gravel/core": "",
    "mpi_shim/gravel": "llp/annotations.h llp/mutex.h mpi_shim/channel mpi_shim/channel/verbs mpi_shim/gravel/core",
    "mpi_shim/ofi": "llp/annotations.h llp/clock.h llp/mutex.h mpi_shim/channel mpi_shim/channel/core mpi_shim/channel/verbs",
    # The ACP interface, on public verbs and libetherwarpdv.
    "mpi_shim/acp/core": "",
    "mpi_shim/acp/job": "mpi_shim/acp/core",
    "mpi_shim/acp/verbs": "llp/clock.h mpi_shim/acp/core",
    "mpi_shim/acp": "llp/annotations.h llp/clock.h llp/mutex.h mpi_shim/acp/core mpi_shim/acp/job mpi_shim/acp/verbs provider/base",
}
TOP = ("llp", "mpa", "ddp", "rdmap", "provider", "mpi_shim")
LONGEST = 400  # lines
INCLUDE = re.compile(r'^#include "([^"]+)"', re.M)


def sources(root):
    """{path below the root: names it includes that are files of ours}."""
    found = {}
    for top in TOP:
        for path in sorted((root / top).rglob("*")):
            if path.suffix in (".h", ".c", ".cc"):
                names = INCLUDE.findall(path.read_text())
                found[str(path.relative_to(root))] = [self_or_root(root, path, name) for name in names]
    return found


def self_or_root(root, path, name):
    """Headers are named from the root; examples for others to copy name what lies beside them."""
    if (root / name).is_file():
        return name
    beside = (path.parent / name).resolve()
    return str(beside.relative_to(root)) if beside.is_file() else None


def folder(path):
    return str(pathlib.PurePath(path).parent)


def wrong_directions(files):
    for path, names in files.items():
        allowed = ALLOWED.get(folder(path), "").split()
        for name in names:
            if name is None:
                yield f"{path} includes a file that is not there"
            elif folder(name) != folder(path) and not {folder(name), name} & set(allowed):
                yield f"{path} includes {name}: {folder(path)} may include {allowed or 'no other folder'}"


def unused_permissions(files):
    used = {(folder(path), what) for path, names in files.items() for name in names if name for what in (folder(name), name)}
    for source, targets in ALLOWED.items():
        for target in targets.split():
            if (source, target) not in used:
                yield f"the table lets {source} include {target}, which it does not"


def cycle(graph):
    """The members of a cycle of {node: nodes}, or None."""
    state, path = {}, []

    def visit(node):
        state[node] = "open"
        path.append(node)
        for following in graph.get(node, ()):
            if state.get(following) == "open":
                return path[path.index(following):] + [following]
            if following not in state:
                found = visit(following)
                if found:
                    return found
        state[node] = "done"
        path.pop()
        return None

    for node in graph:
        if node not in state:
            found = visit(node)
            if found:
                return found
    return None


def cycles(files):
    for what, graph in (("the table", {s: t.split() for s, t in ALLOWED.items()}),
                        ("the files", {p: [n for n in names if n] for p, names in files.items()})):
        found = cycle(graph)
        if found:
            yield f"a cycle in {what}: {' > '.join(found)}"


def long_files(root, files):
    for path in files:
        lines = len((root / path).read_text().splitlines())
        if lines > LONGEST:
            yield f"{path} has {lines} lines; at most {LONGEST}"


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    files = sources(root)
    problems = [*wrong_directions(files), *unused_permissions(files), *cycles(files), *long_files(root, files)]
    for problem in problems:
        print(problem)
    print(f"{len(files)} files, {len(problems)} problems")
    return 1 if problems or len(files) < 200 else 0


if __name__ == "__main__":
    sys.exit(main())
