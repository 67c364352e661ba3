"""What the end of a `fit` says, and that it costs no more the longer its run is."""

from __future__ import annotations

import itertools
import json
import os
import shlex
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import mpprof
from mpprof import cli
from mpprof.analysis.steps.run_time import run_time
from mpprof.api import workflows
from mpprof.record import StepRecorder, end_of_fit
from mpprof.record.end_of_fit import command, last_line
from mpprof.record.session import END_OF_FIT
from mpprof.store import read_records
from tests.record import hangs
from tests.record.training import BATCH, callback, data, model

VERDICT = "mpprof.api.workflows:announce"


def fit(made: Any, steps: int, *callbacks: Any, **more: Any) -> None:
    x, y = data(steps)
    made.fit(x, y, **{"batch_size": BATCH, "verbose": 0, "callbacks": list(callbacks), **more})


def record(logdir: Path, steps: int) -> None:
    with StepRecorder(
        logdir, backend="none", hardware=False, verbose=0, announce=None, profile_steps=None
    ) as recorder:
        for _ in range(steps):
            with recorder.step():
                pass


# --- a long run -------------------------------------------------------------------------------------------


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes of records are read, block by block."""
    from mpprof.store import lines

    sizes: list[int] = []
    parse = lines.parse

    def counting(whole: bytes, *more: Any) -> Any:
        sizes.append(len(whole))
        return parse(whole, *more)

    monkeypatch.setattr(lines, "parse", counting)
    return sizes


def test_the_verdict_on_a_long_run_is_that_of_its_beginning_and_its_end(
    tmp_path: Path, parsed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workflows, "ANNOUNCED_BYTES", 1 << 17)
    record(tmp_path, 4000)
    assert (tmp_path / "mpprof" / "steps.jsonl").stat().st_size > 3 << 17
    said = workflows.announce(tmp_path)
    assert sum(parsed) <= 1 << 17
    steps = read_records(tmp_path, most_bytes=1 << 17).steps
    (gap,) = np.flatnonzero(np.diff(steps.step) != 1)
    first, last = int(gap) + 1, len(steps) - int(gap) - 1
    assert (steps.step[gap], steps.step[-1]) == (first, 4000)
    assert said.endswith(f". This covers the first {first:,} and the last {last:,} steps.")
    part = mpprof.diagnose(workflows.load_at(tmp_path, most_bytes=1 << 17))
    assert part.verdict in said
    whole = mpprof.load(tmp_path).steps
    assert len(whole) == 4000  # who asks for the run gets all of it


def test_the_verdict_on_a_run_that_is_read_whole_is_the_reports(tmp_path: Path) -> None:
    record(tmp_path, 100)
    answer = mpprof.diagnose(mpprof.load(tmp_path)).answer
    for said in (answer.head, answer.sentence, answer.do):
        assert said in workflows.announce(tmp_path)


def test_of_samples_and_further_workers_as_much_is_read(tmp_path: Path, parsed: list[int]) -> None:
    record(tmp_path, 20)
    folder = tmp_path / "mpprof"
    samples = [json.dumps({"t_ns": k, "gpu": 0, "power_w": float(k)}) for k in range(5000)]
    (folder / "hardware.jsonl").write_text("\n".join(['{"schema":"mpprof.hardware/1"}', *samples]) + "\n")
    (folder / "worker-1").mkdir()
    more = [json.dumps({"kind": "step", "step": k, "fit": 1, "t_ns": k}) for k in range(1, 5001)]
    (folder / "worker-1" / "steps.jsonl").write_text("\n".join(['{"schema":"mpprof.steps/1"}', *more]) + "\n")
    run = workflows.load_at(tmp_path, most_bytes=1 << 14)
    assert sum(parsed) <= 3 << 14
    assert (run.hardware.t_ns[0], run.hardware.t_ns[-1]) == (0, 4999)
    assert 100 < len(run.hardware) < 1000
    assert (run.workers[1].step[0], run.workers[1].step[-1]) == (1, 5000)


def test_damage_behind_what_is_not_read_is_told_with_its_place(tmp_path: Path) -> None:
    record(tmp_path, 2000)
    path = tmp_path / "mpprof" / "steps.jsonl"
    whole = path.read_bytes()
    at = whole.rindex(b'{"kind":"step"')
    path.write_bytes(whole[:at] + b"x" + whole[at + 1 :] + b'{"kind":"st')
    said = " ".join(read_records(tmp_path, most_bytes=1 << 14).warnings)
    assert f"the first at byte {at}" in said
    assert f"cut off at byte {len(whole)} " in said


@pytest.mark.framework
def test_short_fits_of_a_long_run_are_not_judged_anew(
    trained: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    judged: list[Path] = []
    judge = end_of_fit.in_own_process
    monkeypatch.setattr(
        end_of_fit,
        "in_own_process",
        lambda name, root, **more: (judged.append(root), judge(name, root, **more))[1],
    )
    monkeypatch.setattr(end_of_fit, "MOST_RATIO", 1e9)
    recorded = callback(tmp_path, verbose=1, announce=VERDICT)
    said = []
    for steps in (30, 1, 1, 1, 1):
        fit(trained, steps, recorded)
        said.append(capsys.readouterr().out)
    assert [", mean " in line for line in said] == [False] * 5  # the step time is read with the verdict
    assert judged == [tmp_path] * 2
    assert said[1].startswith("mpprof: 31 steps, 0 skipped")
    assert all(line.endswith(f"More: mpprof report {tmp_path}\n") for line in said)


@pytest.mark.framework
def test_of_short_fits_the_first_alone_gets_the_verdict_of_mpprof(
    trained: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has a callback of its own. The clock is the verdict's: each takes a second of it."""
    now_s = 100.0

    def judge(name: str, root: Path, **_: Any) -> str:
        nonlocal now_s
        now_s += 1.0
        return "A verdict."

    monkeypatch.setattr(end_of_fit, "in_own_process", judge)
    monkeypatch.setattr(end_of_fit, "time", SimpleNamespace(monotonic=lambda: now_s))
    for number in range(4):
        fit(trained, 20, callback(tmp_path / str(number), verbose=1, announce=VERDICT))
        now_s += 9.0 if number < 2 else 20.0
    said = capsys.readouterr().out.splitlines()
    assert ["A verdict." in line for line in said] == [True, False, False, True]
    assert all(f"More: mpprof report {tmp_path / str(k)}" in line for k, line in enumerate(said))


