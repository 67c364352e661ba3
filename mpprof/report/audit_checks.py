"""A gate before training: an audit against the table [audit] of a bounds file, and against an older audit.

[audit]
min_matrix_unit_ratio = 0.95      # of the multiplications with weights, where they can run on matrix units
min_16_bit_ratio = 0.9            # the same, in 16 bits or less
max_peak_memory_bytes = 15_000_000_000
max_least_ns = 4_000_000          # of the products of a step, at the card's peak rates
forbidden = ["float32-island", "error"]
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from mpprof.errors import UsageError
from mpprof.model import quantities
from mpprof.model.audit import UNITS, AuditMemory, AuditReport, MatrixWork
from mpprof.model.frozen import frozen
from mpprof.regular import read_regular
from mpprof.report import bounds_file, checks
from mpprof.report.checks import Forbidden, Outcome

SCHEMA: Final = "mpprof.audit/1"
NUMBERS: Final = ("min_matrix_unit_ratio", "min_16_bit_ratio", "max_peak_memory_bytes", "max_least_ns")
SHARES: Final = NUMBERS[:2]
KEYS: Final = (*NUMBERS, "forbidden")
SAME = 0.001
"""Shares, bytes and times that differ by less are the same: they are computed, and rounded."""
_STORE = "Keep one: mpprof audit MODEL --gpu NAME --format json -o kept.json"
_OFF = 3
"""Layers that a broken share names."""


@frozen
class Kept:
    """What an audit that was kept says. None and empty as in an `AuditReport`."""

    gpu: str | None
    batch_size: int | None
    policy: str | None
    work: tuple[MatrixWork, ...]
    memory: tuple[AuditMemory, ...]
    least_ns: float | None


@frozen
class Bounds:
    """The table [audit], and what [ignore] dismisses."""

    numbers: Mapping[str, float]
    forbidden: Forbidden


def read(path: Path) -> Bounds:
    """Return the bounds of a file. Raises UsageError, which names the file and the key."""
    given = bounds_file.audit_table(path)
    if not given or (unknown := sorted(set(given) - set(KEYS))):
        what = f"audit.{unknown[0]}: not a bound" if given else "holds no table [audit]"
        raise UsageError(what, where=str(path), next=f"Its bounds are: {', '.join(KEYS)}")
    numbers = {key: bounds_file.number(given[key], key, path, SHARES) for key in NUMBERS if key in given}
    names = given.get("forbidden", [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise UsageError("audit.forbidden: not a list of causes", where=str(path))
    option = f"{path}: audit.forbidden"
    wanted = checks.forbidden(names, compared=False, option=option) if names else Forbidden((), None)
    return Bounds(numbers, checks.without(wanted, bounds_file.ignored(path)))


def read_kept(path: Path) -> Kept:
    """Return an audit that was kept as JSON. Raises UsageError for a file that is not an audit."""
    try:
        content = read_regular(path, bounds_file.MOST_BYTES)
        small = len(content) <= bounds_file.MOST_BYTES
        document = json.loads(content, parse_constant=_no_number) if small else None
        if not isinstance(document, dict) or document.get("schema") != SCHEMA:
            raise ValueError(f"its schema is not {SCHEMA}")
        return Kept(
            document["gpu"],
            document["batch_size"],
            document["policy"],
            tuple(_made(MatrixWork, row) for row in document.get("work", ())),
            tuple(_made(AuditMemory, row) for row in document["memory"]),
            document.get("least_ns"),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(f"not an audit that was kept: {error}", where=str(path), next=_STORE) from error


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is not a number")


def _made(kind: Any, row: Mapping[str, Any]) -> Any:
    """Return a row as its type; keys of a later version are left out."""
    return kind(**{field.name: row[field.name] for field in fields(kind) if field.name in row})


# --- bounds ------------------------------------------------------------------------------------------------


def judge(report: AuditReport, bounds: Bounds) -> Iterator[Outcome]:
    """Yield what became of each bound."""
    for key, bound in bounds.numbers.items():
        yield _ratio(report, key, bound) if key in SHARES else _most(report, key, bound)
    for note in report.notes:
        named = note.code in bounds.forbidden.codes
        if named or bounds.forbidden.covers(note.severity):
            what = f"{note.layer or note.about or report.model or 'model'}: {note.slug}: {note.reason}"
            yield Outcome(note.code if named else str(bounds.forbidden.severity), "failed", what, note.code)
    for unable in report.unable:
        if unable.code in bounds.forbidden.codes:
            yield Outcome(unable.code, "unable", f"cannot be judged: {unable.reason}", unable.code)


def _is_on(each: MatrixWork, narrow: bool) -> bool:
    return each.narrow if narrow else each.on_units


def _ratio(report: AuditReport, key: str, bound: float) -> Outcome:
    if (why := _not_known(report)) is not None:
        return Outcome(key, "unable", why)
    if report.custom:
        return Outcome(
            key, "unable", f"{report.custom[0]}: what a layer of your own class multiplies is not known"
        )
    narrow = key == "min_16_bit_ratio"
    ratio = _on(report.work, narrow)
    off = sorted(
        (each for each in report.work if not _is_on(each, narrow)), key=lambda one: -(one.share or 0.0)
    )
    says = (
        f"{quantities.format_ratio(ratio)} of the multiplications with weights, "
        f"at least {quantities.format_ratio(bound)}"
    )
    if ratio >= bound - SAME:
        return Outcome(key, "passed", says)
    named = "; ".join(f"{each.layer}: {_state(each)}" for each in off[:_OFF])
    more = f"; and {len(off) - _OFF} more" if len(off) > _OFF else ""
    return Outcome(key, "failed", f"{says}: {named}{more}")


def _not_known(of: AuditReport | Kept) -> str | None:
    if of.gpu is None:
        return "where its products run is not known: no card was named: give --gpu NAME"
    if not of.work:
        return "no layer multiplies with weights, as far as is known"
    if any(each.share is None for each in of.work):
        return "the shares of its layers are not known: the model states no shapes"
    unknown = [each for each in of.work if each.unit == "unknown"]
    return f"{unknown[0].layer}: {unknown[0].reason}" if unknown else None


def _on(work: Sequence[MatrixWork], narrow: bool) -> float:
    return sum(each.share or 0.0 for each in work if _is_on(each, narrow))


def _most(report: AuditReport, key: str, bound: float) -> Outcome:
    value = report.least_ns if key == "max_least_ns" else _peak(report.memory, report.policy)
    if value is None:
        why = _why_no_least(report) if key == "max_least_ns" else _why_no_peak(report)
        return Outcome(key, "unable", f"not known: {why}")
    shown = quantities.format_ns if key == "max_least_ns" else quantities.format_bytes
    says = f"{shown(value)}, at most {shown(bound)}"
    own = [each for each in report.memory if each.policy == report.policy and key != "max_least_ns"]
    missing = [text for each in own for text in each.left_out]
    missing += ["what custom layers keep" for each in own if each.custom_layers]
    if value <= bound and missing:
        return Outcome(key, "unable", f"at least {shown(value)}: not known is {missing[0]}")
    return Outcome(key, "failed" if value > bound else "passed", says)


def _peak(memory: Sequence[AuditMemory], policy: str | None) -> float | None:
    """Return the estimated peak under the model's own policy; None where it is not known."""
    own = [each for each in memory if each.policy == policy]
    return own[0].peak_bytes if own and not own[0].without_slots else None


