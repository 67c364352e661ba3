"""The account of a whole window, for a run whose steps cannot be told apart: its document, and its words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpprof.model.account import IDLE_CLASSES, Account, Cell, Slice
from mpprof.model.finding import Remedy
from mpprof.model.shell import quoted
from mpprof.model.trace import NamedRanges
from mpprof.report import words

if TYPE_CHECKING:
    from mpprof.model import document as doc


def document(
    window: Account, how_to_mark: tuple[Remedy, ...], ranges: tuple[NamedRanges, ...] = ()
) -> doc.Window:
    """Return `window` of the report: an account of a whole window, whose "per step" is of the window."""
    span_ns = _ns(window.window_ns)
    busy_ns = _ns(window.device_ns)
    ran = [cell for cell in window.main.cells if cell.kernel is not None and cell.category != "copy"]
    calls = window.main.calls
    return {
        "basis": window.trace_basis,
        "span_ns": span_ns,
        "busy_ns": busy_ns,
        "idle_ns": _ns(span_ns - busy_ns),
        "kernel_ns": _ns(calls.ns_per_step if calls else 0.0),
        "kernels": round(calls.per_step if calls else 0.0),
        "device": window.main.device,
        "slices": _slices(window.main.slices),
        "devices": [
            {"device": each.device, "busy_ns": _ns(each.busy_ns), "slices": _slices(each.slices)}
            for each in window.devices
        ],
        "families": _families(ran),
        "reason": (window.absent or {}).get("step_ns", "no step can be told apart"),
        "mark": [{"text": each.text, "snippet": each.snippet or None} for each in how_to_mark],
        "ranges": [
            {"name": each.name, "count": each.count, "launches_ratio": each.launches_ratio} for each in ranges
        ],
        "notes": list(window.notes),
    }


def _ns(value: float) -> float:
    return round(float(value), 3)


def _slices(slices: tuple[Slice, ...]) -> list[doc.WindowSlice]:
    return [
        {
            "class": part.category,
            "ns": _ns(part.ns_per_step),
            "ratio": part.ratio,
            "hidden_ns": _ns(part.hidden_ns_per_step),
            "by": [
                {
                    "placement": share.placement,
                    "precision": share.precision,
                    "ns": _ns(share.ns_per_step),
                    "transforms_ns": _ns(share.transforms_ns_per_step),
                }
                for share in part.by
            ],
            "causes": [{"cause": cause, "ns": _ns(ns)} for cause, ns in part.causes],
            "pooling_ns": _ns(part.pooling_ns_per_step),
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
    return [{"family": f, "ns": _ns(ns[f]), "kernels": round(calls[f])} for f in longest]  # type: ignore[typeddict-item]


# --- in words ----------------------------------------------------------------------------------------------


def as_slices(window: doc.Window) -> list[doc.Slice]:
    """Return the slices as those of one step, for whoever draws both: a caller says that they are of the
    window."""
    return [
        {
            "class": part["class"],
            "ns_per_step": part["ns"],
            "ratio": part["ratio"],
            "hidden_ns_per_step": part["hidden_ns"],
            "by": [
                {
                    "placement": share["placement"],
                    "precision": share["precision"],
                    "ns_per_step": share["ns"],
                    "transforms_ns_per_step": share["transforms_ns"],
                }
                for share in part["by"]
            ],
            "causes": [{"cause": each["cause"], "ns_per_step": each["ns"]} for each in part["causes"]],
            "pooling_ns_per_step": part.get("pooling_ns", 0.0),
        }
        for part in window["slices"]
    ]


def heading(window: doc.Window) -> str:
    """What the breakdown divides: never a step."""
    where = words.plain(window["device"])
    if window["basis"] == "host":
        where += ", no accelerator: ops on the host's threads"
    of = f" of {len(window['devices'])} devices" if len(window["devices"]) > 1 else ""
    span = words.duration(window["span_ns"])
    return f"The whole window, not a step: {span} from the first to the last work{of} (on {where})"


def lines(window: doc.Window) -> list[str]:
    """Busy and idle, what is exposed and what is hidden, and the other devices."""
    span = window["span_ns"]
    said = [
        f"busy {_share(window['busy_ns'], span)}, idle {_share(window['idle_ns'], span)}; "
        f"{words.plural(window['kernels'], 'kernel')}, {words.duration(window['kernel_ns'])} together"
    ]
    for name, category in (("communication", "comm"), ("copies", "copy")):
        part = next((each for each in window["slices"] if each["class"] == category), None)
        if part is not None:
            hidden = words.duration(part["hidden_ns"])
            said.append(f"{name}: {_share(part['ns'], span)} exposed, {hidden} hidden behind other work")
    others = [
        f"{words.plain(each['device'])} {_share(each['busy_ns'], span)}" for each in window["devices"][1:9]
    ]
    if others:
        more = len(window["devices"]) - 9
        said.append(f"busy on the others: {', '.join(others)}{f' and {more} more' if more > 0 else ''}")
    return said


def _share(ns: float, whole_ns: float) -> str:
    return f"{words.duration(ns)} ({words.percent(ns / whole_ns)})"


def what_is_not_said(window: doc.Window) -> list[str]:
    """Why there are no steps, and how to have them."""
    how = "; ".join(each["text"] for each in window["mark"])
    said = [f"{window['reason']}. A window gives no step time, no speedup and no cost per step"]
    if how:
        said.append(f"to have steps: {how}")
    if window["ranges"]:
        named = ", ".join(map(_range, window["ranges"][:3]))
        said.append(f"ranges in this trace that may be steps: {named}")
    return said


def _range(found: doc.RangeOfTrace) -> str:
    name = words.shorten(words.plain(quoted(found["name"])), 60)
    count, share = words.plural(found["count"], "range"), words.percent(found["launches_ratio"])
    return f"--step-range {name} ({count}, {share} of the launches)"


def idle_ns(window: doc.Window) -> dict[str, float]:
    """Idle time of the main device by class."""
    return {each["class"]: each["ns"] for each in window["slices"] if each["class"] in IDLE_CLASSES}
