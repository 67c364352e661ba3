"""Tables as CSV: what a spreadsheet may make of the cells."""

from __future__ import annotations

import pytest

from mpprof.report import tables


@pytest.mark.parametrize(
    "text", ["=1+1", "+A1", "-A1", "@SUM(A1)", '=HYPERLINK("http://host")', "-", " =1+1", ";=1+1", "x;=1+1"]
)
def test_a_text_that_would_be_a_formula_is_a_text(text: str) -> None:
    quoted = text.replace('"', '""')
    guard = "" if text.startswith("x") else "'"
    cell = f'"{guard}{quoted}"' if '"' in text or ";" in text else f"{guard}{text}"
    assert tables.to_csv([{"name": text}], ["name"]) == f"name\n{cell}\n"


@pytest.mark.parametrize("value", [-5, -1.5, "-1.5", "+3", "-Infinity", "a-b", "x=1"])
def test_a_number_stays_a_number_and_a_text_a_text(value: object) -> None:
    assert tables.to_csv([{"name": value}], ["name"]) == f"name\n{value}\n"
