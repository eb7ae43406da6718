#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Holds llp's reliable datagrams against an executable model of their rules on the same schedules.

The model is not part of this repository: EWARP_RD_MODEL names it, and without it this test is skipped. Each seed's work
(what is submitted when, which part is bad, when receives come, what the network is like) is taken from the model's own
run; the same is then given to rd_schedule. What must agree: which requests completed, which failed by an error report,
what was delivered in which order, and that both ends forget each other. The losses themselves differ, so the numbers of
datagrams are only summed up and shown.

  EWARP_RD_MODEL=.../rd_model.py rd_model_test.py path/to/rd_schedule [runs]
"""
import importlib.util
import json
import os
import subprocess
import sys

SKIPPED = 77


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


def main():
    path = os.environ.get("EWARP_RD_MODEL")
    if not path:
        print("EWARP_RD_MODEL is not set: skipped")
        return SKIPPED
    model = load_model(path)
    runs = int(os.environ.get("EWARP_SEEDS", sys.argv[2] if len(sys.argv) > 2 else "150"))
    ours = theirs = dead = 0
    for seed in range(runs):
        verdict, net, a, lines = recorded(model, seed)
        if verdict != "ok":
            dead += 1
            continue
        run = subprocess.run([sys.argv[1]], input="\n".join(lines) + "\n", capture_output=True, text=True, timeout=60)
        if run.returncode != 0:
            print(f"seed {seed}: rd_schedule failed\n{run.stderr}")
            return 1
        got = json.loads(run.stdout)
        for name, end in (("a", a), ("b", a.peer)):
            want, have = outcome(end), got[name]
            have = {"done": sorted(have["done"]), "failed": sorted(have["failed"]), "log": have["log"]}
            if want != have or got[name]["lost"] or not got["closed"]:
                print(f"seed {seed}, end {name}: the model says\n{want}\nwe say\n{have}, lost {got[name]['lost']}")
                return 1
        ours += got["a"]["datagrams"] + got["b"]["datagrams"]
        theirs += net.count
    print(f"{runs - dead} schedules, the same outcome in each; {dead} ended in the model's unreachable verdict. "
          f"Datagrams: ours {ours}, the model's {theirs}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
