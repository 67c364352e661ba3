"""How fits end that do not end by themselves: what is let go of, what is recorded, and whom it disturbs."""

from __future__ import annotations

import gc
import json
import logging
import os
import shutil
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mpprof.errors import UnableError
from mpprof.record.session import NESTED
from tests.record.fits import reasons, records
from tests.record.processes import done_on_jax
from tests.record.training import BATCH, callback, data, model

pytestmark = pytest.mark.framework

FAILS_AT, CELLS = 5, 3


def at(step: int, work: Callable[[], Any]) -> Any:
    """A callback of the user's that does this as the step begins, counted from 1 over its fits."""
    import keras

    class At(keras.callbacks.Callback):  # type: ignore[misc]  # keras has no types
        begun = 0

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            self.begun += 1
            if self.begun == step:
                work()

    return At()


def failing() -> None:
    raise ZeroDivisionError


def fit(made: Any, steps: int, *callbacks: Any, bad: tuple[int, ...] = (), **more: Any) -> None:
    x, y = data(steps, bad)
    made.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0, callbacks=list(callbacks), **more)


def small(**compiling: Any) -> Any:
    return model(kind="linear", optimizer="sgd", **compiling)


def updates(made: Any) -> int:
    return int(made.optimizer.inner_optimizer.iterations.numpy())


def steps_and_ends(root: Path) -> tuple[list[int], list[str]]:
    """The steps of a run, and why its fits ended."""
    steps = records(root).steps
    return steps.step.tolist(), reasons(root)


def open_files(below: Path) -> list[str]:
    held = [Path(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")]
    return [str(link.readlink()) for link in held if link.is_symlink() and str(below) in os.readlink(link)]


def failing_cell(*callbacks: Any) -> list[weakref.ref[Any]]:
    """As a notebook's: a model of its own and a failure."""
    made = small()
    with pytest.raises(ZeroDivisionError):
        fit(made, 12, *callbacks, at(FAILS_AT, failing))
    return [weakref.ref(made), weakref.ref(made.optimizer)]


def left_alive(held: list[weakref.ref[Any]]) -> int:
    """How many are left. On JAX the last model, with our callback or without, often goes with a later collection."""
    deadline = time.monotonic() + 3
    while (alive := sum(one() is not None for one in held)) and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.02)
    return alive


def cells(folder: Path) -> dict[str, Any]:
    """Fits that fail, each in a cell of its own whose callback stays at hand for its `result()`, and then one
    that does not."""
    before = set(threading.enumerate())
    alive = []
    for kept in ([], [callback(folder / str(number), hardware=True) for number in range(CELLS)]):
        given = [[one] for one in kept] or [[]] * CELLS
        made = [held for callbacks in given for held in failing_cell(*callbacks)]
        alive.append(left_alive(made))
    fit(small(), 12, callback(folder / "good", hardware=True))
    return {
        # Beyond what Keras keeps itself: on torch the last model.
        "kept alive": max(0, alive[1] - alive[0]),
        "threads": [thread.name for thread in set(threading.enumerate()) - before if "mpprof" in thread.name],
        "files": open_files(folder),
    }


def check_cells(answers: Any, folder: Path) -> None:
    assert answers == {"kept alive": 0, "threads": [], "files": []}
    for number in range(CELLS):
        steps, ends = steps_and_ends(folder / str(number))
        assert ends == ["error"]
        assert steps == list(range(1, FAILS_AT))
    assert steps_and_ends(folder / "good") == (list(range(1, 13)), ["finished"])


def test_fits_that_failed_keep_no_model_and_are_closed(tmp_path: Path) -> None:
    pytest.importorskip("tensorflow")
    check_cells(cells(tmp_path), tmp_path)


def test_fits_in_two_threads_go_on_and_one_that_failed_in_a_third_is_closed(tmp_path: Path) -> None:
    pytest.importorskip("tensorflow")
    outer, inner = (
        callback(tmp_path / "outer", profile_steps=(5, 30)),
        callback(tmp_path / "inner", profile_steps=(3, 7)),
    )
    failed, errors = callback(tmp_path / "failed"), []

    def in_a_thread(made: Any, steps: int, *callbacks: Any) -> None:
        def work() -> None:
            try:
                fit(made, steps, *callbacks)
            except ZeroDivisionError as error:
                errors.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()

    kept = small()  # so that it is not its end that tells

    def meanwhile() -> None:
        """The fit in the main thread is in the midst of its window."""
        in_a_thread(kept, 12, failed, at(FAILS_AT, failing))
        in_a_thread(small(), 20, inner)

    fit(small(), 40, outer, at(10, meanwhile))
    assert len(errors) == 1
    assert steps_and_ends(tmp_path / "outer") == (list(range(1, 41)), ["finished"])
    assert steps_and_ends(tmp_path / "inner") == (list(range(1, 21)), ["finished"])
    assert steps_and_ends(tmp_path / "failed") == (list(range(1, FAILS_AT)), ["error"])
    facts, of_inner = records(tmp_path / "outer").facts, records(tmp_path / "inner").facts
    (window,) = facts.profile_windows
    assert (window.status, window.first_step, window.last_step) == ("done", 5, 30)
    assert of_inner.profile_windows == ()
    assert "another training's window was open" in of_inner.absent["profile_windows"]


def test_one_callback_in_two_fits_at_a_time_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("tensorflow")
    recorded = callback(tmp_path)

    def meanwhile() -> None:
        thread = threading.Thread(target=fit, args=(small(), 8, recorded))
        thread.start()
        thread.join()

    made = small()
    fit(made, 20, recorded, at(10, meanwhile))
    assert updates(made) == 20
    assert [
        record.getMessage() for record in caplog.records if "already in another fit" in record.getMessage()
    ]
    assert "already in another fit" in records(tmp_path).facts.absent["recording"]  # type: ignore[union-attr]
    assert not recorded.result().finished
    assert "already in another fit" in str(recorded.result())


@pytest.mark.parametrize(
    ("order", "fails"),
    [
        (1, False),
        (-1, True),
        *(pytest.param(*each, marks=pytest.mark.full) for each in ((-1, False), (1, True))),
    ],
)
def test_a_fit_within_the_fit_of_the_same_callback_is_left_out_and_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, order: int, fails: bool
) -> None:
    pytest.importorskip("tensorflow")
    recorded = callback(tmp_path)

    def within() -> None:
        for _ in range(2):
            try:
                fit(small(), 10, recorded, at(FAILS_AT if fails else 99, failing), validation_data=data(2))
            except ZeroDivisionError:
                assert fails

    made = small()
    with caplog.at_level(logging.WARNING):
        fit(made, 30, *[recorded, at(20, within)][::order], bad=(7, 25), epochs=2)
    read = records(tmp_path)
    assert steps_and_ends(tmp_path) == (list(range(1, 61)), ["finished"])
    assert int(read.steps.skipped[read.steps.skipped > 0].sum()) == 60 - updates(made) == 4
    assert read.facts.absent["nested_fit"] == NESTED
    assert [record.getMessage() for record in caplog.records].count(f"mpprof: {NESTED}") == 1
    assert read.validations is None or len(read.validations.t_ns) == 0
    assert recorded.result().finished
    assert recorded.result().steps == 60


