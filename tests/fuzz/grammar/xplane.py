"""Draws valid xplane files: what TensorFlow, JAX and XProf write of a GPU, a TPU, an AMD or Apple GPU and a CPU, of one
host or several, with what the format allows and few writers do."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.builders.hlo import PROGRAM, Instruction, metadata_plane
from tests.fuzz.grammar import words
from tests.fuzz.grammar.xplane_tree import (
    BYTES,
    DOUBLE,
    INT,
    REF,
    TEXT,
    UINT,
    Event,
    Line,
    Plane,
    Space,
    Stat,
    parse_plane,
)

STARTED_NS = 1_700_000_000_000_000_000
DERIVED_IDS = tuple(range(0xDEADBEEF, 0xDEADBEEF + 8))
FAR = (0, 1, -1, 5, 10**17 + 1, 2**61, 2**62, 2**63 - 1, -(2**63))
"""Clocks that no machine has."""

Value = int | float | str | bytes


@dataclass
class Scene:
    """A file being drawn. Times are nanoseconds from the profile's start."""

    dice: random.Random
    space: Space = field(default_factory=Space)
    now_ns: int = 0
    correlation: int = 0
    odd: float = 0.0  # how often an event is an unusual one
    base_ns: int = 0  # what the lines' timestamps count from

    def plane(self, name: str, **stats: Value) -> Plane:
        plane = Plane(name, id=len(self.space.planes))
        plane.stats = [self.stat(plane, key, value) for key, value in stats.items()]
        self.space.planes.append(plane)
        return plane

    def line(self, plane: Plane, id: int, name: str) -> Line:
        line = Line(id, name, self.base_ns + self.dice.choice((0, 0, 0, 1_000, 777_777)))
        plane.lines.append(line)
        return line

    def stat(self, plane: Plane, key: str, value: Value) -> Stat:
        id = plane.stat_id(key)
        if isinstance(value, str):
            if self.dice.random() < 0.5:
                return Stat(id, REF, plane.stat_id(value))
            return Stat(id, TEXT, value.encode())
        if isinstance(value, bytes):
            return Stat(id, BYTES, value)
        if isinstance(value, float):
            return Stat(id, DOUBLE, value)
        return Stat(id, INT if value < 0 or self.dice.random() < 0.3 else UINT, value)

    def put(
        self, plane: Plane, line: Line, name: str, start_ns: int, ns: int, display: str = "", **stats: Value
    ) -> None:
        """An event, now and then an unusual one."""
        dice = self.dice
        made = [self.stat(plane, key.removeprefix("n_"), value) for key, value in stats.items()]
        id = plane.name_id(name, display)
        offset_ps = (start_ns - (line.timestamp_ns - self.base_ns)) * 1000 + dice.randrange(1000)
        event = Event(id, offset_ps, ns * 1000, made)
        if dice.random() < self.odd:
            self._unusual(plane, event)
        line.events.append(event)

    def _unusual(self, plane: Plane, event: Event) -> None:
        dice = self.dice
        match dice.randrange(9):
            case 0:
                event.duration_ps = 0
            case 1:
                event.occurrences = dice.choice((0, 1, 99, 2**40))
            case 2:
                event.metadata = plane.name_id(words.name(dice))
            case 3:
                event.metadata = dice.choice((0, 2**20, 2**40, -1))
            case 4 if event.stats:  # of another type, or twice
                stat = dice.choice(event.stats)
                kind, value = words.value(dice)
                event.stats.append(Stat(stat.key, kind, value))
            case 5:
                event.stats.append(Stat(dice.choice((0, 2**30, 2**50, -5)), UINT, 1))
            case 6:
                event.duration_ps = dice.choice((1, 999, 2**50, 2**62, 2**63 - 1))
            case 7:
                event.offset_ps = dice.choice((-1, -(10**9), 2**62, 2**63 - 1, -(2**63)))
            case _:
                kind, value = words.value(dice)
                event.stats.append(Stat(plane.stat_id(words.name(dice)), kind, value))

    def between(self, low: int, high: int) -> int:
        """A length, small ones as likely as large ones."""
        return round(low * (high / low) ** self.dice.random())


