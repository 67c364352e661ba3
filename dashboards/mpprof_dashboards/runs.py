"""The list of runs as the landing page shows it: what is known at once, and what needs a run's trace."""

from __future__ import annotations

import hashlib
import json
from itertools import takewhile
from typing import TYPE_CHECKING, TypedDict

import numpy as np

from mpprof.errors import MpprofError
from mpprof.model.source import RunEntry, RunSource
from mpprof.report import words
from mpprof.report.content import recorded_peak
from mpprof.report.runs.baselines import experiment
from mpprof.report.runs.listing import age, card
from mpprof_dashboards import choice as choices
from mpprof_dashboards.choice import Choice
from mpprof_dashboards.components.text import or_dash
from mpprof_dashboards.figures.steps import step_ns, thin

if TYPE_CHECKING:
    from mpprof.model.report import Report
    from mpprof.model.rows import SurveyRow

SPARK_POINTS = 60
SPARK_TOP = 2.0
"""Of the median, at the top of a sparkline: a slow first step would press all others flat."""


class Entry(TypedDict):
    """A run as far as its records tell; a time that is not known is "—" in words. `progress`: of one that is
    running, how far it has come."""

    id: str
    name: str
    short: str
    query: str
    baseline: str | None
    policy: str
    card: str
    batch: str
    batch_size: int | None
    state: str
    progress: str | None
    written: str
    written_ns: int | None
    problem: str | None
    single: bool
    is_baseline: bool


class Group(TypedDict):
    """An experiment and its runs."""

    name: str
    runs: list[Entry]


class Listing(TypedDict):
    """Experiments, the newest first; `version` changes with anything that is shown."""

    version: str
    groups: list[Group]


class Summary(TypedDict):
    """What needs a run's trace: its answer (`cause`: its sentence), numbers to sort by, and their words.
    `could`: how many times as fast a run could be by estimate, where nothing was measured."""

    step_ns: float | None
    step: str
    observed: float | None
    attainable: float | None
    could: float | None
    figure: str
    label: str
    why: str
    do: str
    share_ratio: float | None
    share: str
    skipped: str
    skipped_count: float | None
    peak: str
    peak_bytes: int | None
    cause: str
    spark: list[list[float]]


class Unread(TypedDict):
    """A run that was listed as readable, and is not."""

    problem: str


def listing(entries: tuple[RunEntry, ...], now_unix_ns: int) -> Listing:
    """Return `{version, groups: [{name, runs: [...]}]}`: experiments, the newest first, and their runs.
    `version` changes with anything that is shown."""
    groups: dict[str, list[RunEntry]] = {}
    for entry in sorted(entries, key=lambda entry: (entry.created_unix_ns or 0, entry.name)):
        groups.setdefault(experiment(entry.name), []).append(entry)
    newest = sorted(groups.items(), key=lambda group: -max(e.created_unix_ns or 0 for e in group[1]))
    baselines = choices.default_baselines(entries)
    shown: list[Group] = []
    held_against = set(baselines.values())
    for key, same in newest:
        title = _title(key, same)
        runs = [
            _entry(
                entry,
                baselines[entry.id],
                now_unix_ns,
                short=_within(title, entry.name),
                is_baseline=entry.id in held_against,
            )
            for entry in same
        ]
        shown.append({"name": words.plain(title), "runs": runs})
    version = hashlib.sha256(json.dumps(shown).encode()).hexdigest()[:16]
    return {"version": version, "groups": shown}


def _title(name: str, same: list[RunEntry]) -> str:
    """Return what the names of an experiment's runs have in common, where that is more than its key."""
    shared = "".join(
        letters[0]
        for letters in takewhile(
            lambda each: len(set(each)) == 1, zip(*(entry.name for entry in same), strict=False)
        )
    ).strip("/-_. ")
    return shared if len(same) > 1 and len(shared) > len(name) else name


def _within(title: str, name: str) -> str:
    """Return a run's name below its experiment's title, without the part that the title already states."""
    return name.removeprefix(title).strip("/-_. ") or name


def _entry(
    entry: RunEntry, baseline: str | None, now_unix_ns: int, *, short: str, is_baseline: bool
) -> Entry:
    written = entry.written_unix_ns
    return {
        "id": entry.id,
        "name": words.plain(entry.name),
        "short": words.plain(short),
        "query": Choice(entry.id, baseline).query(),
        "baseline": baseline,
        "policy": words.plain(entry.policy or "—"),
        "card": card(entry.device),
        "batch": or_dash(entry.batch_size, words.count),
        "batch_size": entry.batch_size,
        "state": entry.state or ("running" if entry.live else "—"),
        "progress": words.progress(entry.last_step, entry.plan) if entry.state == "running" else None,
        "written": "—" if written is None else age(now_unix_ns - written),
        "written_ns": written,
        "problem": words.plain(entry.problem) if entry.problem else None,
        "single": entry.policy == "float32",
        "is_baseline": is_baseline,
    }


