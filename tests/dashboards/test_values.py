"""The page shows the numbers that the commands print: the same documents, and nothing computed a second time."""

from __future__ import annotations

import json
from typing import Any

import pytest
from mpprof_dashboards import choice as choices
from mpprof_dashboards import create_app, runs, work
from mpprof_dashboards.pages import why

from mpprof.cli import main
from mpprof.report import words
from mpprof.report.to_json import to_json
from tests.builders.read_back import reading
from tests.paths import SAMPLES
from tests.samples import source

why = reading(why)
work = reading(work)

SOURCE = source()
ENTRIES = SOURCE.entries()
NAMES = [entry.name for entry in ENTRIES if entry.problem is None]


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert main([*arguments, "--format", "json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("name", NAMES)
def test_the_page_s_document_and_figures_are_those_of_the_command(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    baseline = choices.default_baseline(name, ENTRIES)
    more = ["--baseline", str(SAMPLES / baseline)] if baseline else []
    told = printed(capsys, "report", str(SAMPLES / name), *more)
    document = to_json(SOURCE.report(name, baseline))
    for key in ("facts", "time", "tensor_core", "steps", "memory", "findings", "whatif", "verdict"):
        assert document.get(key) == told.get(key), key
    step = told["facts"]["step_ns"]
    shown = {id: value for value, _, id, _ in why.figures(SOURCE.report(name, baseline))}
    if step is not None:
        assert shown["step-time"] == words.duration(step)
    row = runs.summary(SOURCE, name, baseline)
    assert row["step_ns"] == step
    if not told["facts"].get("unlike"):
        assert (row["observed"], row["attainable"]) == (
            told["facts"]["observed"],
            told["facts"]["attainable"],
        )
    share = told["tensor_core"]
    assert row["share"] == (words.percent(share["ratio"]) if share and share["ratio"] is not None else "—")


@pytest.mark.parametrize(
    "name", ["v100-odd-vocabulary-mixed-float16", "v100-truncated", "recorded-cpu-float32"]
)
def test_tables_are_those_of_the_commands_over_the_profiled_steps(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    document = to_json(SOURCE.report(name))
    steps = document["time"]["window_steps"]
    for kind in work.KINDS:
        told = printed(capsys, f"{kind}s", str(SAMPLES / name))
        table = work.table(SOURCE, name, document, kind)
        ours = sum(row["ns"] for row in table.rows) * steps
        theirs = sum(row["total_ns"] for row in told)
        assert ours <= theirs * (1 + 1e-9)
        if name != "v100-truncated":  # whose trace holds kernels outside its whole steps
            assert ours == pytest.approx(theirs)
        if kind != "product":  # which are of matrix work alone
            assert sum(row["ratio"] for row in table.rows) == pytest.approx(1.0)


def test_the_rows_of_a_cause_are_the_work_that_its_cost_is_taken_from() -> None:
    """By the raw kernels: each cause's table holds those ops and no other, with their whole time."""
    wanted = {
        ("v100-odd-vocabulary-mixed-float16", "MP402"): lambda row: (
            row["layer"] == "logits" and row["placement"] != "not_matmul"
        ),
        ("v100-convnet-mixed-float16", "MP310"): lambda row: row["name"].startswith("Memcpy"),
        ("v100-convnet-mixed-float16", "MP501"): lambda row: (
            (row["layer"] or "").startswith("batch_normalization") and row["family"] in ("norm", "cast")
        ),
        ("h100-mixed-bfloat16", "MP507"): lambda row: "SoftmaxXent" in row["name"],
    }
    for (name, code), belongs in wanted.items():
        document = to_json(SOURCE.report(name))
        steps = document["time"]["window_steps"]
        kernels = [row for row in SOURCE.kernels(name, in_steps=True) if belongs(row)]
        assert kernels
        for kind in ("kernel", "op"):
            rows = work.table(SOURCE, name, document, kind, code).rows
            told = {row["name"] for row in rows}
            assert told == {row["op" if kind == "op" else "name"] or "not attributed" for row in kernels}
            if kind == "kernel":
                whole = sum(row["total_ns"] for row in kernels) / steps
                assert sum(row["ns"] for row in rows) == pytest.approx(whole)
        of_layers = {row["name"] for row in work.table(SOURCE, name, document, "layer", code).rows}
        assert of_layers == {row["layer"] or "not attributed" for row in kernels}
    document = to_json(SOURCE.report("v100-convnet-mixed-float16"))
    assert not work.table(SOURCE, "v100-convnet-mixed-float16", document, "kernel", "MP999").rows


def test_the_products_of_a_cause_are_of_its_layers_also_of_those_that_a_row_does_not_name() -> None:
    name = "v100-odd-vocabulary-mixed-float16"
    document = to_json(SOURCE.report(name))
    (found,) = [each for each in document["findings"] if each["code"] == "MP402"]
    for layer, count in (("logits", 3), ("block_2/value", 2)):  # the second is one of "block_0/key, … (+10)"
        found["parts"] = [{**found["parts"][0], "category": "matmul", "layer": layer}]
        assert len(work.table(SOURCE, name, document, "product", "MP402").rows) == count


def test_the_time_of_the_icicles_is_that_of_the_kernels() -> None:
    from mpprof_dashboards.pages.layers import _trees

    name = "v100-odd-vocabulary-mixed-float16"
    document = SOURCE.report(name)
    total = sum(tree.total for tree in _trees(SOURCE, name, document) or ())
    assert total == pytest.approx(document.time and document.time.device_ns)


def test_a_table_s_route_shows_the_rows_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    name = "v100-odd-vocabulary-mixed-float16"
    client = create_app(SOURCE).server.test_client()
    got = client.get(f"/rows.json?run={name}&table=op&sort=-ns").get_json()
    told = sorted(printed(capsys, "ops", str(SAMPLES / name)), key=lambda row: -row["total_ns"])
    assert got["total"] == len(told)
    at = [column.key for column in work.columns_of("op", work.Per(5))].index("ns")
    assert [row["cells"][at] for row in got["rows"][:10]] == [
        words.duration(row["total_ns"] / 5) for row in told[:10]
    ]
