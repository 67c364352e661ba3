"""Runs whose trace and records are heavy, each beside the others: what a command takes that reads all of them.

A trace and records of one run say of each other what neither says alone: layers own ops, lines of the step log
are steps of the trace. Two such runs are compared.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mpprof.model import limits
from tests.builders.xspace import Space
from tests.fuzz import heavy, seeds

_FIRST_NS = 1_000_000_000


@dataclass(frozen=True)
class Heavy:
    """`write` makes the trace of a run: its path, about how many bytes, and which of the runs it is, of which
    one command reads so many. Each other file of the run gets as many bytes; `layer` names the model's layers."""

    name: str
    trace: str
    write: Callable[[Path, int, int], None]
    layer: Callable[[int], str]
    runs: int = 1

    def make(self, folder: Path, size: int) -> list[Path]:
        """Write the runs; returns their folders."""
        made = []
        for number in range(self.runs):
            root = folder / f"run-{number}"
            (root / "mpprof").mkdir(parents=True)
            self.write(root / self.trace, size, number)
            _facts(root / "mpprof" / "run.json", size, self.layer)
            heavy.lines_of(_step, "mpprof.steps/1")(root / "mpprof" / "steps.jsonl", size)
            heavy.lines_of(_sample, "mpprof.hardware/1")(root / "mpprof" / "hardware.jsonl", size)
            made.append(root)
        return made


def _step(number: int) -> str:
    took = 1_000_000 + number * 7919 % 1000
    return (
        f'{{"kind":"step","step":{number},"fit":1,"t_ns":{_FIRST_NS + number * 1_000_000},"interval_ns":{took},'
        f'"duration_ns":{took - 9}}}'
    )


def _sample(number: int) -> str:
    return f'{{"t_ns":{_FIRST_NS + number * 500_000},"gpu":{number % 8},"utilization_ratio":0.{number % 9 + 1},"throttle":["r{number % 99}"]}}'


