#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The arithmetic of the page of peers: ratios are of one round, aims are judged by their worst case, rounds go on."""
import json
import pathlib
import sys
import tempfile
import unittest

from common import Failure, word_of
from peers_bench import Bench, MpiCases, parse
from peers_report import Case, Step, aim_lines, aim_lines_in_short, by_distance, charts, tables, verdicts


def case(what, size, part="network", place="loopback", unit="µs", **values):
    """values: of each step, one a round; a name in capitals is ours."""
    out = Case(part, place, what, size, unit, [Step(name.replace("_", " "), name[0] == "R", None) for name in values])
    out.found = {name.replace("_", " "): [None if v is None else {"value": v} for v in row] for name, row in values.items()}
    return out


def verdict(cases, text):
    return [v for v in verdicts(cases) if v["aim"].startswith(text)]


class Ratios(unittest.TestCase):
    def test_of_one_round(self):
        # the medians alone, 2 and 2, would say 1
        c = case("latency", 8, RC_Send=[1, 2, 30], raw_TCP=[2, 1, 10])
        self.assertEqual(c.ratios("RC Send", ["raw TCP"]), [0.5, 2, 3])

    def test_best_of_each_round(self):
        c = case("bandwidth", 8, RC_Send=[6, 6], one=[1, 3], other=[2, 2])
        self.assertEqual(c.ratios("RC Send", ["one", "other"]), [3, 2])
        c = case("latency", 8, RC_Send=[6, 6], one=[1, 3], other=[2, 2])
        self.assertEqual(c.ratios("RC Send", ["one", "other"]), [6, 3])

    def test_rounds_without_a_figure(self):
        c = case("latency", 8, RC_Send=[1, None, 3, 4], raw_TCP=[1, 1, None, 2], other=[None] * 4)
        self.assertEqual(c.ratios("RC Send", ["raw TCP"]), [1, 2])
        self.assertEqual(c.ratios("RC Send", ["raw TCP", "other", "not there"]), [1, 2])
        self.assertEqual(c.ratios("RC Send", ["other"]), [])
        self.assertIsNone(c.median("other"))


class Distance(unittest.TestCase):
    def test_a_word_is_of_both_measurements(self):
        words = [word_of(*us) for us in ((2, 2.3), (4.4, 5.7), (40, 50), (2, 4.7), (20, 34), (None, 2))]
        self.assertEqual(words, ["beside", "near", "far", "between", "between", "unknown"])

    def case(self, near, far):
        c = case("latency", 8, raw_TCP=[], RC_Send=[])
        for name, factor in (("raw TCP", 1), ("RC Send", 2)):
            c.found[name] = [{"value": factor, "cpus": "near"}] * near + [{"value": 9 * factor, "cpus": "far"}] * far
        return c

    def test_near_and_far_are_places_of_their_own(self):
        c = self.case(3, 4)
        c.found["raw TCP"][0] = {"value": 50, "cpus": "far"}  # changed between the two: no ratio of that round
        near, far = by_distance([c])
        self.assertEqual((near.place, far.place), ("loopback, CPUs near", "loopback, CPUs far"))
        self.assertEqual((near.median("RC Send"), far.median("RC Send")), (2, 18))
        self.assertEqual(near.ratios("RC Send", ["raw TCP"]), [2, 2])

    def test_too_few_say_nothing(self):
        self.assertEqual([c.place for c in by_distance([self.case(3, 2)])], ["loopback, CPUs near"])
        self.assertEqual([c.place for c in by_distance([self.case(1, 2)])], ["loopback"])

    def test_what_is_not_known_stays_as_it_is(self):
        c = case("latency", 8, raw_TCP=[1], RC_Send=[1])
        self.assertEqual(by_distance([c]), [c])


