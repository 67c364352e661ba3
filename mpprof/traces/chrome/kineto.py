"""PyTorch's profiler (Kineto): Chrome events become a trace.

Categories and argument names: pytorch/kineto `output_json.cpp` and its activity types; the spellings of
torch 1.8 (`Kernel`, `Operator`, `Runtime`) are read as well. Times are microseconds with up to three
decimals, counted from `baseTimeNanoseconds` where the file states one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import add
from typing import Any

import numpy as np

from mpprof.model.arrays import Int64
from mpprof.model.device import DeviceFacts, Vendor
from mpprof.model.trace import HostKind, WorkKind
from mpprof.traces.chrome.json import Event, nanoseconds
from mpprof.traces.common.columns import Interner
from mpprof.traces.common.names import host_kind

WORK = {
    "kernel": WorkKind.KERNEL, "gpu_memcpy": WorkKind.MEMCPY, "gpu_memset": WorkKind.MEMSET,
    "memcpy": WorkKind.MEMCPY, "memset": WorkKind.MEMSET,
    "concurrent_kernel": WorkKind.KERNEL,
}  # fmt: skip
OPS = frozenset(("cpu_op", "operator"))
CALLS = frozenset(
    (
        "cuda_runtime",
        "cuda_driver",
        "runtime",
        "driver",
        "xpu_runtime",
        "privateuse1_runtime",
        "privateuse1_driver",
    )
)
NOTES = frozenset(("user_annotation", "overhead"))
MODULE = "nn.Module: "
"""Of a module's forward call: a frame of the Python tracer, or a range that our window puts round it."""
OPTIMIZER = "Optimizer.step#"
LOSS_SCALE = "LossScaleOptimizer"
"""What an op's name begins with in an optimizer's step, or in what Keras puts round it to scale the loss."""
STEP = "ProfilerStep#"
_OPTIMIZERS = re.compile(r"(?:^|/)keras/src/optimizers/(\w+)\.py\(\d+\): apply$")
"""The frame of Keras' own optimizers, which work without torch's `Optimizer.step` annotation."""
OWN_STEP = "mpprof_step#"
"""Our step marker in a trace that somebody else recorded, whose steps may be numbered otherwise."""
_ANNOTATIONS = (STEP, OWN_STEP, OPTIMIZER)
"""Annotations by their names: torch 1.8 writes them in the category of its operators."""

ARROWS = frozenset(("ac2g", "async_cpu_to_gpu"))
"""From a call of the host to what it launched on a device, of whatever kind."""
COUNTER_RANGES = "cuda_profiler_range"
"""Ranges in which CUPTI counted, in place of recording kernels."""
_MOST_UNREAD = 64
_LARGEST = (1 << 62) - 1
_LONGEST_FRAME = 256
CODE_NS = 1_000_000
"""Shorter frames of the host's code are left out: so long may launching take (`analysis.steps.idle`)."""
_FUNCTION = re.compile(r"([^\\/]+)\(\d+\): ([^<].*)$")
_BUILT_IN = re.compile(r"<built-in (?:function|method) (\S+?)(?: of (\S+) object.*)?>$")
_WRAPPERS = frozenset(
    (
        "wrapper", "wrapped", "inner", "decorate_context", "_call_impl", "_wrapped_call_impl", "_bootstrap",
        "_bootstrap_inner", "__torch_function__",
    )
)  # fmt: skip
"""Functions that only call another one: their names say nothing of the work."""


@dataclass
class WorkRows:
    """Intervals on devices, in the order of the file."""

    kind: list[int] = field(default_factory=list)
    name: list[int] = field(default_factory=list)
    device: list[int] = field(default_factory=list)
    stream: list[int] = field(default_factory=list)
    start_ns: list[int] = field(default_factory=list)
    duration_ns: list[int] = field(default_factory=list)
    correlation: list[int] = field(default_factory=list)
    external: list[int] = field(default_factory=list)
    details: list[int] = field(default_factory=list)
    bytes: list[int] = field(default_factory=list)
    graph: list[int] = field(default_factory=list)


