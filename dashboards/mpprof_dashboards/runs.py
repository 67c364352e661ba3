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
from mpprof.report.headline import Hero, first_cause, headline, hero, holds, no_more_than, undecided
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
    """A run as far as its records tell; a time that is not known is "—" in words."""

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


class Estimated(TypedDict):
    """How many times as fast a run could be by estimate, where nothing was measured, and in words."""

    could: float | None
    could_text: str


class Summary(Estimated):
    """What needs a run's trace, as numbers to sort by and in words."""

    step_ns: float | None
    step: str
    observed: float | None
    attainable: float | None
    speedup: str
    of: str
    lost_text: str
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
    answer, alike = hero(document), not document.facts.unlike
    observed = facts.observed if alike else None
    attainable = facts.attainable if alike else None
    ratio, skipped = share.ratio if share else None, steps.skipped if steps else None
    could = _could(document) if observed is None else None
    peak = recorded_peak(document)
    return {
        "step_ns": facts.step_ns,
        "step": or_dash(facts.step_ns, words.duration),
        "observed": observed,
        "attainable": attainable,
        "speedup": _speedup(document, answer),
        "of": _WITHOUT.get(answer.kind, "") if attainable is None else _of(observed, attainable),
        "lost_text": _lost(document),
        **_estimated(could, facts.step_ns),
        "share_ratio": ratio,
        "share": or_dash(ratio, words.percent),
        "skipped": or_dash(skipped, words.count),
        "skipped_count": skipped,
        "peak": or_dash(peak, words.size),
        "peak_bytes": peak,
        "cause": _cause(document),
        "spark": spark(source, run),
    }


def _speedup(document: Report, answer: Hero) -> str:
    """Return the speedup for a cell, in which an interval has no room."""
    if answer.kind == "measured" and undecided(document):
        return words.NOT_KNOWN
    return answer.figure if answer.kind in ("measured", "unlike") else "—"


def _of(observed: float | None, attainable: float) -> str:
    """Return what the speedup is compared with; for a run that has no speedup and can have none, "at most" in
    place of a score."""
    return "at most" if no_more_than(observed, attainable) else f"of {words.speedup(attainable)}"


def _lost(document: Report) -> str:
    """Return how much of each step is lost against the attainable one; "" where that is not known."""
    facts = document.facts
    step, attainable = facts.step_ns, facts.attainable_step_ns
    if step is None or attainable is None or facts.unlike or step <= attainable:
        return ""
    return f"{words.duration(step - attainable)} of each {words.duration(step)} step lost"


_WITHOUT: dict[str, str] = {
    "alone": "no baseline", "float32": "float32", "cpu": "on a CPU", "no trace": "no trace",
    "window": "no steps",
}  # fmt: skip
"""Why there is no speedup."""


def _could(document: Report) -> tuple[float, str] | None:
    """Return how many times as fast a run without a comparable baseline would be by estimate, and how: in
    mixed precision (at least), else after its remedies."""
    facts, speedup = document.facts, document.speedup
    step, after = facts.step_ns, facts.after_remedies_ns
    estimate = speedup.attainable_range if speedup else None
    if estimate:
        return float(estimate.low), "in mixed precision"
    return (float(step) / float(after), "after its remedies") if step and after else None


def _estimated(could: tuple[float, str] | None, step_ns: float | None) -> Estimated:
    if could is None or step_ns is None:
        return {"could": None, "could_text": ""}
    times, how = could
    text = f"{words.duration(step_ns)} a step, by estimate {words.duration(step_ns / times)} {how}"
    return {"could": times, "could_text": text}


def _of_survey(row: SurveyRow, points: list[list[float]]) -> Summary:
    attainable = None if row["estimated"] else row["attainable_low"]
    observed, share, skipped = row["speedup"], row["tensor_core_ratio"], row["skipped_ratio"]
    peak, step, gain = row["peak_memory_bytes"], row["step_ns"], row["cause_gain_ns"]
    could = None
    if observed is None and step and gain and gain < step:
        could = step / (step - gain), "after its first remedy"
    return {
        "step_ns": row["step_ns"],
        "step": or_dash(row["step_ns"], words.duration),
        "observed": observed,
        "attainable": attainable,
        "speedup": words.NOT_KNOWN
        if row.get("difference") == "not known"
        else or_dash(observed, words.speedup),
        "of": _without(row) if attainable is None else _of(observed, attainable),
        "lost_text": "",  # a survey's row does not hold it
        **_estimated(could, step),
        "share_ratio": share,
        "share": or_dash(share, words.percent),
        "skipped": or_dash(skipped, words.percent),
        "skipped_count": skipped,
        "peak": or_dash(peak, words.size),
        "peak_bytes": peak,
        "cause": words.plain((row["cause_slug"] or "—").replace("-", " ")),
        "spark": points,
    }


def _without(row: SurveyRow) -> str:
    """Return why there is no speedup, as far as a survey's row tells."""
    if row["speedup"] is not None:
        return ""
    if row["gpus"] is None:
        return _WITHOUT["cpu"]
    return _WITHOUT["float32" if row["policy"] == "float32" else "alone"]


def _cause(document: Report) -> str:
    first = None if holds(document) else first_cause(document)
    titles = {found.code: found.title for found in document.findings}
    return words.plain(titles[first.code] if first else headline(document).removesuffix("."))


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
