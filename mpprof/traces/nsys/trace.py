"""An export of Nsight Systems becomes a trace.

Tables and columns: the "SQLite Schema Reference" of NVIDIA's Nsight Systems documentation; a column that an
older or newer version lacks is missing, not wrong. Memory is about 4 times the file's size (170 MB for
39 MB); whatever the bytes say, it stays below 64 times that plus 100 MB.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np

from mpprof.errors import UnreadableError
from mpprof.model import limits
from mpprof.model.arrays import Bool, Int64, distinct
from mpprof.model.trace import KernelTable, MarkerTable, Trace, TraceDevice, TraceSource, WorkKind
from mpprof.traces.chrome.kineto import Collected, number_threads
from mpprof.traces.chrome.kineto_host import Ops, host_table, nest
from mpprof.traces.common.columns import replace as replace_column
from mpprof.traces.common.launches import join_launches
from mpprof.traces.nsys import device as nsys_device
from mpprof.traces.nsys.sqlite import ERRORS, Database, missing_bytes, opened, words
from mpprof.traces.xspace.allocations import allocation_table

RECORD = "Record with: nsys profile --trace=cuda,nvtx --cuda-graph-trace=node"

_PUSH_POP, _START_END = 59, 60
_STEP = re.compile(
    r"^(?:mpprof_step|ProfilerStep|Profiled batch|(?:train(?:ing)?[ _]?)?(?:step|iter(?:ation)?|batch))"
    r"(?:[ _#:=]*(?P<number>\d{1,18}))?$",
    re.IGNORECASE,
)
_TORCH_OP = re.compile(r"^(?P<name>[^,]{1,200}), (?:op_id|seq) = (?:-?\d+)")
_SEQUENCE = re.compile(r", seq = (\d{1,18})")
_HLO_OP = re.compile(r"#.*?hlo_op=([^,#]{1,200})")
_HLO_NAME = re.compile(r"[#,]name=([^,#]{1,500})")
_LONGEST_RANGE = 2000
"""Characters of a range's text that are looked at: XLA's hold an op's name and its place in the source."""
_VERSIONED = re.compile(r"_v\d+$")
_PROCESS = ~0xFFFFFF
"""A global thread id without its lower 24 bits is its process' global id."""


def read(path: Path, *, strict: bool) -> Trace:
    """Return an export as a trace. Raises UnreadableError where nothing usable is left, with `strict` for
    damage."""
    source = TraceSource(path, "nsys", path.stat().st_size, path.name.removesuffix(".sqlite") or None)
    try:
        with opened(path) as database:
            return _checked(*_read(database, source), strict=strict)
    except ERRORS as error:
        raise UnreadableError(
            f"no readable SQLite file: {'; '.join((*_cut(path), words(error)))}",
            where=str(path),
            next="Export the report again: nsys export --type sqlite",
        ) from error


def looks_like_trace(path: Path) -> bool:
    """Return whether a `.sqlite` file of any name is an export of Nsight Systems."""
    try:
        with opened(path) as database:
            return "StringIds" in database.tables
    except ERRORS:
        return False


def _cut(path: Path) -> list[str]:
    missing = missing_bytes(path)
    return [f"the file ends at byte {missing[0]} of {missing[1]}"] if missing else []


def _checked(trace: Trace, damages: list[str], *, strict: bool) -> Trace:
    where = str(trace.source.path)
    if damages and strict:
        raise UnreadableError(damages[0], where=where, next="Leave out --strict to read the intact part")
    if not (len(trace.kernels) or len(trace.host)):
        why = f"no event is left: {damages[0]}" if damages else "it holds no CUDA activity and no NVTX range"
        raise UnreadableError(why, where=where, next=RECORD)
    return replace(trace, warnings=(*damages, *trace.warnings))


def _read(database: Database, source: TraceSource) -> tuple[Trace, list[str]]:
    damages = _cut(database.path)
    if "StringIds" not in database.tables:
        raise UnreadableError(
            "is not an export of Nsight Systems: it has no table StringIds",
            where=str(database.path),
            next="Give the file that `nsys export --type sqlite` wrote",
        )
    found = Collected()
    work = nsys_device.read(database, found.strings)
    marks = _ranges(database, found)
    _calls(database, found, work.processes)
    number_threads(found)
    zero = min(work.first_ns, min(found.host.start_ns, default=work.first_ns))
    ops = Ops()
    nested = nest(found.host, ops, found.strings)
    host = host_table(found, nested)
    host = replace(host, start_ns=host.start_ns - zero)
    kernels = replace(work.kernels, start_ns=work.kernels.start_ns - zero)
    joined = join_launches(kernels, host, found.strings)
    kernels = joined.kernels
    hosts = _processes(found, work)
    damages += database.damages
    missing = _missing(found, work, marked=bool(marks), no_kernel=_why_no_kernel(database, kernels))
    trace = Trace(
        source=source,
        origin_unix_ns=_origin(database, zero),
        devices=_launched_by(work, hosts),
        streams=work.streams,
        threads=_thread_names(database, found),
        thread_hosts=hosts,
        ops=ops.table(),
        kernels=kernels,
        host=replace(host, kind=joined.kinds),
        markers=_markers(marks, found, zero),
        allocations=allocation_table(None, None),
        basis="device",
        strings=found.strings.texts(),
        warnings=(*work.warnings, *joined.warnings),
        missing=missing,
    )
    return trace, damages