@dataclass
class HostRows:
    """What host threads did, in the order of the file: ops, calls, notes, module frames, memory events."""

    what: list[str] = field(default_factory=list)
    """ "op", "call", "note", "range", "span" (a range that is no scope), "module", "frame" (an optimizer's),
    "code" (a function that launched nothing), "memory"."""
    thread: list[int] = field(default_factory=list)
    name: list[int] = field(default_factory=list)
    start_ns: list[int] = field(default_factory=list)
    duration_ns: list[int] = field(default_factory=list)
    correlation: list[int] = field(default_factory=list)
    external: list[int] = field(default_factory=list)
    sequence: list[int] = field(default_factory=list)  # joins an op with its backward; -1
    shapes: list[int] = field(default_factory=list)
    memory: dict[int, tuple[int, int, int, int, int]] = field(default_factory=dict)
    """By row: address, bytes (negative: freed), total, reserved, device (-1: the host)."""

    def in_order(self) -> Int64:
        """Return the rows by thread, start, longest first. Of equal times that is outermost first: PyTorch
        numbers ops as they begin, a call has its op's number, and Python's frames have none."""
        inner = np.array([what in ("call", "memory") for what in self.what], np.bool_)
        columns = (self.correlation, inner, self.external, self.duration_ns, self.start_ns, self.thread)
        correlation, rank, number, duration, start, thread = (
            np.array(column, np.int64) for column in columns
        )
        return np.lexsort((correlation, rank, number, -duration, start, thread))


@dataclass
class Collected:
    """Everything of a file that is kept, before it is put into tables."""

    strings: Interner = field(default_factory=Interner)
    work: WorkRows = field(default_factory=WorkRows)
    host: HostRows = field(default_factory=HostRows)
    threads: dict[tuple[object, object], int] = field(default_factory=dict)
    thread_names: dict[tuple[object, object], str] = field(default_factory=dict)
    projected: list[tuple[int, int, int, int]] = field(default_factory=list)
    """Steps that Kineto projects onto a device: device, number, start, duration."""
    code: list[tuple[tuple[object, object], str, int, int]] = field(default_factory=list)
    """Long frames of the Python tracer: key of the thread, name, start, duration."""
    unread: dict[str, int] = field(default_factory=dict)
    """Events by category that are of no kind that is read, such as those of another vendor's device."""
    launches: bool = False
    """Arrows lead from the host to a device."""
    timeless: int = 0
    negative: int = 0
    unpaired: int = 0


def number_threads(found: Collected) -> None:
    """Number the threads by what each did first: neither the order of a file's events nor the ids carry a
    meaning."""
    rows, ids, texts = found.host, tuple(found.threads), found.strings.texts()
    thread = np.array(rows.thread, np.int64)
    order = rows.in_order()
    first = order[np.flatnonzero(np.diff(thread[order], prepend=-1))]

    def begun(row: int) -> tuple[int, int, str, str]:
        return rows.start_ns[row], -rows.duration_ns[row], texts[rows.name[row]], str(ids[rows.thread[row]])

    numbered = [rows.thread[row] for row in sorted(first.tolist(), key=begun)]
    number = np.empty(len(ids), np.int64)
    number[numbered] = np.arange(len(numbered))
    rows.thread = number[thread].tolist()
    found.threads = {ids[each]: at for at, each in enumerate(numbered)}


def clean(text: str) -> str:
    """Return a name that can be encoded again: what was not UTF-8 becomes U+FFFD."""
    if text.isascii():
        return text
    return text.encode("utf-8", "surrogateescape" if _escaped(text) else "replace").decode("utf-8", "replace")


def _escaped(text: str) -> bool:
    return all(not 0xD800 <= ord(char) <= 0xDFFF or 0xDC80 <= ord(char) <= 0xDCFF for char in text)


def collect(events: Iterable[Event]) -> Collected:
    """Sort the events into columns; whatever is no event of a profiler is left out."""
    found = Collected()
    for event in events:
        phase = event.get("ph")
        if phase == "X":
            _interval(found, event)
        elif phase == "i":
            if event.get("name") == "[memory]":
                _memory(found, event)
        elif phase == "M":
            _label(found, event)
        elif phase == "s":
            found.launches |= event.get("cat") in ARROWS
        elif phase in ("B", "E"):
            found.unpaired += 1
    add_code(found)
    return found


