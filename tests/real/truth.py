"""What the raw events of a TensorFlow trace say of its training steps, by DESIGN.md's definitions.

An oracle for the tests: protobuf and the standard library only, no line of mpprof. Times are nanoseconds on
the trace's own clock (a line's `timestamp_ns` plus the event's `offset_ps`).

What was seen in real traces:

* TensorFlow 2.4 to 2.14 with Keras 2 (2021 to 2023): Python's call of the compiled step is a host event
  `train_function` with the stats `tf_function_call` and `tracing_count`. In it lie `EagerExecute:` and
  `EagerLocalExecute: __inference_train_function_N`, which start 0.3 to 1.5 ms later and end 0.1 to 0.7 ms
  earlier. The outermost one is the call.
* Keras 3 (TensorFlow 2.21): `multi_step_on_iterator` or `one_step_on_iterator` takes the place of
  `train_function`, and `EagerLocalExecute: __inference_multi_step_on_iterator_N` lies in it. The eager ops
  `OptionalHasValue`, `OptionalGetValue` and `ReadVariableOp` follow it: they read the logs.
* The kernels of a call are launched by executor threads (`tf_Compute/...`), joined by `correlation_id`. In
  old traces the launching host event bears the kernel's own name (and a `kernel_details` of garbage), in
  newer ones `cuLaunchKernel`.
* Keras reads the logs after the call: `cuStreamSynchronize`, which may wait for the step's last kernels, and
  copies of 4 bytes to the host. Then TensorBoard's callback runs `LogicalAnd`, `Identity`, `WriteSummary` and
  `FlushSummaryWriter` eagerly. XProf's `Steps` line ends with the last of these that uses the device.
* The iterator's own wait is `IteratorGetNextOp::DoCompute` on its own thread (`IteratorGetNextAsOptionalOp`,
  `MultiDeviceIteratorGetNextFromShard` under a strategy). `IteratorGetNext/_N:_Send` is a copy to the device.
* Ops of the pipeline's map functions (`GatherV2`) run on the same executor threads as the step's ops, under
  an `ExecutorState::Process` with another `id`: they fetch a later batch and belong to no step.
"""

import gzip
import hashlib
import importlib.util
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

PROTOBUF_HOMES = (
    ("tensorflow", "tsl/profiler/protobuf/xplane_pb2.py"),
    ("xprof", "protobuf/xplane_pb2.py"),
    ("tensorboard_plugin_profile", "protobuf/xplane_pb2.py"),
)
STEP = r"(?:train_function|one_step_on_iterator|multi_step_on_iterator|one_step_on_data|multi_step_on_data)"
PYTHON_CALL = re.compile(rf"^{STEP}$")
EAGER_CALL = re.compile(rf"^EagerLocalExecute: __inference_{STEP}_\d+$")
EAGER_OP = re.compile(r"^Eager(?:Local)?Execute: (?!__inference)(\w+)$")
FETCH = re.compile(r"^IteratorGetNext(?:AsOptional)?Op::DoCompute$")
ITERATOR_WAIT = re.compile(
    r"^(?:IteratorGetNext(?:AsOptional|Sync)?(?:Op::DoCompute|:IteratorGetNext\w*)"
    r"|MultiDeviceIteratorGetNextFromShard(?::.*|Op::.*)?)$"
)
STREAM = re.compile(r"^Stream #")
COPY = re.compile(r"^Memcpy(\w+)$")
# What the names of libraries without template arguments state; sgemm and scudnn end a word of their own, so that
# `h884gemm` and `fp16_s884cudnn` are not among them.
TYPED_NAMES = (
    (re.compile(r"tf32"), "tf32"),
    (re.compile(r"bf16"), "bfloat16"),
    (re.compile(r"(?<!b)f16|fp16|_h\d+(?:gemm|cudnn)|hgemm|hcudnn"), "half"),
    (re.compile(r"(?:^|_)(?:s|g?c)(?:gemm|cudnn)(?:_|$)|gcgemm_|cgemm_"), "float"),
    (re.compile(r"(?:^|_)dgemm"), "double"),
)
TYPE_WORDS = {
    "float": "float",
    "float2": "float",
    "float4": "float",
    "__half": "half",
    "half": "half",
    "Eigen::half": "half",
    "__nv_bfloat16": "bfloat16",
    "Eigen::bfloat16": "bfloat16",
    "double": "double",
}
MATRIX = re.compile(
    r"gemm|gemv|scudnn|hcudnn|fp16_s1688|winograd_\d+x\d+|implicit_convolve|(?:d|w)grad|conv2d_grouped"
    r"|DepthwiseConv|conv2d_c1|xmma|nvjet|cutlass"
)


