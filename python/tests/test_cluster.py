"""Parts of a study on a cluster: nothing lost, nothing twice, and the figures of a run on one machine.

Needs the program in CROSSPOINT, and the package `distributed`.
"""

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import distributed

import crosspoint
from crosspoint import cluster

GRID = """schema = 2
name = "grid"
seed = 1
[[stack]]
name = "optane"
device = "model:intel-p4800x"
[[stack]]
name = "flash"
device = "model:samsung-pm9a3"
[[stack]]
name = "here"
device = "file"
[[experiment]]
name = "predicted"
stacks = ["optane", "flash"]
warm_up = "50ms"
duration = "12s"
[experiment.job]
engine = "block"
queue_depth = [1, 2, 4, 8, 16, 32]
read_share = ["50%", "100%"]
[[experiment]]
name = "measured"
stacks = ["here"]
warm_up = "50ms"
duration = "400ms"
[experiment.job]
engine = "block"
queue_depth = [1, 4]
"""


def trials(folder):
    """The files of all predicted trials."""
    found = {}
    for name in sorted(os.listdir(os.path.join(folder, "trials"))):
        if "predicted" in name:
            for file in ("trial.json", "latency.hlog"):
                with open(os.path.join(folder, "trials", name, file), "rb") as contents:
                    found[name, file] = contents.read()
    return found


class Cluster(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.place = place.name
        self.study = os.path.join(self.place, "grid.toml")
        with open(self.study, "w", encoding="utf-8") as file:
            file.write(GRID)
        program = os.environ["CROSSPOINT"]
        self.single = os.path.join(self.place, "single")
        words = ["run", self.study, "--out", self.single, "--progress", "none"]
        subprocess.run([program, *words], check=True, capture_output=True, cwd=self.place)

    def cluster(self, workers):
        one = distributed.LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None)
        self.addCleanup(one.close)
        client = distributed.Client(one)
        self.addCleanup(client.close)
        return one, client

    def test_predictions_are_those_of_one_machine_to_the_byte(self):
        out = os.path.join(self.place, "many")
        _, client = self.cluster(2)
        told = []
        run = cluster.run(self.study, client, out, progress=lambda done, count: told.append((done, count)))
        self.assertEqual(trials(out), trials(self.single))
        self.assertEqual(len(trials(out)), 48)
        self.assertEqual(told[-1][0], told[-1][1])
        self.assertEqual({row["stack"] for row in run.figures("rows")}, {"optane", "flash", "here"})
        self.assertFalse(os.path.exists(out + ".parts"))

    def test_the_program_runs_a_study_on_a_cluster(self):
        one, _ = self.cluster(2)
        out = os.path.join(self.place, "asked")
        words = ["run", self.study, "--out", out, "--dask", one.scheduler_address]
        environment = {**os.environ, "CROSSPOINT_PYTHON": sys.executable}
        done = subprocess.run(
            [os.environ["CROSSPOINT"], *words], capture_output=True, cwd=self.place, env=environment, check=False
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(b"report.html", done.stdout)
        self.assertEqual(trials(out), trials(self.single))
        # No cluster there, and no package.
        words[-1] = "tcp://127.0.0.1:9"
        words[3] = os.path.join(self.place, "nowhere")
        done = subprocess.run([os.environ["CROSSPOINT"], *words], capture_output=True, env=environment, check=False)
        self.assertEqual(done.returncode, 5, done.stderr)
        environment["CROSSPOINT_PYTHON"] = "false"
        done = subprocess.run([os.environ["CROSSPOINT"], *words], capture_output=True, env=environment, check=False)
        self.assertEqual(done.returncode, 5, done.stderr)
        self.assertIn(b"pip install", done.stderr)

    def test_a_killed_worker_loses_nothing_and_repeats_nothing(self):
        out = os.path.join(self.place, "killed")
        one, client = self.cluster(2)
        victim = list(client.run(os.getpid).values())[0]
        finished = []

        def kill(done, count):
            finished.append(done)
            if len(finished) == 2:
                os.kill(victim, signal.SIGKILL)

        cluster.run(self.study, client, out, progress=kill)
        self.assertEqual(trials(out), trials(self.single))
        numbers = [name[:4] for name in os.listdir(os.path.join(out, "trials"))]
        self.assertEqual(len(numbers), len(set(numbers)))
        self.assertEqual(len(numbers), 26)

    def test_a_lost_client_continues_with_what_is_missing(self):
        out = os.path.join(self.place, "resumed")
        _, client = self.cluster(1)

        def stop(done, count):
            if done == 2:
                raise KeyboardInterrupt

        with self.assertRaises(KeyboardInterrupt):
            cluster.run(self.study, client, out, progress=stop)
        kept = {name: os.stat(os.path.join(out + ".parts", name)).st_ino for name in os.listdir(out + ".parts")}
        self.assertEqual(len([name for name in kept if name.startswith("part-")]), 2)
        told = []
        cluster.run(self.study, client, out, progress=lambda done, count: told.append(done))
        self.assertEqual(told[0], 2)
        self.assertEqual(trials(out), trials(self.single))

    def test_what_measures_a_machine_runs_alone_on_it(self):
        """Greedy: two threads at once, as two independent runs on one host."""
        spans = []

        def hold(exclusive):
            with cluster._host_lock(exclusive):
                began = time.monotonic()
                time.sleep(0.1)
                spans.append((began, time.monotonic(), exclusive))

        threads = [threading.Thread(target=hold, args=(number % 2 == 0,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for began, ended, exclusive in spans:
            for other_began, other_ended, other_exclusive in spans:
                if (exclusive or other_exclusive) and (began, ended) != (other_began, other_ended):
                    self.assertTrue(ended <= other_began or other_ended <= began)

    def test_a_worker_without_an_engine_is_never_given_its_part(self):
        text = GRID.replace('engine = "block"\nqueue_depth = [1, 4]', 'engine = "rocksdb"\nrecords = 100\n'
                            'value_size = "100B"\nworkload = "overwrite"\noptions = { library = "/nowhere/rocksdb.so" }')
        with open(self.study, "w", encoding="utf-8") as file:
            file.write(text)
        _, client = self.cluster(1)
        out = os.path.join(self.place, "none")
        with self.assertRaises(crosspoint.CrosspointError) as refused:
            cluster.run(self.study, client, out, progress=lambda done, count: self.fail("a part was run"))
        self.assertEqual(refused.exception.code, 5)
        self.assertIn("25", str(refused.exception))
        self.assertFalse(os.path.exists(out))

    def test_the_only_worker_is_killed_with_its_program_and_its_part_runs_again(self):
        out = os.path.join(self.place, "alone")
        _, client = self.cluster(1)
        victim = list(client.run(os.getpid).values())[0]
        at_work = threading.Event()

        def kill():
            while not at_work.is_set():
                names = [name for name in os.listdir(self.place) if name.startswith(".crosspoint-part-")]
                if any(os.path.exists(os.path.join(self.place, name, "part", "run.json")) for name in names):
                    os.kill(victim, signal.SIGKILL)
                    return
                time.sleep(0.001)

        killer = threading.Thread(target=kill)
        killer.start()
        cluster.run(self.study, client, out, directory=self.place)
        at_work.set()
        killer.join()
        self.assertEqual(trials(out), trials(self.single))


if __name__ == "__main__":
    unittest.main()
