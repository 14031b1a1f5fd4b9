"""Run folders on shared or object storage, by fsspec: `s3://bucket/run`, `gs://...`, `sftp://...`.

A copy exists there once it is complete: `run.json` is written last; `load` refuses trials that do not have the
checksums in `sums.txt`. Needs `fsspec` and its package for that storage.
"""

from __future__ import annotations

import os
import tempfile

from . import CrosspointError, Run, _ask

__all__ = ["load", "save"]

# Its presence makes a folder a run.
_HEADER = "run.json"


def save(run: Run, url: str) -> None:
    """Copies a run folder to `url`, where there must be nothing; reads every file back and compares it."""
    import fsspec

    if len(run.folders) != 1:
        raise ValueError("save one run folder")
    folder = run.folders[0]
    files, place = fsspec.core.url_to_fs(url)
    if files.exists(place) and files.find(place):
        raise CrosspointError(2, f"{url} exists already")
    # The program checks the folder before anything is copied.
    _ask(["figures", folder, "--format", "json"])
    names = sorted(_names(folder), key=lambda name: (name == _HEADER, name))
    if _HEADER not in names:
        raise CrosspointError(2, f"{folder} is not a run")
    for name in names:
        target = f"{place}/{name}"
        files.makedirs(os.path.dirname(target), exist_ok=True)
        with open(os.path.join(folder, name), "rb") as file:
            contents = file.read()
        files.pipe_file(target, contents)
        if files.cat_file(target) != contents:
            raise CrosspointError(7, f"{url}/{name} is not what was written")


def load(url: str, folder: str | os.PathLike[str]) -> Run:
    """Copies the run at `url` to the new folder `folder`; it exists once it is complete and verified."""
    import fsspec

    files, place = fsspec.core.url_to_fs(url)
    folder = os.path.normpath(os.fspath(folder))
    if os.path.exists(folder):
        raise CrosspointError(2, f"{folder} exists already")
    if not files.exists(f"{place}/{_HEADER}"):
        raise CrosspointError(2, f"{url} is not a run, or is not complete")
    with tempfile.TemporaryDirectory(dir=os.path.dirname(folder) or ".") as aside:
        inside = os.path.join(aside, "run")
        os.mkdir(inside)
        for found in files.find(place):
            name = os.path.relpath(found, place)
            target = os.path.join(inside, name)
            if name.startswith("..") or os.path.isabs(name):
                raise CrosspointError(7, f"{url} has a file outside of it: {name}")
            os.makedirs(os.path.dirname(target), exist_ok=True)
            with open(target, "wb") as file:
                file.write(files.cat_file(found))
        # The program compares every trial with its checksum.
        _ask(["figures", inside, "--format", "json"])
        os.rename(inside, folder)
    return Run(folder)


def _names(folder: str) -> list[str]:
    return [
        os.path.relpath(os.path.join(place, name), folder)
        for place, _, names in os.walk(folder)
        for name in names
        if name != ".lock" and os.path.isfile(os.path.join(place, name))
    ]