@dataclass(frozen=True)
class HostEvent:
    """An event of a host thread; `thread` is the line's id, times in ns."""

    thread: int
    name: str
    start_ns: float
    end_ns: float
    stats: Mapping[str, Any]


@dataclass(frozen=True)
class DeviceEvent:
    """A kernel, copy or fill on a stream; `size_bytes` is 0 for kernels, times in ns."""

    device: str
    stream: str
    name: str
    op: str
    start_ns: float
    end_ns: float
    correlation_id: int | None
    size_bytes: int

    @property
    def duration_ns(self) -> float:
        return self.end_ns - self.start_ns

    @property
    def is_kernel(self) -> bool:
        return not self.name.startswith(("Memcpy", "Memset"))


@dataclass(frozen=True)
class Device:
    """A device plane's own statement of its card; None where the plane does not say."""

    plane: str
    compute_capability: tuple[int, int] | None
    sm_count: int | None
    memory_bytes: int | None
    memory_bandwidth_bytes_per_s: int | None
    clock_khz: int | None
    name: str | None


@dataclass(frozen=True)
class Step:
    """One call of the train function: from `start_ns` to the later of its host end and its last device work."""

    call: str
    start_ns: float
    host_end_ns: float
    end_ns: float
    steps: int
    device_ns: float
    iterator_wait_ns: float
    iterator_wait_idle_ns: float

    @property
    def function_ns(self) -> float:
        return (self.end_ns - self.start_ns) / self.steps


@dataclass(frozen=True)
class Between:
    """Work outside every call, by the name of the eager op (or of the launching call) that did it; sums in ns."""

    name: str
    host_ns: float
    device_ns: float
    count: int


@dataclass(frozen=True)
class Copies:
    """All copies of one direction in the file."""

    direction: str
    count: int
    total_ns: float
    size_bytes: int


@dataclass(frozen=True)
class Kernel:
    """All kernels of one name; `ratio` is of the file's kernel time, `types` what its name says of its operands."""

    name: str
    calls: int
    total_ns: float
    ratio: float
    types: frozenset[str]
    matrix: bool


@dataclass(frozen=True)
class Allocator:
    """One allocator's bytes: the peak since the process began, the highest value in this window, and the value
    after each event (`live_bytes`, in order of time)."""

    name: str
    peak_bytes: int
    window_peak_bytes: int
    live_bytes: tuple[int, ...] = ()


@dataclass(frozen=True)
class Op:
    """An op that ran on the host's executor threads, all of its calls summed (ns); `pipeline`: not the step's."""

    type: str
    calls: int
    total_ns: float
    pipeline: bool


@dataclass(frozen=True)
class Truth:
    """What one trace file says."""

    sha256: str
    devices: tuple[Device, ...]
    steps: tuple[Step, ...]
    between: tuple[Between, ...]
    copies: tuple[Copies, ...]
    kernels: tuple[Kernel, ...]
    kernel_ns: float
    allocators: tuple[Allocator, ...]
    host_ops: tuple[Op, ...]
    marked_step_ns: tuple[float, ...]
    precision: str

    @property
    def function_ns(self) -> float | None:
        """The mean length of a step, None without a call."""
        count = sum(step.steps for step in self.steps)
        return sum(step.end_ns - step.start_ns for step in self.steps) / count if count else None

    @property
    def step_count(self) -> int:
        return sum(step.steps for step in self.steps)

    @property
    def iterator_wait_ns(self) -> float | None:
        """The mean time a step's iterator was waited for."""
        return sum(step.iterator_wait_ns for step in self.steps) / self.step_count if self.steps else None


@cache
def protobuf() -> ModuleType:
    """Load the generated xplane_pb2 of whichever package is installed, without importing that package."""
    for package, path in PROTOBUF_HOMES:
        found = importlib.util.find_spec(package)
        for folder in (found.submodule_search_locations or ()) if found else ():
            file = Path(folder) / path
            if file.is_file():
                spec = importlib.util.spec_from_file_location("xplane_pb2", file)
                module = importlib.util.module_from_spec(spec)
                spec.loader.exec_module(module)
                return module
    raise ModuleNotFoundError("no package with an xplane_pb2 is installed (tensorflow has one)")


