"""Tables: sums that agree with the trace, copies by their kind, mixes of placement and precision."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpprof.analysis.breakdown import tables
from mpprof.analysis.breakdown.rates import NO_RATE
from mpprof.analysis.layers.attribution import attribute
from mpprof.errors import UsageError
from mpprof.model.trace import Op
from tests.analysis.pieces import (
    COPY,
    ELEMENTWISE,
    FALLBACK,
    TENSOR_CORE,
    UNTOLD,
    model,
    placements_of,
    trace_of,
)

VERDICTS = (TENSOR_CORE, FALLBACK, UNTOLD, ELEMENTWISE, COPY)
OPS = (Op("model/dense/MatMul", "MatMul"), Op("gradient_tape/model/dense/MatMul/MatMul", "MatMul"))
KERNELS = [
    (0, 0, "h884gemm", 0, 0, 300),
    (0, 0, "h884gemm", 0, 0, 100),
    (0, 1, "sgemm", 1, 1, 500),
    (0, 0, "Relu", -1, 3, 100),
    (0, 2, "anything", -1, 4, 1000),
]
KIND, DIRECTION = [0, 0, 0, 0, 1], [-1, -1, -1, -1, 0]


def made() -> tuple:
    trace = trace_of(OPS, KERNELS, KIND, DIRECTION)
    return trace, placements_of(VERDICTS, KERNELS), attribute(trace, model("dense", name="model"))


def test_kernels_are_the_rows_of_the_contract() -> None:
    rows = tables.kernels(*made())
    assert [(row["name"], row["op"], row["layer"], row["calls"], row["total_ns"]) for row in rows] == [
        ("MemcpyH2D", None, None, 1, 1000),
        ("sgemm", OPS[1].name, "dense", 1, 500),
        ("h884gemm", OPS[0].name, "dense", 2, 400),
        ("Relu", None, None, 1, 100),
    ]
    assert rows[2] | {"name": "", "op": "", "ratio": 0} == {
        "device": "/device:GPU:0", "name": "", "op": "", "line": None, "layer": "dense", "placement": "tensor_core",
        "precision": "fp16", "family": "gemm", "reason": {"code": "test", "text": "said so by the test"},
        "strength": rows[2]["strength"], "flops_per_s": None, "bytes_per_s": None,
        "roofline_ratio": None, "bound": None,
        "calls": 2, "total_ns": 400, "ratio": 0,
    }  # fmt: skip
    assert sum(row["ratio"] for row in rows) == pytest.approx(1)
    assert json.loads(json.dumps(rows)) == rows
    assert {type(row["calls"]) for row in rows} == {type(row["total_ns"]) for row in rows} == {int}


def test_ops_say_where_their_matrix_time_ran() -> None:
    rows = {row["op"]: row for row in tables.ops(*made())}
    assert rows[OPS[0].name] | {"ratio": 0} == {
        "device": "/device:GPU:0", "op": OPS[0].name, "type": "MatMul", "line": None, "layer": "dense",
        "phase": "forward",
        "calls": 2, "total_ns": 400, "ratio": 0, "matmul_ns": 400, "tensor_core_ratio": 1.0,
        "placement": "tensor_core", "precision": "fp16", "placement_ns": {"tensor_core": 400},
        "precision_ns": {"fp16": 400}, "eligible": "did", "eligible_reason": None, **NO_RATE,
    }  # fmt: skip
    assert rows[OPS[1].name]["tensor_core_ratio"] == 0.0
    assert (rows[None]["eligible"], rows[None]["tensor_core_ratio"]) == (None, None)


def test_layers_split_their_time_by_pass() -> None:
    dense, nothing = sorted(tables.layers(*made()), key=lambda row: row["layer"] is None)
    assert (dense["layer"], dense["class"], dense["compute_dtype"]) == ("dense", "Dense", "float16")
    assert (dense["forward_ns"], dense["backward_ns"], dense["other_ns"]) == (400, 500, 0)
    assert (dense["matmul_ns"], dense["tensor_core_ratio"]) == (900, pytest.approx(4 / 9))
    assert (nothing["layer"], nothing["total_ns"], nothing["tensor_core_ratio"]) == (None, 1100, None)


def test_a_ratio_that_could_not_be_told_is_none() -> None:
    kernels = [(0, 0, "mystery_gemm", 0, 2, 10)]
    trace = trace_of(OPS, kernels)
    row = tables.ops(trace, placements_of(VERDICTS, kernels), attribute(trace))[0]
    assert (row["tensor_core_ratio"], row["matmul_ns"]) == (None, 10)


def test_steps_that_the_trace_does_not_hold_are_refused() -> None:
    with pytest.raises(UsageError, match="steps 7 to 9"):
        tables.kernels(*made(), steps=(7, 9))


def test_an_empty_trace_has_no_rows() -> None:
    trace = trace_of([])
    for table in (tables.kernels, tables.products, tables.ops, tables.layers):
        assert table(trace, placements_of(VERDICTS, []), attribute(trace)) == []


@given(
    st.lists(
        st.tuples(
            st.integers(0, 2), st.integers(0, 3), st.sampled_from(["a", "b", "c"]), st.integers(-1, 1),
            st.integers(0, 4), st.integers(0, 10**12),
        ),
        min_size=1, max_size=60,
    )
)  # fmt: skip
def test_every_table_sums_to_the_trace(kernels: list) -> None:
    kernels = sorted(kernels, key=lambda kernel: kernel[0])
    trace = trace_of(OPS, kernels)
    placements, ownership = placements_of(VERDICTS, kernels), attribute(trace)
    whole = int(trace.kernels.duration_ns.sum())
    for table in (tables.kernels, tables.ops, tables.layers):
        for by_stream in (False, True):
            rows = table(trace, placements, ownership, by_stream=by_stream)
            assert sum(row["total_ns"] for row in rows) == whole
            assert sum(row["calls"] for row in rows) == len(kernels)
            keys = [
                tuple(str(row.get(k)) for k in ("device", "name", "op", "layer", "stream", "placement"))
                for row in rows
            ]
            assert by_stream or table is tables.kernels or len(set(keys)) == len(keys)
    streams = np.unique(trace.kernels.stream[trace.kernels.device == trace.kernels.device[0]])
    rows = tables.kernels(trace, placements, ownership, by_stream=True)
    first = [row for row in rows if row["device"] == trace.devices[trace.kernels.device[0]].plane]
    assert len({row["stream"] for row in first}) == len(streams)
