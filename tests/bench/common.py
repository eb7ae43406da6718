# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What the benchmarks share: the machine, pairs and their ratios, charts. Processes and namespaces are the system tests'."""
import json
import math
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "system"))
from harness import SKIPPED, Child, Failure, Rig, Skip, free_port, tail, wait_until  # noqa: E402, F401


# --- processes ------------------------------------------------------------------------------------------------------


def end(process):
    """Ends a child of ours, by its pid, and collects it."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(2)
        except subprocess.TimeoutExpired:
            process.kill()
    process.wait()


def run_to_end(command, timeout_s, env=None):
    """Its standard output; Failure if it fails or takes too long."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, env=env)
    except subprocess.TimeoutExpired as e:
        raise Failure(f"not finished after {timeout_s} s: {' '.join(command)}") from e
    if done.returncode != 0:
        raise Failure(f"exit status {done.returncode}: {' '.join(command)}\n{tail(done.stdout + done.stderr)}")
    return done.stdout


# Of everybody: with one that paces, such as bbr, that would be what is measured.
CONGESTION = "reno"


def fair_namespace(rig, word):
    """A network namespace of the rig in which all have one congestion control, whatever the machine's is."""
    name = rig.namespace(word)
    rig.ip("netns", "exec", name, "sh", "-c", f"echo {CONGESTION} > /proc/sys/net/ipv4/tcp_congestion_control")
    return name


# --- the machine ----------------------------------------------------------------------------------------------------


