"""All of the wall time: parts against the truth of fits that were played on a clock of their own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mpprof.analysis.steps.run_time import run_time
from mpprof.model.run import Run
from mpprof.model.run_time import EpochTable, FitSpan, RunTime, Spans, SpentKey, SpentTable
from mpprof.model.steps import ValidationTable
from mpprof.record import StepRecorder
from mpprof.runs.loading import load
from tests.builders import cases
from tests.builders.played_fit import MS, Hook, Play, Played, play
from tests.paths import SAMPLES

SLOW, CHECKPOINT = Hook("Slow", batch_end=30), Hook("Checkpoint", batch_end=50, every=5)
FULL = Play(
    covers=2, batch=3, first_batch=200, first_call=300, compile=400, validation=70, ahead_of_validation=20,
    callbacks=(
        Hook("Early", batch_begin=4, batch_end=2, epoch_end=9), Hook("Late", batch_end=6, epoch_end=50, train_begin=11),
        CHECKPOINT,
    ),
    fits=2, window=(13, 18, 35, 45),
)  # fmt: skip


def of(played: Played) -> RunTime:
    found = run_time(load(played.root))
    assert sum(part.ns for part in found.parts) + found.unknown_ns == found.wall_ns
    assert all(0 <= part.ratio <= 1 for part in found.parts)
    assert all(sum(each.ns for each in part.by) == part.ns for part in found.parts)
    return found


def ms(found: RunTime) -> dict[str, float]:
    return {part.name: part.ns / MS for part in found.parts if part.ns}


def names(found: RunTime, part: str) -> dict[str, float]:
    return {each.name: each.ns / MS for one in found.parts if one.name == part for each in one.by}


@pytest.mark.parametrize("backend", ["tensorflow", "jax", "torch"])
def test_each_part_of_a_full_training_is_what_passed(backend: str, tmp_path: Path) -> None:
    played = play(replace(FULL, backend=backend), tmp_path)
    found = of(played)
    truth = dict(played.truth)
    assert found.wall_ns == played.wall * MS
    assert found.unknown_ns == 0
    assert names(found, "callbacks") == dict(played.by_name)
    if backend != "tensorflow":  # begins alone: the loop's own time cannot be told from a call's
        truth["steps"] += truth.pop("loop")
        truth["steps"] += 2 * 2 * 20  # nor what Keras does ahead of a validation
        truth["validation"] -= 2 * 2 * 20
        assert "begins" in found.absent["loop"]
    if backend == "tensorflow":  # input and compiling are within the calls, and it says so
        truth["steps"] += truth.pop("input") + truth.pop("compile")
        assert "steps and the wait for their input" in names(found, "steps")
        assert found.part("input") is None
        assert found.absent["input"] == "TensorFlow fetches within the graph"
    own_loop = truth.get("loop", 0)
    parts = ms(found)
    for name, passed in truth.items():
        # Which hooks came after an epoch's last call is not recorded: the loop's own time bounds what that moves.
        assert parts.get(name, 0) == pytest.approx(passed, abs=own_loop), name


@pytest.mark.parametrize("backend", ["tensorflow", "torch", "jax"])
@pytest.mark.parametrize(
    "hook", [SLOW, CHECKPOINT, Hook("Begins", batch_begin=30), Hook("Ends", epoch_end=90)]
)
def test_what_a_callback_takes_is_taken_from_no_other_part(backend: str, hook: Hook, tmp_path: Path) -> None:
    found = of(play(Play(backend=backend, callbacks=(hook,)), tmp_path / "slow"))
    plain = of(play(Play(backend=backend), tmp_path / "plain"))
    cost = names(found, "callbacks")[hook.name]
    assert found.wall_ns == plain.wall_ns + cost * MS
    for name in ("steps", "between_epochs", "loop"):
        own_loop = 2 * 19 * 1
        assert ms(found).get(name, 0) == pytest.approx(ms(plain).get(name, 0), abs=own_loop), name


@pytest.mark.parametrize("freq", [1, 2])
@pytest.mark.parametrize(
    "hook", [CHECKPOINT, Hook("Ends", epoch_end=90), Hook("Begins", epoch_begin=180, epoch_end=9)]
)
def test_what_keras_does_behind_a_validation_is_the_validations(
    hook: Hook, freq: int, tmp_path: Path
) -> None:
    """It releases the iterator, and with it threads that read ahead. Hooks of other epochs' ends, and of
    epochs' begins, take nothing of that."""
    given = Play(
        epochs=4, validation=40, validation_freq=freq, behind_validation=30, between=7, callbacks=(hook,)
    )
    times = of(play(given, tmp_path))
    assert names(times, "validation") == {"validation": 160 / freq, "after its last hook": 120 / freq}
    assert ms(times)["between_epochs"] == 4 * 7
    assert names(times, "callbacks") == {hook.name: 4 * (hook.epoch_begin + hook.epoch_end or 4 * 50)}


