"""Allocator events of a played training: what each op of `workloads.convnet` allocates, and who uses it last.

As TensorFlow keeps it: of a batch norm that is computed from separate ops the backward pass needs its input in
float32, of ReLU its output, of a convolution its input and, in mixed precision, the 16-bit copy of its weights.
The layout is that of a V100's public trace: events without length on the executor's thread, no op at a free.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.builders.allocations import Allocator
from tests.builders.workloads import Model, Work
from tests.builders.xspace import Line

ADDRESS = 0x7F00_0000_0000
_NUMBERS = {"DT_FLOAT": 1, "DT_HALF": 19, "DT_BFLOAT16": 14}
_WIDTHS = {1: 4, 19: 2, 14: 2}
_OF_SHAPES = {"float": 1, "half": 19, "bfloat16": 14}


@dataclass(frozen=True)
class Block:
    """An op's result, by the places of works: allocated as `born` runs, freed once `dies` has run (the number
    of works: at the step's end)."""

    born: int
    dies: int
    op: str
    dtype: int
    shape: tuple[int, ...]

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * _WIDTHS[self.dtype]


def blocks(model: Model) -> tuple[Block, ...]:
    """What one step allocates."""
    works = model.works
    return tuple(Block(at, _last_use(works, at), work.op, *made) for at, work in enumerate(works)
                 if (made := _result(model, work)) is not None)  # fmt: skip


def older_bytes(model: Model) -> int:
    """The weights and Adam's two slots, which are there before the window."""
    return 3 * 4 * model.parameters


def peak_bytes(model: Model) -> int:
    """The most that a step holds."""
    change = [0] * (len(model.works) + 2)
    for block in blocks(model):
        size = -(-block.bytes // 256) * 256
        change[block.born] += size
        change[block.dies + 1] -= size
    live = most = older_bytes(model) + model.input_bytes
    for step in change:
        live += step
        most = max(most, live)
    return most


def write(line: Line, model: Model, steps: Sequence[Sequence[float]], capacity: int) -> None:
    """Write the events of these steps: of each the times at which its works were launched, in nanoseconds, and
    that of its end."""
    gpu = Allocator(line, live=older_bytes(model), peak=peak_bytes(model), capacity=capacity)
    made = blocks(model)
    for number, times in enumerate(steps):

        def place(at: int, number: int = number) -> int:
            return ADDRESS + (number << 40) + (at << 32)

        copied = len(made)
        gpu.allocate(round(times[0]) - 900, place(copied), model.input_bytes, "SameWorkerRecvDone", region="dynamic",
                     shape=_text((model.batch, model.input_bytes // 4 // model.batch)))  # fmt: skip
        happened = [(block.born, 1, at) for at, block in enumerate(made)]
        happened += [(block.dies, 2, at) for at, block in enumerate(made)]
        for work, what, at in sorted(happened):
            block = made[at]
            if what == 1:
                gpu.allocate(round(times[work]) + 200, place(at), block.bytes, block.op, dtype=block.dtype,
                             shape=_text(block.shape))  # fmt: skip
            else:
                gpu.free(round(times[work]) + 600, place(at))
        gpu.free(round(times[-1]) + 900, place(copied))


def _text(shape: tuple[int, ...]) -> str:
    return f"[{','.join(map(str, shape))}]"


def _tensors(work: Work) -> list[tuple[int, tuple[int, ...]]]:
    found = re.findall(r"(\w+)\[([\d,]*)\]", work.shapes)
    return [(_OF_SHAPES[name], tuple(int(size) for size in sizes.split(","))) for name, sizes in found]


def _result(model: Model, work: Work) -> tuple[int, tuple[int, ...]] | None:
    """Type and shape of an op's result; None where it writes to a variable, or to next to nothing."""
    given = _tensors(work)
    if not given or work.type.startswith(("Mean", "Sum", "Assign")):
        return None
    dtype, first = given[0]
    if work.type == "Conv2D":
        return dtype, (*first[:3], given[1][1][3])
    if work.type == "Conv2DBackpropInput":
        return dtype, (*given[1][1][:3], first[2])
    if work.type == "Conv2DBackpropFilter":
        return dtype, (3, 3, first[3], given[1][1][3])
    if work.type == "MatMul":
        return dtype, _product(work.op, first, given[1][1])
    if named := re.search(r"_GPU_(DT_\w+?)_(DT_[A-Z0-9]+)_kernel", work.kernel):
        dtype = _NUMBERS[named[2]]
    return dtype, _unfolded(model, work.op, math.prod(first))


def _product(op: str, a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, int]:
    if op.endswith("/MatMul_1"):
        return a[1], b[1]
    return (a[0], b[0]) if op.endswith("/MatMul/MatMul") else (a[0], b[1])


def _unfolded(model: Model, op: str, elements: int) -> tuple[int, ...]:
    """The shape of so many elements: the layer's result, its weights, or flat."""
    layer = next((each for each in model.layers if f"/{each['name']}/" in op), None)
    if layer is None:
        return (elements,)
    out = layer["output_shape"][1:]
    if elements == model.batch * math.prod(out):
        return (model.batch, *out)
    reads = layer.get("input_shape", [1])[-1]
    kernel = layer["config"].get("kernel_size", [])
    return (*kernel, reads, out[-1]) if elements == math.prod(kernel) * reads * out[-1] else (elements,)


def _last_use(works: Sequence[Work], at: int) -> int:
    """The place of the last work that reads this one's result: the next one where nothing keeps it."""
    work, scope = works[at], works[at].op.rpartition("/")[0]
    layer = re.search(r"/model_1/(\w+)", work.op)
    own = f"/gradient_tape/model_1/{layer[1]}/" if layer else ""
    if own in work.op and own:  # of the backward pass: gradients of weights wait for the update
        return len(works) - 1 if _is_of_weights(works, at) else min(at + 2, len(works) - 1)
    if work.type == "Relu" or (
        work.type == "Cast" and "/batch_normalization" in scope and work.op.endswith("/Cast")
    ):
        return _last(works, own)
    if work.type == "Cast" and re.search(r"/(?:conv2d|dense)", work.op):
        return _last(works, own)
    if work.type == "Conv2D" and not works[at + 1].op.endswith(
        "/Cast"
    ):  # the norm's input, in float32 already
        return _last(works, own.replace("conv2d", "batch_normalization"))
    return min(at + 1 + (work.type == "Conv2D"), len(works) - 1)


def _is_of_weights(works: Sequence[Work], at: int) -> bool:
    kind = works[at].type
    if kind == "Cast":
        return _is_of_weights(works, at - 1) if at else False
    return kind == "Conv2DBackpropFilter" or works[at].op.endswith("/MatMul_1")


def _last(works: Sequence[Work], scope: str) -> int:
    return max(at for at, work in enumerate(works) if scope in work.op)


def launched(events: Sequence[tuple[str, float]], model: Model) -> Iterator[list[float]]:
    """Of each step the times at which its works were launched, and of its end, from the executor's events in
    order: (name, time)."""
    names = [f"{work.op}:{work.type}" for work in model.works]
    times: list[float] = []
    for name, at in events:
        if len(times) < len(names) and name == names[len(times)]:
            times.append(at)
        elif len(times) == len(names):
            yield [*times, at]
            times = []
