"""Loads runs of Crosspoint into pandas or polars; `crosspoint.cluster` runs studies on many machines.

The program `crosspoint` reads the runs; this package asks it for tables and gives them types. Nothing is
computed here that the program computes, so a figure in a notebook is the one in the report.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
from typing import Any, Iterable

__all__ = ["Run", "CrosspointError", "percentile"]


class CrosspointError(RuntimeError):
    """What the program said, where it failed; `code` is its exit code."""

    def __init__(self, code: int, words: str):
        super().__init__(code, words)
        self.code = code
        self.words = words.strip() or f"crosspoint ended with {code}"

    def __str__(self) -> str:
        return self.words


def _program() -> str:
    return os.environ.get("CROSSPOINT", "crosspoint")


def _ask(words: Iterable[str], place: str | None = None) -> bytes:
    try:
        done = subprocess.run([_program(), *words], capture_output=True, check=False, cwd=place)
    except FileNotFoundError as error:
        raise CrosspointError(
            127, f"{_program()} was not found: put it on the path, or name it by CROSSPOINT"
        ) from error
    if done.returncode != 0:
        raise CrosspointError(done.returncode, done.stderr.decode(errors="replace"))
    return done.stdout


class Run:
    """One or more run folders."""

    def __init__(self, *folders: str | os.PathLike[str]):
        if not folders:
            raise ValueError("name at least one run folder")
        self.folders = [os.fspath(folder) for folder in folders]

    def _rows(self, of: str) -> list[dict[str, Any]]:
        text = _ask(["figures", *self.folders, "--of", of, "--format", "json"])
        rows: list[dict[str, Any]] = json.loads(text)[of]
        for row in rows:
            point = row.pop("point") or {}
            # Of series and histograms it is text, so that it fits in a column.
            point = json.loads(point) if isinstance(point, str) else point
            row.pop("defaults", None)
            row.update({f"point.{name}": value for name, value in point.items()})
        return rows

    def _frame(self, of: str, library: str) -> Any:
        rows = self._rows(of)
        if library == "pandas":
            import pandas

            return pandas.DataFrame(rows)
        if library == "polars":
            import polars

            # A parameter may be a number in one experiment and a word in another.
            names: dict[str, None] = dict.fromkeys(name for row in rows for name in row)
            mixed = {
                name
                for name in names
                if len({type(row[name]) for row in rows if row.get(name) is not None} - {int, float}) > 0
                and any(isinstance(row.get(name), (int, float)) for row in rows)
                and any(isinstance(row.get(name), str) for row in rows)
            }
            columns = {
                name: [
                    str(row[name]) if name in mixed and row.get(name) is not None else row.get(name)
                    for row in rows
                ]
                for name in names
            }
            return polars.DataFrame(columns, strict=False)
        if library == "rows":
            return rows
        raise ValueError(f"library {library!r}: pandas, polars or rows")

    def figures(self, library: str = "pandas") -> Any:
        """A row a figure, as `crosspoint figures` prints them; parameters are columns `point.NAME`."""
        return self._frame("figures", library)

    def series(self, library: str = "pandas") -> Any:
        """A row an interval and kind of operation, warm-up included; times in seconds and microseconds."""
        return self._frame("series", library)

    def histograms(self, library: str = "pandas") -> Any:
        """A row a bin of each trial's response (and service) times; `to_ns` is its upper end."""
        return self._frame("histograms", library)

    def report(self, path: str | os.PathLike[str]) -> str:
        """Writes the report of these runs to `path` and gives the path back."""
        return _ask(["report", *self.folders, "-o", os.fspath(path)]).decode().strip()

    def figures_csv(self) -> io.StringIO:
        """The figures as CSV, for whatever else reads that."""
        return io.StringIO(_ask(["figures", *self.folders, "--format", "csv"]).decode())


def percentile(bins: Any, percent: float, time: str = "response") -> float:
    """The time in nanoseconds that `percent` of all operations in `bins` do not exceed.

    `bins` is what `Run.histograms` gave, filtered to what is asked about: rows, or a frame of pandas or polars.
    The bin's upper end is given, as the program gives it (three digits). NaN without operations.
    """
    if hasattr(bins, "to_dicts"):
        rows = bins.to_dicts()
    elif hasattr(bins, "to_dict"):
        rows = bins.to_dict("records")
    else:
        rows = list(bins)
    counts: dict[int, int] = {}
    for row in rows:
        if row["time"] == time:
            counts[row["to_ns"]] = counts.get(row["to_ns"], 0) + row["count"]
    wanted = max(1, -(-sum(counts.values()) * percent // 100))
    seen = 0
    for to_ns in sorted(counts):
        seen += counts[to_ns]
        if seen >= wanted:
            return float(to_ns)
    return float("nan")
