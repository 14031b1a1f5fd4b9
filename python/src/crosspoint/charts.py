"""Charts of runs for notebooks, as Altair objects; sources stay apart, and nothing is averaged over storages.

Needs `altair` and pandas.
"""

from __future__ import annotations

from typing import Any

from . import Run

__all__ = ["percentiles", "rate", "series"]

# Names of the rates, by kind of job.
_RATES = ("iops", "ops_rate", "tx_rate")


def rate(run: Run) -> Any:
    """A bar a run, storage and job: operations or transactions per second; the 95 % interval is in its tooltip."""
    import altair

    figures = run.figures()
    own = figures[figures["metric"].isin(_RATES) & (figures["source"] != "published")]
    own = own.assign(job=_jobs(own), storage=_storage(own))
    return (
        altair.Chart(own)
        .mark_bar()
        .encode(
            x=altair.X("value:Q", stack=None, title="operations per second (higher is better)"),
            y=altair.Y("storage:N", title=None),
            row=altair.Row("job:N", title=None, header=altair.Header(labelAngle=0, labelAlign="left")),
            color=altair.Color("source:N"),
            tooltip=["storage", "job", "value", "lo", "hi", "n"],
        )
    )


def percentiles(run: Run, op: str = "read") -> Any:
    """A line a run, storage and job: the figures' response times of `op` by percentile."""
    import altair

    figures = run.figures()
    is_percentile = figures["metric"].str.fullmatch(r"latency_p[0-9_]+")
    own = figures[is_percentile & (figures["point.op"] == op) & (figures["source"] != "published")]
    names = own["metric"].str.removeprefix("latency_p").str.replace("_", ".")
    own = own.assign(percentile=names, job=_jobs(own), storage=_storage(own))
    return (
        altair.Chart(own)
        .mark_line(point=True)
        .encode(
            x=altair.X("percentile:O", title="percentile"),
            y=altair.Y("value:Q", title="response time, µs (lower is better)", scale=altair.Scale(type="log")),
            color="storage:N",
            detail="job:N",
            tooltip=["storage", "job", "percentile", "value"],
        )
    )


def series(run: Run) -> Any:
    """A line a trial and kind of operation: the rate in each interval of the measured time."""
    import altair

    own = run.series()
    own = own[(own["phase"] == "measure") & own["rate_per_s"].notna()]
    return (
        altair.Chart(own)
        .mark_line()
        .encode(
            x=altair.X("end_s:Q", title="seconds"),
            y=altair.Y("rate_per_s:Q", title="operations per second"),
            color="stack:N",
            strokeDash="op:N",
            detail=["run:N", "trial:N"],
            tooltip=["trial", "op", "end_s", "rate_per_s"],
        )
    )


def _storage(frame: Any) -> Any:
    """The storage of each row with its source, and its run where there are several."""
    named = frame["stack"] + " (" + frame["source"] + ")"
    return named + ", " + frame["run"] if frame["run"].nunique() > 1 else named


def _jobs(frame: Any) -> Any:
    """The job of each row: its experiment's workload and the parameters that vary."""
    points = [name for name in frame.columns if name.startswith("point.")]
    varied = [name for name in points if frame[name].nunique(dropna=False) > 1]
    return frame.apply(
        lambda row: " ".join(
            [str(row["workload"])] + [f"{name[6:]}={row[name]}" for name in varied if row[name] == row[name]]
        ),
        axis=1,
    )