def test_a_checkpoint_every_five_steps_is_all_of_its_seconds(tmp_path: Path) -> None:
    found = of(play(Play(epochs=3, calls=40, callbacks=(CHECKPOINT,)), tmp_path))
    assert names(found, "callbacks") == {"Checkpoint": 3 * 8 * 50}


def test_an_old_log_says_what_it_does_not_split(tmp_path: Path) -> None:
    found = of(play(Play(old=True, callbacks=(SLOW,), validation=70), tmp_path))
    assert names(found, "loop") == {"callbacks and loop": 2 * 19 * 31}
    assert list(names(found, "between_epochs")) == ["callbacks and what is between epochs"]
    assert ms(found)["validation"] == 140
    for part in ("input", "callbacks", "compile"):
        assert found.part(part) is None  # type: ignore[arg-type]
        assert "did not time" in found.absent[part]


def test_a_recorders_loop_has_its_waits_from_the_step_lines(tmp_path: Path) -> None:
    played = play(Play(backend="loop", batch=8, first_batch=100, validation=40), tmp_path)
    found = of(played)
    assert ms(found) == {name: passed for name, passed in played.truth.items() if passed}
    assert "no callbacks" in found.absent["callbacks"]
    assert list(names(found, "loop")) == ["loop"]


def test_what_a_loop_does_between_its_last_step_and_its_validation_is_the_loops(tmp_path: Path) -> None:
    """A checkpoint, say: of a `fit` that time is Keras' preparing of the validation."""
    now = iter(range(0, 10**12, 1_000))
    passed = 0

    def clock() -> int:
        return next(now) + passed

    with StepRecorder(
        tmp_path, clock=clock, hardware=False, profile_steps=None, verbose=0, backend="none"
    ) as recorder:
        for _ in range(3):
            for _ in range(4):
                with recorder.step():
                    passed += 10 * MS
            passed += 200 * MS
            with recorder.validation():
                passed += 50 * MS
            recorder.epoch()
    times = run_time(load(tmp_path))
    assert times is not None
    found = ms(times)
    assert found["validation"] == pytest.approx(150, abs=1)
    assert found["loop"] == pytest.approx(600, abs=1)


def test_what_was_timed_and_took_nothing_is_0_and_not_absent(tmp_path: Path) -> None:
    found = of(play(Play(backend="jax", callbacks=(SLOW,)), tmp_path))
    for name in ("input", "compile", "validation", "profiler"):
        part = found.part(name)  # type: ignore[arg-type]
        assert part.ns == 0
    assert set(found.absent) == {"setup", "loop"}


def test_a_fit_that_broke_off_ends_at_its_last_line(tmp_path: Path) -> None:
    played = play(Play(broken_after=27, fits=2), tmp_path)
    lines = (played.root / "mpprof" / "steps.jsonl").read_text()
    (played.root / "mpprof" / "steps.jsonl").write_text(lines + '{"kind":"fit_end","reason":"error"}\n')
    assert of(played).wall_ns == played.wall * MS


def test_a_run_that_is_alive_has_its_time_so_far(tmp_path: Path) -> None:
    played = play(Play(broken_after=27), tmp_path)
    found = of(played)
    assert found.wall_ns == played.wall * MS
    assert ms(found)["steps"] == 270


