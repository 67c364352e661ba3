"""Wrong arguments of the callback and of the recorder: one clear error, when they are made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mpprof.errors import UsageError
from mpprof.record import StepRecorder

WRONG: dict[str, list[Any]] = {
    "profile_steps": [(5, 3), (0, 3), (1.5, 3), 5, True, (True, 3), "on"],
    "read_every": [0, -1, "16", 2.0, True],
    "stop_on": ["loss_scale_stuk", ("endless_skips", "x"), 5, None],
    "window_signal": [9, "USR1", True],
    "announce": [5, "nothing"],
    "clock": [5],
}
OF_LOOPS: dict[str, list[Any]] = {"wait": [5], "batch_size": [0, -3, "x", True], "backend": ["tf"]}
OF_FITS: dict[str, list[Any]] = {"sinks": [5, object(), [object()]]}
NO_DIRECTORY = [None, 5, b"bytes", "", "gs://bucket/run", Path("s3://bucket/run")]


def cases(*tables: dict[str, list[Any]]) -> list[Any]:
    return [(name, value) for table in tables for name, values in table.items() for value in values]


@pytest.mark.parametrize(("name", "value"), cases(WRONG, OF_LOOPS, {"logdir": NO_DIRECTORY}))
def test_of_a_recorder(tmp_path: Path, name: str, value: Any) -> None:
    with pytest.raises(UsageError) as raised:
        StepRecorder(**{"logdir": tmp_path, name: value})
    assert raised.value.next  # what to give instead
    assert list(tmp_path.iterdir()) == []


@pytest.mark.framework
@pytest.mark.parametrize(("name", "value"), cases(WRONG, OF_FITS, {"logdir": NO_DIRECTORY}))
def test_of_the_callback(tmp_path: Path, name: str, value: Any) -> None:
    pytest.importorskip("keras")
    from mpprof.record import MPProfilerCallback

    with pytest.raises(UsageError) as raised:
        MPProfilerCallback(**{"logdir": tmp_path, name: value})
    assert raised.value.next
    assert list(tmp_path.iterdir()) == []
