"""A trace in columns: what a profiler wrote, in one shape for every format.

A trace states facts. Whether a kernel ran on Tensor Cores, which layer owns it and what an idle gap was
waiting for are judgements, which `analysis` returns as arrays of their own.

All times are int64 nanoseconds from `Trace.origin_unix_ns`. Columns that point into a table hold its row,
or -1 where there is none. Strings are interned: every text column points into `Trace.strings`.
"""

from __future__ import annotations

from dataclasses import field
from enum import IntEnum
from pathlib import Path
from typing import Annotated

from mpprof.model.arrays import Bool, Float64, Int8, Int32, Int64
from mpprof.model.device import DeviceFacts
from mpprof.model.frozen import frozen
from mpprof.model.written import Count


class WorkKind(IntEnum):
    """What an interval on a device is."""

    KERNEL = 0
    MEMCPY = 1
    MEMSET = 2


class CopyKind(IntEnum):
    """Direction of a copy; NONE for what is no copy."""

    NONE = -1
    HOST_TO_DEVICE = 0
    DEVICE_TO_HOST = 1
    DEVICE_TO_DEVICE = 2
    PEER = 3
    OTHER = 4


class HostKind(IntEnum):
    """What a host thread does during an event, decided by the event's name (the reader's job)."""

    OTHER = 0
    OP = 1  # an op of the framework running or being dispatched
    LAUNCH = 2  # cuLaunchKernel, cudaLaunchKernel, hipModuleLaunchKernel, graph launches
    COPY = 3  # a copy or memset being enqueued
    SYNC = 4  # cuStreamSynchronize, cuCtxSynchronize, cuEventSynchronize, blocking copies
    INPUT = 5  # waiting for the next batch on the training thread
    INPUT_PIPELINE = 6  # producing batches, on the input pipeline's own threads
    EXECUTOR = 7  # the framework's executor or dispatch code
    COMPILE = 8  # tracing, XLA compilation, autotuning
    MARKER = 9  # a step marker
    ALLOCATE = 10  # cudaMalloc, cudaFree, cuMemCreate: memory of the driver, not of the framework's pool
    CODE = 11  # a function of the host in which nothing was launched, as a tracer of Python shows it


@frozen
class TraceDevice:
    """One accelerator (or the host's CPU, where a trace has no accelerator plane)."""

    plane: str  # as the file names it: "/device:GPU:0"; of several machines in one file "host /device:GPU:0"
    ordinal: int
    facts: DeviceFacts
    host: int = 0  # of several hosts or processes the one that launches its work; -1: not in the file


@frozen
class Stream:
    """A queue of a device that really executes work; derived lines are not queues."""

    device: int  # row in Trace.devices
    number: int  # the stream's id in the file
    name: str


@frozen
class KernelTable:
    """One row per interval of work on a device, derived lines left out; sorted by device, then start."""

    device: Int32  # row in Trace.devices
    stream: Int32  # row in Trace.streams
    start_ns: Int64
    duration_ns: Int64  # >= 0
    kind: Int8  # WorkKind
    name: Int32  # row in Trace.strings
    op: Int32  # row in Trace.ops
    correlation: Int64  # joins with the host's launch; -1
    launch: Int32  # row in Trace.host: the host event that enqueued it
    shapes: Int32  # row in Trace.strings: the op's tensor shapes and dtypes, as written in the file
    details: Int32  # row in Trace.strings: registers, shared memory, grid, block
    copy: Int8  # CopyKind
    bytes: Int64  # of a copy or memset; -1
    graph: Int64  # CUDA graph or command buffer that it ran in, 0 where its number is not stated; -1 none
    group: Int64  # the file's own step group; -1

    def __len__(self) -> int:
        return len(self.start_ns)


@frozen
class HostTable:
    """One row per event of a host thread; sorted by thread, then start, then longest first (so that a
    parent stands before its children)."""

    thread: Int32  # row in Trace.threads
    start_ns: Int64
    duration_ns: Int64
    kind: Int8  # HostKind
    name: Int32  # row in Trace.strings
    op: Int32  # row in Trace.ops
    correlation: Int64
    shapes: Int32 | None = None  # row in Trace.strings: the op's tensors; None: not stated

    def __len__(self) -> int:
        return len(self.start_ns)


XLA_MODULE = "xla_module "
"""How the family of a marker begins that is a run of a compiled program on a device; the program's name
follows."""


@frozen
class MarkerTable:
    """Step markers of the host, sorted by start. `number` is -1 where the marker carries none. Beside them
    what a profiler marks on devices: their steps ("steps_line"), and the runs of programs (`XLA_MODULE`)."""

    number: Int64
    start_ns: Int64
    end_ns: Int64
    thread: Int32  # row in Trace.threads
    family: Int32  # row in Trace.strings: "mpprof", "keras", "tensorflow", "jax", "steps_line"
    device: Int32 | None = None  # of a marker on a device: its row in Trace.devices; else -1

    def __len__(self) -> int:
        return len(self.start_ns)


