"""The account of a whole window, for a run whose steps cannot be told apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpprof.model.account import Account, Cell, Slice
from mpprof.model.finding import Remedy
from mpprof.model.trace import NamedRanges
from mpprof.report.json.time import ranges_of
from mpprof.report.json.values import rounded

if TYPE_CHECKING:
    from mpprof.model import document as doc


def window_of(
    window: Account, how_to_mark: tuple[Remedy, ...], ranges: tuple[NamedRanges, ...] = ()
) -> doc.Window:
    """Return `window` of the report: an account of a whole window, whose "per step" is of the window."""
    span_ns = rounded(window.window_ns)
    busy_ns = rounded(window.device_ns)
    ran = [cell for cell in window.main.cells if cell.kernel is not None and cell.category != "copy"]
    calls = window.main.calls
    return {
        "basis": window.trace_basis,
        "span_ns": span_ns,
        "busy_ns": busy_ns,
        "idle_ns": rounded(span_ns - busy_ns),
        "kernel_ns": rounded(calls.ns_per_step if calls else 0.0),
        "kernels": round(calls.per_step if calls else 0.0),
        "device": window.main.device,
        "slices": _slices(window.main.slices),
        "devices": [
            {"device": each.device, "busy_ns": rounded(each.busy_ns), "slices": _slices(each.slices)}
            for each in window.devices
        ],
        "families": _families(ran),
        "reason": (window.absent or {}).get("step_ns", "no step can be told apart"),
        "mark": [{"text": each.text, "snippet": each.snippet or None} for each in how_to_mark],
        "ranges": ranges_of(ranges),
        "notes": list(window.notes),
    }


def _slices(slices: tuple[Slice, ...]) -> list[doc.WindowSlice]:
    return [
        {
            "class": part.category,
            "ns": rounded(part.ns_per_step),
            "ratio": part.ratio or 0.0,
            "hidden_ns": rounded(part.hidden_ns_per_step),
            "by": [
                {
                    "placement": share.placement,
                    "precision": share.precision,
                    "ns": rounded(share.ns_per_step),
                    "transforms_ns": rounded(share.transforms_ns_per_step),
                }
                for share in part.by
            ],
            "causes": [{"cause": cause, "ns": rounded(ns)} for cause, ns in part.causes],
            "pooling_ns": rounded(part.pooling_ns_per_step),
        }
        for part in slices
    ]


def _families(ran: list[Cell]) -> list[doc.FamilyTime]:
    ns: dict[str, float] = {}
    calls: dict[str, float] = {}
    for cell in ran:
        family = cell.family or "other"
        ns[family] = ns.get(family, 0.0) + cell.busy_ns_per_step
        calls[family] = calls.get(family, 0.0) + cell.calls_per_step
    longest = sorted(ns, key=lambda family: -ns[family])
    return [{"family": f, "ns": rounded(ns[f]), "kernels": round(calls[f])} for f in longest]  # type: ignore[typeddict-item]