def _missing(
    found: Collected, work: nsys_device.Work, *, marked: bool, no_kernel: str | None
) -> dict[str, str]:
    """Return why parts of a trace are not there. `marked`: a range names a step; `no_kernel`: why there is
    none."""
    missing = {
        "allocations": "Nsight Systems records no allocator of a framework (its own profiler does)",
        "hlo": "Nsight Systems records no compiled programs",
        "shapes": "NVTX ranges state no shapes and types of an op's inputs",
    }
    if not any(what in ("op", "range") for what in found.host.what):
        missing["ops"] = "no NVTX range: kernels have no op (record with --trace=cuda,nvtx)"
    if not marked:
        missing["markers"] = 'no NVTX range that names a step, such as "step 12"'
    if no_kernel:
        missing["kernels"] = no_kernel
    if not any(device.facts.name for device in work.devices):
        missing["facts"] = "the export states nothing of the card (no TARGET_INFO_GPU)"
    return missing


def _why_no_kernel(database: Database, kernels: KernelTable) -> str | None:
    """Return why the export holds no kernel; None where it holds some. An export has only the tables that
    something was recorded for."""
    if (kernels.kind == WorkKind.KERNEL).any():
        return None
    if nsys_device.KERNELS in database.tables:
        return f"the export's table of kernels ({nsys_device.KERNELS}) holds none that can be read"
    return (
        f"the export has no table of kernels ({nsys_device.KERNELS}): CUDA was not traced (--trace=cuda), or "
        "no kernel ran while it was"
    )


def _origin(database: Database, zero: int) -> int | None:
    """Return the Unix time of the trace's zero: the session's start is known on both clocks; older versions
    state it as 0."""
    start = database.numbers("TARGET_INFO_SESSION_START_TIME", ("utcEpochNs", "systemClockNs"))
    if not len(start["utcEpochNs"]) or start["utcEpochNs"][0] <= 0:
        return None
    return limits.unix_ns(int(start["utcEpochNs"][0]) + zero - max(0, int(start["systemClockNs"][0])))


# --- the host ----------------------------------------------------------------------------------------------


def _processes(found: Collected, work: nsys_device.Work) -> tuple[int, ...]:
    """Return the number of each thread's process; empty where there is only one, or where the export does not
    say which process launched a device's work."""
    owners = (_ids(found) & _PROCESS).tolist()
    numbers = tuple(work.processes.setdefault(owner, len(work.processes)) for owner in owners)
    return numbers if len(set(numbers)) > 1 and -1 not in work.owners else ()


def _launched_by(work: nsys_device.Work, hosts: tuple[int, ...]) -> tuple[TraceDevice, ...]:
    """Return the devices, each with its process: where several processes train, a device's steps are those of
    its own process."""
    if not hosts:
        return work.devices
    return tuple(replace(each, host=owner) for each, owner in zip(work.devices, work.owners, strict=True))


def _ids(found: Collected) -> Int64:
    return np.array([id for _, id in found.threads], np.int64)


def _thread_names(database: Database, found: Collected) -> tuple[str, ...]:
    ids = _ids(found).tolist()
    table = database.numbers("ThreadNames", ("globalTid", "nameId"))
    name_of = dict(zip(table["globalTid"].tolist(), table["nameId"].tolist(), strict=True))
    wanted = [name_of[id] for id in ids if id in name_of]
    texts = database.texts("StringIds", "id", "value", wanted)
    return tuple(f"{texts.get(name_of.get(id, -1)) or 'thread'} {id & 0xFFFFFF}".strip() for id in ids)


def _add(
    found: Collected, what: list[str], names: list[int], table: dict[str, Int64], keep: Int64,
    correlation: Int64 | None = None, sequence: dict[int, int] | None = None,
) -> None:  # fmt: skip
    """Add these rows of a table: what each is, the row of its name, and by place the sequence numbers."""
    rows, threads, absent = found.host, found.threads, [-1] * len(keep)
    rows.thread.extend(
        [threads.setdefault((None, tid), len(threads)) for tid in table["globalTid"][keep].tolist()]
    )
    rows.what.extend(what)
    rows.name.extend(names)
    rows.start_ns.extend(table["start"][keep].tolist())
    rows.duration_ns.extend((table["end"][keep] - table["start"][keep]).tolist())
    rows.correlation.extend(absent if correlation is None else correlation.tolist())
    rows.external.extend(absent)
    rows.shapes.extend(absent)
    for at, number in (sequence or {}).items():
        absent[at] = number
    rows.sequence.extend(absent)


