"""Where the matrix work ran, and how much of the device's time nothing identifies."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

import plotly.graph_objects as go

from mpprof.report import words
from mpprof.report.content import slices_of
from mpprof_dashboards import theme
from mpprof_dashboards.figures.base import Bar, bars, time_scale

if TYPE_CHECKING:
    from mpprof.model import document as doc


def matrix_work(document: doc.Report) -> go.Figure | None:
    """The matmul slice by placement and precision, largest first; None where the run has no such slice."""
    per_step = "per step" if document["time"] else "in the window"
    matmul = next((part for part in slices_of(document) if part["class"] == "matmul"), None)
    if matmul is None or not matmul["by"]:
        return None
    whole = matmul["ns_per_step"]
    unit, per = time_scale(whole)
    items = []
    for part in sorted(matmul["by"], key=lambda part: -part["ns_per_step"]):
        place, precision, ns = part["placement"], part["precision"], part["ns_per_step"]
        name = f"{theme.PLACEMENT_LABELS.get(place, place)}" + (
            f" · {precision}" if precision != "unknown" else ""
        )
        share = words.percent(ns / whole) if whole else words.NOT_KNOWN
        items.append(
            Bar(name, ns, f"{words.duration(ns)} · {share}", theme.part_colour(place, precision),
                pattern=theme.UNKNOWN_PATTERN if place == "unknown" else "", key=f"{place}/{precision}",
                hover=f"{name}: {words.duration(ns)} {per_step}, {share} of the matrix time")
        )  # fmt: skip
    return bars(items, x_title=f"Time {per_step} ({unit})", per=per)


def kernel_time(rows: Sequence[doc.KernelRow]) -> go.Figure | None:
    """All kernel time of the file by placement, `unknown` always among them; None without kernels."""
    if not rows:
        return None
    sums: dict[str, float] = defaultdict(float)
    for row in rows:
        sums[row["placement"]] += row["total_ns"]
    sums.setdefault("unknown", 0.0)
    whole = sum(sums.values())
    unit, per = time_scale(whole)
    order = [place for place in theme.PLACEMENT_LABELS if place in sums]
    order += sorted(set(sums) - set(order))
    items = [
        Bar(theme.PLACEMENT_LABELS.get(place, place), sums[place],
            f"{words.duration(sums[place])} · {words.percent(sums[place] / whole if whole else 0.0)}",
            theme.PLACEMENT_COLOURS.get(place, theme.PLACEMENT_COLOURS["unknown"]),
            pattern=theme.UNKNOWN_PATTERN if place == "unknown" else "", key=place)
        for place in order
    ]  # fmt: skip
    return bars(items, x_title=f"Kernel time ({unit})", per=per)


def ranked(rows: Sequence[doc.Row], field: str, limit: int = 20) -> go.Figure | None:
    """The `limit` longest of `rows` by their `total_ns`, named by `field`; rows without a name stand as
    "not attributed", always shown. None without rows."""
    if not rows:
        return None
    sums: dict[str | None, float] = defaultdict(float)
    for row in rows:
        sums[row.get(field)] += row["total_ns"]
    known = sorted(((name, ns) for name, ns in sums.items() if name), key=lambda item: -item[1])
    whole = sum(sums.values())
    unit, per = time_scale(max(sums.values()))
    lost = sum(ns for name, ns in sums.items() if not name)

    def words_of(ns: float) -> str:
        return f"{words.duration(ns)} · {words.percent(ns / whole if whole else 0.0)}"

    items = [Bar(str(name), ns, words_of(ns), theme.MEASURED, key=str(name)) for name, ns in known[:limit]]
    if len(known) > limit:
        rest = sum(ns for _, ns in known[limit:])
        items.append(Bar(f"{len(known) - limit} more", rest, words_of(rest), theme.TOTAL, key="more"))
    items.append(
        Bar("Not attributed", lost, words_of(lost), theme.class_colour("unknown"),
            pattern=theme.UNKNOWN_PATTERN, key="")
    )  # fmt: skip
    return bars(items, x_title=f"Kernel time ({unit})", per=per)
