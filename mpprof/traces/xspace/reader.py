"""XSpace, the profile of TensorFlow, JAX and XLA (`*.xplane.pb`), read without protobuf.

Field and stat names: tsl/profiler/protobuf/xplane.proto and xprof/utils/xplane_schema.h. Memory stays
below 64 times the file's size plus 100 MB, whatever the bytes say. Of a gzip file it is the size of what it
unpacks to, which is held once and is at most MAX_RATIO times the file's.
"""

from __future__ import annotations

import mmap
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from io import BufferedReader
from pathlib import Path
from threading import Thread
from typing import TypeVar

import numpy as np

from mpprof.errors import UnreadableError
from mpprof.model import limits
from mpprof.model.arrays import Bytes
from mpprof.model.device import DeviceFacts, DeviceKind, Vendor
from mpprof.model.quantities import first_of
from mpprof.model.trace import KernelTable, Stream, Trace, TraceDevice, TraceSource
from mpprof.traces.common import walk
from mpprof.traces.common.columns import Interner
from mpprof.traces.common.file_head import Kind, Reader
from mpprof.traces.common.hlo import Modules
from mpprof.traces.common.launches import Hosts, join_launches
from mpprof.traces.common.names import ACCELERATOR, ENVIRONMENT, is_read
from mpprof.traces.common.ops import Ops
from mpprof.traces.common.planes import RawPlane, RawSpace, read_space
from mpprof.traces.xspace import host_planes, profiles
from mpprof.traces.xspace.devices import DeviceReader, kernel_table, with_instructions
from mpprof.traces.xspace.events import Walked

SLOW_BYTES = 4 << 20
"""From here on it is said if the walk is not compiled."""
BESIDE_BYTES = 8 << 20
"""From here on the planes of hosts are walked in a thread of their own."""

MAX_UNPACKED = 1 << 32
MAX_RATIO = limits.XPLANE_UNPACKED_RATIO
"""A gzip file that unpacks to more than this many times its size is taken for a bomb. What
it unpacks to is held in memory: with a larger ratio that alone could break the bound stated above."""

_VENDORS: dict[str, Vendor] = {"nvidia": "nvidia", "amd": "amd", "google": "google", "intel": "intel"}
_FIRST_PLANE = re.compile(
    rb"\x0a[\x80-\xff]{0,9}[\x00-\x7f](?:\x08[\x80-\xff]{0,9}[\x00-\x7f])?\x12(?P<size>[\x01-\x7f])(?=[/#\w])"
)
"""`XSpace.planes` (1), its length; in it `XPlane.id` (1), if any, and `XPlane.name` (2), its length."""
_MOST_NAMED = 4


class XSpaceReader(Reader):
    """Reads `*.xplane.pb` and `*.xplane.pb.gz`: never slow, because they are walked as fast as a cache is
    read."""

    kinds: tuple[Kind, ...] = (Kind("xspace", ends=(".xplane.pb", ".xplane.pb.gz")),)
    files = "profiles of TensorFlow and JAX (*.xplane.pb), packed with gzip or not"
    claims = (".pb", ".pb.gz")

    def recognises(self, head: bytes) -> bool:
        """Return whether a file is an xspace, by its first field: a plane, which begins with its name; its id
        may come before the name."""
        match = _FIRST_PLANE.match(head)
        return match is not None and head[match.end() : match.end() + match["size"][0]].isascii()

    def read(self, path: Path, *, strict: bool) -> Trace:
        """Read a trace. Raises UnreadableError where nothing usable is left, and with `strict` for any
        damage."""
        notes: list[str] = []
        size = path.stat().st_size
        if size == 0:
            raise UnreadableError("the file is empty", where=str(path), next="Record the trace again.")
        with path.open("rb") as file:
            head = file.read(2)
            if head == b"\x1f\x8b":
                buffer = unpacked(path, size, notes)
                return _assemble(buffer, path, size, notes, strict=strict)
            buffer = bytes_of(file, notes)
        if not len(buffer):  # emptied since it was opened
            raise UnreadableError("the file is empty", where=str(path), next="Record the trace again.")
        return _assemble(buffer, path, len(buffer), notes, strict=strict)