def read(path: Path) -> Truth:
    """Derive what the trace at `path` says."""
    data = path.read_bytes()
    space = protobuf().XSpace()
    space.ParseFromString(data)
    host = sorted(_host_events(space), key=lambda event: (event.start_ns, -event.end_ns))
    device = sorted(_device_events(space), key=lambda event: event.start_ns)
    calls = _calls(host)
    kernels = _kernels(device)
    return Truth(
        sha256=hashlib.sha256(data).hexdigest(),
        devices=tuple(_devices(space)),
        steps=tuple(_steps(calls, host, device)),
        between=tuple(_between(calls, host, device)),
        copies=tuple(_copies(device)),
        kernels=kernels,
        kernel_ns=sum(kernel.total_ns for kernel in kernels),
        allocators=tuple(_allocators(host)),
        host_ops=tuple(_host_ops(host, calls)),
        marked_step_ns=tuple(_marked(space, host)),
        precision=precision(kernels),
    )


def device_events(path: Path) -> tuple[DeviceEvent, ...]:
    """Return all work of the devices in a file that may be packed, in the order of time."""
    return tuple(sorted(_device_events(_space(path)), key=lambda event: event.start_ns))


def _space(path: Path) -> Any:
    data = path.read_bytes()
    space = protobuf().XSpace()
    space.ParseFromString(gzip.decompress(data) if path.suffix == ".gz" else data)
    return space


def lowered_by_exact_blocks(path: Path, allocator: str) -> int:
    """Return by how many bytes an allocator's peak would be lower if each block held what was asked for,
    counted from the blocks that this window shows being given out."""
    events = sorted(_host_events(_space(path)), key=lambda event: event.start_ns)
    stats = [event.stats for event in events if event.stats.get("allocator_name") == allocator]
    names = [event.name for event in events if event.stats.get("allocator_name") == allocator]
    live: dict[int, int] = {}
    moments = []
    for name, one in zip(names, stats, strict=True):
        if name == "MemoryAllocation":
            live[one["addr"]] = one["allocation_bytes"] - one["requested_bytes"]
        else:
            live.pop(one["addr"], None)
        moments.append((one["bytes_allocated"], sum(live.values())))
    return max(held for held, _ in moments) - max(held - beyond for held, beyond in moments)


def union_ns(intervals: Iterable[tuple[float, float]]) -> float:
    """Return the length covered by `intervals` together."""
    total, reached = 0.0, float("-inf")
    for start, end in sorted(intervals):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total


def overlap_ns(some: Iterable[tuple[float, float]], others: Iterable[tuple[float, float]]) -> float:
    """Return the length covered by both sets of intervals."""
    some, others = list(some), list(others)
    return union_ns(some) + union_ns(others) - union_ns([*some, *others])


def types_of(name: str) -> frozenset[str]:
    """Return the operand types a kernel's name states: in its template arguments or by a known prefix."""
    arguments = re.findall(r"[\w:]+", " ".join(re.findall(r"<(.*)>", name))) if "<" in name else []
    found = {TYPE_WORDS[word] for word in arguments if word in TYPE_WORDS}
    plain = name.split("<")[0]
    return frozenset(found | {kind for pattern, kind in TYPED_NAMES if pattern.search(plain)})


def is_matrix(name: str) -> bool:
    """Say whether a kernel's function name states matrix work (transforms and helpers of it do not)."""
    function = re.sub(r"^void ", "", name).split("(")[0].split("<")[0]
    return bool(MATRIX.search(function))


def precision(kernels: Iterable[Kernel]) -> str:
    """Name what the matrix kernels compute in: float32, 16-bit, partly, or not known."""
    matrix = [kernel for kernel in kernels if kernel.matrix]
    total = sum(kernel.total_ns for kernel in matrix)
    if not total:
        return "not known"
    narrow = sum(kernel.total_ns for kernel in matrix if kernel.types & {"half", "bfloat16"}) / total
    wide = (
        sum(kernel.total_ns for kernel in matrix if kernel.types and not kernel.types & {"half", "bfloat16"})
        / total
    )
    if narrow >= 0.5:
        return "16-bit"
    if wide > 0.99:
        return "float32"
    return "partly" if narrow + wide > 0.99 else "not known"


def _stats(plane: Any, holder: Any) -> dict[str, Any]:
    values = {}
    for stat in holder.stats:
        kind = stat.WhichOneof("value")
        value = getattr(stat, kind) if kind else None
        values[plane.stat_metadata[stat.metadata_id].name] = (
            plane.stat_metadata[value].name if kind == "ref_value" else value
        )
    return values


def _events(space: Any, wanted: re.Pattern[str]) -> Iterator[tuple[Any, Any, Any, float]]:
    for plane in space.planes:
        if wanted.match(plane.name):
            for line in plane.lines:
                for event in line.events:
                    yield plane, line, event, line.timestamp_ns + event.offset_ps / 1000