@frozen
class NamedRanges:
    """Annotated ranges of one name, of which steps can be made.

    Names that differ in their digits are one pattern. Launches count on the ranges' own threads, or, where
    no range's thread launches anything, on any."""

    name: Annotated[str, "As --step-range takes it: a name, or a pattern between slashes."]
    count: Count
    launches_ratio: Annotated[float, "Of the trace's launches, those that lie in these ranges."]


@frozen
class AllocationTable:
    """Allocator events, sorted by time. Sizes are -1 where the event does not carry them."""

    time_ns: Int64
    free: Bool  # a deallocation
    allocator: Int32  # row in Trace.strings: "GPU_0_bfc"
    bytes: Int64  # of this allocation
    live_bytes: Int64  # allocated in total after the event
    peak_bytes: Int64
    reserved_bytes: Int64
    available_bytes: Int64
    address: Int64
    dtype: Int32  # row in Trace.strings
    shapes: Int32  # row in Trace.strings
    op: Int32  # row in Trace.ops
    region: Int32  # row in Trace.strings: "output", "temp", "persist", "dynamic"
    requested_bytes: Int64 | None = None  # what was asked for; None: the format does not state it
    fragmentation_ratio: Float64 | None = None  # free memory outside the largest free block; NaN: not read
    thread: Int32 | None = (
        None  # row in Trace.threads of what asked or freed; None: the format does not state it
    )

    def __len__(self) -> int:
        return len(self.time_ns)


LIKE = "like "
"""How the name of an op begins that is known only to equal an instruction of this name."""


@frozen
class HloInstruction:
    """One instruction of a compiled module, as the trace's HLO protos state it."""

    module: str
    name: str
    opcode: str
    op_name: str  # metadata.op_name: the framework's scope, "" unknown
    dtype: str  # of the result: "f16", "bf16", "f32"
    shape: tuple[int, ...]
    operand_dtypes: tuple[str, ...]
    operand_shapes: tuple[tuple[int, ...], ...]
    called: tuple[HloInstruction, ...] = ()  # the instructions inside a fusion
    custom_call: str = ""
    flops: float | None = None
    operands: tuple[str, ...] = ()  # names of the instructions it reads, seen through tuples and bitcasts
    precision: str = ""  # what a product asks for its operands: "default", "high", "highest"; "" not stated
    program: int = -1  # the id of its module in the trace: several may have one name; -1 not stated
    line: str = ""  # of the user's code that it comes from: "model.py:37"; "" not stated

    def holds(self, *opcodes: str) -> bool:
        """Return whether the body of a fusion holds an instruction of one of these codes."""
        return any(inner.opcode in opcodes or inner.holds(*opcodes) for inner in self.called)

    @property
    def tensors(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """What it reads and writes, as (type, shape): its operands, then its results, of which a fusion may
        have several."""
        root = self.called[-1] if self.called else self
        several = root.opcode == "tuple" and bool(root.operand_shapes)
        results = (
            zip(root.operand_dtypes, root.operand_shapes, strict=False)
            if several
            else ((self.dtype, self.shape),)
        )
        return (*zip(self.operand_dtypes, self.operand_shapes, strict=False), *results)


@frozen
class Op:
    """One framework op that events name. `type` is "" where the file does not state it. `candidates`: where
    it is not known which instruction ran, the rows of all that may have; () where they are unknown, too."""

    name: str  # with its scope: "model/dense/MatMul"
    type: str  # "MatMul", "Conv2D", HLO opcode
    hlo: HloInstruction | None = None
    candidates: tuple[int, ...] = ()


@frozen
class TraceSource:
    path: Path
    format: str  # as the reader calls it, such as "xspace"
    size_bytes: int
    host: str | None = None  # host name in the file or its name


@frozen
class Trace:
    """A whole trace. `missing` says what this format or file does not hold: name -> reason. `warnings` tell
    what was lost or damaged, `notes` what was left out without a loss."""

    source: TraceSource
    origin_unix_ns: int | None  # None: the file's times are relative to nothing known
    strings: tuple[str, ...]
    devices: tuple[TraceDevice, ...]
    streams: tuple[Stream, ...]
    threads: tuple[str, ...]
    ops: tuple[Op, ...]
    kernels: KernelTable
    host: HostTable
    markers: MarkerTable
    allocations: AllocationTable
    basis: str  # "device", or "host": no accelerator plane, `kernels` are the host executor's op events
    warnings: tuple[str, ...] = ()
    missing: dict[str, str] = field(default_factory=dict)
    thread_hosts: tuple[int, ...] = ()  # of several hosts or processes that of each thread; empty: all of 0
    notes: tuple[str, ...] = ()

    def device_row(self, plane: str) -> int:
        """Return the row of the device that goes by this name; 0 where none does."""
        return next((at for at, device in enumerate(self.devices) if device.plane == plane), 0)
