"""The step log over the steps: time, loss, loss scale, memory, and the hardware over time."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mpprof.model.arrays import Bool, Float64, Int64
from mpprof.model.steps import ABSENT, HardwareTable, StepTable
from mpprof.report import words
from mpprof_dashboards import theme
from mpprof_dashboards.figures.plain import LEGEND_ABOVE, Figure, blank, time_scale

if TYPE_CHECKING:
    from mpprof.model.steps import StepSummary

MOST_POINTS = 3000
MOST_DEVICES = 32
"""Lines in one figure."""
_HEIGHT = 280


def step_ns(table: StepTable) -> Float64:
    """Return the time per optimizer step of each row (interval over the steps it covers); NaN where not
    measured."""
    known = table.interval_ns != ABSENT
    return np.where(known, table.interval_ns / np.maximum(table.covers, 1), np.nan)


def thin(n: int, values: Float64, most: int = MOST_POINTS) -> Int64:
    """Return the rows to draw: all, or those with the least and the greatest value of each of `most / 2`
    stretches.

    Extremes survive, so a single slow step among a million stays visible."""
    if n <= most:
        return np.arange(n)
    length = -(-n // (most // 2))
    padded = np.full(-(-n // length) * length, np.nan)
    padded[:n] = np.where(np.isfinite(values), values, np.nan)
    stretches = padded.reshape(-1, length)
    known = ~np.isnan(stretches)
    least = np.where(known, stretches, np.inf).argmin(axis=1)
    greatest = np.where(known, stretches, -np.inf).argmax(axis=1)
    filled = np.flatnonzero(known.any(axis=1))
    return np.unique(np.concatenate([filled * length + least[filled], filled * length + greatest[filled]]))


def within(table: StepTable, low: float, high: float) -> StepTable:
    """Return the rows of the steps from `low` to `high`, and one row on either side, to which lines are
    drawn."""
    first = max(int(np.searchsorted(table.step, low, side="left")) - 1, 0)
    last = int(np.searchsorted(table.step, high, side="right")) + 1
    return StepTable(**{each.name: getattr(table, each.name)[first:last] for each in fields(table)})


def _line(figure: Figure, x: Any, y: Any, name: str, colour: str, texts: list[str], **more: Any) -> None:
    figure.add(
"scatter",
        x=x, y=y, name=name, mode=more.pop("mode", "lines"), line={"color": colour, "width": 1.6} | more.pop(
            "line", {}), marker={"color": colour, "size": 5} | more.pop("marker", {}),
        customdata=texts, hovertemplate="step %{x}: %{customdata}<extra>" + name + "</extra>", **more,
    )  # fmt: skip


def time_per_step(table: StepTable | None, summary: StepSummary | None) -> Figure | None:
    """Return a figure of every step's time, with profiled and warm-up steps marked, and with the mean,
    the steady median and 95th percentile.

    Warm-up is marked only where the report says when it ended (`first_steady`)."""
    if table is None or not len(table):
        return None
    ns = step_ns(table)
    if np.isnan(ns).all():
        return None
    first_steady = summary.first_steady if summary else None
    warm = table.step < first_steady if first_steady else np.zeros(len(table), bool)
    kinds = (
        ("profiled", table.profiled, theme.ACCENT, "diamond"),
        ("warm-up", warm & ~table.profiled, theme.MEASURED, "circle-open"),
        ("step", ~table.profiled & ~warm, theme.MEASURED, "circle"),
    )
    mean = summary.mean_ns if summary else None
    median, p95 = (summary.median_ns, summary.p95_ns) if summary else (None, None)
    top = _top(ns, ~warm & ~table.profiled)
    above = np.nan_to_num(ns) > top
    parts = _parts(table)
    drawn = np.zeros(len(table), bool)
    drawn[thin(len(table), ns)] = True
    drawn |= table.profiled & (np.cumsum(table.profiled) <= 1000)
    drawn &= ~np.isnan(ns)
    unit, per = time_scale(float(median or np.nanmedian(ns)))
    figure = blank(_HEIGHT + 40, margin=LEGEND_ABOVE)
    _stack(figure, table, parts, np.flatnonzero(drawn & ~above), ns, per)
    for name, chosen, colour, symbol in reversed(kinds):
        rows = np.flatnonzero(chosen & drawn & ~above)
        if len(rows):
            _line(figure, table.step[rows], ns[rows] / per, name, colour,
                  [words.duration(value) for value in ns[rows]], mode="markers",
                  marker={"symbol": symbol, "size": 6, "opacity": 0.85})  # fmt: skip
    rows = np.flatnonzero(above & drawn)
    if len(rows):
        _line(figure, table.step[rows], np.full(len(rows), top / per), f"above {words.duration(top)}",
              theme.ACCENT, [words.duration(value) for value in ns[rows]],
              mode="markers", marker={"symbol": "triangle-up", "size": 9})  # fmt: skip
    for value, name, dash in (
        (mean, "mean", "solid"),
        (median, "median", "dash"),
        (p95, "95th percentile", "dot"),
    ):
        if value is not None:
            figure.add(
"scatter",
                x=[int(table.step[0]), int(table.step[-1])], y=[value / per] * 2, mode="lines",
                line={"color": theme.TOTAL, "width": 1.5, "dash": dash},
                name=f"{name} {words.duration(value)}", customdata=[value] * 2, hoverinfo="skip",
            )  # fmt: skip
    figure.update_xaxes(title={"text": "Step"})
    figure.update_yaxes(title={"text": f"Time per step ({unit})"}, rangemode="tozero")
    return figure


def _parts(table: StepTable) -> list[tuple[str, str, Float64]]:
    """Return (name, colour, ns per step) of what the records state about a step's time; NaN where a line
    states nothing."""
    named = (
        ("input wait", theme.EDGES[theme.KIND_COLOURS["wait"]], table.input_wait_ns),
        ("dispatch", theme.KIND_COLOURS["plain"], table.dispatch_ns),
    )
    covers = np.maximum(table.covers, 1)
    return [
        (name, colour, np.where(column != ABSENT, column / covers, np.nan))
        for name, colour, column in named
        if (column != ABSENT).any()
    ]


def _stack(
    figure: Figure,
    table: StepTable,
    parts: list[tuple[str, str, Float64]],
    rows: Int64,
    ns: Float64,
    per: float,
) -> None:
    """Draw input wait, dispatch and the rest of each step, one on top of the other."""
    if not parts:
        return
    rest = ns - sum(np.nan_to_num(values) for _, _, values in parts)
    shown = [*parts, ("rest", theme.KIND_COLOURS["quiet"], np.maximum(rest, 0.0))]
    for name, colour, values in shown:
        figure.add(
"scatter",
            x=table.step[rows], y=np.nan_to_num(values[rows]) / per, name=name, mode="lines",
            stackgroup="step", line={"width": 0, "color": colour, "shape": "hvh"}, fillcolor=colour,
            customdata=[words.duration(value) for value in np.nan_to_num(values[rows])],
            hovertemplate="step %{x}: %{customdata}<extra>" + name + "</extra>",
        )  # fmt: skip


_CUT_QUANTILE, _CUT_ABOVE, _CUT_ROOM = 0.995, 1.5, 1.25


def _top(ns: Float64, ordinary: Bool) -> float:
    """Return where the time axis ends: at the slowest step, or, where a few are far longer than the rest (the
    first one traces and compiles), a little above the time that 99.5 % of the ordinary steps do not exceed.
    Longer steps are drawn at that end."""
    known = ns[ordinary & ~np.isnan(ns)]
    slowest = float(np.nanmax(ns))
    usual = float(np.quantile(known, _CUT_QUANTILE)) if len(known) else slowest
    return slowest if slowest < _CUT_ABOVE * usual else _CUT_ROOM * usual


def loss(table: StepTable | None) -> Figure | None:
    """Return a figure of the loss where it was recorded; values that are not finite are marked below, never
    drawn as a number."""
    if table is None or not table.loss_known.any():
        return None
    rows = np.flatnonzero(table.loss_known)
    finite = np.isfinite(table.loss[rows])
    broken = rows[~finite]
    rows = rows[thin(len(rows), table.loss[rows])] if len(rows) > MOST_POINTS else rows
    values = table.loss[rows]
    figure = blank(_HEIGHT, margin=LEGEND_ABOVE)
    _line(figure, table.step[rows], np.where(np.isfinite(values), values, np.nan), "loss", theme.MEASURED,
          [words.quantity(float(value), "") for value in values])  # fmt: skip
    if len(broken):
        bottom = float(np.nanmin(values[np.isfinite(values)])) if np.isfinite(values).any() else 0.0
        broken = broken[:1000]
        _line(figure, table.step[broken], np.full(len(broken), bottom), "not finite", theme.ACCENT,
              [words.quantity(float(value), "") for value in table.loss[broken]], mode="markers",
              marker={"symbol": "x", "size": 9})  # fmt: skip
    figure.update_xaxes(title={"text": "Step"})
    figure.update_yaxes(title={"text": "Loss"})
    return figure


def loss_scale(table: StepTable | None) -> Figure | None:
    """Return a figure of the loss scale where it was read, on a logarithmic axis, with the readings that
    report skips."""
    if table is None or not table.loss_scale_known.any():
        return None
    rows = np.flatnonzero(table.loss_scale_known)
    rows = rows[thin(len(rows), table.loss_scale[rows])]
    values = table.loss_scale[rows]
    drawable = np.isfinite(values) & (values > 0)
    figure = blank(_HEIGHT, margin=LEGEND_ABOVE)
    _line(figure, table.step[rows], np.where(drawable, values, np.nan), "loss scale", theme.MEASURED,
          [words.scale(value) for value in values], line={"shape": "hv"}, mode="lines+markers")  # fmt: skip
    skipped = rows[(table.skipped[rows] > 0) & drawable]
    if len(skipped):
        _line(figure, table.step[skipped], table.loss_scale[skipped], "updates skipped", theme.ACCENT,
              [f"{words.count(int(n))} skipped since the reading before" for n in table.skipped[skipped]],
              mode="markers", marker={"symbol": "triangle-down", "size": 10})  # fmt: skip
    figure.update_xaxes(title={"text": "Step"})
    if drawable.any():
        exponents = np.arange(
            np.floor(np.log2(values[drawable].min())), np.ceil(np.log2(values[drawable].max())) + 1
        )
        ticks = exponents[:: max(1, -(-len(exponents) // 5))]
        figure.update_yaxes(
            tickvals=(2.0**ticks).tolist(), ticktext=[f"2<sup>{int(power)}</sup>" for power in ticks]
        )
    figure.update_yaxes(title={"text": "Loss scale (log)"}, type="log")
    return figure


def memory(table: StepTable | None) -> Figure | None:
    """Return a figure of peak and live memory of the allocator where they were read."""
    if table is None:
        return None
    series = (
        ("peak", table.peak_bytes, theme.MEASURED, "solid"),
        ("live", table.live_bytes, theme.TOTAL, "dot"),
    )
    figure = blank(_HEIGHT, margin=LEGEND_ABOVE)
    for name, column, colour, dash in series:
        rows = np.flatnonzero(column != ABSENT)
        rows = rows[thin(len(rows), column[rows].astype(float))] if len(rows) else rows
        if len(rows):
            sizes = [words.size(int(value)) for value in column[rows]]
            _line(figure, table.step[rows], column[rows] / 2**30, name, colour, sizes,
                  line={"shape": "hv", "dash": dash})  # fmt: skip
    if not figure.data:
        return None
    figure.update_xaxes(title={"text": "Step"})
    figure.update_yaxes(title={"text": "GPU memory (GiB)"}, rangemode="tozero")
    return figure


# --- one axis for all ------------------------------------------------------------------------------------


PANEL, RAIL, GAP = 130, 20, 40
"""Heights in pixels: of a panel, of the rail of skips below the loss scale, of what lies between two."""


def steady_texts(table: StepTable | None, hardware_: HardwareTable | None) -> list[str]:
    """Return what never changes, one line each: no figure is drawn for it."""
    said = []
    if table is not None and table.loss_scale_known.any() and not (table.skipped > 0).any():
        scales = table.loss_scale[table.loss_scale_known]
        if not _varies(scales):
            said.append(f"loss scale {words.scale(float(scales[0]))}, nothing skipped")
    for name, column in _memory_series(table):
        held = column[column != ABSENT]
        if len(held) and not _varies(held):
            said.append(f"{name} memory {words.size(int(held[0]))}")
    for field, title, factor, unit in _HARDWARE if hardware_ is not None else ():
        values = getattr(hardware_, field)
        known = values[~np.isnan(values)]
        if len(known) and not _varies(known):
            shown = 1.0 if unit == "ratio" else factor
            said.append(f"{title.partition(' (')[0]} {words.quantity(float(known[0]) * shown, unit)}")
    return said


def _varies(values: NDArray[Any]) -> bool:
    """Return whether there are two different values; all values that are not numbers count as one."""
    return bool(len(values)) and not bool(
        ((values == values[0]) | np.isnan(values) & np.isnan(values[0])).all()
    )


def _memory_series(table: StepTable | None) -> list[tuple[str, Int64]]:
    return [] if table is None else [("peak", table.peak_bytes), ("live", table.live_bytes)]


def changes(table: StepTable | None, name: str) -> bool:
    """Return whether "loss scale" or "memory" has anything to draw: two values at least, or a skip."""
    if table is None:
        return False
    if name == "loss scale":
        return _varies(table.loss_scale[table.loss_scale_known]) or bool((table.skipped > 0).any())
    return any(_varies(column[column != ABSENT]) for _, column in _memory_series(table))


def together(panels: list[tuple[str, Figure]]) -> Figure:
    """Return figures over the steps as one with a single axis: zooming in one zooms in all.

    `panels` are (title, figure) from top to bottom; a title that ends in "rail" makes a low one."""
    heights = [RAIL if title.endswith("rail") else PANEL for title, _ in panels]
    whole = sum(heights) + GAP * (len(panels) - 1)
    figure = blank(whole + 110, margin=LEGEND_ABOVE)
    top = 1.0
    for row, ((_, panel), height) in enumerate(zip(panels, heights, strict=True), start=1):
        nth = "" if row == 1 else str(row)
        bottom = max(0.0, top - height / whole)
        shown = len(panel.data) > 1
        own = {"xaxis": "x", "yaxis": f"y{nth}", "legend": f"legend{nth}", "showlegend": shown}
        figure.data += [trace | own for trace in panel.data]
        if shown:
            placed = {"x": 1, "xanchor": "right", "y": top}
            figure.update_layout(**{f"legend{nth}": figure.layout.legend | placed})
        title = {**panel.layout.yaxis.title, "text": panel.layout.yaxis.title.get("text", "")}
        placed = {"domain": [bottom, top], "anchor": "x", "title": title, "fixedrange": True}
        figure.update_layout(**{f"yaxis{nth}": panel.layout.yaxis | placed})
        top = bottom - GAP / whole
    figure.update_layout(hovermode="x", hoversubplots="axis", uirevision="steps")
    figure.update_xaxes(title={"text": "Step"}, anchor=f"y{len(panels)}" if len(panels) > 1 else "y")
    return figure


def skips(table: StepTable | None) -> Figure | None:
    """Return a figure with a tick for each reading that reports skipped updates; None where none was
    skipped."""
    if table is None or not (table.skipped > 0).any():
        return None
    rows = np.flatnonzero(table.skipped > 0)
    rows = rows[thin(len(rows), table.skipped[rows].astype(float))]
    figure = blank(RAIL)
    figure.update_yaxes(title={"text": "Skips"})
    _line(figure, table.step[rows], np.zeros(len(rows)), "updates skipped", theme.ACCENT,
          [f"{words.count(int(n))} skipped since the reading before" for n in table.skipped[rows]],
          mode="markers", marker={"symbol": "line-ns-open", "size": 14, "line": {"width": 2}})  # fmt: skip
    figure.update_yaxes(showticklabels=False, range=[-1, 1], showgrid=False, zeroline=False)
    return figure


def clocks(
    table: StepTable | None, hardware_: HardwareTable | None, shown: tuple[float, float] | None = None
) -> list[tuple[str, Figure]]:
    """Return figures of hardware samples over the steps, by when each was taken; samples outside the steps
    are drawn at an end.

    What never changes is left out, and so is what lies outside the steps `shown`. Readings while the clock
    was throttled are marked."""
    if table is None or not len(table) or hardware_ is None or not len(hardware_):
        return []
    at = np.interp(hardware_.t_ns, table.t_ns, table.step)
    near = np.ones(len(at), bool) if shown is None else (at >= shown[0]) & (at <= shown[1])
    held = np.array([bool(names) for names in hardware_.throttle], bool) & near
    found = []
    for field, title, factor, unit in _HARDWARE:
        values = getattr(hardware_, field)
        known = ~np.isnan(values)
        if not _varies(values[known]):
            continue
        figure = _sampled(at, hardware_, np.where(near, values, np.nan), title, factor, unit)
        rows = np.flatnonzero(held & known) if field == "sm_clock_hz" else np.zeros(0, np.int64)
        if len(rows):
            rows = rows[thin(len(rows), values[rows])]
            _line(figure, at[rows], values[rows] * factor, "throttled", theme.ACCENT,
                  [", ".join(hardware_.throttle[row]) for row in rows], mode="markers",
                  marker={"symbol": "triangle-down", "size": 7})  # fmt: skip
        found.append((title, figure))
    return found


_HARDWARE = (
    ("utilization_ratio", "GPU utilisation (%)", 100.0, "ratio"),
    ("power_w", "Power (W)", 1.0, "W"),
    ("sm_clock_hz", "SM clock (MHz)", 1e-6, "MHz"),
    ("temperature_c", "Temperature (°C)", 1.0, "°C"),
    ("cpu_ratio", "Machine CPU (%)", 100.0, "ratio"),
    ("process_cpu_ratio", "Process CPU (%)", 100.0, "ratio"),
)


def _sampled(
    at: Float64, hardware_: HardwareTable, values: Float64, title: str, factor: float, unit: str
) -> Figure:
    """Return samples as dots: between two of them nothing is known. Each says how long the next one is
    off."""
    gpu, t_ns = hardware_.gpu, hardware_.t_ns
    figure = blank(200)
    shown = 1.0 if unit == "ratio" else factor  # the words of a ratio are a percentage by themselves
    colours = [
        theme.MEASURED,
        theme.ACCENT,
        theme.CLASS_COLOURS["elementwise"],
        theme.LAYER_COLOURS[0],
    ]
    devices = [int(device) for device in np.unique(gpu[~np.isnan(values)])]
    if len(devices) > MOST_DEVICES:
        title += f", the first {MOST_DEVICES} of {words.count(len(devices))} series"
    for device in devices[:MOST_DEVICES]:
        rows = np.flatnonzero((gpu == device) & ~np.isnan(values))
        between = float(np.median(np.diff(t_ns[rows]))) if len(rows) > 1 else None
        covers = f"; one sample in {words.duration(between)}" if between else ""
        rows = rows[thin(len(rows), values[rows])]
        name = f"GPU {device}" if device >= 0 else "host"
        figure.add(
            "scatter", x=at[rows], y=values[rows] * factor, name=name,
            mode="markers", marker={"size": 4, "color": colours[max(device, 0) % len(colours)]},
            customdata=[words.quantity(float(value) * shown, unit) + covers for value in values[rows]],
            hovertemplate="step %{x:.0f}: %{customdata}<extra>" + name + "</extra>",
        )  # fmt: skip
    figure.update_yaxes(title={"text": title}, rangemode="tozero", nticks=5)
    return figure
