"""`mpprof memory` on allocator events: what a person reads, and what a script gets."""

from __future__ import annotations

import json
import pickle
import re
from pathlib import Path

import pytest

from tests.builders import keras2
from tests.builders.allocations import Allocator, plane_of
from tests.builders.xspace import Space
from tests.cli.conftest import MIXED, SAMPLES, Mpprof
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


def test_json_rows_sum_to_the_peak_in_every_division(mpprof: Mpprof, trace: Path) -> None:
    rows = json.loads(mpprof("memory", trace, "--format", "json").out)
    for by in ("kind", "dtype", "layer", "op"):
        assert sum(row["bytes"] for row in rows if row["by"] == by) == 28 * MIB
    table = mpprof("memory", trace, "--by", "dtype")
    assert [line.split()[-2:] for line in table.out.splitlines()[1:]] == [
        ["measured", "half"], ["measured", "float"], ["the", "window"], ["estimated", "parameters"],
    ]  # fmt: skip


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
    said = mpprof("memory", path).out
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
    assert "Estimated from the gradients that the optimizer's updates free: allocated before the" in done.out


def test_a_host_allocator_is_shown_as_the_hosts(mpprof: Mpprof, tmp_path: Path) -> None:
    """On a CPU only oneDNN's pool tells of its allocations."""
    space = Space()
    thread = plane_of(space.plane("/host:CPU"), 1)[0]
    pool = Allocator(thread, "mklcpu")
    pool.allocate(100, 1 << 30, 6 * MIB, "model/conv2d/Conv2D", shape="[32,64,64,12]")
    path = tmp_path / "host.xplane.pb"
    path.write_bytes(space.to_bytes())
    done = mpprof("memory", path)
    assert done.code == 0
    assert "on mklcpu (host memory)" in done.out.splitlines()[0]


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


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_pickle_is_refused_with_the_way_to_json(mpprof: Mpprof, tmp_path: Path, protocol: int) -> None:
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": []}, protocol=protocol))
    done = mpprof("memory", path)
    assert done.code == 2
    assert "is a pickle, which is code" in done.err
    assert "export_chrome_trace" in done.err