def test_steps_whose_lines_are_missing_are_unknown(tmp_path: Path) -> None:
    played = play(Play(epochs=1), tmp_path)
    path = played.root / "mpprof" / "steps.jsonl"
    kept = [
        line
        for line in path.read_text().splitlines()
        if '"step": 7,' not in line and '"step": 8,' not in line
    ]
    path.write_text("\n".join(kept) + "\n")
    assert of(played).unknown_ns == (2 * 10 + 3 * 1) * MS


def test_an_evaluation_within_a_hook_is_that_callbacks(tmp_path: Path) -> None:
    """A callback that evaluates has that in its own hook; it is not counted a second time."""
    played = play(Play(callbacks=(Hook("Evaluates", batch_end=40, every=10),)), tmp_path)
    path = played.root / "mpprof" / "steps.jsonl"
    at = next(line for line in path.read_text().splitlines() if '"step": 10,' in line)
    end_ns = int(at.split('"t_ns": ')[1].split(",")[0]) + 39 * MS
    path.write_text(path.read_text() + f'{{"kind":"validation","t_ns":{end_ns},"duration_ns":{38 * MS}}}\n')
    found = of(played)
    assert names(found, "callbacks") == {"Evaluates": 160}
    assert ms(found)["steps"] == pytest.approx(400, abs=40)
    assert "validation" not in ms(found)


def test_every_sample_sums_to_its_wall_time() -> None:
    found = {path.name: run_time(load(path)) for path in SAMPLES.iterdir() if (path / "mpprof").is_dir()}
    assert len(found) > 20
    for name, one in found.items():
        assert one is not None, name
        assert sum(part.ns for part in one.parts) + one.unknown_ns == one.wall_ns
        assert all(0 <= part.ratio <= 1 for part in one.parts)
        assert one.unknown_ns == 0


_NS = st.integers(-1, 1 << 61)
_SMALL = st.integers(0, 4)


@st.composite
def _runs(draw: st.DrawFn) -> Run:
    n = draw(st.integers(0, 8))

    def column(values: st.SearchStrategy[int], length: int = n) -> np.ndarray:
        return np.array(draw(st.lists(values, min_size=length, max_size=length)), np.int64)

    table = cases.steps(
        np.ones(n), step=column(st.integers(0, 20)), fit=column(_SMALL), epoch=column(_SMALL), covers=1 + column(_SMALL),
        t_ns=column(_NS), duration_ns=column(_NS), gap_ns=column(_NS), dispatch_ns=column(_NS),
        input_wait_ns=column(_NS), profiled=column(_SMALL) > 2,
    )  # fmt: skip
    keys = [
        SpentKey(part, part, at)
        for part in ("callbacks", "input", "compile", "other")
        for at in ("batch", "first", "epoch", "train", "validation")
    ]
    k, e, v = draw(_SMALL), draw(_SMALL), draw(_SMALL)
    spent = SpentTable(
        tuple(keys),
        column(st.integers(0, len(keys) - 1), k),
        *(column(_SMALL, k) for _ in range(4)),
        column(_NS, k),
    )
    epochs = EpochTable(column(_SMALL, e), column(_SMALL, e), column(_NS, e), column(_NS, e))
    maybe = st.none() | st.integers(-(1 << 61), 1 << 61)
    reasons = st.sampled_from([None, "finished", "error", "recording ended"])
    fits = tuple(FitSpan(draw(_SMALL), draw(maybe), draw(maybe), draw(reasons)) for _ in range(draw(_SMALL)))
    validations = ValidationTable(column(st.integers(-(1 << 61), 1 << 61), v), column(_NS, v))
    return cases.run(cases.facts(), table, spans=Spans(fits, epochs, spent), validations=validations)


@settings(max_examples=300, deadline=None)
@given(_runs())
def test_whatever_a_log_states_the_parts_sum_to_the_wall_time(run: Run) -> None:
    found = run_time(run)
    if found is not None:
        assert sum(part.ns for part in found.parts) + found.unknown_ns == found.wall_ns
        assert found.unknown_ns >= 0
        assert all(part.ns >= 0 and 0 <= part.ratio <= 1 for part in found.parts)
        assert all(sum(each.ns for each in part.by) == part.ns for part in found.parts)
