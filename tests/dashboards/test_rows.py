"""Rows of tables as the page asks for them: filtered, sorted and cut on the server."""

from __future__ import annotations

import json
from typing import Any

import pytest
from mpprof_dashboards import rows, work
from mpprof_dashboards.rows import Asked, Table

from mpprof.model.columns import Column
from tests.dashboards.fake_source import HOSTILE_KERNEL, FakeSource, kernel_rows, op_rows
from tests.dashboards.test_app import draw

COLUMNS = (
    Column("name", key="name"), Column("time", "ns", key="ns"), Column("share", "ratio", key="ratio"),
)  # fmt: skip
TABLE = Table(
    COLUMNS,
    [
        {"name": "gemm", "ns": 15_600_000, "ratio": 0.8, "keys": frozenset("a")},
        {"name": "cast", "ns": 2_000_000, "ratio": 0.1, "keys": frozenset("b")},
        {"name": "other", "ns": None, "ratio": 0.1, "keys": frozenset("c")},
        {"name": "tiny", "ns": 700, "ratio": 0.0, "keys": frozenset("d")},
    ],
)


def names(**filters: str) -> list[str]:
    return [row["name"] for row in rows.select(TABLE, Asked(filters))]


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("15", ["gemm"]),
        ("156", []),  # 15.6 ms is shown, not 15600000
        (">= 1 ms", ["gemm", "cast"]),
        ("<1ms", ["tiny"]),
        ("< 1 us", ["tiny"]),
        ("> 2", ["gemm"]),
        ("= 2 ms", ["cast"]),
        (">", ["gemm", "cast", "other", "tiny"]),
        ("> 1 parsec", []),
    ],
)
def test_a_time_is_filtered_in_the_unit_that_is_shown(typed: str, found: list[str]) -> None:
    assert names(ns=typed) == found


LAYERS = Table(
    (Column("layer", full="layers", key="layer"),),
    [
        {"layer": "dense", "name": 0},
        {"layer": "dense_1", "name": 1},
        {"layer": "dense/inner", "name": 2},
        {"layer": "2 layers", "layers": "a, dense", "layer_names": ("a", "dense"), "name": 3},
        {"layer": "block_10/up", "name": 4},
        {"layer": "block_2/up/x", "name": 5},
        {"layer": "block_a/up", "name": 6},
        {"layer": "", "name": 7},
    ],
)


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("dense", [0, 1, 2, 3]), ("=dense", [0, 2, 3]), ("= dense", [0, 2, 3]), ("=dense_1", [1]), ("=dens", []),
        ("=block_*", [4, 5]), ("=block_*/up", [4, 5]), ("=block_2/up", [5]), ("=a", [3]), ("2 lay", [3]),
        ("=", []), ("=.*", []), ("=Dense", []),
    ],
)  # fmt: skip
def test_a_whole_name_finds_itself_and_what_lies_below_it(typed: str, found: list[int]) -> None:
    assert [row["name"] for row in rows.select(LAYERS, Asked({"layer": typed}))] == found


def test_filters_add_up_and_unknown_fields_are_passed_over() -> None:
    assert names(ns="> 1 ms", ratio="< 50 %") == ["cast"]
    assert names(nothing="x") == ["gemm", "cast", "other", "tiny"]
    assert names(only="a d") == ["gemm", "tiny"]


@pytest.mark.parametrize("descending", [False, True])
def test_rows_without_a_value_come_last_either_way(descending: bool) -> None:
    found = rows.select(TABLE, Asked(sort="ns", descending=descending))
    assert found[-1]["name"] == "other"
    known = [row["ns"] for row in found[:-1]]
    assert known == sorted(known, reverse=descending)


def test_an_answer_holds_a_hundred_rows_and_says_how_many_there_are() -> None:
    many = Table(COLUMNS, [{"name": f"k{n}", "ns": n, "ratio": 0.0} for n in range(250)])
    first, last = rows.answer(many, Asked()), rows.answer(many, Asked(first=200))
    assert (first["total"], first["found"], len(first["rows"]), len(last["rows"])) == (250, 250, 100, 50)
    assert last["rows"][0]["cells"][0] == "k200"


def test_csv_holds_raw_numbers_and_no_formulas() -> None:
    table = Table(COLUMNS, [{"name": "=1+1", "ns": 15_600_000.5, "ratio": 0.25}])
    assert rows.to_csv(table, Asked()) == "name,ns,ratio\n'=1+1,15600000.5,0.25\n"


# --- what the tables hold ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("void tensorflow::functor::(anonymous namespace)::SoftmaxXentKernel<float>(float const*, int)",
         "SoftmaxXentKernel<float>"),
        ("volta_sgemm_128x64_nn", "volta_sgemm_128x64_nn"),
        ("void cub::DeviceReduceKernel<cub::Policy600<float, float, float, int>, float*>(float*)",
         "DeviceReduceKernel<…>"),
        ("void cutlass::Kernel2<cutlass_75_tensorop_f16_s1688gemm_f16_256x128_nn_align1>"
         "(cutlass_75_tensorop_f16_s1688gemm_f16_256x128_nn_align1::Params)",
         "cutlass_75_tensorop_f16_s1688gemm_f16_256x128_nn_align1"),
    ],
)  # fmt: skip
def test_a_kernel_is_named_without_its_signature(name: str, short: str) -> None:
    assert work.short_kernel(name) == short


