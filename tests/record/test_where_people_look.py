"""TensorBoard scalars and other sinks, `callback.result()`."""

from __future__ import annotations

import json
import math
import shlex
import struct
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import mpprof
from mpprof.errors import UnableError
from mpprof.record.sinks import Feed, Point, Series
from mpprof.record.tensorboard_sink import EventFile, crc32c, event, record
from tests.record import hangs
from tests.record.training import BATCH, callback, data, model

# --- points out of lines ----------------------------------------------------------------------------------


def line(step: int, **more: Any) -> dict[str, Any]:
    return {"kind": "step", "step": step, "covers": 1, "profiled": False, "t_ns": step * 1000, **more}


def test_a_point_at_every_reading_with_the_mean_since_the_one_before() -> None:
    series = Series()
    assert series.see(line(1, interval_ns=1_000_000)) == {}
    assert series.see(line(2, interval_ns=3_000_000, skipped=1, loss_scale=8.0, loss=0.5)) == {
        "mpprof/step_time_ms": 2.0, "mpprof/skipped_steps": 1.0, "mpprof/loss_scale": 8.0, "mpprof/loss": 0.5,
    }  # fmt: skip
    assert series.see(line(3, skipped=2, loss=math.nan, memory=[{"peak_bytes": 7}, {"peak_bytes": 9}])) == {
        "mpprof/skipped_steps": 3.0, "mpprof/peak_memory_bytes": 9.0,
    }  # fmt: skip
    assert series.see({"kind": "validation"}) == {}


def test_without_readings_a_point_after_64_steps_and_none_of_profiled_time() -> None:
    series = Series()
    lines = [line(k, interval_ns=10**9 if k == 5 else 10**6, profiled=k == 5) for k in range(1, 65)]
    points = [series.see(one) for one in lines]
    lines[4]["profiled"] = True
    assert points[:63] == [{}] * 63
    assert points[63] == {"mpprof/step_time_ms": 1.0}


# --- event files ------------------------------------------------------------------------------------------


def test_the_checksum_is_castagnolis() -> None:
    # RFC 3720, appendix B.4
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(b"\xff" * 32) == 0x62A8AB43
    assert crc32c(bytes(range(32))) == 0x46DD794E


