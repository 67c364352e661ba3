"""A trace of allocations from a memory snapshot: the history of events, and the blocks in use at its end.

The file states what was in use when it was written, and the events before that, of which PyTorch keeps the
last `max_entries`. So what was live is counted backwards from the end. An event states the bytes that were
asked for. The docstring of `torch.cuda.memory._snapshot` describes the keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from mpprof.errors import UnreadableError
from mpprof.model import limits
from mpprof.model.arrays import Int64
from mpprof.model.device import DeviceFacts
from mpprof.model.frozen import frozen
from mpprof.model.limits import LONGEST_NAME
from mpprof.model.quantities import format_bytes
from mpprof.model.trace import (
    AllocationTable,
    HostTable,
    KernelTable,
    MarkerTable,
    Op,
    Trace,
    TraceDevice,
    TraceSource,
)  # fmt: skip
from mpprof.traces.common.columns import Interner, table_of
from mpprof.traces.torch_memory.pickled import NotPlainError, plain

# What the stack of an allocation tells: the line of code, and what the memory is for.
#
# The frames stand innermost first. The first that belongs to one of PyTorch's own functions named below
# decides what the block is for; the line is that of the first frame in code of one's own, or in a module's
# `forward`.

_OF_TORCH = re.compile(r"(?:^|[/\\])torch[/\\]")
_OF_OTHERS = re.compile(r"[/\\](?:site|dist)-packages[/\\]|[/\\]lib[/\\]python\d|torchinductor")
"""Installed packages, Python's own library, and code that PyTorch's compiler wrote."""
_NODE = re.compile(r"torch::autograd::generated::(\w+Backward\d*)")
_ENGINE = re.compile(r"torch::autograd::(?:python::Python)?Engine|^_engine_run_backward$")
_MODULE = re.compile(r"torch[/\\]nn[/\\]modules[/\\]\w+\.py$")
_MODULES = re.compile(r"torch[/\\]nn[/\\]modules[/\\]module\.py$")
_OPTIMIZER = re.compile(r"torch[/\\](?:optim[/\\]|(?:cuda[/\\])?amp[/\\]grad_scaler\.py)")
_PARAMETERS = re.compile(r"torch[/\\]nn[/\\](?:init|parameter)\.py$")
_DATA = re.compile(r"torch[/\\]utils[/\\]data[/\\]")
CATEGORIES = {
    "parameter": ("", "persist"), "optimizer_state": ("optimizer", "persist"), "gradient": ("backward", ""),
    "activation": ("forward", ""), "input": ("input", ""),
}  # fmt: skip
"""PyTorch's own categories (torch.profiler's memory profiler), where a snapshot was made of a profile."""

_MOST_FRAMES = 1_000
"""Innermost frames of a stack that are looked at: as deep as Python's stacks are."""


@frozen
class Stack:
    """`line`: "model.py:37 forward", "" where no frame tells. `phase`: what of a step allocates there, as the
    type of its op ("code": code outside of a module, an optimizer and the backward pass). `region` is
    "persist" for parameters and what an optimizer sets up."""

    line: str
    phase: str
    region: str = ""


NOTHING = Stack("", "")


def stack(frames: object, category: object = None) -> Stack:
    """Return what the frames tell, or PyTorch's own category where the file states one; NOTHING without
    frames."""
    some = frames[:_MOST_FRAMES] if isinstance(frames, list) else []
    known = [_frame(one) for one in some if isinstance(one, dict)]
    phase, region = CATEGORIES.get(category, ("", "")) if isinstance(category, str) else _purpose(known)
    line = _line(known)
    if not (phase or region or line):
        return NOTHING
    return Stack(line or (f"{phase or 'torch'} (no line)"), phase or "code", region)


def _frame(one: dict[str, Any]) -> tuple[str, str, int]:
    file, name, line = one.get("filename"), one.get("name"), one.get("line")
    return (
        file[-LONGEST_NAME:] if isinstance(file, str) else "",
        name[:LONGEST_NAME] if isinstance(name, str) else "",
        line if isinstance(line, int) and 0 <= line < 1 << 31 else 0,
    )


def _purpose(frames: Iterable[tuple[str, str, int]]) -> tuple[str, str]:
    """Return phase and region by the innermost frame that tells."""
    told = (_purpose_of(file, name) for file, name, _ in frames)
    return next(filter(None, told), ("", ""))


