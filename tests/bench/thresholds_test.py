#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What thresholds.py makes of figures."""
import unittest

from thresholds import choose, explain, protocol, slowness

K = 1 << 10


def figures(eager, hybrid, rendezvous, memory=None):
    """Times of sizes 1 KiB, 2 KiB, 4 KiB, ...; each a number or a list of rounds. memory: likewise, else as the protocols have it."""
    out = {}
    for name, times in (("eager", eager), ("hybrid", hybrid), ("rendezvous", rendezvous)):
        held = (memory or {}).get(name) or [0 if name == "rendezvous" else 1 << n for n in range(len(times))]
        out[name] = {K << n: (t if isinstance(t, list) else [t], kib) for n, (t, kib) in enumerate(zip(times, held))}
    return out


class Choice(unittest.TestCase):
    def test_the_fastest_wins_beyond_the_margin(self):
        found = figures([10, 20, 40, 80], [15, 22, 30, 60], [20, 30, 40, 50])
        self.assertEqual(choose(found, 0.05), (2 * K, 4 * K))

    def test_memory_decides_within_the_margin(self):
        found = figures([10, 20, 40], [20, 30, 41], [20, 21, 41])
        self.assertEqual(choose(found, 0.05), (K, K))
        self.assertEqual(choose(found, 0.01), (4 * K, 4 * K))

    def test_without_a_margin_the_fastest_wins(self):
        self.assertEqual(choose(figures([10, 20], [11, 21], [12, 22]), 0), (2 * K, 2 * K))

    def test_all_alike_is_a_rendezvous(self):
        self.assertEqual(choose(figures([10, 20, 30], [10, 20, 30], [10, 20, 30]), 0.05), (0, 0))

    def test_all_alike_in_memory_too(self):
        same = {name: [4, 4] for name in ("eager", "hybrid", "rendezvous")}
        self.assertEqual(choose(figures([10, 20], [10, 20], [10, 20], same), 0.05), (0, 0))

    def test_hybrid_everywhere(self):
        self.assertEqual(choose(figures([20, 40], [10, 20], [20, 40]), 0.05), (0, 2 * K))

    def test_an_outlier_in_the_middle_costs_less_than_what_follows_from_it(self):
        # At 4 KiB a rendezvous was 10 % faster; to follow it costs more at 8 KiB.
        found = figures([10, 20, 44, 60], [30, 60, 90, 120], [20, 40, 40, 90])
        self.assertEqual(choose(found, 0.05), (8 * K, 8 * K))
        self.assertIn("beyond the margin", explain(found, (8 * K, 8 * K), 0.05)[4])

    def test_one_size(self):
        self.assertEqual(choose(figures([10], [20], [20]), 0.05), (K, K))

    def test_ratios_are_of_one_round(self):
        # The machine was half as fast in the second round.
        found = figures([[10, 20, 10]], [[30, 60, 30]], [[10.2, 20.4, 10.2]])
        self.assertAlmostEqual(slowness(found, K)["rendezvous"], 1.02)
        self.assertEqual(choose(found, 0.05), (0, 0))

    def test_a_page_to_paste_from(self):
        found = figures([10, 20, 40, 80], [15, 22, 30, 60], [20, 30, 40, 50])
        lines = explain(found, choose(found, 0.05), 0.05)
        self.assertEqual(lines[-1], "EWARP_CHANNEL_EAGER_THRESHOLD=2048 EWARP_CHANNEL_HYBRID_THRESHOLD=4096")
        self.assertEqual([line.split()[-1] for line in lines[2:6]], ["eager", "eager", "hybrid", "rendezvous"])
        self.assertEqual([protocol(n * K, (2 * K, 4 * K)) for n in (1, 2, 3, 4, 5)],
                         ["eager", "eager", "hybrid", "hybrid", "rendezvous"])  # fmt: skip


if __name__ == "__main__":
    unittest.main()