def test_an_op_is_named_without_what_wraps_every_op() -> None:
    assert work.short_op("StatefulPartitionedCall/model/dense/MatMul") == "model/dense/MatMul"
    assert work.short_op("while/body/_1/StatefulPartitionedCall/x/Add") == "x/Add"
    assert work.short_op("jit(train)/dense/dot") == "dense/dot"


def test_equal_kernels_are_one_row_and_times_are_per_step() -> None:
    each = work.Per(8)
    twice = [*kernel_rows(), kernel_rows()[1] | {"op": "dense/MatMul", "layer": "dense"}]
    table = work.grouped(twice, op_rows(), each)
    sgemm = next(row for row in table if row["name"] == "ampere_sgemm_128x64_nn")
    assert sgemm["ns"] == 2 * 2_000_000 / 8
    assert sgemm["layer"] == "2 layers"
    assert sum(row["ns"] for row in table) == pytest.approx(sum(row["total_ns"] for row in twice) / 8)
    assert [row["ns"] for row in table] == sorted((row["ns"] for row in table), reverse=True)


def test_the_parts_of_a_layer_sum_to_its_time() -> None:
    source = FakeSource()
    table = work.table(source, "mixed", source.report("mixed", "fp32"), "layer")
    for row in table.rows:
        parts = row["unit_ns"] + row["off_ns"] + row["cast_ns"] + row["rest_ns"]
        assert parts == pytest.approx(row["ns"])
        assert sum(ns for _, ns in row["parts"]) == pytest.approx(row["ns"])
    divided = {row["cells"][1]: row["parts"] for row in rows.answer(table, Asked())["rows"]}["res2a"]
    assert [kind for kind, _ in divided] == ["unit", "other"]
    assert sum(share for _, share in divided) == pytest.approx(1, abs=0.001)
    kernels = {
        row["layer"]: row["total_ns"] / 8 for row in kernel_rows() if row["placement"] == "tensor_core"
    }
    assert {row["name"]: row["unit_ns"] for row in table.rows}["res2a"] == kernels["res2a"]


# --- routes ------------------------------------------------------------------------------------------------


def found_by(id: str, part: Any) -> dict[str, Any] | None:
    """The properties of the component with an id, in what a page is drawn as."""
    if isinstance(part, list):
        return next((own for each in part if (own := found_by(id, each))), None)
    props = part.get("props", {}) if isinstance(part, dict) else {}
    return props if props.get("id") == id else found_by(id, props.get("children")) if props else None


@pytest.mark.parametrize("kind", ["kernel", "layer"])
def test_the_first_rows_come_with_the_page(client: Any, kind: str) -> None:
    asked = "run=mixed&baseline=fp32"
    page = draw(client, f"/{kind}s", f"?{asked}")["page"]["children"]
    table = found_by(f"{kind}s", page)
    assert table is not None
    answer = client.get(f"/rows.json?{asked}&table={kind}&sort=-ns").get_json()
    assert json.loads(table["data-first"]) == answer


def test_rows_are_asked_for_by_run_and_table(client: Any) -> None:
    asked = "/rows.json?run=mixed&baseline=fp32&table=kernel&sort=-ns"
    got = client.get(asked).get_json()
    assert got["total"] == len(kernel_rows())
    assert got["rows"][0]["cells"][1].startswith("ampere_fp16_s16816gemm")
    unknown = client.get(f"{asked}&f.place=unknown").get_json()
    assert [row["titles"][1] for row in unknown["rows"]] == [HOSTILE_KERNEL]
    assert client.get(asked.replace("json", "csv")).text.startswith("place,short,")


@pytest.mark.parametrize(
    "query",
    ["run=nowhere&table=kernel", "run=mixed&table=secrets", "run=broken&table=op", "table=kernel", "run=../..&table=op"],
)  # fmt: skip
def test_what_is_not_there_is_one_line(client: Any, query: str) -> None:
    for route in ("/rows.json", "/rows.csv"):
        answer = client.get(f"{route}?{query}")
        assert answer.status_code == 404
        assert "Traceback" not in answer.text


@pytest.mark.parametrize(
    "query", ["from=-1", "from=9999999999999999", "sort=--", "f.ns=" + ">" * 5000, "f.=x"]
)
def test_malformed_queries_are_answered(client: Any, query: str) -> None:
    assert client.get(f"/rows.json?run=mixed&table=kernel&{query}").status_code == 200


def test_the_list_of_runs_is_sent_again_only_when_it_changed(client: Any) -> None:
    got = client.get("/runs.json").get_json()
    runs = [run for group in got["groups"] for run in group["runs"]]
    assert {run["id"] for run in runs} == {"fp32", "mixed", "cpu", "live", "broken"}
    assert next(run for run in runs if run["id"] == "broken")["problem"] == "run.json is not JSON (byte 12)"
    assert client.get(f"/runs.json?version={got['version']}").status_code == 204
    one = client.get("/run.json?run=mixed&baseline=fp32").get_json()
    assert (one["figure"], one["label"], one["skipped"]) == ("1.07x", "of a run made up", "12")
    assert client.get("/run.json?run=broken").status_code == 404
