"""Communication between devices: what is exposed of it, in what precision, and whom the devices wait for.

A collective's kernel does not show whether the device waits in it or transfers. But the device that comes to
the collectives last never waits: what the others take beyond its exposed communication is waiting for it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

import numpy as np

from mpprof.analysis.arrays.quantiles import median
from mpprof.analysis.steps.accounted_steps import Window
from mpprof.model.account import Account, Cell, Class, DeviceAccount
from mpprof.model.arrays import Int64
from mpprof.model.frozen import frozen
from mpprof.model.hosts import ClockSkew, Collective, CollectiveKind, DeviceLoad, Hosts
from mpprof.model.kernels import Placements, Precision
from mpprof.model.trace import Trace

STRAGGLES_RATIO = 0.03
"""Of the step: a device whose own work takes so much longer than the others' is one that they wait for."""

_NO_WORK = ("comm", "profiling")
_TYPES: dict[str, Precision] = {
    "f32": "fp32", "fp32": "fp32", "float": "fp32", "float32": "fp32", "f16": "fp16", "fp16": "fp16",
    "half": "fp16", "float16": "fp16", "bf16": "bf16", "bfloat16": "bf16", "f64": "fp64", "double": "fp64",
    "f8e4m3": "fp8", "f8e5m2": "fp8",
}  # fmt: skip
"""How NCCL, RCCL, TensorFlow and XLA name the type that is sent."""
_INTEGERS = {
    "long": "int64", "int64": "int64", "s64": "int64", "i64": "int64", "int": "int32", "int32": "int32",
    "s32": "int32", "i32": "int32", "byte": "uint8", "uint8": "uint8", "u8": "uint8", "bool": "bool",
}  # fmt: skip
"""How PyTorch's ops and XLA name integers that are sent: tokens, counts, flags."""
_KINDS: tuple[tuple[CollectiveKind, str], ...] = (
    ("gather", r"(?i)all_?-?gather|CollectiveGather"),
    ("reduce", r"(?i)reduce"),
)


# --- the collectives of one device -------------------------------------------------------------------------


def kind_of(cell: Cell) -> CollectiveKind:
    """Return whether a collective sums what the devices hold (gradients), or collects it."""
    text = " ".join(filter(None, (cell.kernel, cell.op_type)))
    return next((kind for kind, pattern in _KINDS if re.search(pattern, text)), "other")


def precision_of(cell: Cell) -> Precision:
    """Return the type that is sent: by the kernel's name, else by its op's shapes or HLO; "unknown": not
    stated. What goes through `int4*` is 16 opaque bytes at a time, whatever stands beside it."""
    if re.search(r"\bint4\b", cell.kernel or ""):
        return "unknown"
    for text in (cell.kernel, cell.shapes, cell.hlo.dtype if cell.hlo else None):
        for word in re.split(r"[^a-z0-9]+", (text or "").lower()):
            if word in _TYPES:
                return _TYPES[word]
    return "unknown"


def integers_of(cell: Cell) -> str:
    """Return the type of the integers that are sent, by the op's shapes or HLO; "": none are stated. A
    kernel's name has integers among its arguments."""
    stated = (cell.shapes, cell.hlo.dtype if cell.hlo else None)
    words = (word for text in stated for word in re.split(r"[^a-z0-9]+", (text or "").lower()))
    return next((_INTEGERS[word] for word in words if word in _INTEGERS), "")


def collectives(cells: Sequence[Cell]) -> tuple[Collective, ...]:
    """Return the communication among these cells by kind and type, the longest first."""
    found: dict[tuple[CollectiveKind, Precision, str], list[Cell]] = {}
    for cell in cells:
        if cell.category == "comm":
            sent = precision_of(cell)
            key = kind_of(cell), sent, integers_of(cell) if sent == "unknown" else ""
            found.setdefault(key, []).append(cell)
    parts = [
        Collective(
            kind, precision,
            sum(cell.ns_per_step for cell in own),
            sum(cell.busy_ns_per_step for cell in own),
            sum(cell.calls_per_step for cell in own),
            integers,
        )
        for (kind, precision, integers), own in found.items()
    ]  # fmt: skip
    return tuple(sorted(parts, key=lambda part: (-part.busy_ns, part.kind, part.precision, part.integers)))


# --- several devices ---------------------------------------------------------------------------------------


def loads(account: Account, hosts: Hosts | None) -> tuple[DeviceLoad, ...]:
    """Return every device of the run, of all hosts, in profiled steps; the main one first."""
    if hosts is None:
        profiled = account.profiled or account.main
        return tuple(_load(None, device) for device in (profiled, *account.devices[1:]))
    return tuple(_load(each.host, device) for each in hosts.read for device in each.devices)