def _facts(path: Path, size: int, layer: Callable[[int], str]) -> None:
    """Layers, as many as are read at most, with configs that fill the rest."""
    facts = json.loads(seeds.runs()[0])
    count = min(limits.MOST_LAYERS, size // 300)
    config = {"units": 64, **{f"k{at}": [at] for at in range((size // count - 280) // 14)}}
    like: dict[str, Any] = facts["model"]["layers"][0] | {"class": "Dense", "config": config}
    shape = {"input_shape": [None, 64], "output_shape": [None, 64]}
    facts["model"]["layers"] = [{**like, **shape, "name": layer(at)} for at in range(count)]
    path.write_text(json.dumps(facts, separators=(",", ":")))


def _flat(number: int) -> str:
    return f"dense_{number}" if number else "dense"


def _deep(number: int) -> str:
    """Models in one another: each layer's path is of the names of all above it."""
    return "/".join(f"block_{number >> level & 1}" for level in range(13, -1, -1)) + f"/dense_{number}"


def _alike(number: int) -> str:
    """Names that another layer's, numbered by TensorFlow, could be."""
    return "dense" + f"_{number % 100}_{number // 100}"


# --- traces ------------------------------------------------------------------------------------------------


def _scoped(op: Callable[[int, int], str], steps: int = 20) -> Callable[[Path, int, int], None]:
    """Kernels of a GPU, each with an op of its own, in calls of the training function."""

    def write(path: Path, size: int, run: int) -> None:
        space = Space()
        device, host = space.plane("/device:GPU:0"), space.plane("/host:CPU")
        stream, thread = device.line(7, "Stream #7(Compute)"), host.line(11, "python")
        count = size // 165
        for number in range(count):
            at, step = 10_000 + 100 * number, number * steps // count
            thread.event("cuLaunchKernel", at, 20, {"correlation_id": number + 1})
            stream.event(f"volta_fp16_s884gemm_{number % 999}", at + 30, 60, {
                "correlation_id": number + 1, "tf_op": op(number, run), "group_id": step})  # fmt: skip
        for step in range(steps):
            first, last = (10_000 + 100 * -(-count * at // steps) for at in (step, step + 1))
            thread.event("mpprof_step", first - 10, last - first, {"step_num": step + 40, "_r": 1})
            thread.event("train_function", first - 5, last - first - 20)
        path.write_bytes(space.to_bytes())

    return write


def _dense(number: int, run: int) -> str:
    return f"model/{_flat(number % 10_000)}/op_{number + run}/MatMul:MatMul"


def _dense_deep(number: int, run: int) -> str:
    return f"model/{_deep(number % 10_000)}/op_{number + run}/MatMul:MatMul"


def _dense_alike(number: int, run: int) -> str:
    return f"model/{_alike(number % 10_000)}/MatMul_{number + run}:MatMul"


def _steps(path: Path, size: int, run: int) -> None:
    """As many steps as fit, each with a launch and a kernel."""
    space = Space()
    device, host = space.plane("/device:GPU:0"), space.plane("/host:CPU")
    stream, thread = device.line(7, "Stream #7(Compute)"), host.line(11, "python")
    for number in range(1, size // 120):
        at = 1000 * number
        thread.event("mpprof_step", at, 900, {"step_num": number, "_r": 1})
        thread.event("train_function", at + 10, 800)
        thread.event("cuLaunchKernel", at + 20, 20, {"correlation_id": number})
        stream.event("volta_sgemm_128x64_nt", at + 50, 700 + run, {"correlation_id": number})
    path.write_bytes(space.to_bytes())


def _blocks(path: Path, size: int, run: int) -> None:
    """Allocator events of a training, each of an op of its own, that are never given back."""
    space = Space()
    device, host = space.plane("/device:GPU:0"), space.plane("/host:CPU")
    stream, thread = device.line(7, "Stream #7(Compute)"), host.line(11, "python")
    count = size // 190
    live = 0
    for number in range(count):
        at = 100 * number
        live += 256 + number % 7919
        thread.event("MemoryAllocation", at, 0, {
            "allocator_name": "GPU_0_bfc", "addr": number << 10, "bytes_allocated": live, "allocation_bytes": 256 + number % 7919,
            "requested_bytes": 250, "peak_bytes_in_use": live, "tensor_shapes": f"[{number % 99},64]", "data_type": 1 + 18 * (number % 2),
            "tf_op": _dense(number, run)})  # fmt: skip
    for step in range(20):
        first = 100 * count * step // 20
        thread.event("train_function", first, 100 * count // 20 - 10)
        thread.event("cuLaunchKernel", first + 5, 5, {"correlation_id": step + 1})
        stream.event("volta_sgemm_128x64_nt", first + 20, 50, {"correlation_id": step + 1})
    path.write_bytes(space.to_bytes())


def _modules(path: Path, size: int, run: int) -> None:
    """PyTorch's kernels under modules of as many layers."""

    def events() -> Iterator[str]:
        for number in range(size):
            at = 1000 * number
            yield _X.format("python_function", f"nn.Module: Dense_{number % 10_000}", 1, at, 900, "{}")
            yield _X.format("cpu_op", "aten::addmm", 1, at + 10, 800, '{"Input Dims":[[64],[32,64],[64,64]]}')
            yield _X.format(
                "cuda_runtime", "cudaLaunchKernel", 1, at + 20, 50, f'{{"correlation":{number + 1}}}'
            )
            yield _X.format(
                "kernel",
                f"sgemm_{number + run}",
                7,
                at + 90,
                700,
                f'{{"correlation":{number + 1},"device":0,"stream":7}}',
            )
            if number % 1000 == 999:
                yield _X.format("user_annotation", f"ProfilerStep#{number // 1000}", 1, at - 999_000, 999_990, "{}")  # fmt: skip

    with path.open("w") as file:
        written = file.write('{"traceEvents":[')
        for event in events():
            written += file.write(event + ",")
            if written >= size:
                break
        file.write('{"ph":"X","cat":"cpu_op","name":"last","pid":1,"tid":1,"ts":1,"dur":1}]}')


_X = '{{"ph":"X","cat":"{}","name":"{}","pid":1,"tid":{},"ts":{},"dur":{},"args":{}}}'


def _existing(case: str) -> Callable[[Path, int, int], None]:
    return lambda path, size, run: heavy.BY_NAME[case].write(path, size)


_XPLANE, _KINETO, _NSIGHT = "host.xplane.pb", "host.pt.trace.json", "w.sqlite"
_TRACES = (
    ("ops of flat layers", _XPLANE, _scoped(_dense), _flat),
    ("ops of layers far down", _XPLANE, _scoped(_dense_deep), _deep),
    ("ops of layers named alike", _XPLANE, _scoped(_dense_alike), _alike),
    ("as many steps as lines", _XPLANE, _steps, _flat),
    ("blocks of ops of layers", _XPLANE, _blocks, _flat),
    ("modules of PyTorch", _KINETO, _modules, _flat),
    *((case, _XPLANE, _existing(case), _flat) for case in (
        "a text for each event", "nested events of a host", "distinct kernels", "fusions in one another", "fusions of one computation")),
    ("kineto distinct kernels", _KINETO, _existing("kineto distinct kernels"), _flat),
    ("nsys ranges", _NSIGHT, _existing("nsys ranges"), _flat),
)  # fmt: skip
CASES = tuple(
    Heavy(f"{'two runs of ' if runs == 2 else ''}{name}", *rest, runs)
    for runs in (1, 2)
    for name, *rest in _TRACES
)
BY_NAME = {case.name: case for case in CASES}
