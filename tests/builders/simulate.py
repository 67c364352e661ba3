"""Plays a training loop on a made-up host and GPU, and writes what the collectors would have written.

The host launches one kernel after the other and runs ahead of the device; the device works its queue off in
order; the step ends when the host has read the loss. Idle time, gaps and the step's length follow from that,
they are not put in. The same play gives the step log and the xplane, so the two agree as they do in life.
Nothing here imports mpprof.
"""

from __future__ import annotations

import itertools
import json
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.builders import hlo, step_memory
from tests.builders.gpus import Gpu
from tests.builders.numerics import KERAS_DTYPE, Numerics
from tests.builders.workloads import Model, Work
from tests.builders.xspace import Plane, Ref, Space

PYTHON, EXECUTOR, ITERATOR, CUPTI = 4101, 4117, 4130, 4117
UNIX_NS = 1_760_000_000_000_000_000


@dataclass(frozen=True)
class Host:
    """What the host needs, in microseconds. `profiled` multiplies launches inside the profiler window."""

    launch_us: float = 4.0
    latency_us: float = 2.0
    dispatch_us: float = 2.0  # executor work before each launch
    begin_us: float = 180.0  # from the step's begin to its first launch
    end_us: float = 90.0  # from the loss on the host to the step's end
    between_us: float = 30.0  # callbacks and loop between steps
    input_us: float = 0.0  # waiting for the next batch
    copy_gb_s: float = 11.0  # of a batch to the device, from pinned memory
    profiled: float = 1.15
    noise: float = 0.01
    executor: str = "ExecutorState::Process"  # how the framework's executor names itself
    eager: bool = False  # every op goes through Python
    waits_late: bool = False  # the next step begins with the wait for this one's work
    graphs: bool = False  # one launch for a whole program: kernels carry no op, as under command buffers


@dataclass
class Event:
    """Something that happened, for the xplane."""

    line: str
    name: str
    start_us: float
    us: float
    stats: dict[str, Any] = field(default_factory=dict)
    display: str = ""