def _load(host: str | None, device: DeviceAccount) -> DeviceLoad:
    classes = {part.category: part.ns_per_step for part in device.slices}
    own = sum(ns for category, ns in classes.items() if category not in _NO_WORK)
    hidden = sum(part.hidden_ns_per_step for part in device.slices if part.category == "comm")
    exposed = classes.get("comm", 0.0)
    busy = device.busy_ns - exposed
    return DeviceLoad(host, device.device, device.step_ns, own, busy, exposed, hidden, classes)


@frozen
class Straggling:
    """Devices that the others wait for, the slowest first, and what a step would be shorter by if they were
    as fast as the slowest of the others. `more`: the classes in which the slowest takes longer than the
    median of the others, and by how much, the largest first."""

    slow: tuple[DeviceLoad, ...]
    others: tuple[DeviceLoad, ...]
    cost_ns: float
    more: tuple[tuple[Class, float], ...]
    by_work: bool = False

    def own_ns(self, device: DeviceLoad) -> float:
        """Return the part of this device's step that was compared."""
        return device.busy_ns if self.by_work else device.own_ns


def straggling(devices: Sequence[DeviceLoad]) -> Straggling | None:
    """Return the devices whose own work takes notably longer than the median; None without any, or if more
    than half would count."""
    if len(devices) < 2:
        return None
    # Without collectives in the traces, waiting for others is idle time like any other.
    waits_show = any(each.exposed_ns + each.hidden_ns > 0 for each in devices)
    own = [each.own_ns if waits_show else each.busy_ns for each in devices]
    usual = min(own) if len(devices) == 2 else median(np.array(own))
    limit = usual + STRAGGLES_RATIO * max(each.step_ns for each in devices)
    slow = sorted(
        (item for item in zip(own, devices, strict=True) if item[0] > limit), key=lambda item: -item[0]
    )
    others = [item for item in zip(own, devices, strict=True) if item[0] <= limit]
    if not slow or len(slow) > len(others):
        return None
    beside = tuple(each for _, each in others)
    cost = slow[0][0] - max(ns for ns, _ in others)
    more = _more(slow[0][1], beside)
    return Straggling(tuple(each for _, each in slow), beside, cost, more, by_work=not waits_show)


def _more(slow: DeviceLoad, others: Sequence[DeviceLoad]) -> tuple[tuple[Class, float], ...]:
    beyond = {
        category: ns - median(np.array([each.classes.get(category, 0.0) for each in others]))
        for category, ns in slow.classes.items()
        if category not in _NO_WORK
    }
    return tuple(sorted(((c, ns) for c, ns in beyond.items() if ns > 0), key=lambda item: -item[1]))


# --- the clocks of several hosts ---------------------------------------------------------------------------


@frozen
class Landmarks:
    """What two hosts share, in Unix ns by the host's own clock: when each step of a number ended, and when
    each of its collectives did."""

    steps: dict[int, int]
    collectives: dict[int, Int64]


def landmarks(trace: Trace, placements: Placements, window: Window) -> Landmarks | str:
    """Return the landmarks of one device's window, or why there are none."""
    if trace.origin_unix_ns is None:
        return "its trace does not state when it was made"
    periods, table = window.periods, trace.kernels
    if not len(periods.number) or (periods.number < 0).any():
        return "its steps are not numbered"
    sends = np.array([verdict.family == "comm" for verdict in placements.verdicts], np.bool_)
    rows = window.rows[sends[placements.index[window.rows]]]
    end = np.sort(table.start_ns[rows] + table.duration_ns[rows])
    within = np.searchsorted(periods.end_ns, end, side="left")
    ends = {
        int(number): end[within == at] + trace.origin_unix_ns
        for at, number in enumerate(periods.number.tolist())
    }
    steps = dict(zip(periods.number.tolist(), (periods.end_ns + trace.origin_unix_ns).tolist(), strict=True))
    return Landmarks(steps, ends)


def skew(own: Landmarks | str, first: Landmarks | str) -> ClockSkew | str:
    """Return how far a host's clock is ahead of the first host's, or why that is not known."""
    for found, whose in ((own, ""), (first, "of the first host: ")):
        if isinstance(found, str):
            return f"{whose}{found}"
    assert isinstance(own, Landmarks)
    assert isinstance(first, Landmarks)
    both = sorted(own.steps.keys() & first.steps.keys())
    if not both:
        return "its window and that of the first host have no step in common"
    pairs = [(own.collectives[number], first.collectives[number]) for number in both]
    same = [mine - theirs for mine, theirs in pairs if len(mine) == len(theirs) > 0]
    if same:
        return _skew(np.concatenate(same), "collectives")
    return _skew(np.array([own.steps[number] - first.steps[number] for number in both], np.int64), "steps")


def _skew(difference_ns: Int64, by: Literal["collectives", "steps"]) -> ClockSkew:
    middle = median(difference_ns)
    within = median(np.abs(difference_ns - middle))
    return ClockSkew(middle, within, by, len(difference_ns))
