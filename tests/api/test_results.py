"""What the public functions return: short in a line, a card in a notebook, columns for other libraries."""

from __future__ import annotations

import html
import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import mpprof
from mpprof import columnar
from mpprof.cli import main
from mpprof.columnar import Columnar
from mpprof.errors import MpprofError, NotFoundError, UnableError, UsageError
from tests.cli.conftest import FLOAT32, MIXED, Done, Mpprof
from tests.paths import SAMPLES


@pytest.fixture
def mpprof_(capsys: pytest.CaptureFixture[str]) -> Mpprof:
    """Runs a command in this process."""

    def run(*args: object) -> Done:
        code = main([str(arg) for arg in args])
        return Done(code, *capsys.readouterr())

    return run


@pytest.fixture(scope="module")
def run() -> mpprof.Run:
    return mpprof.load(MIXED)


def test_a_line_says_what_a_run_is(run: mpprof.Run) -> None:
    said = repr(run)
    about = "mixed_float16, Tesla V100-SXM2-16GB, batch 64, 160 steps, 22.6 ms a step"
    assert said.startswith(f"Run {MIXED.name}: {about}")
    assert "\n" not in said
    assert len(said) < 200
    lone = mpprof.load(run.traces[0])
    assert repr(lone) == f"Run {run.traces[0].name}: 1 trace"


def test_a_line_says_what_a_diagnosis_is_and_printing_gives_the_screen(
    mpprof_: Mpprof, run: mpprof.Run
) -> None:
    found = run.diagnose(FLOAT32)
    assert repr(found) == f"Diagnosis of {MIXED.name}: {found.verdict}"
    printed = mpprof_("report", MIXED, "--baseline", FLOAT32).out.splitlines()
    assert str(found).splitlines()[:8] == printed[:8]
    compared = mpprof.compare(FLOAT32, run)
    assert repr(compared).splitlines() == [
        f"Comparison of {FLOAT32.name} → {MIXED.name}: 42.8 ms → 22.6 ms a step"
    ]
    assert str(compared).splitlines()[:3] == mpprof_("compare", FLOAT32, MIXED).out.splitlines()[:3]


class Frame(HTMLParser):
    """The page inside a frame, and what holds it."""

    page = ""
    sandbox = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        assert tag == "iframe"
        self.page, self.sandbox = given["srcdoc"] or "", "sandbox" in given


def framed(shown: str) -> str:
    frame = Frame()
    frame.feed(shown)
    assert frame.sandbox
    return frame.page


def test_a_notebook_shows_the_card_of_why(run: mpprof.Run) -> None:
    page = framed(run.diagnose(FLOAT32)._repr_html_())
    assert "1.89x" in page
    assert "about 1.94x" in page
    assert 'data-code="MP501"' in page
    assert "<script" not in page
    assert framed(mpprof.compare(FLOAT32, run)._repr_html_()) == page
    alone = framed(run._repr_html_())
    assert "100 %" in alone
    assert "attainable" not in alone.partition("<body")[2]


def test_a_ladder_is_a_table_in_a_notebook() -> None:
    compared = mpprof.compare(FLOAT32, MIXED, SAMPLES / "v100-float32-island")
    assert compared._repr_html_().startswith("<table>")
    assert repr(compared) == f"Comparison of 3 runs: {FLOAT32.name} to v100-float32-island"
    rows = compared.table()
    assert [row["run"] for row in rows] == [FLOAT32.name, MIXED.name, "v100-float32-island"]
    assert rows[0]["speedup_over_before"] is None
    assert rows[1]["speedup_over_before"] == pytest.approx(1.893, abs=0.001)
    assert rows[1]["examples_per_s"] == pytest.approx(2833, abs=1)
    assert rows[1]["gpu_hours_per_epoch"] == mpprof.diagnose(MIXED).gpu_hours_per_epoch
    assert f"<td>{rows[0]['step_ns']:,.0f}</td>" in compared._repr_html_()


def test_what_is_said_before_training_is_one_line(run: mpprof.Run) -> None:
    memory, model = mpprof.forecast_memory(run, batch_size=64), mpprof.load(MIXED).facts
    name = model.model.name
    assert repr(mpprof.audit(run)).startswith(f"Audit of {name}: policy mixed_float16, ")
    assert repr(memory).startswith(f"Memory forecast of {name} at batch 64: ")
    assert "in mixed_float16" in repr(memory)
    for each in (mpprof.audit(run), memory):
        assert "\n" not in repr(each)
        assert len(repr(each)) < 300


def test_what_cannot_be_judged_is_shown_as_text(tmp_path: Path) -> None:
    (tmp_path / "host.xplane.pb").write_bytes(b"\x0a\x02")
    broken = mpprof.load(tmp_path / "host.xplane.pb")
    assert broken._repr_html_() == f"<pre>{html.escape(repr(broken))}</pre>"


@pytest.mark.parametrize("kind", ["kernels", "products", "ops", "layers"])
def test_a_table_is_what_its_command_prints(kind: Any, run: mpprof.Run, mpprof_: Mpprof) -> None:
    rows = run.table(kind)
    assert list(rows) == json.loads(mpprof_(kind, MIXED, "--format", "json").out)
    columns = rows.to_dict()
    assert {len(values) for values in columns.values()} == {len(rows)}
    assert columns["total_ns"][0] == rows[0]["total_ns"]
    header = mpprof_(kind, MIXED, "--format", "csv").out.partition("\n")[0].split(",")
    assert list(columns) == header
    assert repr(rows).startswith(f"Table of {kind}: {len(rows):,} rows of ")
    with pytest.raises(UsageError, match="kernels, products, ops, layers, memory"):
        run.table("kernel")  # type: ignore[arg-type]
    assert len(rows[:3]) == 3
    assert isinstance(rows[:3], mpprof.Table)


