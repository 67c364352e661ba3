"""Devices, streams and what ran on them, from an export of Nsight Systems."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from mpprof.model.arrays import Int64, distinct, groups
from mpprof.model.device import DeviceFacts
from mpprof.model.limits import LONGEST_NS
from mpprof.model.trace import CopyKind, KernelTable, Stream, TraceDevice, WorkKind
from mpprof.traces.common import columns
from mpprof.traces.common.columns import Interner
from mpprof.traces.common.launches import take
from mpprof.traces.nsys.sqlite import Database

KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"

_COPIES = {
    1: ("MemcpyH2D", CopyKind.HOST_TO_DEVICE), 2: ("MemcpyD2H", CopyKind.DEVICE_TO_HOST),
    3: ("MemcpyH2A", CopyKind.HOST_TO_DEVICE), 4: ("MemcpyA2H", CopyKind.DEVICE_TO_HOST),
    5: ("MemcpyA2A", CopyKind.DEVICE_TO_DEVICE), 6: ("MemcpyA2D", CopyKind.DEVICE_TO_DEVICE),
    7: ("MemcpyD2A", CopyKind.DEVICE_TO_DEVICE), 8: ("MemcpyD2D", CopyKind.DEVICE_TO_DEVICE),
    9: ("MemcpyH2H", CopyKind.OTHER), 10: ("MemcpyP2P", CopyKind.PEER),
    11: ("Unified memory H2D", CopyKind.HOST_TO_DEVICE), 12: ("Unified memory D2H", CopyKind.DEVICE_TO_HOST),
    13: ("Unified memory D2D", CopyKind.PEER),
}  # fmt: skip
"""ENUM_CUDA_MEMCPY_OPER of the export (CUpti_ActivityMemcpyKind in cupti_activity.h)."""

_MEMORY = {0: "pageable", 1: "pinned", 2: "device", 3: "array", 4: "managed", 5: "device", 6: "managed"}
"""ENUM_CUDA_MEM_KIND of the export."""

_COMMON = ("start", "end", "deviceId", "contextId", "streamId", "correlationId", "globalPid")
_KERNEL = (
    *_COMMON, "demangledName", "shortName", "graphId", "registersPerThread", "staticSharedMemory",
    "dynamicSharedMemory", "gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ",
)  # fmt: skip


@dataclass
class Work:
    """The device's side of an export. `processes` numbers the processes for `correlations`; `owners` has, for
    each device, the process with most of its work. Times are the file's."""

    devices: tuple[TraceDevice, ...] = ()
    owners: tuple[int, ...] = ()
    streams: tuple[Stream, ...] = ()
    kernels: KernelTable = field(default_factory=lambda: _table([]))
    processes: dict[int, int] = field(default_factory=dict)
    first_ns: int = 0
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Part:
    """Rows of one table: its common columns, and what differs."""

    common: dict[str, Int64]
    kind: WorkKind
    name: Int64
    details: Int64
    copy: Int64
    bytes: Int64
    graph: Int64

    def __len__(self) -> int:
        return len(self.name)


def process_numbers(process: Int64, start: Int64, processes: dict[int, int]) -> Int64:
    """Return the number of each row's process. New ones are numbered in the order in which they began, as
    their ids say nothing, and added to `processes`."""
    ids = distinct(process)
    began = np.full(len(ids), LONGEST_NS)
    np.minimum.at(began, np.searchsorted(ids, process), start)
    for id in ids[np.argsort(began, kind="stable")].tolist():
        processes.setdefault(id, len(processes))
    return columns.replace(process, ids, [processes[id] for id in ids.tolist()], np.int64)


def correlations(numbers: Int64, process: Int64) -> Int64:
    """Return one number for each pair of process and correlation id, which is unique in its process only."""
    known = (numbers >= 0) & (numbers < 1 << 40) & (process < 1 << 20)
    return np.where(known, process << 40 | numbers, -1)