_NO_BATCH = "no batch size was given: give --batch-size N"


def _why_no_least(report: AuditReport) -> str:
    if report.gpu is None:
        return "no card was named: give --gpu NAME" + ("" if report.batch_size else f"; {_NO_BATCH}")
    if report.batch_size is None:
        return _NO_BATCH
    return _not_known(report) or f"the rates of {report.gpu} for these types are not known"


def _why_no_peak(report: AuditReport) -> str:
    if report.batch_size is None:
        return _NO_BATCH
    if report.no_memory:
        return report.no_memory
    if any(each.policy == report.policy for each in report.memory):
        return "the optimizer's slots are not known: compile the model"
    return f"memory is not estimated under the policy {report.policy}"


def _state(each: MatrixWork) -> str:
    """Return in a few words what a layer's products are: its size where that is wrong, else its unit."""
    if each.risk is not None and each.argument is not None:
        return f"{each.argument} {each.size:,}" if each.argument in each.risk else each.risk
    return f"{UNITS.get(each.unit, 'a unit that is not known')} in {each.precision}"


# --- against an audit that was kept ------------------------------------------------------------------------


def compare(report: AuditReport, kept: Kept) -> Iterator[Outcome]:
    """Yield a failure for each layer whose products left the matrix units or 16 bits, for a larger share off
    them, a larger peak and a larger least time; `passed` where there is none."""
    if report.gpu != kept.gpu:
        yield Outcome(
            "against",
            "unable",
            f"this audit is for {report.gpu or 'no card'}, the kept one for {kept.gpu or 'no card'}: "
            + (f"give --gpu {kept.gpu!r}" if kept.gpu else "keep one for a card with --gpu NAME"),
        )
        return
    now, then = _not_known(report), _not_known(kept)
    if now or then:
        yield Outcome("against", "unable", now or f"the audit that was kept: {then}")
        return
    if not {each.layer for each in report.work} & {each.layer for each in kept.work}:
        yield Outcome("against", "unable", "no layer of the audit that was kept is in this model")
        return
    found = [*_left(report.work, kept.work), *_more(report, kept)]
    yield from found or [Outcome("against", "passed", "no layer left the matrix units")]


