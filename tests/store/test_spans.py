"""Lines of the step log beside the steps: fits, epochs, and what was spent."""

from __future__ import annotations

from pathlib import Path

import pytest

from mpprof.model import limits
from mpprof.model.run_time import RECORDING_ENDED, FitSpan, Spans, SpentKey
from mpprof.store import read_records
from tests.store.test_store import STEPS, run_with, step

SPENT = (
    '{"kind":"spent","part":"callbacks","name":"Slow","at":"batch","fit":1,"first_step":1,"last_step":9,'
    '"calls":9,"ns":70}\n'
)


def read(tmp_path: Path, lines: str) -> tuple[Spans, tuple[str, ...]]:
    records = read_records(run_with(tmp_path, STEPS + lines))
    assert records.spans is not None
    return records.spans, records.warnings


def test_fits_epochs_and_what_was_spent_are_read(tmp_path: Path) -> None:
    spans, warnings = read(
        tmp_path,
        '{"kind":"fit","fit":1,"t_ns":5}\n'
        + step(1)
        + SPENT
        + '{"kind":"spent","part":"compile","name":"tensorflow tracing","at":"batch","fit":1,"first_step":1,'
        '"last_step":1,"calls":2}\n'
        '{"kind":"epoch","fit":1,"epoch":0,"begin_ns":6,"end_ns":90}\n'
        '{"kind":"fit_end","reason":"error","t_ns":95}\n'
        '{"kind":"fit","fit":2,"t_ns":100}\n'
        '{"kind":"recording_end","step":3,"reason":"the disk is full","t_ns":130}\n'
        '{"kind":"of a newer mpprof","part":7}\n',
    )
    assert warnings == ()
    assert spans.fits == (FitSpan(1, 5, 95, "error"), FitSpan(2, 100, 130, RECORDING_ENDED))
    assert spans.epochs.to_dict() == {"fit": [1], "epoch": [0], "begin_ns": [6], "end_ns": [90]}
    assert spans.spent.keys == (
        SpentKey("callbacks", "Slow", "batch"), SpentKey("compile", "tensorflow tracing", "batch"),
    )  # fmt: skip
    assert spans.spent.to_dict()["ns"] == [70, None]
    assert spans.spent.to_dict()["calls"] == [9, 2]
    assert spans.spent.rows("callbacks").tolist() == [True, False]
    assert spans.told


def test_a_log_of_an_older_mpprof_has_neither(tmp_path: Path) -> None:
    old = '{"kind":"fit","fit":1,"t_ns":5}\n' + step(1) + '{"kind":"fit_end","reason":"finished"}\n'
    spans, warnings = read(tmp_path, old)
    assert warnings == ()
    assert spans.fits == (FitSpan(1, 5, None, "finished"),)
    assert not spans.told


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"ns":70', '"ns":-1'),
        ('"ns":70', '"ns":7.5'),
        ('"ns":70', '"ns":true'),
        ('"ns":70', f'"ns":{limits.LONGEST_NS + 1}'),
        ('"name":"Slow"', '"name":7'),
        ('"at":"batch",', ""),
        ('"fit":1', '"fit":"1"'),
        ('"first_step":1', '"first_step":null'),
        ('"calls":9', f'"calls":{1 << 70}'),
    ],
)
def test_a_line_with_a_damaged_value_is_left_out_and_said(old: str, new: str, tmp_path: Path) -> None:
    epoch = '{"kind":"epoch","fit":1,"epoch":-1,"begin_ns":6,"end_ns":90}\n'
    spans, warnings = read(tmp_path, SPENT + SPENT.replace(old, new) + epoch)
    assert len(spans.spent) == 1
    assert len(spans.epochs) == 0
    assert len(warnings) == 1
    assert "2 lines of kind epoch or spent" in warnings[0]


def test_names_without_end_are_bounded(tmp_path: Path) -> None:
    many = "".join(SPENT.replace("Slow", f"c{row}") for row in range(limits.MOST_SPENT_NAMES + 5))
    spans, warnings = read(tmp_path, many + SPENT.replace("Slow", "x" * 5_000))
    assert len(spans.spent.keys) == limits.MOST_SPENT_NAMES
    assert "6 lines" in warnings[0]
    spans, _ = read(tmp_path / "long", SPENT.replace("Slow", "x" * 5_000))
    assert len(spans.spent.keys[0].name) == limits.LONGEST_NAME