class Aims(unittest.TestCase):
    LATENCY = "RC latency ≤ 1.10"

    def test_met_at_its_limit(self):
        (v,) = verdict([case("latency", 8, RC_Send=[1.1], raw_TCP=[1])], self.LATENCY)
        self.assertTrue(v["met"])
        (v,) = verdict([case("latency", 8, RC_Send=[1.11], raw_TCP=[1])], self.LATENCY)
        self.assertFalse(v["met"])

    def test_bandwidth_is_better_higher(self):
        text = "RC bandwidth from 64 KiB"
        (v,) = verdict([case("bandwidth", 65536, RC_Write=[94], raw_TCP=[50], iperf3=[100])], text)
        self.assertFalse(v["met"])  # by the best stream, not by any
        (v,) = verdict([case("bandwidth", 65536, RC_Write=[96], raw_TCP=[50], iperf3=[100])], text)
        self.assertTrue(v["met"])
        (v,) = verdict([case("bandwidth", 32768, RC_Write=[1], raw_TCP=[50])], text)
        self.assertIsNone(v["met"])  # below the sizes that it is about

    def test_the_worst_case_decides(self):
        cases = [case("latency", 8, RC_Send=[1], raw_TCP=[1]), case("latency", 128, RC_Send=[3], RC_Write=[2], raw_TCP=[1])]
        (v,) = verdict(cases, self.LATENCY)
        self.assertEqual((v["met"], v["cases"], v["cases_met"], v["worst"]), (False, 3, 1, "RC Send, 128 B"))
        self.assertEqual(v["figure"]["median"], 3)

    def test_places_apart(self):
        cases = [case("latency", 8, place=p, RC_Send=[n], raw_TCP=[1]) for p, n in (("loopback", 1), ("veth", 2))]
        self.assertEqual([(v["place"], v["met"]) for v in verdict(cases, self.LATENCY)], [("loopback", True), ("veth", False)])

    def test_limits_without_a_base(self):
        (v,) = verdict([case("latency", 8, part="host", RC_Send=[0.9, 1.0, 7])], "`ib_send_lat` ≤ 1.0")
        self.assertTrue(v["met"])  # the median

    def test_all_are_named_when_nothing_was_measured(self):
        found = verdicts([])
        self.assertEqual({v["met"] for v in found}, {None})
        self.assertEqual(len(aim_lines(found)), len(found) + 2)

    def test_in_short_only_what_was_measured(self):
        cases = [case("latency", size, raw_TCP=[2], RC_Send=[4 if size == 8 else 2], UCX_tcp=[3]) for size in (8, 128)]
        lines = aim_lines_in_short(verdicts(cases))
        self.assertIn("| RC latency ≤ 1.10 × raw polling TCP | loopback | 1 of 2 | RC Send, 8 B | 2 × |", lines)
        self.assertEqual(len(lines), 2 + 2)


class Page(unittest.TestCase):
    def test_tables_and_charts_do_without_figures(self):
        cases = [case("latency", size, raw_TCP=[2], RC_Send=[4 if size == 8 else None], other=[None]) for size in (8, 128)]
        text = "\n".join(tables(cases))
        self.assertIn("| 8 B | 2 | 4 |  |", text)
        self.assertIn("| 8 B | 2.00 (2.00 – 2.00) |  |", text)
        (svg,) = charts(cases).values()
        self.assertIn(">RC Send</text>", svg)
        self.assertNotIn(">other</text>", svg)


def mpi_round(**latencies):
    """What mpi_bench.py writes: the latency of 8 octets by each name."""
    return {"latency": [{"size": 8, "unit": "us", **{name: {"median": v} for name, v in latencies.items()},
                         "by btl_tcp": {"median": 1}}]}  # fmt: skip


class Mpi(unittest.TestCase):
    def test_a_figure_each_round(self):
        cases = MpiCases("network")
        for found in (mpi_round(etherwarp=1, btl_tcp=2), {}, mpi_round(etherwarp=3, btl_tcp=4, mpich=5)):
            cases.take(found)
        (c,) = cases.cases.values()
        self.assertEqual(c.found, {"etherwarp": [{"value": 1}, None, {"value": 3}], "btl_tcp": [{"value": 2}, None, {"value": 4}],
                                   "mpich": [None, None, {"value": 5}]})  # fmt: skip


class Resumed(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        bench = self.bench()
        bench.mpi[0].take(mpi_round(etherwarp=1, btl_tcp=2))
        bench.cases[0].found["RC Send"].append({"value": 7})
        bench.done, bench.failures = 1, [{"case": "c", "step": "s", "ours": False, "error": "e"}]
        bench.write()

    def bench(self, size=8, option=""):
        words = ["--output", self.folder.name, "--only", "mpi", *(["--option", option] if option else [])]
        bench = Bench(parse(words))
        bench.mpi, bench.cases = [MpiCases("network")], [case("latency", size, RC_Send=[])]
        return bench

    def test_goes_on_behind_the_rounds_that_are_there(self):
        bench = self.bench()
        bench.resume()
        self.assertEqual((bench.done, bench.sittings, len(bench.failures)), (1, 2, 1))
        self.assertEqual(bench.cases[0].found, {"RC Send": [{"value": 7}]})
        bench.mpi[0].take(mpi_round(etherwarp=3, btl_tcp=4))
        bench.cases[0].found["RC Send"].append({"value": 8})
        bench.done = 2
        self.assertIn("2 rounds in turns", bench.write().read_text(encoding="utf-8"))
        written = json.loads((pathlib.Path(self.folder.name) / "peers.json").read_text(encoding="utf-8"))
        self.assertEqual([c["figures"] for c in written["cases"]],
                         [{"RC Send": [{"value": 7}, {"value": 8}]},
                          {"etherwarp": [{"value": 1}, {"value": 3}], "btl_tcp": [{"value": 2}, {"value": 4}]}])  # fmt: skip

    def test_refuses_what_is_of_others(self):
        for bench in (self.bench(size=128), self.bench(option="crc=always")):
            with self.assertRaises(Failure):
                bench.resume()
        other = self.bench()
        other.cases.clear()
        with self.assertRaises(Failure):
            other.resume()

    def test_nothing_is_there(self):
        (pathlib.Path(self.folder.name) / "peers.json").unlink()
        bench = self.bench()
        bench.resume()
        self.assertEqual((bench.done, bench.sittings), (0, 1))


if __name__ == "__main__":
    sys.exit(unittest.main())