def made(dice: random.Random) -> Space:
    """A whole file."""
    scene = Scene(dice, odd=dice.choice((0.0, 0.0, 0.02, 0.2)))
    scene.base_ns = dice.choice((0, 0, 0, 1, 10**9, STARTED_NS, STARTED_NS + 10**9))
    scene.now_ns = dice.choice((0, 1_000, 10**6, 4 * 10**9))
    kind = dice.choice(KINDS)
    kind(scene)
    if dice.random() < 0.15:
        scene.space.hostnames.append(dice.choice(("here", "", "名前", "a" * 300)))
    if dice.random() < 0.8:
        started = STARTED_NS if dice.random() < 0.85 else dice.choice(FAR)
        scene.plane("Task Environment", profile_start_time=started, profile_stop_time=started + 10**9)
    if dice.random() < 0.1:
        line = dice.choice([line for plane in scene.space.planes for line in plane.lines] or [Line(0, "")])
        line.timestamp_ns = dice.choice(FAR)
    if dice.random() < 0.05:
        scene.space.errors.append(words.name(dice))
    if dice.random() < 0.1:
        scene.space.warnings.append(words.name(dice))
    return scene.space


# --- the host ----------------------------------------------------------------------------------------------


@dataclass
class _Host:
    plane: Plane
    python: Line
    executor: Line
    iterator: Line
    api: Line
    api_plane: Plane


def _host(scene: Scene, *, own_api_plane: str = "") -> _Host:
    dice = scene.dice
    plane = scene.plane("/host:CPU")
    python = scene.line(
        plane, dice.choice((11, 2**31, 2**63 - 1, -1912837)), dice.choice(("python", "python3", "", "main"))
    )
    executor = scene.line(plane, dice.choice((4117, 2**40)), "tf_Compute/4117")
    iterator = scene.line(plane, 4130, "tf_data_iterator_get_next/4130")
    api_plane = scene.plane(own_api_plane) if own_api_plane else plane
    return _Host(
        plane, python, executor, iterator, scene.line(api_plane, 904_117, "Host Threads/4117"), api_plane
    )


@dataclass
class _Style:
    """How a version writes a step: its markers, its call, and how a kernel names its op."""

    marker: str
    call: str
    op: str
    launch_named_like_kernel: bool
    kernels: list[tuple[str, str]]  # of a step, each with its op


def _style(dice: random.Random) -> _Style:
    count = dice.choice((0, 1, 3, 3, 8, 8, 20))
    kernels = [f"{dice.choice(words.KERNELS)}{at if dice.random() < 0.3 else ''}" for at in range(count)]
    return _Style(
        dice.choice(("", "mpprof_step", "mpprof_step", "TraceContext", "Profiled batch", "train")),
        dice.choice(
            ("train_function", "multi_step_on_iterator", "multi_step_on_iterator", "PjitFunction(step)", "")
        ),
        dice.choice(("tf_op", "annotation", "hlo", "")),
        dice.random() < 0.3,
        [(kernel, dice.choice(words.OPS)) for kernel in kernels],
    )


def _step(scene: Scene, host: _Host, style: _Style, number: int, devices: list[_Device]) -> None:
    """The host calls, launches and waits; the devices work the queue off."""
    dice = scene.dice
    begin = scene.now_ns
    at = begin + scene.between(1, 10**5)
    if dice.random() < 0.7:
        waited = scene.between(1, 10**6)
        scene.put(host.plane, host.iterator, "IteratorGetNextOp::DoCompute", at, waited)
        at += waited if dice.random() < 0.5 else 0
    if dice.random() < 0.4:
        scene.put(
            host.plane, host.executor, "ExecutorState::Process", at, scene.between(100, 10**6), n_id=number
        )
    for kernel, op in style.kernels:
        if dice.random() > scene.odd / 4:
            at = _launch(scene, host, style, dice.choice(devices), kernel, op, at)
    last = max([at, *(device.free_ns for device in devices)])
    if dice.random() < 0.6:
        scene.put(host.api_plane, host.api, "cuStreamSynchronize", at, last - at)
        at = last
    end = at + scene.between(1, 10**5) if dice.random() < 0.95 else begin
    if style.call:
        stats: dict[str, Value] = {
            "tf_function_call": dice.choice(("notTraced-nonXla", "traced-nonXla")),
            "tracing_count": 1,
        }
        scene.put(host.plane, host.python, style.call, begin, end - begin, **stats)
        if style.call != "PjitFunction(step)":
            for name in ("EagerExecute", "EagerLocalExecute"):
                full = f"{name}: __inference_{style.call}_17"
                scene.put(host.plane, host.python, full, begin, end - begin)
    if style.marker == "Profiled batch":
        scene.put(host.plane, host.python, f"Profiled batch {number}", begin, end - begin)
    elif style.marker:
        scene.put(host.plane, host.python, style.marker, begin, end - begin, step_num=number, n__r=1)
    scene.now_ns = end + (scene.between(1, 10**6) if dice.random() < 0.9 else 0)
    if dice.random() < 0.3:
        _between(scene, host, style, devices)


