"""Parts of a step by their names: pooling, what is hidden, what is folded, ops by their layers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mpprof.api import workflows
from mpprof.report import json as documents
from mpprof.report import tables, words
from mpprof.report.markdown import render as markdown
from tests.builders import cases as c
from tests.builders import keras2
from tests.builders.read_back import brief, content, reading, text
from tests.diagnosis.saying import diagnosed
from tests.report import hand_made

tables = reading(tables)
markdown = reading(markdown)


@pytest.fixture
def hidden(tmp_path: Path) -> Any:
    path = tmp_path / "host.xplane.pb"
    path.write_bytes(keras2.long_op_hidden_on_a_cpu().to_bytes())
    return documents.document(workflows.diagnose(workflows.load(path)))


def slices(document: Any) -> dict[str, Any]:
    assert document["time"] is not None
    return {part["class"]: part for part in document["time"]["slices"]}


def test_a_long_op_that_others_hide_is_named(hidden: Any) -> None:
    reduce = slices(hidden)["reduce"]
    assert reduce["hidden_ns_per_step"] == pytest.approx(26.8e6, rel=0.01)
    assert reduce["longest_hidden"]["name"] == "gradient_tape/sequential/conv2d/BiasAdd/BiasAddGrad"
    for said in (text.render(hidden, width=200), markdown(hidden)):
        line = next(line for line in said.splitlines() if "ran beside work that is counted first" in line)
        assert "26.8 ms of reduce" in line
        assert "conv2d/BiasAdd/BiasAddGrad, 26.8 ms" in line
    labels = [row.label for row in content.time_rows(hidden["time"])] if hidden["time"] else []
    assert "reduce" in labels  # not folded: there is more behind it than in most rows


def test_little_that_is_hidden_needs_no_sentence(hidden: Any) -> None:
    time = hidden["time"]
    few: Any = {**time, "slices": [{**part, "hidden_ns_per_step": 1e5} for part in time["slices"]]}
    assert content.hidden(few) == []


def test_most_is_said_of_half_or_more_and_hidden_copies_need_no_sentence(hidden: Any) -> None:
    time = hidden["time"]
    assert time is not None
    part = slices(hidden)["reduce"]
    some: Any = {**part, "longest_hidden": {**part["longest_hidden"], "ns_per_step": 5e6}}
    (said,) = content.hidden({**time, "slices": [some]})
    assert "the longest" in said
    assert "most of it" not in said
    copies: Any = {**part, "class": "copy"}
    assert content.hidden({**time, "slices": [copies]}) == []


def test_pooling_is_called_pooling(hidden: Any) -> None:
    part = slices(hidden)["elementwise"]
    assert part["pooling_ns_per_step"] / part["ns_per_step"] == pytest.approx(0.9)
    rows = {row.label: row for row in content.time_rows(hidden["time"])} if hidden["time"] else {}
    assert rows["elementwise"].text == "90 % pooling"


def test_folded_classes_are_named_whole_or_counted() -> None:
    small = ("copy", "cast", "gather_scatter", "idle_input", "idle_sync")
    account = c.account(*(c.cell(name, 0.1) for name in small))
    document = documents.document(diagnosed(c.case(account=account)))
    said = text.render(document)
    line = next(line for line in said.splitlines() if "5 smaller" in line)
    assert "…" not in line
    assert line.endswith(" more")
    names = line.rpartition("  ")[2].partition(" and ")[0].split(", ")
    assert names
    assert set(names) <= set(small)


def test_idle_time_too_short_to_be_split_says_what_it_was_for() -> None:
    known = c.cell("idle_other", 3, cause="blocked driver calls")
    for cells, said in (
        ((known,), "blocked driver calls"),
        ((c.cell("idle_other", 3),), "cause not in the trace"),
        (
            (c.cell("idle_other", 2.9), replace(known, ns_per_step=0.1 * c.MS)),
            "cause mostly not in the trace",
        ),
    ):
        document = documents.document(diagnosed(c.case(account=c.account(*cells))))
        rows = content.time_rows(document["time"]) if document["time"] else []
        assert next(row.text for row in rows if row.label == "idle_other") == said


def test_an_ops_name_keeps_its_layer() -> None:
    name = "gradient_tape/sequential/conv2d_2/Conv2D/Conv2DBackpropFilter"
    assert words.op(name, 48) == "…/conv2d_2/Conv2D/Conv2DBackpropFilter"
    assert words.op(name, 80) == name
    assert len(words.op(name, 20)) <= 20
    assert words.op("void_kernel_without_scopes_that_is_long", 20) == words.shorten(
        "void_kernel_without_scopes_that_is_long", 20
    )


def test_what_a_copy_allocated_is_not_called_by_a_function_of_tensorflow() -> None:
    assert words.allocated_by("SameWorkerRecvDone") == "a copy between devices (SameWorkerRecvDone)"
    assert words.allocated_by("model/conv2d/Relu") == "model/conv2d/Relu"


def test_tables_say_what_they_are_sums_over(hidden: Any) -> None:
    assert tables.summed_over(hidden) == "the whole trace"
    assert hidden["time"] is not None
    hidden["time"]["step_range"] = "decode"
    assert tables.summed_over(hidden) == "the ranges decode that were taken as steps"


def test_a_cpus_matrix_work_is_not_told_twice(hidden: Any) -> None:
    assert hidden["time"] is not None
    assert "cpu" not in [row.label for row in content.time_rows(hidden["time"])]


def test_the_screens_peak_is_the_most_that_the_process_held_and_float32_skips_nothing() -> None:
    document = documents.document(hand_made.diagnosis())
    document["steps"] = None
    memory = document["memory"]
    memory["allocator"] = "GPU_0_bfc"
    memory["peak_bytes"] = 51 << 20
    memory["allocators"] = [
        {
            "name": "GPU_0_bfc", "where": "device", "peak_bytes": 51 << 20, "lifetime_peak_bytes": 102 << 20,
            "capacity_bytes": 14 << 30, "events": 100,
        }
    ]  # fmt: skip
    document["run"]["computes_in"] = {"kind": "float32", "text": "float32", "by": "kernels"}  # type: ignore[typeddict-item]
    said = " ".join(brief.figures(document, 80))
    assert "peak 102 MiB" in said
    assert "skips" not in said
    memory["allocators"][0]["lifetime_peak_bytes"] = None
    assert "peak 51.0 MiB" in " ".join(brief.figures(document, 80))
    document["run"]["computes_in"] = {"kind": "16-bit", "text": "float16", "by": "kernels"}  # type: ignore[typeddict-item]
    assert "skipped steps unknown" in " ".join(brief.figures(document, 80))