def row(source: RunSource, run: str, baseline: str | None) -> Summary | Unread:
    """Return what a run's row shows besides its records, or `{problem}` for a run that is listed as readable
    but whose trace is not: that is known only once the trace is read, and is not the fault of the request."""
    try:
        return summary(source, run, baseline)
    except MpprofError as error:
        entry = next((entry for entry in source.entries() if entry.id == run), None)
        if entry is None or entry.problem:
            raise
        return {"problem": words.plain(str(error))}


def summary(source: RunSource, run: str, baseline: str | None) -> Summary:
    """Return what a run's row shows besides its records: from a survey's row, where one is kept, else from
    the run's report. Raises MpprofError where the run cannot be read."""
    row = source.surveyed(run, baseline)
    if row is not None and row["problem"] is None:
        return _of_survey(row, spark(source, run))
    document = source.report(run, baseline)
    facts, share, steps = document.facts, document.tensor_core, document.steps
    answer, alike = document.answer, not document.facts.unlike
    observed = facts.observed if alike else None
    attainable = facts.attainable if alike else None
    ratio, skipped = share.ratio if share else None, steps.skipped if steps else None
    peak = recorded_peak(document)
    return {
        "step_ns": facts.step_ns,
        "step": or_dash(facts.step_ns, words.duration),
        "observed": observed,
        "attainable": attainable,
        "could": _could(document) if observed is None else None,
        "figure": answer.figure,
        "label": answer.label,
        "why": " ".join(answer.because),
        "do": answer.do,
        "share_ratio": ratio,
        "share": or_dash(ratio, words.percent),
        "skipped": or_dash(skipped, words.count),
        "skipped_count": skipped,
        "peak": or_dash(peak, words.size),
        "peak_bytes": peak,
        "cause": words.plain(answer.sentence),
        "spark": spark(source, run),
    }


def _could(document: Report) -> float | None:
    """Return how many times as fast a run without a comparable baseline would be by estimate: in mixed
    precision (at least), else after its remedies."""
    facts, speedup = document.facts, document.speedup
    step, after = facts.step_ns, facts.after_remedies_ns
    estimate = speedup.attainable_range if speedup else None
    if estimate:
        return float(estimate.low)
    return float(step) / float(after) if step and after else None


def _of_survey(row: SurveyRow, points: list[list[float]]) -> Summary:
    attainable = None if row["estimated"] else row["attainable_low"]
    observed, share, skipped = row["speedup"], row["tensor_core_ratio"], row["skipped_ratio"]
    peak, step, gain = row["peak_memory_bytes"], row["step_ns"], row["cause_gain_ns"]
    gains = observed is None and step and gain and gain < step
    return {
        "step_ns": row["step_ns"],
        "step": or_dash(row["step_ns"], words.duration),
        "observed": observed,
        "attainable": attainable,
        "could": step / (step - gain) if gains and step and gain else None,
        "figure": row.get("figure") or "",
        "label": row.get("label") or "",
        "why": "",  # a survey's row does not hold it
        "do": row.get("do") or "",
        "share_ratio": share,
        "share": or_dash(share, words.percent),
        "skipped": or_dash(skipped, words.percent),
        "skipped_count": skipped,
        "peak": or_dash(peak, words.size),
        "peak_bytes": peak,
        "cause": words.plain(row.get("sentence") or "—"),
        "spark": points,
    }


def spark(source: RunSource, run: str) -> list[list[float]]:
    """Return the step times as points of a square of side 1, cut at `SPARK_TOP` medians; empty where there
    are few steps."""
    table = source.steps(run)
    if table is None or len(table) < 3:
        return []
    ns = step_ns(table)
    rows = thin(len(table), ns, SPARK_POINTS)
    rows = rows[~np.isnan(ns[rows])]
    if len(rows) < 3:
        return []
    top = SPARK_TOP * float(np.nanmedian(ns)) or 1.0
    first, last = int(rows[0]), int(rows[-1])
    return [
        [round((int(row) - first) / max(last - first, 1), 3), round(min(float(ns[row]) / top, 1.0), 3)]
        for row in rows
    ]
