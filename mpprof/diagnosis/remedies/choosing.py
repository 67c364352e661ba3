"""Choose a finding's remedies: the rows of the table that fit the framework, the card and the evidence."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from itertools import repeat
from typing import TYPE_CHECKING

from mpprof.diagnosis.remedies import conditions as its
from mpprof.diagnosis.remedies import (
    frameworks,
    rows_of_devices,
    rows_of_host,
    rows_of_kernels,
    rows_of_precision,
    rows_of_records,
)
from mpprof.diagnosis.remedies.frameworks import Framework
from mpprof.diagnosis.remedies.shared_rows import AMD, Row
from mpprof.model.answer import Remedy

if TYPE_CHECKING:
    from mpprof.diagnosis.signals import Signals


ROWS: tuple[Row, ...] = (
    *rows_of_precision.IN_EFFECT,
    *rows_of_precision.LOSS_SCALING,
    *rows_of_host.INPUT,
    *rows_of_host.LAUNCHES,
    *rows_of_host.HOST,
    *rows_of_kernels.MATRIX,
    *rows_of_kernels.LAYOUT,
    *rows_of_kernels.REST,
    *rows_of_devices.DEVICES,
    *rows_of_precision.CARD,
    *rows_of_precision.SWITCH,
    *rows_of_records.VALIDITY,
    *rows_of_records.RECORDS,
)
"""The one table of remedies: by cause, framework, card and evidence. The first rows of a cause pay most.

Values that every row may name: `{keras}` (the name that Keras is imported by), `{set_policy}` (what sets its
dtype policy), `{scaled_optimizer}` (its optimizer with a loss scale), `{recorder}` (what records such a run),
`{run}` (its path, quoted for a shell), `{script}` (its script, likewise)."""

_BY_CODE: dict[str, list[Row]] = {}
for _row in ROWS:
    _BY_CODE.setdefault(_row.code, []).append(_row)

_WITHOUT_KERAS: tuple[tuple[str, Framework], ...] = (("PyTorch", "torch"), ("JAX", "jax"))
_IN_MANUAL = {
    "run": "RUN", "baseline": "MIXED_RUN", "recorder": "StepRecorder", "policy": "mixed_float16",
    "islands": "those layers", "activation": "softmax", "units": "classes", "first": "40", "last": "44",
    "cross_entropy": "SparseCategoricalCrossentropy", "enough": "30", "twice": "60",
    "names": '("logits",)',
}  # fmt: skip
"""Placeholders for a run's values if there is no run."""
_NOTHING = "none needed"


def choose(
    code: str, signals: Signals, cases: Collection[str] = ("",), values: Mapping[str, object] | None = None
) -> tuple[Remedy, ...]:
    """Return the table's remedies of this cause for this run, in its order; empty: it has none. A run that
    ran out of memory is given no larger batch."""
    given = signals.words | dict(values or {})
    fits = [row for case in cases for row in _BY_CODE.get(code, ()) if row.fits(signals, case)]
    if signals.ran_out_of_memory:
        fits = [row for row in fits if not row.larger_batch]
    return tuple(map(_remedy, fits, repeat(given)))


def of_framework(code: str, framework: Framework) -> tuple[Remedy, ...]:
    """Return the table's remedies of this cause where no more is known than the framework."""
    given = frameworks.words(None, framework)
    return tuple(
        _remedy(row, given)
        for row in _BY_CODE.get(code, ())
        if framework in row.on and not row.case and not row.when
    )


def in_keras(code: str) -> tuple[Remedy, ...]:
    """Return what the manual advises for Keras on TensorFlow and NVIDIA, each code once. Remedies for
    particular evidence in a run are left out."""
    framework: Framework = "keras on tensorflow"
    given = frameworks.words(None, framework) | _IN_MANUAL | {"recorder": "MPProfilerCallback"}
    found: dict[str, Remedy] = {}
    for row in _BY_CODE.get(code, ()):
        if framework in row.on and "nvidia" in row.vendors and not row.when:
            remedy = _remedy(row, given)
            if "{" not in remedy.text and not (row.case and remedy.text.startswith(_NOTHING)):
                found.setdefault(remedy.snippet or remedy.text, _for_the_case(remedy, row.where))
    return tuple(found.values())


def beyond_keras(code: str) -> tuple[tuple[str, str], ...]:
    """Return (names, remedies) for PyTorch, JAX and AMD, where they differ from those for Keras on TensorFlow
    and NVIDIA. Remedies for particular evidence in a run are left out."""
    rows = [row for row in _BY_CODE.get(code, ()) if set(row.when) <= {its.eager_jax}]
    rows = [row for row in rows if not row.case] or rows
    texts = {
        name: _joined(
            row for row in rows
            if framework in row.on and "keras on tensorflow" not in row.on and "nvidia" in row.vendors
        )
        for name, framework in _WITHOUT_KERAS
    }  # fmt: skip
    texts["AMD"] = _joined(row for row in rows if row.vendors == AMD)
    names: dict[str, list[str]] = {}
    for name, text in texts.items():
        names.setdefault(text, []).append(name)
    return tuple((" and ".join(of), text) for text, of in names.items() if text)


def _joined(rows: Iterable[Row]) -> str:
    texts = dict.fromkeys(_filled(row.text, _IN_MANUAL) for row in rows)
    return "; ".join(text.removeprefix("or ") for text in texts if "{" not in text and text != _NOTHING)


def joined(remedies: Collection[Remedy]) -> str:
    """Join the remedies to one text."""
    return "; ".join(remedy.text for remedy in remedies)


def _remedy(row: Row, given: Mapping[str, object]) -> Remedy:
    return Remedy(_filled(row.text, given), _filled(row.snippet, given), row.larger_batch, row.other_type)


def _for_the_case(remedy: Remedy, where: str) -> Remedy:
    return replace(remedy, text=f"{where}: {remedy.text}") if where else remedy


def _filled(text: str, values: Mapping[str, object]) -> str:
    # Not str.format: code to copy may hold braces of its own.
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", str(value))
    return text