def _between(scene: Scene, host: _Host, style: _Style, devices: list[_Device]) -> None:
    """What a callback launches after the step: an eager op, alone."""
    at = scene.now_ns
    for name in ("WriteSummary", "FlushSummaryWriter"):
        scene.put(host.plane, host.python, name, at, scene.between(10**3, 10**6))
    kernel = "LogicalAnd_GPU_DT_BOOL_DT_BOOL_kernel"
    scene.now_ns = _launch(scene, host, style, devices[0], kernel, "LogicalAnd:LogicalAnd", at) + 1


def _launch(scene: Scene, host: _Host, style: _Style, device: _Device, kernel: str, op: str, at: int) -> int:
    """A launch and its kernel; returns when the call has returned."""
    dice = scene.dice
    scene.correlation += 1
    length = scene.between(500, 10**5)
    name = (
        kernel
        if style.launch_named_like_kernel
        else dice.choice(("cuLaunchKernel", "cudaLaunchKernel", "hipLaunchKernel"))
    )
    if dice.random() < 0.5:
        scene.put(host.plane, host.executor, op, at, length, op.rpartition(":")[2])
    scene.put(
        host.api_plane, host.api, name, at, length, correlation_id=scene.correlation, n_context_id="$$1"
    )
    start = max(at + scene.between(100, 10**5), device.free_ns)
    ns = scene.between(1, 10**6) if dice.random() < 0.97 else 0
    device.free_ns = start + ns
    stats: dict[str, Value] = {"correlation_id": scene.correlation}
    if style.op == "hlo":
        stats |= {
            "hlo_op": dice.choice(INSTRUCTIONS).name,
            "hlo_module": "jit_step",
            "program_id": PROGRAM,
            "n_name": op,
        }
    elif style.op:
        stats[style.op] = op + ("" if style.op == "tf_op" else "#shape=x#")
    if kernel.startswith("Mem"):
        stats["memcpy_details"] = f"kind:Unknown size:{dice.choice((4, 10**6, 10**30))} dest:0 async:1"
    elif dice.random() < 0.5:
        stats["kernel_details"] = (
            "regs:96 static_shared:0 dynamic_shared:49152 grid:640,1,1 block:256,1,1 occ_pct:25"
        )
    if dice.random() < 0.2:
        stats["tensor_shapes"] = dice.choice(
            ("(half[64,3,224,224];half[64,3,7,7])", "()", "(f32[9223372036854775807,9223372036854775807])")
        )
    if dice.random() < 0.1:
        stats["cuda_graph_id"] = 3
    scene.put(device.plane, dice.choice(device.streams), kernel, start, ns, **stats)
    if dice.random() < 0.2:
        _allocate(scene, host, at, op)
    return at + length


def _allocate(scene: Scene, host: _Host, at: int, op: str) -> None:
    size = scene.dice.choice((256, 10**6, 2**40, 2**63 - 1))
    scene.put(
        host.plane, host.executor, scene.dice.choice(("MemoryAllocation", "MemoryDeallocation")), at, 0, allocator_name="GPU_0_bfc",
        addr=64 * scene.correlation, bytes_allocated=size, allocation_bytes=size, requested_bytes=size, peak_bytes_in_use=size,
        data_type=scene.dice.choice((1, 19, 14, 99)), tensor_shapes="[64,64]", tf_op=op, region_type="dynamic", bytes_reserved=0,
    )  # fmt: skip


# --- devices -----------------------------------------------------------------------------------------------


@dataclass
class _Device:
    plane: Plane
    streams: list[Line]
    free_ns: int = 0


