"""A grid of 2,000 trials (1,400 predicted, 600 simulated) in one process and on Dask clusters of this machine.

For 1, 2 and 4 workers, and as root for three network namespaces as machines: wall time, and which trials differ
from those of one process. Then a worker is killed and one added, and the scheduler is killed and the call repeated.
Arguments: which of these, 1 2 4 machines lost (default: all). Needs `distributed` and the program in CROSSPOINT; takes a quarter of an hour on two CPUs, with nothing else running.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

import distributed

from crosspoint import cluster

MODELS = (
    "samsung-pm9a3 intel-p4800x intel-s3520 aws-gp3 samsung-990-pro intel-p4500 aws-io2-bx intel-900p intel-s3510 "
    "aws-i4i-4xlarge"
).split()


def grid():
    text = 'schema = 2\nname = "grid"\nseed = 1\n'
    for model in MODELS:
        text += f'[[stack]]\nname = "{model}"\ndevice = "model:{model}"\ncpu_time = "1us"\ncores = 4\n'
    text += """[[experiment]]
name = "blocks"
warm_up = "20ms"
duration = "400ms"
[experiment.job]
engine = "block"
queue_depth = [1, 2, 4, 8, 16, 32, 64]
read_share = ["0%", "30%", "50%", "70%", "100%"]
block_size = ["4KiB", "8KiB", "16KiB", "64KiB"]
"""
    for engine in ("lmdb", "rocksdb"):
        text += f"""[[experiment]]
name = "{engine}"
warm_up = "0s"
duration = "20ms"
interval = "10ms"
[experiment.job]
engine = "{engine}"
workload = "read_random"
records = 1000
value_size = ["100B", "400B", "1kB", "2kB", "4kB"]
clients = [1, 2, 3, 4, 6, 8]
"""
    return text


def trials(folder):
    """The result of each trial: for engines the counts and latencies, without notes of the host's usage."""
    found = {}
    for name in sorted(os.listdir(os.path.join(folder, "trials"))):
        with open(os.path.join(folder, "trials", name, "trial.json"), "rb") as file:
            text = file.read()
        with open(os.path.join(folder, "trials", name, "latency.hlog"), "rb") as file:
            found[name] = (text, file.read())
    return found


def rate(text):
    """Operations of a trial's measured time."""
    measured = [one for one in json.loads(text)["intervals"] if one["phase"] == "measure"]
    return sum(one["read"]["ops"] for one in measured)


def differing(single, other):
    """What differs: predictions to the byte, simulations in operations and latencies, and the largest difference."""
    assert single.keys() == other.keys(), single.keys() ^ other.keys()
    blocks = sum(single[name] != other[name] for name in single if "blocks" in name)
    told = [f"predictions that differ: {blocks}"]
    for engine in ("lmdb", "rocksdb"):
        names = [name for name in single if f"-{engine}-" in name]
        bytes_differ = sum(single[name][1] != other[name][1] for name in names)
        worst = max(abs(rate(other[name][0]) / max(rate(single[name][0]), 1) - 1) for name in names)
        told.append(f"{engine}: {bytes_differ} of {len(names)} differ in a latency, rates by at most {worst:.2%}")
    return "; ".join(told)


def timed(label, single, parts, run):
    began = time.monotonic()
    folder = run()
    took = time.monotonic() - began
    print(f"{label}: {took:.1f} s; {differing(single, trials(folder))}; {parts} parts", flush=True)
    return took


def worker(address, *before):
    words = [*before, sys.executable, "-m", "distributed.cli.dask_worker", address]
    words += ["--nworkers", "1", "--nthreads", "1", "--no-dashboard", "--no-nanny"]
    return subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, process_group=0)


def scheduler(port):
    words = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--port", str(port), "--no-dashboard"]
    return subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, process_group=0)


def end(*processes):
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextlib.contextmanager
def namespaces(count):
    """Network namespaces on one bridge; the scheduler's address is 10.77.0.1."""

    def ip(words):
        subprocess.run(["ip", *words.split()], check=True)

    names = [f"crosspoint-{number}" for number in range(count)]
    ip("link add xp-bridge type bridge")
    try:
        ip("addr add 10.77.0.1/24 dev xp-bridge")
        ip("link set xp-bridge up")
        for number, name in enumerate(names):
            ip(f"netns add {name}")
            ip(f"link add xp-{number} type veth peer name eth0 netns {name}")
            ip(f"link set xp-{number} master xp-bridge up")
            ip(f"-n {name} addr add 10.77.0.{number + 2}/24 dev eth0")
            ip(f"-n {name} link set eth0 up")
            ip(f"-n {name} link set lo up")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False, stderr=subprocess.DEVNULL)
        subprocess.run(["ip", "link", "del", "xp-bridge"], check=False)