def unpacked(path: Path, size: int, notes: list[str]) -> Bytes:
    """Return the unpacked bytes; for a damaged file, as many as can be unpacked. Raises UnreadableError for a
    bomb."""
    from mpprof.traces.common import gzip_stream
    from mpprof.traces.xspace import counting

    limit = min(MAX_UNPACKED, size * MAX_RATIO + (1 << 20))
    unpacked = bytearray()  # grows in place: parts that are joined would be held twice
    with path.open("rb") as file:
        for part in gzip_stream.parts(file, path, notes):
            unpacked += part
            if len(unpacked) > limit:
                raise _bomb(path, f"{MAX_RATIO} times its size or {MAX_UNPACKED >> 30} GiB")
    buffer = np.frombuffer(unpacked, np.uint8)
    most = max(limits.FIELDS_OF_SMALL_PACKED, size // limits.PACKED_BYTES_OF_FIELD)
    if counting.holds_more(buffer, most):
        raise _bomb(path, f"{most:,} events, names and their fields")
    return buffer


def _bomb(path: Path, most: str) -> UnreadableError:
    return UnreadableError(
        f"unpacks to more than {most}",
        where=str(path),
        next="If it is a profile, unpack it with gunzip and read the result.",
    )


@dataclass(eq=False, repr=False)
class _Parts:
    """What is collected over the planes of a file."""

    strings: Interner = field(default_factory=Interner)
    devices: list[TraceDevice] = field(default_factory=list)
    streams: list[Stream] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    damages: list[str] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)


def _assemble(buffer: Bytes, path: Path, size: int, notes: list[str], *, strict: bool) -> Trace:
    """Return the trace in `buffer`."""
    space = read_space(buffer)
    named, parts = _named_planes(space, path), _Parts(damages=[*notes])
    if not walk.COMPILED and len(buffer) > SLOW_BYTES:
        walk.say_slow()
    _report_damage(space, len(buffer), parts)
    layout = _layout(space, named, parts)
    ops = Ops(Modules(layout.planes), parts.strings)
    origin, shift = _origin(layout.planes)
    walks = _host_walks(layout.planes)
    reader = _read_devices(layout.planes, ops, shift, parts)
    host = host_planes.read(layout.planes, walks(), layout.places, parts.strings, ops, shift)
    # Of each plane: sorted, as the order of planes in a file means nothing.
    parts.warnings += sorted([*reader.warnings, *host.warnings])
    parts.damages += sorted([*reader.damages, *host.damages])
    parts.notes += sorted([*reader.notes, *host.notes])
    if on_device := bool(parts.devices):
        host, kernels = _with_devices(layout, host, reader, ops, parts)
    else:
        host, kernels = _without_device(layout, host, ops, parts)
    parts.warnings += ops.warnings()
    if not len(host.allocations.time_ns):
        parts.missing["allocations"] = "the trace holds no allocator events"
    events = len(kernels) + len(host.table) + len(host.allocations.time_ns)
    _refuse_damage(parts.damages, path, strict=strict, events=events)
    for plane in layout.planes:
        _session_facts(plane, parts)
    return Trace(
        source=TraceSource(path, "xspace", size, _host_name(space, path)),
        origin_unix_ns=origin,
        devices=tuple(parts.devices),
        streams=tuple(parts.streams),
        threads=host.threads,
        ops=ops.table(),
        kernels=kernels,
        host=host.table,
        markers=host.markers(reader.marks, parts.strings),
        allocations=host.allocations,
        basis="device" if on_device else "host",
        strings=parts.strings.texts(),
        warnings=(*_said_by_profiler(space), *parts.damages, *parts.warnings),
        missing=parts.missing,
        thread_hosts=host.numbers if any(host.numbers) else (),
        notes=tuple(parts.notes),
    )