def test_a_run_without_a_trace_has_no_table(tmp_path: Path) -> None:
    import shutil

    shutil.copytree(MIXED / "mpprof", tmp_path / "mpprof")
    with pytest.raises(UnableError):
        mpprof.load(tmp_path).table("kernels")


def test_absent_values_are_none_in_every_column(run: mpprof.Run) -> None:
    assert run.hardware is not None
    assert run.validations is not None
    for each in (run.steps, run.hardware, run.validations):
        for values in each.to_dict().values():
            assert -1 not in values
            assert not any(isinstance(value, float) and value != value for value in values)
    columns = run.steps.to_dict()
    assert columns["gap_ns"][0] is None
    assert columns["gap_ns"][1] == int(run.steps.gap_ns[1])
    assert set(columns["dispatch_ns"]) == {None}
    assert not [name for name in columns if name.endswith("_known")]
    assert repr(run.steps).startswith("StepTable: 160 rows of step, fit, epoch")
    assert run.steps._repr_html_().count("<tr>") == 1 + columnar.SHOWN_ROWS


def test_a_loss_that_is_not_a_number_is_not_an_absent_one(run: mpprof.Run) -> None:
    from dataclasses import replace

    loss = run.steps.loss.copy()
    loss[3] = float("nan")
    known = run.steps.loss_known.copy()
    known[4] = False
    values = replace(run.steps, loss=loss, loss_known=known).to_dict()["loss"]
    assert values[3] != values[3]
    assert values[4] is None


def tables_of(run: mpprof.Run) -> list[Columnar]:
    assert run.steps is not None
    assert run.hardware is not None
    return [
        run.steps,
        run.hardware,
        run.table("kernels"),
        run.table("ops"),
        mpprof.compare(FLOAT32, run).table(),
    ]


def test_every_table_is_a_polars_frame(run: mpprof.Run) -> None:
    pytest.importorskip("polars", reason="Polars is not installed")
    for each in tables_of(run):
        frame = each.to_polars()
        assert frame.columns == list(each.to_dict())
        assert frame.height == len(next(iter(each.to_dict().values())))
    assert run.steps.to_polars()["gap_ns"].null_count() == sum(
        v is None for v in run.steps.to_dict()["gap_ns"]
    )


def test_every_table_is_a_pandas_frame(run: mpprof.Run) -> None:
    pytest.importorskip("pandas", reason="pandas is not installed")
    for each in tables_of(run):
        frame = each.to_pandas()
        assert list(frame.columns) == list(each.to_dict())
        assert len(frame) == len(next(iter(each.to_dict().values())))
    gaps = run.steps.to_pandas()["gap_ns"]
    assert str(gaps.dtype) == "Int64"
    assert gaps.isna().sum() == sum(v is None for v in run.steps.to_dict()["gap_ns"])


def test_without_the_library_the_error_says_what_to_install(
    run: mpprof.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    for name, ask in (("polars", run.steps.to_polars), ("pandas", run.steps.to_pandas)):
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(MpprofError, match=f"{name} is not installed. pip install {name}"):
            ask()


def test_throughput_and_gpu_hours_stand_beside_the_step(run: mpprof.Run, mpprof_: Mpprof) -> None:
    found = run.diagnose()
    assert found.steps.mean_ns is not None
    assert found.examples_per_s == pytest.approx(64 / found.steps.mean_ns * 1e9)
    assert found.steps.steps_per_epoch == 160  # one epoch, which has ended
    assert found.gpu_hours_per_epoch == pytest.approx(160 * found.steps.mean_ns / 3.6e12)
    assert found.document()["steps"]["examples_per_s"] == found.examples_per_s  # type: ignore[index]
    said = " ".join(mpprof_("report", MIXED, "-v").out.split())
    assert "2,833 examples/s (0.001 GPU-hours an epoch)" in said
    on_a_cpu = mpprof.diagnose(SAMPLES / "recorded-cpu-float32")
    assert on_a_cpu.gpu_hours_per_epoch is None
    assert "no GPU" in on_a_cpu.document()["absent"]["steps.gpu_hours_per_epoch"]
    assert mpprof.diagnose(run.traces[0]).examples_per_s is None


def test_an_epoch_that_goes_on_is_not_counted(run: mpprof.Run) -> None:
    from dataclasses import replace

    unfinished = replace(run, finished=False).diagnose()
    assert unfinished.steps.steps_per_epoch is None
    assert unfinished.gpu_hours_per_epoch is None
    assert unfinished.examples_per_s is not None


def test_audit_judges_for_one_card(run: mpprof.Run) -> None:
    assert "V100" in str(mpprof.audit(run, gpu="V100"))
    with pytest.raises(NotFoundError, match="one name"):
        mpprof.audit(run, gpu="A100,V100")


def test_audit_takes_a_run_its_directory_or_a_list(run: mpprof.Run) -> None:
    by_run, by_path = mpprof.audit([run, str(MIXED)], gpu="V100")
    assert by_run == by_path == mpprof.audit(run, gpu="V100")
    assert by_run.layers > 10
    with pytest.raises(UnableError, match="its model is not known"):
        mpprof.audit(mpprof.load(run.traces[0]))


def test_a_run_does_not_hold_a_model_to_compile(run: mpprof.Run) -> None:
    for model in (run, [run]):
        with pytest.raises(UsageError, match="do not hold it"):
            mpprof.forecast(model, ["v100"])
