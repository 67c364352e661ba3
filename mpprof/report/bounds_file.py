"""Bounds of a run in a TOML file, and what became of each: what `mpprof check` judges.

[bounds]
min_tensor_core_ratio = 0.6
max_skipped_ratio = 0.01
max_peak_memory_bytes = 15_000_000_000
max_step_regression_ratio = 0.05      # of the step against that of `baseline`
baseline = "baseline.json"            # a stored `mpprof report --format json`, from this file's directory
forbidden = ["float32-island", "error"]

[ignore]                              # findings that are dismissed, each with the reason
MP503 = "the casts of the input pipeline are meant"
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from mpprof.analysis.arrays.mean_interval import MeanInterval, of_ratio, of_repeats
from mpprof.diagnosis import manual
from mpprof.errors import UsageError, own_baseline
from mpprof.model import limits
from mpprof.model.frozen import frozen
from mpprof.model.report import Report
from mpprof.regular import read_regular
from mpprof.report import checks, dismissals, words
from mpprof.report.checks import Forbidden, Outcome
from mpprof.report.to_json import to_json

NUMBERS: Final = (
    "min_tensor_core_ratio", "max_skipped_ratio", "max_peak_memory_bytes", "max_step_regression_ratio",
)  # fmt: skip
SHARES: Final = NUMBERS[:2]
MOST_BYTES = 64 << 20
"""Of a bounds file, and of the report that it names as the baseline."""
_MOST_DOTS = 100
"""In a line: tomllib takes time in proportion to the square of the parts of a dotted key."""
_STORE = "Store one: mpprof report RUN --format json -o baseline.json"
_OF_A_MEDIAN = "the baseline was stored by an older mpprof, which took the median for the step time"
KEYS: Final = (*NUMBERS, "baseline", "forbidden")


@frozen
class Baseline:
    """The step of a stored report, and its `run`, which says what the step was measured on. `mean_ns` is None
    in a report of an older mpprof, whose step was a median; `interval`: of the mean, or why there is none."""

    path: Path
    mean_ns: float | None
    interval: MeanInterval | str
    run: Mapping[str, Any]


@frozen
class Bounds:
    """What a bounds file asks for. `numbers` by key; `ignore`: reason by code."""

    numbers: Mapping[str, float]
    baseline: Baseline | None
    forbidden: Forbidden
    ignore: Mapping[str, str]


def read(path: Path) -> Bounds:
    """Return the bounds of a file. Raises UsageError, which names the file and the key, for one that cannot
    be read, for keys and causes that do not exist, and for values of the wrong type."""
    bounds, ignore, _ = _tables(path)
    if unknown := sorted(set(bounds) - set(KEYS)):
        raise UsageError(
            f"{unknown[0]}: not a bound", where=str(path), next=f"The bounds are: {', '.join(KEYS)}"
        )
    if not bounds:
        raise UsageError("holds no bounds", where=str(path), next=f"The bounds are: {', '.join(KEYS)}")
    numbers: dict[str, float] = {key: number(bounds[key], key, path) for key in NUMBERS if key in bounds}
    if ("baseline" in bounds) != ("max_step_regression_ratio" in bounds):
        raise UsageError("max_step_regression_ratio and baseline need each other", where=str(path))
    names = bounds.get("forbidden", [])
    if not isinstance(names, list) or not all(_is_text(name, limits.LONGEST_NAME) for name in names):
        raise UsageError("forbidden: not a list of causes", where=str(path))
    option = f"{path}: forbidden"
    return Bounds(
        numbers=numbers,
        baseline=_stored(_baseline(bounds["baseline"], path)) if "baseline" in bounds else None,
        forbidden=checks.forbidden(names, compared=False, option=option) if names else Forbidden((), None),
        ignore=ignore,
    )


def ignored(path: Path) -> Mapping[str, str]:
    """Return the findings that a bounds file dismisses, reason by code; the file need not hold bounds. Raises
    UsageError as `read` does."""
    return _tables(path)[1]


def audit_table(path: Path) -> Mapping[str, Any]:
    """Return the table [audit] as it is; empty without one. Raises UsageError as `read` does."""
    return _tables(path)[2]


def _tables(path: Path) -> tuple[dict[str, Any], dict[str, str], dict[str, Any]]:
    """Return [bounds] as it is, [ignore] by code, and [audit] as it is."""
    try:
        text = _text(path)
        if max((line.count(".") for line in text.splitlines()), default=0) > _MOST_DOTS:
            raise ValueError(f"a line holds more than {_MOST_DOTS} dots")
        found = tomllib.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"not a readable bounds file: {error}", where=str(path)) from error
    bounds, ignore, audit = (found.pop(name, {}) for name in ("bounds", "ignore", "audit"))
    if found or not all(isinstance(table, dict) for table in (bounds, ignore, audit)):
        raise UsageError(
            "not a bounds file: it holds more than the tables [bounds], [ignore] and [audit]",
            where=str(path),
            next="docs/checks.md shows one",
        )
    for code, reason in ignore.items():
        if not _is_text(code, limits.LONGEST_NAME):
            raise UsageError("ignore: a cause whose name is empty or too long", where=str(path))
        if not _is_text(reason, limits.LONGEST_TEXT):
            raise UsageError(f"ignore.{code}: needs a reason", where=str(path), next=f'Write {code} = "why"')
    dismissed = {manual.code_of(name): " ".join(reason.split()) for name, reason in ignore.items()}
    return bounds, dismissed, audit


def _text(path: Path) -> str:
    content = read_regular(path, MOST_BYTES)
    if len(content) > MOST_BYTES:
        raise ValueError(f"it is larger than {words.size(MOST_BYTES)}")
    return content.decode("utf-8-sig")  # a byte order mark is no part of the text


def _is_text(value: Any, longest: int) -> bool:
    return isinstance(value, str) and bool(value.strip()) and len(value) <= longest


def number(value: Any, key: str, path: Path, shares: Sequence[str] = SHARES) -> float:
    """Return the value of a key as a number. Raises UsageError, which names the key, for others."""
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not 0 <= value <= limits.LARGEST_NUMBER
    ):
        raise UsageError(f"{key}: not a number from 0 to 2^61", where=str(path))
    if key in shares and value > 1:
        raise UsageError(f"{key}: not a share from 0 to 1", where=str(path), next="Write 0.6 for 60 %")
    return float(value)


def _baseline(value: Any, path: Path) -> Path:
    if not _is_text(value, limits.LONGEST_NAME):
        raise UsageError("baseline: not the name of a file", where=str(path))
    return path.parent / str(value)


def _stored(path: Path) -> Baseline:
    try:
        document = json.loads(_text(path))
        steps, run = document["steps"], dict(document.get("run") or {})
        if "mean_ns" not in steps and float(steps["median_ns"]) > 0:
            return Baseline(path, None, _OF_A_MEDIAN, run)
        mean = float(steps["mean_ns"])
        low, high = map(float, steps.get("mean_interval_ns") or (mean, mean))
        if not 0 < low <= mean <= high <= limits.LONGEST_NS:
            raise ValueError("no such step")
        return Baseline(path, mean, _interval(document), run)
    except OSError as error:
        what = f"this baseline cannot be read: {error.strerror}"
        raise UsageError(what, where=str(path), next=_STORE) from error
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        what = "is not a stored report with step times"
        raise UsageError(what, where=str(path), next=_STORE) from error


def judge(
    report: Report,
    bounds: Bounds,
    repeats: Sequence[Report] = (),
    baseline_repeats: Sequence[Report] = (),
) -> Iterator[Outcome]:
    """Yield one outcome for each bound, and one for each forbidden finding; for dismissed findings none. The
    repeats are further runs of the same script and of the baseline's: with any, a step is judged by the
    scatter between runs. Raises UsageError where a run is its own baseline, and for repeats of nothing."""
    if bounds.baseline is None and (repeats or baseline_repeats):
        raise UsageError("repeats need a baseline", next="Name one in the file of bounds: docs/checks.md")
    steps, cores, absent = report.steps, report.tensor_core, report.absent
    values: dict[str, tuple[float | None, str]] = {
        "min_tensor_core_ratio": (
            cores.ratio if cores else None,
            (cores.reason if cores else None) or absent.get("tensor_core", "not recorded"),
        ),
        "max_skipped_ratio": (steps.skipped_ratio if steps else None, _why(absent, "skipped")),
        "max_peak_memory_bytes": (
            steps.peak_memory_bytes if steps else None,
            _why(absent, "peak_memory_bytes"),
        ),
    }
    for key, (value, why) in values.items():
        if key in bounds.numbers:
            yield _bound(key, value, bounds.numbers[key], why)
    if bounds.baseline is not None:
        limit = bounds.numbers["max_step_regression_ratio"]
        yield _regression(report, bounds.baseline, limit, repeats, baseline_repeats)
    wanted = checks.without(bounds.forbidden, bounds.ignore)
    yield from checks.of_findings(dismissals.applied(report, bounds.ignore), wanted)


def _why(absent: Mapping[str, str], field: str) -> str:
    return absent.get(f"steps.{field}") or absent.get(field) or absent.get("steps") or "not recorded"


def _bound(key: str, value: float | None, limit: float, why: str) -> Outcome:
    if value is None:
        return Outcome(key, "unable", f"cannot be judged: {why}")
    show = words.size if key.endswith("_bytes") else words.percent
    kept = value >= limit if key.startswith("min_") else value <= limit
    least = "least" if key.startswith("min_") else "most"
    return Outcome(key, "passed" if kept else "failed", f"{show(value)}, {show(limit)} at {least}")


def _interval(report: Mapping[str, Any]) -> MeanInterval | str:
    """Return the interval of a document's mean step, or why it has none."""
    steps, absent = report["steps"], report.get("absent") or {}
    if not steps or not steps.get("mean_interval_ns") or not steps.get("mean_ns"):
        return _why(absent, "mean_interval_ns")
    mean = float(steps["mean_ns"])
    low, high = map(float, steps["mean_interval_ns"])
    return MeanInterval(mean, math.log(mean / low), math.log(high / mean), 0)


