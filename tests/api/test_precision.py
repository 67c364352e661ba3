"""What a run computes in, through the whole of mpprof: the twins of oddities in real traces."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from mpprof.api import workflows
from mpprof.model.finding import Diagnosis
from mpprof.model.kernels import MATMUL_FAMILIES
from mpprof.model.rows import LayerRow
from mpprof.report import json as documents
from mpprof.report import tables
from mpprof.report.text import render
from tests.builders import precision_oddities as oddities
from tests.builders.read_back import reading
from tests.paths import NO_TRACES, SAMPLES, SHARED
from tests.traces.kineto import Kineto

render = reading(render)

RECORD_IN_FLOAT32 = re.compile(r"(?:record|train|trace)[^.;]*\bin float32|no float32 baseline", re.IGNORECASE)


def judged(write: Callable[[Path], Path], directory: Path) -> Diagnosis:
    return workflows.diagnose(workflows.load(write(directory)))


def sentences(found: Diagnosis) -> list[str]:
    said = [found.verdict, *found.explanation, *found.warnings, *(one.reason for one in found.unable)]
    said += [*(found.speedup.absent or {}).values()] if found.speedup else []
    return [*said, *(one.remedy for one in found.findings)]


def says(found: Diagnosis, pattern: re.Pattern[str] | str) -> bool:
    return any(re.search(pattern, sentence) for sentence in sentences(found))


@pytest.mark.parametrize(
    ("write", "kind", "by"),
    [
        (oddities.rounding_kernels_in_a_float32_run, "float32", "kernels"),
        (oddities.double_in_a_scalar_op, "float32", "kernels"),
        (oddities.few_16_bit_products, "partly 16-bit", "kernels"),
        (oddities.fp32_kernels_for_16_bit_tensors, "16-bit", "inputs"),
        (oddities.cpu_ops_without_types, "unknown", "nothing"),
    ],
)
def test_what_a_bare_trace_computes_in(
    write: Callable[[Path], Path], kind: str, by: str, tmp_path: Path
) -> None:
    found = judged(write, tmp_path)
    assert (found.computes.kind, found.computes.by) == (kind, by)


@pytest.mark.parametrize(
    "write", [oddities.rounding_kernels_in_a_float32_run, oddities.double_in_a_scalar_op]
)
def test_a_float32_run_is_not_told_to_record_float32(write: Callable[[Path], Path], tmp_path: Path) -> None:
    found = judged(write, tmp_path)
    assert not says(found, RECORD_IN_FLOAT32)
    assert says(found, "is a baseline itself")
    assert found.speedup.estimated is None
    text = render(documents.document(found))
    assert "float32 by its kernels" in text
    assert "--baseline BASE" not in text


def test_a_run_partly_in_16_bits_is_called_so(tmp_path: Path) -> None:
    found = judged(oddities.few_16_bit_products, tmp_path)
    text = " ".join(render(documents.document(found)).split())
    assert re.search(r"partly in float16 \(10\.\d % of the matrix time\) by its kernels", text)
    assert found.speedup.estimated is not None


def test_a_cpu_trace_without_types_does_not_tell_the_precision(tmp_path: Path) -> None:
    found = judged(oddities.cpu_ops_without_types, tmp_path)
    assert not says(found, "in float32: it is|usable trace")
    assert says(found, "precision not known")
    assert "precision not known" in render(documents.document(found))
    assert "On a CPU mixed precision says nothing" in found.verdict


def test_the_trace_alone_of_a_recorded_mixed_run_is_not_called_float32() -> None:
    trace = next((SAMPLES / "recorded-cpu-mixed-float16").rglob("*.xplane.pb"))
    found = workflows.diagnose(workflows.load(trace))
    assert found.computes.kind == "unknown"
    assert not says(found, r"(?:computes|ran|is) in float32")
    recorded = workflows.diagnose(workflows.load(SAMPLES / "recorded-cpu-mixed-float16"))
    assert (recorded.computes.kind, recorded.computes.by) == ("16-bit", "policy")


def test_nothing_falls_back_on_a_card_without_matrix_units(tmp_path: Path) -> None:
    found = judged(oddities.sgemm_on_a_card_without_tensor_cores, tmp_path)
    assert found.tensor_core.fallback_ns_per_step == 0.0
    assert found.tensor_core.ratio == 0.0
    fell = judged(oddities.fp32_kernels_for_16_bit_tensors, tmp_path)
    assert fell.tensor_core.fallback_ns_per_step == fell.tensor_core.matmul_ns_per_step > 0.0


def test_matrix_work_on_a_cpu_has_a_placement_of_its_own(tmp_path: Path) -> None:
    run = workflows.load(oddities.cpu_ops_without_types(tmp_path))
    rows = workflows.table_rows(run, "kernels")
    assert {row["placement"] for row in rows if row["family"] in ("gemm", "conv_fprop")} == {"cpu"}
    time = documents.document(workflows.diagnose(run))["time"]
    (matmul,) = (part for part in time["slices"] if part["class"] == "matmul")
    assert [share["placement"] for share in matmul["by"]] == ["cpu"]


# --- ops of a CPU ------------------------------------------------------------------------------------------


def test_fused_ops_of_a_cpu_are_what_their_type_says(tmp_path: Path) -> None:
    rows = workflows.table_rows(workflows.load(oddities.fused_ops_of_a_cpu(tmp_path)), "kernels")
    families = {row["op"]: row["family"] for row in rows}
    assert {op: families[op] for op in oddities.FUSED_FAMILIES} == oddities.FUSED_FAMILIES
    matrix = [row for row in rows if row["family"] in MATMUL_FAMILIES]
    assert len(matrix) == 9
    assert {row["placement"] for row in matrix} == {"cpu"}


def in_kineto(directory: Path) -> Path:
    trace = Kineto(header={"deviceProperties": []})
    trace.op("aten::linear", 0, 100)
    trace.op("aten::addmm", 10, 80)
    trace.op("aten::relu", 200, 20)
    return trace.write(directory / "host.pt.trace.json")


def in_tensorflows_export(directory: Path) -> Path:
    events = [
        {"ph": "M", "pid": 2, "name": "process_name", "args": {"name": "/host:CPU"}},
        {"ph": "M", "pid": 2, "tid": 5, "name": "thread_name", "args": {"name": "tf_Compute/5"}},
        *(
            {"ph": "X", "pid": 2, "tid": 5, "ts": at * 100, "dur": 90.0, "name": name, "args": {}}
            for at, name in enumerate(("c1/Relu:_MklNativeFusedConv2D", "pool/MaxPool:_MklNativeMaxPool"))
        ),
    ]
    path = directory / "host.trace.json"
    path.write_text(json.dumps({"displayTimeUnit": "ns", "traceEvents": events}))
    return path


@pytest.mark.parametrize("write", [oddities.fused_ops_of_a_cpu, in_kineto, in_tensorflows_export])
def test_every_reader_places_matrix_work_of_a_cpu_on_it(
    write: Callable[[Path], Path], tmp_path: Path
) -> None:
    rows = workflows.table_rows(workflows.load(write(tmp_path)), "kernels")
    assert {row["placement"] for row in rows if row["family"] in MATMUL_FAMILIES} == {"cpu"}
    assert "cuda_core" not in {row["placement"] for row in rows}


def test_a_cpu_trace_without_steps_is_a_trace(tmp_path: Path) -> None:
    found = judged(oddities.cpu_ops_without_steps, tmp_path)
    assert found.account is None
    assert not says(found, "usable trace")
    assert "of the window" in found.explanation[0]


def test_a_transpose_is_no_cast_whatever_its_scope_is_called(tmp_path: Path) -> None:
    found = judged(oddities.transpose_with_cast_in_its_scope, tmp_path)
    by_class = {part.category: part.ns_per_step for part in found.account.main.slices}
    assert by_class["layout"] == pytest.approx(30_000, rel=0.1)
    assert "cast" not in by_class


# --- norms -------------------------------------------------------------------------------------------------


def test_norms_are_found_by_their_scope_where_the_kernels_are_plain(tmp_path: Path) -> None:
    found = judged(oddities.norms_taken_apart, tmp_path)
    by_class = {part.category: part.ns_per_step for part in found.account.main.slices}
    assert by_class["norm"] == pytest.approx(9 * oddities.NORM_US * 1e3, rel=0.05)
    assert by_class["elementwise"] == pytest.approx(3 * oddities.CAST_US * 1e3, rel=0.05)
    assert by_class["cast"] == pytest.approx(oddities.CAST_US * 1e3, rel=0.05)


def test_mp501_sees_norms_that_were_taken_apart(tmp_path: Path) -> None:
    found = judged(oddities.norms_taken_apart, tmp_path)
    (norm,) = (each for each in found.findings if each.code == "MP501")
    assert "batch_normalization_3" in norm.layers
    assert {"normalization", "dense", "re_lu"}.isdisjoint(norm.layers)
    times = {each.name: each.value for each in norm.evidence}
    assert times["casts of these layers"] == pytest.approx(oddities.CAST_US * 1e3, rel=0.05)


def test_masks_are_no_casts_and_what_lies_beside_a_norm_is_none(tmp_path: Path) -> None:
    """A model whose window has no products: its dropout lies in the same layer as the norms within it."""
    found = judged(oddities.window_before_the_model_runs, tmp_path)
    by_class = {part.category: part.ns_per_step for part in found.account.main.slices}
    assert by_class["cast"] == pytest.approx(oddities.CAST_US * 1e3, rel=0.05)
    assert by_class["elementwise"] == pytest.approx((2 * oddities.CAST_US + oddities.NORM_US) * 1e3, rel=0.1)
    assert by_class.get("norm", 0.0) <= 1_100


def test_without_products_the_other_work_is_told_and_nothing_is_ruled_out(tmp_path: Path) -> None:
    """Its masks are in half: "does not compute in 16 bits" would be false, and so would "float16"."""
    found = judged(oddities.window_before_the_model_runs, tmp_path)
    assert (found.computes.kind, found.computes.words) == (
        "unknown", "no matrix work seen, other work in float16",
    )  # fmt: skip
    assert {"MP412", "MP501", "MP507"} <= {one.code for one in found.unable}
    assert not says(found, "does not compute in 16 bits")
    assert not any("does not compute in 16 bits" in one.reason for one in found.not_applicable)


@pytest.mark.skipif(not SHARED.is_dir(), reason=NO_TRACES)
def test_a_recorded_window_before_the_model_runs() -> None:
    """Eight V100s: copies of the input's own thread end most gaps, and no activation was ever allocated."""
    found = workflows.diagnose(workflows.load(SHARED / "v100-8gpu-bert-fp16" / "host.xplane.pb"))
    assert found.findings == ()
    reasons = {one.code: one.reason for one in found.unable}
    assert "activations may be missing" in reasons["MP303"]
    assert "graphs" not in reasons["MP302"]  # it launches kernel by kernel
    said = render(documents.document(found))
    assert "ExecutorState::Process" not in said
    assert "activations kept for backward" not in said
    assert re.search(r"by op: .*others \d", said.replace("\n", " "))


