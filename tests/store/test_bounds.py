"""Records that no training writes: what lies beyond a stated bound is left out and said, whatever it is."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mpprof_dashboards.figures import steps as figures

import mpprof
from mpprof import store
from mpprof.analysis.steps import statistics
from mpprof.api import workflows
from mpprof.errors import UnreadableError
from mpprof.model import limits
from mpprof.model.run import LayerFacts, RunFacts
from mpprof.report import json as documents
from mpprof.store import records
from mpprof.store.facts import facts_of
from mpprof.store.step_columns import MEASURED
from tests.builders.read_back import reading
from tests.dashboards.fake_source import steps_table
from tests.paths import SAMPLES

figures = reading(figures)

SAMPLE = SAMPLES / "v100-loss-scale-thrash"
HUGE = (2**63 - 1, 2**62, limits.LARGEST_NUMBER + 1)


def document(**changed: Any) -> dict[str, Any]:
    return json.loads((SAMPLE / "mpprof" / "run.json").read_text()) | changed


def layer(**changed: Any) -> LayerFacts:
    facts = facts_of(document(model={"layers": [{"name": "d", "class": "Dense", **changed}]}))
    return facts.model.layers[0]


def run(root: Path, *, steps: Any = (), hardware: Any = (), facts: Any = None) -> Path:
    (root / "mpprof").mkdir()
    (root / "mpprof" / "run.json").write_text(json.dumps(facts or document()))
    for name, lines in (("steps", steps), ("hardware", hardware)):
        rows = [json.dumps({"schema": f"mpprof.{name}/1"}), *(json.dumps(line) for line in lines)]
        (root / "mpprof" / f"{name}.jsonl").write_text("\n".join(rows) + "\n")
    return root


def step(number: int, **changed: Any) -> dict[str, Any]:
    return {"kind": "step", "step": number, "fit": 1, "t_ns": number * 1000, "interval_ns": 900, **changed}


@pytest.mark.parametrize("size", [limits.LARGEST_DIMENSION + 1, 2**63 - 1, -1, 1.5, "7", True, {}])
def test_a_dimension_that_no_tensor_has_leaves_no_shape(size: Any) -> None:
    assert layer(output_shape=[None, size]).output_shape is None
    assert layer(output_shape=[[None, 7], [None, size]]).output_shape == ((None, 7), None)
    assert layer(output_shape=[None, limits.LARGEST_DIMENSION]).output_shape is not None


def test_a_shape_may_be_nested_no_deeper_than_inputs_are() -> None:
    nested: Any = [7]
    for _ in range(600):
        nested = [nested]
    assert layer(output_shape=nested).output_shape == (((None,),),)
    assert layer(output_shape=[7] * 17).output_shape is None
    assert layer(input_shape=[[None, 7]] * 200).input_shape == ((None, 7),) * 200


def test_a_config_keeps_what_a_layer_can_be_made_with() -> None:
    deep: Any = 1
    for _ in range(400):
        deep = {"a": deep}
    kept = layer(config={"units": 7, "dim": 2**63 - 1, "deep": deep, "list": [1] * 99_999}).config
    assert (kept["units"], kept["dim"], len(kept["list"])) == (7, None, limits.MOST_ENTRIES)
    assert json.dumps(kept["deep"]).count("a") < limits.DEEPEST_ENTRY


@pytest.mark.parametrize("value", [10**18, 1.5, [], {}, None, True])
def test_a_class_that_is_no_name_is_none(value: Any) -> None:
    assert layer(**{"class": value}).class_name == ""


def test_names_are_as_long_as_names_are() -> None:
    assert len(layer(name="a" * 10**6).name) == limits.LONGEST_NAME
    assert layer(name="a/" * 10**6).name == "/".join("a" * limits.DEEPEST_LAYER)
    assert layer(name="/".join("a" * limits.DEEPEST_LAYER)).name.count("/") == limits.DEEPEST_LAYER - 1


@pytest.mark.parametrize(
    ("key", "most", "read"),
    [
        ("devices", limits.MOST_GPUS, lambda facts: facts.devices),
        ("fits", limits.MOST_FITS, lambda facts: facts.fits),
        ("profile_windows", limits.MOST_WINDOWS, lambda facts: facts.profile_windows),
        ("model.layers", limits.MOST_LAYERS, lambda facts: facts.model.layers),
        ("model.outputs", limits.MOST_LAYERS, lambda facts: facts.model.outputs),
    ],
)
def test_a_list_beyond_any_training_is_cut_and_that_is_said(
    key: str, most: int, read: Callable[[RunFacts], tuple[Any, ...]]
) -> None:
    def made(count: int) -> RunFacts:
        owner, _, name = key.rpartition(".")
        return facts_of(document(**({owner: {name: [{}] * count}} if owner else {name: [{}] * count})))

    assert len(read(made(most))) == most
    assert key not in made(most).absent
    assert len(read(made(most + 1))) == most
    assert made(most + 1).absent[key] == f"the first {most} of {most + 1} were read"


@pytest.mark.parametrize(
    "key", ["step", "t_ns", "interval_ns", "duration_ns", "gap_ns", "epoch", "fit", "covers", "skipped"]
)
@pytest.mark.parametrize("value", HUGE)
def test_a_step_line_with_a_number_that_was_never_measured_is_left_out(
    tmp_path: Path, key: str, value: int
) -> None:
    steps = [step(n) for n in range(1, 40)]
    steps[20][key] = value
    mine = workflows.analyse(mpprof.load(run(tmp_path, steps=steps)))
    report = documents.document(workflows.judge(mine))
    assert report["steps"] is not None
    assert report["steps"]["count"] == 38
    assert "1 step lines hold values of the wrong type or size" in str(report["warnings"])


@pytest.mark.parametrize("value", [0, "Infinity", limits.LONGEST_NS, 1e300])
@pytest.mark.parametrize("key", ["interval_ns", "duration_ns"])
def test_one_odd_duration_gives_a_report(tmp_path: Path, key: str, value: Any) -> None:
    steps = [step(n, duration_ns=800) for n in range(1, 40)]
    steps[20][key] = value
    mine = workflows.analyse(mpprof.load(run(tmp_path, steps=steps)))
    report = documents.document(workflows.judge(mine))
    assert report["steps"] is not None
    assert report["steps"]["mean_ns"] == 900


def test_a_step_without_duration_counts_for_no_step_time(tmp_path: Path) -> None:
    steps = [step(n, interval_ns=900 if n % 3 == 0 else 0) for n in range(1, 40)]
    mine = workflows.analyse(mpprof.load(run(tmp_path, steps=steps)))
    report = documents.document(workflows.judge(mine))
    assert report["steps"] is not None
    assert report["steps"]["mean_ns"] == 900


@pytest.mark.parametrize(("odd", "at"), [("interval_ns", 10), ("duration_ns", 20)])
def test_where_the_clock_began_decides_nothing_of_an_odd_time(tmp_path: Path, odd: str, at: int) -> None:
    """A log of 40 us in two epochs, in which a call is said to have lasted two seconds."""
    means = []
    for began in (0, 1 << 45):
        lines = [
            step(n, t_ns=began + 1_000 * n, epoch=(n - 1) // 20, duration_ns=800, interval_ns=1_000)
            for n in range(1, 41)
        ]
        del lines[19]["interval_ns"], lines[39]["interval_ns"]  # of an epoch's last call
        lines[at - 1][odd] = 1 << 31
        root = tmp_path / str(began)
        root.mkdir()
        table = store.read_records(run(root, steps=lines)).steps
        assert table is not None
        means.append(statistics.averaged(table).mean_ns)
    assert means == [1_000, 1_000]


def test_steady_steps_of_many_fits_are_found_in_one_pass(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    steps = [step(n, fit=1 + n // 2) for n in range(1, 6001)]
    table = store.read_records(run(tmp_path, steps=steps)).steps
    compared = []
    equal = np.flatnonzero
    monkeypatch.setattr(np, "flatnonzero", lambda values: compared.append(len(values)) or equal(values))
    assert len(statistics.steady(table)) == 6000
    assert sum(compared) < 10 * len(table)


def test_late_readings_of_many_steps_are_found_in_one_pass(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lines = [each for n in range(1, 2001) for each in (step(n), {"kind": "update", "step": n, "loss": n / 2})]
    monkeypatch.setattr(records.np, "nonzero", None, raising=False)
    table = store.read_records(run(tmp_path, steps=lines)).steps
    assert table.loss.tolist() == [n / 2 for n in range(1, 2001)]


def test_damaged_lines_are_tried_so_often_and_no_more(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(limits, "MOST_BAD_LINES", 100)
    root = run(tmp_path, steps=[step(1)], hardware=[{"t_ns": 1}])
    with (root / "mpprof" / "hardware.jsonl").open("a") as file:
        file.write("{\n" * 5000 + '{"t_ns":2}\n')
    found = store.read_records(root)
    assert len(found.hardware) == 1
    assert "100 lines could not be read" in str(found.warnings)
    assert "was not read" in str(found.warnings)


def test_samples_of_more_cards_than_there_are_and_lists_of_nothing(tmp_path: Path) -> None:
    samples = [{"t_ns": n, "gpu": n, "utilization_ratio": n / 3000} for n in range(3000)]
    samples += [{"t_ns": 3000 + n, "throttle": [[]] * 5000 + ["late"]} for n in range(20)]
    samples += [{"t_ns": 5000, "throttle": ["hw_slowdown", 7, "x" * 5000]}]
    table = store.read_records(run(tmp_path, steps=[step(1)], hardware=samples)).hardware
    assert table.gpu.max() == limits.MOST_GPUS - 1
    assert set(table.throttle[-21:-1]) == {()}
    assert [len(name) for name in table.throttle[-1]] == [11, limits.LONGEST_NAME]
    drawn = figures.clocks(steps_table(), table)
    assert [len(figure.data) for _, figure in drawn] == [figures.MOST_DEVICES]
    assert "the first 32 of 1,025 series" in drawn[0][1].layout.yaxis.title.text


@pytest.mark.parametrize("value", [1e308, -1e308, 2.0**62])
@pytest.mark.parametrize("key", MEASURED)
def test_a_sample_beyond_any_card_was_not_measured(tmp_path: Path, key: str, value: float) -> None:
    """The sum of two of them would be infinite."""
    samples = [{"t_ns": n, "gpu": 0, key: value} for n in range(2)]
    samples += [{"t_ns": n, "gpu": 0, key: 3.0} for n in (2, 3)]
    root = run(tmp_path, steps=[step(n) for n in range(1, 40)], hardware=samples)
    table = store.read_records(root).hardware
    assert table is not None
    assert np.isnan(getattr(table, key)).tolist() == [True, True, False, False]
    report = documents.document(workflows.judge(workflows.analyse(mpprof.load(root))))
    assert report["schema"].startswith("mpprof.report/")


@pytest.mark.parametrize(
    "at_ns", [limits.LONGEST_NS + 1, 2**62, 2**63 - 1, 2**63, 10**30, -(2**62), 1.5, "7", None]
)
def test_a_sample_at_a_time_that_no_clock_shows_is_left_out(tmp_path: Path, at_ns: Any) -> None:
    """A time after 73 years, or none; at the bound itself it stays."""
    times = (0, at_ns, limits.LONGEST_NS, -limits.LONGEST_NS)
    samples = [{"t_ns": time, "gpu": 0, "power_w": 7.0} for time in times]
    root = run(tmp_path, steps=[step(n) for n in range(1, 40)], hardware=samples)
    table = store.read_records(root).hardware
    assert table.t_ns.tolist() == [0, limits.LONGEST_NS, -limits.LONGEST_NS]
    report = documents.document(workflows.judge(workflows.analyse(mpprof.load(root))))
    assert report["schema"].startswith("mpprof.report/")


def test_blank_lines_are_skipped_and_not_parsed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    root = run(tmp_path, steps=[step(1)])
    with (root / "mpprof" / "steps.jsonl").open("a") as file:
        file.write("\n \t\n" * 2000 + json.dumps(step(2)) + "\n" + "{\n")
    parsed = []
    loads = json.loads
    monkeypatch.setattr(json, "loads", lambda text, **rest: parsed.append(text) or loads(text, **rest))
    found = store.read_records(root)
    assert len(found.steps) == 2
    assert len(parsed) < 20
    assert "1 line could not be read" in str(found.warnings)


def test_of_a_log_of_too_many_lines_the_beginning_and_the_end_are_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(limits, "MOST_LINES", 1000)
    monkeypatch.setattr("mpprof.store.lines.BLOCK_BYTES", 4096)
    steps = [{"kind": "fit", "fit": 1}, *(step(n) for n in range(1, 20_001)), {"kind": "fit_end", "fit": 1}]
    root = run(tmp_path, steps=steps, hardware=[{"t_ns": n} for n in range(20_000)])
    found = store.read_records(root)
    assert found.finished
    for numbers, last in ((found.steps.step, 20_000), (found.hardware.t_ns, 19_999)):
        assert 1000 < len(numbers) < 2000
        assert numbers[-1] == last
        assert np.count_nonzero(np.diff(numbers) != 1) == 1  # nothing else is missing and nothing is twice
    assert [text.partition("jsonl: ")[2].partition(":")[0] for text in found.warnings] == [
        "more than 1,000 lines"
    ] * 2


def test_a_gap_without_the_end_of_a_line_is_not_read_to_its_end(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A sparse file may have one of a terabyte."""
    monkeypatch.setattr(limits, "LONGEST_DAMAGE_BYTES", 1 << 16)
    monkeypatch.setattr("mpprof.store.lines.BLOCK_BYTES", 4096)
    monkeypatch.setattr("mpprof.store.lines.LONGEST_LINE_BYTES", 1024)
    root = run(tmp_path, steps=[step(1)], hardware=[{"t_ns": 1}])
    folder = root / "mpprof"
    for name, last in (("steps.jsonl", step(2)), ("hardware.jsonl", {"t_ns": 2})):
        with (folder / name).open("ab") as file:
            file.write(bytes(1 << 20) + f"\n{json.dumps(last)}\n".encode())
    found = store.read_records(root)
    assert found.steps.step.tolist() == [1, 2]
    assert found.hardware.t_ns.tolist() == [1, 2]
    said = [text for text in found.warnings if "a line of more than 65,536 bytes: bytes" in text]
    assert ["steps" in text for text in said] == [True, False]

    (folder / "steps.jsonl").write_bytes(bytes(1 << 20))
    with pytest.raises(UnreadableError, match="states no schema"):
        store.read_records(root)


