"""What the diagnosis says of recorded traces, held against their raw events, which these tests read themselves."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from mpprof.api import workflows
from mpprof.model.finding import Diagnosis
from tests.paths import SHARED
from tests.traces.conftest import needs_shared

pytestmark = needs_shared()

TIMESFORMER = "h100-torch/facebook_timesformer-base-finetuned-k400__1016002.json.gz"
ALEXNET = "a100-v100-torch/alexnet_a100.json.gz"
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


def test_what_ran_before_the_only_step_is_not_said_to_follow_it() -> None:
    """AlexNet's weights are copied 12.8 s before the pass that is measured, and nothing is launched behind it."""
    found = events(ALEXNET)
    (passed,) = (e for e in found if "measure|forward" in e["name"] and e["dur"] < 40_000)
    end = passed["ts"] + passed["dur"]
    copies = [e for e in found if e.get("cat") == "gpu_memcpy"]
    assert sum(e["dur"] for e in copies) == pytest.approx(55.5e3, rel=0.01)
    assert not [e for e in found if e.get("cat") in ("kernel", "gpu_memcpy") and e["ts"] > end]
    account = diagnosed(ALEXNET).account
    assert account.between is not None
    assert sum(each.device_ns for each in account.between) == 0


def test_a_pass_that_waits_for_the_drivers_allocations_is_none_of_a_steady_state() -> None:
    found = events(ALEXNET)
    (passed,) = (e for e in found if "measure|forward" in e["name"] and e["dur"] < 40_000)
    within = [e for e in found if passed["ts"] <= e["ts"] < passed["ts"] + passed["dur"]]
    allocating = 1e3 * sum(e["dur"] for e in within if e["name"] == "cudaMalloc")
    assert allocating == pytest.approx(32.8e6, rel=0.01)
    (warm_up,) = (each for each in diagnosed(ALEXNET).findings if each.code == "MP901")
    assert warm_up.cost_ns_per_step is not None
    assert 0.9 * allocating < warm_up.cost_ns_per_step < allocating  # what the device worked meanwhile
    assert warm_up.remedy.startswith("profile later steps")


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
