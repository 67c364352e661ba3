"""Traces put together by hand: each kernel and each host event where a test wants it, in nanoseconds.

    b = TraceBuilder()
    b.marker(1, 0, 100)
    b.kernel("gemm", 10, 60, family="gemm", placement="tensor_core", precision="fp16")
    trace, placements, ownership = b.build(), b.placements(), b.ownership()

A kernel is launched by an event of its own on the thread "main" just before it starts, unless `launch` says
when, or is None.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mpprof.analysis.layers.attribution import Ownership
from mpprof.model.account import PHASES, Phase
from mpprof.model.device import DeviceFacts
from mpprof.model.kernels import Family, Placement, Placements, Precision, Reason, Verdict
from mpprof.model.trace import (
    AllocationTable,
    CopyKind,
    HostKind,
    HostTable,
    KernelTable,
    MarkerTable,
    Op,
    Stream,
    Trace,
    TraceDevice,
    TraceSource,
    WorkKind,
)

MAIN = "main"
_BEFORE_START = "just before"
_KERNEL_TYPES = (
    "i4", "i4", "i8", "i8", "i1", "i4", "i4", "i8", "i4", "i4", "i4", "i1", "i8", "i8", "i8",
)  # fmt: skip
_HOST_TYPES = ("i4", "i8", "i8", "i1", "i4", "i4", "i8")
_MARKER_TYPES = ("i8", "i8", "i8", "i4", "i4")
_ALLOCATION_TYPES = (
    "i8",
    "?",
    "i4",
    "i8",
    "i8",
    "i8",
    "i8",
    "i8",
    "i8",
    "i4",
    "i4",
    "i4",
    "i4",
    "i8",
    "f8",
    "i4",
)


@dataclass
class _Names:
    rows: dict[Any, int] = field(default_factory=dict)

    def __call__(self, key: Any) -> int:
        return -1 if key is None else self.rows.setdefault(key, len(self.rows))


@dataclass
class TraceBuilder:
    """Collects rows; `build()` sorts them as a reader would."""

    basis: str = "device"
    planes: tuple[str, ...] = ("/device:GPU:0",)
    facts: DeviceFacts = field(default_factory=lambda: DeviceFacts("gpu", "Tesla V100", "nvidia", (7, 0)))
    _strings: _Names = field(default_factory=_Names)
    _threads: _Names = field(default_factory=_Names)
    _streams: _Names = field(default_factory=_Names)
    _ops: _Names = field(default_factory=_Names)
    _verdicts: _Names = field(default_factory=_Names)
    _owners: dict[int, tuple[str | None, Phase]] = field(default_factory=dict)
    _kernels: list[dict[str, Any]] = field(default_factory=list)
    _host: list[tuple[int, ...]] = field(default_factory=list)
    _markers: list[tuple[int, ...]] = field(default_factory=list)
    _allocations: list[tuple[Any, ...]] = field(default_factory=list)

    def kernel(
        self,
        name: str,
        start: int,
        end: int,
        *,
        stream: int = 0,
        device: int = 0,
        family: Family = "elementwise",
        placement: Placement = "not_matmul",
        precision: Precision = "fp32",
        op: str | None = None,
        op_type: str = "",
        layer: str | None = None,
        phase: Phase = "other",
        launch: tuple[int, int] | str | None = _BEFORE_START,
        thread: str = MAIN,
        kind: WorkKind = WorkKind.KERNEL,
        graph: int = -1,
        group: int = -1,
        bytes: int = -1,
        reason: str = "test",
        copy: CopyKind = CopyKind.NONE,
    ) -> None:
        """`launch` is when the host's call began and returned."""
        owner = self._ops((op, op_type)) if op is not None else -1
        if owner >= 0:
            self._owners[owner] = (layer, phase)
        correlation = len(self._kernels) + 1
        if launch == _BEFORE_START:
            launch = (start - 1, start)
        if isinstance(launch, tuple):
            of = HostKind.LAUNCH if kind is WorkKind.KERNEL else HostKind.COPY
            self.event(of, *launch, thread=thread, name="launch", correlation=correlation)
        verdict = Verdict(placement, precision, family, Reason(reason, "said by the test"))
        self._kernels.append(
            {
                "device": device, "stream": self._streams((device, stream)), "start_ns": start,
                "duration_ns": end - start, "kind": kind, "name": self._strings(name), "op": owner,
                "correlation": correlation if launch is not None else -1, "launch": -1, "shapes": -1,
                "details": -1, "copy": copy,
                "bytes": bytes, "graph": graph, "group": group, "verdict": self._verdicts(verdict),
            }
        )  # fmt: skip

    def copy(self, start: int, end: int, *, way: CopyKind = CopyKind.OTHER, **more: Any) -> None:
        self.kernel("Memcpy", start, end, kind=WorkKind.MEMCPY, family="copy", copy=way, **more)

    def event(
        self,
        kind: HostKind,
        start: int,
        end: int,
        *,
        thread: str = MAIN,
        name: str = "",
        correlation: int = -1,
        op: str | None = None,
    ) -> None:
        row, of = self._threads(thread), self._ops((op, "")) if op is not None else -1
        self._host.append((row, start, end - start, kind, self._strings(name or kind.name), of, correlation))

    def marker(
        self, number: int, start: int, end: int, *, family: str = "mpprof", thread: str | None = MAIN
    ) -> None:
        self._markers.append((number, start, end, self._threads(thread), self._strings(family)))

    def allocation(
        self,
        time: int,
        size: int,
        live: int,
        *,
        address: int = -1,
        free: bool = False,
        allocator: str = "GPU_0_bfc",
        dtype: str | None = None,
        op: str | None = None,
        layer: str | None = None,
        phase: Phase = "other",
        region: str | None = None,
        shape: str | None = None,
        requested: int = -1,
        thread: str | None = None,
    ) -> None:
        owner = self._ops((op, "")) if op is not None else -1
        if owner >= 0:
            self._owners[owner] = (layer, phase)
        names = [self._strings(text) for text in (allocator, dtype, region, shape)]
        self._allocations.append(
            (
                time,
                free,
                names[0],
                size,
                live,
                -1,
                -1,
                -1,
                address,
                names[1],
                names[3],
                owner,
                names[2],
                requested,
                np.nan,
                self._threads(thread),
            )
        )

    def _sorted_kernels(self) -> list[dict[str, Any]]:
        return sorted(self._kernels, key=lambda row: (row["device"], row["start_ns"]))

    def build(self) -> Trace:
        host = sorted(self._host, key=lambda row: (row[0], row[1], -row[2]))
        launches = {row[6]: at for at, row in enumerate(host) if row[6] >= 0}
        kernels = [{**row, "launch": launches.get(row["correlation"], -1)} for row in self._sorted_kernels()]
        fields = KernelTable.__slots__
        markers = sorted(self._markers, key=lambda row: row[1])
        allocations = sorted(self._allocations, key=lambda row: row[0])
        return Trace(
            source=TraceSource(Path("by-hand.xplane.pb"), "xspace", 0),
            origin_unix_ns=None,
            strings=tuple(self._strings.rows),
            devices=tuple(TraceDevice(plane, row, self.facts) for row, plane in enumerate(self.planes)),
            streams=tuple(Stream(d, n, f"Stream #{n}") for d, n in self._streams.rows),
            threads=tuple(self._threads.rows),
            ops=tuple(Op(name, type) for name, type in self._ops.rows),
            kernels=KernelTable(
                *(
                    np.array([row[f] for row in kernels], t)
                    for f, t in zip(fields, _KERNEL_TYPES, strict=True)
                )
            ),
            host=HostTable(*_columns(host, _HOST_TYPES)),
            markers=MarkerTable(*_columns(markers, _MARKER_TYPES)),
            allocations=AllocationTable(*_columns(allocations, _ALLOCATION_TYPES)),
            basis=self.basis,
        )

    def placements(self) -> Placements:
        """What each kernel was said to be."""
        index = np.array([row["verdict"] for row in self._sorted_kernels()], np.int32)
        return Placements(tuple(self._verdicts.rows), index)

    def ownership(self) -> Ownership:
        """The layer and phase that each op was said to have."""
        layers = _Names()
        owners = [self._owners.get(row, (None, "other")) for row in range(len(self._ops.rows))]
        layer = np.array([layers(name) for name, _ in owners], np.int32)
        phase = np.array([PHASES.index(phase) for _, phase in owners], np.int8)
        return Ownership(tuple(layers.rows), layer, phase)


def _columns(rows: list[tuple[Any, ...]], types: tuple[str, ...]) -> list[Any]:
    return [np.array([row[i] for row in rows], kind) for i, kind in enumerate(types)]
