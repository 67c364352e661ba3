"""A training that runs while its page is looked at: it is followed, and nothing that was chosen is lost."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.browser.visiting import serving, visit
from tests.paths import ROOT, SAMPLES

pytestmark = pytest.mark.browser
RUN = "v100-odd-vocabulary-mixed-float16"


class Training:
    """A copy of a sample whose training has not ended: `go_on` writes steps as a recorder does."""

    def __init__(self, folder: Path) -> None:
        shutil.copytree(SAMPLES / RUN, folder / RUN)
        self.steps = folder / RUN / "mpprof" / "steps.jsonl"
        lines = self.steps.read_text().splitlines()
        self.kept = [line for line in lines if json.loads(line).get("kind") != "fit_end"]
        self.last = next(json.loads(line) for line in reversed(self.kept) if '"step"' in line)
        self.steps.write_text("\n".join(self.kept) + "\n")
        facts = folder / RUN / "mpprof" / "run.json"
        known = json.loads(facts.read_text())
        known.pop("ended", None)
        facts.write_text(json.dumps(known))

    def go_on(self, steps: int) -> int:
        """Write further steps, and return the number of the last."""
        with self.steps.open("a") as file:
            for _ in range(steps):
                self.last = self.last | {
                    "step": self.last["step"] + 1,
                    "t_ns": self.last["t_ns"] + 52_000_000,
                }
                file.write(json.dumps(self.last) + "\n")
        return int(self.last["step"])

    def end(self) -> None:
        with self.steps.open("a") as file:
            file.write(json.dumps({"kind": "fit_end", "reason": "finished"}) + "\n")

    def grow_old(self) -> None:
        """As if nothing had been written for a minute: the process was killed."""
        for file in self.steps.parent.rglob("*"):
            stat = file.stat()
            os.utime(file, (stat.st_atime - 60, stat.st_mtime - 60))


def test_a_running_training_is_followed_and_no_filter_is_lost(chromium: Any, tmp_path: Path) -> None:
    training = Training(tmp_path)
    training.go_on(1)
    with serving(tmp_path) as address:
        seen = visit(chromium, address, hurries=True)
        seen.open_well(f"/steps?run={RUN}&baseline=none")
        count = "() => document.querySelector('#step-count').textContent"
        before = seen.page.evaluate(count)
        last = training.go_on(40)
        seen.look_again()
        seen.page.wait_for_function(f"was => ({count})() !== was", arg=before)
        assert seen.page.evaluate(count) == str(last)
        seen.turn(f"/kernels?run={RUN}&baseline=none")
        seen.filter("kernels", "short", "gemm")
        rows = seen.column("kernels", "short")
        version = seen.page.get_attribute("#kernels", "data-version")
        training.go_on(5)
        seen.look_again()
        seen.page.wait_for_function(
            "was => document.querySelector('#kernels').dataset.version !== was", arg=version
        )
        seen.page.wait_for_function(
            "() => { const t = document.querySelector('#kernels'); return t.dataset.shown === t.dataset.version; }"
        )
        seen.settle()
        assert seen.page.input_value('#kernels input[data-field="short"]') == "gemm"
        assert seen.column("kernels", "short") == rows
        seen.assert_quiet()


def test_what_is_unfolded_and_switched_off_stays_while_a_training_runs(chromium: Any, tmp_path: Path) -> None:
    training = Training(tmp_path)
    training.go_on(1)
    with serving(tmp_path) as address:
        seen = visit(chromium, address, hurries=True)
        seen.open_well(f"/?run={RUN}&baseline=none")
        seen.page.click(".mp-switch")
        seen.page.click("#checks summary")
        total = seen.text("whatif-total")
        seen.page.evaluate("() => { document.querySelector('#headline').old = true; }")
        training.go_on(20)
        seen.look_again()
        seen.page.wait_for_function("() => !document.querySelector('#headline').old")
        seen.page.wait_for_selector('.mp-switch[aria-checked="false"]')
        assert seen.text("whatif-total") == total
        assert seen.page.locator("#checks details").first.get_attribute("open") is not None
        seen.assert_quiet()


@pytest.mark.parametrize(("how", "said"), [("end", "ended"), ("grow_old", "stopped")])
def test_the_end_of_a_training_is_said_in_the_list(
    chromium: Any, tmp_path: Path, how: str, said: str
) -> None:
    training = Training(tmp_path)
    with serving(tmp_path) as address:
        seen = visit(chromium, address, hurries=True)
        seen.page.goto(f"{address}/runs")
        seen.page.wait_for_selector("#runs[data-drawn]")
        training.go_on(1)  # only now: on a busy machine a log grows old while the page is opened
        state = f"() => document.querySelector('#runs tr[data-run=\"{RUN}\"] .mp-chip')?.textContent"
        seen.page.wait_for_function(f"() => ({state})() === 'running'")
        getattr(training, how)()
        seen.page.wait_for_function(f"said => ({state})() === said", arg=said)
        seen.assert_quiet()


def test_a_run_that_begins_in_an_empty_directory_is_noticed(chromium: Any, tmp_path: Path) -> None:
    with serving(tmp_path) as address:
        seen = visit(chromium, address, hurries=True)
        seen.page.goto(f"{address}/")
        seen.page.wait_for_selector("#page .mp-empty")
        shutil.copytree(SAMPLES / RUN, tmp_path / RUN)
        seen.look_again()
        seen.page.wait_for_selector("#headline")
        seen.assert_quiet()


_LOOP = """
import sys, time
from pathlib import Path
from mpprof.record import StepRecorder