def main():
    wanted = sys.argv[1:] or ["1", "2", "4", "machines", "lost"]
    with tempfile.TemporaryDirectory(dir=".", prefix="grid-") as place:
        os.chdir(place)
        with open("grid.toml", "w", encoding="utf-8") as file:
            file.write(grid())
        program = os.environ["CROSSPOINT"]
        plan = json.loads(subprocess.check_output([program, "plan", "grid.toml", "--json"]))
        parts = len(plan["parts"])
        began = time.monotonic()
        subprocess.run([program, "run", "grid.toml", "--out", "single", "--progress", "none"], check=True, capture_output=True)
        print(f"one process: {time.monotonic() - began:.1f} s, {len(os.listdir('single/trials'))} trials", flush=True)
        single = trials("single")
        took = {}
        for count in (count for count in (1, 2, 4) if str(count) in wanted):

            def local(count=count):
                address = dict(n_workers=count, threads_per_worker=1, dashboard_address=None)
                with distributed.LocalCluster(**address) as own, distributed.Client(own) as client:
                    cluster.run("grid.toml", client, f"workers-{count}", progress=lambda done, all: None)
                return f"workers-{count}"

            took[count] = timed(f"{count} workers", single, parts, local)
        for count in set(took) - {1} if 1 in took else ():
            ideal = min(count, len(os.sched_getaffinity(0)))
            print(f"{count} workers: {took[1] / took[count]:.2f} times as fast as one (ideal: {ideal})")
        if os.geteuid() == 0 and "machines" in wanted:
            with namespaces(3) as names:
                own = scheduler(8791)
                workers = [worker("tcp://10.77.0.1:8791", "ip", "netns", "exec", name) for name in names]

                def machines():
                    with distributed.Client("tcp://10.77.0.1:8791", timeout="30s") as client:
                        client.wait_for_workers(3)
                        print("hosts:", sorted(w.split("//")[1].split(":")[0] for w in client.scheduler_info()["workers"]))
                        cluster.run("grid.toml", client, "machines", progress=lambda done, all: None)
                    return "machines"

                try:
                    timed("3 namespaces", single, parts, machines)
                finally:
                    end(own, *workers)
        if "lost" in wanted:
            lost(single, parts)
        os.chdir("..")


def lost(single, parts):
    """A worker killed and one added, then the scheduler killed, and the call repeated."""
    address = "tcp://127.0.0.1:8792"
    own, there = scheduler(8792), []
    there += [worker(address), worker(address)]
    done_before = 0

    def disturb(done, count):
        nonlocal done_before
        if done == count // 4:
            end(there.pop(0))
            there.append(worker(address))
        if done == count // 2:
            done_before = done
            end(own)

    try:
        with distributed.Client(address, timeout="30s") as client:
            client.wait_for_workers(2)
            cluster.run("grid.toml", client, "lost", progress=disturb)
        raise AssertionError("the scheduler was killed")
    except (Exception, distributed.CancelledError) as error:  # whatever Dask says when its scheduler is gone
        print(f"scheduler killed after {done_before} of {parts} parts: {type(error).__name__}", flush=True)
    finally:
        end(*there)
    kept = len([name for name in os.listdir("lost.parts") if name.startswith("part-")])
    own, there = scheduler(8793), [worker("tcp://127.0.0.1:8793"), worker("tcp://127.0.0.1:8793")]
    told = []

    def again():
        with distributed.Client("tcp://127.0.0.1:8793", timeout="30s") as client:
            client.wait_for_workers(2)
            cluster.run("grid.toml", client, "lost", progress=lambda done, count: told.append(done))
        return "lost"

    try:
        timed(f"repeated, {kept} parts kept", single, parts, again)
        print(f"parts of the repeated call: {told[-1] - told[0]} run, {told[0]} kept")
    finally:
        end(own, *there)


if __name__ == "__main__":
    main()
