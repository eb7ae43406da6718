#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Holds llp's reliable datagrams against an executable model of their rules on the same schedules.

The model is not part of this repository, but sixteen of its runs are: tests/vectors/rd_schedules.json. Where EWARP_RD_MODEL
names the model, its own runs are taken instead, as many as one likes. Each run's work (what is submitted when, which part is
bad, when receives come, what the network is like) is given to rd_schedule. What must agree: which requests completed, which
failed by an error report, what was delivered in which order, and that both ends forget each other. The losses themselves
differ, so the numbers of datagrams are only summed up and shown.

  rd_model_test.py path/to/rd_schedule
  EWARP_RD_MODEL=.../rd_model.py rd_model_test.py path/to/rd_schedule [runs]
  EWARP_RD_MODEL=.../rd_model.py rd_model_test.py --record [runs]          writes the file
"""
import importlib.util
import json
import os
import pathlib
import subprocess
import sys

RECORDED = pathlib.Path(__file__).parent.parent / "vectors/rd_schedules.json"


def load_model(path):
    spec = importlib.util.spec_from_file_location("rd_model", path)
    model = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(model)
    return model


def recorded(model, seed):
    """The model's run of this seed, and its schedule as lines for rd_schedule."""
    lines = []
    submit, post, init = model.End.submit, model.End.post, model.Net.__init__

    def on_submit(end, kind, mid, parts, bad=None):
        lines.append(f"op {end.net.t} {end.name.lower()} {kind} {mid} {parts} {-1 if bad is None else bad}")
        submit(end, kind, mid, parts, bad)

    def on_post(end, n):
        lines.append(f"post {end.net.t} {end.name.lower()} {n}")
        post(end, n)

    def on_net(net, rng, loss, dup, spread):
        lines.append(f"net {loss} {dup} {spread} {seed}")
        init(net, rng, loss, dup, spread)

    model.End.submit, model.End.post, model.Net.__init__ = on_submit, on_post, on_net
    try:
        verdict, net, a = model.run(seed)
    finally:
        model.End.submit, model.End.post, model.Net.__init__ = submit, post, init
    lines.insert(1, f"over {a.over} {a.peer.over}")
    return verdict, net, a, lines


def outcome(end):
    return {"done": sorted(end.done), "failed": sorted(end.failed), "log": [list(entry) for entry in end.log]}


def of_model(path, runs):
    """Schedules as in the file, from the model itself; runs that end in its unreachable verdict are left out."""
    model = load_model(path)
    for seed in range(runs):
        verdict, net, a, lines = recorded(model, seed)
        if verdict == "ok":
            yield {"seed": seed, "lines": lines, "a": outcome(a), "b": outcome(a.peer), "datagrams": net.count}


def disagreement(program, schedule):
    """(None, datagrams), or what differs."""
    run = subprocess.run([program], input="\n".join(schedule["lines"]) + "\n", capture_output=True, text=True, timeout=60)
    if run.returncode != 0:
        return f"rd_schedule failed\n{run.stderr}", 0
    got = json.loads(run.stdout)
    for name in ("a", "b"):
        want, have = schedule[name], got[name]
        have = {"done": sorted(have["done"]), "failed": sorted(have["failed"]), "log": have["log"]}
        if want != have or got[name]["lost"] or not got["closed"]:
            return f"end {name}: the model says\n{want}\nwe say\n{have}, lost {got[name]['lost']}", 0
    return None, got["a"]["datagrams"] + got["b"]["datagrams"]


def main():
    path = os.environ.get("EWARP_RD_MODEL")
    runs = int(os.environ.get("EWARP_SEEDS", sys.argv[2] if len(sys.argv) > 2 else "150"))
    if sys.argv[1] == "--record":
        rows = ",\n".join(json.dumps(schedule) for schedule in of_model(path, int(sys.argv[2]) if len(sys.argv) > 2 else 16))
        RECORDED.write_text(f'{{"schedules": [\n{rows}\n]}}\n', encoding="utf-8")
        return 0
    schedules = of_model(path, runs) if path else json.loads(RECORDED.read_text(encoding="utf-8"))["schedules"]
    count = ours = theirs = 0
    for schedule in schedules:
        wrong, datagrams = disagreement(sys.argv[1], schedule)
        if wrong:
            print(f"seed {schedule['seed']}: {wrong}")
            return 1
        count, ours, theirs = count + 1, ours + datagrams, theirs + schedule["datagrams"]
    print(f"{count} schedules, the same outcome in each. Datagrams: ours {ours}, the model's {theirs}")
    return 0 if count else 1


if __name__ == "__main__":
    sys.exit(main())