@lru_cache(1 << 16)
def _purpose_of(file: str, name: str) -> tuple[str, str] | None:
    """Return phase and region, None where the frame does not tell. Few frames stand in many stacks."""
    if _OPTIMIZER.search(file):
        return "optimizer", "persist" if name == "_init_group" else ""
    if _PARAMETERS.search(file) or (_MODULE.search(file) and name in ("__init__", "_apply", "convert")):
        return "", "persist"
    if _MODULES.search(file) and name in ("_call_impl", "_wrapped_call_impl"):
        return "forward", ""
    if _ENGINE.search(name) or _NODE.search(name):
        return "backward", ""
    if _DATA.search(file):
        return "input", ""
    return None


def _line(frames: list[tuple[str, str, int]]) -> str:
    """Return the innermost line of Python that is in no installed package or is a module's `forward`, else
    outside of PyTorch, else of it; without any the node of the backward pass."""
    python = [one for one in frames if one[0].endswith(".py") or one[0].startswith("<")]
    outside = [one for one in python if not _OF_TORCH.search(one[0])]
    own = [one for one in outside if one[1] == "forward" or not _OF_OTHERS.search(one[0])]
    for file, name, line in (own or outside or python)[:1]:
        place = re.split(r"[/\\]", file)[-1][:200]
        return f"{place}:{line} {name[:200]}".replace("/", "|").rstrip()
    nodes = (found[1] for _, name, _ in frames if (found := _NODE.search(name)))
    return next(nodes, "")[:200]


_LARGEST_BLOCK = 1 << 40
_LARGEST = 1 << 29
"""Bytes of a snapshot, which is held in memory, some ten times as large: seven million events."""
_MOST_EVENTS = 4_000_000
"""Events and blocks that are read; so many of the largest size add up to less than 64 bits."""
_LEAST_BYTES = 16
"""What an event or block takes of a file at least: a dict of its own, with an address and a size."""
_MOST_SAID = 3
_SEGMENTS = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}
_RECORD = "torch.cuda.memory._record_memory_history(max_entries=100_000)"
_MISSING = {
    "kernels": "a memory snapshot holds no kernels",
    "layers": "the stacks of a memory snapshot name lines of code, not layers",
    "types": "a memory snapshot states neither types nor shapes",
    "rounding": "the history of a memory snapshot states the bytes asked for, not what was given",
}
_NO_TIMES = "the events carry no times, as older versions of PyTorch wrote them: they stand in their order"
_NO_HISTORY = (
    f"the snapshot holds no history, only what was in use when it was written: call {_RECORD} before"
)
_NO_STACKS = f"no stacks were recorded: call {_RECORD} before"
_SOME_STACKS = (
    "{0} of {1} allocations have no stack that tells what they are for (with stacks='python' the backward "
    "pass has none)"
)


def read(path: Path, *, strict: bool) -> Trace:
    """Read a snapshot. Raises UnreadableError where it holds no block and no event, or more than plain data,
    and with `strict` for any damage."""
    size = path.stat().st_size
    if size > _LARGEST:
        raise UnreadableError(
            f"is a memory snapshot of more than {format_bytes(_LARGEST)}",
            where=str(path), next=f"Keep fewer events: {_RECORD}",
        )  # fmt: skip
    try:
        found, damage = plain(path.read_bytes())
    except NotPlainError as error:
        raise UnreadableError(
            f"is a pickle that holds more than plain data, and is not run: {error}", where=str(path),
            next="Write it with torch.cuda.memory._dump_snapshot(FILE)",
        ) from error  # fmt: skip
    if damage is not None and strict:
        raise UnreadableError(damage, where=str(path))
    made = _Snapshot(found, size, whole=damage is None)
    if not made.devices:
        why = damage or "the snapshot holds no block in use and no event of an allocator"
        raise UnreadableError(why, where=str(path), next=f"Call {_RECORD} before the training")
    return made.trace(TraceSource(path, "torch memory", size), () if damage is None else (damage,))


def _size(value: object) -> int:
    return value if type(value) is int and 0 <= value <= _LARGEST_BLOCK else -1


def _address(value: object) -> int:
    return value if type(value) is int and 0 <= value < limits.LARGEST_NUMBER else -1


def _dicts(value: object) -> list[dict[str, Any]]:
    return [one for one in value if type(one) is dict] if type(value) is list else []


def _first(value: object) -> dict[str, Any]:
    found = value[0] if type(value) is list and value else None
    return found if type(found) is dict else {}


@dataclass(frozen=True, slots=True)
class _Event:
    time_us: int
    free: bool
    bytes: int
    address: int
    stack: Stack