def test_event_files_are_written_without_any_framework(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib; from mpprof.record.tensorboard_sink import EventFile;"
        "f = EventFile(pathlib.Path(sys.argv[1])); f.scalars(1, 2.0, {'a': 3.0}); f.close();"
        "assert not {'tensorflow', 'tensorboard', 'keras', 'numpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    assert len(list(tmp_path.glob("events.out.tfevents.*"))) == 1


def scalars_of(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Read back by TensorBoard itself, which checks every checksum."""
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    read.Reload()
    return {tag: [(e.step, e.value) for e in read.Scalars(tag)] for tag in read.Tags()["scalars"]}


@pytest.mark.framework
def test_tensorboard_reads_what_was_written(tmp_path: Path) -> None:
    sink = EventFile(tmp_path)
    sink.scalars(0, 1e9, {"mpprof/a": 1.5})
    sink.scalars(300, 1e9 + 1, {"mpprof/a": -2.0, "mpprof/b": 1e300})
    sink.close()
    sink.scalars(1 << 40, 1e9 + 2, {"mpprof/a": math.inf})
    sink.close()
    assert len(list(tmp_path.iterdir())) == 2
    read = scalars_of(tmp_path)
    assert read["mpprof/a"] == [(0, 1.5), (300, -2.0), (1 << 40, math.inf)]
    assert read["mpprof/b"] == [(300, math.inf)]


def test_the_bytes_of_a_record() -> None:
    data = event(0.0, 1, {"t": 1.0})
    assert data == b"\x09" + struct.pack(
        "<d", 0
    ) + b"\x10\x01" + b"\x2a\x0a" + b"\x0a\x08" + b"\x0a\x01t" + b"\x15" + struct.pack("<f", 1)
    assert record(data)[:8] == struct.pack("<Q", len(data))
    assert len(record(data)) == len(data) + 16


# --- in a training ----------------------------------------------------------------------------------------


class Kept:
    def __init__(self) -> None:
        self.points: list[tuple[int, dict[str, float]]] = []
        self.closed = 0

    def scalars(self, step: int, unix_s: float, values: Mapping[str, float]) -> None:
        self.points.append((step, dict(values)))

    def close(self) -> None:
        self.closed += 1


class Broken(Kept):
    def scalars(self, step: int, unix_s: float, values: Mapping[str, float]) -> None:
        raise ConnectionError("broken on purpose")


@pytest.mark.framework
def test_sinks_get_the_series_and_one_that_breaks_hurts_nobody(
    keras: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    x, y = data(70)
    kept = Kept()
    recorded = callback(tmp_path, sinks=[Broken(), kept], tensorboard=True)
    made = model()
    for _ in range(2):
        made.fit(x, y, batch_size=BATCH, verbose=0, callbacks=[recorded])
    assert [step for step, _ in kept.points][:34] == [*range(1, 33), 48, 64]
    assert kept.closed == 2
    assert caplog.text.count("sink.Broken") == 1
    assert json.loads((tmp_path / "mpprof" / "run.json").read_text())["absent"]["sink.Broken"]
    read = scalars_of(tmp_path / "mpprof")
    assert [step for step, _ in read["mpprof/loss_scale"]] == [step for step, _ in kept.points]
    assert {value for _, value in read["mpprof/loss_scale"]} == {2.0**15}


class Hanging(Kept):
    def __init__(self) -> None:
        super().__init__()
        self.released = threading.Event()

    def scalars(self, step: int, unix_s: float, values: Mapping[str, float]) -> None:
        hangs.hanging()
        self.released.wait(20)


@pytest.mark.framework
def test_a_sink_that_hangs_holds_up_nobody(
    trained: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    x, y = data(40)
    hanging, kept = Hanging(), Kept()
    recorded = callback(tmp_path, sinks=[hanging, kept])
    trained.fit(x, y, batch_size=BATCH, verbose=0, callbacks=[recorded])
    hanging.released.set()
    assert [step for step, _ in kept.points] == [*range(1, 33), 40]
    steps = mpprof.load(tmp_path).steps
    assert len(steps) == 40
    assert [record.getMessage() for record in caplog.records if "sink.Hanging" in record.getMessage()] == [
        "mpprof no longer records sink.Hanging: TimeoutError: it has not accepted its values within 5 s"
    ]
    assert "within" in json.loads((tmp_path / "mpprof" / "run.json").read_text())["absent"]["sink.Hanging"]


def test_a_sink_that_is_far_behind_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mpprof.record.sinks.MOST_QUEUED", 3)
    hanging, failed = Hanging(), []
    feed = Feed(hanging, lambda name, error: failed.append((name, str(error))))
    for step in range(9):
        feed.put(Point(step, 0.0, {}))
    assert failed == [("sink.Hanging", "it does not accept the values")]
    hanging.released.set()
    feed.close(5)
    assert len(failed) == 1


@pytest.mark.framework
def test_nothing_is_written_for_tensorboard_unless_asked_for(trained: Any, tmp_path: Path) -> None:
    x, y = data(4)
    trained.fit(x, y, batch_size=BATCH, verbose=0, callbacks=[callback(tmp_path)])
    assert list(tmp_path.rglob("events.*")) == []


@pytest.mark.framework
def test_the_result_of_a_run(keras: Any, tmp_path: Path) -> None:
    recorded = callback(tmp_path / "run <b>")
    with pytest.raises(UnableError, match="nothing was recorded"):
        recorded.result()
    x, y = data(30, bad_steps=(3,))
    model().fit(x, y, batch_size=BATCH, shuffle=False, verbose=0, callbacks=[recorded])
    result = recorded.result()
    assert (result.steps, result.skipped, result.finished) == (30, 1, True)
    assert result.path == recorded.root
    assert result.median_step_ns is not None
    assert result.verdict
    said = str(result).splitlines()
    assert shlex.split(said[-1].removeprefix("More: ")) == ["mpprof", "report", str(result.path)]
    assert said[0] == "30 steps, 1 skipped"  # the step time is the verdict's to tell
    assert said[1].startswith("The loss is not finite on step 3.")
    page = result._repr_html_()
    assert page.startswith("<iframe sandbox ")
    assert len(page) < 60_000
    assert "&lt;!doctype html&gt;" in page.lower()
    assert "allow-scripts" not in page
    assert "allow-same-origin" not in page


@pytest.mark.framework
def test_a_result_without_the_windows_is_text(
    trained: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = callback(tmp_path)
    x, y = data(4)
    trained.fit(x, y, batch_size=BATCH, verbose=0, callbacks=[recorded])
    monkeypatch.setitem(sys.modules, "mpprof_dashboards.export", None)
    assert recorded.result()._repr_html_().startswith("<pre>4 steps")
