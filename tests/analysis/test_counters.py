"""Counters: Nsight Compute's CSV in both layouts becomes verdicts, and proves only what it can."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpprof.analysis.counters import verdicts
from mpprof.errors import UnreadableError

HMMA = "sm__inst_executed_pipe_tensor_op_hmma.sum"
PIPE = "sm__inst_executed_pipe_tensor.sum"


def raw(metric: str, rows: list[tuple[str, str]]) -> list[str]:
    """The raw page: a column per metric and a line of units."""
    lines = ["==PROF== Connected to process 1", f'"ID","Kernel Name","CC","{metric}"', '"","","","inst"']
    return lines + [f'"{i}","{name}","8.0","{value}"' for i, (name, value) in enumerate(rows)]


def details(metric: str, rows: list[tuple[str, str]]) -> list[str]:
    """The details page: a row per launch and metric."""
    lines = ['"ID","Kernel Name","CC","Section Name","Metric Name","Metric Unit","Metric Value"']
    return lines + [
        f'"{i}","{name}","8.0","Command line","{metric}","inst","{value}"'
        for i, (name, value) in enumerate(rows)
    ]


@pytest.mark.parametrize("page", [raw, details])
def test_both_pages_say_the_same(page) -> None:  # type: ignore[no-untyped-def]
    rows = [("my_product", "1,234"), ("my_product", "0"), ("ampere_sgemm_128x64_nn", "0")]
    found = verdicts(page(HMMA, rows), card="A100")
    assert found["my_product", "A100"].placement == "tensor_core"
    assert found["ampere_sgemm_128x64_nn", "A100"].placement == "cuda_core"
    assert {verdict.strength for verdict in found.values()} == {"counter"}
    assert "1234" in found["my_product", "A100"].reason.text


def test_the_whole_pipe_above_zero_proves_nothing() -> None:
    rows = [("upsample", "67108864"), ("cudnn_ampere_scudnn_128x64_relu_medium_nn_v1", "0")]
    found = verdicts(raw(PIPE, rows))
    assert ("upsample", "") not in found
    assert found["cudnn_ampere_scudnn_128x64_relu_medium_nn_v1", ""].placement == "cuda_core"


def test_no_tensor_instruction_does_not_make_a_matrix_kernel() -> None:
    found = verdicts(raw(HMMA, [("foo_kernel", "0"), ("void splitKreduce_kernel<float>()", "0")]))
    assert ("foo_kernel", "") not in found
    assert found["void splitKreduce_kernel<float>()", ""].placement == "not_matmul"


@pytest.mark.parametrize(
    ("metric", "precision"),
    [
        ("sm__ops_path_tensor_src_bf16_dst_fp32.sum", "bf16"),
        ("sm__ops_path_tensor_src_tf32_dst_fp32.sum", "tf32"),
        ("sm__inst_executed_pipe_tensor_op_imma.sum", "int8"),
        ("sm__inst_executed_pipe_tensor_op_dmma.sum", "fp64"),
    ],
)
def test_a_counter_that_names_the_type_gives_the_precision(metric: str, precision: str) -> None:
    verdict = verdicts(raw(metric, [("my_product", "8")]))["my_product", ""]
    assert (verdict.placement, verdict.precision) == ("tensor_core", precision)


@pytest.mark.parametrize(
    "lines", [[], ["nothing here"], ['"ID","Kernel Name"', '"1","k"'], raw("launch__grid_size", [("k", "1")])]
)
def test_a_file_without_counters_is_refused_with_advice(lines: list[str]) -> None:
    with pytest.raises(UnreadableError, match="ncu"):
        verdicts(lines, where="x.csv")


@given(st.lists(st.text(max_size=80), max_size=20))
def test_any_text_is_read_or_refused(lines: list[str]) -> None:
    try:
        verdicts(['"ID","Kernel Name","' + HMMA + '"', *lines])
    except UnreadableError:
        return
