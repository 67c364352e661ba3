"""The account of a whole window: one span for all devices, and nothing where nothing ran."""

from __future__ import annotations

import pytest

from mpprof.analysis.breakdown.compute_precision import tensor_core_share
from mpprof.analysis.breakdown.whole_window import account_of_window
from mpprof.model.account import Account
from tests.analysis.breakdown.devices import two
from tests.builders.trace import TraceBuilder


def of(b: TraceBuilder) -> Account | None:
    return account_of_window(b.build(), b.placements(), b.ownership(), None, "no marker")


def test_every_device_is_held_against_the_same_span() -> None:
    found = of(two())
    assert found.of == "window"
    assert found.absent == {"step_ns": "no marker"}
    assert found.steps == ()
    assert [(each.device, each.step_ns, each.busy_ns) for each in found.devices] == [
        ("/device:GPU:1", 100, 50),
        ("/device:GPU:0", 100, 10),
    ]
    for device in found.devices:
        assert sum(part.ns_per_step for part in device.slices) == 100


def test_the_share_is_of_the_busiest_device() -> None:
    found = of(two())
    share = tensor_core_share(found.main.cells)
    assert (share.ratio, share.matmul_ns_per_step) == (0.75, 40)
    assert share.unknown_ratio == pytest.approx(0.2)
    assert share.by_precision == {"fp16": 30}


def test_ops_of_a_host_are_a_window_of_the_host() -> None:
    b = TraceBuilder(basis="host", planes=("/host:CPU",))
    b.kernel("MatMul", 0, 30, family="gemm", placement="cpu", launch=None)
    found = of(b)
    assert (found.trace_basis, found.device_ns) == ("host", 30)


def test_without_a_kernel_there_is_none() -> None:
    assert of(TraceBuilder()) is None
    still = TraceBuilder()
    still.kernel("at once", 5, 5, launch=None)
    assert of(still) is None