def _host_walks(planes: Sequence[RawPlane]) -> Callable[[], Iterable[Walked]]:
    """Return what gives the walks of the hosts' planes: begun here, beside what follows, where that is worth
    a thread."""
    if walk.COMPILED and sum(plane.end - plane.start for plane in planes) > BESIDE_BYTES:
        return start_beside(lambda: list(host_planes.walks(planes)))
    return partial(host_planes.walks, planes)


def _read_devices(planes: Sequence[RawPlane], ops: Ops, shift: int, parts: _Parts) -> DeviceReader:
    """Read the lines of every accelerator's plane; the devices and their streams go to `parts`."""
    reader = DeviceReader(parts.strings, ops, shift)
    for plane in planes:
        if match := ACCELERATOR.match(plane.name):
            device = TraceDevice(plane.name, int(match["ordinal"]), _facts(plane, match["kind"]))
            parts.devices.append(device)
            reader.add(plane, len(parts.devices) - 1, device.facts, parts.streams)
    return reader


def _named_planes(space: RawSpace, path: Path) -> list[RawPlane]:
    """Return the planes that state what they are of. Raises UnreadableError where there is none."""
    named = [plane for plane in space.planes if plane.name]
    if not named:
        damaged = f"it is not laid out as an xplane file (byte {space.damage})"
        raise UnreadableError(
            f"not a profile: {damaged if space.damage >= 0 else 'it holds no plane'}",
            where=str(path),
            next="Give a *.xplane.pb file that TensorFlow, JAX or XLA wrote.",
        )
    return named


def _refuse_damage(damages: list[str], path: Path, *, strict: bool, events: int) -> None:
    """Raise UnreadableError for damage with `strict`, or where it left no event."""
    if not damages:
        return
    what = " ".join(damages[0].partition(";")[0].split())  # planes may have any name
    if strict:
        raise UnreadableError(what, where=str(path), next="Leave out --strict to read the intact part.")
    if not events:
        raise UnreadableError(f"no event is left: {what}", where=str(path), next="Record the trace again.")


def _layout(space: RawSpace, named: Sequence[RawPlane], parts: _Parts) -> profiles.Layout:
    """Return the planes that are read, and which host each is of."""
    known = [plane for plane in named if is_read(plane.name)]
    parts.notes += _passed_over(plane.name for plane in named if plane.lines and not is_read(plane.name))
    layout = profiles.layout(known, space.hostnames)
    parts.warnings += layout.warnings
    parts.notes += layout.notes
    return layout


def _with_devices(
    layout: profiles.Layout, host: host_planes.Host, reader: DeviceReader, ops: Ops, parts: _Parts
) -> tuple[host_planes.Host, KernelTable]:
    """Return the kernels of the devices, joined with their launches."""
    kernels = with_instructions(kernel_table(reader.parts), ops, parts.strings)
    of = _hosts_of_devices(layout, kernels, host, parts)
    joined = join_launches(kernels, host.table, parts.strings, of)
    parts.warnings += joined.warnings
    return replace(host, table=replace(host.table, kind=joined.kinds)), joined.kernels


def _without_device(
    layout: profiles.Layout, host: host_planes.Host, ops: Ops, parts: _Parts
) -> tuple[host_planes.Host, KernelTable]:
    """Return the ops of the executor as kernels, for each host that the file names."""
    from mpprof.traces.xspace import cpu

    # One machine may well have two such planes: only where the file names several hosts are they theirs.
    numbers = host.numbers if len(set(layout.hostnames)) > 1 else ()
    labels = profiles.labels(range(max(numbers, default=0) + 1), layout.hostnames, layout.count)
    parts.devices += [
        TraceDevice(f"{label}/host:CPU", 0, DeviceFacts(kind="cpu"), number)
        for number, label in enumerate(labels)
    ]
    kernels, streams = cpu.kernels(host, ops, parts.strings, numbers=numbers)
    parts.streams += streams
    parts.missing["device"] = "no accelerator in this trace: kernels are the ops of the host's executor"
    if not len(kernels):
        parts.missing["kernels"] = (
            "the trace holds no op that ran: older versions of XLA run a program on the CPU as one and "
            "record none of its parts, and a trace made without the host tracer has no ops"
        )
    return replace(host, numbers=numbers), kernels


