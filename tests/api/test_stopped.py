"""A training that left no word of its end: its answer says so, in every place that asks for it."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

import mpprof
from mpprof.api import source, workflows
from mpprof.runs.state import COPIED_AFTER_S, STOPPED_AFTER_S, has_stopped, last_record_unix_ns
from tests.paths import SAMPLES

SAID = "Training stopped after step 160 without an end on record: its process was killed, or its machine stopped."
WARNED = "the log does not show the end of the training"


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """A sample without the line of its end, whose files were last written when its last line says."""
    run = tmp_path / "killed"
    shutil.copytree(SAMPLES / "v100-convnet-mixed-float16", run)
    steps = run / "mpprof" / "steps.jsonl"
    lines = steps.read_text().splitlines(keepends=True)
    steps.write_text("".join(line for line in lines if json.loads(line).get("kind") != "fit_end"))
    write_at(run, last_line(run))
    return run


def last_line(run: Path) -> int:
    found = last_record_unix_ns(mpprof.load(run))
    assert found is not None
    return found


def write_at(run: Path, unix_ns: int) -> None:
    for file in (run / "mpprof").iterdir():
        os.utime(file, ns=(unix_ns, unix_ns))


def test_the_answer_says_after_which_step_and_the_warning_is_not_said_beside_it(killed: Path) -> None:
    whole = mpprof.diagnose(SAMPLES / "v100-convnet-mixed-float16")
    found = mpprof.diagnose(killed)
    assert found.explanation == (SAID, *whole.explanation)[:2]
    assert (found.verdict, found.cause) == (whole.verdict, whole.cause)
    assert WARNED not in " ".join(found.warnings)
    assert SAID not in whole.explanation


def test_a_copy_is_not_said_to_have_stopped(killed: Path) -> None:
    write_at(killed, last_line(killed) + round((COPIED_AFTER_S + 1) * 1e9))
    found = mpprof.diagnose(killed)
    assert SAID not in found.explanation
    assert WARNED in " ".join(found.warnings)


def test_a_run_that_was_just_written_goes_on(killed: Path) -> None:
    run, last = mpprof.load(killed), last_line(killed)
    assert not has_stopped(run, now_unix_ns=last + round(STOPPED_AFTER_S * 1e9))
    assert has_stopped(run, now_unix_ns=last + round(STOPPED_AFTER_S * 1e9) + 1)


def test_the_page_judges_again_once_nothing_was_written_for_long(
    killed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    last, shown = last_line(killed), source.LogDirectory(killed)
    for after_s, said in ((5, False), (20, True)):
        for module in (source, workflows):
            monkeypatch.setattr(module, "time_ns", lambda after_s=after_s: last + after_s * 10**9)
        assert (SAID in shown.report("killed").answer.because) is said
