"""Runs a study on the machines of a Dask cluster, or by several processes of this one.

The program divides a study into parts (`crosspoint plan --json`), runs a part (`run --only`) and merges them
(`merge`); Dask decides where each runs. A part that measures a machine runs alone on it: a lock on that host
keeps other parts away, whatever the cluster's workers are told. Finished parts are kept next to the run folder
until all are there, so that the same call continues after a lost client or scheduler.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
from typing import Any, Callable, Iterator, Sequence

from . import CrosspointError, Run, _ask, _program

__all__ = ["run"]

# Exit codes of runs that are complete: 0, a failed target, a missed objective.
_COMPLETE = (0, 6, 8)


def run(
    study: str | os.PathLike[str],
    client: Any = None,
    out: str | os.PathLike[str] | None = None,
    *,
    set: Sequence[str] = (),
    confirmed: Sequence[str] = (),
    retries: int = 3,
    told: Callable[[int, int], None] | None = None,
) -> Run:
    """Runs `study` (a file or the name of a built-in one) and gives the run.

    `client` is a `distributed.Client`; without one, a cluster of this machine's CPUs is started and ended.
    `out` is the run folder to create. `set` changes values, as `--set` does; `confirmed` are the serial
    numbers of devices that may be overwritten. A part whose worker is lost runs again, up to `retries` times.
    `told` is called with the number of finished parts and that of all.
    """
    words = [word for one in set for word in ("--set", one)]
    text = _ask(["run", os.fspath(study), *words, "--print"]).decode()
    plan = _plan(text)
    folder = os.fspath(out) if out is not None else _default_folder(plan["study"])
    if os.path.exists(os.path.join(folder, "run.json")):
        raise CrosspointError(2, f"{folder} exists already")
    place = folder + ".parts"
    _keep_study(place, text)
    parts = [tuple(part["trials"]) for part in plan["parts"]]
    exclusive = {tuple(part["trials"]) for part in plan["parts"] if part["exclusive"]}
    missing = [part for part in parts if not os.path.isdir(_part_folder(place, part))]
    told = told or _progress
    if missing:
        with _cluster(client) as dask:
            able = _able(dask, text)
            _gather(dask, text, (missing, exclusive, able), (place, confirmed, retries), told, len(parts))
    done = [_part_folder(place, part) for part in parts if os.path.isdir(_part_folder(place, part))]
    _ask_run(["merge", folder, *done])
    shutil.rmtree(place)
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


def _able(dask: Any, text: str) -> dict[tuple[int, ...], list[str]]:
    """The addresses of the workers that lack nothing for a part, by part."""
    able: dict[tuple[int, ...], list[str]] = {}
    for address, plan in dask.run(_plan, text).items():
        for part in plan["parts"]:
            if not part["lacks"]:
                able.setdefault(tuple(part["trials"]), []).append(address)
    return able


def _gather(
    dask: Any,
    text: str,
    of: tuple[list[tuple[int, ...]], Any, dict[tuple[int, ...], list[str]]],
    how: tuple[str, Sequence[str], int],
    told: Callable[[int, int], None],
    count: int,
) -> None:
    from distributed import as_completed

    missing, exclusive, able = of
    place, confirmed, retries = how
    futures = {}
    for priority, part in enumerate(missing):
        workers = able.get(part)
        if not workers:
            # Nobody can run it; the merged run says that it is missing.
            print(f"no worker has what trials {_numbers(part)} need", file=sys.stderr)
            continue
        future = dask.submit(
            _run_part,
            (text, part, part in exclusive, list(confirmed)),
            pure=False,
            workers=workers,
            allow_other_workers=False,
            retries=retries,
            priority=-priority,
        )
        futures[future] = part
    done = count - len(missing)
    told(done, count)
    try:
        for future in as_completed(futures):
            _store(_part_folder(place, futures[future]), future.result())
            future.release()
            done += 1
            told(done, count)
    except BaseException:
        dask.cancel(list(futures))
        raise


def _run_part(task: tuple[str, tuple[int, ...], bool, list[str]]) -> bytes:
    """On a worker: runs a part, and gives its run folder as an archive."""
    text, part, exclusive, confirmed = task
    with _host_lock(exclusive), tempfile.TemporaryDirectory(prefix="crosspoint-part-") as place:
        study = os.path.join(place, "study.toml")
        with open(study, "w", encoding="utf-8") as file:
            file.write(text)
        folder = os.path.join(place, "part")
        words = ["run", study, "--out", folder, "--only", _numbers(part), "--progress", "none"]
        _ask_run([*words, *(word for one in confirmed for word in ("--i-will-lose-data", one))], place)
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as archive:
            archive.add(folder, arcname=".")
        return packed.getvalue()


@contextlib.contextmanager
def _host_lock(exclusive: bool) -> Iterator[None]:
    """Held alone by a part that measures this machine, and shared by all others."""
    path = os.path.join(tempfile.gettempdir(), f"crosspoint-{os.getuid()}-host.lock")
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    file = os.open(path, flags, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)
        yield
    finally:
        os.close(file)


def _ask_run(words: Sequence[str], place: str | None = None) -> None:
    done = subprocess.run([_program(), *words], capture_output=True, check=False, cwd=place)
    if done.returncode not in _COMPLETE:
        said = done.stderr.decode(errors="replace").strip()
        raise CrosspointError(done.returncode, f"{socket.gethostname()}: {said}")


def _plan(text: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="crosspoint-plan-") as place:
        study = os.path.join(place, "study.toml")
        with open(study, "w", encoding="utf-8") as file:
            file.write(text)
        plan: dict[str, Any] = json.loads(_ask(["plan", study, "--json"]))
        return plan


def _keep_study(place: str, text: str) -> None:
    os.makedirs(place, exist_ok=True)
    kept = os.path.join(place, "study.toml")
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
            archive.extractall(inside, filter="data")
        os.rename(inside, folder)


def _part_folder(place: str, part: tuple[int, ...]) -> str:
    return os.path.join(place, f"part-{part[0]:04}")


def _numbers(part: tuple[int, ...]) -> str:
    return ",".join(str(number) for number in part)


def _default_folder(study: str) -> str:
    import time

    return os.path.join("runs", f"{study}-{time.strftime('%Y%m%d-%H%M%S')}")


def _progress(done: int, count: int) -> None:
    print(f"{done} of {count} parts", file=sys.stderr)
