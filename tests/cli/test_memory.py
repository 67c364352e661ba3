"""`mpprof memory` on allocator events: what a person reads, and what a script gets."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.builders import keras2
from tests.builders.allocations import Allocator, plane_of
from tests.builders.xspace import Space
from tests.cli.conftest import MIXED, Mpprof
from tests.paths import SAMPLES
from tests.traces.kineto import Kineto

MIB = 1 << 20


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A dense layer in 16 bits: its activation, the copy of its weight, scratch space and a gradient."""
    space = Space()
    thread = plane_of(space.plane("/host:CPU"), 1)[0]
    thread.event("train_function", 0, 1_000, {"tracing_count": 1})
    gpu = Allocator(thread, live=10 * MIB, peak=10 * MIB)
    gpu.allocate(100, 1 << 30, MIB, "SameWorkerRecvDone", region="dynamic", shape="[64,4096]")
    gpu.allocate(150, 2 << 30, 2 * MIB, "model/dense/MatMul/Cast", dtype=19, shape="[1024,1024]")
    gpu.allocate(200, 3 << 30, 8 * MIB, "model/dense/MatMul", dtype=19, shape="[64,65536]")
    gpu.allocate(300, 4 << 30, 3 * MIB, "gradient_tape/model/dense/MatMul", region="temp", shape="[786432]")
    gpu.allocate(400, 5 << 30, 4 * MIB, "gradient_tape/model/dense/MatMul/MatMul_1", shape="[1024,1024]")
    gpu.free(500, 4 << 30)
    gpu.free(600, 3 << 30)
    path = tmp_path / "host.xplane.pb"
    path.write_bytes(space.to_bytes())
    return path


def test_an_unlike_baseline_tells_of_no_saving(mpprof: Mpprof) -> None:
    done = mpprof("memory", MIXED, "--baseline", SAMPLES / "v100-odd-vocabulary-float32")
    assert "What was saved is not known: the baseline differs" in done.out
    assert "batch size: 32 against 64" in done.out
    assert "than the baseline" not in done.out


def test_of_a_run_on_a_cpu_the_process_memory_is_shown(mpprof: Mpprof) -> None:
    """Its records have no allocator, and its trace no allocator events."""
    done = mpprof("memory", SAMPLES / "recorded-cpu-float32")
    assert done.code == 0
    assert done.out.startswith("What was live is not known: the trace holds no allocator events.")
    assert "host memory of the process: up to 799 MiB" in done.out


