"""The step log over the steps: time, loss, loss scale, memory, and the hardware over time."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from mpprof.model.steps import ABSENT, HardwareTable, StepTable
from mpprof.report import words
from mpprof_dashboards import theme
from mpprof_dashboards.figures.base import blank, time_scale

if TYPE_CHECKING:
    from mpprof.model import document as doc

MOST_POINTS = 3000
MOST_DEVICES = 32
"""Lines in one figure."""
_HEIGHT = 280
Float = NDArray[np.float64]


def step_ns(table: StepTable) -> Float:
    """Time per optimizer step of each row (interval over the steps it covers); NaN where not measured."""
    known = table.interval_ns != ABSENT
    return np.where(known, table.interval_ns / np.maximum(table.covers, 1), np.nan)


def thin(n: int, values: Float, most: int = MOST_POINTS) -> NDArray[np.int64]:
    """Rows to draw: all, or the least and the greatest value of each of `most / 2` stretches.

    Extremes survive, so a single slow step among a million stays visible."""
    if n <= most:
        return np.arange(n)
    edges = np.linspace(0, n, most // 2 + 1).astype(int)
    filled = np.where(np.isfinite(values), values, np.nan)
    rows = set()
    for start, end in pairwise(edges):
        part = filled[start:end]
        if len(part) and not np.isnan(part).all():
            rows |= {start + int(np.nanargmin(part)), start + int(np.nanargmax(part))}
    return np.array(sorted(rows), np.int64)


def _line(figure: go.Figure, x: Any, y: Any, name: str, colour: str, texts: list[str], **more: Any) -> None:
    figure.add_scatter(
        x=x, y=y, name=name, mode=more.pop("mode", "lines"), line={"color": colour, "width": 1.6} | more.pop(
            "line", {}), marker={"color": colour, "size": 5} | more.pop("marker", {}),
        customdata=texts, hovertemplate="step %{x}: %{customdata}<extra>" + name + "</extra>", **more,
    )  # fmt: skip


def time_per_step(table: StepTable | None, summary: doc.Steps | None) -> go.Figure | None:
    """Every step's time, profiled and warm-up steps marked, with the steady median and 95th percentile.

    Warm-up is marked only where the report says when it ended (`first_steady`)."""
    if table is None or not len(table):
        return None
    ns = step_ns(table)
    if np.isnan(ns).all():
        return None
    first_steady = summary["first_steady"] if summary else None
    warm = table.step < first_steady if first_steady else np.zeros(len(table), bool)
    kinds = (
        ("profiled", table.profiled, theme.ACCENT, "diamond"),
        ("warm-up", warm & ~table.profiled, theme.CLASS_COLOURS["idle_between_steps"], "circle-open"),
        ("step", ~table.profiled & ~warm, theme.MEASURED, "circle"),
    )
    median, p95 = (summary["median_ns"], summary["p95_ns"]) if summary else (None, None)
    top = _top(ns, ~warm & ~table.profiled)
    above = np.nan_to_num(ns) > top
    drawn = np.zeros(len(table), bool)
    drawn[thin(len(table), ns)] = True
    drawn |= table.profiled & (np.cumsum(table.profiled) <= 1000)
    drawn &= ~np.isnan(ns)
    unit, per = time_scale(float(median or np.nanmedian(ns)))
    figure = blank(_HEIGHT + 40, margin={"l": 8, "r": 16, "t": 36, "b": 44})
    for name, chosen, colour, symbol in reversed(kinds):
        rows = np.flatnonzero(chosen & drawn & ~above)
        if len(rows):
            _line(figure, table.step[rows], ns[rows] / per, name, colour,
                  [words.duration(value) for value in ns[rows]], mode="markers",
                  marker={"symbol": symbol, "size": 6, "opacity": 0.85})  # fmt: skip
    rows = np.flatnonzero(above & drawn)
    if len(rows):
        _line(figure, table.step[rows], np.full(len(rows), top / per), f"above {words.duration(top)}",
              theme.CLASS_COLOURS["optimizer"], [words.duration(value) for value in ns[rows]],
              mode="markers", marker={"symbol": "triangle-up", "size": 9})  # fmt: skip
    for value, name, dash in ((median, "median", "solid"), (p95, "95th percentile", "dot")):
        if value is not None:
            figure.add_scatter(
                x=[int(table.step[0]), int(table.step[-1])], y=[value / per] * 2, mode="lines",
                line={"color": theme.TOTAL, "width": 1.5, "dash": dash},
                name=f"{name} {words.duration(value)}", customdata=[value] * 2, hoverinfo="skip",
            )  # fmt: skip
    figure.update_xaxes(title_text="Step")
    figure.update_yaxes(title_text=f"Time per step ({unit})", rangemode="tozero")
    return figure


def _top(ns: Float, ordinary: NDArray[np.bool_]) -> float:
    """Where the time axis ends: at the slowest step, or, where a few dwarf the rest (the first one traces and
    compiles), at three times what 99 % of the ordinary steps stay below. Those above stand on that line."""
    known = ns[ordinary & ~np.isnan(ns)]
    slowest = float(np.nanmax(ns))
    usual = 3 * float(np.quantile(known, 0.99)) if len(known) else slowest
    return slowest if slowest < 2 * usual else usual


def loss(table: StepTable | None) -> go.Figure | None:
    """The loss where it was recorded; what is not finite is marked below, never drawn as a number."""
    if table is None or not table.loss_known.any():
        return None
    rows = np.flatnonzero(table.loss_known)
    finite = np.isfinite(table.loss[rows])
    broken = rows[~finite]
    rows = rows[thin(len(rows), table.loss[rows])] if len(rows) > MOST_POINTS else rows
    values = table.loss[rows]
    figure = blank(_HEIGHT, margin={"l": 8, "r": 16, "t": 36, "b": 44})
    _line(figure, table.step[rows], np.where(np.isfinite(values), values, np.nan), "loss", theme.MEASURED,
          [words.quantity(float(value), "") for value in values])  # fmt: skip
    if len(broken):
        bottom = float(np.nanmin(values[np.isfinite(values)])) if np.isfinite(values).any() else 0.0
        broken = broken[:1000]
        _line(figure, table.step[broken], np.full(len(broken), bottom), "not finite", theme.ACCENT,
              [words.quantity(float(value), "") for value in table.loss[broken]], mode="markers",
              marker={"symbol": "x", "size": 9})  # fmt: skip
    figure.update_xaxes(title_text="Step")
    figure.update_yaxes(title_text="Loss")
    return figure


def loss_scale(table: StepTable | None) -> go.Figure | None:
    """The loss scale where it was read, on a logarithmic axis, with the readings that report skips."""
    if table is None or not table.loss_scale_known.any():
        return None
    rows = np.flatnonzero(table.loss_scale_known)
    rows = rows[thin(len(rows), table.loss_scale[rows])]
    values = table.loss_scale[rows]
    drawable = np.isfinite(values) & (values > 0)
    figure = blank(_HEIGHT, margin={"l": 8, "r": 16, "t": 36, "b": 44})
    _line(figure, table.step[rows], np.where(drawable, values, np.nan), "loss scale", theme.MEASURED,
          [words.scale(value) for value in values], line={"shape": "hv"}, mode="lines+markers")  # fmt: skip
    skipped = rows[(table.skipped[rows] > 0) & drawable]
    if len(skipped):
        _line(figure, table.step[skipped], table.loss_scale[skipped], "updates skipped", theme.ACCENT,
              [f"{words.count(int(n))} skipped since the reading before" for n in table.skipped[skipped]],
              mode="markers", marker={"symbol": "triangle-down", "size": 10})  # fmt: skip
    figure.update_xaxes(title_text="Step")
    if drawable.any():
        exponents = np.arange(
            np.floor(np.log2(values[drawable].min())), np.ceil(np.log2(values[drawable].max())) + 1
        )
        ticks = exponents[:: max(1, len(exponents) // 6)]
        figure.update_yaxes(tickvals=2.0**ticks, ticktext=[f"2<sup>{int(power)}</sup>" for power in ticks])
    figure.update_yaxes(title_text="Loss scale (log)", type="log")
    return figure


def memory(table: StepTable | None) -> go.Figure | None:
    """Peak and live memory of the allocator where they were read."""
    if table is None:
        return None
    series = (
        ("peak", table.peak_bytes, theme.MEASURED, "solid"),
        ("live", table.live_bytes, theme.CLASS_COLOURS["norm"], "dot"),
    )
    figure = blank(_HEIGHT, margin={"l": 8, "r": 16, "t": 36, "b": 44})
    for name, column, colour, dash in series:
        rows = np.flatnonzero(column != ABSENT)
        rows = rows[thin(len(rows), column[rows].astype(float))] if len(rows) else rows
        if len(rows):
            sizes = [words.size(int(value)) for value in column[rows]]
            _line(figure, table.step[rows], column[rows] / 2**30, name, colour, sizes,
                  line={"shape": "hv", "dash": dash})  # fmt: skip
    if not figure.data:
        return None
    figure.update_xaxes(title_text="Step")
    figure.update_yaxes(title_text="GPU memory (GiB)", rangemode="tozero")
    return figure


_HARDWARE = (
    ("utilization_ratio", "GPU utilisation (%)", 100.0, "ratio"),
    ("power_w", "Power (W)", 1.0, "W"),
    ("sm_clock_hz", "SM clock (MHz)", 1e-6, "MHz"),
    ("temperature_c", "Temperature (°C)", 1.0, "°C"),
    ("cpu_ratio", "Process CPU (%)", 100.0, "ratio"),
)


def hardware(table: HardwareTable | None) -> list[tuple[str, go.Figure]]:
    """One small figure per quantity that was sampled at all, with its title; time from the first sample."""
    if table is None or not len(table):
        return []
    seconds = (table.t_ns - table.t_ns[0]) / 1e9
    return [
        (title, figure)
        for field, title, factor, unit in _HARDWARE
        if (figure := _sampled(seconds, table.gpu, getattr(table, field), title, factor, unit)) is not None
    ]


def _sampled(
    seconds: Float, gpu: NDArray[np.int64], values: Float, title: str, factor: float, unit: str
) -> go.Figure | None:
    if np.isnan(values).all():
        return None
    figure = blank(200)
    shown = 1.0 if unit == "ratio" else factor  # the words of a ratio are a percentage by themselves
    colours = [
        theme.MEASURED,
        theme.ACCENT,
        theme.CLASS_COLOURS["elementwise"],
        theme.CLASS_COLOURS["optimizer"],
    ]
    devices = [int(device) for device in np.unique(gpu[~np.isnan(values)])]
    if len(devices) > MOST_DEVICES:
        title += f", the first {MOST_DEVICES} of {words.count(len(devices))} series"
    for device in devices[:MOST_DEVICES]:
        rows = np.flatnonzero((gpu == device) & ~np.isnan(values))
        rows = rows[thin(len(rows), values[rows])]
        name = f"GPU {device}" if device >= 0 else "host"
        figure.add_scatter(
            x=seconds[rows], y=values[rows] * factor, name=name,
            mode="lines+markers" if len(rows) < 30 else "lines",
            line={"width": 1.6, "color": colours[max(device, 0) % len(colours)]},
            customdata=[words.quantity(float(value) * shown, unit) for value in values[rows]],
            hovertemplate="%{x:.1f} s: %{customdata}<extra>" + name + "</extra>",
        )  # fmt: skip
    if len(devices) > 1:
        figure.update_layout(margin={"t": 30})
    figure.update_layout(showlegend=len(devices) > 1)
    figure.update_xaxes(title_text="Time (s)")
    figure.update_yaxes(title_text=title, rangemode="tozero", nticks=5)
    return figure