def test_a_fit_within_the_last_hook_of_a_fit_leaves_its_end_alone(tmp_path: Path) -> None:
    keras = pytest.importorskip("keras")
    pytest.importorskip("tensorflow")
    recorded = callback(tmp_path)

    class AtTheEnd(keras.callbacks.Callback):  # type: ignore[misc]  # keras has no types
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            fit(small(), 5, recorded)

    fit(small(), 10, recorded, AtTheEnd())
    assert steps_and_ends(tmp_path) == (list(range(1, 11)), ["finished"])


# --- what a result says ------------------------------------------------------------------------------------


def test_a_result_says_what_is_not_on_disk(tmp_path: Path) -> None:
    pytest.importorskip("tensorflow")
    root = tmp_path / "run"
    recorded = callback(root, profile_steps=(3, 5))
    with pytest.raises(UnableError):
        recorded.result()
    fit(small(), 10, recorded)
    whole = recorded.result()
    assert (whole.steps, whole.finished, whole.lost, whole.traced_steps) == (10, True, None, (3, 5))
    shutil.rmtree(root)
    gone = recorded.result()
    assert (gone.steps, gone.finished, gone.traced_steps) == (10, False, None)
    assert f"the records are gone: there is no {root / 'mpprof' / 'run.json'}" in str(gone)