folder = Path(sys.argv[1])
with StepRecorder(folder / "live", backend="none", verbose=0, announce=None, profile_steps=None) as recorder:
    while not (folder / "enough").exists():
        with recorder.step():
            time.sleep(0.01)
        recorder.update(loss=0.5)
"""
_STATE = "() => document.querySelector('#runs tr[data-run=\"live\"] .mp-chip')?.textContent"


_FIT = """
import sys, time
from pathlib import Path
import keras, numpy
from mpprof import MPProfilerCallback

folder = Path(sys.argv[1])

class Waits(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        gate = {8: "on", 25: "enough"}.get(batch)
        while gate and not (folder / gate).exists():
            time.sleep(0.01)

model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(8)])
model.compile("sgd", "mse")
data = numpy.ones((30 * 4, 8), "float32")
recorded = MPProfilerCallback(str(folder / "live"), profile_steps=(13, 15), verbose=0)
model.fit(data, data, batch_size=4, verbose=0, callbacks=[recorded, Waits()])
"""


@contextmanager
def training(folder: Path, script: str = _LOOP) -> Iterator[subprocess.Popen[str]]:
    """A training in a process of its own that records until the file `enough` is there."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "KERAS_BACKEND": "tensorflow"}
    with subprocess.Popen([sys.executable, "-c", script, str(folder)], text=True, env=environment) as process:
        try:
            yield process
        finally:
            process.kill()


def test_zoom_and_chosen_runs_stay_while_a_training_runs_and_its_end_is_said(
    chromium: Any, tmp_path: Path
) -> None:
    shutil.copytree(SAMPLES / RUN / "mpprof", tmp_path / "other" / "mpprof")
    with training(tmp_path) as process, serving(tmp_path) as address:
        seen = visit(chromium, address, hurries=True)
        seen.page.goto(f"{address}/runs")
        seen.page.wait_for_function(f"() => ({_STATE})() === 'running'")
        seen.page.check('#runs tr[data-run="live"] input')
        drawn = seen.page.get_attribute("#runs", "data-drawn")
        seen.page.wait_for_function("was => document.querySelector('#runs').dataset.drawn !== was", arg=drawn)
        assert seen.page.is_checked('#runs tr[data-run="live"] input')

        steps = visit(chromium, address)
        steps.open_well("/steps?run=live&baseline=none")
        count = "() => document.querySelector('#step-count').textContent"
        was = steps.page.evaluate(count)
        steps.look_until(f"was => ({count})() !== was", was)  # and nothing is drawn anew before the next look
        steps.settle()
        span = "() => [...document.querySelector('#step-times .js-plotly-plot').layout.xaxis.range]"
        whole = steps.page.evaluate(span)
        box = steps.page.locator("#step-times .nsewdrag").first.bounding_box()
        middle = box["y"] + box["height"] / 2
        steps.drag((box["x"] + 0.2 * box["width"], middle), (box["x"] + 0.4 * box["width"], middle))
        steps.page.wait_for_function(f"was => ({span})()[1] < was", arg=whole[1])
        chosen = steps.page.evaluate(span)
        before = steps.page.evaluate(count)
        steps.look_until(f"was => ({count})() !== was", before)
        steps.settle()
        assert steps.page.evaluate(span) == chosen
        steps.assert_quiet()

        (tmp_path / "enough").touch()
        assert process.wait(60) == 0
        seen.page.wait_for_function(f"() => ({_STATE})() === 'ended'")
        seen.assert_quiet()