def _hosts_of_devices(
    layout: profiles.Layout, kernels: KernelTable, host: host_planes.Host, parts: _Parts
) -> Hosts:
    """Return the host of each device and thread; the devices are named after their hosts where there are
    several. Where the file is in no order that tells, no device has one."""
    of_thread = np.array(host.numbers, np.int64)
    if layout.count == 1:
        return Hosts(np.zeros(len(parts.devices), np.int64), of_thread)
    pairs = zip(layout.planes, layout.places, strict=True)
    found = [number if layout.ordered else None for plane, number in pairs if ACCELERATOR.match(plane.name)]
    labels = profiles.labels(found, layout.hostnames, layout.count)
    of_device = [number if number in host.numbers else profiles.NO_HOST for number in found]
    parts.devices[:] = [
        replace(device, plane=f"{label}{device.plane}", host=number)
        for device, label, number in zip(parts.devices, labels, of_device, strict=True)
    ]
    if not layout.ordered:
        working = np.unique(kernels.device).tolist()
        names = ", ".join(parts.devices[row].plane for row in working[:_MOST_NAMED])
        parts.warnings.append(
            f"no launch or step marker was joined with the work of {names}"
            f"{' and others' if len(working) > _MOST_NAMED else ''}: several hosts in the file may have "
            "launched it, and their planes do not stand host by host. Read each host's own file"
        )
    return Hosts(np.array(of_device, np.int64), of_thread)


def _passed_over(planes: Iterable[str]) -> list[str]:
    names = list(dict.fromkeys(planes))
    return [f"planes of other kinds were not read: {first_of(names, _MOST_NAMED)}"] if names else []


def _said_by_profiler(space: RawSpace) -> list[str]:
    said = [("error", text) for text in space.errors] + [("warning", text) for text in space.warnings]
    return [f"the profiler's own {kind}: {text}" for kind, text in dict.fromkeys(said) if text.strip()]


def _report_damage(space: RawSpace, size: int, parts: _Parts) -> None:
    if space.damage >= 0:
        cut = space.planes and space.planes[-1].cut
        where = f"in plane {space.planes[-1].name or '(unnamed)'}, which begins" if cut else "there"
        parts.damages.append(
            f"the file is cut off or damaged: {where} at byte {space.damage} of {size}; "
            "the intact part was read"
        )
    for plane in space.planes:
        if plane.lines_left_out:
            parts.damages.append(f"plane {plane.name}: {plane.lines_left_out} lines were left out: too many")
        if plane.damage >= 0 and not plane.cut:
            parts.damages.append(f"plane {plane.name or '(unnamed)'} is damaged at byte {plane.damage}")
        if plane.cut and plane.lines and not plane.metadata_names:
            parts.damages.append(
                f"plane {plane.name} is cut off before its table of names: its {len(plane.lines)} lines "
                "are left out, because nothing in them can be named"
            )


def _origin(planes: Sequence[RawPlane]) -> tuple[int | None, int]:
    """Return when the trace's time 0 was (Unix ns; None unknown), and what to subtract from line
    timestamps."""
    started = None
    for plane in planes:
        if plane.name == ENVIRONMENT:
            started = limits.unix_ns(plane.stats.get("profile_start_time"))
    stamps = [line.timestamp_ns for plane in planes for line in plane.lines if line.timestamp_ns > 0]
    if stamps and min(stamps) > limits.EARLIEST_UNIX_NS:
        zero = started if started is not None and started <= min(stamps) else min(stamps)
        return zero, zero
    return started, 0


def _host_name(space: RawSpace, path: Path) -> str | None:
    if space.hostnames and space.hostnames[0]:
        return space.hostnames[0]
    return path.name.removesuffix(".gz").removesuffix(".xplane.pb") or None


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and value > 0 else None


