# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What `peers_bench.py` found: cases, aims and whether they are met, tables and charts."""
import collections
import statistics

from common import DISTANCES, FEW, chart, size_name, spread

BETTER = {"latency": "lower", "datagram latency": "lower", "latency, 64 queue pairs": "lower", "CPU time": "lower"}
WORDS = {"latency": "latency, half a round trip",
         "latency, 64 queue pairs": "latency of one of 64 queue pairs, half a round trip",
         "datagram latency": "latency of datagrams, half a round trip", "bandwidth": "bandwidth, one way",
         "bandwidth, 64 queue pairs": "bandwidth, 64 queue pairs or connections", "both ways": "datagrams both ways, the sum",
         "rate": "message rate on one queue pair", "atomics": "fetch-and-adds of libfabric, one at a time", "CPU time": "CPU seconds of both ends for each GiB, at one rate"}  # fmt: skip
QUANTILES = {"p99": "99 %", "p999": "99.9 %"}

# run(): the figures of one round, {"value": .., "p99": .., "p999": .., "cpus": ..}, of which value alone is always there.
# cpus: how far the CPUs were from each other, of DISTANCES, between or unknown.
Step = collections.namedtuple("Step", "name ours run")


class Case:
    """What is compared in one round: the same thing, of the same size, at the same place, by each step."""

    def __init__(self, part, place, what, size, unit, steps):
        self.part, self.place, self.what, self.size, self.unit, self.steps = part, place, what, size, unit, steps
        self.found = {step.name: [] for step in steps}  # a figure of each round, None where there is none

    @property
    def name(self):
        return f"{self.place}, {self.what}, {size_name(self.size)}"

    def ours(self):
        return [step.name for step in self.steps if step.ours]

    def values(self, name, quantile="value"):
        return [figure.get(quantile) if figure else None for figure in self.found.get(name, [])]

    def median(self, name, quantile="value"):
        values = [v for v in self.values(name, quantile) if v is not None]
        return statistics.median(values) if values else None

    def ratios(self, name, bases):
        """Of each round with both: by the best of the bases of that round."""
        best = min if BETTER.get(self.what) == "lower" else max
        out = []
        for n, value in enumerate(self.values(name)):
            theirs = [t for base in bases for t in self.values(base)[n : n + 1] if t]
            if value and theirs:
                out.append(value / best(theirs))
        return out

    def only(self, cpus):
        """What ran while the CPUs were so far from each other, as at a place of its own."""
        out = Case(self.part, f"{self.place}, CPUs {cpus}", self.what, self.size, self.unit, self.steps)
        out.found = {name: [f if f and f.get("cpus") == cpus else None for f in row] for name, row in self.found.items()}
        return out

    def counted(self):
        """Runs of ours that have a figure, of the step with the fewest."""
        return min((sum(f is not None for f in self.found[name]) for name in self.ours()), default=0)

    def as_dict(self):
        return {"part": self.part, "place": self.place, "what": self.what, "size": self.size, "unit": self.unit,
                "ours": self.ours(), "figures": self.found}  # fmt: skip


def by_distance(cases):
    """Apart by the CPUs' distance, where there are enough runs of one; the others as they are."""
    views = {cpus: [case.only(cpus) for case in cases] for cpus in DISTANCES}
    enough = {cpus: [view.counted() >= FEW for view in of] for cpus, of in views.items()}
    out = [view for cpus, of in views.items() for view, shown in zip(of, enough[cpus]) if shown]
    out += [case for case, *shown in zip(cases, *enough.values()) if not any(shown)]
    return sorted(out, key=lambda case: list(TITLES).index(case.part))


# --- aims -----------------------------------------------------------------------------------------------------------

# ours: the steps that it is about; bases: the steps whose best they are compared with, or none: then the limit has the
# case's unit. sizes: from .. to, octets.
Aim = collections.namedtuple("Aim", "text part what ours bases limit sizes", defaults=((0, 1 << 40),))
ALL_RC = ("RC Send", "RC Write")
STREAMS = ("raw TCP", "iperf3", "qperf")
MPI_TCP = ("btl-tcp", "ucx-tcp", "ofi-tcp", "mpich-tcp")