def _interval(found: Collected, event: Event) -> None:
    category, name, args = event.get("cat"), event.get("name"), event.get("args")
    if not isinstance(category, str) or not isinstance(name, str):
        return
    category = category.lower()
    args = args if isinstance(args, dict) else {}
    if category in WORK:
        _work(found, event, WORK[category], name, args)
    elif category in OPS:
        _host(found, event, "note" if name.startswith(_ANNOTATIONS) else "op", name, args)
    elif category in CALLS:
        _host(found, event, "call", name, args)
    elif category in NOTES:
        _note(found, event, name, args)
    elif category == "gpu_user_annotation":
        if (number := step_number(name)) >= 0 and (times := _times(found, event)) is not None:
            found.projected.append((whole(args.get("device", event.get("pid"))), number, *times))
    elif category == "python_function":
        if name.startswith(MODULE):
            _host(found, event, "module", name.removeprefix(MODULE), args)
        elif match := _OPTIMIZERS.search(name[-_LONGEST_FRAME:]):
            scaled = match[1] == "loss_scale_optimizer"
            _host(found, event, "frame", LOSS_SCALE if scaled else OPTIMIZER, args)
        elif (duration := nanoseconds(event.get("dur")) or 0) >= CODE_NS:
            start, text = nanoseconds(event.get("ts")), function_name(name)
            if text and start is not None:
                found.code.append((_key(event), text, start, duration))
    elif category in found.unread or len(found.unread) < _MOST_UNREAD:
        found.unread[category] = found.unread.get(category, 0) + 1


def function_name(frame: str) -> str:
    """Return the function of a Python tracer's frame, with its file: `preprocess (video_classification.py)`;
    for a built-in function, its name. Empty for what names no work: wrappers, lambdas, modules."""
    text = frame[-_LONGEST_FRAME:]
    if match := _FUNCTION.search(text):
        return "" if match[2] in _WRAPPERS else f"{match[2]} ({match[1]})"
    if match := _BUILT_IN.match(text):
        return f"{match[2]}.{match[1]}" if match[2] else match[1]
    return ""


def add_code(found: Collected) -> None:
    """Put the outermost functions in which their thread launched nothing, of threads that launch, among the
    host's rows: what such a thread did between two launches. The many other frames are left out."""
    if not found.code or not found.host.what:
        return
    rows, texts = found.host, found.strings.texts()
    kinds = {row: host_kind(texts[row]) for row in set(rows.name)}
    launches: dict[int, list[int]] = {}
    for what, thread, name, start in zip(rows.what, rows.thread, rows.name, rows.start_ns, strict=True):
        if what == "call" and kinds[name] in (HostKind.LAUNCH, HostKind.COPY):
            launches.setdefault(thread, []).append(start)
    times = {thread: np.sort(np.array(starts, np.int64)) for thread, starts in launches.items()}
    first = min(rows.start_ns)
    last = max(map(add, rows.start_ns, rows.duration_ns))
    until: dict[int, int] = {}
    for key, text, start, duration in sorted(found.code, key=lambda each: (each[2], -each[3], each[1])):
        thread, end = found.threads.get(key, -1), start + duration
        if thread not in times or start < max(first, until.get(thread, first)) or end > last:
            continue
        if np.searchsorted(times[thread], start) == np.searchsorted(times[thread], end):
            until[thread] = end
            _append(rows, "code", thread, found.strings(clean(text)), start, duration)
    found.code.clear()


def _note(found: Collected, event: Event, name: str, args: dict[str, Any]) -> None:
    if name.startswith(MODULE):
        _host(found, event, "module", name.removeprefix(MODULE), args)
    else:
        _host(found, event, "note", name, args)


def _times(found: Collected, event: Event) -> tuple[int, int] | None:
    start, duration = nanoseconds(event.get("ts")), nanoseconds(event.get("dur", 0))
    if start is None or duration is None:
        found.timeless += 1
        return None
    if duration < 0:
        found.negative += 1
    return start, max(0, duration)


def whole(value: object) -> int:
    """Return an id or a size; -1 for a value that is neither. Ids are written as numbers or, by old versions,
    as text; by tools that rewrite a trace as 7.0, which `ChromeFile` leaves as its text."""
    if isinstance(value, str):
        digits = value.removesuffix(".0")
        value = int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 19 else -1
    return value if isinstance(value, int) and 0 <= value <= _LARGEST else -1


def _work(found: Collected, event: Event, kind: WorkKind, name: str, args: dict[str, Any]) -> None:
    times = _times(found, event)
    device = whole(args.get("device", event.get("pid")))
    if times is None or device < 0 or device > 1 << 20:
        found.timeless += times is not None
        return
    rows = found.work
    rows.kind.append(kind)
    rows.name.append(found.strings(clean(name)))
    rows.device.append(device)
    rows.stream.append(whole(args.get("stream", event.get("tid"))))
    rows.start_ns.append(times[0])
    rows.duration_ns.append(times[1])
    rows.correlation.append(whole(args.get("correlation")))
    rows.external.append(whole(args.get("External id", args.get("external id"))))
    text = details(args)
    rows.details.append(found.strings(text) if text else -1)
    rows.bytes.append(whole(args.get("bytes", args.get("Bytes"))) if kind is not WorkKind.KERNEL else -1)
    rows.graph.append(graph_of(args))