class Clock:
    """Nanoseconds: a little at each look, and what is let pass; a verdict takes three seconds of it."""

    now = 0

    def __call__(self) -> int:
        self.now += 1_000
        return self.now

    def judges(self, root: Path) -> str:
        self.now += 3_000_000_000
        return "A verdict."


@pytest.mark.framework
def test_the_verdict_is_in_the_wall_time_of_its_fit(trained: Any, tmp_path: Path) -> None:
    clock = Clock()
    recorded = callback(tmp_path, verbose=1, announce=clock.judges, clock=clock)
    for steps in (20, 20):
        fit(trained, steps, recorded)
    found = run_time(mpprof.load(tmp_path))
    assert found is not None
    parts = {part.name: {each.name: each.ns for each in part.by} for part in found.parts}
    assert parts["profiler"][END_OF_FIT] == pytest.approx(6e9, rel=1e-3)
    assert found.wall_ns == sum(sum(by.values()) for by in parts.values()) + found.unknown_ns
    assert found.wall_ns < 6.1e9


def test_the_verdict_of_a_loop_is_in_its_wall_time(tmp_path: Path) -> None:
    clock = Clock()
    settings: Any = {"hardware": False, "profile_steps": None, "backend": "none", "clock": clock}
    with StepRecorder(tmp_path, announce=clock.judges, **settings) as recorder:
        for _ in range(20):
            with recorder.step():
                clock.now += 1_000_000
    found = run_time(mpprof.load(tmp_path))
    assert found is not None
    assert found.part("profiler").ns == pytest.approx(3e9, rel=1e-3)
    assert found.wall_ns == pytest.approx(3e9 + 20e6, rel=1e-3)  # the steps and the verdict