AIMS = (
    Aim("RC latency ≤ 1.10 × raw polling TCP", "network", "latency", ALL_RC, ("raw TCP",), 1.10),
    Aim("RC bandwidth from 64 KiB ≥ 0.95 × the best raw stream", "network", "bandwidth", ("RC Write",), STREAMS, 0.95,
        (64 << 10, 1 << 40)),
    Aim("with CRC ≥ 0.95 × raw TCP with a CRC pass at each end", "network", "bandwidth", ("RC Write, CRC",),
        ("raw TCP, CRC",), 0.95, (64 << 10, 1 << 40)),
    Aim("≥ 2 million Sends of 8 octets a second", "network", "rate", ("RC Send",), (), 2.0),
    Aim("latency ahead of UCX tcp", "network", "latency", ("RC Send",), ("UCX tcp",), 1.0),
    Aim("bandwidth ahead of UCX tcp", "network", "bandwidth", ("RC Send",), ("UCX tcp",), 1.0),
    Aim("latency ahead of libfabric tcp", "network", "latency", ("RC Send",),
        ("tcp;ofi_rxm", "libfabric tcp"), 1.0),
    Aim("bandwidth ahead of libfabric tcp", "network", "bandwidth", ("RC Send",), ("tcp;ofi_rxm",), 1.0),
    Aim("CPU time ≤ 1.15 × iperf3's", "network", "CPU time", ("RC Send",), ("iperf3",), 1.15),
    Aim("latency no worse than the best of the others", "MPI, network", "latency", ("etherwarp",), MPI_TCP, 1.0),
    Aim("bandwidth no worse than the best of the others", "MPI, network", "bandwidth", ("etherwarp",), MPI_TCP, 1.0),
    Aim("`ib_send_lat` ≤ 1.0 µs", "host", "latency", ("RC Send",), (), 1.0, (8, 8)),
    Aim("`ib_write_bw` of 1 MiB ≥ 1.4 × raw TCP's stream", "host", "bandwidth", ("RC Write",), ("raw TCP",), 1.4,
        (1 << 20, 1 << 20)),
    Aim("≥ 0.6 million Sends of 8 octets a second", "host", "rate", ("RC Send",), (), 0.6),
    Aim("latency no worse than over TCP", "host", "latency", ("RC Send",), ("RC Send, TCP",), 1.0),
    Aim("bandwidth no worse than over TCP", "host", "bandwidth", ("RC Write",), ("RC Write, TCP",), 1.0),
    Aim("latency of 8 octets ≤ 2.0 µs", "MPI, host", "latency", ("etherwarp",), (), 2.0, (8, 8)),
)  # fmt: skip


def judged(aim, cases):
    """Of each case that the aim is about: its figure as a spread, and whether it is met."""
    for case in cases:
        if (case.part, case.what) != (aim.part, aim.what) or not aim.sizes[0] <= case.size <= aim.sizes[1]:
            continue
        lower = BETTER.get(case.what) == "lower"
        for name in aim.ours:
            values = case.ratios(name, aim.bases) if aim.bases else [v for v in case.values(name) if v is not None]
            if values:
                found = spread(values)
                yield case, name, found, found["median"] <= aim.limit if lower else found["median"] >= aim.limit


def verdicts(cases):
    """A dict for each aim and place: the worst case of it, and how many are met."""
    out = []
    for aim in AIMS:
        places = collections.defaultdict(list)
        for one in judged(aim, cases):
            places[one[0].place].append(one)
        for place, all_of_it in places.items():
            worst = (max if BETTER.get(aim.what) == "lower" else min)(all_of_it, key=lambda one: one[2]["median"])
            out.append({"aim": aim.text, "part": aim.part, "place": place, "met": all(one[3] for one in all_of_it),
                        "cases": len(all_of_it), "cases_met": sum(one[3] for one in all_of_it),
                        "worst": f"{worst[1]}, {size_name(worst[0].size)}", "unit": "×" if aim.bases else worst[0].unit,
                        "limit": aim.limit, "figure": worst[2]})  # fmt: skip
        if not places:
            out.append({"aim": aim.text, "part": aim.part, "place": None, "met": None})
    return out


def where(verdict):
    """The part too, where it is not the network's."""
    return verdict["place"] if verdict["part"] == "network" and verdict["place"] else verdict["part"]


def of_cases(v):
    return f"{v['cases_met']} of {v['cases']}"


def aim_lines(found):
    lines = ["| aim | where | met | cases met | the worst case | median (quartiles) |", "|---|---|---|--:|---|--:|"]
    for v in found:
        if v["place"] is None:
            lines.append(f"| {v['aim']} | {where(v)} | not measured | | | |")
            continue
        f = v["figure"]
        lines.append(f"| {v['aim']} | {where(v)} | {'yes' if v['met'] else '**no**'} | {of_cases(v)} | {v['worst']} | "
                     f"{number(f['median'])} {v['unit']} ({number(f['q1'])} – {number(f['q3'])}) |")  # fmt: skip
    return lines


