"""Fits played on a clock of their own: what a recorder writes of them on each backend, and what truly passed.

Times are in ms. The truth is counted by the play itself, line by line, and not by the arithmetic under test.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Backend = Literal["tensorflow", "jax", "torch", "loop"]
MS = 1_000_000


@dataclass(frozen=True)
class Hook:
    """A callback of the user's: ms it takes at each batch's and each epoch's begin and end. `every`: only at
    each so many-th batch."""

    name: str
    batch_begin: int = 0
    batch_end: int = 0
    epoch_begin: int = 0
    epoch_end: int = 0
    train_begin: int = 0
    every: int = 1


@dataclass(frozen=True)
class Play:
    """A training; ms of its pieces. The hooks of `callbacks` run between two calls, whatever their order."""

    backend: Backend = "tensorflow"
    epochs: int = 2
    calls: int = 20
    covers: int = 1
    call: int = 10
    first_call: int = 0
    compile: int = 0
    loop: int = 1
    batch: int = 0
    first_batch: int = 0
    burst: tuple[int, int] = (0, 0)  # at each so many-th batch, the wait for it
    workers: int = 0
    waits: int | None = None  # for the device, every 16 calls (JAX)
    validation: int = 0
    validation_freq: int = 1
    ahead_of_validation: int = 0
    behind_validation: int = 0
    between: int = 2
    callbacks: tuple[Hook, ...] = ()
    window: tuple[int, int, int, int] | None = None  # first and last step, and what opening and closing take
    fits: int = 1
    broken_after: int | None = None  # calls, of the last fit
    old: bool = False  # as an mpprof wrote it that timed no parts
    absent: dict[str, str] = field(default_factory=dict)


@dataclass
class Played:
    """What was written, and the truth: ms by part and by callback."""

    root: Path
    truth: Counter[str]
    by_name: Counter[str]
    wall: int


class _Stage:
    def __init__(self, play: Play) -> None:
        self.play, self.now, self.step, self.fit = play, 0, 0, 1
        self.lines: list[dict[str, Any]] = [{"schema": "mpprof.steps/1"}]
        self.truth: Counter[str] = Counter()
        self.by_name: Counter[str] = Counter()
        self.spent: dict[tuple[str, str, str], list[int]] = {}
        self.windows: list[dict[str, Any]] = []

    def pass_(self, part: str, ms: int, *spent: str) -> None:
        """Let this time pass; `spent`: as the recorder writes it, (part, name, at)."""
        self.now += ms
        self.truth[part] += ms
        if spent and ms:
            row = self.spent.setdefault((spent[0], spent[1], spent[2]), [max(1, self.step), 0, 0])
            row[1:] = [row[1] + 1, row[2] + ms]
            if part == "callbacks":
                self.by_name[spent[1]] += ms
            stalls = part == "callbacks" or (part == "input" and self.play.burst[0])
            if stalls and ms >= 10 and spent[2] == "batch":  # a stall gets a line of its own
                self.stalled(row, (spent[0], spent[1], spent[2]), ms)

    def stalled(self, row: list[int], key: tuple[str, str, str], ms: int) -> None:
        """Write what was summed before, then the call that took so long."""
        row[1:] = [row[1] - 1, row[2] - ms]
        if row[1]:
            self.flush(self.fit, key)
        self.spent.pop(key, None)
        # On JAX a call begins before its batch is taken.
        step = max(1, self.step + (key[0] == "input" and self.play.backend == "jax"))
        self.spent[key] = [step, 1, ms]
        self.flush(self.fit, key)

    def hooks(self, hooks: tuple[Hook, ...], kind: str, at: str, number: int = 1) -> None:
        for hook in hooks:
            due = at != "batch" or number % hook.every == 0
            self.pass_("callbacks", getattr(hook, kind) if due else 0, "callbacks", hook.name, at)

    def write(self, kind: str, **values: Any) -> None:
        self.lines.append({"kind": kind, **values})

    def flush(self, fit: int, only: tuple[str, ...] | None = None) -> None:
        due = [key for key in self.spent if only in (None, key)]
        for part, name, at in due:
            first, calls, ms = self.spent.pop((part, name, at))
            self.write(
                "spent", part=part, name=name, at=at, fit=fit, first_step=first, last_step=max(first, self.step),
                calls=calls, ns=ms * MS,
            )  # fmt: skip


def play(given: Play, folder: Path) -> Played:
    """Play a training and write its records to `folder`."""
    stage = _Stage(given)
    wall = 0
    for fit in range(1, given.fits + 1):
        begin = stage.now
        _fit(stage, fit, broken=given.broken_after if fit == given.fits else None)
        wall += stage.now - begin
        stage.now += 500  # between two fits, which is of none
    lines = stage.lines
    if given.old:
        lines = [line for line in lines if line.get("kind") not in ("epoch", "spent")]
        lines = [
            {k: v for k, v in line.items() if line.get("kind") != "fit_end" or k != "t_ns"} for line in lines
        ]
    target = folder / "mpprof"
    target.mkdir(parents=True)
    (target / "steps.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (target / "run.json").write_text(json.dumps(_facts(stage, folder.name)))
    return Played(folder, stage.truth, stage.by_name, wall)


def _fit(stage: _Stage, fit: int, broken: int | None) -> None:
    given, stage.fit = stage.play, fit
    hooks = given.callbacks
    begins_only = given.backend in ("jax", "torch")
    to_next = "dispatch_ns" if given.backend == "jax" else "interval_ns"  # torch on a CPU does not run behind
    stage.write("fit", fit=fit, t_ns=stage.now * MS)
    stage.hooks(hooks, "train_begin", "train")
    ran = 0
    for epoch in range(given.epochs):
        stage.pass_("between_epochs", given.between)
        stage.hooks(hooks, "epoch_begin", "epoch begin")
        epoch_begin, end = stage.now, None
        synced, waited = False, stage.now
        open_line: dict[str, Any] | None = None
        latest: dict[str, Any] = {}
        for number in range(1, given.calls + 1):
            fetches_before = given.backend in ("torch", "loop")
            if fetches_before:
                wait = _fetch(stage, number)
            if not begins_only:
                stage.hooks(hooks, "batch_begin", "batch", number)
            window = given.window
            if open_line is not None:
                begin = stage.now
                open_line |= {"t_ns": begin * MS, to_next: (begin - open_line.pop("begin")) * MS}
                synced = given.waits is not None and (number - 1) % 16 == 0
                if synced:
                    open_line |= {"synced": True, "interval_ns": (begin - waited) * MS // 16}
                    waited = begin
                stage.write("step", **open_line)
                _close(stage, window)
            if window is not None and stage.step + 1 == window[0]:
                stage.pass_("profiler", window[2])
            if end is not None:
                latest["interval_ns"] = (stage.now - begin) * MS
            begin = stage.now
            if begins_only:  # a call begins before the hooks of all, and elsewhere behind them
                if number == 1:
                    waited = begin
                elif synced:
                    stage.pass_("steps", given.waits or 0)
                stage.hooks(hooks, "batch_begin", "batch", number)
            wait = wait if fetches_before else _fetch(stage, number)
            if number == 1 and epoch == 0:
                timed = ("compile", "jax", "batch") if given.backend in ("jax", "torch") else ()
                stage.pass_("compile", given.compile, *timed)
                stage.pass_("steps", given.first_call)
            stage.pass_("steps", given.call)
            stage.step += given.covers
            line: dict[str, Any] = {
                "step": stage.step, "fit": fit, "epoch": epoch, "batch": number - 1, "covers": given.covers,
                "t_ns": stage.now * MS,
                "profiled": window is not None and window[0] <= stage.step <= window[1],
            }  # fmt: skip
            if begins_only:
                open_line = {**line, "begin": begin}
            else:
                line["duration_ns"] = (stage.now - begin) * MS
                if end is not None:
                    line["gap_ns"] = (begin - end - _opened(window, line)) * MS
                if given.backend == "loop":
                    line["input_wait_ns"] = wait * MS
                stage.write("step", **line)
                end, latest = stage.now, stage.lines[-1]
                _close(stage, window)
            stage.hooks(hooks, "batch_end", "batch", number)
            ran += 1
            if broken is not None and ran == broken:
                if not begins_only:
                    stage.flush(fit)
                    stage.now = end or stage.now
                return
            if number < given.calls:
                stage.pass_("loop", given.loop)
        validation = given.validation if (epoch + 1) % given.validation_freq == 0 else 0
        if validation:
            stage.pass_("validation", given.ahead_of_validation)
        if open_line is not None:
            open_line.pop("begin")
            stage.write("step", **{**open_line, "t_ns": stage.now * MS})
        if validation:
            stage.pass_("validation", validation)
            stage.write("validation", t_ns=stage.now * MS, duration_ns=validation * MS)
            stage.pass_("validation", given.behind_validation)
        stage.hooks(hooks, "epoch_end", "epoch")
        stage.write("epoch", fit=fit, epoch=epoch, begin_ns=epoch_begin * MS, end_ns=stage.now * MS)
        if given.backend != "loop":
            stage.spent["callbacks", "mpprof", "batch"] = [
                max(1, stage.step),
                1,
                0,
            ]  # the recorder's own hooks
        stage.flush(fit)
    stage.flush(fit)
    stage.write("fit_end", reason="finished", t_ns=stage.now * MS)


def _close(stage: _Stage, window: tuple[int, int, int, int] | None) -> None:
    """Close the window where its last step has run. Where only begins are seen that is at the next one."""
    if window is not None and stage.step == window[1]:
        stage.pass_("profiler", window[3])
        stage.windows.append(
            {"first_step": window[0], "last_step": window[1], "start_cost_ns": window[2] * MS,
             "stop_cost_ns": window[3] * MS, "status": "done"}
        )  # fmt: skip


def _opened(window: tuple[int, int, int, int] | None, line: dict[str, Any]) -> int:
    return window[2] if window is not None and line["step"] == window[0] else 0


def _fetch(stage: _Stage, number: int) -> int:
    """Fetch a batch: recorded on JAX and torch, within the graph and not seen on TensorFlow."""
    given = stage.play
    wait = given.first_batch + given.batch if number == 1 else given.batch
    if given.burst[0] and number % given.burst[0] == 0:
        wait += given.burst[1]
    spent = ("input", "generator", "first" if number == 1 else "batch")
    stage.pass_("input", wait, *(spent if given.backend in ("jax", "torch") else ()))
    return wait


def _facts(stage: _Stage, name: str) -> dict[str, Any]:
    backend, play_ = stage.play.backend, stage.play
    absent = {"run_time.setup": "not seen"}
    if backend == "tensorflow":
        absent["run_time.input"] = "TensorFlow fetches within the graph"
    if backend in ("tensorflow", "loop"):
        absent["run_time.compile"] = "only counted"
    framework = {"backend": "none", "loop": "custom"} if backend == "loop" else {"backend": backend}
    return {
        "schema": "mpprof.run/1", "run_id": f"played {name}", "created_unix_ns": 1_760_000_000_000_000_000,
        "clock": {"monotonic_ns": 0, "unix_ns": 1_760_000_000_000_000_000}, "framework": framework,
        "fits": [
            {"fit": fit, "first_step": 1, "input": {"kind": "PyDataset", "workers": play_.workers}}
            for fit in range(1, play_.fits + 1)
        ],
        "profile_windows": stage.windows,
        "timing": {"basis": "asynchronous" if backend == "jax" else "synchronous", "read_every": 16, "note": ""},
        "absent": ({} if play_.old else absent) | play_.absent,
    }  # fmt: skip
