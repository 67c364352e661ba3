"""The account of a whole window, for a run whose steps cannot be told apart, in words."""

from __future__ import annotations

from mpprof.model.account import IdleCause, MatmulShare, Slice
from mpprof.model.quantities import first_of
from mpprof.model.report import Window
from mpprof.model.shell import quoted
from mpprof.model.trace import NamedRanges
from mpprof.report import words


def as_slices(window: Window) -> tuple[Slice, ...]:
    """Return the slices as those of one step, for whoever draws both: a caller says that they are of the
    window."""
    return tuple(
        Slice(
            part.category,
            part.ns,
            part.ratio,
            part.hidden_ns,
            tuple(
                MatmulShare(share.placement, share.precision, share.ns, share.transforms_ns)
                for share in part.by
            ),
            tuple(IdleCause(each.cause, each.ns) for each in part.causes),
            part.pooling_ns,
        )
        for part in window.slices
    )


def heading(window: Window) -> str:
    """Return a heading that names what the breakdown divides: never a step."""
    where = words.where(window.device, window.basis)
    of = f" of {len(window.devices)} devices" if len(window.devices) > 1 else ""
    span = words.duration(window.span_ns)
    return f"The whole window, not a step: {span} from the first to the last work{of} (on {where})"


def lines(window: Window) -> list[str]:
    """Return busy and idle time, what is exposed and what is hidden, and the other devices."""
    span, work = window.span_ns, "op" if window.basis == "host" else "kernel"
    said = [
        f"busy {_share(window.busy_ns, span)}, idle {_share(window.idle_ns, span)}; "
        f"{words.plural(window.kernels, work)}, {words.duration(window.kernel_ns)} together"
    ]
    for name, category in (("communication", "comm"), ("copies", "copy")):
        part = next((each for each in window.slices if each.category == category), None)
        if part is not None:
            hidden = words.duration(part.hidden_ns)
            said.append(f"{name}: {_share(part.ns, span)} exposed, {hidden} hidden behind other work")
    others = [f"{words.plain(each.device)} {_share(each.busy_ns, span)}" for each in window.devices[1:]]
    if others:
        said.append(f"busy on the others: {first_of(others, 8)}")
    return said


def _share(ns: float, whole_ns: float) -> str:
    return f"{words.duration(ns)} ({words.percent(ns / whole_ns)})"


def what_is_not_said(window: Window) -> list[str]:
    """Return why there are no steps, and how to get them."""
    how = "; ".join(each.text for each in window.mark)
    said = [f"{window.reason}. A window gives no step time, no speedup and no cost per step"]
    if how:
        said.append(f"to have steps: {how}")
    if named := offered(window.ranges):
        said.append(named)
    return said


def offered(ranges: tuple[NamedRanges, ...] | None) -> str | None:
    """Return the ranges that may be steps, as `--step-range` takes them; None where there are none."""
    if not ranges:
        return None
    return f"ranges in this trace that may be 'steps': {', '.join(map(_range, ranges[:3]))}"


def _range(found: NamedRanges) -> str:
    name = words.shorten(words.plain(quoted(found.name)), 60)
    count, share = words.plural(found.count, "range"), words.percent(found.launches_ratio)
    return f"--step-range {name} ({count}, {share} of the launches)"