def _host_events(space: Any) -> Iterator[HostEvent]:
    for plane, line, event, start_ns in _events(space, re.compile(r"^/host:CPU$")):
        yield HostEvent(
            thread=line.id,
            name=plane.event_metadata[event.metadata_id].name,
            start_ns=start_ns,
            end_ns=start_ns + event.duration_ps / 1000,
            stats=_stats(plane, event),
        )


def _device_events(space: Any) -> Iterator[DeviceEvent]:
    for plane, line, event, start_ns in _events(space, re.compile(r"^/device:GPU:\d+$")):
        if not STREAM.match(line.name):
            continue
        metadata = plane.event_metadata[event.metadata_id]
        stats = _stats(plane, metadata) | _stats(plane, event)
        size = re.search(r"size:(\d+)", str(stats.get("memcpy_details", "")))
        yield DeviceEvent(
            device=plane.name,
            stream=line.name,
            name=metadata.name,
            op=str(stats.get("tf_op") or stats.get("annotation") or ""),
            start_ns=start_ns,
            end_ns=start_ns + event.duration_ps / 1000,
            correlation_id=stats.get("correlation_id"),
            size_bytes=int(size[1]) if size else 0,
        )


def _devices(space: Any) -> Iterator[Device]:
    for plane in space.planes:
        if not re.match(r"^/device:GPU:\d+$", plane.name):
            continue
        stats = _stats(plane, plane)
        major, minor = stats.get("compute_cap_major"), stats.get("compute_cap_minor")
        yield Device(
            plane=plane.name,
            compute_capability=None if major is None else (int(major), int(minor or 0)),
            sm_count=stats.get("core_count"),
            memory_bytes=stats.get("memory_size"),
            memory_bandwidth_bytes_per_s=stats.get("memory_bandwidth"),
            clock_khz=stats.get("clock_rate"),
            name=stats.get("device_name") or stats.get("device_type_string"),
        )


def _calls(host: list[HostEvent]) -> list[HostEvent]:
    """Return the train function's calls: Python's own event, else the eager executor's."""
    for pattern in (PYTHON_CALL, EAGER_CALL):
        if found := [event for event in host if pattern.match(event.name)]:
            return _outermost(found)
    return []


def _outermost(events: list[HostEvent]) -> list[HostEvent]:
    """Drop the events that lie in another one of the same thread (of equal ones the first stays)."""
    kept: list[HostEvent] = []
    reached: dict[int, float] = defaultdict(lambda: float("-inf"))
    for event in events:
        if event.end_ns > reached[event.thread]:
            kept.append(event)
            reached[event.thread] = event.end_ns
    return kept


def _launches(host: list[HostEvent]) -> dict[int, HostEvent]:
    return {event.stats["correlation_id"]: event for event in host if "correlation_id" in event.stats}


def _within(event: HostEvent, call: HostEvent) -> bool:
    return call.start_ns <= event.start_ns <= call.end_ns


def _steps(calls: list[HostEvent], host: list[HostEvent], device: list[DeviceEvent]) -> Iterator[Step]:
    launches = _launches(host)
    waits = [event for event in host if ITERATOR_WAIT.match(event.name)]
    fetches = [event for event in host if FETCH.match(event.name)]
    busy = [(event.start_ns, event.end_ns) for event in device]
    before = float("-inf")
    for call in calls:
        own = [
            event
            for event in device
            if (launch := launches.get(event.correlation_id or -1)) is not None and _within(launch, call)
        ]
        end_ns = max([call.end_ns, *(event.end_ns for event in own)])
        start_ns = max(call.start_ns, before)
        before = max([before, *(event.end_ns for event in own)])
        waited = [
            (max(wait.start_ns, start_ns), min(wait.end_ns, end_ns))
            for wait in waits
            if wait.start_ns < end_ns and wait.end_ns > start_ns
        ]
        yield Step(
            call=call.name,
            start_ns=start_ns,
            host_end_ns=call.end_ns,
            end_ns=end_ns,
            steps=max(1, sum(_within(fetch, call) for fetch in fetches)),
            device_ns=union_ns((event.start_ns, event.end_ns) for event in own),
            iterator_wait_ns=union_ns(waited),
            iterator_wait_idle_ns=union_ns(waited) - overlap_ns(waited, busy),
        )


