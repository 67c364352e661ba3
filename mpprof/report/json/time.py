"""The account of a step, as the report states it."""

from __future__ import annotations

from dataclasses import replace

from mpprof.model.account import Account, DeviceAccount
from mpprof.model.finding import Diagnosis
from mpprof.model.hosts import Hosts
from mpprof.model.report import Time
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