def _mean(report: Report) -> float | None:
    return report.steps.mean_ns if report.steps else None


def _given_twice(runs: Sequence[Report], known: str | None = None) -> list[str]:
    """Return the names of the runs that were given before; `known`: the id of one that was."""
    seen, twice = {known}, []
    for each in runs:
        twice += [each.run.name] if each.run.id in seen else []
        seen.add(each.run.id)
    return twice


def _regression(
    report: Report,
    stored: Baseline,
    limit: float,
    repeats: Sequence[Report],
    baseline_repeats: Sequence[Report],
) -> Outcome:
    """Judge a step by the 95 % interval of its ratio to the baseline's: failed where it is longer by more
    than `limit` at the least, passed where it is not at the most. Not judged against a step under other
    conditions."""
    key, own = "max_step_regression_ratio", stored.run.get("id")
    above = list({each.run.id: each for each in (report, *repeats)}.values())  # each run counts once
    below = list({each.run.id: each for each in baseline_repeats if each.run.id != own}.values())
    twice = _given_twice((report, *repeats)) + _given_twice(baseline_repeats, own)
    once = f"; given twice, and counted once: {', '.join(dict.fromkeys(twice))}" if twice else ""
    both = {each.run.id for each in above} & {own, *(each.run.id for each in below)}
    for each in above:
        if each.run.id in both:
            raise own_baseline(each.run.name, str(stored.path))
    why = next(
        (why for each in (*above, *below) if (why := checks.unlike(to_json(each.run), stored.run))), None
    )
    if stored.mean_ns is None:
        why = f"{_OF_A_MEDIAN}. {_STORE}"
    untimed = next((each for each in (*above, *below) if _mean(each) is None), None)
    if why is None and untimed is not None:
        why = f"{untimed.run.name}: {_why(untimed.absent, 'mean_ns')}"
    if why is not None or stored.mean_ns is None:
        return Outcome(key, "unable", f"cannot be judged: {why}{once}")
    means = [
        [ns for ns in map(_mean, above) if ns],
        [stored.mean_ns, *(ns for ns in map(_mean, below) if ns)],
    ]
    before, after, ratio = (
        stored.interval,
        _interval({"steps": to_json(report.steps), "absent": report.absent}),
        of_repeats(*means),
    )
    if ratio is not None:
        ends = ratio.low, ratio.high
        how = f"by the scatter between {len(means[0])} and {len(means[1])} runs"
    elif isinstance(before, str) or isinstance(after, str):
        said = after if isinstance(after, str) else f"in the baseline: {before}"
        return Outcome(key, "unable", f"cannot be judged: no interval of the step, {said}{once}")
    else:
        ends = of_ratio(after, before)
        how = "within this pair of runs; what their repeats would differ in is not in it: see --repeat"
    now, was = (words.duration(sum(side) / len(side)) for side in means)
    least, most = ends[0] - 1, ends[1] - 1
    text = (
        f"a step takes {now}, and {was} in the baseline: {least:+.1%} to {most:+.1%} (95 %, {how}), "
        f"{limit:+.1%} at most{once}"
    )
    verdict = "passed" if most <= limit else "failed" if least > limit else "unable"
    return Outcome(key, verdict, text)  # type: ignore[arg-type]