def aim_lines_in_short(found):
    """What was measured, without quartiles; how many cases are met stands where not all are."""
    lines = ["| aim | where | met | the worst case | median |", "|---|---|---|---|--:|"]
    for v in found:
        if v["place"] is not None:
            lines.append(f"| {v['aim']} | {where(v)} | {'yes' if v['met'] else of_cases(v)} | {v['worst']} | "
                         f"{number(v['figure']['median'])} {v['unit']} |")  # fmt: skip
    return lines


# --- tables ---------------------------------------------------------------------------------------------------------


def number(value):
    return "" if value is None else f"{value:.0f}" if value >= 1000 else f"{value:.3g}"


def grouped(cases):
    """{(part, place, what): cases}, in the order of their first case."""
    out = collections.defaultdict(list)
    for case in cases:
        out[case.part, case.place, case.what].append(case)
    return out


def names_of(group):
    return list(dict.fromkeys(step.name for case in group for step in case.steps))


def table(head, rows):
    return ["| " + " | ".join(head) + " |", "|---|" + "--:|" * (len(head) - 1),
            *("| " + " | ".join(row) + " |" for row in rows), ""]  # fmt: skip


def medians(place, what, group, in_short):
    names = names_of(group)
    head = [n.removeprefix("RC ") for n in names] if in_short else names
    return [f"### {place}: {WORDS.get(what, what)} ({group[0].unit})", "",
            *table(["octets", *head], [[size_name(c.size), *(number(c.median(n)) for n in names)] for c in group])]  # fmt: skip


def ratios(group):
    """The first of ours by each other step: medians of the rounds' ratios, and their quartiles."""
    first = group[0].ours()[0]
    others = [name for name in names_of(group) if name != first]

    def cell(case, base):
        found = case.ratios(first, [base])
        s = spread(found) if found else None
        return f"{s['median']:.2f} ({s['q1']:.2f} – {s['q3']:.2f})" if s else ""

    rows = [[size_name(c.size), *(cell(c, n) for n in others)] for c in group]
    return table([f"{first} / ...", *others], rows) if others else []


def quantiles(group):
    told = [(n, q) for n in names_of(group) for q in QUANTILES if any(c.median(n, q) is not None for c in group)]
    rows = [[size_name(c.size), *(number(c.median(n, q)) for n, q in told)] for c in group
            if any(c.median(n, q) is not None for n, q in told)]  # fmt: skip
    return table(["octets", *(f"{n}, {QUANTILES[q]}" for n, q in told)], rows) if told else []


TITLES = {"network": "The network's stream", "MPI, network": "MPI over the network's stream", "host": "One host",
          "MPI, host": "MPI on one host"}  # fmt: skip


def tables(cases, in_short=False):
    """in_short: medians alone, narrow enough for a page of docs/results."""
    lines, title = [], None
    for (part, place, what), group in grouped(cases).items():
        if part != title:
            lines += [f"## {TITLES[part]}", ""]
            title = part
        lines += medians(place, what, group, in_short) + ([] if in_short else ratios(group) + quantiles(group))
    return lines


# --- charts ---------------------------------------------------------------------------------------------------------


def charts(cases):
    """{file name: SVG} of what has more than one size. Latencies as multiples of the first one's, and logarithmic: from 8 B
    to 8 MiB they differ by a factor of a thousand, and those of one size by ten."""
    out = {}
    for (part, place, what), group in grouped(cases).items():
        if len(group) < 2:
            continue
        names = names_of(group)
        values = {n: [c.median(n) for c in group] for n in names}
        title, base = f"{part}, {place}: {what}, {group[0].unit}", names[0]
        lower = BETTER.get(what) == "lower"
        if lower:
            title = f"{part}, {place}: {what}, multiples of {base}'s"
            values = {n: [v / b if v and b else None for v, b in zip(row, values[base])] for n, row in values.items()}
        values = {n: row for n, row in values.items() if any(row)}
        file = "-".join(f"{part} {place} {what}".replace(",", "").split()).lower()
        if values:
            out[f"{file}.svg"] = chart(title, "octets", [c.size for c in group], values, logarithmic=lower)
    return out