@dataclass(slots=True)
class _Device:
    """`events` in the order of time, those first that no history tells of; `reserved`: changes of what the
    allocator holds, each before the event at that place; `end_bytes` what is in use at the end, `held_bytes`
    what is held."""

    number: int
    events: list[_Event]
    reserved: list[tuple[int, int]] = field(default_factory=list)
    end_bytes: int = 0
    held_bytes: int = 0

    def live_bytes(self, *, whole: bool) -> Int64:
        """Return what is in use after each event: by what was at the end, of a history that is cut off by the
        least that it can have been."""
        total = np.cumsum([-one.bytes if one.free else one.bytes for one in self.events], dtype=np.int64)
        before = max(-int(total.min()), self.end_bytes - int(total[-1]) if whole else 0, 0)
        return limits.sizes(total + before, limits.LARGEST_MEMORY_BYTES)

    def reserved_bytes(self, *, whole: bool) -> Int64:
        """Return what the allocator holds after each event; -1 where the file does not tell."""
        changes = np.zeros(len(self.events) + 1, np.int64)
        np.add.at(changes, [at for at, _ in self.reserved], [by for _, by in self.reserved])
        total = np.cumsum(changes)
        held = total[:-1] + (self.held_bytes - total[-1])
        return np.where(
            (held >= 0) & (held <= limits.LARGEST_MEMORY_BYTES) & whole & (self.held_bytes > 0), held, -1
        )


