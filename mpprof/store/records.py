"""The records of one run, read back: facts, step log, validations, hardware samples."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from mpprof.errors import NotFoundError, TooNewError, UnreadableError
from mpprof.model import limits
from mpprof.model.run import UPDATE, FirstBreak, FitFacts, NumbersLook, RunFacts
from mpprof.model.run_time import Spans
from mpprof.model.steps import HardwareTable, StepTable, ValidationTable
from mpprof.regular import read_regular
from mpprof.store import bounded, formats
from mpprof.store.facts import fit_of, read_facts
from mpprof.store.lines import Faults, read_blocks
from mpprof.store.step_columns import HardwareColumns, Record, SpanColumns, StepColumns, validation_table


@dataclass(frozen=True, slots=True)
class Records:
    """What a run's own files hold. None: there is no such file.

    `finished` is False where the last `fit` has no `fit_end`: the process was killed, or still runs, or
    recording ended before it, for which `facts.absent["recording"]` gives the reason.
    `warnings` say what was damaged, with the file and the byte.
    """

    facts: RunFacts | None
    steps: StepTable | None
    validations: ValidationTable | None
    hardware: HardwareTable | None
    finished: bool
    warnings: tuple[str, ...]
    spans: Spans | None = None  # what the step log holds beside steps and validations


def read_records(root: Path, *, worker: int = 0, most_bytes: int | None = None) -> Records:
    """Read the run whose files lie in `<root>/mpprof` (of an extra worker in `worker-<k>` below it). Of a
    step log or samples that hold more than `most_bytes`, only the beginning and the end.

    Raises `NotFoundError` where there is no run, `TooNewError` where a newer mpprof wrote it and
    `UnreadableError` where a file is not mpprof's own. Damage within a file is a warning.
    """
    folder = formats.folder_of(Path(root), worker)
    run_path, steps_path = folder / formats.RUN_FILE, folder / formats.STEPS_FILE
    if not run_path.exists() and not steps_path.exists():
        raise NotFoundError(
            "no records of mpprof here", where=str(root), next="Give a directory that holds mpprof/run.json"
        )
    warnings: list[str] = []
    facts = read_facts(run_path) if run_path.exists() else None
    if facts is None:
        warnings.append(f"{run_path}: missing; the run's facts are not known")
    elif "graphs" not in facts.graph_rewrite_result and (told := rewrite_log_beside(folder)):
        facts = replace(facts, graph_rewrite_result=facts.graph_rewrite_result | told)
    # A process that was killed within its first second has no line of its fit yet.
    begun = facts is None or bool(facts.fits) or "recording" in facts.absent
    log = _read_steps(steps_path, not begun, most_bytes)
    steps = log.steps
    hardware, more = _read_hardware(folder / formats.HARDWARE_FILE, most_bytes)
    if facts is not None and steps is not None:
        absent = _absent(facts, steps) | log.absent
        facts = replace(facts, absent=absent, fits=_with_fits(facts.fits, log.fits))
    said = (*warnings, *log.warnings, *more)
    return Records(facts, steps, log.validations, hardware, log.finished, said, log.spans)


def _with_fits(fits: tuple[FitFacts, ...], noted: dict[int, FitFacts]) -> tuple[FitFacts, ...]:
    """Return the fits of run.json, and between them those of which only the step log holds the facts."""
    known = {fit.fit: fit for fit in fits} | noted
    return tuple(known[number] for number in sorted(known)[: limits.MOST_FITS]) if noted else fits


def _absent(facts: RunFacts, steps: StepTable) -> dict[str, str]:
    """Return the reasons for what is missing, without those of what the run holds after all: they were
    written as it began. What failed later is missing from then on, and keeps its reason."""
    held = {
        "input_wait_ns": (steps.input_wait_ns >= 0).any(),
        "loss": steps.loss_known.any(),
        "loss_scale": steps.loss_scale_known.any(),
        "skipped": (steps.skipped >= 0).any(),
        "memory": (steps.peak_bytes >= 0).any(),
        "batch_size": bool(facts.fits) and facts.fits[-1].batch_size is not None,
    }
    return {
        field: reason
        for field, reason in facts.absent.items()
        if not held.get(field) or reason.startswith(formats.FAILED)
    }


@dataclass
class _Log:
    """What a step log holds beside damage."""

    steps: StepTable | None = None
    validations: ValidationTable | None = None
    spans: Spans | None = None
    finished: bool = True
    warnings: tuple[str, ...] = ()
    fits: dict[int, FitFacts] = field(default_factory=dict)  # those that run.json may not hold
    absent: dict[str, str] = field(default_factory=dict)


def _read_steps(path: Path, finished: bool, most_bytes: int | None) -> _Log:
    faults, columns, spans = Faults(path), StepColumns(), SpanColumns()
    log = _Log(finished=finished)
    validations: list[Record] = []
    late: list[Record] = []
    unsound = 0
    for records in read_blocks(path, "mpprof.steps", faults, most_bytes):
        unsound += columns.add([record for record in records if record.get("kind") == "step"])
        for record in records:
            kind = record.get("kind")  # kinds that are not known here are a newer mpprof's additions
            if kind == "fit":
                log.finished = False
            elif kind == "fit_facts" and len(log.fits) < limits.MOST_FITS:
                fit = fit_of(record)
                log.fits[fit.fit] = fit
            elif kind == "fit_end":
                log.finished = True
                late.append(_numbers(record, _LATE_KEYS))
            elif kind == "recording_end":
                log.finished = False
                log.absent["recording"] = bounded.text(record, "reason") or "ended early"
            elif kind == "update":
                late.append(_numbers(record, _LATE_KEYS))
            elif kind == "validation":
                validations.append(_numbers(record, ("t_ns", "duration_ns")))
            if kind != "step":
                spans.add(record)
    if faults.missing:
        return _Log(warnings=(f"{path}: missing; there are no step records",))
    if unsound:
        faults.notes.append(
            f"{path}: {unsound} step lines hold values of the wrong type or size and were skipped"
        )
    if spans.unsound:
        faults.notes.append(
            f"{path}: {spans.unsound} lines of kind epoch or spent hold values of the wrong type or size and "
            "were skipped"
        )
    table = columns.table()
    if repeated := int(np.count_nonzero(np.diff(table.step) <= 0)):
        faults.notes.append(
            f"{path}: the step number does not grow at {repeated} lines: "
            "a log written twice, or mixed from two runs"
        )
    log.steps, log.validations = _with_late_readings(table, late), validation_table(validations)
    log.spans, log.warnings = spans.spans(), faults.warnings()
    return log


def _with_late_readings(table: StepTable, late: list[Record]) -> StepTable:
    """Return the table with the readings that came after their step's line was written. These readings are in
    lines of their own: those after a fit's last step in `fit_end`, and what a loop reported after an epoch's
    last step in `update`."""
    if not late:
        return table
    skipped = table.skipped.copy()
    columns = {name: getattr(table, name).copy() for key in _LATE for name in (key, f"{key}_known")}
    rows = dict(
        zip(table.step.tolist(), range(len(table)), strict=True)
    )  # of a number written twice the last
    for record in late:
        step, lost = record.get("step"), record.get("skipped")
        if type(step) is not int or (row := rows.get(step)) is None:
            continue
        if type(lost) is int and 0 <= lost <= step:
            skipped[row] = max(int(skipped[row]), 0) + lost
        for name in _LATE:
            if (value := formats.number(record.get(name))) is not None:
                columns[name][row], columns[f"{name}_known"][row] = value, True
    for column in (skipped, *columns.values()):
        column.setflags(write=False)
    return replace(table, skipped=skipped, **columns)


_LATE = ("loss", "loss_scale")
_LATE_KEYS = ("step", "skipped", *_LATE)


def _numbers(record: Record, keys: tuple[str, ...]) -> Record:
    """Return what is read of a line, without the rest of it, which may be large."""
    return {key: record[key] for key in keys if isinstance(record.get(key), int | float | str)}


def _read_hardware(path: Path, most_bytes: int | None) -> tuple[HardwareTable | None, tuple[str, ...]]:
    faults, columns = Faults(path), HardwareColumns()
    try:
        for records in read_blocks(path, "mpprof.hardware", faults, most_bytes):
            columns.add(records)
    except TooNewError:
        raise
    except UnreadableError as error:  # samples are an extra: the run is readable without them
        return None, (str(error),)
    if faults.missing:
        return None, ()  # samples are an extra: run.json's `absent` says why there are none
    return columns.table(), faults.warnings()


# --- What TensorFlow's graph rewrite for mixed precision says of itself in a log: a text handed to us.
#
# The lines are TensorFlow 2.21's (`auto_mixed_precision.cc`); older ones say "AutoMixedPrecision" nowhere
# else either, so that a whole process' log may be given.

REWRITE_LOG = "graph_rewrite.log"
"""Beside run.json: a log of the training, put there by hand."""
_MOST_LOG_BYTES = 64 << 20

_CONVERTED = re.compile(
    r"Converted (\d{1,12})/(\d{1,12}) nodes to (\w+) precision using (\d{1,12}) cast\(s\)"
)
_NOTHING = re.compile(r"No (?:allowlist|whitelist) ops found, nothing to do")


def read_rewrite_log(text: str) -> dict[str, Any] | None:
    """Return {graphs, converted_graphs, nodes, converted_nodes, casts, dtype}, summed over all graphs; None
    where the rewrite reports nothing. `nodes` counts those of the converted graphs: for the others the log
    states no number."""
    converted = _CONVERTED.findall(text)
    graphs = len(converted) + len(_NOTHING.findall(text))
    if not graphs:
        return None
    facts: dict[str, Any] = {"source": "log", "graphs": graphs, "converted_graphs": len(converted)}
    for key, column in (("converted_nodes", 0), ("nodes", 1), ("casts", 3)):
        facts[key] = sum(int(row[column]) for row in converted)
    if converted:
        facts["dtype"] = converted[-1][2]
    return facts


def rewrite_log_beside(folder: Path) -> dict[str, Any] | None:
    """Return the same as `read_rewrite_log` for the log in a run's folder; None where there is no log, or
    where it cannot be read."""
    try:
        text = read_regular(folder / REWRITE_LOG, _MOST_LOG_BYTES).decode("utf-8", "replace")
    except (OSError, UnreadableError):
        return None
    return read_rewrite_log(text)


# --- the looks at the numbers by layer ---------------------------------------------------------------------


def read_looks(root: Path) -> tuple[NumbersLook, ...]:
    """Return the looks of the run at `root` in their order; empty where it has none. Damaged parts are
    skipped, and so is a file that is not mpprof's: `mpprof numerics` says so."""
    path = formats.folder_of(root) / formats.NUMERICS_FILE
    if not path.exists():
        return ()
    records = chain.from_iterable(read_blocks(path, "mpprof.numerics", Faults(path)))
    try:
        return tuple(_look(record) for record in islice(records, limits.MOST_LOOKS))
    except UnreadableError:
        return ()


