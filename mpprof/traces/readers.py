"""Read any profile as a `model.trace.Trace`: the readers, and which of them reads a file."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TypeVar

import numpy as np

from mpprof import model
from mpprof._version import __version__
from mpprof.errors import NotFoundError, UnreadableError
from mpprof.model import limits
from mpprof.model.arrays import groups
from mpprof.model.quantities import format_ratio
from mpprof.model.trace import AllocationTable, HostTable, KernelTable, MarkerTable, Trace
from mpprof.traces.chrome.reader import ChromeReader
from mpprof.traces.common import file_head
from mpprof.traces.common.file_head import Reader
from mpprof.traces.common.launches import take
from mpprof.traces.nsys.reader import NsysReader
from mpprof.traces.torch_memory.reader import PICKLE, TorchMemoryReader
from mpprof.traces.xspace.reader import XSpaceReader

READERS: tuple[Reader, ...] = (XSpaceReader(), ChromeReader(), NsysReader(), TorchMemoryReader())
"""The preferred format first, where a directory holds several, and the first that recognises a file reads it.
A new reader is one file and one line here."""


def read(path: Path, *, strict: bool = False) -> Trace:
    """Read one trace file.

    A cut-off or damaged file gives what is whole, with a warning that names the byte; with `strict` that
    is an error. Raises NotFoundError, or UnreadableError where nothing usable is left.
    """
    path = Path(path)
    if path.is_dir():
        raise UnreadableError(
            "is a directory, not a trace file", where=str(path), next="Give one of the files in it."
        )
    if path.exists() and not path.is_file():
        raise UnreadableError("is not a regular file", where=str(path), next="Give a trace file.")
    try:
        if path.stat().st_size == 0:
            raise UnreadableError("the file is empty", where=str(path), next="Record the trace again.")
        head = file_head.of(path)
        if head.startswith(file_head.GZIP):
            raise UnreadableError(
                "is compressed twice", where=str(path), next="Unpack it with gunzip and read the result."
            )
        if (packed := _packed_otherwise(head)) is not None:
            raise UnreadableError(
                f"is packed with {packed}, not with gzip", where=str(path), next="Unpack it."
            )
        if (reader := reader_of(path.name, head)) is not None:
            return within_bounds(reader.read(path, strict=strict))
        if PICKLE.match(head):
            raise UnreadableError(
                "is a pickle, which is code and not run, and not a memory snapshot of PyTorch",
                where=str(path),
                next="Write one with torch.cuda.memory._dump_snapshot(FILE)",
            )
    except FileNotFoundError:
        raise NotFoundError("no such file", where=str(path)) from None
    except OSError as error:
        raise UnreadableError(f"cannot be read: {error.strerror or error}", where=str(path)) from error
    raise UnreadableError(
        "unrecognised trace format",
        where=str(path),
        next=f"mpprof reads {'; '.join(reader.files for reader in READERS)}",
    )


def _packed_otherwise(head: bytes) -> str | None:
    magic = {b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd", b"PK\x03\x04": "zip"}
    return next((name for begins, name in magic.items() if head.startswith(begins)), None)


def reader_of(name: str, head: bytes) -> Reader | None:
    """Return the reader of a file that begins so (`file_head`), or None for a file that is no trace.

    What the bytes show counts, and where they show nothing, as of a damaged file, its name.
    """
    return recognised(head) or claimed(name)


def recognised(head: bytes) -> Reader | None:
    """Return the reader whose format these first bytes show."""
    return next((reader for reader in READERS if reader.recognises(head)), None)


def claimed(name: str) -> Reader | None:
    """Return the reader whose files are called so: by the `ends` of its kinds, else by what it claims."""
    ends = [(reader, end) for reader in READERS for kind in reader.kinds for end in kind.ends]
    claims = [(reader, end) for reader in READERS for end in reader.claims]
    return next((reader for reader, end in (*ends, *claims) if name.endswith(end)), None)


# --- Traces of more kernels and ops than any program has: what is beyond the bounds of `model.limits` is
# one.
#
# Whatever is said of a kernel or an op is said once for each that differs. A step of a large model has some
# thousands; a file may state ten thousand in each megabyte.

OTHER = "(other kernels)"
_Table = TypeVar("_Table", KernelTable, HostTable, AllocationTable)


def within_bounds(trace: Trace) -> Trace:
    """Return the trace with at most `MOST_KERNELS` kernels that differ in name, op or shapes, those that took
    longest, and all others under one name; with at most `MOST_OPS` ops and `MOST_DEVICES` devices.

    Warnings say what was left out or put together."""
    return _with_fewer_ops(_with_fewer_kernels(_with_fewer_devices(trace)))


def _with_fewer_devices(trace: Trace) -> Trace:
    """Return the trace with only its first devices, with their streams, their work and their markers."""
    most, markers = limits.MOST_DEVICES, trace.markers
    if len(trace.devices) <= most:
        return trace
    kept = np.array([stream.device < most for stream in trace.streams], np.bool_)
    number = np.cumsum(kept) - 1
    kernels = take(trace.kernels, np.flatnonzero(trace.kernels.device < most))
    of_device = markers.device if markers.device is not None else np.full(len(markers), -1)
    rows = np.flatnonzero(of_device < most)
    said = f"the first {most} of {len(trace.devices)} devices were read"
    return replace(
        trace,
        devices=trace.devices[:most],
        streams=tuple(stream for stream, keep in zip(trace.streams, kept.tolist(), strict=True) if keep),
        kernels=replace(kernels, stream=number[kernels.stream].astype(np.int32)),
        markers=MarkerTable(
            number=markers.number[rows],
            start_ns=markers.start_ns[rows],
            end_ns=markers.end_ns[rows],
            thread=markers.thread[rows],
            family=markers.family[rows],
            device=None if markers.device is None else markers.device[rows],
        ),
        warnings=(*trace.warnings, said),
    )


def _with_fewer_kernels(trace: Trace) -> Trace:
    table, most = trace.kernels, limits.MOST_KERNELS
    if len(table) <= most:
        return trace
    group, first = groups((table.name, table.op, table.shapes), len(table))
    if len(first) <= most:
        return trace
    total = np.bincount(group, weights=table.duration_ns, minlength=len(first))
    kept = np.zeros(len(first), np.bool_)
    kept[np.argsort(-total, kind="stable")[:most]] = True
    other = ~kept[group]
    named = replace(
        table,
        name=np.where(other, np.int32(len(trace.strings)), table.name),
        op=np.where(other, np.int32(-1), table.op),
        shapes=np.where(other, np.int32(-1), table.shapes),
    )
    ratio = float(total[~kept].sum() / total.sum()) if total.any() else 0.0
    said = (
        f"the {most} longest of {len(first)} kernels that differ in name, op or shapes are kept apart; the "
        f"others, {format_ratio(ratio)} of the kernels' time, are one"
    )
    return replace(trace, kernels=named, strings=(*trace.strings, OTHER), warnings=(*trace.warnings, said))


def _with_fewer_ops(trace: Trace) -> Trace:
    """Return the trace with fewer ops: those of kernels first, then as many of the others as the limit
    leaves, in the order of the file."""
    most = limits.MOST_OPS
    if len(trace.ops) <= most:
        return trace
    of_kernels = np.zeros(len(trace.ops), np.bool_)
    of_kernels[trace.kernels.op[trace.kernels.op >= 0]] = True
    first = np.argsort(~of_kernels, kind="stable")[:most]
    new = np.full(len(trace.ops) + 1, -1, np.int32)  # the last is met by op -1
    new[first] = np.arange(most)

    def of(table: _Table) -> _Table:
        return replace(table, op=new[table.op])

    said = f"{most} of {len(trace.ops)} ops are kept; events of the others name no op"
    return replace(
        trace, ops=tuple(trace.ops[row] for row in first.tolist()), kernels=of(trace.kernels),
        host=of(trace.host), allocations=of(trace.allocations), warnings=(*trace.warnings, said),
    )  # fmt: skip


# --- Which traces take so long to parse that the result is worth keeping, and what it depends on.
#
# Measured on one core of a cloud machine: an xplane is walked at 250 MB/s and more. A cache would save half
# of that (30 MB: 0.12 s; to hash the file and read back the columns that a report shows takes 0.05 s), and
# to keep them costs as much as it saves, and more disk than the file. Kineto's JSON is parsed at about 50
# MB/s of text (1.8 MB packed: 0.95 s, from the cache 0.01 s), an SQLite export at 6 to 15 MB/s. What is
# read in less than 0.2 s is not worth the disk: columns are kept as they are, in 2 to 8 times the packed
# size. tests/benchmarks/test_cache_speed.py measures it again.

_LEAST_BYTES = 1 << 20
"""Nothing smaller is slow, whatever it is: such a file of a foreign name is not opened to find out."""


def is_slow(path: Path) -> bool:
    """Return whether reading this file takes clearly longer than getting it from the cache."""
    try:
        size = path.stat().st_size
        reader, packed = claimed(path.name), path.name.endswith(".gz")
        if reader is None and size >= _LEAST_BYTES:
            raw = file_head.first_bytes(path)
            reader, packed = recognised(file_head.within(raw)), raw.startswith(file_head.GZIP)
    except OSError:
        return False
    least = reader.slow_from_bytes(packed=packed) if reader is not None else None
    return least is not None and size >= least


@cache
def version() -> str:
    """Return a version that changes whenever the code that reads does: what another version read is not to be
    trusted."""
    import hashlib  # takes as long to import as a small trace to read

    hashed = hashlib.blake2b(__version__.encode(), digest_size=8)
    for folder in (Path(__file__).parents[1], Path(model.__file__).parent):
        for source in sorted(folder.rglob("*.py")):
            hashed.update(source.read_bytes())
    return hashed.hexdigest()
