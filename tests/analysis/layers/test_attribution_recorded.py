"""Ownership on traces of real training: nearly all of the layers' time, and to the right layer."""

from __future__ import annotations

import importlib.util

import pytest

from mpprof.analysis.breakdown import tables
from mpprof.analysis.kernels import placement
from mpprof.analysis.layers.attribution import Ownership, attribute
from mpprof.model.run import ModelFacts
from mpprof.model.trace import Trace
from tests.analysis.layers.layer_cases import CASES, WIDTHS, record, shares, time_by_op

pytestmark = pytest.mark.framework
COMPILED = {case for case, (_, *flags) in CASES.items() if "jit" in flags}
IN_FULL = {"tensorflow-custom-step", "tensorflow-own-loop-xla"}
"""What they combine each have others, too: a step or a loop of one's own, and XLA."""


@pytest.fixture(
    scope="module",
    params=[pytest.param(case, marks=[pytest.mark.full] * (case in IN_FULL)) for case in CASES],
)
def recorded(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Trace, ModelFacts]:
    if importlib.util.find_spec(CASES[request.param][0]) is None:
        pytest.skip(f"{CASES[request.param][0]} is not installed")
    return request.param, *record(request.param, tmp_path_factory.mktemp(request.param))


def test_nearly_all_of_the_layers_time_is_owned_by_the_right_layer(
    recorded: tuple[str, Trace, ModelFacts],
) -> None:
    _, trace, model = recorded
    found = shares(trace, model)
    assert found.layers >= 10
    assert found.owned >= 0.95
    assert found.right >= 0.95
    ownership = attribute(trace, model)
    assert {fact.name for fact in ownership.facts if fact} >= set(WIDTHS.values()) | {"conv2d", "my_conv"}


def test_phases_are_told_apart(recorded: tuple[str, Trace, ModelFacts]) -> None:
    _, trace, model = recorded
    ownership: Ownership = attribute(trace, model)
    phases = {ownership.phase_of(row) for row in range(len(trace.ops))}
    assert {"forward", "backward", "optimizer"} <= phases
    assert all(
        ownership.phase_of(row) == "optimizer"
        for row, op in enumerate(trace.ops)
        if "/adam/" in op.name.lower()
    )


def test_fusions_of_several_layers_say_so(recorded: tuple[str, Trace, ModelFacts]) -> None:
    """Compiled programs fuse across layers: every such op states shares that make up the whole, and a layer's
    row how much of its time is such an op's."""
    case, trace, model = recorded
    ownership, placements = attribute(trace, model), placement.place(trace)
    assert bool(ownership.spans) == (case in COMPILED)
    for spans in ownership.spans.values():
        assert sum(span.ratio for span in spans) == pytest.approx(1)
        assert len({span.layer for span in spans}) == len(spans) > 1
    time = time_by_op(trace)
    spanning = sum(int(time[op]) for op in ownership.spans)
    rows = tables.layers(trace, placements, ownership)
    assert sum(row["fused_ns"] for row in rows) == spanning
    assert all(row["fused_ns"] <= row["total_ns"] for row in rows)
    stated = [row for row in tables.ops(trace, placements, ownership) if "spans" in row]
    assert sum(row["total_ns"] for row in stated) == spanning
