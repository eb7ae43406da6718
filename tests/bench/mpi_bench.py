#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Open MPI over EtherWARP beside what it has for the same network: one run, rounds in turn, medians of the ratios.

    tests/bench/mpi_bench.py [--build DIRECTORY] [--output DIRECTORY] [--rounds N] [--peers network|host] [SCENARIO...]

Scenarios: latency, bandwidth, rate, beside (8 octets there and back while a message of 256 MiB is sent to the same
rank), overlap, put_flush, atomics (fetch_and_op, compare_and_swap and accumulate, each flushed), kernels (an iteration
of what NPB's CG, MG, IS and FT do, of class W: mpi_kernels.c). Two ranks on the loopback interface, each on half of the
CPUs. --peers network (the default): no rank may know that the other one is on its host, over
    etherwarp   pml cm, mtl ofi, provider etherwarp (`etherwarp mpirun`), option local=off
    btl-tcp     pml ob1, btl tcp
    ucx-tcp     pml ucx, UCX_TLS=tcp
    ofi-tcp     pml cm, mtl ofi, provider tcp;ofi_rxm
    mpich-tcp   MPICH without its own shared memory, UCX_TLS=tcp
--peers host: what people on one host would take, over
    etherwarp   the same with local=auto
    btl-vader   pml ob1, btl vader
    ucx-shm     pml ucx, UCX_TLS=posix
    mpich-shm   MPICH with its own shared memory
MPICH is left out where it is not installed. Writes mpi.txt, mpi.json and a chart (SVG) a scenario. Ratios are
EtherWARP's speed by the other's, round by round: more than 1 is better than the other.

Two CPUs of a virtual machine may be beside each other at one time, near or far at another, which changes all figures by
up to a factor of 5. Where each rank has one CPU, their distance is measured before and behind each run
(ewarp_cpu_distance), and there are tables of what ran at each distance: of each transport's runs, and ratios of
the rounds in which both ran so.
"""
import argparse
import collections
import contextlib
import json
import os
import pathlib
import shutil
import statistics
import sys
import tempfile

from common import CONGESTION, DISTANCES, FEW, Failure, Rig, Skip, at_distance, chart, cpu_sets, fair_namespace, run_to_end

SCENARIOS = ("latency", "bandwidth", "rate", "beside", "overlap", "put_flush", "atomics", "kernels")
COLOURS = {"etherwarp": "#1f77b4", "btl-tcp": "#d62728", "ucx-tcp": "#2ca02c", "ofi-tcp": "#7f7f7f",
           "mpich-tcp": "#9467bd", "btl-vader": "#d62728", "ucx-shm": "#2ca02c", "mpich-shm": "#9467bd"}  # fmt: skip
MPICH = "mpiexec.hydra"
SKIPPED = 77  # what CTest takes for "skipped"


def mca(**values):
    return [word for name, value in values.items() for word in ("--mca", name, value)]


def openmpi(**values):
    return ["mpirun.openmpi", *mca(**values)]


def ucx(tls, **more):
    """Through Open MPI or MPICH: what UCX may use, on the loopback interface."""
    return {"UCX_TLS": f"{tls},self", "UCX_NET_DEVICES": "lo", "UCX_WARN_UNUSED_ENV_VARS": "n", **more}


def transports(etherwarp, peers):
    """Of each: the words in front of the launcher's common ones, and the environment."""
    ours = {"ETHERWARP_INTERFACES": "lo", "ETHERWARP_LOCAL": "auto" if peers == "host" else "off",
            "ETHERWARP_STATS_KEEP": "yes"}  # fmt: skip
    through_ucx = openmpi(pml="ucx", btl="self", opal_common_ucx_tls="any", opal_common_ucx_devices="any")
    return {"etherwarp": ([etherwarp, "mpirun"], ours), **({
        "btl-tcp": (openmpi(pml="ob1", btl="tcp,self", btl_tcp_if_include="lo"), {}),
        "ucx-tcp": (through_ucx, ucx("tcp")),
        "ofi-tcp": (openmpi(pml="cm", btl="self", mtl="ofi", mtl_ofi_provider_include="tcp;ofi_rxm"),
                    {"FI_PROVIDER": "tcp,ofi_rxm", "FI_TCP_IFACE": "lo"}),
        "mpich-tcp": ([MPICH], ucx("tcp", MPIR_CVAR_NOLOCAL="1")),
    } if peers == "network" else {
        "btl-vader": (openmpi(pml="ob1", btl="vader,self"), {}),
        "ucx-shm": (through_ucx, ucx("posix")),
        "mpich-shm": ([MPICH], ucx("posix")),
    })}  # fmt: skip


class Bench:
    def __init__(self, a):
        self.a = a
        self.build = a.build.resolve()
        self.etherwarp = str(self.build / "bin" / "etherwarp")
        self.program = self.build / "bin" / "ewarp_mpi_bench"
        self.transports = transports(self.etherwarp, a.peers)
        if shutil.which(MPICH) is None or not self.of_mpich().exists():
            print("MPICH is left out: it is not installed, or was not at build time (scripts/packages.txt)", file=sys.stderr)
            self.transports = {name: how for name, how in self.transports.items() if how[0] != [MPICH]}
        self.names = list(self.transports)
        self.cpus = cpu_sets(None, None)
        # name -> (scenario, size) -> a value a round
        self.found = collections.defaultdict(lambda: collections.defaultdict(list))
        self.units, self.octets = {}, 0
        self.distances = collections.defaultdict(list)  # name -> a word a round: of DISTANCES, between or unknown
        self.rig, self.namespace = Rig(self.build), None
        if a.peers == "network":
            with contextlib.suppress(Skip):
                self.namespace = fair_namespace(self.rig, "mpi")

    def congestion(self):
        return CONGESTION if self.namespace else "EtherWARP's reno, the others' the machine's"

    def of_mpich(self):
        return self.program.with_suffix(".mpich")

    def run(self, name, folder):
        _, distance = at_distance(self.build, self.cpus, lambda: self.measure(name, folder))
        self.distances[name].append(distance)

    def measure(self, name, folder):
        words, env = self.transports[name]
        if words == [MPICH]:
            start = ["-n", "2", str(self.of_mpich())]
        else:
            start = [*(["--allow-run-as-root"] if os.geteuid() == 0 else []), "--oversubscribe", "--bind-to", "none",
                     "--mca", "mpi_yield_when_idle", "0", "-n", "2", str(self.program)]  # fmt: skip
        inside = ["ip", "netns", "exec", self.namespace] if self.namespace else []
        command = [*inside, *words, *start, "--cpus", *self.cpus, *(["--quick"] if self.a.smoke else []), *self.a.scenarios]
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("OMPI_MCA_", "UCX_", "FI_", "MPIR_", "ETHERWARP_"))}
        out = run_to_end(command, self.a.timeout, {**clean, "ETHERWARP_RUNDIR": folder, **env})
        for line in out.splitlines():
            if line.startswith("{"):
                row = json.loads(line)
                self.found[name][row["scenario"], row["size"]].append(row["value"])
                self.units[row["scenario"]] = row["unit"]
        if name == "etherwarp":
            self.check_path(folder)

    def check_path(self, folder):
        """The octets of both ranks went over EtherWARP, or the figures mean nothing."""
        processes = json.loads(run_to_end([self.etherwarp, "stat", "--ended", "--json"], 20,
                                          {**os.environ, "ETHERWARP_RUNDIR": folder}))  # fmt: skip
        octets = [sum(d["tx_octets"] for d in p["devices"]) for p in processes]
        if len(octets) != 2 or min(octets) < 1000:
            raise Failure(f"EtherWARP's counters show {octets} octets: the messages did not go over it")
        local = sum(d["local_streams"] for p in processes for d in p["devices"])
        if (local > 0) != (self.a.peers == "host"):
            raise Failure(f"{local} streams through shared memory, for peers of a {self.a.peers}")
        self.octets += sum(octets)
        for file in pathlib.Path(folder).iterdir():
            if file.name.isdigit():
                file.unlink()

    def rounds(self):
        with tempfile.TemporaryDirectory(prefix="ewarp-mpi-bench-") as folder:
            names = self.names
            for number in range(self.a.turn, self.a.turn + self.a.rounds):
                # each begins as often as the others, and follows each other one
                for name in names[number % len(names):] + names[: number % len(names)]:
                    self.run(name, folder)
                print(f"round {number - self.a.turn + 1} of {self.a.rounds}", file=sys.stderr, flush=True)

    def counted(self, distance):
        """Of how many rounds EtherWARP's figures are of that distance."""
        return self.distances["etherwarp"].count(distance)

    def of_distance(self, name, values, distance):
        """The values by round, None where the CPUs had another distance (distance: a word, or None for all rounds)."""
        return [v if distance in (None, d) else None for v, d in zip(values, self.distances[name], strict=True)]

    def rows(self, distance=None):
        """By scenario and size: median, least and most of each transport, and of the ratios to each other one."""
        out = collections.defaultdict(list)
        for scenario, size in self.found["etherwarp"]:
            row = {"size": size, "unit": self.units[scenario]}
            ours = self.of_distance("etherwarp", self.found["etherwarp"][scenario, size], distance)
            for name, found in self.found.items():
                values = self.of_distance(name, found[scenario, size], distance) if found[scenario, size] else []
                if all(v is None for v in values):
                    continue
                row[name] = spread([v for v in values if v is not None])
                pairs = [(m, o) for m, o in zip(ours, values, strict=True) if m is not None and o is not None]
                if name != "etherwarp" and not scenario.startswith("overlap") and pairs:
                    row[f"by {name}"] = spread([o / m if row["unit"] == "us" else m / o for m, o in pairs])
            out[scenario].append(row)
        return out