def cpu_sets(server, client):
    """The CPUs of the two sides: disjoint halves of what we may use, where there is enough."""
    usable = sorted(os.sched_getaffinity(0))
    half = max(1, len(usable) // 2)
    sides = (usable[:half], usable[half : 2 * half] or usable)
    text = [",".join(map(str, s)) for s in sides]
    return server or text[0], client or text[1]


def count_cpus(cpus):
    """Of a list such as 0,2-3."""
    ends = [part.partition("-") for part in cpus.split(",")]
    return sum(int(last or first) - int(first) + 1 for first, _, last in ends)


# Where one CPU can be for the other, and from how many microseconds on it is further away, for 64 KiB from the one's cache to
# the other's. Seen: 2 beside it, 4 to 20 near it, 34 to 50 far from it, and no others for long.
DISTANCES = {"beside": 3.2, "near": 26, "far": math.inf}
FEW = 3  # runs of a distance that make a figure


def cpu_distance(build, cpus):
    """In microseconds; None where a side has not one CPU of its own, or the program is not there."""
    program = build / "bin" / "ewarp_cpu_distance"
    if not all(c.isdigit() for c in cpus) or cpus[0] == cpus[1] or not program.exists():
        return None
    return float(run_to_end([str(program), *cpus], 20))


def word_of(*distances):
    """How far the CPUs were from each other, if that is what was measured before and behind a run."""
    if None in distances:
        return "unknown"
    words = {next(word for word, end in DISTANCES.items() if us < end) for us in distances}
    return words.pop() if len(words) == 1 else "between"


def at_distance(build, cpus, run):
    """What run() gives, and how far the CPUs were from each other meanwhile."""
    before = cpu_distance(build, cpus)
    found = run()
    return found, word_of(before, cpu_distance(build, cpus))


def with_defaults(options, sides):
    """What is measured is the network's stream, on one host, too, unless an option says otherwise.

    The default of spin_us looks at the number of usable CPUs, and pinning hides from a process that the others are free.
    With two CPUs for each side there is one to spin on."""
    defaults = ["local=off"]
    if all(count_cpus(side) >= 2 for side in sides):
        defaults.append("spin_us=2000")
    given = {o.partition("=")[0] for o in options}
    return [*options, *(d for d in defaults if d.partition("=")[0] not in given)]


def as_words(options):
    """Options of EtherWARP, name=value, as arguments of `etherwarp run`."""
    words = []
    for setting in options:
        name, _, value = setting.partition("=")
        words += [f"--{name.replace('_', '-')}"] + ([value] if value else [])
    return words


def cpu_model():
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as f:
        for line in f:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.machine()


def load_remark(load):
    return (f"load average before: {load:.1f}"
            + (" **(other work was running: the figures say little)**" if load > 1 else ""))  # fmt: skip


# --- reports --------------------------------------------------------------------------------------------------------


def say_since(begin):
    """A function that says a line on stderr, with the seconds since then (time.monotonic())."""

    def say(text):
        print(f"[{time.monotonic() - begin:6.1f} s] {text}", file=sys.stderr, flush=True)

    return say


def end_well(name, bench, run):
    """run(), the exit status; 1 with a line on stderr where it fails. The bench is closed in any case."""
    try:
        return run()
    except Failure as e:
        print(f"{name}: {e}", file=sys.stderr)
        return 1
    finally:
        bench.close()


def keep_report(output, name, page, figures):
    """Prints the page, and writes it to NAME.md and what it was made of to NAME.json. The directory they are in."""
    output = pathlib.Path(output)
    output.mkdir(parents=True, exist_ok=True)
    (output / f"{name}.md").write_text(page, encoding="utf-8")
    (output / f"{name}.json").write_text(json.dumps(figures, indent=1), encoding="utf-8")
    print(page)
    return output


# --- pairs ----------------------------------------------------------------------------------------------------------


def spread(values):
    quartiles = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else [values[0]] * 3
    return {"min": min(values), "q1": quartiles[0], "median": statistics.median(values), "q3": quartiles[2], "max": max(values)}


class Row:
    """One thing that is measured against another, the base."""

    def __init__(self, name, unit, better, base="raw"):
        self.name, self.unit, self.better, self.base = name, unit, better, base
        self.theirs, self.ours = [], []

    def add(self, theirs, ours):
        if theirs <= 0 or ours <= 0:
            raise Failure(f"{self.name}: a figure of nothing ({self.base} {theirs}, ours {ours})")
        self.theirs.append(theirs)
        self.ours.append(ours)

    def as_dict(self):
        ratios = [o / t for o, t in zip(self.ours, self.theirs)]
        return {"name": self.name, "unit": self.unit, "better": self.better, self.base: self.theirs, "ours": self.ours,
                f"{self.base}_median": statistics.median(self.theirs), "ours_median": statistics.median(self.ours),
                "ratio": spread(ratios)}  # fmt: skip

    def as_line(self):
        """Of a table: name, unit, base, ours, the ratios."""
        d = self.as_dict()
        r = d["ratio"]
        return (f"| {self.name} | {self.unit} | {d[self.base + '_median']:.2f} | {d['ours_median']:.2f} | "
                f"**{r['median']:.2f}** | {r['min']:.2f} | {r['q1']:.2f} – {r['q3']:.2f} | {r['max']:.2f} |")  # fmt: skip


def in_turn(number, steps):
    """Runs the steps, each pair beginning with another one, so that a drift of the machine hits all of them alike."""
    results = [None] * len(steps)
    for i in range(len(steps)):
        at = (i + number) % len(steps)
        results[at] = steps[at]()
    return results


def size_name(octets):
    return f"{octets >> 20} MiB" if octets >= 1 << 20 else f"{octets >> 10} KiB" if octets >= 1 << 10 else f"{octets} B"


# --- charts ---------------------------------------------------------------------------------------------------------


def nice(value):
    if isinstance(value, str):
        return value
    for limit, suffix in ((1 << 20, "M"), (1 << 10, "K")):
        if value >= limit and value % limit == 0:
            return f"{value // limit:g}{suffix}"
    return f"{value:g}"


PALETTE = ("#1f77b4", "#d62728", "#7f7f7f", "#2ca02c", "#9467bd", "#8c564b", "#e377c2", "#bcbd22", "#17becf", "#ff7f0e")
NAMES_IN_A_LINE = 5  # of a chart


def ticks(least, most, logarithmic):
    """What is named at the ordinate, from its lower end to its upper one."""
    if not logarithmic:
        return [most * i / 5 for i in range(6)]
    first, last = math.floor(math.log10(least)), math.ceil(math.log10(most))
    steps = [digit * 10.0**power for power in range(first, last + 2) for digit in (1, 2, 5)]
    lower, upper = max(t for t in steps if t <= least), min(t for t in steps if t > most)
    return [t for t in steps if lower <= t <= upper]


def chart(title, below, places, lines, colours=None, logarithmic=False):
    """SVG with the places of the abscissa evenly spread. lines: {name: values}, None where there is none; `below` names the
    abscissa. logarithmic: the ordinate, of values above 0."""
    more = 14 * ((len(lines) - 1) // NAMES_IN_A_LINE)  # further lines of names
    width, height, left, top, right, bottom = 640, 400 + more, 70, 30, 20, 60 + more
    colours = colours or dict(zip(lines, PALETTE))
    found = [v for values in lines.values() for v in values if v is not None]
    named = ticks(min(found), max(found) * (1 if logarithmic else 1.05) or 1, logarithmic)
    scale = math.log if logarithmic else float
    lower, upper = scale(named[0]), scale(named[-1])
    step = (width - left - right) / max(len(places) - 1, 1)

    def point(i, value):
        return left + i * step, height - bottom - (scale(value) - lower) / (upper - lower) * (height - top - bottom)

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="11">',
           f'<rect width="{width}" height="{height}" fill="white"/><text x="{left}" y="18" font-size="13">{title}</text>']  # fmt: skip
    for value in named:
        x, y = point(0, value)
        out.append(f'<line x1="{x}" y1="{y:.1f}" x2="{width - right}" y2="{y:.1f}" stroke="#ddd"/>'
                   f'<text x="{x - 6}" y="{y + 4:.1f}" text-anchor="end">{value:.3g}</text>')  # fmt: skip
    for i, place in enumerate(places):
        x, y = point(i, named[0])
        out.append(f'<text x="{x:.1f}" y="{y + 16:.1f}" text-anchor="middle">{nice(place)}</text>')
    out.append(f'<text x="{width / 2}" y="{height - bottom + 34}" text-anchor="middle">{below}</text>')
    for n, (name, values) in enumerate(lines.items()):
        line = " ".join("{:.1f},{:.1f}".format(*point(i, v)) for i, v in enumerate(values) if v is not None)
        colour = colours.get(name, "black")
        x, y = left + 110 * (n % NAMES_IN_A_LINE), height - bottom + 52 + 14 * (n // NAMES_IN_A_LINE)
        out.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>'
                   f'<text x="{x}" y="{y}" fill="{colour}">{name}</text>')  # fmt: skip
    return "\n".join([*out, "</svg>\n"])