# --- one kernel for several layers -------------------------------------------------------------------------


def by_layer(path: Path) -> dict[str | None, LayerRow]:
    rows = workflows.table_rows(workflows.load(path), "layers")
    return {row["layer"]: row for row in rows}


def test_a_merged_product_is_of_all_its_layers(tmp_path: Path) -> None:
    path = oddities.merged_query_key_and_value(tmp_path)
    ops = {row["op"]: row for row in workflows.table_rows(workflows.load(path), "ops")}
    (product,) = (row for name, row in ops.items() if name and name.endswith("(query)/dot_general"))
    assert product["layer"] == "query, key (+1)"
    assert {part["layer"]: part["ratio"] for part in product["spans"]} == pytest.approx(
        {"query": 1 / 3, "key": 1 / 3, "value": 1 / 3}
    )
    rows = by_layer(path)
    together = rows["query, key (+1)"]
    assert sorted(together["layers"]) == ["key", "query", "value"]
    assert together["matmul_ns"] == pytest.approx(oddities.STEPS * oddities.MERGED_US * 1e3, rel=0.05)
    assert rows["query"]["matmul_ns"] == 0


def test_time_of_several_layers_is_in_a_row_of_its_own_and_in_no_sum_of_one(tmp_path: Path) -> None:
    rows = by_layer(oddities.fusions_over_several_layers(tmp_path))
    per_step = {name: row["total_ns"] / oddities.STEPS / 1e3 for name, row in rows.items()}
    assert per_step["add, batch_normalization (+1)"] == pytest.approx(oddities.FUSED_US, rel=0.05)
    assert per_step["dense, re_lu"] == pytest.approx(oddities.FUSED_US, rel=0.05)
    assert per_step["dense"] == pytest.approx(oddities.MERGED_US, rel=0.05)
    assert per_step["add"] == pytest.approx(oddities.ALONE_US, rel=0.05)
    assert rows["dense"]["shared_ns"] == rows["dense, re_lu"]["total_ns"]
    assert rows["add"]["shared_ns"] == rows["add, batch_normalization (+1)"]["total_ns"]
    assert sum(row["ratio"] for row in rows.values()) == pytest.approx(1.0)


def test_the_layers_of_a_fusion_go_into_a_csv(tmp_path: Path) -> None:
    run = workflows.load(oddities.fusions_over_several_layers(tmp_path))
    for kind in ("ops", "layers", "kernels"):
        rows = workflows.table_rows(run, kind)
        text = tables.to_csv(rows, tables.keys(kind))
        assert len(list(csv.DictReader(text.splitlines()))) == len(rows)
        assert '"dense, re_lu"' in text
