"""Rows of tables as the grids get them."""

from __future__ import annotations

from mpprof_dashboards.components.grid import _definition
from mpprof_dashboards.pages import tables


def test_eligibility_reason_code_and_rates_stand_beside_their_words() -> None:
    (row,) = tables.prepared(
        [
            {
                "op": "logits/MatMul", "eligible": "could_never", "flops_per_s": 1.25e13, "roofline_ratio": 0.35,
                "eligible_reason": {"code": "shape", "text": "N = 33709 is not a multiple of 8 (fp16)"},
                "reason": {"code": "cublas-fma", "text": "ordinary arithmetic"},
            }
        ]
    )  # fmt: skip
    assert (row["eligible"], row["eligible_code"], row["reason_code"]) == (
        "could never",
        "shape",
        "cublas-fma",
    )
    assert "33709" in row["eligible_text"]
    assert (row["flops_per_s_text"], row["roofline_ratio_text"]) == ("12.5 TFLOP/s", "35.0 %")


def test_a_row_without_a_rate_shows_none() -> None:
    (row,) = tables.prepared([{"op": "x", "eligible": None, "flops_per_s": None, "eligible_reason": None}])
    assert (row["flops_per_s_text"], row["eligible"]) == ("", None)
    assert tables.present(tables.ELIGIBLE, [row]) == ()


def test_placement_precision_and_reason_can_be_filtered() -> None:
    for column in (*tables.PLACED, *tables.ELIGIBLE):
        definition = _definition(column)
        assert definition["filter"] == "agTextColumnFilter"
        assert ("textMatcher" in definition.get("filterParams", {})) is column.number
    assert {"placement", "precision", "reason_code"} <= {column.field for column in tables.PLACED}