class _Snapshot:
    def __init__(self, found: Any, size_bytes: int, *, whole: bool) -> None:
        held = {"segments": found} if type(found) is list else found if type(found) is dict else {}
        self.whole, self.left, self.unread = whole, min(_MOST_EVENTS, size_bytes // _LEAST_BYTES), 0
        self.stacks: dict[tuple[int, object], Stack] = {}
        self.said: list[str] = []
        self.devices: list[_Device] = []
        self.timed = self.history = False
        segments = self._some(held.get("segments"))
        traces = held.get("device_traces")
        traces = traces[: limits.MOST_DEVICES] if type(traces) is list else []
        by_device: dict[int, list[dict[str, Any]]] = {number: [] for number in range(len(traces))}
        for segment in segments:
            if 0 <= (number := _size(segment.get("device", 0))) < limits.MOST_DEVICES:
                by_device.setdefault(number, []).append(segment)
        for number, mine in sorted(by_device.items()):
            device = self._device(number, traces[number] if number < len(traces) else [], mine)
            self.devices += [device] if device.events else []

    def _some(self, found: object) -> list[dict[str, Any]]:
        """Return the last entries of a list, as many as the bound leaves: one list may stand in many places,
        so that all of them are looked at as often."""
        if type(found) is not list:
            return []
        kept = found[len(found) - min(self.left, len(found)) :]
        self.left -= len(kept)
        self.unread += len(found) - len(kept)
        return _dicts(kept)

    def _device(self, number: int, history: object, segments: list[dict[str, Any]]) -> _Device:
        events = self._some(history)
        freed = (
            "free_completed"
            if any(one.get("action") == "free_completed" for one in events)
            else "free_requested"
        )
        made, time_us = _Device(number, []), 0
        living: dict[int, int] = {}  # the place of the allocation, by address
        for one in events:
            action, size, time = one.get("action"), _size(one.get("size")), one.get("time_us")
            if type(time) is int and time_us < time < limits.LATEST_UNIX_NS // 1000:
                time_us, self.timed = time, True
            if action == "oom":
                self._out_of_memory(number, size, one.get("device_free"))
            elif type(action) is not str or size < 0:
                continue
            elif action in _SEGMENTS:
                made.reserved.append((len(made.events), _SEGMENTS[action] * size))
            elif action in ("alloc", freed):
                address = _address(one.get("addr"))
                if action == freed:
                    living.pop(address, None)
                else:
                    living[address] = len(made.events)
                self.history = True
                made.events.append(_Event(time_us, action == freed, size, address, self._stack(one)))
        if (
            not events or events[-1].get("action") != "oom"
        ):  # in the midst of an update temporaries are there, too
            _keep_slots(made.events, living)
        self._blocks(made, segments, living)
        return made

    def _blocks(self, made: _Device, segments: list[dict[str, Any]], living: dict[int, int]) -> None:
        """Add what is in use at the end, and before all events the blocks that no event tells of; where
        nothing but their size is known, they stay what was held before the history."""
        older = []
        first_us = made.events[0].time_us if made.events else 0
        for segment in segments:
            made.held_bytes += max(0, _size(segment.get("total_size")))
            address = _address(segment.get("address"))
            for block in self._some(segment.get("blocks")):
                past = _first(block.get("history"))  # PyTorch 1.12 and 1.13
                at = _address(block.get("address", address))
                address = at + max(0, _size(block.get("size"))) if at >= 0 else -1
                size = _size(block.get("requested_size", past.get("real_size", block.get("size"))))
                if block.get("state") == "inactive" or size < 0:
                    continue
                made.end_bytes += size
                if at in living:
                    continue
                found = self._stack(block if "frames" in block else past)
                if found.phase or not made.events:
                    older.append(_Event(first_us, False, size, at, found))
        made.events[:0] = older
        made.reserved = [(at + len(older), by) for at, by in made.reserved]

    def _stack(self, one: dict[str, Any]) -> Stack:
        frames, category = one.get("frames"), one.get("category")
        category = category if type(category) is str and category in CATEGORIES else None
        key = (id(frames), category)  # many events share one list
        if key not in self.stacks:
            self.stacks[key] = stack(frames, category)
        return self.stacks[key]

    def _out_of_memory(self, number: int, size: int, free: object) -> None:
        left = f", and the driver had {format_bytes(_size(free))} left" if _size(free) >= 0 else ""
        asked = (
            f"{format_bytes(size)} were asked for" if size >= 0 else "how much was asked for is not stated"
        )
        self.said.append(f"memory ran out on GPU {number}: {asked}{left}")

    def trace(self, source: TraceSource, damages: tuple[str, ...]) -> Trace:
        strings, ops = Interner(), dict[Stack, int]()
        events = [(device, one) for device in self.devices for one in device.events]
        time_ns = np.array([one.time_us for _, one in events], np.int64) * 1000
        if not self.timed:
            time_ns = np.concatenate([np.arange(len(one.events)) for one in self.devices])
        zero = int(time_ns.min())
        order = np.argsort(time_ns, kind="stable")
        live = np.concatenate([one.live_bytes(whole=self.whole) for one in self.devices])
        reserved = np.concatenate([one.reserved_bytes(whole=self.whole) for one in self.devices])
        row = [ops.setdefault(one.stack, len(ops)) if one.stack.phase else -1 for _, one in events]
        region = [strings(one.stack.region) if one.stack.region else -1 for _, one in events]
        names = [strings(f"GPU_{device.number}_caching") for device, _ in events]
        unread = (f"{self.unread} older events and blocks were left out",) if self.unread else ()
        return Trace(
            source=source,
            origin_unix_ns=limits.unix_ns(zero),
            strings=strings.texts(),
            devices=tuple(
                TraceDevice(f"/device:GPU:{one.number}", one.number, DeviceFacts("gpu"))
                for one in self.devices
            ),
            streams=(),
            threads=(),
            ops=tuple(Op(one.line, one.phase) for one in ops),
            kernels=table_of(KernelTable, 0),
            host=table_of(HostTable, 0),
            markers=table_of(MarkerTable, 0),
            allocations=table_of(
                AllocationTable,
                len(events),
                time_ns=(time_ns - zero)[order],
                free=np.array([one.free for _, one in events], np.bool_)[order],
                allocator=np.array(names, np.int32)[order],
                bytes=np.array([one.bytes for _, one in events], np.int64)[order],
                live_bytes=live[order],
                reserved_bytes=reserved[order],
                address=np.array([one.address for _, one in events], np.int64)[order],
                op=np.array(row, np.int32)[order],
                region=np.array(region, np.int32)[order],
                requested_bytes=None,
                fragmentation_ratio=None,
                thread=None,
            ),
            basis="device",
            warnings=(*damages, *unread, *self.said[-_MOST_SAID:]),
            missing=_MISSING | self._missing(),
        )

    def _missing(self) -> dict[str, str]:
        made = [one for device in self.devices for one in device.events if not one.free]
        untold = sum(one.stack.phase in ("", "code") and not one.stack.region for one in made)
        found = {} if self.history else {"history": _NO_HISTORY}
        if self.history and not self.timed:
            found = {"times": _NO_TIMES}
        if not any(one.stack.phase for one in made):
            return found | {"stacks": _NO_STACKS}
        return found | ({"stacks": _SOME_STACKS.format(untold, len(made))} if untold else {})


def _keep_slots(events: list[_Event], living: dict[int, int]) -> None:
    """Mark what an optimizer allocated and still holds when what it allocated later has been freed: it is no
    temporary. SGD makes its momentum so, and optimizers of one's own, outside of `_init_group`."""
    mine = [at for at, one in enumerate(events) if one.stack.phase == "optimizer" and not one.free]
    held = set(living.values())
    last = max((at for at in mine if at not in held), default=-1)
    for at in held.intersection(mine):
        one = events[at]
        if at < last and not one.stack.region:
            kept = Stack(one.stack.line, "optimizer", "persist")
            events[at] = _Event(one.time_us, False, one.bytes, one.address, kept)
