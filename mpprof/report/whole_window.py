"""The account of a whole window, for a run whose steps cannot be told apart, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpprof.model.account import IDLE_CLASSES
from mpprof.model.shell import quoted
from mpprof.report import words

if TYPE_CHECKING:
    from mpprof.model import document as doc


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
    """Return a heading that names what the breakdown divides: never a step."""
    where = words.plain(window["device"])
    if window["basis"] == "host":
        where += ", no accelerator: ops on the host's threads"
    of = f" of {len(window['devices'])} devices" if len(window["devices"]) > 1 else ""
    span = words.duration(window["span_ns"])
    return f"The whole window, not a step: {span} from the first to the last work{of} (on {where})"


def lines(window: doc.Window) -> list[str]:
    """Return busy and idle time, what is exposed and what is hidden, and the other devices."""
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
    """Return why there are no steps, and how to get them."""
    how = "; ".join(each["text"] for each in window["mark"])
    said = [f"{window['reason']}. A window gives no step time, no speedup and no cost per step"]
    if how:
        said.append(f"to have steps: {how}")
    if named := offered(window["ranges"]):
        said.append(named)
    return said


def offered(ranges: list[doc.RangeOfTrace]) -> str | None:
    """Return the ranges that may be steps, as `--step-range` takes them; None where there are none."""
    if not ranges:
        return None
    return f"ranges in this trace that may be 'steps': {', '.join(map(_range, ranges[:3]))}"


def _range(found: doc.RangeOfTrace) -> str:
    name = words.shorten(words.plain(quoted(found["name"])), 60)
    count, share = words.plural(found["count"], "range"), words.percent(found["launches_ratio"])
    return f"--step-range {name} ({count}, {share} of the launches)"


def idle_ns(window: doc.Window) -> dict[str, float]:
    """Return the idle time of the main device by class."""
    return {each["class"]: each["ns"] for each in window["slices"] if each["class"] in IDLE_CLASSES}