def spread(values):
    return {"median": statistics.median(values), "least": min(values), "most": max(values), "values": values}


def table(scenario, rows, names):
    lines = [f"{scenario} ({rows[0]['unit']}); then EtherWARP's speed by the others': median [least most]"]
    lines.append("  " + " " * 8 + "".join(f"{n:>12}" for n in names))
    for row in rows:
        cells = "".join(f"{row[n]['median']:12.2f}" if n in row else f"{'-':>12}" for n in names)
        ratios = "".join(f"  {n} {r['median']:.2f} [{r['least']:.2f} {r['most']:.2f}]" for n in names
                         if (r := row.get(f"by {n}")))  # fmt: skip
        lines.append(f"  {row['size']:8d}{cells}{ratios}")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO")
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("mpi-bench"))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--turn", type=int, default=0, help="who begins the first round (default: the first of the list)")
    parser.add_argument("--timeout", type=float, default=300)
    parser.add_argument("--peers", choices=("network", "host"), default="network", help="beside whom (default: network)")
    parser.add_argument("--smoke", action="store_true", help="tiny numbers: shows that it runs, says nothing about speed")
    a = parser.parse_args()
    if unknown := set(a.scenarios) - set(SCENARIOS):
        parser.error(f"no scenario {', '.join(unknown)}; there are {', '.join(SCENARIOS)}")
    bench = Bench(a)
    if not bench.program.exists():
        print(f"no {bench.program}: mpicc.openmpi was not there at build time (scripts/packages.txt)")
        sys.exit(SKIPPED)
    load = os.getloadavg()[0]
    try:
        bench.rounds()
    except Failure as e:
        sys.exit(str(e))
    finally:
        bench.rig.close()
    lines = [f"{len(os.sched_getaffinity(0))} CPUs, ranks on {' and '.join(bench.cpus)}, load {load:.1f}, {a.rounds} rounds, "
             f"{bench.octets} octets over EtherWARP; congestion control: {bench.congestion()}; EtherWARP's rounds by the CPUs' distance: "
             + ", ".join(f"{bench.counted(word)} {word}" for word in DISTANCES)]  # fmt: skip
    a.output.mkdir(parents=True, exist_ok=True)
    found = bench.rows()
    distances = [d for d in DISTANCES if FEW <= bench.counted(d) < a.rounds]
    for distance in distances:
        lines.append(f"== the CPUs {distance}: {bench.counted(distance)} rounds of EtherWARP's")
        for scenario, rows in bench.rows(distance).items():
            lines += table(scenario, rows, bench.names)
    lines += [f"== all {a.rounds} rounds"] if distances else []
    for scenario, rows in found.items():
        lines += table(scenario, rows, bench.names)
        medians = {n: [r[n]["median"] for r in rows] for n in bench.names if n in rows[0]}
        picture = chart(f"{scenario} ({rows[0]['unit']})", "octets", [r["size"] for r in rows], medians, COLOURS)
        (a.output / f"{scenario.replace(' ', '_')}.svg").write_text(picture, encoding="utf-8")
    (a.output / "mpi.json").write_text(json.dumps({"about": lines[0], "distances": bench.distances, **found}, indent=1), encoding="utf-8")
    (a.output / "mpi.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
