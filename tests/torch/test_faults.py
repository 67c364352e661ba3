"""Whatever fails in the instrument on torch, training ends as it would have: same weights, one warning."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from mpprof.store import read_records
from tests.torch.training import (
    BATCH,
    callback,
    data,
    digest,
    fit,
    keras,
    model,
    records,
    torch,
    total_skipped,
)

pytestmark = pytest.mark.framework
modules = torch.nn.modules.module
torch_trace = import_module("mpprof.record.backends.torch")  # not without torch

PROBE = "backends.torch.TorchProbe."


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    """No profiler that runs on, and no hook on every module."""
    yield
    assert not torch_trace.profiler_runs()
    assert not modules._global_forward_pre_hooks
    assert not modules._global_forward_hooks


@pytest.fixture(scope="module")
def undisturbed() -> str:
    """The digest of a training without a callback."""
    made = model()
    fit(made, *data(40, bad_steps=(3, 36)))
    return digest(made)


def raising(kind: type[BaseException]) -> Any:
    def broken(*arguments: Any, **more: Any) -> Any:
        raise kind("broken on purpose")

    return broken


def nonsense(*arguments: Any, **more: Any) -> Any:
    return object()


@pytest.mark.parametrize(
    ("place", "field"),
    [
        (PROBE + "framework", "framework"),
        (PROBE + "settings", "settings"),
        (PROBE + "devices", "devices"),
        (PROBE + "distribution", "distribution"),
        (PROBE + "worker", "worker"),
        (PROBE + "memory", "memory"),
        (PROBE + "counters", "skipped"),
        (PROBE + "snapshot", "skipped"),
        (PROBE + "marker", "markers"),
        ("backends.torch._reading", "skipped"),
        ("backends.torch_settings.framework", "framework"),
        ("backends.torch_settings._tf32", "settings"),
        ("calls.CallLog.dispatched", "recording"),
        ("session.model_facts", "model"),
        ("session.fit_facts", "fits"),
    ],
)
@pytest.mark.parametrize("kind", [RuntimeError, SystemExit, torch.OutOfMemoryError])
def test_whatever_fails_is_said_once_and_training_goes_on(
    undisturbed: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    place: str,
    field: str,
    kind: type[BaseException],
) -> None:
    x, y = data(40, bad_steps=(3, 36))
    monkeypatch.setattr(f"mpprof.record.{place}", raising(kind))
    made = model()
    with caplog.at_level(logging.WARNING, "mpprof"):
        fit(made, x, y, callback(tmp_path, profile_steps=(20, 24)))
    assert digest(made) == undisturbed
    assert len([r for r in caplog.records if "MP206" not in r.getMessage()]) == 1  # the alarm is meant
    facts = read_records(tmp_path).facts
    assert "broken on purpose" in facts.absent[field]


@pytest.mark.parametrize(
    "place",
    ["_Call.__init__", "_Call.open", "_Call.close", "_names", "_name", "OptimizerRanges.attach"],
)
def test_a_range_that_fails_is_left_out(
    undisturbed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    x, y = data(40, bad_steps=(3, 36))
    monkeypatch.setattr(f"mpprof.record.backends.torch_ranges.{place}", raising(RuntimeError))
    made = model()
    fit(made, x, y, callback(tmp_path, profile_steps=(20, 24)))
    assert digest(made) == undisturbed
    facts = records(tmp_path).facts
    assert facts.profile_windows[0].status == "done"


@pytest.mark.parametrize("place", ["framework", "settings", "devices", "memory", "snapshot", "marker"])
def test_nonsense_instead_of_an_answer_stops_no_training(
    undisturbed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    x, y = data(40, bad_steps=(3, 36))
    monkeypatch.setattr(f"mpprof.record.{PROBE}{place}", nonsense)
    made = model()
    fit(made, x, y, callback(tmp_path, profile_steps=(20, 24)))
    assert digest(made) == undisturbed


class RunsOutOfMemory(keras.callbacks.Callback):  # type: ignore[misc]
    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if batch == 15:
            raise torch.OutOfMemoryError("CUDA out of memory.")


def test_an_error_in_the_users_step_is_the_users(tmp_path: Path) -> None:
    x, y = data(40)
    recorded = callback(tmp_path)
    made = model()
    with pytest.raises(torch.OutOfMemoryError):
        fit(made, x, y, recorded, RunsOutOfMemory())
    fit(made, x, y, recorded)
    read = records(tmp_path)
    assert read.steps is not None
    assert [int((read.steps.fit == k).sum()) for k in (1, 2)] == [15, 40]


def test_after_an_out_of_memory_error_the_allocators_last_state_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a GPU, of which there is none here: the probe tells a state."""
    from mpprof.record.backends.torch import TorchProbe

    told = [{"device": "cuda:0", "peak_bytes": 500, "live_bytes": 300}]
    monkeypatch.setattr(TorchProbe, "memory", lambda self: told)

    x, y = data(40)
    recorded = callback(tmp_path)
    with pytest.raises(torch.OutOfMemoryError):
        fit(model(), x, y, recorded, RunsOutOfMemory())
    recorded.close()
    lines = (tmp_path / "mpprof" / "steps.jsonl").read_text().splitlines()
    assert '"kind":"fit_end","reason":"out_of_memory",' in lines[-1]
    assert '"memory":[{"device":"cuda:0"' in lines[-1]
    assert '"peak_bytes":500' in lines[5]


class Rows(torch.utils.data.Dataset):  # type: ignore[misc]
    def __init__(self, x: Any, y: Any) -> None:
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, row: int) -> Any:
        return self.x[row], self.y[row]


@pytest.mark.filterwarnings("ignore:`shuffle=True` was passed")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_forked_workers_that_load_data_write_no_records(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    x, y = data(24, bad_steps=(4,))
    made = model()
    loader = torch.utils.data.DataLoader(
        Rows(x, y), batch_size=BATCH, num_workers=2, multiprocessing_context="fork"
    )
    made.fit(
        loader, verbose=0, epochs=2, callbacks=[callback(tmp_path, profile_steps=(10, 12), hardware=True)]
    )
    read = records(tmp_path)
    assert read.steps.step.tolist() == list(range(1, 49))
    assert total_skipped(read) == 2
    assert read.facts.profile_windows[0].status == "done"
    assert [r for r in caplog.records if "MP206" not in r.getMessage()] == []
