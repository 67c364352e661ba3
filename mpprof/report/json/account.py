"""The account of a step, and that of a whole window, as the report states them."""

from __future__ import annotations

from dataclasses import replace

from mpprof.model.account import Account, Cell, DeviceAccount, Slice
from mpprof.model.finding import Diagnosis
from mpprof.model.hosts import Hosts
from mpprof.model.kernels import Family
from mpprof.model.remedy import Remedy
from mpprof.model.report import (
    FamilyTime,
    Time,
    Window,
    WindowCause,
    WindowDevice,
    WindowShare,
    WindowSlice,
)
from mpprof.model.trace import NamedRanges


def time_of(
    account: Account | None,
    step_range: str | None,
    unlike: str | None,
    hosts: Hosts | None,
    ranges: tuple[NamedRanges, ...] = (),
) -> Time | None:
    """Return the view of an account of steps; None without one."""
    if account is None:
        return None
    path = account.host_path
    of_step = account.unit == "step" or account.unit == "window"
    return Time(
        basis="host" if account.trace_basis == "host" else account.basis,
        step_ns=account.step_ns,
        function_ns=account.function_ns,
        wall_ns=account.wall_ns,
        window_ns=account.window_ns,
        device_ns=account.device_ns,
        between_steps=account.between,
        slices=account.main.slices,
        devices=_devices(account, hosts),
        device=account.main.device,
        window_steps=account.main.steps,
        step_source=account.step_source,
        notes=account.notes,
        idle_between_steps_ns=account.between_ns,
        unit="step" if account.unit == "window" else account.unit,
        ranges=None if of_step else ranges,
        unit_name="" if of_step else account.unit_name,
        step_range=step_range,
        unlike=unlike,
        call_ns=path.call_ns if path else None,
        launched_ns=path.launched_ns if path else None,
        waited_ns=path.waited_ns if path else None,
    )


def _devices(account: Account, hosts: Hosts | None) -> tuple[DeviceAccount, ...]:
    """Return all devices of the account, and those of further hosts."""
    if hosts is None:
        return account.devices
    own = [replace(device, host=hosts.read[0].host) for device in account.devices]
    others = [replace(device, host=each.host) for each in hosts.read[1:] for device in each.devices]
    return (*own, *others)


def on_host(diagnosis: Diagnosis) -> bool:
    """Return whether what was measured are ops on the host's threads, of a run without an accelerator."""
    measured = diagnosis.account or diagnosis.window
    return measured is not None and measured.trace_basis == "host"


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
