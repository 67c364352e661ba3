"""The model as a tree of scopes: sums hold at every level, identical neighbours are drawn once."""

from __future__ import annotations

from typing import Any

import pytest
from mpprof_dashboards.export import render
from mpprof_dashboards.icicle import Node, tree
from mpprof_dashboards.pages.layers import icicle
from mpprof_dashboards.work import Per

from tests.dashboards.fake_source import HOSTILE


def op(layer: str | None, ns: int, place: str = "tensor_core", phase: str = "forward") -> dict[str, Any]:
    name = f"{layer}/MatMul"
    return {"device": "gpu", "op": name, "layer": layer, "phase": phase, "placement_ns": {place: ns}}


def grown(*ops: dict[str, Any]) -> Node:
    return tree(ops, [], device="gpu", steps=1)


def test_every_scope_is_as_long_as_its_children_and_its_own_time() -> None:
    root = grown(
        op("a/dense", 30), op("a", 5, "not_matmul"), op("b", 10, "cuda_core"), op(None, 7, "unknown")
    )
    assert root.total == 52
    first = root.children[0]
    assert (first.name, first.total, first.ns) == ("a", 35, {"unit": 30, "other": 5})
    assert [child.name for child in root.children] == ["a", "b", "no layer"]
    assert root.ns == {"unit": 30, "other": 5, "off": 10, "unknown": 7}


def test_equal_siblings_are_one_with_their_number() -> None:
    ops = [op(f"block_{n}/{part}", 10 + n) for n in range(24) for part in ("query", "up")]
    (folded,) = grown(*[each | {"placement_ns": {"tensor_core": 10}} for each in ops]).children
    assert (folded.count, folded.name, folded.total) == (24, "block_*", 480)
    assert {child.name: child.count for child in folded.children} == {"query": 24, "up": 24}


def test_a_sibling_that_takes_longer_is_not_hidden_among_the_others() -> None:
    ops = [op(f"block_{n}/up", 100 if n == 2 else 10) for n in range(4)]
    assert grown(*ops).children[0].name == "block_2"


def test_steps_divide_and_other_phases_and_devices_stay_out() -> None:
    ops = [op("a", 40), op("a", 8, phase="backward"), op("a", 99) | {"device": "other"}]
    assert tree(ops, [], device="gpu", phases=("forward",), steps=4).total == 10


def test_casts_are_told_from_other_work() -> None:
    casting = [{"device": "gpu", "op": "a/MatMul", "family": "cast", "total_ns": 6}]
    root = tree([op("a", 10, "not_matmul")], casting, device="gpu", steps=1)
    assert root.ns == {"cast": 6, "other": 4}


def test_widths_are_shares_and_names_are_text() -> None:
    text = render(icicle(grown(op("a", 75), op(HOSTILE, 25)), 100, "ice", Per(1)))
    assert "width: 75.000%" in text
    assert "&lt;a href=" in text
    assert HOSTILE not in text


@pytest.mark.parametrize("layers", [[], [None]])
def test_a_run_without_layers_is_a_tree_all_the_same(layers: list[str | None]) -> None:
    assert grown(*(op(layer, 3) for layer in layers)).total == 3 * len(layers)
