# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Which thresholds of the channel's protocols are best, by figures of each protocol alone.

figures: {protocol: {size in octets: (us of each round, KiB that a message takes while it waits for its receive)}}. The
rounds of all protocols correspond. A protocol is good at a size if it is at most `margin` slower than the fastest one,
by the median of the rounds' ratios.

Two thresholds divide the sizes: EAGER up to one, HYBRID up to the other, a rendezvous above. Of all pairs choose() takes
the one with the least time beyond the margin, of those the one with the least memory, of those the one with the smallest
thresholds.
"""
import itertools
import statistics

# Each protocol alone: values of EWARP_CHANNEL_*.
PROTOCOLS = {
    "eager": {"EAGER_THRESHOLD": 1 << 20},
    "hybrid": {"EAGER_THRESHOLD": 0, "HYBRID_THRESHOLD": 1 << 20, "ANNOUNCE": 0},
    "rendezvous": {"EAGER_THRESHOLD": 0, "HYBRID_THRESHOLD": 0},
}


def slowness(figures, size):
    """{protocol: its time by the fastest one's at this size}."""
    rounds = {name: of[size][0] for name, of in figures.items()}
    fastest = min(rounds, key=lambda name: statistics.median(rounds[name]))
    return {name: statistics.median(t / best for t, best in zip(times, rounds[fastest])) for name, times in rounds.items()}


def protocol(size, thresholds):
    eager, hybrid = thresholds
    return "eager" if size <= eager else "hybrid" if size <= hybrid else "rendezvous"


def choose(figures, margin):
    """(eager_threshold, hybrid_threshold) in octets; 0: no size. The second is at least the first."""
    sizes = sorted(figures["eager"])
    slow = {size: slowness(figures, size) for size in sizes}

    def cost(thresholds):
        taken = [(size, protocol(size, thresholds)) for size in sizes]
        late = sum(max(0, slow[size][name] - 1 - margin) for size, name in taken)
        return round(late, 9), sum(figures[name][size][1] for size, name in taken), thresholds

    return min(itertools.combinations_with_replacement([0, *sizes], 2), key=cost)


def explain(figures, thresholds, margin):
    """Lines: a table of all figures, what was chosen, and the variables to set."""
    names = list(figures)
    lines = ["us one way, by the fastest, KiB while the receive is not posted",
             "octets " + "".join(f"{name:>24}" for name in names)]  # fmt: skip
    for size in sorted(figures["eager"]):
        slow = slowness(figures, size)
        cells = "".join(f"{statistics.median(figures[n][size][0]):10.2f} {slow[n]:5.2f} {figures[n][size][1]:7.1f}" for n in names)
        taken = protocol(size, thresholds)
        lines.append(f"{size:7d}{cells}   {taken}{'' if slow[taken] <= 1 + margin else ', beyond the margin'}")
    lines.append(f"Of the protocols that are at most {margin:.0%} slower than the fastest, the one that takes the least memory:")
    lines.append(f"EWARP_CHANNEL_EAGER_THRESHOLD={thresholds[0]} EWARP_CHANNEL_HYBRID_THRESHOLD={thresholds[1]}")
    return lines
