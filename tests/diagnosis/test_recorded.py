"""What the diagnosis says of recorded traces, held against their raw events, which these tests read themselves."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from mpprof.api import workflows
from mpprof.model.finding import Diagnosis
from tests.traces.conftest import SHARED, needs_shared

pytestmark = needs_shared()

TIMESFORMER = "h100-torch/facebook_timesformer-base-finetuned-k400__1016002.json.gz"
H100_BYTES_PER_NS = 3350.0
Event = dict[str, Any]


def events(name: str) -> list[Event]:
    with gzip.open(SHARED / name) as file:
        return [event for event in json.load(file)["traceEvents"] if event.get("ph") == "X"]


def diagnosed(name: str) -> Diagnosis:
    return workflows.diagnose(workflows.load(SHARED / name))


def kernels_by_op(found: list[Event]) -> list[tuple[str, list[list[int]], float]]:
    """(op, dimensions of its inputs, ns) of every kernel."""
    ops = {e["args"].get("External id"): e for e in found if e.get("cat") == "cpu_op"}
    kernels = [(e, ops.get(e["args"].get("External id"))) for e in found if e.get("cat") == "kernel"]
    return [(op["name"], op["args"].get("Input Dims", []), e["dur"] * 1e3) for e, op in kernels if op]


def values(dims: list[int]) -> int:
    size = 1
    for each in dims:
        size *= each
    return size


def test_timesformer_gains_from_aligned_scores_what_their_bytes_leave() -> None:
    """Every product of scores writes or reads all of them, which takes its time at the peak bandwidth."""
    products = [(dims, ns) for op, dims, ns in kernels_by_op(events(TIMESFORMER)) if op == "aten::bmm"]
    odd = [(dims, ns) for dims, ns in products if 3137 in dims[0]]
    scores = 2 * 96 * 3137 * 3137
    most = sum(ns - scores / H100_BYTES_PER_NS for _, ns in odd)
    assert most == pytest.approx(29.7e6, rel=0.01)
    found = next(each for each in diagnosed(TIMESFORMER).findings if each.code == "MP401")
    assert found.cost_ns_per_step is not None
    assert 0.5 * most < found.cost_ns_per_step < most


def test_timesformer_writes_scores_and_works_on_them() -> None:
    scores = values([8, 12, 3137, 3137])
    long = sum(
        ns
        for op, dims, ns in kernels_by_op(events(TIMESFORMER))
        if op in ("aten::_softmax", "aten::mul") and dims[0] and values(dims[0]) == scores
    )
    assert long == pytest.approx(84.2e6, rel=0.01)
    found = next(each for each in diagnosed(TIMESFORMER).findings if each.code == "MP411")
    assert found.cost_ns_per_step == pytest.approx(long, rel=0.01)  # with the short scores over frames
    assert found.remedies[0].text.startswith("torch.nn.functional.scaled_dot_product_attention")