def read(database: Database, strings: Interner) -> Work:
    """Read kernels, copies, memsets and whole graphs of every device. The result is empty where the export
    has none."""
    parts = [
        _kernels(database, strings), _copies(database, strings), _memsets(database, strings),
        _graphs(database, strings),
    ]  # fmt: skip
    merged = {c: np.concatenate([part.common[c] for part in parts]) for c in _COMMON}
    start, end = merged["start"], merged["end"]
    good = (start >= 0) & (start < LONGEST_NS) & (end < LONGEST_NS) & (merged["deviceId"] >= 0)
    keep = np.flatnonzero(good)
    work = Work()
    if len(keep) < len(good):
        work.warnings.append(
            f"{len(good) - len(keep)} events have no usable time or device and were left out"
        )
    negative = int((end[keep] < start[keep]).sum())
    if negative:
        work.warnings.append(f"{negative} events have a negative duration, taken as 0")
    if len(parts[3]):
        work.warnings.append(
            f"{len(parts[3])} CUDA graphs were recorded as a whole: what ran in them is not known "
            "(record with --cuda-graph-trace=node)"
        )
    number = _gpu_numbers(database, merged, keep)
    work.devices = _devices(database, np.unique(number).tolist())
    ordinals = np.array([device.ordinal for device in work.devices], np.int64)
    device = np.searchsorted(ordinals, number)
    n = len(keep)

    def of(name: str) -> Int64:
        return np.concatenate([getattr(part, name) for part in parts])[keep]

    kind = np.concatenate([np.full(len(part), part.kind, np.int8) for part in parts])[keep]
    absent = np.full(n, -1)
    id = merged["globalPid"][keep]
    process = process_numbers(id, start[keep], work.processes)
    number = correlations(merged["correlationId"][keep], process)
    work.owners = _owners(device, np.where(id >= 0, process, -1), len(work.devices))
    stream, work.streams = _streams([device, process, merged["contextId"][keep], merged["streamId"][keep]])
    table = _table(
        [
            device, stream, start[keep], np.maximum(0, end[keep] - start[keep]), kind, of("name"), absent,
            number, absent, absent, of("details"), of("copy"), of("bytes"), of("graph"), absent,
        ]
    )  # fmt: skip
    work.kernels = take(table, np.lexsort((table.start_ns, table.device)))
    work.first_ns = int(table.start_ns.min()) if n else 0
    return work


def _table(values: Sequence[NDArray[np.integer]]) -> KernelTable:
    types = ("i4", "i4", "i8", "i8", "i1", "i4", "i4", "i8", "i4", "i4", "i4", "i1", "i8", "i8", "i8")
    values = values or [np.empty(0, np.int64)] * len(types)
    return KernelTable(*(value.astype(type) for value, type in zip(values, types, strict=True)))


# --- tables ------------------------------------------------------------------------------------------------


def _named(database: Database, ids: Int64, strings: Interner) -> Int64:
    """Return the rows of strings for ids of StringIds."""
    values = distinct(ids)
    texts = database.texts("StringIds", "id", "value", values.tolist())
    return columns.replace(
        ids, values, [strings(texts.get(id, "(name lost)")) for id in values.tolist()], np.int64
    )


def _kernels(database: Database, strings: Interner) -> _Part:
    table = database.numbers(KERNELS, _KERNEL)
    ids = np.where(table["demangledName"] >= 0, table["demangledName"], table["shortName"])
    dimensions = [table[c] for c in _KERNEL[10:]]
    group, first = groups(dimensions, len(ids))
    texts = [strings(_details([int(column[row]) for column in dimensions])) for row in first.tolist()]
    details = np.array(texts, np.int64)[group] if len(ids) else np.empty(0, np.int64)
    graph = np.where(table["graphId"] > 0, table["graphId"], -1)
    return _Part(
        {c: table[c] for c in _COMMON}, WorkKind.KERNEL, _named(database, ids, strings), details,
        np.full(len(ids), CopyKind.NONE, np.int64), np.full(len(ids), -1), graph,
    )  # fmt: skip


def _details(values: list[int]) -> str:
    """Return a kernel's details, spelled as in an xplane's `kernel_details`."""
    regs, static, dynamic, *sizes = values
    grid, block = (",".join(map(str, part)) for part in (sizes[:3], sizes[3:]))
    return f"regs:{regs} static_shared:{static} dynamic_shared:{dynamic} grid:{grid} block:{block}"


def _copies(database: Database, strings: Interner) -> _Part:
    columns_of_copies = (*_COMMON, "bytes", "copyKind", "srcKind", "dstKind")
    table = database.numbers("CUPTI_ACTIVITY_KIND_MEMCPY", columns_of_copies)
    kinds = distinct(table["copyKind"])
    known = [_COPIES.get(kind, ("Memcpy", CopyKind.OTHER)) for kind in kinds.tolist()]
    names = columns.replace(table["copyKind"], kinds, [strings(name) for name, _ in known], np.int64)
    ways = columns.replace(table["copyKind"], kinds, [int(way) for _, way in known], np.int64)
    none = np.full(len(names), -1)
    details = _memory_kinds(table, strings)
    return _Part({c: table[c] for c in _COMMON}, WorkKind.MEMCPY, names, details, ways, table["bytes"], none)


def _memory_kinds(table: dict[str, Int64], strings: Interner) -> Int64:
    """Return between which kinds of memory each copy goes, spelled as in an xplane's `memcpy_details`."""
    group, first = groups([table["srcKind"], table["dstKind"]], len(table["srcKind"]))
    pairs = zip(table["srcKind"][first].tolist(), table["dstKind"][first].tolist(), strict=True)
    texts = [
        strings(f"kind_src:{_MEMORY[source]} kind_dst:{_MEMORY[target]}")
        if source in _MEMORY and target in _MEMORY
        else -1
        for source, target in pairs
    ]
    return np.array(texts, np.int64)[group] if len(group) else np.empty(0, np.int64)