def _left(work: Sequence[MatrixWork], kept: Sequence[MatrixWork]) -> Iterator[Outcome]:
    before = {each.layer: each for each in kept}
    for each in work:
        old = before.get(each.layer)
        if old is None:
            continue
        for check, narrow in (("matrix units", False), ("16 bits", True)):
            if _is_on(old, narrow) and not _is_on(each, narrow):
                yield Outcome(check, "failed", f"{each.layer}: {_changed(each, old)}")
                break
    old_layers, lost = set(before), _on(kept, True) - _on(work, True)
    new = [each for each in work if each.layer not in old_layers and not each.narrow]
    if lost > SAME and new:
        worst = max(new, key=lambda one: one.share or 0.0)
        part = quantities.format_ratio(worst.share)
        yield Outcome(
            "16 bits",
            "failed",
            f"{worst.layer}: new, {_state(worst)}, {part} of the multiplications with weights",
        )


def _changed(each: MatrixWork, old: MatrixWork) -> str:
    if each.argument and each.argument == old.argument and each.size != old.size:
        return f"{each.argument} {each.size:,}, was {old.size:,}"
    return f"{_state(each)}, was {_state(old)}"


def _more(report: AuditReport, kept: Kept) -> Iterator[Outcome]:
    alike = report.batch_size == kept.batch_size and report.policy == kept.policy
    pairs = (
        (
            "peak memory",
            quantities.format_bytes,
            _peak(report.memory, report.policy),
            _peak(kept.memory, kept.policy),
        ),
        ("least time", quantities.format_ns, report.least_ns, kept.least_ns),
    )
    for check, shown, now, then in pairs:
        if report.batch_size != kept.batch_size:
            if then is not None:
                why = f"at batch {report.batch_size}" if report.batch_size else "no batch size was given"
                why += f", and it was kept at {kept.batch_size}: give --batch-size {kept.batch_size}"
                yield Outcome(check, "unable", why)
        elif now is not None and then is not None and now > then * (1 + SAME):
            largest = _grown(report.work, kept.work)
            policy = "" if alike else f" (policy {report.policy}, was {kept.policy})"
            yield Outcome(check, "failed", f"{shown(now)}, was {shown(then)}{policy}{largest}")
        elif now is None and then is not None:
            yield Outcome(check, "unable", "not known any more")


def _grown(work: Sequence[MatrixWork], kept: Sequence[MatrixWork]) -> str:
    """Return the layers that are new or wider, as the end of a sentence."""
    before = {each.layer: each for each in kept}
    said = []
    for each in work:
        old = before.get(each.layer)
        if old is None:
            said.append(f"{each.layer} is new")
        elif each.size and old.size and each.size > old.size:
            said.append(f"{each.layer}: {each.argument} {each.size:,}, was {old.size:,}")
    return f": {', '.join(said[:_OFF])}" if said else ""
