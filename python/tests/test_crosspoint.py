"""The package against the program: what a notebook shows must be what the report says.

Needs a run folder in CROSSPOINT_RUN and the program in CROSSPOINT; frames are tested where their library is.
"""

import importlib.util
import math
import os
import tempfile
import unittest

import crosspoint

RUN = os.environ.get("CROSSPOINT_RUN", "")


def has(name):
    return importlib.util.find_spec(name) is not None


class Rows(unittest.TestCase):
    def setUp(self):
        self.run_ = crosspoint.Run(RUN)

    def test_figures_have_their_parameters_as_columns(self):
        rows = self.run_.figures("rows")
        self.assertTrue(any("point.queue_depth" in row for row in rows))
        self.assertTrue(all(row["value"] is not None for row in rows))

    def test_percentiles_of_the_bins_are_those_of_the_figures(self):
        figures = [r for r in self.run_.figures("rows") if r["metric"] == "latency_p99" and not r["partial"]]
        bins = self.run_.histograms("rows")
        tried = 0
        for figure in figures:
            own = {k: v for k, v in figure.items() if k.startswith("point.") and k != "point.op"}
            alike = [
                b
                for b in bins
                if b["stack"] == figure["stack"]
                and b["workload"] == figure["workload"]
                and b["op"] == figure["point.op"]
                and all(str(b.get(k)) == str(v) for k, v in own.items())
            ]
            if figure["source"] == "published" or len({b["trial"] for b in alike}) != 1:
                continue
            ours = crosspoint.percentile(alike, 99) / 1000
            self.assertLess(abs(ours / figure["value"] - 1), 0.01, figure)
            tried += 1
        self.assertGreater(tried, 0)

    def test_series_add_up_to_the_rate(self):
        series = [r for r in self.run_.series("rows") if r["phase"] == "measure"]
        self.assertTrue(series)
        for row in series:
            if row["rate_per_s"] is not None:
                length = row["end_s"] - row["start_s"]
                self.assertAlmostEqual(row["rate_per_s"] * length, row["ops"], delta=max(1, row["ops"] / 1000))

    @unittest.skipUnless(has("pandas"), "pandas")
    def test_pandas(self):
        frame = self.run_.figures()
        self.assertEqual(len(frame), len(self.run_.figures("rows")))
        bins = self.run_.histograms()
        first = bins[bins.trial == bins.trial.iloc[0]]
        self.assertFalse(math.isnan(crosspoint.percentile(first, 50)))

    @unittest.skipUnless(has("polars"), "polars")
    def test_polars(self):
        for frame, rows in [
            (self.run_.figures("polars"), self.run_.figures("rows")),
            (self.run_.series("polars"), self.run_.series("rows")),
        ]:
            self.assertEqual(frame.height, len(rows))

    def test_what_the_program_says_is_the_error(self):
        with self.assertRaises(crosspoint.CrosspointError) as caught:
            crosspoint.Run("nosuchrun").figures("rows")
        self.assertNotEqual(caught.exception.code, 0)
        self.assertIn("nosuchrun", str(caught.exception))


class Percentiles(unittest.TestCase):
    def test_of_known_bins(self):
        bins = [{"time": "response", "to_ns": n, "count": 1} for n in range(1, 101)]
        self.assertEqual(crosspoint.percentile(bins, 50), 50)
        self.assertEqual(crosspoint.percentile(bins, 99), 99)
        self.assertEqual(crosspoint.percentile(bins, 100), 100)
        self.assertTrue(math.isnan(crosspoint.percentile([], 50)))


class Storage(unittest.TestCase):
    @unittest.skipUnless(has("fsspec"), "fsspec")
    def test_a_run_on_other_storage_is_whole_or_is_none(self):
        import fsspec
        from crosspoint import storage

        with tempfile.TemporaryDirectory() as place:
            run = crosspoint.Run(RUN)
            storage.save(run, "memory://bucket/run")
            with self.assertRaises(crosspoint.CrosspointError):
                storage.save(run, "memory://bucket/run")
            again = storage.load("memory://bucket/run", os.path.join(place, "again"))
            self.assertEqual(again.figures("rows")[0]["value"], run.figures("rows")[0]["value"])
            # A damaged trial, and a copy that was cut off before its last file.
            files = fsspec.filesystem("memory")
            trial = next(name for name in files.find("/bucket/run") if name.endswith("latency.hlog"))
            whole = files.cat_file(trial)
            files.pipe_file(trial, whole[:-1])
            with self.assertRaises(crosspoint.CrosspointError) as damaged:
                storage.load("memory://bucket/run", os.path.join(place, "damaged"))
            self.assertEqual(damaged.exception.code, 7)
            files.pipe_file(trial, whole)
            files.rm("/bucket/run/run.json")
            with self.assertRaises(crosspoint.CrosspointError):
                storage.load("memory://bucket/run", os.path.join(place, "cut"))
            self.assertEqual(os.listdir(place), ["again"])


class Charts(unittest.TestCase):
    @unittest.skipUnless(has("altair") and has("pandas"), "altair")
    def test_charts_show_the_values_of_the_figures(self):
        from crosspoint import charts

        run = crosspoint.Run(RUN)
        rates = {row["value"] for row in run.figures("rows") if row["metric"] == "iops"}
        shown = next(iter(charts.rate(run).to_dict()["datasets"].values()))
        self.assertEqual({row["value"] for row in shown}, rates)
        lines = next(iter(charts.percentiles(run).to_dict()["datasets"].values()))
        p99 = {row["value"] for row in lines if row["percentile"] == "99"}
        told = {r["value"] for r in run.figures("rows") if r["metric"] == "latency_p99" and r["point.op"] == "read"}
        self.assertEqual(p99, told)
        self.assertTrue(charts.series(run).to_dict()["datasets"])


if __name__ == "__main__":
    unittest.main()
