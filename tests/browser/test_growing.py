"""A training that runs while its page is looked at: it is followed, and nothing that was chosen is lost."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.browser.visiting import SAMPLES, serving, visit

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
        seen = visit(chromium, address)
        seen.open_well(f"/steps?run={RUN}&baseline=none")
        count = "() => document.querySelector('#step-count').textContent"
        before = seen.page.evaluate(count)
        last = training.go_on(40)
        seen.page.wait_for_function(f"was => ({count})() !== was", arg=before)
        assert seen.page.evaluate(count) == str(last)
        seen.open_well(f"/kernels?run={RUN}&baseline=none")
        seen.filter("kernels", "short", "gemm")
        rows = seen.column("kernels", "short")
        version = seen.page.get_attribute("#kernels", "data-version")
        training.go_on(5)
        seen.page.wait_for_function(
            "was => document.querySelector('#kernels').dataset.version !== was", arg=version
        )
        seen.page.wait_for_function(
            "() => { const t = document.querySelector('#kernels'); return t.dataset.shown === t.dataset.version; }"
        )
        assert seen.page.input_value('#kernels input[data-field="short"]') == "gemm"
        assert seen.column("kernels", "short") == rows
        seen.assert_quiet()


@pytest.mark.parametrize(("how", "said"), [("end", "ended"), ("grow_old", "stopped")])
def test_the_end_of_a_training_is_said_in_the_list(
    chromium: Any, tmp_path: Path, how: str, said: str
) -> None:
    training = Training(tmp_path)
    training.go_on(1)
    with serving(tmp_path) as address:
        seen = visit(chromium, address)
        seen.page.goto(f"{address}/runs")
        state = f"() => document.querySelector('#runs tr[data-run=\"{RUN}\"] .mp-chip')?.textContent"
        seen.page.wait_for_function(f"() => ({state})() === 'running'")
        getattr(training, how)()
        seen.page.wait_for_function(f"said => ({state})() === said", arg=said, timeout=20_000)
        seen.assert_quiet()


def test_a_run_that_begins_in_an_empty_directory_is_noticed(chromium: Any, tmp_path: Path) -> None:
    with serving(tmp_path) as address:
        seen = visit(chromium, address)
        seen.page.goto(f"{address}/")
        seen.page.wait_for_selector("#page .mp-empty")
        shutil.copytree(SAMPLES / RUN, tmp_path / RUN)
        seen.page.wait_for_selector("#headline", timeout=20_000)
        seen.assert_quiet()