def _look(record: dict[str, Any]) -> NumbersLook:
    scale = record.get("loss_scale")
    band = scale if isinstance(scale, dict) else {}
    told = record.get("advice")
    first = "first_forward" if record.get("first_forward") else "first_backward"
    listed = [each for each in told if isinstance(each, dict)] if isinstance(told, list) else []
    advice = {str(each.get("of", first)): each for each in reversed(listed)}
    now, low, high = (formats.number(band.get(name)) for name in ("now", "low", "high"))
    return NumbersLook(
        bounded.name(record, "trigger") or "asked",
        bounded.whole(record, "step"),
        _break(record.get("first_forward"), advice.get("first_forward", {})),
        _break(record.get("first_backward"), advice.get("first_backward", {})),
        now,
        low,
        high,
        banded=bool(band),
        updates=_updates(advice.get("updates", {})),
    )


def _break(found: Any, advice: dict[str, Any]) -> FirstBreak | None:
    if not isinstance(found, dict):
        return None
    layer, tensor, reason = (bounded.name(found, key) for key in ("layer", "tensor", "reason"))
    if layer is None or tensor is None or reason is None:
        return None
    kind, source, text = (
        bounded.name(found, "kind"),
        bounded.name(found, "source"),
        bounded.name(advice, "text"),
    )
    return FirstBreak(layer, tensor, reason, kind, source, text, bounded.text(advice, "snippet"))


def _updates(advice: dict[str, Any]) -> FirstBreak | None:
    """Return what an update loses, as its advice says after a colon."""
    layer, text = bounded.name(advice, "layer"), bounded.name(advice, "text")
    reason = (text or "").partition(": ")[2].rstrip(".")
    if layer is None or not reason:
        return None
    return FirstBreak(layer, UPDATE, reason, "underflow", None, text, bounded.text(advice, "snippet"))