def test_a_directory_removed_while_it_was_written_is_not_finished(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("tensorflow")
    root = tmp_path / "run"
    recorded = callback(root)
    with caplog.at_level(logging.WARNING):
        fit(small(), 12, recorded, at(6, lambda: shutil.rmtree(root.rename(tmp_path / "gone"))))
    result = recorded.result()
    assert not result.finished
    assert result.lost is not None
    assert str(root) in result.lost


def test_a_fit_that_failed_is_not_finished_and_the_next_one_is(tmp_path: Path) -> None:
    pytest.importorskip("tensorflow")
    recorded, made = callback(tmp_path), small()
    with pytest.raises(ZeroDivisionError):
        fit(made, 12, recorded, at(FAILS_AT, failing))
    assert not recorded.result().finished
    recorded.close()
    assert (recorded.result().steps, recorded.result().finished) == (FAILS_AT - 1, False)
    fit(made, 6, recorded)
    assert recorded.result().finished


def test_a_window_claims_no_step_that_did_not_run(tmp_path: Path) -> None:
    pytest.importorskip("tensorflow")
    recorded = callback(tmp_path, profile_steps=(15, 30))
    with pytest.raises(ZeroDivisionError):
        fit(small(), 40, recorded, at(20, failing))
    recorded.close()
    read = records(tmp_path)
    (window,) = read.facts.profile_windows
    assert (window.first_step, window.last_step, int(read.steps.step[-1])) == (15, 19, 19)
    assert recorded.result().traced_steps == (15, 19)


def test_a_tilde_is_the_home_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tensorflow")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    recorded = callback(Path("~/logs"))
    fit(small(), 4, recorded)
    assert recorded.root == tmp_path / "home" / "logs"
    assert not (tmp_path / "~").exists()


def test_what_we_write_within_a_fit_is_no_steps_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run.json takes an hour to make, by the callback's own clock."""
    pytest.importorskip("tensorflow")
    from mpprof.store import formats

    hour_ns, now = 3600 * 10**9, [0]
    make = formats.document

    def slow(record: dict[str, Any]) -> str:
        now[0] += hour_ns
        return make(record)

    def clock() -> int:
        now[0] += 1000
        return now[0]

    monkeypatch.setattr(formats, "document", slow)
    fit(small(), 20, callback(tmp_path, profile_steps=(8, 10), clock=clock))
    steps = records(tmp_path).steps
    assert now[0] > 4 * hour_ns
    for times in (steps.interval_ns, steps.duration_ns, steps.gap_ns):
        assert int(times.max()) < hour_ns


# --- on JAX ------------------------------------------------------------------------------------------------


def on_jax(folder: Path) -> None:
    answers = {"cells": cells(folder / "cells"), "updates": {}}
    for name, steps, bad, failing_step, more in LAST:
        made, recorded = small(**more), callback(folder / name)
        try:
            fit(made, steps, at(failing_step, failing), recorded, bad=bad)
        except ZeroDivisionError:
            recorded.close()
        answers["updates"][name] = updates(made)
    (folder / "answers.json").write_text(json.dumps(answers))


LAST: tuple[tuple[str, int, tuple[int, ...], int, dict[str, Any]], ...] = (
    ("finite", 40, (), 20, {}),
    ("skipped", 40, (3, 19), 20, {}),
    ("sparse", 60, (3, 45), 51, {}),
    ("several", 64, (3, 30), 6, {"steps_per_execution": 8}),
    ("the first", 10, (), 2, {}),
)
"""Name, steps, which of them are skipped, the call as which begins somebody fails, how it was compiled."""


@pytest.fixture(scope="module")
def jax_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("jax")
    out = tmp_path_factory.mktemp("endings")
    done_on_jax(on_jax, out)
    return out


def test_on_jax_fits_that_failed_keep_no_model(jax_folder: Path) -> None:
    answers = json.loads((jax_folder / "answers.json").read_text())
    check_cells(answers["cells"], jax_folder / "cells")


@pytest.mark.parametrize("case", LAST, ids=lambda case: case[0])
def test_on_jax_the_last_step_before_somebody_elses_failure_is_recorded(jax_folder: Path, case: Any) -> None:
    name, _, bad, failing_call, more = case
    ran = (failing_call - 1) * more.get("steps_per_execution", 1)
    read = records(jax_folder / name)
    steps, ends = steps_and_ends(jax_folder / name)
    assert ends == ["error"]
    assert (steps[-1], int(read.steps.covers.sum())) == (ran, ran)
    skipped = int(read.steps.skipped[read.steps.skipped > 0].sum())
    updated = json.loads((jax_folder / "answers.json").read_text())["updates"][name]
    assert skipped == ran - updated == sum(step <= ran for step in bad)