@dataclass
class Play:
    """The loop's clock and everything it did inside the window."""

    gpu: Gpu
    model: Model
    host: Host
    rng: random.Random
    now_us: float = 0.0
    correlation: int = 0
    events: list[Event] = field(default_factory=list)
    free_us: dict[str, float] = field(default_factory=lambda: {"compute": 0.0, "h2d": 0.0, "d2h": 0.0})

    slower: float = 1.0  # kernels take so many times as long now: the clock fell

    def jitter(self, us: float) -> float:
        return us * max(0.5, self.rng.gauss(1.0, self.host.noise))

    def step(
        self, number: int, *, record: bool, works: tuple[Work, ...] | None = None, traced_us: float = 0.0
    ) -> tuple[float, float]:
        """One step; returns its begin and end. `traced_us`: how long its function is traced anew first."""
        begin = self.now_us
        slow = self.host.profiled if record else 1.0
        keep = self.events if record else _NOWHERE
        wait = self.jitter(self.host.input_us) if self.host.input_us else 0.0
        cursor = begin + self.jitter(self.host.begin_us)
        keep.append(Event("iterator", "IteratorGetNextOp::DoCompute", begin + 60.0, wait + 12.0))
        keep.append(Event("iterator", "Iterator::Prefetch", begin + 63.0, wait + 6.0))
        cursor += wait
        if traced_us:
            traced = {"tf_function_call": Ref("traced-nonXla"), "tracing_count": 2}
            keep.append(Event("python", "multi_step_on_iterator", cursor, traced_us, traced))
            cursor += traced_us
        copy = Work(
            "MemcpyH2D",
            "IteratorGetNext/_2",
            "_Send",
            self.model.input_bytes / (self.host.copy_gb_s * 1e3),
            stream="h2d",
            bytes=self.model.input_bytes,
        )
        if self.host.waits_late and (busy := max(self.free_us.values()) - cursor) > 0:
            keep.append(Event("cupti", "cuCtxSynchronize", cursor, busy, {"correlation_id": 0}))
            cursor += busy + 6.0
        executor_begin = cursor
        for work in (copy, *(works or self.model.works)):
            cursor = self._launch(work, cursor, slow, keep)
        done = max(self.free_us.values())
        late = self.host.waits_late
        loss = Work("MemcpyD2H", "Identity", "Identity", 1.6, stream="d2h", bytes=4, sync=not late)
        cursor = self._launch(loss, cursor if late else max(cursor, done), slow, keep)
        keep.append(Event("executor", self.host.executor, executor_begin, cursor - executor_begin))
        end = cursor + self.jitter(self.host.end_us)
        keep.append(
            Event(
                "python",
                "multi_step_on_iterator",
                begin + 8.0,
                end - begin - 20.0,
                {"tf_function_call": Ref("notTraced-nonXla"), "tracing_count": 1},
            )
        )
        self.now_us = end + self.jitter(self.host.between_us)
        keep.append(
            Event("python", "mpprof_step", begin, self.now_us - begin - 1.0, {"step_num": number, "_r": 1})
        )
        return begin, end

    def _named(self, work: Work, op: str) -> dict[str, Any]:
        """How a kernel names its op: TensorFlow by `tf_op`, XLA by the instruction of a module."""
        if work.hlo is None:
            return {"tf_op": Ref(op)}
        if self.host.graphs:
            return {"cuda_graph_id": 3}
        return {
            "hlo_op": Ref(work.hlo.name), "hlo_module": Ref(self.model.module), "name": Ref(work.op),
            "program_id": hlo.PROGRAM,
        }  # fmt: skip

    def _on_host(self, work: Work, cursor: float, keep: list[Event]) -> float:
        """An op that runs on the CPU: the host is busy with it, and launches nothing."""
        us = self.jitter(work.us)
        keep.append(
            Event(
                "executor",
                f"{work.op}:{work.type}",
                cursor,
                us,
                {"tensor_shapes": Ref(work.shapes)} if work.shapes else {},
                work.type,
            )
        )
        return cursor + us

    def _launch(self, work: Work, cursor: float, slow: float, keep: list[Event]) -> float:
        if work.stream == "host":
            return self._on_host(work, cursor, keep)
        self.correlation += 1
        host, kernel = self.host, work.stream == "compute"
        at = cursor + host.dispatch_us * slow
        launch = self.jitter(host.launch_us) * slow
        after = {"h2d": 0.0, "compute": self.free_us["h2d"], "d2h": self.free_us["compute"]}[work.stream]
        start = max(at + launch + host.latency_us, self.free_us[work.stream], after)
        us = self.jitter(work.us) * self.slower
        self.free_us[work.stream] = start + us
        if keep is _NOWHERE:
            return start + us + 6.0 if work.sync else at + launch
        op = f"{work.op}:{work.type}"
        api = (
            "cuLaunchKernel"
            if kernel
            else "cuMemcpyHtoDAsync_v2"
            if work.stream == "h2d"
            else "cuMemcpyDtoHAsync_v2"
        )
        if host.eager:
            keep.append(Event("python", "EagerKernelExecute", cursor, at - cursor + launch))
        elif work.hlo is None:
            keep.append(Event("executor", op, cursor, at - cursor + launch, {}, work.type))
        keep.append(
            Event("cupti", api, at, launch, {"correlation_id": self.correlation, "context_id": "$$1"})
        )
        stats: dict[str, Any] = {"correlation_id": self.correlation, "context_id": "$$1"}
        stats |= self._named(work, op)
        if kernel:
            stats["kernel_details"] = Ref(
                "regs:96 static_shared:0 dynamic_shared:49152 grid:640,1,1 block:256,1,1 occ_pct:25"
            )
            if work.shapes:
                stats["tensor_shapes"] = Ref(work.shapes)
        else:
            stats["memcpy_details"] = f"kind:Unknown size:{work.bytes} dest:0 async:1"
        keep.append(Event(work.stream, work.kernel, start, us, stats))
        if not work.sync:
            return at + launch
        keep.append(
            Event(
                "cupti", "cuStreamSynchronize", at + launch, start + us - at - launch, {"correlation_id": 0}
            )
        )
        return start + us + 6.0


class _Nowhere(list):  # type: ignore[type-arg]
    """Where events outside the window go."""

    def append(self, event: object) -> None:
        pass


_NOWHERE: Any = _Nowhere()