def _usable(start: Int64, end: Int64) -> Bool:
    return np.asarray((start >= 0) & (start < limits.LONGEST_NS) & (end >= start) & (end < limits.LONGEST_NS))


def _calls(database: Database, found: Collected, processes: dict[int, int]) -> None:
    """Collect the calls of the CUDA runtime and driver, with the same correlation numbers as the kernels
    have."""
    table = database.numbers(
        "CUPTI_ACTIVITY_KIND_RUNTIME", ("start", "end", "globalTid", "correlationId", "nameId")
    )
    keep = np.flatnonzero(_usable(table["start"], table["end"]))
    ids = distinct(table["nameId"][keep])
    texts = database.texts("StringIds", "id", "value", ids.tolist())
    names = [found.strings(_VERSIONED.sub("", texts.get(id, "(unnamed call)"))) for id in ids.tolist()]
    process = nsys_device.process_numbers(
        table["globalTid"][keep] & _PROCESS, table["start"][keep], processes
    )
    numbers = nsys_device.correlations(table["correlationId"][keep], process)
    name = replace_column(table["nameId"][keep], ids, names, np.int64)
    _add(found, ["call"] * len(keep), name.tolist(), table, keep, correlation=numbers)


def _ranges(database: Database, found: Collected) -> list[tuple[int, int, int, int]]:
    """Collect the NVTX ranges: ops of PyTorch (`emit_nvtx`) and XLA, and scopes of any other source; return
    the steps among them, as (start, end, number, id of the thread)."""
    table = database.numbers("NVTX_EVENTS", ("start", "end", "eventType", "textId", "globalTid"))
    own = database.column("NVTX_EVENTS", "text", _LONGEST_RANGE)
    texts = database.texts("StringIds", "id", "value", set(table["textId"].tolist()))
    nested, crossing = table["eventType"] == _PUSH_POP, table["eventType"] == _START_END
    rows = np.flatnonzero((nested | crossing) & _usable(table["start"], table["end"]))
    marks: list[tuple[int, int]] = []  # row, number
    what: list[str] = []
    names: list[int] = []
    kept: list[int] = []
    sequences: dict[int, int] = {}
    columns = (column[rows].tolist() for column in (table["textId"], nested))
    for row, text, is_scope in zip(rows.tolist(), *columns, strict=True):
        name = (own[row] if row < len(own) else "") or texts.get(text, "")
        if not name:
            continue
        if match := _STEP.match(name):
            kind = "note"
            marks.append((row, -1 if match["number"] is None else int(match["number"])))
        elif not is_scope:
            kind, name = "span", name[:500]  # may cross others: no scope, but a step if asked for
        else:
            if ", seq" in name and (sequence := _SEQUENCE.search(name[:400])):
                sequences[len(kept)] = int(sequence[1])
            kind, name = _meaning(name)
        kept.append(row)
        what.append(kind)
        names.append(found.strings(name))
    _add(found, what, names, table, np.array(kept, np.int64), sequence=sequences)
    return [
        (int(table["start"][row]), int(table["end"][row]), number, int(table["globalTid"][row]))
        for row, number in marks
    ]


def _meaning(name: str) -> tuple[str, str]:
    """Return what a range is, and its name without numbers that only tell calls apart."""
    if ", " in name and (match := _TORCH_OP.match(name)):
        return "op", match["name"]
    if "hlo_op=" in name and (hlo := _HLO_OP.search(name[:_LONGEST_RANGE])):
        stated = _HLO_NAME.search(name[:_LONGEST_RANGE])
        return "range", stated[1] if stated else hlo[1]
    return "range", name[:500]


def _markers(marks: list[tuple[int, int, int, int]], found: Collected, zero: int) -> MarkerTable:
    numbered = sorted((*times, number, found.threads[None, tid]) for *times, number, tid in marks)
    columns = np.array(numbered, np.int64).reshape(-1, 4)
    family = found.strings("nvtx") if marks else -1
    return MarkerTable(
        number=columns[:, 2].copy(),
        start_ns=columns[:, 0] - zero,
        end_ns=columns[:, 1] - zero,
        thread=columns[:, 3].astype(np.int32),
        family=np.full(len(marks), family, np.int32),
        device=np.full(len(marks), -1, np.int32),
    )