@pytest.mark.full
def test_a_killed_training_is_said_to_have_stopped_within_20_s(chromium: Any, tmp_path: Path) -> None:
    with training(tmp_path) as process, serving(tmp_path) as address:
        lists, whys = (visit(chromium, address, hurries=True) for _ in range(2))
        lists.page.goto(f"{address}/runs")
        lists.page.wait_for_function(f"() => ({_STATE})() === 'running'")
        whys.page.goto(f"{address}/?run=live&baseline=none")
        whys.page.wait_for_selector("#state.mp-state-running")
        process.kill()
        process.wait(60)
        lists.page.wait_for_function(f"() => ({_STATE})() === 'stopped'", timeout=20_000)
        whys.page.wait_for_selector("#state.mp-state-stopped", timeout=20_000)
        said = r"Training stopped after step [\d,]+ without an end on record: its process was killed, or .*"
        assert re.match(said, whys.text("because"))
        lists.assert_quiet()
        whys.assert_quiet()


@pytest.mark.full
@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            "loss service went away",
            r"Training stopped after step \d+ with RuntimeError: loss service went away\.",
        ),
        (
            "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 1610612736 bytes.",
            r"Training ran out of memory after step \d+: 1\.50 GiB asked\.",
        ),
    ],
    ids=["error", "memory"],
)
def test_an_error_that_ends_a_training_leads_the_page_that_followed_it(
    chromium: Any, tmp_path: Path, error: str, said: str
) -> None:
    fails = _LOOP.rstrip() + f"\n    with recorder.step():\n        raise RuntimeError({error!r})\n"
    with training(tmp_path, fails) as process, serving(tmp_path) as address:
        lists, whys = (visit(chromium, address, hurries=True) for _ in range(2))
        lists.page.goto(f"{address}/runs")
        lists.page.wait_for_function(f"() => ({_STATE})() === 'running'")
        whys.page.goto(f"{address}/?run=live&baseline=none")
        whys.page.wait_for_selector("#state.mp-state-running")
        (tmp_path / "enough").touch()
        assert process.wait(60) == 1
        lists.page.wait_for_function(f"() => ({_STATE})() === 'failed'")
        whys.page.wait_for_selector("#state.mp-state-failed")
        assert re.fullmatch(said, whys.text("headline"))
        assert "end on record" not in whys.text("because")
        for each in (lists, whys):
            each.assert_quiet()


def test_a_running_fit_without_a_trace_says_where_it_is_and_not_that_it_ended(
    chromium: Any, tmp_path: Path
) -> None:
    with training(tmp_path) as process, serving(tmp_path) as address:
        seen = visit(chromium, address, hurries=True)
        seen.page.goto(f"{address}/?run=live&baseline=none")
        said = "() => document.querySelector('#headline')?.textContent || ''"
        step = f"() => Number((({said})().match(/^The training is running: step ([\\d,]+)\\.$/) || [])[1]?.replace(',', ''))"
        seen.page.wait_for_function(f"() => ({step})() > 0")
        first = seen.page.evaluate(step)
        shown = seen.page.inner_text("#page")
        assert "killed" not in shown
        assert "training ended" not in shown.lower()
        seen.page.wait_for_function(f"was => ({step})() > was", arg=first)
        (tmp_path / "enough").touch()
        assert process.wait(60) == 0
        seen.page.wait_for_function(f"() => !({said})().startsWith('The training is running')")
        seen.assert_quiet()


@pytest.mark.full
def test_a_running_fit_says_when_its_profile_opens_and_shows_it_once_it_has(
    chromium: Any, tmp_path: Path
) -> None:
    pytest.importorskip("tensorflow")
    said = "() => document.querySelector('#headline')?.textContent || ''"
    with training(tmp_path, _FIT) as process, serving(tmp_path) as address:
        lists, seen = (visit(chromium, address, hurries=True) for _ in range(2))
        lists.page.goto(f"{address}/runs")
        lists.page.wait_for_function(f"() => ({_STATE})() === 'running'", timeout=120_000)
        seen.page.goto(f"{address}/?run=live&baseline=none")
        opens = "step 7, the profile opens at step 13"
        seen.page.wait_for_function(
            f"text => ({said})() === `The training is running: ${{text}}.`", arg=opens, timeout=60_000
        )
        bar = seen.page.locator("#page progress")
        assert bar.evaluate("bar => [bar.value, bar.max]") == [7, 13]
        lists.page.get_by_text(opens).wait_for()
        table = subprocess.run(
            [sys.executable, "-m", "mpprof.cli", "ls", str(tmp_path)],
            capture_output=True, text=True, check=True, cwd=ROOT,
        )  # fmt: skip
        assert f"live: running, {opens}" in table.stdout
        (tmp_path / "on").touch()
        seen.page.wait_for_function(
            f"() => !({said})().startsWith('The training is running')", timeout=60_000
        )
        assert seen.page.is_visible("#state.mp-state-running")
        (tmp_path / "enough").touch()
        assert process.wait(120) == 0
        lists.page.wait_for_function(f"() => ({_STATE})() === 'ended'")
        for each in (lists, seen):
            each.assert_quiet()