def _host(found: Collected, event: Event, what: str, name: str, args: dict[str, Any]) -> None:
    times = _times(found, event)
    if times is None:
        return
    rows = found.host
    sends = args.get("Collective name")  # of record_param_comms, which stands for all of them
    name = f"{name}:{sends}" if isinstance(sends, str) and _NAME.fullmatch(sends) else name
    _append(rows, what, _thread(found, event), found.strings(clean(name)), *times)
    if args:
        rows.correlation[-1] = whole(args.get("correlation")) if what == "call" else -1
        rows.external[-1] = whole(args.get("External id", args.get("external id")))
        rows.sequence[-1] = whole(args.get("Sequence number"))
        if what == "op" and (text := shapes(args)):
            rows.shapes[-1] = found.strings(clean(text))


def _append(rows: HostRows, what: str, thread: int, name: int, start_ns: int, duration_ns: int) -> None:
    """Append a row without any of a framework's ids."""
    rows.what.append(what)
    rows.thread.append(thread)
    rows.name.append(name)
    rows.start_ns.append(start_ns)
    rows.duration_ns.append(duration_ns)
    for column in (rows.correlation, rows.external, rows.sequence, rows.shapes):
        column.append(-1)


def _memory(found: Collected, event: Event) -> None:
    start, args = nanoseconds(event.get("ts")), event.get("args")
    if start is None or not isinstance(args, dict):
        found.timeless += 1
        return
    size = args.get("Bytes")
    if not isinstance(size, int) or abs(size) > _LARGEST:
        return
    rows = found.host
    # Device Type 0 is the CPU (c10/core/DeviceType.h).
    device = whole(args.get("Device Id")) if args.get("Device Type") != 0 else -1
    rows.memory[len(rows.what)] = (
        whole(args.get("Addr")),
        size,
        whole(args.get("Total Allocated")),
        whole(args.get("Total Reserved")),
        min(device, 1 << 20),
    )
    _host(found, {**event, "dur": 0}, "memory", "[memory]", {})


def _thread(found: Collected, event: Event) -> int:
    key = _key(event)
    return found.threads.setdefault(key, len(found.threads))


def _key(event: Event) -> tuple[object, object]:
    pid, tid = event.get("pid"), event.get("tid")
    return (
        pid if isinstance(pid, (int, str)) else None,
        tid if isinstance(tid, (int, str)) else None,
    )


def _label(found: Collected, event: Event) -> None:
    args = event.get("args")
    if event.get("name") == "thread_name" and isinstance(args, dict) and isinstance(args.get("name"), str):
        found.thread_names[_key(event)] = clean(args["name"]).strip()


# --- devices -----------------------------------------------------------------------------------------------


_OF_ROCM = ("hip_runtime_version", "roctracer_version")
"""What a build of PyTorch for AMD writes into the file; its cards may have no name."""


def is_rocm(header: dict[str, Any]) -> bool:
    """Return whether a build for AMD wrote the file, whose cards are AMD's alone."""
    return any(key in header for key in _OF_ROCM)


def device_facts(header: dict[str, Any]) -> dict[int, DeviceFacts]:
    """Return what `deviceProperties` states about each card, by id; empty where the file has none.

    AMD's number of its architecture (9.4: gfx94x) stands where NVIDIA's has its compute capability.
    """
    properties = header.get("deviceProperties")
    found: dict[int, DeviceFacts] = {}
    for entry in properties if isinstance(properties, list) else ():
        if not isinstance(entry, dict) or (id := whole(entry.get("id"))) < 0 or len(found) >= 1024:
            continue
        name = clean(entry["name"]) if isinstance(entry.get("name"), str) else None
        major, minor = whole(entry.get("computeMajor")), whole(entry.get("computeMinor"))
        rocm = is_rocm(header)
        vendor = "amd" if rocm else _vendor(name or "", has_capability=major > 0)
        known = (rocm or vendor == "nvidia") and major > 0 and minor >= 0
        found[id] = DeviceFacts(
            kind="gpu",
            name=name or None,
            vendor=vendor,
            compute_capability=(major, minor) if known else None,
            memory_bytes=_positive(entry.get("totalGlobalMem")),
            sm_count=_positive(entry.get("numSms")),
        )
    return found


def _positive(value: object) -> int | None:
    number = whole(value)
    return number if number > 0 else None


