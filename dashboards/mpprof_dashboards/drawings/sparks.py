"""Small curves over the steps of a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from mpprof.model.arrays import Float64
from mpprof_dashboards.drawings import svg

Place = Callable[[float], float]
MOST_POINTS = 240
_WIDTH, _HEIGHT = 1000.0, 40.0


@dataclass(frozen=True, slots=True)
class Curve:
    """A series: `values` at the steps `at`. NaN is a gap. `stairs`: a value holds until the next one; else
    the mean of each stretch is drawn as a line and the stretch's extremes as a band. `ticks` are steps to be
    marked on a rail below."""

    key: str
    said: str
    at: Float64
    values: Float64
    stairs: bool = False
    ticks: Sequence[float] = ()
    log: bool = False


def draw(curve: Curve) -> str:
    """Return a curve as SVG that stretches to its place; "" without two different places to join."""
    known = np.isfinite(curve.values) & ((curve.values > 0) | (not curve.log))
    at, values = curve.at[known], curve.values[known]
    if len(at) < 2 or at[-1] <= at[0]:
        return ""
    values = np.log2(values) if curve.log else values
    first, last = float(curve.at[0]), float(curve.at[-1])
    usual = float(np.quantile(values, 0.995))
    low = float(values.min()) if curve.log or curve.stairs else 0.0
    high = float(values.max()) if curve.log or curve.stairs else max(usual * 1.15, 1e-9)
    span, low = (high - low, low) if high > low else (2.0, low - 1.0)  # what never changes lies in the middle

    def x(step: float) -> float:
        return _WIDTH * (step - first) / (last - first)

    def y(value: float) -> float:
        return round(_HEIGHT - 3 - (_HEIGHT - 6) * min(1.0, max(0.0, (value - low) / span)), 2)

    # If less than a point is missing the line goes on: the gap would not be visible.
    missing = (np.diff(np.flatnonzero(known)) > 1) & (np.diff(at) >= (last - first) / MOST_POINTS)
    gaps = np.flatnonzero(missing) + 1
    drawn = stairs(at, values, x, y) if curve.stairs else _stretches(at, values, gaps, x, y)
    if len(curve.ticks):
        places = {round(x(step)) for step in curve.ticks}
        rail = "".join(f"M{place} {_HEIGHT + 2:g}v8" for place in sorted(places))
        drawn += svg.element("path", d=rail, class_="mp-curve-ticks")
    tall = _HEIGHT + (12 if len(curve.ticks) else 0)
    return svg.element(
        "svg", drawn, class_="mp-curve", xmlns=svg.NAMESPACE, viewBox=f"0 0 {_WIDTH:g} {tall:g}",
        preserveAspectRatio="none", width="100%", height=f"{tall:g}", role="img", aria_label=curve.said,
        data_key=curve.key,
    )  # fmt: skip


def stairs(at: Float64, values: Float64, x: Place, y: Place) -> str:
    """Return a path of steps: each value holds until the next one."""
    rows = np.flatnonzero(np.concatenate([[True], values[1:] != values[:-1]]))
    if len(rows) > MOST_POINTS:
        rows = rows[:: -(-len(rows) // MOST_POINTS)]
    path = f"M{x(at[0]):.1f} {y(values[0])}"
    path += "".join(f"H{x(at[row]):.1f}V{y(values[row])}" for row in rows[1:])
    return svg.element("path", d=f"{path}H{x(at[-1]):.1f}", class_="mp-curve-line")


def _stretches(at: Float64, values: Float64, gaps: NDArray[np.intp], x: Place, y: Place) -> str:
    """Return the mean of each stretch as a line, over a band from its least to its greatest value; both end
    before each of the `gaps`."""
    edges = np.unique(np.linspace(0, len(at), min(MOST_POINTS, len(at)) + 1).astype(int))[:-1]
    edges = np.union1d(edges, gaps)
    counts = np.diff(np.append(edges, len(at)))
    means = np.add.reduceat(values, edges) / counts
    least, most = np.minimum.reduceat(values, edges), np.maximum.reduceat(values, edges)
    places = [f"{x(at[edge]):.1f}" for edge in edges]
    line, band = "", ""
    for begin, end in pairwise((0, *np.searchsorted(edges, gaps), len(edges))):
        mean, high, low = (
            [f"{places[each]} {y(row[each])}" for each in range(begin, end)] for row in (means, most, least)
        )
        line += f"M{'L'.join(mean)}" + ("h0" if len(mean) == 1 else "")
        band += f"M{'L'.join([*high, *reversed(low)])}Z" if (counts[begin:end] > 1).any() else ""
    drawn = svg.element("path", d=band, class_="mp-curve-band") if band else ""
    return drawn + svg.element("path", d=line, class_="mp-curve-line")
