"""The JSON documents: strict, complete, closed under their schemas."""

import copy
import json
from collections.abc import Callable
from typing import Any

import jsonschema
import pytest

from mpprof.api import workflows
from mpprof.model import rows
from mpprof.model.finding import Diagnosis
from mpprof.report import json as documents
from mpprof.report import schema
from tests.paths import SAMPLES
from tests.report import hand_made

DIAGNOSES = (hand_made.diagnosis, hand_made.bare, hand_made.cpu)
NOT_UNKNOWN = {("tensor_core", "reason"), ("speedup", "estimated"), ("answer", "code")}
# Of the design, in its order; what stands behind these was added later.
CONTRACT = {
    "": "schema run steps time tensor_core speedup bounds memory findings unable clear warnings absent verdict",
    "run": "name policy backend device jit_compile batch_size",
    "steps": "count steady mean_ns median_ns p95_ns skipped skipped_ratio loss_scale peak_memory_bytes",
    "time": "basis step_ns function_ns wall_ns window_ns device_ns between_steps slices devices",
    "tensor_core": "matmul_ns_per_step ratio reason by_precision fallback_ns_per_step unknown_ratio",
    "speedup": "baseline baseline_id observed interval expected expected_with_host ceiling estimated slices "
    "unexplained_ns",
    "memory": "peak_bytes at_peak saved_bytes reachable_bytes",
}


def tightened(schema: Any) -> Any:
    """The schema with nothing allowed that it does not name: a typing error in a key shows."""
    schema = copy.deepcopy(schema)

    def walk(node: Any) -> None:
        if isinstance(node, dict):
            if "properties" in node and node["properties"].keys() != {"schema"}:
                node.setdefault("additionalProperties", False)
            for value in node.values():
                walk(value)
        elif isinstance(node, list):
            for value in node:
                walk(value)

    walk(schema)
    return schema


def assert_valid(document: Any, name: str) -> None:
    schema = tightened(documents.schema(name))
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(schema).validate(document)


@pytest.mark.parametrize("make", DIAGNOSES)
def test_every_document_keeps_its_schema(make: Callable[[], Diagnosis]) -> None:
    assert_valid(documents.document(make()), "report")


def test_the_comparison_keeps_its_schema() -> None:
    document = documents.compare_document(hand_made.comparison())
    assert_valid(document, "compare")
    for report in document["runs"]:
        assert_valid(report, "report")


def test_the_schema_is_no_rubber_stamp() -> None:
    document = documents.document(hand_made.diagnosis())
    document["findings"][0]["severity"] = "critical"
    with pytest.raises(jsonschema.ValidationError):
        assert_valid(document, "report")
    del document["findings"][:], document["verdict"]
    with pytest.raises(jsonschema.ValidationError):
        assert_valid(document, "report")


@pytest.mark.parametrize("path", CONTRACT)
def test_the_keys_of_the_contract_come_first_and_in_order(path: str) -> None:
    document = documents.document(hand_made.diagnosis())
    keys = CONTRACT[path].split()
    assert list(document[path] if path else document)[: len(keys)] == keys


def test_the_slices_sum_to_the_step_and_matmul_to_its_parts() -> None:
    time = documents.document(hand_made.diagnosis())["time"]
    assert sum(part["ns_per_step"] for part in time["slices"]) == pytest.approx(time["step_ns"], abs=1)
    matmul = next(part for part in time["slices"] if part["class"] == "matmul")
    assert sum(share["ns_per_step"] for share in matmul["by"]) == pytest.approx(matmul["ns_per_step"], abs=1)
    assert next(part for part in time["slices"] if part["class"] == "profiling")["ns_per_step"] < 0


def test_the_gap_closes() -> None:
    gain = documents.document(hand_made.diagnosis())["speedup"]
    assert sum(part["ns_per_step"] for part in gain["slices"]) == pytest.approx(gain["gap_ns"], abs=1)
    assert gain["reach_ns"] + gain["gap_ns"] == pytest.approx(hand_made.STEP_NS, abs=1)


def test_what_is_not_finite_is_a_word_and_the_text_strict_json() -> None:
    document = documents.document(hand_made.diagnosis())
    assert document["steps"]["loss_scale"]["last"] == "Infinity"
    text = documents.dumps(document)

    def refuse(constant: str) -> Any:
        raise AssertionError(f"{constant} is no JSON")

    assert json.loads(text, parse_constant=refuse) == document
    assert text.isascii()


def test_numpy_scalars_become_plain_numbers() -> None:
    np = pytest.importorskip("numpy")
    values = {"a": np.float32(1.5), "b": np.int64(3), "c": np.bool_(True), "d": np.float64("nan")}
    assert json.loads(documents.dumps(values)) == {"a": 1.5, "b": 3, "c": True, "d": "NaN"}


@pytest.mark.parametrize("make", DIAGNOSES)
def test_every_null_has_its_reason(make: Callable[[], Diagnosis]) -> None:
    document = documents.document(make())
    for key, value in document.items():
        if value is None:
            assert document["absent"][key]
        elif isinstance(value, dict) and key != "absent":
            for inner, item in value.items():
                if item is None and (key, inner) not in NOT_UNKNOWN:
                    assert document["absent"][f"{key}.{inner}"]


def test_a_reason_that_is_known_wins_over_a_general_one() -> None:
    absent = documents.document(hand_made.cpu())["absent"]
    assert absent["tensor_core"] == "no accelerator in the trace"
    assert absent["speedup.observed"] == "no baseline was given"
    assert absent["tf32_enabled"] == "cc 7.0 has no TF32"


def test_a_run_without_an_accelerator_says_so_in_its_basis() -> None:
    assert documents.document(hand_made.cpu())["time"]["basis"] == "host"
    assert documents.document(hand_made.diagnosis())["time"]["basis"] == "wall"


def test_warnings_of_the_records_are_in_the_report() -> None:
    warnings = documents.document(hand_made.diagnosis())["warnings"]
    assert any("torn" in warning for warning in warnings)
    assert len(warnings) == len(set(warnings))


def test_kernel_differences_say_which_step_of_the_ladder_they_belong_to() -> None:
    document = documents.compare_document(hand_made.comparison())
    assert {kernel["step"] for kernel in document["kernels"]} == {0}
    assert document["kernels"][0]["to_ns"] is None
    assert document["steps"][0]["from"] == 0
    assert document["steps"][0]["to"] == 1


@pytest.mark.parametrize("name", schema.DOCUMENTS)
def test_the_shipped_schema_is_that_of_the_types(name: str) -> None:
    assert schema.path(name).read_text(encoding="utf-8") == schema.text(name), (
        "run `python -m mpprof.report.schema`"
    )


@pytest.mark.parametrize("kind", ["kernels", "products", "ops", "layers"])
def test_the_columns_of_a_table_are_the_keys_of_its_rows(kind: str) -> None:
    run = workflows.load(SAMPLES / "v100-float32-island")
    told_of_some_rows_alone = {"stream", "spans", "layers"}
    for row in workflows.table_rows(run, kind):  # type: ignore[arg-type]
        assert set(rows.flat(row)) - told_of_some_rows_alone == set(rows.keys(kind))