_NVIDIA: dict[str, Value] = {
    "device_vendor": "Nvidia", "compute_cap_major": 7, "compute_cap_minor": 0, "memory_size": 16 << 30, "clock_rate": 1_530_000,
    "core_count": 80, "memory_bandwidth": 900 * 10**9,
}  # fmt: skip
_AMD: dict[str, Value] = {
    "device_vendor": "AMD",
    "compute_cap_major": 9,
    "compute_cap_minor": 4,
    "memory_size": 192 << 30,
    "core_count": 304,
}


def _device(scene: Scene, ordinal: int, **facts: Value) -> _Device:
    dice = scene.dice
    changed = dict(facts)
    if facts and dice.random() < scene.odd:
        changed[dice.choice(list(facts))] = dice.choice((0, -1, "x", 1.5, 2**63 - 1))
    plane = scene.plane(f"/device:GPU:{ordinal}", **changed)
    streams = [scene.line(plane, 13, "Stream #13(Compute)")]
    for id, name in ((14, "Stream #14(MemcpyH2D)"), (15, "Stream #15(MemcpyD2H,Memset)"), (16, "")):
        if dice.random() < 0.3:
            streams.append(scene.line(plane, id, name))
    return _Device(plane, streams, scene.now_ns)


def _converted(scene: Scene, device: _Device, begins: list[int]) -> None:
    """Lines that a converter derives: what they hold ran already, or is a guess."""
    dice = scene.dice
    for at, name in enumerate(
        (
            "Steps",
            "XLA Modules",
            "XLA Ops",
            "Framework Ops",
            "Framework Name Scope",
            "Source code",
            "XLA Ops - from #13",
        )
    ):
        if dice.random() < 0.4:
            continue
        line = scene.line(
            device.plane, dice.choice((DERIVED_IDS[at], DERIVED_IDS[at] - (1 << 32), 100 + at)), name
        )
        for number, begin in enumerate(begins):
            end = begins[number + 1] if number + 1 < len(begins) else scene.now_ns
            named = str(number) if name == "Steps" else dice.choice(words.OPS)
            scene.put(
                device.plane, line, named, begin, max(0, end - begin), group_id=number, step_name=str(number)
            )


# --- kinds of files ----------------------------------------------------------------------------------------

_HALF = ("f16", (64, 64))
INSTRUCTIONS = (
    Instruction("dot.1", "dot", _HALF, (_HALF, _HALF), "jit(step)/dense/dot_general"),
    Instruction("fusion.1", "fusion", _HALF, (_HALF, _HALF), "jit(step)/dense/dot_general",
                inside=(Instruction("dot.9", "dot", _HALF, (_HALF, _HALF), "jit(step)/dense/dot_general"),)),
    Instruction("cublas.2", "custom-call", _HALF, (_HALF, _HALF), "jit(step)/out/dot", "__cublas$gemm", contracting=1),
    Instruction("convert.4", "convert", ("f32", (64,)), (("f16", (64,)),), "jit(step)/cast"),
)  # fmt: skip


def _gpu(scene: Scene, facts: dict[str, Value], api_plane: str = "") -> None:
    dice = scene.dice
    style = _style(dice)
    devices = [_device(scene, ordinal, **facts) for ordinal in range(dice.choice((1, 1, 1, 2, 8)))]
    host = _host(scene, own_api_plane=api_plane)
    begins = []
    for number in range(dice.choice((0, 1, 2, 3, 4, 5))):
        begins.append(scene.now_ns)
        _step(scene, host, style, dice.choice((number, number, 0, 2**40)), devices)
    if dice.random() < 0.4:
        _converted(scene, devices[0], begins)
    if style.op == "hlo" and dice.random() < 0.8:
        scene.space.planes.append(parse_plane(metadata_plane("jit_step", INSTRUCTIONS)))


def nvidia(scene: Scene) -> None:
    _gpu(scene, _NVIDIA)


def nvidia_with_cupti_plane(scene: Scene) -> None:
    _gpu(scene, _NVIDIA, "/host:CUPTI")


def rocm(scene: Scene) -> None:
    _gpu(scene, _AMD, "/host:ROCTRACER")


def metal(scene: Scene) -> None:
    """Apple's plug-in names neither vendor nor size."""
    _gpu(scene, {})