def test_blank_lines_take_no_more_memory_than_a_few_times_their_bytes(tmp_path: Path) -> None:
    root = run(tmp_path, steps=[step(1)])
    with (root / "mpprof" / "steps.jsonl").open("ab") as file:
        file.write(b"\n" * (1 << 20))
    (root / "mpprof" / "run.json").unlink()  # a buffer as large as facts may be is asked for to read it
    tracemalloc.start()
    store.read_records(root)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 32 << 20


def test_samples_stand_in_memory_as_columns_and_texts_only_once(tmp_path: Path) -> None:
    many = [f"reason {n:020}" for n in range(32)]
    root = run(tmp_path, steps=[step(1)], hardware=({"t_ns": n, "throttle": many} for n in range(10_000)))
    tracemalloc.start()
    table = store.read_records(root).hardware
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert table.throttle[-1] == tuple(many)
    assert held < 2_000_000


def test_what_is_not_read_of_a_line_is_not_held(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("mpprof.store.lines.BLOCK_BYTES", 1 << 16)
    late = ({"kind": "update", "step": 1, "loss": 2.0, "more": [[]] * 10_000} for _ in range(100))
    root = run(tmp_path, steps=[step(1), *late])
    (root / "mpprof" / "run.json").unlink()  # a buffer as large as facts may be is asked for to read it
    tracemalloc.start()
    found = store.read_records(root)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found.steps.loss.tolist() == [2.0]
    assert peak < 8_000_000