def _between(calls: list[HostEvent], host: list[HostEvent], device: list[DeviceEvent]) -> list[Between]:
    """Sum up the eager ops and launches outside every call, longest on the host first."""
    if not calls:
        return []
    threads = {call.thread for call in calls}
    outside = [event for event in host if not any(_within(event, call) for call in calls)]
    ops = _outermost([event for event in outside if event.thread in threads and EAGER_OP.match(event.name)])
    host_ns: dict[str, list[tuple[float, float]]] = defaultdict(list)
    device_ns: dict[str, float] = defaultdict(float)
    for op in ops:
        host_ns[_op_name(op)].append((op.start_ns, op.end_ns))
    launches = {key: event for key, event in _launches(outside).items() if event.thread in threads}
    for event in device:
        launch = launches.get(event.correlation_id or -1)
        if launch is None:
            continue
        owner = next((op for op in ops if op.thread == launch.thread and _within(launch, op)), None)
        name = _op_name(owner) if owner else launch.name
        device_ns[name] += event.duration_ns
        if owner is None:
            host_ns[name].append((launch.start_ns, launch.end_ns))
    found = [
        Between(name, union_ns(parts), device_ns.get(name, 0.0), len(parts))
        for name, parts in host_ns.items()
    ]
    return sorted(found, key=lambda one: -one.host_ns)


def _op_name(event: HostEvent) -> str:
    named = EAGER_OP.match(event.name)
    return named[1] if named else event.name


def _copies(device: list[DeviceEvent]) -> Iterator[Copies]:
    by_direction: dict[str, list[DeviceEvent]] = defaultdict(list)
    for event in device:
        if named := COPY.match(event.name):
            by_direction[named[1]].append(event)
    for direction, events in sorted(by_direction.items()):
        yield Copies(
            direction, len(events), sum(e.duration_ns for e in events), sum(e.size_bytes for e in events)
        )


def _kernels(device: list[DeviceEvent]) -> tuple[Kernel, ...]:
    by_name: dict[str, list[DeviceEvent]] = defaultdict(list)
    for event in device:
        if event.is_kernel:
            by_name[event.name].append(event)
    total = sum(event.duration_ns for events in by_name.values() for event in events)
    found = [
        Kernel(
            name=name,
            calls=len(events),
            total_ns=sum(event.duration_ns for event in events),
            ratio=sum(event.duration_ns for event in events) / total,
            types=types_of(name),
            matrix=is_matrix(name),
        )
        for name, events in by_name.items()
    ]
    return tuple(sorted(found, key=lambda kernel: -kernel.total_ns))


def _allocators(host: list[HostEvent]) -> Iterator[Allocator]:
    by_name: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for event in host:
        if event.name in ("MemoryAllocation", "MemoryDeallocation") and "allocator_name" in event.stats:
            by_name[str(event.stats["allocator_name"])].append(event.stats)
    for name, stats in sorted(by_name.items()):
        yield Allocator(
            name=name,
            peak_bytes=max(int(one.get("peak_bytes_in_use", 0)) for one in stats),
            window_peak_bytes=max(int(one.get("bytes_allocated", 0)) for one in stats),
            live_bytes=tuple(int(one.get("bytes_allocated", 0)) for one in stats),
        )


def _host_ops(host: list[HostEvent], calls: list[HostEvent]) -> list[Op]:
    """Sum up the ops of the executor's threads by type; those under another function's executor are `pipeline`."""
    own = {
        event.stats["id"]
        for event in host
        if event.name == "FunctionRun"
        and "id" in event.stats
        and any(event.thread == call.thread and _within(event, call) for call in calls)
    }
    processes: dict[int, list[HostEvent]] = defaultdict(list)
    sums: dict[tuple[str, bool], list[float]] = defaultdict(list)
    for event in host:
        if event.name == "ExecutorState::Process":
            processes[event.thread].append(event)
        elif "is_eager" in event.stats and event.stats["is_eager"] == 0 and ":" in event.name:
            around = [one.stats.get("id") for one in processes[event.thread] if _within(event, one)]
            pipeline = bool(around) and bool(own) and not own.intersection(around)
            sums[(event.name.rpartition(":")[2], pipeline)].append(event.end_ns - event.start_ns)
    found = [Op(kind, len(parts), sum(parts), pipeline) for (kind, pipeline), parts in sums.items()]
    return sorted(found, key=lambda op: -op.total_ns)


def _marked(space: Any, host: list[HostEvent]) -> Iterator[float]:
    """Yield the length of each step as the collector marked it: its `Steps` line, else events with `_r` and a number."""
    lines = [line for plane in space.planes for line in plane.lines if line.name == "Steps"]
    for line in lines:
        yield from (event.duration_ps / 1000 for event in line.events)
    if not lines:
        yield from (event.end_ns - event.start_ns for event in host if "step_num" in event.stats)
