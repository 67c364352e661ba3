"""The account of a whole window, for a run whose steps cannot be told apart."""

from __future__ import annotations

from mpprof.model.account import Account, Cell, Slice
from mpprof.model.kernels import Family
from mpprof.model.remedy import Remedy
from mpprof.model.report import FamilyTime, Window, WindowCause, WindowDevice, WindowShare, WindowSlice
from mpprof.model.trace import NamedRanges


def window_of(
    window: Account, how_to_mark: tuple[Remedy, ...], ranges: tuple[NamedRanges, ...] = ()
) -> Window:
    """Return the view of an account of a whole window, whose "per step" is of the window."""
    span_ns, busy_ns = round(window.window_ns, 3), round(window.device_ns, 3)
    ran = [cell for cell in window.main.cells if cell.kernel is not None and cell.category != "copy"]
    calls = window.main.calls
    return Window(
        basis=window.trace_basis,
        span_ns=span_ns,
        busy_ns=busy_ns,
        idle_ns=span_ns - busy_ns,
        kernel_ns=calls.ns_per_step if calls else 0.0,
        kernels=round(calls.per_step if calls else 0.0),
        device=window.main.device,
        slices=_slices(window.main.slices),
        devices=tuple(
            WindowDevice(each.device, each.busy_ns, _slices(each.slices)) for each in window.devices
        ),
        families=_families(ran),
        reason=(window.absent or {}).get("step_ns", "no step can be told apart"),
        mark=how_to_mark,
        ranges=ranges,
        notes=window.notes,
    )


def _slices(slices: tuple[Slice, ...]) -> tuple[WindowSlice, ...]:
    return tuple(
        WindowSlice(
            part.category,
            part.ns_per_step,
            part.ratio,
            part.hidden_ns_per_step,
            tuple(
                WindowShare(share.placement, share.precision, share.ns_per_step, share.transforms_ns_per_step)
                for share in part.by
            ),
            tuple(WindowCause(each.cause, each.ns_per_step) for each in part.causes),
            part.pooling_ns_per_step,
        )
        for part in slices
    )


def _families(ran: list[Cell]) -> tuple[FamilyTime, ...]:
    ns: dict[Family, float] = {}
    calls: dict[Family, float] = {}
    for cell in ran:
        family = cell.family or "other"
        ns[family] = ns.get(family, 0.0) + cell.busy_ns_per_step
        calls[family] = calls.get(family, 0.0) + cell.calls_per_step
    longest = sorted(ns, key=lambda family: -ns[family])
    return tuple(FamilyTime(family, ns[family], round(calls[family])) for family in longest)