def _vendor(name: str, *, has_capability: bool) -> Vendor:
    lower = name.lower()
    if any(word in lower for word in ("amd", "radeon", "instinct", "gfx")):
        return "amd"
    if "intel" in lower:
        return "intel"
    known = ("nvidia", "tesla", "geforce", "quadro", "titan")
    return "nvidia" if any(word in lower for word in known) or has_capability else "unknown"


def step_number(name: str) -> int:
    """Return the number of a `ProfilerStep#5`, -1 for another name."""
    return whole(name.removeprefix(STEP)) if name.startswith(STEP) else -1


def own_step_number(name: str) -> int:
    """Return the number of a `mpprof_step#5`, -1 for another name."""
    return whole(name.removeprefix(OWN_STEP)) if name.startswith(OWN_STEP) else -1


def note_kind(name: str) -> HostKind:
    """Return what an annotation means."""
    if name.startswith("enumerate(DataLoader)"):
        return HostKind.INPUT
    if name.startswith(("Optimizer.step", "Optimizer.zero_grad", "DistributedDataParallel.")):
        return HostKind.EXECUTOR
    kind = host_kind(name)
    return HostKind.OTHER if kind is HostKind.OP else kind


# --- What Kineto writes into an event's `args`: launch dimensions, and the inputs of an op.

_DTYPES = {
    "c10::bfloat16": "bfloat16", "c10::half": "half", "long int": "int64", "long": "int64", "int": "int32",
    "short int": "int16", "short": "int16", "signed char": "int8", "unsigned char": "uint8", "char": "int8",
    "c10::complex<float>": "complex64", "c10::complex<double>": "complex128",
    "unsigned short": "uint16", "unsigned int": "uint32", "unsigned long": "uint64",
}  # fmt: skip
"""C++ types as Kineto prints them (`Input type`), in the spelling of TensorFlow's `tensor_shapes`."""

_NO_TENSOR = frozenset(("", "scalar", "scalarlist", "tensorlist", "genericlist", "device", "none", "string"))
_NAME = re.compile(r"[a-z_][\w:]{0,63}")
_MOST = 16
"""Inputs of an op that are written down."""


def shapes(args: dict[str, Any]) -> str:
    """Return the tensors among an op's inputs: "(bfloat16[4,3,224,224];bfloat16[768,3,16,16])", and of a
    collective what it sends; "" where they are unknown."""
    sent, count = args.get("dtype"), args.get("In msg nelems")
    if "Collective name" in args and isinstance(sent, str) and isinstance(count, int) and _flat([count]):
        return f"({_dtype(sent)}[{count}])"
    dims = args.get("Input Dims", args.get("Input dims"))
    types = args.get("Input type", args.get("Input Type"))
    if not isinstance(dims, list) or not isinstance(types, list):
        return ""
    tensors = []
    for shape, dtype in zip(dims[:64], types[:64], strict=False):
        if not isinstance(dtype, str) or dtype.lower() in _NO_TENSOR or not _flat(shape):
            continue
        tensors.append(f"{_dtype(dtype)}[{','.join(map(str, shape))}]")
        if len(tensors) == _MOST:
            break
    return f"({';'.join(tensors)})" if tensors else ""


def _flat(shape: object) -> bool:
    return (
        isinstance(shape, list)
        and len(shape) <= 16
        and all(isinstance(size, int) and abs(size) < 10**15 for size in shape)
    )


def _dtype(text: str) -> str:
    lower = text.lower()
    name = _DTYPES.get(lower) or lower.removeprefix("c10::")
    return name if _NAME.fullmatch(name) else "unknown"


def details(args: dict[str, Any]) -> str:
    """Return registers, shared memory, grid and block, spelled as in an xplane's `kernel_details`; "" where
    none are stated."""
    parts = [
        f"{short}:{value}"
        for short, key in (("regs", "registers per thread"), ("shared", "shared memory"))
        if isinstance(value := args.get(key), int) and abs(value) < 1 << 60
    ]
    for key in ("grid", "block"):
        size = args.get(key)
        if isinstance(size, list) and len(size) == 3 and _flat(size):
            parts.append(f"{key}:{','.join(map(str, size))}")
    occupancy = args.get("est. achieved occupancy %")
    if isinstance(occupancy, int) and 0 <= occupancy <= 100:
        parts.append(f"occ_pct:{occupancy}")
    return " ".join(parts)


def graph_of(args: dict[str, Any]) -> int:
    """Return the CUDA graph that a kernel ran in, -1 where none is stated; 0 is Kineto's value for "no
    graph"."""
    value = args.get("graph id")
    return value if isinstance(value, int) and 0 < value < 1 << 62 else -1