def to_space(play: Play, origin_us: float, allocator_events: bool = False) -> Space:
    """The window as CUPTI and TraceMe give it: times from the session's start, devices before the host."""
    space = Space(hostnames=["synthetic"])
    device = space.plane("/device:GPU:0")
    major, minor = play.gpu.capability
    device.stats = {
        "device_vendor": "Nvidia", "clock_rate": play.gpu.clock_khz, "core_count": play.gpu.cores,
        "memory_bandwidth": int(play.gpu.bandwidth_gb_s * 1e9), "memory_size": play.gpu.memory_bytes,
        "compute_cap_major": major, "compute_cap_minor": minor,
    }  # fmt: skip
    lines = {
        "compute": device.line(13, "Stream #13(Compute)"),
        "h2d": device.line(14, "Stream #14(MemcpyH2D)"),
        "d2h": device.line(15, "Stream #15(MemcpyD2H)"),
    }
    host = space.plane("/host:CPU")
    lines |= {
        "python": host.line(PYTHON, "python"),
        "executor": host.line(EXECUTOR, f"tf_Compute/{EXECUTOR}"),
        "iterator": host.line(ITERATOR, f"tf_data_iterator_get_next/{ITERATOR}"),
        "cupti": host.line(900_000 + CUPTI, f"Host Threads/{CUPTI}"),
    }
    for event in sorted(play.events, key=lambda e: e.start_us):
        line = lines[event.line]
        line.event(event.name, (event.start_us - origin_us) * 1e3, event.us * 1e3, event.stats, event.display)
    if allocator_events:
        happened = [(e.name, (e.start_us - origin_us) * 1e3) for e in play.events if e.line == "executor"]
        steps = list(step_memory.launched(happened, play.model))
        step_memory.write(lines["executor"], play.model, steps, int(0.9 * play.gpu.memory_bytes))
    if play.model.module:
        instructions = [work.hlo for work in play.model.works if work.hlo is not None]
        space.raw.append(hlo.metadata_plane(play.model.module, instructions, play.model.proto))
    task: Plane = space.plane("Task Environment")
    last = max(e.start_us + e.us for e in play.events)
    task.stats = {
        "profile_start_time": UNIX_NS + round(origin_us * 1e3),
        "profile_stop_time": UNIX_NS + round(last * 1e3),
    }
    return space


@dataclass(frozen=True)
class Training:
    """What is trained and how it is recorded. `skip_steps` are steps whose gradients overflow; `profile`
    is the inclusive window; `losses` gives the loss of a step, which else falls with the applied updates."""

    name: str
    gpu: Gpu
    numerics: Numerics
    model: Model
    host: Host = Host()
    steps: int = 160
    profile: tuple[int, int] | None = (60, 65)
    skip_steps: frozenset[int] = frozenset()
    tf32_enabled: bool | None = None
    warmup_s: float = 4.0
    seed: int = 7
    global_policy: str | None = None
    optimizer: dict[str, Any] | None = None
    initial_scale: float = 32768.0
    peak_bytes: int = 3_200_000_000
    facts: dict[str, Any] = field(default_factory=dict)  # laid over run.json
    fit: dict[str, Any] = field(default_factory=dict)  # laid over its `fits` entry
    spikes_ms: dict[int, float] = field(default_factory=dict)  # steps that take so much longer (tracing)
    slower: dict[int, float] = field(
        default_factory=dict
    )  # from this step on kernels take so many times as long
    losses: dict[int, float | str] = field(default_factory=dict)  # the loss of single steps
    scales: dict[int, float] = field(default_factory=dict)  # the loss scale read at single steps
    hardware: dict[str, Any] = field(default_factory=dict)  # laid over every sample
    trace_warnings: tuple[str, ...] = ()
    covers: int = 1  # steps of one call
    callback: str | None = None  # its batch hook is what lies between two steps, and the recorder times it
    clock_ratio: float = 1.0  # what the clock of an asynchronous loop sees of a step: its launches
    device_events: bool = True  # the collector may read the device
    allocator_events: bool = False  # of `workloads.convnet`: what each op allocates