def tpu(scene: Scene) -> None:
    """A TPU's lines are no derivation; beside it SparseCores and what is no core."""
    dice = scene.dice
    host = _host(scene)
    for ordinal in range(dice.choice((1, 1, 4))):
        plane = scene.plane(f"/device:TPU:{ordinal}", device_type_string="TPU v5e")
        lines = {
            name: scene.line(plane, at, name)
            for at, name in enumerate(("Steps", "XLA Modules", "XLA Ops", "Async XLA Ops", "Framework Ops"))
        }
        for number in range(dice.choice((0, 1, 3))):
            begin = scene.now_ns
            for _ in range(dice.choice((0, 2, 9))):
                ns = scene.between(1, 10**5)
                scene.put(plane, lines[dice.choice(("XLA Ops", "Async XLA Ops"))], dice.choice(("fusion.1", "dot.3", "while.2", "copy-start")), scene.now_ns, ns,
                          n_flops=100, n_bytes_accessed=400, hlo_category="convolution fusion", program_id=PROGRAM)  # fmt: skip
                scene.now_ns += ns if dice.random() < 0.9 else 0
            for name in ("Steps", "XLA Modules"):
                scene.put(plane, lines[name], str(number), begin, scene.now_ns - begin, group_id=number)
            scene.put(host.plane, host.python, "train", begin, scene.now_ns - begin, step_num=number, n__r=1)
    for name in (
        "/device:TPU:0 SparseCore 0",
        "#Chip0 TPU Non-Core HBM",
        "/host:TPU-runtime",
        "/device:CUSTOM:Megascale Trace",
    ):
        if dice.random() < 0.5:
            plane = scene.plane(name)
            line = scene.line(
                plane, 1, dice.choice(("Sparse Core Ops", "Sparse Core Steps", "Sparse Core Modules", ""))
            )
            scene.put(plane, line, "gather.1", scene.now_ns, scene.between(1, 10**5))


def cpu_tensorflow(scene: Scene) -> None:
    dice = scene.dice
    host = _host(scene)
    threads = [scene.line(host.plane, 5000 + n, f"tf_XLAEigen/{n}") for n in range(dice.choice((1, 3)))]
    style = _style(dice)
    for number in range(dice.choice((0, 1, 2, 4, 4))):
        begin = scene.now_ns
        for _, op in style.kernels:
            ns = dice.choice((0, 1, scene.between(1, 10**6)))
            scene.put(host.plane, dice.choice(threads), op, scene.now_ns, ns, op.rpartition(":")[2])
            scene.now_ns += dice.choice((0, ns, ns + 10))
        if style.call:
            scene.put(host.plane, host.python, style.call, begin, scene.now_ns - begin)
        if style.marker:
            scene.put(
                host.plane, host.python, style.marker, begin, scene.now_ns - begin, step_num=number, n__r=1
            )


def cpu_jax(scene: Scene) -> None:
    """Thunks that end on another thread, under fusion names."""
    dice = scene.dice
    host = _host(scene)
    for number in range(dice.choice((0, 1, 3, 4))):
        begin = scene.now_ns
        for at in range(dice.choice((0, 1, 8, 8))):
            name = dice.choice(INSTRUCTIONS).name
            ns = dice.choice((0, scene.between(1, 10**5)))
            scene.put(host.plane, host.executor, name, scene.now_ns, ns, hlo_op=name, hlo_module="jit_step", program_id=PROGRAM,
                      n__pt=14, n__p=number * 100 + at)  # fmt: skip
            if dice.random() < 0.5:
                scene.put(
                    host.plane,
                    host.iterator,
                    f"end: {name}",
                    scene.now_ns + ns,
                    0,
                    n__ct=14,
                    n__c=number * 100 + at,
                )
            scene.now_ns += ns
        scene.put(host.plane, host.python, "PjitFunction(step)", begin, scene.now_ns - begin)
    if dice.random() < 0.7:
        scene.space.planes.append(parse_plane(metadata_plane("jit_step", INSTRUCTIONS)))


