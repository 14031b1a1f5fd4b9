"""Runs a study on the machines of a Dask cluster, or by several processes of this one.

The program divides a study into parts (`crosspoint plan --json`), runs a part (`run --only`) and merges them
(`merge`); Dask decides where each runs. A part that measures a machine runs alone on it: a lock of that host
and user keeps other parts away, wherever Dask puts them. Finished parts are kept next to the
run folder until all are there, so that the same call continues after a lost client or scheduler. Workers run
programs: only for clusters that you trust.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import io
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
from typing import Any, Callable, Iterator, Sequence

from . import CrosspointError, Run, _ask, _program

__all__ = ["main", "run"]

# Loaded here, because a thread that has just been forked must not wait for locks of others.
_LIBC = ctypes.CDLL(None)
# Text of the study, numbers of the trials, whether they need the machine alone, confirmed serial numbers,
# and directory.
Task = tuple[str, tuple[int, ...], bool, list[str], "str | None"]
# What a run folder has that a merge takes over.
_RUN_FILES = {"run.json", "study.toml", "study.original.toml", "sums.txt", "trials", "report.html", ".lock"}


def run(
    study: str | os.PathLike[str],
    client: Any = None,
    out: str | os.PathLike[str] | None = None,
    *,
    set: Sequence[str] = (),
    confirmed: Sequence[str] = (),
    directory: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Run:
    """Runs `study` (a file or the name of a built-in one) and gives the run.

    `client` is a `distributed.Client`; without one, a cluster of this machine's CPUs is started and ended.
    `out` is the run folder to create. `set` changes values, as `--set` does; `confirmed` are the serial
    numbers of devices that may be overwritten. `directory` is where workers measure and keep their files,
    instead of their own working directory; a study's relative paths start there. A part whose worker is lost
    runs again. `progress` is called with the number of finished parts and that of all.
    """
    words = [word for one in set for word in ("--set", one)]
    text = _ask(["run", os.fspath(study), *words, "--print"]).decode()
    plan = _plan(text)
    folder = os.path.normpath(os.fspath(out) if out is not None else _default_folder(plan["study"]))
    if os.path.exists(os.path.join(folder, "run.json")):
        raise CrosspointError(2, f"{folder} exists already")
    place = folder + ".parts"
    _keep_study(place, text)
    parts = [tuple(part["trials"]) for part in plan["parts"]]
    exclusive = {tuple(part["trials"]) for part in plan["parts"] if part["exclusive"]}
    missing = [part for part in parts if not os.path.isdir(_part_folder(place, part))]
    progress = progress or _progress
    if missing:
        with _cluster(client) as dask:
            hosts = _hosts_by_part(dask, text, directory)
            nowhere = [part for part in missing if part not in hosts]
            if nowhere:
                trials = ", ".join(_numbers(part) for part in nowhere)
                raise CrosspointError(5, f"no worker has what trials {trials} need: crosspoint plan there")
            tasks = {part: (text, part, part in exclusive, list(confirmed), directory) for part in missing}
            _gather(dask, tasks, hosts, place, progress, len(parts))
    folders = [_part_folder(place, part) for part in parts]
    _complete(["merge", folder, *folders], (0, 6, 8, 130))
    _remove(place, folders)
    return Run(folder)


@contextlib.contextmanager
def _cluster(client: Any) -> Iterator[Any]:
    if client is not None:
        yield client
        return
    import distributed

    cpus = len(os.sched_getaffinity(0))
    with distributed.LocalCluster(n_workers=cpus, threads_per_worker=1, dashboard_address=None) as cluster:
        with distributed.Client(cluster) as own:
            yield own


def _hosts_by_part(dask: Any, text: str, directory: str | None) -> dict[tuple[int, ...], list[str]]:
    """The hosts that lack nothing for a part, by part; not workers, which get another address if restarted."""
    found: dict[tuple[int, ...], list[str]] = {}
    for address, plan in dask.run(_plan, text, directory, on_error="return").items():
        if isinstance(plan, BaseException):
            print(f"{address} is not used: {plan}", file=sys.stderr)
            continue
        host = address.split("://")[-1].rsplit(":", 1)[0]
        for part in plan["parts"]:
            if not part["lacks"]:
                hosts = found.setdefault(tuple(part["trials"]), [])
                if host not in hosts:
                    hosts.append(host)
    return found


def _gather(
    dask: Any,
    tasks: dict[tuple[int, ...], Task],
    hosts: dict[tuple[int, ...], list[str]],
    place: str,
    progress: Callable[[int, int], None],
    count: int,
) -> None:
    from distributed import as_completed

    futures = {
        dask.submit(_run_part, task, pure=False, workers=hosts[part], priority=-number): part
        for number, (part, task) in enumerate(tasks.items())
    }
    done = count - len(tasks)
    progress(done, count)
    try:
        for future in as_completed(futures):
            _store(_part_folder(place, futures[future]), future.result())
            future.release()
            done += 1
            progress(done, count)
    except BaseException:
        dask.cancel(list(futures))
        raise


def _run_part(task: Task) -> bytes:
    """On a worker: runs a part, and gives its run folder as an archive."""
    text, part, exclusive, confirmed, directory = task
    base = directory or os.getcwd()
    here = tempfile.TemporaryDirectory(prefix=".crosspoint-part-", dir=base)
    with _host_lock(exclusive) as lock, _cpu(exclusive) as cpu, here as place:
        study = os.path.join(place, "study.toml")
        with open(study, "w", encoding="utf-8") as file:
            file.write(text)
        # Next to the folder of the run is the disk that is measured by default.
        folder = os.path.join(place, "part")
        words = ["run", study, "--out", folder, "--only", _numbers(part), "--progress", "none"]
        words += [word for one in confirmed for word in ("--i-will-lose-data", one)]
        _complete(words, (0, 6, 8), base, lock, cpu)
        with open(os.path.join(folder, "run.json"), encoding="utf-8") as file:
            planned = json.load(file)["trials_planned"]
        ended = [name for name in os.listdir(os.path.join(folder, "trials")) if not name.startswith(".")]
        if len(ended) != planned:
            raise CrosspointError(6, f"{socket.gethostname()}: {len(ended)} of {planned} trials ended")
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as archive:
            archive.add(folder, arcname=".")
        return packed.getvalue()


@contextlib.contextmanager
def _host_lock(exclusive: bool) -> Iterator[int]:
    """Held alone by a part that measures this machine, and shared by all others; its program inherits it."""
    with _locked("host", fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) as held:
        assert held is not None
        yield held


@contextlib.contextmanager
def _locked(name: str, kind: int) -> Iterator[int | None]:
    """A lock of this host and user; None if another has it, and the kind does not wait."""
    path = os.path.join(tempfile.gettempdir(), f"crosspoint-{os.getuid()}-{name}.lock")
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    file = os.open(path, flags, 0o600)
    try:
        # Another user could have made it first, and hold it for ever.
        if os.fstat(file).st_uid != os.getuid():
            raise CrosspointError(4, f"{path} belongs to another user: set TMPDIR")
        try:
            fcntl.flock(file, kind)
        except BlockingIOError:
            yield None
            return
        yield file
    finally:
        os.close(file)


@contextlib.contextmanager
def _cpu(exclusive: bool) -> Iterator[int | None]:
    """A CPU that no other part of this host and user has; None for a part that measures, which has all.

    Threads of a simulation take turns, so that a second CPU is of little use to it, and two simulations on the
    same CPUs delay each other.
    """
    if exclusive:
        yield None
        return
    while True:
        for cpu in sorted(os.sched_getaffinity(0)):
            with _locked(f"cpu-{cpu}", fcntl.LOCK_EX | fcntl.LOCK_NB) as held:
                if held is not None:
                    yield cpu
                    return
        time.sleep(0.05)


def _end_with_parent(cpu: int | None) -> None:
    """The program stops, and leaves nothing, if its worker is killed: PR_SET_PDEATHSIG of prctl(2)."""
    _LIBC.prctl(1, signal.SIGTERM)
    if cpu is not None:
        os.sched_setaffinity(0, {cpu})


def _complete(
    words: Sequence[str],
    codes: Sequence[int],
    place: str | None = None,
    lock: int | None = None,
    cpu: int | None = None,
) -> None:
    kept = () if lock is None else (lock,)
    # What the run records of its host, although it has one CPU.
    count = os.environ.get("CROSSPOINT_CPUS", str(len(os.sched_getaffinity(0))))
    done = subprocess.run(
        [_program(), *words],
        capture_output=True,
        check=False,
        cwd=place,
        pass_fds=kept,
        env={**os.environ, "CROSSPOINT_CPUS": count},
        preexec_fn=lambda: _end_with_parent(cpu),
    )
    if done.returncode not in codes:
        said = done.stderr.decode(errors="replace").strip()
        raise CrosspointError(done.returncode, f"{socket.gethostname()}: {said}")


def _plan(text: str, directory: str | None = None) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="crosspoint-plan-") as place:
        study = os.path.join(place, "study.toml")
        with open(study, "w", encoding="utf-8") as file:
            file.write(text)
        said = _ask(["plan", study, "--json"], directory)
        plan: dict[str, Any] = json.loads(said)
        return plan


def _keep_study(place: str, text: str) -> None:
    kept = os.path.join(place, "study.toml")
    if os.path.isdir(place) and not os.path.exists(kept):
        raise CrosspointError(2, f"{place} exists, and has no parts of a run")
    os.makedirs(place, exist_ok=True)
    if os.path.exists(kept):
        with open(kept, encoding="utf-8") as file:
            if file.read() != text:
                raise CrosspointError(2, f"{place} has parts of another study, or of other values")
        return
    with open(kept, "w", encoding="utf-8") as file:
        file.write(text)


def _store(folder: str, packed: bytes) -> None:
    """Unpacks a part; it exists once it is complete."""
    with tempfile.TemporaryDirectory(dir=os.path.dirname(folder)) as place:
        inside = os.path.join(place, "part")
        os.mkdir(inside)
        with tarfile.open(fileobj=io.BytesIO(packed), mode="r:gz") as archive:
            # Known to Python's own types from 3.11.4 on.
            extract: Any = archive.extractall
            extract(inside, filter="data")
        os.rename(inside, folder)


def _remove(place: str, folders: Sequence[str]) -> None:
    """Removes merged parts, unless one has more than a run, such as a kept database."""
    more = [folder for folder in folders if not _RUN_FILES.issuperset(os.listdir(folder))]
    if more:
        print(f"{', '.join(more)}: kept, with what its trials left", file=sys.stderr)
        return
    # With what a call that was killed has left half unpacked.
    shutil.rmtree(place)


def _part_folder(place: str, part: tuple[int, ...]) -> str:
    return os.path.join(place, f"part-{part[0]:04}")


def _numbers(part: tuple[int, ...]) -> str:
    return ",".join(str(number) for number in part)


def _default_folder(study: str) -> str:
    return os.path.join("runs", f"{study}-{time.strftime('%Y%m%d-%H%M%S')}")


def _progress(done: int, count: int) -> None:
    print(f"{done} of {count} parts", file=sys.stderr)


def main() -> int:
    """`crosspoint run STUDY --dask ADDRESS`: the study comes from standard input."""
    import argparse

    import distributed

    parser = argparse.ArgumentParser(prog="python3 -m crosspoint", description=main.__doc__)
    parser.add_argument("scheduler", help="address of the scheduler, such as tcp://host:8786")
    parser.add_argument("--out", required=True, help="run folder to create")
    parser.add_argument("--i-will-lose-data", action="append", default=[], metavar="SERIAL")
    given = parser.parse_args()
    with tempfile.NamedTemporaryFile("w", suffix=".toml", encoding="utf-8") as study:
        study.write(sys.stdin.read())
        study.flush()
        try:
            client = distributed.Client(given.scheduler, timeout="10s")
        except OSError as error:
            print(f"error: {given.scheduler}: {error}", file=sys.stderr)
            return 5
        try:
            with client:
                run(study.name, client, given.out, confirmed=given.i_will_lose_data)
        except CrosspointError as error:
            print(f"error: {error}", file=sys.stderr)
            return error.code
        except KeyboardInterrupt:
            return 130
    return 0