@pytest.mark.framework
def test_a_function_of_the_users_own_is_asked_at_every_end(
    trained: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded = callback(tmp_path, verbose=1, announce=lambda root: "Mine.")
    for steps in (20, 1):
        fit(trained, steps, recorded)
    assert capsys.readouterr().out.count("Mine.") == 2


LOOP = """
import os, pathlib
def judge(root):
    root.joinpath("part").write_text(str(os.getpid()))
    root.joinpath("part").rename(root / "pid")
    while True:
        pass
def fail(root):
    print("on the way")
    raise ValueError(root)
def answer(root):
    print("on the way")
    return f"A verdict on {root.name}."
"""


@pytest.fixture
def judges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module of the user's own, beside their script."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "judges.py").write_text(LOOP)
    monkeypatch.syspath_prepend(str(tmp_path / "code"))
    return "judges"


def test_a_verdict_that_takes_too_long_is_killed(
    judges: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    psutil = pytest.importorskip("psutil")
    wait = subprocess.Popen.communicate

    def until_it_computes(self: Any, *arguments: Any, **more: Any) -> Any:
        while not (tmp_path / "pid").exists() and self.poll() is None:
            os.sched_yield()
        return wait(self, *arguments, **more)

    monkeypatch.setattr(subprocess.Popen, "communicate", until_it_computes)
    monkeypatch.setattr(end_of_fit, "PATIENCE_SECONDS", 0.0)
    assert end_of_fit.verdict(f"{judges}:judge", tmp_path) is None
    assert not psutil.pid_exists(int((tmp_path / "pid").read_text()))


def test_a_verdict_by_name_comes_from_another_process_that_finds_the_users_modules(
    judges: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert end_of_fit.verdict(f"{judges}:answer", tmp_path) == f"A verdict on {tmp_path.name}."
    assert end_of_fit.verdict(f"{judges}:fail", tmp_path) is None
    assert judges not in sys.modules
    assert capfd.readouterr() == ("", "")


def test_a_packed_program_is_not_started_again(
    judges: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    assert end_of_fit.verdict(f"{judges}:answer", tmp_path) is None


def test_a_slow_function_of_the_users_own_is_left_to_end_by_itself(tmp_path: Path) -> None:
    threads: list[threading.Thread] = []
    ended: list[Path] = []

    def slow(root: Path) -> str:
        threads.append(threading.current_thread())
        hangs.hanging()
        released.wait(hangs.GIVEN_UP_S)
        ended.append(root)
        return "late"

    released = threading.Event()
    assert end_of_fit.verdict(slow, tmp_path) is None
    released.set()
    hangs.join_by_the_clock(threads[0], hangs.GIVEN_UP_S)
    assert ended == [tmp_path]


# --- several runs below one directory ---------------------------------------------------------------------


def pasted(line: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What the command at the end of a printed line prints."""
    words = shlex.split(line.rpartition("More: ")[2])
    assert words[:2] == ["mpprof", "report"]
    assert cli.main([*words[1:], "--format", "json"]) == 0
    return capsys.readouterr().out


@pytest.mark.framework
def test_what_is_shown_is_of_its_run_also_where_others_lie_below_it(
    trained: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(end_of_fit, "MOST_RATIO", 1e9)
    first, second = (callback(tmp_path, verbose=1, announce=VERDICT) for _ in range(2))
    fit(trained, 24, first)
    alone = capsys.readouterr().out
    fit(trained, 31, second)
    below = capsys.readouterr().out
    fit(trained, 6, first)
    above = capsys.readouterr().out
    assert second.root.parent == first.root == tmp_path
    for said in (alone, below, above):
        assert "CPU" in said
    assert alone.endswith(f"More: mpprof report {tmp_path}\n")
    for recorded, said, steps in ((first, above, 30), (second, below, 31)):
        result = recorded.result()
        assert result.verdict == workflows.announce(recorded.root)
        assert result._repr_html_().startswith("<iframe")
        for shown in (said, str(result)):
            assert json.loads(pasted(shown, capsys))["steps"]["count"] == steps


@pytest.mark.framework
def test_a_trace_of_a_run_below_is_none_of_the_run_above(trained: Any, tmp_path: Path) -> None:
    above, below = callback(tmp_path), callback(tmp_path, profile_steps=(3, 5))
    for recorded in (above, below):
        fit(trained, 12, recorded)
    assert mpprof.load(below.root).traces
    assert workflows.load_at(tmp_path).traces == ()
    assert mpprof.load(tmp_path / "mpprof").traces == ()
    assert mpprof.load(tmp_path / "mpprof" / "run.json").traces == ()


# --- one line ---------------------------------------------------------------------------------------------


NAMES = ["two\nlines", "it's\ra tab\t\\n", "\x1b[31m ü", b"\xff\n".decode("utf-8", "surrogateescape")]


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here to paste into")
@pytest.mark.parametrize("name", NAMES)
def test_a_path_with_a_newline_is_told_in_one_line_and_can_be_pasted(tmp_path: Path, name: str) -> None:
    root = tmp_path / name
    record(root, 3)
    line = last_line(lambda path: "A verdict\nof two lines.", root, lambda step_time: "3 steps")
    assert line.isprintable()
    assert line.startswith("mpprof: 3 steps. A verdict of two lines. More: mpprof report ")
    shell = line.rpartition("More: mpprof report ")[2]
    said = subprocess.run(["bash", "-c", f"printf %s {shell}"], capture_output=True, check=True)
    assert said.stdout == bytes(root)


def test_a_path_that_looks_like_an_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert command(tmp_path / "-run") == "mpprof report ./-run"
    assert command(tmp_path / "run 1") == "mpprof report 'run 1'"


# --- epochs of one call -----------------------------------------------------------------------------------


@pytest.mark.framework
def test_epochs_of_one_step_have_no_step_times_and_the_report_says_why(
    keras: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x, y = data(4)
    recorded = callback(tmp_path, verbose=1, announce=VERDICT)
    model().fit(x, y, batch_size=len(x), epochs=24, verbose=0, callbacks=[recorded])
    found = mpprof.diagnose(mpprof.load(tmp_path))
    finding = found.findings[0]
    assert finding.code == "MP911"
    assert finding.summary.startswith("no step has a time: each of the 24 epochs is a single call")
    assert "steps_per_epoch" in finding.remedy
    unable = {each.code: each.reason for each in found.unable}
    assert all("single call" in unable[code] for code in ("MP901",))
    assert "no step has a time" in capsys.readouterr().out.lower()  # a sentence may begin with it


@pytest.mark.parametrize("verbose", [0, 1])
def test_what_a_loops_end_takes_is_in_its_wall_time_though_nothing_is_printed(
    verbose: int, tmp_path: Path
) -> None:
    looks = itertools.count(0, 5_000_000)  # each look at the clock takes as long
    settings: Any = {"hardware": False, "profile_steps": None, "backend": "none", "announce": None}
    with StepRecorder(tmp_path, verbose=verbose, clock=lambda: next(looks), **settings) as recorder:
        for _ in range(20):
            with recorder.step():
                pass
    found = run_time(mpprof.load(tmp_path))
    assert found is not None
    by = {each.name: each.ns for each in found.part("profiler").by}
    assert by[END_OF_FIT] >= 5_000_000
