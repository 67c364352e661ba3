"""How much longer than its roofline time a step takes: by steps of published models that were measured.

`measured_steps.csv` has a row for each measured step, with its source and with the roofline time and the
kernels of the same model, card, policy and batch, compiled as a forecast compiles it
(`tests.forecasts.make_calibration`). What counts is the roofline time with its launches. A
row speaks for models of its family, on cards of its compute capability, in its width, of about its size. No
range is stated unless two or more models speak for it, and none that is wider than `WIDEST`.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from math import exp, log
from pathlib import Path

from mpprof.forecasts import least_time
from mpprof.model.forecast import Band
from mpprof.model.frozen import frozen

WIDEST = 3.0
"""The highest ratio between the ends of a range that is stated."""
FURTHEST = 2.0
"""How far below the smallest and above the largest row, by roofline time, a step is still judged by them:
smaller ones are bound by their launches."""
FEWEST_MODELS = 2


@frozen
class Measured:
    """A measured step. `family`: of its model, as `judging` tells it; `wide`: in float32, as the card runs it
    by default."""

    family: str
    model: str
    compute_capability: tuple[int, int]
    wide: bool
    batch_size: int
    measured_ns: float
    roofline_ns: float
    kernels: int
    source: str

    @property
    def factor(self) -> float:
        """What the step took over its roofline time with its launches."""
        return self.measured_ns / least_time.with_launches_ns(self.roofline_ns, self.kernels)


@cache
def rows() -> tuple[Measured, ...]:
    """Return every row of the table."""
    text = Path(__file__).with_name("measured_steps.csv").read_text(encoding="utf-8")
    return tuple(_row(row) for row in csv.DictReader(text.splitlines()))


def _row(row: dict[str, str]) -> Measured:
    major, minor = row["compute_capability"].split(".")
    return Measured(
        row["family"], row["model"], (int(major), int(minor)), row["policy"] == "float32", int(row["batch"]),
        float(row["measured_ms"]) * 1e6, float(row["roofline_ms"]) * 1e6, int(row["kernels"]),
        row["source"],
    )  # fmt: skip


def step(
    family: str,
    compute_capability: tuple[int, int],
    roofline_ns: float,
    kernels: int,
    *,
    wide: bool,
    table: Sequence[Measured] | None = None,
) -> Band | None:
    """Return the range of a step's time in ns; None: not calibrated. `kernels`: how many it launches."""
    found = _range(_steps(family, table), (compute_capability, wide), roofline_ns)
    launched_ns = least_time.with_launches_ns(roofline_ns, kernels)
    return found and Band(found.low * launched_ns, found.high * launched_ns)


def speedup(
    family: str,
    compute_capability: tuple[int, int],
    roofline_ns: float,
    at_roofline: float,
    table: Sequence[Measured] | None = None,
) -> Band | None:
    """Return the range of the speedup over float32 of a 16-bit step of this roofline time; None: not
    calibrated. `at_roofline` is the ratio of the two steps' roofline times, each with its launches; what
    counts is how much of it other models reached."""
    found = _range(_speedups(family, table), (compute_capability, False), roofline_ns)
    return found and Band(found.low * at_roofline, found.high * at_roofline)


def step_error(family: str) -> float:
    """Return the error, as a logarithm, of predicting each of a family's steps from other models on its
    card."""
    return _error(_steps(family, None))


def speedup_error(family: str) -> float:
    """Return that of its speedups."""
    return _error(_speedups(family, None))


def without(model: str) -> tuple[Measured, ...]:
    """Return the table less the rows of one model: what is left to forecast it by."""
    return tuple(one for one in rows() if one.model != model)


Group = tuple[tuple[int, int], bool]
"""A compute capability, and whether in float32: models are compared within it."""
Factors = Mapping[Group, Sequence[tuple[Measured, float]]]


def _of_family(family: str, table: Sequence[Measured] | None) -> list[Measured]:
    return [one for one in (rows() if table is None else table) if one.family == family]


def _steps(family: str, table: Sequence[Measured] | None) -> Factors:
    found: dict[Group, list[tuple[Measured, float]]] = defaultdict(list)
    for one in _of_family(family, table):
        found[one.compute_capability, one.wide].append((one, one.factor))
    return found


def _speedups(family: str, table: Sequence[Measured] | None) -> Factors:
    alike = _of_family(family, table)
    plain = {(one.model, one.compute_capability): one.factor for one in alike if one.wide}
    found: dict[Group, list[tuple[Measured, float]]] = defaultdict(list)
    for one in alike:
        before = plain.get((one.model, one.compute_capability))
        if before is not None and not one.wide:
            found[one.compute_capability, False].append((one, before / one.factor))
    return found


def _range(factors: Factors, key: Group, roofline_ns: float) -> Band | None:
    """Return the mean factor of a group's models, a geometric one, less and more the error of the family."""
    group = factors.get(key, ())
    means, sizes = _means(group), [one.roofline_ns for one, _ in group]
    if len(means) < FEWEST_MODELS or not min(sizes) / FURTHEST <= roofline_ns <= max(sizes) * FURTHEST:
        return None
    centre, error = _mean(means.values()), _error(factors)
    return Band(exp(centre - error), exp(centre + error)) if 2 * error <= log(WIDEST) else None


def _error(factors: Factors) -> float:
    """Return the largest error, as a logarithm, that is made when the factor of a row is told by the mean of
    the other models of its group. All groups of a family count: two models that happen to agree on one card
    are no proof."""
    errors = [0.0]
    for group in factors.values():
        means = _means(group)
        for one, factor in group:
            others = [mean for model, mean in means.items() if model != one.model]
            errors += [abs(log(factor) - _mean(others))] if others else []
    return max(errors)


def _means(group: Sequence[tuple[Measured, float]]) -> dict[str, float]:
    """Return the mean logarithm of each model's factors."""
    by_model: dict[str, list[float]] = defaultdict(list)
    for one, factor in group:
        by_model[one.model].append(log(factor))
    return {model: _mean(found) for model, found in by_model.items()}


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return sum(listed) / len(listed)