def _facts(plane: RawPlane, kind: str) -> DeviceFacts:
    """Return the facts of a device plane. Its stat names are those of xplane_schema.h (`GetStatTypeMap`),
    written by the CUPTI, ROCm and TPU collectors. The clock is in kHz, memory in bytes, bandwidth in bytes
    per second."""
    stats = plane.stats
    vendor_text = str(stats.get("device_vendor", "")).lower()
    vendor: Vendor = _VENDORS.get(vendor_text, "unknown")
    major, minor = stats.get("compute_cap_major"), stats.get("compute_cap_minor")
    if vendor == "unknown":
        vendor = (
            "google" if kind == "TPU" else "nvidia" if not vendor_text and isinstance(major, int) else vendor
        )
    name = stats.get("gpu_device_name") or stats.get("device_type_string") or stats.get("device_type")
    bandwidth = _number(stats.get("memory_bandwidth"))
    device: DeviceKind = "tpu" if kind == "TPU" else "gpu"
    return DeviceFacts(
        kind=device,
        name=name if isinstance(name, str) and name else None,
        vendor=vendor,
        compute_capability=(major, minor) if isinstance(major, int) and isinstance(minor, int) else None,
        memory_bytes=_number(stats.get("memory_size")),
        sm_count=_number(stats.get("core_count")),
        sm_clock_khz=_number(stats.get("clock_rate")),
        memory_bandwidth_bytes_per_s=float(bandwidth) if bandwidth else None,
    )


def _session_facts(plane: RawPlane, parts: _Parts) -> None:
    """Add a warning for what the profiler states about itself: events it dropped."""
    for name in ("dropped_traces", "num_dropped_events", "CUPTI dropped"):
        value = plane.stats.get(name)
        if value not in (None, "", 0):
            parts.warnings.append(
                f"plane {plane.name}: the profiler dropped events ({name}: {str(value)[:200]})"
            )


# --- A call that runs beside its caller: for work that lets other threads run, such as the compiled walk.

T = TypeVar("T")


def start_beside(call: Callable[[], T]) -> Callable[[], T]:
    """Begin the call in a thread of its own; return what waits for its end and gives its result, or raises
    its error. Where the system gives no thread, the call itself is returned."""
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(call())
        except BaseException as error:  # noqa: BLE001 - raised again where the result is asked for
            errors.append(error)

    def result() -> T:
        thread.join()
        if errors:
            raise errors[0]
        return results[0]

    thread = Thread(target=run, daemon=True)  # not waited for where the caller fails meanwhile
    try:
        thread.start()
    except RuntimeError:  # a container may allow no more
        return call
    return result


# --- The bytes of a trace file that is not packed, which another process may overwrite meanwhile.


CHANGED = "the file was written while it was read, and may hold parts of two recordings: read it again"

_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" else 0)
"""Memory is counted once it is used: the holes of a sparse file take none, whatever its size."""


def bytes_of(file: BufferedReader, damages: list[str]) -> Bytes:
    """Return a file's bytes as they are now; that it was written meanwhile goes to `damages`.

    They are copied: the system kills a process that reads a mapped page of a file that was cut off, and what
    is overwritten would change under the reader. Raises OSError.
    """
    before = os.fstat(file.fileno())
    sparse = hasattr(os, "SEEK_DATA") and 512 * before.st_blocks < before.st_size
    found = (_sparse if sparse else _whole)(file, before.st_size)
    after = os.fstat(file.fileno())
    if len(found) < before.st_size or after.st_mtime_ns != before.st_mtime_ns:
        damages.append(CHANGED)
    return found


def _whole(file: BufferedReader, size: int) -> Bytes:
    held = np.empty(size, np.uint8)  # NumPy asks for large pages, which `file.read` does not
    file.seek(0)
    return held[: file.readinto(held.data)]


def _sparse(file: BufferedReader, size: int) -> Bytes:
    """Return the bytes of a file with holes, which are zeros."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE
    held = np.frombuffer(mmap.mmap(-1, size, flags=flags), np.uint8)
    at = 0
    while at < size:
        try:
            at = file.seek(at, os.SEEK_DATA)
            end = min(file.seek(at, os.SEEK_HOLE), size)
        except OSError:  # nothing but a hole is left
            break
        file.seek(at)
        if not (count := file.readinto(held[at:end].data)):
            return held[:at]
        at += count
    return held