def train(t: Training) -> tuple[dict[str, Any], list[dict[str, Any]], list[dict[str, Any]], Space | None]:
    """Plays the training; returns run.json, the lines of steps.jsonl and hardware.jsonl, and the trace."""
    play = Play(t.gpu, t.model, t.host, random.Random(t.seed))
    first, last = t.profile or (0, -1)
    lines: list[dict[str, Any]] = [{"schema": "mpprof.steps/1"}, {"kind": "fit", "fit": 1, "t_ns": 0}]
    rows: list[dict[str, Any]] = []
    scale, skipped, applied = t.initial_scale, 0, 0
    origin = 0.0
    for number in range(1, t.steps + 1):
        if number == first:
            play.now_us += 25_000.0  # starting the profiler
            origin = play.now_us - 40.0
        works = _skipping(t.model.works) if number in t.skip_steps else None
        if number == 1:
            play.now_us += t.warmup_s * 1e6
        play.slower = t.slower.get(number, play.slower)
        began = play.now_us if number > 1 else 0.0
        traced_us = t.spikes_ms.get(number, 0.0) * 1e3
        _, end = play.step(number, record=first <= number <= last, works=works, traced_us=traced_us)
        if number in t.skip_steps:
            scale, skipped = scale / 2, skipped + 1
        else:
            applied += 1
        row: dict[str, Any] = {
            "kind": "step", "step": number, "fit": 1, "epoch": 0, "batch": number - 1, "covers": 1,
            "t_ns": round(end * 1e3), "began_us": began, "duration_ns": round((end - began) * 1e3),
            "loss": t.losses.get(number, round(2.3 / (1 + 0.004 * applied), 5)), "profiled": first <= number <= last,
            "synced": number in (first, last + 1),
        }  # fmt: skip
        if number <= 32 or number % 16 == 0 or number == t.steps or number in t.skip_steps:
            if t.numerics.loss_scaling:
                row["loss_scale"], row["skipped"] = t.scales.get(number, scale), skipped
                skipped = 0
            row["memory"] = [{"device": "GPU:0", "peak_bytes": t.peak_bytes, "live_bytes": t.peak_bytes // 3}]
        rows.append(row)
    for row, following in itertools.pairwise(rows):
        row["interval_ns"] = round((following["began_us"] - row["began_us"]) * 1e3)
    for previous, row in itertools.pairwise(rows):
        row["gap_ns"] = round(row["began_us"] * 1e3) - previous["t_ns"]
    for row in rows:
        del row["began_us"]
        for timed in ("interval_ns", "duration_ns"):
            if timed in row:
                row[timed] = round(row[timed] * t.clock_ratio)
    how = t.facts.get("ended", {}).get("reason", "finished")
    timed = _hooks(rows, t.callback) if t.callback else []
    lines += [*_calls(rows, t.covers), *timed, {"kind": "fit_end", "reason": how}]
    busy = sum(w.us for w in t.model.works) / (rows[t.steps // 2]["interval_ns"] / 1e3)
    hardware: list[dict[str, Any]] = [{"schema": "mpprof.hardware/1"}]
    hardware += [
        {
            "t_ns": round(s * 1e9), "gpu": 0, "utilization_ratio": round(min(1.0, busy), 2),
            "memory_used_bytes": t.peak_bytes + 800_000_000, "power_w": 180.0,
            "sm_clock_hz": t.gpu.clock_khz * 1000, "temperature_c": 61, "throttle": [],
            "cpu_ratio": 0.11, "rss_bytes": 3_100_000_000, **t.hardware,
        }
        for s in range(1, int(rows[-1]["t_ns"] / 1e9) + 1)
    ]  # fmt: skip
    space = to_space(play, origin, t.allocator_events) if t.profile else None
    if space is not None:
        space.warnings.extend(t.trace_warnings)
        if not t.device_events:
            space.planes = [plane for plane in space.planes if "/device:" not in plane.name]
    return run_json(t, origin), lines, hardware, space


def _hooks(rows: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """The lines of what the recorder timed of a callback, whose hook runs before the next step: 16 each."""
    groups = [rows[at : at + 16] for at in range(1, len(rows), 16)]
    return [
        {
            "kind": "spent", "part": "callbacks", "name": name, "at": "batch", "fit": 1,
            "first_step": group[0]["step"] - 1, "last_step": group[-1]["step"] - 1, "calls": len(group),
            # The profiler starts in the gap that is left out.
            "ns": sum(row["gap_ns"] for row in group if not (row["synced"] and row["profiled"])),
        }
        for group in groups
    ]  # fmt: skip


def _calls(rows: list[dict[str, Any]], covers: int) -> list[dict[str, Any]]:
    """One line for so many steps, as `steps_per_execution` makes them."""
    if covers == 1:
        return rows
    merged = []
    for at in range(0, len(rows) - covers + 1, covers):
        group = rows[at : at + covers]
        whole = {**group[0], **group[-1], "covers": covers, "gap_ns": group[0].get("gap_ns", 0)}
        for timed in ("interval_ns", "duration_ns"):
            whole[timed] = sum(row.get(timed, row["duration_ns"]) for row in group)
        merged.append(whole)
    return merged


def _skipping(works: tuple[Work, ...]) -> tuple[Work, ...]:
    """The conditional's other branch: no update."""
    return tuple(w for w in works if "/cond/then/" not in w.op)


def run_json(t: Training, window_us: float) -> dict[str, Any]:
    compute = KERAS_DTYPE[t.numerics.storage]
    policy = {"float32": "float32", "float16": "mixed_float16", "bfloat16": "mixed_bfloat16"}[compute]
    optimizer = {"class": "Adam", "dynamic": False}
    if t.numerics.loss_scaling:
        optimizer = {
            "class": "LossScaleOptimizer", "inner": "Adam", "dynamic": True,
            "initial_scale": t.initial_scale, "growth_steps": 2000,
        }  # fmt: skip
    windows = []
    if t.profile:
        windows = [{
            "trace": "plugins/profile/2026_01_01_00_00_00", "host": "synthetic", "first_step": t.profile[0],
            "last_step": t.profile[1], "started_unix_ns": UNIX_NS + round(window_us * 1e3),
            "start_cost_ns": 25_000_000, "stop_cost_ns": 180_000_000, "status": "done",
        }]  # fmt: skip
    major, minor = t.gpu.capability
    fit = {
        "fit": 1, "first_step": 1, "initial_epoch": 0,
        "policy": {"global": t.global_policy or policy, "compute_dtype": compute, "variable_dtype": "float32"},
        "optimizer": t.optimizer or optimizer, "batch_size": t.model.batch, "jit_compile": False,
        "run_eagerly": False, "steps_per_execution": 1, "loss": "sparse_categorical_crossentropy",
    }  # fmt: skip
    return {
        "schema": "mpprof.run/1",
        "run_id": t.name,
        "created_unix_ns": UNIX_NS,
        "clock": {"monotonic_ns": 0, "unix_ns": UNIX_NS},
        "host": "synthetic",
        "framework": {
            "keras": "3.15.1", "backend": "tensorflow", "backend_version": "2.21.0", "python": "3.11.7",
            "xla_flags": "",
        },
        "replicas": 1,
        **({} if t.tf32_enabled is None else {"tf32_enabled": t.tf32_enabled}),
        "deterministic_ops": False,
        "devices": [{
            "kind": "gpu", "name": t.gpu.name, "compute_capability": [major, minor],
            "memory_bytes": t.gpu.memory_bytes, "sm_count": t.gpu.cores, "sm_clock_khz": t.gpu.clock_khz,
            "memory_bandwidth_bytes_per_s": t.gpu.bandwidth_gb_s * 1e9,
        }],
        "model": {"name": "model_1", "parameters": t.model.parameters, "layers": list(t.model.layers)},
        "fits": [fit | t.fit],
        "profile_windows": windows,
        "timing": {"basis": "synchronous", "read_every": 16, "note": "synthetic: played by tests/builders/simulate.py"},
        "absent": {"graph_rewrite": "synthetic run", "distribution": "synthetic run"},
    } | t.facts  # fmt: skip


Played = tuple[dict[str, Any], list[dict[str, Any]], list[dict[str, Any]], Space | None]
"""run.json, the lines of steps.jsonl and hardware.jsonl, and the trace."""


def write(t: Training, directory: Path, played: Played | None = None) -> Path:
    """Writes the log directory as the callback and the profiler would; returns it. `played`: by `train`."""
    run, steps, hardware, space = played or train(t)
    records = directory / "mpprof"
    records.mkdir(parents=True, exist_ok=True)
    (records / "run.json").write_text(json.dumps(run, indent=1) + "\n")
    (records / "steps.jsonl").write_text("".join(json.dumps(line) + "\n" for line in steps))
    (records / "hardware.jsonl").write_text("".join(json.dumps(line) + "\n" for line in hardware))
    if space is not None:
        session = directory / "plugins/profile/2026_01_01_00_00_00"
        session.mkdir(parents=True, exist_ok=True)
        (session / "synthetic.xplane.pb").write_bytes(space.to_bytes())
    return directory