def _memsets(database: Database, strings: Interner) -> _Part:
    table = database.numbers("CUPTI_ACTIVITY_KIND_MEMSET", (*_COMMON, "bytes"))
    n = len(table["bytes"])
    none = np.full(n, -1)
    name = np.full(n, strings("Memset") if n else -1)
    return _Part({c: table[c] for c in _COMMON}, WorkKind.MEMSET, name, none, none, table["bytes"], none)


def _graphs(database: Database, strings: Interner) -> _Part:
    """Return the graphs that were traced as one interval: their kernels are in no table."""
    table = database.numbers("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", (*_COMMON, "graphId"))
    n = len(table["graphId"])
    none = np.full(n, -1)
    name = np.full(n, strings("(CUDA graph as a whole)") if n else -1)
    graph = np.maximum(0, table["graphId"])
    return _Part({c: table[c] for c in _COMMON}, WorkKind.KERNEL, name, none, none, none, graph)


# --- devices -----------------------------------------------------------------------------------------------


def _gpu_numbers(database: Database, merged: dict[str, Int64], keep: Int64) -> Int64:
    """Return the machine's number of each row's card: a process may see its cards under numbers of its
    own."""
    own, process = merged["deviceId"][keep], (merged["globalPid"][keep] >> 24) & 0xFFFFFF
    table = database.numbers("TARGET_INFO_CUDA_DEVICE", ("gpuId", "cudaId", "pid"))
    gpu_of = {
        (pid, cuda): gpu
        for gpu, cuda, pid in zip(*(table[c].tolist() for c in ("gpuId", "cudaId", "pid")), strict=True)
        if gpu >= 0
    }
    if not gpu_of:
        return own
    pairs = zip(process.tolist(), own.tolist(), strict=True)
    return np.array([gpu_of.get(pair, pair[1]) for pair in pairs], np.int64)


def _devices(database: Database, used: list[int]) -> tuple[TraceDevice, ...]:
    """Return the cards that did something, all of them where none did."""
    table = database.numbers(
        "TARGET_INFO_GPU",
        ("id", "computeMajor", "computeMinor", "totalMemory", "smCount", "clockRate", "memoryBandwidth"),
    )
    names = database.texts("TARGET_INFO_GPU", "id", "name")
    row_of = {id: row for row, id in enumerate(table["id"].tolist()) if id >= 0}
    driver = _driver(database)
    found = []
    for ordinal in used or sorted(row_of)[:64]:
        row = row_of.get(ordinal)
        facts = DeviceFacts(kind="gpu", vendor="nvidia", driver=driver)
        if row is not None:
            value = {c: int(table[c][row]) if table[c][row] > 0 else None for c in table}
            major = value["computeMajor"]
            facts = DeviceFacts(
                kind="gpu",
                name=names.get(ordinal) or None,
                vendor="nvidia",
                compute_capability=(major, max(0, int(table["computeMinor"][row]))) if major else None,
                memory_bytes=value["totalMemory"],
                sm_count=value["smCount"],
                sm_clock_khz=value["clockRate"] // 1000 if value["clockRate"] else None,
                memory_bandwidth_bytes_per_s=float(value["memoryBandwidth"])
                if value["memoryBandwidth"]
                else None,
                driver=driver,
            )
        found.append(TraceDevice(f"/device:GPU:{ordinal}", ordinal, facts))
    return tuple(found)


def _driver(database: Database) -> str | None:
    names = database.column("TARGET_INFO_SYSTEM_ENV", "name")
    values = database.column("TARGET_INFO_SYSTEM_ENV", "value")
    return dict(zip(names, values, strict=False)).get("NvDriverVersion") or None


def _owners(device: Int64, process: Int64, count: int) -> tuple[int, ...]:
    """Return the number of the process that launched most of each device's work, the first of several with
    equal amounts; -1 where nothing ran or where older versions name none."""
    pair, first = groups((device, process), len(process))
    order = np.lexsort((process[first], -np.bincount(pair, minlength=len(first)), device[first]))
    of, at = np.unique(device[first[order]], return_index=True)
    owners = np.full(count, -1, np.int64)
    owners[of] = process[first[order[at]]]
    return tuple(owners.tolist())


def _streams(parts: Sequence[Int64]) -> tuple[Int64, tuple[Stream, ...]]:
    """Return the streams by device, process and context: a stream's number is unique only within these."""
    group, first = groups(parts, len(parts[0]))
    device, number = (parts[at][first].tolist() for at in (0, 3))
    return group, tuple(Stream(one, id, f"stream {id}") for one, id in zip(device, number, strict=True))