def test_an_owner_keeps_its_own_bytes_where_two_do_not_fit(
    mpprof: Mpprof, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = []
    for width in ("100", "120"):
        monkeypatch.setenv("COLUMNS", width)
        lines = mpprof("memory", SAMPLES / "gtx1080ti-mixed-float16").out.splitlines()
        said.append(next(line for line in lines if " gradients " in line).rpartition("gradients")[2].strip())
    assert said == ["batch_normalization 392 MiB", "batch_normalization 392 MiB, re_lu 98.0 MiB"]


def test_json_holds_the_comparison_of_the_report(mpprof: Mpprof) -> None:
    base = SAMPLES / "v100-convnet-float32"
    made = json.loads(mpprof("memory", MIXED, "--baseline", base, "--format", "json").out)
    report = json.loads(mpprof("report", MIXED, "--baseline", base, "--format", "json").out)
    assert (made["schema"], made["run"], made["baseline"]) == ("mpprof.memory/1", MIXED.name, base.name)
    assert made["memory"] == report["memory"]
    assert made["memory"]["saved_bytes"] == 2_400_000_000
    assert made["absent"] == {key: why for key, why in report["absent"].items() if key.startswith("memory")}
    assert "no allocator events" in made["absent"]["memory.expected_saving_bytes"]


def test_what_was_live_is_not_known_without_events(mpprof: Mpprof, tmp_path: Path) -> None:
    said = " ".join(mpprof("memory", MIXED).out.split())
    assert said.startswith(
        "What was live is not known: the trace holds no allocator events. TensorFlow and JAX"
    )
    assert "Recorded peak" in said
    assert "open a window" not in said  # it has one
    done = mpprof("memory", MIXED, "--format", "json")
    assert done.code == 2
    assert "no allocator events. The recorded peak is in mpprof report --format json" in done.err
    for path in (MIXED, SAMPLES / "v100-convnet-float32"):
        shutil.copytree(path / "mpprof", tmp_path / path.name / "mpprof")
    run, base = tmp_path / MIXED.name, tmp_path / "v100-convnet-float32"
    alone = " ".join(mpprof("memory", run, "--baseline", base).out.split())
    assert "by the records What was live is not known: the trace of the profiler window is missing" in alone
    assert 'open a window with MPProfilerCallback(logdir, profile_steps="auto").' in alone


@pytest.mark.parametrize(
    ("sample", "said"),
    [
        ("v100-convnet-float32", "but TensorFlow not with TF_GPU_ALLOCATOR=cuda_malloc_async"),
        ("recorded-cpu-float32", "see what training will take with mpprof memory MODEL --batch-size N"),
    ],
)
def test_a_bare_trace_without_events_says_what_would_have_them(
    mpprof: Mpprof, sample: str, said: str
) -> None:
    done = mpprof("memory", SAMPLES / sample / "plugins")
    assert (done.code, done.out) == (2, "")
    (line,) = done.err.splitlines()
    assert "the trace holds no allocator events. " in line
    assert line.endswith(said)


def test_a_bare_trace_of_torch_names_the_profilers_settings(mpprof: Mpprof, tmp_path: Path) -> None:
    kineto = Kineto()
    kineto.op("aten::mm", 0, 10)
    done = mpprof("memory", kineto.write(tmp_path / "trace.json"))
    assert done.code == 2
    assert "torch.profiler.profile(profile_memory=True, record_shapes=True, with_stack=True)" in done.err


def test_json_says_what_is_unlike(mpprof: Mpprof) -> None:
    other = SAMPLES / "v100-odd-vocabulary-float32"
    made = json.loads(mpprof("memory", MIXED, "--baseline", other, "--format", "json").out)
    assert any("batch size" in each for each in made["unlike"])


@pytest.mark.parametrize("options", [("--format", "csv"), ("--by", "kind"), ("--sort", "bytes")])
@pytest.mark.parametrize("what", [("--baseline", MIXED), ("--programs",), ("--card", "v100")])
def test_an_option_is_refused_rather_than_dropped(
    mpprof: Mpprof, options: tuple[str, ...], what: tuple[object, ...]
) -> None:
    done = mpprof("memory", MIXED, *what, *options)
    assert (done.code, done.out) == (2, "")
    assert f"{' '.join(options[:2]) if options[1] == 'csv' else options[0]} does not go with" in done.err


def test_a_forecast_of_several_cards_has_each(mpprof: Mpprof) -> None:
    """A V100 runs convolutions of bfloat16 in float32 where XLA compiles the step; this one did not."""
    cards = ["Tesla V100-SXM2-16GB", "NVIDIA A100-SXM4-40GB"]
    done = mpprof("memory", MIXED, "--card", "v100, a100", "--dtype-policy", "float32,mixed_float16")
    for name in cards:
        assert re.search(
            rf"^  largest batch at 90 % of {name} with [\d.]+ GiB +[\d,]+ \* ", done.out, re.MULTILINE
        )
    made = json.loads(mpprof("memory", MIXED, "--card", "v100,a100", "--format", "json").out)
    assert (made["card"], made["card_bytes"]) == (None, None)
    assert list(dict.fromkeys(run["card"] for run in made["runs"])) == cards
    for card in ("v100", "a100"):
        alone = json.loads(mpprof("memory", MIXED, "--card", card, "--format", "json").out)
        assert alone["runs"] == [run for run in made["runs"] if run["card"] == alone["card"]]


@pytest.mark.parametrize(
    "options",
    [("--batch-size", text) for text in ("1e20", "0", "-1", "1.5", "nan", "", "10" * 10, "9" * 5000)],
)
@pytest.mark.parametrize("command", ["memory", "forecast", "audit"])
def test_what_is_not_a_batch_is_one_clear_error(
    mpprof: Mpprof, command: str, options: tuple[str, str]
) -> None:
    done = mpprof(command, MIXED, f"{'='.join(options)}", *(["--card", "v100"] if command != "audit" else []))
    assert done.code == 2
    (line,) = done.err.splitlines()
    assert "is not a batch: give a whole number of examples from 1 to 1,000,000,000" in line
    assert len(line) < 200


def test_the_batch_has_one_name_and_memory_takes_its_old_one(mpprof: Mpprof) -> None:
    """In `audit` that name is a sample batch's, in a file."""
    sizes = [
        json.loads(mpprof("memory", MIXED, option, "48", "--format", "json").out)["batch"]
        for option in ("--batch-size", "--batch")
    ]
    assert sizes == [48, 48]
    done = mpprof("audit", MIXED, "--batch", "48")
    assert (done.code, "--batch-size 48" in done.err) == (2, True)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--card", ","), "--card ',' has no name in it"),
        (("--dtype-policy", ""), "--dtype-policy '' has no name in it"),
        (("--card", "v100,nonesuch"), "no card called 'nonesuch'"),
        (("--run", "nonesuch", "--card", "v100"), "no run named 'nonesuch'"),
    ],
)
def test_lists_and_names_that_hold_nothing(mpprof: Mpprof, options: tuple[str, ...], said: str) -> None:
    done = mpprof("memory", MIXED, *options)
    assert done.code == 2
    assert said in done.err


