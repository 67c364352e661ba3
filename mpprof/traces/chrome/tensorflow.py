"""What TensorFlow and JAX export for the trace viewer (`*.trace.json.gz`): processes are devices.

Process and thread names: tsl/profiler `xplane_to_trace_events.cc` and `trace_events_to_json.cc`; of
TensorFlow 1 (`/device:GPU:0/stream:all Compute`): tensorflow/python/client/timeline.py. Numbers in `args` may
be written as text. It is a lossy export of the xplane file beside it, which is read where there is one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from mpprof.model.arrays import Int64
from mpprof.model.device import DeviceFacts
from mpprof.model.trace import (
    CopyKind,
    HostKind,
    HostTable,
    KernelTable,
    MarkerTable,
    Stream,
    Trace,
    TraceDevice,
    TraceSource,
    WorkKind,
)  # fmt: skip
from mpprof.traces.chrome.json import Event, nanoseconds
from mpprof.traces.chrome.kineto import clean, whole
from mpprof.traces.common import columns
from mpprof.traces.common.columns import Interner
from mpprof.traces.common.hlo import Modules
from mpprof.traces.common.launches import join_launches, take
from mpprof.traces.common.names import (
    DETAILS,
    OP,
    SHAPES,
    TPU_WORK_LINES,
    bytes_of,
    copy_kind_of_details,
    derived_name,
    function_family,
    host_kind,
    is_derived,
)
from mpprof.traces.common.ops import Ops
from mpprof.traces.xspace import cpu
from mpprof.traces.xspace.allocations import allocation_table
from mpprof.traces.xspace.devices import work_kind
from mpprof.traces.xspace.host_planes import Host

Key = tuple[object, object]
_Device = tuple[str, str, int]

_DEVICE = re.compile(r"/device:(?P<kind>GPU|TPU):(?P<ordinal>\d{1,9})(?:/(?P<stream>stream:\w+))?")
_MARKER = re.compile(r"^(?:Profiled batch (?P<batch>\d{1,18})$|mpprof_step\b|TraceContext\b|train\b)")
_EXPORTED = 1_000_000
"""Events that the exporters keep by default (`TF_PROFILER_TRACE_VIEWER_MAX_EVENTS`)."""


@dataclass
class _Rows:
    """Intervals in the order of the file; texts are kept in `args` as interned rows."""

    key: list[int] = field(default_factory=list)  # which (process, thread)
    name: list[int] = field(default_factory=list)
    start_ns: list[int] = field(default_factory=list)
    duration_ns: list[int] = field(default_factory=list)
    correlation: list[int] = field(default_factory=list)
    group: list[int] = field(default_factory=list)
    step: list[int] = field(default_factory=list)
    op: list[int] = field(default_factory=list)
    shapes: list[int] = field(default_factory=list)
    details: list[int] = field(default_factory=list)
    kind: list[int] = field(default_factory=list)
    copy: list[int] = field(default_factory=list)
    bytes: list[int] = field(default_factory=list)


@dataclass
class _Collected:
    strings: Interner
    ops: Ops
    rows: _Rows = field(default_factory=_Rows)
    keys: dict[Key, int] = field(default_factory=dict)
    processes: dict[object, str] = field(default_factory=dict)
    threads: dict[Key, str] = field(default_factory=dict)
    timeless: int = 0
    unpaired: int = 0


def assemble(events: Iterable[Event], source: TraceSource) -> Trace:
    """Return the trace, its times counted from its first event."""
    strings = Interner()
    found = _Collected(strings, Ops(Modules(()), strings))
    for event in events:
        phase = event.get("ph")
        if phase == "X":
            _interval(found, event)
        elif phase == "M":
            _label(found, event)
        elif phase in ("B", "E"):
            found.unpaired += 1
    zero = min(found.rows.start_ns, default=0)
    roles = _roles(found)
    devices, streams, kernels = _device_side(found, roles, zero)
    host, marks = _host_side(found, roles, zero)
    names = tuple(found.threads.get(key) or clean(f"thread {key[1]}") for key in found.keys)
    missing = {
        "facts": "the export for the trace viewer states nothing of the card",
        "allocations": "the export for the trace viewer holds no allocator events (an .xplane.pb does)",
        "hlo": "the export for the trace viewer holds no compiled programs",
    }
    basis = "device" if devices else "host"
    unjoined: tuple[str, ...] = ()
    if devices:
        joined = join_launches(kernels, host, strings)
        kernels, host, unjoined = joined.kernels, replace(host, kind=joined.kinds), joined.warnings
    else:
        whole_host = Host(host, names, tuple(range(len(names))), allocation_table(None, None), None)
        kernels, streams = cpu.kernels(whole_host, found.ops, strings)
        devices = (TraceDevice("/host:CPU", 0, DeviceFacts(kind="cpu")),)
        missing["device"] = "no accelerator in this trace: kernels are the ops of the host's executor"
    return Trace(
        source=source,
        origin_unix_ns=None,
        devices=devices,
        streams=streams,
        threads=names,
        ops=found.ops.table(),
        kernels=kernels,
        host=host,
        markers=marks,
        allocations=allocation_table(None, None),
        basis=basis,
        strings=strings.texts(),
        warnings=(*_warnings(found), *unjoined),
        missing=missing,
    )


def _warnings(found: _Collected) -> list[str]:
    said = []
    if len(found.rows.key) >= _EXPORTED:
        said.append(
            f"the export for the trace viewer is cut to {_EXPORTED:,} events: what is missing is not known; "
            "the *.xplane.pb file of the same session holds them all"
        )
    if found.timeless:
        said.append(f"{found.timeless} events have no usable time and were left out")
    if found.unpaired:
        said.append(f"{found.unpaired} events state only a begin or an end (ph B, E) and were left out")
    return said


# --- events ------------------------------------------------------------------------------------------------


def _hashable(value: object) -> object:
    return value if isinstance(value, (int, str)) else None


def _label(found: _Collected, event: Event) -> None:
    args = event.get("args")
    name = args.get("name") if isinstance(args, dict) else None
    if not isinstance(name, str):
        return
    pid = _hashable(event.get("pid"))
    if event.get("name") == "process_name":
        found.processes[pid] = clean(name)
    elif event.get("name") == "thread_name":
        found.threads[pid, _hashable(event.get("tid"))] = clean(name)


def _interval(found: _Collected, event: Event) -> None:
    start, duration = nanoseconds(event.get("ts")), nanoseconds(event.get("dur", 0))
    name, args = event.get("name"), event.get("args")
    if start is None or duration is None:
        found.timeless += 1
        return
    args = args if isinstance(args, dict) else {}
    full = _text(args, "long_name") or (name if isinstance(name, str) else "")
    copies, sets = _text(args, "memcpy_details"), _text(args, "memset_details")
    kind, way = work_kind(full, has_copy=bool(copies), has_set=bool(sets))
    if kind is WorkKind.MEMCPY and way is CopyKind.OTHER:
        way = copy_kind_of_details(copies) or way
    hlo = _text(args, "hlo_op")
    stated = _text(args, "tf_op") or _text(args, "annotation") or _text(args, "level 0")
    # An op of the host goes by its own name; XLA's `name` is the op's only beside an HLO op.
    own = full if OP.match(full) and "::" not in full else ""
    op = found.ops.resolve(
        stated or own, "", _text(args, "name") if hlo else "", hlo, _text(args, "hlo_module"),
        whole(args.get("program_id")),
    )  # fmt: skip
    rows = found.rows
    key = (_hashable(event.get("pid")), _hashable(event.get("tid")))
    rows.key.append(found.keys.setdefault(key, len(found.keys)))
    rows.name.append(found.strings(clean(full)))
    rows.start_ns.append(start)
    rows.duration_ns.append(max(0, duration))
    rows.correlation.append(whole(args.get("correlation_id", args.get("correlation id"))))
    rows.group.append(whole(args.get("group_id")))
    rows.step.append(_step(full, args))
    rows.op.append(op)
    rows.shapes.append(_interned(found, args, SHAPES))
    rows.details.append(_interned(found, args, DETAILS))
    rows.kind.append(kind)
    rows.copy.append(way)
    rows.bytes.append(bytes_of(copies or sets) if kind is not WorkKind.KERNEL else -1)


def _text(args: dict[str, Any], key: str) -> str:
    value = args.get(key)
    return clean(value) if isinstance(value, str) else ""


def _interned(found: _Collected, args: dict[str, Any], keys: Sequence[str]) -> int:
    for key in keys:
        if text := _text(args, key):
            return found.strings(text)
    return -1


def _step(name: str, args: dict[str, Any]) -> int:
    match = _MARKER.match(name)
    if match is None:
        return -1
    return int(match["batch"]) if match["batch"] else whole(args.get("step_num"))


# --- who is what -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Role:
    """What a (process, thread) is. `device` is (task, kind, ordinal), None for the host."""

    device: _Device | None
    work: bool  # a stream of that device
    steps: bool = False  # its derived `Steps` line


def _roles(found: _Collected) -> list[_Role]:
    """Return one role for each key. Of TensorFlow 1's processes only those that name a stream are used, and
    of these the one of all streams, which holds what the others hold."""
    matches = {pid: _DEVICE.search(name) for pid, name in found.processes.items()}
    tasks = {match.string[: match.start()] for match in matches.values() if match} - {""}

    def device_of(match: re.Match[str]) -> _Device:
        # TensorFlow 1 gives one task's devices with its name and their streams without.
        task = match.string[: match.start()] if len(tasks) > 1 else ""
        return task, match["kind"], int(match["ordinal"])

    streams: dict[_Device, set[str]] = {}
    for match in matches.values():
        if match and match["stream"]:
            streams.setdefault(device_of(match), set()).add(match["stream"])
    roles = []
    for pid, tid in found.keys:
        match = matches.get(pid)
        if match is None:
            roles.append(_Role(None, False))
            continue
        device = device_of(match)
        thread = found.threads.get((pid, tid), "")
        named = streams.get(device)
        if named:
            work = match["stream"] == ("stream:all" if "stream:all" in named else match["stream"])
            roles.append(_Role(device, bool(match["stream"]) and work))
        else:
            derived = is_derived(tid if isinstance(tid, int) else 0, thread)
            work = not derived or (match["kind"] == "TPU" and thread in TPU_WORK_LINES)
            roles.append(_Role(device, work, steps=derived_name(thread) == "Steps"))
    return roles


def _device_side(
    found: _Collected, roles: list[_Role], zero: int
) -> tuple[tuple[TraceDevice, ...], tuple[Stream, ...], KernelTable]:
    shown = {device: row for row, device in enumerate(sorted({role.device for role in roles if role.device}))}
    devices = tuple(
        TraceDevice(
            f"{clean(task)}/device:{kind}:{ordinal}",
            ordinal,
            DeviceFacts(kind="tpu" if kind == "TPU" else "gpu"),
        )
        for task, kind, ordinal in shown
    )
    streams: list[Stream] = []
    stream_of = np.full(len(roles) + 1, -1, np.int32)
    for row, ((pid, tid), role) in enumerate(zip(found.keys, roles, strict=True)):
        if role.device and role.work:
            stream_of[row] = len(streams)
            name = found.threads.get((pid, tid)) or clean(f"stream {tid}")
            streams.append(Stream(shown[role.device], tid if isinstance(tid, int) else row, name))
    rows = found.rows
    key = np.array(rows.key, np.int64)
    at = np.flatnonzero(stream_of[key] >= 0)
    stream = stream_of[key[at]]
    device = np.array([one.device for one in streams] or [0], np.int32)[stream]
    n = len(at)
    table = KernelTable(
        device=device,
        stream=stream,
        start_ns=np.array(rows.start_ns, np.int64)[at] - zero,
        duration_ns=np.array(rows.duration_ns, np.int64)[at],
        kind=np.array(rows.kind, np.int8)[at],
        name=np.array(rows.name, np.int32)[at],
        op=np.array(rows.op, np.int32)[at],
        correlation=np.array(rows.correlation, np.int64)[at],
        launch=np.full(n, -1, np.int32),
        shapes=np.array(rows.shapes, np.int32)[at],
        details=np.array(rows.details, np.int32)[at],
        copy=np.array(rows.copy, np.int8)[at],
        bytes=np.array(rows.bytes, np.int64)[at],
        graph=np.full(n, -1, np.int64),
        group=np.array(rows.group, np.int64)[at],
    )
    table = take(table, np.lexsort((-table.duration_ns, table.start_ns, table.stream)))
    # a TPU's op line holds loops around the ops they run
    tpu = np.array([device.facts.kind == "tpu" for device in devices] or [False], np.bool_)[table.device]
    keep = ~tpu | columns.leaves(table.start_ns, table.duration_ns, table.stream)
    table = take(table, np.flatnonzero(keep))
    return devices, tuple(streams), take(table, np.lexsort((table.start_ns, table.device)))


def _host_side(found: _Collected, roles: list[_Role], zero: int) -> tuple[HostTable, MarkerTable]:
    rows = found.rows
    key = np.array(rows.key, np.int64)
    on_host = np.array([role.device is None for role in roles] + [False], np.bool_)
    at = np.flatnonzero(on_host[key])
    start, duration = np.array(rows.start_ns, np.int64), np.array(rows.duration_ns, np.int64)
    at = at[np.lexsort((-duration[at], start[at], key[at]))]
    texts = found.strings.texts()
    name = np.array(rows.name, np.int32)[at]
    step = np.array(rows.step, np.int64)[at]
    marking = {row: bool(_MARKER.match(texts[row])) for row in set(name.tolist())}
    kinds = {row: host_kind(texts[row]) for row in marking}
    kind = np.array([kinds[row] for row in name.tolist()], np.int8)
    op = np.array(rows.op, np.int32)[at]
    kind[(kind == HostKind.OTHER) & (op >= 0)] = HostKind.OP
    marked = np.array([marking[row] for row in name.tolist()], np.bool_) & (step >= 0)
    kind[marked] = HostKind.MARKER
    table = HostTable(
        thread=key[at].astype(np.int32),
        start_ns=start[at] - zero,
        duration_ns=duration[at],
        kind=kind,
        name=name,
        op=op,
        correlation=np.array(rows.correlation, np.int64)[at],
    )
    return table, _markers(found, roles, table, step, zero)


def _markers(found: _Collected, roles: list[_Role], host: HostTable, step: Int64, zero: int) -> MarkerTable:
    texts = found.strings.texts()
    called = np.array([function_family(text) is not None for text in texts], np.bool_)
    rows = np.flatnonzero((host.kind == HostKind.MARKER) | called[host.name])
    family = [found.strings(_family(texts[row])) for row in host.name[rows].tolist()]
    thread = host.thread[rows].astype(np.int64).tolist()
    begin, length = host.start_ns[rows].tolist(), host.duration_ns[rows].tolist()
    marks = list(zip(begin, length, step[rows].tolist(), thread, family, [-1] * len(rows), strict=True))
    shown = {device: row for row, device in enumerate(sorted({role.device for role in roles if role.device}))}
    for at, key in enumerate(found.rows.key):
        role = roles[key]
        if role.steps and role.device is not None:
            number = whole(texts[found.rows.name[at]])
            marks.append(
                (
                    found.rows.start_ns[at] - zero, found.rows.duration_ns[at], number, -1,
                    found.strings("steps_line"), shown[role.device],
                )
            )  # fmt: skip
    marks.sort()
    columns_ = np.array(marks, np.int64).reshape(-1, 6)
    return MarkerTable(
        number=columns_[:, 2].copy(),
        start_ns=columns_[:, 0].copy(),
        end_ns=columns_[:, 0] + columns_[:, 1],
        thread=columns_[:, 3].astype(np.int32),
        family=columns_[:, 4].astype(np.int32),
        device=columns_[:, 5].astype(np.int32),
    )


def _family(name: str) -> str:
    if name.startswith("mpprof_step"):
        return "mpprof"
    return "keras" if name.startswith("Profiled batch") else function_family(name) or "tensorflow"
