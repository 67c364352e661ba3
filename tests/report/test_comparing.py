"""What a comparison says: rows that add up, in the order of what was lost; one line for what is minor."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpprof.api import ladder, workflows
from mpprof.cli import main
from mpprof.report import json as documents
from tests.builders.gpus import V100
from tests.builders.played_fit import Play, play
from tests.builders.read_back import comparing, markdown, text
from tests.builders.records import Recorded, imagenette_convnet, layer, write
from tests.paths import SAMPLES

PAIRS = ("a100-launch-bound", "a100-tf32-baseline", "v100-convnet", "v100-input-bound", "v100-odd-vocabulary")


def slice_of(category: str, gap: float, baseline: float, now: float, layer: str | None = None) -> Any:
    return {"class": category, "layer": layer, "ns_per_step": gap, "baseline_ns": baseline, "mixed_ns": now}


def rung(slices: list[Any], expected: float | None = 2.0, **more: object) -> Any:
    empty: Any = {"slices": slices, "expected": expected, "labels": [], "findings": []}
    return empty | more


NS = st.floats(-1e7, 1e8)


@given(
    st.lists(st.builds(slice_of, st.sampled_from(["matmul", "norm"]), NS, NS, NS), min_size=1, max_size=40)
)
def test_rows_sum_to_the_gap_whatever_is_folded(slices: list[Any]) -> None:
    rows = comparing.gap_rows(rung(slices), 1e8)
    assert len(rows) <= comparing.MOST_ROWS + 1 or len(rows) == len(slices)
    total = comparing.total(rows)
    assert total.ns == pytest.approx(sum(part["ns_per_step"] for part in slices), abs=1)
    assert total.mixed_ns == pytest.approx(sum(part["mixed_ns"] for part in slices), abs=1)
    assert all(row.mixed_ns - row.could_ns == pytest.approx(row.ns, abs=1) for row in (*rows, total))
    kept = [row.ns for row in rows if not row.label.endswith("others")]
    assert kept == sorted(kept, reverse=True)


def test_what_was_lost_comes_first_and_small_parts_are_one_row() -> None:
    parts = [slice_of("norm", 10.0 * i, 100, 100, f"n{i}") for i in range(5)]
    rows = comparing.gap_rows(
        rung([*parts, slice_of("matmul", 4e6, 9e6, 6e6, "a"), slice_of("profiling", -2e6, 0, -2e6)]), 1e7
    )
    assert [row.label for row in rows] == ["matmul a", "profiling", "5 others"]
    assert rows[0].could_ns == 2e6
    assert rows[2].ns == pytest.approx(100)


def test_without_an_expectation_there_is_no_could_be() -> None:
    plain = rung([slice_of("matmul", -4e6, 9e6, 5e6)], None)
    (row,) = comparing.gap_rows(plain, 1e7)
    assert comparing.gap_columns(plain) == ("baseline", "now", "longer", "times")
    assert comparing.gap_cells(plain, row, lambda ns: f"{ns:.0f}") == (
        "9000000",
        "5000000",
        "-4000000",
        "0.56x",
    )


@pytest.mark.parametrize("name", PAIRS)
def test_on_every_sample_the_table_adds_up_and_no_share_exceeds_the_whole(name: str) -> None:
    runs = [workflows.load(SAMPLES / f"{name}-{policy}") for policy in ("float32", "mixed-float16")]
    document = documents.compare_document(ladder.compare(runs))
    (step,) = document["steps"]
    total = comparing.total(comparing.gap_rows(step, document["runs"][1]["time"]["step_ns"]))
    assert total.baseline_ns == pytest.approx(document["runs"][0]["time"]["step_ns"], abs=1)
    assert total.mixed_ns == pytest.approx(document["runs"][1]["time"]["step_ns"], abs=1)
    assert total.ns == pytest.approx(step["gap_ns"], abs=1)
    assert step["lost_ns"] - step["gained_ns"] == pytest.approx(step["gap_ns"], abs=1)
    assert all(0.0 <= (f["lost_ratio"] or 0.0) <= 1.0 for f in step["findings"])
    matched = step["matching"]
    assert matched["by_op_ratio"]["from"] > 0.99  # the mixed run does all that float32 did, and casts besides
    assert any("Cast" in item["op"] for item in matched["only_to"])
    assert sum(item["ns_per_step"] for item in matched["only_from"]) < 0.01 * total.baseline_ns
    assert "of the gap" not in text.render_comparison(document)


def recorded(
    name: str, dtype: str, batch: int, ms: float, *extra: dict[str, object], **fit: object
) -> Recorded:
    layers = (*imagenette_convnet(dtype), *extra)
    return Recorded(name, V100, dtype, layers, batch, ms, fit=fit)  # type: ignore[arg-type]


def compared(tmp_path: Path, *runs: Recorded) -> Any:
    loaded = [workflows.load(write(run, tmp_path)) for run in runs]
    return documents.compare_document(ladder.compare(loaded))


def test_a_ladder_of_four_is_seen_at_a_glance(tmp_path: Path) -> None:
    document = compared(
        tmp_path,
        recorded("a", "float32", 32, 40.0),
        recorded("b", "float16", 32, 20.0),
        recorded("c", "float16", 32, 16.0, jit_compile=True),
        recorded("d", "float16", 64, 25.0, jit_compile=True),
    )
    rows = comparing.ladder(document)
    assert [row["policy"] for row in rows] == [
        "float32, batch 32", "mixed_float16, batch 32", "mixed_float16, XLA, batch 32", "mixed_float16, XLA, batch 64",
    ]  # fmt: skip
    assert [row["speedup_over_before"] for row in rows] == ["", "2.00x", "1.25x", "1.28x"]
    assert rows[-1]["speedup_over_first"] == "3.20x"
    assert int(rows[-1]["examples_per_s"].replace(",", "")) == pytest.approx(2560, rel=0.01)
    shown = text.render_comparison(document, width=140)
    assert "mixed_float16, XLA, batch 64" in shown.split("a → b")[0]
    assert "| d | mixed_float16, XLA, batch 64 |" in markdown.render_comparison(document)
    assert "XLA (jit_compile): False against True" in shown


def test_runs_of_two_models_are_refused_with_the_reason(tmp_path: Path) -> None:
    more = layer("extra", "Dense", "float16", [None, 10], 110, units=10)
    document = compared(
        tmp_path, recorded("a", "float32", 32, 40.0), recorded("b", "float16", 32, 20.0, more)
    )
    (step,) = document["steps"]
    assert "they train different models" in step["refused"]
    assert (step["observed"], step["slices"], step["gap_ns"]) == (None, [], None)
    assert step["absent"]["observed"] == step["refused"]
    shown = text.render_comparison(document, width=200)
    assert "not compared: they train different models: 9 layers" in shown
    assert "as fast as" not in shown


def test_what_is_only_a_mention_takes_one_line_and_unlike_runs_are_not_told_twice() -> None:
    findings = [
        {"code": "MP303", "slug": "batch", "severity": "info"},
        {"code": "MP906", "slug": "unlike", "severity": "warning"},
        {"code": "MP301", "slug": "input", "severity": "error"},
    ]
    unlike = rung([], labels=["batch size: 1 against 2"], findings=findings)
    assert [found.code for found in comparing.serious(unlike)] == ["MP301"]
    assert comparing.minor(unlike).startswith("also noted: MP303 batch (")
    assert [found.code for found in comparing.serious(unlike | {"labels": []})] == ["MP906", "MP301"]


def test_the_first_screen_has_the_interval_and_the_bursts_of_each_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A speedup without them is taken for more than it is: here one of two runs that wait for their loader."""
    bursts = {"before": Play(burst=(8, 320), workers=8), "after": Play(burst=(4, 100), workers=3)}
    for name, one in bursts.items():
        play(replace(one, epochs=1, calls=400, call=2), tmp_path / name)
    assert main(["compare", *(str(tmp_path / name) for name in bursts), "--no-color"]) == 0
    said = capsys.readouterr().out
    assert "before → after: 43.0 ms → 28.2 ms a step" in said
    assert "\n95 % within this pair of runs: " in said
    assert "; repeats may differ by more\n" in said
    assert "! before: every 8th step takes 323 ms: it waits for the loader\n" in said
    assert "! after: every 4th step takes 103 ms: it stalls within the training function" in said
