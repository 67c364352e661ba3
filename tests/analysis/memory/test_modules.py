"""What PyTorch's profiler tells of memory that is older than its window: the weights that modules' ops were given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mpprof.api import workflows
from mpprof.model.memory import MemoryAccount
from tests.traces.kineto import Kineto

MIB = 1 << 20
BEFORE = 8 * MIB


def call(
    made: Kineto, at: float, module: str, op: str, *tensors: tuple[str, list[int]], dur: float = 10
) -> None:
    """A module's op with the tensors that it is given, each of a type and shape."""
    if module:
        made.module(module, at - 1, dur + 2)
    made.op(op, at, dur, **of(tensors))
    made.launch("kernel", at + 1, at + 2, 1)


def of(tensors: tuple[tuple[str, list[int]], ...]) -> dict[str, Any]:
    return {"Input Dims": [shape for _, shape in tensors], "Input type": [dtype for dtype, _ in tensors]}


def account(made: Kineto, path: Path) -> MemoryAccount:
    made.memory(5, 4096, MIB, BEFORE + MIB)
    found = workflows.analyse(workflows.load(made.write(path / "run.pt.trace.json"))).memory
    kinds = {item.name: (item.bytes, item.estimated) for item in found.at_peak if item.by == "kind"}
    assert sum(size for size, _ in kinds.values()) == BEFORE + MIB
    return found


def parameters(found: MemoryAccount) -> int:
    of_kind = [item for item in found.at_peak if item.by == "kind" and item.name == "parameters"]
    assert all(item.estimated for item in of_kind)
    return sum(item.bytes for item in of_kind)


HALF, WIDE, INDEX = "c10::BFloat16", "float", "long int"
X, W, B = (HALF, [32, 64]), (HALF, [128, 64]), (HALF, [128])
LINEAR = 2 * (128 * 64 + 128)


@pytest.mark.parametrize("steps", [1, 3])
def test_each_module_has_its_weights_once(tmp_path: Path, steps: int) -> None:
    made = Kineto()
    for at in range(100, 100 + 1000 * steps, 1000):
        call(made, at, "Linear_0", "aten::linear", X, W, B)
        call(made, at + 50, "Linear_1", "aten::linear", X, W, B)
        call(made, at + 100, "LayerNorm_0", "aten::layer_norm", X, (WIDE, [64]), (WIDE, [64]))
    found = account(made, tmp_path)
    assert parameters(found) == 2 * LINEAR + 2 * 4 * 64
    assert found.states_from == "modules"


def test_a_product_of_the_tables_shape_shares_its_weight(tmp_path: Path) -> None:
    """An output layer often takes the embedding's: the sum is rather too low than too high."""
    made, table = Kineto(), (HALF, [1000, 64])
    call(made, 100, "Embedding_0", "aten::embedding", table, (INDEX, [32]))
    call(made, 200, "Linear_0", "aten::linear", X, table)
    assert parameters(account(made, tmp_path)) == 2 * 1000 * 64


def test_a_table_as_wide_as_the_layers_is_a_weight_of_its_own(tmp_path: Path) -> None:
    """A small BERT has 512 positions and layers of width 512: its 17 products share none of them."""
    made, square = Kineto(), (HALF, [64, 64])
    call(made, 100, "Embedding_0", "aten::embedding", square, (INDEX, [32]))
    call(made, 200, "Linear_0", "aten::linear", X, square)
    call(made, 300, "Linear_1", "aten::linear", X, square)
    assert parameters(account(made, tmp_path)) == 3 * 2 * 64 * 64


def test_under_autocast_the_weights_are_those_before_the_cast(tmp_path: Path) -> None:
    made = Kineto()
    made.module("Linear_0", 99, 30)
    made.op("aten::linear", 100, 28, **of((X, (WIDE, [128, 64]))))
    made.op("aten::linear", 105, 20, **of((X, W)))
    made.launch("kernel", 106, 107, 1)
    assert parameters(account(made, tmp_path)) == 4 * 128 * 64


@pytest.mark.parametrize(("optimizer", "slots"), [("AdamW", 2), ("Adagrad", 1), ("SGD", None)])
def test_slots_are_those_of_an_optimizer_that_tells(
    tmp_path: Path, optimizer: str, slots: int | None
) -> None:
    made = Kineto()
    call(made, 100, "Linear_0", "aten::linear", X, W, B)
    made.host("user_annotation", f"Optimizer.step#{optimizer}.step", 200, 50)
    found = account(made, tmp_path)
    kinds = {item.name: item.bytes for item in found.at_peak if item.by == "kind"}
    assert kinds.get("optimizer slots") == (slots * LINEAR if slots else None)
    assert kinds["held before the window"] == BEFORE - LINEAR * (1 + (slots or 0))


def test_never_more_than_was_held(tmp_path: Path) -> None:
    made = Kineto()
    call(made, 100, "Linear_0", "aten::linear", X, (HALF, [4096, 4096]))
    assert parameters(account(made, tmp_path)) == BEFORE


@pytest.mark.parametrize("near_miss", ["no module", "no shapes", "two cards"])
def test_what_cannot_be_told_apart_stays_held_before_the_window(tmp_path: Path, near_miss: str) -> None:
    """One weight may be used by many calls; a model on two cards has a part of its weights on each."""
    made = Kineto()
    call(made, 100, "" if near_miss == "no module" else "Linear_0", "aten::linear", *(
        () if near_miss == "no shapes" else (X, W, B)
    ))  # fmt: skip
    if near_miss == "two cards":
        made.work("kernel", 150, 1, stream=9, device=1)
        made.events[-1]["args"]["device"] = 1
    found = account(made, tmp_path)
    assert (parameters(found), found.states_from) == (0, None)
