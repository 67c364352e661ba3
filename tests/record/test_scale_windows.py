"""Skipped steps against a known truth where a profile window is open: nothing of ours is read on the device there,
and the input ends within it by itself, also within a call of several steps."""

from __future__ import annotations

import functools
import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from mpprof.store import read_records
from tests.record.processes import done, done_on_jax
from tests.record.training import batches_of_unknown_number, callback, data, model

pytestmark = pytest.mark.framework

STEPS, BAD, EPOCHS, FITS = 53, (2, 19, 20, 52), 3, 2
TOTAL = STEPS * EPOCHS * FITS

WINDOWS: dict[str, Any] = {
    "none": None,
    "auto": "auto",  # opens after 40 calls at the latest: there are 42
    "to the end of the first fit": (46, 900),
    "from one epoch into the next": (46, 60),
    "from the first call after a short one": (54, 70),
    "in the second epoch": (95, 104),
    "in the second fit": (176, 186),
}
CASES = {f"{window}, {calls}": (WINDOWS[window], calls) for window in WINDOWS for calls in (1, 8)}
HALVES = tuple([name for n, name in enumerate(CASES) if (n + n // 2) % 2 == half] for half in (0, 1))
"""Each window is in both, in one with calls of one step and in the other with calls of eight."""
OFTEN = {"tensorflow": HALVES[0][:4], "jax": HALVES[1][3:]}
"""Of every test run: each window, and one of them on both."""
RARELY = {framework: [name for name in CASES if name not in often] for framework, often in OFTEN.items()}
TRAININGS = [
    pytest.param((framework, cases is OFTEN), name, marks=marks, id=f"{framework}-{name}")
    for cases, marks in ((OFTEN, ()), (RARELY, (pytest.mark.full,)))
    for framework in cases
    for name in cases[framework]
]


def often(folder: Path) -> None:
    train(folder, OFTEN[folder.name.partition("-")[0]])


def rarely(folder: Path) -> None:
    train(folder, RARELY[folder.name.partition("-")[0]])


def train(folder: Path, names: list[str]) -> None:
    """Every case of these, with the optimizer's own counter at the end as what really happened."""
    x, y = data(STEPS, BAD)
    truth = {}
    for name in names:
        window, calls = CASES[name]
        made = model(optimizer="sgd", kind="linear", steps_per_execution=calls)
        recorded = callback(folder / name, profile_steps=window)
        for _ in range(FITS):
            batches = batches_of_unknown_number(x, y)
            made.fit(batches, epochs=EPOCHS, verbose=0, callbacks=[recorded])
        result = recorded.result()
        truth[name] = {
            "updates": int(made.optimizer.inner_optimizer.iterations.numpy()),
            "result": [result.steps, result.skipped, result.traced_steps],
        }
    (folder / "truth.json").write_text(json.dumps(truth))


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("windows")


@functools.cache
def trained(framework: str, is_often: bool, out: Path) -> Path:
    """All cases of `OFTEN` or of `RARELY`, below `out`."""
    work = often if is_often else rarely
    out = out / f"{framework}-{work.__name__}"
    out.mkdir()
    if framework == "jax":
        done_on_jax(work, out)
    else:
        done(out / "said", work, out)
    return out


@pytest.fixture
def folder(request: pytest.FixtureRequest, base: Path) -> Path:
    framework, is_often = request.param
    pytest.importorskip("tensorflow")
    pytest.importorskip(framework)
    return trained(framework, is_often, base)


@pytest.mark.parametrize(("folder", "name"), TRAININGS, indirect=["folder"])
def test_steps_and_skips_are_exact(folder: Path, name: str) -> None:
    window, calls = CASES[name]
    truth = json.loads((folder / "truth.json").read_text())[name]
    read = read_records(folder / name)
    assert (read.warnings, read.finished) == ((), True)
    assert "skipped" not in read.facts.absent
    ran, skipped, traced = truth["result"]
    assert ran == TOTAL
    assert skipped == TOTAL - truth["updates"] == len(BAD) * EPOCHS * FITS

    in_epoch = [calls] * (STEPS // calls) + [STEPS % calls] * (STEPS % calls > 0)
    assert read.steps.covers.tolist() == in_epoch * (EPOCHS * FITS)
    assert read.steps.step.tolist() == list(itertools.accumulate(read.steps.covers.tolist()))
    assert read.steps.batch.tolist() == [last - 1 for last in itertools.accumulate(in_epoch)] * (
        EPOCHS * FITS
    )
    assert [fit.first_step for fit in read.facts.fits] == [1, STEPS * EPOCHS + 1]

    # Each reading tells the skips since the one before, wherever a window lay between them.
    lines = [json.loads(line) for line in (folder / name / "mpprof" / "steps.jsonl").read_text().splitlines()]
    told = {line["step"]: line["skipped"] for line in lines if "skipped" in line}
    bad = [step + STEPS * epoch for epoch in range(EPOCHS * FITS) for step in BAD]
    assert told == {
        step: sum(before < one <= step for one in bad) for before, step in itertools.pairwise([0, *told])
    }

    profiled = read.steps.step[read.steps.profiled].tolist()
    assert ([w.status for w in read.facts.profile_windows] == []) == (window is None)
    for one in read.facts.profile_windows:
        assert one.status == "done"
        assert [one.first_step, one.last_step] == traced
        assert one.last_step == profiled[-1]
        assert one.first_step == profiled[0] - (read.steps.covers[read.steps.step == profiled[0]][0] - 1)