def test_where_a_model_is_needed_a_trace_is_named_as_one(mpprof: Mpprof, trace: Path, tmp_path: Path) -> None:
    for path, what in (
        (trace, f"{trace}: is a trace, which holds no model"),
        (trace.parent, "no model was recorded"),
        (tmp_path / "nothing", f"{tmp_path / 'nothing'}: no such file or directory"),
    ):
        done = mpprof("memory", path, "--card", "v100")
        assert done.code == 2
        assert what in done.err
        assert "Give a .keras file, module:function that returns a model, or a log directory" in done.err


def test_an_errors_text_takes_the_card_and_the_batch(mpprof: Mpprof, tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory allocating 32212254720 bytes.")
    assert "What to try" not in mpprof("memory", log).out
    said = mpprof("memory", log, "--card", "v100", "--batch", "64").out
    assert "a batch of at most 30 instead of 64" in said
    assert mpprof("memory", log, "--baseline", MIXED).code == 2


def test_a_run_that_ran_out_of_memory_says_so_in_json(mpprof: Mpprof, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(MIXED / "mpprof", run / "mpprof")
    facts = json.loads((run / "mpprof/run.json").read_text())
    error = "RESOURCE_EXHAUSTED: Out of memory allocating 32212254720 bytes."
    facts["ended"] = {"reason": "out_of_memory", "error": error}
    (run / "mpprof/run.json").write_text(json.dumps(facts))
    made = json.loads(mpprof("memory", run, "--format", "json").out)
    assert (made["schema"], made["asked_bytes"]) == ("mpprof.out_of_memory/1", 32212254720)
    assert [each["cause"] for each in made["advice"]] == ["batch", "elsewhere"]
    assert "of 30.0 GiB asked for" in made["advice"][1]["text"]


def test_the_report_of_a_run_that_ran_out_of_memory_begins_with_that(mpprof: Mpprof, tmp_path: Path) -> None:
    """A longer training and a larger batch, which its missing window and its recorded peak would ask for, are
    what it has no memory for."""
    run = tmp_path / "run"
    shutil.copytree(MIXED / "mpprof", run / "mpprof")
    facts = json.loads((run / "mpprof/run.json").read_text())
    error = "RESOURCE_EXHAUSTED: Out of memory allocating 32212254720 bytes."
    facts |= {"ended": {"reason": "out_of_memory", "error": error}, "profile_windows": []}
    (run / "mpprof/run.json").write_text(json.dumps(facts))
    steps = (run / "mpprof/steps.jsonl").read_text().splitlines(keepends=True)
    (run / "mpprof/steps.jsonl").write_text("".join(steps[:8]))
    found = json.loads(mpprof("report", run, "--format", "json").out)
    assert not {"MP303", "MP910", "MP911"} & {each["code"] for each in found["findings"]}
    assert found["verdict"].startswith("Training ran out of memory after step ")
    assert found["verdict"].endswith(": 30.0 GiB asked, the card has 15.8 GiB.")
    said = mpprof("report", run).out
    assert "Training ran out of memory after step " in said
    assert "\n1. MP913: " in said
    assert said.splitlines()[-1].startswith(f"mpprof memory {run}")
    assert not [each for each in found["findings"] if "larger batch" in each["remedy"]]


def test_the_text_says_what_held_the_peak(mpprof: Mpprof, trace: Path) -> None:
    done = mpprof("memory", trace)
    assert done.code == 0
    assert done.out.startswith("Peak 28.0 MiB of 16.0 GiB (0.17 %) on GPU_0_bfc\n")
    said = {
        name: re.search(rf"^ +(.*?)  .*  {re.escape(name)}(?:  |$)", done.out, re.MULTILINE)
        for name in ("held before the window", "parameters (estimated)", "activations kept for backward",
                     "16-bit weight copies", "workspaces", "gradients", "input")
    }  # fmt: skip
    assert {name: found[1] for name, found in said.items() if found} == {
        "held before the window": "6.00 MiB", "parameters (estimated)": "4.00 MiB", "activations kept for backward": "8.00 MiB",
        "16-bit weight copies": "2.00 MiB", "workspaces": "3.00 MiB", "gradients": "4.00 MiB",
        "input": "1.00 MiB",
    }  # fmt: skip
    assert "half [64,65536]" in done.out


@pytest.mark.parametrize(
    ("life", "said_first"),
    [
        (500, "peak 500 MiB since the process began, 16.0 MiB in the window"),
        (10, "peak 16.0 MiB in the window"),
    ],
)
def test_the_reports_peak_says_of_what_it_is(
    mpprof: Mpprof, tmp_path: Path, life: int, said_first: str
) -> None:
    space = Space()
    thread = plane_of(space.plane("/host:CPU"), 1)[0]
    gpu = Allocator(thread, live=10 * MIB, peak=life * MIB)
    gpu.allocate(100, 1 << 30, 6 * MIB, "model/dense/MatMul", shape="[64,4096]")
    path = tmp_path / "host.xplane.pb"
    path.write_bytes(space.to_bytes())
    assert said_first in " ".join(mpprof("report", path).out.split())
    assert "peak 16.0 MiB in the window" in " ".join(mpprof("report", path, "-v").out.split())
    assert mpprof("memory", path).out.startswith("Peak 16.0 MiB")
    assert json.loads(mpprof("report", path, "--format", "json").out)["memory"]["peak_bytes"] == 16 * MIB


def test_json_rows_sum_to_the_peak_in_every_division(mpprof: Mpprof, trace: Path) -> None:
    rows = json.loads(mpprof("memory", trace, "--format", "json").out)
    for by in ("kind", "dtype", "layer", "op"):
        assert sum(row["bytes"] for row in rows if row["by"] == by) == 28 * MIB
    table = mpprof("memory", trace, "--by", "dtype")
    assert [line.split()[-2:] for line in table.out.splitlines()[1:]] == [
        ["measured", "half"], ["measured", "float"], ["the", "window"], ["estimated", "parameters"],
    ]  # fmt: skip


def test_rows_are_sorted_by_each_column_that_they_have(mpprof: Mpprof, trace: Path) -> None:
    refused = mpprof("memory", trace, "--sort", "nosuch")
    assert refused.code == 2
    columns = refused.err.rpartition("The columns are: ")[2].strip().split(", ")
    header = mpprof("memory", trace, "--format", "csv").out.splitlines()[0]
    assert columns == header.split(",")
    for column in columns:
        found = json.loads(mpprof("memory", trace, "--sort", column, "--format", "json").out)
        values = [row[column] for row in found if column in row]
        assert values == sorted(values, reverse=column not in ("by", "name"))
        assert all(column in row for row in found[: len(values)])


def test_types_and_layers_go_on_below_where_the_terminal_is_full(
    mpprof: Mpprof, trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    wide = mpprof("memory", trace).out
    monkeypatch.setenv("COLUMNS", "68")
    narrow = mpprof("memory", trace).out
    of = [text[text.index("Types ") : text.index("Largest tensors")] for text in (wide, narrow)]
    assert max(map(len, of[0].splitlines())) > 68 >= max(map(len, of[1].splitlines()))
    assert of[0].split() == of[1].split()


def test_the_text_says_why_the_rest_is_not_told_apart(mpprof: Mpprof, trace: Path) -> None:
    done = mpprof("memory", trace)
    assert "Estimated from the 16-bit copies of the weights: allocated before the profiler" in done.out
    assert re.search("^Types .*held before the window 6.00 MiB", done.out, re.MULTILINE)
    assert re.search("^Types .*parameters.*estimated. 4.00 MiB", done.out, re.MULTILINE | re.DOTALL)
    assert (
        "unknown" not in done.out.partition("Largest tensors")[0].partition("Types")[2].partition("Layers")[0]
    )


def test_what_no_event_tells_of_the_time_before_is_said_to_be_recordable(
    mpprof: Mpprof, tmp_path: Path
) -> None:
    space = Space()
    gpu = Allocator(plane_of(space.plane("/host:CPU"), 1)[0], live=10 * MIB, peak=10 * MIB)
    gpu.allocate(100, 1 << 30, MIB, "model/dense/Relu", shape="[64,4096]")
    path = tmp_path / "host.xplane.pb"
    path.write_bytes(space.to_bytes())
    said = " ".join(mpprof("memory", path).out.split())
    assert "Held before the window: the profiler started later, so no event states by whom. For a run" in said


def test_variables_are_told_by_the_updates_of_the_optimizer(mpprof: Mpprof, tmp_path: Path) -> None:
    """As TensorFlow 2.5 to 2.9 write it with Keras 2: four weights of 1 MiB, and Adam's two slots for each."""
    path = tmp_path / "host.xplane.pb"
    path.write_bytes(keras2.variables_older_than_the_window().to_bytes())
    done = mpprof("memory", path)
    said = dict(
        re.findall(r"^ +([\d.]+ \w+) .*  ((?:parameters|optimizer slots) \(estimated\))", done.out, re.M)
    )
    assert {name: size for size, name in said.items()} == {
        "parameters (estimated)": "4.00 MiB", "optimizer slots (estimated)": "8.00 MiB",
    }  # fmt: skip
    assert "Estimated from the gradients that the optimizer's updates free: allocated before the" in " ".join(
        done.out.split()
    )


def on_a_cpu() -> bytes:
    """On a CPU only oneDNN's pool tells of its allocations."""
    space = Space()
    thread = plane_of(space.plane("/host:CPU"), 1)[0]
    pool = Allocator(thread, "mklcpu")
    pool.allocate(100, 1 << 30, 6 * MIB, "model/conv2d/Conv2D", shape="[32,64,64,12]")
    return space.to_bytes()


def test_a_host_allocator_is_shown_as_the_hosts(mpprof: Mpprof, tmp_path: Path) -> None:
    path = tmp_path / "host.xplane.pb"
    path.write_bytes(on_a_cpu())
    done = mpprof("memory", path)
    assert done.code == 0
    assert "on mklcpu (host memory)" in done.out.splitlines()[0]


def test_what_the_records_lack_is_not_said_of_the_trace(mpprof: Mpprof, tmp_path: Path) -> None:
    """TensorFlow has no statistics of the host's memory for the step log; its trace has events all the same."""
    run = tmp_path / "run"
    shutil.copytree(SAMPLES / "recorded-cpu-float32", run)
    (path,) = run.rglob("*.xplane.pb")
    path.write_bytes(on_a_cpu())
    report = json.loads(mpprof("report", run, "--format", "json").out)
    assert report["memory"]["allocator"] == "mklcpu"
    assert not {"memory", "memory.allocator"} & set(report["absent"])
    assert report["absent"]["steps.peak_memory_bytes"].startswith("no GPU")
    path.unlink()
    alone = json.loads(mpprof("report", run, "--format", "json").out)
    assert alone["memory"] is None
    assert "trace" in alone["absent"]["memory"]
    assert alone["absent"]["steps.peak_memory_bytes"].startswith("no GPU")


def test_kinetos_memory_events_come_through_the_same_door(mpprof: Mpprof, tmp_path: Path) -> None:
    """Two blocks of PyTorch's allocator on the card, one freed before the second is there; the host's stand
    beside it."""
    made = Kineto()
    made.op("aten::addmm", 10, 60)
    made.memory(20, 4096, 3 * MIB, 5 * MIB)  # 2 MiB are older than the trace
    made.memory(30, 8192, 4 * MIB, 9 * MIB)
    made.memory(40, 4096, -3 * MIB, 6 * MIB)
    made.memory(50, 64, MIB, MIB, device=-1)
    path = made.write(tmp_path / "run.pt.trace.json")
    done = mpprof("memory", path)
    assert done.code == 0
    assert done.out.startswith("Peak 9.00 MiB")
    rows = json.loads(mpprof("memory", path, "--format", "json").out)
    for by in ("kind", "op"):
        assert sum(row["bytes"] for row in rows if row["by"] == by) == 9 * MIB
    assert {row["name"]: row["bytes"] for row in rows if row["by"] == "kind"}[
        "held before the window"
    ] == 2 * MIB
    assert next(row["bytes"] for row in rows if row["by"] == "op" and row["name"] == "aten::addmm") == 7 * MIB
    missing = done.out.split("The trace does not show the modules' weights: ")[1:]
    assert ["record_shapes=True" in missing[0], "with_stack=True" in missing[1]] == [True, True]
