"""The step log and the account of a step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpprof.model.account import Account, DeviceAccount, Slice
from mpprof.model.finding import Diagnosis
from mpprof.model.hosts import Hosts
from mpprof.model.trace import NamedRanges
from mpprof.report.json.values import rounded

if TYPE_CHECKING:
    from mpprof.model import document as doc


def time_of(
    account: Account | None,
    step_range: str | None,
    unlike: str | None,
    hosts: Hosts | None,
    ranges: tuple[NamedRanges, ...] = (),
) -> doc.Time | None:
    if account is None:
        return None
    body: doc.Time = {
        "basis": "host" if account.trace_basis == "host" else account.basis,
        "step_ns": rounded(account.step_ns),
        "function_ns": rounded(account.function_ns),
        "wall_ns": rounded(account.wall_ns),
        "window_ns": rounded(account.window_ns),
        "device_ns": rounded(account.device_ns),
        "between_steps": None
        if account.between is None
        else [
            {"name": part.name, "host_ns": rounded(part.host_ns), "device_ns": rounded(part.device_ns)}
            for part in account.between
        ],
        "slices": _slices(account.main.slices),
        "devices": _devices(account, hosts),
        "device": account.main.device,
        "window_steps": account.main.steps,
        "step_source": account.step_source,
        "notes": list(account.notes),
        "idle_between_steps_ns": rounded(account.between_ns),
    }
    if account.unit == "pass" or account.unit == "part":
        body["unit"] = account.unit
        body["ranges"] = ranges_of(ranges)
        if account.unit_name:
            body["unit_name"] = account.unit_name
    if step_range is not None:
        body["step_range"] = step_range
    if unlike is not None:
        body["unlike"] = unlike
    if account.host_path is not None:
        body["call_ns"] = rounded(account.host_path.call_ns)
        body["launched_ns"] = rounded(account.host_path.launched_ns)
        body["waited_ns"] = rounded(account.host_path.waited_ns)
    return body


def ranges_of(ranges: tuple[NamedRanges, ...]) -> list[doc.RangeOfTrace]:
    return [
        {"name": each.name, "count": each.count, "launches_ratio": each.launches_ratio} for each in ranges
    ]


def _devices(account: Account, hosts: Hosts | None) -> list[doc.Device]:
    """Return all devices of the account, and those of further hosts."""
    own = hosts.read[0].host if hosts is not None else None
    others = hosts.read[1:] if hosts is not None else ()
    return [
        *(_device(device, own) for device in account.devices),
        *(_device(device, each.host) for each in others for device in each.devices),
    ]


def _device(device: DeviceAccount, host: str | None) -> doc.Device:
    body: doc.Device = {
        "device": device.device,
        "step_ns": rounded(device.step_ns),
        "slices": _slices(device.slices),
        "busy_ns": rounded(device.busy_ns),
    }
    return body if host is None else {**body, "host": host}


def _slices(slices: tuple[Slice, ...]) -> list[doc.Slice]:
    return [_slice(part) for part in slices]


def _slice(part: Slice) -> doc.Slice:
    said: doc.Slice = {
        "class": part.category,
        "ns_per_step": rounded(part.ns_per_step),
        "ratio": part.ratio,
        "hidden_ns_per_step": rounded(part.hidden_ns_per_step),
        "by": [
            {
                "placement": share.placement,
                "precision": share.precision,
                "ns_per_step": rounded(share.ns_per_step),
                "transforms_ns_per_step": rounded(share.transforms_ns_per_step),
            }
            for share in part.by
        ],
        "causes": [{"cause": cause, "ns_per_step": rounded(ns)} for cause, ns in part.causes],
    }
    if part.pooling_ns_per_step:
        said["pooling_ns_per_step"] = rounded(part.pooling_ns_per_step)
    if part.longest_hidden is not None:
        name, ns = part.longest_hidden
        said["longest_hidden"] = {"name": name, "ns_per_step": rounded(ns)}
    return said


def tensor_core_of(diagnosis: Diagnosis) -> doc.TensorCore | None:
    """Return the share of matrix work on Tensor Cores; None also for a run without an accelerator: a CPU has
    no such share, rather than a share of 0."""
    share = diagnosis.tensor_core
    if share is None or on_host(diagnosis):
        return None
    body: doc.TensorCore = {
        "matmul_ns_per_step": rounded(share.matmul_ns_per_step),
        "ratio": share.ratio,
        "reason": share.reason,
        "by_precision": {precision: rounded(ns) for precision, ns in share.by_precision.items()},
        "fallback_ns_per_step": rounded(share.fallback_ns_per_step),
        "unknown_ratio": share.unknown_ratio,
    }
    if share.verified_ratio is not None:
        body["verified_ratio"] = share.verified_ratio
    if share.of == "window":
        body |= {"of": "window", "unit": share.unit}
    return body


def on_host(diagnosis: Diagnosis) -> bool:
    measured = diagnosis.account or diagnosis.window
    return measured is not None and measured.trace_basis == "host"