def allocating(scene: Scene) -> None:
    """Steps whose ops take and give back blocks of several allocators, some of one address, with what an allocator
    says of itself; blocks from before the window, and such as never come back."""
    dice = scene.dice
    device, host = _device(scene, 0, **_NVIDIA), _host(scene)
    allocators = dice.choice(
        (("GPU_0_bfc",), ("GPU_0_bfc", "GPU_1_bfc"), ("GPU_0_bfc", "cpu", "gpu_host_bfc", ""))
    )
    style, live = _style(dice), dict.fromkeys(allocators, dice.choice((0, 10**6)))
    held: list[tuple[str, int, int]] = [(allocators[0], 1 << 40, 4096)] if dice.random() < 0.3 else []
    for number in range(dice.choice((1, 3, 4))):
        for _ in range(dice.choice((0, 5, 40))):
            name, freed = dice.choice(allocators), bool(held) and dice.random() < 0.45
            at, op = scene.now_ns, dice.choice(words.OPS)
            address, size = 64 * dice.randrange(1, 50), dice.choice((0, 256, 4096, 10**6, 2**32))
            if freed:
                name, address, size = held.pop(dice.randrange(len(held)))
            else:
                held.append((name, address, size))
            live[name] += -size if freed else size
            stats: dict[str, Value] = {
                "allocator_name": name, "addr": address, "bytes_allocated": live[name], "bytes_available": 2**34 - live[name],
                "allocation_bytes": size, "requested_bytes": max(0, size - 6), "peak_bytes_in_use": max(live.values()),
                "fragmentation": dice.choice((0.0, 0.25, 1.0)), "tf_op": op, "id": number, "region_type": dice.choice(("dynamic", "persist/dynamic", "temp")),
                "data_type": dice.choice((1, 19, 14, 3)), "tensor_shapes": dice.choice(("[64,64]", "[]", "[32,224,224,3]", "unknown")),
            }  # fmt: skip
            kept = {key: value for key, value in stats.items() if dice.random() > scene.odd}
            line = dice.choice((host.executor, host.python))
            scene.put(host.plane, line, "MemoryDeallocation" if freed else "MemoryAllocation", at, 0, **kept)
            scene.now_ns += scene.between(1, 10**4)
        _step(scene, host, style, number, [device])


def devices_of_one_name(scene: Scene) -> None:
    """Two cards of one host that a writer named alike, with streams of the same ids."""
    _gpu(scene, _NVIDIA)
    planes = [plane for plane in scene.space.planes if plane.name.startswith("/device:GPU:")]
    for plane in planes[1:]:
        plane.name = planes[0].name


def several_hosts(scene: Scene) -> None:
    """A profile of each of several hosts, one after the other; correlation ids begin anew."""
    dice = scene.dice
    for _ in range(dice.choice((2, 2, 3))):
        scene.correlation = 0
        nvidia(scene)
        scene.space.hostnames.append(dice.choice(("one", "two", "three")))


def anything(scene: Scene) -> None:
    """Planes, lines and events that only the format holds together."""
    dice = scene.dice
    for _ in range(dice.choice((1, 2, 6))):
        plane = scene.plane(
            dice.choice(
                (
                    *words.UNKNOWN_PLANES,
                    "/host:CPU",
                    "/device:GPU:0",
                    "/device:GPU:7",
                    "/device:TPU:0",
                    "/host:metadata",
                )
            )
        )
        for _ in range(dice.choice((0, 1, 4))):
            line = scene.line(
                plane,
                dice.choice((0, 1, 1, *DERIVED_IDS, 2**63 - 1)),
                dice.choice((words.name(dice), "Steps", "XLA Ops")),
            )
            for _ in range(dice.choice((0, 1, 30))):
                kind, value = words.value(dice)
                key = dice.choice(
                    (
                        "correlation_id",
                        "group_id",
                        "step_num",
                        "tf_op",
                        "hlo_op",
                        "program_id",
                        "memcpy_details",
                        words.name(dice),
                    )
                )
                scene.put(plane, line, words.name(dice), scene.now_ns, scene.between(1, 10**9))
                line.events[-1].stats.append(Stat(plane.stat_id(key), kind, value))
                scene.now_ns += dice.choice((0, 1, 10**6))


KINDS: tuple[Callable[[Scene], None], ...] = (
    nvidia, nvidia, nvidia, nvidia_with_cupti_plane, rocm, metal, tpu, cpu_tensorflow, cpu_tensorflow, cpu_jax, several_hosts, anything,
    allocating, devices_of_one_name,
)  # fmt: skip
